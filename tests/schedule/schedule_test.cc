// SPDX-License-Identifier: Apache-2.0
// A scheduled program computes what the unscheduled one does, inside its buffers, at sizes around
// every edge.
#include <gtest/gtest.h>

#include <random>

#include "interpreter.h"
#include "schedule/cpu/cpu.h"
#include "tir/tensor.h"

namespace relaxvm::schedule {
namespace {

using ir::Expr;
using ir::Var;
using tir::Indices;
using tir::Tensor;

using Sizes = std::map<std::string, int64_t>;

std::vector<double> Filled(const tir::PrimFunc& func, size_t param, const Sizes& sizes,
                           unsigned seed) {
  const int64_t count = testing::NumElements(func->params[static_cast<int64_t>(param)], sizes);
  std::mt19937 random(seed + static_cast<unsigned>(param));
  std::uniform_int_distribution<int> pick(-4, 4);  // exact in every order of addition
  std::vector<double> data(static_cast<size_t>(count));
  for (double& x : data) x = pick(random);
  return data;
}

// Runs both and compares the last parameter.
void ExpectSame(const tir::PrimFunc& func, const Sizes& sizes, double tolerance = 0,
                const target::Machine& traits = {64, 32}) {
  tir::PrimFunc scheduled = cpu::Schedule(func, traits);
  ASSERT_TRUE(ir::GetAttr<bool>(scheduled->attrs, tir::attr::kScheduled, false));
  std::vector<std::vector<double>> want_memory, have_memory;
  for (size_t i = 0; i < func->params.size(); ++i) want_memory.push_back(Filled(func, i, sizes, 7));
  have_memory = want_memory;
  auto run = [&](const tir::PrimFunc& f, std::vector<std::vector<double>>* memory) {
    std::vector<std::vector<double>*> pointers;
    for (auto& m : *memory) pointers.push_back(&m);
    testing::Interpreter interpreter;
    interpreter.Run(f, pointers, sizes);
    EXPECT_EQ(interpreter.num_out_of_bounds, 0);
  };
  run(func, &want_memory);
  run(scheduled, &have_memory);
  for (size_t p = 0; p < want_memory.size(); ++p) {
    for (size_t i = 0; i < want_memory[p].size(); ++i) {
      ASSERT_NEAR(have_memory[p][i], want_memory[p][i], tolerance)
          << "parameter " << p << " element " << i;
    }
  }
}

const std::vector<int64_t> kSizes = {0, 1, 5, 6, 15, 16, 17, 64, 65, 130};

TEST(CpuSchedule, ElementwiseWithBroadcast) {
  Var n("n", Int(64)), m("m", Int(64));
  Tensor x("x", {n, m}, Float(32)), bias("bias", {m}, Float(32));
  Tensor y =
      tir::Compute({n, m}, [&](const Indices& i) { return ir::Max(x(i) + bias({i[1]}), 0); });
  auto func = tir::CreatePrimFunc({x, bias}, {y});
  for (int64_t size : kSizes) ExpectSame(func, {{"n", 3}, {"m", size}});
}

TEST(CpuSchedule, ReductionsAlongEitherAxis) {
  Var n("n", Int(64)), m("m", Int(64));
  Tensor x("x", {n, m}, Float(32));
  Tensor rows = tir::Reduce({n}, {m}, tir::SumReducer(Float(32)),
                            [&](const Indices& i, const Indices& r) { return x({i[0], r[0]}); });
  Tensor columns = tir::Reduce({m}, {n}, tir::MaxReducer(Float(32)),
                               [&](const Indices& i, const Indices& r) { return x({r[0], i[0]}); });
  auto by_row = tir::CreatePrimFunc({x}, {rows}), by_column = tir::CreatePrimFunc({x}, {columns});
  for (int64_t size : kSizes) {
    ExpectSame(by_row, {{"n", 3}, {"m", size}});
    ExpectSame(by_column, {{"n", 5}, {"m", size}});
  }
  for (const auto& func : {by_row, by_column}) {
    bool parallel = false;
    tir::PostOrderVisit(cpu::Schedule(func, {64, 32})->body, [&](const ffi::ObjectRef& s) {
      const auto* loop = s.as<tir::ForObj>();
      parallel = parallel || (loop != nullptr && loop->kind == tir::ForKind::kParallel);
    });
    EXPECT_TRUE(parallel);
  }
}

tir::PrimFunc Softmax(const Expr& n, const Expr& m) {
  Tensor x("x", {Expr(2), n, m}, Float(32));
  Tensor top =
      tir::Reduce({Expr(2), n}, {m}, tir::MaxReducer(Float(32)),
                  [&](const Indices& i, const Indices& r) { return x({i[0], i[1], r[0]}); });
  Tensor e = tir::Compute({Expr(2), n, m}, [&](const Indices& i) {
    return ir::CallIntrin(ir::Intrin::kExp, {x(i) - top({i[0], i[1]})});
  });
  Tensor sum =
      tir::Reduce({Expr(2), n}, {m}, tir::SumReducer(Float(32)),
                  [&](const Indices& i, const Indices& r) { return e({i[0], i[1], r[0]}); });
  Tensor y = tir::Compute({Expr(2), n, m},
                          [&](const Indices& i) { return ir::Div(e(i), sum({i[0], i[1]})); });
  return tir::CreatePrimFunc({x}, {y});
}

TEST(CpuSchedule, SoftmaxRunsRowByRow) {
  Var n("n", Int(64)), m("m", Int(64));
  auto func = Softmax(n, m);
  for (int64_t size : kSizes) ExpectSame(func, {{"n", 3}, {"m", size}}, 1e-12);
  // No temporary has all rows.
  tir::PostOrderVisit(cpu::Schedule(func, {64, 32})->body, [&](const ffi::ObjectRef& node) {
    if (const auto* alloc = node.as<tir::AllocBufferObj>()) {
      for (const Expr& d : tir::Buffer(alloc->buffer).shape()) EXPECT_FALSE(UsesVar(d, n));
    }
  });
}

// Exponentials whose arguments are known not to be above 0, and all others.
std::pair<int, int> CountExponentials(const tir::PrimFunc& func) {
  int known = 0, others = 0;
  tir::PostOrderVisit(cpu::Schedule(func, {64, 32})->body, [&](const ffi::ObjectRef& node) {
    const auto* call = node.as<ir::IntrinObj>();
    known += call != nullptr && call->intrin == ir::Intrin::kExpOfNegative;
    others += call != nullptr && call->intrin == ir::Intrin::kExp;
  });
  return {known, others};
}

// exp(x[i, j] - top[i]), `top` the greatest of `columns` values that `value` gives.
tir::PrimFunc ExponentialsBelow(
    const Expr& columns,
    const std::function<Expr(const Tensor& x, const Expr& i, const Expr& k)>& value) {
  Var n("n", Int(64)), m("m", Int(64));
  Tensor x("x", {n, m}, Float(32));
  Tensor top =
      tir::Reduce({n}, {columns.defined() ? columns : Expr(m)}, tir::MaxReducer(Float(32)),
                  [&](const Indices& i, const Indices& r) { return value(x, i[0], r[0]); });
  Tensor y = tir::Compute({n, m}, [&](const Indices& i) {
    return ir::CallIntrin(ir::Intrin::kExp, {x(i) - top({i[0]})});
  });
  return tir::CreatePrimFunc({x}, {y});
}

TEST(CpuSchedule, ExponentialsBelowAMaximumOfTheSameValuesAreKnown) {
  auto itself = [](const Tensor& x, const Expr& i, const Expr& k) { return x({i, k}); };
  auto [known, others] = CountExponentials(Softmax(Var("n", Int(64)), Var("m", Int(64))));
  EXPECT_GT(known, 0);
  EXPECT_EQ(others, 0);
  EXPECT_EQ(CountExponentials(ExponentialsBelow(Expr(), itself)).second, 0);
  // The maximum of a part of the values, of other values, of another row.
  EXPECT_EQ(CountExponentials(ExponentialsBelow(Expr(3), itself)).first, 0);
  EXPECT_EQ(CountExponentials(ExponentialsBelow(Expr(),
                                                [](const Tensor& x, const Expr& i, const Expr& k) {
                                                  return x({i, k}) *
                                                         Expr(ir::ConstFloat(Float(32), 0.5));
                                                }))
                .first,
            0);
  EXPECT_EQ(
      CountExponentials(ExponentialsBelow(Expr(), [](const Tensor& x, const Expr&,
                                                     const Expr& k) { return x({Expr(0), k}); }))
          .first,
      0);
}

target::Machine WithSmallCaches() {
  target::Machine traits{64, 32};
  traits.l3_bytes = 64;
  return traits;
}

TEST(CpuSchedule, RowsLargerThanTheCachesAreWrittenWhileTheNextOnesAreRead) {
  Var n("n", Int(64)), m("m", Int(64));
  auto func = Softmax(n, m);
  for (int64_t rows : {1, 3, 35}) {
    for (int64_t size : {16, 64, 144, 35, 1029})
      ExpectSame(func, {{"n", rows}, {"m", size}}, 1e-12, WithSmallCaches());
  }
}

TEST(CpuSchedule, NextRowsComeAsNearAsTheyFit) {
  const Var n("n", Int(64));
  for (const bool gains_from_fetching : {false, true}) {
    target::Machine traits = WithSmallCaches();
    if (gains_from_fetching) traits.fetch_ahead = 2048;
    for (const auto& [size, fits] : {std::pair(256, true), std::pair(4096, false)}) {
      bool near = false, far = false;
      const auto func = cpu::Schedule(Softmax(n, size), traits);
      tir::PostOrderVisit(func->body, [&](const ffi::ObjectRef& s) {
        const auto* loop = s.as<tir::ForObj>();
        // Rows of results in the caches are fetched another way.
        if (loop == nullptr || !loop->annotations.count(cpu::kStreamIf)) return;
        tir::PostOrderVisit(loop->body, [&](const ffi::ObjectRef& inside) {
          if (const auto* serial = inside.as<tir::ForObj>()) {
            near = near || serial->annotations.count(cpu::kPrefetchNear);
            far = far || serial->annotations.count(cpu::kPrefetch);
          }
        });
      });
      EXPECT_EQ(near, fits || gains_from_fetching);
      EXPECT_EQ(far, !near);
    }
  }
}

tir::PrimFunc Norm(const Expr& n, const Expr& m) {
  Tensor x("x", {n, m}, Float(32)), gain("gain", {m}, Float(32));
  Tensor sum = tir::Reduce({n}, {m}, tir::SumReducer(Float(32)),
                           [&](const Indices& i, const Indices& r) { return x({i[0], r[0]}); });
  auto centred = [&](const Expr& row, const Expr& at) { return x({row, at}) - sum({row}); };
  Tensor squares =
      tir::Reduce({n}, {m}, tir::SumReducer(Float(32)), [&](const Indices& i, const Indices& r) {
        return centred(i[0], r[0]) * centred(i[0], r[0]);
      });
  Tensor y = tir::Compute({n, m}, [&](const Indices& i) {
    return centred(i[0], i[1]) * squares({i[0]}) + gain({i[1]});
  });
  return tir::CreatePrimFunc({x, gain}, {y});
}

TEST(CpuSchedule, NormsLargerThanTheCaches) {
  auto func = Norm(Var("n", Int(64)), Var("m", Int(64)));
  for (int64_t rows : {1, 4, 5, 300}) {
    for (int64_t size : {16, 64, 80, 192, 7, 391, 447})
      ExpectSame(func, {{"n", rows}, {"m", size}}, 1e-9, WithSmallCaches());
  }
}

// Of floats: what the sums of the rows that go through side by side take.
int64_t RegistersOfSums(const tir::PrimFunc& func, const target::Machine& traits) {
  int64_t most = 0;
  tir::PostOrderVisit(cpu::Schedule(func, traits)->body, [&](const ffi::ObjectRef& node) {
    const auto* alloc = node.as<tir::AllocBufferObj>();
    if (alloc == nullptr || alloc->buffer->name != "acc") return;
    most = std::max(most, ir::AsInt(tir::Buffer(alloc->buffer).shape()[0]).value());
  });
  return most;
}

// Rows that share what the first cache does not hold go through side by side.
TEST(CpuSchedule, LongNormsTakeRowsTogether) {
  target::Machine traits = WithSmallCaches();
  traits.l1_bytes = 512;
  const Var n("n", Int(64));
  for (int64_t size : {64, 80, 192, 336}) {
    const auto func = Norm(n, size);
    for (int64_t rows : {1, 3, 4, 5, 8, 300, 303})
      ExpectSame(func, {{"n", rows}, {"m", size}}, 1e-9, traits);
    ExpectSame(Norm(24, size), {}, 1e-9, traits);
    EXPECT_EQ(RegistersOfSums(func, traits), 4 * 4 * 16);  // four vectors each
  }
}

TEST(CpuSchedule, LongNormsAreFetchedInTimeWhereThatIsEnough) {
  target::Machine traits = WithSmallCaches();
  traits.l1_bytes = 512;
  traits.fetch_ahead = 2048;
  for (int64_t size : {64, 80, 192, 336}) {
    const auto func = Norm(Var("n", Int(64)), size);
    for (int64_t rows : {1, 5, 300}) ExpectSame(func, {{"n", rows}, {"m", size}}, 1e-9, traits);
    EXPECT_LT(RegistersOfSums(func, traits), 4 * 4 * 16);
  }
}

tir::PrimFunc Matmul(Expr m, Expr n, Expr k, bool transposed, bool epilogue) {
  Tensor a("a", {m, k}, Float(32));
  Tensor b("b", transposed ? ffi::Array<Expr>{n, k} : ffi::Array<Expr>{k, n}, Float(32));
  Tensor bias("bias", {n}, Float(32));
  Tensor c =
      tir::Reduce({m, n}, {k}, tir::SumReducer(Float(32)), [&](const Indices& i, const Indices& r) {
        return a({i[0], r[0]}) * (transposed ? b({i[1], r[0]}) : b({r[0], i[1]}));
      });
  if (!epilogue) return tir::CreatePrimFunc({a, b}, {c});
  Tensor y =
      tir::Compute({m, n}, [&](const Indices& i) { return ir::Max(c(i) + bias({i[1]}), 0); });
  return tir::CreatePrimFunc({a, b, bias}, {y});
}

bool IsTiled(const tir::PrimFunc& func) {
  bool tiled = false;
  tir::PostOrderVisit(cpu::Schedule(func, {64, 32})->body, [&](const ffi::ObjectRef& node) {
    const auto* alloc = node.as<tir::AllocBufferObj>();
    tiled = tiled || (alloc != nullptr && alloc->buffer->name == "right");
  });
  return tiled;
}

TEST(CpuSchedule, MatmulWithSymbolicRows) {
  for (bool transposed : {false, true}) {
    for (bool epilogue : {false, true}) {
      auto func = Matmul(Var("m", Int(64)), 80, 7, transposed, epilogue);
      EXPECT_TRUE(IsTiled(func));
      for (int64_t size : {0, 1, 5, 6, 7, 50}) ExpectSame(func, {{"m", size}});
    }
  }
}

// Rows that tiles do not divide are spread; few rows have several sets of sums; a wide right side
// that lies along k is turned in blocks.
TEST(CpuSchedule, MatmulsAroundEveryEdge) {
  Var m("m", Int(64)), n("n", Int(64)), k("k", Int(64));
  for (bool transposed : {false, true}) {
    for (int64_t rows : {1, 2, 3, 7, 13}) ExpectSame(Matmul(rows, 70, 37, transposed, false), {});
    auto func = Matmul(m, n, k, transposed, true);
    for (int64_t columns : {1, 33, 130}) {
      for (int64_t depth : {1, 39})
        ExpectSame(func, {{"m", columns == 33 ? 1 : 5}, {"n", columns}, {"k", depth}});
    }
  }
}

TEST(CpuSchedule, WeightsInPanels) {
  const target::Machine machine{64, 32};
  for (bool transposed : {false, true}) {
    for (int64_t columns : {40, 64, 100, 200}) {
      auto plain = Matmul(Var("m", Int(64)), columns, 21, transposed, false);
      auto operand = cpu::PackOperand(plain, 1, machine);
      ASSERT_EQ(operand.has_value(), transposed || columns > 64);
      if (!operand.has_value()) continue;
      EXPECT_FALSE(cpu::PackOperand(plain, 0, machine).has_value());
      EXPECT_TRUE(IsTiled(operand->program));
      // The panels of the weight, then the product: as the plain program does it.
      std::vector<double> weight = Filled(plain, 1, {}, 7),
                          panels = Filled(operand->program, 1, {}, 7);
      testing::Interpreter().Run(operand->pack, {&weight, &panels}, {});
      for (int64_t rows : {0, 1, 3, 4, 17}) {
        const Sizes sizes = {{"m", rows}};
        std::vector<double> a = Filled(plain, 0, sizes, 7), want = Filled(plain, 2, sizes, 7);
        std::vector<double> have = want;
        testing::Interpreter().Run(plain, {&a, &weight, &want}, sizes);
        testing::Interpreter interpreter;
        interpreter.Run(cpu::Schedule(operand->program, machine), {&a, &panels, &have}, sizes);
        EXPECT_EQ(interpreter.num_out_of_bounds, 0);
        EXPECT_EQ(have, want);
      }
    }
  }
}

// Loops that fetch into the first cache, and into the second one.
std::pair<int, int> CountFetches(const tir::PrimFunc& func, const target::Machine& machine) {
  int near = 0, far = 0;
  tir::PostOrderVisit(cpu::Schedule(func, machine)->body, [&](const ffi::ObjectRef& node) {
    const auto* loop = node.as<tir::ForObj>();
    if (loop == nullptr) return;
    near += static_cast<int>(loop->annotations.count(cpu::kPrefetchNear));
    far += static_cast<int>(loop->annotations.count(cpu::kPrefetch));
  });
  return {near, far};
}

TEST(CpuSchedule, TheRightSideOfOneRowIsFetchedWhereTheCoreDoesNotDoItBetter) {
  auto one_row = Matmul(1, 768, 640, false, false);
  target::Machine machine{64, 32};  // which holds the right side in its last cache
  EXPECT_EQ(CountFetches(one_row, machine), std::pair(0, 0));
  EXPECT_EQ(CountFetches(Matmul(1, 768, 6400, false, false), machine), std::pair(0, 1));
  machine.l2_bytes = machine.l3_bytes = 1 << 20;
  EXPECT_EQ(CountFetches(one_row, machine), std::pair(0, 1));
  machine.l3_bytes = 0;
  EXPECT_EQ(CountFetches(one_row, machine), std::pair(0, 1));
  target::DescribeCpu("znver5", &machine);  // follows long runs by itself, not panels
  EXPECT_EQ(CountFetches(one_row, machine), std::pair(0, 0));
  EXPECT_EQ(CountFetches(Matmul(1, 192, 640, false, false), machine), std::pair(1, 0));
  EXPECT_EQ(CountFetches(Matmul(40, 64, 640, false, false), machine), std::pair(0, 0));
}

TEST(CpuSchedule, ACoreMayMultiplyItsLongestRegistersHalfAsFast) {
  target::Machine machine{64, 32};
  target::DescribeCpu("icelake-server", &machine);
  EXPECT_EQ(machine.multiply_adds, 2);
  target::DescribeCpu("znver4", &machine);
  EXPECT_EQ(machine.multiply_adds, 1);
  target::Machine without{32, 16};
  target::DescribeCpu("znver4", &without);
  EXPECT_EQ(without.multiply_adds, 2);
}

// While the tiles of a panel are computed, the next panel is fetched; many tiles hide the wait.
TEST(CpuSchedule, TheNextPanelIsFetchedByTheTilesOfThisOne) {
  const target::Machine machine{64, 32};
  auto fetches = [&](const Expr& rows, int64_t columns, int64_t depth) {
    auto operand = cpu::PackOperand(Matmul(rows, columns, depth, false, false), 1, machine);
    return operand.has_value() ? CountFetches(operand->program, machine) : std::pair(-1, -1);
  };
  EXPECT_EQ(fetches(18, 200, 96), std::pair(0, 1));    // the last panel is one register wide
  EXPECT_EQ(fetches(18, 256, 96), std::pair(0, 1));    // all are alike
  EXPECT_EQ(fetches(16, 256, 96), std::pair(0, 2));    // tiles of five and of six rows
  EXPECT_EQ(fetches(24, 256, 4096), std::pair(0, 1));  // blocks of the sum follow each other
  EXPECT_EQ(fetches(1000, 256, 96), std::pair(0, 0));
  EXPECT_GT(fetches(Var("m", Int(64)), 256, 96).second, 0);
}

TEST(CpuSchedule, MatmulWithSymbolicColumns) {
  auto func = Matmul(13, Var("n", Int(64)), Var("k", Int(64)), false, true);
  EXPECT_TRUE(IsTiled(func));
  for (int64_t size : kSizes) ExpectSame(func, {{"n", size}, {"k", 3}});
  ExpectSame(func, {{"n", 16}, {"k", 0}});
}

tir::PrimFunc Conv(bool channels_last, int64_t stride) {
  Var h("h", Int(64)), w("w", Int(64));
  const int64_t ci = 3, co = 20, kernel = 3;
  auto at = [&](Expr c, Expr y, Expr x) {
    return channels_last ? Indices{y, x, c} : Indices{c, y, x};
  };
  Tensor x("x", at(Expr(ci), h, w), Float(32));
  Tensor weight("weight",
                channels_last ? ffi::Array<Expr>{kernel, kernel, ci, co}
                              : ffi::Array<Expr>{co, ci, kernel, kernel},
                Float(32));
  Expr oh = ir::FloorDiv(h - kernel, stride) + 1, ow = ir::FloorDiv(w - kernel, stride) + 1;
  Tensor y = tir::Reduce(
      at(Expr(co), oh, ow), {Expr(kernel), Expr(kernel), Expr(ci)}, tir::SumReducer(Float(32)),
      [&](const Indices& i, const Indices& r) {
        Expr c = channels_last ? i[2] : i[0], py = channels_last ? i[0] : i[1],
             px = channels_last ? i[1] : i[2];
        Indices wi = channels_last ? Indices{r[0], r[1], r[2], c} : Indices{c, r[2], r[0], r[1]};
        return x(at(r[2], py * Expr(stride) + r[0], px * Expr(stride) + r[1])) * weight(wi);
      });
  return tir::CreatePrimFunc({x, weight}, {y});
}

TEST(CpuSchedule, ConvolutionInBothLayouts) {
  for (bool channels_last : {false, true}) {
    for (int64_t stride : {1, 2}) {
      auto func = Conv(channels_last, stride);
      EXPECT_TRUE(IsTiled(func)) << channels_last;
      for (int64_t width : {3, 4, 19, 40}) ExpectSame(func, {{"h", 5}, {"w", width}});
    }
  }
}

TEST(CpuSchedule, BatchedMatmul) {
  Var b("b", Int(64)), n("n", Int(64));
  Tensor q("q", {b, n, Expr(8)}, Float(32)), k("k", {b, n, Expr(8)}, Float(32));
  Tensor s = tir::Reduce({b, n, n}, {Expr(8)}, tir::SumReducer(Float(32)),
                         [&](const Indices& i, const Indices& r) {
                           return q({i[0], i[1], r[0]}) * k({i[0], i[2], r[0]});
                         });
  auto func = tir::CreatePrimFunc({q, k}, {s});
  EXPECT_TRUE(IsTiled(func));
  for (int64_t size : {1, 6, 17}) ExpectSame(func, {{"b", 3}, {"n", size}});
}

TEST(CpuSchedule, TransposedConvolutionIsTiled) {
  Var h("h", Int(64)), w("w", Int(64));
  Tensor x("x", {h, w, Expr(5)}, Float(32));
  Tensor weight("weight", {Expr(2), Expr(2), Expr(5), Expr(24)}, Float(32));
  Tensor y =
      tir::Reduce({h * 2, w * 2, Expr(24)}, {Expr(5), Expr(1), Expr(1)}, tir::SumReducer(Float(32)),
                  [&](const Indices& i, const Indices& r) {
                    Expr a = ir::FloorMod(i[0], 2) + r[1] * 2, b = ir::FloorMod(i[1], 2) + r[2] * 2;
                    return x({ir::FloorDiv(i[0], 2) - r[1], ir::FloorDiv(i[1], 2) - r[2], r[0]}) *
                           weight({a, b, r[0], i[2]});
                  });
  Tensor relu = tir::Map(y, [](Expr e) { return ir::Max(e, 0); });
  auto func = tir::CreatePrimFunc({x, weight}, {relu});
  EXPECT_TRUE(IsTiled(func));
  for (int64_t size : {0, 1, 7, 20}) ExpectSame(func, {{"h", 3}, {"w", size}});
}

// 3 kernel elements, step 2, the first result cut off: phases have one or two of them.
TEST(CpuSchedule, TransposedConvolutionWithOverlapIsTiled) {
  Var h("h", Int(64)), w("w", Int(64));
  Tensor x("x", {h + 2, w + 2, Expr(5)}, Float(32));
  Tensor weight("weight", {Expr(3), Expr(3), Expr(5), Expr(24)}, Float(32));
  Tensor y = tir::Reduce(
      {h * 2, w * 2, Expr(24)}, {Expr(5), Expr(2), Expr(2)}, tir::SumReducer(Float(32)),
      [&](const Indices& i, const Indices& r) {
        auto moved = [&](size_t s) { return ir::FloorMod(i[s], 2) + 1; };
        auto place = [&](size_t s) {
          return ir::FloorDiv(i[s], 2) + ir::FloorDiv(moved(s), 2) + 1 - r[1 + s];
        };
        auto tap = [&](size_t s) { return ir::FloorMod(moved(s), 2) + r[1 + s] * 2; };
        Expr product = x({place(0), place(1), r[0]}) * weight({tap(0), tap(1), r[0], i[2]});
        return ir::IfThenElse(ir::And(ir::Less(tap(0), 3), ir::Less(tap(1), 3)), product,
                              ir::ConstFloat(Float(32), 0));
      });
  auto func = tir::CreatePrimFunc({x, weight}, {y});
  EXPECT_TRUE(IsTiled(func));
  for (int64_t size : {0, 1, 7, 20}) ExpectSame(func, {{"h", 3}, {"w", size}});
}

// What reads only the first rows of a product is no part of its tiles.
TEST(CpuSchedule, FirstRowsOfAProduct) {
  Var m("m", Int(64));
  Tensor a("a", {m + 2, Expr(9)}, Float(32)), b("b", {Expr(9), Expr(20)}, Float(32));
  Tensor c = tir::Reduce(
      {m + 2, Expr(20)}, {Expr(9)}, tir::SumReducer(Float(32)),
      [&](const Indices& i, const Indices& r) { return a({i[0], r[0]}) * b({r[0], i[1]}); });
  Tensor first = tir::Compute({m, Expr(20)}, [&](const Indices& i) { return ir::Max(c(i), 0); });
  auto func = tir::CreatePrimFunc({a, b}, {first});
  for (int64_t size : {0, 1, 5, 16}) ExpectSame(func, {{"m", size}});
}

TEST(CpuSchedule, PaddingOfFewChannelsRunsAlongWholeRows) {
  Var w("w", Int(64));
  Tensor x("x", {Expr(4), w, Expr(3)}, Float(32));
  Tensor y = tir::Compute({Expr(6), w + 3, Expr(3)}, [&](const Indices& i) {
    Expr inside = ir::And(ir::And(ir::GreaterEqual(i[0], 1), ir::Less(i[0], 5)),
                          ir::And(ir::GreaterEqual(i[1], 1), ir::Less(i[1], w + 1)));
    return ir::IfThenElse(inside, x({i[0] - 1, i[1] - 1, i[2]}), ir::ConstFloat(Float(32), 7));
  });
  auto func = tir::CreatePrimFunc({x}, {y});
  for (int64_t size : {0, 1, 5, 16, 33}) ExpectSame(func, {{"w", size}});
}

TEST(CpuSchedule, DepthwiseConvolutionTakesItsPaddingIn) {
  Var w("w", Int(64));
  Tensor x("x", {Expr(4), w, Expr(24)}, Float(32)),
      weight("weight", {Expr(3), Expr(3), Expr(24)}, Float(32));
  Tensor padded = tir::Compute({Expr(6), w + 2, Expr(24)}, [&](const Indices& i) {
    Expr inside = ir::And(ir::And(ir::GreaterEqual(i[0], 1), ir::Less(i[0], 5)),
                          ir::And(ir::GreaterEqual(i[1], 1), ir::Less(i[1], w + 1)));
    return ir::IfThenElse(inside, x({i[0] - 1, i[1] - 1, i[2]}), ir::ConstFloat(Float(32), 0));
  });
  Tensor y =
      tir::Reduce({Expr(4), w, Expr(24)}, {Expr(3), Expr(3)}, tir::SumReducer(Float(32)),
                  [&](const Indices& i, const Indices& r) {
                    return padded({i[0] + r[0], i[1] + r[1], i[2]}) * weight({r[0], r[1], i[2]});
                  });
  auto func = tir::CreatePrimFunc({x, weight}, {y});
  for (int64_t size : {1, 2, 9}) ExpectSame(func, {{"w", size}});
}

}  // namespace
}  // namespace relaxvm::schedule
