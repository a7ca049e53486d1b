// SPDX-License-Identifier: Apache-2.0
// Native kernels from tensor programs: machine code in memory or in a shared library.  No LLVM type
// crosses this header.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bytecode/native_plan.h"
#include "ir/module.h"
#include "target/kernel_abi.h"
#include "target/machine.h"

namespace relaxvm::codegen {

struct KernelOptions {
  std::string target =
      "llvm";             // "llvm", "llvm -mcpu=znver3", "llvm -mcpu=... -mattr=+avx2,-avx512f"
  bool run_once = false;  // compiling is to be fast, not the code
  int num_threads = 1;    // compile jobs at once
  std::function<void(int done, int total)>
      progress;  // may be empty; called from one thread at a time
};

// One relocatable object; equal programs share one.
struct KernelObject {
  std::vector<std::string> names;  // kernels (global symbols of the programs) it defines
  std::string bytes;
};

// Compiled kernels plus the object with `__relaxvm_kernel_table`.
struct KernelSet {
  std::vector<KernelObject> objects;
  std::string target;
};

// Compiles every tensor program of `mod` (scheduled or not) with its packed and direct entries, and
// each plan.
KernelSet BuildKernels(const ir::IRModule& mod, const KernelOptions& options,
                       const std::vector<bytecode::NativePlan>& plans = {});

// Name -> a letter for each parameter of the tensor programs of `mod`, as in RelaxvmKernelEntry.
std::map<std::string, std::string> KernelParams(const ir::IRModule& mod);

// Kernels loaded into this process; `table` lives as long as `keep_alive`.
struct LoadedKernels {
  const RelaxvmKernelTable* table = nullptr;
  std::shared_ptr<void> keep_alive;
  std::function<void*(const std::string& symbol)> lookup;
};
LoadedKernels LoadInMemory(const KernelSet& kernels);

// Links a shared library that holds the kernels and, unless it is empty, what `library_bin` has in
// pieces under `__tvm_ffi__library_bin`, with a linker for the target's kind of processor (ld.lld,
// ld, cc, or the PyPI package ziglang). Writes to a temporary file first; throws when there is
// none.
void LinkLibrary(const KernelSet& kernels, const std::vector<std::string_view>& library_bin,
                 const std::string& path);

// The same as a static library, for whoever links it: needs no linker.
void WriteArchive(const KernelSet& kernels, const std::vector<std::string_view>& library_bin,
                  const std::string& path);

// What the CPU of a target can do, from its features; caches and cores are guesses.
target::Machine MachineOf(const std::string& target);

// What machine code for a target says of itself, as in RelaxvmKernelTable.
struct MachineCode {
  std::string triple, cpu, features;
  bool is_foreign;  // for another kind of processor than this one
};
MachineCode MachineCodeOf(const std::string& target);

// Text for people: LLVM IR or assembly of one program.
std::string InspectKernel(const ir::IRModule& mod, const std::string& name,
                          const KernelOptions& options, bool assembly);

}  // namespace relaxvm::codegen
