// SPDX-License-Identifier: Apache-2.0
#include "passes/canonical/bind.h"

#include <memory>
#include <unordered_set>

#include "ir/block_builder.h"
#include "ops/op_def.h"

namespace relaxvm::passes {
namespace {

namespace ffi = tvm::ffi;
using ir::Expr;
using ir::Var;

// Replaces variables; what is computed from them gets the type that the rules give it now.
class Binder : public ir::Mutator {
 public:
  Binder(const ffi::Map<Var, Expr>& params, const ffi::Map<Var, Expr>& sizes)
      : facts_(ops::MakeTypeContext()), builder_(facts_.get()) {
    for (const auto& [from, to] : params) Replace(from, to);
    for (const auto& [from, to] : sizes) Replace(from, to);
  }

  Expr MutateCall(const ir::Call& given) override {
    Expr made = ir::Mutator::MutateCall(given);
    auto call = made.as<ir::Call>();
    if (!call || made.same_as(given) || ir::CalledOp(call->get()) == nullptr) return made;
    bool other = false;
    for (size_t i = 0; i < given->args.size() && !other; ++i) {
      const ir::Type &before = given->args[i]->ty, &now = (*call)->args[i]->ty;
      other = before.defined() && now.defined() && !ir::StructuralEqual(before, now);
    }
    if (!other) return made;
    ir::Call fresh((*call)->op, (*call)->args, (*call)->attrs, (*call)->ty_args, (*call)->span);
    ir::Type type = builder_.InferType(fresh);
    if (ir::FitsType((*call)->ty, type, *facts_) == ir::TypeFit::kAlways) {
      fresh->ty = type;
      return fresh;
    }
    return made;
  }

  void MutateBinding(const ir::Binding& binding, ffi::Array<ir::Binding>* out) override {
    if (binding.as<ir::MatchCastObj>()) return ir::Mutator::MutateBinding(binding, out);
    Expr value = Mutate(binding->value);
    Var var = MutateDef(binding->var);
    const bool more = value->ty.defined() && !value.same_as(binding->value) &&
                      !ir::StructuralEqual(value->ty, var->ty) &&
                      ir::FitsType(var->ty, value->ty, *facts_) == ir::TypeFit::kAlways;
    if (more) {
      var = var.as<ir::DataflowVarObj>() ? Var(ir::DataflowVar(var->name, value->ty, var->span))
                                         : Var(var->name, value->ty, var->span);
      Replace(binding->var, var);
    }
    if (value.same_as(binding->value) && var.same_as(binding->var)) {
      return out->push_back(binding);
    }
    out->push_back(ir::VarBinding(var, value, binding->span));
  }

  Expr MutateFunction(const ir::Function& f) override {
    auto made = ir::Mutator::MutateFunction(f).as<ir::Function>().value();
    if (made.same_as(f) || !made->body->body->ty.defined()) return made;
    const ir::Type& type = made->body->body->ty;
    if (ir::StructuralEqual(type, made->ret_ty) ||
        ir::FitsType(made->ret_ty, type, *facts_) != ir::TypeFit::kAlways ||
        !SeenByCallers(made, type))
      return made;
    return ir::Function(made->params, made->body, type, made->is_pure, made->attrs, made->span);
  }

  ir::Type MutateType(const ir::Type& type) override {
    ir::Type made = ir::Mutator::MutateType(type);
    if (made.same_as(type)) return made;
    auto* tensor = made.as<ir::TensorTypeObj>();
    auto* dims = tensor && tensor->shape ? tensor->shape.value().as<ir::ShapeExprObj>() : nullptr;
    if (dims != nullptr)
      return ir::TensorType(Simple(dims->values), tensor->dtype, tensor->vdevice);
    auto* shape = made.as<ir::ShapeTypeObj>();
    if (shape != nullptr && shape->values) return ir::ShapeType(Simple(shape->values.value()));
    return made;
  }

  Expr MutateOther(const Expr& e) override { return e; }

 private:
  ffi::Array<Expr> Simple(const ffi::Array<Expr>& dims) {
    return dims.Map([this](const Expr& e) { return facts_->Simplify(e); });
  }
  static bool SeenByCallers(const ir::Function& f, const ir::Type& type) {
    std::unordered_set<const ffi::Object*> known;
    for (const Var& p : f->params) {
      known.insert(p.get());
      for (const Var& v : ir::SymbolicVars(p->ty)) known.insert(v.get());
    }
    for (const Var& v : ir::SymbolicVars(type)) {
      if (!known.count(v.get())) return false;
    }
    return true;
  }

  std::unique_ptr<ir::TypeContext> facts_;
  ir::BlockBuilder builder_;
};

// Every definition gets a new variable; symbolic sizes where they first appear in a definition.
class Renewer : public ir::Mutator {
 public:
  Var MutateDef(const Var& v) override {
    // A size that is a parameter as well: the same variable in both places.
    if (v->ty.as<ir::PrimTypeObj>() && !renewed_.insert(v.get()).second) {
      return MutateVar(v).as<Var>().value();
    }
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
  // A size that is a parameter: what the caller gives is it.
  for (const auto& [given, value] : params) {
    if (sizes.count(given)) sizes.erase(given);
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
