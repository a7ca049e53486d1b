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
    std::string bytes = Serialize(builder.Get()).Join();
    ExecutableData again = Deserialize(bytes, "again");
    Verify(again, "again");
    EXPECT_EQ(Serialize(again).Join(), bytes);
    EXPECT_EQ(AsText(again), AsText(builder.Get()));
  }
}

TEST(Serialize, StartsWithMagicAndVersionOfTVM) {
  std::string bytes = Serialize(testing::SamplePrograms()[0].Get()).Join();
  EXPECT_EQ(bytes.substr(0, 20), std::string("\x1e\x15\x14\x42\x2f\xde\x25\xd2\x04\0\0\0\0\0\0\0"
                                             "0.14",
                                             20));
}

TEST(Serialize, AcceptsWhatTVMWroteWithoutOurSection) {
  std::string bytes = Serialize(testing::SamplePrograms()[3].Get()).Join();
  bytes.resize(bytes.size() - kOwnSectionBytes);
  EXPECT_EQ(Deserialize(bytes, "tvm").constants.size(), 4u);
}

TEST(Serialize, RefusesEveryTruncation) {
  std::string bytes = Serialize(testing::SamplePrograms()[3].Get()).Join();
  for (size_t size = 0; size < bytes.size(); ++size) {
    if (size == bytes.size() - kOwnSectionBytes) continue;  // TVM's part alone is whole
    EXPECT_THROW(Deserialize(bytes.substr(0, size), "cut"), tvm::ffi::Error) << size;
  }
}

TEST(Serialize, ChecksumFindsEveryFlippedBit) {
  std::string bytes = Serialize(testing::SamplePrograms()[1].Get()).Join();
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ (1 << (i % 8)));
    EXPECT_THROW(Deserialize(damaged, "flipped"), tvm::ffi::Error) << i;
  }
}

// A file whose constants, all of `tensors`, lie in "w" behind each other.
std::string Apart(const std::vector<tvm::ffi::Tensor>& tensors, uint64_t weights_bytes,
                  const std::string& name = "w", uint64_t shift = 0) {
  ExecBuilder builder;
  for (const tvm::ffi::Tensor& tensor : tensors) builder.AddConstant(tensor);
  ExecutableData data = builder.Get();
  std::vector<WeightsPlace> places = PlanWeights(data);
  EXPECT_EQ(places.size(), tensors.size());
  for (WeightsPlace& place : places) place.offset += shift;
  return SerializeApart(data, places, {name, weights_bytes, 7, "", 0}).Join();
}

// What the reader is asked for, as "offset:elements".
std::string ReadApart(const std::string& bytes) {
  std::string asked;
  Parts parts;
  auto open = [&](const Parts& given) -> WeightsReader {
    asked += given.weights;
    return [&](tvm::ffi::ShapeView shape, DLDataType dtype, uint64_t offset) {
      std::vector<int64_t> dims(shape.begin(), shape.end());
      asked += " " + std::to_string(offset) + ":" + std::to_string(shape.Product());
      return testing::Zeros(dims, dtype);
    };
  };
  Deserialize(bytes, "apart", open, &parts);
  return asked;
}

TEST(SerializeApart, AsksForAlignedPlacesInsideTheFile) {
  std::vector<tvm::ffi::Tensor> tensors = {testing::Zeros({17}), testing::Zeros({4, 8}),
                                           testing::Zeros({3}, Int(4))};
  EXPECT_EQ(ReadApart(Apart(tensors, 384)), "w 64:17 192:32 320:3");
  EXPECT_THROW(Deserialize(Apart(tensors, 384), "no opener"), tvm::ffi::Error);
}

TEST(SerializeApart, RefusesPlacesThatAreNotInTheFile) {
  std::vector<tvm::ffi::Tensor> tensors = {testing::Zeros({16})};
  EXPECT_EQ(ReadApart(Apart(tensors, 128)), "w 64:16");
  EXPECT_THROW(ReadApart(Apart(tensors, 127)), tvm::ffi::Error);
  EXPECT_THROW(ReadApart(Apart(tensors, 192, "w", 8)), tvm::ffi::Error);    // not aligned
  EXPECT_THROW(ReadApart(Apart(tensors, 192, "w", 128)), tvm::ffi::Error);  // behind
  EXPECT_THROW(ReadApart(Apart(tensors, 192, "w", uint64_t{0} - 64)), tvm::ffi::Error);
}

TEST(SerializeApart, NamesFilesOfItsFolderOnly) {
  for (const char* name : {"../w", "/etc/w", "a/b"}) {
    EXPECT_THROW(ReadApart(Apart({testing::Zeros({16})}, 128, name)), tvm::ffi::Error) << name;
  }
  EXPECT_THROW(ReadApart(Apart({testing::Zeros({16})}, 128, "")), tvm::ffi::Error);
}

TEST(SerializeApart, RefusesEveryTruncation) {
  std::string bytes = Apart({testing::Zeros({17})}, 192);
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THROW(ReadApart(bytes.substr(0, size)), tvm::ffi::Error) << size;
  }
}

TEST(Container, RestoresItems) {
  std::vector<ContainerItem> items = {
      {"a", "payload", {1, 2}}, {"_lib", "", {}}, {"b", std::string_view("\0x", 2), {}}};
  const std::string bytes = PackContainer(items) + "what follows in memory";
  std::vector<ContainerItem> again = UnpackContainer(bytes, "container");
  ASSERT_EQ(again.size(), 3u);
  EXPECT_EQ(again[0].children, (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(again[0].bytes, "payload");
  EXPECT_EQ(again[1].kind, "_lib");
  EXPECT_EQ(again[2].bytes, std::string("\0x", 2));
}

TEST(Container, OfAnExecutableHasItAndItsLibrary) {
  for (const ExecBuilder& builder : testing::SamplePrograms()) {
    ExecutableData data = builder.Get();
    EXPECT_EQ(PackExecutable(data).Join(),
              PackContainer({{kExecutableKind, Serialize(data).Join(), {1}}, {"_lib", "", {}}}));
  }
}

TEST(Container, RefusesModulesThatImportThemselves) {
  EXPECT_THROW(UnpackContainer(PackContainer({{"a", "", {0}}}), "cycle"), tvm::ffi::Error);
  EXPECT_THROW(UnpackContainer(PackContainer({{"a", "", {1}}, {"b", "", {0}}}), "cycle"),
               tvm::ffi::Error);
  EXPECT_THROW(UnpackContainer(PackContainer({{"a", "", {7}}}), "missing"), tvm::ffi::Error);
}

TEST(Container, RefusesEveryTruncation) {
  std::string bytes = PackExecutable(testing::SamplePrograms()[0].Get()).Join();
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THROW(UnpackContainer(bytes.substr(0, size), "cut"), tvm::ffi::Error) << size;
  }
}

}  // namespace
}  // namespace relaxvm::bytecode
