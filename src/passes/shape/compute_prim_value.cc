// SPDX-License-Identifier: Apache-2.0
// ComputePrimValue: scalars that are computed are bound to a call of a tensor program that returns
// them, so that arguments, conditions and results are immediates or variables.  VMShapeLower puts
// them where the sizes are computed. Stage: planned -> shapes.
#include <utility>

#include "ir/block_builder.h"
#include "ir/prim.h"
#include "ir/visitor.h"
#include "ops/op_def.h"
#include "passes/pass.h"
#include "tir/scalar_program.h"

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
  explicit Hoister(ir::BlockBuilder* programs) : programs_(programs) {}

  void MutateBinding(const Binding& binding, ffi::Array<Binding>* out) override {
    const auto* bound = binding.as<ir::VarBindingObj>();
    if (bound == nullptr) return ir::Mutator::MutateBinding(binding, out);
    if (IsComputedScalar(bound->value)) {
      out->push_back(ir::VarBinding(bound->var, Computed(bound->value), bound->span));
      return;
    }
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

  // The call of a program that returns `scalar`; equal ones share it.
  Expr Computed(const Expr& scalar) {
    ffi::Array<Var> params;
    ffi::Array<Expr> args;
    ffi::Map<Var, Expr> map;
    for (const Var& var : ir::FreeVars(scalar)) {
      params.push_back(Var(var->name, var->ty));
      args.push_back(var);
      map.Set(var, params.back());
    }
    tir::PrimFunc program =
        tir::MakeScalarProgram(params, ir::Substitute(scalar, map), {{"tirx.is_host_func", true}});
    ir::GlobalVar name = programs_->AddFunction(program, "compute_symbolic_expr");
    return ir::Call(name, args, {}, {}, scalar->span, scalar->ty);
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
    out_->push_back(ir::VarBinding(var, Computed(arg)));
    return var;
  }

  ir::BlockBuilder* programs_;
  ffi::Array<Binding>* out_ = nullptr;
};

}  // namespace

IRModule ComputePrimValue(IRModule mod, const PassContext& context) {
  auto facts = ops::MakeTypeContext();
  ir::BlockBuilder programs(facts.get(), mod);
  for (const auto& [var, func] : mod->functions) {
    if (!func.as<ir::FunctionObj>()) continue;
    ir::Function computed = Hoister(&programs).Mutate(func).as<ir::Function>().value();
    if (!computed.same_as(func)) programs.UpdateFunction(var, computed);
  }
  return programs.module();
}

}  // namespace relaxvm::passes
