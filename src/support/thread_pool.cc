// SPDX-License-Identifier: Apache-2.0
// A loop is announced by one word; each worker owns one share number, so no queue and no lock is on
// the way.
#include "support/thread_pool.h"

#include <algorithm>
#include <system_error>

namespace relaxvm {
namespace {

// About 50 microseconds on current machines: longer than the serial code between two kernels,
// shorter than a time slice.
constexpr int kSpins = 3000;
thread_local bool inside_loop = false;

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

ThreadPool::~ThreadPool() {
  std::lock_guard<std::mutex> lock(busy_);
  stopping_.store(true);
  announced_.fetch_add(256);
  announced_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::AddWorkers(int count) {
  while (static_cast<int>(workers_.size()) < count) {
    int share = static_cast<int>(workers_.size()) + 1;
    workers_.emplace_back(&ThreadPool::WorkerLoop, this, share, announced_.load());
    num_workers_.store(share, std::memory_order_relaxed);
  }
}

void ThreadPool::RunShare(int share) {
  int64_t begin = job_.extent * share / job_.num_shares;
  int64_t end = job_.extent * (share + 1) / job_.num_shares;
  if (begin == end) return;
  inside_loop = true;
  int result = job_.task(job_.closure, begin, end);
  inside_loop = false;
  if (result != 0) {
    int none = 0;
    result_.compare_exchange_strong(none, result);
  }
}

void ThreadPool::WorkerLoop(int share, uint32_t seen) {
  while (true) {
    uint32_t word = announced_.load(std::memory_order_acquire);
    for (int spins = 0; word == seen; word = announced_.load(std::memory_order_acquire)) {
      if (++spins < kSpins) {
        Pause();
      } else {
        announced_.wait(seen);
      }
    }
    seen = word;
    if (stopping_.load()) return;
    // A worker without a share must not touch job_: the next loop may be writing it.
    if (share >= static_cast<int>(word & 0xff)) continue;
    RunShare(share);
    if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) pending_.notify_one();
  }
}

int ThreadPool::Run(int num_shares, int64_t extent, Task task, void* closure) {
  if (extent <= 0) return 0;
  num_shares = static_cast<int>(std::min<int64_t>({num_shares, extent, kMaxShares}));
  std::unique_lock<std::mutex> lock(busy_, std::defer_lock);
  if (num_shares <= 1 || inside_loop || !lock.try_lock()) return task(closure, 0, extent);
  try {
    AddWorkers(num_shares - 1);
  } catch (const std::system_error&) {
    num_shares =
        static_cast<int>(workers_.size()) + 1;  // the system has no more threads: use what there is
  }
  if (num_shares <= 1) return task(closure, 0, extent);
  job_ = {task, closure, extent, num_shares};
  result_.store(0, std::memory_order_relaxed);
  pending_.store(num_shares - 1, std::memory_order_relaxed);
  uint32_t next = ((announced_.load(std::memory_order_relaxed) >> 8) + 1) << 8 |
                  static_cast<uint32_t>(num_shares);
  announced_.store(next, std::memory_order_release);
  announced_.notify_all();
  RunShare(0);
  int32_t left = pending_.load(std::memory_order_acquire);
  for (int spins = 0; left != 0; left = pending_.load(std::memory_order_acquire)) {
    if (++spins < kSpins) {
      Pause();
    } else {
      pending_.wait(left);
    }
  }
  return result_.load(std::memory_order_relaxed);
}

}  // namespace relaxvm
