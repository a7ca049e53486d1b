// SPDX-License-Identifier: Apache-2.0
// The object that every kernel set has once: the kernel table, the context slot, and what packed
// entries do without a host.
#pragma once

#include <string>
#include <vector>

#include "codegen/llvm/compiler.h"

namespace relaxvm::codegen {

struct TableRow {
  std::string name;
  std::string params;
  std::string work;  // how much it does (analysis/work.h); may be empty
};

std::string EmitTable(const Compiler& compiler, const std::vector<TableRow>& rows, Effort effort);

}  // namespace relaxvm::codegen
