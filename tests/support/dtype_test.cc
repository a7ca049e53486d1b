// SPDX-License-Identifier: Apache-2.0
#include "support/dtype.h"

#include <gtest/gtest.h>
#include <tvm/ffi/error.h>

namespace relaxvm {
namespace {

TEST(DType, NamesAreReadBack) {
  for (const char* name : {"float64", "float32", "float16", "bfloat16", "int64", "int8", "uint64",
                           "uint8", "bool", "float32x4", "int4", "void"}) {
    EXPECT_EQ(DTypeName(ParseDType(name)), name);
  }
}

TEST(DType, SubByteElementsShareBytes) {
  EXPECT_EQ(SizeInBytes(Int(4), 3), 2);
  EXPECT_EQ(SizeInBytes(Int(4), 4), 2);
  EXPECT_EQ(SizeInBytes(UInt(1), 9), 2);
}

TEST(DType, LanesCountIntoTheSize) {
  EXPECT_EQ(SizeInBytes(Float(32, 4), 2), 32);
  EXPECT_EQ(SizeInBytes(BFloat16()), 2);
  EXPECT_EQ(SizeInBytes(Bool(), 5), 5);
  EXPECT_EQ(SizeInBytes(Float(32), 0), 0);
}

TEST(DType, EveryFloatFormatIsAFloat) {
  for (const char* name : {"float64", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"}) {
    EXPECT_TRUE(IsFloat(ParseDType(name))) << name;
  }
  for (const char* name : {"int8", "uint8", "bool"}) {
    EXPECT_FALSE(IsFloat(ParseDType(name))) << name;
  }
}

TEST(DType, AnUnknownNameIsReportedWithAdvice) {
  try {
    ParseDType("float33x");
    FAIL() << "accepted";
  } catch (const tvm::ffi::Error& e) {
    EXPECT_EQ(e.kind(), "ValueError");
    EXPECT_NE(std::string(e.message()).find("unknown dtype 'float33x'; write one like"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace relaxvm
