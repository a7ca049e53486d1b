// SPDX-License-Identifier: Apache-2.0
// Functions of floats in 16 pieces: each is a short polynomial around the middle of its piece, and
// each of its coefficients is picked out of a register by one instruction.  Half the instructions
// of one polynomial with a division or an exponential for the whole range.  (32 pieces, out of two
// registers, save one term of eight, but that instruction takes twice as long.)
#include <llvm/IR/Constants.h>
#include <llvm/IR/IntrinsicsX86.h>

#include "codegen/llvm/math_code.h"
#include "codegen/llvm/math_tables.h"

namespace relaxvm::codegen::math {
namespace {

using llvm::Value;

constexpr unsigned kLanes = 16;
constexpr double kMagic =
    0x1.8p23;  // added to a number, leaves the nearest integer in its last bits

llvm::Constant* Row(Code& c, const float* table) {
  return llvm::ConstantDataVector::get(c.b.getContext(), llvm::ArrayRef<float>(table, kLanes));
}
// table[index modulo 16] in each lane
Num Pick(Code& c, const float (&table)[16], Value* index) {
  return {
      c.b.CreateIntrinsic(llvm::Intrinsic::x86_avx512_permvar_sf_512, {}, {Row(c, table), index}),
      &c};
}
// table[index modulo 32]
Num Pick(Code& c, const float (&table)[32], Value* index) {
  return {c.b.CreateIntrinsic(llvm::Intrinsic::x86_avx512_vpermi2var_ps_512, {},
                              {Row(c, table), index, Row(c, table + kLanes)}),
          &c};
}

// The function at `a` in [0, 15.5 step].
template <int kTerms>
Num InPieces(Num a, double step, const float (&pieces)[kTerms][kLanes]) {
  Code& c = *a.c;
  const double inverse = static_cast<double>(static_cast<float>(1 / step));
  Num shifted = Fma(a, inverse, Of(c, kMagic));
  Value* index = BitsOf(shifted).v;
  Num d = Fma(shifted - kMagic, -step, a);
  Num sum = Pick(c, pieces[kTerms - 1], index);
  for (int term = kTerms - 1; term-- > 0;) sum = Fma(sum, d, Pick(c, pieces[term], index));
  return sum;
}

// The end of the last piece.
constexpr double EndOf(double step) { return step * 15.49; }

Num UpTo(Num a, double limit) { return Select(Of(*a.c, limit) < a, limit, a); }  // keeps a NaN

// 2^n 2^(k/32) e^r with n + k/32 + r log2(e) = x: two terms are enough for r.
Num ExpByTable(Num x) {
  Code& c = *x.c;
  // ln 2 in two parts; x - n * kLn2High is exact.
  constexpr double kLn2High = 0x1.62e430p-1, kLn2Low = -0x1.05c610p-29;
  // e^r = 1 + r + r^2 / 2 + r^3 / 6, the last term spread over |r| <= ln 2 / 64: error 5.3e-8.
  constexpr double kFirst = 1.0000146630, kSecond = 0.50000489;
  x = Clamp(x, -104.0, 89.0);
  Num shifted = Fma(x, 1.4426950408889634, Of(c, kMagic / 32));
  Num n = shifted - kMagic / 32;
  Num r = Fma(n, -kLn2Low, Fma(n, -kLn2High, x));
  Num power = Pick(c, kPowersOfTwo, BitsOf(shifted).v);
  Num result = Fma(power, r * Fma(r, kSecond, Of(c, kFirst)), power);
  return {ScaleByInstruction(c, result.v, n.v), &c};  // takes n down to an integer
}

Num ErfByTable(Num x) {
  return WithSign(InPieces(UpTo(Abs(x), EndOf(kErfStep)), kErfStep, kErfPieces), x);
}

Num TanhByTable(Num x) {
  return WithSign(InPieces(UpTo(Abs(x), EndOf(kTanhStep)), kTanhStep, kTanhPieces), x);
}

Num SigmoidByTable(Num x) {
  Num a = Abs(x);
  Num low = InPieces(UpTo(a, EndOf(kSigmoidStep)), kSigmoidStep, kSigmoidPieces);
  Num usual = Select(x < 0.0, low, 1.0 - low);
  return Seldom(x < -EndOf(kSigmoidStep), x, usual, "sigmoid", SigmoidF);
}

Num GeluByTable(Num x) {
  Num a = UpTo(Abs(x), EndOf(kGeluStep));
  Num usual = Select(x > 0.0, x, 0.0) - InPieces(a, kGeluStep, kGeluPieces);
  return Seldom(x < -EndOf(kGeluStep), x, usual, "gelu", GeluF);
}

using Function = Num (*)(Num);

Function FunctionOf(ir::Intrin intrin) {
  switch (intrin) {
    case ir::Intrin::kExp: return ExpByTable;
    case ir::Intrin::kErf: return ErfByTable;
    case ir::Intrin::kTanh: return TanhByTable;
    case ir::Intrin::kSigmoid: return SigmoidByTable;
    case ir::Intrin::kGelu: return GeluByTable;
    default: return nullptr;  // no table
  }
}

}  // namespace

// Any number of lanes goes through registers of 16, so that a value has one result whatever the
// width of the loop it is met in.
Value* ByTable(ir::Intrin intrin, Num x) {
  Code& c = *x.c;
  const Function function = FunctionOf(intrin);
  if (function == nullptr || c.traits.vector_bits != 512 || c.IsDouble()) return nullptr;
  llvm::IRBuilder<>& b = c.b;
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(c.type);
  const unsigned lanes = vector ? vector->getNumElements() : 1;
  auto* register_type = llvm::FixedVectorType::get(b.getFloatTy(), kLanes);
  Code code(b, c.traits, register_type);
  auto run = [&](Value* v) { return function({v, &code}).v; };
  if (lanes == kLanes) return run(x.v);
  Value* zeros = llvm::Constant::getNullValue(register_type);
  if (!vector) {
    Value* wide = b.CreateInsertElement(zeros, x.v, uint64_t{0});
    return b.CreateExtractElement(run(wide), uint64_t{0});
  }
  Value* all = llvm::PoisonValue::get(vector);
  llvm::SmallVector<int, 64> picks(kLanes);
  for (unsigned from = 0; from < lanes; from += kLanes) {
    for (unsigned i = 0; i < kLanes; ++i)  // past the end: a zero
      picks[i] = static_cast<int>(from + i < lanes ? from + i : lanes);
    Value* part = b.CreateShuffleVector(x.v, llvm::Constant::getNullValue(vector), picks);
    Value* result = run(part);
    llvm::SmallVector<int, 64> widened(lanes, -1), merged(lanes);
    for (unsigned i = 0; i < lanes; ++i) {
      const bool own = i >= from && i < from + kLanes;
      if (own) widened[i] = static_cast<int>(i - from);
      merged[i] = static_cast<int>(own ? lanes + i : i);
    }
    all = b.CreateShuffleVector(all, b.CreateShuffleVector(result, widened), merged);
  }
  return all;
}

}  // namespace relaxvm::codegen::math
