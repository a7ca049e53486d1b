// SPDX-License-Identifier: Apache-2.0
// What a constant of an executable may be, and when two are equal.
#pragma once

#include <tvm/ffi/any.h>

#include <cstdint>
#include <string>

namespace relaxvm::bytecode {

// Throws TypeError unless `value` is a contiguous CPU tensor, shape, string, integer, float or
// dtype.
void CheckConstant(const tvm::ffi::Any& value);
uint64_t HashConstant(const tvm::ffi::Any& value);
// Same type and same bits.
bool ConstantsEqual(const tvm::ffi::Any& a, const tvm::ffi::Any& b);
// Short text for listings: "Tensor(2, 3) float32", "Shape(2, 3)", "'abc'", "1.5", "float32".
std::string DescribeConstant(const tvm::ffi::Any& value);

}  // namespace relaxvm::bytecode
