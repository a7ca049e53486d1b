// SPDX-License-Identifier: Apache-2.0
// Gradients of normalisations; g is the gradient of the result y.
//   n = (x - mean(x)) * r, r = 1 / sqrt(variance(x) + epsilon);  y = n * gamma + beta
//   x' = r * (h - mean(h) - n * mean(h * n)), h = g * gamma;  gamma' = sum(g * n);  beta' = sum(g)
#include <algorithm>

#include "ops/gradient/rule.h"

namespace relaxvm::ops {
namespace {

ffi::Any Encode(const Ints& ints) { return AttrCodec<Ints>::Encode(ints); }

Expr Mean(const GradientCall& g, const Expr& x, const Ints& axes) {
  return g.Step("mean", {x}, {{"axis", Encode(axes)}, {"keepdims", true}});
}
Expr Times(const GradientCall& g, const Expr& a, const Expr& b) {
  return g.Step("multiply", {a, b});
}
Ints Positive(const Ints& axes, int64_t rank) {
  Ints result;
  for (int64_t axis : axes) result.push_back((axis + rank) % rank);
  return result;
}
Ints Without(const Ints& axes, int64_t rank) {
  Ints result;
  for (int64_t d = 0; d < rank; ++d) {
    if (std::find(axes.begin(), axes.end(), d) == axes.end()) result.push_back(d);
  }
  return result;
}
Expr Spread(const GradientCall& g, const Expr& weight, const Ints& others) {
  return others.empty() ? weight : g.Step("expand_dims", {weight}, {{"axis", Encode(others)}});
}
Expr SumOver(const GradientCall& g, const Expr& e, const Ints& axes) {
  if (axes.empty()) return e;
  return g.Make("sum", {e}, {{"axis", Encode(axes)}, {"keepdims", false}});
}

// What is normalised: x with mean 0 (or as it is) and mean square 1 over `axes`, and the factor.
struct Normal {
  Expr x, factor;
};
Normal Normalize(const GradientCall& g, Expr x, const Ints& axes, bool centred) {
  if (centred) x = g.Step("subtract", {x, Mean(g, x, axes)});
  Expr square = Mean(g, Times(g, x, x), axes);
  Expr epsilon = g.Number(AttrOf<double>(g.call, "epsilon"));
  Expr factor = g.Step("rsqrt", {g.Step("add", {square, epsilon})});
  return {Times(g, x, factor), factor};
}
// The gradient of x from that of what is normalised.
Expr ToData(const GradientCall& g, const Normal& n, const Expr& h, const Ints& axes, bool centred) {
  Expr rest = h;
  if (centred) rest = g.Step("subtract", {rest, Mean(g, h, axes)});
  Expr along = Times(g, n.x, Mean(g, Times(g, h, n.x), axes));
  return g.Make("multiply", {n.factor, g.Step("subtract", {rest, along})});
}

// Axes in growing order, so that the weights' axes stand as the data's do.
Ints SortedAxes(const GradientCall& g) {
  Ints axes = Positive(AttrOf<Ints>(g.call, "axes"), g.Rank(0));
  if (!std::is_sorted(axes.begin(), axes.end())) {
    Fail(ErrorKind::kValueError, g.call->span.Place(), ir::CalledOp(g.call.get())->name,
         ": its gradient needs axes in growing order");
  }
  return axes;
}

// gamma and beta have the extents of `weight_axes`; both may be left out of the formula.
Exprs WithWeights(const GradientCall& g, const Normal& n, Expr data, const Ints& others) {
  Exprs grads{std::move(data), Expr(), Expr()};
  if (AttrOf<bool>(g.call, "scale")) grads[1] = SumOver(g, Times(g, g.grad, n.x), others);
  if (AttrOf<bool>(g.call, "center")) grads[2] = SumOver(g, g.grad, others);
  return grads;
}
Expr Scaled(const GradientCall& g, const Ints& others) {
  if (!AttrOf<bool>(g.call, "scale")) return g.grad;
  return Times(g, g.grad, Spread(g, g.arg(1), others));
}

Exprs LayerNorm(const GradientCall& g) {
  const Ints axes = SortedAxes(g), others = Without(axes, g.Rank(0));
  const Normal n = Normalize(g, g.arg(0), axes, true);
  return WithWeights(g, n, ToData(g, n, Scaled(g, others), axes, true), others);
}

Exprs RmsNorm(const GradientCall& g) {
  const Ints axes = SortedAxes(g), others = Without(axes, g.Rank(0));
  const Normal n = Normalize(g, g.arg(0), axes, false);
  Expr h = Times(g, g.grad, Spread(g, g.arg(1), others));
  return {ToData(g, n, h, axes, false), SumOver(g, Times(g, g.grad, n.x), others)};
}

Ints AllButChannel(const GradientCall& g, int64_t* channel) {
  const int64_t rank = g.Rank(0);
  *channel = Positive({AttrOf<int64_t>(g.call, "channel_axis")}, rank)[0];
  return Without({*channel}, rank);
}

Exprs InstanceNorm(const GradientCall& g) {
  int64_t channel = 0;
  const Ints others = AllButChannel(g, &channel);
  const Ints axes = Positive(AttrOf<Ints>(g.call, "axes"), g.Rank(0));
  const Normal n = Normalize(g, g.arg(0), axes, true);
  return WithWeights(g, n, ToData(g, n, Scaled(g, others), axes, true), others);
}

// The channels as [groups, channels of a group]: normalised over the latter as well.
Exprs GroupNorm(const GradientCall& g) {
  int64_t channel = 0;
  const Ints others = AllButChannel(g, &channel);
  const Dims shape = g.Shape(0);
  const Expr groups(AttrOf<int64_t>(g.call, "num_groups"));
  Dims split;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (static_cast<int64_t>(d) == channel) {
      split.push_back(groups);
      split.push_back(g.builder().context()->Simplify(ir::FloorDiv(shape[d], groups)));
    } else {
      split.push_back(shape[d]);
    }
  }
  Ints axes{channel + 1};
  for (int64_t axis : Positive(AttrOf<Ints>(g.call, "axes"), g.Rank(0))) {
    axes.push_back(axis > channel ? axis + 1 : axis);
  }
  std::sort(axes.begin(), axes.end());
  auto to = [&](const Expr& e, const Dims& dims) {
    return g.Step("reshape", {e, ir::ShapeExpr(dims)});
  };
  const Normal n = Normalize(g, to(g.arg(0), split), axes, true);
  Expr data = g.builder().Emit(ToData(g, n, to(Scaled(g, others), split), axes, true));
  const Normal whole{to(n.x, shape), n.factor};
  return WithWeights(g, whole, g.Make("reshape", {data, ir::ShapeExpr(shape)}), others);
}

}  // namespace

std::vector<GradientRow> NormGradients() {
  return {{"nn.layer_norm", LayerNorm},
          {"nn.rms_norm", RmsNorm},
          {"nn.instance_norm", InstanceNorm},
          {"nn.group_norm", GroupNorm}};
}

}  // namespace relaxvm::ops
