// SPDX-License-Identifier: Apache-2.0
// The last use of blocks.
#include "codegen/tir/lower_blocks.h"

#include <unordered_set>
#include <vector>

#include "tir/functor.h"

namespace relaxvm::codegen {
namespace {

namespace ffi = tvm::ffi;
using ir::Expr;
using ir::Var;
using tir::For;
using tir::ForObj;
using tir::IterKind;
using tir::IterVar;
using tir::SBlockRealize;
using tir::SBlockRealizeObj;
using tir::Stmt;
using VarSet = std::unordered_set<const ffi::Object*>;

VarSet VarsOf(const Expr& e) {
  VarSet vars;
  tir::PostOrderVisit(tir::Evaluate(e), [&](const ffi::ObjectRef& node) {
    if (node.as<ir::VarObj>()) vars.insert(node.get());
  });
  return vars;
}

bool Mentions(const Expr& e, const VarSet& vars) {
  for (const ffi::Object* v : VarsOf(e)) {
    if (vars.count(v)) return true;
  }
  return false;
}

void SplitConjunction(const Expr& e, std::vector<Expr>* parts) {
  const auto* both = e.as<ir::BinaryObj>();
  if (both != nullptr && both->op == ir::BinaryOp::kAnd) {
    SplitConjunction(both->a, parts);
    SplitConjunction(both->b, parts);
  } else {
    parts->push_back(e);
  }
}

// A reduction as it stands in its loops: `loops`, outermost first, hold nothing but the block.
struct ReductionNest {
  std::vector<For> loops;
  const SBlockRealizeObj* realize = nullptr;
};

ReductionNest FindNest(const For& outermost) {
  ReductionNest nest;
  Stmt at = outermost;
  while (auto loop = at.as<For>()) {
    nest.loops.push_back(loop.value());
    at = loop.value()->body;
  }
  nest.realize = at.as<SBlockRealizeObj>();
  return nest;
}

class BlockLowerer : public tir::StmtMutator {
 public:
  Stmt MutateFor(const For& loop) override {
    ReductionNest nest = FindNest(loop);
    if (nest.realize == nullptr || !NeedsInit(nest.realize)) return Descend(loop);
    VarSet reduce_vars = ReduceVars(nest.realize);
    if (reduce_vars.count(loop->loop_var.get()) == 0) return Descend(loop);
    Stmt init = InitNest(nest, reduce_vars);
    initialised_.insert(nest.realize->block.get());
    return tir::SeqStmt::Flatten({Mutate(init), Descend(loop)});
  }

  Stmt MutateSBlockRealize(const SBlockRealize& realize) override {
    const tir::SBlock& block = realize->block;
    ffi::Map<Var, Expr> axes;
    for (size_t i = 0; i < block->iter_vars.size(); ++i) {
      axes.Set(block->iter_vars[i]->var, realize->iter_values[i]);
    }
    ffi::Array<Stmt> seq;
    if (NeedsInit(realize.get())) {
      VarSet reduce_vars = ReduceVars(realize.get());
      for (const ffi::Object* v : reduce_vars) {
        RELAXVM_CHECK(open_loops_.count(v) == 0)
            << "block " << block->name_hint
            << " has an init, and shares a reduce loop with other statements; move the init out of "
               "the loop";
      }
      seq.push_back(block->init);
    }
    seq.push_back(block->body);
    Stmt body = Mutate(tir::Substitute(tir::SeqStmt::Flatten(seq), axes));
    body = Guard(Mutate(realize->predicate), body);
    ffi::Array<Stmt> with_allocs;
    for (const Var& buffer : block->alloc_buffers) with_allocs.push_back(tir::AllocBuffer(buffer));
    with_allocs.push_back(body);
    return tir::SeqStmt::Flatten(with_allocs);
  }

  Stmt MutateSBlock(const tir::SBlock& block) override {
    RELAXVM_UNREACHABLE();  // only inside a realize, which does not descend
  }

 private:
  Stmt Descend(const For& loop) {
    open_loops_.insert(loop->loop_var.get());
    Stmt result = tir::StmtMutator::MutateFor(loop);
    open_loops_.erase(loop->loop_var.get());
    return result;
  }

  bool NeedsInit(const SBlockRealizeObj* realize) const {
    return realize->block->init.defined() && initialised_.count(realize->block.get()) == 0;
  }

  static VarSet ReduceVars(const SBlockRealizeObj* realize) {
    VarSet vars;
    for (size_t i = 0; i < realize->iter_values.size(); ++i) {
      if (realize->block->iter_vars[i]->kind != IterKind::kReduce) continue;
      vars.merge(VarsOf(realize->iter_values[i]));
    }
    return vars;
  }

  static Stmt Guard(const Expr& condition, const Stmt& body) {
    if (!condition.defined() || ir::IsIntValue(condition, 1)) return body;
    return tir::IfThenElse(condition, body);
  }

  // The init over the loops that choose the element, without those that only reduce.
  static Stmt InitNest(const ReductionNest& nest, const VarSet& reduce_vars) {
    const tir::SBlock& block = nest.realize->block;
    VarSet spatial, dropped;
    ffi::Map<Var, Expr> axes;
    for (size_t i = 0; i < block->iter_vars.size(); ++i) {
      const IterVar& axis = block->iter_vars[i];
      if (axis->kind == IterKind::kReduce) continue;
      spatial.merge(VarsOf(nest.realize->iter_values[i]));
      axes.Set(axis->var, nest.realize->iter_values[i]);
    }
    for (const For& loop : nest.loops) {
      if (spatial.count(loop->loop_var.get()) == 0) dropped.insert(loop->loop_var.get());
    }
    std::vector<Expr> conditions;
    SplitConjunction(nest.realize->predicate, &conditions);
    Expr guard = ir::BoolImm(true);
    for (const Expr& condition : conditions) {
      if (!Mentions(condition, dropped)) {
        guard = ir::And(guard, condition);
        continue;
      }
      RELAXVM_CHECK(!Mentions(condition, spatial))
          << "block " << block->name_hint
          << ": a predicate mixes reduce loops with loops that choose the element; move the init "
             "out of the loops";
    }
    Stmt init = Guard(guard, tir::Substitute(block->init, axes));
    for (size_t i = nest.loops.size(); i-- > 0;) {
      const For& loop = nest.loops[i];
      if (dropped.count(loop->loop_var.get())) continue;
      RELAXVM_CHECK(!Mentions(loop->extent, dropped) && !Mentions(loop->min, dropped))
          << "block " << block->name_hint << ": bounds of a loop depend on a reduce loop";
      init = For(loop->loop_var, loop->min, loop->extent, loop->kind, init, loop->thread_tag,
                 loop->annotations);
    }
    // The loops appear twice from here on: the copy has variables of its own.
    return RenewLoops(init);
  }

  static Stmt RenewLoops(const Stmt& s) {
    struct Renewer : tir::StmtMutator {
      Var MutateDef(const Var& v) override {
        Var fresh(v->name, v->ty);
        Replace(v, fresh);
        return fresh;
      }
    } renewer;
    return renewer.Mutate(s);
  }

  std::unordered_set<const ffi::Object*> initialised_;
  VarSet open_loops_;
};

}  // namespace

Stmt LowerBlocks(const Stmt& body) { return BlockLowerer().Mutate(body); }

}  // namespace relaxvm::codegen
