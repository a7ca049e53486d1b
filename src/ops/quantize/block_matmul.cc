// SPDX-License-Identifier: Apache-2.0
// rvm.block_matmul: a matrix product whose right side is small integers (codes of 2, 4 or 8 bits)
// in blocks along the sum, each with a scale and a zero point.
//   y[m, n] = sum over blocks b of scale[b, n] (sum over k in b of x[m, k] code[k, n]
//                                               - zero[b, n] sum over k in b of x[m, k])
// The codes stay packed in memory: a vector holds a word of each of 16 neighbouring columns (a
// strip), and a shift and a mask give a code of each.  With `bytes` each block of a row of x is
// rounded to signed bytes with a scale of its own, and products of four bytes are added up at once.
#include "ops/quantize/block_matmul.h"

#include <algorithm>

#include "tir/dot.h"

namespace relaxvm::ops {
namespace {

constexpr size_t kX = BlockForm::kX, kWords = BlockForm::kWords, kScales = BlockForm::kScales,
                 kZeros = BlockForm::kZeros;
constexpr int64_t kWidth = BlockForm::kWidth, kWordBits = BlockForm::kWordBits;
constexpr int64_t kWorthAThread = 1 << 15;  // products
constexpr double kGreatestByte = 127;

Type InferBlockMatmul(TypeCtx& ctx, const BlockMatmul& a) {
  auto is_f32 = [](DLDataType t) { return t == Float(32); };
  auto is_i32 = [](DLDataType t) { return t == Int(32); };
  TensorType x = ctx.TensorOf(kX, is_f32, "a tensor of float32");
  ctx.CheckRank(kX, 2);
  ctx.TensorOf(kWords, is_i32, "a tensor of int32");
  ctx.CheckRank(kWords, 3);
  if (a.bits != 2 && a.bits != 4 && a.bits != 8)
    ctx.Error(ErrorKind::kValueError, "bits must be 2, 4 or 8, got ", a.bits);
  auto words = ctx.Tensor(kWords)->GetShape(), xs = x->GetShape();
  for (size_t i = kScales; i <= kZeros && ctx.Has(i); ++i) {
    ctx.TensorOf(i, is_f32, "a tensor of float32");
    ctx.CheckRank(i, 3);
    auto have = ctx.Tensor(i)->GetShape();
    if (!have || !words) continue;
    const auto blocks = ir::AsInt((*have)[1]), count = ir::AsInt((*words)[1]);
    if (!ctx.Equal((*have)[0], (*words)[0]) || !ctx.Equal((*have)[2], Expr(kWidth)) || !blocks ||
        !count || *blocks < 1 || *count % *blocks != 0 ||
        *count / *blocks * (kWordBits / a.bits) % kWidth != 0) {
      ctx.Error(ErrorKind::kValueError, ctx.Describe(i), " must be [strips, blocks, ", kWidth,
                "], and a block a multiple of ", kWidth, " codes, for words ",
                ctx.Describe(kWords));
    }
  }
  if (words) {
    const auto strips = ir::AsInt((*words)[0]);
    if (!strips || a.columns < 1 || *strips != (a.columns + kWidth - 1) / kWidth ||
        !ctx.Equal((*words)[2], Expr(kWidth))) {
      ctx.Error(ErrorKind::kValueError, ctx.Describe(kWords), " does not hold ", a.columns,
                " columns in strips of ", kWidth);
    }
    if (xs && ctx.Prove(ir::NotEqual((*xs)[1], (*words)[1] * Expr(kWordBits / a.bits)))) {
      ctx.Error(ErrorKind::kValueError, ctx.Describe(kX), " must have a column for each of the ",
                DescribeExpr((*words)[1]), " words' codes of ", a.bits, " bits");
    }
  }
  if (!xs) return ctx.Result(std::nullopt, 2, x->dtype);
  return ctx.Result(Dims{(*xs)[0], Expr(a.columns)}, x->dtype);
}

// The parts, of 16 codes and more, that a block is summed up in.
int64_t PiecesOf(int64_t block) {
  constexpr int64_t kLongest = 64;
  int64_t count = (block + kLongest - 1) / kLongest;
  while (block % (count * BlockForm::kWidth) != 0) ++count;
  return count;
}

}  // namespace

BlockForm::BlockForm(const BlockMatmul& a, const std::vector<Buffer>& inputs, const Buffer& out)
    : attrs_(a),
      in_(inputs),
      out_(out),
      rows_(inputs[kX].shape()[0]),
      strips_(*ir::AsInt(inputs[kWords].shape()[0])),
      codes_(kWordBits / a.bits),
      mask_((int64_t{1} << a.bits) - 1) {
  const int64_t words = *ir::AsInt(inputs[kWords].shape()[1]);
  const int64_t blocks = *ir::AsInt(inputs[kScales].shape()[1]);
  pieces_ = a.bytes ? 1 : PiecesOf(words / blocks * codes_);
  blocks_ = blocks * pieces_;
  words_ = words / blocks_;
}

Stmt BlockForm::Each(const char* name, const Expr& extent,
                     const std::function<Stmt(const Expr&)>& body) {
  ir::Var at(name, Int(64));
  return tir::For(at, Expr(0), extent, tir::ForKind::kSerial, body(at));
}

Expr BlockForm::StripsOf(const Expr& task) const {
  if (strips_ % kStrips == 0) return Expr(kStrips);
  return ir::Min(Expr(strips_) - task * Expr(kStrips), Expr(kStrips));
}

Stmt BlockForm::Tasks(const std::function<Stmt(const Expr& task)>& body) const {
  ir::Var task("task", Int(64));
  ir::DictAttrs annotations;
  annotations.Set("most_threads",
                  ir::FloorDiv(rows_ * Expr(Depth()) * Expr(attrs_.columns), Expr(kWorthAThread)));
  return tir::For(task, Expr(0), Expr((strips_ + kStrips - 1) / kStrips), tir::ForKind::kParallel,
                  body(task), "", annotations);
}

Stmt BlockForm::RowTiles(int64_t least,
                         const std::function<Stmt(const Expr& start, int64_t rows)>& form) const {
  ir::Var tiles("tiles", Int(64)), low("low", Int(64)), higher("higher", Int(64));
  ir::Var height("height", Int(64)), start("start", Int(64)), tile("tile", Int(64));
  Stmt forms = form(start, least);
  const int64_t known = ir::AsInt(rows_).value_or(0);
  for (int64_t rows = least + 1; rows <= kMostRows; ++rows) {
    // A known number of rows has tiles of two heights.
    const int64_t count = (known + kMostRows - 1) / kMostRows;
    if (known > 0 && rows != known / count && rows != known / count + 1) continue;
    forms = tir::IfThenElse(ir::Equal(height, Expr(rows)), form(start, rows), forms);
  }
  Expr taller = ir::Select(ir::Less(tile, higher), Expr(1), Expr(0));
  Stmt body = Sequence({tir::Bind(height, low + taller),
                        tir::Bind(start, tile * Expr(low) + ir::Min(tile, higher)), forms});
  Expr count = ir::FloorDiv(rows_ + Expr(kMostRows - 1), Expr(kMostRows));
  return Sequence({tir::Bind(tiles, ir::Max(count, Expr(1))),
                   tir::Bind(low, ir::FloorDiv(rows_, tiles)),
                   tir::Bind(higher, rows_ - low * Expr(tiles)),
                   tir::For(tile, Expr(0), count, tir::ForKind::kSerial, body)});
}

Expr BlockForm::ScalesAt(const Expr& strip, const Expr& block) const {
  return in_[kScales].Load({strip, ir::FloorDiv(block, Expr(pieces_)), Lanes()});
}

Expr BlockForm::ZerosAt(const Expr& strip, const Expr& block) const {
  if (in_.size() > kZeros)
    return in_[kZeros].Load({strip, ir::FloorDiv(block, Expr(pieces_)), Lanes()});
  return Wide(F32(static_cast<double>((mask_ + 1) / 2)));
}

Expr BlockForm::Fraction(const Expr& word, int64_t shift) const {
  constexpr int64_t kPlaces = 23, kOne = 0x3F800000;  // of a float: places after the point, 1.0
  const int64_t to = kPlaces - attrs_.bits;
  Expr moved = word;
  if (shift < to) moved = Bits(ir::BinaryOp::kShiftLeft, word, to - shift);
  if (shift > to) moved = Bits(ir::BinaryOp::kShiftRight, word, shift - to);
  moved = Bits(ir::BinaryOp::kBitAnd, moved, mask_ << to);
  return ir::CallIntrin(Float(32, kWidth), Intrin::kReinterpret,
                        {Bits(ir::BinaryOp::kBitOr, moved, kOne)});
}

Expr BlockForm::FractionOfZero(const Expr& zero) const {
  return Fma(zero, Wide(F32(1.0 / static_cast<double>(mask_ + 1))), Wide(F32(1)));
}

Expr BlockForm::ScaleOfFraction(const Expr& scale) const {
  return scale * Wide(F32(static_cast<double>(mask_ + 1)));
}

Expr BlockForm::HasManyRegisters() {
  constexpr int64_t kManyNumbers = 512;
  return ir::LessEqual(Expr(kManyNumbers), ir::CallIntrin(Intrin::kVectorRoom, {F32(0)}));
}

Expr BlockForm::Inside(const Expr& strip) const {
  if (attrs_.columns % kWidth == 0) return Expr();
  return ir::Less(Lanes(), Wide(Expr(attrs_.columns) - strip * Expr(kWidth)));
}

Stmt BlockForm::Store(const Expr& row, const Expr& strip, const Expr& value) const {
  return tir::BufferStore(out_, value, {row, Run(strip * Expr(kWidth))}, Inside(strip));
}

namespace {

class BlockLoops : BlockForm {
 public:
  BlockLoops(const BlockMatmul& a, const std::vector<Buffer>& inputs, const Buffer& out)
      : BlockForm(a, inputs, out) {}

  Stmt Run() {
    ir::Var row("row", Int(64));
    ffi::Array<Stmt> all{tir::AllocBuffer(sums_)};
    if (attrs_.bytes) {
      all.push_back(tir::AllocBuffer(rounded_));
      all.push_back(tir::AllocBuffer(steps_));
    }
    all.push_back(
        ParallelLines(row, rows_, Expr(Depth()), Each("block", blocks_, [&](const Expr& block) {
                        return attrs_.bytes ? Round(row, block) : Sum(row, block);
                      })));
    all.push_back(Tasks([&](const Expr& task) {
      auto tiles = [&](bool wide) {
        return RowTiles(1, [&](const Expr& start, int64_t rows) {
          return Strips(task, start, rows, StripsAtOnce(rows, wide));
        });
      };
      return tir::IfThenElse(HasManyRegisters(), tiles(true), tiles(false));
    }));
    return Sequence(all);
  }

 private:
  Expr XRun(const Expr& row, const Expr& k) const { return in_[kX].Load({row, BlockForm::Run(k)}); }

  // sums_ of one block of a row.
  Stmt Sum(const Expr& row, const Expr& block) {
    Expr sum;
    for (int64_t at = 0; at < BlockSize(); at += kWidth) {
      Expr run = XRun(row, block * Expr(BlockSize()) + Expr(at));
      sum = sum.defined() ? sum + run : run;
    }
    Expr total = ir::CallIntrin(Float(32), Intrin::kReduceAdd, {sum});
    return tir::BufferStore(sums_, total, {row, block});
  }

  // rounded_, steps_ and sums_ of one block of a row.
  Stmt Round(const Expr& row, const Expr& block) {
    const Expr first = block * Expr(BlockSize());
    Expr greatest, total;
    for (int64_t at = 0; at < BlockSize(); at += kWidth) {
      Expr size = ir::CallIntrin(Float(32, kWidth), Intrin::kAbs, {XRun(row, first + Expr(at))});
      greatest = greatest.defined() ? Expr(ir::Max(greatest, size)) : size;
    }
    ir::Var most("most", Float(32)), per_step("per_step", Float(32)), step("step", Float(32));
    ffi::Array<Stmt> all{tir::Bind(most, ir::CallIntrin(Float(32), Intrin::kReduceMax, {greatest})),
                         tir::Bind(step, ir::Div(most, F32(kGreatestByte))),
                         tir::Bind(per_step, ir::Select(ir::Equal(most, F32(0)), F32(0),
                                                        ir::Div(F32(kGreatestByte), most)))};
    for (int64_t at = 0; at < BlockSize(); at += kWidth) {
      ir::Var number("number", Int(32, kWidth));
      Expr scaled = XRun(row, first + Expr(at)) * Wide(per_step);
      Expr whole = ir::CallIntrin(Float(32, kWidth), Intrin::kRound, {scaled});
      all.push_back(tir::Bind(number, ir::Cast(Int(32, kWidth), whole)));
      all.push_back(tir::BufferStore(rounded_, ir::Cast(Int(8, kWidth), number),
                                     {row, BlockForm::Run(first + Expr(at))}));
      total = total.defined() ? total + number : Expr(number);
    }
    Expr sum = ir::CallIntrin(Int(32), Intrin::kReduceAdd, {total});
    all.push_back(tir::BufferStore(steps_, step, {row, block}));
    all.push_back(tir::BufferStore(sums_, step * ir::Cast(Float(32), sum), {row, block}));
    return Sequence(all);
  }

  // As many strips at once as leave room for their sums in 32 registers of 16 lanes, or in 16 of 8.
  static int64_t StripsAtOnce(int64_t rows, bool wide) {
    if (wide) return rows <= 4 ? 4 : 2;
    return rows == 1 ? 4 : rows <= 3 ? 2 : 1;
  }

  Stmt Strips(const Expr& task, const Expr& start, int64_t rows, int64_t at_once) {
    const Expr first = task * Expr(kStrips), have = StripsOf(task);
    Expr runs = ir::FloorDiv(have, Expr(at_once));
    Stmt all = Each("strips", runs, [&](const Expr& run) {
      return Tile(start, rows, first + run * Expr(at_once), at_once);
    });
    if (strips_ % at_once == 0) return all;
    Expr done = runs * Expr(at_once);
    Stmt rest = Each("strip", have - done,
                     [&](const Expr& strip) { return Tile(start, rows, first + done + strip, 1); });
    return Sequence({all, rest});
  }

  using EachSum = std::function<void(int64_t row, int64_t strip)>;
  static void ForSums(int64_t rows, int64_t strips, const EachSum& body) {
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t strip = 0; strip < strips; ++strip) body(row, strip);
    }
  }
  static Indices At(int64_t row, int64_t strip) { return {Expr(row), Expr(strip), Lanes()}; }

  Stmt Tile(const Expr& start, int64_t rows, const Expr& first, int64_t strips) {
    const DLDataType type = attrs_.bytes ? Int(32) : Float(32);
    Buffer total("total", {Expr(rows), Expr(strips), Expr(kWidth)}, Float(32), "local");
    Buffer sums("sums", {Expr(rows), Expr(strips), Expr(kWidth)}, type, "local");
    ffi::Array<Stmt> all{tir::AllocBuffer(total)}, stores;
    ForSums(rows, strips, [&](int64_t row, int64_t strip) {
      all.push_back(tir::BufferStore(total, Wide(F32(0)), At(row, strip)));
      stores.push_back(Store(start + Expr(row), first + Expr(strip), total.Load(At(row, strip))));
    });
    all.push_back(Each("block", blocks_, [&](const Expr& block) {
      ffi::Array<Stmt> one{tir::AllocBuffer(sums)};
      ForSums(rows, strips, [&](int64_t row, int64_t strip) {
        Expr zero = attrs_.bytes ? I32(0) : F32(0);
        one.push_back(tir::BufferStore(sums, Wide(zero), At(row, strip)));
      });
      one.push_back(Each("word", words_, [&](const Expr& word) {
        return Products(sums, start, rows, first, strips, block * Expr(words_) + word);
      }));
      AddBlock(total, sums, start, first, block, &one);
      return Sequence(one);
    }));
    all.push_back(Sequence(stores));
    return Sequence(all);
  }

  // The products of the codes of one word of each column.
  Stmt Products(const Buffer& sums, const Expr& start, int64_t rows, const Expr& first,
                int64_t strips, const Expr& at) {
    ffi::Array<Stmt> all;
    std::vector<Expr> words;
    for (int64_t strip = 0; strip < strips; ++strip) {
      ir::Var word("word", Int(32, kWidth));
      all.push_back(tir::Bind(word, in_[kWords].Load({first + Expr(strip), at, Lanes()})));
      words.push_back(word);
    }
    const int64_t parts = 8 / attrs_.bits;  // codes of a byte
    const int64_t each_byte = mask_ * 0x01010101;
    for (int64_t part = 0; part < parts; ++part) {
      if (attrs_.bytes) {
        std::vector<Expr> right;
        for (const Expr& word : words) {
          Expr moved = part == 0 ? word : Bits(ir::BinaryOp::kShiftRight, word, part * attrs_.bits);
          right.push_back(Bound(Bits(ir::BinaryOp::kBitAnd, moved, each_byte), &all));
        }
        auto left = [&](const Expr& row) {
          Expr k = (at * Expr(parts) + Expr(part)) * Expr(kBytes);
          Expr bytes = rounded_.Load({row, ir::RampExpr(k, Expr(1), kBytes)});
          return ir::CallIntrin(Int(32), Intrin::kReinterpret, {bytes});
        };
        AddProducts(sums, start, rows, right, left, &all);
        continue;
      }
      for (int64_t byte = 0; byte < kBytes; ++byte) {
        std::vector<Expr> right;
        for (const Expr& word : words) {
          const int64_t shift = byte * 8 + part * attrs_.bits;
          right.push_back(Bound(Fraction(word, shift), &all));
        }
        auto left = [&](const Expr& row) {
          return in_[kX].Load({row, (at * Expr(parts) + Expr(part)) * Expr(kBytes) + Expr(byte)});
        };
        AddProducts(sums, start, rows, right, left, &all);
      }
    }
    return Sequence(all);
  }

  static Expr Bound(const Expr& value, ffi::Array<Stmt>* out) {
    ir::Var code("code", value.dtype());
    out->push_back(tir::Bind(code, value));
    return code;
  }

  void AddProducts(const Buffer& sums, const Expr& start, int64_t rows,
                   const std::vector<Expr>& right, const std::function<Expr(const Expr&)>& left_of,
                   ffi::Array<Stmt>* out) const {
    for (int64_t row = 0; row < rows; ++row) {
      ir::Var left("left", attrs_.bytes ? Int(32) : Float(32));
      out->push_back(tir::Bind(left, left_of(start + Expr(row))));
      for (size_t strip = 0; strip < right.size(); ++strip) {
        Indices at = At(row, static_cast<int64_t>(strip));
        Expr sum = sums.Load(at);
        sum = attrs_.bytes ? tir::DotOfBytes(sum, right[strip], Wide(left))
                           : Fma(Wide(left), right[strip], sum);
        out->push_back(tir::BufferStore(sums, sum, at));
      }
    }
  }

  // total += scale (sums - zero sum of x); of floats, sums of fractions.
  void AddBlock(const Buffer& total, const Buffer& sums, const Expr& start, const Expr& first,
                const Expr& block, ffi::Array<Stmt>* out) const {
    const int64_t rows = *ir::AsInt(total.shape()[0]), strips = *ir::AsInt(total.shape()[1]);
    std::vector<Expr> scales, zeros;
    for (int64_t strip = 0; strip < strips; ++strip) {
      const Expr at = first + Expr(strip);
      const Expr scale = ScalesAt(at, block), zero = ZerosAt(at, block);
      scales.push_back(Bound(attrs_.bytes ? scale : ScaleOfFraction(scale), out));
      zeros.push_back(Bound(attrs_.bytes ? zero : FractionOfZero(zero), out));
    }
    for (int64_t row = 0; row < rows; ++row) {
      ir::Var less("less", Float(32)), step("step", Float(32));
      const Expr at = start + Expr(row);
      out->push_back(tir::Bind(less, F32(0) - sums_.Load({at, block})));
      if (attrs_.bytes) out->push_back(tir::Bind(step, steps_.Load({at, block})));
      for (int64_t strip = 0; strip < strips; ++strip) {
        const auto s = static_cast<size_t>(strip);
        Expr part = sums.Load(At(row, strip));
        if (attrs_.bytes) part = ir::Cast(Float(32, kWidth), part) * Wide(step);
        part = Fma(zeros[s], Wide(less), part);
        Expr sum = Fma(part, scales[s], total.Load(At(row, strip)));
        out->push_back(tir::BufferStore(total, sum, At(row, strip)));
      }
    }
  }

  Buffer sums_{"sums_of_x", {rows_, Expr(blocks_)}, Float(32), "global"};
  // With bytes: x, what a step of 1 of it counts.
  Buffer rounded_{"rounded", {rows_, Expr(blocks_ * BlockSize())}, Int(8), "global"};
  Buffer steps_{"steps", {rows_, Expr(blocks_)}, Float(32), "global"};
};

Tensors ComputeBlockMatmul(const ComputeArgs& in, const BlockMatmul& a) {
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < in.tensors.size(); ++i) inputs.push_back(in[i]);
  auto body = [a](const std::vector<Buffer>& ins, const std::vector<Buffer>& outs) -> Stmt {
    const Expr many = ir::LessEqual(Expr(kManyBlockRows), outs[0].shape()[0]);
    if (a.bytes || ir::IsIntValue(many, 0)) return BlockLoops(a, ins, outs[0]).Run();
    if (ir::IsIntValue(many, 1)) return ManyBlockRows(a, ins, outs[0]);
    return tir::IfThenElse(many, ManyBlockRows(a, ins, outs[0]), BlockLoops(a, ins, outs[0]).Run());
  };
  return tir::Opaque({{"block_matmul", in.OutShape(), in.OutDtype()}}, inputs, body,
                     "block_matmul");
}

}  // namespace

OpDef rvm_block_matmul() {
  return Define<BlockMatmul>({
      .name = "rvm.block_matmul",
      .doc = "x times a matrix of small integers in blocks along the sum, each with a scale and a "
             "zero point.",
      .args = {{"x", "[m, k] of float32."},
               {"words",
                "[strips, k bits / 32, 16] of int32: codes of the columns of each strip of 16.  "
                "Number 4 p + b of a word's codes begins at bit 8 b + bits p."},
               {"scales", "[strips, blocks, 16] of float32; a block is a multiple of 16 codes."},
               {"zeros", "[strips, blocks, 16]: the codes that are 0; else 2 ** (bits - 1).",
                ArgKind::kTensor, true}},
      .attrs = {{"bits", &BlockMatmul::bits, "Of a code: 2, 4 or 8."},
                {"columns", &BlockMatmul::columns,
                 "Of the result; what strips have more is not read."},
                {"bytes", &BlockMatmul::bytes,
                 "Each block of a row of x is rounded to -127..127 steps, the greatest element "
                 "being 127."}},
      .reference = "out = block_matmul(x, words, scales, zeros, bits, columns, bytes)",
      .samples = {{{"x: f32[9, =32]", "words: i32[=5, =4, =16]", "scales: f32[=5, =2, =16]",
                    "zeros: f32[=5, =2, =16]", "columns=78"}},
                  {{"x: f32[2, =64]", "words: i32[=1, =8, =16]", "scales: f32[=1, =2, =16]",
                    "columns=16"}},
                  {{"x: f32[4, =32]", "words: i32[=6, =2, =16]", "scales: f32[=6, =1, =16]",
                    "bits=2", "columns=96"}},
                  {{"x: f32[3, =32]", "words: i32[=2, =8, =16]",
                    "scales: f32[=2, =2, =16] in 0..0.05", "zeros: f32[=2, =2, =16]", "bits=8",
                    "columns=19"}},
                  {{"x: f32[8, =64]", "words: i32[=6, =8, =16]", "scales: f32[=6, =2, =16]",
                    "zeros: f32[=6, =2, =16]", "columns=90", "bytes=True"}},
                  {{"x: f32[5, =32]", "words: i32[=3, =8, =16]",
                    "scales: f32[=3, =1, =16] in 0..0.05", "bits=8", "columns=48", "bytes=True"}}},
      .type = InferBlockMatmul,
      .compute = ComputeBlockMatmul,
  });
}

}  // namespace relaxvm::ops
