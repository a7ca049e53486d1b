// SPDX-License-Identifier: Apache-2.0
// RemoveRedundantReshape: of several reshapes in a row the last one stays, and one that changes
// nothing disappears.  Stage: graph.
#include "passes/rewrite/rules.h"

namespace relaxvm::passes {
namespace {

using ir::Expr;

Expr Shorter(const Expr& value, const analysis::PatternMatcher& matched) {
  const auto* reshape = value.as<ir::CallObj>();
  const Expr& x = reshape->args[0];
  if (const ir::CallObj* inner = AsCallOf(matched, x, "reshape")) {
    return ops::MakeCall("reshape", {inner->args[0], reshape->args[1]});
  }
  auto facts = ops::MakeTypeContext();
  auto before = DimsOf(x), after = DimsOf(value);
  if (before && after && before.value().size() == after.value().size()) {
    bool same = true;
    for (size_t i = 0; i < before.value().size() && same; ++i) {
      same = facts->ProveEqual(before.value()[i], after.value()[i]);
    }
    if (same) return x;
  }
  return Expr();
}

}  // namespace

IRModule RemoveRedundantReshape(IRModule mod, const PassContext& context) {
  IRModule made = RewriteModule(mod, {{CallOf("reshape", {AnyValue(), AnyValue()}), Shorter}});
  return made.same_as(mod) ? mod : CanonicalizeBindings(made, PassContext());
}

}  // namespace relaxvm::passes
