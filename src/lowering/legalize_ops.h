// SPDX-License-Identifier: Apache-2.0
// LegalizeOps: operators become calls of tensor programs (call_tir), or of packed functions.
#pragma once

#include <map>
#include <string>
#include <unordered_set>

#include "ir/module.h"
#include "ops/open_op.h"

namespace relaxvm::lowering {

struct LegalizeOptions {
  std::unordered_set<std::string> skip_ops;        // "relax.nn.conv2d": stay as they are
  std::map<std::string, ops::LegalizeRule> rules;  // asked before those of the operators
};

ir::IRModule LegalizeOps(ir::IRModule mod, const LegalizeOptions& options = {});

}  // namespace relaxvm::lowering
