// SPDX-License-Identifier: Apache-2.0
// UpdateVDevice: one entry of the module's list of devices becomes another one, and so do all types
// and calls that name it.  Stage: graph.  Keeps: everything that names other devices.
#include <algorithm>
#include <utility>

#include "ir/visitor.h"
#include "passes/pass.h"

namespace relaxvm::passes {
namespace {

using ir::Expr;
using ir::Type;
using ir::VDevice;

class DeviceReplacer : public ir::Mutator {
 public:
  // `by_value`: no other entry of the list looks like `from`.
  DeviceReplacer(VDevice from, VDevice to, bool by_value)
      : from_(std::move(from)), to_(std::move(to)), by_value_(by_value) {}

  Type MutateType(const Type& type) override {
    if (!type.defined()) return type;
    if (const auto* func = type.as<ir::FuncTypeObj>()) return MutateFuncType(func);
    Type mutated = ir::Mutator::MutateType(type);
    const auto* tensor = mutated.as<ir::TensorTypeObj>();
    if (tensor == nullptr || !tensor->vdevice.has_value() || !Matches(*tensor->vdevice))
      return mutated;
    auto n = ffi::make_object<ir::TensorTypeObj>(*tensor);
    n->vdevice = to_;
    return ir::NodeRef<ir::TensorType>(std::move(n));
  }

  Expr MutateCall(const ir::Call& call) override {
    Expr mutated = ir::Mutator::MutateCall(call);
    const auto* made = mutated.as<ir::CallObj>();
    if (!made->attrs.defined()) return mutated;
    ffi::Map<ffi::String, ffi::Any> values = made->attrs->values;
    bool changed = false;
    for (const auto& [name, value] : made->attrs->values) {
      auto device = value.as<VDevice>();
      if (!device || !Matches(*device)) continue;
      values.Set(name, to_);
      changed = true;
    }
    if (!changed) return mutated;
    return ir::Call(made->op, made->args, ir::Attrs(values), made->ty_args, made->span, made->ty);
  }

  Expr MutateConstant(const ir::Constant& c) override {
    Type type = MutateType(c->ty);
    if (type.same_as(c->ty)) return c;
    auto n = ffi::make_object<ir::ConstantObj>(*c.get());
    n->ty = type;
    return ir::NodeRef<ir::Constant>(std::move(n));
  }
  Expr MutateOther(const Expr& e) override { return e; }

 private:
  bool Matches(const VDevice& device) const {
    return device.same_as(from_) || (by_value_ && ir::StructuralEqual(device, from_));
  }
  Type MutateFuncType(const ir::FuncTypeObj* func) {
    auto n = ffi::make_object<ir::FuncTypeObj>(*func);
    if (func->params.has_value())
      n->params = func->params.value().Map([this](const Type& t) { return MutateType(t); });
    n->ret = MutateType(func->ret);
    const bool same =
        n->ret.same_as(func->ret) &&
        (!func->params.has_value() || n->params.value().same_as(func->params.value()));
    return same ? Type(ffi::GetRef<ir::FuncType>(func))
                : Type(ir::NodeRef<ir::FuncType>(std::move(n)));
  }

  const VDevice from_, to_;
  const bool by_value_;
};

}  // namespace

IRModule UpdateVDevice(IRModule mod, const PassContext& context) {
  const auto device = context.Option<VDevice>("new_vdevice");
  const auto index = context.Option<int64_t>("index");
  ffi::Array<ir::GlobalInfo> devices;
  if (auto it = mod->global_infos.find("vdevice"); it != mod->global_infos.end())
    devices = (*it).second;
  if (index < 0 || index >= static_cast<int64_t>(devices.size())) {
    Fail(ErrorKind::kIndexError, "UpdateVDevice: index ", index,
         " is out of range for a module with ", devices.size(),
         " virtual devices; list them in I.module_global_infos({\"vdevice\": [...]})");
  }
  const VDevice from = devices[index].as<VDevice>().value();
  if (ir::StructuralEqual(from, device)) return mod;
  const auto alike =
      std::count_if(devices.begin(), devices.end(),
                    [&](const ir::GlobalInfo& other) { return ir::StructuralEqual(other, from); });
  mod = ir::MutateFunctions(mod, [&](const ir::GlobalVar&, const ir::Function& func) {
    DeviceReplacer replacer(from, device, alike == 1);
    return replacer.MutateFunction(func).as<ir::Function>().value();
  });
  devices.Set(index, device);
  auto infos = mod->global_infos;
  infos.Set("vdevice", devices);
  return IRModule(mod->functions, mod->attrs, infos);
}

}  // namespace relaxvm::passes
