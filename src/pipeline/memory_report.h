// SPDX-License-Identifier: Apache-2.0
// What a planned function needs for given sizes: memory reserved at its peak, and the most bytes
// that tensors hold at one moment, which no plan can do without.
#pragma once

#include <string>
#include <unordered_map>

#include "ir/module.h"

namespace relaxvm::pipeline {

struct MemoryReport {
  int64_t planned_peak_bytes = 0;
  int64_t most_alive_bytes = 0;
  int num_storages = 0;
  int num_tensors = 0;
};

// `mod` is at the end of stage "planned"; `sizes` gives the symbolic sizes of the function by name.
// Memory of functions that it calls is not counted.
MemoryReport ReportMemory(const ir::IRModule& mod, const std::string& function,
                          const std::unordered_map<std::string, int64_t>& sizes);

}  // namespace relaxvm::pipeline
