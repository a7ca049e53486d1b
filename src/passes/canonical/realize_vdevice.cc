// SPDX-License-Identifier: Apache-2.0
// RealizeVDevice: every tensor gets a device, and copies go where a value is needed on another one
// than its own.  hint_on_device disappears: it names the device of a value of which nothing else is
// known, and is a copy otherwise.  Devices that only types or calls name are added to the module's
// list.  Stage: graph, and again at the end of `lowered` for constants (they lie on the first
// device; the machine copies one to another device once).  Keeps: order of calls, source spans.
#include <map>
#include <utility>

#include "analysis/core_ops.h"
#include "ir/visitor.h"
#include "passes/canonical/places.h"
#include "passes/pass.h"

namespace relaxvm::passes {
namespace {

using analysis::CoreOp;
using ir::Binding;
using ir::Call;
using ir::CallObj;
using ir::Expr;
using ir::Type;
using ir::Var;
using ir::VarBinding;

class Realizer : public ir::Mutator {
 public:
  Realizer(const Places& places, const DeviceList& devices, bool with_constants)
      : places_(places), devices_(devices), with_constants_(with_constants) {}

  ir::Function Run(const ir::GlobalVar& name, const ir::Function& func) {
    result_ = places_.ResultOf(name.get());
    ffi::Array<Var> params = func->params.Map([this](const Var& p) { return MutateDef(p); });
    Expr body = MutateBody(func->body, *result_);
    Type ret_ty = PlacedType(MutateType(func->ret_ty), *result_);
    if (params.same_as(func->params) && body.same_as(func->body) && ret_ty.same_as(func->ret_ty))
      return func;
    return ir::Function(params, body, ret_ty, func->is_pure, func->attrs, func->span);
  }

  Var MutateDef(const Var& v) override {
    Type ty = PlacedType(MutateType(v->ty), places_.Of(v));
    if (ty.same_as(v->ty)) return v;
    Var fresh = v.as<ir::DataflowVarObj>() ? Var(ir::DataflowVar(v->name, ty, v->span))
                                           : Var(v->name, ty, v->span);
    Replace(v, fresh);
    return fresh;
  }

  ir::BindingBlock MutateBlock(const ir::BindingBlock& block) override {
    bool was_dataflow = std::exchange(in_dataflow_, block.as<ir::DataflowBlockObj>() != nullptr);
    auto outer = copies_;  // a copy is seen by what follows in its scope
    ir::BindingBlock result = ir::Mutator::MutateBlock(block);
    // Variables of a dataflow block are not seen after it.
    if (in_dataflow_) copies_ = std::move(outer);
    in_dataflow_ = was_dataflow;
    return result;
  }

  void MutateBinding(const Binding& binding, ffi::Array<Binding>* out) override {
    if (const auto* branch = binding->value.as<ir::IfObj>()) {
      Place place = places_.Of(binding->var);
      Expr cond = Mutate(branch->cond);
      Expr on_true = MutateBody(branch->true_branch, place);
      Expr on_false = MutateBody(branch->false_branch, place);
      Var var = MutateDef(binding->var);
      bool same = cond.same_as(branch->cond) && on_true.same_as(branch->true_branch) &&
                  on_false.same_as(branch->false_branch) && var.same_as(binding->var);
      if (same) return out->push_back(binding);
      ir::If result(cond, on_true, on_false, branch->span);
      result->ty = PlacedType(MutateType(branch->ty), place);
      return out->push_back(VarBinding(var, result, binding->span));
    }
    const auto* call = binding->value.as<CallObj>();
    if (call != nullptr && binding.as<ir::VarBindingObj>())
      return MutateCallBinding(binding, call, out);
    // An alias, a tuple, an item, a match_cast: what differs is copied under the new name.
    if (binding.as<ir::MatchCastObj>() || binding->value.as<ir::TupleGetItemObj>())
      return ir::Mutator::MutateBinding(binding, out);
    Expr value = Convert(binding->value, places_.Of(binding->var), out);
    Var var = MutateDef(binding->var);
    if (value.same_as(binding->value) && var.same_as(binding->var)) return out->push_back(binding);
    out->push_back(VarBinding(var, value, binding->span));
  }

 private:
  // ---- types

  Type PlacedType(const Type& type, const Place& place) {
    if (const auto* tensor = type.as<ir::TensorTypeObj>()) {
      int device = places_.DeviceOf(place.slot);
      if (device < 0) return type;
      const ir::VDevice& wanted = devices_[device];
      if (tensor->vdevice.has_value() && tensor->vdevice.value().same_as(wanted)) return type;
      if (tensor->shape.has_value())
        return ir::TensorType(tensor->shape.value(), tensor->dtype, wanted);
      return ir::TensorType(tensor->dtype, tensor->ndim, wanted);
    }
    const auto* tuple = type.as<ir::TupleTypeObj>();
    if (tuple == nullptr || tuple->fields.size() != place.fields.size()) return type;
    ffi::Array<Type> fields;
    bool same = true;
    for (size_t i = 0; i < tuple->fields.size(); ++i) {
      fields.push_back(PlacedType(tuple->fields[i], place.fields[i]));
      same = same && fields.back().same_as(tuple->fields[i]);
    }
    return same ? type : Type(ir::TupleType(fields));
  }

  // ---- copies

  // Nothing known is the first device of the list, which the machine uses when nothing is said.
  static int Index(int device) { return device < 0 ? 0 : device; }

  Var Emit(const char* name, Expr value, ffi::Array<Binding>* out) {
    Var var = in_dataflow_ ? Var(ir::DataflowVar(name, value->ty)) : Var(name, value->ty);
    out->push_back(VarBinding(var, value));
    return var;
  }

  // `leaf` (of the old program) rewritten, on `device`.
  Expr OnDevice(const Expr& leaf, int device, ffi::Array<Binding>* out) {
    Expr value = Mutate(leaf);
    if (!NeedsCopy(leaf, Index(device))) return value;
    auto [it, is_new] = copies_.try_emplace({value.get(), Index(device)}, value);
    if (is_new) it->second = Copy(value, Index(device), out);
    return it->second;
  }

  // Of the old program: constants lie on the first device.
  bool NeedsCopy(const Expr& leaf, int device) const {
    bool is_constant = leaf.as<ir::ConstantObj>() != nullptr;
    int from = is_constant ? 0 : Index(places_.DeviceOf(places_.Of(leaf).slot));
    return from != device && (with_constants_ || !is_constant) && !devices_.empty();
  }

  Expr Copy(const Expr& value, int device, ffi::Array<Binding>* out) {
    return Emit("copy", CopyTo(value, device, value->span), out);
  }

  Call CopyTo(const Expr& value, int device, const ir::Span& span) const {
    const auto* tensor = value->ty.as<ir::TensorTypeObj>();
    const ir::VDevice& wanted = devices_[device];
    Type type = tensor->shape.has_value()
                    ? ir::TensorType(tensor->shape.value(), tensor->dtype, wanted)
                    : ir::TensorType(tensor->dtype, tensor->ndim, wanted);
    return Call(analysis::GetCoreOp(CoreOp::kToVDevice), {value},
                ir::Attrs({{"dst_vdevice", ffi::Any(wanted)}}), {}, span, type);
  }

  // `leaf` rewritten, every tensor where `wanted` has it.
  Expr Convert(const Expr& leaf, const Place& wanted, ffi::Array<Binding>* out) {
    if (wanted.slot >= 0) return OnDevice(leaf, places_.DeviceOf(wanted.slot), out);
    if (wanted.fields.empty()) return Mutate(leaf);
    if (const auto* tuple = leaf.as<ir::TupleObj>()) {
      ffi::Array<Expr> fields;
      bool same = true;
      for (size_t i = 0; i < tuple->fields.size(); ++i) {
        fields.push_back(i < wanted.fields.size() ? Convert(tuple->fields[i], wanted.fields[i], out)
                                                  : Mutate(tuple->fields[i]));
        same = same && fields.back().same_as(tuple->fields[i]);
      }
      return same ? leaf : TupleOf(fields, tuple->span);
    }
    Place have = places_.Of(leaf);
    if (Agree(have, wanted)) return Mutate(leaf);
    return Rebuild(Mutate(leaf), have, wanted, out);
  }

  bool Agree(const Place& a, const Place& b) const {
    if (a.slot >= 0 || b.slot >= 0)
      return Index(places_.DeviceOf(a.slot)) == Index(places_.DeviceOf(b.slot));
    for (size_t i = 0; i < std::min(a.fields.size(), b.fields.size()); ++i) {
      if (!Agree(a.fields[i], b.fields[i])) return false;
    }
    return true;
  }

  // A tuple that a variable holds is taken apart: some of its fields are copied.
  Expr Rebuild(const Expr& value, const Place& have, const Place& wanted,
               ffi::Array<Binding>* out) {
    if (wanted.slot >= 0) return Copy(value, Index(places_.DeviceOf(wanted.slot)), out);
    const auto* type = value->ty.as<ir::TupleTypeObj>();
    ffi::Array<Expr> fields;
    for (size_t i = 0; i < type->fields.size(); ++i) {
      ir::TupleGetItem item(value, static_cast<int64_t>(i));
      item->ty = type->fields[i];
      Expr field = Emit("field", item, out);
      bool known = i < have.fields.size() && i < wanted.fields.size();
      fields.push_back(known && !Agree(have.fields[i], wanted.fields[i])
                           ? Rebuild(field, have.fields[i], wanted.fields[i], out)
                           : field);
    }
    return TupleOf(fields, value->span);
  }

  static Expr TupleOf(const ffi::Array<Expr>& fields, const ir::Span& span) {
    ffi::Array<Type> types;
    for (const Expr& field : fields) types.push_back(field->ty);
    ir::Tuple tuple(fields, span);
    tuple->ty = ir::TupleType(types);
    return tuple;
  }

  // ---- calls

  void MutateCallBinding(const Binding& binding, const CallObj* call, ffi::Array<Binding>* out) {
    CoreOp op = analysis::CoreOpOf(call);
    if (op == CoreOp::kHintOnDevice || op == CoreOp::kToVDevice)
      return MutateCopyBinding(binding, call, out);
    ffi::Array<Expr> args;
    if (const auto* callee = call->op.as<ir::GlobalVarObj>(); callee && places_.ParamsOf(callee)) {
      const std::vector<Place>& params = *places_.ParamsOf(callee);
      for (size_t i = 0; i < call->args.size(); ++i) {
        args.push_back(i < params.size() ? Convert(call->args[i], params[i], out)
                                         : Mutate(call->args[i]));
      }
    } else if (RunsWhereTensorsLie(call)) {
      int device = places_.DeviceOf(call, binding->var);
      for (const Expr& arg : call->args) args.push_back(AllOnDevice(arg, device, out));
    } else {
      args = MutateAll(call->args);
    }
    Var var = MutateDef(binding->var);
    Place place = places_.Of(binding->var);
    Type ty = PlacedType(MutateType(call->ty), place);
    ffi::Array<Type> ty_args =
        call->ty_args.Map([&](const Type& t) { return PlacedType(MutateType(t), place); });
    bool same = ty.same_as(call->ty) && var.same_as(binding->var) && ty_args.same_as(call->ty_args);
    for (size_t i = 0; i < args.size(); ++i) same = same && args[i].same_as(call->args[i]);
    if (same) return out->push_back(binding);
    Call result(Mutate(call->op), args, call->attrs, ty_args, call->span, ty);
    out->push_back(VarBinding(var, result, binding->span));
  }

  // to_vdevice, or a hint: the copy that later uses take as well, or another name for what is
  // there.
  void MutateCopyBinding(const Binding& binding, const CallObj* call, ffi::Array<Binding>* out) {
    const Expr& leaf = call->args[0];
    int device = Index(places_.DeviceOf(places_.Of(binding->var).slot));
    Expr value = Mutate(leaf);
    auto known = copies_.find({value.get(), device});
    Var var = MutateDef(binding->var);
    if (!NeedsCopy(leaf, device) || known != copies_.end()) {
      Expr alias = known != copies_.end() ? known->second : value;
      return out->push_back(VarBinding(var, alias, binding->span));
    }
    copies_[{value.get(), device}] = var;
    bool same = analysis::CoreOpOf(call) == CoreOp::kToVDevice && value.same_as(leaf) &&
                var.same_as(binding->var);
    if (same) return out->push_back(binding);
    out->push_back(VarBinding(var, CopyTo(value, device, call->span), binding->span));
  }

  // Every tensor in an argument on one device.
  Expr AllOnDevice(const Expr& arg, int device, ffi::Array<Binding>* out) {
    if (arg->ty.as<ir::TensorTypeObj>()) return OnDevice(arg, device, out);
    if (const auto* tuple = arg.as<ir::TupleObj>()) {
      ffi::Array<Expr> fields;
      bool same = true;
      for (const Expr& field : tuple->fields) {
        fields.push_back(AllOnDevice(field, device, out));
        same = same && fields.back().same_as(field);
      }
      return same ? arg : TupleOf(fields, tuple->span);
    }
    Place have = places_.Of(arg);
    if (have.fields.empty() || AllAre(have, device)) return Mutate(arg);
    return Gather(Mutate(arg), have, device, out);
  }

  bool AllAre(const Place& place, int device) const {
    if (place.slot >= 0) return Index(places_.DeviceOf(place.slot)) == Index(device);
    for (const Place& field : place.fields) {
      if (!AllAre(field, device)) return false;
    }
    return true;
  }

  Expr Gather(const Expr& value, const Place& have, int device, ffi::Array<Binding>* out) {
    if (have.slot >= 0) return AllAre(have, device) ? value : Copy(value, Index(device), out);
    const auto* type = value->ty.as<ir::TupleTypeObj>();
    ffi::Array<Expr> fields;
    for (size_t i = 0; i < type->fields.size(); ++i) {
      ir::TupleGetItem item(value, static_cast<int64_t>(i));
      item->ty = type->fields[i];
      fields.push_back(Gather(Emit("field", item, out), have.fields[i], device, out));
    }
    return TupleOf(fields, value->span);
  }

  // A body whose result is needed at `wanted`.
  Expr MutateBody(const ir::SeqExpr& seq, const Place& wanted) {
    auto outer = copies_;
    bool was_dataflow = std::exchange(in_dataflow_, false);
    ffi::Array<ir::BindingBlock> blocks;
    bool same = true;
    for (const ir::BindingBlock& block : seq->blocks) {
      blocks.push_back(MutateBlock(block));
      same = same && blocks.back().same_as(block);
    }
    ffi::Array<Binding> tail;
    Expr body = Convert(seq->body, wanted, &tail);
    if (!tail.empty()) Append(tail, &blocks);
    copies_ = std::move(outer);
    in_dataflow_ = was_dataflow;
    if (same && tail.empty() && body.same_as(seq->body)) return seq;
    return ir::SeqExpr(blocks, body, seq->span);
  }

  static void Append(const ffi::Array<Binding>& tail, ffi::Array<ir::BindingBlock>* blocks) {
    ffi::Array<Binding> bindings;
    bool joins = !blocks->empty() && !blocks->back().as<ir::DataflowBlockObj>();
    if (joins) {
      bindings = blocks->back()->bindings;
      blocks->pop_back();
    }
    for (const Binding& binding : tail) bindings.push_back(binding);
    blocks->push_back(ir::BindingBlock(bindings));
  }

  const Places& places_;
  const DeviceList& devices_;
  const bool with_constants_;
  const Place* result_ = nullptr;
  bool in_dataflow_ = false;
  std::map<std::pair<const ffi::Object*, int>, Expr> copies_;  // (value, device) -> copy
};

// Whether anything in the module names a device.
class DeviceFinder : public ir::Visitor {
 public:
  bool found = false;
  void VisitDef(const Var& var) override { VisitType(var->ty); }
  void VisitType(const Type& type) override {
    if (const auto* tensor = type.as<ir::TensorTypeObj>()) {
      found = found || tensor->vdevice.has_value();
    } else if (const auto* tuple = type.as<ir::TupleTypeObj>()) {
      for (const Type& field : tuple->fields) VisitType(field);
    }
  }
  void VisitCall(const CallObj* call) override {
    CoreOp op = analysis::CoreOpOf(call);
    found = found || op == CoreOp::kToVDevice || op == CoreOp::kHintOnDevice;
    for (const Type& type : call->ty_args) VisitType(type);
    ir::Visitor::VisitCall(call);
  }
  void VisitFunction(const ir::FunctionObj* func) override {
    VisitType(func->ret_ty);
    ir::Visitor::VisitFunction(func);
  }
};

bool NamesDevices(const IRModule& mod) {
  DeviceFinder finder;
  for (const auto& [var, func] : mod->functions) {
    if (func.as<ir::FunctionObj>() && !finder.found) finder.Visit(func);
  }
  return finder.found;
}

}  // namespace

IRModule RealizeVDevice(IRModule mod, const PassContext& context) {
  if (!NamesDevices(mod)) return mod;
  DeviceList devices(mod);
  Places places(mod, &devices);
  bool with_constants = context.Option<bool>("constants");
  IRModule result =
      ir::MutateFunctions(mod, [&](const ir::GlobalVar& var, const ir::Function& func) {
        return Realizer(places, devices, with_constants).Run(var, func);
      });
  return devices.WriteTo(result);
}

}  // namespace relaxvm::passes
