// SPDX-License-Identifier: Apache-2.0
// Bindings of a dataflow block that become a function of their own: what FuseOpsByPattern and
// MergeCompositeFunctions share.
#pragma once

#include <string>
#include <vector>

#include "ir/visitor.h"

namespace relaxvm::passes {

namespace ffi = tvm::ffi;

struct GroupOptions {
  // Constants stay in the function; else they become parameters.
  bool bind_constants = true;
  // The function's block is a dataflow block; local functions need a plain one.
  bool dataflow = true;
};

struct GroupFunction {
  ir::Function function = ir::Function(ffi::UnsafeInit{});
  ffi::Array<ir::Expr> args;
  // Variables of the group that others read, in the order of the function's results.
  std::vector<ir::Var> outputs;
};

// `bindings`: the members in order.  `outputs`: what is read outside, in the order of first use;
// one gives the value itself, several a tuple.  `outside`: values of variables bound outside.
GroupFunction MakeGroupFunction(const std::vector<ir::Binding>& bindings,
                                const std::vector<ir::Var>& outputs,
                                const ffi::Map<ir::Var, ir::Expr>& outside,
                                const GroupOptions& options);

// A block in which each group (indices of bindings, ascending) is replaced by one call.  A group's
// call stands where its last member stood; what must wait for it follows.  RuntimeError when groups
// and others wait for each other.  `make_call` gives the value for a group's function.
struct GroupCall {
  ir::Expr value;  // typed
  std::vector<ir::Var> outputs;
};
ir::DataflowBlock ReplaceGroups(
    const ir::DataflowBlock& block, const std::vector<std::vector<int>>& groups,
    const std::function<GroupCall(const std::vector<int>& group,
                                  const std::vector<ir::Var>& outputs)>& make_call);

}  // namespace relaxvm::passes
