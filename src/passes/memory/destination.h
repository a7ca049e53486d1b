// SPDX-License-Identifier: Apache-2.0
// What the memory passes agree on: where a tensor lies, and how a call is marked that writes its
// results into arguments.
#pragma once

#include <optional>

#include "ir/expr.h"
#include "ir/module.h"

namespace relaxvm::passes {

// Attributes of a call to a packed function that writes into its last arguments and keeps none of
// them.
ir::Attrs DestinationPassing();
bool IsDestinationPassing(const ir::CallObj* call);

// The device that a virtual device stands for.  Throws NotImplementedError when this build has none
// for its target.
DLDevice DeviceOf(const ir::VDevice& device);
// Nothing instead.
std::optional<DLDevice> TryDeviceOf(const ir::VDevice& device);

// Which device of the VM a tensor lives on: the place of its vdevice in the module's list, 0
// without one.  RealizeVDevice lists them all.
int64_t DeviceIndex(const ir::IRModule& mod, const ir::TensorTypeObj* type);
tvm::ffi::String MemoryScope(const ir::TensorTypeObj* type);

// Number of bytes of a tensor, rounded up to whole bytes; an int64 expression.
ir::Expr BytesOf(const tvm::ffi::Array<ir::Expr>& shape, DLDataType dtype);

}  // namespace relaxvm::passes
