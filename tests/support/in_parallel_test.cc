// SPDX-License-Identifier: Apache-2.0
// Every part once, and the same error every time.
#include "support/in_parallel.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

namespace relaxvm {
namespace {

TEST(InParallel, TakesEveryStepOnce) {
  for (int num_threads : {0, 1, 3, 64}) {
    std::vector<int> steps(40);
    InParallel(num_threads, steps.size(), [&](size_t i) { ++steps[i]; });
    EXPECT_EQ(steps, std::vector<int>(40, 1)) << num_threads;
  }
  InParallel(2, 0, [](size_t) { FAIL(); });
}

TEST(InParallel, ThrowsTheErrorOfTheFirstStepThatFails) {
  for (int round = 0; round < 50; ++round) {
    try {
      InParallel(4, 100, [](size_t i) {
        if (i >= 7) throw std::runtime_error(std::to_string(i));
      });
      FAIL();
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "7");
    }
  }
}

}  // namespace
}  // namespace relaxvm
