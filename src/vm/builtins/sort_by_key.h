// SPDX-License-Identifier: Apache-2.0
// Sorts numbered things by an integer.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <vector>

namespace relaxvm::vm::builtins {

struct Keyed {
  uint64_t key;
  int64_t index;
};

// By key; equal ones keep their order.  Digit by digit, as many as the keys' range has: no branch
// depends on a key.
inline void SortByKey(std::vector<Keyed>* keyed) {
  constexpr int kDigitBits = 8;
  constexpr size_t kDigits = size_t{1} << kDigitBits;
  if (keyed->empty()) return;
  uint64_t base = ~uint64_t{0}, most = 0;
  for (const Keyed& k : *keyed) {
    base = std::min(base, k.key);
    most = std::max(most, k.key);
  }
  const uint64_t range = most - base;
  std::vector<Keyed> sorted(keyed->size());
  for (int shift = 0; shift < 64 && (range >> shift) != 0; shift += kDigitBits) {
    auto digit = [&](const Keyed& k) { return ((k.key - base) >> shift) % kDigits; };
    std::array<size_t, kDigits> places{};
    for (const Keyed& k : *keyed) ++places[digit(k)];
    std::exclusive_scan(places.begin(), places.end(), places.begin(), size_t{0});
    for (const Keyed& k : *keyed) sorted[places[digit(k)]++] = k;
    keyed->swap(sorted);
  }
}

}  // namespace relaxvm::vm::builtins
