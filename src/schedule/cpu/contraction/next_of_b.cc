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
// Where nobody knows how many tiles share the work, these few have code of their own.
constexpr int64_t kTwoOrThreeTiles = 3;

}  // namespace

NextOfB::NextOfB(const Contraction& c, const PartOfNext& next, int64_t steps_of_iteration,
                 arith::Analyzer* analyzer)
    : c_(c), next_(next), analyzer_(analyzer), steps_(steps_of_iteration) {
  lines_ = LinesOf(steps_);
  lines_each_ = lines_ <= kFewLines ? 1 : kLinesOfRound;
  if (const auto tiles = ir::AsInt(next_.tiles)) {
    const int64_t all = (lines_ + *tiles - 1) / std::max<int64_t>(*tiles, 1);
    if (all <= kMostLines) lines_each_ = all;
  }
}

int64_t NextOfB::LinesOf(int64_t steps) const {
  return (steps * next_.bytes_of_step + kLineBytes - 1) / kLineBytes;
}

void NextOfB::Bind(ffi::Array<Stmt>* seq) const {
  // All tiles together fetch as much as they use.
  const Expr tiles = ir::Max(next_.tiles, 1);
  Expr rounds = ir::CeilDiv(lines_, tiles * Expr(lines_each_));
  if (HasFewTiles())
    rounds = ir::Select(ir::LessEqual(tiles, kTwoOrThreeTiles), LinesOfFew(), rounds);
  seq->push_back(tir::Bind(rounds_, analyzer_->Simplify(rounds)));
  seq->push_back(
      tir::Bind(fetching_, ir::CeilDiv(LinesOf(next_.steps), rounds_ * Expr(lines_each_))));
  seq->push_back(tir::Bind(share_, analyzer_->Simplify(ir::CeilDiv(fetching_, tiles))));
}

bool NextOfB::HasFewTiles() const {
  return lines_each_ == 1 && lines_ > 2 && !ir::AsInt(next_.tiles).has_value();
}

Stmt NextOfB::Fetch(const Var& round, const Expr& rounds, const Expr& from, int64_t lines) const {
  const Buffer b(c_.LoadOf(c_.b)->buffer);
  const int64_t line = kLineBytes / SizeInBytes(b.elem_dtype());
  Expr at = next_.first + (from + round) * Expr(lines * line);
  if (lines > 1) at = ir::RampExpr(at, line, lines);
  const For loop(round, 0, rounds, ForKind::kSerial, tir::Evaluate(Expr(0)));
  return Annotated(loop.get(), kPrefetch, b.Load({at}));
}

Stmt NextOfB::WhileFetching(const Var& iteration, const Expr& count, const Stmt& body,
                            bool is_small) const {
  const std::vector<Axis> outer(c_.stage.reduce.begin(), c_.stage.reduce.end() - 1);
  const int64_t depth =
      outer.empty() ? next_.steps : ir::AsInt(c_.stage.reduce.back().extent).value();
  const Expr first = next_.tile * share_, done = LinearIndex(outer) * Expr(depth / steps_);
  const Expr begin = first + done;
  const Expr left = ir::Min(share_, fetching_ - first) - done;
  const Expr some = analyzer_->Simplify(ir::Max(ir::Min(left, count), 0));
  Var round("round", Int(64)), end("end", Int(64)), rest("iteration", Int(64));
  const Expr from = (begin + iteration) * rounds_;
  if (!is_small) {
    const Expr rounds = ir::Select(ir::Less(iteration, some), rounds_, 0);
    return Loop(iteration, count, ForKind::kSerial,
                SeqStmt::Flatten({Fetch(round, rounds, from, lines_each_), body}));
  }
  auto fetching = [&](const Stmt& fetch) {
    return For(iteration, 0, end, ForKind::kSerial, SeqStmt::Flatten({fetch, body}));
  };
  Stmt all = fetching(Fetch(round, rounds_, from, lines_each_));
  if (HasFewTiles()) {
    all = tir::IfThenElse(ir::LessEqual(next_.tiles, kTwoOrThreeTiles),
                          fetching(Fetch(round, 1, begin + iteration, LinesOfFew())), all);
  }
  ffi::Map<Var, Expr> map;
  map.Set(iteration, rest);
  return SeqStmt::Flatten(
      {tir::Bind(end, some), all,
       For(rest, end, count - end, ForKind::kSerial, tir::Substitute(body, map))});
}

}  // namespace relaxvm::schedule::cpu
