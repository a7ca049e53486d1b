// SPDX-License-Identifier: Apache-2.0
#include "arith/remainder.h"

#include "arith/interval.h"

namespace relaxvm::arith {

using ir::BinaryOp;

std::optional<int64_t> RemainderOf(const ir::Expr& e, int64_t n) {
  if (n == 1) return 0;
  if (const auto* imm = e.as<ir::IntImmObj>()) return FloorModInt(imm->value, n);
  const auto* binary = e.as<ir::BinaryObj>();
  if (binary == nullptr) return std::nullopt;
  const bool is_product = binary->op == BinaryOp::kMul;
  if (!is_product && binary->op != BinaryOp::kAdd && binary->op != BinaryOp::kSub)
    return std::nullopt;
  const auto a = RemainderOf(binary->a, n), b = RemainderOf(binary->b, n);
  if (is_product && (a == 0 || b == 0)) return 0;
  if (!a || !b) return std::nullopt;
  if (is_product) {
    int64_t product = 0;
    return __builtin_mul_overflow(*a, *b, &product) ? std::nullopt : std::optional(product % n);
  }
  return FloorModInt(binary->op == BinaryOp::kAdd ? *a - (n - *b) : *a - *b, n);
}

}  // namespace relaxvm::arith
