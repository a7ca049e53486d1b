// SPDX-License-Identifier: Apache-2.0
// Expressions to polynomials, and the rules of floor division, maximum and choice.
#include "arith/canonical.h"

#include <algorithm>
#include <numeric>
#include <unordered_set>

#include "arith/same.h"

namespace relaxvm::arith {
namespace {

// Deeper expressions are not looked into: recursion follows their nesting.
constexpr int kMaxDepth = 300;
constexpr int kMaxDivisionSteps = 8;

size_t HashAtom(const Atom& atom) {
  size_t h = static_cast<size_t>(atom.kind) * 0x9e3779b97f4a7c15ull;
  h = (h ^ atom.a.Hash()) * 0xff51afd7ed558ccdull;
  h = (h ^ atom.b.Hash()) * 0xff51afd7ed558ccdull;
  if (atom.expr.defined()) h ^= HashScalar(atom.expr);
  return h;
}

bool SameAtom(const Atom& a, const Atom& b) {
  return a.kind == b.kind && a.a == b.a && a.b == b.b && SameScalar(a.expr, b.expr);
}

const Term* LeadingTerm(const Poly& p) {  // the first that is not the constant
  for (const Term& t : p.terms()) {
    if (!t.mono.IsOne()) return &t;
  }
  return nullptr;
}

// The term of greatest degree, the last of these.
const Term* HighestTerm(const Poly& p) {
  const Term* best = nullptr;
  for (const Term& t : p.terms()) {
    if (best == nullptr || t.mono.degree() >= best->mono.degree()) best = &t;
  }
  return best;
}

// a / b when b divides a as a polynomial.
std::optional<Poly> DividePolynomial(Poly a, const Poly& b) {
  const Term* divisor = HighestTerm(b);
  Poly quotient;
  for (int step = 0; step < 16 && a.valid() && !a.IsZero(); ++step) {
    const Term* lead = HighestTerm(a);
    std::optional<Monomial> mono = lead->mono.Divide(divisor->mono);
    if (!mono || lead->coef % divisor->coef != 0) return std::nullopt;
    Poly part(lead->coef / divisor->coef, *mono);
    quotient = quotient + part;
    a = a - b * part;
  }
  if (!a.IsZero() || !quotient.valid()) return std::nullopt;
  return quotient;
}

// The largest term that divides every term of both.
Term CommonFactor(const Poly& a, const Poly& b) {
  Term common{0, Monomial()};
  bool first = true;
  for (const Poly* p : {&a, &b}) {
    for (const Term& t : p->terms()) {
      common.coef = std::gcd(common.coef, t.coef);
      if (first) {
        common.mono = t.mono;
        first = false;
        continue;
      }
      Monomial shared;
      Monomial rest = t.mono;
      for (AtomId atom : common.mono) {
        if (rest.Count(atom) == 0) continue;
        rest = rest.Without(atom);
        shared = *Monomial::Product(shared, Monomial(atom));
      }
      common.mono = shared;
    }
  }
  return common;
}

}  // namespace

bool IsIndexType(DLDataType dtype) {
  return relaxvm::IsInt(dtype) && dtype.lanes == 1 && (dtype.bits == 32 || dtype.bits == 64);
}

// ---- atoms
// -----------------------------------------------------------------------------------------------------------

AtomId Canonical::VarAtom(const Var& var) {
  auto [it, added] = vars_.try_emplace(var.get(), static_cast<AtomId>(atoms_.size()));
  if (added) {
    atoms_.push_back({AtomKind::kVar, var, Poly(), Poly()});
    // Dimensions are the variables that nobody binds.
    facts_.push_back({.range = Interval::AtLeast(0)});
  }
  return it->second;
}

Poly Canonical::MakeAtom(Atom atom) {
  if (!atom.a.valid() || !atom.b.valid()) return Poly::Invalid();
  size_t hash = HashAtom(atom);
  auto [begin, end] = by_hash_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    if (SameAtom(atoms_[it->second], atom)) return ValueOf(it->second);
  }
  auto id = static_cast<AtomId>(atoms_.size());
  atoms_.push_back(std::move(atom));
  facts_.push_back({});
  by_hash_.emplace(hash, id);
  return Poly::Atom(id);
}

Poly Canonical::ValueOf(AtomId id) {
  const AtomFact& fact = facts_[id];
  return fact.value ? *fact.value : Poly::Atom(id);
}

bool Canonical::MayDependOn(const Poly& p, AtomId atom) {
  // Parts may be shared: each atom is looked at once.
  std::vector<AtomId> todo;
  std::unordered_set<AtomId> seen;
  auto add = [&](const Poly& q) {
    for (const Term& t : q.terms()) {
      for (AtomId id : t.mono) {
        if (seen.insert(id).second) todo.push_back(id);
      }
    }
  };
  add(p);
  while (!todo.empty()) {
    AtomId id = todo.back();
    todo.pop_back();
    if (id == atom) return true;
    // What a condition or an opaque expression names is not known.
    if (atoms_[id].kind != AtomKind::kVar && atoms_[id].expr.defined()) return true;
    add(atoms_[id].a);
    add(atoms_[id].b);
  }
  return false;
}

Poly Canonical::ReplaceAtom(const Poly& p, AtomId atom, const Poly& by) {
  Poly out;
  for (const Term& t : p.terms()) {
    Poly product(t.coef);
    for (AtomId id : t.mono) product = product * ReplaceIn(id, atom, by);
    out = out + product;
  }
  return out;
}

// The atom `id` after `atom` inside it was replaced.
Poly Canonical::ReplaceIn(AtomId id, AtomId atom, const Poly& by) {
  if (id == atom) return by;
  if (--fuel_ < 0) return Poly::Invalid();
  const Atom old = atoms_[id];
  if (!MayDependOn(old.a, atom) && !MayDependOn(old.b, atom)) return Poly::Atom(id);
  Poly a = ReplaceAtom(old.a, atom, by), b = ReplaceAtom(old.b, atom, by);
  switch (old.kind) {
    case AtomKind::kFloorDiv: return FloorDiv(a, b);
    case AtomKind::kTruncDiv: return TruncDiv(a, b);
    case AtomKind::kRelu: return Relu(a);
    case AtomKind::kSelect:
    case AtomKind::kLazySelect: return MakeAtom({old.kind, old.expr, a, b});
    case AtomKind::kVar:
    case AtomKind::kOpaque: return Poly::Atom(id);
  }
  RELAXVM_UNREACHABLE();
}

// ---- expressions
// -----------------------------------------------------------------------------------------------------

Poly Canonical::Of(const Expr& e) {
  if (ffi::Optional<int64_t> value = ir::AsInt(e)) return Poly(*value);
  auto it = memo_.find(e.get());
  if (it != memo_.end()) return it->second.poly;
  Poly p = Poly::Invalid();
  if (depth_ < kMaxDepth) {
    ++depth_;
    p = Compute(e);
    --depth_;
  }
  if (!p.valid()) {
    // Too large or too deep: an atom of its own, the same for the same object only.
    auto [known, added] = vars_.try_emplace(e.get(), static_cast<AtomId>(atoms_.size()));
    if (added) {
      atoms_.push_back({AtomKind::kOpaque, e, Poly(), Poly()});
      facts_.push_back({});
    }
    p = ValueOf(known->second);
  }
  memo_.insert_or_assign(e.get(), Known{e, p});
  return p;
}

Poly Canonical::Compute(const Expr& e) {
  if (auto* v = e.as<ir::VarObj>()) {
    if (!IsIndexType(e.dtype())) return OpaqueOf(e);
    return ValueOf(VarAtom(ffi::GetRef<Var>(v)));
  }
  if (auto* b = e.as<ir::BinaryObj>()) return OfBinary(b, e);
  if (auto* c = e.as<ir::CastObj>()) return OfCast(c, e);
  if (auto* s = e.as<ir::SelectObj>()) {
    return OfSelect(e, s->condition, s->true_value, s->false_value, AtomKind::kSelect);
  }
  if (auto* i = e.as<ir::IntrinObj>()) return OfIntrin(i, e);
  return OpaqueOf(e);
}

Poly Canonical::OpaqueOf(const Expr& e) {
  // A call may give another value each time: the same only when it is the same object.
  if (e.as<ir::CallObj>()) return Poly::Invalid();
  return MakeAtom({AtomKind::kOpaque, e, Poly(), Poly()});
}

Poly Canonical::OfBinary(const ir::BinaryObj* b, const Expr& e) {
  if (!IsIndexType(e.dtype())) return OpaqueOf(e);
  using ir::BinaryOp;
  auto lhs = [&] { return Of(b->a); };
  auto rhs = [&] { return Of(b->b); };
  switch (b->op) {
    case BinaryOp::kAdd: return lhs() + rhs();
    case BinaryOp::kSub: return lhs() - rhs();
    case BinaryOp::kMul: return lhs() * rhs();
    case BinaryOp::kFloorDiv: return FloorDiv(lhs(), rhs());
    case BinaryOp::kFloorMod: return FloorMod(lhs(), rhs());
    case BinaryOp::kDiv: return TruncDiv(lhs(), rhs());
    case BinaryOp::kMod: {
      // a rem b  =  a - b * trunc(a / b)
      Poly x = lhs(), y = rhs();
      return x - y * TruncDiv(x, y);
    }
    case BinaryOp::kMin: return Min(lhs(), rhs());
    case BinaryOp::kMax: return Max(lhs(), rhs());
    case BinaryOp::kShiftLeft:
    case BinaryOp::kShiftRight: {
      // x << c  =  x * 2^c      x >> c  =  floor(x / 2^c)
      std::optional<int64_t> bits = rhs().AsConstant();
      if (!bits || *bits < 0 || *bits > 30) return OpaqueOf(e);
      int64_t power = int64_t{1} << *bits;
      return b->op == BinaryOp::kShiftLeft ? lhs() * power : FloorDiv(lhs(), Poly(power));
    }
    case BinaryOp::kBitAnd: {
      // x & (2^c - 1)  =  x mod 2^c
      std::optional<int64_t> mask = rhs().AsConstant();
      if (!mask || *mask < 0 || *mask == kPosInf || (*mask & (*mask + 1)) != 0) return OpaqueOf(e);
      return FloorMod(lhs(), Poly(*mask + 1));
    }
    case BinaryOp::kBitOr:
    case BinaryOp::kBitXor:
    case BinaryOp::kEQ:
    case BinaryOp::kNE:
    case BinaryOp::kLT:
    case BinaryOp::kLE:
    case BinaryOp::kGT:
    case BinaryOp::kGE:
    case BinaryOp::kAnd:
    case BinaryOp::kOr: return OpaqueOf(e);
  }
  RELAXVM_UNREACHABLE();
}

Poly Canonical::OfCast(const ir::CastObj* c, const Expr& e) {
  DLDataType to = e.dtype();
  DLDataType from = c->value.dtype();
  if (!IsIndexType(to) || !IsIndexType(from)) return OpaqueOf(e);
  Poly value = Of(c->value);
  if (to.bits >= from.bits) return value;
  // Narrowing keeps a value that fits.
  Interval range = Bound(value);
  constexpr int64_t kMin = std::numeric_limits<int32_t>::min();
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  return range.min >= kMin && range.max <= kMax ? value : OpaqueOf(e);
}

Poly Canonical::OfSelect(const Expr& e, const Expr& condition, const Expr& a, const Expr& b,
                         AtomKind kind) {
  if (!IsIndexType(e.dtype())) return OpaqueOf(e);
  if (std::optional<bool> decided = Decide(condition, 2)) return Of(*decided ? a : b);
  Poly x = Of(a), y = Of(b);
  if (x.valid() && x == y) return x;
  return MakeAtom({kind, condition, x, y});
}

Poly Canonical::OfIntrin(const ir::IntrinObj* i, const Expr& e) {
  if (!IsIndexType(e.dtype())) return OpaqueOf(e);
  switch (i->intrin) {
    case ir::Intrin::kNeg: return -Of(i->args[0]);
    case ir::Intrin::kAbs: {
      // |x|  =  2 max(x, 0) - x
      Poly x = Of(i->args[0]);
      return Relu(x) * 2 - x;
    }
    case ir::Intrin::kIfThenElse:
      return OfSelect(e, i->args[0], i->args[1], i->args[2], AtomKind::kLazySelect);
    default: return OpaqueOf(e);  // an open list: what is not named above is not looked into
  }
}

// ---- division
// --------------------------------------------------------------------------------------------------------

Poly Canonical::FloorDiv(const Poly& a, const Poly& b) {
  if (!a.valid() || !b.valid()) return Poly::Invalid();
  if (std::optional<int64_t> divisor = b.AsConstant()) {
    if (*divisor == 0) return Poly::Invalid();
    // a / -b  =  -a / b
    return *divisor < 0 ? FloorDivByConst(-a, -*divisor, 0) : FloorDivByConst(a, *divisor, 0);
  }
  return LeadingTerm(b)->coef < 0 ? FloorDivBySymbol(-a, -b, 0) : FloorDivBySymbol(a, b, 0);
}

Poly Canonical::FloorMod(const Poly& a, const Poly& b) { return a - b * FloorDiv(a, b); }

Poly Canonical::FloorDivByConst(Poly a, int64_t b, int depth) {
  if (b == 1 || !a.valid()) return a;
  // floor((b * q + r) / b)  =  q + floor(r / b), coefficient by coefficient
  Poly quotient, rest;
  for (const Term& t : a.terms()) {
    int64_t q = t.mono.IsOne() ? FloorDivInt(t.coef, b) : t.coef / b;
    quotient = quotient + Poly(q, t.mono);
    rest = rest + Poly(t.coef - q * b, t.mono);
  }
  int64_t written = a.constant() - rest.constant();
  Interval range = Bound(rest);
  if (range.IsBounded() && FloorDivInt(range.min, b) == FloorDivInt(range.max, b)) {
    return quotient + Poly(FloorDivInt(range.min, b));
  }
  // floor((g * x + k) / (g * b))  =  floor((x + floor(k / g)) / b)
  int64_t g = std::gcd(rest.CoefficientGcd(), b);
  if (g > 1) {
    Poly k(rest.constant());
    Poly reduced = (rest - k).DivideExactly(g) + Poly(FloorDivInt(rest.constant(), g));
    return quotient + FloorDivByConst(reduced, b / g, depth);
  }
  if (depth < kMaxDivisionSteps) {
    if (std::optional<Poly> split = SplitByBounds(rest, b, depth)) return quotient + *split;
    if (std::optional<Poly> merged = MergeNested(rest, Poly(b), depth)) return quotient + *merged;
  }
  // floor(-x / b)  =  -floor((x + b - 1) / b)
  if (LeadingTerm(rest)->coef < 0) {
    return quotient - FloorDivByConst(-rest + Poly(b - 1), b, depth + 1);
  }
  int64_t shift = rest.constant() == 0 ? 0 : written / b;
  return quotient + MakeAtom({AtomKind::kFloorDiv, Expr(), rest, Poly(b), shift});
}

// floor((g * x + r) / (g * b))  =  floor((x + q) / b)  when  q * g <= r < (q + 1) * g
std::optional<Poly> Canonical::SplitByBounds(const Poly& a, int64_t b, int depth) {
  std::vector<int64_t> tried;
  for (const Term& t : a.terms()) {
    int64_t g = std::gcd(t.coef, b);
    if (t.mono.IsOne() || g == 1 || std::find(tried.begin(), tried.end(), g) != tried.end())
      continue;
    tried.push_back(g);
    Poly multiple, rest;
    for (const Term& u : a.terms()) {
      Poly& part = u.coef % g == 0 ? multiple : rest;
      part = part + Poly(u.coef, u.mono);
    }
    Interval range = Bound(rest);
    if (!range.IsBounded() || FloorDivInt(range.min, g) != FloorDivInt(range.max, g)) continue;
    Poly x = multiple.DivideExactly(g) + Poly(FloorDivInt(range.min, g));
    return FloorDivByConst(x, b / g, depth + 1);
  }
  return std::nullopt;
}

// floor((floor(a / c) + x) / b)  =  floor((a + c * x) / (c * b))  for b >= 1
std::optional<Poly> Canonical::MergeNested(const Poly& a, const Poly& b, int depth) {
  for (const Term& t : a.terms()) {
    if (t.coef != 1 || t.mono.degree() != 1) continue;
    const Atom& inner = atoms_[t.mono[0]];
    if (inner.kind != AtomKind::kFloorDiv) continue;
    Poly top = inner.a + inner.b * (a - Poly(1, t.mono));
    Poly bottom = inner.b * b;
    if (!top.valid() || !bottom.valid()) continue;
    std::optional<int64_t> divisor = bottom.AsConstant();
    return divisor ? FloorDivByConst(top, *divisor, depth + 1)
                   : FloorDivBySymbol(top, bottom, depth + 1);
  }
  return std::nullopt;
}

Poly Canonical::FloorDivBySymbol(const Poly& a, const Poly& b, int depth) {
  if (a.IsZero()) return a;
  // floor(m * x / (m * y))  =  floor(x / y); m divides the divisor, so it is not 0
  Term common = CommonFactor(a, b);
  if (common.coef > 1 || !common.mono.IsOne()) {
    return FloorDiv(*a.DivideExactly(common), *b.DivideExactly(common));
  }
  if (std::optional<Poly> exact = DividePolynomial(a, b)) return *exact;
  Poly quotient, rest = a;
  if (b.IsSingleTerm()) {
    // floor((b * q + r) / b)  =  q + floor(r / b)
    const Term& divisor = b.terms()[0];
    rest = Poly();
    for (const Term& t : a.terms()) {
      std::optional<Monomial> mono = t.mono.Divide(divisor.mono);
      if (mono && t.coef % divisor.coef == 0) {
        quotient = quotient + Poly(t.coef / divisor.coef, *mono);
      } else {
        rest = rest + Poly(t.coef, t.mono);
      }
    }
    if (!quotient.IsZero()) return quotient + FloorDiv(rest, b);
  }
  bool positive = Bound(b).min >= 0;  // and not 0
  if (positive && depth < kMaxDivisionSteps) {
    non_negative_.push_back(b - Poly(1));
    // 0 <= r < b:  floor(r / b) = 0          -b <= r < 0:  floor(r / b) = -1
    bool zero = ProveNonNegative(b - rest - Poly(1)) && ProveNonNegative(rest);
    bool minus_one = !zero && ProveNonNegative(-rest - Poly(1)) && ProveNonNegative(rest + b);
    non_negative_.pop_back();
    if (zero) return quotient;
    if (minus_one) return quotient - Poly(1);
    if (std::optional<Poly> merged = MergeNested(rest, b, depth)) return quotient + *merged;
  }
  return quotient + MakeAtom({AtomKind::kFloorDiv, Expr(), rest, b});
}

Poly Canonical::TruncDiv(const Poly& a, const Poly& b) {
  if (!a.valid() || !b.valid() || b.IsZero()) return Poly::Invalid();
  if (std::optional<Poly> exact = DividePolynomial(a, b)) return *exact;
  // With equal signs, or one side negated, it is the floor.
  Interval x = Bound(a), y = Bound(b);
  if (y.min >= 0 && x.min >= 0) return FloorDiv(a, b);
  if (y.max <= 0 && x.max <= 0) return FloorDiv(-a, -b);
  if (y.min >= 0 && x.max <= 0) return -FloorDiv(-a, b);
  if (y.max <= 0 && x.min >= 0) return -FloorDiv(a, -b);
  return MakeAtom({AtomKind::kTruncDiv, Expr(), a, b});
}

// max(d, 0)
Poly Canonical::Relu(const Poly& d) {
  if (!d.valid()) return d;
  const Term* lead = LeadingTerm(d);
  if (lead == nullptr) return Poly(std::max<int64_t>(d.constant(), 0));
  Interval range = Bound(d);
  if (range.min >= 0) return d;
  if (range.max <= 0) return Poly();
  if (ProveNonNegative(d)) return d;
  if (ProveNonNegative(-d)) return Poly();
  // max(g * d, 0)  =  g * max(d, 0)
  int64_t g = std::gcd(d.CoefficientGcd(), d.constant());
  if (g > 1) return Relu(d.DivideExactly(g)) * g;
  // max(d, 0)  =  d + max(-d, 0)
  if (lead->coef < 0) return d + MakeAtom({AtomKind::kRelu, Expr(), -d, Poly()});
  return MakeAtom({AtomKind::kRelu, Expr(), d, Poly()});
}

}  // namespace relaxvm::arith
