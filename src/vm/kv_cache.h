// SPDX-License-Identifier: Apache-2.0
// A cache of attention keys or values: rows along dimension 0 that grow, or a window that goes
// round.
#pragma once

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/object.h>

namespace relaxvm::vm {

class KVCacheObj : public tvm::ffi::Object {
 public:
  tvm::ffi::Tensor data{tvm::ffi::UnsafeInit()};  // rows that are reserved
  int64_t fill_count = 0;                         // rows that are set
  int64_t position = 0;                           // where the next row of a window goes
  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.KVCache", KVCacheObj, tvm::ffi::Object);
};

class KVCache : public tvm::ffi::ObjectRef {
 public:
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(KVCache, tvm::ffi::ObjectRef, KVCacheObj);
};

}  // namespace relaxvm::vm
