// SPDX-License-Identifier: Apache-2.0
// Questions about the calling thread.
#pragma once

namespace relaxvm::runtime {

// Whether this is the thread that the process started with.
bool IsMainThread();

}  // namespace relaxvm::runtime
