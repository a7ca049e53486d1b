// SPDX-License-Identifier: Apache-2.0
// The parts of attention, softmax(q k^T) v, as stages of a program.
#pragma once

#include "schedule/cpu/cpu.h"

namespace relaxvm::schedule::cpu {

inline constexpr size_t kAttentionStages = 7;

// The load that casts lie around, if any; null for other expressions.
inline const tir::BufferLoadObj* LoadInCasts(const Expr& e) {
  return StripCasts(e).as<tir::BufferLoadObj>();
}

struct AttentionParts {
  // scores = q k^T, masked, exp(masked - its maximum), sum of exp, weighted = exp v, result.
  const Stage *scores = nullptr, *masked = nullptr, *exp = nullptr, *sum = nullptr,
              *weighted = nullptr, *result = nullptr;
  size_t query = 0, key = 0;  // axes of the scores
  size_t head = 0;            // the axis of heads, `shared` of which share keys; none: the rank
  int64_t shared = 1;
  Expr q, k, v;
  ffi::Map<Var, Var> weighted_axes;  // of the weighted sum -> of the scores
  Var wide_axis{Var("e", Int(64))};  // of the weighted sum: the elements of v

  // The axis of the weighted sum (of the result) that is axis `i` of the scores.
  Var AxisOf(const Stage& s, size_t i) const;
  Var ResultAxis(size_t i) const { return AxisOf(*result, i); }
  // Which axis of the result is the elements of v.
  size_t WidePlace() const;
};

// The parts of the stages from `at` on; absent when they are something else.
std::optional<AttentionParts> ReadAttention(const Program& program, size_t at);

}  // namespace relaxvm::schedule::cpu
