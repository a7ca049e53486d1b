// SPDX-License-Identifier: Apache-2.0
// LambdaLift: local functions become functions of the module.  What they use of their surroundings
// becomes parameters at the end; where there is any, the local variable holds a closure
// (make_closure) over it.  A closure that is only called is a plain object and its calls are
// invoke_closure or invoke_pure_closure; one that is used as a value stays a callable.
// Stage: graph.  Keeps: names, purity, spans.
#include <unordered_map>
#include <unordered_set>

#include "analysis/core_ops.h"
#include "ir/prim.h"
#include "ir/visitor.h"
#include "passes/canonical/bind.h"
#include "passes/pass.h"

namespace relaxvm::passes {
namespace {

using analysis::CoreOp;
using ir::Expr;
using ir::Function;
using ir::Var;

// Values and sizes that a local function takes from outside.
struct Captured {
  ffi::Array<Var> values;
  ffi::Array<Expr> sizes;  // those that no captured value's shape gives
};

Captured CapturedBy(const Function& func, const Var& self) {
  Captured captured;
  ffi::Array<Var> sizes;
  std::unordered_set<const ffi::Object*> given;
  for (const Var& var : ir::FreeVars(func)) {
    if (var.same_as(self)) continue;
    if (ir::IsPrim(var)) {
      sizes.push_back(var);
      continue;
    }
    captured.values.push_back(var);
    for (const Var& size : ir::SymbolicVars(var->ty)) sizes.push_back(size);
    for (const Var& size : ir::DefinableSymbolicVars(var->ty)) given.insert(size.get());
  }
  for (const Var& param : func->params) {
    for (const Var& size : ir::DefinableSymbolicVars(param->ty)) given.insert(size.get());
  }
  for (const Var& size : sizes) {
    if (given.insert(size.get()).second) captured.sizes.push_back(size);
  }
  return captured;
}

// Local functions that are used otherwise than in calls of them.
class UsedAsValues : public ir::Visitor {
 public:
  void VisitCall(const ir::CallObj* call) override {
    if (!call->op.as<ir::VarObj>()) return ir::Visitor::VisitCall(call);
    for (const Expr& arg : call->args) Visit(arg);
  }
  void VisitVar(const ir::VarObj* v) override { found.insert(v); }
  void VisitOther(const ir::ExprObj*) override {}
  std::unordered_set<const ffi::Object*> found;
};

// The function with variables of its own for what it captured.
class Renewer : public ir::Mutator {
 public:
  void Renew(const Var& from, const Expr& to) { Replace(from, to); }
  // Calls of `self` become calls of `global`, with what is `held` behind the arguments.
  void CallDirectly(const Var& self, const ir::GlobalVar& global, const ffi::Array<Expr>& held) {
    self_ = self;
    global_ = global;
    held_ = held;
  }
  Expr MutateCall(const ir::Call& call) override {
    if (!self_.defined() || !call->op.same_as(self_)) return ir::Mutator::MutateCall(call);
    ffi::Array<Expr> args = call->args.Map([this](const Expr& arg) { return Mutate(arg); });
    for (const Expr& value : held_) args.push_back(value);
    return ir::Call(global_, args, ir::Attrs(), {}, call->span, MutateType(call->ty));
  }

 private:
  Expr self_, global_;
  ffi::Array<Expr> held_;
};

class Lifter : public ir::Mutator {
 public:
  Lifter(IRModule* mod, std::string name) : mod_(mod), name_(std::move(name)) {}

  Expr MutateFunction(const Function& func) override {
    values_.Visit(func->body);
    return ir::Mutator::MutateFunction(func);
  }

  Expr MutateCall(const ir::Call& call) override {
    auto it = closures_.find(call->op.get());
    if (it == closures_.end()) return ir::Mutator::MutateCall(call);
    ir::Tuple args(call->args.Map([this](const Expr& arg) { return Mutate(arg); }), call->span);
    ffi::Array<ir::Type> types;
    for (const Expr& arg : args->fields) types.push_back(arg->ty);
    args->ty = ir::TupleType(types);
    const CoreOp op = it->second.pure ? CoreOp::kInvokePureClosure : CoreOp::kInvokeClosure;
    return ir::Call(analysis::GetCoreOp(op), {it->second.var, args}, ir::Attrs(), {call->ty},
                    call->span, call->ty);
  }

  void MutateBinding(const ir::Binding& binding, ffi::Array<ir::Binding>* out) override {
    const auto* local = binding->value.as<ir::FunctionObj>();
    if (local == nullptr || !binding.as<ir::VarBindingObj>())
      return ir::Mutator::MutateBinding(binding, out);
    const Var& self = binding->var;
    Function func =
        ffi::GetRef<Function>(MutateFunction(ffi::GetRef<Function>(local)).as<ir::FunctionObj>());
    Captured captured = CapturedBy(func, self);
    ir::GlobalVar global(FreeName(name_ + "_" + std::string(self->name)), self->ty);
    // Sizes of the surroundings that a parameter gives are its own from here on.
    global = mod_->Update(global->name_hint, CopyWithFreshVars(Lift(func, self, captured, global)));
    if (captured.values.empty() && captured.sizes.empty()) {
      Replace(self, global);
      return;
    }
    ffi::Array<Expr> held(captured.values.begin(), captured.values.end());
    if (!captured.sizes.empty()) held.push_back(ir::ShapeExpr(captured.sizes));
    if (values_.found.count(self.get())) {
      out->push_back(ir::VarBinding(self, Closure(global, held, self->ty), binding->span));
      return;
    }
    Var closure = self.as<ir::DataflowVarObj>()
                      ? Var(ir::DataflowVar(self->name, ir::AnyType(), self->span))
                      : Var(self->name, ir::AnyType(), self->span);
    closures_.emplace(self.get(), CalledClosure{closure, func->is_pure});
    out->push_back(ir::VarBinding(closure, Closure(global, held, ir::AnyType()), binding->span));
  }

 private:
  std::string FreeName(const std::string& hint) const {
    std::string name = hint;
    for (int i = 0; (*mod_)->FindVar(name).has_value(); ++i) name = hint + "_" + std::to_string(i);
    return name;
  }

  static Expr Closure(const ir::GlobalVar& global, const ffi::Array<Expr>& held,
                      const ir::Type& type) {
    ffi::Array<ir::Type> types;
    for (const Expr& value : held) types.push_back(value->ty);
    ir::Tuple tuple(held);
    tuple->ty = ir::TupleType(types);
    return analysis::CallCore(CoreOp::kMakeClosure, {global, tuple}, type);
  }

  static Function Lift(const Function& func, const Var& self, const Captured& captured,
                       const ir::GlobalVar& global) {
    Renewer renewer;
    ffi::Array<Var> params = func->params;
    ffi::Array<Expr> held;
    ffi::Array<Expr> sizes;
    for (const Expr& size : captured.sizes) {
      Var fresh(size.as<ir::VarObj>()->name, size.dtype());
      renewer.Renew(ffi::GetRef<Var>(size.as<ir::VarObj>()), fresh);
      sizes.push_back(fresh);
    }
    for (const Var& value : captured.values) {
      Var fresh(value->name, renewer.MutateType(value->ty), value->span);
      renewer.Renew(value, fresh);
      params.push_back(fresh);
      held.push_back(fresh);
    }
    if (!sizes.empty()) {
      Var shape("sizes", ir::ShapeType(sizes));
      params.push_back(shape);
      held.push_back(shape);
    }
    // A closure that calls itself hands on what it holds; as a value it is made anew.  Without
    // anything captured it is the function.
    Expr itself = global;
    ffi::Array<ir::BindingBlock> blocks;
    UsedAsValues values;
    values.Visit(func->body);
    if (!held.empty()) renewer.CallDirectly(self, global, held);
    if (!held.empty() && values.found.count(self.get())) {
      Var again(self->name, renewer.MutateType(self->ty));
      blocks.push_back(ir::BindingBlock({ir::VarBinding(again, Closure(global, held, again->ty))}));
      itself = again;
    }
    renewer.Renew(self, itself);
    ir::SeqExpr body = ir::SeqExpr::Wrap(renewer.Mutate(func->body));
    for (const ir::BindingBlock& block : body->blocks) blocks.push_back(block);
    ir::SeqExpr whole(blocks, body->body, body->span);
    whole->ty = body->ty;
    ffi::Array<Var> renewed;
    for (size_t i = 0; i < params.size(); ++i) renewed.push_back(params[i]);
    return Function(renewed, whole, renewer.MutateType(func->ret_ty), func->is_pure, func->attrs,
                    func->span);
  }

  struct CalledClosure {
    Var var;
    bool pure;
  };

  IRModule* mod_;
  std::string name_;
  UsedAsValues values_;
  std::unordered_map<const ffi::Object*, CalledClosure> closures_;
};

}  // namespace

IRModule LambdaLift(IRModule mod, const PassContext& context) {
  IRModule result = mod;
  for (const auto& [var, func] : mod->functions) {
    const auto* function = func.as<ir::FunctionObj>();
    if (function == nullptr) continue;
    Expr lifted = Lifter(&result, var->name_hint).MutateFunction(ffi::GetRef<Function>(function));
    if (!lifted.same_as(func))
      result.Update(var->name_hint, ffi::GetRef<Function>(lifted.as<ir::FunctionObj>()));
  }
  return result;
}

}  // namespace relaxvm::passes
