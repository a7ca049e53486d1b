// SPDX-License-Identifier: Apache-2.0
// A function of a VM as a value: an ordinary tvm-ffi function, with captured values bound as its
// last arguments.
#pragma once

#include <tvm/ffi/function.h>

#include <vector>

#include "vm/program.h"

namespace relaxvm::vm {

class ClosureObj : public tvm::ffi::FunctionObj {
 public:
  // `captured` become the last arguments.  Keeps `owner`, the module of the VM, alive.
  ClosureObj(tvm::ffi::ObjectRef owner, VirtualMachine* vm, int64_t func_index,
             std::vector<tvm::ffi::Any> captured);

  VirtualMachine* vm() const { return vm_; }
  int64_t func_index() const { return func_index_; }
  const std::vector<tvm::ffi::Any>& captured() const { return captured_; }

  // Null when `function` is no closure of ours.
  static const ClosureObj* From(const TVMFFIObject* function);

 private:
  static int Call(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result);

  tvm::ffi::ObjectRef owner_;
  VirtualMachine* vm_;
  int64_t func_index_;
  std::vector<tvm::ffi::Any> captured_;
};

tvm::ffi::Function MakeClosure(VirtualMachine* vm, int64_t func_index,
                               std::vector<tvm::ffi::Any> captured = {});

}  // namespace relaxvm::vm
