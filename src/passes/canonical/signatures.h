// SPDX-License-Identifier: Apache-2.0
// Changes of the parameters or results of private functions together with all their calls.
#pragma once

#include <functional>
#include <string>
#include <unordered_map>

#include "passes/pass.h"

namespace relaxvm::passes {

// Binds a value in front of the call that is being rewritten; gives its variable.
using EmitFn = std::function<ir::Var(ir::Expr value, const ir::Type& type)>;
// The call in its new form; `call->op` is replaced afterwards.
using RewriteCall = std::function<ir::Call(const ir::Call& call, const EmitFn& emit)>;

struct NewSignature {
  ir::Function func;
  RewriteCall call;
};

// The private functions of `mod` that are only called, never used as values, and are no fused
// groups.
std::unordered_map<std::string, ir::Function> ChangeableFunctions(const IRModule& mod);

// Puts new functions in place of those of that name, under new variables, and rewrites every call,
// also those in the new functions.  `mod` itself stays as it is.
IRModule ChangeSignatures(const IRModule& mod,
                          const std::unordered_map<std::string, NewSignature>& changes);

}  // namespace relaxvm::passes
