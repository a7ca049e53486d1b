// SPDX-License-Identifier: Apache-2.0
// Products of narrow numbers that machines add up in groups, as formulas over the 32-bit words that
// hold the groups.  Schedules write them, code generation finds them again; a machine without such
// an instruction computes them as they are written.
#pragma once

#include <optional>
#include <vector>

#include "ir/prim.h"

namespace relaxvm::tir {

struct Dot {
  ir::Expr sum, a, b;
};

// sum + the four products of a byte of `a` (unsigned) and one of `b` (signed); all int32, exact.
ir::Expr DotOfBytes(const ir::Expr& sum, const ir::Expr& a, const ir::Expr& b);
std::optional<Dot> AsDotOfBytes(const ir::Expr& e);
// The same with signed bytes on both sides.
ir::Expr DotOfSignedBytes(const ir::Expr& sum, const ir::Expr& a, const ir::Expr& b);
std::optional<Dot> AsDotOfSignedBytes(const ir::Expr& e);

// DotOfBytes by way of 16 bits, which hold the sum of two neighbouring products: what they do not
// hold becomes the next number that they do.
ir::Expr DotOfBytePairs(const ir::Expr& sum, const ir::Expr& a, const ir::Expr& b);
std::optional<Dot> AsDotOfBytePairs(const ir::Expr& e);
// It is exact, whatever the bytes of `a`, where of two neighbours in `b` the positive ones add up
// to this at most, and the negative ones to no less than its opposite: 255 times it fits.
inline constexpr int64_t kMostOfBytePair = 128;

// sum + the two products of the signed 16-bit halves of `a` and `b` (int32 words), exact.
ir::Expr DotOfHalves(const ir::Expr& sum, const ir::Expr& a, const ir::Expr& b);
std::optional<Dot> AsDotOfHalves(const ir::Expr& e);

// The bytes of words (int32) widened to halves: those at even places, and those at odd ones.
struct Halves {
  ir::Expr even, odd;
};
Halves HalvesOfBytes(const ir::Expr& words, bool is_signed);

// Integers of `bits` (each lane) out of the bytes that `bytes` (vectors) hold at the lane, the
// first one lowest. By shifts and not by shuffles: LLVM merges these to networks of dearer ones.
ir::Expr WordsOfBytes(const std::vector<ir::Expr>& bytes, int bits);

// sum (float32) + the two products of the bfloat16 halves of `a` and `b` (int32 words).  Where a
// program has kFastPairs, the machine's own instruction may round and flush subnormals its own way.
ir::Expr DotOfPairs(const ir::Expr& sum, const ir::Expr& a, const ir::Expr& b);
std::optional<Dot> AsDotOfPairs(const ir::Expr& e);
inline constexpr const char* kFastPairs = "fast_bfloat16_pairs";

// A program that adds up products or exponentials: where arithmetic on subnormals takes a machine
// long, it may take them for 0.
inline constexpr const char* kFlushSubnormals = "flush_subnormals";

}  // namespace relaxvm::tir
