// SPDX-License-Identifier: Apache-2.0
// Environment variables: a name that no row has is a typing error, and is told.
#include "support/flags.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

namespace relaxvm {
namespace {

bool IsUnknown(const char* variable) {
  setenv(variable, "some/folder", /*overwrite=*/1);
  std::vector<std::string> unknown = UnknownFlags();
  unsetenv(variable);
  return std::find(unknown.begin(), unknown.end(), variable) != unknown.end();
}

TEST(Flags, AMisspeltNameIsTold) { EXPECT_TRUE(IsUnknown("RELAXVM_ZOOO")); }

TEST(Flags, WhatBenchesReadIsKnown) { EXPECT_FALSE(IsUnknown("RELAXVM_ZOO")); }

}  // namespace
}  // namespace relaxvm
