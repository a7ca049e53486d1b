// SPDX-License-Identifier: Apache-2.0
// What the machine lets this process use.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "support/api.h"

namespace relaxvm::runtime {

// CPUs in the affinity mask, at most the cgroup's quota; at least 1.
RELAXVM_API int NumUsableCpus();

// Bytes of the data caches that the first CPU of this process sees; 0: not known, or not there.
struct CacheSizes {
  int64_t l1 = 0;
  int64_t l2 = 0;
  int64_t l3 = 0;
};
RELAXVM_API CacheSizes ReadCacheSizes();

// Features of `required` ("+avx2,+fma", LLVM's names) that this machine does not have; names that
// are not known to the check count as present.
RELAXVM_API std::vector<std::string> MissingCpuFeatures(std::string_view required);

}  // namespace relaxvm::runtime
