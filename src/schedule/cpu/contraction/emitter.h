// SPDX-License-Identifier: Apache-2.0
// What chooses the tiles of a contraction and their order, and writes its loops: contraction.cc;
// sums that go by blocks: blocks.cc, by elements of a kernel: taps.cc; how much makes a task:
// tasks.cc; what tiles fetch while they compute: fetch.cc.
#pragma once

#include "schedule/cpu/contraction/contraction.h"

namespace relaxvm::schedule::cpu {

// Threads get so many tasks each, so that they end together; code is made for so many threads at
// least.
inline constexpr int64_t kTasksPerThread = 4, kFewestThreads = 4;

class ContractionEmitter {
 public:
  ContractionEmitter(Contraction c, const Machine& machine, arith::Analyzer* analyzer)
      : c_(std::move(c)),
        machine_(machine),
        analyzer_(analyzer),
        lanes_(machine.Lanes(std::max<int64_t>(SizeInBytes(c_.acc), 1))) {}

  Stmt Run();

 private:
  void ChooseWidth();
  void SetWidth(int64_t width);  // of a panel

  // A copy of B that lets one instruction do the work of several pays from a few rows on.
  bool WorthGroups() const;

  // B walked across its rows is copied once so that the vector axis is contiguous; not windows that
  // overlap, which would grow.
  bool WorthPacking() const;

  // Do the rows of B fall into a few sets of the cache, because their distance is a multiple of
  // half a page?
  bool FewCacheSets(const LinearOffset& b) const;

  // Do the axes of B walk over as many elements as it has (a matrix), not over windows that
  // overlap?
  bool EachElementOnce() const;

  // Short lines of rows (of small images) become one axis: tiles have whole lines, and all of them
  // pass for a panel of B, or a block of one.
  void JoinLines();
  // Lines of unknown length: tiles go on from one to the next, and find each row of A.
  void JoinOpenLines();

  // As many whole lines, and of as many vectors of columns, as make the most sums in registers.
  void ChooseLines();

  // What fits into the registers beside `vectors` of columns: docs/design/cpu_schedule.md.
  int64_t MostRows(int64_t vectors) const;
  // Rows of A whose elements the first cache keeps from one step of the sum to the next.
  int64_t RowsInFirstCache() const;

  void ChooseRows();

  // Several panels of B, each a run of memory, pass at once where a tile has few rows.
  void TakePanels();

  Stmt Compute();
  // As chosen; `ranges`: null, or how the row's tiles are cut by a guard.
  Stmt ComputeTasks(const Var& panel, const Var& chunk, const RowRanges* ranges);

  // Several short lines of rows become a tile.
  void TakeLines(int64_t lines);

  // Ranges of rows stand one after the other: each panel of B passes once for all of them.
  Stmt ComputeRanges(const std::vector<Contraction>& parts, const Var& panel, const Var& chunk);

  // A chunk of rows, range by range.
  Stmt OfRanges(const RowRanges& ranges, const Var& panel, const Expr& chunk);

  // Is the sum that a guard cuts long enough to go by single elements of the kernel?
  bool GoesByTaps(const RowRanges& ranges, bool are_known) const;
  Stmt ComputeTaps(const RowRanges& ranges, const Var& panel, const Var& chunk);
  // The lines of a task of taps, the rows that it has of each, and the sums: `rows` for each line.
  struct TapSums {
    Axis line;
    Expr first_line, lines, first_row, rows_here, rows;
    Buffer sums;
  };
  Stmt EachTap(const RowRanges& ranges, const Var& panel, const TapSums& task) const;
  std::optional<PartOfNext> NextTap(const Contraction& tap, const Var& panel,
                                    const Expr& tiles) const;

  // All chunks of rows and panels of B (groups of panels, where the sum goes by blocks), `body`:
  // those of one of each.
  Stmt OverAll(const Var& panel, const Var& chunk, const Expr& chunks, const Stmt& body,
               const Expr& work) const;

  // Of A, along the innermost axis of the sum; absent, or null: not known.
  std::optional<int64_t> BytesOfRow() const;
  Expr BytesOfChunk() const;

  // Of `chunks` for each point of outer_a, that pass for each panel of B.
  Expr InBlock(const Expr& chunks) const;
  void BindInBlock();
  // Where each thread's rows are the same for all panels, so that what it reads of A and what the
  // next kernel reads of C does not come from other cores; B is read by each.  Where A and C are
  // larger than B; null: never.
  Expr WorthRowsOfOwn() const;
  int64_t BlocksOfOwn() const;  // of rows: one for each core

  // Are groups parts of rows of A that do not stay in the second cache, while B of all groups does?
  // The rows' pages, and what is fetched ahead in them, then serve all groups.
  bool GroupsPassForRows() const;

  void ChooseTasks(bool is_cut);

  // A block of rows of A fills half of the second cache while a group of panels of B passes, whose
  // sums fill a quarter.
  void ChooseTasksOfBlocks();

  // The value, as a number or a variable that is bound before the tasks.
  Expr Named(const char* name, const Expr& value);

  void ChooseTasksOfMatrices(const Expr& depth, bool is_cut);

  // `most` is what the work of a tile allows; fewer where threads would not all have several tasks.
  void ChooseTilesPerTask(int64_t most, bool is_cut);

  Stmt OfChunk(const Var& panel, const Expr& chunk);

  Stmt OfTiles(const Var& panel, const Expr& first, const Expr& tiles);

  // What is to be done for columns of a panel, those at or above `limit` (null: none) left out.
  using OfColumns = std::function<Stmt(const std::vector<Columns>&, const Expr& limit)>;
  Stmt OfPanel(const Expr& panel, const OfColumns& body) const;
  Stmt OfPanels(const OfColumns& body) const;  // of a group of panels that a tile takes

  // 0 when A has no rows of its own that lie along the sum, or nobody knows how many.
  int64_t BytesOfA(const Expr& depth) const;

  // 0 when its width or depth is not known.
  int64_t BytesOfB(const Expr& depth) const;

  Contraction::FetchOfB HowToFetchB(int64_t bytes) const;

  // Tiles that a panel of B passes for.
  Expr TilesOfPanel() const { return analyzer_->Simplify(num_tiles_ * NumPoints(c_.outer_a)); }
  // Of a block of rows, they share it.
  Expr TilesOfBlock() const;
  bool HasBlocksOfRows() const;

  // Is each panel of B a run of memory?
  bool PanelsAreRuns() const;

  // Are its elements narrower than the sums, too?  Then tiles of enough rows find them widened.
  bool HasNarrowPanels() const;
  Expr WidensPanelFor(const Expr& tiles) const;
  int64_t TilesWorthWidening() const;
  int64_t BytesOfWidePanel() const;
  // `c`, the contraction or a part of the sum with `steps` steps at most, with a copy of its panel
  // in the type of the sums, which `seq` makes.
  Contraction WithWidePanel(Contraction c, const Expr& panel, const Expr& steps,
                            ffi::Array<Stmt>* seq) const;

  // The part for each of `tiles` tiles of `steps` steps of the sum, of which the first one is
  // `map`'s.
  std::optional<PartOfNext> PartOf(ffi::Map<Var, Expr> map, int64_t steps, const Expr& tiles) const;

  // Does a panel of B have a place from which the next one is found?
  bool HasNextPanel() const;

  // Of the panel after `panel`, for the chunk that begins with tile `first`, whose number `seq`
  // binds.
  std::optional<PartOfNext> PartOfNextPanel(const Expr& panel, const Expr& first,
                                            ffi::Array<Stmt>* seq);

  // Of block number `block` of the sum.
  std::optional<PartOfNext> PartOfBlock(const Expr& panel, const Expr& block, const Expr& tiles);

  // Of the sum, that a block has at most.
  int64_t StepsOfBlock() const;

  // Where block number `block` of the sum begins: the axes up to the one that is cut.
  ffi::Map<Var, Expr> BeginOf(const Expr& block) const;

  // `vectors` whole registers.
  std::vector<Columns> Full(int64_t vectors) const;

  // The panel that is not full: as few registers as hold it, the last one as narrow as it can be.
  Stmt OfRest(const OfColumns& body) const;

  // Where the rows of tile `at` begin.  Rows that tiles of rows_ do not divide are spread over the
  // tiles so that their heights differ by one at most: a tile of few rows would wait for memory.
  struct Heights {
    Expr low, higher;  // every tile has `low` rows, the first `higher` tiles one more
    int64_t last = 0;  // rows of the last tile, where it has fewer than `low`
    Expr StartOf(const Expr& at) const { return at * low + ir::Min(at, higher); }
  };

  // Of all tiles; `seq` binds what it uses.
  Heights ChooseHeights(ffi::Array<Stmt>* seq) const;
  std::optional<Heights> heights_;  // found before the tasks; none: rows are cut

  // As many columns at a time as a tile has.
  Stmt ByTiles(const std::vector<Columns>& columns, const Expr& limit, const OfColumns& body) const;

  // Tiles [first, first + tiles) of the rows of `c`.
  Stmt Tiles(const Contraction& c, const Var& panel, const Expr& first, const Expr& tiles,
             const std::vector<Columns>& columns, const Expr& limit);

  // Blocks of A as runs of memory: what lies a row apart falls into few sets of the caches where
  // rows are long, and each row of a block begins on a page of its own.
  void CopyRows(ffi::Array<Stmt>* seq);
  std::vector<Axis> RowsOfA() const;

  // The same contraction over one block of the sum; `seq` binds what it uses.
  Contraction OneBlock(const Var& block, ffi::Array<Stmt>* seq) const;

  // Those of `rows` rows, from element `begin` on.
  Stmt ZeroSums(const Buffer& sums, const Expr& begin, const Expr& rows) const;

  // A chunk of rows times a group of panels, block after block of the sum: the block's rows of A
  // and the sums stay in the second cache, its part of a panel of B while all tiles pass.
  Stmt OfBlocks(const Var& group, const Expr& chunk);

  Expr EndOf(const Heights& heights, const Expr& tiles) const;

  // One pass over the tiles.
  Stmt Pass(const Contraction& c, TilePart part, const Expr& first, const Expr& tiles,
            const Heights& heights);

  // How the sum goes by blocks, where a panel of B or enough rows of A do not fit into the second
  // cache.  A single tile of rows has no use of it: B passes once.
  struct DepthBlocks {
    size_t axis;          // of the sum, that is cut; those outside of it take single steps
    int64_t even, count;  // of each but the last; blocks of the axis
    int64_t all;          // blocks
  };
  std::optional<DepthBlocks> ChooseDepthBlocks(const ffi::Optional<int64_t>& depth) const;

  // Are the rows of A that stay in the second cache too few for what comes from behind it?
  bool FewRowsStay(int64_t depth) const;

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
  bool takes_panels_ = false;   // TakePanels
  int64_t panels_of_tile_ = 1;  // where an axis chooses the panel
  Expr full_panels_, panels_, num_tiles_;
  Expr per_task_ = 1;  // tiles
  Expr panels_of_task_ = 1;
  ffi::Array<Stmt> sizes_of_task_;  // binds what these use
  Expr chunks_, work_;              // tasks of a panel; additions of one
  Expr in_block_;                   // InBlock, bound; null: rows are cut
  std::optional<DepthBlocks> depth_blocks_;
  // Of a task of blocks: what its buffer of sums has room for.
  int64_t most_tiles_ = 1, most_panels_ = 1;
  std::optional<Buffer> rows_of_blocks_;         // CopyRows
  Axis walked_{Var("panel", Int(64)), Expr(1)};  // panels that a task of blocks walks
  bool walks_outside_ = false;                   // they are an outer axis of B
};

}  // namespace relaxvm::schedule::cpu
