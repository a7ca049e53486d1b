// SPDX-License-Identifier: Apache-2.0
// Functions with some parameters or sizes given: what BindParams, BindSymbolicVars and inlining
// share.
#pragma once

#include "ir/visitor.h"

namespace relaxvm::passes {

// Replaces parameters of `f` by the values in `params` and symbolic sizes by those in `sizes`;
// replaced parameters are dropped.  Sizes that a parameter's value determines are replaced as well.
ir::Function BindFunction(const ir::Function& f, const tvm::ffi::Map<ir::Var, ir::Expr>& params,
                          tvm::ffi::Map<ir::Var, ir::Expr> sizes);

// The same by variable or name; values are tensors, expressions or integers.  `name` is for
// messages.  Errors: an unknown or ambiguous name, a value of the wrong shape.
ir::Function BindFunctionParams(const ir::Function& f,
                                const tvm::ffi::Map<tvm::ffi::Any, tvm::ffi::Any>& params,
                                const tvm::ffi::String& name);
ir::Function BindFunctionSizes(const ir::Function& f,
                               const tvm::ffi::Map<tvm::ffi::Any, tvm::ffi::Any>& values,
                               const tvm::ffi::String& name);

// Matches the sizes of `formal` with those of `actual`, adding what is new to `sizes`.  False when
// they contradict.
bool MatchSizes(const ir::Type& formal, const ir::Type& actual,
                tvm::ffi::Map<ir::Var, ir::Expr>* sizes);

// A copy of `f` with fresh variables throughout, symbolic sizes included.
ir::Function CopyWithFreshVars(const ir::Function& f);

}  // namespace relaxvm::passes
