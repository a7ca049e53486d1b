// SPDX-License-Identifier: Apache-2.0
// The register stack of a thread is reserved once, as address space, and never moves: foreign
// functions hold pointers into it while they re-enter the VM.
#include "vm/call_context.h"

#include <tvm/ffi/extra/c_env_api.h>

#include <algorithm>
#include <chrono>

#include "runtime/platform/memory.h"
#include "runtime/platform/threads.h"
#include "vm/virtual_machine.h"

namespace relaxvm::vm {
namespace {

// What must be left of the C++ stack for a call: kernels, builtins and foreign functions run on it.
constexpr int64_t kStackReserve = int64_t{256} << 10;
constexpr int64_t kPollNs = 20'000'000;
constexpr int32_t kFirstTickStep = 16;
constexpr int32_t kMaxTickStep = 1 << 20;

int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

CallContext::CallContext() : RelaxvmNativeContext{} {
  kernel = runtime::MakeKernelContext(&kernel_host, runtime::DefaultNumThreads(), nullptr);
  is_main_thread = runtime::IsMainThread();
  char* begin = runtime::StackBegin();
  int64_t left = begin == nullptr ? 0 : static_cast<char*>(__builtin_frame_address(0)) - begin;
  stack_limit = begin + std::min(kStackReserve, left / 2);
  Reserve(kDefaultStackBytes);
}

CallContext::~CallContext() {
  if (base != nullptr) runtime::ReleasePages(base, static_cast<size_t>(reserved_bytes));
}

void CallContext::Reserve(int64_t num_bytes) {
  base = static_cast<Slot*>(runtime::ReservePages(static_cast<size_t>(num_bytes)));
  top = base;
  stack_bytes = reserved_bytes = base == nullptr ? 0 : num_bytes;
  limit = base + stack_bytes / static_cast<int64_t>(sizeof(Slot));
}

int CallContext::ResizeStack(int64_t num_bytes) {
  if (num_bytes > reserved_bytes) {
    if (base != nullptr) runtime::ReleasePages(base, static_cast<size_t>(reserved_bytes));
    Reserve(num_bytes);
    if (base == nullptr)
      return Raise("RuntimeError", "out of address space for a register stack of " +
                                       std::to_string(num_bytes) + " bytes");
  }
  stack_bytes = num_bytes;
  limit = base + num_bytes / static_cast<int64_t>(sizeof(Slot));
  return 0;
}

CallContext* CallContext::Current() {
  thread_local CallContext context;
  if (context.base == nullptr) {
    Raise("RuntimeError", "out of address space for the register stack of this thread");
    return nullptr;
  }
  return &context;
}

void CallContext::StartDeadline() {
  int64_t limit_ns = vm->time_limit_ns();
  deadline_ns = limit_ns == 0 ? 0 : NowNs() + limit_ns;
  if (limit_ns != 0) ticks = tick_step = 1;
}

int CallContext::Poll() {
  int64_t now = NowNs();
  int64_t elapsed = now - last_poll_ns;
  bool was_idle = elapsed > 50 * kPollNs;
  last_poll_ns = now;
  // Aims at kPollNs between polls, growing slowly, shrinking at once.
  int64_t per_tick = std::max<int64_t>(1, elapsed / std::max(tick_step, 1));
  int64_t wanted = was_idle ? kFirstTickStep : kPollNs / per_tick;
  int64_t most = std::min<int64_t>(int64_t{tick_step} * 2, kMaxTickStep);
  tick_step = static_cast<int32_t>(std::clamp<int64_t>(wanted, 1, most));
  ticks = tick_step;
  if (deadline_ns != 0 && now > deadline_ns) {
    return Raise("TimeoutError", "the call ran past its deadline");
  }
  // Asking Python needs its lock, and only its main thread answers.
  if (!is_main_thread || now - last_signal_check_ns < kPollNs) return 0;
  last_signal_check_ns = now;
  if (TVMFFIEnvCheckSignals() != 0) {
    tvm::ffi::detail::SetSafeCallRaised(tvm::ffi::EnvErrorAlreadySet());
    return -1;
  }
  return 0;
}

int Raise(const char* kind, const std::string& message) {
  tvm::ffi::detail::SetSafeCallRaised(tvm::ffi::Error(kind, message, ""));
  return -1;
}

}  // namespace relaxvm::vm
