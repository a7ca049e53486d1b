// SPDX-License-Identifier: Apache-2.0
// Collects events.
#include "vm/profile.h"

#include <atomic>
#include <chrono>

namespace relaxvm::vm {
namespace {

int64_t ClockNs() {
  auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

}  // namespace

Profile::Profile(std::vector<ProfiledFunction> functions)
    : begin_ns_(ClockNs()), functions_(std::move(functions)) {}

int64_t Profile::NowNs() const { return ClockNs() - begin_ns_; }

void Profile::Add(ProfileEvent event) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (events_.size() < kMaxEvents) {
    events_.push_back(std::move(event));
  } else {
    ++num_lost_;
  }
}

std::vector<ProfileEvent> Profile::events() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return events_;
}

int64_t Profile::num_lost() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return num_lost_;
}

int32_t ThreadNumber() {
  static std::atomic<int32_t> next{0};
  thread_local int32_t number = next++;
  return number;
}

}  // namespace relaxvm::vm
