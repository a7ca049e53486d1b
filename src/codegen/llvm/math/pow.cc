// SPDX-License-Identifier: Apache-2.0
// Powers of floats: 2^(y log2 x) on doubles, whose range and digits are enough for both functions
// to be single polynomials.
#include <llvm/IR/Constants.h>

#include <limits>

#include "codegen/llvm/math/code.h"

namespace relaxvm::codegen::math {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// From tools/fit_math.py.
constexpr double kLog2Ratio[] = {0.075537903980134114, -0.14144788210587389, 0.14495052999815844,
                                 -0.14349039375280996, 0.15878356832510718,  -0.18027102577114941,
                                 0.20617283226751985,  -0.24045433696411998, 0.28853739437873953,
                                 -0.36067365531593958, 0.48089836017624590,  -0.72134752096315516,
                                 1.4426950408708794};
constexpr double kPowerOfTwo[] = {
    0.00015461467905285987, 0.0013400454984126324, 0.0096180566205010797, 0.055503271596476052,
    0.24022650922560760,    0.69314720673425031,   1.0000000000000000};

// log2(a) of a normal double to 35 bits, relative to the result also near a = 1.
Num Log2OfFloat(Num a) {
  Code& c = *a.c;
  Word k = (BitsOf(a) - BitsOf(Of(c, 0x1.6a09e667f3bcdp-1))) >> 52;
  Num f = FromBits(BitsOf(a) - (k << 52)) - 1.0;
  return Fma(f, Horner(f, kLog2Ratio), ToNumber(k));
}

// 2^t, rounded to float: so it may be subnormal, 0 or infinite.
Num FloatPowerOfTwo(Num t) {
  t = Clamp(t, -160.0, 160.0);
  Nearest n = NearestInteger(t);
  Num power = Horner(t - n.number, kPowerOfTwo);
  return FromBits(BitsOf(power) + (n.integer << 52));
}

// y is an integer; y is an odd integer.
Mask IsInteger(Num y) {
  return Num{RoundToInteger(Rounding::kTrunc, y.v, y.c->b, y.c->traits), y.c} == y;
}
Mask IsOddInteger(Num y) {
  const double even = y.c->IsDouble() ? 0x1p53 : 0x1p24;  // every number from here on is
  return IsInteger(y) & !IsInteger(y * 0.5) & (Abs(y) < even);
}

}  // namespace

// `magnitude` is |x|^y for 0 < |x| < infinity and finite y.
Num PowOfMagnitude(Num x, Num y, Num magnitude) {
  Num a = Abs(x);
  // |x| is 0 or infinite, or y is infinite: 0 or infinity.
  Mask grows = {x.c->b.CreateXor((y > 0.0).v, (a < 1.0).v), x.c};
  Num limit = Select(grows, kInfinity, Of(*x.c, 0.0));
  Mask at_end = (a == 0.0) | (a == kInfinity) | (Abs(y) == kInfinity);
  Num result = Select(a == 1.0, 1.0, Select(at_end, limit, magnitude));
  result = WithSign(result, Select(IsOddInteger(y), x, 1.0));
  Mask finite = (x < 0.0) & (a < kInfinity) & (Abs(y) < kInfinity);
  result = Select(finite & !IsInteger(y), kNan, result);
  result = Select(IsNan(x) | IsNan(y), x + y, result);
  return Select((x == 1.0) | (y == 0.0), 1.0, result);
}

Num PowF(Num x, Num y) {
  Code& c = *x.c;
  Code wide(c.b, c.traits, LikeShape(c.type, c.b.getDoubleTy()));
  // Subnormal floats are normal doubles.
  Num a{c.b.CreateFPCast(Abs(x).v, wide.type), &wide};
  Num exponent{c.b.CreateFPCast(y.v, wide.type), &wide};
  Num power = FloatPowerOfTwo(exponent * Log2OfFloat(a));
  return PowOfMagnitude(x, y, {c.b.CreateFPCast(power.v, c.type), &c});
}

// x to a constant, where a few instructions give it; null where they do not.
llvm::Value* PowOfConstant(Num x, llvm::Value* y) {
  auto* constant = llvm::dyn_cast<llvm::Constant>(y);
  if (constant != nullptr && y->getType()->isVectorTy()) constant = constant->getSplatValue();
  auto* number = llvm::dyn_cast_or_null<llvm::ConstantFP>(constant);
  if (number == nullptr) return nullptr;
  const llvm::APFloat& exponent = number->getValueAPF();
  Num square = x * x;
  if (exponent.isExactlyValue(1)) return x.v;
  if (exponent.isExactlyValue(2)) return square.v;
  if (exponent.isExactlyValue(3)) return (square * x).v;
  if (exponent.isExactlyValue(4)) return (square * square).v;
  if (exponent.isExactlyValue(-1)) return (1.0 / x).v;
  // Of -0 and -infinity the root is 0 and infinity.
  Num root = Select(x == -kInfinity, kInfinity, Sqrt(x + 0.0));
  if (exponent.isExactlyValue(0.5)) return root.v;
  if (exponent.isExactlyValue(-0.5)) return (1.0 / root).v;
  return nullptr;
}

}  // namespace relaxvm::codegen::math
