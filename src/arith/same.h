// SPDX-License-Identifier: Apache-2.0
// Equality of scalar expressions as they are written: variables by identity, everything else by
// structure.
#pragma once

#include "ir/prim.h"

namespace relaxvm::arith {

bool SameScalar(const ir::Expr& a, const ir::Expr& b);
size_t HashScalar(const ir::Expr& e);

}  // namespace relaxvm::arith
