// SPDX-License-Identifier: Apache-2.0
// The functions behind bytecode/builtin_list.def.
#pragma once

#include <tvm/ffi/function.h>

#include "bytecode/builtins.h"
#include "vm/program.h"

namespace relaxvm::vm {

// Never throws: errors are raised as by tvm-ffi's safe calls.
BuiltinFunction GetBuiltinFunction(bytecode::Builtin builtin);

// The builtin as a value: checks the number of arguments; a `ctx` argument must be the VM that runs
// on this thread, or a VM's module.
tvm::ffi::Function BuiltinAsFunction(bytecode::Builtin builtin);

}  // namespace relaxvm::vm
