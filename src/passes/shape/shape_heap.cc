// SPDX-License-Identifier: Apache-2.0
// Slots of size expressions, and the scalar programs that fill them.
#include "passes/shape/shape_heap.h"

#include <algorithm>
#include <string>

#include "ir/prim.h"
#include "ir/visitor.h"
#include "tir/functor.h"

namespace relaxvm::passes {

namespace ffi = tvm::ffi;
using ir::Expr;
using ir::Var;

namespace {

// Division by a size that may be 0 gives 0: an expression is computed where its variables are
// known, which may be before a branch that would not have been taken.
class GuardDivision : public ir::Mutator {
 public:
  Expr MutateBinary(const ir::Binary& b) override {
    Expr result = ir::Mutator::MutateBinary(b);
    const auto* div = result.as<ir::BinaryObj>();
    if (div == nullptr || ir::AsInt(div->b).has_value()) return result;
    switch (div->op) {
      case ir::BinaryOp::kDiv:
      case ir::BinaryOp::kMod:
      case ir::BinaryOp::kFloorDiv:
      case ir::BinaryOp::kFloorMod: {
        Expr zero = ir::Const(div->b.dtype(), 0);
        return ir::IfThenElse(ir::Equal(div->b, zero), zero, result);
      }
      default: return result;
    }
  }
};

}  // namespace

ShapeHeap::ShapeHeap() : heap_("shape_heap", ir::TensorType(Int(64), 1)) {}

void ShapeHeap::EnterScope() { scopes_.push_back(entries_.size()); }

void ShapeHeap::LeaveScope() {
  size_t keep = scopes_.back();
  scopes_.pop_back();
  for (size_t i = keep; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    if (const auto* var = entry.expr.as<ir::VarObj>()) {
      by_var_.erase(var);
      continue;
    }
    auto [begin, end] = by_hash_.equal_range(ir::StructuralHash(entry.expr));
    for (auto it = begin; it != end; ++it) {
      if (it->second == i) {
        by_hash_.erase(it);
        break;
      }
    }
  }
  entries_.resize(keep, Entry{Expr(), 0, 0});
}

int ShapeHeap::AddPoint() {
  computed_.emplace_back();
  return num_points_++;
}

std::optional<int64_t> ShapeHeap::Find(const Expr& e) const {
  if (const auto* var = e.as<ir::VarObj>()) {
    auto it = by_var_.find(var);
    if (it == by_var_.end()) return std::nullopt;
    return entries_[it->second].slot;
  }
  auto [begin, end] = by_hash_.equal_range(ir::StructuralHash(e));
  for (auto it = begin; it != end; ++it) {
    if (ir::StructuralEqual(entries_[it->second].expr, e)) return entries_[it->second].slot;
  }
  return std::nullopt;
}

void ShapeHeap::Remember(const Expr& e, int64_t slot, int point) {
  if (const auto* var = e.as<ir::VarObj>()) {
    by_var_[var] = entries_.size();
    all_slots_[var] = slot;
  } else {
    by_hash_.emplace(ir::StructuralHash(e), entries_.size());
  }
  entries_.push_back({e, slot, point});
}

int64_t ShapeHeap::Define(const Var& var) {
  RELAXVM_CHECK(num_points_ > 0) << "a size is defined at a place";
  int64_t slot = next_slot_++;
  Remember(var, slot, num_points_ - 1);
  return slot;
}

int ShapeHeap::PointOf(const Expr& e) const {
  int point = 0;
  for (const Var& var : ir::FreeVars(e)) {
    auto it = by_var_.find(var.get());
    if (it != by_var_.end()) point = std::max(point, entries_[it->second].point);
  }
  return point;
}

int64_t ShapeHeap::AddExpression(const Expr& e) {
  int point = PointOf(e);
  int64_t slot = next_slot_++;
  computed_[point].push_back({slot, e});
  Remember(e, slot, point);
  return slot;
}

std::optional<int64_t> ShapeHeap::Constant(const Expr& e) const {
  if (auto value = ir::AsInt(e); value.has_value()) return value.value();
  if (const auto* var = e.as<ir::VarObj>()) {
    if (auto it = constants_.find(var); it != constants_.end()) return it->second;
  }
  return std::nullopt;
}

void ShapeHeap::Alias(const Var& var, const Expr& e,
                      const std::function<int64_t(const Expr&)>& slot_of) {
  if (auto constant = Constant(e)) {
    constants_[var.get()] = *constant;
    // Expressions over the variable are computed like any other, so it needs a slot as well.
    int point = 0;
    int64_t slot = next_slot_++;
    computed_[point].push_back({slot, ir::IntImm(Int(64), *constant)});
    Remember(var, slot, point);
    return;
  }
  int64_t slot = slot_of(e);
  Remember(var, slot, PointOf(e));
}

std::optional<tir::PrimFunc> ShapeHeap::MakeProgram(int point) const {
  const std::vector<Computed>& computed = computed_[point];
  if (computed.empty()) return std::nullopt;
  // A branch is written before the function's last slot is known, so the size is the caller's.
  tir::Buffer heap("H", {Var("num_slots", Int(64))}, Int(64));
  ffi::Array<tir::Stmt> stmts;
  ffi::Map<Var, Expr> values;  // size variable -> its value in the program
  auto load = [&](const Var& var, int64_t slot) {
    Var value(var->name, Int(64));
    stmts.push_back(tir::Bind(value, heap.Load({ir::IntImm(Int(64), slot)})));
    values.Set(var, ir::Cast(var->ty.as<ir::PrimTypeObj>()->dtype, value));
  };
  for (const Computed& item : computed) {
    for (const Var& var : ir::FreeVars(item.expr)) {
      if (!values.count(var)) load(var, all_slots_.at(var.get()));
    }
    Expr value = ir::Cast(Int(64), GuardDivision().Mutate(ir::Substitute(item.expr, values)));
    stmts.push_back(tir::BufferStore(heap, value, {ir::IntImm(Int(64), item.slot)}));
  }
  ir::DictAttrs attrs = {{tir::attr::kScheduled, true}, {"tirx.is_host_func", true}};
  return tir::PrimFunc({heap}, tir::SeqStmt::Flatten(stmts), attrs);
}

tir::PrimFunc ShapeHeap::MakePlainProgram(int point) const {
  tir::Buffer heap("H", {ir::IntImm(Int(64), next_slot_)}, Int(64));
  ffi::Array<tir::Stmt> stmts;
  for (const Computed& item : computed_[point]) {
    ffi::Map<Var, Expr> values;
    for (const Var& var : ir::FreeVars(item.expr)) {
      Expr value = heap.Load({ir::IntImm(Int(64), all_slots_.at(var.get()))});
      values.Set(var, ir::Cast(var->ty.as<ir::PrimTypeObj>()->dtype, value));
    }
    Expr value = ir::Cast(Int(64), ir::Substitute(item.expr, values));
    stmts.push_back(tir::BufferStore(heap, value, {ir::IntImm(Int(64), item.slot)}));
  }
  return tir::PrimFunc({heap}, tir::SeqStmt::Flatten(stmts), {{"tirx.is_host_func", true}});
}

}  // namespace relaxvm::passes
