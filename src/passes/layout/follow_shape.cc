// SPDX-License-Identifier: Apache-2.0
// Calls that give a tensor other axes: a permutation is only another name for what is in memory, a
// reshape takes groups of axes along.
#include "passes/layout/follow.h"

namespace relaxvm::passes::layout {

using ir::Expr;
using Kind = ops::LayoutRule::Kind;

bool FollowPermute(const Site& site) {
  const Expr& x = site.call->args[0];
  const int64_t rank = RankOf(x);
  if (rank < 0) return false;
  Attributes attrs = site.Attrs();
  Perm axes = AxesIn(attrs[site.rule.axis_attrs[0]], rank);
  for (int64_t i = rank; attrs[site.rule.axis_attrs[0]] == nullptr && i-- > 0;) axes.push_back(i);
  if (static_cast<int64_t>(axes.size()) != rank) return false;
  site.versions.CameFromPermutation(site.var, x, axes);
  const Perm perm = site.Moved();
  if (perm.empty()) return false;
  // What stands at a place in memory is the same axis by its new number.
  site.versions.DefineAs(site.var, site.versions.Get(x, perm), Then(Inverse(axes), perm));
  return true;
}

bool FollowReshape(const Site& site) {
  const Expr& x = site.call->args[0];
  const auto* from = x->ty.as<ir::TensorTypeObj>();
  const auto* to = site.var->ty.as<ir::TensorTypeObj>();
  if (from == nullptr || to == nullptr || !from->GetShape() || !to->GetShape()) return false;
  const Dims old_dims = from->GetShape().value(), new_dims = to->GetShape().value();
  auto groups = ReshapeGroups::Of(old_dims, new_dims, site.versions.builder()->context());
  if (!groups) return false;
  site.versions.CameFromReshape(site.var, x, *groups);
  const Perm perm = site.Moved();
  if (perm.empty()) return false;
  const ReshapeGroups::Orders orders = groups->Following(perm);
  // -1 and 0 in the shape are known by now; a flatten names no shape at all.
  const bool moved = !SameInMemory(orders.from, perm, old_dims);
  if (IsIdentity(orders.to) && moved) return false;
  // Seen outside, it must exist plainly: no other order is worth a move.
  if (moved && !site.var.as<ir::DataflowVarObj>()) return false;
  // Where only axes of extent 1 stand elsewhere, what is there serves as it is.
  Expr source = site.versions.Get(x, moved ? orders.from : perm);
  ir::Call made = ops::MakeCall("reshape", {source, ir::ShapeExpr(Permuted(new_dims, orders.to))});
  if (IsIdentity(orders.to)) {
    site.versions.Define(site.var, made, orders.to);
  } else {
    site.versions.DefineAs(site.var, site.versions.EmitLike(site.var, made), orders.to, moved);
  }
  return true;
}

bool FollowShape(const Site& site) {
  const Perm perm = site.Moved();
  if (perm.empty()) return false;
  Attributes attrs = site.Attrs();
  const std::string& field = site.rule.axis_attrs[0];
  const int64_t rank = static_cast<int64_t>(perm.size());
  Perm result;
  if (site.rule.kind == Kind::kExpand) {
    result = Expanded(perm, AxesIn(attrs[field], RankOf(site.var)), RankOf(site.var));
  } else {
    if (attrs[field] == nullptr) return false;
    result = Without(perm, AxesIn(attrs[field], rank));
    attrs.Set(field, MapAxes(attrs[field], perm));
  }
  return site.Define(site.WithFirst(site.versions.Get(site.call->args[0], perm)), attrs, result);
}

}  // namespace relaxvm::passes::layout
