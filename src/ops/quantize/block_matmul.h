// SPDX-License-Identifier: Apache-2.0
// What the forms of rvm.block_matmul share: sizes, codes out of words, rows in tiles.
#pragma once

#include <functional>
#include <vector>

#include "ops/loops.h"

namespace relaxvm::ops {

struct BlockMatmul {
  int64_t bits = 4;
  int64_t columns = 1;
  bool bytes = false;
};

class BlockForm {
 public:
  enum Input : size_t { kX, kWords, kScales, kZeros };
  static constexpr int64_t kWidth = 16;  // columns of a strip
  static constexpr int64_t kWordBits = 32;

 protected:
  static constexpr int64_t kStrips = 4;    // of a task
  static constexpr int64_t kMostRows = 6;  // of a tile
  static constexpr int64_t kBytes = 4;     // of a word

  BlockForm(const BlockMatmul& a, const std::vector<Buffer>& inputs, const Buffer& out);

  int64_t BlockSize() const { return words_ * codes_; }
  int64_t Depth() const { return blocks_ * BlockSize(); }
  // Strips of a task.
  Expr StripsOf(const Expr& task) const;

  // body(task) for each few strips, on as many threads as that is worth.
  Stmt Tasks(const std::function<Stmt(const Expr& task)>& body) const;
  // form(start, rows) for tiles whose heights differ by one at most, the least being `least`.
  Stmt RowTiles(int64_t least,
                const std::function<Stmt(const Expr& start, int64_t rows)>& form) const;

  // Scales and zeros of 16 columns.
  Expr ScalesAt(const Expr& strip, const Expr& block) const;
  Expr ZerosAt(const Expr& strip, const Expr& block) const;
  // 1 + code / 2 ** bits, for the code of each word that begins at bit `shift`: a float whose
  // highest places after the point are the code takes no conversion.
  Expr Fraction(const Expr& word, int64_t shift) const;
  // What a fraction lies above that of a zero point counts so much.
  Expr FractionOfZero(const Expr& zero) const;
  Expr ScaleOfFraction(const Expr& scale) const;
  static Expr Bits(ir::BinaryOp op, const Expr& word, int64_t with) {
    return ir::Binary(op, word, Wide(I32(static_cast<int32_t>(with))));
  }
  // Result 16 columns from a strip on, those that exist.
  Stmt Store(const Expr& row, const Expr& strip, const Expr& value) const;
  Expr Inside(const Expr& strip) const;  // null: all exist
  static Expr HasManyRegisters();        // 32 of 16 floats

  static Stmt Each(const char* name, const Expr& extent,
                   const std::function<Stmt(const Expr&)>& body);
  static Expr F32(double value) { return Number(Float(32), value); }
  static Expr I32(int64_t value) { return ir::Const(Int(32), value); }
  static Expr Run(const Expr& first) { return ir::RampExpr(first, Expr(1), kWidth); }
  static Expr Lanes() { return Run(Expr(0)); }
  static Expr Wide(const Expr& e) { return ir::BroadcastExpr(e, kWidth); }
  static Expr Fma(const Expr& a, const Expr& b, const Expr& c) {
    return ir::CallIntrin(a.dtype(), Intrin::kFma, {a, b, c});
  }

  const BlockMatmul& attrs_;
  const std::vector<Buffer>& in_;
  Buffer out_;
  Expr rows_;
  int64_t strips_;
  int64_t codes_;  // of a word
  int64_t mask_;
  // Of a block of the inputs.  Of floats a long one counts as several, whose sums leave little to
  // cancel.
  int64_t pieces_ = 1;
  int64_t blocks_ = 1;
  int64_t words_ = 1;  // of a block
};

// From here on the codes of a task are expanded to floats once, for all rows (block_expand.cc).
inline constexpr int64_t kManyBlockRows = 12;
Stmt ManyBlockRows(const BlockMatmul& a, const std::vector<Buffer>& inputs, const Buffer& out);

}  // namespace relaxvm::ops
