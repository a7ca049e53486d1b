// SPDX-License-Identifier: Apache-2.0
// Sizes as arguments: what one program for all shapes leaves equal and what it keeps apart.
#include "tir/lift_sizes.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tir/functor.h"
#include "tir/tensor.h"

namespace relaxvm::tir {
namespace {

using ir::Var;

PrimFunc Transposition(int64_t rows, int64_t columns) {
  Tensor x("x", {Expr(rows), Expr(columns)}, Float(32));
  Tensor y =
      Compute({Expr(columns), Expr(rows)}, [&](const Indices& i) { return x({i[1], i[0]}); });
  return CreatePrimFunc({x}, {y});
}

// One row of `columns` each, of what was `rows` x `columns`.
PrimFunc Flattening(int64_t rows, int64_t columns) {
  Tensor x("x", {Expr(rows), Expr(columns)}, Float(32));
  Tensor y = Compute({Expr(rows * columns)}, [&](const Indices& i) {
    return x({ir::FloorDiv(i[0], Expr(columns)), ir::FloorMod(i[0], Expr(columns))});
  });
  return CreatePrimFunc({x}, {y});
}

// The sizes and numbers of a program, in order.
struct Sizes : StmtVisitor {
  std::vector<std::string> found;

  explicit Sizes(const LiftedSizes& lifted) {
    for (size_t i = 0; i < lifted.values.size(); ++i)
      sizes_.insert(lifted.program->params[static_cast<int64_t>(i)].get());
    Visit(lifted.program);
  }
  void VisitIntImm(const ir::IntImmObj* number) override {
    found.push_back(std::to_string(number->value));
  }
  void VisitVar(const ir::VarObj* var) override {
    if (sizes_.count(var)) found.push_back(var->name);
  }

 private:
  std::set<const ffi::Object*> sizes_;
};

bool Same(const LiftedSizes& a, const LiftedSizes& b) { return Sizes(a).found == Sizes(b).found; }

TEST(LiftSizes, MakesOneProgramOfTwoShapes) {
  std::vector<Var> names;
  LiftedSizes a = LiftSizes(Transposition(3, 5), &names),
              b = LiftSizes(Transposition(7, 4), &names);
  EXPECT_TRUE(Same(a, b));
  EXPECT_EQ(a.values, (std::vector<int64_t>{3, 5}));
  EXPECT_EQ(b.values, (std::vector<int64_t>{7, 4}));
  EXPECT_EQ(a.program->params.size(), 4u);
  EXPECT_EQ(names.size(), 2u);
}

TEST(LiftSizes, KeepsApartWhatIsOneAndWhatIsEqual) {
  std::vector<Var> names;
  LiftedSizes general = LiftSizes(Transposition(3, 5), &names);
  EXPECT_FALSE(Same(general, LiftSizes(Transposition(4, 4), &names)));
  EXPECT_FALSE(Same(general, LiftSizes(Transposition(1, 5), &names)));
}

TEST(LiftSizes, LeavesDivisorsAsTheyAre) {
  std::vector<Var> names;
  LiftedSizes a = LiftSizes(Flattening(3, 5), &names);
  EXPECT_TRUE(Same(a, LiftSizes(Flattening(4, 5), &names)));
  EXPECT_FALSE(Same(a, LiftSizes(Flattening(3, 6), &names)));
}

TEST(LiftSizes, LeavesProgramsWithVectorsAlone) {
  Buffer x("x", {Expr(8)}, Float(32)), y("y", {Expr(8)}, Float(32));
  Var i("i", Int(64));
  PrimFunc program(
      {x, y}, For(i, Expr(0), Expr(8), ForKind::kVectorized, BufferStore(y, x.Load({i}), {i})));
  std::vector<Var> names;
  LiftedSizes lifted = LiftSizes(program, &names);
  EXPECT_TRUE(lifted.program.same_as(program));
  EXPECT_TRUE(lifted.values.empty());
}

}  // namespace
}  // namespace relaxvm::tir
