// SPDX-License-Identifier: Apache-2.0
// The variables that values read.
#pragma once

#include <vector>

#include "ir/visitor.h"

namespace relaxvm::analysis {

// Every use of a variable, in order, as often as it stands there.
class VarsIn : public ir::Visitor {
 public:
  std::vector<const ir::VarObj*> found;
  void VisitVar(const ir::VarObj* v) override { found.push_back(v); }
  void VisitOther(const ir::ExprObj*) override {}
};

}  // namespace relaxvm::analysis
