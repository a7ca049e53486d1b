// SPDX-License-Identifier: Apache-2.0
// ComputePrimValue: scalars that are computed get a binding of their own, so that arguments,
// conditions and results are immediates or variables.  VMShapeLower computes such bindings together
// with the sizes. Stage: planned -> shapes.
#include "ir/prim.h"
#include "ir/visitor.h"
#include "passes/pass.h"

namespace relaxvm::passes {
namespace {

using ir::Binding;
using ir::Expr;
using ir::Var;

bool IsComputedScalar(const Expr& e) {
  return e.defined() && ir::IsPrim(e) && !e.as<ir::VarObj>() && !e.as<ir::IntImmObj>() &&
         !e.as<ir::FloatImmObj>() && !e.as<ir::CallObj>() && !e.as<ir::TupleGetItemObj>() &&
         !e.as<ir::IfObj>();
}

class Hoister : public ir::Mutator {
 public:
  void MutateBinding(const Binding& binding, ffi::Array<Binding>* out) override {
    const auto* bound = binding.as<ir::VarBindingObj>();
    if (bound == nullptr || IsComputedScalar(bound->value))
      return ir::Mutator::MutateBinding(binding, out);
    ffi::Array<Binding>* saved = out_;
    out_ = out;
    Expr value = Hoist(bound->value);
    out_ = saved;
    if (value.same_as(bound->value)) return ir::Mutator::MutateBinding(binding, out);
    ir::Mutator::MutateBinding(ir::VarBinding(bound->var, value, bound->span), out);
  }

  Expr MutateSeq(const ir::SeqExpr& seq) override {
    ir::SeqExpr result = ffi::GetRef<ir::SeqExpr>(ir::Mutator::MutateSeq(seq).as<ir::SeqExprObj>());
    ffi::Array<Binding> tail;
    ffi::Array<Binding>* saved = out_;
    out_ = &tail;
    Expr body = Argument(result->body);
    out_ = saved;
    if (tail.empty()) return result;
    ffi::Array<ir::BindingBlock> blocks = result->blocks;
    blocks.push_back(ir::BindingBlock(tail));
    ir::SeqExpr with_tail(blocks, body, result->span);
    with_tail->ty = result->ty;
    return with_tail;
  }

 private:
  // `value` with its computed scalars bound before it.
  Expr Hoist(const Expr& value) {
    if (const auto* call = value.as<ir::CallObj>()) {
      ffi::Array<Expr> args = call->args.Map([this](const Expr& arg) { return Argument(arg); });
      if (args.same_as(call->args)) return value;
      return ir::Call(call->op, args, call->attrs, call->ty_args, call->span, call->ty);
    }
    if (const auto* branch = value.as<ir::IfObj>()) {
      Expr cond = Argument(branch->cond);
      if (cond.same_as(branch->cond)) return value;
      ir::If result(cond, branch->true_branch, branch->false_branch, branch->span);
      result->ty = branch->ty;
      return result;
    }
    return value.as<ir::TupleObj>() ? Argument(value) : value;
  }

  Expr Argument(const Expr& arg) {
    if (const auto* tuple = arg.as<ir::TupleObj>()) {
      ffi::Array<Expr> fields =
          tuple->fields.Map([this](const Expr& field) { return Argument(field); });
      if (fields.same_as(tuple->fields)) return arg;
      ir::Tuple result(fields, tuple->span);
      result->ty = tuple->ty;
      return result;
    }
    if (!IsComputedScalar(arg)) return arg;
    Var var("value", arg->ty);
    out_->push_back(ir::VarBinding(var, arg));
    return var;
  }

  ffi::Array<Binding>* out_ = nullptr;
};

}  // namespace

IRModule ComputePrimValue(IRModule mod, const PassContext& context) {
  return ir::MutateFunctions(std::move(mod), [](const ir::GlobalVar&, const ir::Function& func) {
    return ffi::GetRef<ir::Function>(Hoister().MutateFunction(func).as<ir::FunctionObj>());
  });
}

}  // namespace relaxvm::passes
