// SPDX-License-Identifier: Apache-2.0
// SpecializePrimFuncBasedOnCallSite: buffers of tensor programs get the memory scopes of the
// virtual devices on which their arguments and results lie.  Programs that calls use with different
// scopes are copied, one for each.  Attribute "scoped" marks what this pass has seen.  Stage:
// lowered.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "analysis/calls.h"
#include "ops/op_def.h"
#include "passes/pass.h"
#include "tir/functor.h"

namespace relaxvm::passes {
namespace {

using ir::Expr;
using ir::Type;

constexpr const char* kScoped = "scoped";
using Scopes = std::vector<std::string>;  // of the buffers among a program's parameters

// The scope of a tensor's device; empty: nothing says it.
std::string ScopeOf(const Type& type) {
  const auto* tensor = type.defined() ? type.as<ir::TensorTypeObj>() : nullptr;
  if (tensor == nullptr || !tensor->vdevice.has_value()) return "";
  return std::string((*tensor->vdevice)->memory_scope);
}

class ScopeSetter : public tir::StmtMutator {
 public:
  tir::PrimFunc Run(const tir::PrimFunc& program, const Scopes& scopes) {
    ffi::Array<ir::Var> params;
    size_t at = 0;
    bool same = program->attrs.count(kScoped) != 0;
    for (const ir::Var& param : program->params) {
      const auto* type = param->ty.as<tir::BufferTypeObj>();
      const std::string scope = type == nullptr ? "" : scopes[at++];
      if (type == nullptr || type->storage_scope == scope) {
        params.push_back(param);
        continue;
      }
      same = false;
      auto scoped = ffi::make_object<tir::BufferTypeObj>(*type);
      scoped->storage_scope = scope;
      params.push_back(tir::Buffer(param->name, ir::NodeRef<tir::BufferType>(std::move(scoped))));
      Replace(param, params.back());
    }
    if (same) return program;
    auto n = ffi::make_object<tir::PrimFuncObj>(*program.get());
    n->params = params;
    n->body = Mutate(program->body);
    n->attrs.Set(kScoped, static_cast<int64_t>(1));
    return ir::NodeRef<tir::PrimFunc>(std::move(n));
  }
};

class CallSites : public ir::Mutator {
 public:
  explicit CallSites(ir::BlockBuilder* builder) : builder_(builder) {}

  Expr MutateCall(const ir::Call& call) override {
    auto tir_call = analysis::AsCallTir(call);
    if (!tir_call) return ir::Mutator::MutateCall(call);
    auto found = original_.find(tir_call->func.get());
    if (found == original_.end()) {
      auto func = builder_->module()->functions.find(tir_call->func);
      if (func == builder_->module()->functions.end()) return call;
      auto program = (*func).second.as<tir::PrimFunc>();
      if (!program) return call;
      found = original_.emplace(tir_call->func.get(), *program).first;
    }
    const tir::PrimFunc& program = found->second;
    const ir::GlobalVar func = Specialized(tir_call->func, program, ScopesAt(*tir_call, program));
    if (func.same_as(tir_call->func)) return call;
    ffi::Array<Expr> args = call->args;
    args.Set(0, func);
    return ir::Call(call->op, args, call->attrs, call->ty_args, call->span, call->ty);
  }
  Expr MutateOther(const Expr& e) override { return e; }

 private:
  Scopes ScopesAt(const analysis::TirCall& call, const tir::PrimFunc& program) const {
    Scopes given;
    for (const Expr& arg : call.args) given.push_back(ScopeOf(arg->ty));
    for (const Type& out : call.call->ty_args) {
      if (const auto* tuple = out.as<ir::TupleTypeObj>()) {
        for (const Type& field : tuple->fields) given.push_back(ScopeOf(field));
      } else {
        given.push_back(ScopeOf(out));
      }
    }
    Scopes scopes;
    for (const ir::Var& param : program->params) {
      const auto* type = param->ty.as<tir::BufferTypeObj>();
      if (type == nullptr) continue;
      const size_t at = scopes.size();
      const bool known = at < given.size() && !given[at].empty();
      scopes.push_back(known ? given[at] : std::string(type->storage_scope));
    }
    return scopes;
  }

  // The program for these scopes: the first ones that are asked for keep its name.
  ir::GlobalVar Specialized(const ir::GlobalVar& func, const tir::PrimFunc& program,
                            const Scopes& scopes) {
    auto& known = made_[func.get()];
    if (auto it = known.find(scopes); it != known.end()) return it->second;
    tir::PrimFunc scoped = ScopeSetter().Run(program, scopes);
    ir::GlobalVar var = func;
    if (known.empty()) {
      if (!scoped.same_as(program)) builder_->UpdateFunction(func, scoped);
    } else {
      auto n = ffi::make_object<tir::PrimFuncObj>(*scoped.get());
      n->attrs.erase(ir::attr::kGlobalSymbol);
      scoped = tir::RenewDefs(ir::NodeRef<tir::PrimFunc>(std::move(n)));
      var = builder_->AddFunction(scoped, func->name_hint);
    }
    known.emplace(scopes, var);
    return var;
  }

  ir::BlockBuilder* builder_;
  std::map<const ffi::Object*, tir::PrimFunc> original_;
  std::map<const ffi::Object*, std::map<Scopes, ir::GlobalVar>> made_;
};

}  // namespace

IRModule SpecializePrimFuncBasedOnCallSite(IRModule mod, const PassContext& context) {
  std::unique_ptr<ir::TypeContext> facts = ops::MakeTypeContext();
  ir::BlockBuilder builder(facts.get(), mod);
  CallSites sites(&builder);
  for (const auto& [var, func] : mod->functions) {
    auto function = func.as<ir::Function>();
    if (!function) continue;
    Expr made = sites.MutateFunction(*function);
    if (!made.same_as(func)) builder.UpdateFunction(var, made.as<ir::Function>().value());
  }
  return builder.module();
}

}  // namespace relaxvm::passes
