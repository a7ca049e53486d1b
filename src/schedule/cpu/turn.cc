// SPDX-License-Identifier: Apache-2.0
// A square of elements turned round in registers: neighbours inside blocks of 16 bytes change
// places first, then whole blocks.  Both are single instructions.
#include <algorithm>
#include <functional>

#include "schedule/cpu/cpu.h"

namespace relaxvm::schedule::cpu {
namespace {

constexpr int64_t kBlockBytes = 16;

Expr Bound(const Expr& value, ffi::Array<Stmt>* seq) {
  if (!value.defined()) return value;
  Var var("v", value.dtype());
  seq->push_back(tir::Bind(var, value));
  return var;
}

// Lanes picked out of two registers: `pick` says for each which one, those of
// `b` behind those of `a`.
Expr Shuffled(const Expr& a, const Expr& b, int64_t lanes,
              const std::function<int64_t(int64_t)>& pick, ffi::Array<Stmt>* seq) {
  if (!a.defined() && !b.defined()) return Expr();
  const Expr &low = a.defined() ? a : b, &high = b.defined() ? b : a;
  ffi::Array<int64_t> picks;
  for (int64_t i = 0; i < lanes; ++i) picks.push_back(pick(i));
  return Bound(ir::ShuffleExpr({low, high}, picks), seq);
}

}  // namespace

void TurnInRegisters(std::vector<Expr>* rows, int64_t bytes, ffi::Array<Stmt>* seq) {
  const auto lanes = static_cast<int64_t>(rows->size());
  const int64_t block = std::min(lanes, std::max<int64_t>(1, kBlockBytes / bytes));
  const int64_t blocks = lanes / block;
  std::vector<Expr> r;
  for (const Expr& row : *rows) r.push_back(Bound(row, seq));
  // Inside blocks: rows [g * block, (g + 1) * block) make a square in each block.
  for (int64_t done = 1; done < block; done *= 2) {
    std::vector<Expr> next(r.size(), Expr(0));
    for (int64_t g = 0; g < blocks; ++g) {
      for (int64_t i = 0; i < block / 2; ++i) {
        const Expr &a = r[g * block + i], &b = r[g * block + i + block / 2];
        for (int64_t high : {int64_t{0}, int64_t{1}}) {
          next[g * block + 2 * i + high] = Shuffled(
              a, b, lanes,
              [&](int64_t lane) {
                const int64_t in = lane % block;
                const int64_t from = lane / block * block + high * block / 2 + in / 2;
                return in % 2 == 0 ? from : lanes + from;
              },
              seq);
        }
      }
    }
    r = next;
  }
  // Whole blocks: r[g * block + c] holds column c of each block for row group g.
  for (int64_t done = 1; done < blocks; done *= 2) {
    std::vector<Expr> next(r.size(), Expr(0));
    for (int64_t c = 0; c < block; ++c) {
      for (int64_t g = 0; g < blocks / 2; ++g) {
        const Expr &a = r[2 * g * block + c], &b = r[(2 * g + 1) * block + c];
        for (int64_t odd : {int64_t{0}, int64_t{1}}) {
          next[(g + odd * blocks / 2) * block + c] = Shuffled(
              a, b, lanes,
              [&](int64_t lane) {
                const int64_t at = lane / block, in = lane % block;
                const int64_t half = blocks / 2;
                return (at >= half ? lanes : 0) + (2 * (at % half) + odd) * block + in;
              },
              seq);
        }
      }
    }
    r = next;
  }
  *rows = r;
}

}  // namespace relaxvm::schedule::cpu
