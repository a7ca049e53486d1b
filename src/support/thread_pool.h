// SPDX-License-Identifier: Apache-2.0
// Worker threads for parallel loops.  Workers spin shortly after a loop, then sleep; they are
// started when first needed and never pinned.  One loop runs at a time: a second caller, or a loop
// inside a loop, runs in its own thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace relaxvm {

class ThreadPool {
 public:
  // Iterations [begin, end).  Must not throw; nonzero becomes the loop's result.
  using Task = int (*)(void* closure, int64_t begin, int64_t end);
  static constexpr int kMaxShares = 255;

  ThreadPool() = default;
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Cuts [0, extent) into at most `num_shares` shares, runs one here and the others on workers,
  // waits.  Returns the first nonzero result, else 0.
  int Run(int num_shares, int64_t extent, Task task, void* closure);
  int num_workers() const { return num_workers_.load(std::memory_order_relaxed); }

 private:
  struct Job {
    Task task = nullptr;
    void* closure = nullptr;
    int64_t extent = 0;
    int num_shares = 0;
  };
  void RunShare(int share);
  void WorkerLoop(int share, uint32_t seen);
  void AddWorkers(int count);

  std::mutex busy_;  // held while a loop runs; guards job_ and workers_
  Job job_;
  std::vector<std::thread> workers_;
  std::atomic<int> num_workers_{0};
  // (number of the loop << 8) | shares; kStop in the low byte ends the workers.
  alignas(64) std::atomic<uint32_t> announced_{0};
  alignas(64) std::atomic<int32_t> pending_{0};
  std::atomic<int> result_{0};
  std::atomic<bool> stopping_{false};
};

}  // namespace relaxvm
