// SPDX-License-Identifier: Apache-2.0
// One 64-bit hash of bytes: content keys (equal constants, equal programs) and damage checks of
// files. Not cryptographic: it finds accidents, not forgeries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace relaxvm {

// Equal bytes and seeds give equal hashes on every little-endian machine: the value is stored in
// files.
uint64_t HashBytes(const void* data, size_t num_bytes, uint64_t seed = 0);

inline uint64_t HashBytes(std::string_view text, uint64_t seed = 0) {
  return HashBytes(text.data(), text.size(), seed);
}

// HashBytes of bytes that come in pieces.
class HashStream {
 public:
  explicit HashStream(uint64_t seed = 0);
  void Add(std::string_view bytes);
  uint64_t Finish() const;

 private:
  uint64_t lanes_[4];
  uint64_t num_bytes_ = 0;
  char tail_[32] = {};  // what came after the last whole round
};

}  // namespace relaxvm
