// SPDX-License-Identifier: Apache-2.0
// The products that a tile adds to its sums in one step: of elements, of groups of neighbours, of
// bytes as halves, of groups side by side.
#include "schedule/cpu/contraction/tile.h"
#include "schedule/cpu/loads.h"

namespace relaxvm::schedule::cpu {
namespace {

using ir::Intrin;
using tir::BufferStore;
using tir::SeqStmt;

}  // namespace

Expr TileEmitter::Inside(const Var& lane, const Columns& c, bool last) const {
  if (!part_.limit.defined() || !last) return Expr();
  return ir::Less(lane, part_.limit - panel_start_ - Expr(c.offset));
}

Expr TileEmitter::Right(const Var& lane, const Columns& c, bool last) const {
  ffi::Map<Var, Expr> map;
  Expr value;
  if (c_.panel_width > 0) {
    const int64_t of_tile = panel_width_ / c_.panel_width;
    map.Set(c_.panel, of_tile == 1 ? part_.panel
                                   : part_.panel * Expr(of_tile) + Expr(c.offset / c_.panel_width));
    map.Set(c_.column, Expr(c.offset % c_.panel_width) + lane);
    value = tir::Substitute(c_.b, map);
  } else {
    PlaceColumns(c, lane, &map);
    value = tir::Substitute(c_.b, map);
    Expr inside = Inside(lane, c, last);
    if (inside.defined()) value = PredicateLoads(value, lane, inside);
  }
  return ir::Cast(c_.acc, value);
}

Expr TileEmitter::RightWords(const Columns& c, bool last) const {
  ffi::Map<Var, Expr> map;
  if (c_.panel_width > 0) {
    map.Set(c_.panel, part_.panel);
    map.Set(c_.column, Expr(c.offset));
  } else {
    map.Set(c_.vector.var, panel_start_ + Expr(c.offset));
  }
  const auto* load = c_.LoadOf(c_.b);
  const int64_t each = c_.GroupInB();
  Expr predicate;
  if (c_.panel_width == 0 && last && part_.limit.defined()) {
    Expr inside = (part_.limit - panel_start_ - Expr(c.offset)) * Expr(each);
    predicate = ir::Less(ir::RampExpr(Expr(0), 1, each * c.lanes),
                         ir::BroadcastExpr(inside, each * c.lanes));
  }
  Expr from = tir::Substitute(load->indices[0], map);
  Expr all = tir::BufferLoad(load->buffer, {ir::RampExpr(from, 1, each * c.lanes)}, predicate);
  return c_.b_in_words ? all : ir::CallIntrin(Int(32, c.lanes), Intrin::kReinterpret, {all});
}

void TileEmitter::BindRows(ffi::Array<Stmt>* seq) {
  if (!c_.joined.has_value()) return;
  const auto& [line, place] = *c_.joined;
  const Expr begin = LinearOffset::Of(c_.LoadOf(c_.a)->indices[0], c_.stage.reduce)->rest();
  Expr at_line = ir::FloorDiv(row_start_, place.extent),
       at_place = row_start_ - at_line * place.extent;
  for (int64_t row = 0; row < part_.rows; ++row) {
    const Var line_of_row("line", Int(64)), place_of_row("place", Int(64));
    seq->push_back(tir::Bind(line_of_row, at_line));
    seq->push_back(tir::Bind(place_of_row, at_place));
    ffi::Map<Var, Expr> map;
    map.Set(line.var, line_of_row);
    map.Set(place.var, place_of_row);
    rows_of_a_.emplace_back("row_of_a", Int(64));
    seq->push_back(tir::Bind(rows_of_a_.back(), tir::Substitute(begin, map)));
    const Expr is_end = ir::Equal(place_of_row + Expr(1), place.extent);
    at_line = line_of_row + ir::Select(is_end, Expr(1), Expr(0));
    at_place = ir::Select(is_end, Expr(0), place_of_row + Expr(1));
  }
}

std::optional<int64_t> TileEmitter::DistanceOfRows() const {
  if (c_.joined.has_value()) return std::nullopt;
  const auto linear = LinearOffset::Of(c_.LoadOf(c_.a)->indices[0], {c_.row});
  if (!linear.has_value()) return std::nullopt;
  const auto known = ir::AsInt(linear->Coeff(c_.row.var));
  return known.has_value() ? std::optional<int64_t>(*known) : std::nullopt;
}

Expr TileEmitter::LeftAt(int64_t row) const {
  const auto* load = c_.LoadOf(c_.a);
  ffi::Map<Var, Expr> map;
  if (c_.joined.has_value()) {
    const auto offset = LinearOffset::Of(load->indices[0], c_.stage.reduce);
    const Expr at = rows_of_a_[static_cast<size_t>(row)] + (load->indices[0] - offset->rest());
    LoadReplacer replacer;
    replacer.values.emplace_back(load, tir::BufferLoad(load->buffer, {analyzer_->Simplify(at)},
                                                       load->predicate, load->span));
    return replacer.Mutate(c_.a);
  }
  const auto distance = DistanceOfRows();
  if (!distance.has_value()) {
    map.Set(c_.row.var, RowAt(row));
    return Offsets(tir::Substitute(c_.a, map));
  }
  map.Set(c_.row.var, row_start_);
  const Expr from = tir::Substitute(load->indices[0], map);
  const Expr at = from + Expr(row * *distance);
  LoadReplacer replacer;
  replacer.values.emplace_back(load,
                               tir::BufferLoad(load->buffer, {at}, load->predicate, load->span));
  return replacer.Mutate(c_.a);
}

Expr TileEmitter::LeftWords(int64_t row, int64_t count) const {
  ffi::Map<Var, Expr> map;
  map.Set(c_.row.var, RowAt(row));
  const auto* load = c_.LoadOf(c_.a);
  Expr from = tir::Substitute(load->indices[0], map);
  if (c_.line_width > 0) from = analyzer_->Simplify(from);
  Expr group = tir::BufferLoad(load->buffer, {ir::RampExpr(from, 1, c_.group * count)});
  Expr word = ir::CallIntrin(Int(32, static_cast<int>(count)), Intrin::kReinterpret, {group});
  return c_.NeedsCorrection() ? Expr(ir::Binary(ir::BinaryOp::kBitXor, word, k128)) : word;
}

Expr TileEmitter::Dot(const Expr& sum, const Expr& left, const Expr& right) const {
  if (c_.group == 2 && !IsFloat(c_.acc)) return tir::DotOfHalves(sum, left, right);
  if (c_.group == 2) return tir::DotOfPairs(sum, left, right);
  if (c_.BothSigned() && c_.dot_signed) return tir::DotOfSignedBytes(sum, left, right);
  return c_.b_is_signed ? tir::DotOfBytes(sum, left, right) : tir::DotOfBytes(sum, right, left);
}

Stmt TileEmitter::GroupStep(int64_t set, const LeftGroup& left_at) const {
  if (ByHalves()) {
    return HalvesStep(
        set, [&](int64_t row) { return tir::HalvesOfBytes(left_at(row), c_.a_is_signed); });
  }
  const auto dot = [&](const Expr& sum, const Expr& a, const Expr& b) { return Dot(sum, a, b); };
  return GroupStep(set, dot, left_at);
}

Stmt TileEmitter::RestOfGroups() const {
  const Stmt step = GroupStep(0, [&](int64_t row) { return RestOfLeft(row); });
  return tir::IfThenElse(ir::Greater(c_.rest_of_group, Expr(0)),
                         AtK(step, c_.stage.reduce.back().extent));
}

Expr TileEmitter::RestOfLeft(int64_t row) const {
  const auto* load = c_.LoadOf(c_.a);
  ffi::Map<Var, Expr> map;
  map.Set(c_.row.var, RowAt(row));
  const Expr from = tir::Substitute(load->indices[0], map);
  const Expr word = WordOf(c_.group, c_.rest_of_group, [&](int64_t place) {
    return tir::BufferLoad(load->buffer, {from + Expr(place)});
  });
  return c_.NeedsCorrection() ? Expr(ir::Binary(ir::BinaryOp::kBitXor, word, k128)) : word;
}

Stmt TileEmitter::GroupStep(int64_t set, const DotOf& dot, const LeftGroup& left_at) const {
  ffi::Array<Stmt> step;
  std::vector<Var> right;
  for (size_t v = 0; v < part_.columns.size(); ++v) {
    const Columns& c = part_.columns[v];
    right.emplace_back("right", Int(32, c.lanes));
    step.push_back(tir::Bind(right.back(), RightWords(c, v + 1 == part_.columns.size())));
    if (!c_.NeedsCorrection()) continue;
    Expr sum = correction_.Load({Run(c.offset, c)});
    Expr next = tir::DotOfBytes(sum, ir::BroadcastExpr(k128, c.lanes), right.back());
    step.push_back(BufferStore(correction_, next, {Run(c.offset, c)}));
  }
  for (int64_t row = 0; row < part_.rows; ++row) {
    Var left("left", Int(32));
    step.push_back(tir::Bind(left, left_at(row)));
    for (size_t v = 0; v < part_.columns.size(); ++v) {
      const Columns& c = part_.columns[v];
      Expr at = Run((set * part_.rows + row) * width_ + c.offset, c);
      Expr wide = ir::BroadcastExpr(left, c.lanes), sum = acc_.Load({at});
      step.push_back(BufferStore(acc_, dot(sum, wide, right[v]), {at}));
    }
  }
  return SeqStmt::Flatten(step);
}

Stmt TileEmitter::HalvesStep(int64_t set, const LeftHalves& left_at) const {
  ffi::Array<Stmt> step;
  auto bound = [&](const char* name, const Expr& value) {
    Var var(name, value.dtype());
    step.push_back(tir::Bind(var, value));
    return var;
  };
  std::vector<tir::Halves> right;
  for (size_t v = 0; v < part_.columns.size(); ++v) {
    const Var words = bound("words", RightWords(part_.columns[v], v + 1 == part_.columns.size()));
    const tir::Halves halves = tir::HalvesOfBytes(words, c_.b_is_signed);
    right.push_back({bound("even", halves.even), bound("odd", halves.odd)});
  }
  for (int64_t row = 0; row < part_.rows; ++row) {
    const tir::Halves halves = left_at(row);
    const Var even = bound("even", halves.even), odd = bound("odd", halves.odd);
    for (size_t v = 0; v < part_.columns.size(); ++v) {
      const Columns& c = part_.columns[v];
      const Expr at = Run((set * part_.rows + row) * width_ + c.offset, c);
      auto wide = [&](const Var& word) { return ir::BroadcastExpr(word, c.lanes); };
      const Expr sum = tir::DotOfHalves(acc_.Load({at}), wide(even), right[v].even);
      step.push_back(BufferStore(acc_, tir::DotOfHalves(sum, wide(odd), right[v].odd), {at}));
    }
  }
  return SeqStmt::Flatten(step);
}

Stmt TileEmitter::Step(int64_t set) const {
  if (c_.group > 1) return GroupStep(set, [&](int64_t row) { return LeftWord(row); });
  return Step(set, [&](int64_t row) { return ir::Cast(c_.acc, LeftAt(row)); });
}

Stmt TileEmitter::Step(int64_t set, const Left& left_at) const {
  Buffer right("right", {Expr(width_)}, c_.acc, "local");
  ffi::Array<Stmt> step = {tir::AllocBuffer(right)};
  for (size_t v = 0; v < part_.columns.size(); ++v) {
    const Columns& c = part_.columns[v];
    Var lane("lane", Int(64));
    step.push_back(Lanes(lane, c,
                         BufferStore(right, Right(lane, c, v + 1 == part_.columns.size()),
                                     {Expr(c.offset) + lane})));
  }
  for (int64_t row = 0; row < part_.rows; ++row) {
    Var left("left", c_.acc);
    step.push_back(tir::Bind(left, left_at(row)));
    for (const Columns& c : part_.columns) {
      Var lane("lane", Int(64));
      Expr at = At(set, row, c) + lane;
      Expr next = right.Load({Expr(c.offset) + lane});
      Expr sum = IsFloat(c_.acc) ? ir::CallIntrin(Intrin::kFma, {left, next, acc_.Load({at})})
                                 : ir::Add(acc_.Load({at}), ir::Mul(left, next));
      step.push_back(Lanes(lane, c, BufferStore(acc_, sum, {at})));
    }
  }
  return SeqStmt::Flatten(step);
}

Expr TileEmitter::LoadRun(const tir::BufferLoadObj* load, const ffi::Map<Var, Expr>& map,
                          int64_t count, const Expr& limit) const {
  const int64_t all = count * c_.group;
  Expr predicate;
  if (limit.defined()) {
    const Expr end = limit * Expr(c_.group);
    predicate = ir::Less(ir::RampExpr(Expr(0), 1, all), ir::BroadcastExpr(end, all));
  }
  const Expr from = tir::Substitute(load->indices[0], map);
  const Expr run = tir::BufferLoad(load->buffer, {ir::RampExpr(from, 1, all)}, predicate);
  if (c_.group == 1) return run;
  return ir::CallIntrin(Int(32, static_cast<int>(count)), Intrin::kReinterpret, {run});
}

Expr TileEmitter::Multiplied(const Expr& sum, const Expr& left, const Expr& right) const {
  if (c_.group > 1) return Dot(sum, left, right);
  return IsFloat(c_.acc) ? ir::CallIntrin(Intrin::kFma, {left, right, sum})
                         : ir::Add(sum, ir::Mul(left, right));
}

Stmt TileEmitter::StepSideBySide() const {
  const auto& [group, columns, depth] = *c_.side_by_side;
  const Var& k = c_.stage.reduce.back().var;
  ffi::Array<Stmt> step;
  for (size_t v = 0; v < part_.columns.size(); ++v) {
    const Columns& c = part_.columns[v];
    DLDataType type = c_.acc;
    type.lanes = static_cast<uint16_t>(c.lanes);
    const Expr first = panel_start_ + Expr(c.offset);
    const Expr limit =
        part_.limit.defined() && v + 1 == part_.columns.size() ? Expr(part_.limit - first) : Expr();
    ffi::Map<Var, Expr> map;
    map.Set(c_.vector.var, first);
    std::vector<Var> right;
    for (int64_t at = 0; at < depth; ++at) {
      map.Set(k, Expr(at));
      right.emplace_back("right", type);
      step.push_back(tir::Bind(right.back(), LoadRun(c_.LoadOf(c_.b), map, c.lanes, limit)));
    }
    map.Set(k, Expr(0));
    map.Set(group, part_.panel * Expr(panel_width_ / columns) + Expr(c.offset / columns));
    const int64_t count = c.lanes / columns * depth;
    type.lanes = static_cast<uint16_t>(count);
    for (int64_t row = 0; row < part_.rows; ++row) {
      map.Set(c_.row.var, RowAt(row));
      Var left("left", type);
      const Expr inside =
          limit.defined() ? Expr(ir::FloorDiv(limit, columns) * Expr(depth)) : Expr();
      step.push_back(tir::Bind(left, LoadRun(c_.LoadOf(c_.a), map, count, inside)));
      for (int64_t at = 0; at < depth; ++at) {
        ffi::Array<int64_t> picks;
        for (int64_t lane = 0; lane < c.lanes; ++lane) picks.push_back(lane / columns * depth + at);
        const Expr to = Run((row * width_) + c.offset, c), sum = acc_.Load({to});
        const Expr picked = ir::ShuffleExpr({left}, picks);
        step.push_back(BufferStore(acc_, Multiplied(sum, picked, right[at]), {to}));
      }
    }
  }
  return SeqStmt::Flatten(step);
}

}  // namespace relaxvm::schedule::cpu
