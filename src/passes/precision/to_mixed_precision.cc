// SPDX-License-Identifier: Apache-2.0
// ToMixedPrecision: contractions take half floats, and what follows them stays in half floats as
// long as all operands are.  Stage: graph.  Keeps: types of parameters (unless named in
// fp16_input_names) and of everything that leaves a dataflow block.
#include <cmath>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "analysis/calls.h"
#include "ops/op_def.h"
#include "passes/pass.h"

namespace relaxvm::passes {
namespace {

using ir::Expr;
using ir::Var;

enum class Policy : uint8_t { kNever, kAlways, kFollow };

constexpr DLDataType kHalf = {kDLFloat, 16, 1};
constexpr DLDataType kSingle = {kDLFloat, 32, 1};
constexpr double kMaxHalf = 65504;

Policy PolicyOf(const ir::CallObj* call) {
  static const std::unordered_map<std::string_view, Policy> table = {
#define POLICY(name, policy) {name, Policy::policy},
#include "passes/precision/policy_list.def"
#undef POLICY
  };
  const ir::OpObj* op = ir::CalledOp(call);
  if (op == nullptr) return Policy::kNever;
  auto it = table.find(std::string_view(op->name.data(), op->name.size()));
  return it == table.end() ? Policy::kNever : it->second;
}

// The element type of a tensor; Void for anything else.
DLDataType DtypeOf(const ir::Type& type) {
  auto* tensor = type.defined() ? type.as<ir::TensorTypeObj>() : nullptr;
  return tensor == nullptr ? Void() : tensor->dtype;
}

bool FitsHalf(const ir::Constant& c) {
  if (c->data.dtype() != kSingle) return false;
  const auto* data = static_cast<const float*>(c->data.data_ptr());
  const int64_t n = c->data.numel();
  for (int64_t i = 0; i < n; ++i) {
    if (std::isfinite(data[i]) && std::fabs(data[i]) > kMaxHalf) return false;
  }
  return true;
}

// What the readers of each variable of a block want, found from its end.
class Wishes {
 public:
  explicit Wishes(const ir::Function& func) {
    for (size_t b = func->body->blocks.size(); b-- > 0;) {
      const ir::BindingBlock& block = func->body->blocks[b];
      for (size_t i = block->bindings.size(); i-- > 0;) Binding(block->bindings[i]);
    }
  }
  bool Half(const Var& v) const { return half_.count(v.get()) && !single_.count(v.get()); }
  bool Single(const Var& v) const { return single_.count(v.get()) != 0; }

 private:
  void Want(const Expr& e, Policy policy) {
    if (auto* tuple = e.as<ir::TupleObj>()) {
      for (const Expr& f : tuple->fields) Want(f, policy);
    } else if (e.as<ir::VarObj>()) {
      if (policy == Policy::kAlways) half_.insert(e.get());
      if (policy == Policy::kNever) single_.insert(e.get());
    }
  }
  void Pass(const Var& from, const Expr& to) {
    if (half_.count(from.get())) Want(to, Policy::kAlways);
    if (single_.count(from.get())) Want(to, Policy::kNever);
  }
  void Binding(const ir::Binding& b) {
    const Expr& value = b->value;
    if (b.as<ir::VarBindingObj>()) {
      if (value.as<ir::TupleObj>() || value.as<ir::VarObj>()) return Pass(b->var, value);
      if (auto* item = value.as<ir::TupleGetItemObj>()) return Pass(b->var, item->tuple_value);
      if (auto* call = value.as<ir::CallObj>()) {
        for (const Expr& arg : call->args) Want(arg, PolicyOf(call));
        return;
      }
    }
    class Vars : public ir::Visitor {
     public:
      std::unordered_set<const ffi::Object*>* found = nullptr;
      void VisitVar(const ir::VarObj* v) override { found->insert(v); }
      void VisitOther(const ir::ExprObj*) override {}
    } vars;
    vars.found = &single_;
    vars.Visit(value);
  }
  std::unordered_set<const ffi::Object*> half_, single_;
};

class Converter {
 public:
  Converter(const Wishes& wishes, DLDataType out, ir::BlockBuilder* builder)
      : wishes_(wishes), out_(out), builder_(builder) {}

  // Parameters that the caller gives as half floats.
  void TakeHalf(const Var& param, const Var& half) { now_.insert_or_assign(param.get(), half); }

  ir::BindingBlock Run(const ir::BindingBlock& block, const ffi::Array<Var>& params) {
    builder_->BeginBlock(true);
    casts_.clear();
    if (std::exchange(first_, false)) {
      for (const Var& p : params) {
        const bool cast = DtypeOf(p->ty) == kSingle && wishes_.Half(p) && !now_.count(p.get());
        if (cast) casts_.insert_or_assign(p.get(), Cast(p, kHalf));
      }
    }
    for (const ir::Binding& b : block->bindings) Convert(b);
    return builder_->EndBlock();
  }

 private:
  Expr Now(const Expr& e) const {
    auto it = now_.find(e.get());
    return it == now_.end() ? e : it->second;
  }

  Var Cast(const Expr& e, DLDataType dtype) {
    return builder_->Emit(ops::MakeCall("astype", {e}, {{"dtype", dtype}}));
  }

  // `e` as half floats, or as what it was before (`dtype`).
  Expr As(const Expr& e, DLDataType dtype) {
    if (auto* tuple = e.as<ir::TupleObj>()) {
      return ir::Tuple(tuple->fields.Map([&](const Expr& f) { return As(f, dtype); }), tuple->span);
    }
    const DLDataType before = DtypeOf(e->ty);
    if (before != kSingle) return e.as<ir::VarObj>() ? Restored(e) : e;
    Expr now = Now(e);
    if (DtypeOf(now->ty) == dtype) return now;
    if (dtype == kSingle) return Cast(now, kSingle);
    auto it = casts_.find(e.get());
    if (it != casts_.end()) return it->second;
    Var made = Cast(now, kHalf);
    if (e.as<ir::VarObj>()) casts_.insert_or_assign(e.get(), made);
    return made;
  }

  // A value of tuple type with all its fields as they were.
  Expr Restored(const Expr& e) {
    Expr now = Now(e);
    if (now.same_as(e) || ir::StructuralEqual(now->ty, e->ty)) return now;
    return RestoredAs(now, e->ty);
  }
  Expr RestoredAs(const Expr& now, const ir::Type& wanted) {
    auto* tuple = wanted.as<ir::TupleTypeObj>();
    if (tuple == nullptr) {
      return DtypeOf(now->ty) == DtypeOf(wanted) ? now : Expr(Cast(now, DtypeOf(wanted)));
    }
    ffi::Array<Expr> fields;
    for (size_t i = 0; i < tuple->fields.size(); ++i) {
      Expr item = builder_->Emit(ir::TupleGetItem(now, static_cast<int64_t>(i)));
      fields.push_back(RestoredAs(item, tuple->fields[i]));
    }
    return ir::Tuple(fields);
  }

  // Binds `v` to `value`, which may have half floats where `v` had not.
  void Define(const Var& v, Expr value, bool store_half, const ir::Span& span) {
    value = builder_->Normalize(value);
    const bool leaves = !v.as<ir::DataflowVarObj>();
    if (leaves) {
      if (!ir::StructuralEqual(value->ty, v->ty)) {
        Expr now = value.as<ir::VarObj>() ? value : Expr(builder_->Emit(value));
        value = BindingOf(now, v->ty);
      }
      return builder_->EmitBinding(ir::VarBinding(v, value, span));
    }
    if (store_half && DtypeOf(value->ty) == kSingle && !wishes_.Single(v)) {
      value =
          builder_->Normalize(ops::MakeCall("astype", {builder_->Emit(value)}, {{"dtype", kHalf}}));
    }
    if (ir::StructuralEqual(value->ty, v->ty)) {
      return builder_->EmitBinding(ir::VarBinding(v, value, span));
    }
    Var made = ir::DataflowVar(v->name, value->ty, v->span);
    now_.insert_or_assign(v.get(), made);
    keep_.push_back(v);
    builder_->EmitBinding(ir::VarBinding(made, value, span));
  }

  // The value that gives `now` back in type `wanted`.
  Expr BindingOf(const Expr& now, const ir::Type& wanted) {
    if (!wanted.as<ir::TupleTypeObj>() && DtypeOf(now->ty) != DtypeOf(wanted)) {
      return builder_->Normalize(ops::MakeCall("astype", {now}, {{"dtype", DtypeOf(wanted)}}));
    }
    return builder_->Normalize(RestoredAs(now, wanted));
  }

  void Convert(const ir::Binding& b) {
    if (b.as<ir::VarBindingObj>()) {
      if (auto call = b->value.as<ir::Call>()) return ConvertCall(b, *call);
      if (auto* tuple = b->value.as<ir::TupleObj>()) {
        ffi::Array<Expr> fields = tuple->fields.Map([this](const Expr& f) { return Now(f); });
        return Define(b->var, ir::Tuple(fields, tuple->span), false, b->span);
      }
      if (auto* item = b->value.as<ir::TupleGetItemObj>()) {
        Expr made = ir::TupleGetItem(Now(item->tuple_value), item->index, item->span);
        return Define(b->var, made, false, b->span);
      }
      if (b->value.as<ir::VarObj>()) return Define(b->var, Now(b->value), false, b->span);
    }
    class Restorer : public ir::Mutator {
     public:
      explicit Restorer(Converter* converter) : converter_(converter) {}
      Expr MutateVar(const Var& v) override { return converter_->Restored(v); }
      Expr MutateOther(const Expr& e) override { return e; }

     private:
      Converter* converter_;
    };
    Expr value = Restorer(this).Mutate(b->value);
    if (auto* cast = b.as<ir::MatchCastObj>()) {
      return builder_->EmitBinding(ir::MatchCast(b->var, value, cast->ty, b->span));
    }
    builder_->EmitBinding(ir::VarBinding(b->var, value, b->span));
  }

  enum class Operands : uint8_t { kNone, kSingle, kHalf };
  // What the operands that were single floats are now; constants fit both when they are small.
  void Collect(const Expr& e, Operands* all) const {
    if (auto* tuple = e.as<ir::TupleObj>()) {
      for (const Expr& f : tuple->fields) Collect(f, all);
      return;
    }
    if (DtypeOf(e->ty) != kSingle) return;
    auto constant = e.as<ir::Constant>();
    const bool half = constant ? FitsHalf(*constant) : DtypeOf(Now(e)->ty) == kHalf;
    if (!half) *all = Operands::kSingle;
    if (half && *all == Operands::kNone) *all = Operands::kHalf;
  }

  void ConvertCall(const ir::Binding& b, const ir::Call& call) {
    const Policy policy = PolicyOf(call.get());
    Operands operands = Operands::kNone;
    for (const Expr& arg : call->args) Collect(arg, &operands);
    if (analysis::CallsOp(call, "relax.wrap_param") && DtypeOf(call->args[0]->ty) == kHalf) {
      return Define(b->var, call->args[0], false, b->span);
    }
    const bool always =
        policy == Policy::kAlways && operands != Operands::kNone && DtypeOf(b->var->ty) == kSingle;
    const bool half = always || (policy == Policy::kFollow && operands == Operands::kHalf);
    ffi::Array<Expr> args =
        call->args.Map([&](const Expr& a) { return As(a, half ? kHalf : kSingle); });
    ir::Attrs attrs = call->attrs;
    if (always && attrs.defined() && attrs->values.count("out_dtype")) {
      ffi::Map<ffi::String, ffi::Any> values = attrs->values;
      values.Set("out_dtype", out_);
      attrs = ir::Attrs(values);
    }
    if (!half && args.same_as(call->args)) return Define(b->var, call, false, b->span);
    Expr made =
        ir::Call(call->op, args, attrs, call->ty_args, call->span, half ? ir::Type() : call->ty);
    Define(b->var, made, always, b->span);
  }

  const Wishes& wishes_;
  DLDataType out_;
  ir::BlockBuilder* builder_;
  std::unordered_map<const ffi::Object*, Expr> now_;  // variables that are half floats by now
  std::unordered_map<const ffi::Object*, Expr> casts_;
  std::vector<Var> keep_;
  bool first_ = true;
};

ir::Function Convert(const ir::Function& func, DLDataType out,
                     const std::unordered_set<std::string>& half_inputs, ir::TypeContext* facts) {
  Wishes wishes(func);
  ir::BlockBuilder builder(facts);
  Converter converter(wishes, out, &builder);
  ffi::Array<Var> params = func->params.Map([&](const Var& p) {
    auto* tensor = p->ty.as<ir::TensorTypeObj>();
    if (!half_inputs.count(std::string(p->name)) || tensor == nullptr || tensor->dtype != kSingle) {
      return p;
    }
    ir::Type type = tensor->shape.has_value()
                        ? ir::TensorType(tensor->shape.value(), kHalf, tensor->vdevice)
                        : ir::TensorType(kHalf, tensor->ndim, tensor->vdevice);
    Var half(p->name, type, p->span);
    converter.TakeHalf(p, half);
    return half;
  });
  ffi::Array<ir::BindingBlock> blocks;
  for (const ir::BindingBlock& block : func->body->blocks) {
    const bool dataflow = block.as<ir::DataflowBlockObj>() != nullptr;
    ir::BindingBlock made = dataflow ? converter.Run(block, func->params) : block;
    bool same = made->bindings.size() == block->bindings.size();
    for (size_t i = 0; same && i < made->bindings.size(); ++i) {
      same = made->bindings[i]->var.same_as(block->bindings[i]->var) &&
             made->bindings[i]->value.same_as(block->bindings[i]->value);
    }
    blocks.push_back(same ? block : made);
  }
  // The result is what the body gives, as far as callers can name its sizes.
  std::unordered_set<const ffi::Object*> known;
  for (const Var& p : params) {
    known.insert(p.get());
    for (const Var& v : ir::SymbolicVars(p->ty)) known.insert(v.get());
  }
  ir::Type ret = ir::EraseToVisible(func->body->body->ty,
                                    [&](const Var& v) { return known.count(v.get()) != 0; });
  if (ir::FitsType(func->ret_ty, ret, *facts) == ir::TypeFit::kCheck) ret = func->ret_ty;
  return ir::Function(params, ir::SeqExpr(blocks, func->body->body, func->body->span), ret,
                      func->is_pure, func->attrs, func->span);
}

}  // namespace

IRModule ToMixedPrecision(IRModule mod, const PassContext& context) {
  const std::string name = context.Option<ffi::String>("out_dtype");
  const DLDataType out = ParseDType(name);
  if (out != kHalf && out != kSingle) {
    Fail(ErrorKind::kValueError, "ToMixedPrecision: out_dtype is float32 or float16, not ", name);
  }
  std::unordered_set<std::string> half_inputs;
  if (auto names = context.options["fp16_input_names"].as<ffi::Array<ffi::String>>()) {
    for (const ffi::String& n : names.value()) half_inputs.insert(std::string(n));
  }
  auto facts = ops::MakeTypeContext();
  return ir::MutateFunctions(std::move(mod), [&](const ir::GlobalVar&, const ir::Function& func) {
    return Convert(func, out, half_inputs, facts.get());
  });
}

}  // namespace relaxvm::passes
