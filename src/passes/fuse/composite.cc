// SPDX-License-Identifier: Apache-2.0
#include "passes/fuse/composite.h"

#include <unordered_map>
#include <unordered_set>

#include "ir/visitor.h"

namespace relaxvm::passes {
namespace {

namespace ffi = tvm::ffi;
using ir::Expr;
using ir::Var;

ir::Function Exported(const ir::Function& composite, const std::string& name,
                      const std::string& codegen) {
  ffi::Array<Var> params;
  ffi::Array<Expr> args;
  for (const Var& p : composite->params) {
    params.push_back(Var(p->name, p->ty, p->span));
    args.push_back(params.back());
  }
  ir::Function inner = AsLocal(composite);
  Var local("local", inner->ty);
  Var out("out", composite->ret_ty);
  ir::Call call(local, args, ir::Attrs(), {}, composite->span, composite->ret_ty);
  ir::BindingBlock block({ir::VarBinding(local, inner), ir::VarBinding(out, call)});
  return ir::Function(
      params, ir::SeqExpr({block}, out), composite->ret_ty, composite->is_pure,
      {{kCodegen, ffi::String(codegen)}, {ir::attr::kGlobalSymbol, ffi::String(name)}},
      composite->span);
}

class Exporter : public ir::Mutator {
 public:
  explicit Exporter(ir::IRModule mod) : mod_(std::move(mod)) {}

  ir::IRModule Run() {
    std::vector<std::pair<ir::GlobalVar, ir::Function>> todo;
    for (const auto& [var, func] : mod_->functions) {
      auto f = func.as<ir::Function>();
      if (f && !IsComposite(f->get())) todo.emplace_back(var, *f);
    }
    for (const auto& [var, func] : todo) {
      Expr made = Mutate(func);
      if (!made.same_as(func)) mod_.Update(var->name_hint, made.as<ir::BaseFunc>().value());
    }
    return RemoveUnusedComposites(mod_);
  }

  Expr MutateCall(const ir::Call& given) override {
    ir::Call call = ir::Mutator::MutateCall(given).as<ir::Call>().value();
    auto var = call->op.as<ir::GlobalVar>();
    if (!var) return call;
    auto func = mod_->Find((*var)->name_hint);
    auto f = func ? func.value().as<ir::Function>() : std::nullopt;
    const std::string codegen = f ? CodegenOf(f->get()) : "";
    if (codegen.empty()) return call;
    auto [it, added] = exported_.try_emplace(std::string((*var)->name_hint), "");
    if (added) {
      it->second = std::string(mod_.UniqueName(std::string((*var)->name_hint) + "_" + codegen));
      mod_.Update(it->second, Exported(*f, it->second, codegen));
    }
    return ir::Call(mod_->FindVar(it->second).value(), call->args, call->attrs, call->ty_args,
                    call->span, call->ty);
  }
  Expr MutateOther(const Expr& e) override { return e; }

 private:
  ir::IRModule mod_;
  std::unordered_map<std::string, std::string> exported_;
};

}  // namespace

bool IsComposite(const ir::FunctionObj* func) {
  return func->attrs.count(kComposite) || func->attrs.count(kCodegen) ||
         func->attrs.count(ir::attr::kPrimitive);
}

std::string CodegenOf(const ir::FunctionObj* func) {
  const std::string name = ir::GetAttr<ffi::String>(func->attrs, kComposite, "");
  return name.substr(0, name.find('.'));
}

ir::Function AsLocal(const ir::Function& composite) {
  return ir::Function(composite->params, composite->body, composite->ret_ty, composite->is_pure,
                      {{kComposite, composite->attrs[kComposite]}}, composite->span);
}

ir::IRModule ExportComposites(ir::IRModule mod) { return Exporter(std::move(mod)).Run(); }

std::unordered_set<std::string> NamesIn(const ir::Expr& e) {
  class Names : public ir::Visitor {
   public:
    std::unordered_set<std::string> found;
    void VisitGlobalVar(const ir::GlobalVarObj* v) override {
      found.insert(std::string(v->name_hint));
    }
    void VisitOther(const ir::ExprObj*) override {}
  } names;
  names.Visit(e);
  return std::move(names.found);
}

ir::IRModule WithoutUnused(
    const ir::IRModule& mod,
    const std::function<bool(const ir::GlobalVar&, const ir::BaseFunc&)>& may_go) {
  std::unordered_set<std::string> used;
  for (const auto& [var, func] : mod->functions) {
    if (func.as<ir::FunctionObj>()) used.merge(NamesIn(func));
  }
  ffi::Map<ir::GlobalVar, ir::BaseFunc> kept;
  for (const auto& [var, func] : mod->functions) {
    if (used.count(std::string(var->name_hint)) || !may_go(var, func)) kept.Set(var, func);
  }
  if (kept.size() == mod->functions.size()) return mod;
  return ir::IRModule(kept, mod->attrs, mod->global_infos);
}

ir::IRModule RemoveUnusedComposites(const ir::IRModule& mod) {
  return WithoutUnused(mod, [](const ir::GlobalVar&, const ir::BaseFunc& func) {
    const auto* f = func.as<ir::FunctionObj>();
    return f != nullptr && f->attrs.count(kComposite) && !f->attrs.count(ir::attr::kGlobalSymbol);
  });
}

}  // namespace relaxvm::passes
