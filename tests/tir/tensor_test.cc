// SPDX-License-Identifier: Apache-2.0
// Tensors to programs, copies of programs, substitution.
#include "tir/tensor.h"

#include <gtest/gtest.h>

#include <set>

#include "tir/functor.h"

namespace relaxvm::tir {
namespace {

using ir::Var;

PrimFunc SumOfSquares() {
  Var n("n", Int(64));
  Tensor x("x", {Expr(4), n}, Float(32));
  Tensor square = Map(x, [](Expr v) { return v * v; }, "square");
  Tensor sum = Reduce({Expr(4)}, {n}, SumReducer(Float(32)),
                      [&](const Indices& i, const Indices& r) { return square({i[0], r[0]}); });
  return CreatePrimFunc({x}, {sum});
}

std::set<const ffi::Object*> Definitions(const PrimFunc& func) {
  std::set<const ffi::Object*> found;
  for (const Var& param : func->params) found.insert(param.get());
  PostOrderVisit(func->body, [&](const ffi::ObjectRef& node) {
    if (const auto* loop = node.as<ForObj>()) found.insert(loop->loop_var.get());
    if (const auto* alloc = node.as<AllocBufferObj>()) found.insert(alloc->buffer.get());
    if (const auto* block = node.as<SBlockObj>()) {
      for (const IterVar& iter : block->iter_vars) found.insert(iter->var.get());
    }
  });
  return found;
}

TEST(CreatePrimFunc, MakesOneBlockPerStageAndAllocatesTheTemporary) {
  PrimFunc func = SumOfSquares();
  int blocks = 0, allocs = 0, inits = 0;
  PostOrderVisit(func->body, [&](const ffi::ObjectRef& node) {
    blocks += node.as<SBlockObj>() != nullptr;
    allocs += node.as<AllocBufferObj>() != nullptr;
    if (const auto* block = node.as<SBlockObj>()) inits += block->init.defined();
  });
  EXPECT_EQ(blocks, 2);
  EXPECT_EQ(allocs, 1);
  EXPECT_EQ(inits, 1);
  EXPECT_EQ(func->params.size(), 2u);
}

TEST(CreatePrimFunc, CopiesAnInputThatIsAnOutput) {
  Tensor x("x", {Expr(4)}, Float(32));
  PrimFunc func = CreatePrimFunc({x}, {x});
  int stores = 0;
  PostOrderVisit(func->body, [&](const ffi::ObjectRef& node) {
    if (const auto* store = node.as<BufferStoreObj>()) {
      EXPECT_TRUE(store->buffer.same_as(func->params[1]));
      ++stores;
    }
  });
  EXPECT_EQ(stores, 1);
}

TEST(CreatePrimFunc, ComputesAllValuesOfAReductionBeforeItStoresAny) {
  Var a("a", Int(64)), av("av", Float(32)), b("b", Int(64)), bv("bv", Float(32));
  Expr keep = ir::GreaterEqual(av, bv);
  Reducer argmax({a, av}, {b, bv}, {ir::Select(keep, a, b), ir::Select(keep, av, bv)},
                 {ir::Const(Int(64), -1), ir::MinValue(Float(32))});
  Tensor x("x", {Expr(8)}, Float(32));
  auto results = MultiReduce(
      {}, {Expr(8)}, argmax,
      [&](const Indices&, const Indices& r) { return std::vector<Expr>{r[0], x({r[0]})}; },
      {"index", "value"});
  PrimFunc func = CreatePrimFunc({x}, results);
  EXPECT_EQ(ir::GetAttr<int64_t>(func->attrs, attr::kNumOutputs, 1), 2);
  bool stored = false;
  PostOrderVisit(func->body, [&](const ffi::ObjectRef& node) {
    const auto* block = node.as<SBlockObj>();
    if (block == nullptr) return;
    for (const Stmt& s : block->body.as<SeqStmtObj>()->seq) {
      if (KindOf(s.get()) == StmtKind::kBufferStore) stored = true;
      EXPECT_FALSE(stored && KindOf(s.get()) == StmtKind::kBind);
    }
  });
  EXPECT_TRUE(stored);
}

TEST(RenewDefs, GivesAProgramThatSharesNoDefinition) {
  PrimFunc func = SumOfSquares(), copy = RenewDefs(func);
  EXPECT_EQ(Definitions(func).size(), Definitions(copy).size());
  for (const ffi::Object* def : Definitions(copy)) EXPECT_EQ(Definitions(func).count(def), 0u);
}

TEST(RenewDefs, KeepsAScalarParameterEqualToTheSizeItNames) {
  Var n("n", Int(64));
  Tensor ones = Compute({n}, [](const Indices&) { return Expr(1); });
  PrimFunc func = CreatePrimFunc({}, {ones}, {n});
  EXPECT_TRUE(func->params[1].same_as(Buffer(func->params[0]).shape()[0]));
}

TEST(SpecializeSizes, ReplacesASizeInShapesAndLoops) {
  PrimFunc func = SumOfSquares();
  Expr n = Buffer(func->params[0]).shape()[1];
  PrimFunc fixed = SpecializeSizes(func, {{ffi::GetRef<Var>(n.as<ir::VarObj>()), Expr(7)}});
  EXPECT_TRUE(ir::IsIntValue(Buffer(fixed->params[0]).shape()[1], 7));
  PostOrderVisit(fixed->body, [&](const ffi::ObjectRef& node) {
    if (const auto* load = node.as<BufferLoadObj>()) {
      EXPECT_EQ(load->buffer->name == "x", load->buffer.same_as(fixed->params[0]));
    }
    const auto* loop = node.as<ForObj>();
    EXPECT_TRUE(loop == nullptr || ir::AsInt(loop->extent).has_value());
  });
}

}  // namespace
}  // namespace relaxvm::tir
