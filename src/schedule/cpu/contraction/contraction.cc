// SPDX-License-Identifier: Apache-2.0
// EmitContraction: which tiles cover C, in which order, and whether B is brought into panels first.
#include "schedule/cpu/contraction/contraction.h"

#include <algorithm>

#include "target/packed.h"

namespace relaxvm::schedule::cpu {
namespace {

using tir::ForKind;
using tir::SeqStmt;

// A task is as many tiles as make up this many multiply-adds of vectors, but no more than
// kMaxTilesPerTask, and fewer where threads would not all have kTasksPerThread of them: small
// enough that threads end together, large enough that finding the task's place is not felt.
constexpr int64_t kWorkPerTask = 24576;
constexpr int64_t kMaxTilesPerTask = 16;
constexpr int64_t kTasksPerThread = 4, kFewestThreads = 4;
// Tiles that share a block of B.
constexpr int64_t kTilesPerBlock = 8, kFewestTilesOfBlock = 4;
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
// Tiles of no more rows wait for B; the second number, where it lies beyond the second cache.
constexpr int64_t kRowsThatWait = 3;
constexpr int64_t kRowsThatWaitForMemory = 6;
constexpr int64_t kAheadInMemory = 2048;  // bytes
// Where more tiles share a panel, waiting for its first passage is not felt.
constexpr int64_t kTilesThatHidePanels = 32;
constexpr int64_t kUsualTiles = 2;  // that a panel is fetched by, at least, where nobody knows

// Matrix registers multiply as fast as so many vectors; their sums go through memory to what
// finishes them, which costs as much for each vector.
constexpr int64_t kRegistersOfMatrices = 8, kFinish = 4;

// Each vector of columns has a left side of its own: a second one would share nothing.
constexpr int64_t kVectorsSideBySide = 1;

class ContractionEmitter {
 public:
  ContractionEmitter(Contraction c, const Machine& machine, arith::Analyzer* analyzer)
      : c_(std::move(c)),
        machine_(machine),
        analyzer_(analyzer),
        lanes_(machine.Lanes(std::max<int64_t>(SizeInBytes(c_.acc), 1))) {}

  Stmt Run() {
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

 private:
  void ChooseWidth() {
    const auto columns = ir::AsInt(c_.vector.extent);
    int64_t vectors = target::PanelVectors(machine_, columns.value_or(0), SizeInBytes(c_.acc));
    if (c_.panel_width > 0) {
      vectors = c_.panel_width / lanes_;
    } else if (c_.side_by_side.has_value()) {
      vectors = kVectorsSideBySide;
    } else if (ir::IsIntValue(c_.row.extent, 1) && columns.has_value()) {
      // One row has no second chain per column: more columns hide the latency.
      vectors = std::min<int64_t>(machine_.num_vectors < 32 ? 6 : 12,
                                  (columns.value() + lanes_ - 1) / lanes_);
    }
    width_ = std::max<int64_t>(vectors, 1) * lanes_;
    full_panels_ = analyzer_->Simplify(ir::FloorDiv(c_.vector.extent, width_));
    panels_ = analyzer_->Simplify(ir::CeilDiv(c_.vector.extent, width_));
  }

  // A copy of B that lets one instruction do the work of several pays from a few rows on.
  bool WorthGroups() const {
    return c_.group_if_packed > 1 && !c_.guard.defined() && EachElementOnce() &&
           ir::AsInt(c_.row.extent).value_or(kRowsWorthPacking) >= kRowsWorthGroups;
  }

  // B walked across its rows is copied once so that the vector axis is contiguous; not windows that
  // overlap, which would grow.
  bool WorthPacking() const {
    if (c_.guard.defined()) return false;  // a copy would take what is not there
    auto b = LinearOffset::Of(c_.LoadOf(c_.b)->indices[0], c_.AllAxes());
    const bool contiguous = ir::IsIntValue(b->Coeff(c_.vector.var), 1);
    return (!contiguous || FewCacheSets(*b)) && EachElementOnce();
  }

  // Do the rows of B fall into a few sets of the cache, because their distance is a multiple of
  // half a page?
  bool FewCacheSets(const LinearOffset& b) const {
    if (c_.stage.reduce.empty()) return false;
    const Axis& inner = c_.stage.reduce.back();
    const auto rows = ir::AsInt(c_.row.extent), depth = ir::AsInt(inner.extent);
    const auto step = ir::AsInt(b.Coeff(inner.var));
    if (rows.value_or(kRowsWorthPacking) < kRowsWorthPacking || depth.value_or(64) < 64)
      return false;
    return step.has_value() && step.value() * SizeInBytes(c_.b.dtype()) % 2048 == 0;
  }

  // Do the axes of B walk over as many elements as it has (a matrix), not over windows that
  // overlap?
  bool EachElementOnce() const {
    const Expr walked =
        c_.vector.extent * NumPoints(c_.OuterOfB()) * NumPoints(c_.stage.reduce);
    Expr have = 1;
    for (const Expr& d : Buffer(c_.LoadOf(c_.b)->buffer).shape()) have = have * d;
    return analyzer_->ProveEqual(walked, have);
  }

  // Short lines of rows (of small images) become one axis: tiles have whole lines, and all of them
  // pass for a panel of B, or a block of one.
  void JoinLines() {
    const auto width = ir::AsInt(c_.row.extent);
    if (!width.has_value() || c_.outer_a.empty() || c_.group > 1 || c_.side_by_side.has_value() ||
        *width < 2 || c_.stage.reduce.empty())
      return;
    const Axis line = c_.outer_a.back();
    const int64_t most = std::max(MostRows(2), MostRows(1));
    if (*width > most || ir::AsInt(line.extent).value_or(1) < 2 ||
        (c_.guard.defined() && (UsesVar(c_.guard, line.var) || UsesVar(c_.guard, c_.row.var))))
      return;
    const Axis all{Var("row", Int(64)), analyzer_->Simplify(line.extent * c_.row.extent)};
    ffi::Map<Var, Expr> map;
    map.Set(line.var, ir::FloorDiv(all.var, *width));
    map.Set(c_.row.var, ir::FloorMod(all.var, *width));
    c_.a = tir::Substitute(c_.a, map);
    c_.stage.indices = c_.stage.indices.Map([&](const Expr& e) { return tir::Substitute(e, map); });
    if (c_.stage.finish.defined()) c_.stage.finish = tir::Substitute(c_.stage.finish, map);
    c_.outer_a.pop_back();
    c_.row = all;
    c_.line_width = *width;
  }

  // As many whole lines, and of as many vectors of columns, as make the most sums in registers.
  void ChooseLines() {
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

  // What fits into the registers beside `vectors` of columns: docs/design/cpu_schedule.md.
  int64_t MostRows(int64_t vectors) const {
    // rows * vectors + vectors + 1 <= registers; one vector: the broadcast folds into the
    // multiplication.
    int64_t most =
        vectors == 1 ? machine_.num_vectors - 2 : (machine_.num_vectors - 1 - vectors) / vectors;
    if (c_.group > 1) {  // the broadcast needs a register of its own
      const int64_t taken = vectors * (c_.NeedsCorrection() ? 2 : 1) + 2;
      most = (machine_.num_vectors - taken) / vectors;
    }
    if (c_.side_by_side.has_value())  // what all rows are multiplied with stays in registers
      most = machine_.num_vectors - 2 - c_.side_by_side->depth;
    return std::clamp<int64_t>(most, c_.side_by_side.has_value() ? 4 : 1, 16);
  }

  void ChooseRows() {
    Contraction steps_last = c_;
    std::stable_partition(steps_last.stage.reduce.begin(), steps_last.stage.reduce.end(),
                          [](const Axis& axis) { return ir::IsIntValue(axis.extent, 1); });
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

  Stmt Compute() {
    Var panel("panel", Int(64)), chunk("chunk", Int(64));
    std::optional<RowRanges> ranges;
    if (c_.guard.defined() && UsesVar(c_.guard, c_.row.var)) ranges = RowRanges::Of(c_, c_.row);
    if (ranges.has_value()) {
      if (auto parts = ranges->Known(c_, analyzer_)) return ComputeRanges(*parts, panel, chunk);
    }
    if (!ranges.has_value()) JoinLines();
    ChooseRows();
    if (!ranges.has_value()) TakeLines();
    ChooseTasks(ranges.has_value());
    const Stmt body = ranges.has_value() ? OfRanges(*ranges, panel, chunk) : OfChunk(panel, chunk);
    return SeqStmt::Flatten({sizes_of_task_, OverAll(panel, chunk, chunks_, body, work_)});
  }

  // Several short lines of rows become a tile.
  void TakeLines() {
    matrix_lines_ = matrix_step_ > 0 ? MatrixLines(c_) : 0;
    if (matrix_lines_ == 0) return;
    line_ = c_.outer_a.back();
    c_.outer_a.pop_back();
  }

  // Ranges of rows stand one after the other: each panel of B passes once for all of them.
  Stmt ComputeRanges(const std::vector<Contraction>& parts, const Var& panel, const Var& chunk) {
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

  // A chunk of rows, range by range.
  Stmt OfRanges(const RowRanges& ranges, const Var& panel, const Expr& chunk) {
    ContractionEmitter part = *this;
    part.c_ = ranges.Any(c_, analyzer_);
    part.num_tiles_ = ir::CeilDiv(part.c_.row.extent, rows_);
    const Expr rows = rows_ * per_task_, begin = chunk * rows;
    return ranges.Each(begin, ir::Min(begin + rows, c_.row.extent),
                       part.OfTiles(panel, Expr(0), part.num_tiles_));
  }

  // All chunks of rows and panels of B, `body`: those of one of each.
  Stmt OverAll(const Var& panel, const Var& chunk, const Expr& chunks, const Stmt& body,
               const Expr& work) const {
    const Tasks tasks{{panel, panels_}, {chunk, chunks}, body, work, BytesOfChunk(),
                      depth_blocks_.has_value()};
    return RunTasks(c_, tasks, machine_, analyzer_);
  }

  // Of A, along the innermost axis of the sum; null: not known.
  Expr BytesOfChunk() const {
    if (c_.stage.reduce.empty() || c_.side_by_side.has_value()) return Expr();
    const auto inner = ir::AsInt(c_.stage.reduce.back().extent);
    if (!inner.has_value()) return Expr();
    const DLDataType type = Buffer(c_.LoadOf(c_.a)->buffer).elem_dtype();
    return per_task_ * Expr(rows_ * inner.value() * c_.group * SizeInBytes(type));
  }

  void ChooseTasks(bool is_cut) {
    num_tiles_ = analyzer_->Simplify(matrix_lines_ > 0 ? ir::CeilDiv(line_.extent, matrix_lines_)
                                                       : ir::CeilDiv(c_.row.extent, rows_));
    const Expr depth = analyzer_->Simplify(NumPoints(c_.stage.reduce));
    if (matrix_step_ > 0) return ChooseTasksOfMatrices(depth);
    const int64_t tile_work = ir::AsInt(depth).value_or(kTypicalDepth) * (width_ / lanes_) * rows_;
    if (!is_cut) depth_blocks_ = ChooseDepthBlocks(ir::AsInt(depth));
    if (BytesOfA(depth) > machine_.l2_bytes && !c_.side_by_side.has_value()) {
      c_.fetch_depth = depth_blocks_.has_value() ? depth_blocks_->even : ir::AsInt(depth).value();
    }
    c_.fetch_b = HowToFetchB(BytesOfB(depth));
    if (depth_blocks_.has_value()) {
      per_task_ = kTilesPerBlock;
    } else {
      ChooseTilesPerTask(kWorkPerTask / std::max<int64_t>(tile_work, 1), is_cut);
    }
    chunks_ = analyzer_->Simplify(ir::CeilDiv(num_tiles_, per_task_));
    const Expr rows = ir::Min(rows_ * per_task_, ir::Max(c_.row.extent, kRowsPerLoad));
    work_ = depth * Expr(width_ / lanes_) * rows;
  }

  void ChooseTasksOfMatrices(const Expr& depth) {
    const int64_t registers = rows_ * (width_ / lanes_);
    const Expr work = analyzer_->Simplify(
        ir::FloorDiv(depth, kRegistersOfMatrices) * Expr(registers) + Expr(registers * kFinish));
    ChooseTilesPerTask(kWorkPerTask / ir::AsInt(work).value_or(kWorkPerTask), false);
    chunks_ = analyzer_->Simplify(ir::CeilDiv(num_tiles_, per_task_));
    work_ = work * per_task_;
  }

  void ChooseTilesPerTask(int64_t most, bool is_cut) {
    most = std::clamp<int64_t>(most, 1, kMaxTilesPerTask);
    const Expr tiles = num_tiles_ * NumPoints(c_.OuterOfB()) * NumPoints(c_.outer_a);
    const int64_t tasks = kTasksPerThread * std::max<int64_t>(machine_.num_cores, kFewestThreads);
    const Expr even =
        analyzer_->Simplify(ir::Max(ir::Min(ir::FloorDiv(tiles * panels_, tasks), most), 1));
    per_task_ = even;
    if (ir::AsInt(even).has_value()) return;
    if (is_cut) {  // ranges of rows share one number
      per_task_ = most;
      return;
    }
    Var bound("tiles_of_task", Int(64));
    sizes_of_task_ = tir::Bind(bound, even);
    per_task_ = bound;
  }

  Stmt OfChunk(const Var& panel, const Expr& chunk) {
    const Expr first = chunk * Expr(per_task_);
    const Expr tiles = analyzer_->Simplify(ir::Min(per_task_, num_tiles_ - first));
    return OfTiles(panel, first, tiles);
  }

  Stmt OfTiles(const Var& panel, const Expr& first, const Expr& tiles) {
    const Stmt full = Tiles(panel, first, tiles, Full(width_ / lanes_), Expr());
    if (analyzer_->ProveEqual(full_panels_, panels_)) return full;
    const Stmt rest = RestPanel(panel, first, tiles);
    if (ir::IsIntValue(full_panels_, 0)) return rest;
    return tir::IfThenElse(ir::Less(panel, full_panels_), full, rest);
  }

  // 0 when A has no rows of its own that lie along the sum, or nobody knows how many.
  int64_t BytesOfA(const Expr& depth) const {
    if (c_.stage.reduce.size() != 1) return 0;
    const Expr elements = analyzer_->Simplify(c_.row.extent * depth);
    const DLDataType type = Buffer(c_.LoadOf(c_.a)->buffer).elem_dtype();
    return ir::AsInt(elements).value_or(0) * c_.group * SizeInBytes(type);
  }

  // 0 when its width or depth is not known.
  int64_t BytesOfB(const Expr& depth) const {
    const Expr elements = analyzer_->Simplify(c_.vector.extent * depth);
    const DLDataType type = Buffer(c_.LoadOf(c_.b)->buffer).elem_dtype();
    return ir::AsInt(elements).value_or(0) * c_.GroupInB() * SizeInBytes(type);
  }

  Contraction::FetchOfB HowToFetchB(int64_t bytes) const {
    const int64_t rows = bytes > machine_.l2_bytes ? kRowsThatWaitForMemory : kRowsThatWait;
    if (machine_.fetch_ahead > 0) return {rows, machine_.fetch_ahead, true};
    const bool in_cache = bytes <= std::max(machine_.l2_bytes, machine_.l3_bytes);
    // Of several tiles that share a panel, each fetches a part of the next one.
    const bool shared = ir::AsInt(TilesOfPanel()).value_or(1) > 1 && PanelsAreRuns();
    return in_cache || shared ? Contraction::FetchOfB()
                              : Contraction::FetchOfB{rows, kAheadInMemory, false};
  }

  // Tiles that share a panel of B.
  Expr TilesOfPanel() const { return analyzer_->Simplify(num_tiles_ * NumPoints(c_.outer_a)); }

  // Is each panel of B a run of memory?
  bool PanelsAreRuns() const {
    if (c_.side_by_side.has_value() || c_.stage.reduce.empty()) return false;
    auto b = LinearOffset::Of(c_.LoadOf(c_.b)->indices[0], c_.stage.reduce);
    Expr run = width_ * c_.GroupInB();
    for (size_t i = c_.stage.reduce.size(); i-- > 0;) {
      const Axis& axis = c_.stage.reduce[i];
      if (!b.has_value() || !ir::AsInt(axis.extent).has_value() ||
          !analyzer_->ProveEqual(b->Coeff(axis.var), run))
        return false;
      run = run * axis.extent;
    }
    return true;
  }

  // The part for each of `tiles` tiles of `rows` rows of B, of which the first one is `map`'s.
  std::optional<PartOfNext> PartOf(ffi::Map<Var, Expr> map, const Expr& rows, const Expr& tiles) {
    if (c_.fetch_depth > 0 || !PanelsAreRuns() ||
        ir::AsInt(tiles).value_or(1) > kTilesThatHidePanels)
      return std::nullopt;
    map.Set(c_.vector.var, Expr(0));
    map.Set(c_.column, Expr(0));
    for (const Axis& axis : c_.stage.reduce) {
      if (!map.count(axis.var)) map.Set(axis.var, Expr(0));
    }
    const auto* load = c_.LoadOf(c_.b);
    const int64_t bytes = width_ * c_.GroupInB() * SizeInBytes(Buffer(load->buffer).elem_dtype());
    const int64_t lines = (bytes + kLineBytes - 1) / kLineBytes;
    const int64_t known = std::max<int64_t>(1, ir::AsInt(tiles).value_or(kUsualTiles));
    const Expr part = ir::CeilDiv(rows * Expr(lines), ir::Max(tiles, 1));
    return PartOfNext{tir::Substitute(load->indices[0], map), Expr(), analyzer_->Simplify(part),
                      (lines + known - 1) / known};
  }

  // Of the panel after `panel`.
  std::optional<PartOfNext> PartOfNextPanel(const Expr& panel) {
    ffi::Map<Var, Expr> map;
    if (c_.panel_width > 0) {
      map.Set(c_.panel, panel + Expr(1));
    } else if (!c_.outer_b.empty() && ir::IsIntValue(panels_, 1)) {
      map.Set(c_.outer_b.back().var, c_.outer_b.back().var + Expr(1));
    } else {
      return std::nullopt;
    }
    return PartOf(map, NumPoints(c_.stage.reduce), TilesOfPanel());
  }

  // Of block number `block` of the sum.
  std::optional<PartOfNext> PartOfBlock(const Expr& panel, const Expr& block, const Expr& tiles) {
    ffi::Map<Var, Expr> map = BeginOf(block);
    map.Set(c_.panel, panel);
    Expr rows = depth_blocks_->even;
    for (size_t i = depth_blocks_->axis + 1; i < c_.stage.reduce.size(); ++i)
      rows = rows * c_.stage.reduce[i].extent;
    return PartOf(map, rows, tiles);
  }

  // Where block number `block` of the sum begins: the axes up to the one that is cut.
  ffi::Map<Var, Expr> BeginOf(const Expr& block) const {
    const auto& [axis, even, count, all] = *depth_blocks_;
    ffi::Map<Var, Expr> map;
    map.Set(c_.stage.reduce[axis].var, ir::FloorMod(block, count) * Expr(even));
    Expr rest = ir::FloorDiv(block, count);
    for (size_t i = axis; i-- > 0; rest = ir::FloorDiv(rest, c_.stage.reduce[i].extent))
      map.Set(c_.stage.reduce[i].var, ir::FloorMod(rest, c_.stage.reduce[i].extent));
    return map;
  }

  // `vectors` whole registers.
  std::vector<Columns> Full(int64_t vectors) const {
    std::vector<Columns> columns;
    for (int64_t v = 0; v < vectors; ++v) columns.push_back({v * lanes_, lanes_});
    return columns;
  }

  // The panel that is not full: as few registers as hold it, the last one as narrow as it can be.
  Stmt RestPanel(const Var& panel, const Expr& first, const Expr& tiles) {
    Expr rest = analyzer_->Simplify(c_.vector.extent - full_panels_ * Expr(width_));
    if (auto known = ir::AsInt(rest)) {
      std::vector<Columns> columns = Full(known.value() / lanes_);
      const int64_t done = known.value() / lanes_ * lanes_;
      int64_t narrow = std::min<int64_t>(4, lanes_);
      while (narrow < known.value() - done) narrow *= 2;
      if (done < known.value()) columns.push_back({done, narrow});
      const bool exact = known.value() - done == narrow || done == known.value();
      return Tiles(panel, first, tiles, columns, exact ? Expr() : c_.vector.extent);
    }
    // Unknown width: one variant for each number of vectors.
    Stmt chosen;
    for (int64_t v = width_ / lanes_; v >= 1; --v) {
      Stmt variant = Tiles(panel, first, tiles, Full(v), c_.vector.extent);
      chosen = chosen.defined()
                   ? Stmt(tir::IfThenElse(ir::LessEqual(rest, v * lanes_), variant, chosen))
                   : variant;
    }
    return chosen;
  }

  // Where the rows of tile `at` begin.  Rows that tiles of rows_ do not divide are spread over the
  // tiles so that their heights differ by one at most: a tile of few rows would wait for memory.
  struct Heights {
    Expr low, higher;  // every tile has `low` rows, the first `higher` tiles one more
    int64_t last = 0;  // rows of the last tile, where it has fewer than `low`
    Expr StartOf(const Expr& at) const { return at * low + ir::Min(at, higher); }
  };

  // Tiles [first, first + tiles) of the rows.
  Stmt Tiles(const Var& panel, const Expr& first, const Expr& tiles,
             const std::vector<Columns>& columns, const Expr& limit) {
    const Expr& extent = c_.row.extent;
    if (const auto count = static_cast<int64_t>(columns.size());
        matrix_step_ == 0 && count > at_once_) {
      ffi::Array<Stmt> seq;
      for (int64_t from = 0; from < count; from += at_once_) {
        const auto begin = columns.begin() + from, end = begin + std::min(at_once_, count - from);
        seq.push_back(
            Tiles(panel, first, tiles, {begin, end}, from + at_once_ < count ? Expr() : limit));
      }
      return SeqStmt::Flatten(seq);
    }
    TilePart part{panel, Expr(), 0, columns, limit, std::nullopt, std::nullopt};
    if (matrix_lines_ > 0) {
      return EmitMatrixLines(c_, {line_, matrix_lines_}, width_, part, first, tiles, matrix_step_,
                             machine_, analyzer_);
    }
    if (matrix_step_ > 0) {
      part.row_start = first * Expr(rows_);
      const Expr rows = ir::Min(tiles * Expr(rows_), extent - part.row_start);
      return EmitMatrixRows(c_, width_, part, analyzer_->Simplify(rows), matrix_step_, machine_,
                            analyzer_);
    }
    if (analyzer_->ProveEqual(ir::FloorMod(extent, rows_), 0))
      return Chunk(part, first, tiles, {Expr(rows_), Expr(0)});
    if (c_.line_width > 0)
      return Chunk(part, first, tiles, {Expr(rows_), Expr(0), *ir::AsInt(extent) % rows_});
    if (auto known = ir::AsInt(extent)) {
      const int64_t count = (known.value() + rows_ - 1) / rows_;
      return Chunk(part, first, tiles, {Expr(known.value() / count), Expr(known.value() % count)});
    }
    Var count("tiles", Int(64)), low("low", Int(64)), higher("higher", Int(64));
    // No rows: the loops do not run.
    return SeqStmt::Flatten(
        {tir::Bind(count, ir::Max(num_tiles_, 1)), tir::Bind(low, ir::FloorDiv(extent, count)),
         tir::Bind(higher, extent - low * count), Chunk(part, first, tiles, {low, higher})});
  }

  Stmt Chunk(TilePart part, const Expr& first, const Expr& tiles, const Heights& heights) {
    if (!depth_blocks_.has_value()) {
      part.next = PartOfNextPanel(part.panel);
      return Pass(c_, part, first, tiles, heights);
    }
    // Block after block of the sum is added to the sums of all tiles: the block of B stays in the
    // second cache while they pass.
    const DepthBlocks& blocks = *depth_blocks_;
    Var start("first_row", Int(64)), rows("num_rows", Int(64)), block("block", Int(64));
    Var lane("lane", Int(64)), from("from", Int(64));
    Buffer sums("sums", {Expr(kTilesPerBlock * rows_ * width_)}, c_.acc);
    part.partial = PartialSums{sums, start};
    ffi::Array<Stmt> seq = {tir::AllocBuffer(sums), tir::Bind(start, heights.StartOf(first)),
                            tir::Bind(rows, EndOf(heights, first + tiles) - start)};
    const int64_t vectors = width_ / lanes_;
    Var vector("vector", Int(64));
    seq.push_back(Loop(
        vector, rows * Expr(vectors), ForKind::kSerial,
        tir::For(lane, 0, lanes_, ForKind::kVectorized,
                 tir::BufferStore(sums, ir::Const(c_.acc, 0), {vector * Expr(lanes_) + lane}))));
    // The same contraction over one block of the sum.
    Contraction c = c_;
    std::vector<Axis>& reduce = c.stage.reduce;
    const Axis whole = reduce[blocks.axis];
    reduce.erase(reduce.begin(), reduce.begin() + static_cast<std::ptrdiff_t>(blocks.axis));
    reduce.front() = {Var("in_block", Int(64)),
                      blocks.even * blocks.count == ir::AsInt(whole.extent)
                          ? Expr(blocks.even)
                          : ir::Min(blocks.even, whole.extent - from)};
    ffi::Array<Stmt> body;
    ffi::Map<Var, Expr> map;
    for (const auto& [axis, begin] : BeginOf(block)) {
      const bool is_cut = axis.same_as(whole.var);
      const Var at = is_cut ? from : Var(axis->name, Int(64));
      body.push_back(tir::Bind(at, analyzer_->Simplify(begin)));
      map.Set(axis, is_cut ? at + reduce.front().var : Expr(at));
    }
    c.a = tir::Substitute(c.a, map);
    c.b = tir::Substitute(c.b, map);
    if (c.guard.defined()) c.guard = tir::Substitute(c.guard, map);
    part.next = PartOfBlock(part.panel, block + Expr(1), tiles);
    body.push_back(Pass(c, part, first, tiles, heights));
    seq.push_back(Loop(block, blocks.all, ForKind::kSerial, SeqStmt::Flatten(body)));
    part.row_start = start;
    seq.push_back(EmitFinish(c_, width_, part, rows, machine_, analyzer_));
    return SeqStmt::Flatten(seq);
  }

  Expr EndOf(const Heights& heights, const Expr& tiles) const {
    const Expr end = heights.StartOf(tiles);
    return heights.last > 0 ? ir::Min(end, c_.row.extent) : end;
  }

  // One pass over the tiles.
  Stmt Pass(const Contraction& c, TilePart part, const Expr& first, const Expr& tiles,
            const Heights& heights) {
    Var tile("tile", Int(64));
    // A division, done once.
    Var lines("lines", Int(64));
    ffi::Array<Stmt> seq;
    if (part.next.has_value() && !ir::AsInt(part.next->lines).has_value()) {
      seq.push_back(tir::Bind(lines, part.next->lines));
      part.next->lines = lines;
    }
    const Expr at = first + tile;
    auto code = [&](int64_t rows, const Expr& start) {
      part.rows = rows;
      part.row_start = start;
      // Of a block the tiles of this pass share the next one, of a panel all that there are.
      if (part.next.has_value()) {
        part.next->tile =
            part.partial.has_value() ? Expr(tile) : LinearIndex(c_.outer_a) * num_tiles_ + at;
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
    Stmt forms = code(1, start);
    for (int64_t rows = 2; rows <= rows_; ++rows)
      forms = tir::IfThenElse(ir::Equal(height, rows), code(rows, start), forms);
    Stmt body =
        SeqStmt::Flatten({tir::Bind(height, heights.low + ir::Select(ir::Less(at, heights.higher),
                                                                     Expr(1), Expr(0))),
                          tir::Bind(start, heights.StartOf(at)), forms});
    seq.push_back(tir::For(tile, 0, tiles, ForKind::kSerial, body));
    return SeqStmt::Flatten(seq);
  }

  // How the sum goes by blocks, where one panel of B does not fit into the second cache beside rows
  // of A.  A single tile of rows has no use of it: B passes once.
  struct DepthBlocks {
    size_t axis;          // of the sum, that is cut; those outside of it take single steps
    int64_t even, count;  // of each but the last; blocks of the axis
    int64_t all;          // blocks
  };
  std::optional<DepthBlocks> ChooseDepthBlocks(const ffi::Optional<int64_t>& depth) const {
    // A guard leaves most steps out of most rows, and with them of a panel.
    if (depth.value_or(0) == 0 || c_.stage.reduce.empty() ||
        ir::AsInt(num_tiles_).value_or(kFewestTilesOfBlock) < kFewestTilesOfBlock ||
        c_.side_by_side.has_value() || c_.guard.defined())
      return std::nullopt;
    const int64_t size = SizeInBytes(Buffer(c_.LoadOf(c_.b)->buffer).elem_dtype());
    int64_t bytes = depth.value() * c_.GroupInB() * size * width_;
    if (bytes <= machine_.l2_bytes / 2) return std::nullopt;
    size_t axis = 0;
    int64_t outside = 1;
    auto extent = [&](size_t i) { return ir::AsInt(c_.stage.reduce[i].extent).value(); };
    // The outermost axis whose steps fit is cut.
    for (; axis + 1 < c_.stage.reduce.size() && bytes / extent(axis) > machine_.l2_bytes / 2;
         ++axis) {
      bytes /= extent(axis);
      outside *= extent(axis);
    }
    const int64_t each = bytes / extent(axis);
    const int64_t most = std::max<int64_t>(1, machine_.l2_bytes / 4 / std::max<int64_t>(each, 1));
    const int64_t blocks = (extent(axis) + most - 1) / most;
    const int64_t even = (extent(axis) + blocks - 1) / blocks;
    const int64_t count = (extent(axis) + even - 1) / even;
    return DepthBlocks{axis, even, count, outside * count};
  }

  Contraction c_;
  const Machine& machine_;
  arith::Analyzer* analyzer_;
  int64_t lanes_;
  int64_t width_ = 1;         // elements of a panel
  int64_t at_once_ = 1;       // vectors of columns of a tile, at most
  int64_t rows_ = 1;          // of a tile, at most
  int64_t matrix_step_ = 0;   // MatrixStep
  int64_t matrix_lines_ = 0;  // MatrixLines; of `line_`, which is then no axis of tasks
  Axis line_{Var("line", Int(64)), Expr(1)};
  Expr full_panels_, panels_, num_tiles_;
  Expr per_task_ = 1;                          // tiles
  Stmt sizes_of_task_ = SeqStmt::Flatten({});  // binds what per_task_ uses
  Expr chunks_, work_;                         // tasks of a panel; additions of one
  std::optional<DepthBlocks> depth_blocks_;
};

}  // namespace

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
    return depth < kShortestDots ? Expr() : Expr(1);
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
  const Stmt stmt = ContractionEmitter(*contraction, machine, analyzer).Run();
  if (!contraction->other_row.has_value()) return stmt;
  Contraction turned = *contraction;
  turned.row = *contraction->other_row;
  for (Axis& axis : turned.outer_a) {
    if (axis.var.same_as(turned.row.var)) axis = contraction->row;
  }
  return tir::IfThenElse(ir::LessEqual(turned.row.extent, contraction->row.extent), stmt,
                         ContractionEmitter(turned, machine, analyzer).Run());
}

}  // namespace relaxvm::schedule::cpu
