// SPDX-License-Identifier: Apache-2.0
// Which calls become one program, and that programs made of several compute the same.
#include <gtest/gtest.h>

#include "../graph.h"
#include "analysis/well_formed.h"

namespace relaxvm::testing {
namespace {

using Names = std::vector<std::string>;

Expr Twice(Expr x) { return x * ir::ConstFloat(Float(32), 2.0); }
Expr Square(Expr x) { return x * x; }

void ExpectSameResults(const ir::IRModule& before, const ir::IRModule& after, const Sizes& sizes,
                       unsigned seed = 1) {
  std::vector<Values> inputs = RandomInputs(before, sizes, seed);
  EXPECT_EQ(RunMain(before, inputs, sizes), RunMain(after, inputs, sizes));
  for (const analysis::Finding& f : analysis::CheckWellFormed(after)) ADD_FAILURE() << f.message;
}

TEST(FuseOps, JoinsAChainOfElementwiseCalls) {
  Graph g;
  Var x = g.Input("x", {Expr(4), Expr(3)});
  Var a = g.Map("a", x, Twice);
  Var b = g.Map("b", a, Square);
  Var c = g.Map("c", b, Twice, true);
  ir::IRModule before = g.Finish({c}), after = Fuse(before);
  EXPECT_EQ(Bound(after), (Names{"c"}));
  ExpectSameResults(before, after, {});
}

TEST(FuseOps, NamesTheProgramAfterItsParts) {
  Graph g;
  Var x = g.Input("x", {Expr(4)});
  Var b = g.Map("exp", g.Map("add", x, Twice), Square, true);
  EXPECT_TRUE(Fuse(g.Finish({b}))->FindVar("fused_add_exp").has_value());
}

TEST(FuseOps, GivesAContractionItsBiasActivationAndResidual) {
  Graph g;
  Var x = g.Input("x", {Expr(4), Expr(5)}), w = g.Input("w", {Expr(5), Expr(3)});
  Var bias = g.Input("bias", {Expr(3)}), residual = g.Input("residual", {Expr(4), Expr(3)});
  Var m = g.Matmul("m", x, w);
  Var b = g.Zip("b", m, bias);
  Var r = g.Map("r", b, Twice);
  Var s = g.Zip("s", r, residual, true);
  ir::IRModule before = g.Finish({s}), after = Fuse(before);
  EXPECT_EQ(Bound(after), (Names{"s"}));
  ExpectSameResults(before, after, {});
}

TEST(FuseOps, KeepsAGateOfTheSameContractionInside) {
  Graph g;
  Var x = g.Input("x", {Expr(4), Expr(5)}), w = g.Input("w", {Expr(5), Expr(3)});
  Var m = g.Matmul("m", x, w);
  Var gate = g.Map("gate", m, Square);
  Var s = g.Zip("s", m, gate, true);  // x * sigmoid(x)
  ir::IRModule before = g.Finish({s}), after = Fuse(before);
  EXPECT_EQ(Bound(after), (Names{"s"}));
  ExpectSameResults(before, after, {});
}

TEST(FuseOps, KeepsTwoContractionsApart) {
  Graph g;
  Var x = g.Input("x", {Expr(4), Expr(4)}), w = g.Input("w", {Expr(4), Expr(4)});
  Var m = g.Matmul("m", x, w);
  Var k = g.Matmul("k", x, x);
  Var s = g.Zip("s", m, k, true);
  ir::IRModule before = g.Finish({s}), after = Fuse(before);
  EXPECT_EQ(Bound(after), (Names{"k", "s"}));
  ExpectSameResults(before, after, {});
}

TEST(FuseOps, DoesNotPutWorkInFrontOfAContraction) {
  Graph g;
  Var x = g.Input("x", {Expr(4), Expr(4)});
  Var a = g.Map("a", x, Twice);
  Var m = g.Matmul("m", a, a, true);
  EXPECT_EQ(Bound(Fuse(g.Finish({m}))), (Names{"a", "m"}));
}

TEST(FuseOps, AProductReadsItsRightSideWhereAPermutationReadsIt) {
  Graph g;
  const Var n("n", Int(64));
  Var x = g.Input("x", {n, Expr(5)}), w = g.Input("w", {Expr(3), Expr(5)});
  Var t = g.Transpose("t", w);
  Var m = g.Matmul("m", x, t);
  Var r = g.Map("r", m, Twice, true);
  ir::IRModule before = g.Finish({r}), after = Fuse(before);
  EXPECT_EQ(Bound(after), (Names{"r"}));
  for (int64_t rows : {1, 4}) ExpectSameResults(before, after, {{"n", rows}});
}

TEST(FuseOps, APermutedLeftSideIsCopiedWhereMemoryWouldRunAlongTheRows) {
  Graph g;
  Var x = g.Input("x", {Expr(5), Expr(4)}), w = g.Input("w", {Expr(5), Expr(3)});
  Var t = g.Transpose("t", x);
  Var m = g.Matmul("m", t, w, true);
  EXPECT_EQ(Bound(Fuse(g.Finish({m}))), (Names{"t", "m"}));
}

TEST(FuseOps, APermutationOfWhatIsComputedOrReadTwiceStays) {
  Graph g;
  Var x = g.Input("x", {Expr(4), Expr(4)});
  Var a = g.Map("a", x, Twice);
  Var t = g.Transpose("t", a);
  Var m = g.Matmul("m", x, t);
  Var u = g.Transpose("u", m);
  Var k = g.Matmul("k", u, u, true);
  ir::IRModule before = g.Finish({k}), after = Fuse(before);
  EXPECT_EQ(Bound(after), (Names{"t", "m", "u", "k"}));
  ExpectSameResults(before, after, {});
}

TEST(FuseOps, PutsProducersAndAFollowerIntoAReduction) {
  Graph g;
  Var x = g.Input("x", {Expr(4), Expr(6)});
  Var t = g.Transpose("t", x);
  Var a = g.Map("a", t, Square);
  Var s = g.RowSum("s", a);
  Var r = g.Map("r", s, Twice, true);
  ir::IRModule before = g.Finish({r}), after = Fuse(before);
  EXPECT_EQ(Bound(after), (Names{"r"}));
  ExpectSameResults(before, after, {});
}

TEST(FuseOps, DoesNotTransposeInsideAnEpilogue) {
  Graph g;
  Var x = g.Input("x", {Expr(4), Expr(5)}), w = g.Input("w", {Expr(5), Expr(3)});
  Var m = g.Matmul("m", x, w);
  Var t = g.Transpose("t", m, true);
  EXPECT_EQ(Bound(Fuse(g.Finish({t}))), (Names{"m", "t"}));
}

TEST(FuseOps, LeavesAResultThatIsUsedOutsideWhereItIs) {
  Graph g;
  Var x = g.Input("x", {Expr(4)});
  Var a = g.Map("a", x, Twice, true);
  Var b = g.Map("b", a, Square, true);
  EXPECT_EQ(Bound(Fuse(g.Finish({a, b}))), (Names{"a", "b"}));
}

TEST(FuseOps, StopsAtSomethingThatIsNoProgram) {
  Graph g;
  Var x = g.Input("x", {Expr(4)});
  Var a = g.Map("a", x, Twice);
  ir::DataflowVar alias("alias", a->ty);
  g.Bind(ir::VarBinding(alias, a));
  Var b = g.Map("b", alias, Square, true);
  EXPECT_EQ(Bound(Fuse(g.Finish({b}))), (Names{"a", "alias", "b"}));
}

TEST(FuseOps, RespectsTheLimitOfCalls) {
  Graph g;
  Var x = g.Input("x", {Expr(4)});
  for (int i = 0; i < 7; ++i) x = g.Map("v" + std::to_string(i), x, Twice, i == 6);
  ir::IRModule before = g.Finish({x});
  ir::IRModule after = Fuse(before, {{"relax.FuseOps.max_depth", ffi::Any(int64_t{3})}});
  EXPECT_EQ(Bound(after).size(), 3u);
  ExpectSameResults(before, after, {});
}

TEST(FuseOps, KeepsSymbolicSizes) {
  Graph g;
  Var n("n", Int(64));
  Var x = g.Input("x", {n, Expr(3)});
  Var a = g.Map("a", x, Twice);
  Var s = g.RowSum("s", a, true);
  ir::IRModule before = g.Finish({s}), after = Fuse(before);
  EXPECT_EQ(Bound(after), (Names{"s"}));
  ExpectSameResults(before, after, {{"n", 5}});
}

TEST(FuseOps, HandsOverSizesThatNoTensorGives) {
  Graph g;
  Var n("n", Int(64));
  Var x = g.Input("x", {Expr(n) * 2});
  Var y = g.Input("y", {n});
  // The group reads x only, whose shape is n * 2.
  auto twice = [](const auto& in) { return tir::Map(in[0], Twice); };
  Var a = g.Call("a", {x}, twice, false, {n});
  Var b = g.Call("b", {a}, twice, true, {n});
  ir::IRModule before = g.Finish({b}), after = Fuse(before);
  ExpectSameResults(before, after, {{"n", 3}});
  ASSERT_EQ(Bound(after), (Names{"b"}));
  ir::Function f = after->Lookup("main").as<ir::Function>().value();
  auto call = analysis::AsCallTir(f->body->blocks[0]->bindings[0]->value);
  ASSERT_TRUE(call.has_value());
  ASSERT_EQ(call->tir_vars.size(), 1u);
  EXPECT_TRUE(call->tir_vars[0].same_as(n));
}

TEST(FuseOps, ChangesNothingWhenThereIsNothingToJoin) {
  Graph g;
  Var x = g.Input("x", {Expr(4)});
  Var a = g.Map("a", x, Twice, true);
  passes::PassContext context;
  context.options = {{"fuse_opt_level", ffi::Any(int64_t{-1})},
                     {"max_outputs", ffi::Any(int64_t{4})},
                     {"keep_reshapes", ffi::Any(true)},
                     {"extend_reductions", ffi::Any(true)}};
  ir::IRModule mod = passes::AnnotateTIROpPattern(g.Finish({a}), context);
  EXPECT_TRUE(passes::FuseOps(mod, context).same_as(mod));
}

TEST(FuseOps, WalksAChainOfThousandsOfCalls) {
  Graph g;
  Var x = g.Input("x", {Expr(4), Expr(4)});
  Var y = x;
  for (int i = 0; i < 1500; ++i) y = i % 3 == 2 ? g.Matmul("m", y, x) : g.Zip("z", y, x);
  Var out = g.Map("out", y, Twice, true);
  ir::IRModule after = Fuse(g.Finish({out}));
  EXPECT_LE(Bound(after).size(), 1001u);
}

// Random graphs over square matrices and vectors.
TEST(FuseOps, KeepsResultsOfRandomGraphs) {
  size_t before_calls = 0, after_calls = 0;
  for (unsigned seed = 0; seed < 120; ++seed) {
    std::mt19937 random(seed);
    auto below = [&](size_t limit) { return random() % limit; };
    Graph g;
    Var n("n", Int(64));
    std::vector<Var> matrices = {g.Input("x", {n, n}), g.Input("y", {n, n})};
    std::vector<Var> vectors = {g.Input("v", {n})};
    std::vector<Expr> results;
    int num_calls = 4 + static_cast<int>(below(14));
    for (int i = 0; i < num_calls; ++i) {
      std::string name = "t" + std::to_string(i);
      bool output = below(6) == 0 || i + 1 == num_calls;
      auto recent = [&](std::vector<Var>& from) {
        return from[from.size() - 1 - below(std::min<size_t>(3, from.size()))];
      };
      Var made = matrices[0];
      switch (below(7)) {
        case 0: made = g.Map(name, recent(matrices), Twice, output); break;
        case 1: made = g.Zip(name, recent(matrices), recent(matrices), output); break;
        case 2: made = g.Zip(name, recent(matrices), recent(vectors), output); break;
        case 3: made = g.Transpose(name, recent(matrices), output); break;
        case 4: made = g.Matmul(name, recent(matrices), recent(matrices), output); break;
        case 5: made = g.RowSum(name, recent(matrices), output); break;
        default: made = g.Map(name, recent(vectors), Twice, output); break;
      }
      (made->ty.as<ir::TensorTypeObj>()->ndim == 2 ? matrices : vectors).push_back(made);
      if (output) results.push_back(made);
    }
    ir::IRModule before = g.Finish(results), after = Fuse(before);
    ExpectSameResults(before, after, {{"n", 3}}, seed);
    before_calls += Bound(before).size();
    after_calls += Bound(after).size();
    if (HasFailure()) FAIL() << "seed " << seed;
  }
  EXPECT_LT(after_calls, before_calls);
}

}  // namespace
}  // namespace relaxvm::testing
