// SPDX-License-Identifier: Apache-2.0
// A value of an algebraic data type: the constructor's tag and its fields.
#pragma once

#include <tvm/ffi/any.h>
#include <tvm/ffi/object.h>

#include <vector>

namespace relaxvm::vm {

class ADTObj : public tvm::ffi::Object {
 public:
  int64_t tag = 0;
  std::vector<tvm::ffi::Any> fields;
  ~ADTObj();
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.ADT", ADTObj, tvm::ffi::Object);
};

class ADT : public tvm::ffi::ObjectRef {
 public:
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(ADT, tvm::ffi::ObjectRef, ADTObj);
};

}  // namespace relaxvm::vm
