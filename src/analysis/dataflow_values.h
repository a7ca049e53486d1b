// SPDX-License-Identifier: Apache-2.0
// Which values of a dataflow block share memory, how long they live, and which calls may therefore
// write their result over an argument.
#pragma once

#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ir/op.h"

namespace relaxvm::analysis {

namespace ffi = tvm::ffi;

// The bindings of a block between which a variable is needed: from its own, or -1 for one from
// outside, to the last that uses it, or their number when it leaves the block.  Taking an item of a
// tuple is no use of the tuple: the item is a value of its own.
struct LiveRange {
  int start = -1, end = -1;
};
struct LiveRanges {
  ffi::Array<ir::Var> vars;  // in order of appearance
  std::unordered_map<const ffi::Object*, LiveRange> of;
};
LiveRanges FindLiveRanges(const ir::BindingBlock& block);

// Memory by number: parameters first, then each new value; kUnknownMemory is what the block did not
// make.
inline constexpr int kUnknownMemory = -1;
using MemorySet = std::set<int>;
struct MemoryOfValues {
  ffi::Array<ir::Var> vars;
  std::unordered_map<const ffi::Object*, MemorySet> of;    // what a variable may be
  std::unordered_map<int, std::vector<MemorySet>> fields;  // of numbers that stand for tuples
  std::unordered_set<int> owned_elsewhere;  // parameters, constants, what a function returned

  // `memory`, and what lies in the tuples among it.
  MemorySet Reach(const MemorySet& memory) const;
};
MemoryOfValues FindMemory(const ir::BindingBlock& block, const ffi::Array<ir::Var>& params);

// A call that may write its result over the argument at one of `args` (indices).
struct InplaceCall {
  int binding = 0;
  std::set<int> args;
};
struct InplaceCalls {
  std::vector<InplaceCall> same_size;   // as many elements
  std::vector<InplaceCall> same_shape;  // and in the same shape
};
InplaceCalls FindInplaceCalls(const ir::BindingBlock& block, const ffi::Array<ir::Var>& params,
                              ir::TypeContext& facts);

}  // namespace relaxvm::analysis
