// SPDX-License-Identifier: Apache-2.0
// CanonicalizeBindings: uses of an alias become uses of what it stands for; items of known tuples,
// casts that change nothing and sizes with two names disappear. Stage: any.  Keeps: which variables
// leave a dataflow block.
#include <unordered_map>
#include <unordered_set>

#include "analysis/core_ops.h"
#include "arith/cost.h"
#include "ir/visitor.h"
#include "passes/pass.h"

namespace relaxvm::passes {
namespace {

using ir::Expr;
using ir::Var;

bool SameType(const ir::Type& a, const ir::Type& b) {
  return a.same_as(b) || ir::StructuralEqual(a, b);
}

class Canonicalizer : public ir::Mutator {
 public:
  Expr MutateFunction(const ir::Function& f) override {
    if (analysis::KillsVariables(f.get())) return f;
    for (const Var& param : f->params) DefineSizes(param->ty);
    return ir::Mutator::MutateFunction(f);
  }

  ir::BindingBlock MutateBlock(const ir::BindingBlock& block) override {
    if (block.as<ir::DataflowBlockObj>()) PlanOutputs(block);
    return ir::Mutator::MutateBlock(block);
  }

  Var MutateDef(const Var& v) override {
    auto it = renamed_.find(v.get());
    if (it == renamed_.end()) return ir::Mutator::MutateDef(v);
    Var output = ir::Mutator::MutateDef(it->second);
    Replace(v, output);
    return output;
  }

  void MutateBinding(const ir::Binding& binding, ffi::Array<ir::Binding>* out) override {
    if (auto* cast = binding.as<ir::MatchCastObj>()) UnifySizes(Mutate(cast->value), cast->ty);
    Expr value = Known(Mutate(binding->value));
    auto* cast = binding.as<ir::MatchCastObj>();
    ir::Type type = MutateType(cast != nullptr ? cast->ty : binding->var->ty);
    bool identity = cast == nullptr || SameType(value->ty, type);
    if (auto source = value.as<Var>(); source && identity && SameType((*source)->ty, type)) {
      // The definition has taken the output's name already.
      if (source->same_as(binding->var)) return;
      bool visible = binding->var.as<ir::DataflowVarObj>() || !source->as<ir::DataflowVarObj>();
      if (visible && SameType((*source)->ty, MutateType(binding->var->ty))) {
        Replace(binding->var, *source);
        return;
      }
    }
    Var var = MutateDef(binding->var);
    bound_[var.get()] = value;
    if (cast != nullptr) {
      bound_.erase(var.get());
      DefineSizes(type);
      bool same =
          value.same_as(binding->value) && type.same_as(cast->ty) && var.same_as(binding->var);
      out->push_back(same ? binding : ir::Binding(ir::MatchCast(var, value, type, binding->span)));
      return;
    }
    bool same = value.same_as(binding->value) && var.same_as(binding->var);
    out->push_back(same ? binding : ir::Binding(ir::VarBinding(var, value, binding->span)));
  }

 private:
  // `output = inner` at the end of a dataflow block: the binding of `inner` binds `output` itself.
  void PlanOutputs(const ir::BindingBlock& block) {
    std::unordered_set<const ffi::Object*> inner, taken;
    for (const ir::Binding& binding : block->bindings) {
      auto source = binding->value.as<ir::DataflowVar>();
      bool leaves = !binding->var.as<ir::DataflowVarObj>() && binding.as<ir::VarBindingObj>();
      if (leaves && source && inner.count(source->get()) && taken.insert(source->get()).second &&
          SameType((*source)->ty, binding->var->ty)) {
        renamed_.emplace(source->get(), binding->var);
      }
      if (binding->var.as<ir::DataflowVarObj>()) inner.insert(binding->var.get());
    }
  }

  // (a, b)[0] -> a        (t[0], t[1]) -> t
  Expr Known(const Expr& value) {
    if (auto* item = value.as<ir::TupleGetItemObj>()) {
      Expr tuple = Bound(item->tuple_value);
      if (auto* fields = tuple.as<ir::TupleObj>()) {
        const Expr& field = fields->fields[item->index];
        if (!field.as<ir::TupleObj>()) return field;
      }
      return value;
    }
    auto* tuple = value.as<ir::TupleObj>();
    if (tuple == nullptr || tuple->fields.empty()) return value;
    Expr whole;
    for (size_t i = 0; i < tuple->fields.size(); ++i) {
      auto* item = Bound(tuple->fields[i]).as<ir::TupleGetItemObj>();
      if (item == nullptr || item->index != static_cast<int64_t>(i)) return value;
      if (whole.defined() && !whole.same_as(item->tuple_value)) return value;
      whole = item->tuple_value;
    }
    auto* type = whole->ty.as<ir::TupleTypeObj>();
    bool complete =
        type != nullptr && type->fields.size() == tuple->fields.size() && whole.as<ir::VarObj>();
    return complete && SameType(whole->ty, value->ty) ? whole : value;
  }

  Expr Bound(const Expr& e) {
    auto it = bound_.find(e.get());
    return it == bound_.end() ? e : it->second;
  }

  void DefineSizes(const ir::Type& type) {
    for (const Var& v : ir::DefinableSymbolicVars(type)) sizes_.insert(v.get());
  }

  // A cast that gives a known size a second name: the first name stays, unless it is a long one.
  void UnifySizes(const Expr& value, const ir::Type& type) {
    auto dims = [](const ir::Type& t) -> ffi::Optional<ffi::Array<Expr>> {
      if (auto* tensor = t.as<ir::TensorTypeObj>()) return tensor->GetShape();
      if (auto* shape = t.as<ir::ShapeTypeObj>()) return shape->values;
      return std::nullopt;
    };
    auto have = dims(value->ty), want = dims(type);
    if (!have || !want || have.value().size() != want.value().size()) return;
    for (size_t i = 0; i < want.value().size(); ++i) {
      auto size = want.value()[i].as<Var>();
      if (!size || arith::IsLargeSize(have.value()[i])) continue;
      if (!sizes_.insert(size->get()).second) continue;
      if (!have.value()[i].same_as(*size)) Replace(*size, have.value()[i]);
    }
  }

  std::unordered_map<const ffi::Object*, Expr> bound_;
  std::unordered_map<const ffi::Object*, Var> renamed_;
  std::unordered_set<const ffi::Object*> sizes_;
};

}  // namespace

IRModule CanonicalizeBindings(IRModule mod, const PassContext& context) {
  return ir::MutateFunctions(std::move(mod), [](const ir::GlobalVar&, const ir::Function& f) {
    return Canonicalizer().Mutate(f).as<ir::Function>().value();
  });
}

}  // namespace relaxvm::passes
