// SPDX-License-Identifier: Apache-2.0
// What a piece of a program uses from its surroundings: what a parallel loop hands to its task.
#pragma once

#include <vector>

#include "tir/stmt.h"

namespace relaxvm::codegen {

struct FreeVars {
  std::vector<ir::Var> scalars;  // also those in the shapes of `buffers`
  std::vector<tir::Buffer> buffers;
};

// In order of first use; `defined` are not counted.
FreeVars FreeVarsOf(const tir::Stmt& body, const std::vector<ir::Var>& defined);

}  // namespace relaxvm::codegen
