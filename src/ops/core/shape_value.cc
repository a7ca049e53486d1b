// SPDX-License-Identifier: Apache-2.0
// Between tensors and shapes.
#include "ops/compute.h"

namespace relaxvm::ops {
namespace {

Type InferShapeOf(TypeCtx& ctx, const NoAttrs&) {
  TensorType x = ctx.Tensor(0);
  if (auto dims = x->GetShape()) return ir::ShapeType(*dims);
  return ir::ShapeType(x->ndim);
}

Type InferShapeToTensor(TypeCtx& ctx, const NoAttrs&) {
  if (ctx.type(0).as<ir::ShapeTypeObj>() == nullptr) {
    ctx.Error(ErrorKind::kTypeError, "expr must be a shape, got ", DescribeType(ctx.type(0)));
  }
  int64_t ndim = ctx.Rank(0);
  if (ndim < 0) return TensorType(Int(64), 1);
  return TensorType(Dims{Expr(ndim)}, Int(64));
}

bool IsSignedInt(DLDataType t) { return relaxvm::IsInt(t); }

Type InferTensorToShape(TypeCtx& ctx, const NoAttrs&) {
  TensorType x = ctx.TensorOf(0, IsSignedInt, "a tensor of signed integers");
  ctx.CheckRank(0, 1);
  if (auto dims = x->GetShape()) {
    if (auto length = ir::AsInt((*dims)[0])) return ir::ShapeType(*length);
  }
  return ir::ShapeType(int64_t{-1});
}

Type InferSize(TypeCtx& ctx, const NoAttrs&) {
  ctx.Tensor(0);
  return ctx.Result(Dims(), Int(64));
}

Tensors ComputeSize(const ComputeArgs& in, const NoAttrs&) {
  Expr size = ProductOf(in[0]->shape);
  return {tir::Compute({}, [&](const Indices&) { return size; }, "size")};
}

}  // namespace

OpDef shape_of() {
  return Define<NoAttrs>({
      .name = "shape_of",
      .doc = "The shape of a tensor.",
      .args = {{"expr", "The tensor."}},
      .type = InferShapeOf,
  });
}

OpDef shape_to_tensor() {
  return Define<NoAttrs>({
      .name = "shape_to_tensor",
      .doc = "The values of a shape as a tensor of int64.",
      .args = {{"expr", "The shape.", ArgKind::kShape}},
      .type = InferShapeToTensor,
      .packed = "relax.run.shape_to_tensor",
  });
}

OpDef tensor_to_shape() {
  return Define<NoAttrs>({
      .name = "tensor_to_shape",
      .doc = "The values of a 1-d tensor of integers as a shape.",
      .args = {{"expr", "The tensor."}},
      .type = InferTensorToShape,
  });
}

OpDef size() {
  return Define<NoAttrs>({
      .name = "size",
      .doc = "The number of elements, as a tensor of int64 without dimensions.",
      .args = {{"expr", "The tensor."}},
      .reference = "out = np.array(expr.size, 'int64')",
      .samples = {{{"expr: f32[4, 8]"}}, {{"expr: i8[]"}}},
      .type = InferSize,
      .compute = ComputeSize,
  });
}

}  // namespace relaxvm::ops
