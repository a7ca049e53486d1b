// SPDX-License-Identifier: Apache-2.0
// Buffers: variables of tensor programs that stand for memory with a shape.
#pragma once

#include "ir/prim.h"

namespace relaxvm::tir {

namespace ffi = tvm::ffi;
using ir::Expr;
using ir::Var;

class BufferTypeObj : public ir::TypeObj {
 public:
  DLDataType dtype;
  ffi::String storage_scope = "global";  // "global", "local" (registers), "shared" ...
  ffi::Array<Expr> shape;
  ffi::Array<Expr> strides;  // in elements; empty: compact, last dimension fastest
  Expr elem_offset;          // null: 0
  int64_t data_alignment =
      64;  // bytes that the first element is aligned to, as far as code may rely on
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.tirx.BufferType", BufferTypeObj, ir::TypeObj);
};
class BufferType : public ir::Type {
 public:
  BufferType(DLDataType dtype, ffi::Array<Expr> shape, ffi::String storage_scope = "global",
             ffi::Array<Expr> strides = {}, Expr elem_offset = Expr(), int64_t data_alignment = 64);
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(BufferType, ir::Type, BufferTypeObj);
};

// A Var whose type is a BufferType.
class Buffer : public Var {
 public:
  Buffer(ffi::String name, ffi::Array<Expr> shape, DLDataType dtype,
         ffi::String storage_scope = "global");
  Buffer(ffi::String name, BufferType type) : Var(std::move(name), std::move(type)) {}
  explicit Buffer(Var var);  // RELAXVM_CHECKs the type
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(Buffer, Var, ir::VarObj);

  const BufferTypeObj* type() const { return static_cast<const BufferTypeObj*>(get()->ty.get()); }
  const ffi::Array<Expr>& shape() const { return type()->shape; }
  DLDataType elem_dtype() const { return type()->dtype; }

  Expr Load(ffi::Array<Expr> indices) const;
};
bool IsBuffer(const Expr& e);
// Lanes of the access that `indices` make: those of its vector indices, 1 without any.
int IndexLanes(const ffi::Array<Expr>& indices);

// buffer[indices].  Indices may be vectors (Ramp or other): the result then has their lanes.  One
// index on a buffer of several dimensions counts elements in memory order (compact buffers only):
// what schedules produce.
class BufferLoadObj : public ir::ExprObj {
 public:
  Var buffer = Var(ffi::UnsafeInit{});
  ffi::Array<Expr> indices;
  Expr predicate;  // null, or a bool vector: lanes that are false are not read and give 0
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.tirx.BufferLoad", BufferLoadObj, ir::ExprObj);
};
class BufferLoad : public Expr {
 public:
  BufferLoad(Var buffer, ffi::Array<Expr> indices, Expr predicate = Expr(),
             ir::Span span = ir::Span());
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(BufferLoad, Expr, BufferLoadObj);
};

}  // namespace relaxvm::tir
