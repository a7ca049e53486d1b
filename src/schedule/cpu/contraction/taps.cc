// SPDX-License-Identifier: Apache-2.0
// A convolution of data that is not padded, one element of its kernel after the other: the rows
// that an element has on data are a run of each line, whichever they turn out to be, and nothing
// else is multiplied or read.  Sums of a block of lines wait in the second cache, where an
// element's part of a panel of B stays while all lines pass.
#include <algorithm>

#include "schedule/cpu/contraction/emitter.h"

namespace relaxvm::schedule::cpu {
namespace {

using tir::Bind;
using tir::ForKind;
using tir::SeqStmt;

constexpr int64_t kFewestStepsOfTap = 64;  // so that fetching and storing sums is not felt
constexpr int64_t kMostRowsOfChunk = 64, kMostPoints = 1024;  // of a task's sums

}  // namespace

bool ContractionEmitter::GoesByTaps(const RowRanges& ranges, bool are_known) const {
  const std::vector<Axis>& reduce = c_.stage.reduce;
  if (c_.group > 1 || c_.side_by_side.has_value() || c_.acc != Float(32) || c_.outer_a.empty() ||
      c_.other_row.has_value() || reduce.size() < 2 || MatrixStep(c_, machine_) > 0)
    return false;
  const Axis& inner = reduce.back();
  if (ranges.Asked() + 1 == reduce.size() || UsesVar(c_.guard, inner.var)) return false;
  const auto depth = ir::AsInt(analyzer_->Simplify(NumPoints(reduce)));
  if (!depth.has_value() || *ir::AsInt(inner.extent) < kFewestStepsOfTap) return false;
  // Ranges of their own steps are as fast while a panel of B stays in the second cache.
  return !are_known || *depth * width_ * SizeInBytes(c_.acc) > machine_.l2_bytes;
}

Stmt ContractionEmitter::ComputeTaps(const RowRanges& ranges, const Var& panel, const Var& chunk) {
  ChooseRows();
  num_tiles_ = analyzer_->Simplify(ir::CeilDiv(c_.row.extent, rows_));
  const Axis line = c_.outer_a.back();
  c_.outer_a.pop_back();
  const int64_t points = std::clamp<int64_t>(machine_.l2_bytes / 4 / (width_ * SizeInBytes(c_.acc)),
                                             kMostRowsOfChunk, kMostPoints);
  const Expr rows = Named("rows_of_chunk", ir::Max(ir::Min(c_.row.extent, kMostRowsOfChunk), 1));
  const Expr across = analyzer_->Simplify(ir::CeilDiv(c_.row.extent, rows));
  // Each task reads its panel: a large one is shared by few.
  const Expr depth = analyzer_->Simplify(NumPoints(c_.stage.reduce));
  const int64_t of_panel = *ir::AsInt(depth) * width_ * SizeInBytes(c_.acc);
  const int64_t each = of_panel <= machine_.l2_bytes / 8 ? kTasksPerThread : 1;
  const int64_t tasks = machine_.num_cores > 1 ? each * machine_.num_cores : 1;
  const Expr others = panels_ * NumPoints(c_.OuterOfB()) * NumPoints(c_.outer_a) * across;
  const Expr parts = ir::CeilDiv(Expr(tasks), ir::Max(others, 1));
  const Expr lines =
      Named("lines_of_task",
            ir::Max(ir::Min(ir::CeilDiv(line.extent, parts), ir::FloorDiv(Expr(points), rows)), 1));
  c_.fetch_b = HowToFetchB(BytesOfB(depth));

  Var first_line("first_line", Int(64)), lines_here("lines_here", Int(64)),
      first_row("first_row", Int(64)), rows_here("rows_here", Int(64)), at("at", Int(64));
  Buffer sums("sums", {Expr(points * width_)}, c_.acc);
  const Expr begin_of_line = at * rows * Expr(width_);
  const Stmt finish = OfPanel(panel, [&](const std::vector<Columns>& columns, const Expr& limit) {
    const TilePart part{panel,       first_row, 0,
                        columns,     limit,     PartialSums{sums, first_row, begin_of_line},
                        std::nullopt};
    return EmitFinish(c_, width_, part, rows_here, machine_, analyzer_);
  });
  const Stmt body = SeqStmt::Flatten(
      {Bind(first_line, ir::FloorDiv(chunk, across) * lines),
       Bind(lines_here, ir::Min(lines, line.extent - first_line)),
       Bind(first_row, ir::FloorMod(chunk, across) * rows),
       Bind(rows_here, ir::Min(rows, c_.row.extent - first_row)), tir::AllocBuffer(sums),
       ZeroSums(sums, 0, lines_here * rows),
       EachTap(ranges, panel, {line, first_line, lines_here, first_row, rows_here, rows, sums}),
       tir::For(at, 0, lines_here, ForKind::kSerial,
                SeqStmt::Flatten({Bind(line.var, first_line + at), finish}))});
  const Expr chunks = ir::CeilDiv(line.extent, lines) * across;
  const Expr work = depth * Expr(width_ / lanes_) * rows * lines;
  const Expr all = analyzer_->Simplify(NumPoints(c_.outer_a) * chunks);
  return SeqStmt::Flatten(
      {SeqStmt::Flatten(sizes_of_task_),
       RunTasks(c_, {{panel, panels_}, {chunk, analyzer_->Simplify(chunks)}, body, work, all},
                analyzer_)});
}

Stmt ContractionEmitter::EachTap(const RowRanges& ranges, const Var& panel,
                                 const TapSums& task) const {
  Var begin("begin", Int(64)), count("rows", Int(64)), tiles("tiles", Int(64)), low("low", Int(64)),
      higher("higher", Int(64)), tile("tile", Int(64)), height("height", Int(64)),
      start("start", Int(64)), begin_lines("begin_lines", Int(64)), lines("lines", Int(64)),
      at("at", Int(64)), line("line", Int(64));
  auto step_of = [&](const RowRanges& of) { return Expr(c_.stage.reduce[of.Asked()].var); };
  // Lines that an element has on data are a run, too.
  Contraction of_lines = c_;
  of_lines.guard = ranges.Others();
  std::optional<RowRanges> run;
  if (of_lines.guard.defined()) run = RowRanges::Of(of_lines, task.line);
  Expr guard = run.has_value() ? run->Others() : ranges.Others();
  Expr line_end = task.first_line + task.lines;
  if (run.has_value()) line_end = ir::Min(line_end, run->EndOf(step_of(*run)));

  Contraction tap = ranges.Tap(c_, begin, analyzer_);
  ffi::Map<Var, Expr> here;
  here.Set(task.line.var, line);
  tap.a = tir::Substitute(tap.a, here);
  if (guard.defined()) guard = tir::Substitute(guard, here);
  ContractionEmitter of_tap = *this;
  of_tap.c_ = tap;
  ffi::Array<Stmt> once;
  const Contraction each =
      of_tap.HasNarrowPanels()
          ? of_tap.WithWidePanel(tap, panel, tap.stage.reduce.back().extent, &once)
          : tap;
  TilePart part{panel, start, 0, {}, Expr(), std::nullopt, std::nullopt};
  const Expr row = (line - task.first_line) * task.rows + (begin - task.first_row);
  part.partial = PartialSums{task.sums, 0, row * Expr(width_)};
  const Stmt of_line = OfPanel(panel, [&](const std::vector<Columns>& columns, const Expr& limit) {
    return ByTiles(columns, limit, [&](const std::vector<Columns>& some, const Expr& end) {
      part.columns = some;
      part.limit = end;
      part.next = NextTap(tap, panel, lines * tiles);
      if (part.next.has_value()) part.next->tile = at * Expr(tiles) + tile;
      Stmt forms;
      for (int64_t rows = 1; rows <= rows_; ++rows) {
        part.rows = rows;
        part.is_usual = 4 * rows >= 3 * rows_;
        part.is_tallest = rows == rows_;
        const Stmt form = EmitTile(each, width_, part, machine_, analyzer_);
        forms =
            forms.defined() ? Stmt(tir::IfThenElse(ir::Equal(height, rows), form, forms)) : form;
      }
      return forms;
    });
  });
  const Heights heights{low, higher};
  Stmt body = tir::For(
      tile, 0, tiles, ForKind::kSerial,
      SeqStmt::Flatten({Bind(height, low + ir::Select(ir::Less(tile, higher), Expr(1), Expr(0))),
                        Bind(start, heights.StartOf(tile)), of_line}));
  if (guard.defined()) body = tir::IfThenElse(guard, body);
  body = tir::For(at, 0, lines, ForKind::kSerial,
                  SeqStmt::Flatten({Bind(line, begin_lines + at), body}));
  body = SeqStmt::Flatten({SeqStmt::Flatten(once), Bind(tiles, ir::CeilDiv(count, rows_)),
                           Bind(low, ir::FloorDiv(count, tiles)), Bind(higher, count - low * tiles),
                           body});
  body = SeqStmt::Flatten(
      {Bind(begin, ir::Max(task.first_row, ranges.BeginOf(step_of(ranges)))),
       Bind(count, ir::Min(task.first_row + task.rows_here, ranges.EndOf(step_of(ranges))) - begin),
       Bind(begin_lines, run.has_value() ? ir::Max(task.first_line, run->BeginOf(step_of(*run)))
                                         : task.first_line),
       Bind(lines, line_end - begin_lines),
       tir::IfThenElse(ir::And(ir::Less(0, count), ir::Less(0, lines)), body)});
  return Loops({c_.stage.reduce.begin(), c_.stage.reduce.end() - 1}, body);
}

// The next element's part of the panel, or the first one's of the next panel.
std::optional<PartOfNext> ContractionEmitter::NextTap(const Contraction& tap, const Var& panel,
                                                      const Expr& tiles) const {
  ContractionEmitter of_tap = *this;
  of_tap.c_ = tap;
  const Axis& inner = tap.stage.reduce.back();
  const int64_t steps = ir::AsInt(inner.extent).value();
  ffi::Map<Var, Expr> behind;
  behind.Set(inner.var, inner.extent);
  if (c_.panel_width > 0) behind.Set(c_.panel, panel);
  std::optional<PartOfNext> next = of_tap.PartOf(behind, steps, tiles);
  if (!next.has_value() || c_.panel_width == 0) return next;
  ffi::Map<Var, Expr> of_panel;
  of_panel.Set(c_.panel, panel + Expr(1));
  Expr is_last = ir::BoolImm(true);
  for (const Axis& axis : c_.stage.reduce) {
    of_panel.Set(axis.var, Expr(0));
    if (!axis.var.same_as(inner.var))
      is_last = ir::And(is_last, ir::Equal(axis.var, axis.extent - Expr(1)));
  }
  next->first = ir::Select(is_last, of_tap.PartOf(of_panel, steps, tiles)->first, next->first);
  return next;
}

}  // namespace relaxvm::schedule::cpu
