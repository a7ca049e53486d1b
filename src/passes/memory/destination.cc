// SPDX-License-Identifier: Apache-2.0
// Devices, scopes and sizes of tensors; the mark of destination-passing calls.
#include "passes/memory/destination.h"

#include <string_view>

#include "ir/prim.h"
#include "ir/visitor.h"
#include "support/dtype.h"
#include "support/error.h"

namespace relaxvm::passes {

namespace ffi = tvm::ffi;

ir::Attrs DestinationPassing() { return ir::Attrs({{"destination_passing", ffi::Any(true)}}); }

bool IsDestinationPassing(const ir::CallObj* call) {
  return call->attrs.defined() && call->attrs->values.count("destination_passing") != 0;
}

namespace {

constexpr DLDeviceType kNullDevice = kDLExtDev;  // runtime/device.h

struct DeviceRow {
  std::string_view target;
  DLDeviceType type;
};
constexpr DeviceRow kDevices[] = {{"llvm", kDLCPU},
                                  {"cpu", kDLCPU},
                                  {"c", kDLCPU},
                                  {"null", kNullDevice},
                                  {"ext_dev", kNullDevice}};

}  // namespace

std::optional<DLDevice> TryDeviceOf(const ir::VDevice& device) {
  std::string target = device->target;
  std::string kind = target.substr(0, target.find(' '));
  for (const DeviceRow& row : kDevices) {
    if (row.target == kind) return DLDevice{row.type, static_cast<int32_t>(device->vdevice_id)};
  }
  return std::nullopt;
}

DLDevice DeviceOf(const ir::VDevice& device) {
  if (auto result = TryDeviceOf(device)) return *result;
  Fail(ErrorKind::kNotImplementedError, "target '", std::string(device->target),
       "' of a virtual device has no device in this build; use \"llvm\" or \"null\"");
}

int64_t DeviceIndex(const ir::IRModule& mod, const ir::TensorTypeObj* type) {
  if (!type->vdevice.has_value()) return 0;
  const ir::VDevice& device = type->vdevice.value();
  auto it = mod->global_infos.find("vdevice");
  if (it != mod->global_infos.end()) {
    const ffi::Array<ir::GlobalInfo>& devices = (*it).second;
    for (size_t i = 0; i < devices.size(); ++i) {
      if (devices[i].same_as(device) || ir::StructuralEqual(devices[i], device))
        return static_cast<int64_t>(i);
    }
  }
  Fail(ErrorKind::kValueError, "device ", std::string(device->target), ":", device->vdevice_id,
       " of a tensor is not among the module's devices; list it in I.module_global_infos, or run "
       "RealizeVDevice");
}

ffi::String MemoryScope(const ir::TensorTypeObj* type) {
  return type->vdevice.has_value() ? type->vdevice.value()->memory_scope : ffi::String("global");
}

ir::Expr BytesOf(const ffi::Array<ir::Expr>& shape, DLDataType dtype) {
  ir::Expr elems = ir::IntImm(Int(64), 1);
  for (const ir::Expr& dim : shape) elems = elems * ir::Cast(Int(64), dim);
  int64_t bits = int64_t{dtype.bits} * dtype.lanes;
  if (bits % 8 == 0) return elems * ir::IntImm(Int(64), bits / 8);
  return ir::FloorDiv(elems * ir::IntImm(Int(64), bits) + ir::IntImm(Int(64), 7),
                      ir::IntImm(Int(64), 8));
}

}  // namespace relaxvm::passes
