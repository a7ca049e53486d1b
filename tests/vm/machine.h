// SPDX-License-Identifier: Apache-2.0
// Builds a VM from an ExecBuilder and functions, for tests.
#pragma once

#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include <map>
#include <string>

#include "bytecode/builder.h"
#include "vm/virtual_machine.h"

namespace relaxvm::testing {

// Functions by name, as an import of an executable.
class FunctionModule : public tvm::ffi::ModuleObj {
 public:
  explicit FunctionModule(std::map<std::string, tvm::ffi::Function> functions)
      : functions_(std::move(functions)) {}
  const char* kind() const override { return "relaxvm.testing.functions"; }
  tvm::ffi::Optional<tvm::ffi::Function> GetFunction(const tvm::ffi::String& name) override {
    auto it = functions_.find(std::string(name));
    if (it == functions_.end()) return std::nullopt;
    return it->second;
  }

 private:
  std::map<std::string, tvm::ffi::Function> functions_;
};

inline tvm::ffi::ObjectPtr<vm::VirtualMachine> MakeMachine(
    const bytecode::ExecBuilder& builder, std::map<std::string, tvm::ffi::Function> functions = {},
    const vm::KernelTableRef& kernels = {}) {
  namespace ffi = tvm::ffi;
  auto import = ffi::make_object<FunctionModule>(std::move(functions));
  ffi::Module module = vm::LinkExecutable(builder.Get(), kernels,
                                          {ffi::Module(ffi::ObjectPtr<ffi::ModuleObj>(import))});
  auto executable = ffi::detail::ObjectUnsafe::ObjectPtrFromUnowned<vm::ExecutableModule>(
      vm::ExecutableModule::From(module));
  return vm::VirtualMachine::Create(std::move(executable), {});
}

}  // namespace relaxvm::testing
