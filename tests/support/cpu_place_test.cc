// SPDX-License-Identifier: Apache-2.0
// Where threads wake up.
#include "support/cpu_place.h"

#include <gtest/gtest.h>

#include <semaphore>
#include <thread>

namespace relaxvm {
namespace {

int FirstCpu(const cpu_set_t& mask) {
  int cpu = 0;
  while (CPU_ISSET(cpu, &mask) == 0) ++cpu;
  return cpu;
}

// A thread that sleeps until the end of the test.
class Sleeper {
 public:
  Sleeper() : body_([this] { Sleep(); }) { ready_.acquire(); }
  ~Sleeper() {
    end_.release();
    body_.join();
  }
  int thread() const { return thread_; }
  cpu_set_t mask() const {
    cpu_set_t mask;
    EXPECT_EQ(sched_getaffinity(thread_, sizeof(mask), &mask), 0);
    return mask;
  }

 private:
  void Sleep() {
    thread_ = CurrentThread();
    ready_.release();
    end_.acquire();
  }

  int thread_ = 0;
  std::binary_semaphore ready_{0}, end_{0};
  std::thread body_;
};

TEST(WakePlaces, KeepsAThreadOffTheCpuOfItsCaller) {
  Sleeper sleeper;
  const cpu_set_t before = sleeper.mask();
  const int cpu = FirstCpu(before);
  {
    WakePlaces places(cpu);
    places.Add(sleeper.thread(), cpu);
    const cpu_set_t mask = sleeper.mask();
    EXPECT_EQ(CPU_ISSET(cpu, &mask) != 0, CPU_COUNT(&before) <= 1);
  }
  const cpu_set_t after = sleeper.mask();
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

TEST(WakePlaces, LeavesThreadsThatAreAwake) {
  Sleeper sleeper;
  const cpu_set_t before = sleeper.mask();
  WakePlaces places(FirstCpu(before));
  places.Add(sleeper.thread(), -1);
  const cpu_set_t now = sleeper.mask();
  EXPECT_TRUE(CPU_EQUAL(&before, &now));
}

}  // namespace
}  // namespace relaxvm
