// SPDX-License-Identifier: Apache-2.0
// A formula is recognised by taking its operands out and writing it again.
#include "tir/dot.h"

#include "ir/data_type.h"
#include "ir/visitor.h"

namespace relaxvm::tir {
namespace {

using ir::Binary;
using ir::BinaryObj;
using ir::BinaryOp;
using ir::Expr;
using ir::Intrin;
using ir::IntrinExpr;

Expr Number(const Expr& like, int64_t value) { return ir::Const(like.dtype(), value); }

Expr UnsignedByte(const Expr& word, int i) {
  Expr down = i == 0 ? word : Expr(Binary(BinaryOp::kShiftRight, word, Number(word, 8 * i)));
  return Binary(BinaryOp::kBitAnd, down, Number(word, 255));
}

Expr SignedByte(const Expr& word, int i) {
  Expr up = i == 3 ? word : Expr(Binary(BinaryOp::kShiftLeft, word, Number(word, 24 - 8 * i)));
  return Binary(BinaryOp::kShiftRight, up, Number(word, 24));
}

Expr SignedHalf(const Expr& word, bool high) {
  Expr up = high ? word : Expr(Binary(BinaryOp::kShiftLeft, word, Number(word, 16)));
  return Binary(BinaryOp::kShiftRight, up, Number(word, 16));
}

Expr Half(const Expr& word, bool high) {
  Expr bits = high ? Binary(BinaryOp::kBitAnd, word, Number(word, -65536))
                   : Binary(BinaryOp::kShiftLeft, word, Number(word, 16));
  return IntrinExpr(WithLanes(Float(32), word.dtype().lanes), Intrin::kReinterpret, {bits});
}

const BinaryObj* AsBinary(const Expr& e, BinaryOp op) {
  const auto* binary = e.as<BinaryObj>();
  return binary != nullptr && binary->op == op ? binary : nullptr;
}

const ir::IntrinObj* AsIntrin(const Expr& e, Intrin intrin) {
  const auto* call = e.as<ir::IntrinObj>();
  return call != nullptr && call->intrin == intrin ? call : nullptr;
}

using ByteOf = Expr (*)(const Expr& word, int i);

Expr Products(Expr sum, const Expr& a, const Expr& b, ByteOf of_a) {
  for (int i = 0; i < 4; ++i) {
    sum = Binary(BinaryOp::kAdd, sum, Binary(BinaryOp::kMul, of_a(a, i), SignedByte(b, i)));
  }
  return sum;
}

// The word that `byte`, the last one, was taken from.
Expr WordOf(const Expr& byte, bool is_signed) {
  const BinaryObj* cut = is_signed ? nullptr : AsBinary(byte, BinaryOp::kBitAnd);
  const BinaryObj* down = AsBinary(cut != nullptr ? cut->a : byte, BinaryOp::kShiftRight);
  return down != nullptr ? down->a : Expr();
}

std::optional<Dot> AsProducts(const Expr& e, ByteOf of_a, bool is_signed) {
  const BinaryObj* last = AsBinary(e, BinaryOp::kAdd);
  const BinaryObj* product = last != nullptr ? AsBinary(last->b, BinaryOp::kMul) : nullptr;
  if (product == nullptr || ElementOf(e.dtype()) != Int(32)) return std::nullopt;
  const Expr a = WordOf(product->a, is_signed), b = WordOf(product->b, /*is_signed=*/true);
  if (!a.defined() || !b.defined()) return std::nullopt;
  Expr sum = e;
  for (int i = 0; i < 4; ++i) {
    const BinaryObj* add = AsBinary(sum, BinaryOp::kAdd);
    if (add == nullptr) return std::nullopt;
    sum = add->a;
  }
  if (!ir::StructuralEqual(Products(sum, a, b, of_a), e)) return std::nullopt;
  return Dot{sum, a, b};
}

}  // namespace

Expr DotOfBytes(const Expr& sum, const Expr& a, const Expr& b) {
  return Products(sum, a, b, UnsignedByte);
}

std::optional<Dot> AsDotOfBytes(const Expr& e) { return AsProducts(e, UnsignedByte, false); }

Expr DotOfSignedBytes(const Expr& sum, const Expr& a, const Expr& b) {
  return Products(sum, a, b, SignedByte);
}

std::optional<Dot> AsDotOfSignedBytes(const Expr& e) { return AsProducts(e, SignedByte, true); }

Expr DotOfBytePairs(const Expr& sum, const Expr& a, const Expr& b) {
  auto product = [&](int i) -> Expr {
    return Binary(BinaryOp::kMul, UnsignedByte(a, i), SignedByte(b, i));
  };
  auto pair = [&](int i) -> Expr {
    const Expr both = Binary(BinaryOp::kAdd, product(i), product(i + 1));
    const Expr below = Binary(BinaryOp::kMin, both, Number(both, 32767));
    return Binary(BinaryOp::kMax, below, Number(both, -32768));
  };
  return Binary(BinaryOp::kAdd, sum, Binary(BinaryOp::kAdd, pair(0), pair(2)));
}

std::optional<Dot> AsDotOfBytePairs(const Expr& e) {
  const BinaryObj* all = AsBinary(e, BinaryOp::kAdd);
  const BinaryObj* pairs = all != nullptr ? AsBinary(all->b, BinaryOp::kAdd) : nullptr;
  const BinaryObj* above = pairs != nullptr ? AsBinary(pairs->b, BinaryOp::kMax) : nullptr;
  const BinaryObj* below = above != nullptr ? AsBinary(above->a, BinaryOp::kMin) : nullptr;
  const BinaryObj* both = below != nullptr ? AsBinary(below->a, BinaryOp::kAdd) : nullptr;
  const BinaryObj* last = both != nullptr ? AsBinary(both->b, BinaryOp::kMul) : nullptr;
  if (last == nullptr || ElementOf(e.dtype()) != Int(32)) return std::nullopt;
  const Expr a = WordOf(last->a, /*is_signed=*/false), b = WordOf(last->b, /*is_signed=*/true);
  if (!a.defined() || !b.defined()) return std::nullopt;
  if (!ir::StructuralEqual(DotOfBytePairs(all->a, a, b), e)) return std::nullopt;
  return Dot{all->a, a, b};
}

Expr DotOfHalves(const Expr& sum, const Expr& a, const Expr& b) {
  Expr result = sum;
  for (bool high : {false, true}) {
    const Expr product = Binary(BinaryOp::kMul, SignedHalf(a, high), SignedHalf(b, high));
    result = Binary(BinaryOp::kAdd, result, product);
  }
  return result;
}

std::optional<Dot> AsDotOfHalves(const Expr& e) {
  const BinaryObj* last = AsBinary(e, BinaryOp::kAdd);
  const BinaryObj* product = last != nullptr ? AsBinary(last->b, BinaryOp::kMul) : nullptr;
  const BinaryObj* first = product != nullptr ? AsBinary(last->a, BinaryOp::kAdd) : nullptr;
  if (first == nullptr || ElementOf(e.dtype()) != Int(32)) return std::nullopt;
  const Expr a = WordOf(product->a, /*is_signed=*/true), b = WordOf(product->b, true);
  if (!a.defined() || !b.defined()) return std::nullopt;
  if (!ir::StructuralEqual(DotOfHalves(first->a, a, b), e)) return std::nullopt;
  return Dot{first->a, a, b};
}

Halves HalvesOfBytes(const Expr& words, bool is_signed) {
  if (!is_signed) {
    const Expr low = Number(words, 0x00ff00ff);
    return {Binary(BinaryOp::kBitAnd, words, low),
            Binary(BinaryOp::kBitAnd, Binary(BinaryOp::kShiftRight, words, Number(words, 8)), low)};
  }
  const DLDataType type = Int(16, 2 * words.dtype().lanes);
  const Expr halves = IntrinExpr(type, Intrin::kReinterpret, {words}), eight = Number(halves, 8);
  auto down = [&](const Expr& bits) -> Expr {
    return IntrinExpr(words.dtype(), Intrin::kReinterpret,
                      {Binary(BinaryOp::kShiftRight, bits, eight)});
  };
  return {down(Binary(BinaryOp::kShiftLeft, halves, eight)), down(halves)};
}

Expr WordsOfBytes(const std::vector<Expr>& bytes, int bits) {
  Expr words;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const int lanes = bytes[i].dtype().lanes;
    Expr byte = ir::CallIntrin(UInt(8, lanes), Intrin::kReinterpret, {bytes[i]});
    byte = ir::Cast(Int(bits, lanes), byte);
    if (i > 0) {
      const Expr by = ir::BroadcastExpr(ir::Const(Int(bits), static_cast<int64_t>(8 * i)), lanes);
      byte = ir::Binary(BinaryOp::kShiftLeft, byte, by);
    }
    words = i == 0 ? byte : Expr(ir::Binary(BinaryOp::kBitOr, words, byte));
  }
  return words;
}

Expr DotOfPairs(const Expr& sum, const Expr& a, const Expr& b) {
  Expr result = sum;
  for (bool high : {false, true}) {
    result = IntrinExpr(sum.dtype(), Intrin::kFma, {Half(a, high), Half(b, high), result});
  }
  return result;
}

std::optional<Dot> AsDotOfPairs(const Expr& e) {
  const ir::IntrinObj* high = AsIntrin(e, Intrin::kFma);
  const ir::IntrinObj* low = high != nullptr ? AsIntrin(high->args[2], Intrin::kFma) : nullptr;
  if (low == nullptr || ElementOf(e.dtype()) != Float(32)) return std::nullopt;
  auto word = [](const Expr& half) {
    const ir::IntrinObj* call = AsIntrin(half, Intrin::kReinterpret);
    const BinaryObj* bits = call != nullptr ? AsBinary(call->args[0], BinaryOp::kBitAnd) : nullptr;
    return bits != nullptr ? bits->a : Expr();
  };
  const Expr a = word(high->args[0]), b = word(high->args[1]);
  if (!a.defined() || !b.defined()) return std::nullopt;
  if (!ir::StructuralEqual(DotOfPairs(low->args[2], a, b), e)) return std::nullopt;
  return Dot{low->args[2], a, b};
}

}  // namespace relaxvm::tir
