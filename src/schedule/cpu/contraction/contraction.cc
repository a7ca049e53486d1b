// SPDX-License-Identifier: Apache-2.0
// EmitContraction: which tiles cover C, in which order, and whether B is brought into panels first.
#include <algorithm>

#include "schedule/cpu/contraction/emitter.h"
#include "target/packed.h"
#include "tir/matrix.h"

namespace relaxvm::schedule::cpu {
namespace {

using tir::ForKind;
using tir::SeqStmt;

constexpr int64_t kTypicalDepth = 64;  // of a sum whose length is not known
// A multiplication of a vector of B costs as much as this many rows at least: memory serves B no
// faster.
constexpr int64_t kRowsPerLoad = 3;
constexpr int64_t kRowsWorthPacking = 32;
constexpr int64_t kRowsWorthGroups = 4;
// Rows for which a right side that lies along k is not worth turning: dot products read it as it
// is.
constexpr int64_t kMostRowsOfDots = 2;
// Dot products that are shorter than this leave more of their vectors empty than tiles do.
constexpr int64_t kShortestDots = 4;
// Rows of a tile when their number is known at run time only: each number of rows up to it gets
// code of its own.
constexpr int64_t kMaxRowForms = 8;

// Matrix registers multiply as fast as so many vectors; their sums go through memory to what
// finishes them, which costs as much for each vector.
constexpr int64_t kRegistersOfMatrices = 8, kFinish = 4;

// Panels that a tile of few rows takes at once.
constexpr int64_t kMostPanelsOfTile = 4;

// Each vector of columns has a left side of its own: a second one would share nothing.
constexpr int64_t kVectorsSideBySide = 1;

// Is B in several panels that are as narrow as tiles?  Registers as wide as a cache line read one
// panel as fast.
bool HasPanelsToTake(const Contraction& c, int64_t lanes) {
  if (lanes * SizeInBytes(c.acc) >= kLineBytes || c.group > 1 || c.line_width > 0 ||
      c.side_by_side.has_value() || c.guard.defined())
    return false;
  const int64_t columns = ir::AsInt(c.vector.extent).value_or(0);
  if (c.panel_width > 0) return columns > c.panel_width;
  return columns > 0 && columns % lanes == 0 && !c.outer_b.empty() &&
         ir::AsInt(c.outer_b.back().extent).value_or(1) > 1;
}

Stmt EmitTiles(const Contraction& c, const Machine& machine, arith::Analyzer* analyzer) {
  const int64_t lanes = machine.Lanes(std::max<int64_t>(SizeInBytes(c.acc), 1));
  const bool is_known = ir::AsInt(c.row.extent).has_value();
  if (!is_known && !c.other_row.has_value() && HasPanelsToTake(c, lanes)) {
    Contraction one = c, several = c;
    one.row.extent = 1;
    several.fewest_rows = 2;
    return tir::IfThenElse(ir::Equal(c.row.extent, 1),
                           ContractionEmitter(one, machine, analyzer).Run(),
                           ContractionEmitter(several, machine, analyzer).Run());
  }
  const Stmt stmt = ContractionEmitter(c, machine, analyzer).Run();
  if (!c.other_row.has_value()) return stmt;
  Contraction turned = c;
  turned.row = *c.other_row;
  for (Axis& axis : turned.outer_a) {
    if (axis.var.same_as(turned.row.var)) axis = c.row;
  }
  return tir::IfThenElse(ir::LessEqual(turned.row.extent, c.row.extent), stmt,
                         ContractionEmitter(turned, machine, analyzer).Run());
}

}  // namespace

void PutPointsFirst(std::vector<Axis>* axes) {
  std::stable_partition(axes->begin(), axes->end(),
                        [](const Axis& axis) { return ir::IsIntValue(axis.extent, 1); });
}

Stmt ContractionEmitter::Run() {
  ChooseWidth();
  ffi::Array<Stmt> seq;
  if (WorthGroups()) {
    PackedB packed = EmitPackGroups(&c_, width_, machine_, analyzer_);
    seq.push_back(tir::AllocBuffer(packed.buffer));
    seq.push_back(packed.fill);
  } else if (c_.panel_width == 0 && c_.group == 1 && WorthPacking()) {
    PackedB packed = EmitPack(&c_, width_, machine_, analyzer_);
    seq.push_back(tir::AllocBuffer(packed.buffer));
    seq.push_back(packed.fill);
  }
  seq.push_back(Compute());
  return SeqStmt::Flatten(seq);
}

void ContractionEmitter::ChooseWidth() {
  const auto columns = ir::AsInt(c_.vector.extent);
  const bool of_groups = c_.group > 1 || c_.group_if_packed > 1;
  int64_t vectors =
      target::PanelVectors(machine_, columns.value_or(0), SizeInBytes(c_.acc), of_groups);
  if (c_.panel_width > 0) {
    vectors = c_.panel_width / lanes_;
  } else if (c_.side_by_side.has_value()) {
    vectors = kVectorsSideBySide;
  } else if (ir::IsIntValue(c_.row.extent, 1) && columns.has_value()) {
    // One row has no second chain per column: more columns hide the latency.
    vectors = std::min<int64_t>(machine_.num_vectors < 32 ? 6 : 12,
                                (columns.value() + lanes_ - 1) / lanes_);
  }
  SetWidth(std::max<int64_t>(vectors, 1) * lanes_);
}

void ContractionEmitter::SetWidth(int64_t width) {
  width_ = width;
  full_panels_ = analyzer_->Simplify(ir::FloorDiv(c_.vector.extent, width_));
  panels_ = analyzer_->Simplify(ir::CeilDiv(c_.vector.extent, width_));
}

bool ContractionEmitter::WorthGroups() const {
  return c_.group_if_packed > 1 && !c_.guard.defined() && EachElementOnce() &&
         ir::AsInt(c_.row.extent).value_or(kRowsWorthPacking) >= kRowsWorthGroups;
}

bool ContractionEmitter::WorthPacking() const {
  if (c_.guard.defined()) return false;  // a copy would take what is not there
  auto b = LinearOffset::Of(c_.LoadOf(c_.b)->indices[0], c_.AllAxes());
  const bool contiguous = ir::IsIntValue(b->Coeff(c_.vector.var), 1);
  return (!contiguous || FewCacheSets(*b)) && EachElementOnce();
}

bool ContractionEmitter::FewCacheSets(const LinearOffset& b) const {
  if (c_.stage.reduce.empty()) return false;
  const Axis& inner = c_.stage.reduce.back();
  const auto rows = ir::AsInt(c_.row.extent), depth = ir::AsInt(inner.extent);
  const auto step = ir::AsInt(b.Coeff(inner.var));
  if (rows.value_or(kRowsWorthPacking) < kRowsWorthPacking || depth.value_or(64) < 64) return false;
  return step.has_value() && step.value() * SizeInBytes(c_.b.dtype()) % 2048 == 0;
}

bool ContractionEmitter::EachElementOnce() const {
  const Expr walked = c_.vector.extent * NumPoints(c_.OuterOfB()) * NumPoints(c_.stage.reduce);
  return analyzer_->ProveEqual(walked, NumElements(Buffer(c_.LoadOf(c_.b)->buffer)));
}

int64_t ContractionEmitter::MostRows(int64_t vectors) const {
  // rows * vectors + vectors + 1 <= registers; one vector: the broadcast folds into the
  // multiplication.
  int64_t most =
      vectors == 1 ? machine_.num_vectors - 2 : (machine_.num_vectors - 1 - vectors) / vectors;
  if (c_.group > 1) {  // the broadcast needs a register of its own
    const bool by_halves = c_.group == 4 && c_.by_halves;
    // Halves: even and odd ones of the right side, two broadcasts and a product.
    const int64_t taken =
        vectors * (c_.NeedsCorrection() || by_halves ? 2 : 1) + (by_halves ? 3 : 2);
    most = (machine_.num_vectors - taken) / vectors;
  }
  if (c_.side_by_side.has_value())  // what all rows are multiplied with stays in registers
    most = machine_.num_vectors - 2 - c_.side_by_side->depth;
  most = std::min(most, RowsInFirstCache());
  return std::clamp<int64_t>(most, c_.side_by_side.has_value() ? 4 : 1, 16);
}

void ContractionEmitter::ChooseRows() {
  Contraction steps_last = c_;
  PutPointsFirst(&steps_last.stage.reduce);
  matrix_step_ = MatrixStep(steps_last, machine_);
  if (matrix_step_ > 0) {
    c_.stage.reduce = steps_last.stage.reduce;
    rows_ = kMatrixBlock;
    return;
  }
  at_once_ = width_ / lanes_;
  if (c_.line_width > 0) return ChooseLines();
  const int64_t most = MostRows(at_once_);
  const auto rows = ir::AsInt(c_.row.extent);
  if (!rows.has_value()) {
    rows_ = std::min(most, kMaxRowForms);
    return;
  }
  rows_ = std::clamp<int64_t>(rows.value(), 1, most);
  // Tiles all alike, unless that makes them much lower: each row more is one use more of what is
  // read of B.
  for (int64_t r = rows_; r * 8 >= rows_ * 7; --r) {
    if (rows.value() % r == 0) {
      rows_ = r;
      return;
    }
  }
}

Stmt ContractionEmitter::Compute() {
  Var panel("panel", Int(64)), chunk("chunk", Int(64));
  std::optional<RowRanges> ranges;
  if (c_.guard.defined() && UsesVar(c_.guard, c_.row.var)) ranges = RowRanges::Of(c_, c_.row);
  if (ranges.has_value()) {
    const auto parts = ranges->Known(c_, analyzer_);
    if (GoesByTaps(*ranges, parts.has_value())) return ComputeTaps(*ranges, panel, chunk);
    if (parts.has_value()) return ComputeRanges(*parts, panel, chunk);
  }
  if (!ranges.has_value()) JoinLines();
  ChooseRows();
  if (ranges.has_value()) return ComputeTasks(panel, chunk, &*ranges);
  const int64_t lines = matrix_step_ > 0 ? MatrixLines(c_) : 0;
  if (lines == 0 || ir::AsInt(c_.row.extent).has_value()) {
    TakeLines(lines);
    TakePanels();
    return ComputeTasks(panel, chunk, nullptr);
  }
  ContractionEmitter by_rows = *this;
  TakeLines(lines);
  const Stmt by_lines = ComputeTasks(panel, chunk, nullptr);
  return tir::IfThenElse(
      ir::LessEqual(c_.row.extent, tir::kMatrixRows), by_lines,
      by_rows.ComputeTasks(Var("panel", Int(64)), Var("chunk", Int(64)), nullptr));
}

Stmt ContractionEmitter::ComputeTasks(const Var& panel, const Var& chunk, const RowRanges* ranges) {
  ChooseTasks(ranges != nullptr);
  ffi::Array<Stmt> seq = sizes_of_task_;
  if (ranges == nullptr && matrix_step_ == 0) heights_ = ChooseHeights(&seq);
  if (depth_blocks_.has_value()) CopyRows(&seq);
  const Stmt body = ranges != nullptr           ? OfRanges(*ranges, panel, chunk)
                    : depth_blocks_.has_value() ? OfBlocks(panel, chunk)
                                                : OfChunk(panel, chunk);
  seq.push_back(OverAll(panel, chunk, chunks_, body, work_));
  return SeqStmt::Flatten(seq);
}

void ContractionEmitter::TakeLines(int64_t lines) {
  matrix_lines_ = lines;
  if (lines == 0) return;
  line_ = c_.outer_a.back();
  c_.outer_a.pop_back();
}

void ContractionEmitter::TakePanels() {
  const auto rows = ir::AsInt(c_.row.extent);
  const bool is_axis = c_.panel_width == 0;  // that chooses the panel
  if (matrix_step_ > 0 || !rows.has_value() || !HasPanelsToTake(c_, lanes_) || !PanelsAreRuns() ||
      (is_axis && !ir::IsIntValue(panels_, 1)))
    return;
  // The right side needs registers of its own where several rows are multiplied with it.
  const int64_t each = width_ / lanes_ * (*rows > 1 ? *rows + 1 : 1);
  const int64_t all = ir::AsInt(is_axis ? c_.outer_b.back().extent : panels_).value();
  const int64_t taken =
      std::min({(machine_.num_vectors - 1) / each, kMostPanelsOfTile, all / kFewestThreads});
  if (taken < 2) return;
  takes_panels_ = true;
  at_once_ = taken * width_ / lanes_;
  if (!is_axis) return SetWidth(taken * width_);
  panels_of_tile_ = taken;
  Axis& axis = c_.outer_b.back();
  c_.panels_of_tile = axis;
  axis = {Var("panels", Int(64)), Expr((all + taken - 1) / taken)};
}

Stmt ContractionEmitter::ComputeRanges(const std::vector<Contraction>& parts, const Var& panel,
                                       const Var& chunk) {
  Stmt body;
  Expr begin = 0, work = 0;
  std::vector<std::pair<Expr, Stmt>> ends;
  for (const Contraction& c : parts) {
    ContractionEmitter part = *this;
    part.c_ = c;
    part.ChooseRows();
    part.ChooseTasks(true);
    const Stmt code = part.OfChunk(panel, chunk - begin);
    begin = analyzer_->Simplify(begin + part.chunks_);
    work = analyzer_->Simplify(ir::Max(work, part.work_));
    ends.emplace_back(begin, code);
  }
  for (size_t i = ends.size(); i-- > 0;) {
    const auto& [end, code] = ends[i];
    body = body.defined() ? Stmt(tir::IfThenElse(ir::Less(chunk, end), code, body)) : code;
  }
  return OverAll(panel, chunk, begin, body, work);
}

Stmt ContractionEmitter::OfRanges(const RowRanges& ranges, const Var& panel, const Expr& chunk) {
  ContractionEmitter part = *this;
  part.c_ = ranges.Any(c_, analyzer_);
  part.num_tiles_ = ir::CeilDiv(part.c_.row.extent, rows_);
  const Expr rows = rows_ * per_task_, begin = chunk * rows;
  return ranges.Each(begin, ir::Min(begin + rows, c_.row.extent),
                     part.OfTiles(panel, Expr(0), part.num_tiles_));
}

Stmt ContractionEmitter::OverAll(const Var& panel, const Var& chunk, const Expr& chunks,
                                 const Stmt& body, const Expr& work) const {
  const Expr all = depth_blocks_.has_value() ? walked_.extent : panels_;
  const Expr panels = analyzer_->Simplify(ir::CeilDiv(all, panels_of_task_));
  const Expr in_block = in_block_.defined() ? in_block_ : InBlock(chunks);
  return RunTasks(c_, {{panel, panels}, {chunk, chunks}, body, work, in_block, GroupsPassForRows()},
                  analyzer_);
}

void ContractionEmitter::ChooseTasks(bool is_cut) {
  num_tiles_ = analyzer_->Simplify(matrix_lines_ > 0 ? ir::CeilDiv(line_.extent, matrix_lines_)
                                                     : ir::CeilDiv(c_.row.extent, rows_));
  const Expr depth = analyzer_->Simplify(NumPoints(c_.stage.reduce));
  if (matrix_step_ > 0) return ChooseTasksOfMatrices(depth, is_cut);
  const int64_t tile_work =
      ir::AsInt(depth).value_or(kTypicalDepth) * (width_ / lanes_) * panels_of_tile_ * rows_;
  if (!is_cut) depth_blocks_ = ChooseDepthBlocks(ir::AsInt(depth));
  // What comes from behind the second cache again and again: B, for each block of rows, or A.
  const bool is_b = BytesOfB(depth) > machine_.l2_bytes / 2 && PanelsAreRuns();
  if (BytesOfA(depth) > machine_.l2_bytes && !is_b && !c_.side_by_side.has_value() &&
      !c_.joined.has_value()) {
    c_.fetch_depth = depth_blocks_.has_value() ? depth_blocks_->even : ir::AsInt(depth).value();
  }
  if (depth_blocks_.has_value()) {
    ChooseTasksOfBlocks();
  } else {
    ChooseTilesPerTask(kWorkPerTask / std::max<int64_t>(tile_work, 1), is_cut);
  }
  chunks_ = analyzer_->Simplify(ir::CeilDiv(num_tiles_, per_task_));
  if (!is_cut) BindInBlock();
  c_.fetch_b = HowToFetchB(BytesOfB(depth));
  const Expr rows = ir::Min(rows_ * per_task_, ir::Max(c_.row.extent, kRowsPerLoad));
  work_ = depth * Expr(width_ / lanes_ * panels_of_tile_) * rows * panels_of_task_;
}

Expr ContractionEmitter::Named(const char* name, const Expr& value) {
  return cpu::Named(name, value, &sizes_of_task_, analyzer_);
}

void ContractionEmitter::ChooseTasksOfMatrices(const Expr& depth, bool is_cut) {
  const int64_t registers = rows_ * (width_ / lanes_);
  const Expr work = analyzer_->Simplify(
      ir::FloorDiv(depth, kRegistersOfMatrices) * Expr(registers) + Expr(registers * kFinish));
  ChooseTilesPerTask(kWorkPerTask / ir::AsInt(work).value_or(kWorkPerTask), is_cut);
  chunks_ = analyzer_->Simplify(ir::CeilDiv(num_tiles_, per_task_));
  work_ = work * per_task_;
  if (!is_cut) BindInBlock();
}

Stmt ContractionEmitter::OfChunk(const Var& panel, const Expr& chunk) {
  const Expr first = chunk * Expr(per_task_);
  const Expr tiles = analyzer_->Simplify(ir::Min(per_task_, num_tiles_ - first));
  return OfTiles(panel, first, tiles);
}

Stmt ContractionEmitter::OfTiles(const Var& panel, const Expr& first, const Expr& tiles) {
  auto all = [&](const Contraction& c) {
    return OfPanel(panel, [&](const std::vector<Columns>& columns, const Expr& limit) {
      return Tiles(c, panel, first, tiles, columns, limit);
    });
  };
  // Of known tasks the last one may have fewer tiles.
  const Expr widens = WidensPanelFor(ir::AsInt(per_task_).has_value() ? per_task_ : tiles);
  if (ir::IsIntValue(widens, 0)) return all(c_);
  ffi::Array<Stmt> seq;
  const Contraction wide =
      WithWidePanel(c_, panel, analyzer_->Simplify(NumPoints(c_.stage.reduce)), &seq);
  seq.push_back(all(wide));
  const Stmt widened = SeqStmt::Flatten(seq);
  return ir::IsIntValue(widens, 1) ? widened : tir::IfThenElse(widens, widened, all(c_));
}

Stmt ContractionEmitter::OfPanels(const OfColumns& body) const {
  const Axis& axis = *c_.panels_of_tile;
  const Var& group = c_.outer_b.back().var;
  const int64_t all = ir::AsInt(axis.extent).value(), rest = all % panels_of_tile_;
  Stmt some = body(Full(at_once_), Expr());
  if (rest > 0) {
    some = tir::IfThenElse(ir::Less(group, all / panels_of_tile_), some,
                           body(Full(rest * width_ / lanes_), Expr()));
  }
  return SeqStmt::Flatten({tir::Bind(axis.var, group * Expr(panels_of_tile_)), some});
}

Stmt ContractionEmitter::OfPanel(const Expr& panel, const OfColumns& body) const {
  if (c_.panels_of_tile.has_value()) return OfPanels(body);
  const Stmt full = body(Full(width_ / lanes_), Expr());
  if (analyzer_->ProveEqual(full_panels_, panels_)) return full;
  const Stmt rest = OfRest(body);
  if (ir::IsIntValue(full_panels_, 0)) return rest;
  return tir::IfThenElse(ir::Less(panel, full_panels_), full, rest);
}

std::vector<Columns> ContractionEmitter::Full(int64_t vectors) const {
  std::vector<Columns> columns;
  for (int64_t v = 0; v < vectors; ++v) columns.push_back({v * lanes_, lanes_});
  return columns;
}

Stmt ContractionEmitter::OfRest(const OfColumns& body) const {
  Expr rest = analyzer_->Simplify(c_.vector.extent - full_panels_ * Expr(width_));
  if (auto known = ir::AsInt(rest)) {
    std::vector<Columns> columns = Full(known.value() / lanes_);
    const int64_t done = known.value() / lanes_ * lanes_;
    int64_t narrow = std::min<int64_t>(4, lanes_);
    while (narrow < known.value() - done) narrow *= 2;
    if (done < known.value()) columns.push_back({done, narrow});
    const bool exact = known.value() - done == narrow || done == known.value();
    return body(columns, exact ? Expr() : c_.vector.extent);
  }
  // Unknown width: one variant for each number of vectors.
  Stmt chosen;
  for (int64_t v = width_ / lanes_; v >= 1; --v) {
    Stmt variant = body(Full(v), c_.vector.extent);
    chosen = chosen.defined()
                 ? Stmt(tir::IfThenElse(ir::LessEqual(rest, v * lanes_), variant, chosen))
                 : variant;
  }
  return chosen;
}

ContractionEmitter::Heights ContractionEmitter::ChooseHeights(ffi::Array<Stmt>* seq) const {
  const Expr& extent = c_.row.extent;
  if (analyzer_->ProveEqual(ir::FloorMod(extent, rows_), 0)) return {Expr(rows_), Expr(0)};
  if (c_.line_width > 0) return {Expr(rows_), Expr(0), *ir::AsInt(extent) % rows_};
  if (auto known = ir::AsInt(extent)) {
    const int64_t count = (known.value() + rows_ - 1) / rows_;
    return {Expr(known.value() / count), Expr(known.value() % count)};
  }
  Var count("tiles", Int(64)), low("low", Int(64)), higher("higher", Int(64));
  // No rows: the loops do not run.
  seq->push_back(tir::Bind(count, ir::Max(num_tiles_, 1)));
  seq->push_back(tir::Bind(low, ir::FloorDiv(extent, count)));
  seq->push_back(tir::Bind(higher, extent - low * count));
  return {low, higher};
}

Stmt ContractionEmitter::ByTiles(const std::vector<Columns>& columns, const Expr& limit,
                                 const OfColumns& body) const {
  ffi::Array<Stmt> seq;
  const auto count = static_cast<int64_t>(columns.size());
  for (int64_t from = 0; from < count; from += at_once_) {
    const auto begin = columns.begin() + from, end = begin + std::min(at_once_, count - from);
    seq.push_back(body({begin, end}, from + at_once_ < count ? Expr() : limit));
  }
  return SeqStmt::Flatten(seq);
}

Stmt ContractionEmitter::Tiles(const Contraction& c, const Var& panel, const Expr& first,
                               const Expr& tiles, const std::vector<Columns>& columns,
                               const Expr& limit) {
  TilePart part{panel, Expr(), 0, columns, limit, std::nullopt, std::nullopt};
  ffi::Array<Stmt> all;
  if (matrix_step_ > 0) {
    part.next = PartOfNextPanel(panel, first, &all);
    if (matrix_lines_ > 0) {
      all.push_back(EmitMatrixLines(c_, {line_, matrix_lines_}, width_, part, first, tiles,
                                    matrix_step_, machine_, analyzer_));
      return SeqStmt::Flatten(all);
    }
    part.row_start = first * Expr(rows_);
    const Expr rows = ir::Min(tiles * Expr(rows_), c_.row.extent - part.row_start);
    all.push_back(EmitMatrixRows(c_, width_, part, analyzer_->Simplify(rows), matrix_step_,
                                 machine_, analyzer_));
    return SeqStmt::Flatten(all);
  }
  if (!takes_panels_) part.next = PartOfNextPanel(panel, first, &all);
  all.push_back(ByTiles(columns, limit, [&](const std::vector<Columns>& some, const Expr& end) {
    part.columns = some;
    part.limit = end;
    ffi::Array<Stmt> seq;
    const Heights heights = heights_.has_value() ? *heights_ : ChooseHeights(&seq);
    seq.push_back(Pass(c, part, first, tiles, heights));
    return SeqStmt::Flatten(seq);
  }));
  return SeqStmt::Flatten(all);
}

Expr ContractionEmitter::EndOf(const Heights& heights, const Expr& tiles) const {
  const Expr end = heights.StartOf(tiles);
  return heights.last > 0 ? ir::Min(end, c_.row.extent) : end;
}

Stmt ContractionEmitter::Pass(const Contraction& c, TilePart part, const Expr& first,
                              const Expr& tiles, const Heights& heights) {
  Var tile("tile", Int(64));
  ffi::Array<Stmt> seq;
  // Tiles come past once for each pass over the panel's columns.
  const int64_t passes = (width_ / lanes_ + at_once_ - 1) / at_once_,
                pass = part.columns.front().offset / lanes_ / at_once_;
  const Expr at = first + tile, before = part.next.has_value() ? part.next->tile : Expr(),
             tiles_of_next = part.next.has_value() ? part.next->tiles : Expr();
  const bool is_known = ir::AsInt(heights.low).has_value();
  // Found once for tiles of all heights.
  Expr share;
  if (!is_known && part.next.has_value()) {
    PartOfNext next = *part.next;
    next.tiles = next.tiles * Expr(passes);
    share = relaxvm::schedule::cpu::Named("share", next.Share(), &seq, analyzer_);
  }
  const int64_t usual = (3 * rows_ + 3) / 4;
  const Expr alone = part.partial.has_value() ? Expr(1) : NumPoints(c_.outer_a);
  auto code = [&](int64_t rows, const Expr& start) {
    part.rows = rows;
    part.is_usual = is_known || rows >= usual;
    part.is_tallest = rows == rows_;
    part.row_start = start;
    // Of a block the tiles of this pass share the next one, of a panel all that there are.
    if (part.next.has_value()) {
      // Even heights: a tile that is lower than half of what two of them have at least is alone.
      const bool is_alone = !is_known && rows < (rows_ + 1) / 2;
      const Expr tiles = is_alone ? alone : tiles_of_next;
      part.next->share = is_alone ? Expr() : share;
      part.next->tiles = analyzer_->Simplify(tiles * Expr(passes));
      part.next->tile = before + tile + tiles * Expr(pass);
    }
    return EmitTile(c, width_, part, machine_, analyzer_);
  };
  if (auto low = ir::AsInt(heights.low)) {
    const Expr start = analyzer_->Simplify(heights.StartOf(at));
    Stmt body = code(low.value(), start);
    if (heights.last > 0)
      body = tir::IfThenElse(ir::Less(at, num_tiles_ - Expr(1)), body, code(heights.last, start));
    if (!ir::IsIntValue(heights.higher, 0))
      body = tir::IfThenElse(ir::Less(at, heights.higher), code(low.value() + 1, start), body);
    seq.push_back(Loop(tile, tiles, ForKind::kSerial, body));
    return SeqStmt::Flatten(seq);
  }
  Var height("height", Int(64)), start("start", Int(64));
  ffi::Array<Stmt> body = {
      tir::Bind(height, heights.low + ir::Select(ir::Less(at, heights.higher), Expr(1), Expr(0))),
      tir::Bind(start, heights.StartOf(at))};
  // Even heights differ by one at most: two rows and more make no tile of one.
  const int64_t lowest = rows_ > 2 ? c.fewest_rows : 1;
  // Few tiles are low, and a polynomial is much code: sums of such go to memory, where one loop
  // over rows finishes those of all heights.
  const TilePart whole = part;
  TilePart unfinished = part;
  unfinished.row_start = start;
  int64_t highest_unfinished = 0;
  if (!part.partial.has_value() && FinishTakesCode(c)) {
    highest_unfinished = IsDearToFinish(c) ? rows_ : usual - 1;
    const int64_t width = part.columns.back().offset + part.columns.back().lanes;
    Buffer sums("sums", {Expr(highest_unfinished * width)}, c.acc, "local");
    body.push_back(tir::AllocBuffer(sums));
    unfinished.partial = PartialSums{sums, start, 0, width};
  }
  Stmt forms;
  for (int64_t rows = lowest; rows <= rows_; ++rows) {
    part = rows <= highest_unfinished ? unfinished : whole;
    const Stmt form = code(rows, start);
    forms = forms.defined() ? Stmt(tir::IfThenElse(ir::Equal(height, rows), form, forms)) : form;
  }
  body.push_back(forms);
  if (highest_unfinished >= lowest) {
    const Stmt finish = EmitFinish(c, width_, unfinished, height, machine_, analyzer_);
    body.push_back(highest_unfinished == rows_
                       ? finish
                       : tir::IfThenElse(ir::LessEqual(height, highest_unfinished), finish));
  }
  seq.push_back(tir::For(tile, 0, tiles, ForKind::kSerial, SeqStmt::Flatten(body)));
  return SeqStmt::Flatten(seq);
}

Expr BetterAsDots(const Stage& stage, const Machine& machine, arith::Analyzer* analyzer) {
  std::optional<Contraction> c = ReadContraction(stage, machine, analyzer);
  if (!c.has_value() || c->panel_width > 0 || c->group > 1 || c->stage.reduce.empty())
    return Expr();
  const auto all = c->AllAxes();
  auto a = LinearOffset::Of(c->LoadOf(c->a)->indices[0], all);
  auto b = LinearOffset::Of(c->LoadOf(c->b)->indices[0], all);
  const Var& k = c->stage.reduce.back().var;
  if (!ir::IsIntValue(b->Coeff(k), 1) || !ir::IsIntValue(a->Coeff(k), 1)) return Expr();
  // A vector of one column is mostly empty.
  if (ir::IsIntValue(c->vector.extent, 1)) {
    const int64_t depth = ir::AsInt(c->stage.reduce.back().extent).value_or(kShortestDots);
    if (depth < kShortestDots) return Expr();
    const Expr few = WhenFewColumns(*c, machine, analyzer);
    if (!few.defined()) return Expr(1);
    return ir::IsIntValue(few, 1) ? Expr() : Expr(ir::Not(few));
  }
  if (ir::IsIntValue(b->Coeff(c->vector.var), 1)) return Expr();
  const Expr rows = c->row.extent * NumPoints(c->outer_a);
  Expr few = analyzer->Simplify(ir::LessEqual(rows, kMostRowsOfDots));
  return ir::IsIntValue(few, 0) ? Expr() : few;
}

std::optional<Stmt> EmitContraction(const Stage& stage, const Machine& machine,
                                    arith::Analyzer* analyzer) {
  std::optional<Contraction> contraction = ReadContraction(stage, machine, analyzer);
  if (!contraction.has_value()) return std::nullopt;
  if (auto one_row = EmitOneRow(*contraction, machine, analyzer)) return one_row;
  const FewColumns few = EmitFewColumns(*contraction, machine, analyzer);
  if (few.when.defined()) {
    if (ir::IsIntValue(few.when, 1)) return few.body;
    return tir::IfThenElse(few.when, few.body, EmitTiles(*contraction, machine, analyzer));
  }
  return EmitTiles(*contraction, machine, analyzer);
}

}  // namespace relaxvm::schedule::cpu
