// SPDX-License-Identifier: Apache-2.0
// The operators whose meaning the compiler knows, as an enum to switch over; rows of
// core_op_list.def.
#pragma once

#include "ir/op.h"

namespace relaxvm::analysis {

namespace ffi = tvm::ffi;

enum class CoreOp : uint8_t {
  kNone,  // another operator, or no operator at all
#define CORE_OP(id, name) k##id,
#include "analysis/core_op_list.def"
#undef CORE_OP
};

// Which one `callee` is.
CoreOp CoreOpOf(const ir::Expr& callee);
inline CoreOp CoreOpOf(const ir::CallObj* call) { return CoreOpOf(call->op); }
// The same for the value of a binding; kNone when it is no call.
CoreOp CoreOpOfValue(const ir::Expr& value);

ir::Op GetCoreOp(CoreOp op);
// A call that is already normal: type and arguments are given.
ir::Call CallCore(CoreOp op, ffi::Array<ir::Expr> args, ir::Type type, ir::Span span = ir::Span());

// Does the function end the life of variables itself?  Then a variable is no other name for what it
// was bound to.
bool KillsVariables(const ir::FunctionObj* func);

}  // namespace relaxvm::analysis
