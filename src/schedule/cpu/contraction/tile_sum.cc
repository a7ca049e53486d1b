// SPDX-License-Identifier: Apache-2.0
// The loops over the sum of a tile, with what they fetch while they compute.
#include <algorithm>
#include <bit>

#include "schedule/cpu/contraction/tile.h"

namespace relaxvm::schedule::cpu {
namespace {

using tir::For;
using tir::ForKind;
using tir::SeqStmt;

// An iteration over the sum takes several steps of a tile that has so many products in each, and at
// most so many of them together.
constexpr int64_t kFewestProducts = 8, kMostProducts = 64;
constexpr uint64_t kMostStepsAtOnce = 4;

}  // namespace

Stmt TileEmitter::FetchingB(const Stmt& steps, const Expr& k, int64_t count) const {
  const auto* loop = steps.as<tir::ForObj>();
  if (loop == nullptr) return steps;
  Buffer b(c_.LoadOf(c_.b)->buffer);
  const int64_t line = kLineBytes / SizeInBytes(b.elem_dtype());
  const int64_t run = c_.GroupInB() * width_ * count;  // elements of each step
  const int64_t lines = (run + line - 1) / line;
  const int64_t ahead = std::max<int64_t>(1, c_.fetch_b.ahead / kLineBytes / lines) * count;
  ffi::Map<Var, Expr> map;
  map.Set(c_.stage.reduce.back().var, k + Expr(ahead));
  if (c_.panel_width > 0) {
    map.Set(c_.panel, part_.panel);
    map.Set(c_.column, Expr(part_.columns.front().offset));
  } else {
    map.Set(c_.vector.var, panel_start_ + Expr(part_.columns.front().offset));
  }
  Expr at = tir::Substitute(c_.LoadOf(c_.b)->indices[0], map);
  if (lines > 1) at = ir::RampExpr(at, line, lines);
  return Annotated(loop, c_.fetch_b.near ? kPrefetchNear : kPrefetch, b.Load({at}));
}

int64_t TileEmitter::StepsOfIteration() const {
  if (HasNotes()) return c_.notes->block;
  return WidensLeft() ? BlockOfLeft() : StepsAtOnce();
}

Stmt TileEmitter::Sum() const {
  if (c_.stage.reduce.empty()) return Step(0);
  const std::vector<Axis>& reduce = c_.stage.reduce;
  const Axis& inner = reduce.back();
  const std::vector<Axis> outer(reduce.begin(), reduce.end() - 1);
  if (c_.guard.defined() && UsesVar(c_.guard, inner.var)) return OverOuter(reduce, Step(0));
  if (c_.side_by_side.has_value()) return OverOuter(outer, StepSideBySide());
  if (HasNotes()) return OverOuter(outer, StepsByNotes());
  if (WidensLeft()) return OverOuter(outer, WideningLeft());
  if (num_sets_ == 1) return OverOuter(outer, StepsThatFetch());
  // Neighbours along the innermost axis go to different sets, what is left into the first one.
  const Expr rounds = analyzer_->Simplify(ir::FloorDiv(inner.extent, num_sets_));
  Var round("round", Int(64)), rest("rest", Int(64));
  ffi::Array<Stmt> sets;
  for (int64_t set = 0; set < num_sets_; ++set)
    sets.push_back(AtK(Step(set), round * Expr(num_sets_) + Expr(set)));
  const Expr done = analyzer_->Simplify(rounds * Expr(num_sets_));
  const Expr left = analyzer_->Simplify(inner.extent - done);
  Stmt all = Loop(round, rounds, ForKind::kSerial, SeqStmt::Flatten(sets));
  if (CanFetchB()) all = FetchingB(all, round * Expr(num_sets_), num_sets_);
  Stmt both =
      SeqStmt::Flatten({all, Loop(rest, left, ForKind::kSerial, AtK(Step(0), done + rest))});
  return OverOuter(outer, both);
}

bool TileEmitter::TakesOneStep(const Machine& machine) const {
  const std::vector<Columns>& columns = part_.columns;
  const int64_t sums = part_.rows * static_cast<int64_t>(columns.size());
  // Beside seven addresses of rows less is left already.
  const bool are_most =
      sums * 6 >= machine.num_vectors * 5 || (part_.rows >= 7 && !DistanceOfRows().has_value());
  return are_most || columns.back().lanes < columns.front().lanes;
}

int64_t TileEmitter::StepsAtOnce() const {
  const int64_t products = part_.rows * static_cast<int64_t>(part_.columns.size());
  if (!part_.is_usual || c_.group > 1 || products < kFewestProducts || takes_one_step_) return 1;
  const auto fit = static_cast<uint64_t>(kMostProducts / products);
  return static_cast<int64_t>(std::bit_floor(std::clamp<uint64_t>(fit, 1, kMostStepsAtOnce)));
}

Stmt TileEmitter::Steps(const Expr& k, const Expr& count) const {
  const int64_t at_once = StepsAtOnce();
  const int64_t known = ir::AsInt(count).value_or(0);
  Var step("step", Int(64)), rest("rest", Int(64));
  if (at_once == 1 || known < 2 * at_once)
    return Loop(step, count, ForKind::kSerial, AtK(Step(0), k + step));
  const int64_t done = known / at_once * at_once;
  return SeqStmt::Flatten(
      {Loop(step, known / at_once, ForKind::kSerial, SomeSteps(k + step * Expr(at_once))),
       Loop(rest, known - done, ForKind::kSerial, AtK(Step(0), k + Expr(done) + rest))});
}

Stmt TileEmitter::SomeSteps(const Expr& k) const {
  ffi::Array<Stmt> some;
  for (int64_t i = 0; i < StepsAtOnce(); ++i) some.push_back(AtK(Step(0), k + Expr(i)));
  return SeqStmt::Flatten(some);
}

Stmt TileEmitter::StepsThatFetch() const {
  const Axis& inner = c_.stage.reduce.back();
  const Stmt one_by_one = Loop(inner.var, inner.extent, ForKind::kSerial, Step(0));
  if (FetchesB()) return FetchingB(one_by_one, inner.var, 1);
  const DLDataType type = Buffer(c_.LoadOf(c_.a)->buffer).elem_dtype();
  const int64_t size = kLineBytes / (SizeInBytes(type) * c_.group);
  if (ir::AsInt(inner.extent).value_or(size) < size) return Steps(0, inner.extent);
  if (next_.has_value()) {
    const int64_t each = StepsAtOnce();
    Var iteration("iteration", Int(64)), rest("rest", Int(64));
    const Expr count = analyzer_->Simplify(ir::FloorDiv(inner.extent, each));
    const Expr k = iteration * Expr(each), done = analyzer_->Simplify(count * Expr(each));
    const Expr left = analyzer_->Simplify(inner.extent - done);
    const auto end = part_.is_tallest ? NextOfB::End::kLoop : NextOfB::End::kSameLine;
    const Stmt steps =
        SeqStmt::Flatten({next_->WhileFetching(iteration, count, SomeSteps(k), end),
                          Loop(rest, left, ForKind::kSerial, AtK(Step(0), done + rest))});
    if (!CanFetchB()) return steps;
    return tir::IfThenElse(ir::Equal(part_.next->tiles, 1), FetchingB(one_by_one, inner.var, 1),
                           steps);
  }
  Var block("block", Int(64));
  const Expr blocks = analyzer_->Simplify(ir::FloorDiv(inner.extent, size));
  const Expr fetched = NextRowsOfA(block * Expr(size));
  if (!fetched.defined()) return Steps(0, inner.extent);
  const Expr done = analyzer_->Simplify(blocks * Expr(size));
  const Expr left = analyzer_->Simplify(inner.extent - done);
  const Stmt steps = Steps(block * Expr(size), Expr(size));
  return SeqStmt::Flatten({OverBlocks(block, blocks, steps, fetched), Steps(done, left)});
}

bool TileEmitter::CanFetchB() const {
  const bool is_shared = part_.next.has_value() && ir::AsInt(part_.next->tiles).value_or(1) > 1;
  return part_.rows <= c_.fetch_b.most_rows && !is_shared;
}

bool TileEmitter::FetchesB() const {
  if (!CanFetchB()) return false;
  // Where nobody knows how many tiles share B, low ones are rarely more than one.
  return !part_.next.has_value() || !part_.is_usual || ir::IsIntValue(part_.next->tiles, 1);
}

Stmt TileEmitter::OverBlocks(const Var& block, const Expr& blocks, const Stmt& body,
                             const Expr& rows) const {
  if (next_.has_value()) return next_->WhileFetching(block, blocks, body, NextOfB::End::kBranch);
  if (!rows.defined()) return Loop(block, blocks, ForKind::kSerial, body);
  const For loop(block, 0, blocks, ForKind::kSerial, body);
  return Annotated(loop.get(), kPrefetch, rows);
}

Expr TileEmitter::NextRowsOfA(const Expr& k) const {
  const auto* load = c_.LoadOf(c_.a);
  if (c_.fetch_depth == 0 || c_.line_width > 0 || FetchesB()) return Expr();
  const auto linear = LinearOffset::Of(load->indices[0], {c_.row});
  const auto step = linear.has_value() ? ir::AsInt(linear->Coeff(c_.row.var)) : std::nullopt;
  if (!step.has_value()) return Expr();
  ffi::Map<Var, Expr> map;
  map.Set(c_.row.var, row_start_ + Expr(part_.rows));
  map.Set(c_.stage.reduce.back().var, k);
  Expr at = tir::Substitute(load->indices[0], map);
  if (part_.rows > 1) at = ir::RampExpr(at, step.value(), part_.rows);
  return Buffer(load->buffer).Load({at});
}

Stmt TileEmitter::AtK(const Stmt& stmt, const Expr& k) const {
  ffi::Map<Var, Expr> map;
  map.Set(c_.stage.reduce.back().var, k);
  return tir::Substitute(stmt, map);
}

}  // namespace relaxvm::schedule::cpu
