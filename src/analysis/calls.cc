// SPDX-License-Identifier: Apache-2.0
#include "analysis/calls.h"

#include <string_view>

#include "ir/data_type.h"

namespace relaxvm::analysis {
namespace {

namespace ffi = tvm::ffi;
using ir::Expr;

std::string_view OpName(const ir::CallObj* call) {
  const ir::OpObj* op = ir::CalledOp(call);
  return op == nullptr ? std::string_view() : std::string_view(op->name.data(), op->name.size());
}

bool IsPureCall(const ir::CallObj* call) {
  if (const ir::OpObj* op = ir::CalledOp(call)) return op->effect != ir::Effect::kImpure;
  // A call without a result is made for what it does: with memory explicit, it writes into
  // arguments.
  if (call->ty.defined() && ir::IsVoidType(call->ty)) return false;
  const ir::Type& type = call->op->ty;
  auto* func = type.defined() ? type.as<ir::FuncTypeObj>() : nullptr;
  return func != nullptr && func->purity;
}

Expr FindIn(const ir::SeqExpr& seq, const Expr& own_name) {
  for (const ir::BindingBlock& block : seq->blocks) {
    for (const ir::Binding& binding : block->bindings) {
      if (Expr found = FindImpureCall(binding->value, own_name); found.defined()) return found;
    }
  }
  return FindImpureCall(seq->body, own_name);
}

}  // namespace

std::optional<TirCall> AsCallTir(const Expr& value) {
  auto call = value.as<ir::Call>();
  if (!call || OpName(call->get()) != "relax.call_tir") return std::nullopt;
  auto func = (*call)->args[0].as<ir::GlobalVar>();
  auto* args = (*call)->args[1].as<ir::TupleObj>();
  if (!func || args == nullptr) return std::nullopt;
  TirCall out{*call, *func, args->fields, {}};
  if ((*call)->args.size() > 2) {
    auto* shape = (*call)->args[2].as<ir::ShapeExprObj>();
    if (shape == nullptr) return std::nullopt;
    out.tir_vars = shape->values;
  }
  return out;
}

bool CallsTensorProgram(const Expr& value) {
  auto* call = value.as<ir::CallObj>();
  if (call == nullptr) return false;
  std::string_view name = OpName(call);
  return name == "relax.call_tir" || name == "relax.call_tir_inplace" ||
         name == "relax.call_tir_with_grad";
}

bool CallsOp(const Expr& value, const char* name) {
  auto* call = value.as<ir::CallObj>();
  return call != nullptr && OpName(call) == name;
}

Expr FindImpureCall(const Expr& e, const Expr& own_name) {
  if (!e.defined()) return Expr();
  if (auto* call = e.as<ir::CallObj>()) {
    bool own = own_name.defined() && call->op.same_as(own_name);
    return own || IsPureCall(call) ? Expr() : e;
  }
  if (auto* branch = e.as<ir::IfObj>()) {
    Expr found = FindIn(branch->true_branch, own_name);
    return found.defined() ? found : FindIn(branch->false_branch, own_name);
  }
  if (auto* match = e.as<ir::MatchObj>()) {
    for (const ir::MatchCase& c : match->cases) {
      if (Expr found = FindIn(c->body, own_name); found.defined()) return found;
    }
    return Expr();
  }
  if (auto seq = e.as<ir::SeqExpr>()) return FindIn(*seq, own_name);
  return Expr();
}

bool Branches(const Expr& value) {
  return value.as<ir::IfObj>() != nullptr || value.as<ir::MatchObj>() != nullptr;
}

bool HasEffect(const Expr& value) { return FindImpureCall(value).defined(); }

bool OverwritesArguments(const Expr& value) {
  auto* call = value.as<ir::CallObj>();
  if (call == nullptr) return false;
  std::string_view name = OpName(call);
  return name == "relax.call_tir_inplace" || name == "relax.call_inplace_packed";
}

std::optional<tvm::ffi::Array<Expr>> DimsOf(const Expr& e) {
  const auto* tensor = e->ty.defined() ? e->ty.as<ir::TensorTypeObj>() : nullptr;
  if (tensor == nullptr || !tensor->GetShape().has_value()) return std::nullopt;
  return tensor->GetShape().value();
}

bool GivesNewObject(const Expr& value) {
  auto* call = value.as<ir::CallObj>();
  if (call == nullptr) return false;
  if (const ir::OpObj* op = ir::CalledOp(call)) {
    std::string_view name = OpName(call);
    return op->effect != ir::Effect::kPure || name == "relax.call_tir_inplace" ||
           name == "relax.call_inplace_packed";
  }
  return false;
}

}  // namespace relaxvm::analysis
