// SPDX-License-Identifier: Apache-2.0
// Linux: the main thread's number is the process's.
#include "runtime/platform/threads.h"

#include <sys/syscall.h>
#include <unistd.h>

namespace relaxvm::runtime {

bool IsMainThread() { return getpid() == static_cast<pid_t>(syscall(SYS_gettid)); }

}  // namespace relaxvm::runtime
