// SPDX-License-Identifier: Apache-2.0
// Loops, blocks, vectors, threads, temporaries.
#include <cmath>
#include <numeric>

#include "codegen/harness.h"

namespace relaxvm::codegen::testing {
namespace {

using ir::Expr;
using ir::Var;
using tir::Buffer;
using tir::BufferStore;
using tir::For;
using tir::ForKind;
using tir::Indices;
using tir::PrimFunc;
using tir::Stmt;
using tir::Tensor;

Var Index(const char* name) { return Var(name, Int(64)); }
Stmt Serial(const Var& v, const Expr& extent, const Stmt& body) {
  return For(v, 0, extent, ForKind::kSerial, body);
}
Stmt Vector(const Var& v, int64_t lanes, const Stmt& body) {
  return For(v, 0, lanes, ForKind::kVectorized, body);
}

std::vector<float> Ramp(size_t n, float scale = 0.5f) {
  std::vector<float> v(n);
  for (size_t i = 0; i < n; ++i) v[i] = scale * static_cast<float>(static_cast<int>(i % 97) - 40);
  return v;
}

// ---- blocks ---------------------------------------------------------------------------------

PrimFunc MatMul() {
  Var m = Index("m"), n = Index("n"), k = Index("k");
  Tensor a("a", {m, k}, Float(32)), b("b", {k, n}, Float(32));
  Tensor c = tir::Reduce(
      {m, n}, {k}, tir::SumReducer(Float(32)),
      [&](const Indices& i, const Indices& r) { return a({i[0], r[0]}) * b({r[0], i[1]}); }, "c");
  return tir::CreatePrimFunc({a, b}, {c});
}

void CheckMatMul(const Kernel& kernel, int64_t m, int64_t n, int64_t k, int num_threads = 1) {
  std::vector<float> a = Ramp(m * k, 0.25f), b = Ramp(k * n, 0.125f), c(m * n + 1, -7);
  kernel.Must({View(a.data(), {m, k}, Float(32)), View(b.data(), {k, n}, Float(32)),
               View(c.data(), {m, n}, Float(32))},
              {}, num_threads);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t r = 0; r < k; ++r) sum += static_cast<double>(a[i * k + r]) * b[r * n + j];
      ASSERT_NEAR(c[i * n + j], sum, 1e-3) << i << " " << j;
    }
  }
  EXPECT_EQ(c[m * n], -7);
}

TEST(Blocks, MatMulOfSymbolicSizes) {
  Kernel kernel(MatMul());
  for (auto [m, n, k] : {std::tuple{1, 1, 1}, {3, 17, 16}, {5, 4, 0}, {0, 3, 2}, {16, 16, 33}})
    CheckMatMul(kernel, m, n, k);
}

TEST(Blocks, EmptyReductionGivesTheIdentity) {
  Var n = Index("n");
  Tensor x("x", {n}, Float(32));
  Tensor max = tir::Reduce({}, {n}, tir::MaxReducer(Float(32)),
                           [&](const Indices&, const Indices& r) { return x(r); });
  Kernel kernel(tir::CreatePrimFunc({x}, {max}));
  float unused = 0, out = 1;
  kernel.Must({View(&unused, {0}, Float(32)), View(&out, {}, Float(32))});
  EXPECT_EQ(out, -INFINITY);
}

TEST(Blocks, ReductionOverAnOuterAxisInitialisesEveryElement) {
  // for r: for i: c[i] += x[r, i], with the reduce loop outside
  Var n = Index("n"), r = Index("r"), i = Index("i"), vr = Index("vr"), vi = Index("vi");
  Buffer x("x", {Expr(4), n}, Float(32)), c("c", {n}, Float(32));
  tir::SBlock block({tir::IterVar(vi, 0, n, tir::IterKind::kSpatial),
                     tir::IterVar(vr, 0, 4, tir::IterKind::kReduce)},
                    {}, {}, "sum", BufferStore(c, c.Load({vi}) + x.Load({vr, vi}), {vi}),
                    BufferStore(c, ir::Const(Float(32), 0), {vi}));
  Stmt body = Serial(r, 4, Serial(i, n, tir::SBlockRealize({i, r}, ir::BoolImm(true), block)));
  Kernel kernel(PrimFunc({x, c}, body));
  std::vector<float> a = Ramp(40), out(10, 99);
  kernel.Must({View(a.data(), {4, 10}, Float(32)), View(out.data(), {10}, Float(32))});
  for (int j = 0; j < 10; ++j) EXPECT_FLOAT_EQ(out[j], a[j] + a[10 + j] + a[20 + j] + a[30 + j]);
}

TEST(Blocks, PredicateLimitsIterations) {
  Var n = Index("n"), o = Index("o"), i = Index("i"), v = Index("v");
  Buffer c("c", {n}, Int(32));
  tir::SBlock block({tir::IterVar(v, 0, n, tir::IterKind::kSpatial)}, {}, {}, "b",
                    BufferStore(c, ir::Cast(Int(32), v), {v}));
  Expr at = o * 8 + i;
  Stmt body = Serial(o, ir::FloorDiv(n + 7, 8),
                     Serial(i, 8, tir::SBlockRealize({at}, ir::Less(at, n), block)));
  Kernel kernel(PrimFunc({c}, body));
  std::vector<int32_t> out(12, -1);
  kernel.Must({View(out.data(), {11}, Int(32))});
  EXPECT_EQ(out[10], 10);
  EXPECT_EQ(out[11], -1);
}

// ---- vectors --------------------------------------------------------------------------------

// y[i] = value(i) for i < n, in vectors with a predicate at the end
PrimFunc MaskedMap(const Buffer& x, const Buffer& y, const Var& n, int64_t lanes,
                   const std::function<Expr(Expr)>& value) {
  Var o = Index("o"), v = Index("v");
  Expr at = o * lanes + v;
  Stmt body = tir::IfThenElse(ir::Less(at, n), BufferStore(y, value(at), {at}));
  return PrimFunc({x, y}, Serial(o, ir::FloorDiv(n + (lanes - 1), lanes), Vector(v, lanes, body)));
}

class VectorsTest : public ::testing::TestWithParam<std::tuple<int64_t, int64_t>> {};

TEST_P(VectorsTest, PredicatesKeepTheLastVectorInside) {
  auto [lanes, size] = GetParam();
  Var n = Index("n");
  Buffer x("x", {n}, Float(32)), y("y", {n}, Float(32));
  Kernel kernel(MaskedMap(x, y, n, lanes, [&](const Expr& at) { return x.Load({at}) * 3; }));
  std::vector<float> a = Ramp(size), b(size + 64, -1);
  kernel.Must({View(a.data(), {size}, Float(32)), View(b.data(), {size}, Float(32))});
  for (int64_t i = 0; i < size; ++i) ASSERT_EQ(b[i], a[i] * 3) << i;
  for (int64_t i = size; i < size + 64; ++i) ASSERT_EQ(b[i], -1) << i;
}
INSTANTIATE_TEST_SUITE_P(LanesAndSizes, VectorsTest,
                         ::testing::Combine(::testing::Values(2, 8, 16, 64, 5),
                                            ::testing::Values(0, 1, 15, 16, 17, 100)));

TEST(Vectors, StridedReversedAndGatheredLoads) {
  Var n = Index("n"), v = Index("v");
  Buffer x("x", {Expr(64)}, Float(32)), at("at", {Expr(16)}, Int(32)),
      y("y", {Expr(3), Expr(16)}, Float(32));
  Stmt body =
      tir::SeqStmt({BufferStore(y, x.Load({v * 3 + 1}), {Expr(0), v}),
                    BufferStore(y, x.Load({Expr(20) - v}), {Expr(1), v}),
                    BufferStore(y, x.Load({ir::Cast(Int(64), at.Load({v}))}), {Expr(2), v})});
  Kernel kernel(PrimFunc({x, at, y}, Vector(v, 16, body)));
  std::vector<float> a(64), c(48);
  std::iota(a.begin(), a.end(), 0.0f);
  std::vector<int32_t> picks{5, 5, 63, 0, 1, 2, 9, 8, 7, 6, 40, 41, 30, 31, 32, 33};
  kernel.Must({View(a.data(), {64}, Float(32)), View(picks.data(), {16}, Int(32)),
               View(c.data(), {3, 16}, Float(32))});
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(c[i], 3 * i + 1);
    EXPECT_EQ(c[16 + i], 20 - i);
    EXPECT_EQ(c[32 + i], picks[i]);
  }
}

TEST(Vectors, LanesAFewElementsApart) {
  // Neighbours change places, written as products and as differences; pairs backwards.
  Var i = Index("i"), v = Index("v");
  Buffer x("x", {Expr(4), Expr(16)}, Float(32)), y("y", {Expr(3), Expr(4), Expr(16)}, Float(32));
  const Expr odd = ir::FloorMod(v, 2), pair = ir::FloorDiv(v, 2);
  Stmt body =
      tir::SeqStmt({BufferStore(y, x.Load({i, pair * 2 + (Expr(1) - odd)}), {Expr(0), i, v}),
                    BufferStore(y, x.Load({i, v + 1 - odd * 2}), {Expr(1), i, v}),
                    BufferStore(y, x.Load({i, Expr(14) - pair * 2 + odd}), {Expr(2), i, v})});
  Kernel kernel(PrimFunc({x, y}, Serial(i, 4, Vector(v, 16, body))));
  std::vector<float> a = Ramp(64), c(192);
  kernel.Must({View(a.data(), {4, 16}, Float(32)), View(c.data(), {3, 4, 16}, Float(32))});
  for (int k = 0; k < 64; ++k) {
    EXPECT_EQ(c[k], a[k ^ 1]);
    EXPECT_EQ(c[64 + k], a[k ^ 1]);
    EXPECT_EQ(c[128 + k], a[k / 16 * 16 + 14 - k % 16 / 2 * 2 + k % 2]);
  }
}

TEST(Vectors, ScatteredAndReversedStores) {
  Var v = Index("v");
  Buffer x("x", {Expr(8)}, Int(64)), y("y", {Expr(32)}, Int(64)), z("z", {Expr(8)}, Int(64));
  Stmt body = tir::SeqStmt(
      {BufferStore(y, x.Load({v}), {v * 4}), BufferStore(z, x.Load({v}), {Expr(7) - v})});
  Kernel kernel(PrimFunc({x, y, z}, Vector(v, 8, body)));
  std::vector<int64_t> a{1, 2, 3, 4, 5, 6, 7, 8}, b(32), c(8);
  kernel.Must(
      {View(a.data(), {8}, Int(64)), View(b.data(), {32}, Int(64)), View(c.data(), {8}, Int(64))});
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(b[4 * i], a[i]);
    EXPECT_EQ(c[i], a[7 - i]);
  }
  EXPECT_EQ(b[1], 0);
}

TEST(Vectors, ConditionalLoadReadsOnlyItsLanes) {
  // Padding by 2 on each side: lanes outside must not be read (the page before is not ours).
  Var n = Index("n");
  Buffer x("x", {n}, Float(32)), y("y", {n + 4}, Float(32));
  Var o = Index("o"), v = Index("v");
  Expr at = o * 16 + v, from = at - 2;
  Expr inside = ir::And(ir::GreaterEqual(from, 0), ir::Less(from, n));
  Expr value = ir::IfThenElse(inside, x.Load({from}), ir::Const(Float(32), 0));
  Stmt body = tir::IfThenElse(ir::Less(at, n + 4), BufferStore(y, value, {at}));
  Kernel kernel(PrimFunc({x, y}, Serial(o, ir::FloorDiv(n + 19, 16), Vector(v, 16, body))));
  std::vector<float> a = Ramp(30), b(34, -1);
  kernel.Must({View(a.data(), {30}, Float(32)), View(b.data(), {34}, Float(32))});
  EXPECT_EQ(b[0], 0);
  EXPECT_EQ(b[1], 0);
  for (int i = 0; i < 30; ++i) EXPECT_EQ(b[i + 2], a[i]);
  EXPECT_EQ(b[33], 0);
}

TEST(Vectors, LoopThatCarriesAValueStaysSerial) {
  Var v = Index("v");
  Buffer x("x", {Expr(16)}, Float(32)), sum("sum", {Expr(1)}, Float(32));
  Kernel kernel(PrimFunc(
      {x, sum}, Vector(v, 16, BufferStore(sum, sum.Load({Expr(0)}) + x.Load({v}), {Expr(0)}))));
  std::vector<float> a(16, 1.5f), s(1, 2);
  kernel.Must({View(a.data(), {16}, Float(32)), View(s.data(), {1}, Float(32))});
  EXPECT_EQ(s[0], 26);
}

TEST(Vectors, OneIndexCountsElementsInMemoryOrder) {
  Var v = Index("v"), i = Index("i");
  Buffer x("x", {Expr(4), Expr(8)}, Float(32)), y("y", {Expr(2), Expr(2), Expr(8)}, Float(32));
  Expr at = i * 16 + v;
  Kernel kernel(PrimFunc({x, y}, Serial(i, 2, Vector(v, 16, BufferStore(y, x.Load({at}), {at})))));
  std::vector<float> a = Ramp(32), b(32);
  kernel.Must({View(a.data(), {4, 8}, Float(32)), View(b.data(), {2, 2, 8}, Float(32))});
  EXPECT_EQ(a, b);
}

TEST(Vectors, ReduceLanesInATree) {
  Var i = Index("i");
  Buffer x("x", {Expr(3), Expr(13)}, Float(32)), y("y", {Expr(3), Expr(2)}, Float(32));
  Expr lanes = x.Load({i, ir::RampExpr(0, 1, 13)});
  Stmt body =
      tir::SeqStmt({BufferStore(y, ir::CallIntrin(ir::Intrin::kReduceAdd, {lanes}), {i, Expr(0)}),
                    BufferStore(y, ir::CallIntrin(ir::Intrin::kReduceMax, {lanes}), {i, Expr(1)})});
  Kernel kernel(PrimFunc({x, y}, Serial(i, 3, body)));
  std::vector<float> a = Ramp(39), b(6);
  kernel.Must({View(a.data(), {3, 13}, Float(32)), View(b.data(), {3, 2}, Float(32))});
  for (int r = 0; r < 3; ++r) {
    EXPECT_FLOAT_EQ(b[2 * r], std::accumulate(a.begin() + 13 * r, a.begin() + 13 * r + 13, 0.0f));
    EXPECT_EQ(b[2 * r + 1], *std::max_element(a.begin() + 13 * r, a.begin() + 13 * r + 13));
  }
}

TEST(Vectors, MaskedBytesOnCpusWithoutByteMasks) {
  for (const char* target : {"llvm", "llvm -mcpu=haswell", "llvm -mcpu=x86-64"}) {
    for (DLDataType t : {UInt(8), Bool(), Int(16)}) {
      Var n = Index("n");
      Buffer x("x", {n}, t), y("y", {n}, t);
      Kernel kernel(MaskedMap(x, y, n, 16, [&](const Expr& at) { return x.Load({at}); }), target);
      std::vector<uint16_t> a(40, 0x0101), b(40, 0);
      int64_t size = t.bits == 16 ? 19 : 38;
      kernel.Must({View(a.data(), {size}, t), View(b.data(), {size}, t)});
      EXPECT_EQ(b[18], 0x0101) << target;
      EXPECT_EQ(b[19], 0) << target;
    }
  }
}

// ---- registers ------------------------------------------------------------------------------

// c[6, 64] = a[6, k] * b[k, 64] with 24 accumulators of 16 lanes
PrimFunc RegisterTile() {
  Var k = Index("k"), p = Index("p"), i = Index("i"), j = Index("j"), v = Index("v");
  Buffer a("a", {Expr(6), k}, Float(32)), b("b", {k, Expr(64)}, Float(32)),
      c("c", {Expr(6), Expr(64)}, Float(32));
  Buffer acc("acc", {Expr(6), Expr(64)}, Float(32), "local");
  auto tile = [&](const Stmt& body) {
    return For(i, 0, 6, ForKind::kUnrolled, For(j, 0, 4, ForKind::kUnrolled, Vector(v, 16, body)));
  };
  Expr col = j * 16 + v;
  Expr product =
      ir::CallIntrin(ir::Intrin::kFma, {a.Load({i, p}), b.Load({p, col}), acc.Load({i, col})});
  Stmt body = tir::SeqStmt({tir::AllocBuffer(acc),
                            tile(BufferStore(acc, ir::Const(Float(32), 0), {i, col})),
                            Serial(p, k, tile(BufferStore(acc, product, {i, col}))),
                            tile(BufferStore(c, acc.Load({i, col}), {i, col}))});
  ir::DictAttrs attrs;
  attrs.Set(tir::attr::kScheduled, true);
  attrs.Set(tir::attr::kNoAlias, true);
  return PrimFunc({a, b, c}, body, attrs);
}

int Count(const std::string& text, const std::string& what) {
  int count = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

TEST(Registers, AnAccumulatorTileStaysInRegisters) {
  KernelOptions options;
  options.target = "llvm -mcpu=znver4";
  std::string code =
      InspectKernel(ModuleOf({{"tile", RegisterTile()}}), "tile", options, /*assembly=*/true);
  int spills = 0, fmas = 0;
  std::istringstream lines(code);
  for (std::string line; std::getline(lines, line);) {
    bool zmm = line.find("zmm") != std::string::npos;
    spills += zmm && line.find("(%rsp)") != std::string::npos;
    spills += zmm && line.find("(%rbp)") != std::string::npos;
    fmas += zmm && line.find("vfmadd") != std::string::npos;
  }
  EXPECT_EQ(spills, 0);
  EXPECT_EQ(fmas, 24);
  EXPECT_EQ(
      Count(InspectKernel(ModuleOf({{"tile", RegisterTile()}}), "tile", options, false), "alloca"),
      1);  // the sizes that an error is about
}

TEST(Registers, TheTileComputesAProduct) {
  Kernel kernel(RegisterTile());
  for (int64_t k : {0, 1, 7, 64}) CheckMatMul(kernel, 6, 64, k);
}

// ---- threads --------------------------------------------------------------------------------

// Each row of y in parallel, with a temporary of its own.
PrimFunc ParallelRows(bool with_workspace) {
  Var m = Index("m"), n = Index("n"), i = Index("i"), j = Index("j"), j2 = Index("j2");
  Buffer x("x", {m, n}, Float(32)), y("y", {m, n}, Float(32)), t("t", {n}, Float(32));
  Stmt body = Serial(j, n, BufferStore(y, x.Load({i, j}) + 1, {i, j}));
  if (with_workspace) {
    body = tir::SeqStmt({tir::AllocBuffer(t), Serial(j, n, BufferStore(t, x.Load({i, j}) + 1, {j})),
                         Serial(j2, n, BufferStore(y, t.Load({j2}), {i, j2}))});
  }
  return PrimFunc({x, y}, For(i, 0, m, ForKind::kParallel, body));
}

TEST(Threads, RunEveryIterationOnce) {
  for (bool with_workspace : {false, true}) {
    Kernel kernel(ParallelRows(with_workspace));
    for (int64_t m : {0, 1, 7, 100}) {
      std::vector<float> x = Ramp(m * 33), y(m * 33);
      Host host(4);
      ASSERT_EQ(kernel.Run(
                    host, {View(x.data(), {m, 33}, Float(32)), View(y.data(), {m, 33}, Float(32))}),
                0);
      for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i], x[i] + 1);
      EXPECT_EQ(host.parallel_loops, m > 1);
      EXPECT_EQ(host.allocated, with_workspace ? m : 0);
      EXPECT_EQ(host.allocated, host.freed);
    }
  }
}

// y = sqrt(x) by vectors of 16, each row in parallel, past the caches where there are many rows.
// `marks`: the loop that stores is marked as one.
PrimFunc Streamed(bool marks) {
  Var m = Index("m"), i = Index("i"), v = Index("v"), w = Index("w"), once = Index("once");
  Buffer x("x", {m, Expr(16)}, Float(32)), y("y", {m, Expr(16)}, Float(32));
  Buffer done("done", {Expr(16)}, Float(32), "local");
  const Expr root = ir::CallIntrin(ir::Intrin::kSqrt, {x.Load({i, v})});
  ir::DictAttrs of_stores, of_rows;
  if (marks) of_stores.Set("stores", Expr(1));
  of_rows.Set("stream_if", ir::Greater(m, 4));
  const For stores(once, 0, 1, ForKind::kSerial,
                   Vector(w, 16, BufferStore(y, done.Load({w}), {i, w})), "", of_stores);
  const Stmt body =
      tir::SeqStmt({tir::AllocBuffer(done), Vector(v, 16, BufferStore(done, root, {v})), stores});
  ir::DictAttrs attrs;
  attrs.Set(tir::attr::kScheduled, true);
  attrs.Set(tir::attr::kNoAlias, true);
  return PrimFunc({x, y}, For(i, 0, m, ForKind::kParallel, body, "", of_rows), attrs);
}

TEST(Streaming, OnlyLoopsThatStoreAreThereTwice) {
  KernelOptions options;
  options.target = "llvm -mcpu=znver4";
  for (bool marks : {false, true}) {
    const std::string code =
        InspectKernel(ModuleOf({{"rows", Streamed(marks)}}), "rows", options, /*assembly=*/true);
    EXPECT_EQ(Count(code, "vmovntps"), 1) << marks;
    EXPECT_EQ(Count(code, "vsqrtps"), marks ? 1 : 2) << marks;
    EXPECT_EQ(Count(code, "sfence"), 1) << marks;
  }
}

TEST(Streaming, StoresTheSame) {
  for (bool marks : {false, true}) {
    Kernel kernel(Streamed(marks));
    for (int64_t m : {0, 3, 4, 5, 40}) {
      for (size_t moved : {0, 1}) {  // results that do not begin at a multiple of the vector
        std::vector<float> x = Ramp(m * 16), room(m * 16 + 32, -7);
        for (float& e : x) e = std::abs(e);
        const size_t first = (64 - reinterpret_cast<uintptr_t>(room.data()) % 64) / 4 % 16 + moved;
        float* y = room.data() + first;
        kernel.Must({View(x.data(), {m, 16}, Float(32)), View(y, {m, 16}, Float(32))}, {}, 2);
        for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i], std::sqrt(x[i])) << m << " " << i;
        EXPECT_EQ(y[x.size()], -7);
      }
    }
  }
}

TEST(Threads, AsManyAsTheAnnotationSays) {
  Var m = Index("m"), i = Index("i");
  Buffer x("x", {m}, Float(32));
  ir::DictAttrs annotations;
  annotations.Set("most_threads", ir::FloorDiv(m, 50));
  Kernel kernel(PrimFunc({x}, For(i, 0, m, ForKind::kParallel,
                                  BufferStore(x, ir::Const(Float(32), 2), {i}), "", annotations)));
  std::vector<float> a(300);
  for (auto [size, loops, threads] :
       {std::tuple{99, 0, 0}, {100, 1, 2}, {199, 1, 3}, {200, 1, 4}, {300, 1, 4}}) {
    Host host(4);
    ASSERT_EQ(kernel.Run(host, {View(a.data(), {size}, Float(32))}), 0);
    EXPECT_EQ(host.parallel_loops, loops);
    EXPECT_EQ(host.most_shares, threads);
  }
}

TEST(Threads, StepsSeeWhatTheStepBeforeWrote) {
  Var n = Index("n"), i = Index("i");
  Buffer x("x", {Expr(8), n}, Int(32));
  Expr step = ir::FloorDiv(i, n), unit = ir::FloorMod(i, n);
  Expr before = x.Load({ir::Max(step - 1, 0), n - 1 - unit});
  Stmt body = BufferStore(
      x, ir::Select(ir::Equal(step, 0), ir::Cast(Int(32), unit), before) + ir::Const(Int(32), 1),
      {step, unit});
  ir::DictAttrs annotations;
  annotations.Set("in_steps", Expr(8));
  Kernel kernel(PrimFunc({x}, For(i, 0, n * 8, ForKind::kParallel, body, "", annotations)));
  for (int num_threads : {1, 2}) {
    std::vector<int32_t> a(8 * 5);
    Host host(num_threads);
    ASSERT_EQ(kernel.Run(host, {View(a.data(), {8, 5}, Int(32))}), 0);
    EXPECT_EQ(host.steps_loops, num_threads - 1);
    EXPECT_EQ(host.parallel_loops, 0);
    for (int k = 0; k < 5; ++k) EXPECT_EQ(a[7 * 5 + k], 4 - k + 8) << num_threads;
  }
}

TEST(Threads, ALoopInsideALoopRunsInItsThread) {
  Var i = Index("i"), j = Index("j");
  Buffer x("x", {Expr(8), Expr(8)}, Int(32));
  Stmt body =
      For(j, 0, 8, ForKind::kParallel, BufferStore(x, ir::Cast(Int(32), i * 8 + j), {i, j}));
  Kernel kernel(PrimFunc({x}, For(i, 0, 8, ForKind::kParallel, body)));
  std::vector<int32_t> a(64);
  Host host(3);
  ASSERT_EQ(kernel.Run(host, {View(a.data(), {8, 8}, Int(32))}), 0);
  EXPECT_EQ(host.parallel_loops, 1);
  for (int k = 0; k < 64; ++k) EXPECT_EQ(a[k], k);
}

TEST(Threads, AnErrorInATaskReachesTheCaller) {
  Var i = Index("i");
  Buffer x("x", {Expr(8)}, Int(32)), t("t", {Expr(5000)}, Float(32));
  Stmt check =
      tir::AssertStmt(ir::Less(x.Load({i}), 5), "IndexError", "x has a value of 5 or more");
  Stmt use = BufferStore(t, ir::Const(Float(32), 0), {i});
  Kernel kernel(
      PrimFunc({x}, tir::SeqStmt({tir::AllocBuffer(t),
                                  For(i, 0, 8, ForKind::kParallel, tir::SeqStmt({use, check}))})));
  std::vector<int32_t> a(8, 4);
  Host fine(2);
  EXPECT_EQ(kernel.Run(fine, {View(a.data(), {8}, Int(32))}), 0);
  a[6] = 5;
  Host host(2);
  EXPECT_EQ(kernel.Run(host, {View(a.data(), {8}, Int(32))}), kKernelError);
  EXPECT_EQ(host.kind + ": " + host.message, "IndexError: x has a value of 5 or more");
  EXPECT_EQ(host.allocated, host.freed);
}

TEST(Threads, StopWhenTheHostAsks) {
  Kernel kernel(ParallelRows(true));
  std::vector<float> x(4 * 33), y(4 * 33);
  Host host(2);
  host.interrupt = 1;
  EXPECT_EQ(
      kernel.Run(host, {View(x.data(), {4, 33}, Float(32)), View(y.data(), {4, 33}, Float(32))}),
      kKernelInterrupted);
  EXPECT_EQ(host.allocated, host.freed);
}

// ---- temporaries ----------------------------------------------------------------------------

TEST(Temporaries, ComeFromTheWorkspaceAndGoBack) {
  Var n = Index("n");
  Tensor x("x", {n}, Float(32));
  Tensor t = tir::Map(x, [](Expr v) { return v * 2; }, "t");
  Tensor sum = tir::Reduce({}, {n}, tir::SumReducer(Float(32)),
                           [&](const Indices&, const Indices& r) { return t(r); });
  Kernel kernel(tir::CreatePrimFunc({x}, {sum}));
  std::vector<float> a(1000, 1);
  float out = 0;
  Host host;
  ASSERT_EQ(kernel.Run(host, {View(a.data(), {1000}, Float(32)), View(&out, {}, Float(32))}), 0);
  EXPECT_EQ(out, 2000);
  EXPECT_EQ(host.allocated, 1);
  EXPECT_EQ(host.freed, 1);
}

TEST(Temporaries, RunningOutOfMemoryIsAnError) {
  Var n = Index("n");
  Tensor x("x", {n}, Float(32));
  Tensor t = tir::Map(x, [](Expr v) { return v * 2; }, "t");
  Tensor sum = tir::Reduce({}, {n}, tir::SumReducer(Float(32)),
                           [&](const Indices&, const Indices& r) { return t(r); });
  Kernel kernel(tir::CreatePrimFunc({x}, {sum}));
  std::vector<float> a(10);
  float out = 0;
  Host host;
  host.context.alloc_workspace = [](const RelaxvmKernelContext*, uint64_t) -> void* {
    return nullptr;
  };
  EXPECT_EQ(kernel.Run(host, {View(a.data(), {10}, Float(32)), View(&out, {}, Float(32))}),
            kKernelError);
  EXPECT_NE(host.message.find("no memory for the temporary t"), std::string::npos);
}

TEST(While, RunsUntilTheConditionFails) {
  Buffer n("n", {Expr(1)}, Int(64)), steps("steps", {Expr(1)}, Int(64));
  Indices at{Expr(0)};
  Expr v = n.Load(at);
  Expr next = ir::Select(ir::Equal(ir::FloorMod(v, 2), 0), ir::FloorDiv(v, 2), v * 3 + 1);
  Stmt body = tir::SeqStmt({BufferStore(n, next, at), BufferStore(steps, steps.Load(at) + 1, at)});
  Kernel kernel(PrimFunc({n, steps}, tir::While(ir::Greater(v, 1), body)));
  std::vector<int64_t> a{27}, b{0};
  kernel.Must({View(a.data(), {1}, Int(64)), View(b.data(), {1}, Int(64))});
  EXPECT_EQ(b[0], 111);
}

}  // namespace
}  // namespace relaxvm::codegen::testing
