// SPDX-License-Identifier: Apache-2.0
// What kernels that TVM compiled ask of their host.  They reach it through pointers that their own
// library exports; only these are written, no name is registered for the process.
#pragma once

#include "runtime/platform/library.h"

namespace relaxvm::runtime {

// Fills the context slots of a library that TVM exported; does nothing to other libraries.
// `module` (a tvm::ffi::ModuleObj) is where its kernels look for functions of other modules.
void FillTvmSlots(const SharedLibrary& library, void* module);

}  // namespace relaxvm::runtime
