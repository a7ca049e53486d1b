// SPDX-License-Identifier: Apache-2.0
// Functions of floats in 16 pieces (AVX-512) or 8 (AVX2): each is a short polynomial around the
// middle of its piece, and each of its coefficients is picked out of a register by one instruction.
// Half the instructions of one polynomial with a division or an exponential for the whole range.
// Pieces are short where the function is steep, which saves a term or two.  (Two registers for each
// coefficient would save one more, but that instruction takes up to twice as long.)
#include <llvm/IR/Constants.h>
#include <llvm/IR/IntrinsicsX86.h>

#include "codegen/llvm/math/code.h"
#include "codegen/llvm/math/tables.h"

namespace relaxvm::codegen::math {
namespace {

using llvm::Value;

constexpr double kMagic =
    0x1.8p23;  // added to a number, leaves the nearest integer in its last bits

template <int kCount>
llvm::Constant* Row(Code& c, const float* table) {
  return llvm::ConstantDataVector::get(c.b.getContext(), llvm::ArrayRef<float>(table, kCount));
}
// table[index modulo its size] in each lane
Num Pick(Code& c, const float (&table)[8], Value* index) {
  return {c.b.CreateIntrinsic(llvm::Intrinsic::x86_avx2_permps, {}, {Row<8>(c, table), index}), &c};
}
Num Pick(Code& c, const float (&table)[16], Value* index) {
  return {c.b.CreateIntrinsic(llvm::Intrinsic::x86_avx512_permvar_sf_512, {},
                              {Row<16>(c, table), index}),
          &c};
}
Num Pick(Code& c, const float (&table)[32], Value* index) {
  return {c.b.CreateIntrinsic(llvm::Intrinsic::x86_avx512_vpermi2var_ps_512, {},
                              {Row<16>(c, table), index, Row<16>(c, table + 16)}),
          &c};
}

// `more` + the function at `a` in [0, limit].
template <int kTerms, int kCount>
Num InPieces(Num a, const Pieces<kTerms, kCount>& pieces, const Num* more = nullptr) {
  Code& c = *a.c;
  Num shifted = Fma(a, Fma(a, pieces.bend, Of(c, pieces.slope)), Of(c, kMagic));
  Value* index = BitsOf(shifted).v;
  Num d = a - Pick(c, pieces.centers, index);
  // The last addition is not at the end of the chain.
  Num first = Pick(c, pieces.terms[0], index);
  if (more != nullptr) first = first + *more;
  Num sum = Pick(c, pieces.terms[kTerms - 1], index);
  for (int term = kTerms - 1; term-- > 1;) sum = Fma(sum, d, Pick(c, pieces.terms[term], index));
  return Fma(sum, d, first);
}

Num UpTo(Num a, double limit) { return Select(Of(*a.c, limit) < a, limit, a); }  // keeps a NaN
// Of |x| and `limit` the lesser one, in registers of 16 lanes; of a NaN the limit.
enum class Sign : uint8_t { kOfResult = 0b01, kNone = 0b10 };
Num LeastMagnitude(Num x, double limit, Sign sign) {
  Code& c = *x.c;
  constexpr uint32_t kLeastMagnitude = 0b10, kRoundAsSet = 4;
  const uint32_t kind = (static_cast<uint32_t>(sign) << 2) | kLeastMagnitude;
  return {c.b.CreateIntrinsic(
              llvm::Intrinsic::x86_avx512_mask_range_ps_512, {},
              {x.v, c.Number(limit), c.b.getInt32(kind), llvm::Constant::getNullValue(c.type),
               llvm::Constant::getAllOnesValue(c.b.getInt16Ty()), c.b.getInt32(kRoundAsSet)}),
          &c};
}

// 2^n 2^(k/32) e^r with n + k/32 + r log2(e) = x: two terms are enough for r.  Where x is too large
// for that, k and r mean nothing, and n alone, which may be infinite or a NaN, makes the result.
Num ExpByTable(Num x) {
  Code& c = *x.c;
  // ln 2 in two parts; x - n * kLn2High is exact.
  constexpr double kLn2High = 0x1.62e430p-1, kLn2Low = -0x1.05c610p-29;
  // e^r = 1 + r + r^2 / 2 + r^3 / 6, the last term spread over |r| <= ln 2 / 64: error 5.3e-8.
  constexpr double kFirst = 1.0000146630, kSecond = 0.50000489;
  Num shifted = Fma(x, 1.4426950408889634, Of(c, kMagic / 32));
  Num n = shifted - kMagic / 32;
  Num r = LeastMagnitude(Fma(n, -kLn2Low, Fma(n, -kLn2High, x)), 1, Sign::kOfResult);
  Num power = Pick(c, kPowersOfTwo, BitsOf(shifted).v);
  Num result = Fma(power, r * Fma(r, kSecond, Of(c, kFirst)), power);
  return {ScaleByInstruction(c, result.v, n.v), &c};  // takes n down to an integer
}

// The function at |x| up to the limit, by the table for 16 lanes or for 8.  With `more`, which is
// added and shall hold a NaN of x, in fewer instructions.
template <int kTerms16, int kTerms8>
Num AtMagnitude(Num x, const Pieces<kTerms16, 16>& wide, const Pieces<kTerms8, 8>& narrow,
                const Num* more = nullptr) {
  const bool is_wide = x.c->traits.vector_bits == 512;
  const double limit = is_wide ? wide.limit : narrow.limit;
  Num a = is_wide && more != nullptr ? LeastMagnitude(x, limit, Sign::kNone) : UpTo(Abs(x), limit);
  return is_wide ? InPieces(a, wide, more) : InPieces(a, narrow, more);
}

Num ErfByTable(Num x) { return WithSign(AtMagnitude(x, kErf16, kErf8), x); }

Num TanhByTable(Num x) { return WithSign(InPieces(UpTo(Abs(x), kTanh16.limit), kTanh16), x); }

// top / (1 + e^-|x|), with e^-|x| at the top for a negative x
Num SigmoidByTable(Num x) {
  Code& c = *x.c;
  Num e = ExpByTable(-Abs(x));
  Num sum = 1.0 + e;
  llvm::Value* guess = c.b.CreateIntrinsic(llvm::Intrinsic::x86_avx512_rcp14_ps_512, {},
                                           {sum.v, llvm::Constant::getNullValue(c.type),
                                            llvm::Constant::getAllOnesValue(c.b.getInt16Ty())});
  Num t{guess, &c};
  t = Fma(t, Fma(-sum, t, Of(c, 1.0)), t);
  return t * Select(x < 0.0, e, 1.0);
}

Num GeluByTable(Num x) {
  static_assert(kGelu16.limit == kGelu8.limit);
  Num above = Select(x < 0.0, 0.0, x);  // keeps a NaN
  Num usual = AtMagnitude(x, kGelu16, kGelu8, &above);
  return Seldom(x < -kGelu16.limit, x, usual, "gelu",
                [](llvm::ArrayRef<Num> args) { return GeluF(args[0]); });
}

using Function = Num (*)(Num);

Function FunctionOf(ir::Intrin intrin, bool wide) {
  switch (intrin) {
    case ir::Intrin::kExp:
    case ir::Intrin::kExpOfNegative: return wide ? ExpByTable : nullptr;
    case ir::Intrin::kErf: return ErfByTable;
    case ir::Intrin::kTanh: return wide ? TanhByTable : nullptr;
    case ir::Intrin::kSigmoid: return wide ? SigmoidByTable : nullptr;
    case ir::Intrin::kGelu: return GeluByTable;
    default: return nullptr;  // no table
  }
}

}  // namespace

// Any number of lanes goes through whole registers, so that a value has one result whatever the
// width of the loop it is met in.
Value* ByTable(ir::Intrin intrin, Num x) {
  Code& c = *x.c;
  if (!c.traits.picks || c.IsDouble()) return nullptr;
  const Function function = FunctionOf(intrin, c.traits.vector_bits == 512);
  if (function == nullptr) return nullptr;
  const unsigned own_lanes = c.traits.vector_bits / 32;
  llvm::IRBuilder<>& b = c.b;
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(c.type);
  const unsigned lanes = vector ? vector->getNumElements() : 1;
  auto* register_type = llvm::FixedVectorType::get(b.getFloatTy(), own_lanes);
  Code code(b, c.traits, register_type);
  auto run = [&](Value* v) { return function({v, &code}).v; };
  if (lanes == own_lanes) return run(x.v);
  Value* zeros = llvm::Constant::getNullValue(register_type);
  if (!vector) {
    Value* wide = b.CreateInsertElement(zeros, x.v, uint64_t{0});
    return b.CreateExtractElement(run(wide), uint64_t{0});
  }
  Value* all = llvm::PoisonValue::get(vector);
  llvm::SmallVector<int, 64> picks(own_lanes);
  for (unsigned from = 0; from < lanes; from += own_lanes) {
    for (unsigned i = 0; i < own_lanes; ++i)  // past the end: a zero
      picks[i] = static_cast<int>(from + i < lanes ? from + i : lanes);
    Value* part = b.CreateShuffleVector(x.v, llvm::Constant::getNullValue(vector), picks);
    Value* result = run(part);
    llvm::SmallVector<int, 64> widened(lanes, -1), merged(lanes);
    for (unsigned i = 0; i < lanes; ++i) {
      const bool own = i >= from && i < from + own_lanes;
      if (own) widened[i] = static_cast<int>(i - from);
      merged[i] = static_cast<int>(own ? lanes + i : i);
    }
    all = b.CreateShuffleVector(all, b.CreateShuffleVector(result, widened), merged);
  }
  return all;
}

}  // namespace relaxvm::codegen::math
