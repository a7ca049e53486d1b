// SPDX-License-Identifier: Apache-2.0
// InlinePrivateFunctions: calls of private functions become their bodies, and the functions
// disappear. Stage: any.  Leaves alone: functions that call themselves, fused groups, functions
// that are used as values.
#include <unordered_map>
#include <unordered_set>

#include "analysis/calls.h"
#include "analysis/module_facts.h"
#include "passes/canonical/bind.h"
#include "passes/canonical/inline.h"
#include "passes/pass.h"

namespace relaxvm::passes {
namespace {

using ir::Expr;
using ir::Var;

class Inliner : public ir::Mutator {
 public:
  explicit Inliner(const std::unordered_map<std::string, ir::Function>& bodies) : bodies_(bodies) {}

  // The body's bindings go before the binding of the call, which becomes an alias of the result;
  // a dataflow block splits a plain one.
  Expr MutateSeq(const ir::SeqExpr& seq) override {
    ffi::Array<ir::BindingBlock> blocks;
    bool changed = false;
    for (const ir::BindingBlock& block : seq->blocks) {
      bool dataflow = block.as<ir::DataflowBlockObj>() != nullptr;
      ffi::Array<ir::Binding> bindings;
      auto flush = [&](const ffi::Array<ir::Binding>& done) {
        if (done.empty()) return;
        blocks.push_back(dataflow ? ir::DataflowBlock(done, block->span)
                                  : ir::BindingBlock(done, block->span));
      };
      for (const ir::Binding& binding : block->bindings) {
        const ir::Function* body = BodyOf(binding, dataflow);
        if (body == nullptr) {
          MutateBinding(binding, &bindings);
          changed |= !bindings.back().same_as(binding);
          continue;
        }
        changed = true;
        Inline(binding, *body, dataflow, &bindings, flush, &blocks);
      }
      flush(bindings);
    }
    Expr body = Mutate(seq->body);
    if (!changed && body.same_as(seq->body)) return seq;
    return ir::SeqExpr(blocks, body, seq->span);
  }

 private:
  const ir::Function* BodyOf(const ir::Binding& binding, bool dataflow) const {
    auto* call = binding.as<ir::VarBindingObj>() ? binding->value.as<ir::CallObj>() : nullptr;
    auto* name = call == nullptr ? nullptr : call->op.as<ir::GlobalVarObj>();
    if (name == nullptr) return nullptr;
    auto it = bodies_.find(std::string(name->name_hint));
    if (it == bodies_.end()) return nullptr;
    if (dataflow) {
      // A dataflow block takes bindings, no branches.
      for (const ir::BindingBlock& block : it->second->body->blocks) {
        for (const ir::Binding& b : block->bindings) {
          if (analysis::Branches(b->value)) return nullptr;
        }
      }
    }
    return &it->second;
  }

  template <typename Flush>
  void Inline(const ir::Binding& binding, const ir::Function& f, bool dataflow,
              ffi::Array<ir::Binding>* bindings, const Flush& flush,
              ffi::Array<ir::BindingBlock>* blocks) {
    auto* call = binding->value.as<ir::CallObj>();
    ir::Function copy = CopyWithFreshVars(f);
    ffi::Map<Var, Expr> params;
    for (size_t i = 0; i < copy->params.size(); ++i)
      params.Set(copy->params[i], Mutate(call->args[i]));
    ir::Function bound = BindFunction(copy, params, {});
    ir::SeqExpr body = Mutate(bound->body).as<ir::SeqExpr>().value();
    if (dataflow) body = WithoutOutputs(body);
    for (const ir::BindingBlock& block : body->blocks) {
      if (dataflow || !block.as<ir::DataflowBlockObj>()) {
        for (const ir::Binding& b : block->bindings) bindings->push_back(b);
        continue;
      }
      flush(*bindings);
      *bindings = {};
      blocks->push_back(block);
    }
    Var var = MutateDef(binding->var);
    bindings->push_back(ir::VarBinding(var, body->body, binding->span));
  }

  const std::unordered_map<std::string, ir::Function>& bodies_;
};

}  // namespace

IRModule InlinePrivateFunctions(IRModule mod, const PassContext& context) {
  std::unordered_set<std::string> keep = analysis::UsedAsValues(mod);
  for (const auto& group : analysis::FindRecursion(mod)) {
    for (const ir::GlobalVar& var : group) keep.insert(std::string(var->name_hint));
  }
  std::unordered_map<std::string, ir::Function> bodies;
  for (const auto& [var, func] : mod->functions) {
    auto f = func.as<ir::Function>();
    bool inlines = f && !(*f)->attrs.count(ir::attr::kGlobalSymbol) &&
                   !(*f)->attrs.count(ir::attr::kPrimitive) &&
                   !keep.count(std::string(var->name_hint));
    if (inlines) bodies.emplace(std::string(var->name_hint), *f);
  }
  if (bodies.empty()) return mod;
  mod = ir::MutateFunctions(std::move(mod), [&](const ir::GlobalVar& var, const ir::Function& f) {
    if (bodies.count(std::string(var->name_hint))) return f;
    return Inliner(bodies).Mutate(f).as<ir::Function>().value();
  });
  // A call that could not be replaced keeps its function.
  class Calls : public ir::Visitor {
   public:
    std::unordered_set<std::string> found;
    void VisitGlobalVar(const ir::GlobalVarObj* v) override {
      found.insert(std::string(v->name_hint));
    }
    void VisitOther(const ir::ExprObj*) override {}
  } calls;
  for (const auto& [var, func] : mod->functions) {
    if (!bodies.count(std::string(var->name_hint)) && func.as<ir::FunctionObj>()) calls.Visit(func);
  }
  // And so on: what a kept function calls.
  for (bool more = true; more;) {
    more = false;
    for (const auto& [name, f] : bodies) {
      if (!calls.found.count(name)) continue;
      size_t before = calls.found.size();
      calls.Visit(f);
      more |= calls.found.size() != before;
    }
  }
  ffi::Map<ir::GlobalVar, ir::BaseFunc> functions;
  for (const auto& [var, func] : mod->functions) {
    std::string name(var->name_hint);
    if (!bodies.count(name) || calls.found.count(name)) functions.Set(var, func);
  }
  // The result of a body is another name of the call's.
  return CanonicalizeBindings(IRModule(functions, mod->attrs, mod->global_infos), context);
}

}  // namespace relaxvm::passes
