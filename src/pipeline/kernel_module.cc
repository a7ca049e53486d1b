// SPDX-License-Identifier: Apache-2.0
// Makes the module.
#include "pipeline/kernel_module.h"

namespace relaxvm::pipeline {

ffi::Module KernelObjects::Make(codegen::KernelSet kernels) {
  return ffi::Module(ffi::make_object<KernelObjects>(std::move(kernels)));
}

}  // namespace relaxvm::pipeline
