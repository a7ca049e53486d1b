// SPDX-License-Identifier: Apache-2.0
// Turns a verified executable into a program: binds every function, lowers, allocates frame slots,
// emits.
#pragma once

#include <tvm/ffi/function.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "vm/lower.h"
#include "vm/program.h"

namespace relaxvm::vm {

// Where packed functions come from.
struct FunctionSources {
  // The executable's imports: a direct kernel, or a function.  Asked first.
  std::function<const RelaxvmKernelEntry*(const std::string&)> find_kernel;
  std::function<std::optional<tvm::ffi::Function>(const std::string&)> find_import;
  // A compiled function of ours, by the name of its row in a kernel table; null when there is none.
  std::function<RelaxvmNative(const std::string&)> find_native;
  // The global registry.  Asked last, after the builtins.
  std::function<std::optional<tvm::ffi::Function>(const std::string&)> find_global;
};

struct LoadOptions {
  bool instrumented = false;
  std::string what = "the executable";  // names it in errors
};

// `constants` are those of the executable, on the devices of `vm`.  Throws ValueError or
// RuntimeError, naming all functions that are not found.
std::unique_ptr<Program> LoadProgram(const bytecode::ExecutableData& data,
                                     std::vector<tvm::ffi::Any> constants, VirtualMachine* vm,
                                     const FunctionSources& sources,
                                     const LoadOptions& options = {});

}  // namespace relaxvm::vm
