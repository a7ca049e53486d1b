// SPDX-License-Identifier: Apache-2.0
// nn.pad with its modes, rvm.pad with amounts that are dimensions, and nn.pixel_shuffle.
#include "ops/compute.h"
#include "ops/layout_rule.h"
#include "ops/nn/spatial.h"

namespace relaxvm::ops {
namespace {

struct Pad {
  Ints pad_width;
  double pad_value = 0.0;
  std::string pad_mode = "constant";
};

bool IsMode(const std::string& mode) {
  return mode == "constant" || mode == "reflect" || mode == "edge" || mode == "replicate" ||
         mode == "circular";
}

// pad_width: before and after the first dimension, then of the second...; below 0 cuts off.
Type InferPad(TypeCtx& ctx, const Pad& a) {
  TensorType x = ctx.Tensor(0);
  if (!IsMode(a.pad_mode)) {
    ctx.Error(ErrorKind::kValueError,
              "pad_mode must be 'constant', 'reflect', 'replicate', 'edge' ",
              "or 'circular', got '", a.pad_mode, "'");
  }
  if (a.pad_width.size() % 2 != 0) {
    ctx.Error(ErrorKind::kValueError, "pad_width needs two values for each dimension, got ",
              a.pad_width.size());
  }
  auto ndim = static_cast<int64_t>(a.pad_width.size() / 2);
  if (!x->IsUnknownRank() && x->ndim != ndim) {
    ctx.Error(ErrorKind::kValueError, "pad_width needs ", 2 * x->ndim, " values for ",
              DescribeType(x), ", got ", a.pad_width.size());
  }
  auto dims = x->GetShape();
  if (!dims.has_value()) return ctx.Result(std::nullopt, ndim, x->dtype);
  Dims result;
  for (int64_t d = 0; d < ndim; ++d) {
    int64_t before = a.pad_width[2 * d], after = a.pad_width[2 * d + 1];
    Expr size = ctx.Simplify((*dims)[d] + Expr(before + after));
    if (ctx.Prove(ir::Less(size, Expr(0)))) {
      ctx.Error(ErrorKind::kValueError, "pad_width cuts more off dimension ", d, " than its ",
                DescribeExpr((*dims)[d]), " elements");
    }
    // Reflection leaves out the border, a circle needs something to repeat.
    int64_t least = a.pad_mode == "reflect"    ? std::max(before, after) + 1
                    : a.pad_mode == "circular" ? 1
                                               : 0;
    if ((before > 0 || after > 0) && ctx.Prove(ir::Less((*dims)[d], Expr(least)))) {
      ctx.Error(ErrorKind::kValueError, "pad_mode '", a.pad_mode, "' needs at least ", least,
                " elements in dimension ", d, ", there are ", DescribeExpr((*dims)[d]));
    }
    result.push_back(size);
  }
  return ctx.Result(result, x->dtype);
}

// The element of an axis of `extent` that stands at `at`, which lies outside by at most `border`.
// Whatever the extent turns out to be, the index lies inside.
Expr SourceIndex(const std::string& mode, const Expr& at, const Expr& extent, int64_t border) {
  Expr last = extent - Expr(1);
  Expr source = at;
  if (mode == "circular" && ir::AsInt(extent).value_or(0) < border) {
    source = ir::FloorMod(at, ir::Max(extent, Expr(1)));
  } else if (mode == "circular") {
    Expr wrapped = ir::Select(ir::Less(at, Expr(0)), at + extent, at);
    source = ir::Select(ir::GreaterEqual(at, extent), at - extent, wrapped);
  } else if (mode == "reflect") {
    Expr mirrored = ir::Select(ir::Less(at, Expr(0)), Expr(0) - at, at);
    source = ir::Select(ir::Greater(at, last), last + last - at, mirrored);
  }
  return ir::Max(ir::Min(source, last), Expr(0));
}

Tensors ComputePad(const ComputeArgs& in, const Pad& a) {
  const Tensor& x = in[0];
  PadAmounts amounts;
  for (size_t d = 0; d < x->shape.size(); ++d) {
    amounts.before.push_back(Expr(a.pad_width[2 * d]));
    amounts.after.push_back(Expr(a.pad_width[2 * d + 1]));
  }
  if (a.pad_mode == "constant") {
    if (amounts.IsZero()) return {tir::Map(x, [](const Expr& e) { return e; }, "pad")};
    return {PadStage(x, amounts, Number(x.dtype(), a.pad_value))};
  }
  auto formula = [&](const Indices& i) {
    Indices at;
    auto moved = [&](size_t d) { return a.pad_width[2 * d] != 0 || a.pad_width[2 * d + 1] != 0; };
    for (size_t d = 0; d < x->shape.size(); ++d) {
      Expr from = i[d] - amounts.before[d];
      const int64_t border = std::max(a.pad_width[2 * d], a.pad_width[2 * d + 1]);
      at.push_back(moved(d) ? SourceIndex(a.pad_mode, from, x->shape[d], border) : i[d]);
    }
    if (at.empty()) return GuardEmpty(x(at), x->shape);
    // What memory runs along is a run of elements but for its ends.
    const size_t last = at.size() - 1;
    const Expr end = x(at), from = i[last] - amounts.before[last];
    at.Set(last, from);
    Expr value = ir::IfThenElse(ir::Less(from, x->shape[last]), x(at), end);
    value = ir::IfThenElse(ir::Less(from, Expr(0)), end, value);
    return GuardEmpty(moved(last) ? value : end, x->shape);
  };
  return {tir::Compute(in.OutShape(), formula, "pad")};
}

constexpr size_t kData = 0, kBefore = 1, kAfter = 2, kValue = 3;

Type InferPadBy(TypeCtx& ctx, const NoAttrs&) {
  TensorType x = ctx.Tensor(kData);
  if (ctx.Tensor(kValue)->ndim != 0)
    ctx.Error(ErrorKind::kValueError, "pad_value must have no dimensions: ", ctx.Describe(kValue));
  ctx.SameDtype(kData, kValue);
  const auto before = ctx.Shape(kBefore), after = ctx.Shape(kAfter);
  if (!before || !after || x->IsUnknownRank()) return ctx.Result(std::nullopt, x->ndim, x->dtype);
  for (size_t i : {kBefore, kAfter}) CheckSize(ctx, i, x->ndim);
  const auto dims = x->GetShape();
  if (!dims) return ctx.Result(std::nullopt, x->ndim, x->dtype);
  Dims result;
  for (size_t d = 0; d < dims->size(); ++d) {
    const Expr size = ctx.Simplify((*before)[d] + (*dims)[d] + (*after)[d]);
    if (ctx.Prove(ir::Less(size, Expr(0)))) {
      ctx.Error(ErrorKind::kValueError, "before and after cut more off dimension ", d, " than its ",
                DescribeExpr((*dims)[d]), " elements");
    }
    result.push_back(size);
  }
  return ctx.Result(result, x->dtype);
}

Tensors ComputePadBy(const ComputeArgs& in, const NoAttrs&) {
  const Dims before = in.Shape(kBefore), after = in.Shape(kAfter);
  const PadAmounts amounts{{before.begin(), before.end()}, {after.begin(), after.end()}};
  if (amounts.IsZero()) return {tir::Map(in[kData], [](const Expr& e) { return e; }, "pad")};
  return {PadStage(in[kData], amounts, in[kValue]({}))};
}

struct PixelShuffle {
  int64_t upscale_factor = 1;
};

// [..., C * r * r, H, W] -> [..., C, H * r, W * r]
Type InferPixelShuffle(TypeCtx& ctx, const PixelShuffle& a) {
  TensorType x = ctx.Tensor(0);
  if (a.upscale_factor < 1) {
    ctx.Error(ErrorKind::kValueError, "upscale_factor must be at least 1, got ", a.upscale_factor);
  }
  if (x->IsUnknownRank()) return ctx.Like(x, x->dtype);
  if (x->ndim < 3) {
    ctx.Error(ErrorKind::kValueError, "data must have at least 3 dimensions, got ",
              DescribeType(x));
  }
  auto dims = x->GetShape();
  if (!dims.has_value()) return ctx.Result(std::nullopt, x->ndim, x->dtype);
  Expr r(a.upscale_factor);
  Dims result = *dims;
  size_t c = dims->size() - 3;
  if (ctx.Prove(ir::NotEqual(ir::FloorMod((*dims)[c], r * r), Expr(0)))) {
    ctx.Error(ErrorKind::kValueError, DescribeExpr((*dims)[c]), " channels are no multiple of ",
              a.upscale_factor, " * ", a.upscale_factor);
  }
  result.Set(c, ctx.Simplify(ir::FloorDiv((*dims)[c], r * r)));
  result.Set(c + 1, ctx.Simplify((*dims)[c + 1] * r));
  result.Set(c + 2, ctx.Simplify((*dims)[c + 2] * r));
  return ctx.Result(result, x->dtype);
}

Tensors ComputePixelShuffle(const ComputeArgs& in, const PixelShuffle& a) {
  Expr r(a.upscale_factor);
  auto formula = [&](const Indices& i) {
    size_t c = i.size() - 3;
    Indices at = i;
    Expr within = ir::FloorMod(i[c + 1], r) * r + ir::FloorMod(i[c + 2], r);
    at.Set(c, i[c] * r * r + within);
    at.Set(c + 1, ir::FloorDiv(i[c + 1], r));
    at.Set(c + 2, ir::FloorDiv(i[c + 2], r));
    return in[0](at);
  };
  return {tir::Compute(in.OutShape(), formula, "pixel_shuffle")};
}

}  // namespace

OpDef nn_pad() {
  return Define<Pad>({
      .name = "nn.pad",
      .doc = "Elements added around a tensor: constant, mirrored, repeated or from the other end.",
      .args = {{"data", "The tensor."}},
      .attrs = {{"pad_width", &Pad::pad_width,
                 "How many before and after each dimension; below 0 cuts off.", true},
                {"pad_value", &Pad::pad_value, "What a constant pad consists of."},
                {"pad_mode", &Pad::pad_mode,
                 "'constant', 'reflect', 'replicate' ('edge') or 'circular', which goes round as "
                 "often as it takes."}},
      .reference = "out = pad(data, pad_width, pad_value, pad_mode)",
      .samples = {{{"data: f32[3, 4]", "pad_width=[1, 2, 0, 3]", "pad_value=2.5"}},
                  {{"data: f32[4, 5]", "pad_width=[2, 1, 0, 3]", "pad_mode='reflect'"}},
                  {{"data: f32[3]", "pad_width=[2, 2]", "pad_mode='edge'"}},
                  {{"data: f32[4]", "pad_width=[2, 3]", "pad_mode='circular'"}},
                  {{"data: f32[2, 3]", "pad_width=[5, 1, 4, 7]", "pad_mode='circular'"}},
                  {{"data: f32[4, 5]", "pad_width=[-1, 1, 0, -2]"}}},
      .type = InferPad,
      .compute = ComputePad,
      .layout = LayoutOf(LayoutRule::Kind::kPad, "pad_width"),
  });
}

OpDef rvm_pad() {
  return Define<NoAttrs>({
      .name = "rvm.pad",
      .doc = "Elements of one value added around a tensor; how many may depend on dimensions.",
      .args = {{"data", "The tensor."},
               {"before", "How many before each dimension; below 0 cuts off.", ArgKind::kShape},
               {"after", "How many after each dimension; below 0 cuts off.", ArgKind::kShape},
               {"pad_value", "A tensor without dimensions, of the element type of data."}},
      .reference = "out = pad(data, np.ravel(list(zip(before, after))), pad_value, 'constant')",
      .samples = {{{"data: f32[3, 4]", "before=[1, 0]", "after=[2, 3]", "pad_value: f32[]"}},
                  {{"data: i8[5]", "before=[0]", "after=[0]", "pad_value: i8[]"}},
                  {{"data: f32[4, 5]", "before=[-1, 0]", "after=[1, -2]", "pad_value: f32[]"}}},
      .type = InferPadBy,
      .compute = ComputePadBy,
      .layout = LayoutOf(LayoutRule::Kind::kShapes),
  });
}

OpDef nn_pixel_shuffle() {
  return Define<PixelShuffle>({
      .name = "nn.pixel_shuffle",
      .doc = "Channels become pixels: each group of r * r channels fills an r times finer grid.",
      .args = {{"data", "The tensor; channels, height and width come last."}},
      .attrs = {{"upscale_factor", &PixelShuffle::upscale_factor, "r.", true}},
      .reference = "out = pixel_shuffle(data, upscale_factor)",
      .samples = {{{"data: f32[2, 8, 3, 4]", "upscale_factor=2"}}},
      .type = InferPixelShuffle,
      .compute = ComputePixelShuffle,
  });
}

}  // namespace relaxvm::ops
