// SPDX-License-Identifier: Apache-2.0
// Types of Relax expressions.  A tensor's shape is part of its type: integer expressions over
// symbolic variables.
#pragma once

#include "ir/roots.h"

namespace relaxvm::ir {

// R.Any: any value at all.
class AnyTypeObj : public TypeObj {
 public:
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.relax.AnyType", AnyTypeObj, TypeObj);
};
class AnyType : public Type {
 public:
  AnyType();
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(AnyType, Type, AnyTypeObj);
};

// A scalar, or a vector of `dtype.lanes` scalars inside tensor programs.
class PrimTypeObj : public TypeObj {
 public:
  DLDataType dtype;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.ir.PrimType", PrimTypeObj, TypeObj);
};
class PrimType : public Type {
 public:
  explicit PrimType(DLDataType dtype);
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(PrimType, Type, PrimTypeObj);
};

// R.Shape: a tuple of integers.  `values` known: ndim is their number; else ndim may be -1.
class ShapeTypeObj : public TypeObj {
 public:
  ffi::Optional<ffi::Array<Expr>> values;
  int64_t ndim = -1;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.relax.ShapeType", ShapeTypeObj, TypeObj);
};
class ShapeType : public Type {
 public:
  explicit ShapeType(ffi::Array<Expr> values);
  explicit ShapeType(int64_t ndim);
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(ShapeType, Type, ShapeTypeObj);
};

// R.Tensor.  `shape` is a ShapeExpr, a Var of shape type, or absent; `dtype` may be Void()
// (unknown).
class TensorTypeObj : public TypeObj {
 public:
  ffi::Optional<Expr> shape;
  DLDataType dtype = Void();
  ffi::Optional<VDevice> vdevice;
  int64_t ndim = -1;  // -1: unknown rank

  bool IsUnknownRank() const { return ndim < 0; }
  bool IsUnknownDtype() const { return IsVoid(dtype); }
  // The dimensions when `shape` is a ShapeExpr, or a Var whose type has values.
  ffi::Optional<ffi::Array<Expr>> GetShape() const;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.relax.TensorType", TensorTypeObj, TypeObj);
};
class TensorType : public Type {
 public:
  TensorType(ffi::Array<Expr> dims, DLDataType dtype,
             ffi::Optional<VDevice> vdevice = std::nullopt);
  TensorType(Expr shape, DLDataType dtype, ffi::Optional<VDevice> vdevice = std::nullopt);
  TensorType(DLDataType dtype, int64_t ndim, ffi::Optional<VDevice> vdevice = std::nullopt);
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(TensorType, Type, TensorTypeObj);
};

// R.Tuple; the empty tuple is "void".
class TupleTypeObj : public TypeObj {
 public:
  ffi::Array<Type> fields;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.ir.TupleType", TupleTypeObj, TypeObj);
};
class TupleType : public Type {
 public:
  explicit TupleType(ffi::Array<Type> fields);
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(TupleType, Type, TupleTypeObj);
};

// R.Callable.  `params` absent: an opaque function; its result is `ret` whatever it is called with.
class FuncTypeObj : public TypeObj {
 public:
  ffi::Optional<ffi::Array<Type>> params;
  Type ret;
  bool purity = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.relax.FuncType", FuncTypeObj, TypeObj);
};
class FuncType : public Type {
 public:
  FuncType(ffi::Array<Type> params, Type ret, bool purity = true);
  static FuncType Opaque(Type ret, bool purity = false);
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(FuncType, Type, FuncTypeObj);
};

// The type of a pointer inside tensor programs.
class PointerTypeObj : public TypeObj {
 public:
  Type element_type;
  ffi::String storage_scope;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.ir.PointerType", PointerTypeObj, TypeObj);
};
class PointerType : public Type {
 public:
  explicit PointerType(Type element_type, ffi::String storage_scope = "global");
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(PointerType, Type, PointerTypeObj);
};

// Void functions return it.
TupleType VoidType();
bool IsVoidType(const Type& type);

}  // namespace relaxvm::ir
