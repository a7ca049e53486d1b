// SPDX-License-Identifier: Apache-2.0
// Checks of values against what a function declares.  The error context names function and
// parameter.
#include "support/dtype.h"
#include "vm/adt.h"
#include "vm/builtins/builtins.h"

namespace relaxvm::vm::builtins {
namespace ffi = tvm::ffi;
namespace {

[[noreturn]] void Mismatch(const Args& args, int32_t err_ctx, ErrorKind kind,
                           const std::string& expected) {
  std::string where = args[err_ctx].type_index == kTVMFFINone ? "" : args.String(err_ctx) + " ";
  Fail(kind, "wrong argument: ", where, "expected ", expected, ", but it is ",
       DescribeValue(args[0]));
}

}  // namespace

// (value, ndim, [dtype,] err_ctx)
void CheckTensorInfo(Args args, ffi::Any*) {
  int32_t err_ctx = args.size - 1;
  int64_t ndim = args.Int(1);
  DLDataType dtype = args.size == 4 && args[2].type_index != kTVMFFINone ? args.DType(2) : Void();
  if (args[0].type_index != kTVMFFITensor && args[0].type_index != kTVMFFIDLTensorPtr) {
    Mismatch(args, err_ctx, ErrorKind::kTypeError, "a tensor");
  }
  const DLTensor& tensor = args.TensorView(0);
  if (ndim != -1 && tensor.ndim != ndim) {
    Mismatch(args, err_ctx, ErrorKind::kValueError, "a tensor with ndim " + std::to_string(ndim));
  }
  if (!IsVoid(dtype) && !(tensor.dtype == dtype)) {
    Mismatch(args, err_ctx, ErrorKind::kValueError, "a tensor with dtype " + DTypeName(dtype));
  }
}

void CheckShapeInfo(Args args, ffi::Any*) {
  int64_t ndim = args.Int(1);
  if (args[0].type_index != kTVMFFIShape) Mismatch(args, 2, ErrorKind::kTypeError, "a shape");
  if (ndim != -1 && static_cast<int64_t>(args.Shape(0).size()) != ndim) {
    Mismatch(args, 2, ErrorKind::kValueError, "a shape with ndim " + std::to_string(ndim));
  }
}

void CheckPrimValueInfo(Args args, ffi::Any*) {
  DLDataType dtype = args.DType(1);
  int32_t type = args[0].type_index;
  bool is_int = type == kTVMFFIInt || type == kTVMFFIBool;
  bool fits = IsVoid(dtype);
  if (IsBool(dtype) || IsInteger(dtype)) fits = is_int;
  if (IsFloat(dtype)) fits = is_int || type == kTVMFFIFloat;
  if (dtype.code == kDLOpaqueHandle && !IsVoid(dtype))
    fits = type == kTVMFFIOpaquePtr || type == kTVMFFINone;
  if (!fits) Mismatch(args, 2, ErrorKind::kTypeError, "a scalar of dtype " + DTypeName(dtype));
}

void CheckTupleInfo(Args args, ffi::Any*) {
  int64_t size = args.Int(1);
  if (args[0].type_index != kTVMFFIArray && args[0].type_index != kTVMFFIList) {
    Mismatch(args, 2, ErrorKind::kTypeError, "a tuple");
  }
  const auto* tuple = reinterpret_cast<const TVMFFISeqCell*>(
      reinterpret_cast<const char*>(args[0].v_obj) + sizeof(TVMFFIObject));
  if (tuple->size != size) {
    Mismatch(args, 2, ErrorKind::kValueError, "a tuple of " + std::to_string(size) + " elements");
  }
}

void CheckFuncInfo(Args args, ffi::Any*) {
  if (args[0].type_index != kTVMFFIFunction) Mismatch(args, 1, ErrorKind::kTypeError, "a function");
}

// (value, err_ctx, fields of tag 0, fields of tag 1, ...)
void CheckAdtInfo(Args args, ffi::Any*) {
  const ADTObj* adt = nullptr;
  if (args[0].type_index == ADTObj::RuntimeTypeIndex()) {
    adt = static_cast<const ADTObj*>(
        ffi::detail::ObjectUnsafe::RawObjectPtrFromUnowned<ffi::Object>(args[0].v_obj));
  }
  if (adt == nullptr) Mismatch(args, 1, ErrorKind::kTypeError, "a value of a data type");
  if (args.size == 2) return;
  if (adt->tag < 0 || adt->tag >= args.size - 2) {
    Mismatch(args, 1, ErrorKind::kValueError,
             "a value with a tag below " + std::to_string(args.size - 2));
  }
  const int64_t fields = args.Int(static_cast<int32_t>(adt->tag) + 2);
  if (static_cast<int64_t>(adt->fields.size()) != fields) {
    Mismatch(args, 1, ErrorKind::kValueError,
             "tag " + std::to_string(adt->tag) + " with " + std::to_string(fields) + " fields");
  }
}

void CheckStringInfo(Args args, ffi::Any*) {
  if (!args.view(0).try_cast<ffi::String>()) Mismatch(args, 1, ErrorKind::kTypeError, "a string");
}

}  // namespace relaxvm::vm::builtins
