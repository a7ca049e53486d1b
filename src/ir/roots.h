// SPDX-License-Identifier: Apache-2.0
// The roots that everything else of the language derives from: types, expressions, and what a
// module knows globally.
#pragma once

#include <tvm/ffi/cast.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/optional.h>

#include "ir/span.h"
#include "support/dtype.h"

namespace relaxvm::ir {

// The reference to a node just made: NodeRef<Call>(std::move(object)).
template <typename Ref>
Ref NodeRef(ffi::ObjectPtr<typename Ref::ContainerType> object) {
  return ffi::details::ObjectUnsafe::ObjectRefFromObjectPtr<Ref>(std::move(object));
}

// Base of all types.  A null Type is "not inferred yet".
class TypeObj : public ffi::Object {
 public:
  mutable Span span;

  static constexpr TVMFFISEqHashKind _type_s_eq_hash_kind = kTVMFFISEqHashKindTreeNode;
  static constexpr uint32_t _type_child_slots = 16;
  TVM_FFI_DECLARE_OBJECT_INFO("relaxvm.ir.Type", TypeObj, ffi::Object);
};
class Type : public ffi::ObjectRef {
 public:
  static Type Missing() { return Type(); }
  bool IsMissing() const { return !defined(); }
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(Type, ffi::ObjectRef, TypeObj);
};

class ExprObj : public ffi::Object {
 public:
  mutable Span span;
  mutable Type ty;  // null: not inferred yet

  static constexpr TVMFFISEqHashKind _type_s_eq_hash_kind = kTVMFFISEqHashKindTreeNode;
  static constexpr uint32_t _type_child_slots = 64;
  TVM_FFI_DECLARE_OBJECT_INFO("relaxvm.ir.Expr", ExprObj, ffi::Object);
};
class Expr : public ffi::ObjectRef {
 public:
  // int64 and float32 immediates, so that `n + 1` reads well.
  Expr(int value);      // NOLINT(google-explicit-constructor)
  Expr(int64_t value);  // NOLINT(google-explicit-constructor)
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(Expr, ffi::ObjectRef, ExprObj);

  // The element type of a scalar expression; RELAXVM_CHECKs that it is one.
  DLDataType dtype() const;
};

class GlobalInfoObj : public ffi::Object {
 public:
  static constexpr TVMFFISEqHashKind _type_s_eq_hash_kind = kTVMFFISEqHashKindTreeNode;
  static constexpr uint32_t _type_child_slots = 4;
  TVM_FFI_DECLARE_OBJECT_INFO("relaxvm.ir.GlobalInfo", GlobalInfoObj, ffi::Object);
};
class GlobalInfo : public ffi::ObjectRef {
 public:
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(GlobalInfo, ffi::ObjectRef, GlobalInfoObj);
};

// A device as a program sees it: what it is compiled for, its index, and where its memory lies.
class VDeviceObj : public GlobalInfoObj {
 public:
  ffi::String target;  // as written for compile(): "llvm", "cuda", "null"
  int64_t vdevice_id = 0;
  ffi::String memory_scope = "global";
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.ir.VDevice", VDeviceObj, GlobalInfoObj);
};
class VDevice : public GlobalInfo {
 public:
  VDevice(ffi::String target, int64_t vdevice_id, ffi::String memory_scope = "global");
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(VDevice, GlobalInfo, VDeviceObj);
};

class DummyGlobalInfoObj : public GlobalInfoObj {
 public:
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.ir.DummyGlobalInfo", DummyGlobalInfoObj,
                                    GlobalInfoObj);
};

}  // namespace relaxvm::ir
