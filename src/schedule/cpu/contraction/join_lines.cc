// SPDX-License-Identifier: Apache-2.0
// Lines of a picture that become one axis of rows, so that a line's end is no end of a tile.
#include "schedule/cpu/contraction/emitter.h"
#include "schedule/cpu/loads.h"

namespace relaxvm::schedule::cpu {
namespace {

// A tile finds its rows once; that is little beside so many steps of the sum.
constexpr int64_t kFewestStepsOfJoined = 512;

// The line of a point of both axes, and its place there.
ffi::Map<Var, Expr> PointOf(const Axis& line, const Axis& place, const Var& all) {
  ffi::Map<Var, Expr> map;
  map.Set(line.var, ir::FloorDiv(all, place.extent));
  map.Set(place.var, ir::FloorMod(all, place.extent));
  return map;
}

// Where lines follow each other without a gap, the point `all` of both axes stands for a place in
// the first line.
Expr PlaceOf(const Expr& index, const Axis& line, const Axis& place, const Var& all,
             arith::Analyzer* analyzer) {
  ffi::Map<Var, Expr> map = PointOf(line, place, all);
  const auto linear = LinearOffset::Of(index, {line, place});
  if (linear.has_value() &&
      analyzer->ProveEqual(linear->Coeff(line.var), linear->Coeff(place.var) * place.extent)) {
    map.Set(line.var, Expr(0));
    map.Set(place.var, all);
  }
  return analyzer->Simplify(tir::Substitute(index, map));
}

}  // namespace

void ContractionEmitter::JoinLines() {
  const auto width = ir::AsInt(c_.row.extent);
  if (!width.has_value()) return JoinOpenLines();
  if (c_.outer_a.empty() || c_.group > 1 || c_.side_by_side.has_value() || *width < 2 ||
      c_.stage.reduce.empty())
    return;
  const Axis line = c_.outer_a.back();
  const int64_t most = std::max(MostRows(2), MostRows(1));
  if (*width > most || ir::AsInt(line.extent).value_or(1) < 2 ||
      (c_.guard.defined() && (UsesVar(c_.guard, line.var) || UsesVar(c_.guard, c_.row.var))))
    return;
  const Axis all{Var("row", Int(64)), analyzer_->Simplify(line.extent * c_.row.extent)};
  const ffi::Map<Var, Expr> map = PointOf(line, c_.row, all.var);
  c_.a = tir::Substitute(c_.a, map);
  c_.stage.indices = c_.stage.indices.Map([&](const Expr& e) { return tir::Substitute(e, map); });
  if (c_.stage.finish.defined()) c_.stage.finish = tir::Substitute(c_.stage.finish, map);
  c_.outer_a.pop_back();
  c_.row = all;
  c_.line_width = *width;
}

int64_t ContractionEmitter::RowsInFirstCache() const {
  // A way has 64 lines of 64 bytes: rows so far apart, or a multiple of it, share one set.
  constexpr int64_t kBytesOfWay = 4096;
  const int64_t rows = machine_.l1_bytes / kBytesOfWay * 3 / 4;  // the other ways are for B
  const auto* load = c_.LoadOf(c_.a);
  const auto linear = LinearOffset::Of(load->indices[0], {c_.row});
  if (!linear.has_value()) return machine_.l1_bytes;
  const auto step = ir::AsInt(analyzer_->Simplify(linear->Coeff(c_.row.var)));
  const int64_t apart = step.value_or(0) * SizeInBytes(Buffer(load->buffer).elem_dtype());
  return apart != 0 && apart % kBytesOfWay == 0 ? rows : machine_.l1_bytes;
}

void ContractionEmitter::ChooseLines() {
  const int64_t all = width_ / lanes_, width = c_.line_width;
  int64_t best = 0;
  for (int64_t vectors = all; vectors > 0; --vectors) {
    if (vectors > 2 && vectors < all) continue;
    const int64_t rows = MostRows(vectors) / width * width;
    if (rows * vectors < best || rows == 0) continue;
    best = rows * vectors;
    at_once_ = vectors;
    rows_ = rows;
  }
  rows_ = std::min(rows_, ir::AsInt(c_.row.extent).value());
}

void ContractionEmitter::JoinOpenLines() {
  const auto* load = c_.LoadOf(c_.a);
  const auto depth = ir::AsInt(analyzer_->Simplify(NumPoints(c_.stage.reduce)));
  if (!c_.walks_windows || c_.outer_a.empty() || c_.group > 1 || c_.side_by_side.has_value() ||
      c_.other_row.has_value() || depth.value_or(0) < kFewestStepsOfJoined || c_.acc != Float(32) ||
      Buffer(load->buffer).elem_dtype() != Float(32))
    return;
  const Axis line = c_.outer_a.back(), place = c_.row;
  if (c_.guard.defined() && (UsesVar(c_.guard, line.var) || UsesVar(c_.guard, place.var))) return;
  const Axis all{Var("row", Int(64)), analyzer_->Simplify(line.extent * place.extent)};
  auto moved = [&](const Expr& index) { return PlaceOf(index, line, place, all.var, analyzer_); };
  c_.stage.indices = c_.stage.indices.Map(moved);
  if (c_.stage.finish.defined()) {
    LoadCollector reads;
    reads.Visit(c_.stage.finish);
    LoadReplacer replacer;
    for (const auto* some : {&reads.always, &reads.sometimes}) {
      for (const tir::BufferLoad& read : *some)
        replacer.values.emplace_back(
            read.get(),
            tir::BufferLoad(read->buffer, read->indices.Map(moved), read->predicate, read->span));
    }
    c_.stage.finish =
        tir::Substitute(replacer.Mutate(c_.stage.finish), PointOf(line, place, all.var));
  }
  c_.outer_a.pop_back();
  c_.row = all;
  c_.joined = Contraction::Joined{line, place};
}

}  // namespace relaxvm::schedule::cpu
