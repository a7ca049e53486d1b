// SPDX-License-Identifier: Apache-2.0
// softmax and log_softmax along one axis.
// Form: maximum, exponentials, their sum, normalisation; the last three in float32 for 16-bit
// floats.
#include "ops/layout_rule.h"
#include "ops/reduce/axes.h"

namespace relaxvm::ops {
namespace {

struct Softmax {
  int64_t axis = -1;
};

Type InferSoftmax(TypeCtx& ctx, const Softmax& a) {
  TensorType x = ctx.Float(0);
  if (!x->IsUnknownRank()) ctx.Axis(a.axis, x->ndim);
  return ctx.Like(x);
}

Tensors ComputeSoftmax(const ComputeArgs& in, const Softmax& a) {
  const Tensor& x = in[0];
  DLDataType dtype = in.OutDtype();
  DLDataType wide = WideDtype(dtype);
  ReducedAxes axes(x->shape, Ints{a.axis}, false);
  Tensor greatest = ReduceOver(
      axes, tir::MaxReducer(dtype), [&](const Indices& i) { return x(i); }, "softmax_max");
  auto exponential = [&](const Indices& i) {
    return ir::CallIntrin(Intrin::kExp, {Widen(x(i)) - Widen(greatest(axes.Kept(i)))});
  };
  Tensor e = tir::Compute(x->shape, exponential, "softmax_exp");
  Tensor sum = ReduceOver(
      axes, tir::SumReducer(wide), [&](const Indices& i) { return e(i); }, "softmax_sum");
  // One division a line; each element is multiplied.
  auto normalised = [&](const Indices& i) {
    return ir::Cast(dtype, e(i) * ir::Div(Number(wide, 1), sum(axes.Kept(i))));
  };
  return {tir::Compute(x->shape, normalised, "softmax")};
}

Tensors ComputeLogSoftmax(const ComputeArgs& in, const Softmax& a) {
  const Tensor& x = in[0];
  DLDataType dtype = in.OutDtype();
  DLDataType wide = WideDtype(dtype);
  ReducedAxes axes(x->shape, Ints{a.axis}, false);
  Tensor greatest = ReduceOver(
      axes, tir::MaxReducer(dtype), [&](const Indices& i) { return x(i); }, "softmax_max");
  auto moved = [&](const Indices& i) { return Widen(x(i)) - Widen(greatest(axes.Kept(i))); };
  auto exponential = [&](const Indices& i) { return ir::CallIntrin(Intrin::kExp, {moved(i)}); };
  Tensor sum = ReduceOver(axes, tir::SumReducer(wide), exponential, "softmax_sum");
  auto normalised = [&](const Indices& i) {
    return ir::Cast(dtype, moved(i) - ir::CallIntrin(Intrin::kLog, {sum(axes.Kept(i))}));
  };
  return {tir::Compute(x->shape, normalised, "log_softmax")};
}

}  // namespace

OpDef nn_softmax() {
  return Define<Softmax>({
      .name = "nn.softmax",
      .doc = "Scales `data` along `axis` to positive values that add up to 1.",
      .args = {{"data", "Floating-point tensor."}},
      .attrs = {{"axis", &Softmax::axis, "Axis to normalise; negative counts from the end."}},
      .reference = "e = np.exp(data - data.max(axis, keepdims=True)); out = e / e.sum(axis, "
                   "keepdims=True)",
      .samples = {{{"data: f32[4, 8]"}}, {{"data: f32[2, 3, 5]", "axis=1"}}},
      .type = InferSoftmax,
      .compute = ComputeSoftmax,
      .layout = AxesLayout({"axis"}),
  });
}

OpDef nn_log_softmax() {
  return Define<Softmax>({
      .name = "nn.log_softmax",
      .doc = "The logarithm of softmax.",
      .args = {{"data", "Floating-point tensor."}},
      .attrs = {{"axis", &Softmax::axis, "Axis to normalise; negative counts from the end."}},
      .reference = "m = data - data.max(axis, keepdims=True); out = m - np.log(np.exp(m).sum(axis, "
                   "keepdims=True))",
      .samples = {{{"data: f32[4, 8]"}}, {{"data: f32[2, 3, 5]", "axis=0"}}},
      .type = InferSoftmax,
      .compute = ComputeLogSoftmax,
      .layout = AxesLayout({"axis"}),
  });
}

}  // namespace relaxvm::ops
