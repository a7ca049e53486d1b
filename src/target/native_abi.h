// SPDX-License-Identifier: Apache-2.0
// The contract between the VM and compiled Relax functions (`__vmtir__<name>` of a kernel table,
// params "c1"): what the native code reads of the call, and what it calls for everything that is no
// straight line. A field's offset is part of the contract: kNativeParams changes with it.
#pragma once

#include <tvm/ffi/c_api.h>

#include "target/kernel_abi.h"

namespace relaxvm {

// `params` of a kernel table's row that is a compiled function; the digit is the version of this
// file.
inline constexpr const char* kNativeParams = "c2";
// The row of the same function with every call made through RelaxvmNativeEnv::call, for
// instruments.
inline constexpr const char* kWatchedSuffix = "__watched";

inline constexpr uint64_t kNativeFailed = ~uint64_t{0};

extern "C" {

// The state of the calls of one thread; CallContext of the VM begins with it.
struct RelaxvmNativeContext {
  TVMFFIAny* top;     // 0: first free slot of the register stack
  TVMFFIAny* limit;   // 8: one past its last usable slot
  char* stack_limit;  // 16: a function whose C++ stack is below this fails with a RecursionError
  int32_t ticks;      // 24: counted down at calls of functions and kernels; below 0: call poll
  int32_t reserved;   // 28
  RelaxvmKernelContext kernel;  // 32
};

struct RelaxvmNativeEnv;

// The two words of a value, in two machine registers.  The tag kNativeFailed stands for a raised
// error.
struct RelaxvmNativeResult {
  uint64_t tag;
  uint64_t payload;
};

// Takes over the parameters in regs[0..n), which are the function's registers from then on, and
// what lies above.  Gives an owned value; after an error the registers own nothing.
typedef RelaxvmNativeResult (*RelaxvmNative)(RelaxvmNativeContext* context,
                                             const RelaxvmNativeEnv* env, TVMFFIAny* regs);

// What a place of the function table is, ready to be called.
struct RelaxvmNativeCallee {
  TVMFFISafeCallType safe_call;  // 0
  void* self;                    // 8: its first argument
  int (*builtin)(RelaxvmNativeContext*, const TVMFFIAny* args, int32_t num_args,
                 TVMFFIAny* result);  // 16: raises when the VM has no builtin of that name
  const RelaxvmKernelEntry* kernel;   // 24: null when it is none
};

// Which registers own values where: {place in the function table, number of ranges, ranges
// (register, from, to), instruction of each operation}.
typedef const uint32_t* RelaxvmLiveTable;

// One for each program of a VM.  Arguments are borrowed, results owned; -1 is a raised error.
struct RelaxvmNativeEnv {
  const TVMFFIAny* constants;          // 0
  const RelaxvmNativeCallee* callees;  // 8: by place in the function table
  const TVMFFIAny* func_pool;          // 16: functions as values
  void* vm;                            // 24: what builtins take as the VM
  void* vm_module;                     // 32: what other functions take as the VM
  int (*poll)(RelaxvmNativeContext*);  // 40
  int (*call)(RelaxvmNativeContext*, const RelaxvmNativeEnv*, uint32_t func, const TVMFFIAny* args,
              int32_t num_args, TVMFFIAny* result);  // 48: any function, instruments included
  int (*invoke)(RelaxvmNativeContext*, const TVMFFIAny* args, int32_t num_args,
                TVMFFIAny* result);  // 56: the function in args[0]
  // 64: a kernel with unusual arguments; 72: raises what a kernel's nonzero result stands for.
  int (*kernel_slowly)(RelaxvmNativeContext*, const RelaxvmNativeEnv*, uint32_t func,
                       uint32_t num_tensors, const TVMFFIAny* args, int32_t num_args);
  int (*kernel_failed)(RelaxvmNativeContext*, const RelaxvmNativeEnv*, uint32_t func,
                       uint32_t num_tensors, const TVMFFIAny* args, int32_t num_args);
  int (*read_condition)(const TVMFFIAny* value);                                 // 80: 0, 1 or -1
  int (*bad_condition)(const TVMFFIAny* value);                                  // 88: -1
  int (*overflow)(const RelaxvmNativeEnv*, uint32_t func);                       // 96: -1
  void (*make_func)(const RelaxvmNativeEnv*, uint32_t func, TVMFFIAny* result);  // 104
  void (*drop)(TVMFFIObject* object);                                            // 112
  // 120: frees what is alive where operation `at` starts, but not register `except`, and notes the
  // place.
  void (*unwind)(RelaxvmNativeContext*, const RelaxvmNativeEnv*, TVMFFIAny* regs,
                 RelaxvmLiveTable table, uint32_t at, uint32_t except, uint32_t failed);
  const void* program;  // 128: the VM's own
  // 136: before a watched call that replaces its frame.  0: make it, 1: give None instead, -1.
  int (*before_tail_call)(RelaxvmNativeContext*, const RelaxvmNativeEnv*, uint32_t func,
                          const TVMFFIAny* args, int32_t num_args);
};
}  // extern "C"

}  // namespace relaxvm
