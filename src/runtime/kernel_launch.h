// SPDX-License-Identifier: Apache-2.0
// Runs a kernel where its tensors are: at once on a CPU, through the device's queue elsewhere.
#pragma once

#include <tvm/ffi/object.h>

#include <cstdint>
#include <span>

#include "target/kernel_abi.h"

namespace relaxvm::runtime {

// Throws ValueError unless the tensors lie on one device, in memory of that device, and kernels can
// run there.  Returns what the kernel does, with its error in the context's slot; 0 for a kernel
// that was queued, whose error the next synchronisation throws.  `code` keeps the kernel's code
// until then.
int RunKernel(const RelaxvmKernelEntry& kernel, std::span<const DLTensor* const> tensors,
              std::span<const int64_t> scalars, const RelaxvmKernelContext* context,
              tvm::ffi::ObjectRef code);

}  // namespace relaxvm::runtime
