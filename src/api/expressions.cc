// SPDX-License-Identifier: Apache-2.0
// Expressions of the graph language for Python.
#include <tvm/ffi/extra/structural_equal.h>
#include <tvm/ffi/extra/structural_hash.h>
#include <tvm/ffi/reflection/registry.h>

#include <cstdlib>

#include "api/convert.h"
#include "api/register.h"
#include "ir/data_type.h"
#include "ir/module.h"
#include "ir/op.h"

namespace relaxvm::api {

namespace refl = tvm::ffi::reflection;
using Flag = refl::AttachFieldFlag;
using ffi::AnyView;
using ir::Expr;
using ir::Span;
using ir::Type;
using EqualFn = ffi::TypedFunction<bool(AnyView, AnyView, int, AnyView)>;
using HashFn = ffi::TypedFunction<int64_t(AnyView, int64_t, int)>;

namespace {

// A reference to a function is its name; the type of a function is not part of it.
void RegisterGlobalVar() {
  refl::ObjectDef<ir::GlobalVarObj>(refl::init(false))
      .def_ro("name_hint", &ir::GlobalVarObj::name_hint);
  refl::TypeAttrDef<ir::GlobalVarObj>()
      .def("__s_equal__",
           [](const ir::GlobalVarObj* a, const ir::GlobalVarObj* b, const EqualFn& equal) {
             return equal(a->name_hint, b->name_hint, 0, "name_hint");
           })
      .def("__s_hash__", [](const ir::GlobalVarObj* v, int64_t init, const HashFn& hash) {
        return hash(v->name_hint, init, 0);
      });
}

// The type of a sequence may speak of variables that its bindings define: they come first.
void RegisterSeqExpr() {
  refl::ObjectDef<ir::SeqExprObj>(refl::init(false))
      .def_ro("blocks", &ir::SeqExprObj::blocks)
      .def_ro("body", &ir::SeqExprObj::body);
  refl::TypeAttrDef<ir::SeqExprObj>()
      .def("__s_equal__",
           [](const ir::SeqExprObj* a, const ir::SeqExprObj* b, const EqualFn& equal) {
             return equal(a->blocks, b->blocks, 0, "blocks") && equal(a->ty, b->ty, 0, "ty") &&
                    equal(a->body, b->body, 0, "body");
           })
      .def("__s_hash__", [](const ir::SeqExprObj* s, int64_t init, const HashFn& hash) {
        return hash(s->body, hash(s->ty, hash(s->blocks, init, 0), 0), 0);
      });
}

void RegisterClasses() {
  refl::ObjectDef<ir::VarObj>(refl::init(false))
      .def_ro("name", &ir::VarObj::name, Flag::SEqHashIgnore());
  refl::ObjectDef<ir::DataflowVarObj>(refl::init(false));
  RegisterGlobalVar();
  refl::ObjectDef<ir::OpObj>(refl::init(false))
      .def_ro("name", &ir::OpObj::name)
      .def_ro("description", &ir::OpObj::description)
      .def_ro("num_inputs", &ir::OpObj::num_inputs);
  refl::ObjectDef<ir::AttrsObj>(refl::init(false)).def_ro("values", &ir::AttrsObj::values);
  refl::ObjectDef<ir::CallObj>(refl::init(false))
      .def_ro("op", &ir::CallObj::op)
      .def_ro("args", &ir::CallObj::args)
      .def_ro("attrs", &ir::CallObj::attrs)
      .def_ro("ty_args", &ir::CallObj::ty_args);
  refl::ObjectDef<ir::ConstantObj>(refl::init(false)).def_ro("data", &ir::ConstantObj::data);
  refl::ObjectDef<ir::StringImmObj>(refl::init(false)).def_ro("value", &ir::StringImmObj::value);
  refl::ObjectDef<ir::DataTypeImmObj>(refl::init(false))
      .def_ro("value", &ir::DataTypeImmObj::value);
  refl::ObjectDef<ir::ShapeExprObj>(refl::init(false)).def_ro("values", &ir::ShapeExprObj::values);
  refl::ObjectDef<ir::TupleObj>(refl::init(false)).def_ro("fields", &ir::TupleObj::fields);
  refl::ObjectDef<ir::TupleGetItemObj>(refl::init(false))
      .def_ro("tuple_value", &ir::TupleGetItemObj::tuple_value)
      .def_ro("index", &ir::TupleGetItemObj::index);
  RegisterSeqExpr();
  refl::ObjectDef<ir::IfObj>(refl::init(false))
      .def_ro("cond", &ir::IfObj::cond)
      .def_ro("true_branch", &ir::IfObj::true_branch)
      .def_ro("false_branch", &ir::IfObj::false_branch);
}

void RegisterDataTypes() {
  refl::ObjectDef<ir::ConstructorDefObj>(refl::init(false))
      .def_ro("name", &ir::ConstructorDefObj::name)
      .def_ro("field_names", &ir::ConstructorDefObj::field_names)
      .def_ro("fields", &ir::ConstructorDefObj::fields)
      .def_ro("span", &ir::ConstructorDefObj::span, Flag::SEqHashIgnore());
  refl::ObjectDef<ir::AdtDefObj>(refl::init(false))
      .def_ro("name", &ir::AdtDefObj::name)
      .def_ro("params", &ir::AdtDefObj::params)
      .def_ro("constructors", &ir::AdtDefObj::constructors)
      .def_ro("span", &ir::AdtDefObj::span, Flag::SEqHashIgnore());
  refl::ObjectDef<ir::ConstructorObj>(refl::init(false))
      .def_ro("adt", &ir::ConstructorObj::adt)
      .def_ro("tag", &ir::ConstructorObj::tag);
  refl::ObjectDef<ir::MatchCaseObj>(refl::init(false))
      .def_ro("constructor", &ir::MatchCaseObj::constructor)
      .def_ro("vars", &ir::MatchCaseObj::vars, Flag::SEqHashDefSimple())
      .def_ro("body", &ir::MatchCaseObj::body)
      .def_ro("span", &ir::MatchCaseObj::span, Flag::SEqHashIgnore());
  refl::ObjectDef<ir::MatchObj>(refl::init(false))
      .def_ro("value", &ir::MatchObj::value)
      .def_ro("cases", &ir::MatchObj::cases);
  refl::GlobalDef()
      .def("relaxvm.ir.ConstructorDef",
           [](ffi::String name, ffi::Array<ffi::String> field_names, ffi::Array<Type> fields,
              Span span) { return ir::ConstructorDef(name, field_names, fields, span); })
      .def("relaxvm.ir.AdtDef",
           [](ffi::String name, ffi::Array<ffi::String> params,
              ffi::Array<ir::ConstructorDef> constructors,
              Span span) { return ir::AdtDef(name, params, constructors, span); })
      .def("relaxvm.ir.Constructor",
           [](ir::AdtDef adt, int64_t tag, Span span) { return ir::Constructor(adt, tag, span); })
      .def("relaxvm.ir.MatchCase",
           [](ffi::Optional<ir::Constructor> constructor, ffi::Array<ir::Var> vars, Expr body,
              Span span) { return ir::MatchCase(constructor, vars, body, span); })
      .def("relaxvm.ir.Match", [](Expr value, ffi::Array<ir::MatchCase> cases,
                                  Span span) { return ir::Match(value, cases, span); })
      // "" when the cases are right; else what is wrong, and the index of the case (-1: the match).
      .def("relaxvm.ir.MistakeInCases",
           [](Expr value, ffi::Array<ir::MatchCase> cases) {
             const ir::MatchCaseObj* at = nullptr;
             std::string mistake = ir::MistakeInCases(value->ty, cases, &at);
             int64_t index = -1;
             for (size_t i = 0; i < cases.size(); ++i) {
               if (cases[i].get() == at) index = static_cast<int64_t>(i);
             }
             return ffi::Array<ffi::Any>{ffi::String(mistake), index};
           })
      .def("relaxvm.ir.FieldTypes", [](ir::Constructor constructor, Type value) {
        return ir::FieldTypes(constructor, value);
      });
}

void CheckOnHost(const ffi::Tensor& data) {
  if (data.device().device_type != kDLCPU) {
    Fail(ErrorKind::kValueError, "Constant: the tensor is not in CPU memory; copy it there first");
  }
}

struct HostMemory {
  void AllocData(DLTensor* t) {
    int64_t elems = 1;
    for (int i = 0; i < t->ndim; ++i) elems *= t->shape[i];
    const auto bytes = static_cast<size_t>(SizeInBytes(t->dtype, elems));
    t->data = std::aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
  }
  void FreeData(DLTensor* t) { std::free(t->data); }
};

// The same memory under another element type of that size: for types that DLPack producers do not
// know.
ffi::Tensor Relabel(const ffi::Tensor& data, DLDataType dtype) {
  if (SizeInBytes(data.dtype()) != SizeInBytes(dtype)) {
    Fail(ErrorKind::kValueError, "cannot take ", DTypeName(data.dtype()), " as ", DTypeName(dtype));
  }
  ffi::Tensor keep = data;
  DLManagedTensor* managed = keep.ToDLPack();
  managed->dl_tensor.dtype = dtype;
  return ffi::Tensor::FromDLPack(managed);
}

}  // namespace

void RegisterExpressions() {
  RegisterClasses();
  RegisterDataTypes();
  refl::GlobalDef()
      .def("relaxvm.ir.Var",
           [](ffi::String name, Type ty, Span span) { return ir::Var(name, ty, span); })
      .def("relaxvm.ir.DataflowVar",
           [](ffi::String name, Type ty, Span span) { return ir::DataflowVar(name, ty, span); })
      .def("relaxvm.ir.GlobalVar",
           [](ffi::String name, Type ty) { return ir::GlobalVar(name, ty); })
      .def("relaxvm.ir.Attrs",
           [](ffi::Map<ffi::String, ffi::Any> values) { return ir::Attrs(std::move(values)); })
      .def("relaxvm.ir.Call",
           [](Expr op, ffi::Array<Expr> args, ir::Attrs attrs, ffi::Array<Type> ty_args,
              Span span) { return ir::Call(op, args, attrs, ty_args, span); })
      .def("relaxvm.ir.Constant",
           [](ffi::Tensor data, Span span) {
             CheckOnHost(data);
             return ir::Constant(data, span);
           })
      .def("relaxvm.ir.StringImm",
           [](ffi::String value, Span span) { return ir::StringImm(value, span); })
      .def("relaxvm.ir.DataTypeImm",
           [](DLDataType value, Span span) { return ir::DataTypeImm(value, span); })
      .def("relaxvm.ir.ShapeExpr", [](ffi::Array<ffi::Any> values,
                                      Span span) { return ir::ShapeExpr(ToScalars(values), span); })
      .def("relaxvm.ir.Tuple",
           [](ffi::Array<Expr> fields, Span span) { return ir::Tuple(fields, span); })
      .def(
          "relaxvm.ir.TupleGetItem",
          [](Expr tuple, int64_t index, Span span) { return ir::TupleGetItem(tuple, index, span); })
      .def("relaxvm.ir.SeqExpr", [](ffi::Array<ir::BindingBlock> blocks, Expr body,
                                    Span span) { return ir::SeqExpr(blocks, body, span); })
      .def("relaxvm.ir.If",
           [](Expr cond, Expr yes, Expr no, Span span) { return ir::If(cond, yes, no, span); })
      .def("relaxvm.ir.RelabelTensor", Relabel)
      .def("relaxvm.ir.EmptyTensor",
           [](ffi::Shape shape, DLDataType dtype) {
             return ffi::Tensor::FromNDAlloc(HostMemory(), shape, dtype, DLDevice{kDLCPU, 0});
           })
      .def("relaxvm.ir.UpdateType", [](Expr e, Type ty) { e->ty = std::move(ty); })
      .def("relaxvm.ir.SetSpan", [](Expr e, Span span) { e->span = std::move(span); })
      .def("relaxvm.ir.StructuralEqual",
           [](ffi::Any a, ffi::Any b, bool map_free_vars) {
             return ffi::StructuralEqual::Equal(a, b, map_free_vars);
           })
      .def("relaxvm.ir.FirstMismatch",
           [](ffi::Any a, ffi::Any b, bool map_free_vars) {
             return ffi::StructuralEqual::GetFirstMismatch(a, b, map_free_vars);
           })
      .def("relaxvm.ir.StructuralHash", [](ffi::Any a, bool map_free_vars) {
        return static_cast<int64_t>(ffi::StructuralHash::Hash(a, map_free_vars));
      });
}

}  // namespace relaxvm::api
