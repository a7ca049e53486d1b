// SPDX-License-Identifier: Apache-2.0
// Questions about whole functions and modules: recursion, what is known at compile time, how much
// memory is needed.
#pragma once

#include <string>
#include <unordered_set>
#include <vector>

#include "ir/module.h"

namespace relaxvm::analysis {

// Groups of functions that call each other, directly or not; names sorted within a group and groups
// by their first name. Tensor programs call nothing of the module.
std::vector<std::vector<ir::GlobalVar>> FindRecursion(const ir::IRModule& mod);

// Names of functions that are used other than as what is called: their signatures must stay.
std::unordered_set<std::string> UsedAsValues(const ir::IRModule& mod);

// Variables that depend on nothing but the parameters after attribute "num_input": weights.  In
// order.
tvm::ffi::Array<ir::Var> ComputableAtCompileTime(const ir::Function& f);

// Memory that explicit allocations of a function take, with every tensor in a storage of its own
// and as planned.
struct MemoryUse {
  int64_t num_tensors = 0;  // of constant size
  int64_t tensor_bytes = 0;
  int64_t num_dynamic = 0;  // of unknown size
  int64_t num_storages = 0;
  int64_t storage_bytes = 0;
};
MemoryUse EstimateMemory(const ir::Function& f);
// A text for people, one paragraph for each function that allocates.
std::string DescribeMemoryUse(const ir::IRModule& mod);

}  // namespace relaxvm::analysis
