// SPDX-License-Identifier: Apache-2.0
// VMCodeGen: the Relax functions of a fully lowered module become bytecode.  Tensor programs are
// called by name; the caller compiles them.
#pragma once

#include "bytecode/executable.h"
#include "ir/module.h"

namespace relaxvm::codegen {

// `mod` must be in stage "shapes".
bytecode::ExecutableData VMCodeGen(const ir::IRModule& mod);

// The name under which a function of the module is found in an executable or a kernel library.
std::string SymbolOf(const ir::GlobalVar& var, const ir::BaseFunc& func);

}  // namespace relaxvm::codegen
