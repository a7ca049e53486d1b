// SPDX-License-Identifier: Apache-2.0
// Calls replaced by the bodies of what they call.
// Calls of functions replaced by their bodies: what InlinePrivateFunctions and
// Function.inline_functions share.
#pragma once

#include <string>
#include <unordered_map>
#include <unordered_set>

#include "ir/visitor.h"

namespace relaxvm::passes {

using FunctionsByName = std::unordered_map<std::string, ir::Function>;

// `func` with every call of one of `functions`, also inside of their bodies, replaced.  A function
// that calls itself is an error.
ir::Function InlineFunctions(const ir::Function& func, const FunctionsByName& functions);

#include "ir/module.h"

namespace relaxvm::passes {

// `f` with every call of a function in `bodies` (by name) replaced by its body, calls inside of the
// bodies too.  A dataflow block is split around a body that is not one.  ValueError when a function
// calls itself, directly or not.
ir::Function InlineCalls(const ir::Function& f,
                         const std::unordered_map<std::string, ir::Function>& bodies);

// The same for Python: functions by GlobalVar or name.
ir::Function InlineNamedCalls(const ir::Function& f,
                              const tvm::ffi::Map<tvm::ffi::Any, ir::Function>& functions);

}  // namespace relaxvm::passes
