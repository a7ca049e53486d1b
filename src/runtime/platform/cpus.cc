// SPDX-License-Identifier: Apache-2.0
// Affinity mask, cgroup quota (v2 and v1), CPU features.
#include "runtime/platform/cpus.h"

#include <sched.h>
#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <thread>

#include "target/amx.h"

namespace relaxvm::runtime {
namespace {

int AffinityCount() {
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof(mask), &mask) == 0) return CPU_COUNT(&mask);
  return static_cast<int>(std::thread::hardware_concurrency());
}

// The lowest CPU of the affinity mask.
int FirstCpu() {
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof(mask), &mask) != 0) return 0;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &mask)) return i;
  }
  return 0;
}

// CPUs that the quota amounts to; 0 when there is none.
int QuotaCount() {
  double quota = -1, period = -1;
  std::ifstream v2("/sys/fs/cgroup/cpu.max");
  std::string text;
  if (v2 >> text >> period && text != "max") {
    std::istringstream(text) >> quota;
  } else {
    std::ifstream("/sys/fs/cgroup/cpu/cpu.cfs_quota_us") >> quota;
    std::ifstream("/sys/fs/cgroup/cpu/cpu.cfs_period_us") >> period;
  }
  if (quota <= 0 || period <= 0) return 0;
  return std::max(1, static_cast<int>(std::ceil(quota / period)));
}

#if defined(__x86_64__)
// What __builtin_cpu_supports knows in recent compilers only.  The registers that these need are
// those of features that it is asked for.
struct CpuidBit {
  std::string_view name;
  unsigned leaf, subleaf, word, bit;  // word: eax, ebx, ecx, edx

  bool IsSet() const {
    unsigned words[4] = {};
    if (__get_cpuid_count(leaf, subleaf, &words[0], &words[1], &words[2], &words[3]) == 0)
      return false;
    const bool is_set = (words[word] >> bit & 1) != 0;
    return is_set && (!name.starts_with("amx-") || target::AskForAmx());
  }
};
constexpr CpuidBit kCpuidBits[] = {
    {"f16c", 1, 0, 2, 29},       {"movbe", 1, 0, 2, 22},    {"lzcnt", 0x80000001, 0, 2, 5},
    {"gfni", 7, 0, 2, 8},        {"vaes", 7, 0, 2, 9},      {"vpclmulqdq", 7, 0, 2, 10},
    {"avx512fp16", 7, 0, 3, 23}, {"amx-bf16", 7, 0, 3, 22}, {"amx-tile", 7, 0, 3, 24},
    {"amx-int8", 7, 0, 3, 25},   {"avxvnni", 7, 1, 0, 4},
};
#elif defined(__aarch64__)
// Written out: the C library's headers know the newer ones in recent versions only.
struct HwcapBit {
  std::string_view name;
  unsigned long type, mask;
};
constexpr HwcapBit kHwcapBits[] = {
    {"neon", AT_HWCAP, 1UL << 1},       {"crc", AT_HWCAP, 1UL << 7},
    {"lse", AT_HWCAP, 1UL << 8},        {"fullfp16", AT_HWCAP, 1UL << 10},
    {"rdm", AT_HWCAP, 1UL << 12},       {"jsconv", AT_HWCAP, 1UL << 13},
    {"complxnum", AT_HWCAP, 1UL << 14}, {"rcpc", AT_HWCAP, 1UL << 15},
    {"dotprod", AT_HWCAP, 1UL << 20},   {"sve", AT_HWCAP, 1UL << 22},
    {"fp16fml", AT_HWCAP, 1UL << 23},   {"sve2", AT_HWCAP2, 1UL << 1},
    {"i8mm", AT_HWCAP2, 1UL << 13},     {"bf16", AT_HWCAP2, 1UL << 14},
};
#endif

bool HasFeature(std::string_view name) {
#if defined(__x86_64__)
#define RELAXVM_FEATURE(text) \
  if (name == text) return __builtin_cpu_supports(text) != 0;
  RELAXVM_FEATURE("avx")
  RELAXVM_FEATURE("avx2")
  RELAXVM_FEATURE("fma")
  RELAXVM_FEATURE("bmi")
  RELAXVM_FEATURE("bmi2")
  RELAXVM_FEATURE("popcnt")
  RELAXVM_FEATURE("sse3")
  RELAXVM_FEATURE("ssse3")
  RELAXVM_FEATURE("sse4.1")
  RELAXVM_FEATURE("sse4.2")
  RELAXVM_FEATURE("avx512f")
  RELAXVM_FEATURE("avx512bw")
  RELAXVM_FEATURE("avx512cd")
  RELAXVM_FEATURE("avx512dq")
  RELAXVM_FEATURE("avx512vl")
  RELAXVM_FEATURE("avx512ifma")
  RELAXVM_FEATURE("avx512vbmi")
  RELAXVM_FEATURE("avx512vbmi2")
  RELAXVM_FEATURE("avx512vnni")
  RELAXVM_FEATURE("avx512bitalg")
  RELAXVM_FEATURE("avx512vpopcntdq")
  RELAXVM_FEATURE("avx512bf16")
#undef RELAXVM_FEATURE
  for (const CpuidBit& bit : kCpuidBits) {
    if (name == bit.name) return bit.IsSet();
  }
#elif defined(__aarch64__)
  for (const HwcapBit& bit : kHwcapBits) {
    if (name == bit.name) return (getauxval(bit.type) & bit.mask) != 0;
  }
#endif
  return true;
}

}  // namespace

int NumUsableCpus() {
  int count = std::max(1, AffinityCount());
  int quota = QuotaCount();
  return quota > 0 ? std::min(count, quota) : count;
}

CacheSizes ReadCacheSizes() {
  CacheSizes sizes;
  // Linux lists the caches of each CPU; where /sys is hidden they stay unknown.
  for (int i = 0; i < 8; ++i) {
    const std::string folder = "/sys/devices/system/cpu/cpu" + std::to_string(FirstCpu()) +
                               "/cache/index" + std::to_string(i);
    int level = 0;
    int64_t kilobytes = 0;
    std::string type;
    std::ifstream(folder + "/level") >> level;
    std::ifstream(folder + "/type") >> type;
    std::ifstream(folder + "/size") >> kilobytes;  // "32K"
    if (type == "Instruction" || kilobytes <= 0) continue;
    if (level == 1) sizes.l1 = kilobytes << 10;
    if (level == 2) sizes.l2 = kilobytes << 10;
    if (level == 3) sizes.l3 = kilobytes << 10;
  }
  return sizes;
}

std::vector<std::string> MissingCpuFeatures(std::string_view required) {
  std::vector<std::string> missing;
  while (!required.empty()) {
    size_t comma = std::min(required.find(','), required.size());
    std::string_view item = required.substr(0, comma);
    required.remove_prefix(std::min(comma + 1, required.size()));
    if (item.starts_with('-') || item.empty()) continue;
    if (item.starts_with('+')) item.remove_prefix(1);
    if (!HasFeature(item)) missing.emplace_back(item);
  }
  return missing;
}

}  // namespace relaxvm::runtime
