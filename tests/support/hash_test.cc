// SPDX-License-Identifier: Apache-2.0
// Hashes are stored in files: they stay what they are.
#include "support/hash.h"

#include <gtest/gtest.h>

#include <string>

namespace relaxvm {
namespace {

std::string Text(size_t num_bytes) {
  std::string text(num_bytes, '\0');
  for (size_t i = 0; i < num_bytes; ++i)
    text[i] = static_cast<char>((uint64_t{i} + 1) * 2654435761u >> 13);
  return text;
}

TEST(Hash, IsThatOfFilesWrittenBefore) {
  EXPECT_EQ(HashBytes(Text(0), 7), 0x45709f98f39f06abu);
  EXPECT_EQ(HashBytes(Text(1), 7), 0xf25c2827e9b44e72u);
  EXPECT_EQ(HashBytes(Text(31), 7), 0x24c4311923eb9e1au);
  EXPECT_EQ(HashBytes(Text(32), 7), 0x50a6755f69128192u);
  EXPECT_EQ(HashBytes(Text(33), 7), 0x7d366481a3b83a04u);
  EXPECT_EQ(HashBytes(Text(1000), 7), 0x82cdb7dd9e7e5011u);
}

TEST(Hash, OfPiecesIsThatOfTheWhole) {
  const std::string text = Text(300);
  for (size_t piece : {size_t{1}, size_t{7}, size_t{32}, size_t{33}, size_t{100}}) {
    HashStream stream(7);
    for (size_t at = 0; at < text.size(); at += piece)
      stream.Add(std::string_view(text).substr(at, piece));
    EXPECT_EQ(stream.Finish(), HashBytes(text, 7)) << piece;
  }
}

TEST(Hash, DependsOnLengthSeedAndOrder) {
  EXPECT_NE(HashBytes(std::string(32, '\0')), HashBytes(std::string(33, '\0')));
  EXPECT_NE(HashBytes(Text(9), 1), HashBytes(Text(9), 2));
  EXPECT_NE(HashBytes(Text(32) + Text(31)), HashBytes(Text(31) + Text(32)));
}

}  // namespace
}  // namespace relaxvm
