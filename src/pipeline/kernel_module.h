// SPDX-License-Identifier: Apache-2.0
// The object files behind an executable in memory, as a module that it imports: what a file is made
// from.
#pragma once

#include <tvm/ffi/extra/module.h>

#include "codegen/llvm/kernels.h"

namespace relaxvm::pipeline {

namespace ffi = tvm::ffi;

class KernelObjects final : public ffi::ModuleObj {
 public:
  explicit KernelObjects(codegen::KernelSet kernels) : kernels_(std::move(kernels)) {}
  static ffi::Module Make(codegen::KernelSet kernels);

  const char* kind() const final { return "relaxvm.KernelObjects"; }
  ffi::Optional<ffi::Function> GetFunction(const ffi::String& name) final { return std::nullopt; }
  const codegen::KernelSet& kernels() const { return kernels_; }

 private:
  codegen::KernelSet kernels_;
};

}  // namespace relaxvm::pipeline
