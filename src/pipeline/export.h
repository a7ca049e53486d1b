// SPDX-License-Identifier: Apache-2.0
// Executables and object files as shared libraries.
#pragma once

#include <tvm/ffi/extra/module.h>

#include <string>

#include "ir/module.h"
#include "support/api.h"

namespace relaxvm::pipeline {

enum class Interchange : uint8_t {
  kNone,
  kTvm,  // refuses, by name, what TVM's virtual machine cannot run
};

// Writes a shared library that holds bytecode, constants and kernels of an executable that this
// process compiled, and the object files that it imports.  A path that ends with .a: the same as a
// static library.
RELAXVM_API void ExportLibrary(const tvm::ffi::Module& executable, const std::string& path,
                               Interchange interchange = Interchange::kNone);
// Writes its kernels and imported object files alone.
RELAXVM_API void ExportKernels(const tvm::ffi::Module& executable, const std::string& path);

// The functions that an object file exports as __tvm_ffi_<name>, as a module that ExportLibrary
// links into what imports it.  Runs the file's code in this process: the caller trusts it.
tvm::ffi::Module LoadObjectFile(const std::string& path);

// The code for `target` of the tensor program `name` of a scheduled module, for people to read:
// "asm", assembly, or "ll", LLVM IR before its passes.
std::string InspectSource(const ir::IRModule& mod, const std::string& name,
                          const std::string& target, const std::string& format);

}  // namespace relaxvm::pipeline
