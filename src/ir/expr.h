// SPDX-License-Identifier: Apache-2.0
// Expressions of the graph language (Relax).  Scalar expressions (dimensions, tensor programs) are
// in prim.h. Nodes are immutable once built; `ty` and `span` may be completed by whoever just made
// the node.
#pragma once

#include <tvm/ffi/any.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/container/tensor.h>

#include "ir/type.h"

namespace relaxvm::ir {

// A variable of either language.  A symbolic dimension is a Var whose type is PrimType(int64).
class VarObj : public ExprObj {
 public:
  ffi::String name;  // for people; two variables are the same only when they are the same object

  static constexpr TVMFFISEqHashKind _type_s_eq_hash_kind = kTVMFFISEqHashKindFreeVar;
  static constexpr uint32_t _type_child_slots = 1;
  TVM_FFI_DECLARE_OBJECT_INFO("relaxvm.ir.Var", VarObj, ExprObj);
};
class Var : public Expr {
 public:
  Var(ffi::String name, Type ty, Span span = Span());
  Var(ffi::String name, DLDataType dtype);
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(Var, Expr, VarObj);
};

// Visible only inside its dataflow block.
class DataflowVarObj : public VarObj {
 public:
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.relax.DataflowVar", DataflowVarObj, VarObj);
};
class DataflowVar : public Var {
 public:
  DataflowVar(ffi::String name, Type ty, Span span = Span());
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(DataflowVar, Var, DataflowVarObj);
};

// A function of the module, by name.
class GlobalVarObj : public ExprObj {
 public:
  ffi::String name_hint;
  static constexpr TVMFFISEqHashKind _type_s_eq_hash_kind = kTVMFFISEqHashKindFreeVar;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.ir.GlobalVar", GlobalVarObj, ExprObj);
};
class GlobalVar : public Expr {
 public:
  explicit GlobalVar(ffi::String name_hint, Type ty = Type());
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(GlobalVar, Expr, GlobalVarObj);
};

// Values of an operator call's attributes, complete (defaults filled in), in the order of the
// operator's record. None, bool, int64, double, String, DLDataType, Array of these, or an IR
// object.
class AttrsObj : public ffi::Object {
 public:
  ffi::Map<ffi::String, ffi::Any> values;

  static constexpr TVMFFISEqHashKind _type_s_eq_hash_kind = kTVMFFISEqHashKindTreeNode;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.ir.Attrs", AttrsObj, ffi::Object);
};
// Nullable: operators without attributes carry null.
class Attrs : public ffi::ObjectRef {
 public:
  explicit Attrs(ffi::Map<ffi::String, ffi::Any> values);
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(Attrs, ffi::ObjectRef, AttrsObj);

  // The value, or None when there is no such attribute.
  ffi::Any Get(const ffi::String& name) const;
};

class CallObj : public ExprObj {
 public:
  Expr op;  // Op, GlobalVar, Var, ExternFunc or Function
  ffi::Array<Expr> args;
  Attrs attrs;
  ffi::Array<Type> ty_args;  // result types of call_tir, call_dps_packed, call_pure_packed and of
                             // packed functions
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.ir.Call", CallObj, ExprObj);
};
class Call : public Expr {
 public:
  Call(Expr op, ffi::Array<Expr> args, Attrs attrs = Attrs(), ffi::Array<Type> ty_args = {},
       Span span = Span(), Type ty = Type());
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(Call, Expr, CallObj);
};

// A tensor known at compile time.  Compared by content.
class ConstantObj : public ExprObj {
 public:
  ffi::Tensor data = ffi::Tensor(ffi::UnsafeInit{});
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.relax.Constant", ConstantObj, ExprObj);
};
class Constant : public Expr {
 public:
  explicit Constant(ffi::Tensor data, Span span = Span());
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(Constant, Expr, ConstantObj);
};

// R.str("...")
class StringImmObj : public ExprObj {
 public:
  ffi::String value;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.relax.StringImm", StringImmObj, ExprObj);
};
class StringImm : public Expr {
 public:
  explicit StringImm(ffi::String value, Span span = Span());
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(StringImm, Expr, StringImmObj);
};

// R.dtype("...")
class DataTypeImmObj : public ExprObj {
 public:
  DLDataType value;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.relax.DataTypeImm", DataTypeImmObj, ExprObj);
};
class DataTypeImm : public Expr {
 public:
  explicit DataTypeImm(DLDataType value, Span span = Span());
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(DataTypeImm, Expr, DataTypeImmObj);
};

// R.shape([...]): a shape value.
class ShapeExprObj : public ExprObj {
 public:
  ffi::Array<Expr> values;  // int64 scalars
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.relax.ShapeExpr", ShapeExprObj, ExprObj);
};
class ShapeExpr : public Expr {
 public:
  explicit ShapeExpr(ffi::Array<Expr> values, Span span = Span());
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(ShapeExpr, Expr, ShapeExprObj);
};

class TupleObj : public ExprObj {
 public:
  ffi::Array<Expr> fields;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.relax.Tuple", TupleObj, ExprObj);
};
class Tuple : public Expr {
 public:
  explicit Tuple(ffi::Array<Expr> fields, Span span = Span());
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(Tuple, Expr, TupleObj);
};

class TupleGetItemObj : public ExprObj {
 public:
  Expr tuple_value;
  int64_t index = 0;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.relax.TupleGetItem", TupleGetItemObj, ExprObj);
};
class TupleGetItem : public Expr {
 public:
  TupleGetItem(Expr tuple_value, int64_t index, Span span = Span());
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(TupleGetItem, Expr, TupleGetItemObj);
};

// ---- bindings

class BindingObj : public ffi::Object {
 public:
  mutable Span span;
  Var var = Var(ffi::UnsafeInit{});
  Expr value;

  static constexpr TVMFFISEqHashKind _type_s_eq_hash_kind = kTVMFFISEqHashKindTreeNode;
  static constexpr uint32_t _type_child_slots = 2;
  TVM_FFI_DECLARE_OBJECT_INFO("relaxvm.relax.Binding", BindingObj, ffi::Object);
};
class Binding : public ffi::ObjectRef {
 public:
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(Binding, ffi::ObjectRef, BindingObj);
};

// var = value
class VarBindingObj : public BindingObj {
 public:
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.relax.VarBinding", VarBindingObj, BindingObj);
};
class VarBinding : public Binding {
 public:
  VarBinding(Var var, Expr value, Span span = Span());
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(VarBinding, Binding, VarBindingObj);
};

// var = R.match_cast(value, ty): checks at run time that `value` has type `ty`, and binds the
// symbolic variables of `ty` that are not bound yet.
class MatchCastObj : public BindingObj {
 public:
  Type ty;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.relax.MatchCast", MatchCastObj, BindingObj);
};
class MatchCast : public Binding {
 public:
  MatchCast(Var var, Expr value, Type ty, Span span = Span());
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(MatchCast, Binding, MatchCastObj);
};

class BindingBlockObj : public ffi::Object {
 public:
  ffi::Array<Binding> bindings;
  mutable Span span;

  static constexpr TVMFFISEqHashKind _type_s_eq_hash_kind = kTVMFFISEqHashKindTreeNode;
  static constexpr uint32_t _type_child_slots = 1;
  TVM_FFI_DECLARE_OBJECT_INFO("relaxvm.relax.BindingBlock", BindingBlockObj, ffi::Object);
};
class BindingBlock : public ffi::ObjectRef {
 public:
  explicit BindingBlock(ffi::Array<Binding> bindings, Span span = Span());
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(BindingBlock, ffi::ObjectRef, BindingBlockObj);
};

// Pure, and without control flow.
class DataflowBlockObj : public BindingBlockObj {
 public:
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.relax.DataflowBlock", DataflowBlockObj,
                                    BindingBlockObj);
};
class DataflowBlock : public BindingBlock {
 public:
  explicit DataflowBlock(ffi::Array<Binding> bindings, Span span = Span());
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(DataflowBlock, BindingBlock, DataflowBlockObj);
};

class SeqExprObj : public ExprObj {
 public:
  ffi::Array<BindingBlock> blocks;
  Expr body;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.relax.SeqExpr", SeqExprObj, ExprObj);
};
class SeqExpr : public Expr {
 public:
  SeqExpr(ffi::Array<BindingBlock> blocks, Expr body, Span span = Span());
  // `body` itself when it is a SeqExpr, else a SeqExpr without bindings.
  static SeqExpr Wrap(Expr body);
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(SeqExpr, Expr, SeqExprObj);
};

class IfObj : public ExprObj {
 public:
  Expr cond;  // bool scalar: a 0-d tensor or a PrimType(bool) value
  SeqExpr true_branch = SeqExpr(ffi::UnsafeInit{});
  SeqExpr false_branch = SeqExpr(ffi::UnsafeInit{});
  static constexpr TVMFFISEqHashKind _type_s_eq_hash_kind = kTVMFFISEqHashKindDAGNode;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.relax.If", IfObj, ExprObj);
};
class If : public Expr {
 public:
  If(Expr cond, Expr true_branch, Expr false_branch, Span span = Span());
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(If, Expr, IfObj);
};

}  // namespace relaxvm::ir
