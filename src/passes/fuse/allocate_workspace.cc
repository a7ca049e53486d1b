// SPDX-License-Identifier: Apache-2.0
// AllocateWorkspace: functions of external code generators that say how much scratch memory they
// need ("WorkspaceSize", in bytes) get it as their last parameter.  Every caller allocates it once,
// as much as the greediest of them needs.  Stage: graph, after MergeCompositeFunctions.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "analysis/core_ops.h"
#include "ir/visitor.h"
#include "passes/fuse/composite.h"
#include "passes/pass.h"

namespace relaxvm::passes {
namespace {

using ir::Expr;
using ir::Var;

constexpr const char* kWorkspaceSize = "WorkspaceSize";

int64_t WorkspaceOf(const ir::FunctionObj* func) {
  return ir::GetAttr<int64_t>(func->attrs, kWorkspaceSize, 0);
}

ir::TensorType Bytes(int64_t size) {
  return ir::TensorType(ir::ShapeExpr({ir::IntImm(Int(64), size)}), UInt(8));
}

// Gives a function of a code generator, and the local functions in it that need scratch memory, the
// new parameter; calls of the local ones pass it on.
class Receiver : public ir::Mutator {
 public:
  explicit Receiver(int64_t size) : size_(size) {}

  ir::Function Extend(const ir::Function& func) {
    const Var outer = std::exchange(workspace_, Var("workspace", Bytes(size_)));
    ir::Function made = ir::Mutator::MutateFunction(func).as<ir::Function>().value();
    ffi::Array<Var> params = made->params;
    params.push_back(workspace_);
    ir::DictAttrs attrs = made->attrs;
    attrs.erase(kWorkspaceSize);
    workspace_ = outer;
    return ir::Function(params, made->body, made->ret_ty, made->is_pure, attrs, made->span);
  }

  void MutateBinding(const ir::Binding& binding, ffi::Array<ir::Binding>* out) override {
    auto local = binding->value.as<ir::Function>();
    if (!local || WorkspaceOf(local->get()) == 0) return ir::Mutator::MutateBinding(binding, out);
    ir::Function made = Extend(*local);
    Var var = binding->var.as<ir::DataflowVarObj>()
                  ? Var(ir::DataflowVar(binding->var->name, made->ty, binding->var->span))
                  : Var(binding->var->name, made->ty, binding->var->span);
    Replace(binding->var, var);
    extended_.insert(var.get());
    out->push_back(ir::VarBinding(var, made, binding->span));
  }

  Expr MutateCall(const ir::Call& given) override {
    ir::Call call = ir::Mutator::MutateCall(given).as<ir::Call>().value();
    if (!extended_.count(call->op.get())) return call;
    ffi::Array<Expr> args = call->args;
    args.push_back(workspace_);
    return ir::Call(call->op, args, call->attrs, call->ty_args, call->span, call->ty);
  }
  Expr MutateOther(const Expr& e) override { return e; }

 private:
  const int64_t size_;
  Var workspace_ = Var(ffi::UnsafeInit{});
  std::unordered_set<const ffi::Object*> extended_;
};

using NewNames = std::unordered_map<std::string, ir::GlobalVar>;  // by the old name

// The dataflow blocks that hold calls of the functions; null: outside of all.
class CallFinder : public ir::Visitor {
 public:
  explicit CallFinder(const NewNames& names) : names_(names) {}
  std::unordered_set<const ffi::Object*> homes;

  void VisitBlock(const ir::BindingBlock& block) override {
    const ffi::Object* outer = home_;
    if (block.as<ir::DataflowBlockObj>()) home_ = block.get();
    ir::Visitor::VisitBlock(block);
    home_ = outer;
  }
  void VisitGlobalVar(const ir::GlobalVarObj* v) override {
    if (names_.count(std::string(v->name_hint))) homes.insert(home_);
  }
  void VisitOther(const ir::ExprObj*) override {}

 private:
  const NewNames& names_;
  const ffi::Object* home_ = nullptr;
};

// A function that calls some of them: allocates in the one block that holds all calls, or first of
// all.
class Caller : public ir::Mutator {
 public:
  Caller(const NewNames& names, int64_t size) : names_(names), size_(size) {}

  ir::Function Run(const ir::Function& func) {
    CallFinder finder(names_);
    finder.Visit(func);
    if (finder.homes.empty()) return func;
    home_ = finder.homes.size() == 1 ? *finder.homes.begin() : nullptr;
    ir::Type type = Bytes(size_);
    workspace_ = home_ == nullptr ? Var("workspace_main", type)
                                  : Var(ir::DataflowVar("workspace_main", type));
    ir::Function made = MutateFunction(func).as<ir::Function>().value();
    if (home_ != nullptr) return made;
    ffi::Array<ir::BindingBlock> blocks = {ir::BindingBlock({Allocation()})};
    for (const ir::BindingBlock& block : made->body->blocks) blocks.push_back(block);
    ir::SeqExpr body(blocks, made->body->body, made->body->span);
    return ir::Function(made->params, body, made->ret_ty, made->is_pure, made->attrs, made->span);
  }

  ir::BindingBlock MutateBlock(const ir::BindingBlock& block) override {
    ir::BindingBlock made = ir::Mutator::MutateBlock(block);
    if (home_ == nullptr || block.get() != home_) return made;
    ffi::Array<ir::Binding> bindings = {Allocation()};
    for (const ir::Binding& b : made->bindings) bindings.push_back(b);
    return ir::DataflowBlock(bindings, made->span);
  }

  Expr MutateCall(const ir::Call& given) override {
    ir::Call call = ir::Mutator::MutateCall(given).as<ir::Call>().value();
    const auto* callee = call->op.as<ir::GlobalVarObj>();
    auto it = callee == nullptr ? names_.end() : names_.find(std::string(callee->name_hint));
    if (it == names_.end()) return call;
    ffi::Array<Expr> args = call->args;
    args.push_back(workspace_);
    return ir::Call(it->second, args, call->attrs, call->ty_args, call->span, call->ty);
  }
  Expr MutateOther(const Expr& e) override { return e; }

 private:
  ir::Binding Allocation() const {
    ir::ShapeExpr shape({ir::IntImm(Int(64), size_)});
    Expr value = analysis::CallCore(
        analysis::CoreOp::kBuiltinAllocTensor,
        {shape, ir::DataTypeImm(UInt(8)), ir::IntImm(Int(64), 0), ir::StringImm("global")},
        workspace_->ty);
    return ir::VarBinding(workspace_, value);
  }

  const NewNames& names_;
  const int64_t size_;
  const ffi::Object* home_ = nullptr;
  Var workspace_ = Var(ffi::UnsafeInit{});
};

}  // namespace

IRModule AllocateWorkspace(IRModule mod, const PassContext& context) {
  int64_t size = 0;
  std::unordered_map<std::string, ir::Function> needy;
  for (const auto& [var, func] : mod->functions) {
    auto f = func.as<ir::Function>();
    if (!f || !(*f)->attrs.count(kCodegen) || WorkspaceOf(f->get()) == 0) continue;
    size = std::max(size, WorkspaceOf(f->get()));
    needy.emplace(std::string(var->name_hint), *f);
  }
  if (needy.empty()) return mod;
  // The parameters change, and so does the name: nobody calls the new function as the old one.
  NewNames names;
  ffi::Map<ir::GlobalVar, ir::BaseFunc> functions;
  for (const auto& [var, func] : mod->functions) {
    auto it = needy.find(std::string(var->name_hint));
    if (it == needy.end()) continue;
    ir::Function made = Receiver(size).Extend(it->second);
    const ffi::String name = mod.UniqueName(var->name_hint);
    if (made->attrs.count(ir::attr::kGlobalSymbol)) {
      made = ir::WithAttr(made, ir::attr::kGlobalSymbol, name);
    }
    ir::GlobalVar fresh(name, made->ty);
    names.emplace(it->first, fresh);
    functions.Set(fresh, made);
  }
  for (const auto& [var, func] : mod->functions) {
    if (needy.count(std::string(var->name_hint))) continue;
    auto f = func.as<ir::Function>();
    functions.Set(var, f ? ir::BaseFunc(Caller(names, size).Run(*f)) : func);
  }
  return IRModule(functions, mod->attrs, mod->global_infos);
}

}  // namespace relaxvm::passes
