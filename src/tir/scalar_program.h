// SPDX-License-Identifier: Apache-2.0
// Tensor programs that return a scalar: `return value` is Evaluate(ret(value)) at the end of a
// path.
#pragma once

#include "tir/stmt.h"

namespace relaxvm::tir {

// def f(params) -> dtype of value: return value
PrimFunc MakeScalarProgram(ffi::Array<Var> params, Expr value, ir::DictAttrs attrs = {});

// The same program with the result `type`; pure when it does nothing but compute a scalar.
PrimFunc WithResult(const PrimFunc& func, const ir::Type& type);

bool ReturnsScalar(const PrimFunc& func);

// What the program returns, as an expression of its parameters.  Null where it takes more than
// scalars and conditions: buffers, loops, calls, or a path without a return.
Expr ReturnedValue(const PrimFunc& func);

// `body` where `var` is `value`, which is computed once.
Expr WithValue(const Var& var, const Expr& value, const Expr& body);

}  // namespace relaxvm::tir
