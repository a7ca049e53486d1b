// SPDX-License-Identifier: Apache-2.0
// EmitMatrixRows: the code of a contraction's rows on matrix registers.  Two by two of them hold
// sums while all of k passes by, which go through a small buffer to what finishes them.
#include <algorithm>

#include "schedule/cpu/contraction/contraction.h"
#include "schedule/cpu/contraction/next_of_b.h"
#include "tir/matrix.h"

namespace relaxvm::schedule::cpu {
namespace {

using tir::ForKind;
using tir::kMatrixRows;
using tir::SeqStmt;

constexpr int64_t kWordBytes = 4;  // of a group, and of a sum
constexpr int64_t kMostWords = tir::kMatrixRowBytes / kWordBytes;
// Shorter steps of the sum are not faster than vectors.
constexpr int64_t kFewestWords = 4;
constexpr int64_t kFewestRows = 4;

// Rows of A that lie in one register: those from `row` on, of line `line` (null: there are none).
struct Place {
  Expr row, line;
};

// Registers: sums, then left sides of them, then right sides in turn.
struct Registers {
  int64_t rows;  // of registers of sums
  static constexpr int64_t kSums = 4;

  int64_t Columns() const { return kSums / rows; }
  int64_t NumLeft() const { return std::min<int64_t>(rows, tir::kMatrixRegisters - kSums - 1); }
  int64_t Sum(int64_t row, int64_t column) const { return row * Columns() + column; }
  int64_t Left(int64_t row) const { return kSums + row % NumLeft(); }
  int64_t Right(int64_t column) const {
    const int64_t first = kSums + NumLeft();
    return first + column % (tir::kMatrixRegisters - first);
  }
};

class MatrixEmitter {
 public:
  MatrixEmitter(const Contraction& c, int64_t width, const TilePart& part, int64_t step,
                const Machine& machine, arith::Analyzer* analyzer)
      : c_(c),
        width_(width),
        step_(step),
        part_(part),
        machine_(machine),
        analyzer_(analyzer),
        sums_("sums", {Expr(kMostRows * width)}, c.acc, "local") {}

  Stmt Rows(const Expr& rows) {
    Var block("block", Int(64)), count("rows", Int(64)), start("first_row", Int(64));
    const auto known = ir::AsInt(c_.row.extent);
    const Expr blocks = analyzer_->Simplify(ir::FloorDiv(count, kMatrixBlock));
    ffi::Array<Stmt> seq = {tir::AllocBuffer(sums_), tir::Bind(start, part_.row_start),
                            tir::Bind(count, rows)};
    if (known.value_or(kMatrixBlock) >= kMatrixBlock) {
      const Expr all = kMatrixRows;
      const Stmt body = Block(block, start + block * Expr(kMatrixBlock), all, all);
      const Stmt loop = tir::For(block, 0, blocks, ForKind::kSerial, body);
      const Stmt configured = SeqStmt::Flatten({Configure({2}, all, all), loop});
      seq.push_back(tir::IfThenElse(ir::Less(0, blocks), configured));
    }
    const Expr first = start + blocks * Expr(kMatrixBlock);
    const Expr rest = analyzer_->Simplify(count - blocks * Expr(kMatrixBlock));
    auto last = [&](const Expr& upper, const Expr& lower) {
      const Registers registers{ir::IsIntValue(lower, 0) ? 1 : 2};
      return SeqStmt::Flatten(
          {Configure(registers, upper, lower), Block(blocks, first, upper, lower)});
    };
    if (!known.has_value()) {
      Var left("rest", Int(64));
      seq.push_back(tir::Bind(left, rest));
      const Stmt two = last(Expr(kMatrixRows), left - Expr(kMatrixRows)), one = last(left, Expr(0));
      seq.push_back(tir::IfThenElse(ir::Less(kMatrixRows, left), two,
                                    tir::IfThenElse(ir::Less(0, left), one)));
    } else if (const int64_t left = known.value() % kMatrixBlock; left > 0) {
      const int64_t upper = std::min(left, kMatrixRows);
      seq.push_back(tir::IfThenElse(ir::Less(0, rest), last(Expr(upper), Expr(left - upper))));
    }
    seq.push_back(tir::ReleaseMatrices());
    return SeqStmt::Flatten(seq);
  }

  Stmt Lines(const LinesOfMatrix& of, const Expr& first, const Expr& count) {
    const auto& [line, each] = of;
    const auto known = ir::AsInt(line.extent);
    const Expr full = analyzer_->Simplify(ir::FloorDiv(line.extent, each));
    const Registers registers{each};
    Var block("block", Int(64)), from("line", Int(64));
    auto body = [&, &line = of.line, each = of.each](int64_t here) {
      std::vector<Place> places;
      for (int64_t i = 0; i < here; ++i) places.push_back({Expr(0), from + Expr(i)});
      ffi::Array<Stmt> seq = {tir::Bind(from, (first + block) * Expr(each))};
      seq.push_back(Passes(registers, places, &line, block));
      Var at("at", Int(64));
      TilePart finished = part_;
      finished.row_start = Expr(0);
      finished.partial = PartialSums{sums_, at * Expr(-kMatrixRows)};
      const Stmt finish = EmitFinish(c_, width_, finished, c_.row.extent, machine_, analyzer_);
      seq.push_back(tir::For(at, 0, here, ForKind::kSerial,
                             SeqStmt::Flatten({tir::Bind(line.var, from + at), finish})));
      return SeqStmt::Flatten(seq);
    };
    Stmt all = known.value_or(each) >= each ? body(each) : Stmt();
    if (const int64_t rest = known.has_value() ? *known % each : 1; !all.defined()) {
      all = body(rest);
    } else if (rest > 0) {
      all = tir::IfThenElse(ir::Less(first + block, full), all, body(rest));
    }
    return SeqStmt::Flatten(
        {tir::AllocBuffer(sums_), Configure(registers, c_.row.extent, c_.row.extent),
         tir::For(block, 0, count, ForKind::kSerial, all), tir::ReleaseMatrices()});
  }

 private:
  // The upper registers of sums have `upper` rows, where there are two the lower ones `lower`.
  Stmt Configure(const Registers& registers, const Expr& upper, const Expr& lower) const {
    std::array<tir::MatrixShape, tir::kMatrixRegisters> shapes;
    const bool two = registers.rows == 2;
    for (int64_t i = 0; i < tir::kMatrixRegisters; ++i) {
      auto& shape = shapes[static_cast<size_t>(i)];
      if (i < Registers::kSums) {
        shape = {two && i >= registers.Columns() ? lower : upper, Expr(tir::kMatrixRowBytes)};
      } else if (i < Registers::kSums + registers.NumLeft()) {
        shape = {two && i > Registers::kSums ? lower : upper, Expr(step_ * kWordBytes)};
      } else {
        shape = {Expr(step_), Expr(tir::kMatrixRowBytes)};
      }
    }
    return tir::ConfigureMatrices(shapes);
  }

  // Number `block` of the task.
  Stmt Block(const Expr& block, const Expr& start, const Expr& upper, const Expr& lower) {
    Var at("block_row", Int(64));
    std::vector<Place> places = {{at, Expr()}};
    if (!ir::IsIntValue(lower, 0)) places.push_back({at + Expr(kMatrixRows), Expr()});
    const Registers registers{static_cast<int64_t>(places.size())};
    TilePart finished = part_;
    finished.row_start = at;
    finished.partial = PartialSums{sums_, at};
    const Expr all = analyzer_->Simplify(upper + lower);
    return SeqStmt::Flatten({tir::Bind(at, start), Passes(registers, places, nullptr, block),
                             EmitFinish(c_, width_, finished, all, machine_, analyzer_)});
  }

  std::optional<tir::Signs> SignsOfBytes() const {
    if (c_.group != 4) return std::nullopt;
    return tir::Signs{c_.a_is_signed, c_.b_is_signed};
  }

  // The sums of all columns.
  Stmt Passes(const Registers& registers, const std::vector<Place>& places, const Axis* line,
              const Expr& block) {
    const auto columns = static_cast<int64_t>(part_.columns.size());
    const int64_t each = registers.Columns(), passes = (columns + each - 1) / each;
    ffi::Array<Stmt> seq;
    for (int64_t pass = 0; pass < passes; ++pass) {
      std::optional<PartOfNext> next;
      if (part_.next.has_value()) {
        next = part_.next;
        next->tile = (part_.next->tile + block) * Expr(passes) + Expr(pass);
        next->tiles = analyzer_->Simplify(part_.next->tiles * Expr(passes));
      }
      const int64_t from = pass * each;
      seq.push_back(Pass(registers, places, line, {from, std::min(each, columns - from)}, next));
    }
    return SeqStmt::Flatten(seq);
  }

  // Those of some registers of columns, for all of k.
  struct SomeColumns {
    int64_t from, count;
  };
  Stmt Pass(const Registers& registers, const std::vector<Place>& places, const Axis* line,
            const SomeColumns& some, const std::optional<PartOfNext>& next) {
    const auto& [from, count] = some;
    const auto rows = static_cast<int64_t>(places.size());
    ffi::Array<Stmt> zero, store, step;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t column = 0; column < count; ++column) {
        const int64_t sum = registers.Sum(row, column);
        const Expr to = Expr(row * kMatrixRows * width_ + (from + column) * kMostWords);
        zero.push_back(tir::ZeroMatrix(sum));
        store.push_back(
            tir::StoreMatrix(sum, tir::BufferLoad(sums_, {to}), Expr(width_ * kWordBytes)));
      }
    }
    Var k("k", Int(64));
    for (int64_t column = 0; column < count; ++column) {
      const int64_t right = registers.Right(column);
      step.push_back(LoadRight(right, (from + column) * kMostWords, k));
      for (int64_t row = 0; row < rows; ++row) {
        const Place& place = places[static_cast<size_t>(row)];
        if (column == 0) step.push_back(LoadLeft(registers.Left(row), place, line, k));
        step.push_back(tir::AddProducts(registers.Sum(row, column), registers.Left(row), right,
                                        SignsOfBytes()));
      }
    }
    const std::vector<Axis>& reduce = c_.stage.reduce;
    const Expr steps = ir::AsInt(reduce.back().extent).value() / step_;
    Stmt sum = SeqStmt::Flatten(step);
    if (next.has_value()) {
      const NextOfB fetched(c_, *next, step_, analyzer_);
      fetched.Bind(&zero);
      sum = fetched.WhileFetching(k, steps, sum, NextOfB::End::kBranch);
    } else {
      sum = Loop(k, steps, ForKind::kSerial, sum);
    }
    sum = OverGuarded(c_, {reduce.begin(), reduce.end() - 1}, sum);
    return SeqStmt::Flatten({SeqStmt::Flatten(zero), sum, SeqStmt::Flatten(store)});
  }

  Stmt LoadLeft(int64_t to, const Place& place, const Axis* line, const Expr& k) const {
    const auto* load = c_.LoadOf(c_.a);
    const Buffer buffer(load->buffer);
    const auto linear = LinearOffset::Of(load->indices[0], {c_.row});
    ffi::Map<Var, Expr> map;
    map.Set(c_.row.var, place.row);
    if (line != nullptr) map.Set(line->var, place.line);
    map.Set(c_.stage.reduce.back().var, k * Expr(step_));
    return tir::LoadMatrix(to, tir::BufferLoad(buffer, {tir::Substitute(load->indices[0], map)}),
                           linear->Coeff(c_.row.var) * Expr(SizeInBytes(buffer.elem_dtype())));
  }

  Stmt LoadRight(int64_t to, int64_t column, const Expr& k) const {
    const auto* load = c_.LoadOf(c_.b);
    const Buffer buffer(load->buffer);
    const Axis& inner = c_.stage.reduce.back();
    const auto linear = LinearOffset::Of(load->indices[0], {inner});
    ffi::Map<Var, Expr> map;
    map.Set(c_.panel, part_.panel);
    map.Set(c_.column, Expr(column));
    map.Set(c_.vector.var, part_.panel * Expr(width_) + Expr(column));
    map.Set(inner.var, k * Expr(step_));
    return tir::LoadMatrix(to, tir::BufferLoad(buffer, {tir::Substitute(load->indices[0], map)}),
                           linear->Coeff(inner.var) * Expr(SizeInBytes(buffer.elem_dtype())));
  }

  // Of a block, each register's rows at a multiple of kMatrixRows.
  static constexpr int64_t kMostRows = Registers::kSums * kMatrixRows;

  const Contraction& c_;
  int64_t width_, step_;
  const TilePart& part_;
  const Machine& machine_;
  arith::Analyzer* analyzer_;
  Buffer sums_;
};

}  // namespace

int64_t MatrixStep(const Contraction& c, const Machine& machine) {
  const bool has = c.group == 4 ? machine.matrix_int8 : c.group == 2 && machine.matrix_bf16;
  if (!has || c.stage.reduce.empty() || c.side_by_side.has_value() ||
      ir::AsInt(c.row.extent).value_or(kFewestRows) < kFewestRows)
    return 0;
  const Axis& inner = c.stage.reduce.back();
  const auto words = ir::AsInt(inner.extent);
  const auto *a = c.LoadOf(c.a), *b = c.LoadOf(c.b);
  if (words.value_or(0) == 0 || a->predicate.defined() || b->predicate.defined() ||
      (c.guard.defined() && (UsesVar(c.guard, inner.var) || UsesVar(c.guard, c.row.var))))
    return 0;
  const Axis column = c.panel_width > 0 ? Axis{c.column, Expr(c.panel_width)} : c.vector;
  const auto left = LinearOffset::Of(a->indices[0], {c.row, inner}),
             right = LinearOffset::Of(b->indices[0], {column, inner});
  if (!left.has_value() || !right.has_value() || !ir::IsIntValue(left->Coeff(inner.var), c.group) ||
      !ir::IsIntValue(right->Coeff(column.var), c.GroupInB()))
    return 0;
  // Whole registers of columns are read: what is behind the last one belongs to the same row.
  const auto columns = ir::AsInt(column.extent), row = ir::AsInt(right->Coeff(inner.var));
  if (!columns.has_value() || !row.has_value() ||
      *row < (*columns + kMostWords - 1) / kMostWords * kMostWords * c.GroupInB())
    return 0;
  for (int64_t step = std::min(*words, kMostWords); step >= kFewestWords; --step) {
    if (*words % step == 0) return step;
  }
  return 0;
}

Stmt EmitMatrixRows(const Contraction& c, int64_t width, const TilePart& part, const Expr& rows,
                    int64_t step, const Machine& machine, arith::Analyzer* analyzer) {
  return MatrixEmitter(c, width, part, step, machine, analyzer).Rows(rows);
}

int64_t MatrixLines(const Contraction& c) {
  const auto rows = ir::AsInt(c.row.extent);
  if (rows.value_or(1) > kMatrixRows || c.outer_a.empty()) return 0;
  const Axis& line = c.outer_a.back();
  if (c.guard.defined() && UsesVar(c.guard, line.var)) return 0;
  const auto lines = ir::AsInt(line.extent);
  // By twos, one may be left that is not known.
  if (!rows.has_value()) return lines.value_or(2) < 2 ? 0 : 2;
  if (lines.value_or(1) < 2) return 0;
  // Half of a register of rows costs the right side as much as a whole one.
  return *rows * 2 <= kMatrixRows ? 4 : 2;
}

Stmt EmitMatrixLines(const Contraction& c, const LinesOfMatrix& lines, int64_t width,
                     const TilePart& part, const Expr& first, const Expr& count, int64_t step,
                     const Machine& machine, arith::Analyzer* analyzer) {
  return MatrixEmitter(c, width, part, step, machine, analyzer).Lines(lines, first, count);
}

}  // namespace relaxvm::schedule::cpu
