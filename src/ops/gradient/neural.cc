// SPDX-License-Identifier: Apache-2.0
// Gradients of losses, softmax, convolution and pooling; g is the gradient of the result y.
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

// -------- pooling

template <bool kMax>
Exprs Pool(const GradientCall& g) {
  return {g.Make(kMax ? "grad.max_pool2d_backward" : "grad.avg_pool2d_backward", {g.grad, g.arg(0)},
                 g.call->attrs->values)};
}

// -------- convolution

struct Conv {
  Ints strides, padding, dilation;
  int64_t groups;
  Ints data, weight, out;  // shapes
};

Conv ReadConv(const GradientCall& g) {
  const auto layout = AttrOf<std::string>(g.call, "data_layout");
  const auto kernel = AttrOf<std::string>(g.call, "kernel_layout");
  const auto out = g.MaybeAttr<std::string>("out_layout").value_or(layout);
  if (layout != "NCHW" || kernel != "OIHW" || (!out.empty() && out != "NCHW")) {
    Fail(ErrorKind::kValueError, g.call->span.Place(),
         "nn.conv2d: a gradient is there for the layouts NCHW and OIHW, got ", layout, ", ", kernel,
         " and ", out, "; run ConvertLayout after Gradient");
  }
  auto numbers = [&](const ffi::Optional<Dims>& dims) {
    Ints result;
    if (dims.has_value()) {
      for (const Expr& dim : *dims) {
        const auto* number = dim.as<ir::IntImmObj>();
        result.push_back(number == nullptr ? -1 : number->value);
      }
    }
    return result;
  };
  Conv c;
  c.strides = AttrOf<Ints>(g.call, "strides");
  c.padding = AttrOf<Ints>(g.call, "padding");
  c.dilation = AttrOf<Ints>(g.call, "dilation");
  c.groups = AttrOf<int64_t>(g.call, "groups");
  c.data = numbers(g.Shape(0));
  c.weight = numbers(g.Shape(1));
  c.out = numbers(g.grad->ty.as<ir::TensorTypeObj>()->GetShape());
  for (const Ints* shape : {&c.data, &c.weight, &c.out}) {
    for (size_t d = shape == &c.weight ? 0 : 1; d < 4; ++d) {
      if (shape->size() == 4 && (*shape)[d] >= 0) continue;
      Fail(ErrorKind::kValueError, g.call->span.Place(),
           "nn.conv2d: its gradient needs a static weight, and static channels and image sizes");
    }
  }
  return c;
}

// What the strides left over at the end of the image, per spatial dimension.
Ints LeftOver(const Conv& c) {
  Ints rest;
  for (size_t d = 0; d < 2; ++d) {
    const int64_t covered = (c.out[d + 2] - 1) * c.strides[d] - c.padding[d] - c.padding[d + 2] +
                            c.dilation[d] * (c.weight[d + 2] - 1) + 1;
    rest.push_back(c.data[d + 2] - covered);
  }
  return rest;
}

Expr ToData(const GradientCall& g, const Conv& c) {
  return g.Make("nn.conv2d_transpose", {g.grad, g.arg(1)},
                {{"strides", Encode(c.strides)},
                 {"padding", Encode(c.padding)},
                 {"output_padding", Encode(LeftOver(c))},
                 {"dilation", Encode(c.dilation)},
                 {"groups", c.groups},
                 {"data_layout", "NCHW"},
                 {"kernel_layout", "IOHW"},
                 {"out_layout", "NCHW"}});
}

// A convolution of the data with the gradient, batch and channels exchanged: strides become
// dilation and the other way round.  With groups, each group's data stands in the batch of its own
// group: [n, g * c, h, w] -> [g * n, c, h, w].
Expr ToWeight(const GradientCall& g, const Conv& c) {
  Expr data = g.arg(0);
  if (c.groups > 1) {
    const Dims shape = g.Shape(0);
    const int64_t inner = c.data[1] / c.groups;
    data =
        g.Make("reshape",
               {data, ir::ShapeExpr({shape[0], Expr(c.groups), Expr(inner), shape[2], shape[3]})});
    data = g.Make("permute_dims", {data}, {{"axes", Encode({1, 0, 2, 3, 4})}});
    data =
        g.Make("reshape",
               {data, ir::ShapeExpr({shape[0] * Expr(c.groups), Expr(inner), shape[2], shape[3]})});
  }
  Expr result = g.Make("nn.conv2d", {data, g.grad},
                       {{"strides", Encode(c.dilation)},
                        {"padding", Encode(c.padding)},
                        {"dilation", Encode(c.strides)},
                        {"groups", c.groups},
                        {"data_layout", "CNHW"},
                        {"kernel_layout", "IOHW"},
                        {"out_layout", "CNHW"}});
  // Where something was left over the result is larger than the weight.
  bool larger = false;
  for (size_t d = 0; d < 2; ++d) larger |= LeftOver(c)[d] >= c.dilation[d];
  if (!larger) return result;
  ffi::Array<Expr> axes, begin, end;
  for (int64_t d = 0; d < 4; ++d) {
    axes.push_back(Expr(d));
    begin.push_back(Expr(int64_t{0}));
    end.push_back(Expr(c.weight[d]));
  }
  return g.Make("strided_slice", {result, ir::Tuple(axes), ir::Tuple(begin), ir::Tuple(end)},
                {{"assume_inbound", false}});
}

Exprs Conv2d(const GradientCall& g) {
  const Conv c = ReadConv(g);
  return {ToData(g, c), ToWeight(g, c)};
}

}  // namespace

std::vector<GradientRow> NeuralGradients() {
  return {{"nn.softmax", Softmax},
          {"nn.log_softmax", LogSoftmax},
          {"nn.cross_entropy_with_logits", CrossEntropyWithLogits},
          {"nn.nll_loss", NllLoss},
          {"nn.max_pool2d", Pool<true>},
          {"nn.avg_pool2d", Pool<false>},
          {"nn.conv2d", Conv2d}};
}

}  // namespace relaxvm::ops
