// SPDX-License-Identifier: Apache-2.0
// What the layouts of a tensor program's results suggest for its blocks and for what they read.
#pragma once

#include <utility>
#include <vector>

#include "tir/index_map.h"
#include "tir/stmt.h"

namespace relaxvm::analysis {

struct LayoutSuggestion {
  tir::SBlock block;
  tir::IndexMap map;  // of the block's axes
  // The buffer that it writes, then those that it reads in the order of its axes.
  std::vector<std::pair<ir::Var, tir::IndexMap>> buffers;
};

// `results`: a layout for each of the last buffer parameters.  Blocks are left out whose results
// have no suggestion, or that write elsewhere than at their spatial axes.
std::vector<LayoutSuggestion> SuggestLayouts(const tir::PrimFunc& program,
                                             const tvm::ffi::Array<tir::IndexMap>& results);

}  // namespace relaxvm::analysis
