// SPDX-License-Identifier: Apache-2.0
// What DeadCodeElimination does to one function; passes that leave unused bindings call it.
#pragma once

#include "ir/module.h"

namespace relaxvm::passes {

// Without the bindings whose value nobody uses; what has an effect stays.
ir::Function RemoveUnusedBindings(const ir::Function& f);

}  // namespace relaxvm::passes
