// SPDX-License-Identifier: Apache-2.0
// EmitByteWindow: a window of bytes with weights of its own for each channel (a depthwise
// convolution).
//
// No channel adds up another one's products, but each adds up those of its window: a word holds the
// bytes of one channel in up to four rows of the window, and one instruction multiplies and adds
// them.  Words of a column are made once for all neighbours that share it; those of
// the weights stay in registers while a row passes.  What lies outside is masked, in tiles at the
// edges alone.
#include <algorithm>
#include <map>

#include "schedule/cpu/cpu.h"
#include "tir/dot.h"

namespace relaxvm::schedule::cpu {
namespace {

using ir::BinaryObj;
using ir::BinaryOp;
using ir::Intrin;
using ir::IntrinObj;
using tir::BufferLoadObj;
using tir::BufferStore;
using tir::For;
using tir::ForKind;
using tir::SeqStmt;

constexpr int64_t kGroup = 4;  // bytes of a word
constexpr int64_t kMostNeighbours = 8;
constexpr int64_t kFewNeighbours = 4;
constexpr int64_t kLeastRows = 2;   // of a window; with fewer, words would be mostly empty
constexpr int64_t kMostWords = 12;  // of weights, which stay in registers

class ByteWindow {
 public:
  ByteWindow(const Stage& stage, size_t vector, const Machine& machine, arith::Analyzer* analyzer)
      : stage_(stage),
        vector_(stage.spatial[vector]),
        outer_(stage.spatial),
        lanes_(machine.Lanes(sizeof(int32_t))),
        machine_(machine),
        analyzer_(analyzer) {
    outer_.erase(outer_.begin() + static_cast<std::ptrdiff_t>(vector));
    // The sum over one channel.
    auto& reduce = stage_.reduce;
    if (reduce.size() != 3 || !ir::IsIntValue(reduce[0].extent, 1)) return;
    ffi::Map<Var, Expr> map;
    map.Set(reduce[0].var, Expr(0));
    stage_.value = SimplifyOffsets(tir::Substitute(stage_.value, map), analyzer_);
    reduce.erase(reduce.begin());
  }

  bool Find() {
    if (stage_.combine != Combine::kSum || stage_.reduce.size() != 2 || outer_.empty() ||
        stage_.value.dtype() != Int(32) || !machine_.dot_int8 || lanes_ < 2)
      return false;
    near_ = outer_.back();
    const auto rows = ir::AsInt(stage_.reduce[0].extent),
               columns = ir::AsInt(stage_.reduce[1].extent);
    if (rows.value_or(0) < kLeastRows || columns.value_or(0) < 1) return false;
    rows_ = *rows;
    columns_ = *columns;
    if (NumGroups() * columns_ > kMostWords) return false;
    if (ir::AsInt(vector_.extent).value_or(0) < lanes_ || !FindOperands()) return false;
    ChooseNeighbours();
    return true;
  }

  // `other` runs where the form does not fit.
  Stmt Run(const std::function<Stmt()>& other) {
    Var block("block", Int(64)), tile("tile", Int(64));
    const Expr base = Least(block * Expr(lanes_), vector_.extent - Expr(lanes_));
    const Expr near = Least(tile * Expr(neighbours_), near_.extent - Expr(neighbours_));
    ffi::Array<Stmt> seq;
    std::vector<std::vector<Var>> weights;
    for (int64_t column = 0; column < columns_; ++column) {
      weights.emplace_back();
      for (int64_t group = 0; group < NumGroups(); ++group) {
        weights.back().emplace_back("weights", Int(32, static_cast<int>(lanes_)));
        seq.push_back(tir::Bind(weights.back().back(), WeightWord(base, group, column)));
      }
    }
    const Expr inside = analyzer_->Simplify(InsideTile(near));
    Stmt body = Tile(base, near, weights, false);
    if (!ir::IsIntValue(inside, 1))
      body = tir::IfThenElse(inside, body, Tile(base, near, weights, true));
    const Expr tiles = analyzer_->Simplify(ir::CeilDiv(near_.extent, neighbours_));
    seq.push_back(For(tile, 0, tiles, ForKind::kSerial, body));
    const Expr blocks = analyzer_->Simplify(ir::CeilDiv(vector_.extent, lanes_));
    const std::vector<Axis> outer(outer_.begin(), outer_.end() - 1);
    const Stmt all = Loops(outer, For(block, 0, blocks, ForKind::kSerial, SeqStmt::Flatten(seq)));
    // What a masked byte is read from exists.
    Expr fits = ir::GreaterEqual(near_.extent, Expr(neighbours_));
    for (const Expr& d : Buffer(data_->buffer).shape())
      fits = ir::And(fits, ir::Greater(d, Expr(0)));
    fits = analyzer_->Simplify(fits);
    return ir::IsIntValue(fits, 1) ? all : tir::IfThenElse(fits, all, other());
  }

 private:
  int64_t NumGroups() const { return (rows_ + kGroup - 1) / kGroup; }
  int64_t RowsOf(int64_t group) const { return std::min(kGroup, rows_ - group * kGroup); }
  Expr Least(const Expr& a, const Expr& b) const { return analyzer_->Simplify(ir::Min(a, b)); }

  // data * weight, where the data may be a number wherever it lies outside.
  bool FindOperands() {
    const auto* product = stage_.value.as<BinaryObj>();
    if (product == nullptr || product->op != BinaryOp::kMul) return false;
    for (const auto& [data, weight] :
         {std::pair(product->a, product->b), std::pair(product->b, product->a)}) {
      conditions_.clear();
      outside_ = 0;
      data_ = DataOf(data);
      weight_ = StripCasts(weight).as<BufferLoadObj>();
      if (data_ == nullptr || weight_ == nullptr || UsesVar(weight_->indices[0], near_.var))
        continue;
      if (Buffer(data_->buffer).elem_dtype() == UInt(8) &&
          Buffer(weight_->buffer).elem_dtype() == Int(8) && AreLinear() && AreApart())
        return true;
    }
    return false;
  }

  const BufferLoadObj* DataOf(const Expr& e) {
    const Expr& inner = StripCasts(e);
    const auto* choice = inner.as<IntrinObj>();
    if (choice == nullptr || choice->intrin != Intrin::kIfThenElse)
      return inner.as<BufferLoadObj>();
    const auto otherwise = ir::AsInt(StripCasts(choice->args[2]));
    if (!otherwise.has_value() || *otherwise < 0 || *otherwise > 255) return nullptr;
    if (!conditions_.empty() && outside_ != *otherwise) return nullptr;
    outside_ = *otherwise;
    AddConditions(choice->args[0]);
    return DataOf(choice->args[1]);
  }

  void AddConditions(const Expr& condition) {
    const auto* both = condition.as<BinaryObj>();
    if (both != nullptr && both->op == BinaryOp::kAnd) {
      AddConditions(both->a);
      AddConditions(both->b);
    } else {
      conditions_.push_back(condition);
    }
  }

  // Both operands run along the lanes, and take constant steps along the window and the neighbours.
  bool AreLinear() {
    std::vector<Axis> axes = {vector_, near_, stage_.reduce[0], stage_.reduce[1]};
    for (const BufferLoadObj* load : {data_, weight_}) {
      if (load->indices.size() != 1) return false;
      const auto linear = LinearOffset::Of(load->indices[0], axes);
      if (!linear.has_value() || !ir::IsIntValue(linear->Coeff(vector_.var), 1)) return false;
      if (load == weight_) continue;
      const auto near = ir::AsInt(analyzer_->Simplify(linear->Coeff(near_.var)));
      const auto tap = ir::AsInt(analyzer_->Simplify(linear->Coeff(stage_.reduce[1].var)));
      if (!near.has_value() || !tap.has_value()) return false;
      near_step_ = *near;
      tap_step_ = *tap;
    }
    return true;
  }

  // Does each condition ask for a row or for a column, in a way that holds between two places where
  // it holds?
  bool AreApart() {
    for (const Expr& c : conditions_) {
      const Expr slack = AtLeastZero(c);
      if (!slack.defined() || UsesVar(c, vector_.var)) return false;
      if (!LinearOffset::Of(slack, {near_, stage_.reduce[0], stage_.reduce[1]}).has_value())
        return false;
      if (OfColumn(c) && UsesVar(c, stage_.reduce[0].var)) return false;
    }
    return true;
  }
  bool OfColumn(const Expr& condition) const {
    return UsesVar(condition, near_.var) || UsesVar(condition, stage_.reduce[1].var);
  }

  // As many as leave the least to compute twice.
  void ChooseNeighbours() {
    const auto extent = ir::AsInt(near_.extent);
    neighbours_ = kFewNeighbours;
    if (!extent.has_value()) return;
    const int64_t most = machine_.num_vectors >= 32 ? kMostNeighbours : kFewNeighbours;
    auto waste = [&](int64_t n) { return (*extent + n - 1) / n * n - *extent; };
    neighbours_ = std::min(most, std::max<int64_t>(1, *extent));
    for (int64_t n = neighbours_; n * 2 > most && n <= *extent; --n) {
      if (waste(n) < waste(neighbours_)) neighbours_ = n;
    }
  }

  // The conditions of rows or columns, for one element.
  Expr Holds(bool of_column, const Expr& near, const Expr& row, const Expr& column) const {
    ffi::Map<Var, Expr> map;
    map.Set(near_.var, near);
    map.Set(stage_.reduce[0].var, row);
    map.Set(stage_.reduce[1].var, column);
    Expr all = ir::Const(Bool(), 1);
    for (const Expr& c : conditions_) {
      if (OfColumn(c) == of_column) all = ir::And(all, tir::Substitute(c, map));
    }
    return analyzer_->Simplify(all);
  }

  // Of all elements of all windows of a tile: of those at the corners.
  Expr InsideTile(const Expr& near) const {
    Expr all = ir::Const(Bool(), 1);
    for (int64_t row : {int64_t{0}, rows_ - 1}) all = ir::And(all, Holds(false, near, row, 0));
    for (int64_t i : {int64_t{0}, neighbours_ - 1}) {
      for (int64_t column : {int64_t{0}, columns_ - 1})
        all = ir::And(all, Holds(true, near + Expr(i), 0, column));
    }
    return all;
  }

  Expr WeightWord(const Expr& base, int64_t group, int64_t column) const {
    std::vector<Expr> bytes;
    for (int64_t i = 0; i < RowsOf(group); ++i) {
      ffi::Map<Var, Expr> map;
      map.Set(vector_.var, base);
      map.Set(stage_.reduce[0].var, Expr(group * kGroup + i));
      map.Set(stage_.reduce[1].var, Expr(column));
      bytes.push_back(Run(weight_, tir::Substitute(weight_->indices[0], map)));
    }
    return tir::WordsOfBytes(bytes, 32);
  }

  Expr Run(const BufferLoadObj* load, const Expr& at) const {
    return tir::BufferLoad(load->buffer, {ir::RampExpr(analyzer_->Simplify(at), 1, lanes_)});
  }

  // The words of what neighbour `i` multiplies with column `column` of the weights.
  Expr DataWord(const Expr& base, const Expr& near, int64_t i, int64_t group, int64_t column,
                bool edge) const {
    std::vector<Expr> bytes;
    const Expr inside_column = Holds(true, near + Expr(i), 0, column);
    Expr mask = ir::Const(Int(32), 0);
    for (int64_t row = 0; row < RowsOf(group); ++row) {
      const Expr tap = group * kGroup + row;
      ffi::Map<Var, Expr> map;
      map.Set(vector_.var, base);
      map.Set(near_.var, near + Expr(i));
      map.Set(stage_.reduce[0].var, tap);
      map.Set(stage_.reduce[1].var, Expr(column));
      Expr at = tir::Substitute(data_->indices[0], map);
      if (edge) {
        const Expr inside = ir::And(inside_column, Holds(false, near, tap, 0));
        at = ir::Select(inside, at, base);
        const Expr byte = ir::Const(Int(32), static_cast<int32_t>(uint32_t{255} << (8 * row)));
        mask = ir::Binary(BinaryOp::kBitOr, mask, ir::Select(inside, byte, ir::Const(Int(32), 0)));
      }
      bytes.push_back(Run(data_, at));
    }
    const Expr words = tir::WordsOfBytes(bytes, 32);
    if (!edge) return words;
    const Expr kept = ir::Binary(BinaryOp::kBitAnd, words, ir::BroadcastExpr(mask, lanes_));
    if (outside_ == 0) return kept;
    const Expr filler = ir::Const(
        Int(32), static_cast<int32_t>(uint32_t{0x01010101} * static_cast<uint32_t>(outside_)));
    const Expr rest = ir::Binary(BinaryOp::kBitAnd, filler,
                                 ir::Binary(BinaryOp::kBitXor, mask, ir::Const(Int(32), -1)));
    return ir::Binary(BinaryOp::kBitOr, kept, ir::BroadcastExpr(rest, lanes_));
  }

  Stmt Tile(const Expr& base, const Expr& near, const std::vector<std::vector<Var>>& weights,
            bool edge) const {
    Buffer acc("acc", {Expr(neighbours_ * lanes_)}, Int(32), "local");
    ffi::Array<Stmt> seq = {tir::AllocBuffer(acc),
                            Fill(acc, stage_.identity, neighbours_ * lanes_, lanes_)};
    for (int64_t group = 0; group < NumGroups(); ++group) {
      std::map<int64_t, Var> words;  // by place along the row
      for (int64_t i = 0; i < neighbours_; ++i) {
        for (int64_t column = 0; column < columns_; ++column) {
          const int64_t place = i * near_step_ + column * tap_step_;
          auto known = words.find(place);
          if (known == words.end()) {
            Var word("word", Int(32, static_cast<int>(lanes_)));
            seq.push_back(tir::Bind(word, DataWord(base, near, i, group, column, edge)));
            known = words.emplace(place, word).first;
          }
          const Expr at = ir::RampExpr(Expr(i * lanes_), 1, lanes_);
          const Var& right = weights[static_cast<size_t>(column)][static_cast<size_t>(group)];
          const Expr sum = acc.Load({at});
          seq.push_back(BufferStore(acc, tir::DotOfBytes(sum, known->second, right), {at}));
        }
      }
    }
    for (int64_t i = 0; i < neighbours_; ++i) {
      Var lane("lane", Int(64));
      ffi::Map<Var, Expr> map;
      map.Set(vector_.var, base + lane);
      map.Set(near_.var, near + Expr(i));
      Expr value = acc.Load({Expr(i * lanes_) + lane});
      const Expr to = tir::Substitute(stage_.indices[0], map);
      if (stage_.finish.defined()) {
        map.Set(stage_.reduced, value);
        value = tir::Substitute(stage_.finish, map);
      }
      seq.push_back(
          For(lane, 0, lanes_, ForKind::kVectorized, BufferStore(*stage_.out, value, {to})));
    }
    return SeqStmt::Flatten(seq);
  }

  Stage stage_;
  Axis vector_;
  std::vector<Axis> outer_;
  const int64_t lanes_;
  const Machine& machine_;
  arith::Analyzer* analyzer_;
  Axis near_{Var("near", Int(64)), Expr(1)};
  int64_t rows_ = 0, columns_ = 0;  // of a window
  const BufferLoadObj* data_ = nullptr;
  const BufferLoadObj* weight_ = nullptr;
  std::vector<Expr> conditions_;  // under which the data is read
  int64_t outside_ = 0;           // what it is elsewhere
  int64_t near_step_ = 0, tap_step_ = 0;
  int64_t neighbours_ = 1;
};

}  // namespace

std::optional<Stmt> EmitByteWindow(const Stage& flat, size_t vector, const Machine& machine,
                                   arith::Analyzer* analyzer, const std::function<Stmt()>& other) {
  ByteWindow window(flat, vector, machine, analyzer);
  if (!window.Find()) return std::nullopt;
  return window.Run(other);
}

}  // namespace relaxvm::schedule::cpu
