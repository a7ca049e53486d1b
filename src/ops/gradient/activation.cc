// SPDX-License-Identifier: Apache-2.0
// Gradients of further functions of one element, activations and steps; g is the gradient of the
// result y.
#include "ops/gradient/rule.h"

namespace relaxvm::ops {
namespace {

// -------- inverse and hyperbolic functions

// x * x + offset
Expr SquarePlus(const GradientCall& g, double offset) {
  return g.Step("add", {g.Step("multiply", {g.arg(0), g.arg(0)}), g.Number(offset)});
}
// 1 - x * x
Expr OneMinusSquare(const GradientCall& g) {
  return g.Step("subtract", {g.Number(1), g.Step("multiply", {g.arg(0), g.arg(0)})});
}
Exprs Over(const GradientCall& g, const Expr& e) { return {g.Make("divide", {g.grad, e})}; }
Exprs OverRoot(const GradientCall& g, const Expr& e) { return Over(g, g.Step("sqrt", {e})); }

Exprs Asin(const GradientCall& g) { return OverRoot(g, OneMinusSquare(g)); }
Exprs Acos(const GradientCall& g) {
  return {g.Make("negative", {g.Step("divide", {g.grad, g.Step("sqrt", {OneMinusSquare(g)})})})};
}
Exprs Atan(const GradientCall& g) { return Over(g, SquarePlus(g, 1)); }
Exprs Asinh(const GradientCall& g) { return OverRoot(g, SquarePlus(g, 1)); }
Exprs Acosh(const GradientCall& g) { return OverRoot(g, SquarePlus(g, -1)); }
Exprs Atanh(const GradientCall& g) { return Over(g, OneMinusSquare(g)); }
Exprs Sinh(const GradientCall& g) {
  return {g.Make("multiply", {g.grad, g.Step("cosh", {g.arg(0)})})};
}
Exprs Cosh(const GradientCall& g) {
  return {g.Make("multiply", {g.grad, g.Step("sinh", {g.arg(0)})})};
}
// g * x2 / (x1^2 + x2^2), -g * x1 / (x1^2 + x2^2)
Exprs Atan2(const GradientCall& g) {
  Expr squares = g.Step(
      "add", {g.Step("multiply", {g.arg(0), g.arg(0)}), g.Step("multiply", {g.arg(1), g.arg(1)})});
  Expr part = g.Step("divide", {g.grad, squares});
  Expr minus = g.Step("negative", {part});
  return {g.Fit(g.Make("multiply", {part, g.arg(1)}), 0),
          g.Fit(g.Make("multiply", {minus, g.arg(0)}), 1)};
}
// g * exp(x1 - y), g * exp(x2 - y)
Exprs LogAddExp(const GradientCall& g) {
  Exprs grads;
  for (size_t i = 0; i < 2; ++i) {
    Expr share = g.Step("exp", {g.Step("subtract", {g.arg(i), g.out})});
    grads.push_back(g.Fit(g.Make("multiply", {g.grad, share}), i));
  }
  return grads;
}
// x1 * x2 + x3
Exprs Fma(const GradientCall& g) {
  return {g.Fit(g.Make("multiply", {g.grad, g.arg(1)}), 0),
          g.Fit(g.Make("multiply", {g.grad, g.arg(0)}), 1), g.Fit(g.grad, 2)};
}

// -------- activations

// To the elements that were not moved to a bound.
Exprs Clip(const GradientCall& g) {
  Expr kept = g.Step("equal", {g.arg(0), g.out});
  return {g.Make("where", {kept, g.grad, g.Number(0)}), Expr(), Expr()};
}
// where(x < 0, alpha * g, g)
Exprs LeakyRelu(const GradientCall& g) {
  Expr low = g.Step("multiply", {g.Number(AttrOf<double>(g.call, "alpha")), g.grad});
  return {g.Make("where", {g.Step("less", {g.arg(0), g.Number(0)}), low, g.grad})};
}
// where(x < 0, alpha * g, g), and where(x < 0, x * g, 0) summed over all axes but that of alpha
Exprs PRelu(const GradientCall& g) {
  const int64_t rank = g.Rank(0);
  const int64_t axis = (AttrOf<int64_t>(g.call, "axis") + rank) % rank;
  Ints others;
  for (int64_t d = 0; d < rank; ++d) {
    if (d != axis) others.push_back(d);
  }
  const ffi::Any over = AttrCodec<Ints>::Encode(others);
  Expr alpha = others.empty() ? g.arg(1) : g.Step("expand_dims", {g.arg(1)}, {{"axis", over}});
  Expr zero = g.Number(0);
  Expr low = g.Step("less", {g.arg(0), zero});
  Expr to_alpha = g.Step("where", {low, g.Step("multiply", {g.grad, g.arg(0)}), zero});
  if (!others.empty()) {
    to_alpha = g.Step("sum", {to_alpha}, {{"axis", over}, {"keepdims", false}});
  }
  return {g.Make("where", {low, g.Step("multiply", {alpha, g.grad}), g.grad}), g.Fit(to_alpha, 1)};
}
// Below 0 the slope is y + scale * alpha.
Exprs Selu(const GradientCall& g) {
  constexpr double kAlpha = 1.6732632423543772848;
  constexpr double kScale = 1.0507009873554804934;
  Expr below = g.Step("add", {g.out, g.Number(kScale * kAlpha)});
  Expr high = g.Step("greater", {g.arg(0), g.Number(0)});
  Expr slope = g.Step("where", {high, g.Number(kScale), below});
  return {g.Make("multiply", {g.grad, slope})};
}
// g * sigmoid(beta * x), and g where beta * x is beyond the threshold
Exprs Softplus(const GradientCall& g) {
  Expr scaled = g.Step("multiply", {g.arg(0), g.Number(AttrOf<double>(g.call, "beta"))});
  Expr linear = g.Step("greater", {scaled, g.Number(AttrOf<double>(g.call, "threshold"))});
  Expr curved = g.Step("multiply", {g.grad, g.Step("sigmoid", {scaled})});
  return {g.Make("where", {linear, g.grad, curved})};
}
// u = c * (x + a * x^3), t = tanh(u):  g / 2 * (1 + t + x * (1 - t^2) * c * (1 + 3 * a * x^2))
Exprs GeluTanh(const GradientCall& g) {
  constexpr double kC = 0.7978845608028654, kA = 0.044715;
  const Expr x = g.arg(0), one = g.Number(1);
  Expr square = g.Step("multiply", {x, x});
  Expr inner =
      g.Step("multiply",
             {x, g.Step("add", {g.Number(kC), g.Step("multiply", {square, g.Number(kC * kA)})})});
  Expr t = g.Step("tanh", {inner});
  Expr bend = g.Step("subtract", {one, g.Step("multiply", {t, t})});
  Expr inner_slope =
      g.Step("add", {g.Number(kC), g.Step("multiply", {square, g.Number(3 * kC * kA)})});
  Expr product = g.Step("multiply", {g.Step("multiply", {x, bend}), inner_slope});
  Expr slope = g.Step("add", {g.Step("add", {one, t}), product});
  return {g.Make("multiply", {g.grad, g.Step("multiply", {g.Number(0.5), slope})})};
}

// Constant but for steps.
template <size_t kNumArgs>
Exprs None(const GradientCall&) {
  return Exprs(kNumArgs);
}

}  // namespace

std::vector<GradientRow> ActivationGradients() {
  return {{"asin", Asin},
          {"acos", Acos},
          {"atan", Atan},
          {"asinh", Asinh},
          {"acosh", Acosh},
          {"atanh", Atanh},
          {"sinh", Sinh},
          {"cosh", Cosh},
          {"atan2", Atan2},
          {"log_add_exp", LogAddExp},
          {"ewise_fma", Fma},
          {"clip", Clip},
          {"nn.leakyrelu", LeakyRelu},
          {"nn.prelu", PRelu},
          {"nn.selu", Selu},
          {"nn.softplus", Softplus},
          {"nn.gelu_tanh", GeluTanh},
          {"floor", None<1>},
          {"ceil", None<1>},
          {"round", None<1>},
          {"trunc", None<1>},
          {"sign", None<1>},
          {"floor_divide", None<2>}};
}

}  // namespace relaxvm::ops
