// SPDX-License-Identifier: Apache-2.0
// Averages over windows that share out an axis evenly: window o of n covers
// [floor(o * extent / n), ceil((o + 1) * extent / n)).
#include "ops/layout_rule.h"
#include "ops/nn/spatial.h"

namespace relaxvm::ops {
namespace {

struct AdaptivePool {
  std::optional<Ints> output_size;
  std::string layout;
  std::optional<std::string> out_layout;
};

bool IsNumber(DLDataType t) { return IsFloat(t) || IsInteger(t); }

template <size_t kNumSpatial>
Type InferAdaptive(TypeCtx& ctx, const AdaptivePool& a) {
  std::string spatial = SpatialLetters(kNumSpatial);
  TensorType x = ctx.TensorOf(0, IsNumber, "a tensor of numbers");
  Layout data(ctx, a.layout, "NC" + spatial, "layout");
  Layout out(ctx, a.out_layout.value_or(a.layout), "NC" + spatial, "out_layout");
  ctx.CheckRank(0, data.size());
  if (a.output_size) CheckSpatial(ctx, "output_size", *a.output_size, kNumSpatial, 1);
  const bool same = !a.output_size && a.out_layout.value_or(a.layout) == a.layout;
  if (same && x->shape.has_value()) return ctx.Like(x);
  auto dims = x->GetShape();
  if (!dims.has_value()) return ctx.Result(std::nullopt, out.size(), x->dtype);
  auto dim = [&](char letter) -> Expr {
    if (letter == 'N' || letter == 'C' || !a.output_size) return data.Extent(*dims, letter);
    return Expr((*a.output_size)[spatial.find(letter)]);
  };
  return ctx.Result(out.Shape(dim), x->dtype);
}

// The greatest window: exact where the extents are known.
Expr GreatestWindow(const Expr& extent, const Expr& count) {
  auto e = ir::AsInt(extent);
  auto n = ir::AsInt(count);
  if (n.has_value() && *n == 1) return extent;
  if (e.has_value() && n.has_value()) {
    int64_t greatest = 0;
    if (*e % *n == 0) return Expr(*e / *n);
    for (int64_t o = 0; o < *n && o < *e; ++o) {
      greatest = std::max(greatest, ((o + 1) * *e + *n - 1) / *n - o * *e / *n);
    }
    return Expr(greatest);
  }
  if (ir::StructuralEqual(extent, count)) return Expr(1);
  return ir::FloorDiv(extent + count - Expr(1), count) + Expr(1);
}

template <size_t kNumSpatial>
Tensors ComputeAdaptive(const ComputeArgs& in, const AdaptivePool& a) {
  std::string spatial = SpatialLetters(kNumSpatial);
  Layout data(a.layout), out(a.out_layout.value_or(a.layout));
  const Tensor& x = in[0];
  Dims shape = in.OutShape();
  DLDataType dtype = in.OutDtype();
  // A window of small integers sums up past their range.
  DLDataType wide = IsInteger(dtype) ? (IsUInt(dtype) ? UInt(64) : Int(64)) : WideDtype(dtype);
  struct Axis {
    Expr extent, count, greatest;
    bool even;  // every window is the greatest
    Expr Begin(const Expr& o) const { return ir::FloorDiv(o * extent, count); }
    Expr End(const Expr& o) const {
      return ir::FloorDiv((o + Expr(1)) * extent + count - Expr(1), count);
    }
  };
  std::vector<Axis> axes;
  Dims window;
  for (char letter : spatial) {
    Axis axis{data.Extent(x->shape, letter), out.Extent(shape, letter), Expr(), false};
    axis.greatest = GreatestWindow(axis.extent, axis.count);
    auto e = ir::AsInt(axis.extent);
    auto n = ir::AsInt(axis.count);
    axis.even = (n.has_value() && *n == 1) || ir::StructuralEqual(axis.extent, axis.count) ||
                (e.has_value() && n.has_value() && *e % *n == 0);
    window.push_back(axis.greatest);
    axes.push_back(axis);
  }
  auto formula = [&](const Indices& i, const Indices& r) -> Expr {
    Expr inside = ir::BoolImm(true);
    Indices at = data.Order([&](char letter) -> Expr {
      Expr o = out.Index(i, letter);
      if (letter == 'N' || letter == 'C') return o;
      size_t s = spatial.find(letter);
      Expr from = axes[s].Begin(o) + r[s];
      if (!axes[s].even) inside = ir::And(inside, ir::Less(from, axes[s].End(o)));
      return from;
    });
    return ir::IfThenElse(inside, ir::Cast(wide, x(at)), Number(wide, 0));
  };
  Tensor sum = tir::Reduce(shape, window, tir::SumReducer(wide), formula, "adaptive_pool_sum");
  auto divided = [&](const Indices& i) {
    Expr count(1);
    for (size_t s = 0; s < kNumSpatial; ++s) {
      Expr o = out.Index(i, spatial[s]);
      count = count * (axes[s].even ? axes[s].greatest : axes[s].End(o) - axes[s].Begin(o));
    }
    return ir::Cast(dtype, ir::Div(sum(i), ir::Cast(wide, count)));
  };
  return {tir::Compute(shape, divided, "adaptive_avg_pool")};
}

template <size_t kNumSpatial>
OpDef AdaptiveOp(const char* name, const char* layout, std::vector<Sample> samples) {
  std::vector<AttrMember<AdaptivePool>> attrs = {
      {"output_size", &AdaptivePool::output_size, "Number of windows; None: as data."},
      {"layout", &AdaptivePool::layout, "Order of data's dimensions."},
      {"out_layout", &AdaptivePool::out_layout, "Order of the result's; None: as data."}};
  attrs[1].field.default_value = ffi::String(layout);
  return Define<AdaptivePool>({
      .name = name,
      .doc = "Averages over windows that share out each axis evenly.",
      .args = {{"data", "The input."}},
      .attrs = attrs,
      .reference = "out = adaptive_avg_pool(data, output_size, layout, out_layout)",
      .samples = std::move(samples),
      .type = InferAdaptive<kNumSpatial>,
      .compute = ComputeAdaptive<kNumSpatial>,
      .complete =
          [name, layout = std::string(layout)](AdaptivePool& a) {
            if (a.output_size) {
              SpreadTo(*a.output_size, kNumSpatial);
              RequireCount(name, "output_size", *a.output_size, kNumSpatial);
            }
            if (a.layout.empty()) a.layout = layout;
            if (!a.out_layout || a.out_layout->empty()) a.out_layout = a.layout;
          },
      .layout = ImageLayout(),
  });
}

}  // namespace

std::vector<OpDef> adaptive_pool_ops() {
  return {AdaptiveOp<1>("nn.adaptive_avg_pool1d", "NCW",
                        {{{"data: f32[2, 3, 10]", "output_size=4"}}, {{"data: f32[2, 3, 5]"}}}),
          AdaptiveOp<2>("nn.adaptive_avg_pool2d", "NCHW",
                        {{{"data: f32[1, 2, 7, 9]", "output_size=1"}},
                         {{"data: f32[1, 8, 7, 2]", "output_size=[4, 3]", "layout='NHWC'"}}}),
          AdaptiveOp<3>("nn.adaptive_avg_pool3d", "NCDHW",
                        {{{"data: f32[1, 2, 4, 5, 6]", "output_size=[2, 2, 3]"}}})};
}

}  // namespace relaxvm::ops
