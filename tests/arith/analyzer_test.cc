// SPDX-License-Identifier: Apache-2.0
// Identities that shapes and indices need, and random expressions: what Simplify returns has the
// value of what it was given.
#include "arith/analyzer.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

#include "arith/same.h"
#include "ir/module.h"

namespace relaxvm::arith {
namespace {

using namespace ir;  // NOLINT: the makers

Var Dim(const char* name) { return Var(name, Int(64)); }

struct Sizes {
  Var n = Dim("n"), m = Dim("m"), c = Dim("c"), h = Dim("h"), w = Dim("w"), k = Dim("k");
};

// ---- identities ------------------------------------------------------------------------------------------------------

struct Identity {
  std::string name;
  Expr a;
  Expr b;
};

Expr ConvSize(Expr size, int kernel, int stride, int pad) {
  return FloorDiv(size + (2 * pad - kernel), stride) + 1;
}

std::vector<Identity> Identities() {
  Sizes s;
  Expr n = s.n, m = s.m, c = s.c, h = s.h, w = s.w, k = s.k;
  return {
      {"products associate", (n * 4) * h, n * (h * 4)},
      {"products commute", n * c * h * w, w * (h * c) * n},
      {"sums distribute", (n + 1) * (m + 2), n * m + n * 2 + m + 2},
      {"common size", FloorDiv(n * m, m), n},
      {"common size and factor", FloorDiv(n * m * 4, m * 2), n * 2},
      {"reshape with -1", FloorDiv(n * c * h * w, c * (h * w)), n},
      {"sum over common size", FloorDiv(n * m + c * m, m), n + c},
      {"division by a sum", FloorDiv(n * (m + 1), m + 1), n},
      {"remainder of a multiple", FloorMod(n * m * 4, m), Expr(0)},
      {"divisible part", FloorDiv(n * 8 + 3, 4), n * 2},
      {"remainder keeps the rest", FloorMod(n * 8 + m, 4), FloorMod(m, 4)},
      {"nested quotients", FloorDiv(FloorDiv(n, 3), 5), FloorDiv(n, 15)},
      {"nested quotients with a constant", FloorDiv(FloorDiv(n, 3) + 2, 5), FloorDiv(n + 6, 15)},
      {"nested quotients of sizes", FloorDiv(FloorDiv(n, m), c), FloorDiv(n, m * c)},
      {"quotient and remainder", FloorDiv(n, 4) * 4 + FloorMod(n, 4), n},
      {"quotient and remainder of sizes", FloorDiv(n, m) * m + FloorMod(n, m), n},
      {"remainder of a remainder", FloorMod(FloorMod(n, 12), 4), FloorMod(n, 4)},
      {"quotient of a remainder", FloorDiv(FloorMod(n, 12), 4), FloorMod(FloorDiv(n, 4), 3)},
      {"rounding up", CeilDiv(n, 4), FloorDiv(n + 3, 4)},
      {"rounding up, negated", Sub(0, FloorDiv(Sub(0, n), 4)), FloorDiv(n + 3, 4)},
      {"rounding up twice", CeilDiv(CeilDiv(n, 2), 3), CeilDiv(n, 6)},
      {"rounding up by a size", CeilDiv(n * m, m), n},
      {"constant inside the quotient", FloorDiv(n - 3, 2) + 1, FloorDiv(n - 1, 2)},
      {"same padding", ConvSize(h, 3, 1, 1), h},
      {"even kernel", ConvSize(h, 2, 2, 0), FloorDiv(h, 2)},
      {"stride two, twice", ConvSize(ConvSize(h, 3, 2, 1), 3, 2, 1), FloorDiv(h + 3, 4)},
      {"stride two, five times",
       ConvSize(ConvSize(ConvSize(ConvSize(ConvSize(h, 3, 2, 1), 3, 2, 1), 3, 2, 1), 3, 2, 1), 3, 2,
                1),
       FloorDiv(h - 1, 32) + 1},
      {"stride two of a multiple", ConvSize(ConvSize(h * 32, 7, 2, 3), 3, 2, 1), h * 8},
      {"pixel shuffle", FloorDiv(n * 2 * (m * 2), 4), n * m},
      {"minimum of ordered", Min(n, n + 1), n},
      {"maximum of ordered", Max(n + m, n), n + m},
      {"minimum and maximum", Min(n, m) + Max(n, m), n + m},
      {"maximum scales", Max(n * 2, m * 2), Max(n, m) * 2},
      {"a size is not negative", Max(n, 0), n},
      {"clipped slice", Max(Min(n, n) - 0, 0), n},
      {"choice of equals", Select(Less(n, m), c * 2, c + c), c * 2},
      {"decided choice", Select(Less(n, n + 1), c, m), c},
      {"bits", CallIntrin(Intrin::kAbs, {n}), n},
      {"masks are remainders", Make(BinaryOp::kBitAnd, n, 7), FloorMod(n, 8)},
      {"shifts are quotients", Make(BinaryOp::kShiftRight, n * 16, 3), n * 2},
      {"truncated division of sizes", Div(n * m, m), n},
      {"concat of halves", FloorDiv(n, 2) + (n - FloorDiv(n, 2)), n},
  };
}

TEST(Identities, AreProved) {
  for (const Identity& i : Identities()) {
    Analyzer analyzer;
    EXPECT_TRUE(analyzer.ProveEqual(i.a, i.b)) << i.name;
  }
}

TEST(Identities, AreProvedByOneAnalyzerInAnyOrder) {
  std::vector<Identity> all = Identities();
  Analyzer analyzer;
  for (auto i = all.rbegin(); i != all.rend(); ++i)
    EXPECT_TRUE(analyzer.ProveEqual(i->b, i->a)) << i->name;
}

TEST(Identities, FalseOnesAreNotProved) {
  Sizes s;
  Expr n = s.n, m = s.m;
  Analyzer a;
  EXPECT_FALSE(a.ProveEqual(n, m));
  EXPECT_FALSE(a.ProveEqual(FloorDiv(n, 2) * 2, n));
  EXPECT_FALSE(a.ProveEqual(FloorDiv(n, 2) + FloorDiv(m, 2), FloorDiv(n + m, 2)));
  EXPECT_FALSE(a.ProveEqual(n * m, n + m));
  EXPECT_FALSE(a.ProveEqual(Max(n, m), n));
  EXPECT_FALSE(a.ProveEqual(Max(n, 1), n));
  EXPECT_FALSE(a.Prove(Greater(n, 0)));
  EXPECT_FALSE(a.Prove(Less(n, m)));
}

// ---- facts -----------------------------------------------------------------------------------------------------------

TEST(Facts, FlattenedIndexStaysInside) {
  Sizes s;
  Var i = Dim("i"), j = Dim("j");
  Analyzer a;
  a.Bind(i, 0, s.n);
  a.Bind(j, 0, s.m);
  EXPECT_TRUE(a.Prove(Less(i * s.m + j, s.n * s.m)));
  EXPECT_TRUE(a.ProveEqual(FloorDiv(i * s.m + j, s.m), i));
  EXPECT_TRUE(a.ProveEqual(FloorMod(i * s.m + j, s.m), j));
  EXPECT_FALSE(a.Prove(Less(i * s.m + j + 1, s.n * s.m)));
}

TEST(Facts, SplitIndexIsPutTogetherAgain) {
  Var i = Dim("i");
  Analyzer a;
  a.BindRange(i, {0, 255});
  EXPECT_TRUE(a.ProveEqual(FloorDiv(i, 16) * 16 + FloorMod(i, 16), i));
  EXPECT_TRUE(a.ProveEqual(FloorMod(i, 256), i));
  EXPECT_EQ(a.Bounds(FloorDiv(i, 16)), (Interval{0, 15}));
  EXPECT_EQ(a.Bounds(FloorMod(i, 16) * 2 + 1), (Interval{1, 31}));
}

TEST(Facts, TiledIndexStaysInside) {
  Sizes s;
  Var o = Dim("o"), i = Dim("i");
  Analyzer a;
  a.Bind(o, 0, FloorDiv(s.n, 8));
  a.BindRange(i, {0, 7});
  EXPECT_TRUE(a.Prove(Less(o * 8 + i, s.n)));
}

TEST(Facts, AreForgottenWithTheirScope) {
  Sizes s;
  Analyzer a;
  {
    Analyzer::Scope scope(&a, GreaterEqual(s.n, 3));
    EXPECT_TRUE(a.Prove(Greater(s.n * 2, 5)));
    EXPECT_TRUE(a.ProveEqual(Max(s.n, 2), s.n));
  }
  EXPECT_FALSE(a.Prove(Greater(s.n * 2, 5)));
  EXPECT_FALSE(a.ProveEqual(Max(s.n, 2), s.n));
}

TEST(Facts, EqualSizesReplaceEachOther) {
  Sizes s;
  Analyzer a;
  a.Assume(Equal(s.n, s.m * 4));
  EXPECT_TRUE(a.ProveEqual(FloorDiv(s.n, 4), s.m));
  EXPECT_TRUE(a.ProveEqual(s.n * s.h, s.m * s.h * 4));
}

TEST(Facts, DivisibilityIsUsed) {
  Sizes s;
  Analyzer a;
  a.Assume(Equal(FloorMod(s.n, 8), 0));
  EXPECT_TRUE(a.ProveEqual(FloorDiv(s.n, 8) * 8, s.n));
  EXPECT_TRUE(a.ProveEqual(FloorMod(s.n, 4), 0));
  EXPECT_EQ(a.Modular(s.n + 3), (ModularSet{8, 3}));
  EXPECT_TRUE(a.Prove(NotEqual(s.n + 3, s.m * 8)));
}

TEST(Facts, OrderIsTransitive) {
  Sizes s;
  Analyzer a;
  a.Assume(Less(s.n, s.m));
  a.Assume(LessEqual(s.m, s.c));
  EXPECT_TRUE(a.Prove(Less(s.n, s.c)));
  EXPECT_FALSE(a.Prove(Less(s.c, s.n)));
  EXPECT_TRUE(a.ProveEqual(Min(s.n, s.c), s.n));
}

TEST(Facts, ConditionsThatAreNotArithmeticAreRemembered) {
  Var flag("flag", Bool());
  Analyzer a;
  a.Assume(flag);
  EXPECT_TRUE(a.Prove(flag));
  EXPECT_EQ(AsInt(a.Simplify(Select(flag, 1, 2))), 1);
}

TEST(Facts, ACallIsNeverEqualToAnother) {
  Expr f = ExternFunc("f");
  auto call = [&] { return Call(f, {}, Attrs(), {}, Span(), PrimType(Int(64))); };
  Expr x = call(), y = call();
  Analyzer a;
  EXPECT_TRUE(a.ProveEqual(x + 1, x + 1));
  EXPECT_FALSE(a.ProveEqual(x, y));
}

TEST(Bounds, OfProductsAndQuotients) {
  Var x = Dim("x"), y = Dim("y");
  Analyzer a;
  a.BindRange(x, {-3, 5});
  a.BindRange(y, {2, 4});
  EXPECT_EQ(a.Bounds(x * y), (Interval{-12, 20}));
  EXPECT_EQ(a.Bounds(FloorDiv(x, y)), (Interval{-2, 2}));
  EXPECT_EQ(a.Bounds(x * x).min, 0);
  EXPECT_EQ(a.Bounds(x - x), Interval::Point(0));
  EXPECT_EQ(a.Bounds(Dim("n") * 4), Interval::AtLeast(0));
}

TEST(Simplify, KeepsWhatIsShortEnough) {
  Sizes s;
  Analyzer a;
  for (const Expr& e :
       {FloorDiv(s.w - 1, 3) + 1, (s.n + 1) * s.m, Max(s.n, s.m) + 2, FloorMod(s.n, 4) * s.m}) {
    EXPECT_TRUE(a.Simplify(e).same_as(e));
  }
}

TEST(Simplify, WritesTheShortForm) {
  Sizes s;
  Analyzer a;
  auto check = [&](const Expr& given, const Expr& expected) {
    EXPECT_TRUE(SameScalar(a.Simplify(given), expected));
  };
  check(s.n + 1 - 1, s.n);
  check(FloorDiv(s.h - 2, 2) + 1, FloorDiv(s.h, 2));
  check(s.n - FloorDiv(s.n, 4) * 4, FloorMod(s.n, 4));
  check(Less(s.n + 1, s.m + 1), Less(s.n, s.m));
  check(Less(s.n, s.n + 1), BoolImm(true));
  check(FloorMod(FloorDiv(s.n, 4) * 4 + FloorMod(s.n, 4), 8), FloorMod(s.n, 8));
}

TEST(Simplify, LeavesArithmeticThatMayWrap) {
  Var x("x", UInt(8));
  Analyzer a;
  Expr e = FloorDiv(x * Const(UInt(8), 2), Const(UInt(8), 2));
  EXPECT_TRUE(a.Simplify(e).same_as(e));
}

TEST(Limits, OverflowingConstantsAreNotFolded) {
  Sizes s;
  Analyzer a;
  Expr big = s.n * Const(Int(64), int64_t{1} << 62);
  EXPECT_FALSE(a.ProveEqual(big * 4, s.n * 0));
  EXPECT_FALSE(a.Prove(Less(big * 4, 0)));
}

TEST(Limits, ConstantsThatDoNotFitStayOutsideOfMaxima) {
  Sizes s;
  Analyzer a;
  const Expr half = Const(Int(64), int64_t{1} << 62);
  Expr e = Max(s.n + half, 0) + half;  // not max(n + 2^63, 2^62)
  EXPECT_TRUE(a.Simplify(e).defined());
}

TEST(Limits, SharedPartsDoNotMultiplyTheWork) {
  Sizes s;
  Analyzer a;
  Expr e = s.n;
  for (int i = 0; i < 200; ++i) e = Max(e, e + s.m) * e;  // 3^200 nodes when written out
  Expr out = a.Simplify(e);
  EXPECT_TRUE(out.defined());
}

TEST(Limits, DeepChainsAreAnswered) {
  Sizes s;
  Analyzer a;
  Expr e = s.n;
  for (int i = 0; i < 2000; ++i) e = FloorDiv(e + s.m, 3) + 1;
  EXPECT_FALSE(a.ProveEqual(e, s.n));
}

// ---- random expressions ------------------------------------------------------------------------------------------------

using Point = std::map<const ffi::Object*, int64_t>;

// The value of `e`; absent where a divisor is 0 or a value leaves the range in which nothing
// overflows.
std::optional<int64_t> Evaluate(const Expr& e, const Point& point) {
  constexpr int64_t kLimit = int64_t{1} << 40;
  auto checked = [](__int128 v) -> std::optional<int64_t> {
    if (v > kLimit || v < -kLimit) return std::nullopt;
    return static_cast<int64_t>(v);
  };
  if (ffi::Optional<int64_t> value = AsInt(e)) return *value;
  if (e.as<VarObj>()) return point.at(e.get());
  if (auto* c = e.as<CastObj>()) return Evaluate(c->value, point);
  if (auto* s = e.as<SelectObj>()) {
    std::optional<int64_t> condition = Evaluate(s->condition, point);
    if (!condition) return std::nullopt;
    return Evaluate(*condition ? s->true_value : s->false_value, point);
  }
  if (auto* i = e.as<IntrinObj>()) {
    std::optional<int64_t> x = Evaluate(i->args[0], point);
    if (!x) return std::nullopt;
    if (i->intrin == Intrin::kNot) return !*x;
    if (i->intrin == Intrin::kAbs) return std::abs(*x);
    return std::nullopt;
  }
  auto* b = e.as<BinaryObj>();
  if (b == nullptr) return std::nullopt;
  std::optional<int64_t> px = Evaluate(b->a, point), py = Evaluate(b->b, point);
  if (!px || !py) return std::nullopt;
  int64_t x = *px, y = *py;
  switch (b->op) {
    case BinaryOp::kAdd: return checked(static_cast<__int128>(x) + y);
    case BinaryOp::kSub: return checked(static_cast<__int128>(x) - y);
    case BinaryOp::kMul: return checked(static_cast<__int128>(x) * y);
    case BinaryOp::kDiv: return y == 0 ? std::nullopt : std::optional<int64_t>(x / y);
    case BinaryOp::kMod: return y == 0 ? std::nullopt : std::optional<int64_t>(x % y);
    case BinaryOp::kFloorDiv:
      return y == 0 ? std::nullopt : std::optional<int64_t>(FloorDivInt(x, y));
    case BinaryOp::kFloorMod:
      return y == 0 ? std::nullopt : std::optional<int64_t>(FloorModInt(x, y));
    case BinaryOp::kMin: return std::min(x, y);
    case BinaryOp::kMax: return std::max(x, y);
    case BinaryOp::kEQ: return x == y;
    case BinaryOp::kNE: return x != y;
    case BinaryOp::kLT: return x < y;
    case BinaryOp::kLE: return x <= y;
    case BinaryOp::kGT: return x > y;
    case BinaryOp::kGE: return x >= y;
    case BinaryOp::kAnd: return x && y;
    case BinaryOp::kOr: return x || y;
    case BinaryOp::kBitAnd: return x & y;
    case BinaryOp::kBitOr: return x | y;
    case BinaryOp::kBitXor: return x ^ y;
    case BinaryOp::kShiftLeft: return checked(static_cast<__int128>(x) << y);
    case BinaryOp::kShiftRight: return x >> y;
  }
  return std::nullopt;
}

class Generator {
 public:
  explicit Generator(unsigned seed) : random_(seed) {
    for (const char* name : {"n", "m", "i", "j", "x"}) vars_.push_back(Dim(name));
  }
  const std::vector<Var>& vars() const { return vars_; }
  int Below(int limit) { return static_cast<int>(random_() % limit); }

  Expr Integer(int depth) {
    if (depth == 0) {
      return Below(3) == 0 ? Expr(Below(13) - 4)
                           : Expr(vars_[Below(static_cast<int>(vars_.size()))]);
    }
    Expr a = Integer(depth - 1);
    switch (Below(14)) {
      case 0:
      case 1: return Binary(BinaryOp::kAdd, a, Integer(depth - 1));
      case 2: return Binary(BinaryOp::kSub, a, Integer(depth - 1));
      case 3: return Binary(BinaryOp::kMul, a, Integer(depth > 1 ? 1 : 0));
      case 4: return Binary(BinaryOp::kMul, a, Expr(Below(9) - 3));
      case 5: return Binary(BinaryOp::kFloorDiv, a, Expr(1 + Below(8)));
      case 6: return Binary(BinaryOp::kFloorMod, a, Expr(1 + Below(8)));
      case 7: return Binary(BinaryOp::kFloorDiv, a, Integer(0));
      case 8: return Binary(BinaryOp::kFloorMod, a, Integer(depth - 1));
      case 9: return Binary(BinaryOp::kMin, a, Integer(depth - 1));
      case 10: return Binary(BinaryOp::kMax, a, Integer(depth - 1));
      case 11: return SelectExpr(Condition(depth - 1), a, Integer(depth - 1));
      case 12: return Binary(Below(2) ? BinaryOp::kDiv : BinaryOp::kMod, a, Integer(0));
      default:
        return Below(2) ? Binary(BinaryOp::kBitAnd, a, Expr(7))
                        : Binary(BinaryOp::kShiftRight, a, Expr(2));
    }
  }

  Expr Condition(int depth) {
    constexpr BinaryOp kOps[] = {BinaryOp::kEQ, BinaryOp::kNE, BinaryOp::kLT,
                                 BinaryOp::kLE, BinaryOp::kGT, BinaryOp::kGE};
    if (depth > 1 && Below(3) == 0) {
      return Binary(Below(2) ? BinaryOp::kAnd : BinaryOp::kOr, Condition(depth - 1),
                    Condition(depth - 1));
    }
    return Binary(kOps[Below(6)], Integer(depth), Integer(depth));
  }

 private:
  std::mt19937 random_;
  std::vector<Var> vars_;
};

// Facts about the variables of a generator, and points that satisfy them:  n, m sizes;  0 <= i < n;
// 0 <= j < 6;  x any.
struct World {
  explicit World(const Generator& g) : vars(g.vars()) {
    analyzer.Bind(vars[2], 0, vars[0]);
    analyzer.Bind(vars[3], 0, 6);
    analyzer.BindRange(vars[4], Interval::Everything());
  }
  Point Draw(Generator& g) const {
    int64_t n = 1 + g.Below(12);
    return {{vars[0].get(), n},
            {vars[1].get(), g.Below(10)},
            {vars[2].get(), g.Below(static_cast<int>(n))},
            {vars[3].get(), g.Below(6)},
            {vars[4].get(), g.Below(41) - 20}};
  }
  std::vector<Var> vars;
  Analyzer analyzer;
};

TEST(Random, SimplifyKeepsTheValue) {
  for (unsigned seed = 0; seed < 4000; ++seed) {
    Generator g(seed);
    World world(g);
    Expr e = seed % 4 == 0 ? g.Condition(3) : g.Integer(2 + static_cast<int>(seed % 3));
    Expr simple = world.analyzer.Simplify(e);
    Interval bounds = relaxvm::IsBool(e.dtype()) ? Interval{0, 1} : world.analyzer.Bounds(e);
    ModularSet modular = relaxvm::IsBool(e.dtype()) ? ModularSet{} : world.analyzer.Modular(e);
    for (int trial = 0; trial < 12; ++trial) {
      Point point = world.Draw(g);
      std::optional<int64_t> expected = Evaluate(e, point);
      if (!expected) continue;
      std::optional<int64_t> got = Evaluate(simple, point);
      ASSERT_TRUE(got.has_value()) << "seed " << seed;
      ASSERT_EQ(*expected, *got) << "seed " << seed;
      ASSERT_TRUE(bounds.Contains(*expected)) << "seed " << seed;
      int64_t offset = *expected - modular.base;
      ASSERT_TRUE(modular.coeff == 0 ? offset == 0 : offset % modular.coeff == 0)
          << "seed " << seed;
    }
  }
}

TEST(Random, WhatIsProvedHolds) {
  int proved = 0;
  for (unsigned seed = 0; seed < 4000; ++seed) {
    Generator g(seed + 100000);
    World world(g);
    Expr a = g.Integer(2);
    Expr condition = Binary(seed % 3 == 0 ? BinaryOp::kEQ : BinaryOp::kLE, a,
                            seed % 2 ? g.Integer(2) : a + g.Integer(1));
    if (!world.analyzer.Prove(condition)) continue;
    ++proved;
    for (int trial = 0; trial < 20; ++trial) {
      std::optional<int64_t> value = Evaluate(condition, world.Draw(g));
      if (value) {
        ASSERT_EQ(*value, 1) << "seed " << seed;
      }
    }
  }
  EXPECT_GT(proved, 200);
}

TEST(Random, WhatIsProvedUnderAssumptionsHolds) {
  int proved = 0;
  for (unsigned seed = 0; seed < 3000; ++seed) {
    Generator g(seed + 200000);
    World world(g);
    Expr fact = g.Condition(1);
    Expr condition = g.Condition(2);
    Analyzer::Scope scope(&world.analyzer, fact);
    std::optional<bool> decided;
    if (world.analyzer.Prove(condition)) decided = true;
    if (world.analyzer.Prove(Not(condition))) decided = false;
    if (!decided) continue;
    for (int trial = 0; trial < 20; ++trial) {
      Point point = world.Draw(g);
      if (Evaluate(fact, point) != 1) continue;
      std::optional<int64_t> value = Evaluate(condition, point);
      if (!value) continue;
      ++proved;
      ASSERT_EQ(*value != 0, *decided) << "seed " << seed;
    }
  }
  EXPECT_GT(proved, 200);
}

}  // namespace
}  // namespace relaxvm::arith
