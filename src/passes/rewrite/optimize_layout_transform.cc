// SPDX-License-Identifier: Apache-2.0
// OptimizeLayoutTransform: a change of layout that undoes the one before it disappears.
//
//   layout_transform(layout_transform(x, f), g)               -> x
//   layout_transform(remove_pad(layout_transform(x, f)), g)   -> x, where nobody minds what the
//                                                                padding holds
// g(f(i)) = i, and the result has x's shape.  A tensor program with the attribute
// operator_name = "remove_pad" takes the end of each axis off.  Stage: graph.
#include "analysis/calls.h"
#include "arith/analyzer.h"
#include "passes/rewrite/rules.h"
#include "tir/index_map.h"
#include "tir/stmt.h"

namespace relaxvm::passes {
namespace {

using ir::Expr;

tir::IndexMap MapOf(const ir::CallObj* transform) {
  return transform->attrs->values.at("index_map").cast<tir::IndexMap>();
}

bool Undoes(const ir::CallObj* second, const ir::CallObj* first, const Expr& value) {
  auto before = DimsOf(first->args[0]), after = DimsOf(value);
  if (!before || !after || before.value().size() != after.value().size()) return false;
  arith::Analyzer analyzer;
  for (size_t d = 0; d < after.value().size(); ++d) {
    if (!analyzer.ProveEqual(before.value()[d], after.value()[d])) return false;
  }
  const tir::IndexMap map = MapOf(first), back = MapOf(second);
  if (back->initial_indices.size() != map->final_indices.size()) return false;
  for (size_t d = 0; d < before.value().size(); ++d)
    analyzer.Bind(map->initial_indices[d], Expr(0), before.value()[d]);
  const auto returned = back.MapIndices(map->final_indices, &analyzer);
  for (size_t d = 0; d < returned.size(); ++d) {
    if (!analyzer.ProveEqual(ir::Cast(Int(64), returned[d]),
                             ir::Cast(Int(64), map->initial_indices[d])))
      return false;
  }
  return true;
}

// What a program that takes padding off reads; null for other values.
Expr WithPadding(const ir::IRModule& mod, const Expr& value) {
  auto call = analysis::AsCallTir(value);
  if (!call || call->args.size() != 1) return Expr();
  auto func = mod->functions.find(call->func);
  if (func == mod->functions.end()) return Expr();
  const auto* program = (*func).second.as<tir::PrimFuncObj>();
  const bool takes_off =
      program != nullptr &&
      ir::GetAttr<ffi::String>(program->attrs, "operator_name", "") == "remove_pad";
  return takes_off ? call->args[0] : Expr();
}

}  // namespace

IRModule OptimizeLayoutTransform(IRModule mod, const PassContext& context) {
  auto without = [&](const Expr& value, const analysis::PatternMatcher& matched) -> Expr {
    const auto* second = value.as<ir::CallObj>();
    const Expr& x = second->args[0];
    const ir::CallObj* first = AsCallOf(matched, x, "layout_transform");
    if (first == nullptr) {
      if (second->attrs->values.at("pad_value") != nullptr) return Expr();
      const Expr padded = WithPadding(mod, matched.LookThrough(x));
      if (padded.defined()) first = AsCallOf(matched, padded, "layout_transform");
    }
    return first != nullptr && Undoes(second, first, value) ? first->args[0] : Expr();
  };
  IRModule made = RewriteModule(mod, {{CallOf("layout_transform", {AnyValue()}), without}});
  if (made.same_as(mod)) return mod;
  PassContext all;
  all.options.Set("call_only", false);
  return EliminateCommonSubexpr(CanonicalizeBindings(made, PassContext()), all);
}

}  // namespace relaxvm::passes
