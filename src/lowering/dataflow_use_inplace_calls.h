// SPDX-License-Identifier: Apache-2.0
// DataflowUseInplaceCalls, and what it makes of one elementwise operator.
#pragma once

#include <optional>

#include "ir/block_builder.h"

namespace relaxvm::lowering {

// `call` as call_tir_inplace over its argument number `arg`; the tensor program is added to the
// builder's module.  Absent when some element of the argument would be read after it was written.
std::optional<ir::Expr> MakeInplaceCall(const ir::Call& call, size_t arg,
                                        ir::BlockBuilder* builder);

ir::IRModule UseInplaceCalls(const ir::IRModule& mod);

}  // namespace relaxvm::lowering
