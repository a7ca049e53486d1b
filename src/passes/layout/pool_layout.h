// SPDX-License-Identifier: Apache-2.0
// Pools that are faster with channels last although nothing around them asks for it.
#pragma once

#include <tvm/ffi/function.h>

namespace relaxvm::passes::layout {

// A "layout_cb" of ConvertLayout: maps a max_pool2d or avg_pool2d of channels first whose channels
// make vectors to "NHWC" where its windows overlap much, are far apart or make short rows.  Both
// conversions are then cheaper than what vectors along the rows lose.
tvm::ffi::Function PoolLayouts();

}  // namespace relaxvm::passes::layout
