// SPDX-License-Identifier: Apache-2.0
// image.resize2d and image.resize3d: nearest element, linear and cubic interpolation, with the
// coordinate transformations and roundings that ONNX defines.
#include <tvm/ffi/cast.h>

#include <algorithm>
#include <functional>

#include "ops/image/resize_taps.h"
#include "ops/layout_rule.h"
#include "ops/nn/spatial.h"

namespace relaxvm::ops {
namespace {

using ir::CallIntrin;

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
  if (a.antialias && a.method != "linear")
    ctx.Error(ErrorKind::kNotImplementedError, "antialias works with method 'linear' only");
  if (a.antialias && (a.scales.empty() || std::count(a.scales.begin(), a.scales.end(), 0.0) > 0))
    ctx.Error(ErrorKind::kValueError, "antialias needs scales, none of them 0");
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
bool Skips(const Resize& a, const ResizedAxis& axis) {
  if (IsAntialiased(a, axis)) return false;
  if (axis.scale > 0) return axis.scale < 0.25;
  const auto have = ir::AsInt(axis.have), want = ir::AsInt(axis.want);
  return have.has_value() && want.has_value() && have.value() > 4 * want.value();
}

// Is an image resized along its rows first, each row once?  Not where most rows would not be used.
bool RowsFirst(const Resize& a, const Layout& layout, const std::vector<ResizedAxis>& axes) {
  if (a.method == "nearest_neighbor" || axes.size() < 2) return false;
  if (layout.At('W') + 1 != layout.size() || IsPicked(a, axes.back())) return false;
  return std::none_of(axes.begin(), axes.end() - 1,
                      [&](const ResizedAxis& axis) { return Skips(a, axis); });
}

// Of pixels of few channels, whose lines are resized as lines of elements; 0: they are not.
int64_t FewChannels(const Resize& a, const Layout& layout, const ResizedAxis& last,
                    const Expr& channels) {
  constexpr int64_t kMost = 8;
  if (a.method == "nearest_neighbor" || IsPicked(a, last) || Skips(a, last)) return 0;
  if (layout.At('W') + 2 != layout.size() || layout.At('C') + 1 != layout.size()) return 0;
  const int64_t count = ir::AsInt(channels).value_or(0);
  return count <= kMost ? count : 0;
}

// Is an image resized along its columns first, to lines of the result?  Where these are fewer than
// its own, and where each place would take very many elements otherwise.
bool LinesFirst(const Resize& a, const Layout& layout, const std::vector<ResizedAxis>& axes) {
  if (a.method == "nearest_neighbor" || IsPicked(a, axes.back()) || Skips(a, axes.back()))
    return false;
  if (IsAntialiased(a, axes[axes.size() - 2])) return true;
  double scale = layout.At('W') + 1 == layout.size() ? 1 : 0;
  for (size_t s = 0; s + 1 < axes.size(); ++s) scale *= ScaleOf(axes[s]);
  return scale > 0 && scale < 1;
}

template <size_t kNumSpatial>
Tensors ComputeResize(const ComputeArgs& in, const Resize& a) {
  std::string spatial = SpatialLetters(kNumSpatial);
  Layout layout(a.layout);
  const Tensor& x = in[0];
  Dims out = in.OutShape();
  DLDataType dtype = in.OutDtype();
  std::vector<ResizedAxis> axes;
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
  for (const ResizedAxis& axis : axes) {
    const auto* var = axis.have.template as<ir::VarObj>();
    ffi::Map<ir::Var, Expr> none;
    if (var != nullptr) none.Set(ffi::GetRef<ir::Var>(var), Expr(0));
    Expr left = var == nullptr ? axis.want : facts->Simplify(ir::Substitute(axis.want, none));
    if (!ir::IsIntValue(left, 0)) may_be_empty.push_back(axis.have);
  }
  const int64_t few = FewChannels(a, layout, axes.back(), x->shape[layout.At('C')]);
  const bool lines_first = few > 0 || LinesFirst(a, layout, axes);
  // Data, or data that already has the result's last axis.
  Tensor from = x;
  size_t num_left = lines_first ? kNumSpatial - 1 : kNumSpatial;
  if (!lines_first && RowsFirst(a, layout, axes)) {
    --num_left;
    const ResizedAxis& axis = axes.back();
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
  std::vector<std::optional<TapTables>> tables(kNumSpatial);
  for (size_t s = 0; s < num_left; ++s) {
    const bool is_last = layout.At(spatial[s]) + 1 == layout.size();
    const bool has_runs = layout.At(spatial.back()) + 1 != layout.size();
    if (WantsTables(a, axes[s], is_last, has_runs)) tables[s].emplace(a, axes[s]);
  }
  auto taps_of = [&](size_t s, const Expr& place) {
    return tables[s].has_value() ? tables[s]->At(place) : TapsOf(a, axes[s], place);
  };
  // Interpolates along the axes from s on, with `at` chosen along those before it.
  std::function<Expr(size_t, const Indices&, const Indices&)> along =
      [&](size_t s, const Indices& i, const Indices& at) -> Expr {
    if (s == num_left) return GuardEmpty(from(at), may_be_empty);
    const size_t d = layout.At(spatial[s]);
    return Interpolated(taps_of(s, i[d]), [&](const Expr& place) {
      Indices next = at;
      next.Set(d, place);
      return along(s + 1, i, next);
    });
  };
  Tensor lines;  // of elements of all channels, where these are few
  std::optional<TapTables> of_lines;
  const size_t w = layout.At('W');
  if (lines_first) {
    Dims dims = out;
    dims.Set(w, axes.back().have * Expr(std::max<int64_t>(1, few)));
    if (few > 0) dims.pop_back();
    auto line = [&](const Indices& i) {
      Indices pixel = i;
      if (few > 0) {
        pixel.Set(w, ir::FloorDiv(i[w], few));
        pixel.push_back(ir::FloorMod(i[w], few));
      }
      return ir::Cast(axes.back().real, along(0, pixel, pixel));
    };
    lines = tir::Compute(dims, line, "lines");
    of_lines.emplace(a, axes.back(), std::max<int64_t>(1, few));
  }
  auto formula = [&](const Indices& i) -> Expr {
    Expr value;
    if (lines_first) {
      Indices at = i;
      if (few > 0) at.pop_back();
      const Expr place = few > 0 ? i[w] * Expr(few) + i.back() : i[w];
      value = Interpolated(of_lines->At(place), [&](const Expr& element) {
        at.Set(w, element);
        return lines(at);
      });
    } else {
      value = along(0, i, i);
    }
    // Integers are rounded, as the interpolated values lie between them.
    if (IsFloat(value.dtype()) && IsInteger(dtype)) value = CallIntrin(Intrin::kRound, {value});
    value = ir::Cast(dtype, value);
    if (a.coordinate_transformation_mode != "tf_crop_and_resize") return value;
    Expr inside = ir::BoolImm(true);
    for (size_t s = 0; s < kNumSpatial; ++s) {
      Expr at = PositionOf(a.coordinate_transformation_mode, axes[s], i[layout.At(spatial[s])]);
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
      {"antialias", &Resize::antialias,
       "Does each element of a smaller image take in all that it stands for?  Needs scales."},
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
      .reference = "out = resize(data, size, roi, layout, method, coordinate_transformation_mode, "
                   "rounding_method, cubic_alpha, cubic_exclude, extrapolation_value, out_dtype, "
                   "antialias, scales)",
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
       {{"data: f32[1, 2, 9, 24]", "size=[3, 16]", "antialias=True", "scales=[0.34, 0.7]"}},
       {{"data: f32[1, 12, 9, 3]", "size=[4, 18]", "layout='NHWC'", "antialias=True",
         "scales=[0.4, 2]"}},
       {{"data: f32[1, 12, 9, 2]", "size=[5, 4]", "layout='NHWC'", "antialias=True",
         "scales=[0.47, 0.5]"}},
       {{"data: f32[1, 12, 9, 9]", "size=[5, 4]", "layout='NHWC'", "antialias=True",
         "scales=[0.47, 0.5]"}},
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
