// SPDX-License-Identifier: Apache-2.0
// All state of the calls of one thread: the register stack, depth, error slot of kernels,
// interrupts.  A VM itself is immutable while it runs, so any number of threads may be inside it.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "runtime/kernel_context.h"
#include "vm/program.h"

namespace relaxvm::vm {

struct CallContext {
  Slot* top = nullptr;           // first free slot
  Slot* limit = nullptr;         // one past the last usable slot
  VirtualMachine* vm = nullptr;  // of the innermost running call; null outside
  int32_t c_depth = 0;           // VM calls nested through foreign functions
  int32_t ticks = 0;             // calls and backward jumps until the next poll
  int32_t tick_step = 16;
  int64_t last_poll_ns = 0;
  int64_t last_signal_check_ns = 0;
  bool is_main_thread = false;
  int64_t deadline_ns = 0;  // 0: none
  runtime::KernelHost kernel_host;
  RelaxvmKernelContext kernel;
  Slot* base = nullptr;

  CallContext();
  ~CallContext();
  CallContext(const CallContext&) = delete;
  CallContext& operator=(const CallContext&) = delete;

  // Of the calling thread.  Null when its stack could not be reserved; the error is raised then.
  static CallContext* Current();

  // Called by the outermost call: its deadline is the VM's time limit from now.
  void StartDeadline();
  // Looks for Ctrl-C and the deadline.  Nonzero: raised.  Re-arms `ticks` so that polls are
  // some 20 ms apart.
  int Poll();
};

// Most VM calls nested through foreign functions: each needs the C++ stack.
inline constexpr int32_t kMaxCDepth = 400;

// Sets tvm-ffi's raised error without a backtrace (50 ns instead of 30 us); returns -1.
int Raise(const char* kind, const std::string& message);

}  // namespace relaxvm::vm
