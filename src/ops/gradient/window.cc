// SPDX-License-Identifier: Apache-2.0
// Gradients of convolution and pooling; g is the gradient of the result y.
#include "ir/prim.h"
#include "ops/gradient/rule.h"

namespace relaxvm::ops {
namespace {

ffi::Any Encode(const Ints& ints) { return AttrCodec<Ints>::Encode(ints); }

// -------- layouts

const std::string& SpatialOf(int64_t count) {
  static const std::string letters[] = {"", "W", "HW", "DHW"};
  return letters[count];
}

// Where each letter of `to` stands in `from`; error where one of them splits a dimension.
Ints Places(const GradientCall& g, const std::string& from, const std::string& to) {
  Ints places;
  for (char letter : to) {
    const size_t at = from.find(letter);
    if (from.size() != to.size() || at == std::string::npos) {
      Fail(ErrorKind::kValueError, g.call->span.Place(), ir::CalledOp(g.call.get())->name,
           ": a gradient is there for layouts of whole dimensions, got ", from,
           "; run ConvertLayout after Gradient");
    }
    places.push_back(static_cast<int64_t>(at));
  }
  return places;
}
// A tensor of layout `from` in layout `to`; the last step is the caller's.
Expr Turned(const GradientCall& g, const Expr& e, const std::string& from, const std::string& to) {
  if (from == to) return e;
  return g.Make("permute_dims", {g.builder().NormalizeArgument(e)},
                {{"axes", Encode(Places(g, from, to))}});
}
Expr Bound(const GradientCall& g, const Expr& e) {
  return e.as<ir::CallObj>() ? g.Step(e) : g.builder().Normalize(e);
}

// -------- convolution

struct Conv {
  int64_t num_spatial;
  Ints strides, padding, dilation;
  int64_t groups;
  Expr data, weight, out;                    // in the layouts NCHW and OIHW
  Ints data_shape, weight_shape, out_shape;  // -1 where unknown
  std::string Layout(const char* channels) const { return channels + SpatialOf(num_spatial); }
  std::string Op(const char* end) const {
    return "nn.conv" + std::to_string(num_spatial) + "d" + end;
  }
};

Ints NumbersOf(const Expr& e) {
  Ints result;
  for (const Expr& dim : e->ty.as<ir::TensorTypeObj>()->GetShape().value_or(Dims())) {
    result.push_back(ir::AsInt(dim).value_or(-1));
  }
  return result;
}

// What is convolved, with what, and the gradient of the result (or what stands for it).
Conv ReadConv(const GradientCall& g, int64_t num_spatial, const Expr& data, const Expr& out) {
  Conv c;
  c.num_spatial = num_spatial;
  c.strides = AttrOf<Ints>(g.call, "strides");
  c.padding = AttrOf<Ints>(g.call, "padding");
  c.dilation = AttrOf<Ints>(g.call, "dilation");
  c.groups = AttrOf<int64_t>(g.call, "groups");
  c.data = data;
  c.out = out;
  c.weight = g.arg(1);
  return c;
}
void ReadShapes(const GradientCall& g, Conv* c) {
  c->data_shape = NumbersOf(c->data);
  c->weight_shape = NumbersOf(c->weight);
  c->out_shape = NumbersOf(c->out);
  const auto rank = static_cast<size_t>(c->num_spatial + 2);
  for (const Ints* shape : {&c->data_shape, &c->weight_shape, &c->out_shape}) {
    for (size_t d = shape == &c->weight_shape ? 0 : 1; d < rank; ++d) {
      if (shape->size() == rank && (*shape)[d] >= 0) continue;
      Fail(ErrorKind::kValueError, g.call->span.Place(), ir::CalledOp(g.call.get())->name,
           ": its gradient needs a static weight, and static channels and image sizes");
    }
  }
}
struct Layouts {
  std::string data, kernel, out;
};
Layouts LayoutsOf(const GradientCall& g) {
  Layouts l{AttrOf<std::string>(g.call, "data_layout"),
            AttrOf<std::string>(g.call, "kernel_layout"), ""};
  l.out = g.MaybeAttr<std::string>("out_layout").value_or("");
  if (l.out.empty()) l.out = l.data;
  return l;
}

// What the strides left over at the end of the image, per spatial dimension.
Ints LeftOver(const Conv& c) {
  Ints rest;
  const int64_t n = c.num_spatial;
  for (int64_t d = 0; d < n; ++d) {
    const int64_t covered = (c.out_shape[d + 2] - 1) * c.strides[d] - c.padding[d] -
                            c.padding[d + n] + c.dilation[d] * (c.weight_shape[d + 2] - 1) + 1;
    rest.push_back(c.data_shape[d + 2] - covered);
  }
  return rest;
}

Expr ToData(const GradientCall& g, const Conv& c) {
  return g.Make(c.Op("_transpose").c_str(), {c.out, c.weight},
                {{"strides", Encode(c.strides)},
                 {"padding", Encode(c.padding)},
                 {"output_padding", Encode(LeftOver(c))},
                 {"dilation", Encode(c.dilation)},
                 {"groups", c.groups},
                 {"data_layout", c.Layout("NC")},
                 {"kernel_layout", c.Layout("IO")},
                 {"out_layout", c.Layout("NC")}});
}

// A convolution of the data with the gradient, batch and channels exchanged: strides become
// dilation and the other way round.  With groups, each group's data stands in the batch of its own
// group: [n, g * c, h, w] -> [g * n, c, h, w].
Expr ToWeight(const GradientCall& g, const Conv& c) {
  Expr data = c.data;
  const int64_t n = c.num_spatial;
  if (c.groups > 1) {
    const Dims shape = data->ty.as<ir::TensorTypeObj>()->GetShape().value();
    const int64_t inner = c.data_shape[1] / c.groups;
    Dims split{shape[0], Expr(c.groups), Expr(inner)};
    Dims joined{shape[0] * Expr(c.groups), Expr(inner)};
    Ints order{1, 0, 2};
    for (int64_t d = 0; d < n; ++d) {
      split.push_back(shape[d + 2]);
      joined.push_back(shape[d + 2]);
      order.push_back(d + 3);
    }
    data = g.Make("reshape", {data, ir::ShapeExpr(split)});
    data = g.Make("permute_dims", {data}, {{"axes", Encode(order)}});
    data = g.Make("reshape", {data, ir::ShapeExpr(joined)});
  }
  Expr result = g.Make(c.Op("").c_str(), {data, c.out},
                       {{"strides", Encode(c.dilation)},
                        {"padding", Encode(c.padding)},
                        {"dilation", Encode(c.strides)},
                        {"groups", c.groups},
                        {"data_layout", c.Layout("CN")},
                        {"kernel_layout", c.Layout("IO")},
                        {"out_layout", c.Layout("CN")}});
  // Where something was left over the result is larger than the weight.
  bool larger = false;
  for (int64_t d = 0; d < n; ++d) larger |= LeftOver(c)[d] >= c.dilation[d];
  if (!larger) return result;
  ffi::Array<Expr> axes, begin, end;
  for (int64_t d = 0; d < n + 2; ++d) {
    axes.push_back(Expr(d));
    begin.push_back(Expr(int64_t{0}));
    end.push_back(Expr(c.weight_shape[d]));
  }
  return g.Make("strided_slice", {result, ir::Tuple(axes), ir::Tuple(begin), ir::Tuple(end)},
                {{"assume_inbound", false}});
}

template <int64_t kNumSpatial>
Exprs Convolution(const GradientCall& g) {
  const Layouts l = LayoutsOf(g);
  Conv c = ReadConv(g, kNumSpatial, g.arg(0), g.grad);
  const std::string images = c.Layout("NC"), kernels = c.Layout("OI");
  c.data = Bound(g, Turned(g, c.data, l.data, images));
  c.weight = Bound(g, Turned(g, c.weight, l.kernel, kernels));
  c.out = Bound(g, Turned(g, c.out, l.out, images));
  ReadShapes(g, &c);
  return {Turned(g, ToData(g, c), images, l.data), Turned(g, ToWeight(g, c), kernels, l.kernel)};
}

// y = conv^T(x, w) is linear: the gradient of x is the convolution whose gradient y is, and that of
// w the gradient by the weight of this convolution.
template <int64_t kNumSpatial>
Exprs TransposedConvolution(const GradientCall& g) {
  const Layouts l = LayoutsOf(g);
  Conv c = ReadConv(g, kNumSpatial, g.grad, g.arg(0));
  const std::string images = c.Layout("NC"), kernels = c.Layout("IO");
  c.data = Bound(g, Turned(g, c.data, l.out, images));
  c.weight = Bound(g, Turned(g, c.weight, l.kernel, kernels));
  c.out = Bound(g, Turned(g, c.out, l.data, images));
  ReadShapes(g, &c);
  Expr to_data = g.Make(c.Op("").c_str(), {c.data, c.weight},
                        {{"strides", Encode(c.strides)},
                         {"padding", Encode(c.padding)},
                         {"dilation", Encode(c.dilation)},
                         {"groups", c.groups},
                         {"data_layout", images},
                         {"kernel_layout", c.Layout("OI")},
                         {"out_layout", images}});
  return {Turned(g, to_data, images, l.data), Turned(g, ToWeight(g, c), kernels, l.kernel)};
}

// -------- pooling

template <bool kMax>
Exprs Pool2d(const GradientCall& g) {
  return {g.Make(kMax ? "grad.max_pool2d_backward" : "grad.avg_pool2d_backward", {g.grad, g.arg(0)},
                 g.call->attrs->values)};
}

// As images of one row.
template <bool kMax>
Exprs Pool1d(const GradientCall& g) {
  const auto layout = AttrOf<std::string>(g.call, "layout");
  const auto out_layout = g.MaybeAttr<std::string>("out_layout").value_or(layout);
  auto image = [&](const Expr& e, const std::string& from) {
    return g.Step("expand_dims", {Bound(g, Turned(g, e, from, "NCW"))}, {{"axis", Encode({2})}});
  };
  auto row = [&](const char* name, int64_t of_rows) {
    Ints both{of_rows};
    for (int64_t value : AttrOf<Ints>(g.call, name)) both.push_back(value);
    return both;
  };
  const Ints padding = AttrOf<Ints>(g.call, "padding");
  Expr result = g.Make(kMax ? "grad.max_pool2d_backward" : "grad.avg_pool2d_backward",
                       {image(g.grad, out_layout), image(g.arg(0), layout)},
                       {{"pool_size", Encode(row("pool_size", 1))},
                        {"strides", Encode(row("strides", 1))},
                        {"padding", Encode({0, padding[0], 0, padding[1]})},
                        {"dilation", Encode(row("dilation", 1))},
                        {"ceil_mode", AttrOf<bool>(g.call, "ceil_mode")},
                        {"count_include_pad", AttrOf<bool>(g.call, "count_include_pad")},
                        {"layout", "NCHW"},
                        {"out_layout", "NCHW"}});
  result = g.Make("squeeze", {result}, {{"axis", Encode({2})}});
  return {Turned(g, result, "NCW", layout)};
}

// Windows that do not overlap: each element of g goes in equal parts to its window.
Exprs AdaptiveAvgPool(const GradientCall& g) {
  const auto layout = AttrOf<std::string>(g.call, "layout");
  const auto out_layout = g.MaybeAttr<std::string>("out_layout").value_or(layout);
  Expr grad = Bound(g, Turned(g, g.grad, out_layout, layout));
  const Dims shape = g.Shape(0), pooled = grad->ty.as<ir::TensorTypeObj>()->GetShape().value();
  Dims split, repeated;
  double window = 1;
  for (size_t d = 0; d < shape.size(); ++d) {
    split.push_back(pooled[d]);
    repeated.push_back(pooled[d]);
    if (g.builder().context()->ProveEqual(shape[d], pooled[d])) continue;
    auto extent = ir::AsInt(shape[d]), count = ir::AsInt(pooled[d]);
    if (!extent || !count || *extent % *count != 0) {
      Fail(ErrorKind::kValueError, g.call->span.Place(), ir::CalledOp(g.call.get())->name,
           ": its gradient needs known sizes that output_size divides");
    }
    split.push_back(Expr(int64_t{1}));
    repeated.push_back(Expr(*extent / *count));
    window *= static_cast<double>(*extent / *count);
  }
  grad = g.Step("divide", {grad, g.Number(window)});
  grad = g.Step("reshape", {grad, ir::ShapeExpr(split)});
  grad = g.Step("broadcast_to", {grad, ir::ShapeExpr(repeated)});
  return {g.Make("reshape", {grad, ir::ShapeExpr(shape)})};
}

}  // namespace

std::vector<GradientRow> WindowGradients() {
  return {{"nn.conv1d", Convolution<1>},
          {"nn.conv2d", Convolution<2>},
          {"nn.conv3d", Convolution<3>},
          {"nn.conv1d_transpose", TransposedConvolution<1>},
          {"nn.conv2d_transpose", TransposedConvolution<2>},
          {"nn.conv3d_transpose", TransposedConvolution<3>},
          {"nn.max_pool1d", Pool1d<true>},
          {"nn.max_pool2d", Pool2d<true>},
          {"nn.avg_pool1d", Pool1d<false>},
          {"nn.avg_pool2d", Pool2d<false>},
          {"nn.adaptive_avg_pool1d", AdaptiveAvgPool},
          {"nn.adaptive_avg_pool2d", AdaptiveAvgPool},
          {"nn.adaptive_avg_pool3d", AdaptiveAvgPool}};
}

}  // namespace relaxvm::ops
