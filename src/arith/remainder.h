// SPDX-License-Identifier: Apache-2.0
// Remainders that the form of an expression tells.
#pragma once

#include <optional>

#include "ir/prim.h"

namespace relaxvm::arith {

// The remainder, not negative, of the integer `e` divided by `n` > 0; absent where constants and
// factors of it do not say it.
std::optional<int64_t> RemainderOf(const ir::Expr& e, int64_t n);

}  // namespace relaxvm::arith
