// SPDX-License-Identifier: Apache-2.0
// ReorderTakeAfterMatmul: matmul with weights picked out of a table becomes a matmul with the whole
// table, and the pick of its results.  Stage: graph.  Worth it when many rows pick the same weights
// (adapters of a batch).
#include "passes/rewrite/rules.h"

namespace relaxvm::passes {
namespace {

using ir::Expr;

Expr Op(const char* name, ffi::Array<Expr> args, ffi::Map<ffi::String, ffi::Any> attrs = {}) {
  return ops::MakeCall(name, std::move(args), std::move(attrs));
}

ffi::Array<ffi::Any> Ints(std::initializer_list<int64_t> values) {
  return ffi::Array<ffi::Any>(values.begin(), values.end());
}

// x [.., k] @ take(table [k, n], picks, axis 1)  ->  take(x @ table, picks, last axis)
Expr PickColumns(const Expr& x, const ir::CallObj* take, int64_t rank) {
  return Op("take", {Op("matmul", {x, take->args[0]}), take->args[1]}, {{"axis", rank - 1}});
}

// x [b, m, k] @ take(table [t, k, n], picks [b], axis 0): one matmul with all t tables side by
// side, then row i keeps the result of table picks[i].
Expr PickTables(const Expr& x, const ir::CallObj* take) {
  auto x_dims = DimsOf(x), table = DimsOf(take->args[0]);
  if (!x_dims || !table) return Expr();
  const Expr t = table.value()[0], k = table.value()[1], n = table.value()[2];
  Expr by_row = Op("permute_dims", {take->args[0]}, {{"axes", Ints({1, 0, 2})}});
  Expr flat = Op("reshape", {by_row, ir::ShapeExpr({k, t * n})});
  Expr all = Op("matmul", {x, flat});
  Expr apart = Op("reshape", {all, ir::ShapeExpr({x_dims.value()[0], x_dims.value()[1], t, n})});
  Expr picked = Op("take", {apart, take->args[1]}, {{"axis", int64_t{2}}});
  return Op("einsum", {ir::Tuple({picked})}, {{"subscripts", ffi::String("ijik->ijk")}});
}

Expr Reorder(const Expr& value, const analysis::PatternMatcher& matched) {
  const auto* matmul = value.as<ir::CallObj>();
  const Expr& x = matmul->args[0];
  const ir::CallObj* take = AsCallOf(matched, matmul->args[1], "take");
  auto axis = take == nullptr ? std::nullopt : take->attrs.Get("axis").as<int64_t>();
  if (!axis || RankOf(take->args[1]) != 1 || RankOf(x) < 2) return Expr();
  const int64_t rank = RankOf(take->args[0]);
  const int64_t at = *axis < 0 ? *axis + rank : *axis;
  if (rank == 2 && at == 1) return PickColumns(x, take, RankOf(x));
  if (rank == 3 && at == 0 && RankOf(x) == 3) return PickTables(x, take);
  return Expr();
}

}  // namespace

IRModule ReorderTakeAfterMatmul(IRModule mod, const PassContext& context) {
  return RewriteModule(std::move(mod), {{CallOf("matmul", {AnyValue(), AnyValue()}), Reorder}});
}

}  // namespace relaxvm::passes
