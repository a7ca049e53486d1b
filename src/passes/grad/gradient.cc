// SPDX-License-Identifier: Apache-2.0
// Gradient: reverse-mode differentiation.  Of a function `f` whose body is one dataflow block that
// ends in a scalar it makes `f_adjoint`, which gives what `f` gives, and the gradients of the
// scalar with respect to parameters:  f_adjoint(x, y) = (f(x, y), (x', y')).
//
// Backward through the bindings, each variable that the scalar depends on has an adjoint, the
// gradient with respect to it; the rule of an operator (ops/gradient) turns the adjoint of its
// result into contributions to the adjoints of its arguments.  What lies between
// grad.start_checkpoint and grad.end_checkpoint is computed again where the rules need it.  A
// call_tir_with_grad names its gradient, a tensor program that the user describes.
// Stage: graph.  Options: func_name; require_grads, parameters (null: all); target_index, which of
// several results is the scalar.
#include <cctype>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "analysis/calls.h"
#include "analysis/reads.h"
#include "ir/block_builder.h"
#include "ops/gradient/rule.h"
#include "passes/canonical/bind.h"
#include "passes/canonical/sweep.h"
#include "passes/pass.h"

namespace relaxvm::passes {
namespace {

using ir::Call;
using ir::Expr;
using ir::Type;
using ir::Var;
using VarSet = std::unordered_set<const ffi::Object*>;

const char* const kStart = "relax.grad.start_checkpoint";
const char* const kEnd = "relax.grad.end_checkpoint";
const char* const kWithGrad = "relax.call_tir_with_grad";

bool IsTensors(const Type& type) {
  if (type.as<ir::TensorTypeObj>() != nullptr) return true;
  const auto* tuple = type.as<ir::TupleTypeObj>();
  if (tuple == nullptr) return false;
  for (const Type& field : tuple->fields) {
    if (!IsTensors(field)) return false;
  }
  return true;
}
// A tensor of floats, or a tuple that holds one.
bool HasFloats(const Type& type) {
  if (const auto* tensor = type.as<ir::TensorTypeObj>()) return IsFloat(tensor->dtype);
  const auto* tuple = type.as<ir::TupleTypeObj>();
  if (tuple == nullptr) return false;
  for (const Type& field : tuple->fields) {
    if (HasFloats(field)) return true;
  }
  return false;
}

// A call_tir_with_grad as it runs: a call_tir.
Expr WithoutGradient(const Expr& value) {
  if (!analysis::CallsOp(value, kWithGrad)) return value;
  const auto* call = value.as<ir::CallObj>();
  return ops::MakeCall("call_tir", call->args, {}, call->ty_args, call->span);
}

class Renamer : public ir::Mutator {
 public:
  using ir::Mutator::Replace;
  ffi::Map<ir::GlobalVar, ir::GlobalVar> functions;
  Expr MutateOther(const Expr& e) override { return e; }
  Expr MutateGlobalVar(const ir::GlobalVar& v) override {
    auto it = functions.find(v);
    return it == functions.end() ? v : (*it).second;
  }
};

std::vector<const ir::VarObj*> VarsOf(const Expr& e) {
  analysis::VarsIn uses;
  uses.Visit(e);
  return {uses.found.begin(), uses.found.end()};
}

// The function without marks, and the variables between them.
struct Checkpoints {
  std::vector<ir::Binding> bindings;
  VarSet inside;
};

// A variable is inside when it is computed from a start mark, or from a variable inside; what an
// end mark gives is outside again.
Checkpoints TakeMarksAway(const ffi::Array<ir::Binding>& bindings) {
  Checkpoints result;
  Renamer renamer;
  VarSet started;
  for (const ir::Binding& binding : bindings) {
    const bool start = analysis::CallsOp(binding->value, kStart);
    if (start || analysis::CallsOp(binding->value, kEnd)) {
      Expr source = renamer.Mutate(binding->value.as<ir::CallObj>()->args[0]);
      if (start) result.inside.erase(source.get());  // what a stage starts from is kept
      if (binding->var.as<ir::DataflowVarObj>()) {
        if (start) started.insert(binding->var.get());
        renamer.Replace(binding->var, source);
        continue;
      }
      result.bindings.push_back(ir::VarBinding(binding->var, source, binding->span));
      continue;
    }
    for (const ir::VarObj* v : VarsOf(binding->value)) {
      if (started.count(v) || result.inside.count(v)) result.inside.insert(binding->var.get());
    }
    ffi::Array<ir::Binding> rewritten;
    renamer.MutateBinding(binding, &rewritten);
    result.bindings.push_back(rewritten[0]);
  }
  return result;
}

class Backward {
 public:
  Backward(ir::BlockBuilder& builder, const Checkpoints& program, const PassContext& context)
      : b_(builder), context_(context), bindings_(program.bindings), inside_(program.inside) {}

  // The adjoints of `wanted` for `target`, bound as outputs of the block.
  ffi::Array<Expr> Run(const Var& target, const std::vector<Var>& wanted) {
    FindActive(wanted);
    const auto* type = target->ty.as<ir::TensorTypeObj>();
    if (active_.count(target.get())) {
      SetAdjoint(target, ops::MakeCall("ones", {ir::ShapeExpr(ffi::Array<Expr>())},
                                       {{"dtype", type->dtype}}));
    }
    for (size_t i = bindings_.size(); i-- > 0;) Visit(bindings_[i]);
    ffi::Array<Expr> results;
    for (const Var& var : wanted) {
      auto it = adjoint_.find(var.get());
      Expr value = it == adjoint_.end() ? Expr(Bind(var, Zeros(var->ty))) : Expr(it->second);
      results.push_back(b_.EmitOutput(value, AdjointName(var) + "_out"));
    }
    return results;
  }

 private:
  static std::string AdjointName(const Var& var) { return std::string(var->name) + "_adjoint"; }
  Var Bind(const Var& var, const Expr& value) { return b_.Emit(value, AdjointName(var)); }
  void SetAdjoint(const Var& var, const Expr& value) {
    adjoint_.insert_or_assign(var.get(), Bind(var, value));
  }

  // Variables whose value depends on one of `wanted`, as a function that can be differentiated.
  void FindActive(const std::vector<Var>& wanted) {
    for (const Var& var : wanted) {
      if (HasFloats(var->ty)) active_.insert(var.get());
    }
    for (const ir::Binding& binding : bindings_) {
      if (!HasFloats(binding->var->ty)) continue;
      if (analysis::CallsOp(binding->value, "relax.grad.no_grad")) continue;
      for (const ir::VarObj* v : VarsOf(binding->value)) {
        if (active_.count(v)) active_.insert(binding->var.get());
      }
    }
  }

  void Visit(const ir::Binding& binding) {
    auto it = adjoint_.find(binding->var.get());
    if (it == adjoint_.end()) return;
    const Var adjoint = it->second;
    const Expr& value = binding->value;
    if (const auto* item = value.as<ir::TupleGetItemObj>()) return AddAt(item, adjoint);
    if (value.as<ir::VarObj>() || value.as<ir::TupleObj>()) return Add(value, adjoint);
    const auto* call = value.as<ir::CallObj>();
    if (call == nullptr) {
      Fail(ErrorKind::kAttribute, binding->span.Place(), "Gradient: the value of ",
           binding->var->name, " has no gradient: it is no call, tuple or item of one");
    }
    VisitCall(binding->var, ffi::GetRef<Call>(call), adjoint);
  }

  void VisitCall(const Var& var, const Call& call, const Var& adjoint) {
    ffi::Array<Expr> args;
    Compute(var);
    for (const Expr& arg : call->args) args.push_back(Computed(arg));
    const Call now(call->op, args, call->attrs, call->ty_args, call->span, call->ty);
    const ir::OpObj* op = ir::CalledOp(call.get());
    if (analysis::CallsOp(call, kWithGrad)) return VisitProgram(now, adjoint);
    if (op != nullptr) {
      if (auto outside = ops::FindOutsideGradient(op->name)) {
        return AddAll(call, AskOutside(outside, Computed(var), now, adjoint));
      }
    }
    const ops::GradientRule rule = op == nullptr ? nullptr : ops::FindGradientRule(op);
    if (rule == nullptr) {
      Fail(ErrorKind::kAttribute, call->span.Place(), "Gradient: ",
           op == nullptr ? std::string("a call of a function")
                         : "the operator " + std::string(op->name),
           " has no gradient; put it into grad.no_grad, decompose it first "
           "(DecomposeOpsForTraining), or name the gradient of a tensor program "
           "(call_tir_with_grad)");
    }
    const ops::Exprs grads = rule(ops::GradientCall(b_, Computed(var), now, adjoint));
    RELAXVM_CHECK(grads.size() == call->args.size()) << op->name;
    AddAll(call, grads);
  }
  void AddAll(const Call& call, const ops::Exprs& grads) {
    for (size_t i = 0; i < grads.size(); ++i) {
      if (grads[i].defined()) Add(call->args[i], grads[i]);
    }
  }

  // Takes over the bindings and the functions of a rule from outside.
  ops::Exprs AskOutside(const ops::OutsideGradientRule& rule, const Expr& out, const Call& call,
                        const Var& adjoint) {
    ops::OutsideGradient made = rule(out, call, adjoint, b_.module());
    if (made.grads.size() != call->args.size()) {
      Fail(ErrorKind::kAttribute, call->span.Place(), "Gradient: FPrimalGradient of ",
           ir::CalledOp(call.get())->name, " must give a gradient for each of the ",
           call->args.size(), " arguments, but gives ", made.grads.size());
    }
    Renamer renamer;
    for (const auto& [gvar, func] : made.mod->functions) {
      if (b_.module()->FindVar(gvar->name_hint).has_value()) continue;
      renamer.functions.Set(gvar, b_.AddFunction(func, gvar->name_hint));
    }
    ffi::Array<ir::Binding> bindings;
    for (const ir::Binding& binding : made.block->bindings) {
      renamer.MutateBinding(binding, &bindings);
    }
    for (const ir::Binding& binding : bindings) b_.EmitBinding(binding);
    for (Expr& grad : made.grads) grad = renamer.Mutate(grad);
    return made.grads;
  }

  // The gradients of the arguments of a call_tir_with_grad: the results of one program.
  void VisitProgram(const Call& call, const Var& adjoint) {
    const auto name = ops::AttrOf<std::string>(call, "te_grad_name");
    const auto options = call->attrs.Get("te_grad_kwargs").cast<ffi::Map<ffi::String, ffi::Any>>();
    const ffi::Array<Expr> args = call->args[1].as<ir::TupleObj>()->fields;
    Expr grad = adjoint;
    if (const auto* results = adjoint->ty.as<ir::TupleTypeObj>()) {
      ffi::Array<Expr> fields;
      for (size_t i = 0; i < results->fields.size(); ++i) {
        fields.push_back(Argument(Field(adjoint, static_cast<int64_t>(i))));
      }
      grad = ir::Tuple(fields);
    }
    if (!context_.program_gradient) {
      Fail(ErrorKind::kAttribute, call->span.Place(), "Gradient: there is no gradient called ",
           name);
    }
    ProgramGradient found = context_.program_gradient(name, options, grad, args);
    std::string function_name = name;
    for (char& c : function_name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
    ffi::Array<Expr> call_args{b_.AddFunction(found.program, function_name), ir::Tuple(found.args)};
    if (!found.sizes.empty()) call_args.push_back(ir::ShapeExpr(found.sizes));
    Var grads = b_.Emit(ops::MakeCall("call_tir", call_args, {}, {found.result}, call->span));
    const auto* several = grads->ty.as<ir::TupleTypeObj>();
    const size_t count = several == nullptr ? 1 : several->fields.size();
    if (count != args.size()) {
      Fail(ErrorKind::kAttribute, call->span.Place(), "Gradient: the gradient called ", name,
           " must give one tensor for each of the ", args.size(), " arguments, but gives ", count);
    }
    for (size_t i = 0; i < count; ++i) {
      Add(args[i], several == nullptr ? Expr(grads) : Field(grads, static_cast<int64_t>(i)));
    }
  }

  // ---- checkpoints: variables inside are computed again, once, where they are needed first

  void Compute(const Var& var) {
    if (!inside_.count(var.get()) || again_.count(var.get())) return;
    VarSet needed{var.get()};
    std::vector<size_t> order;
    for (size_t i = bindings_.size(); i-- > 0;) {
      if (!needed.count(bindings_[i]->var.get())) continue;
      order.push_back(i);
      for (const ir::VarObj* v : VarsOf(bindings_[i]->value)) {
        if (inside_.count(v) && !again_.count(v)) needed.insert(v);
      }
    }
    for (auto it = order.rbegin(); it != order.rend(); ++it) {
      const ir::Binding& binding = bindings_[*it];
      Var copy = b_.Emit(WithoutGradient(renamer_.Mutate(binding->value)),
                         std::string(binding->var->name) + "_cp");
      again_.insert(binding->var.get());
      renamer_.Replace(binding->var, copy);
    }
  }
  Expr Computed(const Expr& e) {
    if (inside_.empty()) return e;
    for (const ir::VarObj* v : VarsOf(e)) Compute(ffi::GetRef<Var>(v));
    return renamer_.Mutate(e);
  }

  // ---- contributions

  // Adds `partial` to the adjoints of the variables in `to`: an argument, or the value of a tuple.
  void Add(const Expr& to, Expr partial) {
    if (auto var = to.as<Var>()) {
      if (!active_.count(var->get())) return;
      auto it = adjoint_.find(var->get());
      return SetAdjoint(*var, it == adjoint_.end() ? partial : Sum(it->second, partial));
    }
    const auto* tuple = to.as<ir::TupleObj>();
    if (tuple == nullptr) return;
    partial = Once(partial);
    for (size_t i = 0; i < tuple->fields.size(); ++i) {
      Add(tuple->fields[i], Field(partial, static_cast<int64_t>(i)));
    }
  }

  // The adjoint of one field adds to that of the tuple.
  void AddAt(const ir::TupleGetItemObj* item, const Var& partial) {
    auto tuple = item->tuple_value.as<Var>();
    RELAXVM_CHECK(tuple.has_value());
    if (!active_.count(tuple->get())) return;
    auto it = adjoint_.find(tuple->get());
    const auto* type = (*tuple)->ty.as<ir::TupleTypeObj>();
    ffi::Array<Expr> fields;
    for (int64_t i = 0; i < static_cast<int64_t>(type->fields.size()); ++i) {
      const bool here = i == item->index;
      if (it == adjoint_.end()) {
        fields.push_back(here ? Expr(partial) : Argument(Zeros(type->fields[i])));
        continue;
      }
      Expr field = b_.Emit(ir::TupleGetItem(it->second, i));
      fields.push_back(here ? Argument(Sum(field, partial)) : field);
    }
    SetAdjoint(*tuple, ir::Tuple(fields));
  }

  // A tuple whose fields are taken one by one.
  Expr Once(const Expr& tuple) {
    const bool computed = tuple.as<ir::CallObj>() || tuple.as<ir::TupleGetItemObj>();
    return computed ? Expr(b_.Emit(tuple)) : tuple;
  }
  Expr Field(const Expr& tuple, int64_t i) {
    if (const auto* fields = tuple.as<ir::TupleObj>()) return fields->fields[i];
    return ir::TupleGetItem(tuple, i);
  }
  Expr Argument(const Expr& e) { return e.as<ir::TupleObj>() ? e : b_.NormalizeArgument(e); }

  // Tuples are added field by field.
  Expr Sum(const Expr& a, Expr b) {
    const auto* tuple = a->ty.as<ir::TupleTypeObj>();
    if (tuple == nullptr) return ops::MakeCall("add", {a, b});
    ffi::Array<Expr> fields;
    for (size_t i = 0; i < tuple->fields.size(); ++i) {
      Expr left = Argument(Field(a, static_cast<int64_t>(i)));
      b = Once(b);
      Expr right = Argument(Field(b, static_cast<int64_t>(i)));
      fields.push_back(Argument(Sum(left, right)));
    }
    return ir::Tuple(fields);
  }

  Expr Zeros(const Type& type) {
    if (const auto* tuple = type.as<ir::TupleTypeObj>()) {
      ffi::Array<Expr> fields;
      for (const Type& field : tuple->fields) fields.push_back(Argument(Zeros(field)));
      return ir::Tuple(fields);
    }
    const auto* tensor = type.as<ir::TensorTypeObj>();
    auto dims = tensor == nullptr ? ffi::Optional<ffi::Array<Expr>>() : tensor->GetShape();
    if (!dims.has_value()) {
      Fail(ErrorKind::kAttribute,
           "Gradient: a value that the target does not depend on must have a known shape, got ",
           ops::DescribeType(type));
    }
    return ops::MakeCall("zeros", {ir::ShapeExpr(*dims)}, {{"dtype", tensor->dtype}});
  }

  ir::BlockBuilder& b_;
  const PassContext& context_;
  const std::vector<ir::Binding>& bindings_;
  const VarSet& inside_;
  VarSet active_;
  std::unordered_map<const ffi::Object*, Var> adjoint_;
  VarSet again_;
  Renamer renamer_;
};

// ---- the function

[[noreturn]] void Reject(const ir::Function& func, const std::string& why) {
  Fail(ErrorKind::kAttribute, func->span.Place(), "Gradient: ", why);
}

// The positions of the parameters to differentiate by.
std::vector<size_t> WantedParams(const ir::Function& func, const ffi::Any& require) {
  std::vector<size_t> wanted;
  auto add = [&](size_t i) {
    const Var& param = func->params[i];
    if (!IsTensors(param->ty)) {
      Reject(func, "a gradient is taken by tensors and tuples of them, but parameter " +
                       std::string(param->name) + " is " + ops::DescribeType(param->ty));
    }
    wanted.push_back(i);
  };
  if (require == nullptr) {
    for (size_t i = 0; i < func->params.size(); ++i) add(i);
    return wanted;
  }
  ffi::Array<Var> vars;
  if (auto var = require.as<Var>()) {
    vars.push_back(*var);
  } else {
    vars = require.cast<ffi::Array<Var>>();
  }
  VarSet seen;
  for (const Var& var : vars) {
    if (!seen.insert(var.get()).second) {
      Reject(func, "require_grads names " + std::string(var->name) + " twice");
    }
    size_t i = 0;
    while (i < func->params.size() && !func->params[i].same_as(var)) ++i;
    if (i == func->params.size()) {
      Reject(func, "require_grads names " + std::string(var->name) +
                       ", which is no parameter of the function");
    }
    add(i);
  }
  return wanted;
}

Var TargetOf(const ir::Function& func, int64_t index) {
  Expr target = func->body->body;
  if (const auto* tuple = target.as<ir::TupleObj>()) {
    if (index < 0 || index >= static_cast<int64_t>(tuple->fields.size())) {
      Reject(func, "target_index is " + std::to_string(index) + ", but the function gives " +
                       std::to_string(tuple->fields.size()) + " values");
    }
    target = tuple->fields[index];
  } else if (index != 0) {
    Reject(func, "target_index is " + std::to_string(index) + ", but the function gives one value");
  }
  auto var = target.as<Var>();
  if (!var.has_value()) Reject(func, "the value to differentiate must be a variable");
  const auto* type = (*var)->ty.as<ir::TensorTypeObj>();
  if (type == nullptr || type->ndim != 0 || !IsFloat(type->dtype)) {
    Reject(func, "the value to differentiate must be a scalar tensor of floats, got " +
                     ops::DescribeType((*var)->ty));
  }
  return *var;
}

ir::Function Differentiate(const ir::Function& func, const std::string& name,
                           const std::vector<size_t>& params, const PassContext& context,
                           ir::BlockBuilder& builder) {
  const Var target = TargetOf(func, context.Option<int64_t>("target_index"));
  ffi::Array<ir::Binding> body;
  for (const ir::BindingBlock& block : func->body->blocks) {
    if (func->body->blocks.size() > 1 || !block.as<ir::DataflowBlockObj>()) {
      Reject(func, "the body must be one dataflow block");
    }
    body = block->bindings;
  }
  const Checkpoints program = TakeMarksAway(body);
  builder.BeginBlock(/*dataflow=*/true);
  for (const ir::Binding& binding : program.bindings) {
    Expr value = WithoutGradient(binding->value);
    if (value.same_as(binding->value)) {
      builder.EmitBinding(binding);
    } else {
      value = builder.Normalize(value);
      builder.EmitBinding(ir::VarBinding(binding->var, value, binding->span));
    }
  }
  std::vector<Var> wanted;
  for (size_t i : params) wanted.push_back(func->params[i]);
  ffi::Array<Expr> grads = Backward(builder, program, context).Run(target, wanted);
  Expr result = builder.Normalize(ir::Tuple({func->body->body, ir::Tuple(grads)}));
  ir::SeqExpr seq({builder.EndBlock()}, result, func->body->span);
  ir::DictAttrs attrs = func->attrs;
  if (attrs.count(ir::attr::kGlobalSymbol)) attrs.Set(ir::attr::kGlobalSymbol, ffi::String(name));
  ir::Function adjoint(func->params, seq, result->ty, func->is_pure, attrs, func->span);
  return RemoveUnusedBindings(adjoint);
}

}  // namespace

IRModule Gradient(IRModule mod, const PassContext& context) {
  const auto name = context.Option<ffi::String>("func_name");
  auto func = mod->Lookup(name).as<ir::Function>();
  if (!func.has_value()) {
    Fail(ErrorKind::kTypeError, "Gradient: ", name, " is no Relax function");
  }
  const std::string adjoint_name = std::string(name) + "_adjoint";
  if (mod->FindVar(adjoint_name).has_value()) {
    Reject(*func, "the module has a function " + adjoint_name + " already");
  }
  const std::vector<size_t> params = WantedParams(*func, context.options["require_grads"]);
  std::unique_ptr<ir::TypeContext> facts = ops::MakeTypeContext();
  ir::BlockBuilder builder(facts.get(), mod);
  ir::Function adjoint =
      Differentiate(CopyWithFreshVars(*func), adjoint_name, params, context, builder);
  IRModule result = builder.module();
  result.Update(adjoint_name, adjoint);
  return result;
}

}  // namespace relaxvm::passes
