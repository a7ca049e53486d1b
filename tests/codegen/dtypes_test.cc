// SPDX-License-Identifier: Apache-2.0
// Operators on every element type, against the same arithmetic in C++.
#include <cmath>
#include <limits>
#include <random>

#include "codegen/harness.h"

namespace relaxvm::codegen::testing {
namespace {

using ir::BinaryOp;
using ir::Expr;
using ir::Intrin;
using ir::Var;
using tir::Indices;
using tir::PrimFunc;
using tir::Tensor;

template <typename T>
constexpr DLDataType DtypeOf() {
  if constexpr (std::is_same_v<T, bool>) return Bool();
  if constexpr (std::is_floating_point_v<T>) return Float(8 * sizeof(T));
  return std::is_signed_v<T> ? Int(8 * sizeof(T)) : UInt(8 * sizeof(T));
}

// z[i] = formula(x[i], y[i])
template <typename Z, typename T>
std::vector<Z> Apply(const std::function<Expr(Expr, Expr)>& formula, const std::vector<T>& a,
                     const std::vector<T>& b, DLDataType tx = DtypeOf<T>(),
                     DLDataType tz = DtypeOf<Z>(), const std::string& target = "llvm") {
  Var n("n", Int(64));
  Tensor x("x", {n}, tx), y("y", {n}, tx);
  Kernel kernel(tir::CreatePrimFunc(
                    {x, y}, {tir::Compute(
                                {n}, [&](const Indices& i) { return formula(x(i), y(i)); }, "z")}),
                target);
  std::vector<Z> c(a.size());
  int64_t size = static_cast<int64_t>(a.size());
  kernel.Must({View(const_cast<T*>(a.data()), {size}, tx),
               View(const_cast<T*>(b.data()), {size}, tx), View(c.data(), {size}, tz)});
  return c;
}
std::function<Expr(Expr, Expr)> Op(BinaryOp op) {
  return [op](Expr x, Expr y) { return ir::Make(op, x, y); };
}

// ---- integers -------------------------------------------------------------------------------

template <typename T>
class IntegersTest : public ::testing::Test {
 protected:
  // Every pair of values that are near a border, and of some that are not.
  IntegersTest() {
    std::vector<T> values{T(0),
                          T(1),
                          T(2),
                          T(3),
                          T(7),
                          T(10),
                          T(100),
                          std::numeric_limits<T>::max(),
                          std::numeric_limits<T>::min(),
                          static_cast<T>(std::numeric_limits<T>::max() - 1),
                          static_cast<T>(std::numeric_limits<T>::min() + 1),
                          static_cast<T>(-1),
                          static_cast<T>(-3),
                          static_cast<T>(-7)};
    for (T x : values) {
      for (T y : values) a_.push_back(x), b_.push_back(y);
    }
  }
  using Wide = __int128;
  void Check(BinaryOp op, const std::function<Wide(Wide, Wide)>& reference) {
    std::vector<T> got = Apply<T, T>(Op(op), a_, b_);
    for (size_t i = 0; i < a_.size(); ++i) {
      ASSERT_EQ(got[i], static_cast<T>(reference(a_[i], b_[i])))
          << static_cast<int>(op) << ": " << +a_[i] << " " << +b_[i];
    }
  }
  std::vector<T> a_, b_;
};
using IntegerTypes =
    ::testing::Types<int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t>;
TYPED_TEST_SUITE(IntegersTest, IntegerTypes);

TYPED_TEST(IntegersTest, AddSubtractMultiplyWrapAround) {
  this->Check(BinaryOp::kAdd, [](auto x, auto y) { return x + y; });
  this->Check(BinaryOp::kSub, [](auto x, auto y) { return x - y; });
  this->Check(BinaryOp::kMul, [](auto x, auto y) {
    return static_cast<__int128>(static_cast<unsigned __int128>(x) *
                                 static_cast<unsigned __int128>(y));
  });
}
TYPED_TEST(IntegersTest, DivisionByZeroGivesZero) {
  auto floor_div = [](__int128 x, __int128 y) {
    return y == 0 ? 0 : x / y - (x % y != 0 && (x % y < 0) != (y < 0));
  };
  this->Check(BinaryOp::kDiv, [](auto x, auto y) { return y == 0 ? 0 : x / y; });
  this->Check(BinaryOp::kMod, [](auto x, auto y) { return y == 0 ? 0 : x % y; });
  this->Check(BinaryOp::kFloorDiv, floor_div);
  this->Check(BinaryOp::kFloorMod,
              [=](auto x, auto y) { return y == 0 ? 0 : x - floor_div(x, y) * y; });
}
TYPED_TEST(IntegersTest, MinMaxAndBits) {
  this->Check(BinaryOp::kMin, [](auto x, auto y) { return std::min(x, y); });
  this->Check(BinaryOp::kMax, [](auto x, auto y) { return std::max(x, y); });
  this->Check(BinaryOp::kBitAnd, [](auto x, auto y) { return x & y; });
  this->Check(BinaryOp::kBitOr, [](auto x, auto y) { return x | y; });
  this->Check(BinaryOp::kBitXor, [](auto x, auto y) { return x ^ y; });
}
TYPED_TEST(IntegersTest, ShiftsBeyondTheWidthGiveZeroOrTheSign) {
  constexpr int kBits = 8 * sizeof(TypeParam);
  this->Check(BinaryOp::kShiftLeft, [](__int128 x, __int128 y) {
    return y < 0 || y >= kBits ? 0 : static_cast<__int128>(static_cast<unsigned __int128>(x) << y);
  });
  this->Check(BinaryOp::kShiftRight, [](__int128 x, __int128 y) {
    return y < 0 || y >= kBits ? (x < 0 ? -1 : 0) : x >> y;
  });
}
TYPED_TEST(IntegersTest, Comparisons) {
  std::vector<bool> unused;
  const std::pair<BinaryOp, bool (*)(TypeParam, TypeParam)> rows[] = {
      {BinaryOp::kLT, [](TypeParam x, TypeParam y) { return x < y; }},
      {BinaryOp::kLE, [](TypeParam x, TypeParam y) { return x <= y; }},
      {BinaryOp::kGT, [](TypeParam x, TypeParam y) { return x > y; }},
      {BinaryOp::kGE, [](TypeParam x, TypeParam y) { return x >= y; }},
      {BinaryOp::kEQ, [](TypeParam x, TypeParam y) { return x == y; }},
      {BinaryOp::kNE, [](TypeParam x, TypeParam y) { return x != y; }}};
  for (auto [op, reference] : rows) {
    std::vector<uint8_t> got =
        Apply<uint8_t, TypeParam>(Op(op), this->a_, this->b_, DtypeOf<TypeParam>(), Bool());
    for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], reference(this->a_[i], this->b_[i]));
  }
}
TYPED_TEST(IntegersTest, DivisionByAConstant) {
  for (int divisor : {1, 3, 7, 8, 100}) {
    auto got = Apply<TypeParam, TypeParam>(
        [&](Expr x, Expr) { return ir::FloorDiv(x, ir::Const(x.dtype(), divisor)); }, this->a_,
        this->b_);
    auto rest = Apply<TypeParam, TypeParam>(
        [&](Expr x, Expr) { return ir::FloorMod(x, ir::Const(x.dtype(), divisor)); }, this->a_,
        this->b_);
    for (size_t i = 0; i < got.size(); ++i) {
      __int128 x = this->a_[i], q = x / divisor - (x % divisor < 0);
      ASSERT_EQ(got[i], static_cast<TypeParam>(q)) << +this->a_[i] << " // " << divisor;
      ASSERT_EQ(rest[i], static_cast<TypeParam>(x - q * divisor));
    }
  }
}
TYPED_TEST(IntegersTest, UnaryFunctions) {
  auto unary = [&](Intrin intrin) {
    return Apply<TypeParam, TypeParam>([=](Expr x, Expr) { return ir::CallIntrin(intrin, {x}); },
                                       this->a_, this->b_);
  };
  auto bits_of = [](TypeParam x) { return static_cast<std::make_unsigned_t<TypeParam>>(x); };
  auto negated = unary(Intrin::kNeg), absolute = unary(Intrin::kAbs), sign = unary(Intrin::kSign),
       flipped = unary(Intrin::kBitNot), ones = unary(Intrin::kPopcount),
       zeros = unary(Intrin::kClz);
  for (size_t i = 0; i < this->a_.size(); ++i) {
    TypeParam x = this->a_[i];
    ASSERT_EQ(negated[i], static_cast<TypeParam>(-bits_of(x)));
    ASSERT_EQ(absolute[i], x < 0 ? static_cast<TypeParam>(-bits_of(x)) : x);
    ASSERT_EQ(sign[i], static_cast<TypeParam>(x < 0 ? -1 : x > 0));
    ASSERT_EQ(flipped[i], static_cast<TypeParam>(~x));
    ASSERT_EQ(ones[i], __builtin_popcountll(bits_of(x)));
    ASSERT_EQ(zeros[i], bits_of(x) == 0
                            ? static_cast<int>(8 * sizeof(x))
                            : __builtin_clzll(bits_of(x)) - static_cast<int>(64 - 8 * sizeof(x)));
  }
}

// ---- floats ---------------------------------------------------------------------------------

template <typename T>
class FloatsTest : public ::testing::Test {
 protected:
  FloatsTest() {
    T inf = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN(),
      small = std::numeric_limits<T>::denorm_min();
    std::vector<T> values{
        0,      T(-0.0), 1,       -1,       T(2.5),     T(-2.5),
        T(0.5), T(1.5),  T(1e20), T(-1e20), 3,          7,
        inf,    -inf,    nan,     small,    -small * 5, std::numeric_limits<T>::max()};
    for (T x : values) {
      for (T y : values) a_.push_back(x), b_.push_back(y);
    }
  }
  static bool Same(T a, T b) { return std::isnan(a) ? std::isnan(b) : a == b; }
  void Check(const std::function<Expr(Expr, Expr)>& formula,
             const std::function<T(T, T)>& reference, const char* what) {
    for (const char* target : {"llvm", "llvm -mcpu=x86-64"}) {
      std::vector<T> got = Apply<T, T>(formula, a_, b_, DtypeOf<T>(), DtypeOf<T>(), target);
      for (size_t i = 0; i < a_.size(); ++i) {
        T want = reference(a_[i], b_[i]);
        ASSERT_TRUE(Same(got[i], want)) << what << "(" << a_[i] << ", " << b_[i] << ") gave "
                                        << got[i] << " for " << want << " on " << target;
      }
    }
  }
  std::vector<T> a_, b_;
};
using FloatTypes = ::testing::Types<float, double>;
TYPED_TEST_SUITE(FloatsTest, FloatTypes);

TYPED_TEST(FloatsTest, Arithmetic) {
  using T = TypeParam;
  this->Check(Op(BinaryOp::kAdd), [](T x, T y) { return x + y; }, "add");
  this->Check(Op(BinaryOp::kSub), [](T x, T y) { return x - y; }, "sub");
  this->Check(Op(BinaryOp::kMul), [](T x, T y) { return x * y; }, "mul");
  this->Check(Op(BinaryOp::kDiv), [](T x, T y) { return x / y; }, "div");
}
TYPED_TEST(FloatsTest, MinMaxKeepNaN) {
  using T = TypeParam;
  this->Check(
      Op(BinaryOp::kMax),
      [](T x, T y) { return std::isnan(x)   ? x
                            : std::isnan(y) ? y
                                            : std::max(x, y); }, "max");
  this->Check(
      Op(BinaryOp::kMin),
      [](T x, T y) { return std::isnan(x)   ? x
                            : std::isnan(y) ? y
                                            : std::min(x, y); }, "min");
  this->Check([](Expr x, Expr) { return ir::Max(x, 0); },
              [](T x, T) { return std::isnan(x) ? x : std::max(x, T(0)); }, "relu");
}
TYPED_TEST(FloatsTest, Remainders) {
  using T = TypeParam;
  this->Check(Op(BinaryOp::kMod), [](T x, T y) { return std::fmod(x, y); }, "fmod");
  auto floor_mod = [](T x, T y) {
    T r = std::fmod(x, y);
    return r != 0 && (r < 0) != (y < 0) ? r + y : r;
  };
  this->Check(Op(BinaryOp::kFloorMod), floor_mod, "floor_mod");
}
TYPED_TEST(FloatsTest, Rounding) {
  using T = TypeParam;
  auto unary = [](Intrin intrin) {
    return [intrin](Expr x, Expr) { return ir::CallIntrin(intrin, {x}); };
  };
  this->Check(unary(Intrin::kFloor), [](T x, T) { return std::floor(x); }, "floor");
  this->Check(unary(Intrin::kCeil), [](T x, T) { return std::ceil(x); }, "ceil");
  this->Check(unary(Intrin::kTrunc), [](T x, T) { return std::trunc(x); }, "trunc");
  this->Check(unary(Intrin::kRound), [](T x, T) { return std::nearbyint(x); }, "round");
  this->Check(unary(Intrin::kSign), [](T x, T) { return x > 0 ? 1 : x < 0 ? -1 : x; }, "sign");
  this->Check(unary(Intrin::kNeg), [](T x, T) { return -x; }, "neg");
}
TYPED_TEST(FloatsTest, CastsToIntegersNeverTrap) {
  using T = TypeParam;
  std::vector<T> x{0,     T(1.9),  T(-1.9),  100,
                   -100,  T(1e30), T(-1e30), std::numeric_limits<T>::quiet_NaN(),
                   T(300)};
  auto cast = [](DLDataType t) { return [t](Expr v, Expr) { return ir::Cast(t, v); }; };
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max(),
                    kMin = std::numeric_limits<int64_t>::min();
  EXPECT_EQ((Apply<int64_t, T>(cast(Int(64)), x, x)),
            (std::vector<int64_t>{0, 1, -1, 100, -100, kMax, kMin, 0, 300}));
  constexpr int32_t kMax32 = std::numeric_limits<int32_t>::max(),
                    kMin32 = std::numeric_limits<int32_t>::min();
  EXPECT_EQ((Apply<int32_t, T>(cast(Int(32)), x, x)),
            (std::vector<int32_t>{0, 1, -1, 100, -100, kMax32, kMin32, 0, 300}));
  EXPECT_EQ((Apply<uint8_t, T>(cast(UInt(8)), x, x)),
            (std::vector<uint8_t>{0, 1, 255, 100, 156, 255, 0, 0, 44}));
  EXPECT_EQ((Apply<uint8_t, T>(cast(Bool()), x, x, DtypeOf<T>(), Bool())),
            (std::vector<uint8_t>{0, 1, 1, 1, 1, 1, 1, 1, 1}));
}

// ---- 16-bit floats --------------------------------------------------------------------------

float FromBFloat(uint16_t bits) {
  uint32_t word = static_cast<uint32_t>(bits) << 16;
  float x;
  std::memcpy(&x, &word, 4);
  return x;
}
float FromHalf(uint16_t bits) {
  int exponent = (bits >> 10) & 31, digits = bits & 1023;
  double magnitude = exponent == 31 ? (digits ? NAN : INFINITY)
                     : exponent     ? std::ldexp(1024 + digits, exponent - 25)
                                    : std::ldexp(digits, -24);
  return static_cast<float>(bits & 0x8000 ? -magnitude : magnitude);
}

class HalvesTest : public ::testing::TestWithParam<std::tuple<bool, const char*>> {
 protected:
  bool bfloat() const { return std::get<0>(GetParam()); }
  const char* target() const { return std::get<1>(GetParam()); }
  DLDataType type() const { return bfloat() ? BFloat16() : Float(16); }
  float Value(uint16_t bits) const { return bfloat() ? FromBFloat(bits) : FromHalf(bits); }
  // The bits of the value next to x, ties to even; found by trying, for finite x within range.
  uint16_t Nearest(double x) const {
    uint16_t low = 0, high = bfloat() ? 0x7f80 : 0x7c00;  // magnitudes grow with their bits
    double magnitude = std::fabs(x);
    while (high - low > 1) {
      uint16_t middle = static_cast<uint16_t>((low + high) / 2);
      (Value(middle) <= magnitude ? low : high) = middle;
    }
    // Infinity stands for the power of two after the greatest number.
    double above =
        high == (bfloat() ? 0x7f80 : 0x7c00) ? std::ldexp(1.0, bfloat() ? 128 : 16) : Value(high);
    double to_low = magnitude - Value(low), to_high = above - magnitude;
    uint16_t bits = to_low < to_high || (to_low == to_high && low % 2 == 0) ? low : high;
    return static_cast<uint16_t>(bits | (std::signbit(x) ? 0x8000 : 0));
  }
};

TEST_P(HalvesTest, EveryValueSurvivesTheWayThroughFloat) {
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  auto wide = Apply<float, uint16_t>([](Expr x, Expr) { return ir::Cast(Float(32), x); }, all, all,
                                     type(), Float(32), target());
  auto back =
      Apply<uint16_t, uint16_t>([](Expr x, Expr) { return ir::CallIntrin(Intrin::kNeg, {x}); }, all,
                                all, type(), type(), target());
  for (size_t i = 0; i < all.size(); ++i) {
    float want = Value(all[i]);
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(wide[i])) << i;
      ASSERT_TRUE(std::isnan(Value(back[i]))) << i;
    } else {
      ASSERT_EQ(wide[i], want) << i;
      ASSERT_EQ(back[i], all[i] ^ 0x8000) << i;
    }
  }
}

TEST_P(HalvesTest, RoundsFloatsAndDoublesOnce) {
  std::mt19937_64 random(11);
  std::vector<float> x;
  std::vector<double> d;
  std::uniform_real_distribution<double> exponent(-30, 15.99);
  for (int i = 0; i < 20000; ++i) {
    double v = std::exp2(exponent(random)) * (i % 2 ? 1 : -1);
    x.push_back(static_cast<float>(v));
    d.push_back(v);
  }
  for (int i = 1; i < 2000; ++i) {  // exactly between two neighbours, and a breath beside
    double middle = (static_cast<double>(Value(static_cast<uint16_t>(i * 13))) +
                     Value(static_cast<uint16_t>(i * 13 + 1))) /
                    2;
    for (double v : {middle, middle * (1 + 1e-14), middle * (1 - 1e-14)}) d.push_back(v);
    x.push_back(static_cast<float>(middle));
  }
  auto cast = [&](Expr v, Expr) { return ir::Cast(type(), v); };
  auto from_float = Apply<uint16_t, float>(cast, x, x, Float(32), type(), target());
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(from_float[i], Nearest(x[i])) << x[i];
  auto from_double = Apply<uint16_t, double>(cast, d, d, Float(64), type(), target());
  for (size_t i = 0; i < d.size(); ++i) ASSERT_EQ(from_double[i], Nearest(d[i])) << d[i];
}

TEST_P(HalvesTest, ComputesInFloatAndRoundsEachResult) {
  std::mt19937 random(2);
  std::vector<uint16_t> a, b;
  for (int i = 0; i < 5000; ++i) {
    a.push_back(Nearest(static_cast<double>(random() % 1000) / 7 + 0.1));
    b.push_back(Nearest(static_cast<double>(random() % 1000) / 9 + 0.1));
  }
  auto got = Apply<uint16_t, uint16_t>([](Expr x, Expr y) { return x * y + x; }, a, b, type(),
                                       type(), target());
  auto exponentials =
      Apply<uint16_t, uint16_t>([](Expr x, Expr) { return ir::CallIntrin(Intrin::kTanh, {x}); }, a,
                                b, type(), type(), target());
  for (size_t i = 0; i < a.size(); ++i) {
    double product = Value(Nearest(static_cast<double>(Value(a[i])) * Value(b[i])));
    ASSERT_EQ(got[i], Nearest(product + Value(a[i]))) << i;
    ASSERT_NEAR(Value(exponentials[i]), std::tanh(Value(a[i])), bfloat() ? 4e-3 : 5e-4);
  }
}
INSTANTIATE_TEST_SUITE_P(Types, HalvesTest,
                         ::testing::Combine(::testing::Bool(),
                                            ::testing::Values("llvm", "llvm -mcpu=x86-64")));

// ---- bool -----------------------------------------------------------------------------------

TEST(Bools, AreBytesInMemory) {
  std::vector<uint8_t> a{0, 0, 1, 1}, b{0, 1, 0, 1};
  auto apply = [&](const std::function<Expr(Expr, Expr)>& f) {
    return Apply<uint8_t, uint8_t>(f, a, b, Bool(), Bool());
  };
  using Bytes = std::vector<uint8_t>;
  EXPECT_EQ(apply([](Expr x, Expr y) { return ir::And(x, y); }), (Bytes{0, 0, 0, 1}));
  EXPECT_EQ(apply([](Expr x, Expr y) { return ir::Or(x, y); }), (Bytes{0, 1, 1, 1}));
  EXPECT_EQ(apply([](Expr x, Expr) { return ir::Not(x); }), (Bytes{1, 1, 0, 0}));
  EXPECT_EQ(apply([](Expr x, Expr y) { return ir::Max(x, y); }), (Bytes{0, 1, 1, 1}));
  EXPECT_EQ(apply([](Expr x, Expr y) { return ir::Less(x, y); }), (Bytes{0, 1, 0, 0}));
  auto numbers = Apply<float, uint8_t>([](Expr x, Expr) { return ir::Cast(Float(32), x); }, a, b,
                                       Bool(), Float(32));
  EXPECT_EQ(numbers, (std::vector<float>{0, 0, 1, 1}));
}

TEST(Dtypes, OneWithoutNativeCodeIsRefused) {
  Tensor x("x", {Expr(4)}, Int(4));
  try {
    Kernel kernel(tir::CreatePrimFunc({x}, {tir::Map(x, [](Expr v) { return v; })}));
    FAIL() << "compiled";
  } catch (const ffi::Error& error) {
    EXPECT_EQ(error.message(), "native code for int4 is not supported");
  }
}

}  // namespace
}  // namespace relaxvm::codegen::testing
