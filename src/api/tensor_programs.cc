// SPDX-License-Identifier: Apache-2.0
// The loop language for Python.
#include <tvm/ffi/reflection/registry.h>

#include "api/convert.h"
#include "api/register.h"
#include "tir/functor.h"
#include "tir/scalar_program.h"
#include "tir/stmt.h"

namespace relaxvm::api {

namespace refl = tvm::ffi::reflection;
using Flag = refl::AttachFieldFlag;
using ffi::Any;
using ffi::Array;
using ir::Expr;
using ir::Span;
using ir::Var;
using tir::Stmt;

namespace {

void RegisterBuffers() {
  refl::ObjectDef<tir::BufferTypeObj>(refl::init(false))
      .def_ro("dtype", &tir::BufferTypeObj::dtype)
      .def_ro("storage_scope", &tir::BufferTypeObj::storage_scope)
      .def_ro("shape", &tir::BufferTypeObj::shape)
      .def_ro("strides", &tir::BufferTypeObj::strides)
      .def_ro("elem_offset", &tir::BufferTypeObj::elem_offset)
      .def_ro("data_alignment", &tir::BufferTypeObj::data_alignment);
  refl::ObjectDef<tir::BufferLoadObj>(refl::init(false))
      .def_ro("buffer", &tir::BufferLoadObj::buffer)
      .def_ro("indices", &tir::BufferLoadObj::indices)
      .def_ro("predicate", &tir::BufferLoadObj::predicate);
}

void RegisterSimpleStatements() {
  refl::ObjectDef<tir::StmtObj>(refl::init(false))
      .def_ro("span", &tir::StmtObj::span, Flag::SEqHashIgnore());
  refl::ObjectDef<tir::BufferStoreObj>(refl::init(false))
      .def_ro("buffer", &tir::BufferStoreObj::buffer)
      .def_ro("value", &tir::BufferStoreObj::value)
      .def_ro("indices", &tir::BufferStoreObj::indices)
      .def_ro("predicate", &tir::BufferStoreObj::predicate);
  refl::ObjectDef<tir::BindObj>(refl::init(false))
      .def_ro("var", &tir::BindObj::var, Flag::SEqHashDefSimple())
      .def_ro("value", &tir::BindObj::value);
  refl::ObjectDef<tir::AllocBufferObj>(refl::init(false))
      .def_ro("buffer", &tir::AllocBufferObj::buffer, Flag::SEqHashDefSimple());
  refl::ObjectDef<tir::AssertStmtObj>(refl::init(false))
      .def_ro("condition", &tir::AssertStmtObj::condition)
      .def_ro("error_kind", &tir::AssertStmtObj::error_kind)
      .def_ro("message", &tir::AssertStmtObj::message);
  refl::ObjectDef<tir::SeqStmtObj>(refl::init(false)).def_ro("seq", &tir::SeqStmtObj::seq);
  refl::ObjectDef<tir::EvaluateObj>(refl::init(false)).def_ro("value", &tir::EvaluateObj::value);
}

void RegisterControlFlow() {
  refl::ObjectDef<tir::IfThenElseObj>(refl::init(false))
      .def_ro("condition", &tir::IfThenElseObj::condition)
      .def_ro("then_case", &tir::IfThenElseObj::then_case)
      .def_ro("else_case", &tir::IfThenElseObj::else_case);
  refl::ObjectDef<tir::ForObj>(refl::init(false))
      .def_ro("loop_var", &tir::ForObj::loop_var, Flag::SEqHashDefSimple())
      .def_ro("min", &tir::ForObj::min)
      .def_ro("extent", &tir::ForObj::extent)
      .def_ro("kind", &tir::ForObj::kind)
      .def_ro("thread_tag", &tir::ForObj::thread_tag)
      .def_ro("annotations", &tir::ForObj::annotations)
      .def_ro("body", &tir::ForObj::body);
  refl::ObjectDef<tir::WhileObj>(refl::init(false))
      .def_ro("condition", &tir::WhileObj::condition)
      .def_ro("body", &tir::WhileObj::body);
}

// Axes and allocations come before what mentions them.
void RegisterBlocks() {
  refl::ObjectDef<tir::IterVarObj>(refl::init(false))
      .def_ro("var", &tir::IterVarObj::var, Flag::SEqHashDefSimple())
      .def_ro("min", &tir::IterVarObj::min)
      .def_ro("extent", &tir::IterVarObj::extent)
      .def_ro("kind", &tir::IterVarObj::kind);
  refl::ObjectDef<tir::BufferRegionObj>(refl::init(false))
      .def_ro("buffer", &tir::BufferRegionObj::buffer)
      .def_ro("mins", &tir::BufferRegionObj::mins)
      .def_ro("extents", &tir::BufferRegionObj::extents);
  refl::ObjectDef<tir::SBlockObj>(refl::init(false))
      .def_ro("iter_vars", &tir::SBlockObj::iter_vars)
      .def_ro("alloc_buffers", &tir::SBlockObj::alloc_buffers, Flag::SEqHashDefSimple())
      .def_ro("reads", &tir::SBlockObj::reads)
      .def_ro("writes", &tir::SBlockObj::writes)
      .def_ro("name_hint", &tir::SBlockObj::name_hint, Flag::SEqHashIgnore())
      .def_ro("annotations", &tir::SBlockObj::annotations)
      .def_ro("init", &tir::SBlockObj::init)
      .def_ro("body", &tir::SBlockObj::body);
  refl::ObjectDef<tir::SBlockRealizeObj>(refl::init(false))
      .def_ro("iter_values", &tir::SBlockRealizeObj::iter_values)
      .def_ro("predicate", &tir::SBlockRealizeObj::predicate)
      .def_ro("block", &tir::SBlockRealizeObj::block);
  refl::ObjectDef<tir::PrimFuncObj>(refl::init(false))
      .def_ro("params", &tir::PrimFuncObj::params, Flag::SEqHashDefPattern())
      .def_ro("ret_type", &tir::PrimFuncObj::ret_type)
      .def_ro("body", &tir::PrimFuncObj::body);
}

tir::ForKind ToForKind(int64_t kind) {
  if (kind < 0 || kind > 4) Fail(ErrorKind::kValueError, "no kind of loop has number ", kind);
  return static_cast<tir::ForKind>(kind);
}

void DefineMakers() {
  refl::GlobalDef()
      .def("relaxvm.tirx.BufferType",
           [](DLDataType dtype, Array<Any> shape, ffi::String scope, Array<Any> strides, Any offset,
              int64_t align) {
             return tir::BufferType(dtype, ToScalars(shape, Int(32)), scope,
                                    ToScalars(strides, Int(32)), ToOptional(offset), align);
           })
      .def("relaxvm.tirx.BufferLoad",
           [](Var buffer, Array<Any> indices, Any predicate) {
             return tir::BufferLoad(buffer, ToScalars(indices, Int(32)), ToOptional(predicate));
           })
      .def("relaxvm.tirx.BufferStore",
           [](Var buffer, Any value, Array<Any> indices, Any predicate, Span span) {
             return tir::BufferStore(buffer, ToScalar(value, Int(32)), ToScalars(indices, Int(32)),
                                     ToOptional(predicate), span);
           })
      .def("relaxvm.tirx.Bind",
           [](Var var, Any v, Span span) { return tir::Bind(var, ToScalar(v, Int(32)), span); })
      .def("relaxvm.tirx.AllocBuffer",
           [](Var buffer, Span span) { return tir::AllocBuffer(buffer, span); })
      .def("relaxvm.tirx.AssertStmt",
           [](Any condition, ffi::String kind, ffi::String message, Span span) {
             return tir::AssertStmt(ToScalar(condition), kind, message, span);
           })
      .def("relaxvm.tirx.SeqStmt", [](Array<Stmt> seq) { return tir::SeqStmt(seq); })
      .def("relaxvm.tirx.FlattenSeq", [](Array<Stmt> seq) { return tir::SeqStmt::Flatten(seq); })
      .def("relaxvm.tirx.Evaluate",
           [](Any v, Span span) { return tir::Evaluate(ToScalar(v, Int(32)), span); })
      .def("relaxvm.tirx.IfThenElse",
           [](Any condition, Stmt yes, Stmt no, Span span) {
             return tir::IfThenElse(ToScalar(condition), yes, no, span);
           })
      .def("relaxvm.tirx.For",
           [](Var var, Any min, Any extent, int64_t kind, Stmt body, ffi::String tag,
              ir::DictAttrs notes, Span span) {
             return tir::For(var, ToScalar(min, var.dtype()), ToScalar(extent, var.dtype()),
                             ToForKind(kind), body, tag, notes, span);
           })
      .def("relaxvm.tirx.While",
           [](Any condition, Stmt body, Span span) {
             return tir::While(ToScalar(condition), body, span);
           })
      .def("relaxvm.tirx.IterVar",
           [](Var var, Any min, Any extent, int64_t kind) {
             if (kind < 0 || kind > 2)
               Fail(ErrorKind::kValueError, "no kind of axis has number ", kind);
             return tir::IterVar(var, ToScalar(min, var.dtype()), ToScalar(extent, var.dtype()),
                                 static_cast<tir::IterKind>(kind));
           })
      .def("relaxvm.tirx.BufferRegion",
           [](Var buffer, Array<Any> mins, Array<Any> extents) {
             return tir::BufferRegion(buffer, ToScalars(mins, Int(32)),
                                      ToScalars(extents, Int(32)));
           })
      .def("relaxvm.tirx.SBlock",
           [](Array<tir::IterVar> iters, Array<tir::BufferRegion> reads,
              Array<tir::BufferRegion> writes, ffi::String name, Stmt body, Stmt init,
              Array<Var> allocs, ir::DictAttrs notes, Span span) {
             return tir::SBlock(iters, reads, writes, name, body, init, allocs, notes, span);
           })
      .def("relaxvm.tirx.SBlockRealize",
           [](Array<Any> values, Any predicate, tir::SBlock block, Span span) {
             return tir::SBlockRealize(ToScalars(values, Int(32)), ToScalar(predicate), block,
                                       span);
           })
      .def("relaxvm.tirx.PrimFunc",
           [](Array<Var> params, Stmt body, ffi::Optional<ir::Type> ret, ir::DictAttrs attrs,
              Span span) {
             tir::PrimFunc func(params, body, attrs, span);
             return ret.has_value() ? tir::WithResult(func, ret.value()) : func;
           })
      .def("relaxvm.tirx.PostOrderVisit",
           [](Any node, ffi::Function f) {
             auto expr = node.as<Expr>();
             Stmt part = expr.has_value() ? tir::Evaluate(*expr) : node.cast<Stmt>();
             tir::PostOrderVisit(part, [&](const ffi::ObjectRef& inner) {
               if (!expr.has_value() || !inner.same_as(part)) f(inner);
             });
           })
      .def("relaxvm.tirx.Substitute",
           [](Any node, ffi::Map<Var, Expr> map) -> Any {
             if (auto expr = node.as<Expr>()) return tir::Substitute(*expr, map);
             return tir::Substitute(node.cast<Stmt>(), map);
           })
      .def("relaxvm.tirx.WithAttrs", [](tir::PrimFunc func, ir::DictAttrs attrs) {
        auto copy = ffi::make_object<tir::PrimFuncObj>(*func.get());
        copy->attrs = std::move(attrs);
        return ir::NodeRef<tir::PrimFunc>(std::move(copy));
      });
}

}  // namespace

void RegisterTensorPrograms() {
  RegisterBuffers();
  RegisterSimpleStatements();
  RegisterControlFlow();
  RegisterBlocks();
  DefineMakers();
}

}  // namespace relaxvm::api
