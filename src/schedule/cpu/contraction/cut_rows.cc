// SPDX-License-Identifier: Apache-2.0
// RowRanges: a contraction whose guard chooses by the row, a convolution over data that is not
// padded, goes by ranges of rows that have the same steps of the sum.  Between the borders windows
// have all their elements, beside them fewer; nothing is asked inside of a tile.
#include <algorithm>
#include <set>

#include "schedule/cpu/contraction/contraction.h"

namespace relaxvm::schedule::cpu {
namespace {

using tir::ForKind;
using tir::SeqStmt;

constexpr int64_t kMostSteps = 16;  // of the axis of the sum that the guard asks for
constexpr size_t kMostRanges = 12;  // each has code of its own where sizes are known

void Split(const Expr& guard, std::vector<Expr>* parts) {
  const auto* both = guard.as<ir::BinaryObj>();
  if (both == nullptr || both->op != ir::BinaryOp::kAnd) {
    parts->push_back(guard);
    return;
  }
  Split(both->a, parts);
  Split(both->b, parts);
}

}  // namespace

std::optional<RowRanges> RowRanges::Of(const Contraction& c, const Axis& row) {
  RowRanges ranges;
  ranges.row_ = row;
  std::vector<Expr> parts;
  Split(c.guard, &parts);
  std::optional<size_t> asked;
  const std::vector<Axis> axes = c.AllAxes();
  arith::Analyzer analyzer;
  for (const Expr& part : parts) {
    if (!UsesVar(part, row.var)) {
      ranges.others_ = ranges.others_.defined() ? ir::And(ranges.others_, part) : part;
      continue;
    }
    const Expr least = AtLeastZero(part);
    if (!least.defined()) return std::nullopt;
    const auto linear = LinearOffset::Of(least, axes);
    if (!linear.has_value()) return std::nullopt;
    Condition on{ir::AsInt(analyzer.Simplify(linear->Coeff(row.var))).value_or(0), 0,
                 analyzer.Simplify(linear->rest())};
    for (const Axis& axis : axes) {
      if (axis.var.same_as(row.var) || !UsesVar(least, axis.var)) continue;
      const auto at = std::find_if(c.stage.reduce.begin(), c.stage.reduce.end(),
                                   [&](const Axis& k) { return k.var.same_as(axis.var); });
      if (at == c.stage.reduce.end()) return std::nullopt;
      const auto i = static_cast<size_t>(at - c.stage.reduce.begin());
      if (asked.value_or(i) != i) return std::nullopt;
      asked = i;
      on.step = ir::AsInt(analyzer.Simplify(linear->Coeff(axis.var))).value_or(0);
    }
    // Windows move the same way as elements in them: the steps of a row are a run.
    if (!((on.row > 0 && on.step > 0) || (on.row < 0 && on.step < 0))) return std::nullopt;
    ranges.conditions_.push_back(on);
  }
  if (!asked.has_value()) return std::nullopt;
  ranges.axis_ = *asked;
  ranges.steps_ = ir::AsInt(c.stage.reduce[*asked].extent).value_or(0);
  if (ranges.steps_ < 1 || ranges.steps_ > kMostSteps) return std::nullopt;
  return ranges;
}

// No later for a higher step.
Expr RowRanges::BeginOf(const Expr& step) const {
  Expr begin = 0;
  for (const Condition& on : conditions_) {
    if (on.row > 0)
      begin = ir::Max(begin, ir::CeilDiv(Expr(0) - on.rest - step * Expr(on.step), Expr(on.row)));
  }
  return ir::Min(begin, row_.extent);
}

Expr RowRanges::EndOf(const Expr& step) const {
  Expr end = row_.extent;
  for (const Condition& on : conditions_) {
    if (on.row < 0)
      end = ir::Min(end, ir::FloorDiv(on.rest + step * Expr(on.step), Expr(-on.row)) + 1);
  }
  return ir::Max(end, 0);
}

Contraction RowRanges::Restricted(const Contraction& c, const Expr& begin, const Expr& rows,
                                  const Expr& first, const Expr& steps,
                                  arith::Analyzer* analyzer) const {
  Contraction part = c;
  const Var& step = c.stage.reduce[axis_].var;
  const Axis row{Var(row_.var->name, Int(64)), rows}, some{Var(step->name, Int(64)), steps};
  if (!ir::IsIntValue(rows, 0)) analyzer->Bind(row.var, 0, rows);
  if (!ir::IsIntValue(steps, 0)) analyzer->Bind(some.var, 0, steps);
  ffi::Map<Var, Expr> map;
  map.Set(row_.var, row.var + begin);
  map.Set(step, some.var + first);
  auto moved = [&](const Expr& e) { return SimplifyOffsets(tir::Substitute(e, map), analyzer); };
  part.a = moved(c.a);
  part.b = moved(c.b);
  part.guard = others_.defined() ? moved(others_) : Expr();
  part.stage = SimplifyOffsets(Substituted(c.stage, map), analyzer);
  for (Axis& axis : part.stage.spatial) {
    if (axis.var.same_as(row_.var)) axis = row;
  }
  part.stage.reduce[axis_] = some;
  part.row = row;
  return part;
}

std::optional<std::vector<Contraction>> RowRanges::Known(const Contraction& c,
                                                         arith::Analyzer* analyzer) const {
  auto number = [&](const Expr& e) { return ir::AsInt(analyzer->Simplify(e)); };
  std::vector<int64_t> begins, ends;
  for (int64_t k = 0; k < steps_; ++k) {
    const auto begin = number(BeginOf(k)), end = number(EndOf(k));
    if (!begin || !end) return std::nullopt;
    begins.push_back(*begin);
    ends.push_back(*end);
  }
  const auto rows = number(row_.extent);
  if (!rows) return std::nullopt;
  std::set<int64_t> borders = {0, *rows};
  borders.insert(begins.begin(), begins.end());
  borders.insert(ends.begin(), ends.end());
  if (borders.size() > kMostRanges + 1) return std::nullopt;
  std::vector<Contraction> parts;
  for (auto at = borders.begin(); std::next(at) != borders.end(); ++at) {
    int64_t first = 0, last = steps_;
    while (first < steps_ && begins[static_cast<size_t>(first)] > *at) ++first;
    while (last > first && ends[static_cast<size_t>(last - 1)] <= *at) --last;
    parts.push_back(Restricted(c, *at, *std::next(at) - *at, first, last - first, analyzer));
  }
  return parts;
}

Contraction RowRanges::Any(const Contraction& c, arith::Analyzer* analyzer) const {
  return Restricted(c, begin_, rows_, first_, some_, analyzer);
}

Contraction RowRanges::Tap(const Contraction& c, const Expr& begin,
                           arith::Analyzer* analyzer) const {
  Contraction tap = c;
  ffi::Map<Var, Expr> map;
  map.Set(row_.var, row_.var + begin);
  tap.a = SimplifyOffsets(tir::Substitute(c.a, map), analyzer);
  tap.stage.reduce = {c.stage.reduce.back()};
  tap.guard = Expr();
  return tap;
}

// Every row has one first step and one behind the last one.
Stmt RowRanges::Each(const Expr& begin, const Expr& end, const Stmt& body) const {
  Var last("last", Int(64));
  const Expr from = ir::Max(begin, ir::Select(ir::Equal(first_, steps_), Expr(0), BeginOf(first_)));
  const Expr after = ir::Select(ir::Equal(last, steps_), Expr(0), EndOf(last));
  const Expr before = ir::Select(ir::Equal(first_, 0), row_.extent, BeginOf(first_ - 1));
  const Expr to = ir::Select(ir::Equal(last, 0), row_.extent, EndOf(last - 1));
  const Stmt one = SeqStmt::Flatten({tir::Bind(begin_, ir::Max(from, after)),
                                     tir::Bind(rows_, ir::Min(end, ir::Min(before, to)) - begin_),
                                     tir::Bind(some_, ir::Max(last - first_, 0)),
                                     tir::IfThenElse(ir::Less(0, rows_), body)});
  return tir::For(first_, 0, steps_ + 1, ForKind::kSerial,
                  tir::For(last, 0, steps_ + 1, ForKind::kSerial, one));
}

}  // namespace relaxvm::schedule::cpu
