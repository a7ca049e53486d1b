// SPDX-License-Identifier: Apache-2.0
// Devices, scopes and sizes of tensors; the mark of destination-passing calls.
#include "passes/memory/destination.h"

#include "ir/prim.h"
#include "support/dtype.h"

namespace relaxvm::passes {

namespace ffi = tvm::ffi;

ir::Attrs DestinationPassing() { return ir::Attrs({{"destination_passing", ffi::Any(true)}}); }

bool IsDestinationPassing(const ir::CallObj* call) {
  return call->attrs.defined() && call->attrs->values.count("destination_passing") != 0;
}

int64_t DeviceIndex(const ir::IRModule& mod, const ir::TensorTypeObj* type) {
  if (!type->vdevice.has_value()) return 0;
  auto it = mod->global_infos.find("vdevice");
  if (it != mod->global_infos.end()) {
    const ffi::Array<ir::GlobalInfo>& devices = (*it).second;
    for (size_t i = 0; i < devices.size(); ++i) {
      if (devices[i].same_as(type->vdevice.value())) return static_cast<int64_t>(i);
    }
  }
  return type->vdevice.value()->vdevice_id;
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
