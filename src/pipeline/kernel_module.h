// SPDX-License-Identifier: Apache-2.0
// The object files behind an executable in memory, as a module that it imports: what a file is made
// from.  Where the code is for another machine, they stand in for the kernels, and calling one is
// an error.
#pragma once

#include <tvm/ffi/extra/module.h>

#include "codegen/llvm/kernels.h"

namespace relaxvm::pipeline {

namespace ffi = tvm::ffi;

class KernelObjects final : public ffi::ModuleObj {
 public:
  // `why_not`: why the code cannot run here; empty when it can, and is loaded elsewhere.
  KernelObjects(codegen::KernelSet kernels, std::string why_not)
      : kernels_(std::move(kernels)), why_not_(std::move(why_not)) {}
  static ffi::Module Make(codegen::KernelSet kernels, std::string why_not);

  const char* kind() const final { return "relaxvm.KernelObjects"; }
  ffi::Optional<ffi::Function> GetFunction(const ffi::String& name) final;
  const codegen::KernelSet& kernels() const { return kernels_; }

 private:
  codegen::KernelSet kernels_;
  std::string why_not_;
};

}  // namespace relaxvm::pipeline
