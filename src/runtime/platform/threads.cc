// SPDX-License-Identifier: Apache-2.0
// Linux: the main thread's number is the process's.
#include "runtime/platform/threads.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace relaxvm::runtime {

bool IsMainThread() { return getpid() == static_cast<pid_t>(syscall(SYS_gettid)); }

char* StackBegin() {
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return nullptr;
  void* begin = nullptr;
  size_t num_bytes = 0;
  pthread_attr_getstack(&attributes, &begin, &num_bytes);
  pthread_attr_destroy(&attributes);
  return static_cast<char*>(begin);
}

}  // namespace relaxvm::runtime
