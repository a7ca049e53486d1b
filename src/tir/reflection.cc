// SPDX-License-Identifier: Apache-2.0
// Fields of tensor programs as tvm-ffi sees them: for structural equality, hashing and Python.
#include <tvm/ffi/reflection/registry.h>

#include "tir/functor.h"
#include "tir/tensor.h"

namespace relaxvm::tir {
namespace {

namespace refl = tvm::ffi::reflection;

constexpr auto Ignore = refl::AttachFieldFlag::SEqHashIgnore;
constexpr auto Defines = refl::AttachFieldFlag::SEqHashDefSimple;
constexpr auto DefinesWithType = refl::AttachFieldFlag::SEqHashDefPattern;

template <typename T>
refl::ObjectDef<T> Def() {
  return refl::ObjectDef<T>(refl::init(false));
}

void DefineBuffers() {
  Def<BufferTypeObj>()
      .def_ro("dtype", &BufferTypeObj::dtype)
      .def_ro("storage_scope", &BufferTypeObj::storage_scope)
      .def_ro("shape", &BufferTypeObj::shape)
      .def_ro("strides", &BufferTypeObj::strides)
      .def_ro("elem_offset", &BufferTypeObj::elem_offset)
      .def_ro("data_alignment", &BufferTypeObj::data_alignment);
  Def<BufferLoadObj>()
      .def_ro("buffer", &BufferLoadObj::buffer)
      .def_ro("indices", &BufferLoadObj::indices)
      .def_ro("predicate", &BufferLoadObj::predicate);
}

void DefineStatements() {
  Def<StmtObj>().def_ro("span", &StmtObj::span, Ignore());
  Def<BufferStoreObj>()
      .def_ro("buffer", &BufferStoreObj::buffer)
      .def_ro("value", &BufferStoreObj::value)
      .def_ro("indices", &BufferStoreObj::indices)
      .def_ro("predicate", &BufferStoreObj::predicate);
  // The value comes first: it may not mention the variable.
  Def<BindObj>().def_ro("value", &BindObj::value).def_ro("var", &BindObj::var, Defines());
  Def<AllocBufferObj>().def_ro("buffer", &AllocBufferObj::buffer, Defines());
  Def<AssertStmtObj>()
      .def_ro("condition", &AssertStmtObj::condition)
      .def_ro("error_kind", &AssertStmtObj::error_kind)
      .def_ro("message", &AssertStmtObj::message);
  Def<SeqStmtObj>().def_ro("seq", &SeqStmtObj::seq);
  Def<EvaluateObj>().def_ro("value", &EvaluateObj::value);
  Def<IfThenElseObj>()
      .def_ro("condition", &IfThenElseObj::condition)
      .def_ro("then_case", &IfThenElseObj::then_case)
      .def_ro("else_case", &IfThenElseObj::else_case);
  Def<ForObj>()
      .def_ro("loop_var", &ForObj::loop_var, Defines())
      .def_ro("min", &ForObj::min)
      .def_ro("extent", &ForObj::extent)
      .def_ro("kind", &ForObj::kind)
      .def_ro("body", &ForObj::body)
      .def_ro("thread_tag", &ForObj::thread_tag)
      .def_ro("annotations", &ForObj::annotations);
  Def<WhileObj>().def_ro("condition", &WhileObj::condition).def_ro("body", &WhileObj::body);
}

void DefineBlocks() {
  Def<IterVarObj>()
      .def_ro("var", &IterVarObj::var, Defines())
      .def_ro("min", &IterVarObj::min)
      .def_ro("extent", &IterVarObj::extent)
      .def_ro("kind", &IterVarObj::kind);
  Def<BufferRegionObj>()
      .def_ro("buffer", &BufferRegionObj::buffer)
      .def_ro("mins", &BufferRegionObj::mins)
      .def_ro("extents", &BufferRegionObj::extents);
  Def<SBlockObj>()
      .def_ro("iter_vars", &SBlockObj::iter_vars)
      .def_ro("alloc_buffers", &SBlockObj::alloc_buffers, Defines())
      .def_ro("reads", &SBlockObj::reads)
      .def_ro("writes", &SBlockObj::writes)
      .def_ro("name_hint", &SBlockObj::name_hint, Ignore())
      .def_ro("init", &SBlockObj::init)
      .def_ro("body", &SBlockObj::body)
      .def_ro("annotations", &SBlockObj::annotations);
  Def<SBlockRealizeObj>()
      .def_ro("iter_values", &SBlockRealizeObj::iter_values)
      .def_ro("predicate", &SBlockRealizeObj::predicate)
      .def_ro("block", &SBlockRealizeObj::block);
  Def<PrimFuncObj>()
      .def_ro("params", &PrimFuncObj::params, DefinesWithType())
      .def_ro("ret_type", &PrimFuncObj::ret_type)
      .def_ro("body", &PrimFuncObj::body);
}

void DefineTensors() {
  Def<TensorObj>()
      .def_ro("name", &TensorObj::name)
      .def_ro("shape", &TensorObj::shape)
      .def_ro("dtype", &TensorObj::dtype)
      .def_ro("stage", &TensorObj::stage)
      .def_ro("index", &TensorObj::index);
  Def<TensorLoadObj>()
      .def_ro("tensor", &TensorLoadObj::tensor)
      .def_ro("indices", &TensorLoadObj::indices);
  Def<ReducerObj>()
      .def_ro("lhs", &ReducerObj::lhs)
      .def_ro("rhs", &ReducerObj::rhs)
      .def_ro("result", &ReducerObj::result)
      .def_ro("identity", &ReducerObj::identity);
}

TVM_FFI_STATIC_INIT_BLOCK() {
  DefineBuffers();
  DefineStatements();
  DefineBlocks();
  DefineTensors();
}

}  // namespace
}  // namespace relaxvm::tir
