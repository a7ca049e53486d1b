// SPDX-License-Identifier: Apache-2.0
// Numbers that passes and gradients put into programs.
#pragma once

#include <cstring>

#include "ops/op_def.h"
#include "support/host_tensor.h"

namespace relaxvm::ops {

// `value` as a scalar of `dtype`: a constant, or a float32 constant that `cast` (Expr -> Expr)
// turns into that type.
template <typename Cast>
Expr NumberOf(DLDataType dtype, double value, const Cast& cast) {
  const bool wide = dtype == Float(64);
  ffi::Tensor data = NewHostTensor({}, wide ? Float(64) : Float(32));
  const auto narrow = static_cast<float>(value);
  std::memcpy(data.data_ptr(), wide ? static_cast<const void*>(&value) : &narrow, wide ? 8 : 4);
  ir::Constant constant(data);
  if (wide || dtype == Float(32)) return constant;
  return cast(constant);
}

}  // namespace relaxvm::ops
