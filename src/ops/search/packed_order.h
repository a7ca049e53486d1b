// SPDX-License-Identifier: Apache-2.0
// The order of a line as integers of 64 bits: above how the element ranks (of elements of 64 bits,
// a word of that), below its index (of 32 bits).  Sorting them needs no comparison of elements,
// keeps the order of equal ones by itself, and takes no branch that depends on data.
#pragma once

#include "ops/loops.h"

namespace relaxvm::ops {

// Element `index` of a line.
using LineValue = std::function<Expr(const Expr& index)>;

// The index in a packed element.
Expr IndexOf(const Expr& packed);

// Puts the packed elements of a line of `n` in order into `packed`; `spare` is as long.
Stmt SortPacked(const LineValue& value, const Expr& n, const Buffer& packed, const Buffer& spare,
                bool descending);

// Of elements of 64 bits: the last one kept is found by a word of them.
bool SelectsByWords(DLDataType dtype);

// Puts the first `keep` of them in order into `packed`; that and `spare` hold one more (by words:
// one more than `n`, which is at least 8).  For few of many: the last of them is found by counting,
// bit by bit.
Stmt SelectPacked(const LineValue& value, const Expr& n, const Expr& keep, const Buffer& packed,
                  const Buffer& spare, bool descending);

}  // namespace relaxvm::ops
