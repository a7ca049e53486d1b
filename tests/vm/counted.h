// SPDX-License-Identifier: Apache-2.0
// An object that counts how many of its kind are alive, to find leaks and double frees.
#pragma once

#include <tvm/ffi/any.h>
#include <tvm/ffi/object.h>

#include <atomic>

namespace relaxvm::testing {

class CountedObj : public tvm::ffi::Object {
 public:
  static inline std::atomic<int64_t> num_alive{0};
  int64_t value;
  explicit CountedObj(int64_t v) : value(v) { ++num_alive; }
  ~CountedObj() { --num_alive; }
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.testing.Counted", CountedObj, tvm::ffi::Object);
};

class Counted : public tvm::ffi::ObjectRef {
 public:
  explicit Counted(int64_t value) : ObjectRef(tvm::ffi::make_object<CountedObj>(value)) {}
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(Counted, tvm::ffi::ObjectRef, CountedObj);
};

}  // namespace relaxvm::testing
