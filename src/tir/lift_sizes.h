// SPDX-License-Identifier: Apache-2.0
// One program for all sizes: the numbers of a program that runs once become arguments, so that it
// is compiled once for each kind of program and not once for each shape.
#pragma once

#include <cstdint>
#include <vector>

#include "tir/stmt.h"

namespace relaxvm::tir {

struct LiftedSizes {
  PrimFunc program;             // its first parameters are the sizes
  std::vector<int64_t> values;  // what they are; empty: the program is as it was
};

// `names` are the variables of all programs, so that lifted programs compare equal; grows.
// Programs with vectors, or with registers, keep their numbers.
LiftedSizes LiftSizes(const PrimFunc& program, std::vector<Var>* names);

}  // namespace relaxvm::tir
