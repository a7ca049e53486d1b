// SPDX-License-Identifier: Apache-2.0
// What compute rules share: broadcast access, the dtype to accumulate in, casts with NumPy's
// meaning.
#pragma once

#include "ir/prim.h"
#include "ops/op_def.h"

namespace relaxvm::ops {

// The element of `x` that stands at `i` of a result of shape `out`, by NumPy's broadcasting.
Expr BroadcastAt(const Tensor& x, const Dims& out, const Indices& i);

// The dtype that sums, products and transcendental functions of `dtype` are computed in: float32
// for floats of 16 bits and fewer, else `dtype` itself.
DLDataType WideDtype(DLDataType dtype);
inline Expr Widen(Expr e) {
  DLDataType wide = WideDtype(e.dtype());
  return ir::Cast(wide, std::move(e));
}

// NumPy's astype: to bool is `!= 0`.
Expr ConvertTo(DLDataType dtype, Expr e);

// A number as a scalar of `dtype`.
inline Expr Number(DLDataType dtype, double value) {
  return IsFloat(dtype) ? ir::ConstFloat(dtype, value)
                        : ir::Const(dtype, static_cast<int64_t>(value));
}

// The product of dimensions [begin, end); 1 when there are none.
Expr ProductOf(const Dims& dims, size_t begin, size_t end);
inline Expr ProductOf(const Dims& dims) { return ProductOf(dims, 0, dims.size()); }

// Quotient and remainder of integers that never trap: x / 0 is 0 and x % 0 is 0, the least integer
// divided by -1 is itself.  Rounded towards zero, or towards minus infinity (`floor`).
Expr SafeDivide(const Expr& a, const Expr& b, bool floor);
Expr SafeRemainder(const Expr& a, const Expr& b, bool floor);

// Splits `flat` (an index into the row-major elements of `dims`) into one index per dimension.
Indices Unflatten(const Expr& flat, const Dims& dims);
Expr Flatten(const Indices& i, const Dims& dims);

// `index` counted from the front: an index below 0 counts from the end.
inline Expr WrapIndex(const Expr& index, const Expr& extent) {
  return ir::Select(ir::Less(index, Expr(0)), index + extent, index);
}

// Of a tensor without elements nothing can be read: 0 stands for `value` when an extent is 0.
// Extents that are known to be greater cost nothing.
Expr GuardEmpty(const Expr& value, const Dims& extents);

}  // namespace relaxvm::ops
