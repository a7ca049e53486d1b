// SPDX-License-Identifier: Apache-2.0
// Plans native code of functions with the loader's own lowering and liveness: called by the
// compiler.
#pragma once

#include <map>
#include <string>

#include "bytecode/executable.h"
#include "bytecode/native_plan.h"
#include "support/api.h"

namespace relaxvm::vm {

struct NativePlanOptions {
  // Tensor programs of the same kernel set: name -> a letter for each parameter, as in
  // RelaxvmKernelEntry.
  std::map<std::string, std::string> kernels;
  // Every call goes through the VM, which asks its instrument.
  bool is_watched = false;
};

// `data` must pass the verifier.  VM functions are taken to become native too.
RELAXVM_API bytecode::NativePlan MakeNativePlan(const bytecode::ExecutableData& data, int64_t func,
                                                const NativePlanOptions& options);

}  // namespace relaxvm::vm
