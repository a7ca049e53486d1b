// SPDX-License-Identifier: Apache-2.0
// What one of two threads does of a scheduled program: half of the work, and the same rows in one
// program after the other, so that they are in its cache.
#include <gtest/gtest.h>

#include "interpreter.h"
#include "schedule/cpu/cpu.h"
#include "tir/tensor.h"

namespace relaxvm::schedule {
namespace {

using ir::Expr;
using ir::Var;
using tir::Indices;
using tir::Tensor;

constexpr double kUnwritten = -1e30;

// The results, where the last parameter is the only one, after `share` of two has run: inputs are
// ones.
std::vector<double> AfterShare(const tir::PrimFunc& func,
                               const std::map<std::string, int64_t>& sizes, int64_t share) {
  const tir::PrimFunc scheduled = cpu::Schedule(func, {64, 32});
  EXPECT_TRUE(ir::GetAttr<bool>(scheduled->attrs, tir::attr::kScheduled, false));
  std::vector<std::vector<double>> memory;
  for (const Var& param : func->params)
    memory.emplace_back(static_cast<size_t>(testing::NumElements(param, sizes)), 1.0);
  std::fill(memory.back().begin(), memory.back().end(), kUnwritten);
  std::vector<std::vector<double>*> pointers;
  for (auto& m : memory) pointers.push_back(&m);
  testing::Interpreter interpreter;
  interpreter.share = share;
  interpreter.num_shares = 2;
  interpreter.Run(scheduled, pointers, sizes);
  EXPECT_EQ(interpreter.num_out_of_bounds, 0);
  return memory.back();
}

// Each share writes rows of its own: all of the outer quarter on its side, nothing of the other.
void ExpectRowsOfOwn(const tir::PrimFunc& func, const std::map<std::string, int64_t>& sizes = {}) {
  for (int64_t share : {0, 1}) {
    const std::vector<double> result = AfterShare(func, sizes, share);
    for (size_t i = 0; i < result.size(); ++i) {
      const bool first = i < result.size() / 4, last = i >= result.size() - result.size() / 4;
      if (!first && !last) continue;
      ASSERT_EQ(result[i] != kUnwritten, first == (share == 0)) << "share " << share << " at " << i;
    }
  }
}

tir::PrimFunc Product(const Expr& rows, int64_t columns, int64_t depth) {
  Tensor a("a", {rows, Expr(depth)}, Float(32)), b("b", {Expr(depth), Expr(columns)}, Float(32));
  Tensor c = tir::Reduce(
      {rows, Expr(columns)}, {Expr(depth)}, tir::SumReducer(Float(32)),
      [&](const Indices& i, const Indices& r) { return a({i[0], r[0]}) * b({r[0], i[1]}); });
  return tir::CreatePrimFunc({a, b}, {c});
}

TEST(Shares, OfAProductAreRowsWhereTheseOutweighTheRightSide) {
  ExpectRowsOfOwn(Product(512, 192, 16));
  ExpectRowsOfOwn(Product(Var("m", Int(64)), 192, 16), {{"m", 512}});
}

TEST(Shares, OfAProductAreColumnsWhereTheRightSideOutweighsRows) {
  for (const Expr& rows : {Expr(40), Expr(Var("m", Int(64)))}) {
    const auto half = AfterShare(Product(rows, 192, 192), {{"m", 40}}, 0);
    for (size_t row : {0, 39}) {
      EXPECT_NE(half[row * 192], kUnwritten);
      EXPECT_EQ(half[row * 192 + 191], kUnwritten);
    }
  }
}

// One image of channels last: neither the batch nor the channels are work for two threads.
TEST(Shares, OfAMeanOfAnImageAreItsParts) {
  Var h("h", Int(64));
  for (const Expr& height : {Expr(40), Expr(h)}) {
    Tensor x("x", {Expr(1), height, Expr(32), Expr(48)}, Float(32));
    Tensor sum = tir::Reduce(
        {Expr(1), Expr(48)}, {height, Expr(32)}, tir::SumReducer(Float(32)),
        [&](const Indices& i, const Indices& r) { return x({i[0], r[0], r[1], i[1]}); });
    const auto func = tir::CreatePrimFunc({x}, {sum});
    // A sum that lacks the parts of the other share, which the interpreter leaves undefined.
    for (int64_t share : {0, 1}) EXPECT_TRUE(std::isnan(AfterShare(func, {{"h", 40}}, share)[47]));
  }
}

TEST(Shares, OfAnImageTimesAVectorOfChannelsAreRows) {
  Var b("b", Int(64));
  for (const Expr& batch : {Expr(1), Expr(b)}) {
    Tensor x("x", {batch, Expr(64), Expr(32), Expr(24)}, Float(32));
    Tensor scale("scale", {batch, Expr(24)}, Float(32));
    ExpectRowsOfOwn(
        tir::CreatePrimFunc({x, scale}, {tir::Compute({batch, Expr(64), Expr(32), Expr(24)},
                                                      [&](const Indices& i) {
                                                        return x(i) * scale({i[0], i[3]});
                                                      })}),
        {{"b", 1}});
  }
}

}  // namespace
}  // namespace relaxvm::schedule
