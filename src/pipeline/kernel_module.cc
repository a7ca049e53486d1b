// SPDX-License-Identifier: Apache-2.0
// Kernels that cannot be called here say so.
#include "pipeline/kernel_module.h"

#include <algorithm>

#include "support/error.h"
#include "target/kernel_abi.h"

namespace relaxvm::pipeline {

ffi::Module KernelObjects::Make(codegen::KernelSet kernels, std::string why_not) {
  return ffi::Module(ffi::make_object<KernelObjects>(std::move(kernels), std::move(why_not)));
}

ffi::Optional<ffi::Function> KernelObjects::GetFunction(const ffi::String& name) {
  if (why_not_.empty()) return std::nullopt;
  const std::string wanted = name;
  const bool is_ours = std::any_of(
      kernels_.objects.begin(), kernels_.objects.end(), [&](const codegen::KernelObject& object) {
        return std::find(object.names.begin(), object.names.end(), wanted) != object.names.end();
      });
  if (!is_ours && !wanted.starts_with(kCompiledFunctionPrefix)) return std::nullopt;
  return ffi::Function::FromPacked([wanted, why_not = why_not_](ffi::PackedArgs, ffi::Any*) {
    Fail(ErrorKind::kRuntimeError, "the program cannot run here: ", why_not, " (", wanted,
         "); export_library writes it to a file for that machine");
  });
}

}  // namespace relaxvm::pipeline
