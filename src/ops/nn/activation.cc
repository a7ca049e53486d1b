// SPDX-License-Identifier: Apache-2.0
// Activations: functions of one element, computed in float32 for 16-bit floats.
#include "ops/compute.h"
#include "ops/layout_rule.h"

namespace relaxvm::ops {
namespace {

using ir::CallIntrin;

Expr Constant(const Expr& x, double value) { return Number(x.dtype(), value); }

// 0 below 0; NaN stays.
Expr Relu(const Expr& x) { return ir::Max(x, Constant(x, 0)); }

Expr Gelu(const Expr& x) { return CallIntrin(Intrin::kGelu, {x}); }

// x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))
Expr GeluTanh(const Expr& x) {
  Expr inner =
      x * Constant(x, 0.79788456080286535588) * (Constant(x, 1) + x * x * Constant(x, 0.044715));
  return x * Constant(x, 0.5) * (Constant(x, 1) + CallIntrin(Intrin::kTanh, {inner}));
}

Expr Silu(const Expr& x) { return x * CallIntrin(Intrin::kSigmoid, {x}); }

Expr Selu(const Expr& x) {
  constexpr double kAlpha = 1.6732632423543772848;
  constexpr double kScale = 1.0507009873554804934;
  // The argument is kept at or below 0, so that the branch not taken does not overflow.
  Expr low = CallIntrin(Intrin::kExpm1, {ir::Min(x, Constant(x, 0))});
  return ir::Select(ir::Greater(x, Constant(x, 0)), x * Constant(x, kScale),
                    low * Constant(x, kScale * kAlpha));
}

struct Row {
  const char* name;
  const char* doc;
  Expr (*formula)(const Expr& x);
  bool integers;  // takes integers as well
  const char* reference;
};

const Row kRows[] = {
    {"nn.gelu", "data times the probability that a normal variable is below it.", Gelu, false,
     "out = data * 0.5 * (1 + scipy.special.erf(data / np.sqrt(2)))"},
    {"nn.gelu_tanh", "gelu, approximated with tanh.", GeluTanh, false,
     "out = 0.5 * data * (1 + np.tanh(np.sqrt(2 / np.pi) * (data + 0.044715 * data**3)))"},
    {"nn.relu", "data, or 0 where it is negative.", Relu, true, "out = np.maximum(data, 0)"},
    {"nn.selu", "Scaled exponential linear unit.", Selu, false,
     "out = 1.0507009873554805 * np.where(data > 0, data, 1.6732632423543772 * "
     "np.expm1(np.minimum(data, 0)))"},
    {"nn.silu", "data * sigmoid(data).", Silu, false, "out = data * scipy.special.expit(data)"},
};

bool IsNumber(DLDataType t) { return IsFloat(t) || IsInteger(t); }

Tensor MapWide(const Tensor& x, const std::function<Expr(const Expr&)>& formula,
               const std::string& name) {
  DLDataType dtype = x.dtype();
  return tir::Map(x, [&](const Expr& e) { return ir::Cast(dtype, formula(Widen(e))); }, name);
}

struct LeakyRelu {
  double alpha = 0.01;
};
struct Softplus {
  double beta = 1.0;
  double threshold = 20.0;
};
struct PRelu {
  int64_t axis = 1;
};

Type InferFloat(TypeCtx& ctx) { return ctx.Like(ctx.Float(0)); }

// log(1 + exp(beta x)) / beta; x itself where beta x is above the threshold.
Expr SoftplusOf(const Expr& x, const Softplus& a) {
  Expr scaled = x * Constant(x, a.beta);
  Expr bounded = ir::Min(scaled, Constant(x, a.threshold));
  Expr soft = CallIntrin(Intrin::kLog1p, {CallIntrin(Intrin::kExp, {bounded})});
  return ir::Select(ir::Greater(scaled, Constant(x, a.threshold)), x,
                    soft * Constant(x, 1.0 / a.beta));
}

Type InferPRelu(TypeCtx& ctx, const PRelu& a) {
  TensorType x = ctx.Float(0);
  TensorType alpha = ctx.Float(1);
  ctx.SameDtype(0, 1);
  ctx.CheckRank(1, 1);
  if (!x->IsUnknownRank()) {
    int64_t axis = ctx.Axis(a.axis, x->ndim);
    auto dims = x->GetShape();
    auto slopes = alpha->GetShape();
    if (dims.has_value() && slopes.has_value() && !ir::IsIntValue((*slopes)[0], 1) &&
        ctx.Prove(ir::NotEqual((*dims)[axis], (*slopes)[0]))) {
      ctx.Error(ErrorKind::kValueError, "alpha needs one slope for each of the ",
                DescribeExpr((*dims)[axis]), " elements of axis ", axis, ", or a single one; got ",
                DescribeExpr((*slopes)[0]));
    }
  }
  return ctx.Like(x);
}

Tensors ComputePRelu(const ComputeArgs& in, const PRelu& a) {
  const Tensor& x = in[0];
  int64_t axis = a.axis < 0 ? a.axis + x.ndim() : a.axis;
  auto formula = [&](const Indices& i) {
    Expr at = ir::IsIntValue(in[1]->shape[0], 1) ? Expr(0) : i[axis];
    Expr value = x(i);
    return ir::Select(ir::Greater(value, Constant(value, 0)), value, value * in[1]({at}));
  };
  return {tir::Compute(x->shape, formula, "prelu")};
}

}  // namespace

std::vector<OpDef> activation_ops() {
  std::vector<OpDef> defs;
  for (const Row& row : kRows) {
    std::string name = std::string(row.name).substr(3);
    defs.push_back(Define<NoAttrs>({
        .name = row.name,
        .doc = row.doc,
        .args = {{"data", "The tensor."}},
        .reference = row.reference,
        .samples = {{{"data: f32[4, 8]"}}},
        .type = [integers = row.integers](TypeCtx& ctx, const NoAttrs&) -> Type {
          return integers ? ctx.Like(ctx.TensorOf(0, IsNumber, "a tensor of numbers"))
                          : InferFloat(ctx);
        },
        .compute = [&row, name](const ComputeArgs& in, const NoAttrs&) -> Tensors {
          if (row.integers) {
            return {tir::Map(in[0], [&](const Expr& e) { return row.formula(e); }, name)};
          }
          return {MapWide(in[0], row.formula, name)};
        },
        .layout = ElementwiseLayout(),
    }));
  }
  return defs;
}

OpDef nn_leakyrelu() {
  return Define<LeakyRelu>({
      .name = "nn.leakyrelu",
      .doc = "x, or alpha * x where it is negative.",
      .args = {{"data", "The tensor."}},
      .attrs = {{"alpha", &LeakyRelu::alpha, "Slope below 0."}},
      .reference = "out = np.where(data > 0, data, data * alpha)",
      .samples = {{{"data: f32[4, 8]"}}, {{"data: f32[3]", "alpha=0.3"}}},
      .type = [](TypeCtx& ctx, const LeakyRelu&) { return InferFloat(ctx); },
      .compute = [](const ComputeArgs& in, const LeakyRelu& a) -> Tensors {
        auto formula = [&](const Expr& x) {
          return ir::Select(ir::Greater(x, Constant(x, 0)), x, x * Constant(x, a.alpha));
        };
        return {MapWide(in[0], formula, "leakyrelu")};
      },
      .layout = ElementwiseLayout(),
  });
}

OpDef nn_softplus() {
  return Define<Softplus>({
      .name = "nn.softplus",
      .doc = "log(1 + exp(beta * x)) / beta.",
      .args = {{"data", "The tensor."}},
      .attrs = {{"beta", &Softplus::beta, "Sharpness."},
                {"threshold", &Softplus::threshold, "Where beta * x is above it: x."}},
      .reference = "out = np.where(data * beta > threshold, data, np.log1p(np.exp(np.minimum(data "
                   "* beta, threshold))) / beta)",
      .samples = {{{"data: f32[4, 8]"}}, {{"data: f32[3]", "beta=2.0", "threshold=1.0"}}},
      .type =
          [](TypeCtx& ctx, const Softplus& a) {
            if (a.beta == 0) ctx.Error(ErrorKind::kValueError, "beta must not be 0");
            return InferFloat(ctx);
          },
      .compute = [](const ComputeArgs& in, const Softplus& a) -> Tensors {
        return {MapWide(in[0], [&](const Expr& x) { return SoftplusOf(x, a); }, "softplus")};
      },
  });
}

OpDef nn_prelu() {
  return Define<PRelu>({
      .name = "nn.prelu",
      .doc = "x, or alpha * x where it is not positive, with one alpha for each channel.",
      .args = {{"data", "The tensor."}, {"alpha", "The slopes."}},
      .attrs = {{"axis", &PRelu::axis, "The axis of the channels."}},
      .reference = "out = np.where(data > 0, data, data * alpha.reshape([-1 if d == axis % "
                   "data.ndim else 1 for d in range(data.ndim)]))",
      .samples = {{{"data: f32[2, 3, 4]", "alpha: f32[3]"}},
                  {{"data: f32[2, 5]", "alpha: f32[1]", "axis=-1"}}},
      .type = InferPRelu,
      .compute = ComputePRelu,
  });
}

OpDef nn_dropout() {
  struct Dropout {
    double rate = 0.5;
  };
  return Define<Dropout>({
      .name = "nn.dropout",
      .doc = "data itself and a mask of ones: dropout acts only in training, which this is not.",
      .args = {{"data", "The tensor."}},
      .attrs = {{"rate", &Dropout::rate, "Probability that training drops an element."}},
      .reference = "out = (data, np.ones_like(data))",
      .samples = {{{"data: f32[4, 8]"}}},
      .type = [](TypeCtx& ctx, const Dropout&) -> Type {
        TensorType x = ctx.Like(ctx.Float(0));
        return ir::TupleType({x, x});
      },
      .compute = [](const ComputeArgs& in, const Dropout&) -> Tensors {
        auto one = [&](const Expr& x) { return Number(x.dtype(), 1); };
        return {tir::Map(
                    in[0], [](const Expr& x) { return x; }, "dropout"),
                tir::Map(in[0], one, "mask")};
      },
  });
}

}  // namespace relaxvm::ops
