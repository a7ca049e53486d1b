// SPDX-License-Identifier: Apache-2.0
// Analyzer: enters facts, answers questions, and simplifies: an expression is replaced by its
// canonical form when that is shorter, else its parts are simplified.
#include "arith/analyzer.h"

#include <unordered_map>

#include "arith/canonical.h"
#include "arith/cost.h"
#include "arith/same.h"
#include "ir/visitor.h"

namespace relaxvm::arith {
namespace {

// Rewrites the scalar expressions that it finds, the largest first.
class Simplifier : public ir::Mutator {
 public:
  explicit Simplifier(Canonical* canonical) : canonical_(canonical) {}

  Expr Run(const Expr& e) { return Part(e); }

  Expr MutateVar(const Var& v) override {
    if (!ir::IsPrim(v)) return v;
    if (relaxvm::IsBool(v.dtype())) return Condition(v);
    return Integer(v) ? Canonicalized(v) : Expr(v);
  }
  Expr MutateBinary(const ir::Binary& b) override {
    if (Integer(b)) {
      Expr shorter = Canonicalized(b);
      if (!shorter.same_as(b)) return shorter;
      if (b->op == ir::BinaryOp::kAdd && SameScalar(b->a, b->b)) {  // x + x is x * 2
        return ir::Mul(Part(b->a), ir::Const(b.dtype(), 2));
      }
    }
    Expr x = Part(b->a);
    // The second side of `and` is needed only where the first holds, but facts for it would cost
    // more than they give.
    Expr y = Part(b->b);
    Expr out = x.same_as(b->a) && y.same_as(b->b) ? Expr(b) : ir::Make(b->op, x, y, b->span);
    return relaxvm::IsBool(b.dtype()) ? Condition(out) : out;
  }
  Expr MutateCast(const ir::CastExpr& c) override {
    Expr value = Part(c->value);
    return value.same_as(c->value) ? Expr(c) : ir::Cast(c.dtype(), value);
  }
  Expr MutateSelect(const ir::SelectExpr& s) override {
    Expr condition = Part(s->condition);
    if (ffi::Optional<int64_t> value = ir::AsInt(condition))
      return Part(*value ? s->true_value : s->false_value);
    Expr x = Part(s->true_value), y = Part(s->false_value);
    if (SameScalar(x, y)) return x;
    if (condition.same_as(s->condition) && x.same_as(s->true_value) && y.same_as(s->false_value))
      return s;
    return ir::SelectExpr(condition, x, y, s->span);
  }
  Expr MutateIntrin(const ir::IntrinExpr& i) override {
    ffi::Array<Expr> args = i->args.Map([&](const Expr& arg) { return Part(arg); });
    if (i->intrin == ir::Intrin::kIfThenElse) {
      if (ffi::Optional<int64_t> value = ir::AsInt(args[0])) return *value ? args[1] : args[2];
    }
    if (i->intrin == ir::Intrin::kNot) return args.same_as(i->args) ? Expr(i) : ir::Not(args[0]);
    return args.same_as(i->args) ? Expr(i)
                                 : Expr(ir::IntrinExpr(i.dtype(), i->intrin, args, i->span));
  }
  // Calls, and nodes of the loop language: whoever knows them looks inside.
  Expr MutateCall(const ir::Call& c) override { return c; }
  Expr MutateOther(const Expr& e) override { return e; }

 private:
  bool Integer(const Expr& e) { return ir::IsPrim(e) && IsIndexType(e.dtype()); }

  Expr Part(const Expr& e) {
    auto it = done_.find(e.get());
    if (it != done_.end()) return it->second.second;
    Expr out = Mutate(e);
    done_.emplace(e.get(), std::make_pair(e, out));
    return out;
  }

  // The canonical form of an integer expression where that is shorter, else `e`.
  Expr Canonicalized(const Expr& e) {
    Poly p = canonical_->Of(e);
    if (!p.valid()) return e;
    if (std::optional<int64_t> value = p.AsConstant()) return ir::Const(e.dtype(), *value);
    Expr out = canonical_->Emit(p, e.dtype());
    return cost_.Of(out) < cost_.Of(e) ? out : e;
  }

  Expr Condition(const Expr& e) {
    if (e.dtype().lanes != 1) return e;
    if (std::optional<bool> decided = canonical_->Decide(e, 4)) return ir::BoolImm(*decided);
    auto* b = e.as<ir::BinaryObj>();
    if (b == nullptr || !ir::IsComparison(b->op) || !IsIndexType(b->a.dtype())) return e;
    // a + x < b + x  ->  a < b, and the like: what the sides share goes away.
    Poly difference = canonical_->Of(b->a) - canonical_->Of(b->b);
    if (!difference.valid()) return e;
    Poly left, right;
    for (const Term& t : difference.terms()) {
      (t.coef > 0 ? left : right) =
          t.coef > 0 ? left + Poly(t.coef, t.mono) : right + Poly(-t.coef, t.mono);
    }
    DLDataType dtype = b->a.dtype();
    Expr out =
        ir::Binary(b->op, canonical_->Emit(left, dtype), canonical_->Emit(right, dtype), e->span);
    return cost_.Of(out) < cost_.Of(e) ? out : e;
  }

  Canonical* canonical_;
  CostCounter cost_;
  std::unordered_map<const ffi::Object*, std::pair<Expr, Expr>> done_;
};

}  // namespace

class Analyzer::Impl {
 public:
  Canonical canonical;
};

Analyzer::Analyzer() : impl_(std::make_unique<Impl>()) {}
Analyzer::~Analyzer() = default;
Analyzer::Analyzer(Analyzer&&) noexcept = default;
Analyzer& Analyzer::operator=(Analyzer&&) noexcept = default;

void Analyzer::Bind(const Var& var, const Expr& value) {
  Canonical& c = impl_->canonical;
  Poly p = c.Of(value);
  if (IsIndexType(var.dtype()) && p.valid()) c.SetFact(var, {.value = p});
}

void Analyzer::Bind(const Var& var, const Expr& min, const Expr& extent) {
  Canonical& c = impl_->canonical;
  if (!IsIndexType(var.dtype())) return;
  Poly low = c.Of(min), high = low + c.Of(extent) - Poly(1);
  AtomFact fact{.range = {c.Bound(low).min, c.Bound(high).max}};
  if (low.valid() && low == high) {
    fact.value = low;
  } else {
    if (low.valid() && !low.AsConstant()) fact.min = low;
    if (high.valid() && !high.AsConstant()) fact.max = high;
  }
  c.SetFact(var, std::move(fact));
}

void Analyzer::BindRange(const Var& var, Interval range) {
  if (!IsIndexType(var.dtype())) return;
  AtomFact fact{.range = range};
  if (range.IsPoint()) fact.value = Poly(range.min);
  impl_->canonical.SetFact(var, std::move(fact));
}

void Analyzer::Assume(const Expr& condition) { impl_->canonical.AddTrue(condition); }

Analyzer::Scope::Scope(Analyzer* analyzer)
    : analyzer_(analyzer), mark_(analyzer->impl_->canonical.Mark()) {}
Analyzer::Scope::~Scope() { analyzer_->impl_->canonical.ReturnTo(mark_); }

Expr Analyzer::Simplify(const Expr& e) { return Simplifier(&impl_->canonical).Run(e); }

bool Analyzer::ProveEqual(const Expr& a, const Expr& b) {
  if (a.same_as(b)) return true;
  Canonical& c = impl_->canonical;
  if (IsIndexType(a.dtype()) && IsIndexType(b.dtype())) return c.ProveZero(c.Of(a) - c.Of(b));
  if (a.dtype() != b.dtype()) return false;
  return SameScalar(Simplify(a), Simplify(b));
}

bool Analyzer::Prove(const Expr& condition) { return impl_->canonical.Decide(condition) == true; }

bool Analyzer::ProveAtLeast(const Expr& e, int64_t value) {
  Canonical& c = impl_->canonical;
  return IsIndexType(e.dtype()) && c.ProveNonNegative(c.Of(e) - Poly(value));
}

bool Analyzer::ProveLessEqual(const Expr& a, const Expr& b) {
  Canonical& c = impl_->canonical;
  return IsIndexType(a.dtype()) && IsIndexType(b.dtype()) && c.ProveNonNegative(c.Of(b) - c.Of(a));
}

Interval Analyzer::Bounds(const Expr& e) { return impl_->canonical.Bound(impl_->canonical.Of(e)); }

ModularSet Analyzer::Modular(const Expr& e) {
  return impl_->canonical.Modular(impl_->canonical.Of(e));
}

std::optional<int64_t> Analyzer::Remainder(const Expr& e, int64_t n) {
  const ModularSet known = Modular(e);
  return known.coeff % n == 0 ? std::optional(FloorModInt(known.base, n)) : std::nullopt;
}

}  // namespace relaxvm::arith
