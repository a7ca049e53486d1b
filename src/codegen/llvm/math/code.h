// SPDX-License-Identifier: Apache-2.0
// A notation for straight-line numeric code: values of one lane count with the usual operators,
// each of which emits one instruction.  Comparisons give masks for Select.
#pragma once

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>

#include <cstdint>
#include <span>

#include "codegen/llvm/math/emit.h"
#include "codegen/llvm/ops.h"

namespace relaxvm::codegen::math {

// What values of one computation share.
struct Code {
  llvm::IRBuilder<>& b;
  const TargetTraits& traits;
  llvm::Type* type;  // float or double, or a vector of it

  Code(llvm::IRBuilder<>& builder, const TargetTraits& t, llvm::Type* number)
      : b(builder), traits(t), type(number) {}
  bool IsDouble() const { return type->getScalarType()->isDoubleTy(); }
  llvm::Type* BitsType() const {
    return LikeShape(type, IsDouble() ? b.getInt64Ty() : b.getInt32Ty());
  }
  llvm::Value* Number(double x) const { return llvm::ConstantFP::get(type, x); }
  llvm::Value* Bits(uint64_t x) const {
    return llvm::ConstantInt::get(BitsType(), x, /*IsSigned=*/false, /*ImplicitTrunc=*/true);
  }
};

// A number (float or double).
struct Num {
  llvm::Value* v = nullptr;
  Code* c = nullptr;
};
// Bits of a number, or an integer of its width.
struct Word {
  llvm::Value* v = nullptr;
  Code* c = nullptr;
};
struct Mask {
  llvm::Value* v = nullptr;
  Code* c = nullptr;
};

inline Num Of(Code& c, double x) { return {c.Number(x), &c}; }
inline Word WordOf(Code& c, uint64_t x) { return {c.Bits(x), &c}; }

inline Num operator+(Num a, Num b) { return {a.c->b.CreateFAdd(a.v, b.v), a.c}; }
inline Num operator-(Num a, Num b) { return {a.c->b.CreateFSub(a.v, b.v), a.c}; }
inline Num operator*(Num a, Num b) { return {a.c->b.CreateFMul(a.v, b.v), a.c}; }
inline Num operator/(Num a, Num b) { return {a.c->b.CreateFDiv(a.v, b.v), a.c}; }
inline Num operator+(Num a, double b) { return a + Of(*a.c, b); }
inline Num operator-(Num a, double b) { return a - Of(*a.c, b); }
inline Num operator*(Num a, double b) { return a * Of(*a.c, b); }
inline Num operator+(double a, Num b) { return Of(*b.c, a) + b; }
inline Num operator-(double a, Num b) { return Of(*b.c, a) - b; }
inline Num operator*(double a, Num b) { return Of(*b.c, a) * b; }
inline Num operator/(double a, Num b) { return Of(*b.c, a) / b; }
inline Num operator-(Num a) { return {a.c->b.CreateFNeg(a.v), a.c}; }

inline Mask operator<(Num a, Num b) { return {a.c->b.CreateFCmpOLT(a.v, b.v), a.c}; }
inline Mask operator>(Num a, Num b) { return b < a; }
inline Mask operator==(Num a, Num b) { return {a.c->b.CreateFCmpOEQ(a.v, b.v), a.c}; }
inline Mask operator<(Num a, double b) { return a < Of(*a.c, b); }
inline Mask operator>(Num a, double b) { return a > Of(*a.c, b); }
inline Mask operator==(Num a, double b) { return a == Of(*a.c, b); }
inline Mask operator&(Mask a, Mask b) { return {a.c->b.CreateAnd(a.v, b.v), a.c}; }
inline Mask operator|(Mask a, Mask b) { return {a.c->b.CreateOr(a.v, b.v), a.c}; }
inline Mask operator!(Mask a) { return {a.c->b.CreateNot(a.v), a.c}; }
inline Mask IsNan(Num a) { return {a.c->b.CreateFCmpUNO(a.v, a.v), a.c}; }

inline Word operator+(Word a, Word b) { return {a.c->b.CreateAdd(a.v, b.v), a.c}; }
inline Word operator-(Word a, Word b) { return {a.c->b.CreateSub(a.v, b.v), a.c}; }
inline Word operator&(Word a, Word b) { return {a.c->b.CreateAnd(a.v, b.v), a.c}; }
inline Word operator|(Word a, Word b) { return {a.c->b.CreateOr(a.v, b.v), a.c}; }
inline Word operator^(Word a, Word b) { return {a.c->b.CreateXor(a.v, b.v), a.c}; }
inline Word operator<<(Word a, unsigned n) { return {a.c->b.CreateShl(a.v, a.c->Bits(n)), a.c}; }
inline Word operator>>(Word a, unsigned n) {
  return {a.c->b.CreateAShr(a.v, a.c->Bits(n)), a.c};
}  // keeps the sign
inline Mask IsZero(Word a) { return {a.c->b.CreateICmpEQ(a.v, a.c->Bits(0)), a.c}; }

inline Word BitsOf(Num a) { return {a.c->b.CreateBitCast(a.v, a.c->BitsType()), a.c}; }
inline Num FromBits(Word a) { return {a.c->b.CreateBitCast(a.v, a.c->type), a.c}; }
inline Num Select(Mask m, Num a, Num b) { return {a.c->b.CreateSelect(m.v, a.v, b.v), a.c}; }
inline Num Select(Mask m, Num a, double b) { return Select(m, a, Of(*a.c, b)); }
inline Num Select(Mask m, double a, Num b) { return Select(m, Of(*b.c, a), b); }
inline Word Select(Mask m, Word a, Word b) { return {a.c->b.CreateSelect(m.v, a.v, b.v), a.c}; }
inline Mask IsNegative(Num a) {
  return {a.c->b.CreateICmpSLT(BitsOf(a).v, a.c->Bits(0)), a.c};
}  // by the sign: of zeros and NaNs too
inline Num Abs(Num a) { return {a.c->b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, a.v), a.c}; }
inline Num Sqrt(Num a) { return {a.c->b.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, a.v), a.c}; }
inline Num WithSign(Num magnitude, Num sign) {
  return {sign.c->b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, magnitude.v, sign.v), sign.c};
}
// a * b + c
inline Num Fma(Num a, Num b, Num c) { return {MulAdd(a.v, b.v, c.v, a.c->b, a.c->traits), a.c}; }
inline Num Fma(Num a, double b, Num c) { return Fma(a, Of(*a.c, b), c); }
// Keeps a NaN.
inline Num Clamp(Num x, double low, double high) {
  x = Select(Of(*x.c, low) > x, low, x);
  return Select(Of(*x.c, high) < x, high, x);
}

// A constant that an instruction reads from memory where registers are few: held in registers, all
// constants of a long formula push each other out of them.
Num InMemory(Code& c, double x);

// Highest power first.
inline Num Horner(Num x, std::span<const double> coefficients) {
  Num sum = InMemory(*x.c, coefficients[0]);
  for (double c : coefficients.subspan(1)) sum = Fma(sum, x, InMemory(*x.c, c));
  return sum;
}

// 2^n for n in the range of normal exponents (one above gives infinity, one below 0).
inline Num PowerOfTwo(Word n) {
  Code& c = *n.c;
  return c.IsDouble() ? FromBits((n + WordOf(c, 1023)) << 52)
                      : FromBits((n + WordOf(c, 127)) << 23);
}
// x * 2^n for any n: in two steps, so that the result may be denormal or infinite.
inline Num Scale(Num x, Word n) {
  Word half = n >> 1;
  return x * PowerOfTwo(half) * PowerOfTwo(n - half);
}
// The nearest integer to x (|x| < 2^21), as a number and as an integer.
struct Nearest {
  Num number;
  Word integer;
};
inline Nearest NearestInteger(Num x) {
  Code& c = *x.c;
  Num magic = Of(c, c.IsDouble() ? 0x1.8p52 : 0x1.8p23);
  Num shifted = x + magic;
  return {shifted - magic, BitsOf(shifted) - BitsOf(magic)};
}
// x * 2^n where the vector unit has an instruction for it (rounded like Scale), else null.
llvm::Value* ScaleByInstruction(Code& c, llvm::Value* x, llvm::Value* n);
inline Num Scale(Num x, const Nearest& n) {
  llvm::Value* scaled = ScaleByInstruction(*x.c, x.v, n.number.v);
  return scaled ? Num{scaled, x.c} : Scale(x, n.integer);
}
// Replaces the lanes of `usual` where `rare` holds by exact(args), behind a branch that is seldom
// taken. `name` is that of a function made once in a module.
Num Seldom(Mask rare, llvm::ArrayRef<Num> args, Num usual, const char* name,
           Num (*exact)(llvm::ArrayRef<Num>));
// The integer n (|n| < 2^21) as a number.
inline Num ToNumber(Word n) {
  Code& c = *n.c;
  Num magic = Of(c, c.IsDouble() ? 0x1.8p52 : 0x1.8p23);
  return FromBits(n + BitsOf(magic)) - magic;
}

// A number as an unevaluated sum: twice the digits.
struct Pair {
  Num high, low;
};
inline Pair TwoSum(Num a, Num b) {
  Num s = a + b;
  Num t = s - a;
  return {s, (a - (s - t)) + (b - t)};
}
// Needs |a| >= |b|.
inline Pair QuickTwoSum(Num a, Num b) {
  Num s = a + b;
  return {s, b - (s - a)};
}
inline Pair TwoProduct(Num a, Num b) {
  Num p = a * b;
  if (a.c->traits.fma) return {p, Fma(a, b, -p)};
  // Halves of 26 bits multiply exactly.
  double split = a.c->IsDouble() ? 0x1p27 + 1 : 0x1p12 + 1;
  auto halve = [split](Num x) {
    Num t = x * split;
    Num high = t - (t - x);
    return Pair{high, x - high};
  };
  Pair x = halve(a), y = halve(b);
  return {p, ((x.high * y.high - p) + x.high * y.low + x.low * y.high) + x.low * y.low};
}

// ---- functions of doubles, each within a few units of the last place --------------------------

Num Exp(Num x);
Num ExpOfPair(Num high, Num low);  // exp(high + low)
Num Exp2(Num x);
Num Expm1(Num x);
Num Log(Num x);
Num Log2(Num x);
Num Log10(Num x);
Num Log1p(Num x);
Num Sinh(Num x);
Num Cosh(Num x);
Num Tanh(Num x);
Num Asinh(Num x);
Num Acosh(Num x);
Num Atanh(Num x);
Num Sigmoid(Num x);
Num Erf(Num x);
Num Erfc(Num x);
Num ErfInverse(Num x);
Num LogGamma(Num x);
Num Digamma(Num x);
Num Gelu(Num x);
Num Pow(Num x, Num y);
// The sign and the special values of |x|^y = `magnitude`, which is right for finite x other than 0.
Num PowOfMagnitude(Num x, Num y, Num magnitude);
Num Sin(Num x);
Num Cos(Num x);
Num Tan(Num x);
Num Asin(Num x);
Num Acos(Num x);
Num Atan(Num x);
Num Atan2(Num y, Num x);

// ---- functions of floats that have code of their own; the others go through double ------------

// Functions in pieces whose coefficients lie in registers, one for each lane.  Null where no
// instruction picks lanes out of a register (AVX-512 and AVX2 do).
llvm::Value* ByTable(ir::Intrin intrin, Num x);

Num ExpF(Num x);
Num ExpOfNegativeF(Num x);  // for x <= 0 or a NaN: the bits of ExpF
Num ExpOfPairF(Pair x);     // exp(high + low), for a high from -110 to 88
Num Exp2F(Num x);
Num Expm1F(Num x);
Num LogF(Num x);
Num Log2F(Num x);
Num Log10F(Num x);
Num Log1pF(Num x);
Num TanhF(Num x);
Num SigmoidF(Num x);
Num ErfF(Num x);
Num ErfcF(Num x);
Num ErfInverseF(Num x);
Num GeluF(Num x);
Num SinF(Num x);
Num CosF(Num x);
Num TanF(Num x);
Num SinhF(Num x);
Num CoshF(Num x);
Num AtanhF(Num x);
Num AsinF(Num x);
Num AcosF(Num x);
Num AtanF(Num x);
Num PowF(Num x, Num y);

// x to the y by a few instructions, where y is a constant for which that is possible; else null.
llvm::Value* PowOfConstant(Num x, llvm::Value* y);

}  // namespace relaxvm::codegen::math
