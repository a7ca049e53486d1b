// SPDX-License-Identifier: Apache-2.0
// Native code that an executable calls: a shared object on disk, or a table in memory that a JIT
// made.  As a module it gives functions by name; the VM takes direct entries.
#pragma once

#include <tvm/ffi/extra/module.h>

#include <memory>
#include <string>
#include <unordered_map>

#include "runtime/kernel_work.h"
#include "runtime/platform/library.h"
#include "target/native_abi.h"

namespace relaxvm::runtime {

class KernelLibrary : public tvm::ffi::ModuleObj {
 public:
  // A table in memory; `keep_alive` owns the code.  `context_slot` and `work` (may be null) are
  // what kKernelContextSymbol and kKernelWorkSymbol name.
  KernelLibrary(const RelaxvmKernelTable* table, tvm::ffi::Any keep_alive,
                const RelaxvmKernelContext** context_slot, const char* work = nullptr);
  // A library file.  Without a kernel table it serves what it exports as __tvm_ffi_<name>.
  explicit KernelLibrary(std::unique_ptr<SharedLibrary> library);

  // vm/executable_module.h names it for others: kKernelLibraryKind.
  const char* kind() const final { return "relaxvm.KernelLibrary"; }
  int GetPropertyMask() const final { return tvm::ffi::Module::kRunnable; }
  tvm::ffi::Optional<tvm::ffi::Function> GetFunction(const tvm::ffi::String& name) final;

  // Null when the library has no direct entry of that name.
  const RelaxvmKernelEntry* FindKernel(const std::string& name) const;
  // Null when the compiler wrote down nothing about it.
  const KernelWork* FindWork(const std::string& name) const;
  // A compiled Relax function, by the name of its row.  Null when there is none; throws
  // RuntimeError when it was compiled for another version.
  RelaxvmNative FindNative(const std::string& name) const;
  // Null when there is none.
  void* Symbol(const std::string& name) const;
  const SharedLibrary* library() const { return library_.get(); }

 private:
  void AdoptTable(const RelaxvmKernelTable* table);

  std::unique_ptr<SharedLibrary> library_;
  tvm::ffi::Any keep_alive_;
  std::unordered_map<std::string, const RelaxvmKernelEntry*> kernels_;
  std::unordered_map<std::string, KernelWork> work_;
};

using KernelLibraryPtr = tvm::ffi::ObjectPtr<KernelLibrary>;

KernelLibraryPtr LoadKernelLibrary(const std::string& path);

}  // namespace relaxvm::runtime
