// SPDX-License-Identifier: Apache-2.0
// Watched calls that replaced their frame.  Their functions return when the one at the end of the
// chain does; until then this remembers what an instrument and a profile are still to be told.
#pragma once

#include <tvm/ffi/any.h>
#include <tvm/ffi/function.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "vm/profile.h"

namespace relaxvm::vm {

// One for each watched call of a VM function, on the C++ stack.
struct TailChain {
  // Calls that are remembered: a loop of tail calls needs constant memory also while it is watched.
  static constexpr size_t kMaxCalls = 32;

  struct Call {
    int64_t func_index;
    std::shared_ptr<const tvm::ffi::Function> instrument;
    std::vector<tvm::ffi::Any> args;
  };
  std::deque<Call> calls;  // that an instrument saw begin, oldest first
  // The function that runs in the frame now, when a profile is recorded: it ends where the next
  // tail call begins.
  std::shared_ptr<Profile> profile;
  ProfileEvent event;
};

}  // namespace relaxvm::vm
