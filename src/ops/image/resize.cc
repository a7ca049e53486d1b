// SPDX-License-Identifier: Apache-2.0
// image.resize2d and image.resize3d: nearest element, linear and cubic interpolation, with the
// coordinate transformations and roundings that ONNX defines.
#include <tvm/ffi/cast.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "ops/layout_rule.h"
#include "ops/nn/spatial.h"

namespace relaxvm::ops {
namespace {

using ir::CallIntrin;

struct Resize {
  std::vector<double> roi;
  std::string layout;
  std::string method = "linear";
  std::string coordinate_transformation_mode = "half_pixel";
  std::string rounding_method = "round";
  double cubic_alpha = -0.75;
  int64_t cubic_exclude = 0;
  double extrapolation_value = 0.0;
  std::optional<DLDataType> out_dtype;
  std::vector<double> scales;
};

void CheckOneOf(const TypeCtx& ctx, const char* attr, const std::string& value,
                std::initializer_list<const char*> allowed) {
  std::string names;
  for (const char* name : allowed) {
    if (value == name) return;
    names += (names.empty() ? "'" : ", '") + std::string(name) + "'";
  }
  ctx.Error(ErrorKind::kValueError, attr, " must be one of ", names, ", got '", value, "'");
}

bool IsNegative(double value) { return !(value >= 0); }

bool IsNumber(DLDataType t) { return IsFloat(t) || IsInteger(t); }

template <size_t kNumSpatial>
Type InferResize(TypeCtx& ctx, const Resize& a) {
  std::string spatial = SpatialLetters(kNumSpatial);
  TensorType x = ctx.TensorOf(0, IsNumber, "a tensor of numbers");
  Layout layout(ctx, a.layout, "NC" + spatial, "layout");
  ctx.CheckRank(0, layout.size());
  CheckSize(ctx, 1, kNumSpatial);
  CheckOneOf(ctx, "method", a.method, {"nearest_neighbor", "linear", "cubic"});
  CheckOneOf(ctx, "coordinate_transformation_mode", a.coordinate_transformation_mode,
             {"half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel",
              "tf_half_pixel_for_nn", "tf_crop_and_resize"});
  CheckOneOf(ctx, "rounding_method", a.rounding_method,
             {"round", "floor", "ceil", "round_prefer_floor", "round_prefer_ceil", ""});
  bool crop = a.coordinate_transformation_mode == "tf_crop_and_resize";
  if (!a.roi.empty() || crop) {
    if (a.roi.size() != 2 * kNumSpatial) {
      ctx.Error(ErrorKind::kValueError, "roi needs ", 2 * kNumSpatial,
                " values (begins, then ends), got ", a.roi.size());
    }
  }
  if (!a.scales.empty()) {
    if (a.scales.size() != kNumSpatial || std::any_of(a.scales.begin(), a.scales.end(), IsNegative))
      ctx.Error(ErrorKind::kValueError, "scales needs ", kNumSpatial, " values, none below 0");
    if (a.coordinate_transformation_mode.starts_with("tf_"))
      ctx.Error(ErrorKind::kValueError, "scales have no meaning for '",
                a.coordinate_transformation_mode, "'");
  }
  if (a.method == "cubic" && kNumSpatial == 3) {
    ctx.Error(ErrorKind::kNotImplementedError, "method 'cubic' works over two axes only");
  }
  DLDataType dtype = a.out_dtype.value_or(x->dtype);
  auto dims = x->GetShape();
  auto size = ctx.Shape(1);
  if (!dims.has_value() || !size) return ctx.Result(std::nullopt, layout.size(), dtype);
  auto dim = [&](char letter) -> Expr {
    if (letter == 'N' || letter == 'C') return layout.Extent(*dims, letter);
    return (*size)[spatial.find(letter)];
  };
  return ctx.Result(layout.Shape(dim).Map([&](const Expr& e) { return ctx.Simplify(e); }), dtype);
}

// One spatial axis of a resize.
struct Axis {
  Expr have, want;    // extents
  double begin, end;  // region of interest, for tf_crop_and_resize
  DLDataType real;    // of positions and weights: float64 for data of float64, else float32
  double scale = 0;   // what `want` is to `have`; 0: their ratio

  Expr Real(double value) const { return ir::ConstFloat(real, value); }
  Expr Real(const Expr& e) const { return ir::Cast(real, e); }
};

// Where element `i` of the result lies in data.  Products are formed before quotients, so that
// positions on an element come out exactly.
Expr Position(const std::string& mode, const Axis& axis, const Expr& i) {
  Expr have = axis.Real(axis.have), want = axis.Real(axis.want), at = axis.Real(i);
  Expr half = axis.Real(0.5);
  auto on_data = [&](const Expr& place) {
    return axis.scale > 0 ? ir::Div(place, axis.Real(axis.scale)) : ir::Div(place * have, want);
  };
  if (axis.scale > 0) want = have * axis.Real(axis.scale);
  Expr half_pixel = on_data(at + half) - half;
  if (mode == "half_pixel") return half_pixel;
  if (mode == "pytorch_half_pixel") {
    return ir::Select(ir::Greater(want, axis.Real(1.0)), half_pixel, axis.Real(0.0));
  }
  if (mode == "tf_half_pixel_for_nn") return on_data(at + half);
  if (mode == "asymmetric") return on_data(at);
  Expr steps = ir::Max(want - axis.Real(1.0), axis.Real(1.0));
  if (mode == "align_corners") return ir::Div(at * (have - axis.Real(1.0)), steps);
  // tf_crop_and_resize
  Expr reach = have - axis.Real(1.0);
  Expr along = ir::Div(at * axis.Real(axis.end - axis.begin) * reach, steps);
  Expr several = axis.Real(axis.begin) * reach + along;
  return ir::Select(ir::Greater(axis.want, Expr(1)), several,
                    axis.Real(0.5 * (axis.begin + axis.end)) * reach);
}

Expr RoundPosition(const Resize& a, const Expr& at) {
  std::string method = a.rounding_method;
  if (method.empty()) {
    method = a.coordinate_transformation_mode == "align_corners" ? "round" : "floor";
  }
  if (method == "round") return CallIntrin(Intrin::kRound, {at});
  if (method == "floor") return CallIntrin(Intrin::kFloor, {at});
  if (method == "ceil") return CallIntrin(Intrin::kCeil, {at});
  if (method == "round_prefer_floor")
    return CallIntrin(Intrin::kCeil, {at - Number(at.dtype(), 0.5)});
  return CallIntrin(Intrin::kFloor, {at + Number(at.dtype(), 0.5)});
}

Expr Clamp(const Expr& at, const Expr& extent) {
  return ir::Max(ir::Min(at, extent - Expr(1)), Expr(0));
}

// What one axis contributes: elements of data and their weights.
struct Tap {
  Expr index, weight;  // weight null: 1
};

// Keys' cubic: weights of the four elements around a position `t` past the second.
std::vector<Tap> CubicTaps(const Resize& a, const Axis& axis, const Expr& at) {
  double k = a.cubic_alpha;
  Expr base = CallIntrin(Intrin::kFloor, {at});
  Expr t = at - base;
  Expr first = ir::Cast(Int(64), base) - Expr(1);
  auto near = [&](const Expr& d) {  // |d| <= 1
    return ((axis.Real(k + 2) * d - axis.Real(k + 3)) * d) * d + axis.Real(1.0);
  };
  auto far = [&](const Expr& d) {  // 1 < |d| < 2
    return ((axis.Real(k) * d - axis.Real(5 * k)) * d + axis.Real(8 * k)) * d - axis.Real(4 * k);
  };
  std::vector<Expr> weights{far(t + axis.Real(1.0)), near(t), near(axis.Real(1.0) - t),
                            far(axis.Real(2.0) - t)};
  std::vector<Tap> taps;
  Expr total = axis.Real(0.0);
  for (int n = 0; n < 4; ++n) {
    Expr index = first + Expr(n);
    if (a.cubic_exclude != 0) {
      Expr inside = ir::And(ir::GreaterEqual(index, Expr(0)), ir::Less(index, axis.have));
      weights[n] = ir::Select(inside, weights[n], axis.Real(0.0));
      total = total + weights[n];
    }
    taps.push_back({Clamp(index, axis.have), weights[n]});
  }
  if (a.cubic_exclude != 0) {
    for (Tap& tap : taps) tap.weight = ir::Div(tap.weight, total);
  }
  return taps;
}

// The number of elements that a scale makes one of; 0: no whole number.
int64_t StepOf(const Axis& axis) {
  if (axis.scale <= 0 || axis.scale > 1) return 0;
  const double step = std::round(1 / axis.scale);
  const bool is_whole = static_cast<float>(1 / step) == static_cast<float>(axis.scale);
  return is_whole && step <= 1 << 24 ? static_cast<int64_t>(step) : 0;
}

// How many elements of the result each one becomes; 0: not known to be a whole number.
int64_t TimesOf(const Axis& axis) {
  ffi::Map<ir::Var, Expr> ones;
  for (const ir::Var& v : ir::FreeVars(axis.have)) ones.Set(v, Expr(1));
  const auto facts = MakeTypeContext();
  const auto have = ir::AsInt(facts->Simplify(ir::Substitute(axis.have, ones)));
  const auto want = ir::AsInt(facts->Simplify(ir::Substitute(axis.want, ones)));
  if (have.value_or(0) <= 0 || want.value_or(0) <= 0 || *want % *have != 0) return 0;
  const int64_t times = *want / *have;
  return ir::IsIntValue(facts->Simplify(axis.want - axis.have * Expr(times)), 0) ? times : 0;
}

// The element, where it is found without fractions; null: it is not.
Expr WholePosition(const Resize& a, const Axis& axis, const Expr& i) {
  const int64_t step = StepOf(axis);
  if (axis.scale > 0 && step == 0) return Expr();
  if (step <= 1 && ir::StructuralEqual(axis.have, axis.want) &&
      a.coordinate_transformation_mode != "tf_crop_and_resize" &&
      a.coordinate_transformation_mode != "tf_half_pixel_for_nn") {
    return i;
  }
  const bool floor = a.rounding_method == "floor" || a.rounding_method.empty();
  if (a.method != "nearest_neighbor" || !floor || a.coordinate_transformation_mode != "asymmetric")
    return Expr();
  if (step == 0) {
    if (const int64_t times = TimesOf(axis)) return ir::FloorDiv(i, times);
    return Clamp(ir::FloorDiv(i * axis.have, axis.want), axis.have);
  }
  const bool is_inside = MakeTypeContext()->Prove(ir::LessEqual(axis.want * Expr(step), axis.have));
  return is_inside ? i * Expr(step) : Clamp(i * Expr(step), axis.have);
}

// Is the element at `i` found so easily that vectors along the axis need no table?
bool IsWholeAlongVectors(const Axis& axis) {
  constexpr int64_t kMaxStep = 4, kMaxOdd = 7;
  if (StepOf(axis) > 0) return StepOf(axis) <= kMaxStep;
  const auto have = ir::AsInt(axis.have), want = ir::AsInt(axis.want);
  const int64_t times = TimesOf(axis);
  if (times == 0 && (!have || !want || *have == 0)) return false;
  if (times == 0 && *have % *want == 0) return *have / *want <= kMaxStep;
  int64_t period = times > 0 ? times : *want / std::gcd(*have, *want);
  while (period % 2 == 0) period /= 2;
  return period <= kMaxOdd && (times > 0 || *have < *want);
}

std::vector<Tap> TapsOf(const Resize& a, const Axis& axis, const Expr& i) {
  if (const Expr whole = WholePosition(a, axis, i); whole.defined()) return {{whole, Expr()}};
  Expr at = Position(a.coordinate_transformation_mode, axis, i);
  if (a.method == "nearest_neighbor") {
    return {{Clamp(ir::Cast(Int(64), RoundPosition(a, at)), axis.have), Expr()}};
  }
  if (a.method == "cubic") return CubicTaps(a, axis, at);
  // Outside of data its border goes on: the position is moved inside first.
  Expr inside = ir::Max(ir::Min(at, axis.Real(axis.have - Expr(1))), axis.Real(0.0));
  Expr base = CallIntrin(Intrin::kFloor, {inside});
  Expr t = inside - base;
  Expr index = ir::Cast(Int(64), base);
  return {{index, axis.Real(1.0) - t}, {ir::Min(index + Expr(1), axis.have - Expr(1)), t}};
}

// What is read along one axis of the result, in memory: positions cost more than all the rest.
struct TapTables {
  std::vector<Tensor> index, weight;

  // Of elements of rows, where pixels have several each.
  TapTables(const Resize& a, const Axis& axis, int64_t per_pixel = 1) {
    const size_t count = TapsOf(a, axis, Expr(0)).size();
    const Dims places{axis.want * Expr(per_pixel)};
    auto taps = [&](const Expr& i) { return TapsOf(a, axis, ir::FloorDiv(i, per_pixel)); };
    for (size_t k = 0; k < count; ++k) {
      index.push_back(tir::Compute(
          places,
          [&](const Indices& i) {
            const Expr first = taps(i[0])[k].index * Expr(per_pixel);
            return ir::Cast(Int(32), first + ir::FloorMod(i[0], per_pixel));
          },
          "at"));
      if (!TapsOf(a, axis, Expr(0))[k].weight.defined()) continue;
      weight.push_back(
          tir::Compute(places, [&](const Indices& i) { return taps(i[0])[k].weight; }, "weight"));
    }
  }

  std::vector<Tap> At(const Expr& place) const {
    std::vector<Tap> taps;
    for (size_t k = 0; k < index.size(); ++k) {
      const Expr share = k < weight.size() ? weight[k]({place}) : Expr();
      taps.push_back({ir::Cast(Int(64), index[k]({place})), share});
    }
    return taps;
  }
};

// The sum of `value` at the taps, times their weights.
Expr Interpolated(const std::vector<Tap>& taps, const std::function<Expr(const Expr&)>& value) {
  Expr sum;
  for (const Tap& tap : taps) {
    Expr one = value(tap.index);
    if (tap.weight.defined()) one = ir::Cast(tap.weight.dtype(), one) * tap.weight;
    sum = sum.defined() ? sum + one : one;
  }
  return sum;
}

// Are most elements along the axis not used?
bool Skips(const Axis& axis) {
  if (axis.scale > 0) return axis.scale < 0.25;
  const auto have = ir::AsInt(axis.have), want = ir::AsInt(axis.want);
  return have.has_value() && want.has_value() && have.value() > 4 * want.value();
}

// Is an image resized along its rows first, each row once?  Not where most rows would not be used.
bool RowsFirst(const Resize& a, const Layout& layout, const std::vector<Axis>& axes) {
  if (a.method == "nearest_neighbor" || axes.size() < 2) return false;
  if (layout.At(SpatialLetters(axes.size()).back()) + 1 != layout.size()) return false;
  if (!TapsOf(a, axes.back(), Expr(0))[0].weight.defined()) return false;
  return std::none_of(axes.begin(), axes.end() - 1, Skips);
}

// Pixels of few channels, which rows of pixels are resized as rows of elements for, and their
// columns first; 0: it is something else.
int64_t FewChannels(const Resize& a, const Layout& layout, const std::vector<Axis>& axes,
                    const Expr& channels) {
  constexpr int64_t kMost = 8;
  const bool is_pixels = layout.At('W') + 2 == layout.size() && layout.At('C') + 1 == layout.size();
  if (a.method == "nearest_neighbor" || !is_pixels || Skips(axes.back())) return 0;
  if (!TapsOf(a, axes.back(), Expr(0))[0].weight.defined()) return 0;
  const int64_t count = ir::AsInt(channels).value_or(0);
  return count <= kMost ? count : 0;
}

template <size_t kNumSpatial>
Tensors ComputeResize(const ComputeArgs& in, const Resize& a) {
  std::string spatial = SpatialLetters(kNumSpatial);
  Layout layout(a.layout);
  const Tensor& x = in[0];
  Dims out = in.OutShape();
  DLDataType dtype = in.OutDtype();
  std::vector<Axis> axes;
  for (size_t s = 0; s < kNumSpatial; ++s) {
    size_t d = layout.At(spatial[s]);
    bool roi = !a.roi.empty();
    axes.push_back({x->shape[d], out[d], roi ? a.roi[s] : 0, roi ? a.roi[kNumSpatial + s] : 1,
                    x.dtype() == Float(64) ? Float(64) : Float(32),
                    a.scales.empty() ? 0 : a.scales[s]});
  }
  // An axis without elements matters only where the result has some all the same.
  Dims may_be_empty;
  std::unique_ptr<ir::TypeContext> facts = MakeTypeContext();
  for (const Axis& axis : axes) {
    const auto* var = axis.have.template as<ir::VarObj>();
    ffi::Map<ir::Var, Expr> none;
    if (var != nullptr) none.Set(ffi::GetRef<ir::Var>(var), Expr(0));
    Expr left = var == nullptr ? axis.want : facts->Simplify(ir::Substitute(axis.want, none));
    if (!ir::IsIntValue(left, 0)) may_be_empty.push_back(axis.have);
  }
  // Data, or data that already has the result's last axis.
  Tensor from = x;
  size_t num_left = kNumSpatial;
  if (RowsFirst(a, layout, axes)) {
    --num_left;
    const Axis& axis = axes.back();
    TapTables tables(a, axis);
    Dims dims = x->shape;
    dims.Set(dims.size() - 1, axis.want);
    from = tir::Compute(
        dims,
        [&](const Indices& i) {
          return Interpolated(tables.At(i.back()), [&](const Expr& place) {
            Indices at = i;
            at.Set(i.size() - 1, place);
            return ir::Cast(axis.real, GuardEmpty(x(at), may_be_empty));
          });
        },
        "rows");
  }
  const bool channels_last = layout.At(spatial.back()) + 1 != layout.size();
  std::vector<std::optional<TapTables>> tables(kNumSpatial);
  for (size_t s = 0; s < num_left; ++s) {
    const bool is_whole = WholePosition(a, axes[s], Expr(0)).defined();
    const bool is_last = layout.At(spatial[s]) + 1 == layout.size();
    // Which element is the nearest is asked once along each axis; where each pixel is a run of
    // channels, so is everything.
    const bool in_memory = is_whole ? is_last && !IsWholeAlongVectors(axes[s])
                                    : a.method == "nearest_neighbor" || channels_last;
    if (in_memory) tables[s].emplace(a, axes[s]);
  }
  auto taps_of = [&](size_t s, const Expr& place) {
    return tables[s].has_value() ? tables[s]->At(place) : TapsOf(a, axes[s], place);
  };
  // Interpolates along the axes from s on, with `at` chosen along those before it.
  std::function<Expr(size_t, size_t, const Indices&, const Indices&)> along =
      [&](size_t s, size_t end, const Indices& i, const Indices& at) -> Expr {
    if (s == end) return GuardEmpty(from(at), may_be_empty);
    const size_t d = layout.At(spatial[s]);
    return Interpolated(taps_of(s, i[d]), [&](const Expr& place) {
      Indices next = at;
      next.Set(d, place);
      return along(s + 1, end, i, next);
    });
  };
  // Lines that are as high as the result, of elements of all channels.
  const int64_t few = FewChannels(a, layout, axes, x->shape[layout.At('C')]);
  Tensor lines;
  std::optional<TapTables> of_lines;
  if (few > 0) {
    Dims dims = out;
    dims.pop_back();
    dims.Set(dims.size() - 1, axes.back().have * Expr(few));
    lines = tir::Compute(
        dims,
        [&](const Indices& i) {
          Indices pixel = i;
          pixel.Set(i.size() - 1, ir::FloorDiv(i.back(), few));
          pixel.push_back(ir::FloorMod(i.back(), few));
          return ir::Cast(axes.back().real, along(0, kNumSpatial - 1, pixel, pixel));
        },
        "lines");
    of_lines.emplace(a, axes.back(), few);
  }
  auto formula = [&](const Indices& i) -> Expr {
    Expr value;
    if (few > 0) {
      Indices at = i;
      at.pop_back();
      value = Interpolated(of_lines->At(at.back() * Expr(few) + i.back()), [&](const Expr& place) {
        at.Set(at.size() - 1, place);
        return lines(at);
      });
    } else {
      value = along(0, num_left, i, i);
    }
    // Integers are rounded, as the interpolated values lie between them.
    if (IsFloat(value.dtype()) && IsInteger(dtype)) value = CallIntrin(Intrin::kRound, {value});
    value = ir::Cast(dtype, value);
    if (a.coordinate_transformation_mode != "tf_crop_and_resize") return value;
    Expr inside = ir::BoolImm(true);
    for (size_t s = 0; s < kNumSpatial; ++s) {
      Expr at = Position(a.coordinate_transformation_mode, axes[s], i[layout.At(spatial[s])]);
      inside = ir::And(inside, ir::GreaterEqual(at, Number(at.dtype(), 0)));
      inside = ir::And(inside, ir::LessEqual(at, axes[s].Real(axes[s].have - Expr(1))));
    }
    return ir::Select(inside, value, Number(dtype, a.extrapolation_value));
  };
  return {tir::Compute(out, formula, "resize")};
}

template <size_t kNumSpatial>
OpDef ResizeOp(const char* name, const char* layout, std::vector<Sample> samples) {
  std::vector<AttrMember<Resize>> attrs = {
      {"roi", &Resize::roi, "Part of data for 'tf_crop_and_resize': begins, then ends, in [0, 1]."},
      {"layout", &Resize::layout, "Order of data's dimensions."},
      {"method", &Resize::method, "'nearest_neighbor', 'linear' or 'cubic'."},
      {"coordinate_transformation_mode", &Resize::coordinate_transformation_mode,
       "How positions of the result map to data."},
      {"rounding_method", &Resize::rounding_method, "Which element is the nearest."},
      {"cubic_alpha", &Resize::cubic_alpha, "Keys' coefficient."},
      {"cubic_exclude", &Resize::cubic_exclude, "Not 0: elements outside get weight 0."},
      {"extrapolation_value", &Resize::extrapolation_value, "Outside, for 'tf_crop_and_resize'."},
      {"out_dtype", &Resize::out_dtype, "Element type of the result; None: as data."},
      {"scales", &Resize::scales,
       "What the result's extents are to data's, where they are rounded; 0, or no scales: the "
       "ratio of the extents."}};
  attrs[0].field.default_value =
      AttrCodec<std::vector<double>>::Encode(std::vector<double>(2 * kNumSpatial));
  attrs[1].field.default_value = ffi::String(layout);
  return Define<Resize>({
      .name = name,
      .doc = "Images in another size.",
      .args = {{"data", "The images."}, {"size", "Their new extents.", ArgKind::kShape}},
      .attrs = attrs,
      .reference =
          "out = resize(data, size, roi, layout, method, coordinate_transformation_mode, "
          "rounding_method, cubic_alpha, cubic_exclude, extrapolation_value, out_dtype, scales)",
      .samples = std::move(samples),
      .type = InferResize<kNumSpatial>,
      .compute = ComputeResize<kNumSpatial>,
      .complete =
          [layout = std::string(layout)](Resize& a) {
            if (a.layout.empty()) a.layout = layout;
            if (a.roi.empty()) a.roi.assign(2 * kNumSpatial, 0.0);
          },
      .layout = ImageLayout(),
  });
}

}  // namespace

OpDef image_resize2d() {
  return ResizeOp<2>(
      "image.resize2d", "NCHW",
      {{{"data: f32[1, 2, 5, 6]", "size=[10, 12]"}},
       {{"data: f32[1, 2, 5, 6]", "size=[7, 9]"}},
       {{"data: f32[1, 5, 6, 2]", "size=[10, 18]", "layout='NHWC'", "method='nearest_neighbor'",
         "coordinate_transformation_mode='asymmetric'", "rounding_method='floor'"}},
       {{"data: f32[1, 2, 8, 8]", "size=[5, 3]", "method='nearest_neighbor'",
         "rounding_method='round_prefer_floor'"}},
       {{"data: f32[1, 2, 5, 6]", "size=[9, 11]",
         "coordinate_transformation_mode='align_corners'"}},
       {{"data: f32[1, 1, 6, 6]", "size=[9, 4]", "method='cubic'"}},
       {{"data: f32[1, 1, 6, 6]", "size=[4, 9]", "method='cubic'", "cubic_exclude=1",
         "cubic_alpha=-0.5", "coordinate_transformation_mode='pytorch_half_pixel'"}},
       {{"data: f32[1, 1, 6, 7]", "size=[4, 5]", "roi=[0.1, 0.2, 0.8, 1.3]",
         "coordinate_transformation_mode='tf_crop_and_resize'", "extrapolation_value=7.0"}},
       {{"data: f32[2, 5, 6, 3]", "size=[9, 11]", "layout='NHWC'"}},
       {{"data: f32[1, 4, 3, 19]", "size=[7, 2]", "layout='NHWC'"}},
       {{"data: f32[1, 2, 5, 7]", "size=[2, 9]", "scales=[0.5, 1.3]"}},
       {{"data: f32[1, 2, 7, 5]", "size=[9, 2]", "scales=[0, 0.5]",
         "coordinate_transformation_mode='align_corners'"}},
       {{"data: f32[1, 7, 5, 2]", "size=[2, 2]", "layout='NHWC'", "method='nearest_neighbor'",
         "coordinate_transformation_mode='asymmetric'", "rounding_method='floor'",
         "scales=[0.333333, 0.5]"}}});
}

OpDef image_resize3d() {
  return ResizeOp<3>(
      "image.resize3d", "NCDHW",
      {{{"data: f32[1, 2, 3, 4, 5]", "size=[6, 8, 10]"}},
       {{"data: f32[1, 2, 3, 4, 5]", "size=[6, 5, 4]"}},
       {{"data: f32[1, 1, 3, 4, 2]", "size=[6, 8, 4]", "method='nearest_neighbor'",
         "coordinate_transformation_mode='asymmetric'", "rounding_method='floor'"}}});
}

}  // namespace relaxvm::ops
