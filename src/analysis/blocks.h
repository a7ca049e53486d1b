// SPDX-License-Identifier: Apache-2.0
// The blocks of a tensor program in program order, when it is nothing but loops around blocks.
#pragma once

#include <optional>
#include <vector>

#include "tir/stmt.h"

namespace relaxvm::analysis {

// A block without blocks inside, and the axes' values.
struct LeafBlock {
  tir::SBlockRealize realize;
  std::vector<tir::For> loops;  // around it, outermost first
};

// Absent when the program has statements outside blocks, or loops that are not plain.
std::optional<std::vector<LeafBlock>> LeafBlocks(const tir::Stmt& body);

// Stores (and bound values) of a block whose body is nothing else.
struct BlockStores {
  std::vector<tir::BufferStore> stores;
  std::vector<tir::Bind> binds;
};
std::optional<BlockStores> StoresOf(const tir::SBlock& block);

// All loads in an expression, also those inside indices.
std::vector<tir::BufferLoad> LoadsIn(const ir::Expr& e);

}  // namespace relaxvm::analysis
