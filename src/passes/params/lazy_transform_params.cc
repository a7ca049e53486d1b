// SPDX-License-Identifier: Apache-2.0
// LazyTransformParams: functions called *transform_params load each weight by a packed function,
// fget_item(extra..., index), and give each result to another one, fset_item(extra..., index,
// value), right after its last use.  Weights are parameters behind attribute "num_input", loaded
// before their first use, or the items of one tuple, loaded where they are taken out of it and
// freed after their last use.  Without fset_item results are returned as before.  Stage: graph.
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "analysis/core_ops.h"
#include "analysis/reads.h"
#include "ir/visitor.h"
#include "passes/params/lazy_inputs.h"
#include "passes/pass.h"

namespace relaxvm::passes {
namespace {

using ir::Expr;
using ir::Var;

struct Callbacks {
  ffi::String get;
  ffi::Optional<ffi::String> set;
  ffi::Array<Var> get_params, set_params;  // extra ones

  // The same with variables of their own: a variable is a parameter of one function.
  Callbacks Fresh() const {
    auto copy = [](const Var& v) { return Var(v->name, v->ty, v->span); };
    return {get, set, get_params.Map(copy), set_params.Map(copy)};
  }
  ffi::Array<Var> AllParams() const {
    ffi::Array<Var> all = get_params;
    for (const Var& v : set_params) all.push_back(v);
    return all;
  }
  ir::Call Get(int64_t index, const ir::Span& span) const {
    ffi::Array<Expr> args(get_params.begin(), get_params.end());
    args.push_back(ir::IntImm(Int(64), index));
    return Packed(get, args, span);
  }
  ir::Call Set(int64_t index, const Expr& value) const {
    ffi::Array<Expr> args(set_params.begin(), set_params.end());
    args.push_back(ir::IntImm(Int(64), index));
    args.push_back(value);
    return Packed(*set, args, value->span);
  }

 private:
  static ir::Call Packed(const ffi::String& name, const ffi::Array<Expr>& args,
                         const ir::Span& span) {
    return ir::Call(ir::ExternFunc(name), args, ir::Attrs(), {ir::AnyType()}, span, ir::AnyType());
  }
};

// Items of the tuple of weights are loaded where they are taken.
class ItemReader : public ir::Mutator {
 public:
  ItemReader(Var weights, const Callbacks& callbacks)
      : weights_(std::move(weights)), callbacks_(callbacks) {}

  std::unordered_set<const ffi::Object*> items;  // variables that hold them

  void MutateBinding(const ir::Binding& binding, ffi::Array<ir::Binding>* out) override {
    const auto* item = binding->value.as<ir::TupleGetItemObj>();
    if (item == nullptr || !item->tuple_value.same_as(weights_))
      return ir::Mutator::MutateBinding(binding, out);
    const auto* tuple = weights_->ty.as<ir::TupleTypeObj>();
    const Var typed = BindWeight(callbacks_.Get(item->index, binding->span),
                                 Var(binding->var->name, tuple->fields[item->index], binding->span),
                                 /*dataflow=*/false, out);
    items.insert(binding->var.get());
    auto n = binding.as<ir::MatchCastObj>();
    out->push_back(n != nullptr
                       ? ir::Binding(ir::MatchCast(binding->var, typed, n->ty, binding->span))
                       : ir::Binding(ir::VarBinding(binding->var, typed, binding->span)));
  }
  Expr MutateVar(const Var& v) override {
    if (!v.same_as(weights_)) return ir::Mutator::MutateVar(v);
    Fail(ErrorKind::kValueError, v->span.Place(), "LazyTransformParams: ", v->name,
         " is used as a whole, so that its weights cannot be loaded one by one; take its items: ",
         v->name, "[0]");
  }
  Expr MutateOther(const Expr& e) override { return e; }

 private:
  const Var weights_;
  const Callbacks& callbacks_;
};

// Gives the results of a function away.
class OutputGiver {
 public:
  OutputGiver(ir::Function func, const Callbacks& callbacks,
              const std::unordered_set<const ffi::Object*>& items)
      : func_(std::move(func)), callbacks_(callbacks), items_(items) {
    for (const ir::BindingBlock& block : func_->body->blocks) {
      for (const ir::Binding& b : block->bindings) bindings_.push_back(b);
    }
  }

  ir::Function Run() {
    FindResults();
    FindLastUses();
    for (const Var& param : func_->params) {
      if (!last_use_.count(param.get())) Leave(param.get());
    }
    for (size_t i = 0; i < bindings_.size(); ++i) {
      const ir::Binding& binding = bindings_[i];
      if (binding->var.same_as(result_)) {
        out_.push_back(
            ir::VarBinding(Var(binding->var->name, ir::VoidType()), Nothing(), binding->span));
        continue;
      }
      out_.push_back(binding);
      std::vector<const ir::VarObj*> here = Uses(binding);
      here.push_back(binding->var.get());
      for (const ir::VarObj* v : here) {
        if (last_use_.at(v) == i) Leave(v);
      }
    }
    for (const auto& [index, value] : results_.values) EmitCall(callbacks_.Set(index, value));
    return ir::Function(func_->params, OneBlock(out_, Nothing(), func_->body->span), ir::VoidType(),
                        /*is_pure=*/false, func_->attrs, func_->span);
  }

 private:
  static ir::Tuple Nothing() { return ir::Tuple(ffi::Array<Expr>{}); }

  static std::vector<const ir::VarObj*> Uses(const ir::Binding& binding) {
    analysis::VarsIn uses;
    uses.Visit(binding->value);
    return uses.found;
  }

  // The fields of the tuple that is returned; a single value is result 0.
  void FindResults() {
    Expr body = func_->body->body;
    if (auto var = body.as<Var>()) {
      size_t uses = 0;
      Expr tuple;
      for (const ir::Binding& b : bindings_) {
        for (const ir::VarObj* v : Uses(b)) uses += v == var->get() ? 1 : 0;
        if (b->var.same_as(*var) && b->value.as<ir::TupleObj>()) tuple = b->value;
      }
      if (tuple.defined() && uses == 0) {
        result_ = *var;
        body = tuple;
      } else if (const auto* type = body->ty.as<ir::TupleTypeObj>()) {
        // What another function returned: its items are taken at the end.
        for (size_t i = 0; i < type->fields.size(); ++i) {
          Var item(var->get()->name, type->fields[i]);
          bindings_.push_back(
              ir::VarBinding(item, ir::TupleGetItem(*var, static_cast<int64_t>(i))));
          results_.places[item.get()].push_back(static_cast<int64_t>(i));
        }
        return;
      }
    }
    results_ = ResultsIn(body);
  }

  void FindLastUses() {
    for (size_t i = 0; i < bindings_.size(); ++i) {
      if (bindings_[i]->var.same_as(result_)) continue;
      last_use_[bindings_[i]->var.get()] = i;
      for (const ir::VarObj* v : Uses(bindings_[i])) last_use_[v] = i;
    }
  }

  // Nobody reads `v` any more.
  void Leave(const ir::VarObj* v) {
    if (!left_.insert(v).second) return;
    const Var var = ffi::GetRef<Var>(v);
    if (auto it = results_.places.find(v); it != results_.places.end()) {
      for (int64_t index : it->second) EmitCall(callbacks_.Set(index, var));
    }
    if (items_.count(v))
      EmitCall(analysis::CallCore(analysis::CoreOp::kVmKillObject, {var}, ir::VoidType()));
  }
  void EmitCall(const ir::Call& call) {
    out_.push_back(ir::VarBinding(Var("_", call->ty), call, call->span));
  }

  const ir::Function func_;
  const Callbacks& callbacks_;
  const std::unordered_set<const ffi::Object*>& items_;
  std::vector<ir::Binding> bindings_;
  Expr result_;
  Results results_;
  std::unordered_map<const ffi::Object*, size_t> last_use_;
  std::unordered_set<const ffi::Object*> left_;
  ffi::Array<ir::Binding> out_;
};

ir::Function MakeLazy(const ir::Function& func, const Callbacks& callbacks) {
  const int64_t num_input = NumInput(func.get());
  std::unordered_set<const ffi::Object*> items;
  ir::Function made = func;
  const bool takes_tuple = static_cast<int64_t>(func->params.size()) == num_input + 1 &&
                           func->params.back()->ty.as<ir::TupleTypeObj>() != nullptr;
  if (takes_tuple) {
    ItemReader reader(func->params.back(), callbacks);
    ffi::Array<ir::Binding> bindings;
    for (const ir::BindingBlock& block : func->body->blocks) {
      for (const ir::Binding& b : block->bindings) reader.MutateBinding(b, &bindings);
    }
    const Expr body = OneBlock(bindings, reader.Mutate(func->body->body), func->body->span);
    ffi::Array<Var> params(func->params.begin(), func->params.end() - 1);
    for (const Var& v : callbacks.AllParams()) params.push_back(v);
    made = ir::Function(params, body, TypeForCaller(func->ret_ty, params), /*is_pure=*/false,
                        func->attrs, func->span);
    items = std::move(reader.items);
  } else {
    made = ReadInputsLazily(
        func, callbacks.AllParams(),
        [&](int64_t index, const Var& param) { return callbacks.Get(index, param->span); },
        /*without_effect=*/false);
  }
  return callbacks.set.has_value() ? OutputGiver(made, callbacks, items).Run() : made;
}

}  // namespace

IRModule LazyTransformParams(IRModule mod, const PassContext& context) {
  auto vars = [&](const char* name) {
    return context.options[name] == nullptr ? ffi::Array<Var>()
                                            : context.Option<ffi::Array<Var>>(name);
  };
  const Callbacks callbacks = {context.Option<ffi::String>("fget_item"),
                               context.options["fset_item"].as<ffi::String>(),
                               vars("extra_get_item_params"), vars("extra_set_item_params")};
  return ir::MutateFunctions(mod, [&](const ir::GlobalVar& var, const ir::Function& func) {
    if (!std::string(var->name_hint).ends_with("transform_params")) return func;
    return MakeLazy(WithoutDataflow(var, func), callbacks.Fresh());
  });
}

}  // namespace relaxvm::passes
