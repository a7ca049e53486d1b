// SPDX-License-Identifier: Apache-2.0
// Left sides that are narrower than the sums: a block of each row is widened together, before the
// steps that take its elements one by one.
#include <algorithm>
#include <bit>

#include "schedule/cpu/contraction/tile.h"

namespace relaxvm::schedule::cpu {
namespace {

using tir::BufferStore;
using tir::For;
using tir::ForKind;
using tir::SeqStmt;

constexpr int64_t kFewestWords = 2;  // of a row that are widened together
constexpr int64_t kFewestLanes = 4;  // of a vector

}  // namespace

bool TileEmitter::WidensLeft() const {
  const auto* load = c_.LoadOf(c_.a);
  const Axis& inner = c_.stage.reduce.back();
  const int64_t fewest = ByHalves() ? kFewestWords : lanes_;
  if ((c_.group > 1 && !ByHalves()) || lanes_ < kFewestLanes || load->predicate.defined() ||
      SizeInBytes(Buffer(load->buffer).elem_dtype()) >= SizeInBytes(c_.acc) ||
      ir::AsInt(inner.extent).value_or(lanes_) < fewest)
    return false;
  const auto linear = LinearOffset::Of(load->indices[0], c_.AllAxes());
  return linear.has_value() && ir::IsIntValue(linear->Coeff(inner.var), c_.group);
}

bool TileEmitter::HasNotes() const {
  if (!c_.notes.has_value() || !WidensLeft()) return false;
  return c_.first_group.defined() ||
         ir::IsIntValue(c_.stage.reduce.back().extent, c_.notes->groups);
}

Stmt TileEmitter::StepsByNotes() const {
  const auto [groups, size] = *c_.notes;
  Var block("block", Int(64)), round("round", Int(64)), step("step", Int(64));
  const Expr from = block * Expr(size);
  const int64_t num_sets = SetsOfBlock(size);
  ffi::Array<Stmt> sets;
  for (int64_t set = 0; set < num_sets; ++set)
    sets.push_back(AtK(PairsStep(set), from + round * Expr(num_sets) + Expr(set)));
  Stmt pairs = Loop(round, size / num_sets, ForKind::kSerial, SeqStmt::Flatten(sets));
  if (FetchesB()) pairs = FetchingB(pairs, from + round * Expr(num_sets), num_sets);
  ffi::Array<Stmt> halves;
  const Stmt of_block = WidenedSteps(from, step, size, &halves);
  halves.push_back(Loop(step, size / num_sets, ForKind::kSerial, of_block));
  ffi::Map<Var, Expr> behind;
  const Axis& inner = c_.stage.reduce.back();
  const Expr first = c_.first_group.defined() ? c_.first_group : Expr(0);
  behind.Set(inner.var, Expr(groups) - first);
  behind.Set(c_.panel, part_.panel);
  behind.Set(c_.column, Expr(0));
  behind.Set(c_.vector.var, Expr(0));  // one panel, where these are no axis
  const auto* load = c_.LoadOf(c_.b);
  const Expr note =
      Buffer(load->buffer)
          .Load({tir::Substitute(load->indices[0], behind) + ir::FloorDiv(first, size) + block});
  const Stmt both =
      tir::IfThenElse(ir::Equal(note, ir::Const(note.dtype(), 0)), pairs, SeqStmt::Flatten(halves));
  const Expr blocks = analyzer_->Simplify(ir::FloorDiv(inner.extent, size));
  return OverBlocks(block, blocks, both, NextRowsOfA(from));
}

int64_t TileEmitter::BlockOfLeft() const {
  const int64_t depth = ir::AsInt(c_.stage.reduce.back().extent).value_or(0);
  if (ByHalves() && depth > 0 && depth < lanes_) return depth;
  int64_t size = lanes_;
  while (ByHalves() && size * c_.group < kLineBytes && depth > 0 && depth % (2 * size) == 0)
    size *= 2;
  return size;
}

Stmt TileEmitter::WidenedSteps(const Expr& from, const Var& round, int64_t size,
                               ffi::Array<Stmt>* seq) const {
  // Of words: the even bytes of a row, and behind them the odd ones.
  const int64_t row_size = (ByHalves() ? 2 : 1) * size;
  Buffer wide("wide", {Expr(part_.rows * row_size)}, c_.acc, "local");
  seq->push_back(tir::AllocBuffer(wide));
  for (int64_t row = 0; row < part_.rows; ++row) {
    if (ByHalves()) {
      for (int64_t at = 0, count = 0; at < size; at += count) {
        const auto left = static_cast<uint64_t>(std::min(size - at, lanes_));
        count = static_cast<int64_t>(std::bit_floor(left));
        const Stmt store = StoreHalves({row, count}, wide, row * row_size + at, size);
        seq->push_back(AtK(store, from + Expr(at)));
      }
      continue;
    }
    Var lane("lane", Int(64));
    const Stmt store =
        BufferStore(wide, ir::Cast(c_.acc, LeftAt(row)), {Expr(row * row_size) + lane});
    seq->push_back(For(lane, 0, lanes_, ForKind::kVectorized, AtK(store, from + lane)));
  }
  const int64_t num_sets = SetsOfBlock(size);
  ffi::Array<Stmt> sets;
  for (int64_t set = 0; set < num_sets; ++set) {
    const Expr at = round * Expr(num_sets) + Expr(set);
    const auto left = [&](int64_t row) { return wide.Load({Expr(row * row_size) + at}); };
    const auto halves = [&](int64_t row) -> tir::Halves {
      return {left(row), wide.Load({Expr(row * row_size + size) + at})};
    };
    sets.push_back(AtK(ByHalves() ? HalvesStep(set, halves) : Step(set, left), from + at));
  }
  return SeqStmt::Flatten(sets);
}

Stmt TileEmitter::WideningLeft() const {
  const Axis& inner = c_.stage.reduce.back();
  const int64_t size = BlockOfLeft();
  Var block("block", Int(64)), round("round", Int(64)), rest("rest", Int(64));
  const Expr blocks = analyzer_->Simplify(ir::FloorDiv(inner.extent, size));
  const Expr from = block * Expr(size);
  ffi::Array<Stmt> seq;
  const Stmt of_block = WidenedSteps(from, round, size, &seq);
  const int64_t num_sets = SetsOfBlock(size);
  const Stmt steps = Loop(round, size / num_sets, ForKind::kSerial, of_block);
  const Expr k = from + round * Expr(num_sets);
  seq.push_back(FetchesB() ? FetchingB(steps, k, num_sets_) : steps);
  const Stmt over_blocks = OverBlocks(block, blocks, SeqStmt::Flatten(seq), NextRowsOfA(from));
  const Expr done = analyzer_->Simplify(blocks * Expr(size));
  const Expr left = analyzer_->Simplify(inner.extent - done);
  const int64_t last = ir::AsInt(left).value_or(0);
  if (!ByHalves() || last < kFewestWords) {
    return SeqStmt::Flatten(
        {over_blocks, Loop(rest, left, ForKind::kSerial, AtK(Step(0), done + rest))});
  }
  ffi::Array<Stmt> behind = {over_blocks};
  const Stmt of_rest = WidenedSteps(done, rest, last, &behind);
  behind.push_back(Loop(rest, last / SetsOfBlock(last), ForKind::kSerial, of_rest));
  return SeqStmt::Flatten(behind);
}

Stmt TileEmitter::StoreHalves(const WordsOfRow& some, const Buffer& wide, int64_t at,
                              int64_t size) const {
  Var words("words", Int(32, static_cast<int>(some.count)));
  const tir::Halves halves = tir::HalvesOfBytes(words, c_.a_is_signed);
  const Columns whole = {0, some.count};
  return SeqStmt::Flatten({tir::Bind(words, LeftWords(some.row, some.count)),
                           BufferStore(wide, halves.even, {Run(at, whole)}),
                           BufferStore(wide, halves.odd, {Run(at + size, whole)})});
}

}  // namespace relaxvm::schedule::cpu
