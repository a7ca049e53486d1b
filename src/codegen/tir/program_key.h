// SPDX-License-Identifier: Apache-2.0
// A text that two tensor programs share exactly when they compile to the same code: variables are
// numbered, names of parameters (which appear in error messages) are kept, names of everything else
// and the program's own are not.
#pragma once

#include <string>

#include "tir/stmt.h"

namespace relaxvm::codegen {

std::string ProgramKey(const tir::PrimFunc& func);

}  // namespace relaxvm::codegen
