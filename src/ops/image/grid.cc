// SPDX-License-Identifier: Apache-2.0
// image.affine_grid: where each element of an image comes from under an affine map; and
// image.grid_sample, which reads images at such places.  Positions run from -1 to 1 along an axis.
#include "ops/layout_rule.h"
#include "ops/nn/spatial.h"

namespace relaxvm::ops {
namespace {

using ir::CallIntrin;

struct AffineGrid {
  bool align_corners = true;
};
struct GridSample {
  std::string method = "bilinear";
  std::string layout = "NCHW";
  std::string padding_mode = "zeros";
  bool align_corners = false;
};

Type InferAffineGrid(TypeCtx& ctx, const AffineGrid&) {
  TensorType x = ctx.Float(0);
  ctx.CheckRank(0, 3);
  CheckSize(ctx, 1, 2);
  auto dims = x->GetShape();
  auto size = ctx.Shape(1);
  if (!dims.has_value() || !size) return ctx.Result(std::nullopt, 4, x->dtype);
  if (ctx.Prove(ir::NotEqual((*dims)[1], Expr(2))) ||
      ctx.Prove(ir::NotEqual((*dims)[2], Expr(3)))) {
    ctx.Error(ErrorKind::kValueError, "data must have the shape (batch, 2, 3), got ",
              DescribeType(x));
  }
  return ctx.Result(Dims{(*dims)[0], Expr(2), (*size)[0], (*size)[1]}, x->dtype);
}

// The position of element `i` of `extent`.
Expr Coordinate(DLDataType real, const Expr& i, const Expr& extent, bool align_corners) {
  auto number = [&](double v) { return ir::ConstFloat(real, v); };
  Expr at = ir::Cast(real, i), size = ir::Cast(real, extent);
  if (align_corners) {
    Expr steps = ir::Max(size - number(1), number(1));
    return ir::Div(at * number(2), steps) - number(1);
  }
  return ir::Div(at * number(2) + number(1), size) - number(1);
}

Tensors ComputeAffineGrid(const ComputeArgs& in, const AffineGrid& a) {
  const Tensor& x = in[0];
  Dims out = in.OutShape();
  DLDataType dtype = in.OutDtype();
  DLDataType real = WideDtype(dtype);
  auto formula = [&](const Indices& i) -> Expr {
    Expr column = Coordinate(real, i[3], out[3], a.align_corners);
    Expr row = Coordinate(real, i[2], out[2], a.align_corners);
    auto weight = [&](int64_t k) { return Widen(x({i[0], i[1], Expr(k)})); };
    return ir::Cast(dtype, weight(0) * column + weight(1) * row + weight(2));
  };
  return {tir::Compute(out, formula, "affine_grid")};
}

Type InferGridSample(TypeCtx& ctx, const GridSample& a) {
  TensorType x = ctx.Float(0);
  TensorType grid = ctx.Float(1);
  ctx.SameDtype(0, 1);
  if (a.layout != "NCHW" && a.layout != "NCDHW" && a.layout != "NHWC" && a.layout != "NDHWC") {
    ctx.Error(ErrorKind::kValueError, "layout must be 'NCHW', 'NHWC', 'NCDHW' or 'NDHWC', got '",
              a.layout, "'");
  }
  const auto ndim = static_cast<int64_t>(a.layout.size());
  ctx.CheckRank(0, ndim);
  ctx.CheckRank(1, ndim);
  auto one_of = [&](const char* attr, const std::string& value, const char* x1, const char* x2,
                    const char* x3) {
    if (value == x1 || value == x2 || value == x3) return;
    ctx.Error(ErrorKind::kValueError, attr, " must be '", x1, "', '", x2, "' or '", x3, "', got '",
              value, "'");
  };
  one_of("method", a.method, "bilinear", "nearest", "bicubic");
  one_of("padding_mode", a.padding_mode, "zeros", "border", "reflection");
  if (a.method == "bicubic" && ndim == 5) {
    ctx.Error(ErrorKind::kNotImplementedError, "method 'bicubic' works over two axes only");
  }
  auto xs = x->GetShape(), gs = grid->GetShape();
  if (!xs.has_value() || !gs.has_value()) return ctx.Result(std::nullopt, ndim, x->dtype);
  if (ctx.Prove(ir::NotEqual((*gs)[1], Expr(ndim - 2))) ||
      ctx.Prove(ir::NotEqual((*xs)[0], (*gs)[0]))) {
    ctx.Error(ErrorKind::kValueError, "grid must have the shape (batch, ", ndim - 2,
              ", ...) with the batch of data: data ", DescribeType(x), ", grid ",
              DescribeType(grid));
  }
  const size_t channel = Layout(a.layout).At('C');
  Dims out{(*xs)[0]};
  for (int64_t d = 2; d < ndim; ++d) out.push_back((*gs)[d]);
  out.insert(out.begin() + channel, (*xs)[channel]);
  return ctx.Result(out, x->dtype);
}

// One axis: elements of data, their weights, and whether they lie inside (null: surely).
struct Tap {
  Expr index, weight, inside;
};

class Sampler {
 public:
  Sampler(const GridSample& a, DLDataType real) : a_(a), real_(real) {}

  // Where a position lies, counted in elements.
  Expr Place(const Expr& position, const Expr& extent) const {
    Expr size = ir::Cast(real_, extent);
    Expr at = a_.align_corners ? (position + Real(1)) * Real(0.5) * (size - Real(1))
                               : ((position + Real(1)) * size - Real(1)) * Real(0.5);
    // Nothing is read further out, and integers hold what is left.
    at = ir::Max(ir::Min(at, Real(1e9)), Real(-1e9));
    return a_.method == "bicubic" ? at : Folded(at, size);
  }

  std::vector<Tap> Taps(const Expr& at, const Expr& extent) const {
    Expr size = ir::Cast(real_, extent);
    if (a_.method == "nearest") {
      return {TapAt(ir::Cast(Int(64), CallIntrin(Intrin::kRound, {at})), Expr(), extent)};
    }
    Expr base = CallIntrin(Intrin::kFloor, {at});
    Expr t = at - base, first = ir::Cast(Int(64), base);
    if (a_.method == "bilinear") {
      return {TapAt(first, Real(1) - t, extent), TapAt(first + Expr(1), t, extent)};
    }
    std::vector<Expr> weights{Far(t + Real(1)), Near(t), Near(Real(1) - t), Far(Real(2) - t)};
    std::vector<Tap> taps;
    for (int64_t n = 0; n < 4; ++n) {
      Expr index = first + Expr(n - 1);
      if (a_.padding_mode != "zeros") {
        index =
            ir::Cast(Int(64), CallIntrin(Intrin::kRound, {Folded(ir::Cast(real_, index), size)}));
      }
      taps.push_back(TapAt(index, weights[n], extent));
    }
    return taps;
  }

  size_t NumTaps() const { return a_.method == "nearest" ? 1 : a_.method == "bilinear" ? 2 : 4; }

 private:
  Expr Real(double v) const { return ir::ConstFloat(real_, v); }
  // Keys' cubic with coefficient -0.75.
  Expr Near(const Expr& d) const { return ((Real(1.25) * d - Real(2.25)) * d) * d + Real(1); }
  Expr Far(const Expr& d) const {
    return ((Real(-0.75) * d + Real(3.75)) * d - Real(6)) * d + Real(3);
  }

  // A position outside, moved inside as the padding says.
  Expr Folded(const Expr& at, const Expr& size) const {
    if (a_.padding_mode == "zeros") return at;
    Expr moved = at;
    if (a_.padding_mode == "reflection") {
      Expr low = a_.align_corners ? Real(0) : Real(-0.5);
      Expr span = a_.align_corners ? ir::Max(size - Real(1), Real(0)) : size;
      Expr safe = ir::Max(span, Real(1));
      Expr distance = CallIntrin(Intrin::kAbs, {at - low});
      Expr turns = CallIntrin(Intrin::kFloor, {ir::Div(distance, safe)});
      Expr rest = distance - turns * safe;
      Expr half = turns * Real(0.5);
      Expr odd = ir::NotEqual(CallIntrin(Intrin::kFloor, {half}), half);
      Expr folded = ir::Select(odd, safe - rest, rest) + low;
      moved = ir::Select(ir::Greater(span, Real(0)), folded, Real(0));
    }
    return ir::Max(ir::Min(moved, size - Real(1)), Real(0));
  }

  Tap TapAt(const Expr& index, const Expr& weight, const Expr& extent) const {
    Expr clamped = ir::Max(ir::Min(index, extent - Expr(1)), Expr(0));
    if (a_.padding_mode != "zeros") return {clamped, weight, Expr()};
    return {clamped, weight, ir::And(ir::GreaterEqual(index, Expr(0)), ir::Less(index, extent))};
  }

  const GridSample& a_;
  DLDataType real_;
};

// The taps of the places of one axis, in memory once for all channels: what lies outside has the
// index -1.
std::vector<std::pair<Tensor, Tensor>> StoredTaps(const Sampler& sampler, const Tensor& grid,
                                                  int64_t axis, const Expr& extent,
                                                  DLDataType real) {
  Dims shape{grid->shape[0]};
  for (int d = 2; d < grid.ndim(); ++d) shape.push_back(grid->shape[d]);
  auto place = [&](const Indices& i) {
    Indices at{i[0], Expr(axis)};
    for (int d = 1; d < static_cast<int>(i.size()); ++d) at.push_back(i[d]);
    return sampler.Place(Widen(grid(at)), extent);
  };
  const Tensor places = tir::Compute(shape, place, "place");
  auto taps_at = [&](const Indices& i) { return sampler.Taps(places(i), extent); };
  std::vector<std::pair<Tensor, Tensor>> stored;
  for (size_t n = 0; n < sampler.NumTaps(); ++n) {
    auto index = [&](const Indices& i) -> Expr {
      const Tap tap = taps_at(i)[n];
      Expr narrow = ir::Cast(Int(32), tap.index);  // positions are bounded by 10^9
      Expr none = ir::Cast(Int(32), Expr(-1));
      return tap.inside.defined() ? ir::Select(tap.inside, narrow, none) : narrow;
    };
    auto weight = [&](const Indices& i) -> Expr {
      const Tap tap = taps_at(i)[n];
      return tap.weight.defined() ? tap.weight : ir::ConstFloat(real, 1);
    };
    stored.emplace_back(tir::Compute(shape, index, "tap_index"),
                        tir::Compute(shape, weight, "tap_weight"));
  }
  return stored;
}

Tensors ComputeGridSample(const ComputeArgs& in, const GridSample& a) {
  const Tensor &x = in[0], &grid = in[1];
  DLDataType dtype = in.OutDtype();
  DLDataType real = WideDtype(dtype);
  const Layout layout(a.layout);
  const int num_spatial = x.ndim() - 2;
  const size_t channel = layout.At('C'), first = channel == 1 ? 2 : 1;  // spatial axis
  Dims extents;
  for (int s = 0; s < num_spatial; ++s) extents.push_back(x->shape[first + s]);
  const Sampler sampler(a, real);
  // The grid names the last axis first.
  std::vector<std::vector<std::pair<Tensor, Tensor>>> stored;
  for (int s = 0; s < num_spatial; ++s)
    stored.push_back(StoredTaps(sampler, grid, num_spatial - 1 - s, extents[s], real));
  auto taps_of = [&](int s, const Indices& i) -> std::vector<Tap> {
    Indices at = i;
    at.erase(at.begin() + channel);
    std::vector<Tap> taps;
    for (const auto& [indices, weights] : stored[s]) {
      Expr index = ir::Cast(Int(64), indices(at));
      Expr weight = a.method == "nearest" ? Expr() : weights(at);
      if (a.padding_mode != "zeros") {
        taps.push_back({index, weight, Expr()});
      } else {
        taps.push_back({ir::Max(index, Expr(0)), weight, ir::GreaterEqual(index, Expr(0))});
      }
    }
    return taps;
  };
  auto formula = [&](const Indices& i) -> Expr {
    std::vector<std::vector<Tap>> taps;
    for (int s = 0; s < num_spatial; ++s) taps.push_back(taps_of(s, i));
    std::function<Expr(int, const Indices&, const Expr&)> along = [&](int s, const Indices& at,
                                                                      const Expr& inside) -> Expr {
      if (s == num_spatial) {
        Expr value = Widen(GuardEmpty(x(at), extents));
        return inside.defined() ? ir::Select(inside, value, ir::ConstFloat(real, 0)) : value;
      }
      Expr sum;
      for (const Tap& tap : taps[s]) {
        Indices next = at;
        next.Set(first + s, tap.index);
        Expr both = tap.inside.defined() && inside.defined() ? ir::And(inside, tap.inside)
                    : tap.inside.defined()                   ? tap.inside
                                                             : inside;
        Expr value = along(s + 1, next, both);
        if (tap.weight.defined()) value = value * tap.weight;
        sum = sum.defined() ? sum + value : value;
      }
      return sum;
    };
    return ir::Cast(dtype, along(0, i, Expr()));
  };
  return {tir::Compute(in.OutShape(), formula, "grid_sample")};
}

}  // namespace

OpDef image_affine_grid() {
  return Define<AffineGrid>({
      .name = "image.affine_grid",
      .doc = "The places that the elements of an image come from under affine maps.",
      .args = {{"data", "The maps [batch, 2, 3]."},
               {"size", "Height and width of the image.", ArgKind::kShape}},
      .attrs = {{"align_corners", &AffineGrid::align_corners,
                 "-1 and 1 are the middles of the first and last element, not their edges."}},
      .reference = "out = affine_grid(data, size, align_corners)",
      .samples = {{{"data: f32[2, =2, =3]", "size=[4, 5]"}},
                  {{"data: f32[1, =2, =3]", "size=[1, 6]", "align_corners=False"}}},
      .type = InferAffineGrid,
      .compute = ComputeAffineGrid,
  });
}

OpDef image_grid_sample() {
  return Define<GridSample>({
      .name = "image.grid_sample",
      .doc = "Images read at the places that a grid names.",
      .args = {{"data", "The images."},
               {"grid", "[batch, number of spatial axes, ...]: places, the last axis first."}},
      .attrs = {{"method", &GridSample::method, "'bilinear', 'nearest' or 'bicubic'."},
                {"layout", &GridSample::layout, "'NCHW', 'NHWC', 'NCDHW' or 'NDHWC'."},
                {"padding_mode", &GridSample::padding_mode,
                 "What lies outside: 'zeros', the 'border', or the image's 'reflection'."},
                {"align_corners", &GridSample::align_corners,
                 "-1 and 1 are the middles of the first and last element, not their edges."}},
      .reference = "out = grid_sample(data, grid, method, layout, padding_mode, align_corners)",
      .samples = {{{"data: f32[2, 3, 4, 5]", "grid: f32[2, =2, 6, 7]"}},
                  {{"data: f32[1, 2, 4, 5]", "grid: f32[1, =2, 3, 6]", "padding_mode='border'",
                    "align_corners=False"}},
                  {{"data: f32[1, 1, 4, 5]", "grid: f32[1, =2, 3, 6]", "method='bicubic'",
                    "padding_mode='reflection'"}},
                  {{"data: f32[1, 1, 4, 5]", "grid: f32[1, =2, 3, 6]", "method='nearest'",
                    "padding_mode='reflection'", "align_corners=False"}},
                  {{"data: f32[1, 2, 3, 4, 5]", "grid: f32[1, =3, 2, 3, 6]", "layout='NCDHW'"}},
                  {{"data: f32[2, 4, 5, 3]", "grid: f32[2, =2, 6, 7]", "layout='NHWC'"}},
                  {{"data: f32[2, 4, 5, 9]", "grid: f32[2, =2, 2, 3]", "layout='NHWC'",
                    "padding_mode='border'"}},
                  {{"data: f32[1, 3, 4, 5, 2]", "grid: f32[1, =3, 2, 3, 6]", "layout='NDHWC'"}}},
      .type = InferGridSample,
      .compute = ComputeGridSample,
      .layout = ImageLayout({"NCHW", "NHWC", "NCDHW", "NDHWC"}),
      .exceptions = {{"bf16", "places rounded to 8 bits fall on other elements"},
                     {"f16", "places rounded to 11 bits fall on other elements"}},
  });
}

}  // namespace relaxvm::ops
