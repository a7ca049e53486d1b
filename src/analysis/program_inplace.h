// SPDX-License-Identifier: Apache-2.0
// Which arguments of a tensor program its result may be written over.
#pragma once

#include <vector>

#include "tir/stmt.h"

namespace relaxvm::analysis {

// Attribute of a scheduled program: the indices that OverwritableParams found before it was
// scheduled.
inline constexpr const char* kOverwritable = "relaxvm.overwritable";

// Parameters (by index) of which each element is read only for the result's element at the same
// place; empty unless the program has one result and only elementwise work.  The result is the last
// buffer parameter.
std::vector<int64_t> OverwritableParams(const tir::PrimFunc& program);

}  // namespace relaxvm::analysis
