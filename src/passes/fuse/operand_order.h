// SPDX-License-Identifier: Apache-2.0
// How a program reads an operand.  Products whose operand is a permuted or padded tensor: most read
// what it is made of as well.
#pragma once

#include <cstddef>

#include "tir/stmt.h"

namespace relaxvm::passes {

// Does `product` run as fast when argument `arg`, which `permutation` makes, is read where
// `permutation` reads it?  On the right side memory may run along the columns or along the sum (its
// tiles are made of copied panels either way), on the left side along the sum.  A product in
// several steps, as attention, reads an operand whose last dimension stays the last.
bool ReadsWellPermuted(const tir::PrimFunc& permutation, const tir::PrimFunc& product, size_t arg);

// Does `padding` surround its argument with one value, and is argument `arg`, which it makes, what
// windows of `product` pass over?  Sums and maxima leave padding out where they know of it.
bool ReadsWellPadded(const tir::PrimFunc& padding, const tir::PrimFunc& product, size_t arg);

// Does `program` read argument `arg` several times for an element, at places that other tensors
// tell?
bool ReadsAtSites(const tir::PrimFunc& program, size_t arg);

}  // namespace relaxvm::passes
