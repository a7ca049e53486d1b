// SPDX-License-Identifier: Apache-2.0
// Which calls of tensor programs in a dataflow block become one program.
#pragma once

#include <vector>

#include "analysis/program_kind.h"
#include "ir/module.h"

namespace relaxvm::passes {

struct FusionLimits {
  int64_t max_calls = 256;  // in one group
};

// Sets of positions in `block`, each of two or more call_tir, ascending; only the last one's result
// is used outside.
std::vector<std::vector<int>> FindFusionGroups(const ir::DataflowBlock& block,
                                               const ir::IRModule& mod, const FusionLimits& limits);

}  // namespace relaxvm::passes
