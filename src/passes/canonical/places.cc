// SPDX-License-Identifier: Apache-2.0
// Three walks: what is said (types, to_vdevice, hints), what follows from operators in the order of
// the program, and at last hints for values of which nothing else is known.
#include "passes/canonical/places.h"

#include <numeric>

#include "analysis/core_ops.h"
#include "ir/visitor.h"
#include "passes/memory/destination.h"
#include "tir/stmt.h"

namespace relaxvm::passes {

using analysis::CoreOp;
using ir::CallObj;
using ir::Expr;

DeviceList::DeviceList(const ir::IRModule& mod) {
  auto it = mod->global_infos.find("vdevice");
  if (it == mod->global_infos.end()) return;
  for (const ir::GlobalInfo& info : (*it).second) {
    if (auto device = info.as<ir::VDevice>()) devices_.push_back(*device);
  }
}

int DeviceList::IndexOf(const ir::VDevice& device) {
  for (size_t i = 0; i < devices_.size(); ++i) {
    if (devices_[i].same_as(device) || ir::StructuralEqual(devices_[i], device))
      return static_cast<int>(i);
  }
  // The same device, said in other words: "llvm" for "llvm -mcpu=...".
  std::optional<DLDevice> wanted = TryDeviceOf(device);
  for (size_t i = 0; wanted && i < devices_.size(); ++i) {
    std::optional<DLDevice> known = TryDeviceOf(devices_[i]);
    bool same = known && known->device_type == wanted->device_type &&
                known->device_id == wanted->device_id &&
                devices_[i]->memory_scope == device->memory_scope;
    if (same) return static_cast<int>(i);
  }
  devices_.push_back(device);
  has_grown_ = true;
  return static_cast<int>(devices_.size()) - 1;
}

ir::IRModule DeviceList::WriteTo(ir::IRModule mod) const {
  if (!has_grown_) return mod;
  ffi::Array<ir::GlobalInfo> infos(devices_.begin(), devices_.end());
  mod.CopyOnWrite()->global_infos.Set("vdevice", infos);
  return mod;
}

bool RunsWhereTensorsLie(const CallObj* call) {
  if (!call->op.as<ir::OpObj>()) return false;
  switch (analysis::CoreOpOf(call)) {
    case CoreOp::kNone:
    case CoreOp::kCallDpsPacked:
    case CoreOp::kCallTir:
    case CoreOp::kCallTirInplace:
    case CoreOp::kCallTirWithGrad:
    case CoreOp::kEnsureZeroOffset:
    case CoreOp::kReshape:
    case CoreOp::kStopLiftParams:
    case CoreOp::kView: return true;
    default: return false;
  }
}

std::vector<Expr> TensorArguments(const CallObj* call) {
  std::vector<Expr> result;
  for (const Expr& arg : call->args) {
    if (const auto* tuple = arg.as<ir::TupleObj>()) {
      for (const Expr& field : tuple->fields) result.push_back(field);
    } else {
      result.push_back(arg);
    }
  }
  std::erase_if(result, [](const Expr& e) {
    return !e->ty.as<ir::TensorTypeObj>() && !e->ty.as<ir::TupleTypeObj>();
  });
  return result;
}

int Places::NewSlot(int device) {
  parent_.push_back(static_cast<int>(parent_.size()));
  device_.push_back(device);
  return parent_.back();
}

Place Places::PlaceOfType(const ir::Type& type, DeviceList* devices) {
  Place place;
  if (const auto* tensor = type.as<ir::TensorTypeObj>()) {
    bool is_said = tensor->vdevice.has_value() && devices != nullptr;
    place.slot = NewSlot(is_said ? devices->IndexOf(tensor->vdevice.value()) : -1);
  } else if (const auto* tuple = type.as<ir::TupleTypeObj>()) {
    for (const ir::Type& field : tuple->fields) place.fields.push_back(PlaceOfType(field, devices));
  }
  return place;
}

int Places::Find(int slot) const {
  while (parent_[slot] != slot) {
    parent_[slot] = parent_[parent_[slot]];
    slot = parent_[slot];
  }
  return slot;
}

// Two tensors of different devices stay apart: a copy goes between them.
void Places::Unify(const Place& a, const Place& b) {
  if (a.slot >= 0 && b.slot >= 0) {
    int x = Find(a.slot), y = Find(b.slot);
    if (x == y || (device_[x] >= 0 && device_[y] >= 0 && device_[x] != device_[y])) return;
    if (device_[x] < 0) device_[x] = device_[y];
    parent_[y] = x;
    return;
  }
  for (size_t i = 0; i < std::min(a.fields.size(), b.fields.size()); ++i)
    Unify(a.fields[i], b.fields[i]);
}

void Places::Fix(const Place& place, int device) {
  if (place.slot >= 0) device_[Find(place.slot)] = device;
  for (const Place& field : place.fields) Fix(field, device);
}

Place Places::Of(const Expr& leaf) const {
  if (const auto* tuple = leaf.as<ir::TupleObj>()) {
    Place place;
    for (const Expr& field : tuple->fields) place.fields.push_back(Of(field));
    return place;
  }
  auto it = places_.find(leaf.get());
  return it == places_.end() ? Place() : it->second;
}

const std::vector<Place>* Places::ParamsOf(const ir::GlobalVarObj* func) const {
  auto it = params_.find(func);
  return it == params_.end() ? nullptr : &it->second;
}

const Place* Places::ResultOf(const ir::GlobalVarObj* func) const {
  auto it = results_.find(func);
  return it == results_.end() ? nullptr : &it->second;
}

int Places::DeviceOf(int slot) const { return slot < 0 ? -1 : device_[Find(slot)]; }

namespace {

// The first tensor's slot.
int FirstSlot(const Place& place) {
  if (place.slot >= 0) return place.slot;
  for (const Place& field : place.fields) {
    if (int slot = FirstSlot(field); slot >= 0) return slot;
  }
  return -1;
}

}  // namespace

int Places::DeviceOf(const CallObj* call, const ir::Var& result) const {
  int slot = FirstSlot(Of(result));
  for (const Expr& arg : TensorArguments(call)) {
    if (slot < 0) slot = FirstSlot(Of(arg));
  }
  return DeviceOf(slot);
}

class PlaceFinder {
 public:
  PlaceFinder(const ir::IRModule& mod, DeviceList* devices, Places* places)
      : mod_(mod), devices_(*devices), places_(*places) {}

  void Run() {
    for (bool is_first : {true, false}) {
      for (const auto& [var, func] : mod_->functions) {
        const auto* function = func.as<ir::FunctionObj>();
        if (function == nullptr) continue;
        if (is_first) Declare(var.get(), function);
        if (!is_first) Follow(var.get(), function);
      }
    }
    for (const auto& [from, to] : hints_) {
      if (places_.DeviceOf(from.slot) < 0) places_.Unify(to, from);
    }
  }

 private:
  // ---- what is said

  void Declare(const ir::GlobalVarObj* name, const ir::FunctionObj* func) {
    std::vector<Place>& params = places_.params_[name];
    for (const ir::Var& param : func->params) {
      Place place = places_.PlaceOfType(param->ty, &devices_);
      places_.places_[param.get()] = place;
      params.push_back(place);
    }
    places_.results_[name] = places_.PlaceOfType(func->ret_ty, &devices_);
    DeclareSeq(func->body.get());
  }

  void DeclareSeq(const ir::SeqExprObj* seq) {
    for (const ir::BindingBlock& block : seq->blocks) {
      for (const ir::Binding& binding : block->bindings) DeclareBinding(binding);
    }
  }

  // Types that were derived say nothing of their own.
  static bool SaysDevice(const ir::Binding& binding) {
    const auto* call = binding->value.as<CallObj>();
    return binding.as<ir::MatchCastObj>() ||
           (call != nullptr && !RunsWhereTensorsLie(call) && !call->op.as<ir::GlobalVarObj>());
  }

  void DeclareBinding(const ir::Binding& binding) {
    Place place = places_.PlaceOfType(binding->var->ty, SaysDevice(binding) ? &devices_ : nullptr);
    places_.places_[binding->var.get()] = place;
    if (const auto* branch = binding->value.as<ir::IfObj>()) {
      DeclareSeq(branch->true_branch.get());
      DeclareSeq(branch->false_branch.get());
    }
    const auto* call = binding->value.as<CallObj>();
    if (call == nullptr) return;
    if (!call->ty_args.empty() && !call->op.as<ir::GlobalVarObj>())
      places_.Unify(place, places_.PlaceOfType(call->ty_args[0], &devices_));
    switch (analysis::CoreOpOf(call)) {
      case CoreOp::kToVDevice:
        places_.Fix(place,
                    devices_.IndexOf(call->attrs->values["dst_vdevice"].cast<ir::VDevice>()));
        break;
      case CoreOp::kHintOnDevice: places_.Fix(place, HintedDevice(call)); break;
      default: break;
    }
  }

  // The type rule of a hint names the device.
  int HintedDevice(const CallObj* call) {
    const auto* type = call->ty.as<ir::TensorTypeObj>();
    RELAXVM_CHECK(type != nullptr && type->vdevice.has_value()) << "a hint without a device";
    return devices_.IndexOf(type->vdevice.value());
  }

  // ---- what follows

  void Follow(const ir::GlobalVarObj* name, const ir::FunctionObj* func) {
    FollowSeq(func->body.get());
    places_.Unify(places_.results_[name], places_.Of(func->body->body));
  }

  void FollowSeq(const ir::SeqExprObj* seq) {
    for (const ir::BindingBlock& block : seq->blocks) {
      for (const ir::Binding& binding : block->bindings)
        FollowValue(places_.Of(binding->var), binding->value);
    }
  }

  void FollowValue(const Place& place, const Expr& value) {
    if (const auto* branch = value.as<ir::IfObj>()) {
      for (const ir::SeqExpr& seq : {branch->true_branch, branch->false_branch}) {
        FollowSeq(seq.get());
        places_.Unify(place, places_.Of(seq->body));
      }
    } else if (const auto* item = value.as<ir::TupleGetItemObj>()) {
      Place tuple = places_.Of(item->tuple_value);
      if (static_cast<size_t>(item->index) < tuple.fields.size())
        places_.Unify(tuple.fields[static_cast<size_t>(item->index)], place);
    } else if (const auto* call = value.as<CallObj>()) {
      FollowCall(place, call);
    } else {
      places_.Unify(places_.Of(value), place);
    }
  }

  void FollowCall(const Place& place, const CallObj* call) {
    if (const auto* callee = call->op.as<ir::GlobalVarObj>()) {
      const std::vector<Place>* params = places_.ParamsOf(callee);
      if (params == nullptr) return;
      for (size_t i = 0; i < std::min(params->size(), call->args.size()); ++i)
        places_.Unify((*params)[i], places_.Of(call->args[i]));
      places_.Unify(*places_.ResultOf(callee), place);
      return;
    }
    if (analysis::CoreOpOf(call) == CoreOp::kHintOnDevice) {
      hints_.emplace_back(places_.Of(call->args[0]), place);
      return;
    }
    if (!RunsWhereTensorsLie(call)) return;
    // All in one: what the result says comes first, then the arguments in order.
    std::vector<int> slots;
    Collect(place, &slots);
    for (const Expr& arg : TensorArguments(call)) Collect(places_.Of(arg), &slots);
    for (size_t i = 1; i < slots.size(); ++i) places_.Unify({slots[0], {}}, {slots[i], {}});
  }

  static void Collect(const Place& place, std::vector<int>* slots) {
    if (place.slot >= 0) slots->push_back(place.slot);
    for (const Place& field : place.fields) Collect(field, slots);
  }

  const ir::IRModule& mod_;
  DeviceList& devices_;
  Places& places_;
  std::vector<std::pair<Place, Place>> hints_;  // what is hinted at, and the result
};

Places::Places(const ir::IRModule& mod, DeviceList* devices) {
  PlaceFinder(mod, devices, this).Run();
}

}  // namespace relaxvm::passes
