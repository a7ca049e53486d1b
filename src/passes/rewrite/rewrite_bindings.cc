// SPDX-License-Identifier: Apache-2.0
// Variables of a dataflow block that form a graph get new values, which may need others first.
#include <string>
#include <unordered_set>
#include <utility>

#include "ir/visitor.h"
#include "ops/op_def.h"
#include "passes/canonical/sweep.h"
#include "passes/rewrite/rewrite.h"

namespace relaxvm::passes {
namespace {

using ir::Expr;
using ir::Var;

constexpr int kMaxRounds = 10'000;

// Builds the block anew: each binding where it stood, or earlier when a new value needs it.
class BlockMaker {
 public:
  BlockMaker(const ir::BindingBlock& block, const ffi::Map<Var, Expr>& values,
             ir::TypeContext* facts)
      : block_(block), values_(values), builder_(facts) {
    for (const ir::Binding& b : block->bindings) {
      by_var_.emplace(b->var.get(), b);
      known_.emplace(b->value.get(), b->var);
    }
  }

  ir::BindingBlock Run() {
    builder_.BeginBlock(true);
    for (const ir::Binding& b : block_->bindings) Emit(b);
    return builder_.EndBlock();
  }

 private:
  void Emit(const ir::Binding& binding) {
    if (done_.count(binding->var.get())) return;
    if (!open_.insert(binding->var.get()).second) {
      Fail(ErrorKind::kValueError, binding->span.Place(), "the new value of ", binding->var->name,
           " depends on itself");
    }
    auto it = values_.find(binding->var);
    if (it == values_.end()) {
      Need(binding->value);
      builder_.EmitBinding(binding);
    } else {
      Expr value = Leaf((*it).second, true);
      builder_.EmitBinding(ir::VarBinding(binding->var, value, binding->span));
    }
    open_.erase(binding->var.get());
    done_.insert(binding->var.get());
  }

  void Need(const Expr& e) {
    class Vars : public ir::Visitor {
     public:
      std::vector<const ffi::Object*> found;
      void VisitVar(const ir::VarObj* v) override { found.push_back(v); }
      void VisitOther(const ir::ExprObj*) override {}
    } vars;
    vars.Visit(e);
    for (const ffi::Object* v : vars.found) {
      if (auto it = by_var_.find(v); it != by_var_.end()) Emit(it->second);
    }
  }

  // `e` with its parts bound; itself bound too unless it is the value of a binding.  An object that
  // stands in several new values is computed once.
  Expr Leaf(const Expr& e, bool top) {
    if (auto it = made_.find(e.get()); it != made_.end()) return it->second;
    if (auto it = known_.find(e.get()); it != known_.end() && !values_.count(it->second)) {
      Emit(by_var_.at(it->second.get()));
      return it->second;
    }
    Expr value = e;
    if (auto* call = e.as<ir::CallObj>()) {
      ffi::Array<Expr> args = call->args.Map([this](const Expr& a) { return Argument(a); });
      value = ir::Call(Argument(call->op), args, call->attrs, call->ty_args, call->span);
    } else if (auto* item = e.as<ir::TupleGetItemObj>()) {
      value = ir::TupleGetItem(Leaf(item->tuple_value, false), item->index, item->span);
    } else if (auto* tuple = e.as<ir::TupleObj>()) {
      value = ir::Tuple(tuple->fields.Map([this](const Expr& f) { return Leaf(f, false); }),
                        tuple->span);
    } else {
      Need(e);
      return e;
    }
    value = builder_.Normalize(value);
    if (top) return value;
    Var var = builder_.Emit(value);
    made_.emplace(e.get(), var);
    return var;
  }

  Expr Argument(const Expr& e) {
    auto* tuple = e.as<ir::TupleObj>();
    if (tuple == nullptr) return Leaf(e, false);
    return ir::Tuple(tuple->fields.Map([this](const Expr& f) { return Argument(f); }), tuple->span);
  }

  const ir::BindingBlock& block_;
  const ffi::Map<Var, Expr>& values_;
  ir::BlockBuilder builder_;
  std::unordered_map<const ffi::Object*, ir::Binding> by_var_;
  std::unordered_map<const ffi::Object*, Var> known_;
  std::unordered_map<const ffi::Object*, Expr> made_;
  std::unordered_set<const ffi::Object*> open_, done_;
};

class Blocks : public ir::Mutator {
 public:
  Blocks(const analysis::PatternGraph& graph, const BindingRewriter& rewriter)
      : graph_(graph), rewriter_(rewriter), facts_(ops::MakeTypeContext()) {}

  ir::BindingBlock MutateBlock(const ir::BindingBlock& given) override {
    if (!given.as<ir::DataflowBlockObj>()) return ir::Mutator::MutateBlock(given);
    ir::BindingBlock block = given;
    for (int round = 0; round < kMaxRounds; ++round) {
      auto found = analysis::MatchGraph(graph_, block);
      if (!found) return block;
      ffi::Map<Var, Expr> values;
      for (const ir::Binding& b : block->bindings) values.Set(b->var, b->value);
      ffi::Map<Var, Expr> changes = rewriter_(found.value(), values);
      if (changes.empty()) return block;
      block = WithoutUnused(BlockMaker(block, changes, facts_.get()).Run());
    }
    Fail(ErrorKind::kRuntimeError,
         "rewriting of bindings does not end: the pattern still matches after ", kMaxRounds,
         " rounds");
  }
  Expr MutateOther(const Expr& e) override { return e; }

 private:
  // What only the replaced bindings read must not match again.
  static ir::BindingBlock WithoutUnused(const ir::BindingBlock& block) {
    class Vars : public ir::Visitor {
     public:
      std::unordered_set<const ffi::Object*> found;
      void VisitVar(const ir::VarObj* v) override { found.insert(v); }
      void VisitOther(const ir::ExprObj*) override {}
    } used;
    std::vector<ir::Binding> kept;
    for (size_t i = block->bindings.size(); i-- > 0;) {
      const ir::Binding& b = block->bindings[i];
      const bool local = b->var.as<ir::DataflowVarObj>() != nullptr;
      if (local && b.as<ir::VarBindingObj>() && !used.found.count(b->var.get())) continue;
      used.Visit(b->value);
      kept.push_back(b);
    }
    return ir::DataflowBlock(ffi::Array<ir::Binding>(kept.rbegin(), kept.rend()), block->span);
  }

  const analysis::PatternGraph& graph_;
  const BindingRewriter& rewriter_;
  std::unique_ptr<ir::TypeContext> facts_;
};

}  // namespace

ir::Function RewriteBindings(const analysis::PatternGraph& graph, const BindingRewriter& rewriter,
                             const ir::Function& func) {
  ir::Function out = Blocks(graph, rewriter).Mutate(func).as<ir::Function>().value();
  return out.same_as(func) ? func : RemoveUnusedBindings(out);
}

}  // namespace relaxvm::passes
