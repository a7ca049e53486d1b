// SPDX-License-Identifier: Apache-2.0
// Calls that act at run time, and marks for passes: assert, print, null, devices, lifted
// parameters.
#include <dlpack/dlpack.h>

#include "ir/prim.h"
#include "ops/op_def.h"

namespace relaxvm::ops {
namespace {

struct ToVDevice {
  ffi::Any dst_vdevice = nullptr;
};
struct HintOnDevice {
  int64_t device_type = 1;  // kDLCPU
  int64_t index = 0;
  std::string memory_scope = "global";
};
struct WrapParam {
  DLDataType dtype = Float(32);
};

void CheckFormat(const TypeCtx& ctx, size_t i) {
  if (ctx.Has(i) && ctx.arg(i).as<ir::StringImmObj>() == nullptr) {
    ctx.Error(ErrorKind::kTypeError, "format must be a string, R.str(...)");
  }
}

Type InferAssert(TypeCtx& ctx, const NoAttrs&) {
  if (!ctx.Has(0)) ctx.Error(ErrorKind::kTypeError, "condition must be given");
  Type ty = ctx.type(0);
  bool fits = false;
  if (const auto* prim = ty.as<ir::PrimTypeObj>()) fits = IsBool(prim->dtype);
  if (const auto* t = ty.as<ir::TensorTypeObj>()) {
    fits = (t->IsUnknownDtype() || IsBool(t->dtype)) && (t->IsUnknownRank() || t->ndim == 0);
  }
  if (ty.as<ir::AnyTypeObj>() != nullptr) fits = true;
  if (!fits) {
    ctx.Error(ErrorKind::kTypeError,
              "condition must be a bool: a scalar or a tensor without dimensions, got ",
              DescribeType(ty));
  }
  CheckFormat(ctx, 1);
  return ir::VoidType();
}

Type InferPrint(TypeCtx& ctx, const NoAttrs&) {
  CheckFormat(ctx, 0);
  return ir::VoidType();
}

Type InferToVDevice(TypeCtx& ctx, const ToVDevice& a) {
  TensorType x = ctx.Tensor(0);
  auto device = a.dst_vdevice.try_cast<ir::VDevice>();
  if (!device) ctx.Error(ErrorKind::kTypeError, "dst_vdevice must be a virtual device");
  if (x->shape.has_value()) return TensorType(x->shape.value(), x->dtype, *device);
  return TensorType(x->dtype, x->ndim, *device);
}

// The name of a kind of device as a target; null when it has none.
const char* TargetOfKind(int64_t device_type) {
  switch (device_type) {
    case kDLCPU: return "llvm";
    case kDLCUDA: return "cuda";
    case kDLExtDev: return "null";
    default: return nullptr;
  }
}

Type InferHint(TypeCtx& ctx, const HintOnDevice& a) {
  TensorType x = ctx.Tensor(0);
  const char* target = TargetOfKind(a.device_type);
  if (target == nullptr) {
    ctx.Error(ErrorKind::kValueError, "device_type ", a.device_type,
              " is no device that programs can name; use cpu() or null()");
  }
  ir::VDevice device(target, a.index, a.memory_scope);
  if (x->shape.has_value()) return TensorType(x->shape.value(), x->dtype, device);
  return TensorType(x->dtype, x->ndim, device);
}

}  // namespace

OpDef assert_op() {
  return Define<NoAttrs>({
      .name = "assert_op",
      .doc = "Stops the program with an error unless `condition` is true.",
      .args = {{"condition", "A bool.", ArgKind::kAny},
               {"format", "The message; {} stands for a value.", ArgKind::kString, true}},
      .type = InferAssert,
      .effect = Effect::kImpure,
      .variadic = true,
      .packed = "relax.run.assert_op",
  });
}

// Pure, so that a function that is not defined for every value may be; but never merged, moved to
// compile time or given another place.
OpDef fatal() {
  return Define<NoAttrs>({
      .name = "fatal",
      .doc = "Ends the run with an error: what is computed here is not defined.  Fits every type.",
      .args = {{"message", "What is wrong.", ArgKind::kString, true}},
      .type = [](TypeCtx&, const NoAttrs&) -> Type { return ir::NothingType(); },
      .effect = Effect::kAllocates,
  });
}

OpDef print() {
  return Define<NoAttrs>({
      .name = "print",
      .doc = "Prints values.",
      .args = {{"format", "The text; {} stands for a value.", ArgKind::kString}},
      .type = InferPrint,
      .effect = Effect::kImpure,
      .variadic = true,
      .packed = "relax.run.print",
  });
}

OpDef null_value() {
  return Define<NoAttrs>({
      .name = "null_value",
      .doc = "None.",
      .type = [](TypeCtx&, const NoAttrs&) -> Type { return ir::AnyType(); },
  });
}

OpDef to_vdevice() {
  return Define<ToVDevice>({
      .name = "to_vdevice",
      .doc = "The tensor on another device.",
      .args = {{"data", "The tensor."}},
      .attrs = {{"dst_vdevice", &ToVDevice::dst_vdevice, "The device.", true}},
      .type = InferToVDevice,
  });
}

OpDef hint_on_device() {
  return Define<HintOnDevice>({
      .name = "hint_on_device",
      .doc = "Says where a tensor lies; a pass that places tensors follows it.",
      .args = {{"data", "The tensor."}},
      .attrs = {{"device_type", &HintOnDevice::device_type, "The kind of device, DLPack's number."},
                {"index", &HintOnDevice::index, "Which device of that kind."},
                {"memory_scope", &HintOnDevice::memory_scope, "Where on the device."}},
      .type = InferHint,
  });
}

OpDef wrap_param() {
  return Define<WrapParam>({
      .name = "wrap_param",
      .doc = "A weight that a pass stores in another element type.",
      .args = {{"data", "The weight."}},
      .attrs = {{"dtype", &WrapParam::dtype, "The element type that the program sees."}},
      .type = [](TypeCtx& ctx, const WrapParam& a) -> Type {
        return ctx.Like(ctx.Tensor(0), a.dtype);
      },
  });
}

OpDef builtin_stop_lift_params() {
  return Define<NoAttrs>({
      .name = "builtin.stop_lift_params",
      .doc = "The tensor; keeps what is computed from it out of the transformation of weights.",
      .args = {{"x", "The tensor."}},
      .type = [](TypeCtx& ctx, const NoAttrs&) -> Type { return ctx.Tensor(0); },
  });
}

}  // namespace relaxvm::ops
