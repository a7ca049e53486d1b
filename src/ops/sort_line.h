// SPDX-License-Identifier: Apache-2.0
// Statements that sort.
#pragma once

#include <functional>

#include "ops/loops.h"

namespace relaxvm::ops {

// Whether `a` stands before `b`.  NaN comes after everything (descending: before everything).
Expr ComesBefore(const Expr& a, const Expr& b, bool descending);

// Puts the order of line `value(0 .. n)` into `order`; equal elements keep theirs.  `spare` is as
// long.
Stmt SortLine(const std::function<Expr(const Expr&)>& value, const Expr& n, const Buffer& order,
              const Buffer& spare, bool descending);

}  // namespace relaxvm::ops
