// SPDX-License-Identifier: Apache-2.0
// What TVM's virtual machine needs of an executable that it is to run.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "bytecode/executable.h"

namespace relaxvm::bytecode {

// Whether TVM 0.27 has a builtin of that name.
bool IsTvmBuiltin(std::string_view name);

// Throws NotImplementedError that names everything TVM cannot run.  `is_linked` says which packed
// functions travel with the executable.
void CheckRunsInTvm(const ExecutableData& data,
                    const std::function<bool(const std::string&)>& is_linked);

}  // namespace relaxvm::bytecode
