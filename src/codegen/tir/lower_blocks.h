// SPDX-License-Identifier: Apache-2.0
// Blocks become plain loops and statements: axes are replaced by their values, predicates become
// conditions, the init of a reduction moves in front of its outermost reduce loop.
#pragma once

#include "tir/stmt.h"

namespace relaxvm::codegen {

tir::Stmt LowerBlocks(const tir::Stmt& body);

}  // namespace relaxvm::codegen
