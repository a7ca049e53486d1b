// SPDX-License-Identifier: Apache-2.0
// rvm.block_matmul for many rows: what a task's strips have in a part of the sum becomes floats,
// once, in memory that stays in the second cache; all rows then read it, as in any product.
#include <algorithm>

#include "ops/quantize/block_matmul.h"

namespace relaxvm::ops {
namespace {

constexpr int64_t kPartCodes = 1024;  // along the sum

class ExpandedLoops : BlockForm {
 public:
  ExpandedLoops(const BlockMatmul& a, const std::vector<Buffer>& inputs, const Buffer& out)
      : BlockForm(a, inputs, out),
        part_blocks_(std::clamp<int64_t>(kPartCodes / BlockSize(), 1, blocks_)),
        floats_("floats", {Expr(kStrips), Expr(part_blocks_ * BlockSize()), Expr(kWidth)},
                Float(32), "global") {}

  Stmt Run() {
    return Tasks([&](const Expr& task) {
      const int64_t parts = (blocks_ + part_blocks_ - 1) / part_blocks_;
      Stmt clear = Each("row", rows_, [&](const Expr& row) {
        return Each("strip", StripsOf(task), [&](const Expr& strip) {
          return Store(row, task * Expr(kStrips) + strip, Wide(F32(0)));
        });
      });
      return Sequence(
          {tir::AllocBuffer(floats_), clear,
           Each("part", Expr(parts), [&](const Expr& part) { return Part(task, part); })});
    });
  }

 private:
  Stmt Part(const Expr& task, const Expr& part) {
    const Expr first = part * Expr(part_blocks_);
    Expr blocks(part_blocks_);
    if (blocks_ % part_blocks_ != 0) blocks = ir::Min(blocks, Expr(blocks_) - first);
    const Expr strip = task * Expr(kStrips);
    Stmt expand = Each("strip", StripsOf(task), [&](const Expr& s) {
      return Each("block", blocks,
                  [&](const Expr& block) { return Expand(strip + s, s, first + block, block); });
    });
    auto products = [&](const Expr& s, int64_t strips) {
      return RowTiles(kLeastRows, [&](const Expr& start, int64_t rows) {
        return Tile(start, rows, strip, s, strips, first, blocks);
      });
    };
    Stmt one = Each("strip", StripsOf(task), [&](const Expr& s) { return products(s, 1); });
    Expr at_once = HasManyRegisters();
    if (strips_ % kStrips != 0)
      at_once = ir::And(at_once, ir::Equal(StripsOf(task), Expr(kStrips)));
    return Sequence({expand, tir::IfThenElse(at_once, products(Expr(0), kStrips), one)});
  }

  // floats_ of a block of one strip.
  Stmt Expand(const Expr& strip, const Expr& to_strip, const Expr& block, const Expr& to_block) {
    ir::Var scale("scale", Float(32, kWidth)), zero("zero", Float(32, kWidth));
    Stmt words = Each("word", Expr(words_), [&](const Expr& at) {
      ir::Var word("word", Int(32, kWidth));
      ffi::Array<Stmt> all{
          tir::Bind(word, in_[kWords].Load({strip, block * Expr(words_) + at, Lanes()}))};
      for (int64_t code = 0; code < codes_; ++code) {
        const int64_t shift = code % kBytes * 8 + code / kBytes * attrs_.bits;
        Expr value = (Fraction(word, shift) - zero) * scale;
        Expr k = (to_block * Expr(words_) + at) * Expr(codes_) + Expr(code);
        all.push_back(tir::BufferStore(floats_, value, {to_strip, k, Lanes()}));
      }
      return Sequence(all);
    });
    return Sequence({tir::Bind(scale, ScaleOfFraction(ScalesAt(strip, block))),
                     tir::Bind(zero, FractionOfZero(ZerosAt(strip, block))), words});
  }

  // Adds a part of the sum to `rows` rows of some strips.
  Stmt Tile(const Expr& start, int64_t rows, const Expr& strip, const Expr& from, int64_t strips,
            const Expr& first_block, const Expr& blocks) {
    Buffer sums("sums", {Expr(rows), Expr(strips), Expr(kWidth)}, Float(32), "local");
    ffi::Array<Stmt> all{tir::AllocBuffer(sums)}, products, stores;
    const ir::Var k("k", Int(64));
    std::vector<Expr> right;
    for (int64_t s = 0; s < strips; ++s) {
      ir::Var value("right", Float(32, kWidth));
      products.push_back(tir::Bind(value, floats_.Load({from + Expr(s), k, Lanes()})));
      right.push_back(value);
    }
    for (int64_t r = 0; r < rows; ++r) {
      const Expr row = start + Expr(r);
      ir::Var left("left", Float(32));
      products.push_back(tir::Bind(left, in_[kX].Load({row, first_block * Expr(BlockSize()) + k})));
      for (int64_t s = 0; s < strips; ++s) {
        const Indices at{Expr(r), Expr(s), Lanes()};
        const Expr to = strip + from + Expr(s);
        Expr before = tir::BufferLoad(out_, {row, BlockForm::Run(to * Expr(kWidth))}, Inside(to));
        all.push_back(tir::BufferStore(sums, before, at));
        products.push_back(tir::BufferStore(sums, Fma(Wide(left), right[s], sums.Load(at)), at));
        stores.push_back(Store(row, to, sums.Load(at)));
      }
    }
    all.push_back(tir::For(k, Expr(0), blocks * Expr(BlockSize()), tir::ForKind::kSerial,
                           Sequence(products)));
    all.push_back(Sequence(stores));
    return Sequence(all);
  }

  // Of a tile where rows are many: 13 of them are tiles of 4, 4 and 5.
  static constexpr int64_t kLeastRows = 4;
  static_assert((kManyBlockRows + 1) / (kManyBlockRows / kMostRows + 1) == kLeastRows);
  int64_t part_blocks_;
  Buffer floats_;  // [strip of a task, code of a part, column]
};

}  // namespace

Stmt ManyBlockRows(const BlockMatmul& a, const std::vector<Buffer>& inputs, const Buffer& out) {
  return ExpandedLoops(a, inputs, out).Run();
}

}  // namespace relaxvm::ops
