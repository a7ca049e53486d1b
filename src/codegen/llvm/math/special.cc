// SPDX-License-Identifier: Apache-2.0
// The complement and the inverse of the error function, the gamma function's logarithm and that
// logarithm's derivative, on doubles; the first two on floats as well.
#include <limits>

#include "codegen/llvm/math/code.h"

namespace relaxvm::codegen::math {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kPi = 3.1415926535897932;
constexpr double kHalfLog2PiLess = 0.41893853320467267;  // log(2 pi) / 2 - 1/2

// From tools/fit_math.py.
constexpr double kErfcWeighted64[] = {
    -1.0627619637427509e-8, -1.2342331626174370e-8,  1.0608598334165835e-7,
    6.7340008636717057e-8,  -8.2302361816286115e-7,  2.9920114841659390e-7,
    5.7089372300046360e-6,  -1.1224509485290037e-5,  -2.4399097113238748e-5,
    0.00015062241131998951, -0.00019925668628231048, -0.00075777342923057362,
    0.0050319699715992349,  -0.016197734041002211,   0.037167515538537674,
    -0.066330365813386963,  0.093732834998271353,    -0.10103906603626270,
    0.068097054254695125,   0.015379652102619166,    -0.13962111684056254,
    1.2329951186255525};
constexpr double kErfInverseNear64[] = {
    3.5618084332182789e-7,  -9.4065101591574020e-6, 8.9815453783485381e-5, -0.00021839925164218805,
    -0.0022301831033920540, 0.011487865993264342,   0.23202778302084297,   0.88622637804036646};
constexpr double kErfInverseFar64[] = {
    -1.4330458829792495e-7, 3.1387976846175030e-6, 1.2470147848162085e-5, -0.0011653310730526135,
    0.017940168267151971,   -0.14805219707123032,  0.76085966480718166,   -2.5216274064216298,
    5.2818213241802345,     -5.4024036037107994,   3.2698459524660351};
constexpr double kErfcWeighted32[] = {-0.000250330436, -0.00125864087, 0.00116813336, 0.00865427181,
                                      -0.00801201405,  -0.0542101884,  0.164049434,   -0.166030899,
                                      -0.0927637847,   1.27697839};
constexpr double kErfInverseNear32[] = {
    -8.93192597e-9, 2.33359672e-8,  4.68131348e-7,  -3.46398527e-6, -4.97241969e-6,
    0.000218349386, -0.00125272639, -0.00417739288, 0.246640279,    1.50140936};
constexpr double kErfInverseFar32[] = {
    0.000125706944, -0.000317686707, -7.07736481e-5, 0.00149460190, -0.00359055213,
    0.00568360493,  -0.00763859214,  0.00944564509,  1.00167504,    2.83297680};
constexpr double kLogGammaTail64[] = {
    1.2034907763468639e-7,  -2.5254853429586513e-7, 3.8837480981603404e-7,  -8.2089874427208221e-7,
    1.8124087986144873e-6,  -3.8563136093174780e-6, 8.2214789180596209e-6,  -1.7660194017271154e-5,
    3.8168959876181242e-5,  -8.3095273255336939e-5, 0.00018255263497305118, -0.00040570738897825626,
    0.00091537692238059906, -0.0021081308342234147, 0.0049986411646954692,  -0.012384192193367468,
    0.032965000621155834,   -0.10031730167435394,   0.42278433509846714};

// B(2k) / (2k (2k - 1)) for k = 8 .. 1 (Abramowitz and Stegun, 6.1.41).
constexpr double kStirling[] = {-3617.0 / 122400, 1.0 / 156,  -691.0 / 360360, 1.0 / 1188,
                                -1.0 / 1680,      1.0 / 1260, -1.0 / 360,      1.0 / 12};
// B(2k) / (2k) for k = 8 .. 1 (6.3.18).
constexpr double kDigammaTail[] = {-3617.0 / 8160, 1.0 / 12,  -691.0 / 32760, 1.0 / 132,
                                   -1.0 / 240,     1.0 / 252, -1.0 / 120,     1.0 / 12};
constexpr int kAsymptotic = 10;  // the series above are exact from here on

// From 1/2 on, for a not negative a.
Num ErfcOfLarge(Num a) {
  Num x = Clamp(a, 0.5, 27.3);  // beyond, it is 0
  Num weighted = Horner((x - 4.0) / (x + 4.0), kErfcWeighted64);
  Pair square = TwoProduct(x, x);
  return ExpOfPair(-square.high, -square.low) * (weighted / Fma(x, 2.0, Of(*x.c, 1.0)));
}

// The same for floats.
Num ErfcOfLargeF(Num a) {
  Num x = Clamp(a, 0.5, 10.1);
  Num weighted = Horner((x - 2.0) / (x + 2.0), kErfcWeighted32);
  return ExpOfPairF(TwoProduct(x, -x)) * (weighted / Fma(x, 2.0, Of(*x.c, 1.0)));
}

Num ErfcOf(Num x, Num erf, Num large) {
  Num result = Select(x < 0.0, 2.0 - large, large);
  return Select(IsNan(x), x, Select(Abs(x) < 0.5, 1.0 - erf, result));
}

// How far x is from the nearest integer.
Num FromInteger(Num x) {
  return x - Num{RoundToInteger(Rounding::kEven, x.v, x.c->b, x.c->traits), x.c};
}

// log(gamma(x)) for x > 0.
Num LogGammaAboveZero(Num x) {
  Code& c = *x.c;
  // gamma(x) = gamma(2 + t) times `above`, divided by `below`, with t in [-1/2, 1/2].
  Num above = Of(c, 1.0), y = Select(x < kAsymptotic, x, 2.0);
  for (int k = 2; k < kAsymptotic; ++k) {
    Mask far = !(y < 2.5);
    Num less = y - 1.0;
    above = Select(far, above * less, above);
    y = Select(far, less, y);
  }
  Mask once = y < 1.5, twice = y < 0.5;
  Num t = Select(twice, y, Select(once, y - 1.0, y - 2.0));
  Num below = Select(twice, y * (y + 1.0), Select(once, y, 1.0));
  Num near = t * (t + 1.0) * Horner(t, kLogGammaTail64);
  near = near + Select(once, -Log(below), Log(above));
  Num r = 1.0 / x;
  Num large = (x - 0.5) * (Log(x) - 1.0) + Fma(r, Horner(r * r, kStirling), Of(c, kHalfLog2PiLess));
  return Select(x < kAsymptotic, near, large);
}

}  // namespace

Num Erfc(Num x) { return ErfcOf(x, Erf(x), ErfcOfLarge(Abs(x))); }
Num ErfcF(Num x) { return ErfcOf(x, ErfF(x), ErfcOfLargeF(Abs(x))); }

// M. Giles, "Approximating the erfinv function" (2012), with coefficients of our own.
Num ErfInverseF(Num x) {
  Num a = Abs(x);
  Num w = -LogF((1.0 - a) * (1.0 + a));
  Num near = Horner(w - 2.5, kErfInverseNear32), far = Horner(Sqrt(w) - 3.0, kErfInverseFar32);
  return Select(a == 1.0, x * kInfinity, x * Select(w < 5.0, near, far));
}

// The same with fewer terms, and one step of Halley's method.
Num ErfInverse(Num x) {
  Code& c = *x.c;
  Num a = Abs(x);
  Num rest = 1.0 - a;
  Num w = -Log(rest * (1.0 + a));
  Num y = a * Select(w < 5.0, Horner(w, kErfInverseNear64), Horner(Sqrt(w), kErfInverseFar64));
  // erf(y) - a, where neither cancels
  Num error = Select(a < 0.5, Erf(y) - a, rest - Erfc(y));
  Num step = error * Exp(y * y) * 0.88622692545275801;
  y = y - step / Fma(y, step, Of(c, 1.0));
  return Select(a == 1.0, x * kInfinity, WithSign(y, x));
}

// Below 0 by reflection: gamma(x) gamma(-x) = -pi / (x sin(pi x)).
Num LogGamma(Num x) {
  Num a = Abs(x);
  Num above = LogGammaAboveZero(a);
  Num apart = Abs(FromInteger(a));
  Num log = Log(a);
  Num below = Log(kPi / Sin(apart * kPi)) - log - above;
  below = Select(a < 0x1p-60, -log, Select(apart > 0.0, below, a + kInfinity));
  return Select(IsNegative(x), below, above);
}

// The sum of 1/(x + k) leads to an x for which the series converges; below 0 by reflection:
// digamma(x) = digamma(1 - x) - pi / tan(pi x).
Num Digamma(Num x) {
  Code& c = *x.c;
  Mask negative = x < 0.0;
  Num y = Select(negative, 1.0 - x, x), sum = Of(c, 0.0);
  for (int k = 0; k < kAsymptotic; ++k) {
    Mask near = y < kAsymptotic;
    sum = Select(near, sum - 1.0 / y, sum);
    y = Select(near, y + 1.0, y);
  }
  Num r = 1.0 / y, z = r * r;
  Num series = Log(y) - Fma(r, 0.5, z * Horner(z, kDigammaTail));
  Num apart = FromInteger(x);
  Num reflected = Select(apart == 0.0, kNan, kPi / Tan(apart * kPi));
  Num result = sum + series - Select(negative, reflected, 0.0);
  return Select(x == 0.0, -1.0 / x, result);
}

}  // namespace relaxvm::codegen::math
