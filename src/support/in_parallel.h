// SPDX-License-Identifier: Apache-2.0
// Work that falls into parts that do not know each other, on several threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

namespace relaxvm {

// step(0) ... step(count - 1), in any order; the error of the first that fails leaves.
template <typename Step>
void InParallel(int num_threads, size_t count, const Step& step) {
  std::vector<std::exception_ptr> errors(count);
  std::atomic<size_t> next{0};
  std::atomic<bool> failed{false};
  auto loop = [&] {
    // Whatever stands before a step that fails has begun.
    for (size_t i = next++; i < count && !failed; i = next++) {
      try {
        step(i);
      } catch (...) {
        errors[i] = std::current_exception();
        failed = true;
      }
    }
  };
  std::vector<std::thread> threads;
  const size_t wanted = std::min(static_cast<size_t>(std::max(1, num_threads)), count);
  try {
    for (size_t i = 1; i < wanted; ++i) threads.emplace_back(loop);
  } catch (const std::system_error&) {
    // The system gives no more threads: those that are there do it.
  }
  loop();
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace relaxvm
