// SPDX-License-Identifier: Apache-2.0
// Costs by kind of node; the units are additions.
#include "arith/cost.h"

#include <algorithm>

namespace relaxvm::arith {
namespace {

using ir::BinaryOp;
using ir::Expr;

constexpr int64_t kMaxCost = int64_t{1} << 40;
constexpr int64_t kLargeSize = 64;

int64_t CostOfOp(BinaryOp op) {
  switch (op) {
    case BinaryOp::kDiv:
    case BinaryOp::kMod:
    case BinaryOp::kFloorDiv:
    case BinaryOp::kFloorMod: return 4;
    case BinaryOp::kMin:
    case BinaryOp::kMax: return 2;
    default: return 1;
  }
}

}  // namespace

int64_t CostCounter::Of(const Expr& e) {
  // A leaf is not worth a place in the table.
  if (e.as<ir::VarObj>() || e.as<ir::IntImmObj>()) return 1;
  auto it = known_.find(e.get());
  if (it != known_.end()) return it->second.second;
  int64_t cost = std::min(Compute(e), kMaxCost);
  known_.emplace(e.get(), std::make_pair(e, cost));
  return cost;
}

int64_t CostCounter::Compute(const Expr& e) {
  if (auto* b = e.as<ir::BinaryObj>()) return CostOfOp(b->op) + Of(b->a) + Of(b->b);
  if (auto* c = e.as<ir::CastObj>()) return 1 + Of(c->value);
  if (auto* s = e.as<ir::SelectObj>()) {
    return 2 + Of(s->condition) + Of(s->true_value) + Of(s->false_value);
  }
  if (auto* i = e.as<ir::IntrinObj>()) {
    int64_t cost = 2;
    for (const Expr& arg : i->args) cost += Of(arg);
    return cost;
  }
  return 1;
}

bool IsLargeSize(const Expr& e) { return CostCounter().Of(e) > kLargeSize; }

}  // namespace relaxvm::arith
