// SPDX-License-Identifier: Apache-2.0
// ExpandTupleArguments: a private function that takes a tuple takes its fields instead, fields of
// fields too.  Stage: any.  Leaves alone: exported functions, and those that are used as values.
#include "ir/visitor.h"
#include "passes/canonical/signatures.h"

namespace relaxvm::passes {
namespace {

using ir::Expr;
using ir::Var;

class Binder : public ir::Mutator {
 public:
  void Bind(const Var& from, const Expr& to) { Replace(from, to); }

  // A field that is a tuple itself needs no binding: its own fields are at hand.
  void MutateBinding(const ir::Binding& binding, ffi::Array<ir::Binding>* out) override {
    if (binding.as<ir::VarBindingObj>() && binding->value.as<ir::TupleGetItemObj>()) {
      Expr value = Mutate(binding->value);
      if (value.as<ir::TupleObj>()) return Replace(binding->var, value);
    }
    ir::Mutator::MutateBinding(binding, out);
  }
};

// Parameters for the fields in `type`, and the tuple of them.
Expr Fields(const std::string& name, const ir::Type& type, ffi::Array<Var>* params) {
  const auto* tuple = type.as<ir::TupleTypeObj>();
  if (tuple == nullptr) {
    params->push_back(Var(name, type));
    return params->back();
  }
  ffi::Array<Expr> fields;
  for (size_t i = 0; i < tuple->fields.size(); ++i)
    fields.push_back(Fields(name + "_" + std::to_string(i), tuple->fields[i], params));
  return ir::Tuple(fields);
}

// The same of an argument.
void Spread(const Expr& arg, const ir::Type& type, const EmitFn& emit, ffi::Array<Expr>* args) {
  const auto* tuple = type.as<ir::TupleTypeObj>();
  if (tuple == nullptr) return args->push_back(arg);
  const auto* known = arg.as<ir::TupleObj>();
  for (size_t i = 0; i < tuple->fields.size(); ++i) {
    Expr field = known != nullptr
                     ? known->fields[i]
                     : Expr(emit(ir::TupleGetItem(arg, static_cast<int64_t>(i)), tuple->fields[i]));
    Spread(field, tuple->fields[i], emit, args);
  }
}

NewSignature Expand(const ir::Function& func) {
  Binder binder;
  ffi::Array<Var> params;
  ffi::Array<ir::Type> types;
  for (const Var& param : func->params) {
    types.push_back(param->ty);
    if (!param->ty.as<ir::TupleTypeObj>()) {
      params.push_back(param);
      continue;
    }
    binder.Bind(param, Fields(std::string(param->name), param->ty, &params));
  }
  Expr body = binder.Mutate(func->body);
  ir::Function fresh(params, body, func->ret_ty, func->is_pure, func->attrs, func->span);
  return {fresh, [types](const ir::Call& call, const EmitFn& emit) {
            ffi::Array<Expr> args;
            for (size_t i = 0; i < types.size(); ++i) Spread(call->args[i], types[i], emit, &args);
            return ir::Call(call->op, args, call->attrs, call->ty_args, call->span, call->ty);
          }};
}

}  // namespace

IRModule ExpandTupleArguments(IRModule mod, const PassContext& context) {
  std::unordered_map<std::string, NewSignature> changes;
  for (const auto& [name, func] : ChangeableFunctions(mod)) {
    for (const Var& param : func->params) {
      if (!param->ty.as<ir::TupleTypeObj>()) continue;
      changes.emplace(name, Expand(func));
      break;
    }
  }
  if (changes.empty()) return mod;
  return CanonicalizeBindings(ChangeSignatures(mod, changes), context);
}

}  // namespace relaxvm::passes
