// SPDX-License-Identifier: Apache-2.0
// Whether notes of pairs of bytes (schedule::PairNotes) pay for a weight.
#pragma once

#include <tvm/ffi/container/tensor.h>

#include "schedule/cpu/cpu.h"

namespace relaxvm::schedule::cpu {

// The program of `operand` that does not read the notes of its panels.  Absent where it has none,
// or where enough blocks of `panels` keep to 16 bits.
std::optional<PrimFunc> WithoutNotes(const PackedOperand& operand, const ffi::Tensor& panels);

}  // namespace relaxvm::schedule::cpu
