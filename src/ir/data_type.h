// SPDX-License-Identifier: Apache-2.0
// Algebraic data types: their definitions, types and constructors, and `match`, which takes a value
// apart.  A type names its definition; a constructor holds it, so that every call and every case
// knows the fields.
#pragma once

#include <string>
#include <unordered_map>

#include "ir/expr.h"

namespace relaxvm::ir {

// A parameter of a data type, inside its definition: the A of List[A].
class TypeParamObj : public TypeObj {
 public:
  ffi::String name;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.relax.TypeParam", TypeParamObj, TypeObj);
};
class TypeParam : public Type {
 public:
  explicit TypeParam(ffi::String name);
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(TypeParam, Type, TypeParamObj);
};

// R.Nothing: the type of what gives no value (R.fatal) and of the elements that an empty list does
// not have.  It fits every type.
class NothingTypeObj : public TypeObj {
 public:
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.relax.NothingType", NothingTypeObj, TypeObj);
};
class NothingType : public Type {
 public:
  NothingType();
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(NothingType, Type, NothingTypeObj);
};

// List[R.Tensor((4,), "float32")]: a data type by name, with one type for each parameter.
class AdtTypeObj : public TypeObj {
 public:
  ffi::String name;
  ffi::Array<Type> args;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.relax.AdtType", AdtTypeObj, TypeObj);
};
class AdtType : public Type {
 public:
  explicit AdtType(ffi::String name, ffi::Array<Type> args = {});
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(AdtType, Type, AdtTypeObj);
};

class ConstructorDefObj : public ffi::Object {
 public:
  ffi::String name;
  ffi::Array<ffi::String> field_names;
  ffi::Array<Type> fields;
  mutable Span span;

  static constexpr TVMFFISEqHashKind _type_s_eq_hash_kind = kTVMFFISEqHashKindTreeNode;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.relax.ConstructorDef", ConstructorDefObj, ffi::Object);
};
class ConstructorDef : public ffi::ObjectRef {
 public:
  ConstructorDef(ffi::String name, ffi::Array<ffi::String> field_names, ffi::Array<Type> fields,
                 Span span = Span());
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(ConstructorDef, ffi::ObjectRef, ConstructorDefObj);
};

// A data type of a module; listed among its global infos under kDataTypes.  A constructor's tag is
// its place in the list.
class AdtDefObj : public GlobalInfoObj {
 public:
  ffi::String name;
  ffi::Array<ffi::String> params;
  ffi::Array<ConstructorDef> constructors;
  mutable Span span;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.relax.AdtDef", AdtDefObj, GlobalInfoObj);
};
class AdtDef : public GlobalInfo {
 public:
  AdtDef(ffi::String name, ffi::Array<ffi::String> params, ffi::Array<ConstructorDef> constructors,
         Span span = Span());
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(AdtDef, GlobalInfo, AdtDefObj);
};
inline constexpr const char* kDataTypes = "data_types";

// The callee of a call that makes a value.
class ConstructorObj : public ExprObj {
 public:
  AdtDef adt = AdtDef(ffi::UnsafeInit{});
  int64_t tag = 0;

  const ConstructorDefObj* def() const { return adt->constructors[tag].get(); }
  // "List.Cons"
  std::string FullName() const;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.relax.Constructor", ConstructorObj, ExprObj);
};
class Constructor : public Expr {
 public:
  Constructor(AdtDef adt, int64_t tag, Span span = Span());
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(Constructor, Expr, ConstructorObj);
};

// case List.Cons(head, tail): body.   Without a constructor: case _: body.
class MatchCaseObj : public ffi::Object {
 public:
  ffi::Optional<Constructor> constructor;
  ffi::Array<Var> vars;  // one for each field; unused ones are called "_"
  SeqExpr body = SeqExpr(ffi::UnsafeInit{});
  mutable Span span;

  static constexpr TVMFFISEqHashKind _type_s_eq_hash_kind = kTVMFFISEqHashKindTreeNode;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.relax.MatchCase", MatchCaseObj, ffi::Object);
};
class MatchCase : public ffi::ObjectRef {
 public:
  MatchCase(ffi::Optional<Constructor> constructor, ffi::Array<Var> vars, Expr body,
            Span span = Span());
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(MatchCase, ffi::ObjectRef, MatchCaseObj);
};

// The body of the case that `value` was made by.
class MatchObj : public ExprObj {
 public:
  Expr value;
  ffi::Array<MatchCase> cases;
  static constexpr TVMFFISEqHashKind _type_s_eq_hash_kind = kTVMFFISEqHashKindDAGNode;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.relax.Match", MatchObj, ExprObj);
};
class Match : public Expr {
 public:
  Match(Expr value, ffi::Array<MatchCase> cases, Span span = Span());
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(Match, Expr, MatchObj);
};

// `type` with type parameters replaced; one that is not in the list becomes `otherwise`.
using TypeArgs = std::unordered_map<std::string, Type>;
Type SubstituteParams(const Type& type, const TypeArgs& args, const Type& otherwise);
// The types of a constructor's fields in a value of type `value` (a data type, or R.Any).
ffi::Array<Type> FieldTypes(const Constructor& constructor, const Type& value);
// What is wrong with the cases of a match: an unknown mixture, a wrong number of fields, a case
// that never runs, one that is missing; "" when nothing is.  `at` is the case it is about.
std::string MistakeInCases(const Type& value, const ffi::Array<MatchCase>& cases,
                           const MatchCaseObj** at);

}  // namespace relaxvm::ir
