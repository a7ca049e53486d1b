// SPDX-License-Identifier: Apache-2.0
// One vectorised loop: its variable becomes a ramp, and every expression that depends on it gets
// its lanes.
#include "codegen/tir/vectorize.h"

#include <utility>

#include "arith/analyzer.h"
#include "tir/functor.h"

namespace relaxvm::codegen {
namespace {

namespace ffi = tvm::ffi;
using ir::BinaryOp;
using ir::BroadcastExpr;
using ir::BroadcastObj;
using ir::Expr;
using ir::RampExpr;
using ir::RampObj;
using ir::Var;
using tir::Stmt;

int LanesOf(const Expr& e) { return e.dtype().lanes; }

// Thrown inside this file only: this loop stays serial.
struct NotVectorizable {};

class LoopVectorizer : public tir::StmtMutator {
 public:
  LoopVectorizer(const tir::For& loop, int lanes) : lanes_(lanes) {
    Replace(loop->loop_var, RampExpr(loop->min, ir::Const(loop->loop_var.dtype(), 1), lanes));
  }

  // Scalars in, scalars out; what depends on the loop variable comes back with lanes.
  Expr MutateBinary(const ir::Binary& e) override {
    Expr a = Mutate(e->a), b = Mutate(e->b);
    if (a.same_as(e->a) && b.same_as(e->b)) return e;
    return Combine(e->op, a, b);
  }

  Expr MutateCast(const ir::CastExpr& e) override {
    Expr value = Mutate(e->value);
    if (value.same_as(e->value)) return e;
    DLDataType dtype = WithLanes(e.dtype(), LanesOf(value));
    // Index arithmetic in another width keeps its form.
    const auto* ramp = value.as<RampObj>();
    if (ramp != nullptr && IsInt(dtype) && dtype.bits == 64 && IsInt(value.dtype())) {
      DLDataType scalar = ElementOf(dtype);
      return RampExpr(ir::Cast(scalar, ramp->base), ir::Cast(scalar, ramp->stride), ramp->lanes);
    }
    return ir::Cast(dtype, value);
  }

  Expr MutateSelect(const ir::SelectExpr& e) override {
    Expr c = Mutate(e->condition), t = Mutate(e->true_value), f = Mutate(e->false_value);
    if (c.same_as(e->condition) && t.same_as(e->true_value) && f.same_as(e->false_value)) return e;
    return ir::SelectExpr(Widen(c), Widen(t), Widen(f), e->span);
  }

  Expr MutateLet(const ir::LetExpr& e) override {
    Expr value = Mutate(e->value);
    Var var = DefineAs(e->var, value);
    Expr body = Mutate(e->body);
    return ir::LetExpr(var, value, body, e->span);
  }

  Expr MutateIntrin(const ir::IntrinExpr& e) override {
    ffi::Array<Expr> args = MutateAll(e->args);
    if (args.same_as(e->args)) return e;
    if (LanesOf(e->args[0]) > 1 || e.dtype().lanes > 1) throw NotVectorizable();
    if (e->intrin == ir::Intrin::kIfThenElse && LanesOf(args[0]) > 1) {
      auto [uniform, varying] = SplitCondition(args[0]);
      if (uniform.defined() && varying.defined()) {
        Expr inner = Choice(varying, args[1], args[2]);
        return Choice(uniform, inner, args[2]);
      }
    }
    // A condition that is the same for all lanes stays a branch.
    bool keep_condition = e->intrin == ir::Intrin::kIfThenElse && LanesOf(args[0]) == 1;
    ffi::Array<Expr> wide;
    for (size_t i = 0; i < args.size(); ++i) {
      wide.push_back(i == 0 && keep_condition ? args[i] : Widen(args[i]));
    }
    return ir::IntrinExpr(WithLanes(e.dtype(), lanes_), e->intrin, wide, e->span);
  }

  Expr MutateRamp(const RampExpr& e) override { return OnlyUniform(e, RampMutated(e)); }
  Expr MutateBroadcast(const BroadcastExpr& e) override {
    return OnlyUniform(e, tir::StmtMutator::MutateBroadcast(e));
  }
  Expr MutateShuffle(const ir::ShuffleExpr& e) override {
    return OnlyUniform(e, tir::StmtMutator::MutateShuffle(e));
  }

  Expr MutateBufferLoad(const tir::BufferLoad& e) override {
    ffi::Array<Expr> indices = MutateAll(e->indices);
    if (e.dtype().lanes > 1) {
      if (!indices.same_as(e->indices)) throw NotVectorizable();
      return e;
    }
    Expr predicate = Mutate(e->predicate);
    int lanes = tir::IndexLanes(indices);
    if (mask_.defined() && lanes > 1) predicate = BothOf(predicate, mask_);
    if (indices.same_as(e->indices) && predicate.same_as(e->predicate)) return e;
    if (predicate.defined() && LanesOf(predicate) > 1 && lanes == 1) {
      indices = WidenLast(indices);
    }
    if (predicate.defined()) predicate = Widen(predicate);
    return tir::BufferLoad(e->buffer, indices, predicate, e->span);
  }

  Stmt MutateBufferStore(const tir::BufferStore& s) override {
    if (s->value.dtype().lanes > 1) throw NotVectorizable();
    ffi::Array<Expr> indices = MutateAll(s->indices);
    Expr value = Mutate(s->value), predicate = Mutate(s->predicate);
    if (mask_.defined()) predicate = BothOf(predicate, mask_);
    bool varies = LanesOf(value) > 1 || (predicate.defined() && LanesOf(predicate) > 1);
    if (tir::IndexLanes(indices) == 1) {
      // Every lane writes the same element.
      if (varies) throw NotVectorizable();
      return tir::BufferStore(s->buffer, value, indices, predicate, s->span);
    }
    if (predicate.defined()) predicate = Widen(predicate);
    return tir::BufferStore(s->buffer, Widen(value), indices, predicate, s->span);
  }

  Stmt MutateBind(const tir::Bind& s) override {
    Expr value = Mutate(s->value);
    Var var = DefineAs(s->var, value);
    return tir::Bind(var, value, s->span);
  }

  Stmt MutateIfThenElse(const tir::IfThenElse& s) override {
    Expr condition = Mutate(s->condition);
    if (LanesOf(condition) > 1 && !s->else_case.defined()) {
      auto [uniform, varying] = SplitCondition(condition);
      if (uniform.defined() && varying.defined()) {
        return tir::IfThenElse(uniform, Masked(varying, s->then_case), Stmt(), s->span);
      }
    }
    if (LanesOf(condition) == 1) {
      return tir::IfThenElse(condition, Mutate(s->then_case), Mutate(s->else_case), s->span);
    }
    Stmt then_case = Masked(condition, s->then_case);
    if (!s->else_case.defined()) return then_case;
    Expr inverse = ir::IntrinExpr(condition.dtype(), ir::Intrin::kNot, {condition});
    return tir::SeqStmt::Flatten({then_case, Masked(inverse, s->else_case)});
  }

  Stmt MutateFor(const tir::For& s) override {
    Expr min = Mutate(s->min), extent = Mutate(s->extent);
    if (LanesOf(min) > 1 || LanesOf(extent) > 1 || s->kind == tir::ForKind::kParallel) {
      throw NotVectorizable();
    }
    Stmt body = Mutate(s->body);
    tir::ForKind kind = s->kind == tir::ForKind::kVectorized ? tir::ForKind::kSerial : s->kind;
    return tir::For(s->loop_var, min, extent, kind, body, s->thread_tag, s->annotations, s->span);
  }

  Stmt MutateAllocBuffer(const tir::AllocBuffer& s) override { throw NotVectorizable(); }
  Stmt MutateWhile(const tir::While& s) override { throw NotVectorizable(); }
  Stmt MutateAssert(const tir::AssertStmt& s) override {
    Stmt mutated = tir::StmtMutator::MutateAssert(s);
    if (!mutated.same_as(s) || mask_.defined()) throw NotVectorizable();
    return s;
  }

 private:
  Stmt Masked(const Expr& condition, const Stmt& s) {
    Expr outer = mask_;
    mask_ = BothOf(outer, condition);
    Stmt result = Mutate(s);
    mask_ = outer;
    return result;
  }

  Expr Choice(const Expr& condition, const Expr& t, const Expr& f) const {
    Expr wide = Widen(t);
    return ir::IntrinExpr(wide.dtype(), ir::Intrin::kIfThenElse, {condition, wide, Widen(f)});
  }

  // The parts of a conjunction that all lanes share, and the rest: what the shared part guards is
  // not even loaded.
  std::pair<Expr, Expr> SplitCondition(const Expr& condition) const {
    const auto* both = condition.as<ir::BinaryObj>();
    if (const auto* wide = condition.as<BroadcastObj>()) return {wide->value, Expr()};
    if (both == nullptr || both->op != BinaryOp::kAnd) {
      return LanesOf(condition) == 1 ? std::pair<Expr, Expr>{condition, Expr()}
                                     : std::pair<Expr, Expr>{Expr(), condition};
    }
    auto [ua, va] = SplitCondition(both->a);
    auto [ub, vb] = SplitCondition(both->b);
    return {BothOf(ua, ub), BothOf(va, vb)};
  }

  Expr Widen(const Expr& e) const {
    if (LanesOf(e) == lanes_) return e;
    if (LanesOf(e) != 1) throw NotVectorizable();
    return BroadcastExpr(e, lanes_);
  }

  ffi::Array<Expr> WidenLast(ffi::Array<Expr> indices) const {
    if (indices.empty()) throw NotVectorizable();
    indices.Set(indices.size() - 1, BroadcastExpr(indices.back(), lanes_));
    return indices;
  }

  Expr BothOf(const Expr& a, const Expr& b) const {
    if (!a.defined()) return b;
    if (!b.defined()) return a;
    if (LanesOf(a) == 1 && LanesOf(b) == 1) return ir::And(a, b);
    return ir::Binary(BinaryOp::kAnd, Widen(a), Widen(b));
  }

  template <typename T>
  Expr OnlyUniform(const T& before, const Expr& after) const {
    if (!after.same_as(before)) throw NotVectorizable();
    return after;
  }
  Expr RampMutated(const RampExpr& e) { return tir::StmtMutator::MutateRamp(e); }

  // A vector inside the loop already stays as it is, when it is the same in all iterations.
  Expr Combine(BinaryOp op, const Expr& a, const Expr& b) const {
    if (LanesOf(a) == 1 && LanesOf(b) == 1) return ir::Make(op, a, b);
    const auto* ra = a.as<RampObj>();
    const auto* rb = b.as<RampObj>();
    if (ra && LanesOf(b) == 1) {
      if (op == BinaryOp::kAdd || op == BinaryOp::kSub) {
        return RampExpr(ir::Make(op, ra->base, b), ra->stride, lanes_);
      }
      if (op == BinaryOp::kMul) {
        return RampExpr(ir::Mul(ra->base, b), ir::Mul(ra->stride, b), lanes_);
      }
    }
    if (rb && LanesOf(a) == 1) {
      if (op == BinaryOp::kAdd) return RampExpr(ir::Add(a, rb->base), rb->stride, lanes_);
      if (op == BinaryOp::kSub) {
        return RampExpr(ir::Sub(a, rb->base), ir::Sub(ir::Const(rb->stride.dtype(), 0), rb->stride),
                        lanes_);
      }
      if (op == BinaryOp::kMul) {
        return RampExpr(ir::Mul(a, rb->base), ir::Mul(a, rb->stride), lanes_);
      }
    }
    if (ra && rb && (op == BinaryOp::kAdd || op == BinaryOp::kSub)) {
      return RampExpr(ir::Make(op, ra->base, rb->base), ir::Make(op, ra->stride, rb->stride),
                      lanes_);
    }
    if (const Expr known = DividedRamp(op, ra, b); known.defined()) return known;
    return ir::Binary(op, Widen(a), Widen(b));
  }

  // A ramp divided by a constant, where it is known where in a period of quotients it begins: lanes
  // differ from what they share by constants.  Null: that is not known.
  Expr DividedRamp(BinaryOp op, const RampObj* ramp, const Expr& divisor) const {
    const bool is_quotient = op == BinaryOp::kFloorDiv;
    const auto n = ir::AsInt(divisor);
    if ((!is_quotient && op != BinaryOp::kFloorMod) || ramp == nullptr || n.value_or(0) < 2 ||
        !ramp->stride.as<ir::IntImmObj>())
      return Expr();
    if (*n % lanes_ == 0 && ir::IsIntValue(ramp->stride, 1) &&
        arith::Analyzer().Remainder(ramp->base, lanes_) == 0) {  // one quotient
      const Expr first = ir::Make(op, ramp->base, divisor);
      return is_quotient ? first : Expr(RampExpr(first, ramp->stride, lanes_));
    }
    const auto rest = arith::Analyzer().Remainder(ramp->base, *n);
    if (!rest.has_value()) return Expr();
    const Expr from_period = RampExpr(ir::Const(divisor.dtype(), *rest), ramp->stride, lanes_);
    const Expr steps = ir::Binary(op, from_period, Widen(divisor));
    if (!is_quotient) return steps;
    return ir::Binary(BinaryOp::kAdd, Widen(ir::FloorDiv(ramp->base, divisor)), steps);
  }

  Var DefineAs(const Var& var, const Expr& value) {
    if (LanesOf(value) == var.dtype().lanes) return var;
    Var wide(var->name, value.dtype());
    Replace(var, wide);
    return wide;
  }

  int lanes_;
  Expr mask_;  // lanes that run; null: all
};

class Vectorizer : public tir::StmtMutator {
 public:
  Stmt MutateFor(const tir::For& s) override {
    // Inner loops first: an outer vectorised loop finds them as they will be.
    Stmt inner = tir::StmtMutator::MutateFor(s);
    if (s->kind != tir::ForKind::kVectorized) return inner;
    tir::For loop = inner.as<tir::For>().value();
    ffi::Optional<int64_t> extent = ir::AsInt(loop->extent);
    if (extent.has_value() && extent.value() == 1) {
      return tir::Substitute(loop->body, {{loop->loop_var, loop->min}});
    }
    if (extent.has_value() && extent.value() > 1 && extent.value() <= kMaxLanes) {
      try {
        return LoopVectorizer(loop, static_cast<int>(extent.value())).Mutate(loop->body);
      } catch (const NotVectorizable&) {
      }
    }
    return tir::For(loop->loop_var, loop->min, loop->extent, tir::ForKind::kSerial, loop->body, "",
                    loop->annotations, loop->span);
  }

 private:
  static constexpr int64_t kMaxLanes = 1024;
};

}  // namespace

Stmt VectorizeLoops(const Stmt& body) { return Vectorizer().Mutate(body); }

}  // namespace relaxvm::codegen
