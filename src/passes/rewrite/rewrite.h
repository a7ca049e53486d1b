// SPDX-License-Identifier: Apache-2.0
// Rewriting by patterns (relax.dpl): what matches is replaced by what a rule makes of it.
#pragma once

#include <functional>
#include <vector>

#include "analysis/pattern.h"

namespace relaxvm::passes {

namespace ffi = tvm::ffi;

// A rule gives the expression that stands for `value`, or null to leave it.
using MakeReplacement =
    std::function<ir::Expr(const ir::Expr& value, const analysis::PatternMatcher& matched)>;

struct RewriteRule {
  analysis::Pattern pattern;
  MakeReplacement replace;
  // Functions that replacements may call; added to the module when they do.
  ffi::Map<ir::GlobalVar, ir::BaseFunc> subroutines = {};
};

// Applies the rules to every value until none fits any more; an error when that does not end.
// A match lies between two calls with effects.  Unused bindings disappear when something changed.
ir::Function RewriteFunction(const ir::Function& func, const std::vector<RewriteRule>& rules);
// The same for all functions of a module; adds the subroutines that are needed.
ir::IRModule RewriteModule(ir::IRModule mod, const std::vector<RewriteRule>& rules);

// The rule that a module with functions "pattern" and "replacement" states.
RewriteRule RuleFromModule(const ir::IRModule& mod);

using BindingRewriter =
    std::function<ffi::Map<ir::Var, ir::Expr>(const ffi::Map<analysis::Pattern, ir::Expr>& matched,
                                              const ffi::Map<ir::Var, ir::Expr>& values)>;
// In every dataflow block: finds the graph, binds the variables that `rewriter` names to what it
// says, and looks again, until nothing matches or nothing is changed.
ir::Function RewriteBindings(const analysis::PatternGraph& graph, const BindingRewriter& rewriter,
                             const ir::Function& func);

}  // namespace relaxvm::passes
