// SPDX-License-Identifier: Apache-2.0
// Normalisations over axes of each sample: layer_norm, group_norm, instance_norm, rms_norm.
// Form: sum, mean, squares, normalisation; all in float32 for 16-bit floats.
#include <algorithm>

#include "ops/layout_rule.h"
#include "ops/reduce/axes.h"

namespace relaxvm::ops {
namespace {

struct LayerNorm {
  Ints axes = {-1};
  double epsilon = 1e-5;
  bool center = true;
  bool scale = true;
};
struct GroupNorm {
  int64_t num_groups = 1;
  int64_t channel_axis = 1;
  Ints axes;
  double epsilon = 1e-5;
  bool center = true;
  bool scale = true;
};
struct InstanceNorm {
  int64_t channel_axis = 1;
  Ints axes;
  double epsilon = 1e-5;
  bool center = true;
  bool scale = true;
};
struct RmsNorm {
  Ints axes = {-1};
  double epsilon = 1e-5;
};

// The weights at `first` and later: the shape of data's `axes`.
void CheckWeights(const TypeCtx& ctx, const TensorType& x, const Ints& axes, size_t first) {
  auto dims = x->GetShape();
  for (size_t i = first; i < ctx.size(); ++i) {
    TensorType w = ctx.Float(i);
    ctx.SameDtype(0, i);
    ctx.CheckRank(i, static_cast<int64_t>(axes.size()));
    auto shape = w->GetShape();
    if (!dims.has_value() || !shape.has_value()) continue;
    for (size_t k = 0; k < axes.size(); ++k) {
      if (!ctx.Prove(ir::NotEqual((*dims)[axes[k]], (*shape)[k]))) continue;
      ctx.Error(ErrorKind::kValueError, ctx.Describe(i), " must have the extents of the axes that ",
                "it applies to: ", DescribeExpr((*dims)[axes[k]]), " in axis ", axes[k], " of ",
                DescribeType(x));
    }
  }
}

Ints FromFront(const Ints& axes, int64_t ndim) {
  Ints result = axes;
  for (int64_t& a : result) a = a < 0 ? a + ndim : a;
  return result;
}

Indices Pick(const Indices& i, const Ints& axes) {
  Indices at;
  for (int64_t a : axes) at.push_back(i[a]);
  return at;
}

// mean and mean of squared distances over the axes that `axes` reduces, of formula(index).
struct Moments {
  Tensor mean, variance;
};
Moments MomentsOver(const ReducedAxes& axes, const std::function<Expr(const Indices&)>& formula,
                    DLDataType wide) {
  Expr count = ir::Cast(wide, axes.Count());
  auto divide = [&](const Expr& e) { return ir::Div(e, count); };
  Tensor sum = ReduceOver(axes, tir::SumReducer(wide), formula, "sum");
  Tensor mean = tir::Map(sum, divide, "mean");
  auto squared = [&](const Indices& i) {
    Expr d = formula(i) - mean(axes.Kept(i));
    return d * d;
  };
  Tensor squares = ReduceOver(axes, tir::SumReducer(wide), squared, "squares");
  return {mean, tir::Map(squares, divide, "variance")};
}

Expr Normalised(const Expr& x, const Expr& mean, const Expr& variance, double epsilon) {
  Expr deviation = ir::CallIntrin(Intrin::kSqrt, {variance + Number(variance.dtype(), epsilon)});
  return (x - mean) * ir::Div(Number(variance.dtype(), 1), deviation);  // one division a line
}

// y * gamma + beta, rounded once where the machine can; `at` is an index into both.
Expr Affine(const Expr& y, const ComputeArgs& in, const Indices& at, bool scale, bool center) {
  if (scale && center) return ir::CallIntrin(Intrin::kFma, {y, Widen(in[1](at)), Widen(in[2](at))});
  if (scale) return y * Widen(in[1](at));
  return center ? y + Widen(in[2](at)) : y;
}

Type InferLayerNorm(TypeCtx& ctx, const Ints& given) {
  TensorType x = ctx.Float(0);
  if (x->IsUnknownRank()) return ctx.Like(x);
  CheckWeights(ctx, x, ctx.Axes(given, x->ndim), 1);
  return ctx.Like(x);
}

Tensors ComputeLayerNorm(const ComputeArgs& in, const LayerNorm& a) {
  const Tensor& x = in[0];
  DLDataType wide = WideDtype(x.dtype());
  Ints axes = FromFront(a.axes, x.ndim());
  ReducedAxes reduced(x->shape, axes, false);
  Moments m = MomentsOver(reduced, [&](const Indices& i) { return Widen(x(i)); }, wide);
  auto formula = [&](const Indices& i) {
    Indices kept = reduced.Kept(i);
    Expr y = Normalised(Widen(x(i)), m.mean(kept), m.variance(kept), a.epsilon);
    return ir::Cast(x.dtype(), Affine(y, in, Pick(i, axes), a.scale, a.center));
  };
  return {tir::Compute(x->shape, formula, "layer_norm")};
}

Tensors ComputeRmsNorm(const ComputeArgs& in, const RmsNorm& a) {
  const Tensor& x = in[0];
  DLDataType wide = WideDtype(x.dtype());
  Ints axes = FromFront(a.axes, x.ndim());
  ReducedAxes reduced(x->shape, axes, false);
  Expr count = ir::Cast(wide, reduced.Count());
  auto squared = [&](const Indices& i) { return Widen(x(i)) * Widen(x(i)); };
  Tensor squares = ReduceOver(reduced, tir::SumReducer(wide), squared, "squares");
  auto formula = [&](const Indices& i) {
    Expr mean = ir::Div(squares(reduced.Kept(i)), count);
    Expr y = Widen(x(i)) * ir::CallIntrin(Intrin::kRsqrt, {mean + Number(wide, a.epsilon)});
    return ir::Cast(x.dtype(), y * Widen(in[1](Pick(i, axes))));
  };
  return {tir::Compute(x->shape, formula, "rms_norm")};
}

Type InferInstanceNorm(TypeCtx& ctx, const InstanceNorm& a) {
  TensorType x = ctx.Float(0);
  if (x->IsUnknownRank()) return ctx.Like(x);
  int64_t channel = ctx.Axis(a.channel_axis, x->ndim);
  ctx.Axes(a.axes, x->ndim);
  CheckWeights(ctx, x, {channel}, 1);
  return ctx.Like(x);
}

Tensors ComputeInstanceNorm(const ComputeArgs& in, const InstanceNorm& a) {
  const Tensor& x = in[0];
  DLDataType wide = WideDtype(x.dtype());
  int64_t channel = a.channel_axis < 0 ? a.channel_axis + x.ndim() : a.channel_axis;
  ReducedAxes reduced(x->shape, a.axes, false);
  Moments m = MomentsOver(reduced, [&](const Indices& i) { return Widen(x(i)); }, wide);
  auto formula = [&](const Indices& i) {
    Indices kept = reduced.Kept(i);
    Expr y = Normalised(Widen(x(i)), m.mean(kept), m.variance(kept), a.epsilon);
    return ir::Cast(x.dtype(), Affine(y, in, {i[channel]}, a.scale, a.center));
  };
  return {tir::Compute(x->shape, formula, "instance_norm")};
}

Type InferGroupNorm(TypeCtx& ctx, const GroupNorm& a) {
  TensorType x = ctx.Float(0);
  if (a.num_groups < 1) {
    ctx.Error(ErrorKind::kValueError, "num_groups must be at least 1, got ", a.num_groups);
  }
  if (x->IsUnknownRank()) return ctx.Like(x);
  int64_t channel = ctx.Axis(a.channel_axis, x->ndim);
  Ints axes = ctx.Axes(a.axes, x->ndim);
  if (std::find(axes.begin(), axes.end(), channel) != axes.end()) {
    ctx.Error(ErrorKind::kValueError, "axes must not hold the channel axis ", channel,
              "; the channels of a group are always normalised together");
  }
  CheckWeights(ctx, x, {channel}, 1);
  if (auto dims = x->GetShape()) {
    Expr rest = ir::FloorMod((*dims)[channel], Expr(a.num_groups));
    if (ctx.Prove(ir::NotEqual(rest, Expr(0)))) {
      ctx.Error(ErrorKind::kValueError, DescribeExpr((*dims)[channel]), " channels cannot be cut ",
                "into ", a.num_groups, " groups");
    }
  }
  return ctx.Like(x);
}

// The channel axis is seen as two: groups, and the channels of a group.
Tensors ComputeGroupNorm(const ComputeArgs& in, const GroupNorm& a) {
  const Tensor& x = in[0];
  DLDataType wide = WideDtype(x.dtype());
  int64_t channel = a.channel_axis < 0 ? a.channel_axis + x.ndim() : a.channel_axis;
  Expr per_group = ir::FloorDiv(x->shape[channel], Expr(a.num_groups));
  Dims split;
  for (int64_t d = 0; d < x.ndim(); ++d) {
    if (d == channel) split.push_back(Expr(a.num_groups));
    split.push_back(d == channel ? per_group : x->shape[d]);
  }
  Ints axes{channel + 1};
  for (int64_t axis : FromFront(a.axes, x.ndim())) axes.push_back(axis < channel ? axis : axis + 1);
  ReducedAxes reduced(split, axes, false);
  auto joined = [&](const Indices& i) {
    Indices at;
    for (int64_t d = 0; d < x.ndim(); ++d) {
      if (d < channel) at.push_back(i[d]);
      if (d == channel) at.push_back(i[d] * per_group + i[d + 1]);
      if (d > channel) at.push_back(i[d + 1]);
    }
    return Widen(x(at));
  };
  Moments m = MomentsOver(reduced, joined, wide);
  auto formula = [&](const Indices& i) {
    Indices apart;
    for (int64_t d = 0; d < x.ndim(); ++d) {
      if (d == channel) apart.push_back(ir::FloorDiv(i[d], per_group));
      apart.push_back(d == channel ? ir::FloorMod(i[d], per_group) : i[d]);
    }
    Indices kept = reduced.Kept(apart);
    Expr y = Normalised(Widen(x(i)), m.mean(kept), m.variance(kept), a.epsilon);
    return ir::Cast(x.dtype(), Affine(y, in, {i[channel]}, a.scale, a.center));
  };
  return {tir::Compute(x->shape, formula, "group_norm")};
}

const ArgDoc kData = {"data", "The input."};
const ArgDoc kGamma = {"gamma", "Scale."};
const ArgDoc kBeta = {"beta", "Shift."};

}  // namespace

OpDef nn_layer_norm() {
  return Define<LayerNorm>({
      .name = "nn.layer_norm",
      .doc = "Mean 0 and variance 1 over axes, then scale and shift.",
      .args = {kData, kGamma, kBeta},
      .attrs = {{"axes", &LayerNorm::axes, "The axes; gamma and beta have their extents.", true},
                {"epsilon", &LayerNorm::epsilon, "Added to the variance."},
                {"center", &LayerNorm::center, "Add beta."},
                {"scale", &LayerNorm::scale, "Multiply by gamma."}},
      .reference = "out = layer_norm(data, gamma, beta, axes, epsilon, center, scale)",
      .samples = {{{"data: f32[2, 3, 8]", "gamma: f32[8]", "beta: f32[8]", "axes=[-1]"}},
                  {{"data: f32[2, 3, 4]", "gamma: f32[3, 4]", "beta: f32[3, 4]", "axes=[1, 2]",
                    "epsilon=0.01", "center=False"}}},
      .type = [](TypeCtx& ctx, const LayerNorm& a) { return InferLayerNorm(ctx, a.axes); },
      .compute = ComputeLayerNorm,
      .layout = FirstLayout({"axes"}),
  });
}

OpDef nn_rms_norm() {
  return Define<RmsNorm>({
      .name = "nn.rms_norm",
      .doc = "Divided by the root of the mean square over axes, then scaled.",
      .args = {kData, {"weight", "Scale."}},
      .attrs = {{"axes", &RmsNorm::axes, "The axes; weight has their extents."},
                {"epsilon", &RmsNorm::epsilon, "Added to the mean square."}},
      .reference = "out = rms_norm(data, weight, axes, epsilon)",
      .samples = {{{"data: f32[2, 3, 8]", "weight: f32[8]"}}},
      .type = [](TypeCtx& ctx, const RmsNorm& a) { return InferLayerNorm(ctx, a.axes); },
      .compute = ComputeRmsNorm,
      .layout = FirstLayout({"axes"}),
  });
}

OpDef nn_group_norm() {
  return Define<GroupNorm>({
      .name = "nn.group_norm",
      .doc = "Mean 0 and variance 1 over the channels of a group and axes, then scale and shift.",
      .args = {kData, kGamma, kBeta},
      .attrs = {{"num_groups", &GroupNorm::num_groups, "How many groups.", true},
                {"channel_axis", &GroupNorm::channel_axis, "The axis of the channels.", true},
                {"axes", &GroupNorm::axes, "The other axes to normalise over.", true},
                {"epsilon", &GroupNorm::epsilon, "Added to the variance."},
                {"center", &GroupNorm::center, "Add beta."},
                {"scale", &GroupNorm::scale, "Multiply by gamma."}},
      .reference = "out = group_norm(data, gamma, beta, num_groups, channel_axis, axes, epsilon, "
                   "center, scale)",
      .samples = {{{"data: f32[2, =6, 4, 5]", "gamma: f32[=6]", "beta: f32[=6]", "num_groups=3",
                    "channel_axis=1", "axes=[2, 3]"}},
                  {{"data: f32[2, 5, 4]", "gamma: f32[4]", "beta: f32[4]", "num_groups=2",
                    "channel_axis=-1", "axes=[1]", "scale=False"}}},
      .type = InferGroupNorm,
      .compute = ComputeGroupNorm,
      .layout = FirstLayout({"channel_axis", "axes"}),
  });
}

OpDef nn_instance_norm() {
  return Define<InstanceNorm>({
      .name = "nn.instance_norm",
      .doc = "Mean 0 and variance 1 over axes of each channel, then scale and shift.",
      .args = {kData, kGamma, kBeta},
      .attrs = {{"channel_axis", &InstanceNorm::channel_axis, "The axis of the channels.", true},
                {"axes", &InstanceNorm::axes, "The axes to normalise over.", true},
                {"epsilon", &InstanceNorm::epsilon, "Added to the variance."},
                {"center", &InstanceNorm::center, "Add beta."},
                {"scale", &InstanceNorm::scale, "Multiply by gamma."}},
      .reference = "out = instance_norm(data, gamma, beta, channel_axis, axes, epsilon, center, "
                   "scale)",
      .samples = {{{"data: f32[2, 3, 4, 5]", "gamma: f32[3]", "beta: f32[3]", "channel_axis=1",
                    "axes=[2, 3]"}}},
      .type = InferInstanceNorm,
      .compute = ComputeInstanceNorm,
      .layout = FirstLayout({"channel_axis", "axes"}),
  });
}

}  // namespace relaxvm::ops
