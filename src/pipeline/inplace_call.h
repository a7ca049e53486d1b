// SPDX-License-Identifier: Apache-2.0
// One operator in place, for those who decide by themselves where that is allowed.
#pragma once

#include <utility>

#include "ir/module.h"

namespace relaxvm::pipeline {

// `call` as call_tir_inplace over its argument number `arg`, and the module with the tensor program
// that it calls.  An error when the operator reads elements after they would be written.
std::pair<ir::Expr, ir::IRModule> MakeInplaceCall(const ir::IRModule& mod, const ir::Call& call,
                                                  int64_t arg);

}  // namespace relaxvm::pipeline
