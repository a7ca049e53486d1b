// SPDX-License-Identifier: Apache-2.0
// Elements of constants of floats as numbers, whatever their width.
#pragma once

#include <cmath>
#include <cstring>
#include <optional>

#include "ir/op.h"

namespace relaxvm::passes {

// binary16 as a number.
inline double NumberOfHalf(uint16_t bits) {
  const int exponent = (bits >> 10) & 31, fraction = bits & 1023;
  double size = exponent == 0    ? std::ldexp(fraction, -24)
                : exponent != 31 ? std::ldexp(1024 + fraction, exponent - 25)
                : fraction == 0  ? HUGE_VAL
                                 : std::nan("");
  return (bits & 0x8000) != 0 ? -size : size;
}

// Element `i` of a tensor of floats that lies in the processor's memory; absent for other types.
inline std::optional<double> FloatElement(const tvm::ffi::Tensor& data, int64_t i) {
  const DLDataType dtype = data.dtype();
  const void* p = data.data_ptr();
  if (dtype == Float(32)) return static_cast<const float*>(p)[i];
  if (dtype == Float(64)) return static_cast<const double*>(p)[i];
  if (dtype == Float(16)) return NumberOfHalf(static_cast<const uint16_t*>(p)[i]);
  if (dtype == BFloat16()) {
    const uint32_t bits = static_cast<uint32_t>(static_cast<const uint16_t*>(p)[i]) << 16;
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
  }
  return std::nullopt;
}

}  // namespace relaxvm::passes
