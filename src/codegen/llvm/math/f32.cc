// SPDX-License-Identifier: Apache-2.0
// Functions on floats that are common enough for code of their own: half the width of doubles,
// twice the speed.
#include <limits>

#include "codegen/llvm/math/code.h"

namespace relaxvm::codegen::math {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
// ln 2; n * kLn2High is exact for |n| < 2^9.
constexpr double kLn2High = 0x1.62e400p-1;
constexpr double kLn2Low = 0x1.7f7d1cp-20;

// From tools/fit_math.py.
constexpr double kExpTail32[] = {0.00139262508, 0.00836323288, 0.0416665542, 0.166665767,
                                 0.500000000};
constexpr double kLogTail32[] = {0.0697161147, -0.114797338, 0.116854199,
                                 -0.124256873, 0.142490576,  -0.166678023,
                                 0.200007157,  -0.249999970, 0.333333312};
constexpr double kErfSmall32[] = {7.87587506e-5, -0.000801686429, 0.00518908742, -0.0268542120,
                                  0.112835947,   -0.376126267,    1.12837917};
constexpr double kErfcScaled32[] = {-0.000837975439, 0.00681114013, 0.00373237176, -0.0789683061,
                                    0.241658202,     -0.427185990,  0.255395676};

constexpr double kSinhTail32[] = {2.80628026e-6, 0.000198381020, 0.00833333968, 0.166666666};
constexpr double kSinTail32[] = {-0.000195825242, 0.00833272317, -0.166666645};
constexpr double kCosTail32[] = {2.45425640e-5, -0.00138882779, 0.0416666645};
constexpr double kAtanTail32[] = {-0.0645171887, 0.107436683, -0.142639498, 0.199995403,
                                  -0.333333318};
constexpr double kAsinTail32[] = {0.0380850236, 0.0265545422, 0.0450013801, 0.0749885507,
                                  0.166666724};
// gelu: below.
constexpr double kGeluTail32[] = {
    -0.0001572671945, -0.0003108656132, 0.0006843447689, 0.002523297914, -0.001600961006,
    -0.01638602179,   0.009235914795,   0.1319869654,    -0.4336920145,  0.7066566601};

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

namespace {

// exp(x) for x in [-104, 89] or a NaN, as e^r 2^(n + bias) 2^-bias: the first two factors are a
// normal number, the last product alone is rounded where it is denormal or infinite.  What is added
// for rounding holds bias and exponent bias as well, so that a shift makes the power of two.
Num ExpByParts(Num x, Num magic, Num unbias) {
  Code& c = *x.c;
  Num shifted = Fma(x, InMemory(c, 1.4426950408889634), magic);
  Num n = shifted - magic;
  Num r = Fma(n, InMemory(c, -kLn2Low), Fma(n, InMemory(c, -kLn2High), x));
  Num one = Of(c, 1.0);
  Num factor = Fma(Fma(Horner(r, kExpTail32), r, one), r, one);
  return factor * FromBits(BitsOf(shifted) << 23) * unbias;
}
constexpr double kMagic = 0x1.8p23, kExponentBias = 127, kBias = 64;

// For any x.
Num ExpOfAny(Num x) {
  Code& c = *x.c;
  Mask negative = IsNegative(x);
  Num magic = Select(negative, Of(c, kMagic + kExponentBias + kBias),
                     Of(c, kMagic + kExponentBias - kBias));
  return ExpByParts(Clamp(x, -104.0, 89.0), magic, Select(negative, Of(c, 0x1p-64), Of(c, 0x1p64)));
}

// x = n ln 2 + r, with n in the last bits of `shifted`
struct Exponents {
  Num shifted, r;
};
Exponents SplitExponent(Num x, double bias) {
  Code& c = *x.c;
  Num magic = Of(c, kMagic + bias);
  Num shifted = Fma(x, InMemory(c, 1.4426950408889634), magic);
  Num n = shifted - magic;
  return {shifted, Fma(n, InMemory(c, -kLn2Low), Fma(n, InMemory(c, -kLn2High), x))};
}

// exp(x) where it and e^r are normal numbers: n is added to the exponent of e^r.
constexpr double kMostOfNormal = 87.3;
Num ExpOfNormal(Num x) {
  Exponents e = SplitExponent(x, 0);
  Num one = Of(*x.c, 1.0);
  Num factor = Fma(Fma(Horner(e.r, kExpTail32), e.r, one), e.r, one);
  return FromBits(BitsOf(factor) + (BitsOf(e.shifted) << 23));
}

}  // namespace

Num ExpOfNegativeF(Num x) {
  Code& c = *x.c;
  return ExpByParts(Select(Of(c, -104.0) > x, -104.0, x), Of(c, kMagic + kExponentBias + kBias),
                    Of(c, 0x1p-64));
}

Num ExpF(Num x) {
  return Seldom(!(Abs(x) < kMostOfNormal), x, ExpOfNormal(x), "exp",
                [](llvm::ArrayRef<Num> args) { return ExpOfAny(args[0]); });
}

namespace {

// The result for x outside (0, inf): 0 gives -inf, below NaN.
Num LogSpecials(Num x, Num result) {
  Num special = Select(x == 0.0, -kInfinity, Select(x < 0.0, kNan, x));
  return Select((x > 0.0) & (x < kInfinity), result, special);
}

// log(x) - less ln 2 for a normal positive x = (1 + f) 2^k.
Num LogOfNormal(Num x, const Word* less = nullptr) {
  Code& c = *x.c;
  Word offset = BitsOf(x) - BitsOf(Of(c, 0x1.6a09e6p-1));
  Word k = offset >> 23;
  Num f = FromBits(BitsOf(x) - (k << 23)) - 1.0;
  if (less != nullptr) k = k - *less;
  Num n = ToNumber(k);
  Num square = f * f;
  Num tail = Fma(square * f, Horner(f, kLogTail32), n * InMemory(c, kLn2Low));
  return Fma(n, InMemory(c, kLn2High), f + Fma(square, InMemory(c, -0.5), tail));
}

// For any x.
Num LogOfAny(Num x) {
  Code& c = *x.c;
  Mask small = x < 0x1p-126;
  Word less = Select(small, WordOf(c, 23), WordOf(c, 0));
  Num result = LogOfNormal(Select(small, x * 0x1p23, x), &less);
  return LogSpecials(x, result);
}

}  // namespace

Num LogF(Num x) {
  Code& c = *x.c;
  if (c.traits.vector_bits == 512) return LogOfAny(x);
  // Normal numbers, as their bits, are the least ones once 2^31 less the first is added.
  Word from_least = BitsOf(x) + WordOf(c, 0x7f800000);
  Mask rare{c.b.CreateICmpSGT(from_least.v, c.Bits(0xfeffffff)), &c};
  return Seldom(rare, x, LogOfNormal(x), "log",
                [](llvm::ArrayRef<Num> args) { return LogOfAny(args[0]); });
}

Num ExpOfPairF(Pair x) {
  Nearest n = NearestInteger(x.high * 1.4426950408889634);
  Num r = Fma(n.number, -kLn2Low, Fma(n.number, -kLn2High, x.high) + x.low);
  return Scale(1.0 + Fma(r * r, Horner(r, kExpTail32), r), n);
}

// Half of 2^n: the largest result overflows only in the last step.
Num Expm1F(Num x) {
  Code& c = *x.c;
  ReducedExp e = ReduceExp(Clamp(x, -40.0, 88.8));
  Num half = PowerOfTwo(e.n.integer - WordOf(c, 1));
  return Select(x == 0.0, x, Fma(half, e.tail, half - 0.5) * 2.0);
}

namespace {

// log(x) = n log(2) + log(1 + f), with n log(2) as a sum of two and log(1 + f) times `factor`.
struct LogBase {
  double of_two, of_two_rest, factor, factor_rest;
};
Num LogOfBase(Num x, const LogBase& base) {
  Code& c = *x.c;
  Mask small = x < 0x1p-126;
  Num normal = Select(small, x * 0x1p23, x);
  Word k = (BitsOf(normal) - BitsOf(Of(c, 0x1.6a09e6p-1))) >> 23;
  Num f = FromBits(BitsOf(normal) - (k << 23)) - 1.0;
  Num n = ToNumber(k - Select(small, WordOf(c, 23), WordOf(c, 0)));
  Num square = f * f;
  Num log = f + Fma(square, -0.5, square * f * Horner(f, kLogTail32));
  Num low = log * base.factor_rest;
  if (base.of_two_rest != 0) low = Fma(n, base.of_two_rest, low);
  return LogSpecials(x, Fma(n, base.of_two, Fma(log, base.factor, low)));
}

}  // namespace

Num Log2F(Num x) { return LogOfBase(x, {1, 0, 1.44269502, 1.92596299e-8}); }
Num Log10F(Num x) { return LogOfBase(x, {0x1.344p-2, 4.60503898e-6, 0.434294492, -1.0103050e-8}); }

// x = n + f, f in [-1/2, 1/2]
Num Exp2F(Num x) {
  x = Clamp(x, -151.0, 129.0);
  Nearest n = NearestInteger(x);
  Num f = x - n.number;
  Num r = Fma(f, 0.693147182, f * -1.90465421e-9);
  return Scale(1.0 + Fma(r * r, Horner(r, kExpTail32), r), n);
}

// log(u) for u = 1 + x, and what that sum has lost.
Num Log1pF(Num x) {
  Num u = 1.0 + x;
  Num log = LogF(u);
  Num sum = log + (x - (u - 1.0)) / u;
  return Select(x == 0.0, x, Select((u > 0.0) & (u < kInfinity), sum, log));
}

// m / (m + 2) with m = e^(2 |x|) - 1 = 2^n (e^r - 1) + (2^n - 1), which cancels nowhere; 1
// from 9.02 on.
Num TanhF(Num x) {
  Code& c = *x.c;
  Num a = Abs(x);
  a = Select(a > 9.1, 9.1, a);
  Exponents e = SplitExponent(a + a, kExponentBias);
  Num tail = Fma(e.r * e.r, Horner(e.r, kExpTail32), e.r);
  Num power = FromBits(BitsOf(e.shifted) << 23);
  Num m = Fma(power, tail, power - 1.0);
  return WithSign(m / (m + Of(c, 2.0)), x);
}

namespace {

// For any x.
Num SigmoidOfAny(Num x) {
  Num e = ExpOfNegativeF(-Abs(x));
  return Select(IsNegative(x), e, 1.0) / (1.0 + e);
}

}  // namespace

Num SigmoidF(Num x) {
  return Seldom(!(Abs(x) < kMostOfNormal), x, 1.0 / (1.0 + ExpOfNormal(-x)), "sigmoid",
                [](llvm::ArrayRef<Num> args) { return SigmoidOfAny(args[0]); });
}

// Up to 1 an odd polynomial; from there 1 - exp(-x^2) p((x - 2) / (x + 2)); 1 from 4 on.
Num ErfF(Num x) {
  Num a = Abs(x);
  Num small = x * Horner(x * x, kErfSmall32);
  Num far = Select(a > 4.0, 4.0, a);
  Num u = (far - 2.0) / (far + 2.0);
  Num large = 1.0 - ExpOfNegativeF(-(far * far)) * Horner(u, kErfcScaled32);
  return Select(a > 1.0, WithSign(large, x), small);
}

// max(x, 0) - a P(-a) with a = |x| and P the probability that a normal variable is below: exact to
// a few units of the last place also where x / 2 * (1 + erf(x / sqrt(2))) would cancel.
//   P(-a) = exp(-a^2 / 2) t q(1 - 5 t),  t = 1 / (a + 2.5)
// with q fitted for a in [0, 14.5] (beyond, the result is 0).
Num GeluF(Num x) {
  Num a = Abs(x);
  a = Select(a > 15.0, 15.0, a);
  Num sum = a + 2.5;
  Num t = 1.0 / sum;
  Mask small = a < 1.0;
  // For a small a, q is steep: it gets back what was rounded off the sum and the quotient.
  Num lost = a - (sum - 2.5);
  Num missing = t * Fma(-t, lost, Fma(-t, sum, Of(*x.c, 1.0)));
  Num u = Fma(Select(small, missing, 0.0), -5.0, Fma(t, -5.0, Of(*x.c, 1.0)));
  // exp(-a^2 / 2): the rounding of the square would be felt.
  Num power = ExpOfPairF(TwoProduct(a, a * -0.5));
  // a t = 1 - 2.5 t: that sum forgets how a + 2.5 and t were rounded, but cancels for a small a.
  Num ratio = Select(small, Fma(a, missing, a * t), Fma(t, -2.5, Of(*x.c, 1.0)));
  return Select(x > 0.0, x, 0.0) - ratio * (Horner(u, kGeluTail32) * power);
}

namespace {

constexpr double kLargeAngle = 1e5;

template <Num (*kFunction)(Num)>
Num ThroughDouble(llvm::ArrayRef<Num> args) {
  Num x = args[0];
  Code wide(x.c->b, x.c->traits, LikeShape(x.c->type, x.c->b.getDoubleTy()));
  Num result = kFunction({x.c->b.CreateFPCast(x.v, wide.type), &wide});
  return {x.c->b.CreateFPCast(result.v, x.c->type), x.c};
}

// x = r + n pi/2 for |x| <= kLargeAngle, and sine and cosine of r.  Needs fused multiply-adds: the
// first reduces exactly.
struct Angle {
  Word n;
  Num sin, cos;
};
Angle ReduceAngle(Num x) {
  // pi/2 in three parts.
  constexpr double kParts[] = {0x1.921fb6p+0, -0x1.777a5cp-25, -0x1.ee59dap-50};
  Nearest nearest = NearestInteger(x * 0.6366197723675814);
  Num r = x;
  for (double part : kParts) r = Fma(nearest.number, -part, r);
  Num z = r * r;
  return {nearest.integer, Fma(z * r, Horner(z, kSinTail32), r),
          Fma(z * z, Horner(z, kCosTail32), Fma(z, -0.5, Of(*x.c, 1.0)))};
}

// sin(x + quarter_turns pi/2)
Num SinAt(Num x, uint64_t quarter_turns) {
  Code& c = *x.c;
  Angle angle = ReduceAngle(x);
  Word n = angle.n + WordOf(c, quarter_turns);
  Num value = Select(IsZero(n & WordOf(c, 1)), angle.sin, angle.cos);
  return FromBits(BitsOf(value) ^ ((n & WordOf(c, 2)) << 30));
}

// e^|x| / 2, which is finite wherever sinh and cosh are.
Num HalfOfExp(Num x) {
  Code& c = *x.c;
  ReducedExp e = ReduceExp(Clamp(Abs(x), 0.0, 90.0));
  return Scale(1.0 + e.tail, {e.n.number - 1.0, e.n.integer - WordOf(c, 1)});
}

}  // namespace

Num SinF(Num x) {
  Num usual = Select(x == 0.0, x, SinAt(x, 0));
  return Seldom(Abs(x) > kLargeAngle, x, usual, "sin", ThroughDouble<Sin>);
}

Num TanF(Num x) {
  Angle angle = ReduceAngle(x);
  Mask turned = !IsZero(angle.n & WordOf(*x.c, 1));
  Num ratio = Select(turned, -angle.cos, angle.sin) / Select(turned, angle.sin, angle.cos);
  return Seldom(Abs(x) > kLargeAngle, x, Select(x == 0.0, x, ratio), "tan", ThroughDouble<Tan>);
}

Num CosF(Num x) { return Seldom(Abs(x) > kLargeAngle, x, SinAt(x, 1), "cos", ThroughDouble<Cos>); }

Num SinhF(Num x) {
  Num z = x * x;
  Num small = Fma(x * z, Horner(z, kSinhTail32), x);
  Num e = HalfOfExp(x);
  return Select(Abs(x) > 1.0, WithSign(e - 0.25 / e, x), small);
}

Num CoshF(Num x) {
  Num e = HalfOfExp(x);
  return e + 0.25 / e;
}

namespace {

// pi as a float, and what it lacks.
constexpr double kPiHigh = 3.1415927410125732, kPiRest = -8.7422780126189545e-8;

// `times` pi/2, less `angle`.
Num HalfTurnsLess(double times, Num angle) {
  return kPiHigh * 0.5 * times - (angle - kPiRest * 0.5 * times);
}

// asin of a in [0, 1] up to 1/2, half the angle to pi/2 above.
struct HalfAngle {
  Mask upper;
  Num angle;
};
HalfAngle AsinOrHalfOfRest(Num a) {
  Mask upper = a > 0.5;
  Num root = Sqrt(Select(upper, (1.0 - a) * 0.5, 0.25));
  Num s = Select(upper, root, a), z = s * s;
  return {upper, Fma(s * z, Horner(z, kAsinTail32), s)};
}

}  // namespace

// Above 1/2: asin(a) = pi/2 - 2 asin(sqrt((1 - a) / 2)).  Above 1 the root is a NaN.
Num AsinF(Num x) {
  HalfAngle half = AsinOrHalfOfRest(Abs(x));
  Num rest = HalfTurnsLess(1, half.angle * 2.0);
  return WithSign(Select(half.upper, rest, half.angle), x);
}

Num AcosF(Num x) {
  HalfAngle half = AsinOrHalfOfRest(Abs(x));
  Num twice = half.angle * 2.0;
  Num outer = Select(x < 0.0, HalfTurnsLess(2, twice), twice);
  return Select(half.upper, outer, HalfTurnsLess(1, WithSign(half.angle, x)));
}

// Around tan(0), tan(pi/4) and tan(pi/2), with one division.
Num AtanF(Num x) {
  Num a = Abs(x);
  Mask middle = a > 0.41421356237309503, steep = a > 2.4142135623730950;  // tan(pi/8), tan(3 pi/8)
  Num above = Select(steep, -1.0, Select(middle, a - 1.0, a));
  Num below = Select(steep, a, Select(middle, a + 1.0, Of(*x.c, 1.0)));
  Num r = above / below, z = r * r;
  Num angle = Fma(r * z, Horner(z, kAtanTail32), r);
  Num rest = Select(steep, kPiRest * 0.5, Of(*x.c, kPiRest * 0.25));
  Num turned = Select(steep, kPiHigh * 0.5, Of(*x.c, kPiHigh * 0.25)) + (angle + rest);
  return WithSign(Select(middle, turned, angle), x);
}

Num AtanhF(Num x) {
  Num a = Abs(x);
  return WithSign(Log1pF(a * 2.0 / (1.0 - a)) * 0.5, x);
}

}  // namespace relaxvm::codegen::math
