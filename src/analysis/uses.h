// SPDX-License-Identifier: Apache-2.0
// Definitions and uses of variables in a function, last uses, and sizes that are free or defined.
#pragma once

#include <unordered_map>
#include <vector>

#include "ir/module.h"

namespace relaxvm::analysis {

// The value that each variable is bound to, nested sequences included; in order of definition.
tvm::ffi::Map<ir::Var, ir::Expr> BoundValues(const ir::Expr& e);

// For every variable of a function: the variables whose values use it, in order, each once; and
// what its result uses.
struct UseChains {
  tvm::ffi::Map<ir::Var, tvm::ffi::Array<ir::Var>> users;
  tvm::ffi::Array<ir::Var> in_result;
};
UseChains FindUses(const ir::Function& f);

// Sizes that parameters and casts define, in order; sizes that are used without that.
tvm::ffi::Array<ir::Var> DefinedSizes(const ir::Expr& e);
tvm::ffi::Array<ir::Var> FreeSizes(const ir::Expr& e);

// The bindings of one sequence by number, blocks one after another, and for each variable the last
// binding that uses it. A use inside a branch or a local function counts for the binding that holds
// it; the result counts as one past the end. Other names of a value (aliases, tuples, items, casts,
// results of branches) extend its life; views that operators make are not known here.
class Liveness {
 public:
  explicit Liveness(const ir::SeqExpr& seq);

  // -1 for a variable that is never used.
  int LastUse(const ir::Var& var) const;
  bool LeavesBy(const ir::Var& var) const { return LastUse(var) == num_bindings_; }
  int num_bindings() const { return num_bindings_; }

 private:
  int num_bindings_ = 0;
  std::unordered_map<const tvm::ffi::Object*, int> last_use_;
};

}  // namespace relaxvm::analysis
