// SPDX-License-Identifier: Apache-2.0
// LLVM's knowledge of a CPU and the running system's of its caches, put together.
#include "pipeline/machine.h"

#include <algorithm>

#include "codegen/llvm/kernels.h"
#include "runtime/platform/cpus.h"
#include "target/target.h"

namespace relaxvm::pipeline {

// Of a last cache that a hundred cores share (480 MiB on a Granite Rapids) so much serves one of
// them faster than memory does; the others' work takes the rest.
constexpr int64_t kMostOfCore = 32 << 20;

// Of a machine that is named: it may be another one, and work for one core would leave all its
// others idle.
constexpr int kUsualCores = 4;

target::Machine MachineFor(const std::string& text) {
  target::Machine machine = codegen::MachineOf(text);
  const target::Target named = target::ParseTarget(text);
  if (!named.cpu.empty() || !named.triple.empty()) {
    machine.num_cores = kUsualCores;
    return machine;
  }
  const runtime::CacheSizes caches = runtime::ReadCacheSizes();
  if (caches.l1 > 0) machine.l1_bytes = caches.l1;
  machine.num_cores = runtime::NumUsableCpus();
  if (caches.l2 > 0) {
    machine.l2_bytes = caches.l2;
    machine.l3_bytes = std::min(caches.l3, kMostOfCore * machine.num_cores);
  }
  return machine;
}

std::string WhyNotHere(const std::string& target) {
  const codegen::MachineCode code = codegen::MachineCodeOf(target);
  if (code.is_foreign) return "it is compiled for " + code.triple;
  std::string list;
  for (const std::string& name : runtime::MissingCpuFeatures(code.features))
    list += (list.empty() ? "" : ", ") + name;
  if (list.empty()) return "";
  return "it is compiled for the CPU " + code.cpu + ", and this one lacks " + list;
}

}  // namespace relaxvm::pipeline
