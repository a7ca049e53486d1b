// SPDX-License-Identifier: Apache-2.0
// A function of a VM for callers who lend their arguments for one call and keep the results.
#pragma once

#include <tvm/ffi/function.h>

namespace relaxvm::vm {

class VirtualMachine;

// Calls `function` of the VM.  Its arguments are dense, aligned tensors in the memory of the host
// (TypeError for others). Results that share memory with an argument or with a constant of the VM
// are copied.  One result is returned; several
// (`num_results` != 1) are the arguments of `receive`, which makes the result of them.
tvm::ffi::Function OwnResults(VirtualMachine* vm, tvm::ffi::Function function, int64_t num_results,
                              tvm::ffi::Function receive);

}  // namespace relaxvm::vm
