// SPDX-License-Identifier: Apache-2.0
// Weights in a file of their own: a header of 64 bytes, then the elements of each tensor, aligned
// to 64 bytes.  Mapped, not read: processes share the pages, and only what is used is in memory.
//
//   u64 magic, u32 version, u32 alignment, u64 bytes of the file, u64 hash of all behind the header
#pragma once

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/object.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/platform/library.h"

namespace relaxvm::runtime {

inline constexpr size_t kWeightsHeaderBytes = 64;
inline constexpr uint32_t kWeightsAlignment = 64;

// An open file; tensors of it keep it mapped.  Writing to one changes the memory of this process
// alone.
class WeightsFileObj : public tvm::ffi::Object {
 public:
  explicit WeightsFileObj(const std::string& path) : file_(path, MappedFile::Mode::kCopyOnWrite) {}
  char* data() const { return const_cast<char*>(file_.bytes().data()); }
  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.WeightsFile", WeightsFileObj, tvm::ffi::Object);

 private:
  MappedFile file_;
};

class WeightsFile : public tvm::ffi::ObjectRef {
 public:
  // Throws ValueError unless the file has this length and this hash in its header; with
  // `verify_content` all of it is read and hashed as well.
  static WeightsFile Open(const std::string& path, uint64_t num_bytes, uint64_t hash,
                          bool verify_content);
  // The range must be inside the file.
  tvm::ffi::Tensor At(uint64_t offset, tvm::ffi::ShapeView shape, DLDataType dtype) const;
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(WeightsFile, tvm::ffi::ObjectRef, WeightsFileObj);
};

// One piece of a weights file.
struct WeightsPiece {
  uint64_t offset;
  uint64_t num_bytes;
  const char* data;
};
// Writes a weights file of `num_bytes`; `pieces` ascend and do not overlap, what lies between is
// zero.  Returns the hash.
uint64_t WriteWeightsFile(const std::string& path, uint64_t num_bytes,
                          const std::vector<WeightsPiece>& pieces);

}  // namespace relaxvm::runtime
