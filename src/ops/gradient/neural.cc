// SPDX-License-Identifier: Apache-2.0
// Gradients of losses and softmax; g is the gradient of the result y.
#include "ir/prim.h"
#include "ops/gradient/rule.h"

namespace relaxvm::ops {
namespace {

ffi::Any Encode(const Ints& ints) { return AttrCodec<Ints>::Encode(ints); }

// -------- softmax and losses

Expr SumAlong(const GradientCall& g, const Expr& value) {
  const auto axis = AttrOf<int64_t>(g.call, "axis");
  return g.Step("sum", {value}, {{"axis", Encode({axis})}, {"keepdims", true}});
}
// (g - sum(g * y)) * y
Exprs Softmax(const GradientCall& g) {
  Expr sum = SumAlong(g, g.Step("multiply", {g.grad, g.out}));
  return {g.Make("multiply", {g.Step("subtract", {g.grad, sum}), g.out})};
}
// g - sum(g) * exp(y)
Exprs LogSoftmax(const GradientCall& g) {
  Expr sum = SumAlong(g, g.grad);
  Expr shares = g.Step("multiply", {sum, g.Step("exp", {g.out})});
  return {g.Make("subtract", {g.grad, shares})};
}
// -sum(predictions * labels), a mean over the batch when there is one
Exprs CrossEntropyWithLogits(const GradientCall& g) {
  Expr grad = g.grad;
  if (g.Rank(0) > 1) grad = g.Step("divide", {grad, g.Count({g.Shape(0)[0]}, 0)});
  auto times = [&](const Expr& other) {
    return g.Make("multiply", {g.Make("negative", {grad}), other});
  };
  return {times(g.arg(1)), times(g.arg(0))};
}
// Targets and weights are data.
Exprs NllLoss(const GradientCall& g) {
  ffi::Array<Expr> args{g.grad};
  for (const Expr& arg : g.call->args) args.push_back(arg);
  Exprs grads(g.call->args.size());
  grads[0] = g.Make("grad.nll_loss_backward", args, g.call->attrs->values);
  return grads;
}

}  // namespace

std::vector<GradientRow> NeuralGradients() {
  return {{"nn.softmax", Softmax},
          {"nn.log_softmax", LogSoftmax},
          {"nn.cross_entropy_with_logits", CrossEntropyWithLogits},
          {"nn.nll_loss", NllLoss}};
}

}  // namespace relaxvm::ops
