// SPDX-License-Identifier: Apache-2.0
// Four independent lanes of xor, multiply, rotate: one cache line per two rounds, limited by memory
// on long inputs.
#include "support/hash.h"

#include <bit>
#include <cstring>

namespace relaxvm {
namespace {

constexpr uint64_t kMul[4] = {0x9e3779b97f4a7c15, 0xd6e8feb86659fd93, 0xa0761d6478bd642f,
                              0xe7037ed1a0b428db};

uint64_t Finish(uint64_t x) {
  x = (x ^ (x >> 32)) * kMul[0];
  x = (x ^ (x >> 29)) * kMul[1];
  return x ^ (x >> 32);
}

}  // namespace

uint64_t HashBytes(const void* data, size_t num_bytes, uint64_t seed) {
  const char* at = static_cast<const char*>(data);
  uint64_t lanes[4];
  for (int i = 0; i < 4; ++i) lanes[i] = seed + kMul[i];
  size_t left = num_bytes;
  for (; left >= 32; at += 32, left -= 32) {
    uint64_t words[4];
    std::memcpy(words, at, 32);
    for (int i = 0; i < 4; ++i) lanes[i] = std::rotl((lanes[i] ^ words[i]) * kMul[i], 29);
  }
  uint64_t tail[4] = {0, 0, 0, 0};
  if (left > 0) std::memcpy(tail, at, left);
  uint64_t hash = num_bytes;
  for (int i = 0; i < 4; ++i)
    hash = Finish(hash ^ std::rotl((lanes[i] ^ tail[i]) * kMul[i], 29)) + kMul[i];
  return hash;
}

}  // namespace relaxvm
