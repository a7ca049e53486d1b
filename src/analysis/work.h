// SPDX-License-Identifier: Apache-2.0
// How much a tensor program does, over its sizes: arithmetic operations, and bytes of parameters
// that it has to read and write at least.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tir/stmt.h"

namespace relaxvm::analysis {

// Attribute of a tensor program: the text of WorkOf.
inline constexpr const char* kWork = "relaxvm.work";

// "operations|bytes|dtype", the first two in postfix notation for runtime/kernel_work.h: numbers,
// `t<i>.<d>` (dimension d of tensor parameter i), `n<i>` (its number of elements), `s<i>` (scalar
// parameter i), + - * / % min max.  Operations are left out when they depend on data.  Branches
// count in full; scatter and gather count what they touch, never more than the whole tensor.  The
// dtype is what a machine may have faster products for than those of floats: "int8" when bytes of
// any signs are multiplied and summed, else "bfloat16" when these are; it and its bar are left out
// for others.
std::string WorkOf(const tir::PrimFunc& program);

// Operations and stores of a program of known sizes; absent for others, and when they depend on
// data.
std::optional<int64_t> NumSteps(const tir::PrimFunc& program);

}  // namespace relaxvm::analysis
