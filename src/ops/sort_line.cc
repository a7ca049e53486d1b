// SPDX-License-Identifier: Apache-2.0
// The stable merge sort of a line's indices, bottom up.
#include "ops/sort_line.h"

namespace relaxvm::ops {

Expr ComesBefore(const Expr& a, const Expr& b, bool descending) {
  Expr x = Widen(a), y = Widen(b);
  Expr before = descending ? ir::Greater(x, y) : ir::Less(x, y);
  if (!IsFloat(x.dtype())) return before;
  Expr x_nan = ir::CallIntrin(Intrin::kIsNan, {x});
  Expr y_nan = ir::CallIntrin(Intrin::kIsNan, {y});
  return ir::Or(before,
                descending ? ir::And(x_nan, ir::Not(y_nan)) : ir::And(y_nan, ir::Not(x_nan)));
}

Stmt SortLine(const std::function<Expr(const Expr&)>& value, const Expr& n, const Buffer& order,
              const Buffer& spare, bool descending) {
  Cell width("width", Int(64)), start("start", Int(64)), left("left", Int(64)),
      right("right", Int(64));
  auto at = [](const Expr& e) { return Indices{e}; };
  Expr middle = ir::Min(start.Get() + width.Get(), n);
  Expr end = ir::Min(start.Get() + width.Get() * Expr(2), n);
  ir::Var mid("mid", Int(64)), stop("stop", Int(64)), first("first", Int(64)), k("k", Int(64));
  // The left run goes first among equals: that keeps the order of the line.
  ir::Var from_left("from_left", Bool());
  Expr left_value = value(order.Load(at(left.Get())));
  Expr right_value = value(order.Load(at(right.Get())));
  Expr right_first =
      ir::IfThenElse(ir::Less(right.Get(), stop), ComesBefore(right_value, left_value, descending),
                     ir::BoolImm(false));
  Expr take_left =
      ir::IfThenElse(ir::Less(left.Get(), mid), ir::Not(right_first), ir::BoolImm(false));
  Stmt choose =
      tir::IfThenElse(from_left,
                      Sequence({tir::BufferStore(spare, order.Load(at(left.Get())), at(k)),
                                left.Set(left.Get() + Expr(1))}),
                      Sequence({tir::BufferStore(spare, order.Load(at(right.Get())), at(k)),
                                right.Set(right.Get() + Expr(1))}));
  Stmt merge = tir::For(k, first, Expr(stop) - Expr(first), tir::ForKind::kSerial,
                        Sequence({tir::Bind(from_left, take_left), choose}));
  Stmt runs = tir::While(
      ir::Less(start.Get(), n),
      Sequence({tir::Bind(mid, middle), tir::Bind(stop, end), tir::Bind(first, start.Get()),
                left.Set(first), right.Set(mid), merge, start.Set(stop)}));
  Stmt back =
      LoopNest({n}, [&](const Indices& i) { return tir::BufferStore(order, spare.Load(i), i); });
  Stmt widths =
      tir::While(ir::Less(width.Get(), n),
                 Sequence({start.Set(Expr(0)), runs, back, width.Set(width.Get() * Expr(2))}));
  Stmt fill = LoopNest({n}, [&](const Indices& i) { return tir::BufferStore(order, i[0], i); });
  return Sequence({width.Alloc(), start.Alloc(), left.Alloc(), right.Alloc(), fill,
                   width.Set(Expr(1)), widths});
}

}  // namespace relaxvm::ops
