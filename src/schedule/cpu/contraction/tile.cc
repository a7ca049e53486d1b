// SPDX-License-Identifier: Apache-2.0
// EmitTile: a register tile from its first sums to what is stored of them.
#include "schedule/cpu/contraction/tile.h"

#include <algorithm>

#include "schedule/cpu/loads.h"

namespace relaxvm::schedule::cpu {
namespace {

using tir::BufferStore;
using tir::ForKind;
using tir::SeqStmt;

constexpr int64_t kMostSets = 4;
constexpr size_t kMostRegistersOfRun = 4;
// Of CostOf: what is more than a sum, and what has a polynomial.
constexpr int kFinishOfCode = 2, kDearFinish = 20;

}  // namespace

Stmt TileEmitter::Run() {
  ffi::Array<Stmt> seq = {BindStart(), tir::AllocBuffer(acc_)};
  BindRows(&seq);
  if (next_.has_value()) next_->Bind(&seq);
  for (int64_t set = 0; set < num_sets_; ++set) {
    EachRegister([&](int64_t row, const Columns& c, bool) {
      Var lane("lane", Int(64));
      Expr from = part_.partial.has_value() && part_.partial->width_of_whole == 0 && set == 0
                      ? part_.partial->sums.Load({InSums(RowAt(row), c) + lane})
                      : Expr(ir::Const(c_.acc, 0));
      seq.push_back(Lanes(lane, c, BufferStore(acc_, from, {At(set, row, c) + lane})));
    });
  }
  if (c_.NeedsCorrection()) {
    seq.push_back(tir::AllocBuffer(correction_));
    for (const Columns& c : part_.columns)
      seq.push_back(BufferStore(correction_, ir::Const(Int(32, c.lanes), 0), {Run(c.offset, c)}));
  }
  seq.push_back(Sum());
  if (c_.rest_of_group.defined()) seq.push_back(RestOfGroups());
  AddSets(&seq);
  if (part_.partial.has_value()) {
    StorePartial(&seq);
  } else {
    Store(&seq);
  }
  return SeqStmt::Flatten(seq);
}

Stmt TileEmitter::Finish(const Expr& num_rows) const {
  Var row("row", Int(64));
  ffi::Array<Stmt> runs;
  for (const Columns& c : WideRuns())
    runs.push_back(StoreRun(row, c, IsLast(c), part_.partial->sums, InSums(RowAt(row), c)));
  return SeqStmt::Flatten(
      {BindStart(), Loop(row, num_rows, ForKind::kSerial, SeqStmt::Flatten(runs))});
}

int64_t TileEmitter::SetsFor(const Machine& machine) const {
  const int64_t registers = part_.rows * static_cast<int64_t>(part_.columns.size());
  const auto columns = static_cast<int64_t>(part_.columns.size());
  const int64_t others = columns + 1 + (c_.NeedsCorrection() || ByHalves() ? columns : 0);
  int64_t sets = 1;
  if (c_.stage.reduce.empty() || c_.side_by_side.has_value()) return sets;
  if (c_.guard.defined() && UsesVar(c_.guard, c_.stage.reduce.back().var)) return sets;
  const int64_t depth = ir::AsInt(c_.stage.reduce.back().extent).value_or(int64_t{1} << 20);
  while (sets < kMostSets && registers * sets < machine.chains &&
         registers * sets * 2 + others <= machine.num_vectors && depth >= 16 * sets)
    sets *= 2;
  return sets;
}

std::vector<Columns> TileEmitter::WideRuns() const {
  std::vector<Columns> runs;
  auto is_whole = [&](size_t v) {
    return v < part_.columns.size() && part_.columns[v].lanes == lanes_ &&
           !(part_.limit.defined() && v + 1 == part_.columns.size());
  };
  const bool of_panels = c_.panels_of_tile.has_value();
  auto panel_of = [&](size_t v) {
    return of_panels ? part_.columns[v].offset / panel_width_ : int64_t{0};
  };
  for (size_t v = 0; v < part_.columns.size();) {
    size_t count = 1;
    while (count < kMostRegistersOfRun && is_whole(v) && is_whole(v + count) &&
           is_whole(v + 2 * count - 1) && panel_of(v) == panel_of(v + 2 * count - 1))
      count *= 2;
    runs.push_back({part_.columns[v].offset, part_.columns[v].lanes * static_cast<int64_t>(count)});
    v += count;
  }
  return runs;
}

void TileEmitter::EachRegister(
    const std::function<void(int64_t, const Columns&, bool)>& body) const {
  for (int64_t row = 0; row < part_.rows; ++row) {
    for (size_t v = 0; v < part_.columns.size(); ++v)
      body(row, part_.columns[v], v + 1 == part_.columns.size());
  }
}

void TileEmitter::PlaceColumns(const Columns& c, const Expr& lane, ffi::Map<Var, Expr>* map) const {
  if (!c_.panels_of_tile.has_value()) {
    map->Set(c_.vector.var, panel_start_ + Expr(c.offset) + lane);
    return;
  }
  map->Set(c_.panels_of_tile->var, c_.panels_of_tile->var + Expr(c.offset / panel_width_));
  map->Set(c_.vector.var, Expr(c.offset % panel_width_) + lane);
}

void TileEmitter::AddSets(ffi::Array<Stmt>* seq) const {
  for (int64_t step = num_sets_ / 2; step > 0; step /= 2) {
    for (int64_t set = 0; set < step; ++set) {
      EachRegister([&](int64_t row, const Columns& c, bool) {
        Var lane("lane", Int(64));
        Expr to = At(set, row, c) + lane, from = At(set + step, row, c) + lane;
        seq->push_back(
            Lanes(lane, c, BufferStore(acc_, ir::Add(acc_.Load({to}), acc_.Load({from})), {to})));
      });
    }
  }
}

Stmt TileEmitter::StoreRun(const Expr& row, const Columns& c, bool last, const Buffer& sums,
                           const Expr& at) const {
  Var lane("lane", Int(64));
  ffi::Map<Var, Expr> map;
  map.Set(c_.row.var, RowAt(row));
  PlaceColumns(c, lane, &map);
  Expr value = sums.Load({at + lane});
  if (c_.NeedsCorrection() && !part_.partial.has_value())
    value = value - correction_.Load({Expr(c.offset) + lane});
  if (c_.stage.finish.defined()) {
    map.Set(c_.stage.reduced, value);
    value = Offsets(tir::Substitute(c_.stage.finish, map));
  }
  value = ir::Cast(c_.stage.out->elem_dtype(), value);
  Expr inside = Inside(lane, c, last);
  if (inside.defined()) value = PredicateLoads(value, lane, inside);
  Expr to = tir::Substitute(c_.stage.indices[0], map);
  if (c_.line_width > 0) to = analyzer_->Simplify(to);
  return Lanes(lane, c, BufferStore(*c_.stage.out, value, {to}, inside));
}

void TileEmitter::StorePartial(ffi::Array<Stmt>* seq) const {
  EachRegister([&](int64_t row, const Columns& c, bool) {
    Var lane("lane", Int(64));
    Expr sum = acc_.Load({At(0, row, c) + lane});
    if (c_.NeedsCorrection()) sum = sum - correction_.Load({Expr(c.offset) + lane});
    Expr to = InSums(RowAt(row), c) + lane;
    seq->push_back(Lanes(lane, c, BufferStore(part_.partial->sums, sum, {to})));
  });
}

void TileEmitter::Store(ffi::Array<Stmt>* seq) const {
  if (!IsDearToFinish(c_) || part_.rows == 1) {
    EachRegister([&](int64_t row, const Columns& c, bool last) {
      seq->push_back(StoreRun(Expr(row), c, last, acc_, At(0, row, c)));
    });
    return;
  }
  // Written once for each register, a polynomial makes more code than the product itself: the
  // sums go to memory, where a loop over rows reads them.
  Buffer sums("sums", {Expr(part_.rows * width_)}, c_.acc, "local");
  seq->push_back(tir::AllocBuffer(sums));
  EachRegister([&](int64_t row, const Columns& c, bool) {
    Var lane("lane", Int(64));
    Expr at = At(0, row, c) + lane;
    seq->push_back(Lanes(lane, c, BufferStore(sums, acc_.Load({at}), {at})));
  });
  Var row("row", Int(64));
  ffi::Array<Stmt> runs;
  for (const Columns& c : WideRuns()) {
    const Expr at = row * Expr(width_) + Expr(c.offset);
    runs.push_back(StoreRun(row, c, IsLast(c), sums, at));
  }
  seq->push_back(Loop(row, Expr(part_.rows), ForKind::kSerial, SeqStmt::Flatten(runs)));
}

bool FinishTakesCode(const Contraction& c) {
  return c.stage.finish.defined() && CostOf(c.stage.finish) >= kFinishOfCode;
}

bool IsDearToFinish(const Contraction& c) {
  return c.stage.finish.defined() && CostOf(c.stage.finish) >= kDearFinish;
}

Stmt OverGuarded(const Contraction& c, const std::vector<Axis>& outer, const Stmt& body) {
  if (!c.guard.defined()) return Loops(outer, body);
  size_t asked = outer.size();
  while (asked > 0 && !UsesVar(c.guard, outer[asked - 1].var)) --asked;
  const auto at = outer.begin() + static_cast<std::ptrdiff_t>(asked);
  return Loops({outer.begin(), at}, tir::IfThenElse(c.guard, Loops({at, outer.end()}, body)));
}

Stmt EmitTile(const Contraction& c, int64_t width, const TilePart& part, const Machine& machine,
              arith::Analyzer* analyzer) {
  return TileEmitter(c, width, part, machine, analyzer).Run();
}

Stmt EmitFinish(const Contraction& c, int64_t width, const TilePart& part, const Expr& num_rows,
                const Machine& machine, arith::Analyzer* analyzer) {
  return TileEmitter(c, width, part, machine, analyzer).Finish(num_rows);
}

}  // namespace relaxvm::schedule::cpu
