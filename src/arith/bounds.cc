// SPDX-License-Identifier: Apache-2.0
// Constant bounds and divisibility of polynomials, and the remainders hidden in them.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "arith/canonical.h"

namespace relaxvm::arith {
namespace {

constexpr int kMaxMods = 8;
constexpr int kMaxModularDepth = 8;

// What values of `dtype` can be.
Interval RangeOf(DLDataType dtype) {
  if (relaxvm::IsBool(dtype)) return {0, 1};
  if (dtype.lanes != 1 || dtype.bits >= 64) return Interval::Everything();
  if (relaxvm::IsInt(dtype)) {
    return {-(int64_t{1} << (dtype.bits - 1)), (int64_t{1} << (dtype.bits - 1)) - 1};
  }
  if (relaxvm::IsUInt(dtype)) return {0, (int64_t{1} << dtype.bits) - 1};
  return Interval::Everything();
}

Interval RangeOfOpaque(const Expr& e) {
  Interval range = RangeOf(e.dtype());
  auto* cast = e.as<ir::CastObj>();
  if (cast == nullptr) return range;
  Interval from = RangeOf(cast->value.dtype());
  // A value that may not fit wraps.
  return from.min >= range.min && from.max <= range.max ? from : range;
}

int CountNonConstant(const Poly& p) {
  return static_cast<int>(p.terms().size()) - (p.constant() != 0);
}

}  // namespace

Interval Canonical::BoundAtom(AtomId id) {
  auto it = bounds_.find(id);
  if (it != bounds_.end()) return it->second;
  const Interval known = facts_[id].range;
  Interval range = Interval::Everything();
  switch (atoms_[id].kind) {
    case AtomKind::kVar: break;
    case AtomKind::kFloorDiv:
      range = arith::FloorDiv(Bound(atoms_[id].a), Bound(atoms_[id].b));
      break;
    case AtomKind::kTruncDiv: {
      // Its size is at most that of the dividend.
      Interval a = Bound(atoms_[id].a);
      if (a.IsBounded()) {
        int64_t size = std::max(std::abs(a.min), std::abs(a.max));
        range = {-size, size};
      }
      break;
    }
    case AtomKind::kRelu: {
      Interval a = Bound(atoms_[id].a);
      range = {std::max<int64_t>(a.min, 0), std::max<int64_t>(a.max, 0)};
      break;
    }
    case AtomKind::kSelect:
    case AtomKind::kLazySelect: range = Union(Bound(atoms_[id].a), Bound(atoms_[id].b)); break;
    case AtomKind::kOpaque: range = RangeOfOpaque(atoms_[id].expr); break;
  }
  range = Intersect(range, known);
  bounds_[id] = range;
  return range;
}

Interval Canonical::BoundTerms(const Poly& p) {
  Interval sum = Interval::Point(0);
  for (const Term& t : p.terms()) {
    Interval product = Interval::Point(1);
    for (int i = 0; i < t.mono.degree(); ++i) {
      Interval factor = BoundAtom(t.mono[i]);
      bool square = i + 1 < t.mono.degree() && t.mono[i + 1] == t.mono[i];
      if (square) {
        // x * x is not negative, whatever x is.
        factor = Intersect(factor * factor, Interval::AtLeast(0));
        ++i;
      }
      product = product * factor;
    }
    sum = sum + product * t.coef;
  }
  return sum;
}

Interval Canonical::Bound(const Poly& p) {
  if (!p.valid()) return Interval::Everything();
  Interval range = BoundTerms(p);
  bool has_quotient = false;
  for (const Term& t : p.terms()) {
    for (AtomId atom : t.mono) has_quotient |= atoms_[atom].kind == AtomKind::kFloorDiv;
  }
  if (!has_quotient || range.IsPoint()) return range;
  std::vector<ModPart> parts;
  Poly rest = ExtractMods(p, /*for_bounds=*/true, &parts);
  if (parts.empty()) return range;
  Interval split = BoundTerms(rest);
  for (const ModPart& part : parts) {
    Interval modulus = Bound(part.modulus);
    Interval remainder =
        modulus.min < 0 ? Interval::Everything() : Interval{0, SaturatingAdd(modulus.max, -1)};
    split = split + BoundTerms(Poly(part.scale.coef, part.scale.mono)) * remainder;
  }
  return Intersect(range, split);
}

// Subtracts multiples of  x - m * floor(x / m)  from p while that makes p shorter.  `for_bounds`
// also when a coefficient grows, because bounds of a remainder are better than those of its parts.
Poly Canonical::ExtractMods(Poly p, bool for_bounds, std::vector<ModPart>* parts) {
  auto attempt = [&](const Term& scale, const Poly& inner, const Poly& modulus, AtomId quotient) {
    Poly mod = inner - modulus * Poly::Atom(quotient);
    Poly rest = p - mod * scale;
    if (!rest.valid() || CountNonConstant(rest) >= CountNonConstant(p)) return false;
    std::optional<Monomial> whole;
    if (modulus.IsSingleTerm()) whole = Monomial::Product(scale.mono, modulus.terms()[0].mono);
    if (whole) whole = Monomial::Product(*whole, Monomial(quotient));
    if (!for_bounds && whole &&
        std::abs(rest.Coefficient(*whole)) > std::abs(p.Coefficient(*whole))) {
      return false;
    }
    parts->push_back({scale, inner, modulus});
    p = rest;
    return true;
  };
  // Tries the scales that make the quotient, or the first term of `inner`, disappear.
  auto try_scales = [&](const Term& t, AtomId quotient, const Poly& inner, const Poly& modulus) {
    const Term& m = modulus.terms()[0];
    std::optional<Monomial> mono = t.mono.Without(quotient).Divide(m.mono);
    if (!mono) return false;
    for (const Term& lead : inner.terms()) {
      if (lead.mono.IsOne()) continue;
      std::optional<Monomial> product = Monomial::Product(*mono, lead.mono);
      if (!product) break;
      int64_t coef = p.Coefficient(*product);
      if (coef != 0 && coef % lead.coef == 0 &&
          attempt({coef / lead.coef, *mono}, inner, modulus, quotient)) {
        return true;
      }
      break;
    }
    return t.coef % m.coef == 0 && attempt({-t.coef / m.coef, *mono}, inner, modulus, quotient);
  };
  auto step = [&] {
    for (const Term& t : p.terms()) {
      for (AtomId id : t.mono) {
        const Atom& q = atoms_[id];
        if (q.kind != AtomKind::kFloorDiv || !q.b.IsSingleTerm() || t.mono.Count(id) != 1) continue;
        if (try_scales(t, id, q.a, q.b)) return true;
        // floor(x / b) mod m  =  floor(x / b) - m * floor(x / (b * m)), with integers added to the
        // quotient inside.
        std::optional<int64_t> divisor = q.b.AsConstant();
        if (!divisor) continue;
        for (const Term& u : p.terms()) {
          for (AtomId other : u.mono) {
            const Atom& inner = atoms_[other];
            std::optional<int64_t> b = other == id ? std::nullopt : inner.b.AsConstant();
            if (inner.kind != AtomKind::kFloorDiv || !b || *divisor % *b != 0 || *divisor == *b)
              continue;
            std::optional<Poly> x = (q.a - inner.a).DivideExactly(Term{*b, Monomial()});
            if (x && try_scales(t, id, Poly::Atom(other) + *x, Poly(*divisor / *b))) return true;
          }
        }
      }
    }
    return false;
  };
  for (int i = 0; i < kMaxMods && step(); ++i) {
  }
  return p;
}

// ---- divisibility
// ----------------------------------------------------------------------------------------------------

namespace {

ModularSet Normalized(int64_t coeff, int64_t base) {
  coeff = std::abs(coeff);
  return {coeff, coeff == 0 ? base : FloorModInt(base, coeff)};
}

ModularSet UnionOf(ModularSet a, ModularSet b) {
  int64_t difference;
  if (__builtin_sub_overflow(a.base, b.base, &difference) || difference == kNegInf) return {};
  return Normalized(std::gcd(std::gcd(a.coeff, b.coeff), difference), a.base);
}

// (c k + p)(d l + q)  =  q c k + p d l + c d k l + p q
ModularSet Product(ModularSet a, ModularSet b) {
  int64_t qc, pd, cd, pq;
  if (__builtin_mul_overflow(b.base, a.coeff, &qc) ||
      __builtin_mul_overflow(a.base, b.coeff, &pd) ||
      __builtin_mul_overflow(a.coeff, b.coeff, &cd) ||
      __builtin_mul_overflow(a.base, b.base, &pq) || std::min({qc, pd, cd, pq}) == kNegInf) {
    return {};
  }
  return Normalized(std::gcd(std::gcd(qc, pd), cd), pq);
}

ModularSet Sum(ModularSet a, ModularSet b) {
  int64_t base;
  if (__builtin_add_overflow(a.base, b.base, &base)) return {};
  return Normalized(std::gcd(a.coeff, b.coeff), base);
}

}  // namespace

ModularSet Canonical::ModularOfAtom(AtomId id, int depth) {
  Interval range = BoundAtom(id);
  if (range.IsPoint()) return {0, range.min};
  if (depth == 0) return {};
  switch (atoms_[id].kind) {
    case AtomKind::kSelect:
    case AtomKind::kLazySelect:
      return UnionOf(ModularOf(atoms_[id].a, depth - 1), ModularOf(atoms_[id].b, depth - 1));
    case AtomKind::kRelu: return UnionOf(ModularOf(atoms_[id].a, depth - 1), {0, 0});
    case AtomKind::kFloorDiv: {
      // floor((b c k + p) / b)  =  c k + floor(p / b)
      std::optional<int64_t> b = atoms_[id].b.AsConstant();
      ModularSet a = ModularOf(atoms_[id].a, depth - 1);
      if (!b || a.coeff % *b != 0) return {};
      return Normalized(a.coeff / *b, FloorDivInt(a.base, *b));
    }
    case AtomKind::kVar:
    case AtomKind::kTruncDiv:
    case AtomKind::kOpaque: return {};
  }
  RELAXVM_UNREACHABLE();
}

ModularSet Canonical::ModularOf(const Poly& p, int depth) {
  if (!p.valid()) return {};
  ModularSet sum{0, 0};
  for (const Term& t : p.terms()) {
    ModularSet product{0, t.coef};
    for (AtomId atom : t.mono) product = Product(product, ModularOfAtom(atom, depth));
    sum = Sum(sum, product);
  }
  return sum;
}

ModularSet Canonical::Modular(const Poly& p) { return ModularOf(p, kMaxModularDepth); }

}  // namespace relaxvm::arith
