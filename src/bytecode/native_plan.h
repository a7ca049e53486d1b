// SPDX-License-Identifier: Apache-2.0
// A function of an executable, ready to become native code: what the loader makes of it before it
// emits its own stream.  Callees are bound by kind, registers numbered by liveness, last uses
// known.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace relaxvm::bytecode {

// In the order of execution; jumps go forward and backward by place in NativePlan::ops.
enum class NativeOpKind : uint8_t {
  kCallPacked,   // a function found by name when the executable is loaded
  kCallBuiltin,  // the same, a builtin of the VM
  kCallKernel,   // a tensor program of the same kernel set: tensors, then scalars
  kCallNative,   // a compiled function
  kTailCallNative,
  kWatchedTailCall,  // the same in a watched plan: the instrument is asked, and told at the end
  kCallAny,          // through the VM: functions that stay bytecode; every call of a watched plan
  kInvoke,           // the function that args[0] holds
  kMakeFunc,
  kNull,
  kCopy,
  kMove,
  kReadCond,
  kIf,  // falls through when the argument is true
  kGoto,
  kGotoBack,
  kRet,
};

struct NativeArg {
  enum class Kind : uint8_t {
    kSlot,
    kConstant,
    kImmediate,
    kFunction,
    kVM,        // as builtins take it
    kVMModule,  // as other functions take it
    kNone
  } kind = Kind::kNone;
  bool is_last_use = false;
  bool is_float = false;  // a float scalar of a kernel
  int64_t value = 0;  // register, place of the constant, integer, or place in the function table
};

struct NativeOp {
  NativeOpKind kind = NativeOpKind::kRet;
  int32_t dst = -1;   // -1: the result is dropped
  uint32_t func = 0;  // place in the function table
  uint32_t num_tensors = 0;
  uint32_t target = 0;
  uint32_t source = 0;  // instruction of the function, for backtraces
  std::vector<NativeArg> args;
  std::vector<uint32_t> drop_on_true, drop_on_false;  // kIf
  bool is_reachable = true;
};

// The register owns a value where operations [from, to) start.
struct NativeRange {
  uint32_t slot, from, to;
};

struct NativePlan {
  std::string name;
  uint32_t func = 0;  // place in the function table
  uint32_t num_params = 0;
  uint32_t num_slots = 0;
  uint32_t max_args = 0;  // of its calls
  bool is_watched = false;
  std::vector<uint32_t> entry_drops, entry_nulls;
  std::vector<NativeOp> ops;
  std::vector<NativeRange> live_ranges;
  std::vector<std::string> function_names;  // by place in the function table
};

}  // namespace relaxvm::bytecode
