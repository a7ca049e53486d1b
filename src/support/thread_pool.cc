// SPDX-License-Identifier: Apache-2.0
// A loop is announced by one word; each worker owns one share number, so no queue and no lock is on
// the way.  Shares keep neighbouring blocks on one thread, loop after loop: what a kernel wrote is
// in the cache of the core that reads it.
#include "support/thread_pool.h"

#include <algorithm>
#include <chrono>
#include <system_error>

#include "support/cpu_place.h"

namespace relaxvm {
namespace {

// How long a thread waits awake: longer than what lies between two kernels, or between two calls
// one after the other, and far shorter than a time slice.
constexpr std::chrono::microseconds kAwake{100};
constexpr int64_t kTurnsPerLook = 64;  // at the clock, and at where the caller is
// Threads end a loop apart by at most one block.
constexpr int64_t kBlocksPerShare = 32;
constexpr uint64_t kClosed = 0x8000;  // of gate_
thread_local bool inside_loop = false;
thread_local int caller_depth = 0;
thread_local ThreadPool* counted_by = nullptr;  // this thread's call has had a loop of it

// Says when a thread that waits has been awake for long enough.
class Patience {
 public:
  // Once a turn.  True from the first look around on that finds kAwake over, or `also` true.
  template <typename Also>
  bool IsOver(const Also& also) {
    if (!is_over_ && ++turns_ % kTurnsPerLook == 0) {
      const auto now = std::chrono::steady_clock::now();
      if (turns_ == kTurnsPerLook) begin_ = now;
      is_over_ = now - begin_ >= kAwake || also();
    }
    return is_over_;
  }
  bool IsOver() {
    return IsOver([] { return false; });
  }

 private:
  bool is_over_ = false;
  int64_t turns_ = 0;
  std::chrono::steady_clock::time_point begin_;
};

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// A thread begins with the float state of the one that made it, which may be a kernel that takes
// subnormals for 0 (codegen/llvm/emit_float_state.cc): back to what programs begin with.
inline void ResetFloatState() {
#if defined(__x86_64__)
  constexpr unsigned kMaskAllExceptions = 0x1f80;
  __builtin_ia32_ldmxcsr(kMaskAllExceptions);
#endif
}

}  // namespace

ThreadPool::Caller::Caller() { ++caller_depth; }

ThreadPool::Caller::~Caller() {
  if (--caller_depth > 0 || counted_by == nullptr) return;
  counted_by->num_callers_.fetch_sub(1, std::memory_order_relaxed);
  counted_by = nullptr;
}

// Threads that find a CPU beside the other callers.  A call counts from its first loop on: many
// threads that make calls of nothing large would meet at the counter.
int ThreadPool::MostShares() {
  if (caller_depth > 0 && counted_by == nullptr) {
    counted_by = this;
    num_callers_.fetch_add(1, std::memory_order_relaxed);
  }
  const int others = num_callers_.load(std::memory_order_relaxed) - (counted_by == this ? 1 : 0);
  return std::max(1, num_cpus() - std::max(0, others));
}

// A worker there would take turns with the caller, as long as both are awake: the system evens out
// only what waits for milliseconds.
bool ThreadPool::IsOnCpuOfCaller() const {
  const int cpu = caller_cpu_.load(std::memory_order_relaxed);
  return cpu >= 0 && cpu == CurrentCpu();
}

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

bool ThreadPool::Take(int share, bool from_front, int64_t* begin, int64_t* end) {
  std::atomic<uint64_t>& blocks = shares_[static_cast<size_t>(share)].blocks;
  uint64_t word = blocks.load(std::memory_order_relaxed);
  while (true) {
    const uint64_t first = word & 0xffffffff, last = word >> 32;
    if (first >= last) return false;
    // Large parts first: few calls while there is much left, small differences at the end.
    const uint64_t count = (last - first + 3) / 4;
    const uint64_t next = from_front ? last << 32 | (first + count) : (last - count) << 32 | first;
    if (!blocks.compare_exchange_weak(word, next, std::memory_order_relaxed)) continue;
    const auto from = static_cast<int64_t>(from_front ? first : last - count);
    *begin = from;
    *end = from + static_cast<int64_t>(count);
    return true;
  }
}

// The own share from its front, then what is left of the others from their backs.
void ThreadPool::Work(int share) {
  inside_loop = true;
  for (int i = 0; i < job_.num_shares; ++i) {
    const int of = (share + i) % job_.num_shares;
    int64_t begin = 0, end = 0;
    while (result_.load(std::memory_order_relaxed) == 0 && Take(of, i == 0, &begin, &end)) {
      const int result = job_.task(job_.closure, job_.extent * begin / job_.num_blocks,
                                   job_.extent * end / job_.num_blocks);
      int none = 0;
      if (result != 0) result_.compare_exchange_strong(none, result);
    }
  }
  inside_loop = false;
}

// Joins the loop that `word` announced, unless it is over.
bool ThreadPool::Enter(uint32_t word) {
  uint64_t gate = gate_.load(std::memory_order_acquire);
  while (gate >> 16 == word && (gate & kClosed) == 0) {
    if (gate_.compare_exchange_weak(gate, gate + 1, std::memory_order_acq_rel)) return true;
  }
  return false;
}

void ThreadPool::WakeWorkers(int count) {
  WakePlaces places(CurrentCpu());
  for (int share = 1; share <= count; ++share) {
    const Bed& bed = beds_[static_cast<size_t>(share)];
    if (const int cpu = bed.cpu.load(std::memory_order_acquire); cpu >= 0)
      places.Add(bed.thread.load(std::memory_order_relaxed), cpu);
  }
  announced_.notify_all();
}

void ThreadPool::WorkerLoop(int share, uint32_t seen) {
  ResetFloatState();
  Bed& bed = beds_[static_cast<size_t>(share)];
  bed.thread.store(CurrentThread(), std::memory_order_relaxed);
  while (true) {
    uint32_t word = announced_.load(std::memory_order_acquire);
    for (Patience patience; word == seen; word = announced_.load(std::memory_order_acquire)) {
      if (!patience.IsOver([&] { return IsOnCpuOfCaller(); })) {
        Pause();
      } else {
        bed.cpu.store(CurrentCpu(), std::memory_order_release);
        announced_.wait(seen);
        bed.cpu.store(-1, std::memory_order_relaxed);
      }
    }
    seen = word;
    if (stopping_.load()) return;
    // Who is outside the gate must not touch job_: the next loop may be writing it.
    if (share >= static_cast<int>(word & 0xff) || IsOnCpuOfCaller() || !Enter(word)) continue;
    Work(share);
    left_.fetch_add(1, std::memory_order_acq_rel);
    left_.notify_one();
  }
}

int ThreadPool::Run(int num_shares, int64_t extent, Task task, void* closure) {
  if (extent <= 0) return 0;
  num_shares = static_cast<int>(std::min<int64_t>({num_shares, extent, kMaxShares, MostShares()}));
  std::unique_lock<std::mutex> lock(busy_, std::defer_lock);
  if (num_shares <= 1 || inside_loop || !lock.try_lock()) return task(closure, 0, extent);
  try {
    AddWorkers(num_shares - 1);
  } catch (const std::system_error&) {
    num_shares =
        static_cast<int>(workers_.size()) + 1;  // the system has no more threads: use what there is
  }
  if (num_shares <= 1) return task(closure, 0, extent);
  job_ = {task, closure, extent, num_shares, std::min(extent, kBlocksPerShare * num_shares)};
  for (int64_t share = 0; share < num_shares; ++share) {
    const auto begin = static_cast<uint64_t>(job_.num_blocks * share / num_shares);
    const auto end = static_cast<uint64_t>(job_.num_blocks * (share + 1) / num_shares);
    shares_[static_cast<size_t>(share)].blocks.store(end << 32 | begin, std::memory_order_relaxed);
  }
  result_.store(0, std::memory_order_relaxed);
  left_.store(0, std::memory_order_relaxed);
  const uint32_t next = ((announced_.load(std::memory_order_relaxed) >> 8) + 1) << 8 |
                        static_cast<uint32_t>(num_shares);
  caller_cpu_.store(CurrentCpu(), std::memory_order_relaxed);
  gate_.store(uint64_t{next} << 16, std::memory_order_release);
  announced_.store(next, std::memory_order_release);
  WakeWorkers(num_shares - 1);
  Work(0);
  // Blocks are left only where an error ended the loop; who is inside still works on its last part.
  const auto helpers =
      static_cast<int32_t>(gate_.fetch_or(kClosed, std::memory_order_acq_rel) & (kClosed - 1));
  int32_t left = left_.load(std::memory_order_acquire);
  for (Patience patience; left != helpers; left = left_.load(std::memory_order_acquire)) {
    if (patience.IsOver()) {
      left_.wait(left);
    } else {
      Pause();
    }
  }
  return result_.load(std::memory_order_relaxed);
}

namespace {

// A loop in steps.  Each member has a part of every step that it begins with, always that of the
// same place; then it takes the parts of others that nobody began.
struct Steps {
  ThreadPool::Task task;
  void* closure;
  int64_t num_steps;
  int64_t units;
  int64_t parts;
  // How far a place is: both numbers on one line, which its own member mostly writes.
  struct alignas(64) Place {
    std::atomic<int64_t> begun{0};
    std::atomic<int64_t> done{0};
  };
  std::unique_ptr<Place[]> places;
  std::atomic<int> failed{0};

  // The part of a place in a step, unless it has begun.
  int Try(int64_t at, int64_t step) {
    Place& place = places[static_cast<size_t>(at)];
    int64_t expected = step;
    if (place.begun.load(std::memory_order_relaxed) != step ||
        !place.begun.compare_exchange_strong(expected, step + 1, std::memory_order_acq_rel))
      return 0;
    const int64_t part = step % 2 == 0 ? at : parts - 1 - at, first = step * units;
    const int rc = task(closure, first + units * part / parts, first + units * (part + 1) / parts);
    if (rc != 0) failed.store(rc, std::memory_order_relaxed);
    place.done.store(step + 1, std::memory_order_release);
    return rc;
  }

  // Until a place's step is done.  A part that was begun ends: its thread runs.
  void WaitFor(int64_t at, int64_t step) const {
    const Place& place = places[static_cast<size_t>(at)];
    for (Patience patience; place.done.load(std::memory_order_acquire) <= step;) {
      if (patience.IsOver())
        std::this_thread::yield();
      else
        Pause();
    }
  }

  int Member(int64_t home) {
    int64_t step = num_steps;  // who comes late begins where the others are
    for (int64_t at = 0; at < parts; ++at)
      step = std::min(step, places[static_cast<size_t>(at)].done.load(std::memory_order_acquire));
    for (; step < num_steps && failed.load(std::memory_order_relaxed) == 0; ++step) {
      for (int64_t i = 0; i < parts; ++i) {
        if (int rc = Try((home + i) % parts, step)) return rc;
      }
      for (int64_t i = 1; i < parts; ++i) WaitFor((home + i) % parts, step);
      WaitFor(home, step);
    }
    return 0;
  }
};

}  // namespace

int ThreadPool::RunSteps(int num_shares, int64_t num_steps, int64_t units, Task task,
                         void* closure) {
  const int64_t parts = std::min<int64_t>({num_shares, units, kMaxShares, MostShares()});
  if (num_steps <= 0 || units <= 0) return 0;
  if (parts <= 1 || inside_loop) return task(closure, 0, num_steps * units);
  Steps steps{task, closure, num_steps, units, parts, {}};
  steps.places = std::make_unique<Steps::Place[]>(static_cast<size_t>(parts));
  auto member = [](void* data, int64_t begin, int64_t end) {
    int rc = 0;
    for (int64_t at = begin; at < end && rc == 0; ++at) rc = static_cast<Steps*>(data)->Member(at);
    return rc;
  };
  return Run(static_cast<int>(parts), parts, member, &steps);
}

}  // namespace relaxvm
