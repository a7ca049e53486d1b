// SPDX-License-Identifier: Apache-2.0
// Where blocks of memory lie in one arena: blocks that live at the same time do not overlap,
// whatever the symbolic sizes turn out to be.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "arith/analyzer.h"
#include "ir/expr.h"

namespace relaxvm::passes {

inline constexpr int64_t kArenaAlignment = 64;  // bytes; what kernels may rely on

struct ArenaBlock {
  int64_t start = 0;  // first and last moment at which it is alive
  int64_t end = 0;
  ir::Expr bytes;  // an int64 expression, at least 0
};

struct ArenaPlan {
  std::vector<ir::Expr> offsets;  // of each block
  ir::Expr total;
  // Variables in `offsets` and `total` with their values, in order.
  std::vector<std::pair<ir::Var, ir::Expr>> definitions;
};

// Absent when a size cannot be computed with, or there are too many blocks that live together.
std::optional<ArenaPlan> PlanArena(const std::vector<ArenaBlock>& blocks,
                                   arith::Analyzer* analyzer);

inline constexpr int kApart = -1;  // a block with memory of its own

// The arena of each block, or kApart.  An arena is held from its first block to its last; where one
// for all costs too much beside memory that is reserved `outside` of it, there are several, one
// after the other.
std::vector<int> DivideIntoArenas(const std::vector<ArenaBlock>& blocks,
                                  const std::vector<ArenaBlock>& outside,
                                  arith::Analyzer* analyzer);

// `bytes` rounded up to the alignment.
ir::Expr AlignBytes(const ir::Expr& bytes, arith::Analyzer* analyzer);

}  // namespace relaxvm::passes
