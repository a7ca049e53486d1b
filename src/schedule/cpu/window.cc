// SPDX-License-Identifier: Apache-2.0
// EmitWindow: a reduction with another axis along the lanes (depthwise convolutions, pooling, sums
// over rows).
//
// Several neighbours of a third axis are computed together when they share loads (a depthwise
// filter is read once for four pixels).  Conditions on positions (padding) are tested once for a
// whole tile; tiles that touch no border run without them.
#include <algorithm>

#include "schedule/cpu/cpu.h"

namespace relaxvm::schedule::cpu {
namespace {

using ir::BinaryObj;
using ir::BinaryOp;
using ir::Intrin;
using ir::IntrinObj;
using tir::BufferLoadObj;
using tir::BufferStore;
using tir::For;
using tir::ForKind;
using tir::SeqStmt;

constexpr int64_t kNeighbours = 4;

// Removes conditions that choose between a value and a constant, and remembers them.
class ConditionStripper : public tir::StmtMutator {
 public:
  explicit ConditionStripper(const Var& vector) : vector_(vector) {}
  std::vector<Expr> conditions;
  Expr MutateIntrin(const ir::IntrinExpr& e) override {
    if (e->intrin == Intrin::kIfThenElse && !UsesVar(e->args[0], vector_)) {
      conditions.push_back(e->args[0]);
      return Mutate(e->args[1]);
    }
    return StmtMutator::MutateIntrin(e);
  }

 private:
  const Var& vector_;
};

class WindowEmitter {
 public:
  WindowEmitter(const Stage& stage, size_t vector, int64_t lanes, const Traits& traits,
                arith::Analyzer* analyzer)
      : stage_(stage), vector_(stage.spatial[vector]), lanes_(lanes), analyzer_(analyzer) {
    outer_ = stage.spatial;
    outer_.erase(outer_.begin() + static_cast<std::ptrdiff_t>(vector));
    ChooseNeighbours(traits);
    const int64_t registers = traits.num_vectors >= 32 ? 16 : 8;
    max_vectors_ = std::max<int64_t>(1, std::min<int64_t>(4, registers / neighbours_));
    ConditionStripper stripper(vector_.var);
    inside_value_ = stripper.Mutate(stage_.value);
    conditions_ = stripper.conditions;
  }

  Stmt Run() {
    if (neighbours_ == 1) return Loops(outer_, Blocks(Expr(), 1));
    const Axis near = outer_.back();
    std::vector<Axis> outer(outer_.begin(), outer_.end() - 1);
    Var tile("tile", Int(64));
    const Expr count = analyzer_->Simplify(ir::CeilDiv(near.extent, neighbours_));
    const Expr start = tile * Expr(neighbours_);
    if (auto known = ir::AsInt(near.extent)) {
      const int64_t rest = known.value() % neighbours_;
      Stmt full =
          Loop(tile, known.value() / neighbours_, ForKind::kSerial, Blocks(start, neighbours_));
      Stmt last =
          rest > 0 ? Blocks(Expr(known.value() - rest), rest) : Stmt(SeqStmt(ffi::Array<Stmt>()));
      return Loops(outer, SeqStmt::Flatten({full, last}));
    }
    // The last tile is moved back; what it computes again has the same value.
    Stmt moved = Loop(tile, count, ForKind::kSerial,
                      Blocks(ir::Min(start, near.extent - Expr(neighbours_)), neighbours_));
    Var one("one", Int(64));
    Stmt few = For(one, 0, near.extent, ForKind::kSerial, Blocks(one, 1));
    return Loops(outer, tir::IfThenElse(ir::GreaterEqual(near.extent, neighbours_), moved, few));
  }

 private:
  // Neighbours along the last outer axis pay when a load is the same for all of them.
  void ChooseNeighbours(const Traits& traits) {
    if (outer_.empty()) return;
    const Var& near = outer_.back().var;
    bool shared = false;
    tir::PostOrderVisit(tir::Evaluate(stage_.value), [&](const ffi::ObjectRef& node) {
      const auto* load = node.as<BufferLoadObj>();
      shared = shared || (load != nullptr && !UsesVar(load->indices[0], near));
    });
    if (!shared) return;
    neighbours_ = traits.num_vectors >= 32 ? kNeighbours : kNeighbours / 2;
    if (auto known = ir::AsInt(outer_.back().extent))
      neighbours_ = std::min(neighbours_, std::max<int64_t>(1, known.value()));
  }

  // All of the vector axis for `count` neighbours from `near` on (null: there is no such axis).
  Stmt Blocks(const Expr& near, int64_t count) {
    ffi::Array<Stmt> seq;
    Expr done = 0;
    for (int64_t vectors : {max_vectors_, int64_t{1}}) {
      const Expr step = vectors * lanes_;
      Expr blocks = analyzer_->Simplify(ir::FloorDiv(vector_.extent - done, step));
      Var block("block", Int(64));
      seq.push_back(Loop(block, blocks, ForKind::kSerial,
                         Block(near, count, done + block * step, vectors, false)));
      done = analyzer_->Simplify(done + blocks * step);
      if (max_vectors_ == 1) break;
    }
    if (!analyzer_->ProveEqual(done, vector_.extent)) {
      seq.push_back(
          tir::IfThenElse(ir::Less(done, vector_.extent), Block(near, count, done, 1, true)));
    }
    return SeqStmt::Flatten(seq);
  }

  // `count` x `vectors` accumulators; masked: lanes at or above the axis' end are left out.
  Stmt Block(const Expr& near, int64_t count, const Expr& base, int64_t vectors, bool masked) {
    Buffer acc("acc", {Expr(count * vectors * lanes_)}, stage_.value.dtype(), "local");
    auto each = [&](const std::function<Stmt(const Var&, const ffi::Map<Var, Expr>&, const Expr&,
                                             const Expr&)>& body) {
      ffi::Array<Stmt> seq;
      for (int64_t v = 0; v < vectors; ++v) {
        for (int64_t i = 0; i < count; ++i) {
          Var lane("lane", Int(64));
          ffi::Map<Var, Expr> map;
          map.Set(vector_.var, base + Expr(v * lanes_) + lane);
          if (near.defined()) map.Set(outer_.back().var, near + Expr(i));
          Expr predicate =
              masked ? ir::Less(lane, vector_.extent - base - Expr(v * lanes_)) : Expr();
          Expr at = Expr((v * count + i) * lanes_) + lane;
          seq.push_back(For(lane, 0, lanes_, ForKind::kVectorized, body(lane, map, predicate, at)));
        }
      }
      return SeqStmt::Flatten(seq);
    };
    auto reduce = [&](const Expr& formula) {
      return Loops(stage_.reduce, each([&](const Var& lane, const ffi::Map<Var, Expr>& map,
                                           const Expr& predicate, const Expr& at) {
                     Expr value = tir::Substitute(formula, map);
                     if (predicate.defined()) value = PredicateLoads(value, lane, predicate);
                     return BufferStore(acc, Accumulated(stage_.combine, acc.Load({at}), value),
                                        {at});
                   }));
    };
    Stmt sum = reduce(stage_.value);
    if (Expr inside = Inside(near, count); inside.defined())
      sum = tir::IfThenElse(inside, reduce(inside_value_), sum);
    Stmt store = each([&](const Var& lane, const ffi::Map<Var, Expr>& map, const Expr& predicate,
                          const Expr& at) {
      ffi::Map<Var, Expr> with_result = map;
      Expr value = acc.Load({at});
      if (stage_.finish.defined()) {
        with_result.Set(stage_.reduced, value);
        value = tir::Substitute(stage_.finish, with_result);
        if (predicate.defined()) value = PredicateLoads(value, lane, predicate);
      }
      return BufferStore(*stage_.out, value, {tir::Substitute(stage_.indices[0], map)}, predicate);
    });
    return SeqStmt::Flatten({tir::AllocBuffer(acc),
                             Fill(acc, stage_.identity, count * vectors * lanes_, lanes_), sum,
                             store});
  }

  // Do all conditions hold for the whole window and every neighbour?  Null when there are none, or
  // when it cannot be said.
  Expr Inside(const Expr& near, int64_t count) {
    if (conditions_.empty()) return Expr();
    std::vector<Axis> ranges = stage_.reduce;
    ffi::Map<Var, Expr> map;
    if (near.defined()) {
      Axis step{Var("step", Int(64)), Expr(count)};
      map.Set(outer_.back().var, near + step.var);
      ranges.push_back(step);
    }
    Expr all = ir::BoolImm(true);
    for (const Expr& condition : conditions_) {
      Expr holds = HoldsOver(tir::Substitute(condition, map), ranges);
      if (!holds.defined()) return Expr();
      all = ir::And(all, holds);
    }
    return all;
  }

  // A condition that is true only when `condition` holds for all values of `ranges`.
  Expr HoldsOver(const Expr& condition, const std::vector<Axis>& ranges) {
    if (!UsesAny(condition, ranges)) return condition;
    const auto* binary = condition.as<BinaryObj>();
    if (binary == nullptr) return Expr();
    switch (binary->op) {
      case BinaryOp::kAnd: {
        Expr a = HoldsOver(binary->a, ranges), b = HoldsOver(binary->b, ranges);
        return a.defined() && b.defined() ? ir::And(a, b) : Expr();
      }
      case BinaryOp::kLT: return LeastAbove(binary->b - binary->a, ranges, 1);
      case BinaryOp::kLE: return LeastAbove(binary->b - binary->a, ranges, 0);
      case BinaryOp::kGT: return LeastAbove(binary->a - binary->b, ranges, 1);
      case BinaryOp::kGE: return LeastAbove(binary->a - binary->b, ranges, 0);
      default: return Expr();
    }
  }

  // least value of `e` over `ranges` >= bound
  Expr LeastAbove(const Expr& e, const std::vector<Axis>& ranges, int64_t bound) {
    auto linear = LinearOffset::Of(e, ranges);
    if (!linear.has_value()) return Expr();
    Expr least = linear->rest();
    for (const Axis& axis : ranges) {
      auto coeff = ir::AsInt(analyzer_->Simplify(linear->Coeff(axis.var)));
      if (!coeff.has_value()) return Expr();
      if (coeff.value() < 0) least = least + Expr(coeff.value()) * (axis.extent - 1);
    }
    return ir::GreaterEqual(analyzer_->Simplify(least), bound);
  }

  const Stage& stage_;
  Axis vector_;
  std::vector<Axis> outer_;
  int64_t lanes_;
  arith::Analyzer* analyzer_;
  int64_t neighbours_ = 1;
  int64_t max_vectors_ = 4;
  Expr inside_value_;
  std::vector<Expr> conditions_;
};

}  // namespace

Stmt EmitWindow(const Stage& flat, size_t vector, int64_t lanes, const Traits& traits,
                arith::Analyzer* analyzer) {
  return WindowEmitter(flat, vector, lanes, traits, analyzer).Run();
}

}  // namespace relaxvm::schedule::cpu
