// SPDX-License-Identifier: Apache-2.0
// What the machine lets this process use.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace relaxvm::runtime {

// CPUs in the affinity mask, at most the cgroup's quota; at least 1.
int NumUsableCpus();

// Features of `required` ("+avx2,+fma", LLVM's names) that this machine does not have; names that
// are not known to the check count as present.
std::vector<std::string> MissingCpuFeatures(std::string_view required);

}  // namespace relaxvm::runtime
