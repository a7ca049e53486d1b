// SPDX-License-Identifier: Apache-2.0
// Worker threads for parallel loops.  Workers spin shortly after a loop, then sleep; they are
// started when first needed and never pinned, but wake on a CPU that neither the caller nor another
// one is on.  One loop runs at a time: a second caller, or a loop inside a loop, runs in its own
// thread.  No loop uses more threads than there are CPUs that no other caller is on.  Each share of
// a loop is a run of neighbouring blocks; whoever is done with its own helps the others, and nobody
// waits for a worker that has not woken.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
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
  // waits.  `task` is called for several parts of a share.  Returns the first nonzero result (parts
  // that have not begun are then left out), else 0.
  int Run(int num_shares, int64_t extent, Task task, void* closure);
  // [0, num_steps * units) in steps of `units` iterations: those of a step may run at once, a step
  // begins when the one before it is done.  Iterations that go back and forth, so that unit u of an
  // odd step touches what unit units - 1 - u of an even one does, find it in the caches of their
  // core.
  int RunSteps(int num_shares, int64_t num_steps, int64_t units, Task task, void* closure);
  // Callers and workers together are at most `count`: one thread more than CPUs makes all wait.
  void set_num_cpus(int count) { num_cpus_.store(count, std::memory_order_relaxed); }
  int num_cpus() const { return num_cpus_.load(std::memory_order_relaxed); }
  // While it lives, the calling thread computes, from its first loop on also between its loops.
  class Caller {
   public:
    Caller();
    ~Caller();
    Caller(const Caller&) = delete;
    Caller& operator=(const Caller&) = delete;
  };
  int num_workers() const { return num_workers_.load(std::memory_order_relaxed); }

 private:
  struct Job {
    Task task = nullptr;
    void* closure = nullptr;
    int64_t extent = 0;
    int num_shares = 0;
    int64_t num_blocks = 0;
  };
  // Blocks [begin, end) of a share that nobody has taken: begin | end << 32.
  struct alignas(64) Share {
    std::atomic<uint64_t> blocks{0};
  };
  // Of a worker: the CPU that it sleeps on, -1 while it is awake.
  struct alignas(64) Bed {
    std::atomic<int> cpu{-1};
    std::atomic<int> thread{0};
  };
  // Takes some of what is left of `share`, from its front or its back; false: nothing is left.
  bool Take(int share, bool from_front, int64_t* begin, int64_t* end);
  void Work(int share);
  bool Enter(uint32_t word);
  int MostShares();
  bool IsOnCpuOfCaller() const;
  void WorkerLoop(int share, uint32_t seen);
  void WakeWorkers(int count);
  void AddWorkers(int count);

  std::mutex busy_;  // held while a loop runs; guards job_ and workers_
  Job job_;
  std::vector<std::thread> workers_;
  std::atomic<int> num_workers_{0};
  std::atomic<int> num_cpus_{kMaxShares};
  std::atomic<int> num_callers_{0};
  // (number of the loop << 8) | shares; kStop in the low byte ends the workers.
  alignas(64) std::atomic<uint32_t> announced_{0};
  std::atomic<int> caller_cpu_{-1};  // of the loop that was announced last
  // (the word of the loop << 16) | kClosed when its caller is done | workers that came to help.
  alignas(64) std::atomic<uint64_t> gate_{0};
  alignas(64) std::atomic<int32_t> left_{0};  // workers that have helped and are gone
  std::unique_ptr<Share[]> shares_{new Share[kMaxShares]};
  std::unique_ptr<Bed[]> beds_{new Bed[kMaxShares]};
  std::atomic<int> result_{0};
  std::atomic<bool> stopping_{false};
};

}  // namespace relaxvm
