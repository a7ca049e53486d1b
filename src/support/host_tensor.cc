// SPDX-License-Identifier: Apache-2.0
#include "support/host_tensor.h"

#include <algorithm>
#include <new>

#include "support/dtype.h"

namespace relaxvm {
namespace {

constexpr std::align_val_t kAlignment{64};

struct HostAllocator {
  void AllocData(DLTensor* tensor) {
    int64_t elems = 1;
    for (int i = 0; i < tensor->ndim; ++i) elems *= tensor->shape[i];
    int64_t num_bytes = std::max<int64_t>(SizeInBytes(tensor->dtype, elems), 1);
    tensor->data = ::operator new(static_cast<size_t>(num_bytes), kAlignment);
  }
  void FreeData(DLTensor* tensor) { ::operator delete(tensor->data, kAlignment); }
};

}  // namespace

tvm::ffi::Tensor NewHostTensor(const std::vector<int64_t>& shape, DLDataType dtype) {
  return tvm::ffi::Tensor::FromNDAlloc(
      HostAllocator(), tvm::ffi::ShapeView(shape.data(), shape.size()), dtype, DLDevice{kDLCPU, 0});
}

}  // namespace relaxvm
