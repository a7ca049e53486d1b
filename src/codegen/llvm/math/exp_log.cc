// SPDX-License-Identifier: Apache-2.0
// Exponentials, logarithms, hyperbolic functions, erf and pow on doubles.
#include <cmath>
#include <limits>

#include "codegen/llvm/math/code.h"

namespace relaxvm::codegen::math {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kLog2E = 1.4426950408889634;
constexpr double kLn2 = 0.6931471805599453;
// ln 2 in two parts; the first has few enough bits that n * kLn2High is exact for |n| < 2^20.
constexpr double kLn2High = 0x1.62e42fee00000p-1;
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
constexpr double kLog10E = 0.4342944819032518;
// log10(2), split likewise.
constexpr double kLog10Of2High = 0x1.34413509f6000p-2;
constexpr double kLog10Of2Low = 0x1.9fef311f12b36p-42;

// 1/k! for k = 13 .. 2: exp(r) = 1 + r + r^2 * sum, error 4e-18 for |r| <= 0.347.
constexpr double kExpTail[] = {1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800,
                               1.0 / 362880,     1.0 / 40320,     1.0 / 5040,     1.0 / 720,
                               1.0 / 120,        1.0 / 24,        1.0 / 6,        0.5};
// 2/(2k+1) for k = 11 .. 1: log(1+f) = 2s + s * z * sum(z) with s = f/(2+f), z = s^2 <= 0.0295.
constexpr double kLogTail[] = {2.0 / 23, 2.0 / 21, 2.0 / 19, 2.0 / 17, 2.0 / 15, 2.0 / 13,
                               2.0 / 11, 2.0 / 9,  2.0 / 7,  2.0 / 5,  2.0 / 3};
// From tools/fit_math.py.
constexpr double kErfSmall64[] = {
    5.9571761477489114e-11, -1.1372848856791674e-9, 1.4659775274047436e-8,  -1.6350312701054695e-7,
    1.6461000484121368e-6,  -1.4925595266831182e-5, 0.00012055331111642711, -0.00085483269808337899,
    0.0052239776248180145,  -0.026866170645076793,  0.11283791670954879,    -0.37612638903183748,
    1.1283791670955126};
constexpr double kErfcScaled64[] = {
    -2.0355575642200859e-7,  -2.6915157592850125e-7, 1.2459620847174092e-6, 2.1124428949403866e-6,
    -7.9776965796440729e-6,  -1.2859347351455289e-5, 6.4056577940516657e-5, 4.5255201405795360e-5,
    -0.00059706195318153520, 0.00070774644356119724, 0.0042691363330778686, -0.024392499318790735,
    0.071665837197973308,    -0.15011593650077581,   0.24560380171233091,   -0.32623356004303723,
    0.17900115118138995};

// x = n ln 2 + r, |r| <= ln 2 / 2
struct ReducedExp {
  Word n;
  Num r;
};
ReducedExp ReduceExp(Num x) {
  Nearest n = NearestInteger(x * kLog2E);
  Num r = x - n.number * kLn2High;  // exact
  return {n.integer, Fma(n.number, -kLn2Low, r)};
}

// exp(r) - 1
Num Expm1Reduced(Num r) { return Fma(r * r, Horner(r, kExpTail), r); }

// x = 2^k (1 + f), 1 + f in [sqrt(1/2), sqrt(2)); for positive normal x
struct SplitLog {
  Word k;
  Num f;
};
SplitLog SplitForLog(Num x) {
  Code& c = *x.c;
  Word offset = BitsOf(x) - BitsOf(Of(c, 0x1.6a09e667f3bcdp-1));
  Word k = offset >> 52;
  return {k, FromBits(BitsOf(x) - (k << 52)) - 1.0};
}
// The same for any positive x: denormals are scaled up first.
SplitLog SplitAnyForLog(Num x) {
  Code& c = *x.c;
  Mask small = x < 0x1p-1022;
  SplitLog split = SplitForLog(Select(small, x * 0x1p54, x));
  split.k = split.k - Select(small, WordOf(c, 54), WordOf(c, 0));
  return split;
}

// log(1+f) = f - (half_square - s * (half_square + tail)); `extra` is added to what is subtracted
// last.
Num LogOfSplit(Num f, Num extra) {
  Num s = f / (2.0 + f);
  Num z = s * s;
  Num tail = z * Horner(z, kLogTail);
  Num half_square = f * f * 0.5;
  return f - (half_square - (s * (half_square + tail) + extra));
}

// The result for x outside (0, inf): 0 gives -inf, below NaN.
Num LogSpecials(Num x, Num result) {
  Num special = Select(x == 0.0, -kInfinity, Select(x < 0.0, kNan, x));
  return Select((x > 0.0) & (x < kInfinity), result, special);
}

Num Zero(Num x) { return Of(*x.c, 0.0); }

}  // namespace

Num Exp(Num x) {
  ReducedExp e = ReduceExp(Clamp(x, -746.0, 710.0));
  return Scale(1.0 + Expm1Reduced(e.r), e.n);
}

Num ExpOfPair(Num high, Num low) {
  Num x = Clamp(high, -746.0, 710.0);
  ReducedExp e = ReduceExp(x);
  Num tail = Select(high == x, low, 0.0);  // beyond the range it means nothing
  return Scale(1.0 + Expm1Reduced(e.r + tail), e.n);
}

Num Exp2(Num x) {
  x = Clamp(x, -1076.0, 1025.0);
  Nearest n = NearestInteger(x);
  Num f = x - n.number;  // exact
  Pair product = TwoProduct(f, Of(*x.c, kLn2));
  Num low = product.low + f * 2.3190468138462996e-17;  // ln 2 beyond a double
  Num r = product.high + low;
  return Scale(1.0 + Expm1Reduced(r), n.integer);
}

Num Expm1(Num x) {
  Num clamped = Clamp(x, -40.0, 710.0);
  ReducedExp e = ReduceExp(clamped);
  // Half of 2^n: the largest result overflows only in the last step.
  Num half = PowerOfTwo(e.n - WordOf(*x.c, 1));
  Num result = Fma(half, Expm1Reduced(e.r), half - 0.5) * 2.0;
  return Select(x == 0.0, x, result);
}

Num Log(Num x) {
  SplitLog split = SplitAnyForLog(x);
  Num k = ToNumber(split.k);
  Num result = Fma(k, kLn2High, LogOfSplit(split.f, k * kLn2Low));
  return LogSpecials(x, result);
}

Num Log2(Num x) {
  SplitLog split = SplitAnyForLog(x);
  Num log = LogOfSplit(split.f, Zero(x));
  Pair product = TwoProduct(log, Of(*x.c, kLog2E));
  Num low = product.low + log * 2.0355273740931033e-17;  // log2(e) beyond a double
  return LogSpecials(x, ToNumber(split.k) + (product.high + low));
}

Num Log10(Num x) {
  SplitLog split = SplitAnyForLog(x);
  Num k = ToNumber(split.k);
  Num log = LogOfSplit(split.f, Zero(x));
  Num small = Fma(k, kLog10Of2Low, log * kLog10E);
  return LogSpecials(x, Fma(k, kLog10Of2High, small));
}

Num Log1p(Num x) {
  Num u = 1.0 + x;
  // What the sum rounded away, relative to u.
  Num lost = Select(u < 2.0, x - (u - 1.0), 1.0 - (u - x)) / u;
  SplitLog split = SplitForLog(Select((u > 0.0) & (u < kInfinity), u, 1.0));
  Num k = ToNumber(split.k);
  Num result = Fma(k, kLn2High, LogOfSplit(split.f, Fma(k, kLn2Low, lost)));
  result = LogSpecials(u, result);
  return Select(x == 0.0, x, Select(IsNan(x), x, result));
}

Num Sinh(Num x) {
  Num a = Abs(x);
  Num t = Expm1(a);
  Num small = 0.5 * (t + t / (t + 1.0));
  Num w = Exp(a * 0.5);  // half the way, so that the largest results do not overflow early
  Num large = 0.5 * w * w;
  return WithSign(Select(a < 22.0, small, large), x);
}

Num Cosh(Num x) {
  Num a = Abs(x);
  Num e = Exp(a);
  Num w = Exp(a * 0.5);
  return Select(a < 22.0, Fma(e, 0.5, 0.5 / e), 0.5 * w * w);
}

Num Tanh(Num x) {
  Num a = Abs(x);
  Num t = Expm1(a * 2.0);
  Num result = Select(a > 22.0, 1.0, t / (t + 2.0));
  return WithSign(result, x);
}

Num Asinh(Num x) {
  Num a = Abs(x);
  Num square = a * a;
  Num small = Log1p(a + square / (1.0 + Sqrt(square + 1.0)));
  Num large = Log(a) + kLn2;
  return WithSign(Select(a > 0x1p28, large, small), x);
}

Num Acosh(Num x) {
  Num t = x - 1.0;
  Num small = Log1p(t + Sqrt(Fma(t, t, t * 2.0)));
  return Select(x < 1.0, kNan, Select(x > 0x1p28, Log(x) + kLn2, small));
}

Num Atanh(Num x) {
  Num a = Abs(x);
  Num result = 0.5 * Log1p(a * 2.0 / (1.0 - a));
  return WithSign(result, x);
}

Num Sigmoid(Num x) {
  Num e = Exp(-Abs(x));
  Num top = Select(x < 0.0, e, 1.0);
  return top / (1.0 + e);
}

// Up to 1 an odd polynomial; from there 1 - exp(-x^2) p((x - 3) / (x + 3)); 1 from 6 on.
Num Erf(Num x) {
  Num a = Abs(x);
  Num small = x * Horner(x * x, kErfSmall64);
  Num far = Select(a > 6.0, 6.0, a);
  Num u = (far - 3.0) / (far + 3.0);
  Num large = 1.0 - Exp(-(far * far)) * Horner(u, kErfcScaled64);
  return Select(a > 1.0, WithSign(large, x), small);
}

Num Gelu(Num x) { return x * Fma(Erf(x * 0.70710678118654752), 0.5, Of(*x.c, 0.5)); }

namespace {

// log|x| with about 65 bits, for positive x.
Pair LogPair(Num x) {
  SplitLog split = SplitAnyForLog(x);
  Num f = split.f;
  Num k = ToNumber(split.k);
  // s = f / (2 + f) with its remainder.
  Pair d = QuickTwoSum(Of(*x.c, 2.0), f);
  Num s = f / d.high;
  Pair back = TwoProduct(s, d.high);
  Num s_low = (((f - back.high) - back.low) - s * d.low) / d.high;
  // z = s^2, then log = 2 s + 2/3 s z + s z^2 (...): the first two terms with both parts.
  Pair z = TwoProduct(s, s);
  z.low = z.low + s * s_low * 2.0;
  constexpr double kTwoThirds = 0.6666666666666666, kTwoThirdsLow = 3.700743415417188e-17;
  Pair third = TwoProduct(z.high, Of(*x.c, kTwoThirds));
  third.low = third.low + z.low * kTwoThirds + z.high * kTwoThirdsLow;
  Num tail = z.high * z.high * Horner(z.high, std::span(kLogTail).first(10));
  // inner = 2 + third + tail
  Pair inner = QuickTwoSum(Of(*x.c, 2.0), third.high);
  inner.low = inner.low + (third.low + tail);
  Pair log = TwoProduct(s, inner.high);
  log.low = log.low + (s * inner.low + s_low * inner.high);
  Pair scaled = TwoSum(k * kLn2High, log.high);
  Num low = scaled.low + Fma(k, kLn2Low, log.low);
  return QuickTwoSum(scaled.high, low);
}

}  // namespace

Num Pow(Num x, Num y) {
  Num a = Abs(x);
  Mask regular = (a > 0.0) & (a < kInfinity);
  Pair log = LogPair(Select(regular, a, 1.0));
  Pair product = TwoProduct(log.high, y);
  Num low = Fma(log.low, y, product.low);
  Num magnitude = ExpOfPair(product.high, low);
  return PowOfMagnitude(x, y, magnitude);
}

}  // namespace relaxvm::codegen::math
