// SPDX-License-Identifier: Apache-2.0
// What a profiled run records: one event for each call of a function.  Devices are waited for after
// each call, so that a time is that of the work.
#pragma once

#include <tvm/ffi/object.h>

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/kernel_work.h"

namespace relaxvm::vm {

struct ProfileEvent {
  int64_t func_index;
  int64_t start_ns;  // since the profile began
  int64_t duration_ns;
  double num_bytes;  // that a kernel touches; of the tensors among the arguments of other functions
  double operations;  // -1: not known
  int32_t thread;
  int32_t depth;     // of the call: 0 is called by the function that was called from outside
  std::string args;  // "float32[2, 3], 7"
};

// What a function of the table does per call, and how it is called.
struct ProfiledFunction {
  const runtime::KernelWork* work = nullptr;  // null: nothing was written down
  const char* kernel_params = nullptr;        // of RelaxvmKernelEntry; null: no kernel
  const tvm::ffi::Object* function = nullptr;
};

// Thread-safe.
class Profile {
 public:
  explicit Profile(std::vector<ProfiledFunction> functions);
  int64_t NowNs() const;
  // Of the function table.
  const std::vector<ProfiledFunction>& functions() const { return functions_; }
  void Add(ProfileEvent event);
  std::vector<ProfileEvent> events() const;
  // Events beyond this number are counted, not kept.
  static constexpr size_t kMaxEvents = 1 << 20;
  int64_t num_lost() const;

 private:
  const int64_t begin_ns_;
  const std::vector<ProfiledFunction> functions_;
  mutable std::mutex mutex_;
  std::vector<ProfileEvent> events_;
  int64_t num_lost_ = 0;
};

// A small number for the calling thread.
int32_t ThreadNumber();

}  // namespace relaxvm::vm
