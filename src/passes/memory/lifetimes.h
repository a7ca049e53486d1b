// SPDX-License-Identifier: Apache-2.0
// When the tensors that a function allocates are alive, and which of them somebody else may keep.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/module.h"

namespace relaxvm::passes {

// A place from which on more symbolic sizes are known: the start of a function or branch, or a
// binding that defines sizes.  Memory whose size needs them is reserved after it.
struct SizeScope {
  int sequence = 0;  // which function body or branch
  int order = 0;     // within it
  bool operator==(const SizeScope&) const = default;
};

struct Allocation {
  ir::Var var;
  const ir::CallObj* call = nullptr;  // builtin.alloc_tensor
  int64_t start = 0;                  // moments count bindings, branches included
  int64_t end = 0;
  int sequence = 0;     // the function body or branch that allocates
  SizeScope scope;      // where its size is known
  bool shared = false;  // returned, or held by something that may keep it: needs memory of its own
};

// A call whose program may write its result over an argument, as far as the program itself is
// concerned.
struct Takeover {
  const ir::CallObj* call = nullptr;
  int64_t moment = 0;
  size_t result = 0;  // places in `allocations`
  size_t argument = 0;
};

struct FunctionMemory {
  std::vector<Allocation> allocations;  // in order of execution
  std::vector<Takeover> takeovers;      // likewise
};

// Follows values through variables, tuples, views, in-place calls and branches.
FunctionMemory FindAllocations(const ir::IRModule& mod, const ir::Function& func);

}  // namespace relaxvm::passes
