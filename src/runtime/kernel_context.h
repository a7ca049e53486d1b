// SPDX-License-Identifier: Apache-2.0
// The host's side of target/kernel_abi.h: thread pool of the process, workspaces per thread, error
// slots.
#pragma once

#include <atomic>
#include <string>

#include "support/api.h"
#include "support/thread_pool.h"
#include "target/kernel_abi.h"

namespace relaxvm::runtime {

// What RelaxvmKernelContext::host points to: the error of one kernel call.  Kind and message are
// static texts, set together by the first thread that fails.
struct KernelHost {
  struct Error {
    const char* kind;
    const char* message;
  };
  std::atomic<int> claimed{0};
  Error error{nullptr, nullptr};
};

// A context for calls by one thread; `host` and `interrupt` must outlive it.
RelaxvmKernelContext MakeKernelContext(KernelHost* host, int num_threads,
                                       const volatile int32_t* interrupt);

// The context of packed entries that are called without a VM; its error slot is per thread.
RELAXVM_API const RelaxvmKernelContext* DefaultKernelContext();

// While it lives, packed entries that this thread calls use at most `count` threads.
class PackedThreads {
 public:
  explicit PackedThreads(int count);
  ~PackedThreads();
  PackedThreads(const PackedThreads&) = delete;
  PackedThreads& operator=(const PackedThreads&) = delete;

 private:
  int before_;
};
int NumPackedThreads();

// Takes the error out of the slot as "Kind", "message" (RuntimeError and a general text when the
// kernel set none).
KernelHost::Error TakeKernelError(KernelHost* host);

// The pool that all kernels of the process share.  After a fork the child gets a new one.
ThreadPool& ProcessThreadPool();
// Loops use no more threads than the process has CPUs at this moment: it may have been confined to
// some since.
void CountCpusAgain();
// Threads of a kernel when nothing else is said: what the machine lets this process use, or
// RELAXVM_NUM_THREADS.
int DefaultNumThreads();

// Frees the workspaces that the calling thread keeps.
RELAXVM_API void ReleaseThreadWorkspace();

}  // namespace relaxvm::runtime
