// SPDX-License-Identifier: Apache-2.0
// InlineScalarPrograms: a call of a tensor program that returns a scalar becomes the expression
// that the program returns, in functions and in tensor programs.  Private programs that nobody
// names any more are removed; exported ones become functions, which the VM can run.
// Stage: any.
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "ir/prim.h"
#include "ir/visitor.h"
#include "passes/pass.h"
#include "support/error.h"
#include "tir/functor.h"
#include "tir/scalar_program.h"

namespace relaxvm::passes {
namespace {

using ir::Expr;
using ir::Var;
using tir::PrimFunc;

// The scalar programs of a module, by name, their own calls replaced.
class ScalarPrograms {
 public:
  explicit ScalarPrograms(const IRModule& mod) {
    for (const auto& [var, func] : mod->functions) {
      auto program = func.as<PrimFunc>();
      if (program.has_value() && tir::ReturnsScalar(*program))
        programs_.emplace(std::string(var->name_hint), *program);
    }
  }
  bool empty() const { return programs_.empty(); }

  // What takes the place of `call`; null: it calls something else.
  Expr Inlined(const ir::Call& call);
  PrimFunc Expand(const PrimFunc& program);

 private:
  std::unordered_map<std::string, PrimFunc> programs_;
  std::unordered_set<std::string> open_, expanded_;
};

// In functions and in tensor programs.
class Inliner : public tir::StmtMutator {
 public:
  explicit Inliner(ScalarPrograms* programs) : programs_(programs) {}
  Expr MutateCall(const ir::Call& call) override {
    Expr mutated = tir::StmtMutator::MutateCall(call);
    Expr value = programs_->Inlined(mutated.as<ir::Call>().value());
    return value.defined() ? value : mutated;
  }

 private:
  ScalarPrograms* programs_;
};

PrimFunc ScalarPrograms::Expand(const PrimFunc& program) {
  tir::Stmt body = Inliner(this).Mutate(program->body);
  if (body.same_as(program->body)) return program;
  auto node = ffi::make_object<tir::PrimFuncObj>(*program.get());
  node->body = body;
  auto result = ir::NodeRef<PrimFunc>(std::move(node));
  return tir::ReturnsScalar(result) ? tir::WithResult(result, result->ret_type) : result;
}

Expr ScalarPrograms::Inlined(const ir::Call& call) {
  const auto* global = call->op.as<ir::GlobalVarObj>();
  if (global == nullptr) return Expr();
  const std::string name(global->name_hint);
  auto it = programs_.find(name);
  if (it == programs_.end()) return Expr();
  if (!open_.insert(name).second) {
    Fail(ErrorKind::kValueError, call->span.Place(), "tensor program ", name,
         " calls itself; write a loop over a buffer");
  }
  if (expanded_.insert(name).second) it->second = Expand(it->second);
  open_.erase(name);
  const PrimFunc& program = it->second;
  if (call->args.size() != program->params.size()) {
    Fail(ErrorKind::kValueError, call->span.Place(), "tensor program ", name, " has ",
         program->params.size(), " parameters, but ", call->args.size(), " arguments are given");
  }
  Expr value = tir::ReturnedValue(program);
  if (!value.defined()) {
    Fail(ErrorKind::kValueError, call->span.Place(), "tensor program ", name,
         " returns a scalar that takes buffers, loops or calls; write it to a buffer");
  }
  for (size_t i = 0; i < call->args.size(); ++i) {
    const Var& param = program->params[i];
    if (!ir::IsPrim(call->args[i])) {
      Fail(ErrorKind::kTypeError, call->span.Place(), "tensor program ", name, ": argument ", i,
           " (", param->name, ") must be a scalar");
    }
    value = tir::WithValue(param, ir::Cast(param.dtype(), call->args[i]), value);
  }
  return value;
}

// The program as a function of the graph: its parameters keep their order and types.
ir::Function AsFunction(const PrimFunc& program) {
  Expr value = tir::ReturnedValue(program);
  ffi::Array<Var> params;
  ffi::Map<Var, Expr> map;
  for (const Var& param : program->params) {
    params.push_back(Var(param->name, param->ty, param->span));
    map.Set(param, params.back());
  }
  ir::SeqExpr body({}, tir::Substitute(value, map), program->span);
  body->ty = value->ty;
  ir::DictAttrs attrs;
  auto symbol = program->attrs.find(ir::attr::kGlobalSymbol);
  attrs.Set(ir::attr::kGlobalSymbol, (*symbol).second);
  return ir::Function(params, body, value->ty, /*is_pure=*/true, attrs, program->span);
}

std::unordered_set<std::string> NamesUsed(const IRModule& mod) {
  class Names : public tir::StmtVisitor {
   public:
    std::unordered_set<std::string> found;
    void VisitGlobalVar(const ir::GlobalVarObj* v) override { found.emplace(v->name_hint); }
  };
  Names names;
  for (const auto& [var, func] : mod->functions) {
    if (!func.as<ir::ExternFuncObj>()) names.Visit(func);
  }
  return names.found;
}

}  // namespace

IRModule InlineScalarPrograms(IRModule mod, const PassContext& context) {
  ScalarPrograms programs(mod);
  if (programs.empty()) return mod;
  ffi::Map<ir::GlobalVar, ir::BaseFunc> functions;
  for (const auto& [var, func] : mod->functions) {
    if (auto program = func.as<PrimFunc>()) {
      functions.Set(var, programs.Expand(*program));
    } else if (func.as<ir::FunctionObj>()) {
      functions.Set(var, Inliner(&programs).Mutate(func).as<ir::Function>().value());
    } else {
      functions.Set(var, func);
    }
  }
  const auto used = NamesUsed(IRModule(functions, mod->attrs, mod->global_infos));
  ffi::Map<ir::GlobalVar, ir::BaseFunc> kept;
  for (const auto& [var, func] : functions) {
    auto program = func.as<PrimFunc>();
    const bool computes = program.has_value() && tir::ReturnedValue(*program).defined();
    if (!computes || used.count(std::string(var->name_hint))) {
      kept.Set(var, func);
    } else if (func->attrs.count(ir::attr::kGlobalSymbol)) {
      kept.Set(var, AsFunction(*program));
    }
  }
  return IRModule(kept, mod->attrs, mod->global_infos);
}

}  // namespace relaxvm::passes
