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

uint64_t WordAt(const char* at) {
  uint64_t word;
  std::memcpy(&word, at, sizeof(word));
  return word;
}

uint64_t Round(uint64_t lane, uint64_t word, int i) {
  return std::rotl((lane ^ word) * kMul[i], 29);
}

}  // namespace

uint64_t HashBytes(const void* data, size_t num_bytes, uint64_t seed) {
  const char* at = static_cast<const char*>(data);
  // Four variables and no array: compilers would take that for vectors, whose 64-bit multiplication
  // is three others.
  uint64_t a = seed + kMul[0], b = seed + kMul[1], c = seed + kMul[2], d = seed + kMul[3];
  size_t left = num_bytes;
  for (; left >= 32; at += 32, left -= 32) {
    a = Round(a, WordAt(at), 0);
    b = Round(b, WordAt(at + 8), 1);
    c = Round(c, WordAt(at + 16), 2);
    d = Round(d, WordAt(at + 24), 3);
  }
  char tail[32] = {};
  if (left > 0) std::memcpy(tail, at, left);
  uint64_t hash = num_bytes;
  hash = Finish(hash ^ Round(a, WordAt(tail), 0)) + kMul[0];
  hash = Finish(hash ^ Round(b, WordAt(tail + 8), 1)) + kMul[1];
  hash = Finish(hash ^ Round(c, WordAt(tail + 16), 2)) + kMul[2];
  return Finish(hash ^ Round(d, WordAt(tail + 24), 3)) + kMul[3];
}

}  // namespace relaxvm
