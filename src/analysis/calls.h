// SPDX-License-Identifier: Apache-2.0
// What a value of a binding is: a call of a tensor program, something with an effect, ...
#pragma once

#include <optional>

#include "ir/op.h"
#include "tir/stmt.h"

namespace relaxvm::analysis {

// call_tir(func, args, tir_vars)
struct TirCall {
  ir::Call call;
  ir::GlobalVar func;
  tvm::ffi::Array<ir::Expr> args;
  tvm::ffi::Array<ir::Expr> tir_vars;  // values of the program's scalar parameters
};
// Absent for anything but relax.call_tir.
std::optional<TirCall> AsCallTir(const ir::Expr& value);
// Also call_tir_inplace and call_tir_with_grad.
bool CallsTensorProgram(const ir::Expr& value);

// Is `value` the call of the operator `name` ("relax.reshape")?
bool CallsOp(const ir::Expr& value, const char* name);

// The extents of a tensor; absent for anything else and where they are not known.
std::optional<tvm::ffi::Array<ir::Expr>> DimsOf(const ir::Expr& e);

// Does the value of a binding hold sequences of its own: an If or a match?
bool Branches(const ir::Expr& value);
// May evaluating `value` (the value of a binding, in normal form) do more than give a result?  An
// If does what its branches do; making a function does nothing.
bool HasEffect(const ir::Expr& value);
// Does a call write its result over an argument (call_tir_inplace, call_inplace_packed)?
bool OverwritesArguments(const ir::Expr& value);
// Does every evaluation give a new object, or change an argument?  Then two of them are not one.
bool GivesNewObject(const ir::Expr& value);
// The first value with an effect in a function's body or an expression; null when there is none.
// Calls of `own_name`, the variable of a recursive function, do not count.
ir::Expr FindImpureCall(const ir::Expr& e, const ir::Expr& own_name = ir::Expr());

}  // namespace relaxvm::analysis
