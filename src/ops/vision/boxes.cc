// SPDX-License-Identifier: Apache-2.0
// Overlap of rectangles, and the loops that look for it.
#include "ops/vision/boxes.h"

namespace relaxvm::ops {
namespace {

struct Side {
  Expr low, high;
};
Side SideOf(const Corners& box, int64_t axis) {
  Expr a = box(axis), b = box(axis + 2);
  return {ir::Min(a, b), ir::Max(a, b)};
}

}  // namespace

Expr OverlapOf(const Corners& a, const Corners& b) {
  Side ax = SideOf(a, 0), ay = SideOf(a, 1), bx = SideOf(b, 0), by = SideOf(b, 1);
  Expr zero = Number(ax.low.dtype(), 0);
  Expr width = ir::Max(ir::Min(ax.high, bx.high) - ir::Max(ax.low, bx.low), zero);
  Expr height = ir::Max(ir::Min(ay.high, by.high) - ir::Max(ay.low, by.low), zero);
  Expr shared = width * height;
  Expr joint = (ax.high - ax.low) * (ay.high - ay.low) + (bx.high - bx.low) * (by.high - by.low);
  joint = joint - shared;
  return ir::IfThenElse(ir::Greater(joint, zero), ir::Div(shared, joint), zero);
}

Stmt Search(const Cell& index, const Expr& limit, const Cell& found, const Stmt& body) {
  Expr goes_on = ir::And(ir::Less(index.Get(), limit), ir::Equal(found.Get(), Expr(0)));
  return Sequence({index.Set(Expr(0)), found.Set(Expr(0)),
                   tir::While(goes_on, Sequence({body, index.Set(index.Get() + Expr(1))}))});
}

}  // namespace relaxvm::ops
