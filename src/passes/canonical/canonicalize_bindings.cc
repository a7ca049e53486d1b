// SPDX-License-Identifier: Apache-2.0
// CanonicalizeBindings: uses of an alias become uses of what it stands for; items of known tuples,
// casts that change nothing and sizes with two names disappear. Stage: any.  Keeps: which variables
// leave a dataflow block.
#include <memory>
#include <unordered_map>
#include <unordered_set>

#include "analysis/core_ops.h"
#include "arith/cost.h"
#include "ir/visitor.h"
#include "ops/op_def.h"
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
    ++depth_;
    Expr mutated = ir::Mutator::MutateFunction(f);
    const bool outermost = --depth_ == 0;
    return outermost && more_is_known_ ? WithResultOfBody(mutated.as<ir::Function>().value())
                                       : mutated;
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
    Expr value = Known(InferAgain(binding->value, Mutate(binding->value)));
    auto* cast = binding.as<ir::MatchCastObj>();
    ir::Type type = MutateType(cast != nullptr ? cast->ty : binding->var->ty);
    bool identity = cast == nullptr || SameType(value->ty, type);
    if (auto source = value.as<Var>(); source && identity && SameType((*source)->ty, type)) {
      // The definition has taken the output's name already.
      if (source->same_as(binding->var) || source->same_as(Mutate(binding->var))) return;
      bool visible = binding->var.as<ir::DataflowVarObj>() || !source->as<ir::DataflowVarObj>();
      if (visible && SameType((*source)->ty, MutateType(binding->var->ty))) {
        Replace(binding->var, *source);
        return;
      }
    }
    Var var = Defined(binding->var, cast != nullptr ? type : value->ty);
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
  // Sizes that are unified tell more of what is computed from them.
  Expr InferAgain(const Expr& before, const Expr& after) {
    const auto* call = after.as<ir::CallObj>();
    const ir::OpObj* op = call != nullptr ? ir::CalledOp(call) : nullptr;
    if (!unified_ || after.same_as(before) || op == nullptr || !op->type_rule) return after;
    ir::Call again(call->op, call->args, call->attrs, call->ty_args, call->span);
    again->ty = op->type_rule(again, *facts_);
    return again;
  }

  // The variable of a binding, with the type of its value where more is known now.
  Var Defined(const Var& v, const ir::Type& type) {
    Var var = MutateDef(v);
    if (!unified_ || !type.defined() || SameType(var->ty, type)) return var;
    more_is_known_ = true;
    Var fresh = var.as<ir::DataflowVarObj>() ? Var(ir::DataflowVar(var->name, type, var->span))
                                             : Var(var->name, type, var->span);
    Replace(v, fresh);
    if (!var.same_as(v)) Replace(var, fresh);
    return fresh;
  }

  static ir::Function WithResultOfBody(const ir::Function& f) {
    std::unordered_set<const ffi::Object*> visible;
    for (const Var& param : f->params) {
      for (const Var& v : ir::DefinableSymbolicVars(param->ty)) visible.insert(v.get());
    }
    Expr result = f->body->body;
    if (!result->ty.defined()) return f;
    ir::Type type =
        ir::EraseToVisible(result->ty, [&](const Var& v) { return visible.count(v.get()) != 0; });
    return ir::Function(f->params, f->body, type, f->is_pure, f->attrs, f->span);
  }

  // `output = inner` at the end of a dataflow block: the binding of `inner` binds `output` itself.
  // Aliases and items of known tuples in between lead to `inner` as well.
  void PlanOutputs(const ir::BindingBlock& block) {
    std::unordered_set<const ffi::Object*> inner, taken;
    std::unordered_map<const ffi::Object*, Expr> means;
    auto meaning = [&](const Expr& e) {
      auto it = means.find(e.get());
      return it == means.end() ? e : it->second;
    };
    for (const ir::Binding& binding : block->bindings) {
      Expr stands_for = meaning(binding->value);
      if (const auto* item = stands_for.as<ir::TupleGetItemObj>()) {
        const Expr tuple = meaning(item->tuple_value);
        if (const auto* fields = tuple.as<ir::TupleObj>())
          stands_for = meaning(fields->fields[item->index]);
      }
      if (binding.as<ir::VarBindingObj>() &&
          (stands_for.as<ir::VarObj>() || stands_for.as<ir::TupleObj>()))
        means.emplace(binding->var.get(), stands_for);
      auto source = stands_for.as<ir::DataflowVar>();
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
      if (have.value()[i].same_as(*size)) continue;
      Replace(*size, have.value()[i]);
      unified_ = true;
    }
  }

  std::unordered_map<const ffi::Object*, Expr> bound_;
  std::unordered_map<const ffi::Object*, Var> renamed_;
  std::unordered_set<const ffi::Object*> sizes_;
  std::unique_ptr<ir::TypeContext> facts_ = ops::MakeTypeContext();
  int depth_ = 0;  // of functions in functions
  bool unified_ = false;
  bool more_is_known_ = false;
};

}  // namespace

IRModule CanonicalizeBindings(IRModule mod, const PassContext& context) {
  return ir::MutateFunctions(std::move(mod), [](const ir::GlobalVar&, const ir::Function& f) {
    return Canonicalizer().Mutate(f).as<ir::Function>().value();
  });
}

}  // namespace relaxvm::passes
