// SPDX-License-Identifier: Apache-2.0
// What operators on rectangles share.
#pragma once

#include <functional>

#include "ops/loops.h"

namespace relaxvm::ops {

// Corner `k` (0 to 3) of a rectangle; opposite corners in any order.
using Corners = std::function<Expr(int64_t k)>;

// Shared area by joint area of two rectangles; 0 when both are empty.
Expr OverlapOf(const Corners& a, const Corners& b);

// while (index < limit and not found): body, where body may set `found` to 1
Stmt Search(const Cell& index, const Expr& limit, const Cell& found, const Stmt& body);

}  // namespace relaxvm::ops
