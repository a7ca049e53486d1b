// SPDX-License-Identifier: Apache-2.0
// LegalizeOps walks every binding.  Operators with a compute rule become call_tir of a tensor
// program, operators with a packed function a call of it, operators with only a decomposition are
// decomposed first.  Calls of the VM stay. Stage: graph -> lowered.  Keeps: order, names of
// variables, spans.
#include "lowering/legalize_ops.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "analysis/calls.h"
#include "analysis/core_ops.h"
#include "ir/block_builder.h"
#include "ir/prim.h"
#include "ir/visitor.h"
#include "lowering/op_to_program.h"
#include "ops/op_def.h"
#include "ops/open_op.h"
#include "support/host_tensor.h"

namespace relaxvm::lowering {
namespace {

using analysis::CoreOp;
using ir::Binding;
using ir::Call;
using ir::CallObj;
using ir::Expr;
using ir::TensorTypeObj;
using ir::Type;
using ir::Var;
using ir::VarBinding;

// What gives the elements of its first argument under another shape.
constexpr const char* kShapeOps[] = {"relax.reshape", "relax.permute_dims", "relax.expand_dims",
                                     "relax.squeeze"};

bool HasKnownShapes(const Type& type) {
  if (!type.defined()) return false;
  if (const auto* tensor = type.as<TensorTypeObj>()) {
    return tensor->GetShape().has_value() && !tensor->IsUnknownDtype();
  }
  if (const auto* tuple = type.as<ir::TupleTypeObj>()) {
    for (const Type& field : tuple->fields) {
      if (!HasKnownShapes(field)) return false;
    }
    return true;
  }
  return false;
}

// No tensor in `type` is of unknown shape.
bool ReadsKnownShapes(const Type& type) {
  if (type.as<TensorTypeObj>()) return HasKnownShapes(type);
  const auto* tuple = type.as<ir::TupleTypeObj>();
  return tuple == nullptr ||
         std::all_of(tuple->fields.begin(), tuple->fields.end(), ReadsKnownShapes);
}

// Are all sizes of what a call reads and gives known?
bool HasKnownShapes(const CallObj* call) {
  for (const Expr& arg : call->args) {
    if (arg->ty.defined() && !ReadsKnownShapes(arg->ty)) return false;
  }
  return HasKnownShapes(call->ty);
}

// A constant of one element under another shape; null: `value` is not that.  Later steps know such
// a number where they would not know what a tensor program makes of it.
Expr ReshapedNumber(const Expr& value) {
  const auto* call = value.as<CallObj>();
  const auto* type = value->ty.as<TensorTypeObj>();
  if (call == nullptr || type == nullptr || !type->GetShape() || call->args.empty()) return {};
  const auto* constant = call->args[0].as<ir::ConstantObj>();
  if (constant == nullptr || constant->data.numel() != 1 ||
      constant->data.device().device_type != kDLCPU)
    return {};
  const bool keeps = std::any_of(std::begin(kShapeOps), std::end(kShapeOps),
                                 [&](const char* name) { return analysis::CallsOp(value, name); });
  if (!keeps) return {};
  const ffi::Array<Expr> dims = type->GetShape().value();
  if (!std::all_of(dims.begin(), dims.end(), [](const Expr& d) { return ir::IsIntValue(d, 1); }))
    return {};
  ffi::Tensor number = NewHostTensor(std::vector<int64_t>(dims.size(), 1), constant->data.dtype());
  std::memcpy(number.data_ptr(), constant->data.data_ptr(),
              static_cast<size_t>(SizeInBytes(constant->data.dtype(), 1)));
  return ir::Constant(number, value->span);
}

class Legalizer : public ir::Mutator {
 public:
  Legalizer(ir::TypeContext* facts, ir::BlockBuilder* programs, const LegalizeOptions& options)
      : facts_(facts), programs_(programs), options_(options) {}

  void MutateBinding(const Binding& binding, ffi::Array<Binding>* out) override {
    const auto* bound = binding.as<ir::VarBindingObj>();
    const auto* call = bound ? bound->value.as<CallObj>() : nullptr;
    if (call != nullptr && bound->var.as<ir::DataflowVarObj>()) {
      if (const Expr number = ReshapedNumber(Mutate(bound->value)); number.defined()) {
        Replace(bound->var, number);
        return;
      }
    }
    const ir::OpObj* op = call ? ir::CalledOp(call) : nullptr;
    if (op == nullptr || options_.skip_ops.count(op->name)) {
      ir::Mutator::MutateBinding(binding, out);
      return;
    }
    if (auto rule = RuleOf(op); rule && LowerByRule(bound, rule, out)) return;
    if (Stays(op)) {
      ir::Mutator::MutateBinding(binding, out);
      return;
    }
    Call mutated = ffi::GetRef<Call>(Mutate(bound->value).as<CallObj>());
    Lower(bound, MatchUnknownShapes(mutated, out), out);
  }

 private:
  // Calls, memory and closures have their own passes; so has what has no rule of lowering at all.
  static bool Stays(const ir::OpObj* op) {
    const ops::OpDef& record = ops::RecordOf(op);
    return !record.compute && record.packed == nullptr && !record.decompose;
  }

  ops::LegalizeRule RuleOf(const ir::OpObj* op) const {
    auto it = options_.rules.find(op->name);
    return it != options_.rules.end() ? it->second : ops::FindLegalizeRule(op->name);
  }

  // False when the rule leaves the call as it is.
  bool LowerByRule(const ir::VarBindingObj* bound, const ops::LegalizeRule& rule,
                   ffi::Array<Binding>* out) {
    Call call = ffi::GetRef<Call>(Mutate(bound->value).as<CallObj>());
    const ir::IRModule before = programs_->module();
    ops::Lowered lowered = rule(call, before, bound->var.as<ir::DataflowVarObj>() != nullptr);
    if (lowered.value.same_as(call)) return false;
    for (const auto& [var, func] : lowered.mod->functions) {
      if (before->functions.count(var) == 0) programs_->UpdateFunction(var, func);
    }
    const auto* made = lowered.value.as<CallObj>();
    const ir::OpObj* op = ir::CalledOp(call.get());
    if (made != nullptr && ir::CalledOp(made) == op) {
      Fail(ErrorKind::kValueError, call->span.Place(), op->name,
           ": FLegalize must give something else than another call of the operator");
    }
    for (const Binding& inner : lowered.block->bindings) MutateBinding(inner, out);
    // The value may be a call of an operator that has to be lowered in turn.
    MutateBinding(VarBinding(bound->var, lowered.value, bound->span), out);
    return true;
  }

  void Lower(const ir::BindingObj* binding, const Call& call, ffi::Array<Binding>* out) {
    const ir::OpObj* op = ir::CalledOp(call.get());
    const ops::OpDef& record = ops::RecordOf(op);
    if (record.compute && HasKnownShapes(call.get()))
      return Bind(binding, CallProgram(binding, call, op, out), out);
    if (record.packed != nullptr) return Bind(binding, CallPacked(call, record), out);
    if (record.decompose) return Decompose(binding, call, record, out);
    Fail(
        ErrorKind::kValueError, call->span.Place(), op->name,
        ": the shapes of its arguments and its result are not known here, so it cannot be computed "
        "into a tensor; match_cast the arguments to types with known rank and dtype first");
  }

  void Bind(const ir::BindingObj* binding, const Expr& value, ffi::Array<Binding>* out) {
    Var var = binding->var;
    if (!ir::StructuralEqual(var->ty, value->ty)) {  // arguments were matched: more is known now
      Var fresh = var.as<ir::DataflowVarObj>()
                      ? Var(ir::DataflowVar(var->name, value->ty, var->span))
                      : Var(var->name, value->ty, var->span);
      if (!var->ty.defined() || !ir::StructuralEqual(MutateType(var->ty), value->ty)) {
        Replace(var, fresh);
        var = fresh;
      } else {
        var = MutateDef(var);
      }
    }
    out->push_back(VarBinding(var, value, binding->span));
  }

  // Arguments of calls are leaves: an item of a tuple gets a variable.
  static Expr Leaf(const ir::BindingObj* binding, const Expr& arg, ffi::Array<Binding>* out) {
    if (!arg.as<ir::TupleGetItemObj>()) return arg;
    Var item = binding->var.as<ir::DataflowVarObj>() ? ir::DataflowVar("item", arg->ty, arg->span)
                                                     : Var("item", arg->ty, arg->span);
    out->push_back(VarBinding(item, arg, arg->span));
    return item;
  }

  Expr CallProgram(const ir::BindingObj* binding, const Call& call, const ir::OpObj* op,
                   ffi::Array<Binding>* out) {
    ProgramCall program = OpToProgram(call, *facts_);
    std::string name = op->name;
    name = name.substr(name.rfind('.') + 1);
    ir::GlobalVar var = programs_->AddFunction(program.program, name);
    ir::Tuple args(program.args.Map([&](const Expr& arg) { return Leaf(binding, arg, out); }),
                   call->span);
    ffi::Array<Expr> call_args = {var, args};
    if (!program.tir_vars.empty()) call_args.push_back(ir::ShapeExpr(program.tir_vars));
    return Call(analysis::GetCoreOp(CoreOp::kCallTir), call_args, ir::Attrs(), {call->ty},
                call->span, call->ty);
  }

  static Expr CallPacked(const Call& call, const ops::OpDef& record) {
    bool pure = record.effect == ops::Effect::kPure;
    ir::ExternFunc func(record.packed);
    ffi::Array<Expr> args;
    if (pure) args.push_back(func);
    for (const Expr& arg : call->args) args.push_back(arg);
    for (const ops::AttrField& field : record.attrs) args.push_back(AttrArgument(call, field));
    Expr callee = pure ? Expr(analysis::GetCoreOp(CoreOp::kCallPurePacked)) : Expr(func);
    return Call(callee, args, ir::Attrs(), {call->ty}, call->span, call->ty);
  }

  // An attribute as an argument of a packed function.
  static Expr AttrArgument(const Call& call, const ops::AttrField& field) {
    ffi::Any value = call->attrs.Get(field.name);
    std::string type = field.type;
    if (value == nullptr) return analysis::CallCore(CoreOp::kNullValue, {}, ir::AnyType());
    if (!type.empty() && type.back() == '?') type.pop_back();
    if (type == "int") return ir::IntImm(Int(64), value.cast<int64_t>());
    if (type == "bool") return ir::IntImm(Bool(), value.cast<bool>());
    if (type == "float") return ir::FloatImm(Float(64), value.cast<double>());
    if (type == "str") return ir::StringImm(value.cast<ffi::String>());
    if (type == "dtype") return ir::DataTypeImm(value.cast<DLDataType>());
    if (type == "ints") {
      ffi::Array<Expr> values;
      for (int64_t v : value.cast<ffi::Array<int64_t>>()) values.push_back(ir::IntImm(Int(64), v));
      return ir::ShapeExpr(values);
    }
    Fail(ErrorKind::kNotImplementedError, call->span.Place(), ir::CalledOp(call.get())->name,
         ": attribute '", field.name, "' cannot be passed to a packed function");
  }

  void Decompose(const ir::BindingObj* binding, const Call& call, const ops::OpDef& record,
                 ffi::Array<Binding>* out) {
    ir::BlockBuilder builder(facts_);
    builder.BeginBlock(binding->var.as<ir::DataflowVarObj>() != nullptr);
    Expr value = builder.Normalize(record.decompose(builder, call, call->attrs));
    ir::BindingBlock block = builder.EndBlock();
    for (const Binding& inner : block->bindings) MutateBinding(inner, out);
    Bind(binding, Mutate(value), out);
  }

  // Arguments of known rank but unknown sizes are matched to fresh symbolic sizes, and the call's
  // type is inferred again.
  Call MatchUnknownShapes(const Call& call, ffi::Array<Binding>* out) {
    if (!ops::RecordOf(ir::CalledOp(call.get())).compute || HasKnownShapes(call.get())) return call;
    ffi::Array<Expr> args =
        call->args.Map([&](const Expr& arg) -> Expr { return Matched(arg, out); });
    if (args.same_as(call->args)) return call;
    Call result(call->op, args, call->attrs, call->ty_args, call->span);
    result->ty = ir::CalledOp(call.get())->type_rule(result, *facts_);
    return result;
  }

  Expr Matched(const Expr& arg, ffi::Array<Binding>* out) {
    if (const auto* tuple = arg.as<ir::TupleObj>()) {
      ir::Tuple result(
          tuple->fields.Map([&](const Expr& field) -> Expr { return Matched(field, out); }),
          tuple->span);
      ffi::Array<Type> types;
      for (const Expr& field : result->fields) types.push_back(field->ty);
      result->ty = ir::TupleType(types);
      return result;
    }
    if (!arg->ty.defined()) return arg;
    Type known;
    ffi::Array<Expr> dims;
    const auto* tensor = arg->ty.as<TensorTypeObj>();
    const auto* shape = arg->ty.as<ir::ShapeTypeObj>();
    int64_t ndim = tensor ? tensor->ndim : shape ? shape->ndim : -1;
    for (int64_t i = 0; i < ndim; ++i) dims.push_back(Var("d" + std::to_string(i), Int(64)));
    if (tensor && !tensor->GetShape().has_value() && ndim >= 0 && !tensor->IsUnknownDtype()) {
      known = ir::TensorType(dims, tensor->dtype, tensor->vdevice);
    } else if (shape && !shape->values.has_value() && ndim >= 0) {
      known = ir::ShapeType(dims);
    } else {
      return arg;
    }
    Var var("matched", known);
    out->push_back(ir::MatchCast(var, arg, known, arg->span));
    return var;
  }

  ir::TypeContext* facts_;
  ir::BlockBuilder* programs_;  // holds the module that grows
  const LegalizeOptions& options_;
};

// Results whose extents only the running program knows are typed by their greatest extents until
// they are lowered: then the function's type says what it returns.
ir::BaseFunc WithActualResult(const ir::Function& before, const Expr& legal,
                              ir::TypeContext& facts) {
  ir::Function after = legal.as<ir::Function>().value();
  auto fits = [&](const ir::Function& f) {
    return FitsType(f->ret_ty, f->body->ty, facts) == ir::TypeFit::kAlways;
  };
  if (fits(after) || !fits(before)) return after;
  std::unordered_set<const ffi::Object*> visible;
  for (const Var& param : after->params) {
    for (const Var& v : ir::DefinableSymbolicVars(param->ty)) visible.insert(v.get());
  }
  Type result =
      EraseToVisible(after->body->ty, [&](const Var& v) { return visible.count(v.get()) != 0; });
  return ir::Function(after->params, after->body, result, after->is_pure, after->attrs,
                      after->span);
}

}  // namespace

ir::IRModule LegalizeOps(ir::IRModule mod, const LegalizeOptions& options) {
  std::unique_ptr<ir::TypeContext> facts = ops::MakeTypeContext();
  ir::BlockBuilder programs(facts.get(), mod);
  for (const auto& [var, func] : mod->functions) {
    const auto* function = func.as<ir::FunctionObj>();
    if (function == nullptr) continue;
    ir::Function before = ffi::GetRef<ir::Function>(function);
    Expr legal = Legalizer(facts.get(), &programs, options).MutateFunction(before);
    if (legal.same_as(func)) continue;
    programs.UpdateFunction(var, WithActualResult(before, legal, *facts));
  }
  return programs.module();
}

}  // namespace relaxvm::lowering
