// SPDX-License-Identifier: Apache-2.0
#include "passes/canonical/bind.h"

#include <unordered_set>

namespace relaxvm::passes {
namespace {

namespace ffi = tvm::ffi;
using ir::Expr;
using ir::Var;

class Binder : public ir::Mutator {
 public:
  Binder(const ffi::Map<Var, Expr>& params, const ffi::Map<Var, Expr>& sizes) {
    for (const auto& [from, to] : params) Replace(from, to);
    for (const auto& [from, to] : sizes) Replace(from, to);
  }
};

// Every definition gets a new variable; symbolic sizes where they first appear in a definition.
class Renewer : public ir::Mutator {
 public:
  Var MutateDef(const Var& v) override {
    RenewSizes(v->ty);
    Var fresh = v.as<ir::DataflowVarObj>()
                    ? Var(ir::DataflowVar(v->name, MutateType(v->ty), v->span))
                    : Var(v->name, MutateType(v->ty), v->span);
    Replace(v, fresh);
    return fresh;
  }
  void MutateBinding(const ir::Binding& binding, ffi::Array<ir::Binding>* out) override {
    if (auto* cast = binding.as<ir::MatchCastObj>()) RenewSizes(cast->ty);
    // A local function may name itself.
    if (binding->value.as<ir::FunctionObj>()) {
      Var var = MutateDef(binding->var);
      out->push_back(ir::VarBinding(var, Mutate(binding->value), binding->span));
      return;
    }
    ir::Mutator::MutateBinding(binding, out);
  }

 private:
  void RenewSizes(const ir::Type& type) {
    if (!type.defined()) return;
    for (const Var& size : ir::DefinableSymbolicVars(type)) {
      if (renewed_.insert(size.get()).second) Replace(size, Var(size->name, size->ty, size->span));
    }
  }
  std::unordered_set<const ffi::Object*> renewed_;
};

}  // namespace

bool MatchSizes(const ir::Type& formal, const ir::Type& actual, ffi::Map<Var, Expr>* sizes) {
  if (!formal.defined() || !actual.defined()) return true;
  auto match = [&](const ffi::Array<Expr>& want, const ffi::Array<Expr>& have) {
    if (want.size() != have.size()) return false;
    for (size_t i = 0; i < want.size(); ++i) {
      auto size = want[i].as<Var>();
      if (size && !sizes->count(*size)) {
        sizes->Set(*size, have[i]);
        continue;
      }
      ffi::Optional<int64_t> x = ir::AsInt(ir::Substitute(want[i], *sizes)), y = ir::AsInt(have[i]);
      if (x && y && *x != *y) return false;
    }
    return true;
  };
  if (auto* want = formal.as<ir::TensorTypeObj>()) {
    auto* have = actual.as<ir::TensorTypeObj>();
    if (have == nullptr) return actual.as<ir::AnyTypeObj>() != nullptr;
    auto x = want->GetShape(), y = have->GetShape();
    return !x || !y || match(x.value(), y.value());
  }
  if (auto* want = formal.as<ir::ShapeTypeObj>()) {
    auto* have = actual.as<ir::ShapeTypeObj>();
    if (have == nullptr) return actual.as<ir::AnyTypeObj>() != nullptr;
    return !want->values || !have->values || match(want->values.value(), have->values.value());
  }
  if (auto* want = formal.as<ir::TupleTypeObj>()) {
    auto* have = actual.as<ir::TupleTypeObj>();
    if (have == nullptr || have->fields.size() != want->fields.size()) return false;
    for (size_t i = 0; i < want->fields.size(); ++i) {
      if (!MatchSizes(want->fields[i], have->fields[i], sizes)) return false;
    }
  }
  return true;
}

ir::Function BindFunction(const ir::Function& f, const ffi::Map<Var, Expr>& params,
                          ffi::Map<Var, Expr> sizes) {
  ffi::Array<Var> kept;
  for (const Var& param : f->params) {
    if (auto it = params.find(param); it != params.end()) {
      MatchSizes(param->ty, (*it).second->ty, &sizes);
    } else {
      kept.push_back(param);
    }
  }
  ir::Function shorter =
      kept.size() == f->params.size()
          ? f
          : ir::Function(kept, f->body, f->ret_ty, f->is_pure, f->attrs, f->span);
  return Binder(params, sizes).Mutate(shorter).as<ir::Function>().value();
}

ir::Function CopyWithFreshVars(const ir::Function& f) {
  return Renewer().Mutate(f).as<ir::Function>().value();
}

}  // namespace relaxvm::passes
