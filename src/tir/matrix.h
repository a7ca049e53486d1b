// SPDX-License-Identifier: Apache-2.0
// Operations on registers that hold matrices (AMX: target/amx.h), as calls; a program has them when
// it is scheduled for a machine with such registers, and no other machine can run it.
#pragma once

#include <array>
#include <optional>

#include "tir/stmt.h"

namespace relaxvm::tir {

inline constexpr int64_t kMatrixRegisters = 8;
inline constexpr int64_t kMatrixRows = 16;      // of a register, at most
inline constexpr int64_t kMatrixRowBytes = 64;  // of each of its rows, at most

enum class MatrixOp : uint8_t {
  kConfigure,  // rows and bytes of a row of each register; all become 0
  kRelease,    // no register is in use
  kZero,       // register
  kLoad,       // register, its first element, bytes from row to row
  kStore,      // the same
  kDot,        // sums, left, right: registers; is the left, the right side signed
  kDotOfPairs  // the same of bfloat16
};

struct MatrixShape {
  Expr rows, bytes;
};

Stmt ConfigureMatrices(const std::array<MatrixShape, kMatrixRegisters>& shapes);
Stmt ReleaseMatrices();
Stmt ZeroMatrix(int64_t to);
Stmt LoadMatrix(int64_t to, const BufferLoad& from, const Expr& step);
Stmt StoreMatrix(int64_t from, const BufferLoad& to, const Expr& step);
// Adds up four products of bytes, or two of bfloat16 (where `left` and `right` say nothing), for
// each word of the sums.  Rows of the right side hold what rows of the left one have `n` words
// apart.
struct Signs {
  bool left, right;
};
Stmt AddProducts(int64_t sums, int64_t left, int64_t right, const std::optional<Signs>& bytes);

// Which operation a call is; absent: another function's.
std::optional<MatrixOp> AsMatrixOp(const ir::CallObj* call);

}  // namespace relaxvm::tir
