// SPDX-License-Identifier: Apache-2.0
// Reductions of rows shorter than half a vector that lie behind each other in memory.
#include "schedule/cpu/nest.h"

namespace relaxvm::schedule::cpu {
namespace {

using tir::BufferLoadObj;
using tir::BufferStore;
using tir::For;
using tir::ForKind;
using tir::SeqStmt;

// Of a reduction whose rows are shorter than half a vector and lie behind each other: its value
// as a function of the place in that run of memory.  Null: it is none.
Expr AsRun(const Stage& stage, const Var& place, int64_t lanes, arith::Analyzer* analyzer) {
  if (!HorizontalForm(stage.combine) || stage.spatial.size() != 1 || stage.reduce.size() != 1 ||
      stage.before != nullptr || !stage.beside.stages.empty() || stage.ahead.defined())
    return Expr();
  const Axis &column = stage.spatial[0], &row = stage.reduce[0];
  const auto width = ir::AsInt(column.extent);
  if (!width.has_value() || width.value() * 2 > lanes ||
      ir::AsInt(row.extent).value_or(lanes) < lanes)
    return Expr();
  ffi::Map<Var, Expr> map;
  map.Set(column.var, place - row.var * Expr(width.value()));
  const Expr value = SimplifyOffsets(tir::Substitute(stage.value, map), analyzer);
  if (UsesVar(value, row.var)) return Expr();
  // Only what is read, as one run, may know the place.
  const Axis along{place, column.extent * row.extent};
  bool fits = true;
  tir::PostOrderVisit(tir::Evaluate(value), [&](const ffi::ObjectRef& node) {
    const auto* load = node.as<BufferLoadObj>();
    fits = fits && (load == nullptr || StepOf(load->indices[0], along) == Step::kContiguous);
  });
  return fits ? value : Expr();
}

// As many rows as there are lanes are a whole number of vectors, in which every column has fixed
// places.
Stmt RunOfShortRows(const Stage& stage, const Var& place, const Expr& value, int64_t lanes,
                    arith::Analyzer* analyzer) {
  const Axis &column = stage.spatial[0], &row = stage.reduce[0];
  const int64_t width = ir::AsInt(column.extent).value(), count = width * lanes;
  Buffer acc = Accumulators(stage, count),
         sums("sums", {Expr(count)}, stage.value.dtype(), "local");
  const Expr blocks = analyzer->Simplify(ir::FloorDiv(row.extent, lanes));
  Var block("block", Int(64)), rest("rest", Int(64)), vector("vector", Int(64));
  ffi::Array<Stmt> step, keep;
  for (int64_t v = 0; v < width; ++v) {
    Var lane("lane", Int(64));
    const Expr at = Expr(v * lanes) + lane;
    ffi::Map<Var, Expr> map;
    map.Set(place, block * Expr(count) + at);
    auto store = [&](const Buffer& to, const Expr& what) {
      return For(lane, 0, lanes, ForKind::kVectorized, BufferStore(to, what, {at}));
    };
    step.push_back(
        store(acc, Accumulated(stage.combine, acc.Load({at}), tir::Substitute(value, map))));
    keep.push_back(store(sums, acc.Load({at})));
  }
  Buffer total = Accumulators(stage, 1);
  auto add = [&](const Expr& what) {
    return BufferStore(total, Apply(stage.combine, total.Load({0}), what), {0});
  };
  const Expr done = analyzer->Simplify(blocks * Expr(lanes));
  ffi::Map<Var, Expr> left;
  left.Set(row.var, done + rest);
  return SeqStmt::Flatten(
      {tir::AllocBuffer(acc), tir::AllocBuffer(sums), Fill(acc, stage.identity, count, lanes),
       Loop(block, blocks, ForKind::kSerial, SeqStmt::Flatten(step)), SeqStmt::Flatten(keep),
       Loops({column},
             SeqStmt::Flatten(
                 {tir::AllocBuffer(total), BufferStore(total, stage.identity, {0}),
                  Loop(vector, lanes, ForKind::kSerial,
                       add(sums.Load({vector * Expr(width) + column.var}))),
                  Loop(rest, analyzer->Simplify(row.extent - done), ForKind::kSerial,
                       add(tir::Substitute(stage.value, left))),
                  BufferStore(*stage.out, Finished(stage, total.Load({0})), stage.indices)}))});
}

}  // namespace

std::optional<Stmt> EmitShortRows(const Stage& stage, int64_t lanes, arith::Analyzer* analyzer) {
  Var place("place", Int(64));
  const Expr value = AsRun(stage, place, lanes, analyzer);
  if (!value.defined()) return std::nullopt;
  return RunOfShortRows(stage, place, value, lanes, analyzer);
}

}  // namespace relaxvm::schedule::cpu
