// SPDX-License-Identifier: Apache-2.0
// CPUs by name.  Smaller caches are safer: a block that does not fit costs more than one that could
// have been larger.
#include "target/machine.h"

namespace relaxvm::target {
namespace {

struct Row {
  std::string_view cpu;
  int64_t l1_kib, l2_kib, l3_kib;
  int64_t fetch_ahead = 0;
  bool one_of_64_bytes = false;  // multiply-add of registers of 64 bytes in a cycle
};

// By name.
// clang-format off
constexpr Row kRows[] = {
    {"a64fx", 64, 8192, 0},
    {"alderlake", 48, 1280, 30720},
    {"ampere1", 64, 2048, 65536},
    {"apple-m1", 128, 12288, 8192},
    {"apple-m2", 128, 16384, 8192},
    {"apple-m3", 128, 16384, 8192},
    {"apple-m4", 128, 16384, 8192},
    {"broadwell", 32, 256, 8192},
    {"cortex-a35", 32, 512, 0},
    {"cortex-a53", 32, 512, 0},
    {"cortex-a55", 32, 128, 1024},
    {"cortex-a57", 32, 1024, 0},
    {"cortex-a72", 32, 1024, 0},
    {"cortex-a73", 64, 1024, 0},
    {"cortex-a75", 64, 256, 2048},
    {"cortex-a76", 64, 512, 2048},
    {"cortex-a77", 64, 512, 2048},
    {"cortex-a78", 64, 512, 4096},
    {"cortex-x1", 64, 1024, 4096},
    {"graniterapids", 48, 2048, 65536},
    {"haswell", 32, 256, 8192},
    {"icelake-client", 48, 512, 8192, 0, true},
    {"icelake-server", 48, 1280, 32768},
    {"nehalem", 32, 256, 8192},
    {"neoverse-n1", 64, 1024, 32768},
    {"neoverse-n2", 64, 1024, 32768},
    {"neoverse-v1", 64, 1024, 32768},
    {"neoverse-v2", 64, 1024, 65536},
    {"rocketlake", 48, 512, 16384, 0, true},
    {"sandybridge", 32, 256, 8192},
    {"sapphirerapids", 48, 2048, 65536},
    {"skylake", 32, 256, 8192},
    {"skylake-avx512", 32, 1024, 16384},
    {"thunderx2t99", 32, 256, 32768},
    {"tigerlake", 48, 1280, 12288, 0, true},
    {"znver1", 32, 512, 8192},
    {"znver2", 32, 512, 16384},
    {"znver3", 32, 512, 32768},
    {"znver4", 32, 1024, 32768, 0, true},
    {"znver5", 48, 1024, 32768, 2048},
};
// clang-format on

}  // namespace

void DescribeCpu(std::string_view cpu, Machine* machine) {
  for (const Row& row : kRows) {
    if (row.cpu != cpu) continue;
    machine->l1_bytes = row.l1_kib << 10;
    machine->l2_bytes = row.l2_kib << 10;
    machine->l3_bytes = row.l3_kib << 10;
    if (row.one_of_64_bytes && machine->vector_bytes == 64) machine->multiply_adds = 1;
    machine->fetch_ahead = machine->panel_ahead = row.fetch_ahead;
  }
}

}  // namespace relaxvm::target
