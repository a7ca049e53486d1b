// SPDX-License-Identifier: Apache-2.0
// What the vector loops of one stage are made of.
#pragma once

#include "schedule/cpu/cpu.h"

namespace relaxvm::schedule::cpu {

// Independent chains that hide the latency of an addition; vectors of a reduction at once.
inline constexpr int64_t kAccumulators = 4;

// Elements so far apart are read by whole vectors and shuffles.
inline constexpr int64_t kMaxSpacing = 4;

// How well accesses of one offset run along `axis`: contiguous (also backwards), the same for all
// lanes, a few elements apart, in periods of elements of which some are read several times, or
// scattered.
enum class Step : uint8_t { kContiguous, kSame, kSpaced, kRepeated, kScattered };
Step StepOf(const Expr& offset, const Axis& axis);

// How many vectors hold whole periods of all that the formula reads along `axis`.
int64_t VectorsOfPeriods(const Expr& value, const Axis& axis);

// Can lanes be combined to one value at the end?
bool HorizontalForm(Combine combine);

enum class AlongLanes : uint8_t { kNothing, kSpatial, kReduce };
struct Choice {
  AlongLanes kind = AlongLanes::kNothing;
  size_t index = 0;
};
// The axis that vectors of `lanes` elements run along best, if any.
Choice ChooseLanes(const Stage& stage, int64_t lanes);

// A short axis takes the front of a register of small elements.
int64_t LanesAlong(const Axis& axis, int64_t lanes);

// Registers for `count` elements of what the stage computes.
Buffer Accumulators(const Stage& stage, int64_t count);

// Combines the lanes of each of the `lanes` registers in `acc`: lane i of what it returns is that
// of register i.  They go in pairs, and the two halves of a register are from there on of two
// results.
Buffer AddUpRegisters(Buffer acc, int64_t lanes, Combine combine, ffi::Array<Stmt>* seq);

// The vector of an elementwise stage from `base` on; lanes at or above `limit` (null: none) are
// left out.
Stmt ElementwiseVector(const Stage& elementwise, const Expr& base, const Expr& limit,
                       int64_t lanes);

// A sum with a spread beside it (Stage::spread).
Stmt EmitMoments(const Stage& flat, const Machine& traits, arith::Analyzer* analyzer);

// Absent when the stage is no reduction of rows shorter than half a vector.
std::optional<Stmt> EmitShortRows(const Stage& stage, int64_t lanes, arith::Analyzer* analyzer);

}  // namespace relaxvm::schedule::cpu
