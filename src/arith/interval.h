// SPDX-License-Identifier: Apache-2.0
// Closed intervals of integers; the ends saturate at infinity.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace relaxvm::arith {

inline constexpr int64_t kNegInf = std::numeric_limits<int64_t>::min();
inline constexpr int64_t kPosInf = std::numeric_limits<int64_t>::max();

// floor(a / b) and the remainder that has the sign of b; b is not 0.
constexpr int64_t FloorDivInt(int64_t a, int64_t b) {
  int64_t q = a / b;
  return (a % b != 0 && (a % b < 0) != (b < 0)) ? q - 1 : q;
}
constexpr int64_t FloorModInt(int64_t a, int64_t b) { return a - FloorDivInt(a, b) * b; }

// min <= value <= max.
struct Interval {
  int64_t min = kNegInf;
  int64_t max = kPosInf;

  static Interval Everything() { return {}; }
  static Interval Point(int64_t value) { return {value, value}; }
  static Interval AtLeast(int64_t value) { return {value, kPosInf}; }

  bool IsPoint() const { return min == max && IsBounded(); }
  bool IsBounded() const { return min != kNegInf && max != kPosInf; }
  // No value fits: the facts contradict each other, so the code in question never runs.
  bool IsEmpty() const { return min > max; }
  bool Contains(int64_t value) const { return min <= value && value <= max; }
  bool operator==(const Interval&) const = default;
};

// Sums and products of interval ends: infinity absorbs, overflow becomes infinity.
int64_t SaturatingAdd(int64_t a, int64_t b);
int64_t SaturatingMul(int64_t a, int64_t b);

Interval operator+(Interval a, Interval b);
Interval operator*(Interval a, Interval b);
Interval operator*(Interval a, int64_t factor);
// floor(a / b) for b >= 1; Everything when b may be smaller.
Interval FloorDiv(Interval a, Interval b);
inline Interval Intersect(Interval a, Interval b) {
  return {std::max(a.min, b.min), std::min(a.max, b.max)};
}
inline Interval Union(Interval a, Interval b) {
  return {std::min(a.min, b.min), std::max(a.max, b.max)};
}

}  // namespace relaxvm::arith
