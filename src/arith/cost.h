// SPDX-License-Identifier: Apache-2.0
// How much a scalar expression is to compute.
#pragma once

#include <unordered_map>
#include <utility>

#include "ir/prim.h"

namespace relaxvm::arith {

// Costs of expressions; shared parts count each time they are used.
class CostCounter {
 public:
  int64_t Of(const ir::Expr& e);

 private:
  int64_t Compute(const ir::Expr& e);

  // The expression is kept so that its address is not used again.
  std::unordered_map<const tvm::ffi::Object*, std::pair<ir::Expr, int64_t>> known_;
};

// A dimension that is more to compute than what models do to their own sizes: its tensors are
// better off with a name for it, because every question about them would look at all of it.
bool IsLargeSize(const ir::Expr& e);

}  // namespace relaxvm::arith
