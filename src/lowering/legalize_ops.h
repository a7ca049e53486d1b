// SPDX-License-Identifier: Apache-2.0
// LegalizeOps: operators become calls of tensor programs (call_tir), or of packed functions.
#pragma once

#include <functional>
#include <string>
#include <unordered_set>

#include "ir/module.h"

namespace relaxvm::lowering {

struct LegalizeOptions {
  std::unordered_set<std::string> skip_ops;  // "relax.nn.conv2d": stay as they are
};

ir::IRModule LegalizeOps(ir::IRModule mod, const LegalizeOptions& options = {});

}  // namespace relaxvm::lowering
