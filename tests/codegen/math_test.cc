// SPDX-License-Identifier: Apache-2.0
// Elementary functions against long double: error in units of the last place at many points, and
// special values.
#include <cmath>
#include <limits>
#include <random>

#include "codegen/harness.h"

namespace relaxvm::codegen::testing {
namespace {

using ir::Expr;
using ir::Intrin;
using ir::Var;
using Real = long double;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Real Sigmoid(Real x) { return 1 / (1 + std::exp(-x)); }
Real Rsqrt(Real x) { return 1 / std::sqrt(x); }

// By Newton's method.
Real ErfInverse(Real x) {
  const Real a = std::fabs(x);
  if (!(a < 1)) return a == 1 ? std::copysign(Real(kInf), x) : Real(kNan);
  Real y = std::min(a, Real(0.9));
  for (int k = 0; k < 200; ++k) {
    const Real slope = 2 / std::sqrt(std::acos(Real(-1))) * std::exp(-y * y);
    const Real error = a < Real(0.5) ? std::erf(y) - a : (1 - a) - std::erfc(y);
    y -= error / slope;
  }
  return std::copysign(y, x);
}

Real Digamma(Real x) {
  const Real pi = std::acos(Real(-1));
  if (x == 0) return std::copysign(Real(kInf), -x);
  if (x < 0) {
    if (x == std::floor(x)) return kNan;
    return Digamma(1 - x) - pi / std::tan(pi * (x - std::nearbyint(x)));
  }
  Real sum = 0;
  for (; x < 40; x += 1) sum -= 1 / x;
  const Real z = 1 / (x * x);
  const Real tail = z * (1 / Real(12) - z * (1 / Real(120) - z * (1 / Real(252) - z / 240)));
  return sum + std::log(x) - 1 / (2 * x) - tail;
}

struct Row {
  Intrin intrin;
  Real (*reference)(Real);
  double low, high;         // the range that matters
  double limit32, limit64;  // units of the last place
};
const Row kRows[] = {
    {Intrin::kExp, std::exp, -110, 95, 2, 1.5},
    {Intrin::kExp2, std::exp2, -155, 130, 1.5, 1.5},
    {Intrin::kExpm1, std::expm1, -20, 95, 1.5, 3},
    {Intrin::kLog, std::log, 0, 1000, 2, 1.5},
    {Intrin::kLog2, std::log2, 0, 1000, 2, 2},
    {Intrin::kLog10, std::log10, 0, 1000, 2, 2},
    {Intrin::kLog1p, std::log1p, -1, 1000, 2, 2},
    {Intrin::kSin, std::sin, -100, 100, 2, 1.5},
    {Intrin::kCos, std::cos, -100, 100, 2, 1.5},
    {Intrin::kTan, std::tan, -100, 100, 3, 3},
    {Intrin::kAsin, std::asin, -1, 1, 2.5, 2.5},
    {Intrin::kAcos, std::acos, -1, 1, 1.5, 2},
    {Intrin::kAtan, std::atan, -50, 50, 2, 2},
    {Intrin::kSinh, std::sinh, -95, 95, 2, 4},
    {Intrin::kCosh, std::cosh, -95, 95, 2, 4},
    {Intrin::kTanh, std::tanh, -12, 12, 4, 4},
    {Intrin::kAsinh, std::asinh, -1000, 1000, 1, 4},
    {Intrin::kAcosh, std::acosh, 1, 1000, 1, 4},
    {Intrin::kAtanh, std::atanh, -1, 1, 3, 4},
    {Intrin::kSigmoid, Sigmoid, -110, 110, 4, 3},
    {Intrin::kErf, std::erf, -7, 7, 4, 2},
    {Intrin::kErfc, std::erfc, -7, 28, 4, 4},
    {Intrin::kErfInverse, ErfInverse, -1, 1, 4, 4},
    {Intrin::kSqrt, std::sqrt, 0, 1000, 0.51, 0.51},
    {Intrin::kRsqrt, Rsqrt, 0, 1000, 1.6, 1.6},
};

// y[i] = f(x[i]), one element at a time or 16.
tir::PrimFunc Program(Intrin intrin, DLDataType t, bool vectors) {
  Var n("n", Int(64)), i("i", Int(64)), v("v", Int(64));
  tir::Buffer x("x", {n}, t), y("y", {n}, t);
  Expr at = vectors ? i * 16 + v : Expr(i);
  tir::Stmt body = tir::BufferStore(y, ir::CallIntrin(intrin, {x.Load({at})}), {at});
  if (vectors) body = tir::For(v, 0, 16, tir::ForKind::kVectorized, body);
  body = tir::For(i, 0, vectors ? ir::FloorDiv(n, 16) : Expr(n), tir::ForKind::kSerial, body);
  ir::DictAttrs attrs;
  attrs.Set(tir::attr::kScheduled, vectors);
  return tir::PrimFunc({x, y}, body, attrs);
}

template <typename T>
std::vector<T> Points(double low, double high) {
  std::mt19937_64 random(7);
  std::vector<T> points;
  auto add = [&](double x) { points.push_back(static_cast<T>(x)); };
  for (double x : {0.0, -0.0, 1.0, -1.0, 0.5, -0.5, kInf, -kInf, kNan, 1e30, -1e30, 1e-30, -1e-30})
    add(x);
  add(std::numeric_limits<T>::min());
  add(std::numeric_limits<T>::denorm_min());
  add(-std::numeric_limits<T>::denorm_min());
  add(std::numeric_limits<T>::min() / 8);
  add(std::numeric_limits<T>::max());
  add(-std::numeric_limits<T>::max());
  for (int k = -20; k <= 20; ++k) {  // around multiples of pi/2 and powers of two
    add(k * 1.5707963267948966);
    add(std::ldexp(1.0, k));
    add(std::nextafter(static_cast<T>(std::ldexp(1.0, k)), T(0)));
  }
  std::uniform_real_distribution<double> even(low, high), exponent(-40, 40);
  for (int i = 0; i < 8000; ++i) add(even(random));
  for (int i = 0; i < 4000; ++i)
    add((i % 2 ? 1 : -1) * std::exp2(exponent(random)));  // all magnitudes
  for (int i = 0; i < 4000; ++i) add(low + (high - low) * i / 4000);
  points.resize(points.size() / 16 * 16);
  return points;
}

// Distance of `got` from the true value in units of the last place of T there.
template <typename T>
double UlpError(T got, Real want) {
  if (std::isnan(got) || std::isnan(want)) return std::isnan(got) && std::isnan(want) ? 0 : kInf;
  T nearest = static_cast<T>(want);
  if (std::isinf(got) || std::isinf(nearest)) {
    if (got == nearest) return 0;
    // The greatest number next to infinity is one unit away.
    return std::fabs(got) == std::numeric_limits<T>::max() ||
                   std::fabs(nearest) == std::numeric_limits<T>::max()
               ? 1
               : kInf;
  }
  int exponent = std::max(std::ilogb(nearest == 0 ? std::numeric_limits<T>::min() : nearest),
                          std::numeric_limits<T>::min_exponent - 1);
  Real unit = std::ldexp(Real(1), exponent - (std::numeric_limits<T>::digits - 1));
  return static_cast<double>(std::fabs(static_cast<Real>(got) - want) / unit);
}

template <typename T>
void Check(const Row& row, double limit, DLDataType t, bool vectors, const std::string& target) {
  std::vector<T> x = Points<T>(row.low, row.high), y(x.size());
  int64_t n = static_cast<int64_t>(x.size());
  Kernel kernel(Program(row.intrin, t, vectors), target);
  kernel.Must({View(x.data(), {n}, t), View(y.data(), {n}, t)});
  double worst = 0;
  size_t at = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    double error = UlpError(y[i], row.reference(static_cast<Real>(x[i])));
    if (error > worst) worst = error, at = i;
  }
  EXPECT_LE(worst, limit) << ir::IntrinName(row.intrin) << (vectors ? " (vectors) of " : " of ")
                          << DTypeName(t) << " " << target << ": at " << x[at] << " got " << y[at]
                          << " for " << row.reference(x[at]);
  if (getenv("RELAXVM_SHOW_ERRORS"))
    printf("%s %s %.3f\n", ir::IntrinName(row.intrin), DTypeName(t).c_str(), worst);
}

class UnaryTest : public ::testing::TestWithParam<size_t> {
 protected:
  const Row& row() { return kRows[GetParam()]; }
};
TEST_P(UnaryTest, IsNearTheTrueValueInFloat) {
  Check<float>(row(), row().limit32, Float(32), false, "llvm");
}
TEST_P(UnaryTest, IsNearTheTrueValueInFloatVectors) {
  Check<float>(row(), row().limit32, Float(32), true, "llvm");
}
TEST_P(UnaryTest, IsNearTheTrueValueInDouble) {
  Check<double>(row(), row().limit64, Float(64), false, "llvm");
}
TEST_P(UnaryTest, IsNearTheTrueValueInDoubleVectors) {
  Check<double>(row(), row().limit64, Float(64), true, "llvm");
}
TEST_P(UnaryTest, IsNearTheTrueValueOnAnOldCpu) {
  Check<float>(row(), row().limit32 + 1, Float(32), true, "llvm -mcpu=x86-64");
  Check<double>(row(), row().limit64 + 1, Float(64), true, "llvm -mcpu=x86-64");
}
INSTANTIATE_TEST_SUITE_P(Functions, UnaryTest, ::testing::Range<size_t>(0, std::size(kRows)),
                         [](const auto& info) {
                           return std::string(ir::IntrinName(kRows[info.param].intrin));
                         });

template <typename T>
std::vector<T> Results(Intrin intrin, std::vector<T>* x, DLDataType t, const std::string& target) {
  std::vector<T> y(x->size());
  const auto n = static_cast<int64_t>(x->size());
  Kernel kernel(Program(intrin, t, true), target);
  kernel.Must({View(x->data(), {n}, t), View(y.data(), {n}, t)});
  return y;
}

template <typename T>
void CheckExpOfNegative(DLDataType t, double low) {
  std::vector<T> x = Points<T>(low, 0);
  for (T& each : x) {
    if (each > 0) each = -each;
  }
  for (const char* target : {"llvm", "llvm -mcpu=haswell", "llvm -mcpu=x86-64"}) {
    const std::vector<T> exact = Results(Intrin::kExp, &x, t, target);
    const std::vector<T> got = Results(Intrin::kExpOfNegative, &x, t, target);
    for (size_t i = 0; i < x.size(); ++i) {
      if (std::isnan(exact[i]))
        EXPECT_TRUE(std::isnan(got[i])) << target << " at " << x[i];
      else
        EXPECT_EQ(got[i], exact[i]) << target << " at " << x[i];
    }
  }
}
TEST(ExpOfNegative, HasTheBitsOfExp) {
  CheckExpOfNegative<float>(Float(32), -110);
  CheckExpOfNegative<double>(Float(64), -760);
}

// Near a zero that is no machine number, the error is one of what cancels there.
template <typename T>
void CheckByMagnitude(Intrin intrin, Real (*reference)(Real), DLDataType t, double limit) {
  std::vector<T> x = Points<T>(-30, 300);
  for (const char* target : {"llvm", "llvm -mcpu=x86-64"}) {
    const std::vector<T> got = Results(intrin, &x, t, target);
    for (size_t i = 0; i < x.size(); ++i) {
      const Real want = reference(static_cast<Real>(x[i]));
      const double error =
          std::fabs(want) < 1
              ? static_cast<double>(std::fabs(got[i] - want) / std::numeric_limits<T>::epsilon())
              : UlpError(got[i], want);
      EXPECT_LE(error, limit) << ir::IntrinName(intrin) << " " << target << ": at " << x[i]
                              << " got " << got[i] << " for " << want;
    }
  }
}
TEST(LogGamma, IsNearTheTrueValue) {
  CheckByMagnitude<float>(Intrin::kLogGamma, std::lgamma, Float(32), 1);
  CheckByMagnitude<double>(Intrin::kLogGamma, std::lgamma, Float(64), 16);
}
TEST(Digamma, IsNearTheTrueValue) {
  CheckByMagnitude<float>(Intrin::kDigamma, Digamma, Float(32), 1);
  CheckByMagnitude<double>(Intrin::kDigamma, Digamma, Float(64), 64);
}

// ---- two arguments --------------------------------------------------------------------------

template <typename T>
void CheckBinary(Intrin intrin, Real (*reference)(Real, Real), DLDataType t, double limit,
                 const std::vector<T>& a, const std::vector<T>& b) {
  Var n("n", Int(64));
  tir::Tensor x("x", {n}, t), y("y", {n}, t);
  tir::Tensor z = tir::Compute(
      {n}, [&](const tir::Indices& i) { return ir::CallIntrin(intrin, {x(i), y(i)}); }, "z");
  Kernel kernel(tir::CreatePrimFunc({x, y}, {z}));
  std::vector<T> c(a.size());
  int64_t size = static_cast<int64_t>(a.size());
  kernel.Must({View(const_cast<T*>(a.data()), {size}, t), View(const_cast<T*>(b.data()), {size}, t),
               View(c.data(), {size}, t)});
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    Real want = reference(a[i], b[i]);
    double error = UlpError(c[i], want);
    worst = std::max(worst, error);
    ASSERT_LE(error, limit) << ir::IntrinName(intrin) << "(" << a[i] << ", " << b[i] << ") gave "
                            << c[i] << " for " << want;
    if (want == 0) {
      ASSERT_EQ(std::signbit(c[i]), std::signbit(want))
          << ir::IntrinName(intrin) << "(" << a[i] << ", " << b[i] << ")";
    }
  }
  if (getenv("RELAXVM_SHOW_ERRORS"))
    printf("%s %s %.3f\n", ir::IntrinName(intrin), DTypeName(t).c_str(), worst);
}

template <typename T>
void CheckPairs(Intrin intrin, Real (*reference)(Real, Real), DLDataType t, double limit,
                double range_x, double range_y) {
  std::vector<T> a, b;
  const double special[] = {0.0,
                            -0.0,
                            1,
                            -1,
                            2,
                            -2,
                            3,
                            -3,
                            0.5,
                            -0.5,
                            1e-310,
                            kInf,
                            -kInf,
                            kNan,
                            1e308,
                            -1e308,
                            9007199254740993.0,
                            4.5};
  for (double x : special) {
    for (double y : special) a.push_back(static_cast<T>(x)), b.push_back(static_cast<T>(y));
  }
  std::mt19937_64 random(3);
  std::uniform_real_distribution<double> any_x(0, range_x), any_y(-range_y, range_y),
      exponent(-30, 30);
  for (int i = 0; i < 20000; ++i) {
    double x = i % 2 ? any_x(random) : std::exp2(exponent(random));
    a.push_back(static_cast<T>(i % 5 == 0 ? -x : x));
    b.push_back(static_cast<T>(i % 5 == 0 ? std::round(any_y(random)) : any_y(random)));
  }
  CheckBinary<T>(intrin, reference, t, limit, a, b);
}

TEST(Binary, PowIsNearTheTrueValue) {
  CheckPairs<float>(Intrin::kPow, std::pow, Float(32), 1, 100, 20);
  CheckPairs<double>(Intrin::kPow, std::pow, Float(64), 2, 100, 150);
  CheckPairs<double>(Intrin::kPow, std::pow, Float(64), 2, 2, 1000);
}
TEST(Binary, Atan2IsNearTheTrueValue) {
  CheckPairs<float>(Intrin::kAtan2, std::atan2, Float(32), 1, 100, 100);
  CheckPairs<double>(Intrin::kAtan2, std::atan2, Float(64), 3, 100, 100);
}

// Angles so large that all digits of pi matter.
TEST(Angles, OfAnySizeAreReducedExactly) {
  std::vector<double> x;
  std::mt19937_64 random(5);
  std::uniform_real_distribution<double> exponent(19, 1023);
  for (int i = 0; i < 4096; ++i) x.push_back(std::exp2(exponent(random)) * (i % 2 ? 1 : -1));
  x[0] = 6381956970095103.0 * std::exp2(797);  // nearest of all doubles to a multiple of pi/2
  int64_t n = static_cast<int64_t>(x.size());
  for (auto [intrin, reference] :
       {std::pair<Intrin, Real (*)(Real)>{Intrin::kSin, std::sin}, {Intrin::kCos, std::cos}}) {
    std::vector<double> y(x.size());
    Kernel(Program(intrin, Float(64), true))
        .Must({View(x.data(), {n}, Float(64)), View(y.data(), {n}, Float(64))});
    for (size_t i = 0; i < x.size(); ++i)
      ASSERT_LE(UlpError(y[i], reference(x[i])), 1.5) << ir::IntrinName(intrin) << " " << x[i];
  }
}

}  // namespace
}  // namespace relaxvm::codegen::testing
