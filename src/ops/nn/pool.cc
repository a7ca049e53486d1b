// SPDX-License-Identifier: Apache-2.0
// Pooling over windows, maximum and average, on one to three spatial axes, in every layout.
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

template <size_t kNumSpatial>
Tensors ComputePool(const ComputeArgs& in, const Pool& a, bool average) {
  std::string spatial = SpatialLetters(kNumSpatial);
  Layout data(a.layout), out(a.out_layout.value_or(a.layout));
  DLDataType dtype = in.OutDtype();
  PadAmounts pads{std::vector<Expr>(data.size(), Expr(0)), std::vector<Expr>(data.size(), Expr(0))};
  Dims window;
  for (size_t s = 0; s < kNumSpatial; ++s) {
    window.push_back(Expr(a.pool_size[s]));
    pads.before[data.At(spatial[s])] = Expr(a.padding[s]);
    int64_t hangs_over = a.ceil_mode ? a.strides[s] - 1 : 0;
    pads.after[data.At(spatial[s])] = Expr(a.padding[kNumSpatial + s] + hangs_over);
  }
  auto tap = [&](const Indices& i, const Indices& r) {
    return TapIndex<kNumSpatial>(a, data, out, i, r);
  };
  if (!average) {
    Tensor x = PadStage(in[0], pads, ir::MinValue(dtype));
    auto formula = [&](const Indices& i, const Indices& r) { return x(tap(i, r)); };
    return {tir::Reduce(in.OutShape(), window, tir::MaxReducer(dtype), formula, "max_pool")};
  }
  Tensor x = PadStage(in[0], pads, Number(dtype, 0));
  DLDataType wide = WideDtype(dtype);
  auto formula = [&](const Indices& i, const Indices& r) { return ir::Cast(wide, x(tap(i, r))); };
  Tensor sum = tir::Reduce(in.OutShape(), window, tir::SumReducer(wide), formula, "pool_sum");
  bool whole = a.count_include_pad || pads.IsZero();
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
