// SPDX-License-Identifier: Apache-2.0
// A right side of few columns, which would leave most of a vector empty: vectors run along the sum
// instead.  A tile has as many rows as make a vector of results of them and the columns; each
// result has a register of sums, and these are added up in pairs until lane i of one register is
// result i.  The right side is copied so that a column's elements of a vector lie side by side.
#include <algorithm>

#include "schedule/cpu/contraction/contraction.h"
#include "schedule/cpu/nest.h"

namespace relaxvm::schedule::cpu {
namespace {

using tir::BufferStore;
using tir::For;
using tir::ForKind;
using tir::SeqStmt;

constexpr int64_t kMostWords = 128 << 10;  // of the copy
constexpr int64_t kRowsWorthCopy = 32;

class FewColumnsEmitter {
 public:
  FewColumnsEmitter(const Contraction& c, const Machine& machine, arith::Analyzer* analyzer)
      : c_(c),
        machine_(machine),
        analyzer_(analyzer),
        lanes_(machine.Lanes(std::max<int64_t>(SizeInBytes(c.acc), 1))) {
    PutPointsFirst(&c_.stage.reduce);
  }

  // Null: never.
  Expr WhenFaster() {
    if (!HasForm() ||
        CostOfFewColumns(NumVectors(), columns_) >= static_cast<double>(depth_ * NumOuter()))
      return Expr();
    // A picture has enough windows.
    if (c_.walks_windows && !ir::AsInt(c_.row.extent).has_value()) return Expr(1);
    const Expr rows = c_.row.extent * NumPoints(c_.outer_a);
    const Expr enough = analyzer_->Simplify(ir::GreaterEqual(rows, kRowsWorthCopy));
    return ir::IsIntValue(enough, 0) ? Expr() : enough;
  }

  Stmt Run() {
    const int64_t size = NumVectors() * columns_ * lanes_;
    const Buffer right("columns", {Expr(size)}, c_.acc);
    const Stmt copy = Copy(right);
    c_.b = right.Load({InCopy(c_.stage.reduce.back().var, c_.vector.var)});
    return SeqStmt::Flatten({tir::AllocBuffer(right), copy, ranges_ ? Lines() : Chunks()});
  }

 private:
  bool HasForm() {
    const auto columns = ir::AsInt(c_.vector.extent);
    if (c_.acc != Float(32) || c_.group > 1 || c_.group_if_packed > 1 ||
        c_.side_by_side.has_value() || c_.other_row.has_value() || c_.stage.reduce.empty() ||
        !AreFewColumns(columns.value_or(0), lanes_))
      return false;
    columns_ = *columns;
    for (const Axis& axis : c_.OuterOfB()) {
      if (!ir::IsIntValue(axis.extent, 1)) return false;
    }
    for (const Axis& axis : c_.stage.reduce) {
      if (ir::AsInt(axis.extent).value_or(0) < 1) return false;
    }
    depth_ = *ir::AsInt(c_.stage.reduce.back().extent);
    if (NumVectors() * columns_ * lanes_ > kMostWords) return false;
    const auto a = LinearOffset::Of(c_.LoadOf(c_.a)->indices[0], c_.AllAxes());
    return a.has_value() && ir::IsIntValue(a->Coeff(c_.stage.reduce.back().var), 1) && KnowsGuard();
  }

  // A guard that asks for rows cuts each line of them into ranges.
  bool KnowsGuard() {
    if (!c_.guard.defined()) return true;
    if (UsesVar(c_.guard, c_.stage.reduce.back().var)) return false;
    if (!UsesVar(c_.guard, c_.row.var)) return true;
    ranges_ = RowRanges::Of(c_, c_.row);
    return ranges_.has_value() && ranges_->Asked() + 1 < c_.stage.reduce.size() &&
           !c_.outer_a.empty();
  }

  std::vector<Axis> Outer() const { return {c_.stage.reduce.begin(), c_.stage.reduce.end() - 1}; }
  int64_t NumOuter() const { return *ir::AsInt(analyzer_->Simplify(NumPoints(Outer()))); }
  int64_t VectorsOfRun() const { return (depth_ + lanes_ - 1) / lanes_; }
  int64_t NumVectors() const { return NumOuter() * VectorsOfRun(); }

  void ChooseTile() {
    rows_of_result_ = lanes_ / columns_;
    if (const auto rows = ir::AsInt(c_.row.extent))
      rows_of_result_ = std::min(rows_of_result_, std::max<int64_t>(*rows, 1));
    results_ = std::max<int64_t>(1, machine_.num_vectors / 2 / lanes_);
    rows_ = rows_of_result_ * results_;
    num_tiles_ = analyzer_->Simplify(ir::CeilDiv(c_.row.extent, rows_));
  }

  // In products of vectors.
  int64_t WorkOfTile() const { return NumVectors() * rows_ * columns_ + rows_ * 2; }

  // Chunks of tiles are tasks.
  Stmt Chunks() {
    ChooseTile();
    Var chunk("chunk", Int(64));
    const int64_t per_task = std::max<int64_t>(1, kWorkPerTask / WorkOfTile());
    const Expr first = chunk * Expr(per_task);
    std::vector<Axis> tasks = c_.outer_a;
    tasks.push_back({chunk, analyzer_->Simplify(ir::CeilDiv(num_tiles_, per_task))});
    const Expr work = ir::Min(Expr(per_task), num_tiles_) * Expr(WorkOfTile());
    return OverTasks(tasks, Tiles(first, ir::Min(Expr(per_task), num_tiles_ - first)),
                     analyzer_->Simplify(work), analyzer_);
  }

  // Whole lines are.
  Stmt Lines() {
    const Expr work = c_.row.extent * Expr(NumVectors() * columns_);
    auto of = [this](const Contraction& range) {
      FewColumnsEmitter part = *this;
      part.c_ = range;
      part.ChooseTile();
      return part.Tiles(Expr(0), part.num_tiles_);
    };
    ffi::Array<Stmt> line;
    if (const auto parts = ranges_->Known(c_, analyzer_)) {
      for (const Contraction& part : *parts) line.push_back(of(part));
    } else {
      line.push_back(ranges_->Each(Expr(0), c_.row.extent, of(ranges_->Any(c_, analyzer_))));
    }
    return OverTasks(c_.outer_a, SeqStmt::Flatten(line), analyzer_->Simplify(work), analyzer_);
  }

  Stmt Tiles(const Expr& first, const Expr& count) const {
    Var tile("tile", Int(64));
    return Loop(tile, analyzer_->Simplify(count), ForKind::kSerial,
                Tile((first + tile) * Expr(rows_)));
  }

  Stmt EachLane(const Var& lane, int64_t count, const Stmt& body) const {
    return For(lane, 0, count, ForKind::kVectorized, body);
  }

  // Where the elements of a column lie in the copy: those of a vector side by side, `place` is
  // counted as if nothing lay between two vectors of a column.
  Expr InCopy(const Expr& place, const Expr& column) const {
    return (LinearIndex(Outer()) * Expr(VectorsOfRun() * columns_) + column) * Expr(lanes_) + place;
  }
  Expr PlaceOf(const Expr& vector) const { return vector * Expr(columns_ * lanes_); }

  // What a run has less than whole vectors becomes 0.
  Stmt Copy(const Buffer& to) const {
    Var vector("vector", Int(64)), column("column", Int(64)), lane("lane", Int(64));
    ffi::Map<Var, Expr> map;
    map.Set(c_.stage.reduce.back().var, vector * Expr(lanes_) + lane);
    map.Set(c_.vector.var, column);
    map.Set(c_.panel, Expr(0));
    map.Set(c_.column, column);
    Expr value = ir::Cast(c_.acc, tir::Substitute(c_.b, map));
    if (depth_ % lanes_ != 0)
      value = PredicateLoads(value, lane, ir::Less(lane, Expr(depth_) - vector * Expr(lanes_)));
    const Stmt store =
        EachLane(lane, lanes_, BufferStore(to, value, {InCopy(PlaceOf(vector) + lane, column)}));
    return Loops(Outer(), Loop(vector, Expr(VectorsOfRun()), ForKind::kSerial,
                               Loop(column, Expr(columns_), ForKind::kSerial, store)));
  }

  // All rows from `from` on, or those that there are.
  Stmt Tile(const Expr& from) const {
    Var start("start", Int(64));
    Stmt all = Rows(start, Expr());
    if (!analyzer_->ProveEqual(ir::FloorMod(c_.row.extent, rows_), 0)) {
      const Expr inside = c_.row.extent - start;
      const Stmt some = Rows(start, inside);
      all = tir::IfThenElse(ir::GreaterEqual(inside, rows_), all, some);
    }
    return SeqStmt::Flatten({tir::Bind(start, analyzer_->Simplify(from)), all});
  }

  // The tile from `start` on; `inside`: how many of its rows there are, null: all.
  Stmt Rows(const Var& start, const Expr& inside) const {
    ffi::Array<Stmt> seq;
    std::vector<Buffer> acc;  // of each vector of results
    for (int64_t result = 0; result < results_; ++result) {
      acc.emplace_back("acc", ffi::Array<Expr>{Expr(lanes_ * lanes_)}, c_.acc, "local");
      seq.push_back(tir::AllocBuffer(acc.back()));
      seq.push_back(Fill(acc.back(), ir::Const(c_.acc, 0), lanes_ * lanes_, lanes_));
    }
    Var vector("vector", Int(64));
    const int64_t whole = depth_ / lanes_;
    ffi::Array<Stmt> run = {
        Loop(vector, Expr(whole), ForKind::kSerial, Products(acc, start, inside, vector, lanes_))};
    if (depth_ % lanes_ != 0)
      run.push_back(Products(acc, start, inside, Expr(whole), depth_ % lanes_));
    seq.push_back(OverGuarded(c_, Outer(), SeqStmt::Flatten(run)));
    Buffer sums("sums", {Expr((results_ + 1) * lanes_)}, c_.acc, "local");
    seq.push_back(tir::AllocBuffer(sums));
    for (int64_t result = 0; result < results_; ++result) {
      const Buffer added =
          AddUpRegisters(acc[static_cast<size_t>(result)], lanes_, Combine::kSum, &seq);
      seq.push_back(
          BufferStore(sums, added.Load({ir::RampExpr(Expr(0), 1, lanes_)}),
                      {ir::RampExpr(Expr(result * rows_of_result_ * columns_), 1, lanes_)}));
    }
    seq.push_back(Store(sums, start, inside));
    return SeqStmt::Flatten(seq);
  }

  // Adds the products of one vector of the run, of which `count` lanes are there.
  Stmt Products(const std::vector<Buffer>& acc, const Var& start, const Expr& inside,
                const Expr& vector, int64_t count) const {
    ffi::Array<Stmt> seq;
    for (int64_t row = 0; row < rows_; ++row) {
      const Expr place = inside.defined() ? Expr(ir::Min(Expr(row), inside - Expr(1))) : Expr(row);
      for (int64_t column = 0; column < columns_; ++column) {
        Var lane("lane", Int(64));
        ffi::Map<Var, Expr> map;
        map.Set(c_.row.var, start + place);
        map.Set(c_.stage.reduce.back().var, vector * Expr(lanes_) + lane);
        Expr left = tir::Substitute(c_.a, map);
        if (count < lanes_) left = PredicateLoads(left, lane, ir::Less(lane, Expr(count)));
        left = ir::Cast(c_.acc, left);
        ffi::Map<Var, Expr> in_copy;
        in_copy.Set(c_.vector.var, Expr(column));
        in_copy.Set(c_.stage.reduce.back().var, PlaceOf(vector) + lane);
        const Expr right = tir::Substitute(c_.b, in_copy);
        const Buffer& sums = acc[static_cast<size_t>(row / rows_of_result_)];
        const int64_t place_of_sum = row % rows_of_result_ * columns_ + column;
        const Expr to = Expr(place_of_sum * lanes_) + lane;
        seq.push_back(EachLane(
            lane, lanes_,
            BufferStore(sums, ir::CallIntrin(ir::Intrin::kFma, {left, right, sums.Load({to})}),
                        {to})));
      }
    }
    return SeqStmt::Flatten(seq);
  }

  // Of one column, rows that are neighbours in C.
  Stmt StoreRows(const Buffer& sums, const Var& start, const Expr& inside) const {
    ffi::Array<Stmt> seq;
    for (int64_t from = 0; from < rows_; from += lanes_) {
      Var lane("lane", Int(64));
      const int64_t count = std::min(lanes_, rows_ - from);
      Expr predicate;
      if (inside.defined()) predicate = ir::Less(lane, inside - Expr(from));
      if (!inside.defined() && count < lanes_) predicate = ir::Less(lane, Expr(count));
      ffi::Map<Var, Expr> map;
      map.Set(c_.row.var, start + Expr(from) + lane);
      map.Set(c_.vector.var, Expr(0));
      Expr value = sums.Load({Expr(from) + lane});
      if (c_.stage.finish.defined()) {
        map.Set(c_.stage.reduced, value);
        value = tir::Substitute(c_.stage.finish, map);
      }
      value = ir::Cast(c_.stage.out->elem_dtype(), value);
      if (predicate.defined()) value = PredicateLoads(value, lane, predicate);
      seq.push_back(EachLane(lane, lanes_,
                             BufferStore(*c_.stage.out, value,
                                         {tir::Substitute(c_.stage.indices[0], map)}, predicate)));
    }
    return SeqStmt::Flatten(seq);
  }

  Stmt Store(const Buffer& sums, const Var& start, const Expr& inside) const {
    const auto out = LinearOffset::Of(c_.stage.indices[0], c_.AllAxes());
    if (columns_ == 1 && ir::IsIntValue(out->Coeff(c_.row.var), 1))
      return StoreRows(sums, start, inside);
    int64_t wide = std::min<int64_t>(4, lanes_);
    while (wide < columns_) wide *= 2;
    TilePart part{Expr(0), start, rows_, {{0, wide}}, Expr(), std::nullopt, std::nullopt};
    if (wide != columns_) part.limit = Expr(columns_);
    part.partial = PartialSums{sums, start, 0, columns_};
    return EmitFinish(c_, columns_, part, inside.defined() ? inside : Expr(rows_), machine_,
                      analyzer_);
  }

  Contraction c_;
  const Machine& machine_;
  arith::Analyzer* analyzer_;
  int64_t lanes_;
  int64_t columns_ = 0;
  int64_t depth_ = 0;           // of the innermost axis of the sum
  int64_t rows_of_result_ = 1;  // that make a vector of results
  int64_t results_ = 1;         // such vectors of a tile
  int64_t rows_ = 1;
  Expr num_tiles_;
  std::optional<RowRanges> ranges_;  // of a line
};

}  // namespace

FewColumns EmitFewColumns(const Contraction& c, const Machine& machine, arith::Analyzer* analyzer) {
  FewColumnsEmitter emitter(c, machine, analyzer);
  const Expr when = emitter.WhenFaster();
  return {when, when.defined() ? emitter.Run() : Stmt()};
}

Expr WhenFewColumns(const Contraction& c, const Machine& machine, arith::Analyzer* analyzer) {
  return FewColumnsEmitter(c, machine, analyzer).WhenFaster();
}

}  // namespace relaxvm::schedule::cpu
