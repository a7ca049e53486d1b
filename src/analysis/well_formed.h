// SPDX-License-Identifier: Apache-2.0
// The rules that a module of Relax functions keeps at every stage.  Each finding names rule,
// function and variable.
#pragma once

#include <string>
#include <vector>

#include "ir/module.h"

namespace relaxvm::analysis {

struct Finding {
  const char* rule;  // "defined-before-use"
  std::string message;
  ir::Span span;
};

// Everything that is wrong, at most `limit` findings.
std::vector<Finding> CheckWellFormed(const ir::IRModule& mod, size_t limit = 20);
// One function on its own: the functions that it calls are not looked for.
std::vector<Finding> CheckWellFormed(const ir::Function& func, size_t limit = 20);

// Throws ValueError with all findings when there are some; `when` says where: "after FuseOps".
void RequireWellFormed(const ir::IRModule& mod, const std::string& when);

}  // namespace relaxvm::analysis
