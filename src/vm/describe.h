// SPDX-License-Identifier: Apache-2.0
// Values in the words of error messages.
#pragma once

#include <tvm/ffi/any.h>

#include <cstdint>
#include <string>

namespace relaxvm::vm {

// "a tensor (2, 3) float32", "an integer 5", "None"
std::string DescribeValue(const TVMFFIAny& value);
// "(2, 3)"
std::string DescribeShape(const int64_t* dims, size_t ndim);

}  // namespace relaxvm::vm
