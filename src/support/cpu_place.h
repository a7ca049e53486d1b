// SPDX-License-Identifier: Apache-2.0
// On which CPUs threads wake up.
#pragma once

#include <sched.h>

#include <utility>
#include <vector>

namespace relaxvm {

int CurrentThread();  // the system's number
int CurrentCpu();     // -1: the system does not say

// Threads that are about to be woken: none of them on the CPU of the caller, or where another one
// slept.  The system wakes a thread there when it knows of no idle CPU; one that is virtual and
// halted looks occupied to it, and it evens out only what runs for milliseconds.
class WakePlaces {
 public:
  explicit WakePlaces(int caller_cpu);
  ~WakePlaces();  // to be run when they are awake: their masks are as they were before
  WakePlaces(const WakePlaces&) = delete;
  WakePlaces& operator=(const WakePlaces&) = delete;
  void Add(int thread, int slept_on);

 private:
  cpu_set_t taken_;
  std::vector<std::pair<int, cpu_set_t>> masks_;  // as they were
};

}  // namespace relaxvm
