// SPDX-License-Identifier: Apache-2.0
// Proofs that a polynomial is never negative: by constant bounds, by facts, by putting the worst
// value for a variable, by the definition of a quotient, and by cases.  Depth and number of steps
// are bounded.
#include <algorithm>
#include <numeric>

#include "arith/canonical.h"
#include "arith/same.h"

namespace relaxvm::arith {
namespace {

constexpr int kMaxSteps = 256;
constexpr int kStepCost = 10;  // replacing one atom costs 1
constexpr int kMaxProofDepth = 8;

}  // namespace

bool Canonical::ProveNonNegative(const Poly& p) {
  if (!p.valid()) return false;
  if (proving_) return Bound(p).min >= 0;
  proving_ = true;
  fuel_ = kMaxSteps * kStepCost;
  bool proved = NonNegative(p, kMaxProofDepth);
  proving_ = false;
  return proved;
}

bool Canonical::ProveZero(const Poly& p) {
  if (!p.valid()) return false;
  if (p.IsZero()) return true;
  if (!Bound(p).Contains(0)) return false;
  ModularSet m = Modular(p);
  if (m.base != 0) return false;
  return ProveNonNegative(p) && ProveNonNegative(-p);
}

bool Canonical::ProveNonZero(const Poly& p) {
  if (!p.valid()) return false;
  if (!Bound(p).Contains(0) || Modular(p).base != 0) return true;
  for (const Poly& known : non_zero_) {
    if (p == known || p == -known) return true;
  }
  return ProveNonNegative(p - Poly(1)) || ProveNonNegative(-p - Poly(1));
}

bool Canonical::NonNegative(const Poly& input, int depth) {
  fuel_ -= kStepCost;
  if (!input.valid() || fuel_ < 0) return false;
  Poly p = input;
  // g * x + k >= 0  when  x + floor(k / g) >= 0
  if (int64_t g = p.CoefficientGcd(); g > 1) {
    Poly k(p.constant());
    p = (p - k).DivideExactly(g) + Poly(FloorDivInt(input.constant(), g));
  }
  Interval range = Bound(p);
  if (range.min >= 0 || range.IsEmpty()) return true;
  if (range.max < 0 || depth == 0) return false;
  // m * x >= 0  when  m >= 0 and x >= 0
  if (p.constant() == 0) {
    for (AtomId atom : p.terms()[0].mono) {
      if (BoundAtom(atom).min < 0) continue;
      if (std::optional<Poly> rest = p.DivideExactly(Term{1, Monomial(atom)})) {
        return NonNegative(*rest, depth - 1);
      }
    }
  }
  if (ByFacts(p, depth)) return true;
  std::vector<AtomId> atoms;
  for (const Term& t : p.terms()) {
    for (AtomId atom : t.mono) {
      if (std::find(atoms.begin(), atoms.end(), atom) == atoms.end()) atoms.push_back(atom);
    }
  }
  // Cases lose nothing: when p >= 0 can be shown at all, then in each of them.
  for (AtomId atom : atoms) {
    AtomKind kind = atoms_[atom].kind;
    if (kind == AtomKind::kRelu || kind == AtomKind::kSelect || kind == AtomKind::kLazySelect) {
      return ByCases(p, atom, depth);
    }
  }
  for (AtomId atom : atoms) {
    AtomKind kind = atoms_[atom].kind;
    if (kind == AtomKind::kVar && ByVariable(p, atom, depth)) return true;
    if (kind == AtomKind::kFloorDiv && ByQuotient(p, atom, depth)) return true;
  }
  return false;
}

// p >= 0  when  p - c * f >= 0  for a fact f >= 0 and c > 0: c removes a term that they share.
bool Canonical::ByFacts(const Poly& p, int depth) {
  for (size_t i = 0; i < non_negative_.size(); ++i) {
    const Poly fact = non_negative_[i];
    int64_t tried = 0;
    for (const Term& t : fact.terms()) {
      if (t.mono.IsOne()) continue;
      int64_t coef = p.Coefficient(t.mono);
      if (coef == 0 || coef % t.coef != 0 || coef / t.coef <= 0 || coef / t.coef == tried) continue;
      tried = coef / t.coef;
      Poly rest = p - fact * tried;
      if (rest.valid() && rest.terms().size() <= p.terms().size() && NonNegative(rest, depth - 1)) {
        return true;
      }
    }
  }
  return false;
}

// p = c * v + r, linear in v:  c >= 0 puts the least v, c <= 0 the greatest.
bool Canonical::ByVariable(const Poly& p, AtomId atom, int depth) {
  Poly c, rest;
  for (const Term& t : p.terms()) {
    int count = t.mono.Count(atom);
    if (count > 1) return false;
    Poly& part = count == 1 ? c : rest;
    part = part + Poly(t.coef, count == 1 ? t.mono.Without(atom) : t.mono);
  }
  const AtomFact fact = facts_[atom];
  Interval sign = Bound(c);
  // A constant factor and a constant bound are what Bound has tried already.
  bool symbolic = !c.AsConstant();
  auto substitute = [&](bool least) {
    const std::optional<Poly>& bound = least ? fact.min : fact.max;
    if (bound && NonNegative(rest + c * *bound, depth - 1)) return true;
    int64_t end = least ? fact.range.min : fact.range.max;
    if (!symbolic || end == kNegInf || end == kPosInf) return false;
    return NonNegative(rest + c * end, depth - 1);
  };
  if (sign.min >= 0 || (sign.max > 0 && symbolic && NonNegative(c, depth - 2)))
    return substitute(true);
  if (sign.max <= 0 || (sign.min < 0 && symbolic && NonNegative(-c, depth - 2)))
    return substitute(false);
  return false;
}

// p = c * b * q + r with q = floor(a / b), b >= 1:   a - b + 1 <= b * q <= a.
bool Canonical::ByQuotient(const Poly& p, AtomId atom, int depth) {
  const Poly a = atoms_[atom].a, b = atoms_[atom].b;
  if (!b.IsSingleTerm() || b.terms()[0].coef < 0 || Bound(b).min < 0) return false;
  const Term divisor = b.terms()[0];
  Poly c, rest;
  for (const Term& t : p.terms()) {
    std::optional<Monomial> mono;
    if (t.mono.Count(atom) == 1) mono = t.mono.Without(atom).Divide(divisor.mono);
    if (t.mono.Count(atom) > 0 && !mono) return false;
    if (mono) {
      c = c + Poly(t.coef, *mono);
    } else {
      rest = rest + Poly(t.coef, t.mono);
    }
  }
  // p is an integer:  p >= 0  when  d * p >= 1 - d, where d is the constant factor of b.
  int64_t d = divisor.coef;
  Poly scaled = rest * d + Poly(d - 1);
  Interval sign = Bound(c);
  if (sign.min >= 0) return NonNegative(scaled + c * (a - b + Poly(1)), depth - 1);
  if (sign.max <= 0) return NonNegative(scaled + c * a, depth - 1);
  return false;
}

AtomId Canonical::InnermostMaximum(AtomId atom) {
  for (const Term& t : atoms_[atom].a.terms()) {
    for (AtomId inner : t.mono) {
      if (atoms_[inner].kind == AtomKind::kRelu) return InnermostMaximum(inner);
    }
  }
  return atom;
}

bool Canonical::ByCases(const Poly& p, AtomId atom, int depth) {
  atom = InnermostMaximum(atom);
  const Atom choice = atoms_[atom];
  if (choice.kind != AtomKind::kRelu) {
    return NonNegative(ReplaceAtom(p, atom, choice.a), depth - 1) &&
           NonNegative(ReplaceAtom(p, atom, choice.b), depth - 1);
  }
  auto under = [&](const Poly& fact, const Poly& value) {
    non_negative_.push_back(fact);
    bool proved = NonNegative(ReplaceAtom(p, atom, value), depth - 1);
    non_negative_.pop_back();
    return proved;
  };
  return under(choice.a, choice.a) && under(-choice.a - Poly(1), Poly());
}

// ---- conditions
// ------------------------------------------------------------------------------------------------------

std::optional<bool> Canonical::DecideComparison(const ir::BinaryObj* b) {
  using ir::BinaryOp;
  if (!IsIndexType(b->a.dtype())) return std::nullopt;
  Poly difference = Of(b->a) - Of(b->b);
  if (!difference.valid()) return std::nullopt;
  auto at_least = [&](const Poly& p) -> std::optional<bool> {  // p >= 0
    if (ProveNonNegative(p)) return true;
    if (ProveNonNegative(-p - Poly(1))) return false;
    return std::nullopt;
  };
  auto negate = [](std::optional<bool> x) { return x ? std::optional<bool>(!*x) : x; };
  auto equal = [&]() -> std::optional<bool> {
    if (ProveZero(difference)) return true;
    if (ProveNonZero(difference)) return false;
    return std::nullopt;
  };
  switch (b->op) {
    case BinaryOp::kEQ: return equal();
    case BinaryOp::kNE: return negate(equal());
    case BinaryOp::kGE: return at_least(difference);
    case BinaryOp::kLT: return negate(at_least(difference));
    case BinaryOp::kLE: return at_least(-difference);
    case BinaryOp::kGT: return negate(at_least(-difference));
    default: RELAXVM_UNREACHABLE();
  }
}

std::optional<bool> Canonical::Decide(const Expr& condition, int depth) {
  if (ffi::Optional<int64_t> value = ir::AsInt(condition)) return *value != 0;
  if (depth == 0 || condition.dtype().lanes != 1) return std::nullopt;
  for (const Expr& known : true_) {
    if (known.same_as(condition) || SameScalar(known, condition)) return true;
  }
  if (auto* i = condition.as<ir::IntrinObj>()) {
    if (i->intrin == ir::Intrin::kLikely) return Decide(i->args[0], depth);
    if (i->intrin != ir::Intrin::kNot) return std::nullopt;
    std::optional<bool> inner = Decide(i->args[0], depth - 1);
    return inner ? std::optional<bool>(!*inner) : inner;
  }
  auto* b = condition.as<ir::BinaryObj>();
  if (b == nullptr) return std::nullopt;
  if (ir::IsComparison(b->op)) return DecideComparison(b);
  if (b->op != ir::BinaryOp::kAnd && b->op != ir::BinaryOp::kOr) return std::nullopt;
  // One side alone decides it, or both together.
  bool decisive = b->op == ir::BinaryOp::kOr;
  std::optional<bool> x = Decide(b->a, depth - 1);
  if (x == decisive) return x;
  std::optional<bool> y = Decide(b->b, depth - 1);
  if (y == decisive) return y;
  return x && y ? std::optional<bool>(!decisive) : std::nullopt;
}

// ---- facts
// -----------------------------------------------------------------------------------------------------------

void Canonical::SetFact(const Var& var, AtomFact fact) {
  AtomId id = VarAtom(var);
  undo_.push_back({Undo::kFact, id, facts_[id]});
  facts_[id] = std::move(fact);
  FactsChanged();
}

void Canonical::AddNonNegative(const Poly& p) {
  if (!p.valid() || p.AsConstant()) return;
  // c * v + k >= 0  bounds v itself.
  if (p.terms().size() <= 2 && p.terms().back().mono.degree() == 1 &&
      (p.terms().size() == 1 || p.terms()[0].mono.IsOne())) {
    const Term t = p.terms().back();
    AtomId id = t.mono[0];
    int64_t k = p.constant();
    undo_.push_back({Undo::kFact, id, facts_[id]});
    Interval& range = facts_[id].range;
    if (t.coef > 0) {
      range.min = std::max(range.min, -FloorDivInt(k, t.coef));
    } else {
      range.max = std::min(range.max, FloorDivInt(k, -t.coef));
    }
  } else {
    non_negative_.push_back(p);
    undo_.push_back({Undo::kNonNegative});
  }
  FactsChanged();
}

void Canonical::AddZero(const Poly& p) {
  if (!p.valid() || p.AsConstant()) return;
  auto define = [&](AtomId id, const Poly& value) {
    Interval range = facts_[id].range;
    undo_.push_back({Undo::kFact, id, facts_[id]});
    facts_[id].value = value;
    FactsChanged();
    if (range.min != kNegInf) AddNonNegative(value - Poly(range.min));
    if (range.max != kPosInf) AddNonNegative(Poly(range.max) - value);
  };
  // v - b * floor(v / b) - k = 0:  v = b * u + k with a new u, which is floor(v / b).
  for (const Term& t : p.terms()) {
    if (t.mono.degree() != 1 || atoms_[t.mono[0]].kind != AtomKind::kFloorDiv) continue;
    const Atom q = atoms_[t.mono[0]];
    std::optional<int64_t> b = q.b.AsConstant();
    if (!b || !q.a.IsSingleTerm() || q.a.terms()[0].coef != 1 || q.a.terms()[0].mono.degree() != 1)
      continue;
    AtomId v = q.a.terms()[0].mono[0];
    if (atoms_[v].kind != AtomKind::kVar || facts_[v].value) continue;
    Poly sign = t.coef > 0 ? -p : p;
    std::optional<int64_t> k = (q.a - q.b * Poly::Atom(t.mono[0]) - sign).AsConstant();
    if (!k || *k < 0 || *k >= *b) continue;
    auto u = static_cast<AtomId>(atoms_.size());
    Interval range = BoundAtom(t.mono[0]);
    atoms_.push_back({AtomKind::kVar,
                      ir::FloorDiv(atoms_[v].expr, ir::Const(atoms_[v].expr.dtype(), *b)), Poly(),
                      Poly()});
    facts_.push_back({.range = range});
    define(v, Poly(*b, Monomial(u)) + Poly(*k));
    return;
  }
  // A variable that stands alone with factor 1 or -1 is replaced by the rest; the newest, so that
  // results are in terms of what was known first.
  for (auto t = p.terms().rbegin(); t != p.terms().rend(); ++t) {
    if (t->mono.degree() != 1 || (t->coef != 1 && t->coef != -1)) continue;
    AtomId id = t->mono[0];
    if (atoms_[id].kind != AtomKind::kVar || facts_[id].value) continue;
    Poly rest = (p - Poly(t->coef, t->mono)) * -t->coef;
    if (!rest.valid() || MayDependOn(rest, id)) continue;
    define(id, rest);
    return;
  }
  AddNonNegative(p);
  AddNonNegative(-p);
}

void Canonical::AddTrue(const Expr& condition) {
  using ir::BinaryOp;
  if (auto* b = condition.as<ir::BinaryObj>()) {
    if (b->op == BinaryOp::kAnd) {
      AddTrue(b->a);
      AddTrue(b->b);
      return;
    }
    if (ir::IsComparison(b->op) && IsIndexType(b->a.dtype())) {
      Poly difference = Of(b->a) - Of(b->b);
      switch (b->op) {
        case BinaryOp::kEQ: AddZero(difference); return;
        case BinaryOp::kGE: AddNonNegative(difference); return;
        case BinaryOp::kGT: AddNonNegative(difference - Poly(1)); return;
        case BinaryOp::kLE: AddNonNegative(-difference); return;
        case BinaryOp::kLT: AddNonNegative(-difference - Poly(1)); return;
        case BinaryOp::kNE:
          // At the edge of its range a value that differs lies inside.
          if (Bound(difference).min >= 0) {
            AddNonNegative(difference - Poly(1));
          } else if (Bound(difference).max <= 0) {
            AddNonNegative(-difference - Poly(1));
          } else if (difference.valid()) {
            non_zero_.push_back(difference);
            undo_.push_back({Undo::kNonZero});
            FactsChanged();
          }
          return;
        default: RELAXVM_UNREACHABLE();
      }
    }
  }
  if (auto* i = condition.as<ir::IntrinObj>(); i != nullptr && i->intrin == ir::Intrin::kLikely) {
    AddTrue(i->args[0]);
    return;
  }
  true_.push_back(condition);
  undo_.push_back({Undo::kTrue});
  FactsChanged();
}

void Canonical::ReturnTo(size_t mark) {
  if (undo_.size() == mark) return;
  while (undo_.size() > mark) {
    Undo& last = undo_.back();
    switch (last.kind) {
      case Undo::kFact: facts_[last.atom] = std::move(last.old); break;
      case Undo::kNonNegative: non_negative_.pop_back(); break;
      case Undo::kNonZero: non_zero_.pop_back(); break;
      case Undo::kTrue: true_.pop_back(); break;
    }
    undo_.pop_back();
  }
  FactsChanged();
}

}  // namespace relaxvm::arith
