// SPDX-License-Identifier: Apache-2.0
// EmitWindow: a reduction with another axis along the lanes (depthwise convolutions, pooling, sums
// over rows).
//
// Several neighbours of a third axis are computed together when they share loads: a depthwise
// filter is read once for four pixels, and what two pixels' windows have in common as well, because
// the innermost axis of the window is unrolled.  Padding is not tested element by element: the
// loops over the window are cut to what lies inside.
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
constexpr int64_t kMaxUnrolled = 8;  // of the window's innermost axis

// The window's axis number `axis` runs from `least` on, or up to `end`: formulas of the spatial
// axes; one of the two is null.  All of the axis is inside where `whole` is at least 0.
struct Bound {
  size_t axis;
  Expr least;
  Expr end;
  Expr whole;
};

// Removes conditions that choose between a value and one that adds nothing, and remembers them.
class ConditionStripper : public tir::StmtMutator {
 public:
  ConditionStripper(const Stage& stage, const Var& vector) : stage_(stage), vector_(vector) {}
  std::vector<Expr> conditions;

  Expr Strip(const Expr& e) {
    if (const auto* choice = e.as<IntrinObj>();
        choice != nullptr && choice->intrin == Intrin::kIfThenElse &&
        !UsesVar(choice->args[0], vector_) && AddsNothing(choice->args[2])) {
      conditions.push_back(choice->args[0]);
      return Strip(choice->args[1]);
    }
    if (const auto* cast = e.as<ir::CastObj>(); cast != nullptr && stage_.combine == Combine::kSum)
      return ir::Cast(e.dtype(), Strip(cast->value));
    // 0 * w is 0: what the padding is multiplied with does not matter.
    if (const auto* product = e.as<BinaryObj>();
        product != nullptr && product->op == BinaryOp::kMul && stage_.combine == Combine::kSum)
      return ir::Mul(Strip(product->a), Strip(product->b));
    return e;
  }

 private:
  bool AddsNothing(const Expr& e) const {
    if (stage_.combine == Combine::kSum) {
      const auto* number = e.as<ir::FloatImmObj>();
      return ir::IsIntValue(e, 0) || (number != nullptr && number->value == 0);
    }
    return ir::StructuralEqual(e, stage_.identity);
  }

  const Stage& stage_;
  const Var& vector_;
};

class WindowEmitter {
 public:
  WindowEmitter(const Stage& stage, size_t vector, int64_t lanes, const Machine& machine,
                arith::Analyzer* analyzer)
      : stage_(stage), vector_(stage.spatial[vector]), lanes_(lanes), analyzer_(analyzer) {
    outer_ = stage.spatial;
    outer_.erase(outer_.begin() + static_cast<std::ptrdiff_t>(vector));
    ReadBounds();
    ChooseNeighbours(machine);
    registers_ = machine.num_vectors >= 32 ? 8 : 4;
  }

  Stmt Run() {
    if (neighbours_ == 1) return Loops(outer_, Blocks(Expr(), 1));
    const std::vector<Axis> outer(outer_.begin(), outer_.end() - 1);
    const Expr extent = outer_.back().extent;
    // [first, end) is where every window lies inside along this axis: tiles there, the last one
    // moved back (what it computes again has the same value), single elements at the ends.
    Expr first = 0, end = extent;
    if (!FindInterior(&first, &end)) return Loops(outer_, Blocks(outer_.back().var, 1));
    Var from("first", Int(64)), to("end", Int(64)), tile("tile", Int(64));
    const bool cut = !ir::IsIntValue(first, 0) || !end.same_as(extent);
    const Expr begin = cut ? Expr(from) : first, length = cut ? Expr(to - from) : end;
    const Expr tiles = analyzer_->Simplify(ir::CeilDiv(length, neighbours_));
    const Expr last = begin + length - Expr(neighbours_), start = begin + tile * Expr(neighbours_);
    const bool divides = !cut && analyzer_->ProveEqual(ir::FloorMod(length, neighbours_), 0);
    Stmt together = Loop(tile, tiles, ForKind::kSerial,
                         Blocks(divides ? start : ir::Min(start, last), neighbours_));
    if (!cut && analyzer_->ProveAtLeast(length, neighbours_)) return Loops(outer, together);
    const Expr wide = ir::GreaterEqual(length, neighbours_);
    // Too narrow for a tile: one by one from the first element to the last.
    Var one("one", Int(64)), skip("skip", Int(64)), after("after", Int(64));
    Stmt single = SeqStmt::Flatten(
        {tir::Bind(skip, ir::Select(wide, length, Expr(0))),
         For(one, 0, extent - skip, ForKind::kSerial,
             SeqStmt::Flatten(
                 {tir::Bind(after, one + ir::Select(ir::Less(one, begin), Expr(0), skip)),
                  Blocks(after, 1)}))});
    ffi::Array<Stmt> seq;
    if (cut) {
      seq.push_back(tir::Bind(from, analyzer_->Simplify(ir::Min(ir::Max(first, 0), extent))));
      seq.push_back(tir::Bind(to, analyzer_->Simplify(ir::Max(ir::Min(end, extent), from))));
    }
    seq.push_back(tir::IfThenElse(wide, together));
    seq.push_back(single);
    return Loops(outer, SeqStmt::Flatten(seq));
  }

 private:
  // The conditions under which elements count, as bounds of the window's axes.  Conditions of
  // another form stay where they are.
  void ReadBounds() {
    value_ = stage_.value;
    ConditionStripper stripper(stage_, vector_.var);
    Expr inside = stripper.Strip(stage_.value);
    if (stripper.conditions.empty()) return;
    std::vector<Bound> bounds;
    for (const Expr& condition : stripper.conditions) {
      if (!AddBounds(condition, &bounds)) return;
    }
    value_ = inside;
    bounds_ = std::move(bounds);
  }

  bool AddBounds(const Expr& condition, std::vector<Bound>* bounds) {
    const auto* binary = condition.as<BinaryObj>();
    if (binary == nullptr) return ir::IsIntValue(condition, 1);
    switch (binary->op) {
      case BinaryOp::kAnd: return AddBounds(binary->a, bounds) && AddBounds(binary->b, bounds);
      case BinaryOp::kLT: return AddBound(binary->b - binary->a - 1, bounds);
      case BinaryOp::kLE: return AddBound(binary->b - binary->a, bounds);
      case BinaryOp::kGT: return AddBound(binary->a - binary->b - 1, bounds);
      case BinaryOp::kGE: return AddBound(binary->a - binary->b, bounds);
      default: return false;
    }
  }

  // e >= 0, linear in one axis of the window.
  bool AddBound(const Expr& e, std::vector<Bound>* bounds) {
    auto linear = LinearOffset::Of(e, stage_.reduce);
    if (!linear.has_value()) return false;
    std::optional<size_t> found;
    int64_t coeff = 0;
    for (size_t i = 0; i < stage_.reduce.size(); ++i) {
      auto here = ir::AsInt(analyzer_->Simplify(linear->Coeff(stage_.reduce[i].var)));
      if (!here.has_value() || (here.value() != 0 && found.has_value())) return false;
      if (here.value() == 0) continue;
      found = i;
      coeff = here.value();
    }
    if (!found.has_value()) return false;
    const Expr rest = linear->rest();
    const Expr& extent = stage_.reduce[*found].extent;
    Bound bound{*found, Expr(), Expr(), Expr()};
    if (coeff > 0) {
      bound.least = analyzer_->Simplify(ir::FloorDiv(Expr(coeff - 1) - rest, coeff));
      bound.whole = rest;
    } else {
      bound.end = analyzer_->Simplify(ir::FloorDiv(rest, -coeff) + 1);
      bound.whole = rest + Expr(coeff) * (extent - 1);
    }
    bounds->push_back(bound);
    return true;
  }

  // Where along the last outer axis all windows lie inside; false when that cannot be said.
  bool FindInterior(Expr* first, Expr* end) {
    for (const Bound& b : bounds_) {
      if (!UsesNear(b.whole)) continue;
      auto linear = LinearOffset::Of(b.whole, {outer_.back()});
      if (!linear.has_value() || UsesAny(linear->rest(), outer_)) return false;
      auto step = ir::AsInt(analyzer_->Simplify(linear->Coeff(outer_.back().var)));
      if (!step.has_value() || step.value() == 0) return false;
      const Expr rest = linear->rest();
      // step * near + rest >= 0
      if (step.value() > 0)
        *first = ir::Max(*first, ir::CeilDiv(Expr(0) - rest, step.value()));
      else
        *end = ir::Min(*end, ir::FloorDiv(rest, -step.value()) + 1);
    }
    return true;
  }

  // Neighbours along the last outer axis pay when a load is the same for all of them.
  void ChooseNeighbours(const Machine& machine) {
    if (outer_.empty()) return;
    const Var& near = outer_.back().var;
    bool shared = false;
    tir::PostOrderVisit(tir::Evaluate(stage_.value), [&](const ffi::ObjectRef& node) {
      const auto* load = node.as<BufferLoadObj>();
      shared = shared || (load != nullptr && !UsesVar(load->indices[0], near));
    });
    if (!shared) return;
    neighbours_ = machine.num_vectors >= 32 ? kNeighbours : kNeighbours / 2;
    auto columns = ir::AsInt(vector_.extent);
    if (columns.has_value() && columns.value() <= lanes_) neighbours_ *= 2;
    if (auto known = ir::AsInt(outer_.back().extent))
      neighbours_ = std::min(neighbours_, std::max<int64_t>(1, known.value()));
  }

  bool UsesNear(const Expr& e) const {
    return e.defined() && !outer_.empty() && UsesVar(e, outer_.back().var);
  }

  // All of the vector axis for `count` neighbours from `near` on (null: there is no such axis).
  Stmt Blocks(const Expr& near, int64_t count) {
    ffi::Array<Stmt> seq;
    Expr done = 0;
    const int64_t most = std::clamp<int64_t>(registers_ / count, 1, 4);
    for (int64_t vectors : {most, int64_t{1}}) {
      const Expr step = vectors * lanes_;
      Expr blocks = analyzer_->Simplify(ir::FloorDiv(vector_.extent - done, step));
      Var block("block", Int(64));
      seq.push_back(Loop(block, blocks, ForKind::kSerial,
                         Block(near, count, done + block * step, vectors, false)));
      done = analyzer_->Simplify(done + blocks * step);
      if (most == 1) break;
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
    auto step = [&](const std::optional<int64_t>& innermost) {
      return each([&](const Var& lane, const ffi::Map<Var, Expr>& map, const Expr& predicate,
                      const Expr& at) {
        ffi::Map<Var, Expr> with_tap = map;
        if (innermost.has_value()) with_tap.Set(stage_.reduce.back().var, Expr(*innermost));
        Expr value = tir::Substitute(value_, with_tap);
        if (predicate.defined()) value = PredicateLoads(value, lane, predicate);
        return BufferStore(acc, Accumulated(stage_.combine, acc.Load({at}), value), {at});
      });
    };
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
                             Fill(acc, stage_.identity, count * vectors * lanes_, lanes_),
                             Window(near, count, step), store});
  }

  // The loops over the window.  Several neighbours are inside along their own axis.
  Stmt Window(const Expr& near, int64_t count,
              const std::function<Stmt(const std::optional<int64_t>&)>& step) {
    ffi::Map<Var, Expr> here;
    if (near.defined()) here.Set(outer_.back().var, near);
    Stmt body;
    for (size_t i = stage_.reduce.size(); i-- > 0;) {
      const Axis& axis = stage_.reduce[i];
      Expr least = 0, end = axis.extent;
      bool cut = false;
      for (const Bound& b : bounds_) {
        if (b.axis != i || (count > 1 && UsesNear(b.whole))) continue;
        cut = true;
        if (b.least.defined()) least = ir::Max(least, tir::Substitute(b.least, here));
        if (b.end.defined()) end = ir::Min(end, tir::Substitute(b.end, here));
      }
      auto extent = ir::AsInt(axis.extent);
      if (i + 1 == stage_.reduce.size() && !cut && extent.has_value() && extent.value() > 0 &&
          extent.value() <= kMaxUnrolled) {
        ffi::Array<Stmt> taps;
        for (int64_t tap = 0; tap < extent.value(); ++tap) taps.push_back(step(tap));
        body = SeqStmt::Flatten(taps);
        continue;
      }
      if (!body.defined()) body = step(std::nullopt);
      if (!cut) {
        body = Loop(axis.var, axis.extent, ForKind::kSerial, body);
        continue;
      }
      Var tap(axis.var->name, Int(64)), first("first", Int(64));
      ffi::Map<Var, Expr> map;
      map.Set(axis.var, first + tap);
      body = SeqStmt::Flatten(
          {tir::Bind(first, analyzer_->Simplify(least)),
           For(tap, 0, ir::Max(end - first, 0), ForKind::kSerial, tir::Substitute(body, map))});
    }
    return body.defined() ? body : step(std::nullopt);
  }

  const Stage& stage_;
  Axis vector_;
  std::vector<Axis> outer_;
  int64_t lanes_;
  arith::Analyzer* analyzer_;
  int64_t neighbours_ = 1;
  int64_t registers_ = 8;  // for sums
  Expr value_;             // of an element of the window that is inside
  std::vector<Bound> bounds_;
};

}  // namespace

Stmt EmitWindow(const Stage& flat, size_t vector, int64_t lanes, const Machine& traits,
                arith::Analyzer* analyzer) {
  return WindowEmitter(flat, vector, lanes, traits, analyzer).Run();
}

}  // namespace relaxvm::schedule::cpu
