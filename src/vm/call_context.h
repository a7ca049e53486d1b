// SPDX-License-Identifier: Apache-2.0
// All state of the calls of one thread: the register stack, depth, error slot of kernels,
// interrupts.  A VM itself is immutable while it runs, so any number of threads may be inside it.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "runtime/kernel_context.h"
#include "target/native_abi.h"
#include "vm/program.h"

namespace relaxvm::vm {

struct TailChain;

struct CallContext : RelaxvmNativeContext {
  VirtualMachine* vm = nullptr;  // of the innermost running call; null outside
  int32_t c_depth = 0;           // VM calls nested through foreign functions
  int32_t tick_step = 16;
  int64_t last_poll_ns = 0;
  int64_t last_signal_check_ns = 0;
  bool is_main_thread = false;
  int64_t deadline_ns = 0;  // 0: none
  runtime::KernelHost kernel_host;
  TailChain* tail_chain = nullptr;  // of the innermost call of a watched function
  Slot* base = nullptr;
  int64_t stack_bytes = 0;     // of the register stack that may be used
  int64_t reserved_bytes = 0;  // address space behind it

  CallContext();
  ~CallContext();
  CallContext(const CallContext&) = delete;
  CallContext& operator=(const CallContext&) = delete;

  // Of the calling thread.  Null when its stack could not be reserved; the error is raised then.
  static CallContext* Current();

  // Called by the outermost call: its deadline is the VM's time limit from now.
  void StartDeadline();
  // Called by the outermost call when the VM wants another size of the register stack.  Nonzero:
  // raised.
  int ResizeStack(int64_t num_bytes);
  // Looks for Ctrl-C and the deadline.  Nonzero: raised.  Re-arms `ticks` so that polls are
  // some 20 ms apart.
  int Poll();

 private:
  void Reserve(int64_t num_bytes);
};

// Of the register stack of a thread, unless the VM says otherwise: 4 million values.  Pages are
// backed when touched.
inline constexpr int64_t kDefaultStackBytes = int64_t{64} << 20;

// Whether the C++ stack has no room for another call into the VM.
inline bool IsStackFull(const CallContext* context) {
  return static_cast<char*>(__builtin_frame_address(0)) < context->stack_limit;
}

// Sets tvm-ffi's raised error without a backtrace (50 ns instead of 30 us); returns -1.
int Raise(const char* kind, const std::string& message);

}  // namespace relaxvm::vm
