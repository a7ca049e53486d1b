// SPDX-License-Identifier: Apache-2.0
// Runs functions of a program.
#pragma once

#include <span>

#include "vm/call_context.h"
#include "vm/program.h"

namespace relaxvm::vm {

// Handlers of the decoded stream, for the loader to write into instructions.
const void* const* HandlerTable();

// Calls `function` from outside: checks the arity, takes copies of the arguments (borrowed,
// `captured` last), runs it. 0: `result`, which must not own anything, holds the owned value.
// Otherwise tvm-ffi's raised error is set.
int Invoke(const Function* function, std::span<const Slot> args, std::span<const Slot> captured,
           Slot* result);

// The second half of Invoke: the frame owns the arguments and belongs to the function from here on.
int RunFunction(CallContext* context, const Function* function, Slot* frame, Slot* result);

}  // namespace relaxvm::vm
