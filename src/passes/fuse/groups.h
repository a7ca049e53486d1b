// SPDX-License-Identifier: Apache-2.0
// Which calls of tensor programs in a dataflow block become one program.
#pragma once

#include <vector>

#include "analysis/program_kind.h"
#include "ir/module.h"

namespace relaxvm::passes {

struct FusionLimits {
  int64_t max_calls = 256;  // in one group
  int64_t max_outputs = 1;
  bool keep_reshapes = false;      // out of groups, at their ends: there they cost nothing
  bool extend_reductions = false;  // by elementwise calls on their results
};

struct FusionGroup {
  std::vector<int> calls;    // positions in a block, two or more call_tir, ascending
  std::vector<int> outputs;  // those of them whose results are used outside, after the last call
};

std::vector<FusionGroup> FindFusionGroups(const ir::DataflowBlock& block, const ir::IRModule& mod,
                                          const FusionLimits& limits);

}  // namespace relaxvm::passes
