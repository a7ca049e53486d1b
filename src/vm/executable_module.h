// SPDX-License-Identifier: Apache-2.0
// An executable as a module: verified data, and its imports (kernel libraries, modules of users).
#pragma once

#include <tvm/ffi/extra/module.h>

#include <memory>
#include <optional>
#include <string>

#include "bytecode/executable.h"
#include "runtime/kernel_library.h"
#include "support/api.h"

namespace relaxvm::vm {

class ExecutableModule final : public tvm::ffi::ModuleObj {
 public:
  // Throws ValueError unless `data` passes the verifier.
  ExecutableModule(bytecode::ExecutableData data, const std::string& what);
  // Null when `module` is no executable of ours.
  static ExecutableModule* From(const tvm::ffi::Module& module);

  const char* kind() const override { return "relax.VMExecutable"; }
  int GetPropertyMask() const override { return tvm::ffi::Module::kBinarySerializable; }
  // as_text, as_python, stats, has_function, vm_load_executable
  tvm::ffi::Optional<tvm::ffi::Function> GetFunction(const tvm::ffi::String& name) override;
  tvm::ffi::Bytes SaveToBytes() const override;

  const bytecode::ExecutableData& data() const { return *data_; }
  // Look-ups in imports, their imports included.
  const RelaxvmKernelEntry* FindKernel(const std::string& name) const;
  // `__vmtir__<name>` of our own kernel tables; null when there is none.
  RelaxvmNative FindNative(const std::string& name) const;
  const runtime::KernelWork* FindWork(const std::string& name) const;
  std::optional<tvm::ffi::Function> FindImport(const std::string& name) const;

 private:
  std::shared_ptr<const bytecode::ExecutableData> data_;
};

using ExecutablePtr = tvm::ffi::ObjectPtr<ExecutableModule>;

// ---- what the compiler calls --------------------------------------------------

// Native code in memory, for LinkExecutable.
struct KernelTableRef {
  const RelaxvmKernelTable* table = nullptr;  // null: no kernels
  const RelaxvmKernelContext** context_slot =
      nullptr;                 // address of the symbol kKernelContextSymbol; may be null
  tvm::ffi::Any keep_alive;    // owns the code
  const char* work = nullptr;  // what kKernelWorkSymbol names; may be null
};

// An executable with the kernels it calls; `imports` are searched after them.
RELAXVM_API tvm::ffi::Module LinkExecutable(bytecode::ExecutableData data,
                                            const KernelTableRef& kernels,
                                            const tvm::ffi::Array<tvm::ffi::Module>& imports = {});
// The data of an executable.  Throws TypeError when `module` is none.
RELAXVM_API const bytecode::ExecutableData& ExecutableDataOf(const tvm::ffi::Module& module);
// Runs a function once on the CPU, on a VM of its own.
RELAXVM_API tvm::ffi::Any RunOnce(const tvm::ffi::Module& executable, const std::string& function,
                                  const std::vector<tvm::ffi::Any>& args);

// The kind of modules that hold native code, and the file they came from; empty for code in memory.
inline constexpr const char* kKernelLibraryKind = "relaxvm.KernelLibrary";
RELAXVM_API std::string FileOfLibrary(const tvm::ffi::Module& library);
// Whether a module that the executable imports has a function of that name.
RELAXVM_API bool HasImport(const tvm::ffi::Module& executable, const std::string& name);

// From a file: a library with an executable inside, the executable's bytes alone, or a library of
// functions.  Running it runs the native code in it: the caller trusts the file.
//
// A file whose weights or kernels lie apart names them; they are looked for in its folder, or are
// what `options` says.
struct OpenOptions {
  std::string weights;  // path; empty: as the file says
  std::string kernels;
  bool verify_weights = true;  // read all of a weights file and compare its checksum
};
RELAXVM_API tvm::ffi::Module LoadExecutable(const std::string& path,
                                            const OpenOptions& options = {});

// Writes bytecode and constants, as names of files beside `path`: weights into a file of their own,
// kernels as a library that exists already.  Empty: weights are in the file, kernels are not named.
struct SaveOptions {
  std::string weights;
  std::string kernels;
};
RELAXVM_API void SaveExecutable(const tvm::ffi::Module& executable, const std::string& path,
                                const SaveOptions& options = {});

}  // namespace relaxvm::vm
