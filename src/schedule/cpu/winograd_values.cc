// SPDX-License-Identifier: Apache-2.0
// The transforms of Winograd's form, element by element.
#include "schedule/cpu/winograd_values.h"

#include <array>

namespace relaxvm::schedule::cpu {
namespace {

using tir::Indices;

constexpr double kNear = kWinogradNear, kFar = kWinogradFar;
using Row = std::array<double, kWinogradSize>;
using Rows = std::vector<Row>;

constexpr double kNN = kNear * kNear, kFF = kFar * kFar;
constexpr double kAtZero = kNN * kFF, kAtNear = 2 * kNN * (kNN - kFF),
                 kAtFar = 2 * kFF * (kFF - kNN);

// Row a: the coefficients of the product of (x - point) over all points but the a-th.
const Rows& InputOf(const WinogradForm& form) {
  static const Rows large = {
      {kNN * kFF, 0, -(kNN + kFF), 0, 1, 0}, {0, -kNear * kFF, -kFF, kNear, 1, 0},
      {0, kNear * kFF, -kFF, -kNear, 1, 0},  {0, -kFar * kNN, -kNN, kFar, 1, 0},
      {0, kFar * kNN, -kNN, -kFar, 1, 0},    {0, kNN * kFF, 0, -(kNN + kFF), 0, 1}};
  static const Rows small = {{1, 0, -1, 0}, {0, 1, 1, 0}, {0, -1, 1, 0}, {0, 1, 0, -1}};
  return form.tile == 2 ? small : large;
}
// Column a: the powers of the a-th point.
const Rows& OutputOf(const WinogradForm& form) {
  static const Rows large = {{1, 1, 1, 1, 1, 0},
                             {0, kNear, -kNear, kFar, -kFar, 0},
                             {0, kNN, kNN, kFF, kFF, 0},
                             {0, kNN * kNear, -kNN * kNear, kFF * kFar, -kFF * kFar, 1}};
  static const Rows small = {{1, 1, 1, 0}, {0, 1, -1, -1}};
  return form.tile == 2 ? small : large;
}
// Row i: the i-th powers of the points over the product of their distances to the others; of bytes
// twice that.
const Rows& WeightOf(const WinogradForm& form) {
  static const Rows large = {
      {1 / kAtZero, 1 / kAtNear, 1 / kAtNear, 1 / kAtFar, 1 / kAtFar, 0},
      {0, kNear / kAtNear, -kNear / kAtNear, kFar / kAtFar, -kFar / kAtFar, 0},
      {0, kNN / kAtNear, kNN / kAtNear, kFF / kAtFar, kFF / kAtFar, 1}};
  static const Rows small = {{1, .5, .5, 0}, {0, .5, -.5, 0}, {0, .5, .5, 1}};
  static const Rows bytes = {{2, 1, 1, 0}, {0, 1, -1, 0}, {0, 1, 1, 2}};
  if (form.of_bytes) return bytes;
  return form.tile == 2 ? small : large;
}
constexpr int64_t kShift = 2;  // four times the results

Expr Number(DLDataType type, double value) {
  return IsFloat(type) ? ir::ConstFloat(type, value) : ir::Const(type, static_cast<int64_t>(value));
}
// row[i], where `size` elements are there
Expr At(const Row& row, int64_t size, const Expr& i, DLDataType type) {
  Expr value = Number(type, row[static_cast<size_t>(size - 1)]);
  for (int64_t at = size - 1; at-- > 0;)
    value = ir::Select(ir::Equal(i, at), Number(type, row[static_cast<size_t>(at)]), value);
  return value;
}
// rows[i][j]
Expr At(const Rows& rows, int64_t size, const Expr& i, const Expr& j, DLDataType type) {
  Expr value = At(rows.back(), size, j, type);
  for (size_t at = rows.size() - 1; at-- > 0;) {
    const Expr row = At(rows[at], size, j, type);
    value = ir::Select(ir::Equal(i, static_cast<int64_t>(at)), row, value);
  }
  return value;
}

bool HasDepth(const Indices& i) { return i.size() == 7; }

// Where `place` lies among the results of its tile, and which tile that is.
Expr InTile(const WinogradForm& form, const Expr& place) {
  const Expr of_image = form.dilation == 1 ? place : ir::FloorDiv(place, form.dilation);
  return ir::FloorMod(of_image, form.tile);
}
Expr TileOf(const WinogradForm& form, const Expr& place) {
  const Expr tile = ir::FloorDiv(place, form.tile * form.dilation);
  if (form.dilation == 1) return tile;
  return tile * Expr(form.dilation) + ir::FloorMod(place, form.dilation);
}

}  // namespace

Expr WinogradInput(const WinogradForm& form, const WinogradLoad& data,
                   const ffi::Array<Expr>& shape, const Indices& i, const Indices& r) {
  const int64_t at = HasDepth(i) ? 4 : 3;
  Indices from = {i[2]};
  if (HasDepth(i)) from.push_back(i[3] - Expr(form.before[0]));
  for (int64_t d = 0; d < 2; ++d)
    from.push_back(form.PlaceOf(i[at + d]) + r[d] * Expr(form.dilation) -
                   Expr(form.before[static_cast<size_t>(1 + d)]));
  Expr inside = ir::BoolImm(true);
  for (int64_t d = 1; d < static_cast<int64_t>(from.size()); ++d)
    inside = ir::And(inside, ir::And(ir::LessEqual(0, from[d]), ir::Less(from[d], shape[d])));
  // Of the last groups put together some may be missing.
  const Expr& channel = i[at + 2];
  if (!ir::IsIntValue(shape.back(), form.groups * form.channels))
    inside = ir::And(inside, ir::Less(channel, shape.back()));
  from.push_back(channel);
  const DLDataType type = form.Transformed();
  auto factor = [&](int64_t d) { return At(InputOf(form), form.Size(), i[d], r[d], type); };
  return factor(0) * factor(1) *
         ir::IfThenElse(inside, ir::Cast(type, data(from)), Number(type, 0));
}

Expr WinogradProduct(const WinogradForm& form, const WinogradLoad& input,
                     const WinogradLoad& weight, const Indices& i, const Indices& r) {
  Indices from = {i[0], i[1], i[2]};
  if (HasDepth(i)) from.push_back(i[3] + r[0]);
  for (int64_t d = HasDepth(i) ? 4 : 3; d < static_cast<int64_t>(i.size()) - 1; ++d)
    from.push_back(i[d]);
  const Expr& channel = r[r.size() - 1];
  const Expr k = HasDepth(i) ? r[0] * Expr(form.channels) + channel : channel;
  Expr filter = i[i.size() - 1], panel;
  if (form.groups == 1) {
    from.push_back(channel);
    panel = ir::FloorDiv(filter, form.width);
  } else {
    const Expr group = ir::FloorDiv(filter, form.filters);
    filter = ir::FloorMod(filter, form.filters);
    from.push_back(group * Expr(form.channels) + channel);
    panel = group * Expr(form.PanelsOfGroup()) + ir::FloorDiv(filter, form.width);
  }
  const Expr column = ir::FloorMod(filter, form.width);
  const Expr point = i[0] * Expr(form.Size()) + i[1];
  if (!form.of_bytes) return input(from) * weight({panel, point, k, column});
  const Indices of_weight = {panel, point, ir::FloorDiv(k, form.Pair()), column,
                             ir::FloorMod(k, form.Pair())};
  return ir::Cast(form.Summed(), input(from)) * ir::Cast(form.Summed(), weight(of_weight));
}

Expr WinogradOutput(const WinogradForm& form, const WinogradLoad& product, const Indices& i,
                    const Indices& r) {
  const int64_t at = i.size() == 5 ? 2 : 1;
  Indices from = {r[0], r[1], i[0]};
  if (at == 2) from.push_back(i[1]);
  for (const Expr& e : {TileOf(form, i[at]), TileOf(form, i[at + 1]), i[at + 2]}) from.push_back(e);
  auto factor = [&](int64_t d) {
    return At(OutputOf(form), form.Size(), InTile(form, i[at + d]), r[d], form.Summed());
  };
  return factor(0) * factor(1) * product(from);
}

Expr WinogradResult(const WinogradForm& form, const Expr& sum) {
  if (!form.of_bytes) return sum;
  return ir::Make(ir::BinaryOp::kShiftRight, sum, ir::Const(form.Summed(), kShift));
}

Expr WinogradWeight(const WinogradForm& form, const WinogradLoad& weight, const Expr& a,
                    const Expr& b) {
  const DLDataType type = form.Transformed();
  Expr sum;
  for (int64_t h = 0; h < 3; ++h) {
    Expr line;
    for (int64_t w = 0; w < 3; ++w) {
      const Expr part = At(WeightOf(form)[static_cast<size_t>(w)], form.Size(), b, type) *
                        ir::Cast(type, weight({h, w}));
      line = line.defined() ? line + part : part;
    }
    line = At(WeightOf(form)[static_cast<size_t>(h)], form.Size(), a, type) * line;
    sum = sum.defined() ? sum + line : line;
  }
  return sum;
}

}  // namespace relaxvm::schedule::cpu
