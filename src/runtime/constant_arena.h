// SPDX-License-Identifier: Apache-2.0
// The constants of one executable in one block of host memory, on huge pages where the system
// grants them.
#pragma once

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/object.h>

#include <string_view>
#include <vector>

#include "runtime/platform/memory.h"

namespace relaxvm::runtime {

// Lives as long as the last tensor in it.
class ConstantArenaObj : public tvm::ffi::Object {
 public:
  // `most_bytes`: of all elements together; what is not used costs address space only.
  explicit ConstantArenaObj(size_t most_bytes);
  ~ConstantArenaObj();
  // Aligned to 64 bytes, uninitialised; null when the arena is full.
  char* Alloc(size_t num_bytes);
  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.ConstantArena", ConstantArenaObj, tvm::ffi::Object);

 private:
  size_t num_bytes_;
  size_t used_bytes_ = 0;
  char* data_;
};

// A tensor in the arena, or in memory of its own when there is no room.
tvm::ffi::Tensor AllocConstant(const tvm::ffi::ObjectPtr<ConstantArenaObj>& arena,
                               tvm::ffi::ShapeView shape, DLDataType dtype, size_t num_bytes);

struct ConstantCopy {
  char* to;
  std::string_view from;
};
// Copies from the mapped file behind `pages`, whose pages leave memory on the way, so that
// constants are there once, not twice.  On up to `num_threads` threads where there is much: what a
// system takes to back new memory is most of it.
void CopyConstants(const std::vector<ConstantCopy>& copies, const FilePages& pages,
                   int num_threads);

}  // namespace relaxvm::runtime
