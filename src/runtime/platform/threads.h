// SPDX-License-Identifier: Apache-2.0
// Questions about the calling thread.
#pragma once

namespace relaxvm::runtime {

// Whether this is the thread that the process started with.
bool IsMainThread();

// The least address of the calling thread's stack.  Null when the system does not say.
char* StackBegin();

}  // namespace relaxvm::runtime
