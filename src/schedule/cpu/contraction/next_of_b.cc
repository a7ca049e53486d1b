// SPDX-License-Identifier: Apache-2.0
// Loops over the sum that fetch a tile's share of what comes next of B.
#include "schedule/cpu/contraction/next_of_b.h"

#include <algorithm>

namespace relaxvm::schedule::cpu {
namespace {

using tir::For;
using tir::ForKind;
using tir::SeqStmt;

// Lines that a round fetches, where an iteration needs several, and that are fetched without a loop
// of their own.
constexpr int64_t kLinesOfRound = 4, kMostLines = 16;
// An iteration that uses so many lines fetches one at a time.
constexpr int64_t kFewLines = 8;
// Where nobody knows how many tiles share the work, each fetches no more than its share of so many.
constexpr int64_t kFewestTiles = 2;
constexpr int64_t kFewRounds = 4;

}  // namespace

int64_t PartOfNext::LinesOf(int64_t some) const {
  return (some * bytes_of_step + kLineBytes - 1) / kLineBytes;
}

Expr PartOfNext::Share() const {
  return share.defined() ? share : ir::CeilDiv(LinesOf(steps), ir::Max(tiles, 1));
}

NextOfB::NextOfB(const Contraction& c, const PartOfNext& next, int64_t steps_of_iteration,
                 arith::Analyzer* analyzer)
    : c_(c), next_(next), analyzer_(analyzer), steps_(steps_of_iteration) {
  lines_ = next_.LinesOf(steps_);
  lines_each_ = lines_ <= kFewLines ? 1 : kLinesOfRound;
  const auto tiles = ir::AsInt(next_.tiles);
  if (tiles.has_value() && lines_ > 0) {
    const int64_t some = std::max<int64_t>(*tiles, 1), all = (lines_ + some - 1) / some;
    if (all <= kMostLines) lines_each_ = all;
  }
  const int64_t fewest = lines_each_ == 1 ? kFewestTiles : 1;
  const int64_t together =
      lines_each_ * std::max<int64_t>(ir::AsInt(next_.tiles).value_or(fewest), 1);
  most_rounds_ = (lines_ + together - 1) / together;
}

void NextOfB::Bind(ffi::Array<Stmt>* seq) const {
  const Expr share = next_.Share();
  const Expr tiles = ir::Max(next_.tiles, 1);
  seq->push_back(tir::Bind(first_, next_.tile * share));
  const Expr left = ir::Max(ir::Min(share, Expr(next_.LinesOf(next_.steps)) - first_), 0);
  // All tiles together fetch as much as they use.  Few rounds are found without a division, the
  // code of which is longer than a step of the sum.
  Expr rounds = ir::CeilDiv(lines_, tiles * Expr(lines_each_));
  Expr fetching = ir::CeilDiv(left, rounds_ * Expr(lines_each_));
  if (most_rounds_ <= kFewRounds) {
    rounds = 1;
    fetching = ir::CeilDiv(left, lines_each_);
    for (int64_t i = 1; i < most_rounds_; ++i) {
      const Expr more = ir::Less(tiles * Expr(lines_each_ * i), lines_);
      rounds = ir::Select(more, Expr(i + 1), rounds);
      fetching = ir::Select(more, ir::CeilDiv(left, lines_each_ * (i + 1)), fetching);
    }
  }
  seq->push_back(tir::Bind(rounds_, analyzer_->Simplify(rounds)));
  seq->push_back(tir::Bind(fetching_, analyzer_->Simplify(fetching)));
}

Stmt NextOfB::WhileFetching(const Var& iteration, const Expr& count, const Stmt& body,
                            End end) const {
  const std::vector<Axis> outer(c_.stage.reduce.begin(), c_.stage.reduce.end() - 1);
  const int64_t depth =
      outer.empty() ? next_.steps : ir::AsInt(c_.stage.reduce.back().extent).value();
  const Expr done = LinearIndex(outer) * Expr(depth / steps_);
  const int64_t line = kLineBytes / SizeInBytes(next_.b.elem_dtype());
  auto at = [&](const Expr& rounds) {
    return next_.first + (first_ + rounds * Expr(lines_each_)) * Expr(line);
  };
  auto fetch = [&](const Var& round, const Expr& rounds, Expr place) {
    if (lines_each_ > 1) place = ir::RampExpr(place, line, lines_each_);
    const For loop(round, 0, rounds, ForKind::kSerial, tir::Evaluate(Expr(0)));
    return Annotated(loop.get(), kPrefetch, next_.b.Load({place}));
  };
  const Expr some = analyzer_->Simplify(ir::Max(ir::Min(fetching_ - done, count), 0));
  ffi::Array<Stmt> all, each;
  if (end == End::kBranch) {
    Var round("round", Int(64));
    const Expr rounds = ir::Select(ir::Less(iteration, some), rounds_, 0);
    each.push_back(fetch(round, rounds, at((done + iteration) * rounds_ + round)));
  } else {
    const Expr now = done + iteration;
    const Expr place = at((end == End::kLoop ? now : ir::Min(now, fetching_)) * rounds_);
    for (int64_t i = 0; i < most_rounds_; ++i) {
      Var apart("apart", Int(64));
      all.push_back(tir::Bind(apart, ir::Min(i, rounds_ - 1) * Expr(lines_each_ * line)));
      each.push_back(fetch(Var("round", Int(64)), 1, place + apart));
    }
  }
  each.push_back(body);
  const Stmt fetching = SeqStmt::Flatten(each);
  if (end != End::kLoop) {
    all.push_back(Loop(iteration, count, ForKind::kSerial, fetching));
    return SeqStmt::Flatten(all);
  }
  Var first("first", Int(64)), begin("begin", Int(64)), further("further", Int(64));
  auto from = [&](const Stmt& loop, const Var& step, const Expr& start) {
    ffi::Map<Var, Expr> map;
    map.Set(iteration, start + step);
    return tir::Substitute(loop, map);
  };
  all.push_back(tir::Bind(begin, some));
  all.push_back(Loop(first, begin, ForKind::kSerial, from(fetching, first, 0)));
  all.push_back(Loop(further, count - begin, ForKind::kSerial, from(body, further, begin)));
  return SeqStmt::Flatten(all);
}

}  // namespace relaxvm::schedule::cpu
