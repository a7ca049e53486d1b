// SPDX-License-Identifier: Apache-2.0
// Contractions as tiles see them: C[m, n] = finish(sum over k of A[m, k] * B[k, n]), and the parts
// that make code of one.
//
// The vector axis is the one that runs contiguously through C; the operand that has it is called B,
// the other A.  Convolutions are the same with other offsets: over channels-last data C's
// contiguous axis is the output channel (B is the weight), over channels-first data it is the width
// (B is the image).
#pragma once

#include "schedule/cpu/cpu.h"

namespace relaxvm::schedule::cpu {

// Multiply-adds of vectors that make a task: small enough that threads end together, large enough
// that finding the task's place is not felt.
inline constexpr int64_t kWorkPerTask = 24576;

struct Contraction {
  Stage stage;     // offsets flat, neighbouring axes merged, the reduction ordered
  DLDataType acc;  // of the sums
  Expr a, b;       // the operands' formulas: loads, perhaps inside casts
  // Where it does not hold nothing is added; null: everywhere.  Depends on `batch`, `outer_a`, axes
  // of the sum and, until CutByRows, on `row`.
  Expr guard;
  Axis row{Var("row", Int(64)), Expr(1)};  // the tile's rows: of A alone
  int64_t fewest_rows = 1;                 // that it has, or none
  // Rows are points of two axes, of which the inner one has so many; a tile begins with a point of
  // the outer one.  0: of one axis.
  int64_t line_width = 0;
  bool walks_windows = false;  // along the rows: they read in part what others read
  // Rows are points of these two axes, on which `a` depends instead of on `row`.
  struct Joined {
    Axis line, place;
  };
  std::optional<Joined> joined;
  // Of `outer_a`: may be longer than `row`, which is known at run time only.
  std::optional<Axis> other_row;
  Axis vector{Var("vector", Int(64)), Expr(1)};  // of B alone
  // The other spatial axes: of both operands, of A, of B.
  std::vector<Axis> batch, outer_a, outer_b;
  // B by panels: where these are defined `b` reads column `column` of panel `panel`, instead of
  // using the vector axis.  Columns up to the panel's end may be read.
  Var panel{"panel", Int(64)}, column{"column", Int(64)};
  int64_t panel_width = 0;  // 0: B is not in panels
  // Of `outer_b`: each of its points chooses a panel of B as wide as the vector axis, and a tile
  // takes several of them, one after the other in its columns.
  std::optional<Axis> panels_of_tile;
  // Neighbours along the innermost axis of the sum that one instruction takes together: that axis
  // then counts groups, and offsets are those of a group's first element.
  int64_t group = 1;
  int64_t group_if_packed = 1;  // what `group` can be when B is packed by groups
  bool b_in_words = false;      // B's buffer has a group as one int32
  // Neighbours that are left behind the whole groups, known at run time; null: none.  B has them as
  // one more group, filled up with zeros.
  Expr rest_of_group;
  bool a_is_signed = false, b_is_signed = false;

  // Narrow groups side by side (a grouped convolution): the vector axis runs over the columns of
  // all groups, `columns` of each, and `a` is a load that uses `group`.  The innermost axis of the
  // sum is the group's own: `depth` neighbours in A, behind them those of the next group.
  struct SideBySide {
    Var group{"group", Int(64)};
    int64_t columns = 0, depth = 0;
  };
  std::optional<SideBySide> side_by_side;

  // A lies beyond the second cache: while a tile is computed, this much of k of the next tile's
  // rows is fetched.
  int64_t fetch_depth = 0;
  bool rows_follow = false;  // these rows are a run of memory
  // Tiles of up to so many rows take B as fast as memory gives it: it is fetched so many bytes
  // ahead, into the first cache or into the second one.
  struct FetchOfB {
    int64_t most_rows = 0, ahead = 0;
    bool near = false;
  };
  FetchOfB fetch_b;
  bool dot_signed = false;  // the machine has an instruction for two signed sides
  bool by_halves = false;   // it multiplies 16-bit halves, to which tiles widen both sides

  // Of B, whose panels have notes of the rows along the innermost axis of the sum.
  std::optional<PairNotes> notes;
  Expr first_group;  // of a part of that axis; null: there is all of it

  // Elements that B's buffer has for each step of the innermost axis of the sum and column.
  int64_t GroupInB() const { return b_in_words ? 1 : group; }
  bool BothSigned() const { return a_is_signed && b_is_signed; }
  // Where it has none the left side is made unsigned, by adding 128, which the result takes back.
  bool NeedsCorrection() const { return group == 4 && BothSigned() && !dot_signed; }

  const tir::BufferLoadObj* LoadOf(const Expr& operand) const {
    return StripCasts(operand).as<tir::BufferLoadObj>();
  }
  std::vector<Axis> AllAxes() const {
    std::vector<Axis> all = stage.spatial;
    all.insert(all.end(), stage.reduce.begin(), stage.reduce.end());
    return all;
  }
  // Axes that choose a matrix B.
  std::vector<Axis> OuterOfB() const {
    std::vector<Axis> outer = batch;
    outer.insert(outer.end(), outer_b.begin(), outer_b.end());
    return outer;
  }
};

// Axes of one point go first: the last one is then an axis that steps.
void PutPointsFirst(std::vector<Axis>* axes);

// How many neighbours along the sum one instruction multiplies and adds: 1 when there is none for
// these operands.
int64_t GroupOf(const Machine& machine, const Expr& a, const Expr& b, DLDataType acc);

// Absent when the stage has another form.
std::optional<Contraction> ReadContraction(const Stage& stage, const Machine& machine,
                                           arith::Analyzer* analyzer);

// A guard that chooses by the row (a convolution of data that is not padded) cuts the rows into
// ranges, each with fewer steps of the sum and a guard that does not ask for rows any more.
class RowRanges {
 public:
  // Absent when the guard has another form.
  static std::optional<RowRanges> Of(const Contraction& c, const Axis& row);

  // Each range as a contraction of its own.  Absent when sizes are not known, or ranges are many.
  std::optional<std::vector<Contraction>> Known(const Contraction& c,
                                                arith::Analyzer* analyzer) const;
  // What stands for any range, and code that comes past all ranges of the rows [begin, end).
  Contraction Any(const Contraction& c, arith::Analyzer* analyzer) const;
  Stmt Each(const Expr& begin, const Expr& end, const Stmt& body) const;

  // Of the sum, which axis the guard asks for, and what it asks beside; null: nothing.
  size_t Asked() const { return axis_; }
  const Expr& Others() const { return others_; }
  // The first row that has `step` of that axis, and the one behind the last.
  Expr BeginOf(const Expr& step) const;
  Expr EndOf(const Expr& step) const;
  // At one point of all axes of the sum but the innermost one, which variables stand for; rows are
  // counted from `begin` on.
  Contraction Tap(const Contraction& c, const Expr& begin, arith::Analyzer* analyzer) const;

 private:
  // row * `row` + step * `step` + rest >= 0, where `row` and `step` have the same sign.
  struct Condition {
    int64_t row, step;
    Expr rest;
  };
  Contraction Restricted(const Contraction& c, const Expr& begin, const Expr& rows,
                         const Expr& first, const Expr& steps, arith::Analyzer* analyzer) const;

  Axis row_{Var("row", Int(64)), Expr(1)};
  size_t axis_ = 0;  // of the sum, that the guard asks for
  int64_t steps_ = 0;
  std::vector<Condition> conditions_;
  Expr others_;  // what the guard asks beside; null: nothing
  Var begin_{"begin", Int(64)}, rows_{"rows", Int(64)}, first_{"first", Int(64)},
      some_{"steps", Int(64)};
};

// One register's worth of columns: `lanes` of them from `offset` on.
struct Columns {
  int64_t offset;
  int64_t lanes;
};

// Sums on their way, where the reduction goes by blocks: those of row `row` of C lie in `sums` from
// begin + (row - first_row) * width on, where `width` is a panel's.
struct PartialSums {
  Buffer sums;
  Expr first_row;
  Expr begin = 0;
  int64_t width_of_whole = 0;  // not 0: sums of a tile alone, which are whole and as wide as this
};

// What a tile fetches into the second cache of the rows of B that are used after its own: `steps`
// steps of the sum, a run of memory from element `first` of B on.  It is number `tile` of `tiles`
// that share the work; `share`: cache lines of each, where they are found already.
struct PartOfNext {
  Expr first, tile, tiles;
  int64_t steps = 0, bytes_of_step = 0;
  Buffer b;
  Expr share;

  int64_t LinesOf(int64_t some) const;  // of `some` steps
  Expr Share() const;                   // a division, if it is not found yet
};

// The part of C that one piece of code computes: `rows` from `row_start` on, the given columns of
// panel `panel`, those at or above `limit` (null: none) left out.
struct TilePart {
  Expr panel;
  Expr row_start;
  int64_t rows;
  std::vector<Columns> columns;
  Expr limit;
  std::optional<PartialSums> partial;  // is there: C is not written
  std::optional<PartOfNext> next;
  bool is_usual = true;    // most tiles are of so many rows, or nearly so many
  bool is_tallest = true;  // none has more rows
};
Stmt EmitTile(const Contraction& c, int64_t width, const TilePart& part, const Machine& machine,
              arith::Analyzer* analyzer);
// Is what finishes a sum more than one operation; does it have a polynomial?
bool FinishTakesCode(const Contraction& c);
bool IsDearToFinish(const Contraction& c);
// Writes C's rows [part.row_start, part.row_start + num_rows) from part.partial.
Stmt EmitFinish(const Contraction& c, int64_t width, const TilePart& part, const Expr& num_rows,
                const Machine& machine, arith::Analyzer* analyzer);

// Rows of C that matrix registers (tir/matrix.h) compute at a time.
inline constexpr int64_t kMatrixBlock = 32;
// Words of k that they take in one step; 0: there are none for this contraction.
int64_t MatrixStep(const Contraction& c, const Machine& machine);
// `rows` rows from part.row_start on; where c.row.extent is known, a number of rows that
// kMatrixBlock does not divide stands at its end alone.
Stmt EmitMatrixRows(const Contraction& c, int64_t width, const TilePart& part, const Expr& rows,
                    int64_t step, const Machine& machine, arith::Analyzer* analyzer);

// Where rows do not fill a register several lines of them (points of the last axis of outer_a)
// share what is read of B: how many; 0: they do not.  Of rows that are not known: if there are no
// more than tir::kMatrixRows.
int64_t MatrixLines(const Contraction& c);
// Blocks [first, first + count) of `each` lines, the last one perhaps of fewer.
struct LinesOfMatrix {
  Axis line;
  int64_t each;
};
Stmt EmitMatrixLines(const Contraction& c, const LinesOfMatrix& lines, int64_t width,
                     const TilePart& part, const Expr& first, const Expr& count, int64_t step,
                     const Machine& machine, arith::Analyzer* analyzer);

// `body` where the guard holds, over `outer`: asked as far outside as it can be.
Stmt OverGuarded(const Contraction& c, const std::vector<Axis>& outer, const Stmt& body);

// One row of A times a B that lies row by row and is wider than the registers: parallel by itself.
// Absent when the contraction has another form.
std::optional<Stmt> EmitOneRow(const Contraction& c, const Machine& machine,
                               arith::Analyzer* analyzer);

// A right side of few columns, with vectors along the sum: parallel by itself, and the condition (a
// constant when it is known) under which that is faster.  Both null: it has another form, or never.
struct FewColumns {
  Expr when;
  Stmt body;
};
FewColumns EmitFewColumns(const Contraction& c, const Machine& machine, arith::Analyzer* analyzer);
Expr WhenFewColumns(const Contraction& c, const Machine& machine, arith::Analyzer* analyzer);
// Do so many columns leave half of a vector empty?
inline bool AreFewColumns(int64_t columns, int64_t lanes) {
  return lanes >= 4 && columns >= 1 && columns * 2 <= lanes;
}
// Of a row whose sum takes so many vectors: products of vectors, reading the row, adding up the
// lanes of the sums.  In the time of a product.
inline double CostOfFewColumns(int64_t vectors, int64_t columns) {
  constexpr double kAddingUp = 3;
  return static_cast<double>(vectors * (columns + 1)) + static_cast<double>(columns) * kAddingUp;
}

// Copies B to panels of `width` columns in a temporary and makes `c` read them there.
struct PackedB {
  Buffer buffer;
  Stmt fill;
};
PackedB EmitPack(Contraction* c, int64_t width, const Machine& machine, arith::Analyzer* analyzer);

// `size` elements of 32 bits together as one word, those from `rest` on (null: none) as 0.
Expr WordOf(int64_t size, const Expr& rest, const std::function<Expr(int64_t place)>& element);

// The same with groups (Contraction::group_if_packed) as words.
PackedB EmitPackGroups(Contraction* c, int64_t width, const Machine& machine,
                       arith::Analyzer* analyzer);

// A parallel loop over all points of `axes`, the last one fastest; `work`: additions of a point.
Stmt OverTasks(const std::vector<Axis>& axes, const Stmt& body, const Expr& work,
               arith::Analyzer* analyzer);
// Linear index of a point of `axes`.
Expr LinearIndex(const std::vector<Axis>& axes);

// A task is a chunk of rows of A times a panel of B.
struct Tasks {
  Axis panel, chunk;
  Stmt body;      // of one task
  Expr work;      // additions of one
  Expr in_block;  // how many chunks pass for each panel
  // All groups, the last axis of `batch`, or those side by side, pass for each chunk.
  bool groups_pass = false;
};
// All tasks of `c`, on threads.
Stmt RunTasks(const Contraction& c, const Tasks& tasks, arith::Analyzer* analyzer);

}  // namespace relaxvm::schedule::cpu
