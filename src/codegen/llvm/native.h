// SPDX-License-Identifier: Apache-2.0
// Relax functions as native code: exec_mode="compiled".
#pragma once

#include <llvm/IR/Module.h>

#include <string>

#include "bytecode/native_plan.h"

namespace relaxvm::codegen {

// `__vmtir__<name>`, and what follows it when the plan is watched.
std::string NativeSymbol(const bytecode::NativePlan& plan);

// Defines the function of `plan`: code that works on the registers and calls the kernels of the set
// directly.
void EmitNativeFunction(const bytecode::NativePlan& plan, llvm::Module* module);

}  // namespace relaxvm::codegen
