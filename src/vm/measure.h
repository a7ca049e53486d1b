// SPDX-License-Identifier: Apache-2.0
// How long calls of a function take.
#pragma once

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/function.h>

#include <chrono>
#include <functional>

namespace relaxvm::vm {

struct MeasureOptions {
  std::chrono::nanoseconds limit{0};  // for all calls together; 0 is none
  std::function<void()> synchronize;  // waits for what the calls have begun
};

// `args` are (preproc or None, number, repeat, min seconds of a repeat, seconds to pause, repeats
// between pauses, arguments...).  After one call that warms up: seconds of a call, for each repeat.
tvm::ffi::Array<double> Measure(const tvm::ffi::Function& function, tvm::ffi::PackedArgs args,
                                const MeasureOptions& options);

}  // namespace relaxvm::vm
