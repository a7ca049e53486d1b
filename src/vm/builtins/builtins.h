// SPDX-License-Identifier: Apache-2.0
// What builtins are written with: their arguments with checked access, and their declarations.
#pragma once

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/string.h>

#include <string>

#include "runtime/tensor.h"
#include "support/error.h"
#include "vm/call_context.h"
#include "vm/describe.h"

namespace relaxvm::vm::builtins {

// Borrowed arguments.  The accessors throw TypeError that names argument and value.
struct Args {
  CallContext* context;
  const Slot* data;
  int32_t size;

  const Slot& operator[](int32_t i) const { return data[i]; }
  tvm::ffi::AnyView view(int32_t i) const { return View(&data[i]); }

  int64_t Int(int32_t i) const {
    if (data[i].type_index != kTVMFFIInt && data[i].type_index != kTVMFFIBool)
      WrongType(i, "an integer");
    return data[i].v_int64;
  }
  DLDataType DType(int32_t i) const {
    if (data[i].type_index == kTVMFFIDataType) return data[i].v_dtype;
    auto dtype = view(i).try_cast<DLDataType>();  // a string is as good
    if (!dtype) WrongType(i, "a dtype");
    return *dtype;
  }
  tvm::ffi::Tensor Tensor(int32_t i) const {
    if (data[i].type_index != kTVMFFITensor) WrongType(i, "a tensor");
    return view(i).cast<tvm::ffi::Tensor>();
  }
  // Borrowed: no reference is counted.
  const DLTensor& TensorView(int32_t i) const {
    if (data[i].type_index == kTVMFFIDLTensorPtr)
      return *static_cast<const DLTensor*>(data[i].v_ptr);
    if (data[i].type_index != kTVMFFITensor) WrongType(i, "a tensor");
    return *reinterpret_cast<const DLTensor*>(reinterpret_cast<const char*>(data[i].v_obj) +
                                              sizeof(TVMFFIObject));
  }
  tvm::ffi::ShapeView Shape(int32_t i) const {
    if (data[i].type_index != kTVMFFIShape) WrongType(i, "a shape");
    const auto* cell = reinterpret_cast<const TVMFFIShapeCell*>(
        reinterpret_cast<const char*>(data[i].v_obj) + sizeof(TVMFFIObject));
    return {cell->data, cell->size};
  }
  std::string String(int32_t i) const {
    auto text = view(i).try_cast<tvm::ffi::String>();
    if (!text) WrongType(i, "a string");
    return std::string(*text);
  }
  [[noreturn]] void WrongType(int32_t i, const char* expected) const {
    Fail(ErrorKind::kTypeError, "argument ", i, " of a builtin must be ", expected, ", it is ",
         DescribeValue(data[i]));
  }
};

using Implementation = void(Args args, tvm::ffi::Any* result);

#define BUILTIN(name, user_name, signature, effect, meaning) Implementation name;
#include "bytecode/builtin_list.def"
#undef BUILTIN

}  // namespace relaxvm::vm::builtins
