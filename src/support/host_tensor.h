// SPDX-License-Identifier: Apache-2.0
// Tensors of its own that the compiler makes: constants.
#pragma once

#include <tvm/ffi/container/tensor.h>

#include <vector>

namespace relaxvm {

// On the CPU, compact, aligned to 64 bytes, not initialised.
tvm::ffi::Tensor NewHostTensor(const std::vector<int64_t>& shape, DLDataType dtype);

}  // namespace relaxvm
