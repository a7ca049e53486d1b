// SPDX-License-Identifier: Apache-2.0
// Functions and modules: what a compilation takes and gives.
#pragma once

#include <map>
#include <string>

#include "ir/expr.h"

namespace relaxvm::ir {

// Attributes of functions and modules: a dictionary.
using DictAttrs = ffi::Map<ffi::String, ffi::Any>;

// A Relax function or a tensor program.
class BaseFuncObj : public ExprObj {
 public:
  DictAttrs attrs;
  static constexpr TVMFFISEqHashKind _type_s_eq_hash_kind = kTVMFFISEqHashKindDAGNode;
  static constexpr uint32_t _type_child_slots = 8;
  TVM_FFI_DECLARE_OBJECT_INFO("relaxvm.ir.BaseFunc", BaseFuncObj, ExprObj);
};
class BaseFunc : public Expr {
 public:
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(BaseFunc, Expr, BaseFuncObj);
};

class FunctionObj : public BaseFuncObj {
 public:
  ffi::Array<Var> params;
  SeqExpr body = SeqExpr(ffi::UnsafeInit{});
  Type ret_ty;
  bool is_pure = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.relax.Function", FunctionObj, BaseFuncObj);
};
class Function : public BaseFunc {
 public:
  // A missing `ret_ty` is taken from the body's type.
  Function(ffi::Array<Var> params, Expr body, Type ret_ty, bool is_pure = true,
           DictAttrs attrs = {}, Span span = Span());
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(Function, BaseFunc, FunctionObj);
};

// A packed function, by the name it is registered under.
class ExternFuncObj : public BaseFuncObj {
 public:
  ffi::String global_symbol;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.relax.ExternFunc", ExternFuncObj, BaseFuncObj);
};
class ExternFunc : public BaseFunc {
 public:
  explicit ExternFunc(ffi::String global_symbol, Type ty = Type(), Span span = Span());
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(ExternFunc, BaseFunc, ExternFuncObj);
};

class IRModuleObj : public ffi::Object {
 public:
  ffi::Map<GlobalVar, BaseFunc> functions;
  DictAttrs attrs;
  ffi::Map<ffi::String, ffi::Array<GlobalInfo>> global_infos;
  mutable std::map<std::string, GlobalVar> names;  // derived from `functions`; not reflected

  // The variable or function called `name`; absent when there is none.
  ffi::Optional<GlobalVar> FindVar(const ffi::String& name) const;
  ffi::Optional<BaseFunc> Find(const ffi::String& name) const;
  // Throws KeyError that lists the names there are.
  BaseFunc Lookup(const ffi::String& name) const;
  BaseFunc Lookup(const GlobalVar& var) const;
  void RebuildNames() const;  // after `functions` was changed as a whole

  static constexpr TVMFFISEqHashKind _type_s_eq_hash_kind = kTVMFFISEqHashKindTreeNode;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.ir.IRModule", IRModuleObj, ffi::Object);
};

// A module is a value: a pass copies it (cheap: maps are shared until written) and changes its
// copy.
class IRModule : public ffi::ObjectRef {
 public:
  explicit IRModule(ffi::Map<GlobalVar, BaseFunc> functions, DictAttrs attrs = {},
                    ffi::Map<ffi::String, ffi::Array<GlobalInfo>> global_infos = {});
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(IRModule, ffi::ObjectRef, IRModuleObj);

  // The object for writing; copies it first when it is shared.
  IRModuleObj* CopyOnWrite();
  // Adds or replaces; a GlobalVar of that name is reused.
  GlobalVar Update(const ffi::String& name, BaseFunc func);
  // `hint`, or `hint1`, `hint2`... when taken.
  ffi::String UniqueName(const ffi::String& hint) const;
};

// The string, integer or bool attribute of a function; `fallback` when absent.
template <typename T>
T GetAttr(const DictAttrs& attrs, const char* name, T fallback) {
  auto it = attrs.find(name);
  if (it == attrs.end()) return fallback;
  return (*it).second.template cast<T>();
}
template <typename FuncType, typename T>
FuncType WithAttr(const FuncType& func, const char* name, T value) {
  auto copy = ffi::make_object<typename FuncType::ContainerType>(*func.get());
  copy->attrs.Set(name, ffi::Any(std::move(value)));
  return NodeRef<FuncType>(std::move(copy));
}

namespace attr {  // names of function attributes
inline constexpr const char* kGlobalSymbol =
    "global_symbol";                                    // exported under this name; private without
inline constexpr const char* kPrimitive = "Primitive";  // a fused group: becomes one tensor program
inline constexpr const char* kNumInput = "num_input";   // the parameters after these are weights
inline constexpr const char* kOpPattern = "op_pattern";  // fusion kind of a tensor program
inline constexpr const char* kForcePure = "relax.force_pure";
}  // namespace attr

}  // namespace relaxvm::ir
