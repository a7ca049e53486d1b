// SPDX-License-Identifier: Apache-2.0
// DeadCodeElimination: removes bindings whose value nobody uses and functions that nobody reaches.
// Stage: any.  Keeps: effects, exported functions.  Options: entry_functions, names besides the
// exported functions.
#include <unordered_set>

#include "analysis/calls.h"
#include "ir/visitor.h"
#include "passes/canonical/sweep.h"
#include "passes/pass.h"
#include "tir/functor.h"

namespace relaxvm::passes {
namespace {

using ir::Expr;
using ir::Var;

// Walks every sequence from its end: what is used later is known when a binding is met.
class Sweeper {
 public:
  ir::Function Run(const ir::Function& f) {
    MarkType(f->ret_ty);
    ir::SeqExpr body = Sweep(f->body);
    if (body.same_as(f->body)) return f;
    return ir::Function(f->params, body, f->ret_ty, f->is_pure, f->attrs, f->span);
  }

 private:
  class Marker : public ir::Visitor {
   public:
    explicit Marker(std::unordered_set<const ffi::Object*>* used) : used_(used) {}
    void VisitVar(const ir::VarObj* v) override { used_->insert(v); }
    void VisitOther(const ir::ExprObj*) override {}

   private:
    std::unordered_set<const ffi::Object*>* used_;
  };

  void Mark(const Expr& e) { Marker(&used_).Visit(e); }
  void MarkType(const ir::Type& type) { Marker(&used_).VisitType(type); }

  bool IsUsed(const ir::Binding& binding) {
    if (used_.count(binding->var.get())) return true;
    if (auto* cast = binding.as<ir::MatchCastObj>()) {
      for (const Var& v : ir::DefinableSymbolicVars(cast->ty)) {
        if (used_.count(v.get())) return true;
      }
      return false;
    }
    return analysis::HasEffect(binding->value);
  }

  ir::SeqExpr Sweep(const ir::SeqExpr& seq) {
    Mark(seq->body);
    bool changed = false;
    std::vector<ir::BindingBlock> blocks;
    for (size_t b = seq->blocks.size(); b-- > 0;) {
      const ir::BindingBlock& block = seq->blocks[b];
      std::vector<ir::Binding> kept;
      bool same = true;
      for (size_t i = block->bindings.size(); i-- > 0;) {
        const ir::Binding& binding = block->bindings[i];
        if (!IsUsed(binding)) {
          same = false;
          continue;
        }
        kept.push_back(Keep(binding));
        same &= kept.back().same_as(binding);
      }
      changed |= !same;
      if (same) {
        blocks.push_back(block);
      } else if (!kept.empty()) {
        ffi::Array<ir::Binding> bindings(kept.rbegin(), kept.rend());
        blocks.push_back(block.as<ir::DataflowBlockObj>()
                             ? ir::DataflowBlock(bindings, block->span)
                             : ir::BindingBlock(bindings, block->span));
      }
    }
    if (!changed) return seq;
    ir::SeqExpr out(ffi::Array<ir::BindingBlock>(blocks.rbegin(), blocks.rend()), seq->body,
                    seq->span);
    out->ty = seq->ty;
    return out;
  }

  ir::Binding Keep(const ir::Binding& binding) {
    MarkType(binding->var->ty);
    if (auto* cast = binding.as<ir::MatchCastObj>()) {
      MarkType(cast->ty);
      Mark(binding->value);
      return binding;
    }
    Expr value = binding->value;
    if (auto* branch = value.as<ir::IfObj>()) {
      ir::SeqExpr yes = Sweep(branch->true_branch), no = Sweep(branch->false_branch);
      Mark(branch->cond);
      if (yes.same_as(branch->true_branch) && no.same_as(branch->false_branch)) return binding;
      value = ir::If(branch->cond, yes, no, branch->span);
      value->ty = branch->ty;
    } else if (auto* match = value.as<ir::MatchObj>()) {
      ffi::Array<ir::MatchCase> cases = match->cases.Map([this](const ir::MatchCase& c) {
        ir::SeqExpr body = Sweep(c->body);
        return body.same_as(c->body) ? c : ir::MatchCase(c->constructor, c->vars, body, c->span);
      });
      Mark(match->value);
      if (cases.same_as(match->cases)) return binding;
      value = ir::Match(match->value, cases, match->span);
      value->ty = match->ty;
    } else if (auto function = value.as<ir::Function>()) {
      value = Run(*function);
    } else if (auto seq = value.as<ir::SeqExpr>()) {
      value = Sweep(*seq);
    } else {
      Mark(value);
    }
    return value.same_as(binding->value) ? binding
                                         : ir::VarBinding(binding->var, value, binding->span);
  }

  std::unordered_set<const ffi::Object*> used_;
};

// Functions that a function names.
class References : public tir::StmtVisitor {
 public:
  std::vector<const ffi::Object*> found;
  void VisitGlobalVar(const ir::GlobalVarObj* v) override { found.push_back(v); }
};

IRModule RemoveUnreachable(IRModule mod, const ffi::Array<ffi::String>& entries) {
  std::unordered_set<const ffi::Object*> reached;
  std::vector<ir::GlobalVar> todo;
  auto reach = [&](const ir::GlobalVar& var) {
    if (reached.insert(var.get()).second) todo.push_back(var);
  };
  for (const auto& [var, func] : mod->functions) {
    if (func->attrs.count(ir::attr::kGlobalSymbol)) reach(var);
  }
  for (const ffi::String& name : entries) {
    auto var = mod->FindVar(name);
    if (!var)
      Fail(ErrorKind::kValueError, "DeadCodeElimination: there is no function named ", name,
           " to enter by");
    reach(*var);
  }
  while (!todo.empty()) {
    ir::BaseFunc func = mod->Lookup(todo.back());
    todo.pop_back();
    References references;
    references.Visit(func);
    for (const ffi::Object* name : references.found) {
      if (auto var = mod->FindVar(static_cast<const ir::GlobalVarObj*>(name)->name_hint))
        reach(*var);
    }
  }
  ffi::Map<ir::GlobalVar, ir::BaseFunc> kept;
  for (const auto& [var, func] : mod->functions) {
    // Packed functions are names of something outside.
    if (reached.count(var.get()) || func.as<ir::ExternFuncObj>()) kept.Set(var, func);
  }
  if (kept.size() == mod->functions.size()) return mod;
  return IRModule(kept, mod->attrs, mod->global_infos);
}

}  // namespace

ir::Function RemoveUnusedBindings(const ir::Function& f) { return Sweeper().Run(f); }

IRModule DeadCodeElimination(IRModule mod, const PassContext& context) {
  auto entries = context.options["entry_functions"].as<ffi::Array<ffi::String>>();
  mod = RemoveUnreachable(std::move(mod), entries ? *entries : ffi::Array<ffi::String>());
  mod = ir::MutateFunctions(
      std::move(mod), [](const ir::GlobalVar&, const ir::Function& f) { return Sweeper().Run(f); });
  // Bindings that are gone may have been the last to name a function.
  return RemoveUnreachable(std::move(mod), entries ? *entries : ffi::Array<ffi::String>());
}

}  // namespace relaxvm::passes
