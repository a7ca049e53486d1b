// SPDX-License-Identifier: Apache-2.0
// Four independent lanes of xor, multiply, rotate: one cache line per two rounds, limited by memory
// on long inputs.
#include "support/hash.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace relaxvm {
namespace {

constexpr uint64_t kMul[4] = {0x9e3779b97f4a7c15, 0xd6e8feb86659fd93, 0xa0761d6478bd642f,
                              0xe7037ed1a0b428db};

uint64_t Finished(uint64_t x) {
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

HashStream::HashStream(uint64_t seed)
    : lanes_{seed + kMul[0], seed + kMul[1], seed + kMul[2], seed + kMul[3]} {}

void HashStream::Add(std::string_view bytes) {
  if (bytes.empty()) return;
  // Four variables and no array: compilers would take that for vectors, whose 64-bit multiplication
  // is three others.
  uint64_t a = lanes_[0], b = lanes_[1], c = lanes_[2], d = lanes_[3];
  auto round = [&](const char* at) {
    a = Round(a, WordAt(at), 0);
    b = Round(b, WordAt(at + 8), 1);
    c = Round(c, WordAt(at + 16), 2);
    d = Round(d, WordAt(at + 24), 3);
  };
  const size_t waiting = num_bytes_ % sizeof(tail_);
  num_bytes_ += bytes.size();
  if (waiting > 0) {
    const size_t take = std::min(bytes.size(), sizeof(tail_) - waiting);
    std::memcpy(tail_ + waiting, bytes.data(), take);
    bytes.remove_prefix(take);
    if (waiting + take == sizeof(tail_)) round(tail_);
  }
  const char* at = bytes.data();
  size_t left = bytes.size();
  for (; left >= sizeof(tail_); at += sizeof(tail_), left -= sizeof(tail_)) round(at);
  if (left > 0) std::memcpy(tail_, at, left);
  lanes_[0] = a, lanes_[1] = b, lanes_[2] = c, lanes_[3] = d;
}

uint64_t HashStream::Finish() const {
  char tail[sizeof(tail_)] = {};
  std::memcpy(tail, tail_, num_bytes_ % sizeof(tail_));
  uint64_t hash = num_bytes_;
  for (int i = 0; i < 4; ++i)
    hash = Finished(hash ^ Round(lanes_[i], WordAt(tail + 8 * i), i)) + kMul[i];
  return hash;
}

uint64_t HashBytes(const void* data, size_t num_bytes, uint64_t seed) {
  HashStream stream(seed);
  stream.Add({static_cast<const char*>(data), num_bytes});
  return stream.Finish();
}

}  // namespace relaxvm
