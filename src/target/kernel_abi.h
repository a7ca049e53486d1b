// SPDX-License-Identifier: Apache-2.0
// The contract between generated kernels and whoever calls them: plain C structs, shared by code
// generation and runtime. A kernel library is a shared object (or a JIT session) that defines
// `__relaxvm_kernel_table`; besides, every kernel exports the packed entry `__tvm_ffi_<name>`,
// which any tvm-ffi program can call.
#pragma once

#include <dlpack/dlpack.h>

#include <cstdint>

namespace relaxvm {

// Version of every struct below; a library of another version is refused at load.
inline constexpr int32_t kKernelAbiVersion = 3;

// Code generation addresses the fields by these offsets; runtime/kernel_context.cc asserts them.
extern "C" {

struct RelaxvmKernelContext;

// One share of a parallel loop: iterations [begin, end).  Nonzero stops the loop, which returns it.
typedef int (*RelaxvmTask)(const RelaxvmKernelContext* ctx, void* closure, int64_t begin,
                           int64_t end);

// Everything a kernel needs from its host.  Owned by the caller, alive during the call.
struct RelaxvmKernelContext {
  int32_t abi_version;  // offset 0
  int32_t num_threads;  // offset 4: at least 1; how many shares a parallel loop is cut into at most
  // offset 8: runs `task` over [0, extent) cut into at most num_threads shares, and at most
  // `most_threads`, which it is worth; waits.
  int (*parallel)(const RelaxvmKernelContext* ctx, RelaxvmTask task, void* closure, int64_t extent,
                  int64_t most_threads);
  // offset 16, 24: scratch memory of this call, 64-byte aligned; null when out of memory.
  void* (*alloc_workspace)(const RelaxvmKernelContext* ctx, uint64_t num_bytes);
  void (*free_workspace)(const RelaxvmKernelContext* ctx, void* data);
  // offset 32: records the error that a nonzero return stands for; both texts are static.
  void (*set_error)(const RelaxvmKernelContext* ctx, const char* kind, const char* message);
  void* stream;  // offset 40: device stream, null on a CPU
  const volatile int32_t*
      interrupt;  // offset 48: nonzero asks long kernels to return kKernelInterrupted; may be null
  void* host;     // offset 56: the host's own state
  // offset 64: [0, num_steps * units) in steps of `units` iterations: those of a step may run at
  // once, a step begins when the one before it is done.
  int (*parallel_steps)(const RelaxvmKernelContext* ctx, RelaxvmTask task, void* closure,
                        int64_t num_steps, int64_t units, int64_t most_threads);
};

// The direct entry.  `tensors` and `scalars` hold the parameters of each kind in order; a float
// scalar is passed as the bits of a double.  Checks dtype, rank, strides and every size relation
// before it touches memory.  0 is success.
typedef int (*RelaxvmKernel)(const RelaxvmKernelContext* ctx, const DLTensor* const* tensors,
                             const int64_t* scalars);

// TVMFFISafeCallType, spelled out so that this header needs DLPack alone.
struct RelaxvmAny;
typedef int (*RelaxvmPackedKernel)(void* self, const void* args, int32_t num_args, void* result);

struct RelaxvmKernelEntry {
  const char* name;
  const char* params;  // one letter a parameter: 't' tensor, 'i' integer, 'f' float
  RelaxvmKernel direct;
  RelaxvmPackedKernel packed;
};

struct RelaxvmKernelTable {
  int32_t abi_version;
  int32_t num_kernels;
  const RelaxvmKernelEntry* kernels;
  const char* target;  // target triple
  const char* cpu;     // the CPU the code was made for, as LLVM names it
  const char*
      cpu_features;  // comma-separated features that the code uses and the machine must have
};
}  // extern "C"

// What a kernel returns.
inline constexpr int kKernelOk = 0;
inline constexpr int kKernelError = -1;        // ctx->set_error was called
inline constexpr int kKernelInterrupted = -2;  // ctx->interrupt was seen

// Names of symbols in a kernel library.
inline constexpr const char* kKernelTableSymbol = "__relaxvm_kernel_table";  // RelaxvmKernelTable
inline constexpr const char* kKernelContextSymbol =
    "__relaxvm_kernel_context";  // const RelaxvmKernelContext*, set at load;
                                 // null: packed entries run serially
// Text, ends with 0: how much each kernel does, a line "name<tab>operations|bytes".  May be
// missing.
inline constexpr const char* kKernelWorkSymbol = "__relaxvm_kernel_work";
inline constexpr const char* kPackedPrefix = "__tvm_ffi_";
inline constexpr const char* kCompiledFunctionPrefix = "__vmtir__";

}  // namespace relaxvm
