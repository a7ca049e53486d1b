// SPDX-License-Identifier: Apache-2.0
#include "ops/image/resize_taps.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace relaxvm::ops {
namespace {

using ir::CallIntrin;

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

// Keys' cubic: weights of the four elements around a position `t` past the second.
std::vector<Tap> CubicTaps(const Resize& a, const ResizedAxis& axis, const Expr& at) {
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
int64_t StepOf(const ResizedAxis& axis) {
  if (axis.scale <= 0 || axis.scale > 1) return 0;
  const double step = std::round(1 / axis.scale);
  const bool is_whole = static_cast<float>(1 / step) == static_cast<float>(axis.scale);
  return is_whole && step <= 1 << 24 ? static_cast<int64_t>(step) : 0;
}

// The extents before and after without what they have in common; zeros: their ratio is not known.
std::pair<int64_t, int64_t> RatioOf(const ResizedAxis& axis) {
  ffi::Map<ir::Var, Expr> ones;
  for (const ir::Var& v : ir::FreeVars(axis.have)) ones.Set(v, Expr(1));
  const auto facts = MakeTypeContext();
  const auto have = ir::AsInt(facts->Simplify(ir::Substitute(axis.have, ones)));
  const auto want = ir::AsInt(facts->Simplify(ir::Substitute(axis.want, ones)));
  if (have.value_or(0) <= 0 || want.value_or(0) <= 0) return {0, 0};
  const int64_t common = std::gcd(*have, *want), before = *have / common, after = *want / common;
  const Expr difference = axis.want * Expr(before) - axis.have * Expr(after);
  if (!ir::IsIntValue(facts->Simplify(difference), 0)) return {0, 0};
  return {before, after};
}

// The element, where it is found without fractions; null: it is not.
Expr WholePosition(const Resize& a, const ResizedAxis& axis, const Expr& i) {
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
    const auto [have, want] = RatioOf(axis);
    if (have == 1) return ir::FloorDiv(i, want);
    return Clamp(ir::FloorDiv(i * axis.have, axis.want), axis.have);
  }
  const bool is_inside = MakeTypeContext()->Prove(ir::LessEqual(axis.want * Expr(step), axis.have));
  return is_inside ? i * Expr(step) : Clamp(i * Expr(step), axis.have);
}

// Is the element at `i` found so easily that vectors along the axis need no table?
bool IsWholeAlongVectors(const ResizedAxis& axis) {
  constexpr int64_t kMaxStep = 4, kMaxOdd = 7;
  if (StepOf(axis) > 0) return StepOf(axis) <= kMaxStep;
  const auto [have, want] = RatioOf(axis);
  if (want == 1) return have <= kMaxStep;
  int64_t odd = want;
  while (odd > 0 && odd % 2 == 0) odd /= 2;
  return have < want && odd <= kMaxOdd;
}

}  // namespace

// Products are formed before quotients, so that
// positions on an element come out exactly.
Expr PositionOf(const std::string& mode, const ResizedAxis& axis, const Expr& i) {
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

double ScaleOf(const ResizedAxis& axis) {
  if (axis.scale > 0) return axis.scale;
  const auto [have, want] = RatioOf(axis);
  return have == 0 ? 0 : static_cast<double>(want) / static_cast<double>(have);
}

bool IsAntialiased(const Resize& a, const ResizedAxis& axis) {
  return a.antialias && axis.scale < 1;
}

bool IsPicked(const Resize& a, const ResizedAxis& axis) {
  return !IsAntialiased(a, axis) && !TapsOf(a, axis, Expr(0))[0].weight.defined();
}

std::vector<Tap> TapsOf(const Resize& a, const ResizedAxis& axis, const Expr& i) {
  if (const Expr whole = WholePosition(a, axis, i); whole.defined()) return {{whole, Expr()}};
  Expr at = PositionOf(a.coordinate_transformation_mode, axis, i);
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

bool WantsTables(const Resize& a, const ResizedAxis& axis, bool along_vectors, bool shared) {
  if (IsAntialiased(a, axis)) return true;
  if (WholePosition(a, axis, Expr(0)).defined()) return along_vectors && !IsWholeAlongVectors(axis);
  return a.method == "nearest_neighbor" || shared;
}

TapTables::TapTables(const Resize& a, const ResizedAxis& axis, int64_t per_pixel)
    : per_pixel_(per_pixel) {
  if (IsAntialiased(a, axis)) {
    AddAntialiased(a, axis);
    return;
  }
  const std::vector<Tap> any = TapsOf(a, axis, Expr(0));
  for (size_t k = 0; k < any.size(); ++k) {
    AtPlace weight;
    if (any[k].weight.defined())
      weight = [&a, &axis, k](const Expr& i) { return TapsOf(a, axis, i)[k].weight; };
    Add(axis, [&a, &axis, k](const Expr& i) { return TapsOf(a, axis, i)[k].index; }, weight);
  }
}

// A triangle as wide as what the axis shrinks by; all that lie under it, those beyond an end on
// that end, have shares of 1.
void TapTables::AddAntialiased(const Resize& a, const ResizedAxis& axis) {
  const double support = 1 / axis.scale;
  auto table = [&](const AtPlace& value) {
    return tir::Compute({axis.want}, [&](const tir::Indices& i) { return value(i[0]); }, "part");
  };
  auto position = [&](const Expr& i) {
    return PositionOf(a.coordinate_transformation_mode, axis, i);
  };
  const tir::Tensor first = table([&](const Expr& i) {
    return CallIntrin(Intrin::kFloor, {position(i) - axis.Real(support)}) + axis.Real(1.0);
  });
  const auto count = static_cast<int64_t>(std::ceil(2 * support - 1e-4));
  std::vector<tir::Tensor> parts;
  for (int64_t k = 0; k < count; ++k) {
    parts.push_back(table([&](const Expr& i) {
      const Expr place = first({i}) + axis.Real(static_cast<double>(k));
      const Expr distance = CallIntrin(Intrin::kAbs, {place - position(i)});
      return ir::Max(axis.Real(1.0) - distance * axis.Real(axis.scale), axis.Real(0.0));
    }));
  }
  const tir::Tensor total = table([&](const Expr& i) {
    Expr sum = parts[0]({i});
    for (size_t k = 1; k < parts.size(); ++k) sum = sum + parts[k]({i});
    return sum;
  });
  for (int64_t k = 0; k < count; ++k) {
    const tir::Tensor& part = parts[static_cast<size_t>(k)];
    Add(
        axis,
        [&](const Expr& i) { return Clamp(ir::Cast(Int(64), first({i})) + Expr(k), axis.have); },
        [&](const Expr& i) { return ir::Div(part({i}), total({i})); });
  }
}

void TapTables::Add(const ResizedAxis& axis, const AtPlace& index, const AtPlace& weight) {
  const Dims places{axis.want * Expr(per_pixel_)};
  auto pixel = [&](const Expr& i) { return ir::FloorDiv(i, per_pixel_); };
  index_.push_back(tir::Compute(
      places,
      [&](const tir::Indices& i) {
        const Expr first = index(pixel(i[0])) * Expr(per_pixel_);
        return ir::Cast(Int(32), first + ir::FloorMod(i[0], per_pixel_));
      },
      "at"));
  if (weight == nullptr) return;
  weight_.push_back(
      tir::Compute(places, [&](const tir::Indices& i) { return weight(pixel(i[0])); }, "weight"));
}

std::vector<Tap> TapTables::At(const Expr& place) const {
  std::vector<Tap> taps;
  for (size_t k = 0; k < index_.size(); ++k) {
    const Expr share = k < weight_.size() ? weight_[k]({place}) : Expr();
    taps.push_back({ir::Cast(Int(64), index_[k]({place})), share});
  }
  return taps;
}

}  // namespace relaxvm::ops
