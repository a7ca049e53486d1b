// SPDX-License-Identifier: Apache-2.0
// Tensor expressions: formulas are run once, on fresh index variables, when a tensor is made.
#include "tir/tensor.h"

#include <tvm/ffi/cast.h>

#include <utility>

#include "tir/stage.h"

namespace relaxvm::tir {
namespace {

using ffi::detail::ObjectUnsafe;

Tensor MakeTensor(ffi::String name, ffi::Array<Expr> shape, DLDataType dtype,
                  ffi::Optional<ffi::ObjectRef> stage, int64_t index) {
  auto node = ffi::make_object<TensorObj>();
  node->name = std::move(name);
  node->shape = std::move(shape);
  node->dtype = dtype;
  node->stage = std::move(stage);
  node->index = index;
  return Tensor(std::move(node));
}

ffi::Array<Var> FreshAxes(size_t count, const std::string& prefix) {
  ffi::Array<Var> axes;
  for (size_t i = 0; i < count; ++i) axes.push_back(Var(prefix + std::to_string(i), Int(64)));
  return axes;
}

Indices AsIndices(const ffi::Array<Var>& axes) {
  Indices indices;
  for (const Var& axis : axes) indices.push_back(axis);
  return indices;
}

// The results of `stage`, which is complete but for its outputs.
std::vector<Tensor> Finish(ffi::ObjectPtr<StageObj> stage, const ffi::Array<Expr>& shape,
                           const std::vector<std::string>& names) {
  for (size_t i = 0; i < stage->values.size(); ++i) {
    stage->outputs.push_back(
        MakeTensor(names[i], shape, stage->values[i].dtype(), std::nullopt, i));
  }
  ffi::ObjectRef ref = ObjectUnsafe::ObjectRefFromObjectPtr<ffi::ObjectRef>(stage);
  std::vector<Tensor> results;
  for (const Tensor& out : stage->outputs) {
    results.push_back(MakeTensor(out->name, out->shape, out->dtype, ref, out->index));
  }
  return results;
}

Reducer BinaryReducer(DLDataType dtype, Expr (*combine)(Expr, Expr), Expr identity) {
  Var lhs("x", dtype), rhs("y", dtype);
  return Reducer({lhs}, {rhs}, {combine(lhs, rhs)}, {std::move(identity)});
}

}  // namespace

Tensor::Tensor(ffi::String name, ffi::Array<Expr> shape, DLDataType dtype)
    : Tensor(MakeTensor(std::move(name), std::move(shape), dtype, std::nullopt, 0)) {}

Expr Tensor::operator()(ffi::Array<Expr> indices) const {
  return TensorLoad(*this, std::move(indices));
}

TensorLoad::TensorLoad(Tensor tensor, ffi::Array<Expr> indices) : Expr(ffi::UnsafeInit{}) {
  RELAXVM_CHECK(indices.size() == tensor->shape.size())
      << tensor->name << " has " << tensor->shape.size() << " dimensions, indexed by "
      << indices.size();
  ffi::Array<Expr> wide;
  for (const Expr& index : indices) {
    DLDataType dtype = index.dtype();
    RELAXVM_CHECK(IsInteger(dtype)) << tensor->name << " indexed by a " << DTypeName(dtype);
    wide.push_back(dtype == Int(64) ? index : ir::Cast(Int(64), index));
  }
  auto node = ffi::make_object<TensorLoadObj>();
  node->ty = ir::PrimType(tensor->dtype);
  node->tensor = std::move(tensor);
  node->indices = std::move(wide);
  data_ = std::move(node);
}

Reducer::Reducer(ffi::Array<Var> lhs, ffi::Array<Var> rhs, ffi::Array<Expr> result,
                 ffi::Array<Expr> identity)
    : ffi::ObjectRef(ffi::UnsafeInit{}) {
  RELAXVM_CHECK(lhs.size() == rhs.size() && lhs.size() == result.size() &&
                lhs.size() == identity.size())
      << "a reducer needs as many results and identities as operands on each side";
  auto node = ffi::make_object<ReducerObj>();
  node->lhs = std::move(lhs);
  node->rhs = std::move(rhs);
  node->result = std::move(result);
  node->identity = std::move(identity);
  data_ = std::move(node);
}

Reducer SumReducer(DLDataType dtype) { return BinaryReducer(dtype, ir::Add, ir::Const(dtype, 0)); }
Reducer ProdReducer(DLDataType dtype) { return BinaryReducer(dtype, ir::Mul, ir::Const(dtype, 1)); }
Reducer MaxReducer(DLDataType dtype) {
  return BinaryReducer(dtype, ir::Max, IsBool(dtype) ? ir::BoolImm(false) : ir::MinValue(dtype));
}
Reducer MinReducer(DLDataType dtype) {
  return BinaryReducer(dtype, ir::Min, IsBool(dtype) ? ir::BoolImm(true) : ir::MaxValue(dtype));
}
Reducer AndReducer() { return BinaryReducer(Bool(), ir::And, ir::BoolImm(true)); }
Reducer OrReducer() { return BinaryReducer(Bool(), ir::Or, ir::BoolImm(false)); }

Tensor Compute(ffi::Array<Expr> shape, const Formula& formula, std::string name) {
  auto stage = ffi::make_object<StageObj>();
  stage->kind = StageKind::kCompute;
  stage->name = name;
  stage->axes = FreshAxes(shape.size(), "i");
  stage->values.push_back(formula(AsIndices(stage->axes)));
  return Finish(stage, shape, {name})[0];
}

Tensor Reduce(ffi::Array<Expr> shape, ffi::Array<Expr> reduce_extents, const Reducer& reducer,
              const ReduceFormula& formula, std::string name) {
  auto multi = [&formula](const Indices& i, const Indices& r) {
    return std::vector<Expr>{formula(i, r)};
  };
  return MultiReduce(std::move(shape), std::move(reduce_extents), reducer, multi, {name})[0];
}

std::vector<Tensor> MultiReduce(ffi::Array<Expr> shape, ffi::Array<Expr> reduce_extents,
                                const Reducer& reducer, const MultiReduceFormula& formula,
                                std::vector<std::string> names) {
  auto stage = ffi::make_object<StageObj>();
  stage->kind = StageKind::kReduce;
  stage->name = names.at(0);
  stage->axes = FreshAxes(shape.size(), "i");
  stage->reduce_axes = FreshAxes(reduce_extents.size(), "r");
  stage->reduce_extents = reduce_extents;
  stage->reducer = reducer;
  stage->values = formula(AsIndices(stage->axes), AsIndices(stage->reduce_axes));
  RELAXVM_CHECK(stage->values.size() == reducer->result.size() &&
                names.size() == reducer->result.size())
      << names[0] << ": the formula gives " << stage->values.size() << " values";
  for (size_t i = 0; i < stage->values.size(); ++i) {
    RELAXVM_CHECK(stage->values[i].dtype() == reducer->lhs[i].dtype())
        << names[i] << ": a " << DTypeName(stage->values[i].dtype()) << " for a reducer of "
        << DTypeName(reducer->lhs[i].dtype());
  }
  return Finish(stage, shape, names);
}

std::vector<Tensor> Opaque(std::vector<OutputSpec> outputs, std::vector<Tensor> inputs,
                           const OpaqueBody& body, std::string name) {
  auto stage = ffi::make_object<StageObj>();
  stage->kind = StageKind::kOpaque;
  stage->name = std::move(name);
  stage->inputs = std::move(inputs);
  stage->body = body;
  for (size_t i = 0; i < outputs.size(); ++i) {
    stage->outputs.push_back(
        MakeTensor(outputs[i].name, outputs[i].shape, outputs[i].dtype, std::nullopt, i));
  }
  ffi::ObjectRef ref = ObjectUnsafe::ObjectRefFromObjectPtr<ffi::ObjectRef>(stage);
  std::vector<Tensor> results;
  for (const Tensor& out : stage->outputs) {
    results.push_back(MakeTensor(out->name, out->shape, out->dtype, ref, out->index));
  }
  return results;
}

Tensor Map(const Tensor& x, const std::function<Expr(Expr)>& f, std::string name) {
  return Compute(x->shape, [&](const Indices& i) { return f(x(i)); }, std::move(name));
}

}  // namespace relaxvm::tir
