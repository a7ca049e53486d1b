// SPDX-License-Identifier: Apache-2.0
// Finds the object files among an executable's imports.
#include "pipeline/kernel_module.h"

#include <cstring>

namespace relaxvm::pipeline {

ffi::Module KernelObjects::Make(codegen::KernelSet kernels) {
  return ffi::Module(ffi::make_object<KernelObjects>(std::move(kernels)));
}

const codegen::KernelSet* KernelObjects::Of(const ffi::Module& executable) {
  for (const ffi::Any& import : executable->imports()) {
    auto module = import.cast<ffi::Module>();
    if (std::strcmp(module->kind(), "relaxvm.KernelObjects") == 0) {
      return &static_cast<const KernelObjects*>(module.get())->kernels_;
    }
  }
  return nullptr;
}

}  // namespace relaxvm::pipeline
