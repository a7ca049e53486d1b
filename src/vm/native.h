// SPDX-License-Identifier: Apache-2.0
// The VM's side of target/native_abi.h: what compiled functions see and call.
#pragma once

#include "vm/lower.h"
#include "vm/program.h"

namespace relaxvm::vm {

// Fills `callees` and `env` once everything is bound.
void MakeNativeEnv(Program* program, const std::vector<Binding>& bindings);

}  // namespace relaxvm::vm
