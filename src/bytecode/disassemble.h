// SPDX-License-Identifier: Apache-2.0
// Executables as text.
#pragma once

#include <string>

#include "bytecode/executable.h"

namespace relaxvm::bytecode {

// The listing that TVM prints: one block a function, one line an instruction.
std::string AsText(const ExecutableData& data);
// A Python program that rebuilds the same executable, weights included, and leaves it in `ex`.
std::string AsPython(const ExecutableData& data);
// Constants, functions and instructions in numbers.
std::string Stats(const ExecutableData& data);

}  // namespace relaxvm::bytecode
