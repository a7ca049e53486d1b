// SPDX-License-Identifier: Apache-2.0
// batch_norm: (data - mean) / sqrt(var + epsilon) * gamma + beta for each channel, together with
// the moving mean and variance.  In training the mean and variance are those of data.
#include "ops/layout_rule.h"
#include "ops/reduce/axes.h"

namespace relaxvm::ops {
namespace {

struct BatchNorm {
  int64_t axis = 1;
  double epsilon = 1e-5;
  bool center = true;
  bool scale = true;
  double momentum = 0.1;
  bool training = true;
};

Type InferBatchNorm(TypeCtx& ctx, const BatchNorm& a) {
  TensorType x = ctx.Float(0);
  auto dims = x->GetShape();
  int64_t axis = x->IsUnknownRank() ? 0 : ctx.Axis(a.axis, x->ndim);
  for (size_t i = 1; i < 5; ++i) {
    TensorType t = ctx.Float(i);
    ctx.SameDtype(0, i);
    ctx.CheckRank(i, 1);
    auto channels = t->GetShape();
    if (dims.has_value() && channels.has_value() &&
        ctx.Prove(ir::NotEqual((*dims)[axis], (*channels)[0]))) {
      ctx.Error(ErrorKind::kValueError, ctx.ArgName(i), " needs one value for each of the ",
                DescribeExpr((*dims)[axis]), " elements of axis ", axis, " of data, got ",
                DescribeExpr((*channels)[0]));
    }
  }
  return ir::TupleType({ctx.Like(x), ctx.Like(ctx.Tensor(3)), ctx.Like(ctx.Tensor(4))});
}

Tensors ComputeBatchNorm(const ComputeArgs& in, const BatchNorm& a) {
  const Tensor& x = in[0];
  DLDataType dtype = x.dtype();
  DLDataType wide = WideDtype(dtype);
  int64_t axis = a.axis < 0 ? a.axis + x.ndim() : a.axis;
  Tensor mean = in[3];
  Tensor variance = in[4];
  if (a.training) {
    Ints others;
    for (int64_t d = 0; d < x.ndim(); ++d) {
      if (d != axis) others.push_back(d);
    }
    ReducedAxes axes(x->shape, others, false);
    Expr count = ir::Cast(wide, axes.Count());
    auto divide = [&](const Expr& e) { return ir::Div(e, count); };
    Tensor sum = ReduceOver(
        axes, tir::SumReducer(wide), [&](const Indices& i) { return Widen(x(i)); }, "sum");
    mean = tir::Map(sum, divide, "batch_mean");
    auto squared = [&](const Indices& i) {
      Expr d = Widen(x(i)) - mean(axes.Kept(i));
      return d * d;
    };
    variance = tir::Map(ReduceOver(axes, tir::SumReducer(wide), squared, "squares"), divide,
                        "batch_variance");
  }
  auto formula = [&](const Indices& i) {
    Indices channel{i[axis]};
    Expr variance_at = Widen(variance(channel)) + Number(wide, a.epsilon);
    Expr y =
        ir::Div(Widen(x(i)) - Widen(mean(channel)), ir::CallIntrin(Intrin::kSqrt, {variance_at}));
    if (a.scale) y = y * Widen(in[1](channel));
    if (a.center) y = y + Widen(in[2](channel));
    return ir::Cast(dtype, y);
  };
  Tensor out = tir::Compute(x->shape, formula, "batch_norm");
  auto moved = [&](const Tensor& old, const Tensor& batch, const char* name) {
    auto mix = [&](const Indices& i) {
      if (!a.training) return old(i);
      Expr value =
          Widen(old(i)) * Number(wide, 1 - a.momentum) + Widen(batch(i)) * Number(wide, a.momentum);
      return ir::Cast(dtype, value);
    };
    return tir::Compute(old->shape, mix, name);
  };
  return {out, moved(in[3], mean, "moving_mean"), moved(in[4], variance, "moving_var")};
}

// In inference: data * s + t with s = gamma / sqrt(var + epsilon), t = beta - mean * s.  s and t
// are constants when the weights are, and fold into a convolution.
Expr DecomposeBatchNorm(ir::BlockBuilder& b, const Call& call, const BatchNorm& a) {
  if (a.training) return call;
  const auto* x = call->args[0]->ty.as<ir::TensorTypeObj>();
  if (x == nullptr || x->IsUnknownRank() || x->IsUnknownDtype()) return call;
  int64_t axis = a.axis < 0 ? a.axis + x->ndim : a.axis;
  Ints others;
  for (int64_t d = 0; d < x->ndim; ++d) {
    if (d != axis) others.push_back(d);
  }
  auto emit = [&](const char* op, ffi::Array<Expr> args) -> Expr {
    return b.Emit(MakeCall(op, std::move(args), {}, {}, call->span));
  };
  auto spread = [&](const Expr& e) -> Expr {
    if (others.empty()) return e;
    return b.Emit(
        MakeCall("expand_dims", {e}, {{"axis", AttrCodec<Ints>::Encode(others)}}, {}, call->span));
  };
  ir::FloatImm epsilon(x->dtype, a.epsilon);
  Expr scale = emit("rsqrt", {emit("add", {call->args[4], epsilon})});
  if (a.scale) scale = emit("multiply", {call->args[1], scale});
  Expr shift = emit("multiply", {call->args[3], scale});
  shift = a.center ? emit("subtract", {call->args[2], shift}) : emit("negative", {shift});
  Expr scaled = emit("multiply", {call->args[0], spread(scale)});
  Expr out = emit("add", {scaled, spread(shift)});
  return ir::Tuple({out, call->args[3], call->args[4]});
}

}  // namespace

OpDef nn_batch_norm() {
  return Define<BatchNorm>({
      .name = "nn.batch_norm",
      .doc = "Normalises each channel; gives the result and the moving mean and variance.",
      .args = {{"data", "The input."},
               {"gamma", "Scale of each channel."},
               {"beta", "Shift of each channel."},
               {"moving_mean", "Mean of each channel."},
               {"moving_var", "Variance of each channel."}},
      .attrs = {{"axis", &BatchNorm::axis, "The axis of the channels."},
                {"epsilon", &BatchNorm::epsilon, "Added to the variance."},
                {"center", &BatchNorm::center, "Add beta."},
                {"scale", &BatchNorm::scale, "Multiply by gamma."},
                {"momentum", &BatchNorm::momentum, "Weight of new data in the moving values."},
                {"training", &BatchNorm::training, "Use the mean and variance of data."}},
      .reference = "out = batch_norm(data, gamma, beta, moving_mean, moving_var, axis, epsilon, "
                   "center, scale, momentum, training)",
      .samples = {{{"data: f32[2, 3, 4, 5]", "gamma: f32[3]", "beta: f32[3]", "moving_mean: f32[3]",
                    "moving_var: f32[3] in 0.5..2", "training=False"}},
                  {{"data: f32[4, 3]", "gamma: f32[3]", "beta: f32[3]", "moving_mean: f32[3]",
                    "moving_var: f32[3] in 0.5..2", "axis=-1", "epsilon=0.001", "scale=False"}}},
      .type = InferBatchNorm,
      .compute = ComputeBatchNorm,
      .decompose = DecomposeBatchNorm,
      .layout = LayoutOf(LayoutRule::Kind::kFirst, "axis"),
  });
}

}  // namespace relaxvm::ops
