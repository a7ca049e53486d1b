// SPDX-License-Identifier: Apache-2.0
// RemoveUnusedParameters: a private function loses the parameters that its body does not use.  A
// size that only a lost parameter gave comes as a shape, behind all others.  Stage: any.
// Leaves alone: exported functions, and those that are used as values.
#include <algorithm>
#include <unordered_set>

#include "ir/prim.h"
#include "ir/visitor.h"
#include "passes/canonical/bind.h"
#include "passes/canonical/signatures.h"

namespace relaxvm::passes {
namespace {

using ir::Expr;
using ir::Var;
using Functions = std::unordered_map<std::string, ir::Function>;

struct Plan {
  std::vector<bool> kept;
  std::vector<Var> sizes;  // become parameters
};

// Variables and sizes that a body, its result and its bindings' types name.
std::unordered_set<const ffi::Object*> UsedIn(const ir::Function& func) {
  class Finder : public ir::Visitor {
   public:
    std::unordered_set<const ffi::Object*> found;
    void VisitVar(const ir::VarObj* v) override { found.insert(v); }
    void VisitOther(const ir::ExprObj*) override {}
  } finder;
  finder.Visit(func->body);
  finder.VisitType(func->ret_ty);
  return std::move(finder.found);
}

Plan PlanOf(const ir::Function& func) {
  std::unordered_set<const ffi::Object*> used = UsedIn(func);
  Plan plan;
  for (const Var& p : func->params) plan.kept.push_back(used.count(p.get()) != 0);
  std::unordered_set<const ffi::Object*> given;
  for (size_t i = 0; i < plan.kept.size(); ++i) {
    if (!plan.kept[i]) continue;
    const Var& param = func->params[i];
    given.insert(param.get());
    for (const Var& v : ir::DefinableSymbolicVars(param->ty)) given.insert(v.get());
    for (const Var& v : ir::SymbolicVars(param->ty)) used.insert(v.get());
  }
  // A shape that is there for its sizes stays.
  for (size_t i = 0; i < plan.kept.size(); ++i) {
    if (plan.kept[i] || !func->params[i]->ty.as<ir::ShapeTypeObj>()) continue;
    for (const Var& v : ir::DefinableSymbolicVars(func->params[i]->ty)) {
      if (used.count(v.get()) && given.insert(v.get()).second) plan.kept[i] = true;
    }
  }
  // In the order of the parameters that give them now.
  for (const Var& param : func->params) {
    for (const Var& v : ir::DefinableSymbolicVars(param->ty)) {
      if (used.count(v.get()) && given.insert(v.get()).second) plan.sizes.push_back(v);
    }
  }
  return plan;
}

// What a call gives for a size: taken from the types of its arguments; null when they do not say.
ffi::Array<Expr> SizesOfCall(const ir::Call& call, const ir::Function& func, const Plan& plan) {
  ffi::Map<Var, Expr> sizes;
  for (size_t i = 0; i < call->args.size(); ++i)
    MatchSizes(func->params[i]->ty, call->args[i]->ty, &sizes);
  ffi::Array<Expr> values;
  for (const Var& v : plan.sizes) {
    auto it = sizes.find(v);
    values.push_back(it == sizes.end() ? Expr() : (*it).second);
  }
  return values;
}

// A function stays as it is when one of its calls does not know a size that would have to be given.
void KeepWhereSizesAreUnknown(const IRModule& mod, const Functions& functions,
                              std::unordered_map<std::string, Plan>* plans) {
  class Calls : public ir::Visitor {
   public:
    Calls(const Functions& functions, std::unordered_map<std::string, Plan>* plans)
        : functions_(functions), plans_(plans) {}
    void VisitCall(const ir::CallObj* call) override {
      if (const auto* name = call->op.as<ir::GlobalVarObj>()) {
        auto it = plans_->find(std::string(name->name_hint));
        if (it != plans_->end() && !Known(ffi::GetRef<ir::Call>(call), *it)) plans_->erase(it);
      }
      ir::Visitor::VisitCall(call);
    }
    void VisitOther(const ir::ExprObj*) override {}

   private:
    bool Known(const ir::Call& call, const std::pair<const std::string, Plan>& row) const {
      for (const Expr& value : SizesOfCall(call, functions_.at(row.first), row.second)) {
        if (!value.defined()) return false;
      }
      return true;
    }
    const Functions& functions_;
    std::unordered_map<std::string, Plan>* plans_;
  } calls(functions, plans);
  for (const auto& [var, func] : mod->functions) {
    if (func.as<ir::FunctionObj>()) calls.Visit(func);
  }
}

NewSignature Narrow(const ir::Function& func, const Plan& plan) {
  ffi::Array<Var> params;
  for (size_t i = 0; i < plan.kept.size(); ++i) {
    if (plan.kept[i]) params.push_back(func->params[i]);
  }
  for (const Var& size : plan.sizes)
    params.push_back(Var("param_" + std::string(size->name), ir::ShapeType({size})));
  ir::Function fresh(params, func->body, func->ret_ty, func->is_pure, func->attrs, func->span);
  return {fresh, [func, plan](const ir::Call& call, const EmitFn&) {
            ffi::Array<Expr> args;
            for (size_t i = 0; i < plan.kept.size(); ++i) {
              if (plan.kept[i]) args.push_back(call->args[i]);
            }
            for (const Expr& size : SizesOfCall(call, func, plan))
              args.push_back(ir::ShapeExpr({size}));
            return ir::Call(call->op, args, call->attrs, call->ty_args, call->span, call->ty);
          }};
}

}  // namespace

IRModule RemoveUnusedParameters(IRModule mod, const PassContext& context) {
  // A parameter that is only handed on becomes unused when the callee has lost its own.  Every
  // round drops a parameter.
  for (;;) {
    Functions functions = ChangeableFunctions(mod);
    std::unordered_map<std::string, Plan> plans;
    for (const auto& [name, func] : functions) {
      Plan plan = PlanOf(func);
      if (std::find(plan.kept.begin(), plan.kept.end(), false) != plan.kept.end())
        plans.emplace(name, std::move(plan));
    }
    KeepWhereSizesAreUnknown(mod, functions, &plans);
    if (plans.empty()) return mod;
    std::unordered_map<std::string, NewSignature> changes;
    for (const auto& [name, plan] : plans) changes.emplace(name, Narrow(functions.at(name), plan));
    mod = ChangeSignatures(mod, changes);
  }
}

}  // namespace relaxvm::passes
