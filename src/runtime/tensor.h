// SPDX-License-Identifier: Apache-2.0
// Storage and the tensors inside it; copies between devices.
#pragma once

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/object.h>

#include <memory>

#include "runtime/memory_pool.h"
#include "support/api.h"

namespace relaxvm::runtime {

// A block of a pool; goes back when the last reference does.
class StorageObj : public tvm::ffi::Object {
 public:
  // `most_bytes`: what Grow may make of it.
  StorageObj(std::shared_ptr<MemoryPool> pool, MemoryBlock block, size_t most_bytes)
      : pool_(std::move(pool)), block_(block), most_bytes_(most_bytes) {}
  ~StorageObj() { pool_->Free(block_); }
  void* data() const { return block_.data; }
  size_t num_bytes() const { return block_.num_bytes; }
  size_t most_bytes() const { return most_bytes_; }
  // Replaces the block by one of `most_bytes`.  No tensor may lie in it.
  void Grow() {
    MemoryBlock larger = pool_->Alloc(most_bytes_);
    pool_->Free(block_);
    block_ = larger;
  }
  DLDevice device() const { return pool_->device(); }
  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.Storage", StorageObj, tvm::ffi::Object);

 private:
  std::shared_ptr<MemoryPool> pool_;
  MemoryBlock block_;
  size_t most_bytes_;
};

class Storage : public tvm::ffi::ObjectRef {
 public:
  Storage(std::shared_ptr<MemoryPool> pool, size_t num_bytes, size_t most_bytes = 0);
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(Storage, tvm::ffi::ObjectRef, StorageObj);
};

// Bytes of a dense tensor of this shape.  Throws ValueError for a negative dimension or a size
// beyond 2^62.
int64_t TensorBytes(tvm::ffi::ShapeView shape, DLDataType dtype);

// A dense tensor that keeps `owner` alive.  About 15 ns: cells of up to 8 dimensions are recycled
// per thread.
tvm::ffi::Tensor MakeTensor(void* data, tvm::ffi::ShapeView shape, DLDataType dtype,
                            DLDevice device, tvm::ffi::ObjectRef owner);

// A dense tensor at `byte_offset` of the storage.  Throws ValueError when it does not fit.
tvm::ffi::Tensor AllocTensor(const Storage& storage, int64_t byte_offset, tvm::ffi::ShapeView shape,
                             DLDataType dtype);

// A dense tensor with its own storage.
tvm::ffi::Tensor EmptyTensor(const std::shared_ptr<MemoryPool>& pool, tvm::ffi::ShapeView shape,
                             DLDataType dtype);
// The same from a process-wide pool of host memory without a cache.
RELAXVM_API tvm::ffi::Tensor EmptyHostTensor(tvm::ffi::ShapeView shape, DLDataType dtype);

// Copies values; shapes and dtypes must agree, both must be dense.  Memory of the host is read and
// written when it returns; a device follows in the order of its stream.  Through the host where two
// devices have no other way.
void CopyTensor(const DLTensor& from, const DLTensor& to);

inline const DLTensor& Raw(const tvm::ffi::Tensor& tensor) { return *tensor.GetDLTensorPtr(); }
inline char* DataOf(const DLTensor& tensor) {
  return static_cast<char*>(tensor.data) + tensor.byte_offset;
}
bool IsHost(DLDevice device);

}  // namespace relaxvm::runtime
