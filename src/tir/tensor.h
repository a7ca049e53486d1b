// SPDX-License-Identifier: Apache-2.0
// Tensor expressions: how operators say what they compute.  A Tensor is a placeholder, or the
// result of a stage: an elementwise formula, a reduction, or hand-written statements.
// CreatePrimFunc turns a graph of them into a tensor program with one block per stage.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tir/stmt.h"

namespace relaxvm::tir {

class StageObj;

// One result of a stage.
class TensorObj : public ffi::Object {
 public:
  ffi::String name;
  ffi::Array<Expr> shape;
  DLDataType dtype;
  ffi::Optional<ffi::ObjectRef> stage;  // a StageObj; absent: a placeholder
  int64_t index = 0;                    // which result of the stage
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.te.Tensor", TensorObj, ffi::Object);
};
class Tensor : public ffi::ObjectRef {
 public:
  Tensor(ffi::String name, ffi::Array<Expr> shape, DLDataType dtype);  // a placeholder
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(Tensor, ffi::ObjectRef, TensorObj);

  int ndim() const { return static_cast<int>(get()->shape.size()); }
  Expr dim(int i) const { return get()->shape[i < 0 ? i + ndim() : i]; }
  DLDataType dtype() const { return get()->dtype; }
  // The element at `indices` (one per dimension).
  Expr operator()(ffi::Array<Expr> indices) const;
};

// tensor(indices) inside a stage's formula.
class TensorLoadObj : public ir::ExprObj {
 public:
  Tensor tensor;
  ffi::Array<Expr> indices;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.te.TensorLoad", TensorLoadObj, ir::ExprObj);
};

class TensorLoad : public Expr {
 public:
  TensorLoad(Tensor tensor, ffi::Array<Expr> indices);
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(TensorLoad, Expr, TensorLoadObj);
};

// How a reduction combines: result = combine(accumulated, next); several values at once for argmax
// and its kin.
class ReducerObj : public ffi::Object {
 public:
  ffi::Array<Var> lhs;  // what has been accumulated
  ffi::Array<Var> rhs;  // the next values
  ffi::Array<Expr> result;
  ffi::Array<Expr> identity;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.te.Reducer", ReducerObj, ffi::Object);
};
class Reducer : public ffi::ObjectRef {
 public:
  Reducer(ffi::Array<Var> lhs, ffi::Array<Var> rhs, ffi::Array<Expr> result,
          ffi::Array<Expr> identity);
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(Reducer, ffi::ObjectRef, ReducerObj);
};
Reducer SumReducer(DLDataType dtype);
Reducer ProdReducer(DLDataType dtype);
Reducer MaxReducer(DLDataType dtype);
Reducer MinReducer(DLDataType dtype);
Reducer AndReducer();
Reducer OrReducer();

using Indices = ffi::Array<Expr>;
using Formula = std::function<Expr(const Indices& i)>;
using ReduceFormula = std::function<Expr(const Indices& i, const Indices& r)>;
using MultiReduceFormula = std::function<std::vector<Expr>(const Indices& i, const Indices& r)>;

// out[i...] = formula(i)
Tensor Compute(ffi::Array<Expr> shape, const Formula& formula, std::string name = "compute");
// out[i...] = reduce over r in reduce_extents of formula(i, r)
Tensor Reduce(ffi::Array<Expr> shape, ffi::Array<Expr> reduce_extents, const Reducer& reducer,
              const ReduceFormula& formula, std::string name = "reduce");
std::vector<Tensor> MultiReduce(ffi::Array<Expr> shape, ffi::Array<Expr> reduce_extents,
                                const Reducer& reducer, const MultiReduceFormula& formula,
                                std::vector<std::string> names);
// Statements written by hand, with loops, blocks or plain stores: `body` gets the input and output
// buffers.  Never fused into, runs as one opaque block.
struct OutputSpec {
  std::string name;
  ffi::Array<Expr> shape;
  DLDataType dtype;
};
using OpaqueBody =
    std::function<Stmt(const std::vector<Buffer>& inputs, const std::vector<Buffer>& outputs)>;
std::vector<Tensor> Opaque(std::vector<OutputSpec> outputs, std::vector<Tensor> inputs,
                           const OpaqueBody& body, std::string name);

// Elementwise helpers over whole tensors.
Tensor Map(const Tensor& x, const std::function<Expr(Expr)>& f, std::string name = "map");

// The program  inputs..., outputs..., scalars...  ->  outputs.  Inputs are placeholders; one that
// is also an output is copied.  Symbolic sizes that no input's shape binds must be among `scalars`.
PrimFunc CreatePrimFunc(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
                        const ffi::Array<Var>& scalars = {});

}  // namespace relaxvm::tir
