// SPDX-License-Identifier: Apache-2.0
// The code of one register tile: TileEmitter, and in which file its parts stand.  Sums stay in
// registers while all of k passes by; what finishes the contraction is applied on the way to
// memory.
#pragma once

#include <algorithm>

#include "schedule/cpu/contraction/contraction.h"
#include "schedule/cpu/contraction/next_of_b.h"
#include "tir/dot.h"

namespace relaxvm::schedule::cpu {

class TileEmitter {
 public:
  TileEmitter(const Contraction& c, int64_t panel_width, const TilePart& part,
              const Machine& machine, arith::Analyzer* analyzer)
      : c_(c),
        part_(part),
        analyzer_(analyzer),
        panel_width_(panel_width),
        panel_start_(part.panel * Expr(panel_width)),
        width_(part.columns.back().offset + part.columns.back().lanes),
        lanes_(machine.Lanes(std::max<int64_t>(SizeInBytes(c.acc), 1))),
        num_sets_(SetsFor(machine)),
        takes_one_step_(TakesOneStep(machine)),
        acc_("acc", {Expr(num_sets_ * part.rows * width_)}, c.acc, "local"),
        correction_("correction", {Expr(width_)}, c.acc, "local") {
    if (part.next.has_value() && !FetchesB())
      next_.emplace(c, *part.next, StepsOfIteration(), analyzer);
  }

  Stmt Run();

  Stmt Finish(const Expr& num_rows) const;

 private:
  // A small tile has few sums; several sets of them, each for every second or fourth k, keep the
  // units busy.
  int64_t SetsFor(const Machine& machine) const;

  // LLVM loads a second step's operands before the first one's products.  Where sums take nearly
  // all registers, that pushes them to memory; so does a last vector that is narrower than the
  // others, whose sums it keeps in turns in registers of the left side.
  bool TakesOneStep(const Machine& machine) const;

  // Registers of columns, two or four at a time where they are whole: what finishes a sum is a long
  // chain of operations, and a core looks ahead too little to find the next register's by itself.
  std::vector<Columns> WideRuns() const;
  bool IsLast(const Columns& c) const { return c.offset + c.lanes == width_; }

  void EachRegister(const std::function<void(int64_t, const Columns&, bool)>& body) const;

  // Where `map` finds lane `lane` of columns.
  void PlaceColumns(const Columns& c, const Expr& lane, ffi::Map<Var, Expr>* map) const;

  Expr At(int64_t set, int64_t row, const Columns& c) const {
    return Expr((set * part_.rows + row) * width_ + c.offset);
  }
  // Where the sums of `row` of C lie, of one run of columns.
  Expr InSums(const Expr& row, const Columns& c) const {
    const PartialSums& partial = *part_.partial;
    const int64_t width = partial.width_of_whole > 0 ? partial.width_of_whole : panel_width_;
    return partial.begin + (row - partial.first_row) * Expr(width) + Expr(c.offset);
  }
  Stmt BindStart() const {
    const bool of_lines = c_.line_width > 0;
    return tir::Bind(row_start_,
                     of_lines ? ir::FloorDiv(part_.row_start, c_.line_width) : part_.row_start);
  }
  // Of the tile.
  Expr RowAt(const Expr& row) const {
    return c_.line_width > 0 ? row_start_ * Expr(c_.line_width) + row : row_start_ + row;
  }
  // Of lines, as they are found from the first one.
  Expr Offsets(const Expr& e) const {
    return c_.line_width > 0 ? SimplifyOffsets(e, analyzer_) : e;
  }
  static Stmt Lanes(const Var& lane, const Columns& c, const Stmt& body) {
    return tir::For(lane, 0, c.lanes, tir::ForKind::kVectorized, body);
  }
  // ---- products of one step of the sum: tile_step.cc

  // Which lanes are inside; null: all.  Only the last register of a rest can be partly outside.
  Expr Inside(const Var& lane, const Columns& c, bool last) const;

  // One register of B at the current k.
  Expr Right(const Var& lane, const Columns& c, bool last) const;

  static Expr Run(int64_t from, const Columns& c) { return ir::RampExpr(Expr(from), 1, c.lanes); }

  // The groups of one register's columns as words.
  Expr RightWords(const Columns& c, bool last) const;

  // Where the rows of joined lines begin in A, one after the other.
  void BindRows(ffi::Array<Stmt>* seq);

  // Elements of A between two rows, where they are known and the same for all.
  std::optional<int64_t> DistanceOfRows() const;

  // A at `row` of the tile.  Where rows are a fixed distance apart, all of them are found from one
  // address: a pointer for each would leave too few registers.
  Expr LeftAt(int64_t row) const;

  Expr LeftWord(int64_t row) const { return LeftWords(row, 1); }
  // `count` neighbours along the sum.
  Expr LeftWords(int64_t row, int64_t count) const;

  Expr Dot(const Expr& sum, const Expr& left, const Expr& right) const;

  using DotOf = std::function<Expr(const Expr& sum, const Expr& left, const Expr& right)>;

  // The group of a row's left side that one step takes, as a word.
  using LeftGroup = std::function<Expr(int64_t row)>;

  // The products of one group of k, added to one set of sums.
  Stmt GroupStep(int64_t set, const LeftGroup& left_at) const;
  Stmt GroupStep(int64_t set, const DotOf& dot, const LeftGroup& left_at) const;

  // Those of what is left behind whole groups, and the word of it at a row of the left side, which
  // memory may end behind.
  Stmt RestOfGroups() const;
  Expr RestOfLeft(int64_t row) const;

  // The same for a group whose pairs keep to 16 bits.
  Stmt PairsStep(int64_t set) const {
    return GroupStep(set, tir::DotOfBytePairs, [&](int64_t row) { return LeftWord(row); });
  }

  bool ByHalves() const { return c_.group == 4 && c_.by_halves; }

  // Words of a row's left side, widened.
  using LeftHalves = std::function<tir::Halves(int64_t row)>;

  // A group step on a machine that multiplies halves.  What is widened of the right side serves all
  // rows.
  Stmt HalvesStep(int64_t set, const LeftHalves& left_at) const;

  // The left side at a row of the tile, in the type of the sums.
  using Left = std::function<Expr(int64_t row)>;

  // The products of one k, added to one set of sums.
  Stmt Step(int64_t set) const;

  Stmt Step(int64_t set, const Left& left_at) const;

  // `load` of a run of `count` elements (groups, as words), those at or above `limit` (null: none)
  // left out.
  Expr LoadRun(const tir::BufferLoadObj* load, const ffi::Map<Var, Expr>& map, int64_t count,
               const Expr& limit) const;

  Expr Multiplied(const Expr& sum, const Expr& left, const Expr& right) const;

  // All of the innermost axis at once: a row's left sides of the groups in a vector are loaded
  // together, and each k picks out one of each group.
  Stmt StepSideBySide() const;

  // ---- loops over the sum, and what they fetch: tile_sum.cc

  // A loop over k, whose step takes B at `k` and the `count` - 1 that follow, fetching B ahead.
  Stmt FetchingB(const Stmt& steps, const Expr& k, int64_t count) const;

  // Steps of the sum that one iteration of a loop takes, with what it fetches.
  int64_t StepsOfIteration() const;

  Stmt OverOuter(const std::vector<Axis>& outer, const Stmt& body) const {
    return OverGuarded(c_, outer, body);
  }

  Stmt Sum() const;

  // Steps that one iteration takes.  What a loop needs for itself is a sixth of a step of a usual
  // tile, and the share grows where a core gives half of its instructions to someone else.
  int64_t StepsAtOnce() const;

  // `count` steps of the innermost axis of the sum from `k` on, one after the other.
  Stmt Steps(const Expr& k, const Expr& count) const;
  // StepsAtOnce of them.
  Stmt SomeSteps(const Expr& k) const;

  // The loop over the innermost axis of the sum, with what it fetches.  What is to be fetched of
  // rows of A is found once for each cache line of one: in every step, that costs a fourth of the
  // instructions.
  Stmt StepsThatFetch() const;

  // Do steps fetch B itself ahead?  Not where several tiles share it; perhaps nobody knows.
  bool CanFetchB() const;
  bool FetchesB() const;

  // The loop over blocks of steps, of which each fetches what comes next: of B, or `rows`, of A
  // (null: nothing).  The machine itself follows a row after some lines only.
  Stmt OverBlocks(const Var& block, const Expr& blocks, const Stmt& body, const Expr& rows) const;

  // A line of each of the next tile's rows of A at `k`; null: they are not fetched.
  Expr NextRowsOfA(const Expr& k) const;

  // `stmt` at `k` along the innermost axis of the sum.
  Stmt AtK(const Stmt& stmt, const Expr& k) const;

  // ---- left sides that are widened block by block: tile_widen.cc

  // Are the left side's elements narrower than the sums, and a row's ones a run of memory?
  bool WidensLeft() const;

  // Do notes tell which blocks of this loop over the innermost axis of the sum keep to 16 bits?
  bool HasNotes() const;

  // The loop over the innermost axis of the sum by blocks, each with the steps that its note says.
  Stmt StepsByNotes() const;

  // Steps of a block of widened left sides: a vector, or of bytes, which are used up sooner, up to
  // a cache line where such ones divide a row.
  int64_t BlockOfLeft() const;

  // Sets that the steps of a block go to.
  int64_t SetsOfBlock(int64_t size) const { return size % num_sets_ == 0 ? num_sets_ : 1; }

  // What widens a block of `size` steps from `from` on goes to `seq`; the result is round `round`
  // of these steps.
  Stmt WidenedSteps(const Expr& from, const Var& round, int64_t size, ffi::Array<Stmt>* seq) const;

  // The loop over the innermost axis of the sum, by blocks of as many steps as a vector has lanes:
  // each row's elements of a block are widened together and lie in the first cache for the steps
  // that take them one by one.  Widening one element costs as much as widening a vector of them.
  Stmt WideningLeft() const;

  // Neighbouring words of a row, widened, to `wide` from `at` on, where odd bytes lie `size`
  // behind.
  struct WordsOfRow {
    int64_t row, count;
  };
  Stmt StoreHalves(const WordsOfRow& some, const Buffer& wide, int64_t at, int64_t size) const;

  // ---- what finishes sums: tile.cc

  void AddSets(ffi::Array<Stmt>* seq) const;

  // Finishes the sums of `row` in one run of columns, which lie in `sums` from `at` on.
  Stmt StoreRun(const Expr& row, const Columns& c, bool last, const Buffer& sums,
                const Expr& at) const;

  void StorePartial(ffi::Array<Stmt>* seq) const;

  void Store(ffi::Array<Stmt>* seq) const;

  const Contraction& c_;
  const TilePart& part_;
  arith::Analyzer* analyzer_;
  int64_t panel_width_;
  Expr panel_start_;
  int64_t width_;  // of all columns
  int64_t lanes_;
  int64_t num_sets_;
  bool takes_one_step_;
  Buffer acc_;
  Buffer correction_;  // 128 times the sum of each column of B
  const Expr k128 = ir::Const(Int(32), static_cast<int32_t>(0x80808080));  // in each byte
  Var row_start_{"row_start", Int(64)};  // of lines: the first line
  std::vector<Var> rows_of_a_;           // of joined lines
  std::optional<NextOfB> next_;
};

}  // namespace relaxvm::schedule::cpu
