// SPDX-License-Identifier: Apache-2.0
// From what Python passes (numbers, lists of numbers and expressions) to expressions.
#pragma once

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/function.h>

#include "ir/prim.h"

namespace relaxvm::api {

namespace ffi = tvm::ffi;

// An expression as it is; a bool, int or float becomes an immediate: bool, `int_dtype`, float32.
ir::Expr ToScalar(const ffi::Any& value, DLDataType int_dtype = Int(64));
ffi::Array<ir::Expr> ToScalars(const ffi::Array<ffi::Any>& values, DLDataType int_dtype = Int(64));
// An expression, or null for None.
ir::Expr ToOptional(const ffi::Any& value);

}  // namespace relaxvm::api
