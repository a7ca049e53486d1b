// SPDX-License-Identifier: Apache-2.0
// Pooling over windows, maximum and average, on one to three spatial axes, in every layout.
#include <algorithm>

#include "ops/layout_rule.h"
#include "ops/nn/spatial.h"

namespace relaxvm::ops {
namespace {

struct Pool {
  Ints pool_size = {1};
  Ints strides = {1};
  Ints padding = {0};
  Ints dilation = {1};
  bool ceil_mode = false;
  bool count_include_pad = false;
  std::string layout;
  std::optional<std::string> out_layout;
};

bool IsNumber(DLDataType t) { return IsFloat(t) || IsInteger(t); }

// Number of windows: the last may hang over the end in ceil mode.
Expr WindowCount(const Pool& a, size_t s, size_t n, const Expr& extent) {
  int64_t more = a.padding[s] + a.padding[n + s] - a.dilation[s] * (a.pool_size[s] - 1) - 1;
  if (a.ceil_mode) more += a.strides[s] - 1;
  Expr room = more < 0 ? extent - Expr(-more) : extent + Expr(more);
  return ir::FloorDiv(room, Expr(a.strides[s])) + Expr(1);
}

template <size_t kNumSpatial>
Type InferPool(TypeCtx& ctx, const Pool& a) {
  std::string spatial = SpatialLetters(kNumSpatial);
  TensorType x = ctx.TensorOf(0, IsNumber, "a tensor of numbers");
  Layout data(ctx, a.layout, "NC" + spatial, "layout");
  Layout out(ctx, a.out_layout.value_or(a.layout), "NC" + spatial, "out_layout");
  ctx.CheckRank(0, data.size());
  CheckSpatial(ctx, "pool_size", a.pool_size, kNumSpatial, 1);
  CheckSpatial(ctx, "strides", a.strides, kNumSpatial, 1);
  CheckSpatial(ctx, "padding", a.padding, 2 * kNumSpatial, 0);
  CheckSpatial(ctx, "dilation", a.dilation, kNumSpatial, 1);
  auto dims = x->GetShape();
  if (!dims.has_value()) return ctx.Result(std::nullopt, out.size(), x->dtype);
  auto dim = [&](char letter) -> Expr {
    Expr extent = data.Extent(*dims, letter);
    if (letter == 'N' || letter == 'C') return extent;
    size_t s = spatial.find(letter);
    Expr count = ctx.Simplify(WindowCount(a, s, kNumSpatial, extent));
    if (ctx.Prove(ir::Less(count, Expr(0)))) {
      ctx.Error(ErrorKind::kValueError, "the window of ", a.pool_size[s], " is larger than axis ",
                std::string(1, letter), " of ", DescribeType(x), " with its padding");
    }
    return count;
  };
  return ctx.Result(out.Shape(dim), x->dtype);
}

// data's index of tap `r` of the window at `i`, in padded data.
template <size_t kNumSpatial>
Indices TapIndex(const Pool& a, const Layout& data, const Layout& out, const Indices& i,
                 const Indices& r) {
  std::string spatial = SpatialLetters(kNumSpatial);
  return data.Order([&](char letter) -> Expr {
    Expr at = out.Index(i, letter);
    if (letter == 'N' || letter == 'C') return at;
    size_t s = spatial.find(letter);
    return at * Expr(a.strides[s]) + r[s] * Expr(a.dilation[s]);
  });
}

// Elements of data under the window at `i`, in one axis: the padding does not count.
Expr CountedTaps(const Pool& a, size_t s, const Expr& at, const Expr& extent) {
  Expr start = at * Expr(a.strides[s]) - Expr(a.padding[s]);
  Expr step(a.dilation[s]);
  Expr size(a.pool_size[s]);
  Expr first = ir::Max(ir::FloorDiv(step - Expr(1) - start, step), Expr(0));
  Expr end = ir::Min(ir::FloorDiv(extent - start + step - Expr(1), step), size);
  return ir::Max(end - first, Expr(0));
}

// How windows are reduced: what counts where there is no data, and how elements come together.
struct Combination {
  DLDataType dtype;
  Expr outside;
  tir::Reducer reducer;
  const char* name;
};

// One axis of data: padding, and the windows along it.
struct WindowAxis {
  size_t at;  // in the layout
  int64_t size, stride, dilation, before, after;
};

std::vector<WindowAxis> WindowAxes(const Pool& a, const Layout& data, const std::string& spatial) {
  std::vector<WindowAxis> axes;
  for (size_t s = 0; s < spatial.size(); ++s) {
    const int64_t hangs_over = a.ceil_mode ? a.strides[s] - 1 : 0;
    axes.push_back({data.At(spatial[s]), a.pool_size[s], a.strides[s], a.dilation[s], a.padding[s],
                    a.padding[spatial.size() + s] + hangs_over});
  }
  return axes;
}

// Are windows reduced sooner along one axis after the other?  A further pass over the data costs
// about as much as four more elements of a window.
bool IsFasterByAxes(const std::vector<WindowAxis>& axes, const Dims& from, const Dims& to) {
  double whole = 1, by_axes = 0, results = 1;  // for each element of the result
  for (const WindowAxis& axis : axes) {
    whole *= static_cast<double>(axis.size);
    by_axes += static_cast<double>(axis.size + (results == 1 ? 0 : 4)) * results;
    const auto given = ir::AsInt(from[axis.at]), wanted = ir::AsInt(to[axis.at]);
    results *= given && wanted && *wanted > 0
                   ? static_cast<double>(*given) / static_cast<double>(*wanted)
                   : static_cast<double>(axis.stride);
  }
  return by_axes + 4 < whole;
}

// `x` with what counts around it along these axes.
Tensor Padded(const Tensor& x, const std::vector<WindowAxis>& axes, const Combination& how) {
  const auto rank = static_cast<size_t>(x.ndim());
  PadAmounts pads{std::vector<Expr>(rank, Expr(0)), std::vector<Expr>(rank, Expr(0))};
  for (const WindowAxis& axis : axes) {
    pads.before[axis.at] = Expr(axis.before);
    pads.after[axis.at] = Expr(axis.after);
  }
  return PadStage(x, pads, x->dtype == how.dtype ? how.outside : Number(x->dtype, 0));
}

// The last axis first: the later ones then have fewer elements.
Tensor ReduceByAxes(Tensor x, const std::vector<WindowAxis>& axes, const Dims& out,
                    const Combination& how) {
  for (size_t s = axes.size(); s-- > 0;) {
    const WindowAxis& axis = axes[s];
    std::vector<Expr> shape(x->shape.begin(), x->shape.end());
    shape[axis.at] = out[axis.at];
    const Tensor padded = Padded(x, {axis}, how);
    auto formula = [&](const Indices& i, const Indices& r) {
      std::vector<Expr> at(i.begin(), i.end());
      at[axis.at] = i[axis.at] * Expr(axis.stride) + r[0] * Expr(axis.dilation);
      return ir::Cast(how.dtype, padded(at));
    };
    x = tir::Reduce(shape, {Expr(axis.size)}, how.reducer, formula, how.name);
  }
  return x;
}

// All axes of a window at once, or one after the other.
template <size_t kNumSpatial>
Tensor ReduceWindows(const ComputeArgs& in, const Pool& a, const Layout& data, const Layout& out,
                     const std::vector<WindowAxis>& axes, const Combination& how) {
  const bool is_one_layout = a.layout == a.out_layout.value_or(a.layout);
  if (is_one_layout && IsFasterByAxes(axes, in[0]->shape, in.OutShape())) {
    return ReduceByAxes(in[0], axes, in.OutShape(), how);
  }
  Dims window;
  for (const WindowAxis& axis : axes) window.push_back(Expr(axis.size));
  const Tensor x = Padded(in[0], axes, how);
  auto formula = [&](const Indices& i, const Indices& r) {
    return ir::Cast(how.dtype, x(TapIndex<kNumSpatial>(a, data, out, i, r)));
  };
  return tir::Reduce(in.OutShape(), window, how.reducer, formula, how.name);
}

template <size_t kNumSpatial>
Tensors ComputePool(const ComputeArgs& in, const Pool& a, bool average) {
  std::string spatial = SpatialLetters(kNumSpatial);
  Layout data(a.layout), out(a.out_layout.value_or(a.layout));
  DLDataType dtype = in.OutDtype();
  const std::vector<WindowAxis> axes = WindowAxes(a, data, spatial);
  if (!average) {
    return {ReduceWindows<kNumSpatial>(
        in, a, data, out, axes, {dtype, ir::MinValue(dtype), tir::MaxReducer(dtype), "max_pool"})};
  }
  const DLDataType wide = WideDtype(dtype);
  const Tensor sum = ReduceWindows<kNumSpatial>(
      in, a, data, out, axes, {wide, Number(wide, 0), tir::SumReducer(wide), "pool_sum"});
  auto pads = [&](const WindowAxis& axis) { return axis.before != 0 || axis.after != 0; };
  const bool whole = a.count_include_pad || std::none_of(axes.begin(), axes.end(), pads);
  auto divided = [&](const Indices& i) -> Expr {
    Expr count(1);
    for (size_t s = 0; s < kNumSpatial; ++s) {
      Expr taps(a.pool_size[s]);
      if (!whole) {
        taps = CountedTaps(a, s, out.Index(i, spatial[s]), data.Extent(in[0]->shape, spatial[s]));
      }
      count = count * taps;
    }
    if (!whole) count = ir::Max(count, Expr(1));
    return ir::Cast(dtype, ir::Div(sum(i), ir::Cast(wide, count)));
  };
  return {tir::Compute(in.OutShape(), divided, "avg_pool")};
}

template <size_t kNumSpatial>
OpDef PoolOp(const char* name, const char* doc, bool average, const char* layout,
             std::vector<Sample> samples) {
  std::vector<AttrMember<Pool>> attrs = {
      {"pool_size", &Pool::pool_size, "Extents of the window."},
      {"strides", &Pool::strides, "Steps between windows."},
      {"padding", &Pool::padding, "Around data: one value, one per axis, or begins and ends."},
      {"dilation", &Pool::dilation, "Steps between elements of a window."},
      {"ceil_mode", &Pool::ceil_mode, "A last window may hang over the end."},
      {"count_include_pad", &Pool::count_include_pad, "An average counts the padding."},
      {"layout", &Pool::layout, "Order of data's dimensions."},
      {"out_layout", &Pool::out_layout, "Order of the result's dimensions; None: as data."}};
  attrs[5].field.default_value = average && kNumSpatial != 2;
  attrs[6].field.default_value = ffi::String(layout);
  return Define<Pool>({
      .name = name,
      .doc = doc,
      .args = {{"data", "The input."}},
      .attrs = attrs,
      .reference = average ? "out = avg_pool(data, pool_size, strides, padding, dilation, "
                             "ceil_mode, count_include_pad, layout, out_layout)"
                           : "out = max_pool(data, pool_size, strides, padding, dilation, "
                             "ceil_mode, layout, out_layout)",
      .samples = std::move(samples),
      .type = InferPool<kNumSpatial>,
      .compute = [average](const ComputeArgs& in,
                           const Pool& a) { return ComputePool<kNumSpatial>(in, a, average); },
      .complete =
          [name, layout = std::string(layout)](Pool& a) {
            SpreadTo(a.pool_size, kNumSpatial);
            SpreadTo(a.strides, kNumSpatial);
            SpreadTo(a.dilation, kNumSpatial);
            SpreadPadding(a.padding, kNumSpatial);
            RequireCount(name, "pool_size", a.pool_size, kNumSpatial);
            RequireCount(name, "strides", a.strides, kNumSpatial);
            RequireCount(name, "dilation", a.dilation, kNumSpatial);
            RequireCount(name, "padding", a.padding, 2 * kNumSpatial);
            if (a.layout.empty()) a.layout = layout;
            if (!a.out_layout || a.out_layout->empty()) a.out_layout = a.layout;
          },
      .layout = ImageLayout(),
  });
}

std::vector<OpDef> PoolFamily(bool average) {
  const char* names[2][3] = {{"nn.max_pool1d", "nn.max_pool2d", "nn.max_pool3d"},
                             {"nn.avg_pool1d", "nn.avg_pool2d", "nn.avg_pool3d"}};
  const char* doc = average ? "The average of the elements in each window."
                            : "The greatest element in each window; NaN when there is one.";
  const char** name = names[average];
  std::vector<Sample> one = {
      {{"data: f32[2, 3, 9]", "pool_size=3", "strides=2", "padding=1"}},
      {{"data: f32[1, 10, 2]", "pool_size=3", "strides=3", "ceil_mode=True", "layout='NWC'"}}};
  std::vector<Sample> two = {
      {{"data: f32[1, 2, 8, 9]", "pool_size=2", "strides=2"}},
      {{"data: f32[1, 2, 8, 9]", "pool_size=[3, 2]", "strides=[2, 1]", "padding=[1, 0, 1, 1]",
        "ceil_mode=True"}},
      {{"data: f32[1, 2, 6, 7, =4]", "pool_size=3", "padding=1", "layout='NCHW4c'"}},
      {{"data: f32[1, 7, 7, 3]", "pool_size=2", "dilation=2", "layout='NHWC'",
        "out_layout='NCHW'"}}};
  if (average) {
    two.push_back(
        {{"data: f32[1, 2, 6, 6]", "pool_size=3", "padding=1", "count_include_pad=True"}});
  }
  std::vector<Sample> three = {{{"data: f32[1, 2, 4, 5, 6]", "pool_size=2", "strides=2"}}};
  return {PoolOp<1>(name[0], doc, average, "NCW", one),
          PoolOp<2>(name[1], doc, average, "NCHW", two),
          PoolOp<3>(name[2], doc, average, "NCDHW", three)};
}

}  // namespace

std::vector<OpDef> avg_pool_ops() { return PoolFamily(true); }
std::vector<OpDef> max_pool_ops() { return PoolFamily(false); }

}  // namespace relaxvm::ops
