// SPDX-License-Identifier: Apache-2.0
// DecomposeOps: operators that are several simpler ones become these, by the rule in their record.
// DecomposeOpsForInference, DecomposeOpsForTraining: the same in the form that programs of Relax
// expect, step by step as a textbook has it; only these operators.
// Stage: graph.  Options: func_name, one function instead of all.

#include "analysis/core_ops.h"
#include "ir/block_builder.h"
#include "ops/number.h"
#include "ops/op_def.h"
#include "passes/pass.h"

namespace relaxvm::passes {
namespace {

using ir::Call;
using ir::Expr;
using ops::Ints;
using AttrMap = ffi::Map<ffi::String, ffi::Any>;

// What a call becomes; nothing when it stays.
using Rule = std::function<Expr(ir::BlockBuilder& b, const Call& call)>;
using FindRule = std::function<Rule(const Call& call)>;

class Decomposer : public ir::Mutator {
 public:
  Decomposer(const IRModule& mod, ir::TypeContext* facts, const FindRule& find)
      : builder_(facts, mod), find_(find) {}

  ir::BindingBlock MutateBlock(const ir::BindingBlock& block) override {
    bool any = false;
    for (const ir::Binding& binding : block->bindings) any |= RuleOf(binding) != nullptr;
    if (!any) return ir::Mutator::MutateBlock(block);
    builder_.BeginBlock(block.as<ir::DataflowBlockObj>() != nullptr);
    for (const ir::Binding& binding : block->bindings) {
      ffi::Array<ir::Binding> rewritten;
      ir::Mutator::MutateBinding(binding, &rewritten);
      const ir::Binding& now = rewritten[0];
      Rule rule = RuleOf(now);
      if (rule == nullptr) {
        builder_.EmitBinding(now);
        continue;
      }
      Expr value = builder_.Normalize(rule(builder_, now->value.as<Call>().value()));
      ir::Var var = now->var;
      // Sizes that the rule has given names are known from here on.
      const bool named = value.as<ir::ShapeExprObj>() != nullptr;
      if (named && !ir::StructuralEqual(var->ty, value->ty)) {
        var = var.as<ir::DataflowVarObj>()
                  ? ir::Var(ir::DataflowVar(var->name, value->ty, var->span))
                  : ir::Var(var->name, value->ty, var->span);
        Replace(binding->var, var);
      }
      builder_.EmitBinding(ir::VarBinding(var, value, now->span));
    }
    return builder_.EndBlock();
  }

 private:
  Rule RuleOf(const ir::Binding& binding) const {
    auto* call = binding.as<ir::VarBindingObj>() ? binding->value.as<ir::CallObj>() : nullptr;
    const ir::OpObj* op = call == nullptr ? nullptr : ir::CalledOp(call);
    if (op == nullptr || op->record == nullptr) return nullptr;
    return find_(ffi::GetRef<Call>(call));
  }

  ir::BlockBuilder builder_;
  const FindRule& find_;
};

IRModule Decompose(const IRModule& mod, const PassContext& context, const FindRule& find) {
  auto only = context.options["func_name"].as<ffi::String>();
  if (only) mod->Lookup(*only);
  std::unique_ptr<ir::TypeContext> facts = ops::MakeTypeContext();
  return ir::MutateFunctions(mod, [&](const ir::GlobalVar& var, const ir::Function& f) {
    if (only && var->name_hint != *only) return f;
    return Decomposer(mod, facts.get(), find).Mutate(f).as<ir::Function>().value();
  });
}

// Emits operators for a call that is taken apart.
class Steps {
 public:
  Steps(ir::BlockBuilder& b, const Call& call) : b_(b), span_(call->span) {}

  Expr Op(const char* name, ffi::Array<Expr> args, const AttrMap& attrs = {}) {
    return b_.Emit(ops::MakeCall(name, std::move(args), attrs, {}, span_));
  }
  // The last step: the caller binds it.
  Call Last(const char* name, ffi::Array<Expr> args) {
    return ops::MakeCall(name, std::move(args), {}, {}, span_);
  }
  Expr Number(DLDataType dtype, double value) {
    return ops::NumberOf(dtype, value, [&](const Expr& narrow) {
      return Op("astype", {narrow}, {{"dtype", dtype}});
    });
  }
  // (x - mean) / sqrt(variance + epsilon)
  Expr Normalized(const Expr& x, const Expr& mean, const std::function<Expr()>& variance,
                  double epsilon) {
    Expr centred = Op("subtract", {x, mean});
    Expr spread = Op("add", {variance(), Number(TypeOf(x)->dtype, epsilon)});
    return Op("divide", {centred, Op("sqrt", {spread})});
  }
  static const ir::TensorTypeObj* TypeOf(const Expr& e) { return e->ty.as<ir::TensorTypeObj>(); }

 private:
  ir::BlockBuilder& b_;
  ir::Span span_;
};

bool IsKnownTensor(const Expr& e) {
  const auto* x = Steps::TypeOf(e);
  return x != nullptr && !x->IsUnknownRank() && IsFloat(x->dtype);
}

// data, gamma, beta, mean and variance of each channel -> data normalised
Expr NormalizeChannels(Steps& steps, const Call& call, const Expr& mean, const Expr& variance) {
  const int64_t rank = Steps::TypeOf(call->args[0])->ndim;
  int64_t axis = ops::AttrOf<int64_t>(call, "axis");
  Ints others;
  for (int64_t d = 0; d < rank; ++d) {
    if (d != (axis + rank) % rank) others.push_back(d);
  }
  auto spread = [&](const Expr& e) {
    if (others.empty()) return e;
    return steps.Op("expand_dims", {e}, {{"axis", ops::AttrCodec<Ints>::Encode(others)}});
  };
  Expr y = steps.Normalized(
      call->args[0], spread(mean), [&] { return spread(variance); },
      ops::AttrOf<double>(call, "epsilon"));
  if (ops::AttrOf<bool>(call, "scale")) y = steps.Op("multiply", {y, spread(call->args[1])});
  if (ops::AttrOf<bool>(call, "center")) y = steps.Op("add", {y, spread(call->args[2])});
  return y;
}

Expr BatchNormOfInference(ir::BlockBuilder& b, const Call& call) {
  Steps steps(b, call);
  Expr y = NormalizeChannels(steps, call, call->args[3], call->args[4]);
  return ir::Tuple({y, call->args[3], call->args[4]});
}

Expr BatchNormOfTraining(ir::BlockBuilder& b, const Call& call) {
  Steps steps(b, call);
  const int64_t rank = Steps::TypeOf(call->args[0])->ndim;
  const int64_t axis = (ops::AttrOf<int64_t>(call, "axis") + rank) % rank;
  Ints others;
  for (int64_t d = 0; d < rank; ++d) {
    if (d != axis) others.push_back(d);
  }
  const AttrMap over{{"axis", ops::AttrCodec<Ints>::Encode(others)}, {"keepdims", false}};
  Expr mean = steps.Op("mean", {call->args[0]}, over);
  Expr variance = steps.Op("variance", {call->args[0]}, over);
  Expr y = NormalizeChannels(steps, call, mean, variance);
  Expr inner = b.Emit(ir::Tuple({y, mean, variance}));
  Expr result = b.Emit(ir::TupleGetItem(inner, 0));
  const double momentum = ops::AttrOf<double>(call, "momentum");
  auto moved = [&](const Expr& old, const Expr& now) {
    DLDataType dtype = Steps::TypeOf(old)->dtype;
    Expr kept = steps.Op("multiply", {steps.Number(dtype, 1 - momentum), old});
    Expr added = steps.Op("multiply", {steps.Number(dtype, momentum), now});
    return steps.Op("add", {kept, added});
  };
  Expr new_mean = moved(call->args[3], mean);
  return ir::Tuple({result, new_mean, moved(call->args[4], variance)});
}

// Weights broadcast with the data; over other axes layer_norm stays, which has a gradient as well.
bool OverLastAxes(const Call& call) {
  const int64_t rank = Steps::TypeOf(call->args[0])->ndim;
  const Ints axes = ops::AttrOf<Ints>(call, "axes");
  const auto count = static_cast<int64_t>(axes.size());
  for (int64_t i = 0; i < count; ++i) {
    if ((axes[i] + rank) % rank != rank - count + i) return false;
  }
  return true;
}

Expr LayerNormOfTraining(ir::BlockBuilder& b, const Call& call) {
  Steps steps(b, call);
  const AttrMap over{{"axis", call->attrs.Get("axes")}, {"keepdims", true}};
  const Expr& x = call->args[0];
  Expr mean = steps.Op("mean", {x}, over);
  Expr y = steps.Normalized(
      x, mean, [&] { return steps.Op("variance", {x}, over); },
      ops::AttrOf<double>(call, "epsilon"));
  const bool center = ops::AttrOf<bool>(call, "center");
  if (ops::AttrOf<bool>(call, "scale")) {
    if (!center) return steps.Last("multiply", {y, call->args[1]});
    y = steps.Op("multiply", {y, call->args[1]});
  }
  return center ? Expr(steps.Last("add", {y, call->args[2]})) : y;
}

// The values become symbolic sizes.
Expr TensorToShape(ir::BlockBuilder& b, const Call& call) {
  ir::Type type = call->ty;
  const auto* shape = type.as<ir::ShapeTypeObj>();
  Expr found = b.Emit(Call(analysis::GetCoreOp(analysis::CoreOp::kCallPurePacked),
                           {ir::ExternFunc("vm.builtin.tensor_to_shape"), call->args[0]},
                           ir::Attrs(), {type}, call->span));
  ffi::Array<Expr> sizes;
  for (int64_t d = 0; d < shape->ndim; ++d) sizes.push_back(ir::Var("x", Int(64)));
  b.EmitMatchCast(found, ir::ShapeType(sizes));
  return ir::ShapeExpr(sizes);
}

Rule RuleOfInference(const Call& call) {
  const std::string name(ir::CalledOp(call.get())->name);
  if (name == "relax.nn.batch_norm" && IsKnownTensor(call->args[0])) return BatchNormOfInference;
  if (name == "relax.tensor_to_shape") {
    const auto* shape = call->ty.as<ir::ShapeTypeObj>();
    if (shape != nullptr && shape->ndim >= 0) return TensorToShape;
  }
  return nullptr;
}

Rule RuleOfTraining(const Call& call) {
  const std::string name(ir::CalledOp(call.get())->name);
  if (!IsKnownTensor(call->args.empty() ? Expr(call) : call->args[0])) return nullptr;
  if (name == "relax.nn.batch_norm") return BatchNormOfTraining;
  if (name == "relax.nn.layer_norm" && OverLastAxes(call)) return LayerNormOfTraining;
  return nullptr;
}

Rule RuleOfRecord(const Call& call) {
  const ir::OpObj* op = ir::CalledOp(call.get());
  const ops::OpDef& def = ops::RecordOf(op);
  // Marks are for Gradient, which may come later.
  if (!def.decompose || std::string(op->name).rfind("relax.grad.", 0) == 0) return nullptr;
  return [&def](ir::BlockBuilder& b, const Call& c) { return def.decompose(b, c, c->attrs); };
}

}  // namespace

IRModule DecomposeOps(IRModule mod, const PassContext& context) {
  return Decompose(mod, context, RuleOfRecord);
}

IRModule DecomposeOpsForInference(IRModule mod, const PassContext& context) {
  IRModule result = Decompose(mod, context, RuleOfInference);
  // New sizes end with the functions that name them: results' types are inferred again.
  return result.same_as(mod) ? result : Normalize(result, context);
}

IRModule DecomposeOpsForTraining(IRModule mod, const PassContext& context) {
  return Decompose(mod, context, RuleOfTraining);
}

}  // namespace relaxvm::passes
