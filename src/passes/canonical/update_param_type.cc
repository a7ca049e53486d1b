// SPDX-License-Identifier: Apache-2.0
// UpdateParamType: parameters get the types that a function of the user states for them (null: as
// they are), and every type that follows from them is inferred again.  Stage: graph.
#include <tvm/ffi/function.h>

#include "ir/block_builder.h"
#include "ops/op_def.h"
#include "passes/pass.h"

namespace relaxvm::passes {
namespace {

using ir::Expr;
using ir::Var;
using TypeOf = ffi::TypedFunction<ffi::Optional<ir::Type>(Var)>;

// The function with no inferred type left: variables are fresh, and calls have none.
class Eraser : public ir::Mutator {
 public:
  explicit Eraser(const TypeOf& type_of) : type_of_(type_of) {}

  ir::Function Run(const ir::Function& func) {
    ffi::Array<Var> params;
    bool changed = false;
    for (const Var& param : func->params) {
      ffi::Optional<ir::Type> type = type_of_(param);
      if (!type.has_value() || ir::StructuralEqual(*type, param->ty)) {
        params.push_back(param);
        continue;
      }
      changed = true;
      params.push_back(Var(param->name, *type, param->span));
      Replace(param, params.back());
      // Sizes of the old type that the new one gives other names or values.
      Rename(param->ty, *type);
    }
    if (!changed) return func;
    Expr body = Mutate(func->body);
    body->ty = ir::Type();
    auto n = ffi::make_object<ir::FunctionObj>(*func.get());
    n->params = params;
    n->body = ir::SeqExpr::Wrap(body);
    n->ret_ty = ir::Type();
    n->ty = ir::Type();
    return ir::NodeRef<ir::Function>(std::move(n));
  }

  Var MutateDef(const Var& v) override {
    Var fresh = v.as<ir::DataflowVarObj>() ? Var(ir::DataflowVar(v->name, ir::Type(), v->span))
                                           : Var(v->name, ir::Type(), v->span);
    Replace(v, fresh);
    return fresh;
  }

  void MutateBinding(const ir::Binding& binding, ffi::Array<ir::Binding>* out) override {
    const auto* cast = binding.as<ir::MatchCastObj>();
    if (cast == nullptr) return ir::Mutator::MutateBinding(binding, out);
    ir::Type type = MutateType(cast->ty);
    Expr value = Mutate(cast->value);
    Var var = cast->var.as<ir::DataflowVarObj>()
                  ? Var(ir::DataflowVar(cast->var->name, type, cast->var->span))
                  : Var(cast->var->name, type, cast->var->span);
    Replace(cast->var, var);
    out->push_back(ir::MatchCast(var, value, type, cast->span));
  }

  Expr MutateCall(const ir::Call& call) override {
    ir::Call mutated = ir::Mutator::MutateCall(call).as<ir::Call>().value();
    return ir::Call(mutated->op, mutated->args, mutated->attrs, mutated->ty_args, mutated->span);
  }
  Expr MutateIf(const ir::If& branch) override {
    return ir::If(Mutate(branch->cond), Mutate(branch->true_branch), Mutate(branch->false_branch),
                  branch->span);
  }
  Expr MutateTuple(const ir::Tuple& tuple) override {
    return ir::Tuple(MutateAll(tuple->fields), tuple->span);
  }

 private:
  void Rename(const ir::Type& before, const ir::Type& after) {
    auto dims = [](const ir::Type& type) -> ffi::Optional<ffi::Array<Expr>> {
      if (const auto* tensor = type.as<ir::TensorTypeObj>()) return tensor->GetShape();
      if (const auto* shape = type.as<ir::ShapeTypeObj>()) return shape->values;
      return std::nullopt;
    };
    auto from = dims(before), to = dims(after);
    if (!from.has_value() || !to.has_value() || from.value().size() != to.value().size()) return;
    for (size_t i = 0; i < from.value().size(); ++i) {
      auto size = from.value()[i].as<Var>();
      if (size.has_value() && !size->same_as(to.value()[i])) Replace(*size, to.value()[i]);
    }
  }

  const TypeOf& type_of_;
};

}  // namespace

IRModule UpdateParamType(IRModule mod, const PassContext& context) {
  const TypeOf type_of(context.Option<ffi::Function>("ty_func"));
  std::unique_ptr<ir::TypeContext> facts = ops::MakeTypeContext();
  return ir::MutateFunctions(mod, [&](const ir::GlobalVar&, const ir::Function& func) {
    ir::Function erased = Eraser(type_of).Run(func);
    if (erased.same_as(func)) return func;
    ir::BlockBuilder builder(facts.get(), mod);
    return builder.Normalize(erased).as<ir::Function>().value();
  });
}

}  // namespace relaxvm::passes
