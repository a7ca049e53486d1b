// SPDX-License-Identifier: Apache-2.0
#include "ops/loops.h"

namespace relaxvm::ops {

Stmt ForThoseOf(const Expr& n, const std::function<Expr(const Expr&)>& may_count,
                const std::function<Stmt(const Expr&)>& body) {
  constexpr int64_t kLanes = 16;
  ir::Var block("block", Int(64)), lane("lane", Int(64)), inside("inside", Int(64)),
      rest("rest", Int(64));
  Buffer counts("counts", {Expr(kLanes)}, Int(32), "local");
  const Expr whole = ir::FloorDiv(n, Expr(kLanes)), from = block * Expr(kLanes);
  const Expr none = ir::Const(Int(32), 0);
  const Stmt ask = tir::For(
      lane, Expr(0), Expr(kLanes), tir::ForKind::kVectorized,
      tir::BufferStore(counts, ir::Select(may_count(from + lane), ir::Const(Int(32), 1), none),
                       {lane}));
  const Expr any =
      ir::CallIntrin(Intrin::kReduceAdd, {counts.Load({ir::RampExpr(Expr(0), Expr(1), kLanes)})});
  const Stmt some =
      tir::For(inside, Expr(0), Expr(kLanes), tir::ForKind::kSerial, body(from + inside));
  const Stmt of_block = Sequence({ask, tir::IfThenElse(ir::Greater(any, none), some)});
  return Sequence({tir::AllocBuffer(counts),
                   tir::For(block, Expr(0), whole, tir::ForKind::kSerial, of_block),
                   tir::For(rest, whole * Expr(kLanes), n - whole * Expr(kLanes),
                            tir::ForKind::kSerial, body(rest))});
}

}  // namespace relaxvm::ops
