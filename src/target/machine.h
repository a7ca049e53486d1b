// SPDX-License-Identifier: Apache-2.0
// The machine that code is made for, as schedules see it.  codegen/llvm fills it in (MachineOf):
// only LLVM knows the features of a named CPU.
#pragma once

#include <cstdint>

namespace relaxvm::target {

struct Machine {
  int64_t vector_bytes = 16;  // of one register
  int64_t num_vectors = 16;   // registers
};

}  // namespace relaxvm::target
