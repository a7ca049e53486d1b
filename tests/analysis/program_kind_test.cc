// SPDX-License-Identifier: Apache-2.0
// Kinds of tensor programs, and programs that only reshape.
#include "analysis/program_kind.h"

#include <gtest/gtest.h>

#include "tir/tensor.h"

namespace relaxvm::analysis {
namespace {

using ir::Expr;
using ir::Var;
using tir::Indices;
using tir::Tensor;
using Dims = tvm::ffi::Array<Expr>;

Tensor Input(const char* name, Dims dims) { return Tensor(name, dims, Float(32)); }

FusionKind KindOfStage(const std::vector<Tensor>& inputs, const Tensor& out) {
  return KindOf(tir::CreatePrimFunc(inputs, {out}));
}

TEST(KindOf, ElementwiseAlsoWithABias) {
  Tensor x = Input("x", {Expr(4), Expr(3)}), b = Input("b", {Expr(3)});
  Tensor y = tir::Compute(x->shape, [&](const Indices& i) { return x(i) + b({i[1]}); });
  EXPECT_EQ(KindOfStage({x, b}, y), FusionKind::kElementwise);
}

TEST(KindOf, Broadcast) {
  Tensor b = Input("b", {Expr(3)});
  Tensor y = tir::Compute({Expr(4), Expr(3)}, [&](const Indices& i) { return b({i[1]}); });
  EXPECT_EQ(KindOfStage({b}, y), FusionKind::kBroadcast);
}

TEST(KindOf, InjectiveWhenAxesChangePlaces) {
  Tensor x = Input("x", {Expr(4), Expr(3)});
  Tensor y = tir::Compute({Expr(3), Expr(4)}, [&](const Indices& i) { return x({i[1], i[0]}); });
  EXPECT_EQ(KindOfStage({x}, y), FusionKind::kInjective);
}

TEST(KindOf, ReductionAlsoAfterElementwiseWork) {
  Tensor x = Input("x", {Expr(4), Expr(3)});
  Tensor square = tir::Map(x, [](Expr v) { return v * v; });
  Tensor sum =
      tir::Reduce({Expr(4)}, {Expr(3)}, tir::SumReducer(Float(32)),
                  [&](const Indices& i, const Indices& r) { return square({i[0], r[0]}); });
  EXPECT_EQ(KindOfStage({x}, sum), FusionKind::kReduction);
}

TEST(KindOf, ContractionForProductsAndWindows) {
  Tensor x = Input("x", {Expr(8)}), w = Input("w", {Expr(3)});
  Tensor conv =
      tir::Reduce({Expr(6)}, {Expr(3)}, tir::SumReducer(Float(32)),
                  [&](const Indices& i, const Indices& r) { return x({i[0] + r[0]}) * w({r[0]}); });
  EXPECT_EQ(KindOfStage({x, w}, conv), FusionKind::kContraction);
  Tensor pool = tir::Reduce({Expr(6)}, {Expr(3)}, tir::MaxReducer(Float(32)),
                            [&](const Indices& i, const Indices& r) { return x({i[0] + r[0]}); });
  EXPECT_EQ(KindOfStage({x}, pool), FusionKind::kContraction);
}

TEST(KindOf, SumOfSquaresIsAReduction) {
  Tensor x = Input("x", {Expr(4), Expr(3)});
  Tensor sum = tir::Reduce(
      {Expr(4)}, {Expr(3)}, tir::SumReducer(Float(32)),
      [&](const Indices& i, const Indices& r) { return x({i[0], r[0]}) * x({i[0], r[0]}); });
  EXPECT_EQ(KindOfStage({x}, sum), FusionKind::kReduction);
}

TEST(KindOf, SeveralReductionsAreOneContraction) {
  Tensor x = Input("x", {Expr(4), Expr(3)});
  auto along = [&](const Tensor& t, const tir::Reducer& reducer) {
    return tir::Reduce({Expr(4)}, {Expr(3)}, reducer,
                       [&](const Indices& i, const Indices& r) { return t({i[0], r[0]}); });
  };
  Tensor top = along(x, tir::MaxReducer(Float(32)));
  Tensor e = tir::Compute(x->shape, [&](const Indices& i) { return x(i) - top({i[0]}); });
  Tensor sum = along(e, tir::SumReducer(Float(32)));
  Tensor out = tir::Compute(x->shape, [&](const Indices& i) { return ir::Div(e(i), sum({i[0]})); });
  EXPECT_EQ(KindOfStage({x}, out), FusionKind::kContraction);
}

TEST(KindOf, HandWrittenStatementsAreOpaque) {
  Tensor x = Input("x", {Expr(4)});
  std::vector<Tensor> out = tir::Opaque(
      {{"y", {Expr(4)}, Float(32)}}, {x},
      [](const std::vector<tir::Buffer>& in, const std::vector<tir::Buffer>& to) {
        Var i("i", Int(64));
        return tir::For(i, Expr(0), Expr(4), tir::ForKind::kSerial,
                        tir::BufferStore(to[0], in[0].Load({i}), {i}));
      },
      "by_hand");
  EXPECT_EQ(KindOfStage({x}, out[0]), FusionKind::kOpaque);
}

bool IsReshape(Dims from, Dims to, const std::function<Indices(const Indices&)>& at) {
  Tensor x = Input("x", from);
  Tensor y = tir::Compute(to, [&](const Indices& i) { return x(at(i)); });
  return HasReshapePattern(tir::CreatePrimFunc({x}, {y}));
}

TEST(HasReshapePattern, SplitAxis) {
  EXPECT_TRUE(IsReshape({Expr(12)}, {Expr(3), Expr(4)},
                        [](const Indices& i) { return Indices{i[0] * 4 + i[1]}; }));
}

TEST(HasReshapePattern, JoinedAxesOfSymbolicSize) {
  Var n("n", Int(64)), m("m", Int(64));
  EXPECT_TRUE(IsReshape({n, m}, {Expr(n) * m}, [&](const Indices& i) {
    return Indices{ir::FloorDiv(i[0], m), ir::FloorMod(i[0], m)};
  }));
}

TEST(HasReshapePattern, AddedAxis) {
  Var n("n", Int(64));
  EXPECT_TRUE(IsReshape({n, Expr(3)}, {n, Expr(1), Expr(3)},
                        [](const Indices& i) { return Indices{i[0], i[2]}; }));
}

TEST(HasReshapePattern, NotATranspose) {
  EXPECT_FALSE(IsReshape({Expr(3), Expr(4)}, {Expr(4), Expr(3)},
                         [](const Indices& i) { return Indices{i[1], i[0]}; }));
}

TEST(HasReshapePattern, NotASlice) {
  EXPECT_FALSE(IsReshape({Expr(8)}, {Expr(4)}, [](const Indices& i) { return Indices{i[0]}; }));
}

TEST(HasReshapePattern, NotABroadcast) {
  EXPECT_FALSE(
      IsReshape({Expr(3)}, {Expr(2), Expr(3)}, [](const Indices& i) { return Indices{i[1]}; }));
}

}  // namespace
}  // namespace relaxvm::analysis
