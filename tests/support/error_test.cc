// SPDX-License-Identifier: Apache-2.0
#include "support/error.h"

#include <gtest/gtest.h>

namespace relaxvm {
namespace {

TEST(Error, PlaceComesFirst) {
  EXPECT_EQ(FormatError({"net.py", 3, 7}, "wrong"), "net.py:3:7: wrong");
  EXPECT_EQ(FormatError({"net.py", 3, 0}, "wrong"), "net.py:3: wrong");
  EXPECT_EQ(FormatError({"node 'conv_1'"}, "wrong"), "node 'conv_1': wrong");
  EXPECT_EQ(FormatError({}, "wrong"), "wrong");
}

TEST(Error, FailStreamsItsParts) {
  try {
    Fail(ErrorKind::kTypeError, SourcePlace{"net.py", 2, 1}, "axis ", 5, " is out of range");
    FAIL() << "returned";
  } catch (const tvm::ffi::Error& e) {
    EXPECT_EQ(e.kind(), "TypeError");
    EXPECT_EQ(std::string(e.message()), "net.py:2:1: axis 5 is out of range");
  }
}

TEST(Error, ABrokenInvariantIsAnInternalErrorWithFileAndLine) {
  try {
    RELAXVM_CHECK(1 + 1 == 3) << "arithmetic";
    FAIL() << "returned";
  } catch (const tvm::ffi::Error& e) {
    EXPECT_EQ(e.kind(), "InternalError");
    EXPECT_NE(std::string(e.message()).find("check failed: 1 + 1 == 3 arithmetic"),
              std::string::npos);
    EXPECT_NE(std::string(e.backtrace()).find("error_test.cc"), std::string::npos);
  }
}

}  // namespace
}  // namespace relaxvm
