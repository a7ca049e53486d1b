// SPDX-License-Identifier: Apache-2.0
// Parallel loops: every iteration once, errors, nesting, several callers.
#include "support/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <semaphore>
#include <thread>
#include <vector>

namespace relaxvm {
namespace {

struct Counts {
  std::vector<std::atomic<int>> hits;
  explicit Counts(size_t size) : hits(size) {}
  static int Task(void* closure, int64_t begin, int64_t end) {
    Counts* self = static_cast<Counts*>(closure);
    for (int64_t i = begin; i < end; ++i) ++self->hits[static_cast<size_t>(i)];
    return 0;
  }
  bool AllAre(int expected) const {
    return std::all_of(hits.begin(), hits.end(), [&](const auto& hit) { return hit == expected; });
  }
};

TEST(ThreadPool, RunsEveryIterationOnce) {
  ThreadPool pool;
  for (int shares : {1, 2, 3, 8}) {
    for (int64_t extent : {1, 2, 3, 7, 100, 1001}) {
      Counts counts(static_cast<size_t>(extent));
      EXPECT_EQ(pool.Run(shares, extent, Counts::Task, &counts), 0);
      EXPECT_TRUE(counts.AllAre(1)) << shares << " " << extent;
    }
  }
  EXPECT_EQ(pool.num_workers(), 7);
}

TEST(ThreadPool, EmptyLoopCallsNothing) {
  ThreadPool pool;
  auto fail = [](void*, int64_t, int64_t) { return 1; };
  EXPECT_EQ(pool.Run(4, 0, fail, nullptr), 0);
}

TEST(ThreadPool, ReturnsAnErrorOfAnyShare) {
  ThreadPool pool;
  auto task = [](void*, int64_t begin, int64_t end) { return begin <= 70 && 70 < end ? -5 : 0; };
  for (int i = 0; i < 100; ++i) EXPECT_EQ(pool.Run(4, 100, task, nullptr), -5);
}

TEST(ThreadPool, LoopInsideALoopRunsInItsThread) {
  ThreadPool pool;
  struct Nested {
    ThreadPool* pool;
    Counts counts{64};
  } nested{&pool};
  auto outer = [](void* closure, int64_t begin, int64_t end) {
    Nested* self = static_cast<Nested*>(closure);
    for (int64_t i = begin; i < end; ++i) self->pool->Run(4, 64, Counts::Task, &self->counts);
    return 0;
  };
  pool.Run(4, 8, outer, &nested);
  EXPECT_TRUE(nested.counts.AllAre(8));
}

TEST(ThreadPool, OneShareStartsNoThread) {
  ThreadPool pool;
  Counts counts(6);
  EXPECT_EQ(pool.Run(1, 6, Counts::Task, &counts), 0);
  EXPECT_EQ(pool.RunSteps(1, 2, 3, Counts::Task, &counts), 0);
  EXPECT_TRUE(counts.AllAre(2));
  EXPECT_EQ(pool.num_workers(), 0);
}

TEST(ThreadPool, UsesNoMoreThreadsThanCpus) {
  ThreadPool pool;
  pool.set_num_cpus(2);
  Counts counts(64);
  EXPECT_EQ(pool.Run(8, 64, Counts::Task, &counts), 0);
  EXPECT_EQ(pool.RunSteps(8, 2, 32, Counts::Task, &counts), 0);
  EXPECT_TRUE(counts.AllAre(2));
  EXPECT_EQ(pool.num_workers(), 1);
}

TEST(ThreadPool, LeavesOtherCallersTheirCpus) {
  ThreadPool pool;
  pool.set_num_cpus(1);
  Counts counts(64), of_other(64);
  std::binary_semaphore there{0}, end{0};
  std::thread other([&] {
    const ThreadPool::Caller caller;
    EXPECT_EQ(pool.Run(2, 64, Counts::Task, &of_other), 0);
    pool.set_num_cpus(2);
    there.release();
    end.acquire();
  });
  there.acquire();
  const ThreadPool::Caller caller;
  EXPECT_EQ(pool.Run(2, 64, Counts::Task, &counts), 0);
  EXPECT_EQ(pool.num_workers(), 0);
  end.release();
  other.join();
  EXPECT_EQ(pool.Run(2, 64, Counts::Task, &counts), 0);
  EXPECT_EQ(pool.num_workers(), 1);
  EXPECT_TRUE(counts.AllAre(2));
}

TEST(ThreadPool, AWorkerOnTheCpuOfItsCallerDoesNothing) {
  std::thread([] {
    cpu_set_t mask, one;
    ASSERT_EQ(sched_getaffinity(0, sizeof(mask), &mask), 0);
    int cpu = 0;
    while (!CPU_ISSET(cpu, &mask)) ++cpu;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);  // workers inherit it
    struct Seen {
      std::thread::id caller = std::this_thread::get_id();
      std::atomic<int> by_others{0};
    } seen;
    auto task = [](void* closure, int64_t, int64_t) {
      auto* self = static_cast<Seen*>(closure);
      if (std::this_thread::get_id() != self->caller) ++self->by_others;
      std::this_thread::yield();
      return 0;
    };
    ThreadPool pool;
    for (int i = 0; i < 100; ++i) pool.Run(2, 64, task, &seen);
    EXPECT_EQ(seen.by_others, 0);
  }).join();
}

// Counts the iterations of each step, and those that began before the step before was done.
struct StepCounts {
  int64_t units;
  std::vector<std::atomic<int>> done;
  std::atomic<int> early{0};
  StepCounts(int64_t steps, int64_t units) : units(units), done(static_cast<size_t>(steps)) {}
  static int Task(void* closure, int64_t begin, int64_t end) {
    StepCounts* self = static_cast<StepCounts*>(closure);
    for (int64_t i = begin; i < end; ++i) {
      const size_t step = static_cast<size_t>(i / self->units);
      if (step > 0 && self->done[step - 1] != self->units) ++self->early;
      ++self->done[step];
    }
    return 0;
  }
};

TEST(ThreadPool, StepsRunOneAfterTheOther) {
  ThreadPool pool;
  for (int shares : {1, 2, 3, 8}) {
    for (int64_t units : {1, 2, 5, 16}) {
      StepCounts counts(200, units);
      EXPECT_EQ(pool.RunSteps(shares, 200, units, StepCounts::Task, &counts), 0);
      EXPECT_EQ(counts.early, 0) << shares << " " << units;
      for (const auto& done : counts.done) ASSERT_EQ(done, units) << shares;
    }
  }
}

TEST(ThreadPool, AnErrorEndsTheSteps) {
  ThreadPool pool;
  auto task = [](void* closure, int64_t begin, int64_t end) {
    if (begin <= 70 && 70 < end) return -5;
    if (begin >= 160) ++*static_cast<std::atomic<int>*>(closure);
    return 0;
  };
  for (int i = 0; i < 100; ++i) {
    std::atomic<int> later{0};
    EXPECT_EQ(pool.RunSteps(4, 1000, 16, task, &later), -5);
    EXPECT_EQ(later, 0);
  }
}

TEST(ThreadPool, StepsInsideALoopRunInItsThread) {
  ThreadPool pool;
  struct Nested {
    ThreadPool* pool;
    Counts counts{64};
  } nested{&pool};
  auto outer = [](void* closure, int64_t begin, int64_t end) {
    Nested* self = static_cast<Nested*>(closure);
    for (int64_t i = begin; i < end; ++i)
      self->pool->RunSteps(4, 8, 8, Counts::Task, &self->counts);
    return 0;
  };
  pool.Run(4, 8, outer, &nested);
  EXPECT_TRUE(nested.counts.AllAre(8));
}

TEST(ThreadPool, ServesManyCallersAtOnce) {
  ThreadPool pool;
  constexpr int kCallers = 4, kLoops = 500;
  std::vector<std::unique_ptr<Counts>> counts;
  for (int i = 0; i < kCallers; ++i) counts.push_back(std::make_unique<Counts>(37));
  std::vector<std::thread> callers;
  for (int i = 0; i < kCallers; ++i) {
    callers.emplace_back([&, i] {
      Counts* own = counts[static_cast<size_t>(i)].get();
      for (int k = 0; k < kLoops; ++k) {
        if (k % 2 == 0)
          pool.Run(2, 37, Counts::Task, own);
        else
          pool.RunSteps(2, 1, 37, Counts::Task, own);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  for (const auto& count : counts) EXPECT_TRUE(count->AllAre(kLoops));
}

}  // namespace
}  // namespace relaxvm
