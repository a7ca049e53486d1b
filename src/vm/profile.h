// SPDX-License-Identifier: Apache-2.0
// What a profiled run records: one event for each call of a function.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

namespace relaxvm::vm {

struct ProfileEvent {
  int64_t func_index;
  int64_t start_ns;  // since the profile began
  int64_t duration_ns;
  int64_t num_bytes;  // of the tensors among the arguments
  int32_t thread;
  int32_t depth;  // of the call: 0 is called by the function that was called from outside
};

// Thread-safe.
class Profile {
 public:
  Profile();
  int64_t NowNs() const;
  void Add(const ProfileEvent& event);
  std::vector<ProfileEvent> events() const;
  // Events beyond this number are counted, not kept.
  static constexpr size_t kMaxEvents = 1 << 20;
  int64_t num_lost() const { return num_lost_; }

 private:
  const int64_t begin_ns_;
  mutable std::mutex mutex_;
  std::vector<ProfileEvent> events_;
  int64_t num_lost_ = 0;
};

// A small number for the calling thread.
int32_t ThreadNumber();

}  // namespace relaxvm::vm
