// SPDX-License-Identifier: Apache-2.0
// where, ewise_fma, astype: elementwise operators of their own shape.
#include <algorithm>

#include "ops/compute.h"
#include "ops/layout_rule.h"

namespace relaxvm::ops {
namespace {

// The broadcast of several tensors' shapes, or the rank when it is known.
struct Broadcasted {
  std::optional<Dims> dims;
  int64_t ndim = 0;
};

Broadcasted BroadcastAll(const TypeCtx& ctx, const std::vector<TensorType>& tensors) {
  Broadcasted result{Dims(), 0};
  for (const TensorType& t : tensors) {
    auto dims = t->GetShape();
    if (result.dims && dims.has_value()) {
      result.dims = ctx.Broadcast(*result.dims, *dims);
    } else {
      result.dims.reset();
    }
    bool known = result.ndim >= 0 && !t->IsUnknownRank();
    result.ndim = known ? std::max(result.ndim, t->ndim) : -1;
  }
  return result;
}

Type InferWhere(TypeCtx& ctx, const NoAttrs&) {
  TensorType condition = ctx.TensorOf(0, IsBool, "a bool tensor");
  TensorType a = ctx.Tensor(1);
  TensorType b = ctx.Tensor(2);
  ctx.SameDtype(1, 2);
  Broadcasted shape = BroadcastAll(ctx, {condition, a, b});
  DLDataType dtype = IsVoid(b->dtype) ? b->dtype : a->dtype;
  return ctx.Result(shape.dims, shape.ndim, dtype);
}

Tensors ComputeWhere(const ComputeArgs& in, const NoAttrs&) {
  Dims out = in.OutShape();
  auto formula = [&](const Indices& i) {
    return ir::Select(BroadcastAt(in[0], out, i), BroadcastAt(in[1], out, i),
                      BroadcastAt(in[2], out, i));
  };
  return {tir::Compute(out, formula, "where")};
}

bool IsNumber(DLDataType t) { return IsFloat(t) || IsInteger(t); }

Type InferFma(TypeCtx& ctx, const NoAttrs&) {
  std::vector<TensorType> x;
  for (size_t i = 0; i < 3; ++i) x.push_back(ctx.TensorOf(i, IsNumber, "a tensor of numbers"));
  ctx.SameDtype(0, 1);
  ctx.SameDtype(0, 2);
  ctx.SameDtype(1, 2);
  int64_t ndim = -1;
  for (size_t i = 0; i < 3; ++i) {
    if (ndim >= 0) ctx.CheckRank(i, ndim);
    ndim = std::max<int64_t>(ndim, x[i]->ndim);
  }
  bool known = !IsVoid(x[0]->dtype) && !IsVoid(x[1]->dtype) && !IsVoid(x[2]->dtype);
  const DLDataType dtype = known ? x[0]->dtype : Void();
  auto is_shape_of = [&](const TensorType& t) {
    return t->shape.has_value() && x[0]->shape.has_value() &&
           t->shape.value().same_as(x[0]->shape.value());
  };
  if (is_shape_of(x[1]) && is_shape_of(x[2])) return ctx.Like(x[0], dtype);
  Broadcasted shape = BroadcastAll(ctx, x);
  return ctx.Result(shape.dims, ndim, dtype);
}

Tensors ComputeFma(const ComputeArgs& in, const NoAttrs&) {
  Dims out = in.OutShape();
  auto formula = [&](const Indices& i) {
    Expr a = Widen(BroadcastAt(in[0], out, i));
    Expr b = Widen(BroadcastAt(in[1], out, i));
    Expr c = Widen(BroadcastAt(in[2], out, i));
    return ir::Cast(in.OutDtype(), a * b + c);
  };
  return {tir::Compute(out, formula, "ewise_fma")};
}

struct Astype {
  DLDataType dtype = Float(32);
};

Type InferAstype(TypeCtx& ctx, const Astype& a) { return ctx.Like(ctx.Tensor(0), a.dtype); }

Tensors ComputeAstype(const ComputeArgs& in, const Astype& a) {
  return {tir::Map(in[0], [&](const Expr& x) { return ConvertTo(a.dtype, x); }, "astype")};
}

}  // namespace

OpDef where() {
  return Define<NoAttrs>({
      .name = "where",
      .doc = "x1 where the condition is true, else x2; all three broadcast.",
      .args = {{"condition", "A bool tensor."},
               {"x1", "Values where it is true."},
               {"x2", "Values where it is false."}},
      .reference = "out = np.where(condition, x1, x2)",
      .samples = {{{"condition: bool[4, 8]", "x1: f32[4, 8]", "x2: f32[4, 8]"}},
                  {{"condition: bool[4, 1]", "x1: i64[8]", "x2: i64[]"}}},
      .type = InferWhere,
      .compute = ComputeWhere,
      .layout = ElementwiseLayout(),
  });
}

OpDef ewise_fma() {
  return Define<NoAttrs>({
      .name = "ewise_fma",
      .doc = "x1 * x2 + x3.",
      .args = {{"x1", "First factor."}, {"x2", "Second factor."}, {"x3", "What is added."}},
      .reference = "out = x1 * x2 + x3",
      .samples = {{{"x1: f32[4, 8]", "x2: f32[4, 8]", "x3: f32[4, 8]"}}},
      .type = InferFma,
      .compute = ComputeFma,
      .layout = ElementwiseLayout(),
  });
}

OpDef astype() {
  return Define<Astype>({
      .name = "astype",
      .doc = "The elements converted to another type: to integers by cutting off, to bool by != 0.",
      .args = {{"x", "The tensor."}},
      .attrs = {{"dtype", &Astype::dtype, "The element type.", true}},
      .reference = "out = x.astype(dtype)",
      .samples = {{{"x: f32[4, 8]", "dtype='int32'"}},
                  {{"x: i64[5]", "dtype='float16'"}},
                  {{"x: bool[3]", "dtype='float32'"}},
                  {{"x: f16[3]", "dtype='bool'"}}},
      .type = InferAstype,
      .compute = ComputeAstype,
      .layout = ElementwiseLayout(),
  });
}

}  // namespace relaxvm::ops
