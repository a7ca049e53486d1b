// SPDX-License-Identifier: Apache-2.0
#include "arith/interval.h"

namespace relaxvm::arith {
namespace {

bool IsInf(int64_t x) { return x == kNegInf || x == kPosInf; }
int64_t Inf(bool negative) { return negative ? kNegInf : kPosInf; }

}  // namespace

int64_t SaturatingAdd(int64_t a, int64_t b) {
  if (IsInf(a)) return a;
  if (IsInf(b)) return b;
  int64_t sum;
  return __builtin_add_overflow(a, b, &sum) ? Inf(a < 0) : sum;
}

int64_t SaturatingMul(int64_t a, int64_t b) {
  if (a == 0 || b == 0) return 0;
  bool negative = (a < 0) != (b < 0);
  if (IsInf(a) || IsInf(b)) return Inf(negative);
  int64_t product;
  return __builtin_mul_overflow(a, b, &product) ? Inf(negative) : product;
}

Interval operator+(Interval a, Interval b) {
  return {SaturatingAdd(a.min, b.min), SaturatingAdd(a.max, b.max)};
}

Interval operator*(Interval a, Interval b) {
  int64_t ends[] = {SaturatingMul(a.min, b.min), SaturatingMul(a.min, b.max),
                    SaturatingMul(a.max, b.min), SaturatingMul(a.max, b.max)};
  return {*std::min_element(ends, ends + 4), *std::max_element(ends, ends + 4)};
}

Interval operator*(Interval a, int64_t factor) { return a * Interval::Point(factor); }

Interval FloorDiv(Interval a, Interval b) {
  if (b.min < 1) return Interval::Everything();
  // The quotient is monotonic in `a`; in `b` it moves towards 0 (from below: towards -1).
  auto divide = [](int64_t x, int64_t y) -> int64_t {
    if (IsInf(x)) return x;
    if (y == kPosInf) return x < 0 ? -1 : 0;
    return FloorDivInt(x, y);
  };
  int64_t low = a.min == kNegInf ? kNegInf : std::min(divide(a.min, b.min), divide(a.min, b.max));
  int64_t high = a.max == kPosInf ? kPosInf : std::max(divide(a.max, b.min), divide(a.max, b.max));
  return {low, high};
}

}  // namespace relaxvm::arith
