// SPDX-License-Identifier: Apache-2.0
// Variables that a pass made visible outside of their dataflow blocks, in case a later block reads
// them.
#pragma once

#include <unordered_map>

#include "ir/visitor.h"

namespace relaxvm::passes::layout {

namespace ffi = tvm::ffi;

// Those that no other block reads become the block's own.  `home`: each such variable and its
// block.
ir::Function NarrowOutputs(const ir::Function& func,
                           std::unordered_map<const ffi::Object*, const ffi::Object*> home);

}  // namespace relaxvm::passes::layout
