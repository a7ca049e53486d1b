// SPDX-License-Identifier: Apache-2.0
// Functions on floats that are common enough for code of their own: half the width of doubles,
// twice the speed.
#include <limits>

#include "codegen/llvm/math_code.h"

namespace relaxvm::codegen::math {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
// ln 2; n * kLn2High is exact for |n| < 2^9.
constexpr double kLn2High = 0x1.62e400p-1;
constexpr double kLn2Low = 0x1.7f7d1cp-20;

// From tools/fit_math.py.
constexpr double kExpTail32[] = {0.000198910805, 0.00139337307, 0.00833331084,
                                 0.0416664642,   0.166666667,   0.500000001};
constexpr double kLogTail32[] = {0.0697161147, -0.114797338, 0.116854199,
                                 -0.124256873, 0.142490576,  -0.166678023,
                                 0.200007157,  -0.249999970, 0.333333312};
constexpr double kTanhTail32[] = {-0.00609671417, 0.0209971790, -0.0538509096, 0.133327697,
                                  -0.333333289};
constexpr double kErfSmall32[] = {7.87587506e-5, -0.000801686429, 0.00518908742, -0.0268542120,
                                  0.112835947,   -0.376126267,    1.12837917};
constexpr double kErfcScaled32[] = {-0.000837975439, 0.00681114013, 0.00373237176, -0.0789683061,
                                    0.241658202,     -0.427185990,  0.255395676};

// exp(x) = 2^n (1 + tail) for clamped x
struct ReducedExp {
  Nearest n;
  Num tail;
};
ReducedExp ReduceExp(Num x) {
  Nearest n = NearestInteger(x * 1.4426950408889634);
  Num r = Fma(n.number, -kLn2Low, Fma(n.number, -kLn2High, x));
  return {n, Fma(r * r, Horner(r, kExpTail32), r)};
}

}  // namespace

Num ExpF(Num x) {
  ReducedExp e = ReduceExp(Clamp(x, -104.0, 89.0));
  return Scale(1.0 + e.tail, e.n);
}

Num LogF(Num x) {
  Code& c = *x.c;
  Mask small = x < 0x1p-126;
  Num scaled = Select(small, x * 0x1p23, x);
  Word offset = BitsOf(scaled) - BitsOf(Of(c, 0x1.6a09e6p-1));
  Word k = offset >> 23;
  Num f = FromBits(BitsOf(scaled) - (k << 23)) - 1.0;
  k = k - Select(small, WordOf(c, 23), WordOf(c, 0));
  Num n = ToNumber(k);
  Num square = f * f;
  Num tail = Fma(square * f, Horner(f, kLogTail32), n * kLn2Low);
  Num result = Fma(n, kLn2High, f + Fma(square, -0.5, tail));
  Num special = Select(x == 0.0, -kInfinity, Select(x < 0.0, kNan, x));
  return Select((x > 0.0) & (x < kInfinity), result, special);
}

Num TanhF(Num x) {
  Num a = Abs(x);
  Num z = x * x;
  Num small = Fma(x * z, Horner(z, kTanhTail32), x);
  Num e = ExpF(Select(a > 10.0, 10.0, a) * 2.0);
  Num large = 1.0 - 2.0 / (e + 1.0);
  return Select(a > 0.625, WithSign(large, x), small);
}

Num SigmoidF(Num x) {
  Num e = ExpF(-Abs(x));
  Num top = Select(x < 0.0, e, 1.0);
  return top / (1.0 + e);
}

// Up to 1 an odd polynomial; from there 1 - exp(-x^2) p((x - 2) / (x + 2)); 1 from 4 on.
Num ErfF(Num x) {
  Num a = Abs(x);
  Num small = x * Horner(x * x, kErfSmall32);
  Num far = Select(a > 4.0, 4.0, a);
  Num u = (far - 2.0) / (far + 2.0);
  Num large = 1.0 - ExpF(-(far * far)) * Horner(u, kErfcScaled32);
  return Select(a > 1.0, WithSign(large, x), small);
}

}  // namespace relaxvm::codegen::math
