// SPDX-License-Identifier: Apache-2.0
// Gradients of operators that compute element by element; g is the gradient of the result y.
#include "ops/gradient/rule.h"

namespace relaxvm::ops {
namespace {

// -------- one argument

// where(x < 0, -1, 1) * g
Exprs Abs(const GradientCall& g) {
  Expr one = g.Number(1);
  Expr negative = g.Step("less", {g.arg(0), g.Number(0)});
  Expr sign = g.Step("where", {negative, g.Step("negative", {one}), one});
  return {g.Make("multiply", {g.grad, sign})};
}
// g * -sin(x)
Exprs Cos(const GradientCall& g) {
  Expr minus = g.Step("negative", {g.grad});
  return {g.Make("multiply", {minus, g.Step("sin", {g.arg(0)})})};
}
// g * cos(x)
Exprs Sin(const GradientCall& g) {
  return {g.Make("multiply", {g.grad, g.Step("cos", {g.arg(0)})})};
}
// g * (1 + y * y)
Exprs Tan(const GradientCall& g) {
  Expr square = g.Step("multiply", {g.out, g.out});
  return {g.Make("multiply", {g.grad, g.Step("add", {square, g.Number(1)})})};
}
// g * y
Exprs Exp(const GradientCall& g) { return {g.Make("multiply", {g.grad, g.out})}; }
// g / x
Exprs Log(const GradientCall& g) { return {g.Make("divide", {g.grad, g.arg(0)})}; }
Exprs Negative(const GradientCall& g) { return {g.Make("negative", {g.grad})}; }
// g * y * (1 - y)
Exprs Sigmoid(const GradientCall& g) {
  Expr left = g.Step("multiply", {g.grad, g.out});
  return {g.Make("multiply", {left, g.Step("subtract", {g.Number(1), g.out})})};
}
// g / (2 * y)
Exprs Sqrt(const GradientCall& g) {
  return {g.Make("divide", {g.Step("multiply", {g.Number(0.5), g.grad}), g.out})};
}
// g * -y * y * y / 2
Exprs Rsqrt(const GradientCall& g) {
  Expr cube = g.Step("multiply", {g.Step("multiply", {g.out, g.out}), g.out});
  return {g.Make("multiply", {g.grad, g.Step("multiply", {g.Number(-0.5), cube})})};
}
// g * 2 * x
Exprs Square(const GradientCall& g) {
  return {g.Make("multiply", {g.grad, g.Step("multiply", {g.Number(2), g.arg(0)})})};
}
// g * (1 - y * y)
Exprs Tanh(const GradientCall& g) {
  Expr square = g.Step("multiply", {g.out, g.out});
  return {g.Make("multiply", {g.grad, g.Step("subtract", {g.Number(1), square})})};
}
// g * 2 / sqrt(pi) * exp(-x * x)
Exprs Erf(const GradientCall& g) {
  Expr square = g.Step("multiply", {g.arg(0), g.arg(0)});
  Expr bell = g.Step("exp", {g.Step("negative", {square})});
  Expr slope = g.Step("multiply", {g.Number(1.1283791670955126), bell});
  return {g.Make("multiply", {g.grad, slope})};
}
// where(x < 0, 0, g)
Exprs Relu(const GradientCall& g) {
  Expr zero = g.Number(0);
  return {g.Make("where", {g.Step("less", {g.arg(0), zero}), zero, g.grad})};
}
// s = sigmoid(x); g * (s + y * (1 - s))
Exprs Silu(const GradientCall& g) {
  Expr s = g.Step("sigmoid", {g.arg(0)});
  Expr rest = g.Step("subtract", {g.Number(1), s});
  Expr slope = g.Step("add", {s, g.Step("multiply", {g.out, rest})});
  return {g.Make("multiply", {g.grad, slope})};
}
// x * Phi(x): g * (Phi(x) + x * phi(x)), with the normal distribution Phi and its density phi
Exprs Gelu(const GradientCall& g) {
  const Expr x = g.arg(0);
  Expr erf = g.Step("erf", {g.Step("multiply", {x, g.Number(0.7071067811865476)})});
  Expr below = g.Step("multiply", {g.Number(0.5), g.Step("add", {g.Number(1), erf})});
  Expr half = g.Step("multiply", {g.Step("multiply", {x, x}), g.Number(-0.5)});
  Expr bell = g.Step("multiply", {g.Number(0.3989422804014327), g.Step("exp", {half})});
  Expr slope = g.Step("add", {below, g.Step("multiply", {x, bell})});
  return {g.Make("multiply", {g.grad, slope})};
}
Exprs Astype(const GradientCall& g) {
  return {g.Make("astype", {g.grad}, {{"dtype", g.Tensor(0)->dtype}})};
}
Exprs NoGrad(const GradientCall&) { return {Expr()}; }

// -------- two arguments: the gradient of one that was broadcast is summed

Exprs Add(const GradientCall& g) { return {g.Fit(g.grad, 0), g.Fit(g.grad, 1)}; }
Exprs Subtract(const GradientCall& g) {
  return {g.Fit(g.grad, 0), g.Fit(g.Make("negative", {g.grad}), 1)};
}
Exprs Multiply(const GradientCall& g) {
  return {g.Fit(g.Make("multiply", {g.grad, g.arg(1)}), 0),
          g.Fit(g.Make("multiply", {g.grad, g.arg(0)}), 1)};
}
// g / x2, -g * y / x2
Exprs Divide(const GradientCall& g) {
  Expr weighted = g.Step("multiply", {g.Step("negative", {g.grad}), g.out});
  return {g.Fit(g.Make("divide", {g.grad, g.arg(1)}), 0),
          g.Fit(g.Make("divide", {weighted, g.arg(1)}), 1)};
}
// g * x2 * x1 ** (x2 - 1), g * y * log(x1)
Exprs Power(const GradientCall& g) {
  Expr weighted = g.Step("multiply", {g.grad, g.arg(1)});
  Expr less = g.Step("power", {g.arg(0), g.Step("subtract", {g.arg(1), g.Number(1, 1)})});
  Expr scaled = g.Step("multiply", {g.grad, g.out});
  Expr log = g.Step("log", {g.arg(0)});
  return {g.Fit(g.Make("multiply", {weighted, less}), 0),
          g.Fit(g.Make("multiply", {scaled, log}), 1)};
}
// To the one that was taken; to the first of two equal ones for maximum, to the second for minimum.
Exprs Chosen(const GradientCall& g, const char* not_first, const char* not_second) {
  Expr zero = g.Number(0);
  Expr first = g.Step(not_first, {g.arg(0), g.arg(1)});
  Expr second = g.Step(not_second, {g.arg(0), g.arg(1)});
  return {g.Fit(g.Make("where", {first, zero, g.grad}), 0),
          g.Fit(g.Make("where", {second, zero, g.grad}), 1)};
}
Exprs Maximum(const GradientCall& g) { return Chosen(g, "less", "greater_equal"); }
Exprs Minimum(const GradientCall& g) { return Chosen(g, "greater_equal", "less"); }

Exprs Where(const GradientCall& g) {
  Expr zero = g.Number(0, 1);
  return {Expr(), g.Fit(g.Make("where", {g.arg(0), g.grad, zero}), 1),
          g.Fit(g.Make("where", {g.arg(0), zero, g.grad}), 2)};
}

// A result that does not depend on the arguments' values, or only in steps.
template <size_t kNumArgs>
Exprs None(const GradientCall&) {
  return Exprs(kNumArgs);
}
// The value to fill with adds to every element.
Exprs FillValue(const GradientCall& g) {
  Expr sum = g.Make("sum", {g.grad}, {{"axis", nullptr}, {"keepdims", false}});
  const auto* value = g.arg(1)->ty.as<ir::TensorTypeObj>();
  const auto* grad = g.grad->ty.as<ir::TensorTypeObj>();
  if (value != nullptr && grad != nullptr && value->dtype != grad->dtype) {
    sum = g.Make("astype", {sum}, {{"dtype", value->dtype}});
  }
  return {Expr(), value == nullptr ? Expr() : g.Fit(sum, 1)};
}

}  // namespace

std::vector<GradientRow> ElementwiseGradients() {
  return {{"abs", Abs},           {"cos", Cos},
          {"sin", Sin},           {"tan", Tan},
          {"exp", Exp},           {"log", Log},
          {"negative", Negative}, {"sigmoid", Sigmoid},
          {"sqrt", Sqrt},         {"rsqrt", Rsqrt},
          {"square", Square},     {"tanh", Tanh},
          {"erf", Erf},           {"nn.relu", Relu},
          {"nn.silu", Silu},      {"nn.gelu", Gelu},
          {"astype", Astype},     {"grad.no_grad", NoGrad},
          {"add", Add},           {"subtract", Subtract},
          {"multiply", Multiply}, {"divide", Divide},
          {"power", Power},       {"maximum", Maximum},
          {"minimum", Minimum},   {"where", Where},
          {"equal", None<2>},     {"not_equal", None<2>},
          {"less", None<2>},      {"less_equal", None<2>},
          {"greater", None<2>},   {"greater_equal", None<2>},
          {"full", FillValue},    {"full_like", FillValue},
          {"ones", None<1>},      {"ones_like", None<1>},
          {"zeros", None<1>},     {"zeros_like", None<1>}};
}

}  // namespace relaxvm::ops
