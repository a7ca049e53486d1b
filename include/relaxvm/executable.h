// SPDX-License-Identifier: Apache-2.0
// A compiled model: load it, look at it, save its bytes.  Part of librelaxvm_runtime; needs no
// compiler.
#pragma once

#include <tvm/ffi/extra/module.h>

#include <string>
#include <vector>

#define RELAXVM_PUBLIC __attribute__((visibility("default")))

namespace relaxvm {

// Files of a model whose parts lie apart, when they are not where its file of bytecode says.
struct LoadOptions {
  std::string weights;
  std::string kernels;
  bool verify_weights = true;  // false: do not read the weights to compare their checksum
};

// A reference: copies share one immutable executable.
class RELAXVM_PUBLIC Executable {
 public:
  // From a shared library that a compile exported, or from what Save wrote.  A library
  // holds native code that will run in this process: load only files that you trust.  Damage is
  // found before any of it runs. Throws tvm::ffi::Error.
  static Executable Load(const std::string& path, const LoadOptions& options = {});
  static Executable FromBytes(const std::string& bytes);
  // Takes a module that is an executable, for example what the compiler returned.
  explicit Executable(tvm::ffi::Module module);

  std::vector<std::string> FunctionNames() const;
  // The listing of all instructions, and numbers about the program.
  std::string AsText() const;
  std::string Stats() const;
  // Bytecode and constants, without native code.
  std::string ToBytes() const;
  // Writes bytecode and constants.  `weights` names a file beside it for large constants, which
  // Load maps; empty: everything is in one file.
  void Save(const std::string& path, const std::string& weights = "") const;
  // Adds a module whose functions are found before the builtins and the global functions.
  void Import(const tvm::ffi::Module& module);

  const tvm::ffi::Module& module() const { return module_; }

 private:
  tvm::ffi::Module module_;
};

}  // namespace relaxvm
