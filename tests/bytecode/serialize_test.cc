// SPDX-License-Identifier: Apache-2.0
// The file format: round trip, TVM's layout, damage.
#include "bytecode/serialize.h"

#include <gtest/gtest.h>

#include <cstring>

#include "bytecode/disassemble.h"
#include "bytecode/verify.h"
#include "programs.h"

namespace relaxvm::bytecode {
namespace {

constexpr size_t kOwnSectionBytes = 32;

TEST(Serialize, RestoresEveryProgram) {
  for (const ExecBuilder& builder : testing::SamplePrograms()) {
    std::string bytes = Serialize(builder.Get());
    ExecutableData again = Deserialize(bytes, "again");
    Verify(again, "again");
    EXPECT_EQ(Serialize(again), bytes);
    EXPECT_EQ(AsText(again), AsText(builder.Get()));
  }
}

TEST(Serialize, StartsWithMagicAndVersionOfTVM) {
  std::string bytes = Serialize(testing::SamplePrograms()[0].Get());
  EXPECT_EQ(bytes.substr(0, 20), std::string("\x1e\x15\x14\x42\x2f\xde\x25\xd2\x04\0\0\0\0\0\0\0"
                                             "0.14",
                                             20));
}

TEST(Serialize, AcceptsWhatTVMWroteWithoutOurSection) {
  std::string bytes = Serialize(testing::SamplePrograms()[3].Get());
  bytes.resize(bytes.size() - kOwnSectionBytes);
  EXPECT_EQ(Deserialize(bytes, "tvm").constants.size(), 4u);
}

TEST(Serialize, RefusesEveryTruncation) {
  std::string bytes = Serialize(testing::SamplePrograms()[3].Get());
  for (size_t size = 0; size < bytes.size(); ++size) {
    if (size == bytes.size() - kOwnSectionBytes) continue;  // TVM's part alone is whole
    EXPECT_THROW(Deserialize(bytes.substr(0, size), "cut"), tvm::ffi::Error) << size;
  }
}

TEST(Serialize, ChecksumFindsEveryFlippedBit) {
  std::string bytes = Serialize(testing::SamplePrograms()[1].Get());
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ (1 << (i % 8)));
    EXPECT_THROW(Deserialize(damaged, "flipped"), tvm::ffi::Error) << i;
  }
}

TEST(Container, RestoresItems) {
  std::vector<ContainerItem> items = {
      {"a", "payload", {1, 2}}, {"_lib", "", {}}, {"b", std::string("\0x", 2), {}}};
  std::vector<ContainerItem> again =
      UnpackContainer(PackContainer(items) + "what follows in memory", "container");
  ASSERT_EQ(again.size(), 3u);
  EXPECT_EQ(again[0].children, (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(again[0].bytes, "payload");
  EXPECT_EQ(again[1].kind, "_lib");
  EXPECT_EQ(again[2].bytes, std::string("\0x", 2));
}

TEST(Container, RefusesModulesThatImportThemselves) {
  EXPECT_THROW(UnpackContainer(PackContainer({{"a", "", {0}}}), "cycle"), tvm::ffi::Error);
  EXPECT_THROW(UnpackContainer(PackContainer({{"a", "", {1}}, {"b", "", {0}}}), "cycle"),
               tvm::ffi::Error);
  EXPECT_THROW(UnpackContainer(PackContainer({{"a", "", {7}}}), "missing"), tvm::ffi::Error);
}

TEST(Container, RefusesEveryTruncation) {
  std::string bytes = PackExecutable(testing::SamplePrograms()[0].Get());
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THROW(UnpackContainer(bytes.substr(0, size), "cut"), tvm::ffi::Error) << size;
  }
}

}  // namespace
}  // namespace relaxvm::bytecode
