// SPDX-License-Identifier: Apache-2.0
// ReorderPermuteDimsAfterConcat: concat of values that were all permuted alike becomes one
// permutation of the concat.  Stage: graph.
#include <algorithm>

#include "passes/rewrite/rules.h"

namespace relaxvm::passes {
namespace {

using ir::Expr;

// What a permute_dims does, spelled out: no axes reverse the order.
std::vector<int64_t> AxesOf(const ir::CallObj* permute) {
  const int64_t rank = RankOf(permute->args[0]);
  std::vector<int64_t> axes;
  if (auto given = permute->attrs.Get("axes").as<ffi::Array<ffi::Any>>()) {
    for (const ffi::Any& axis : given.value()) {
      const int64_t a = axis.cast<int64_t>();
      axes.push_back(a < 0 ? a + rank : a);
    }
  } else {
    for (int64_t i = rank; i-- > 0;) axes.push_back(i);
  }
  return axes;
}

Expr Reorder(const Expr& value, const analysis::PatternMatcher& matched) {
  const auto* concat = value.as<ir::CallObj>();
  const Expr tuple_value = matched.LookThrough(concat->args[0]);
  const auto* tuple = tuple_value.as<ir::TupleObj>();
  auto axis = concat->attrs.Get("axis").as<int64_t>();
  if (tuple == nullptr || tuple->fields.size() < 2 || !axis) return Expr();
  ffi::Array<Expr> inner;
  const ir::CallObj* first = nullptr;
  std::vector<int64_t> axes;
  for (const Expr& field : tuple->fields) {
    const ir::CallObj* permute = AsCallOf(matched, field, "permute_dims");
    if (permute == nullptr || RankOf(permute->args[0]) < 1) return Expr();
    if (first == nullptr) {
      first = permute;
      axes = AxesOf(permute);
    }
    if (AxesOf(permute) != axes) return Expr();
    inner.push_back(permute->args[0]);
  }
  const int64_t rank = static_cast<int64_t>(axes.size());
  const int64_t at = *axis < 0 ? *axis + rank : *axis;
  if (at < 0 || at >= rank) return Expr();
  Expr joined = ops::MakeCall("concat", {ir::Tuple(inner)}, {{"axis", axes[at]}});
  return ops::MakeCall("permute_dims", {joined}, {{"axes", first->attrs.Get("axes")}});
}

}  // namespace

IRModule ReorderPermuteDimsAfterConcat(IRModule mod, const PassContext& context) {
  return RewriteModule(std::move(mod), {{CallOf("concat", {AnyValue()}), Reorder}});
}

}  // namespace relaxvm::passes
