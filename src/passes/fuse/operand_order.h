// SPDX-License-Identifier: Apache-2.0
// Products whose operand is a permuted tensor: most read it in its own order as well.
#pragma once

#include <cstddef>

#include "tir/stmt.h"

namespace relaxvm::passes {

// Does `product` run as fast when argument `arg`, which `permutation` makes, is read where
// `permutation` reads it?  On the right side memory may run along the columns or along the sum (its
// tiles are made of copied panels either way), on the left side along the sum.  A product in
// several steps, as attention, reads an operand whose last dimension stays the last.
bool ReadsWellPermuted(const tir::PrimFunc& permutation, const tir::PrimFunc& product, size_t arg);

}  // namespace relaxvm::passes
