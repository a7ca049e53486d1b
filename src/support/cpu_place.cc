// SPDX-License-Identifier: Apache-2.0
// Linux chooses a CPU when it wakes a thread, out of the mask that the thread has at that moment.
#include "support/cpu_place.h"

#include <unistd.h>

namespace relaxvm {

int CurrentThread() { return static_cast<int>(gettid()); }
int CurrentCpu() { return sched_getcpu(); }

WakePlaces::WakePlaces(int caller_cpu) {
  CPU_ZERO(&taken_);
  if (caller_cpu >= 0 && caller_cpu < CPU_SETSIZE) CPU_SET(caller_cpu, &taken_);
}

WakePlaces::~WakePlaces() {
  for (const auto& [thread, mask] : masks_) sched_setaffinity(thread, sizeof(mask), &mask);
}

void WakePlaces::Add(int thread, int slept_on) {
  if (slept_on < 0 || slept_on >= CPU_SETSIZE) return;
  cpu_set_t mask, free;
  if (sched_getaffinity(thread, sizeof(mask), &mask) != 0) return;
  CPU_AND(&free, &mask, &taken_);
  CPU_XOR(&free, &free, &mask);
  CPU_SET(slept_on, &taken_);
  if (CPU_COUNT(&free) == 0 || sched_setaffinity(thread, sizeof(free), &free) != 0) return;
  masks_.emplace_back(thread, mask);
}

}  // namespace relaxvm
