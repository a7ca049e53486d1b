// SPDX-License-Identifier: Apache-2.0
#include "arith/poly.h"

#include <algorithm>
#include <numeric>

#include "arith/interval.h"

namespace relaxvm::arith {

int Monomial::Count(AtomId atom) const {
  return static_cast<int>(std::count(begin(), end(), atom));
}

std::optional<Monomial> Monomial::Product(const Monomial& a, const Monomial& b) {
  if (a.degree_ + b.degree_ > kMaxDegree) return std::nullopt;
  Monomial out;
  out.degree_ = a.degree_ + b.degree_;
  std::merge(a.begin(), a.end(), b.begin(), b.end(), out.atoms_.begin());
  return out;
}

std::optional<Monomial> Monomial::Divide(const Monomial& other) const {
  Monomial out;
  int j = 0;
  for (AtomId atom : *this) {
    if (j < other.degree_ && other.atoms_[j] == atom) {
      ++j;
    } else {
      out.atoms_[out.degree_++] = atom;
    }
  }
  if (j != other.degree_) return std::nullopt;
  return out;
}

Monomial Monomial::Without(AtomId atom) const { return *Divide(Monomial(atom)); }

std::strong_ordering Monomial::operator<=>(const Monomial& other) const {
  return std::lexicographical_compare_three_way(begin(), end(), other.begin(), other.end());
}

Poly::Poly(int64_t constant) : Poly(constant, Monomial()) {}

Poly::Poly(int64_t coef, const Monomial& mono) {
  if (coef != 0) terms_.push_back({coef, mono});
}

Poly Poly::Invalid() {
  Poly out;
  out.valid_ = false;
  return out;
}

std::optional<int64_t> Poly::AsConstant() const {
  if (!valid_ || terms_.size() > 1) return std::nullopt;
  if (terms_.empty()) return 0;
  if (!terms_[0].mono.IsOne()) return std::nullopt;
  return terms_[0].coef;
}

int64_t Poly::constant() const {
  return terms_.empty() || !terms_[0].mono.IsOne() ? 0 : terms_[0].coef;
}

int64_t Poly::Coefficient(const Monomial& mono) const {
  auto it = std::lower_bound(terms_.begin(), terms_.end(), mono,
                             [](const Term& t, const Monomial& m) { return t.mono < m; });
  return it == terms_.end() || it->mono != mono ? 0 : it->coef;
}

int64_t Poly::CoefficientGcd() const {
  int64_t gcd = 0;
  for (const Term& t : terms_) {
    if (!t.mono.IsOne()) gcd = std::gcd(gcd, t.coef);
  }
  return gcd;
}

Poly Poly::AddScaled(const Poly& other, int64_t factor) const {
  if (!valid_ || !other.valid_) return Invalid();
  Poly out;
  out.terms_.reserve(terms_.size() + other.terms_.size());
  auto a = terms_.begin();
  auto b = other.terms_.begin();
  while (a != terms_.end() || b != other.terms_.end()) {
    if (b == other.terms_.end() || (a != terms_.end() && a->mono < b->mono)) {
      out.terms_.push_back(*a++);
      continue;
    }
    int64_t coef;
    if (__builtin_mul_overflow(b->coef, factor, &coef)) return Invalid();
    const Monomial& mono = b->mono;
    if (a != terms_.end() && a->mono == mono) {
      if (__builtin_add_overflow(a->coef, coef, &coef)) return Invalid();
      ++a;
    }
    // The least value has no negative; keeping it out makes every coefficient negatable.
    if (coef == kNegInf) return Invalid();
    if (coef != 0) out.terms_.push_back({coef, mono});
    ++b;
  }
  if (out.terms_.size() > kMaxTerms) return Invalid();
  return out;
}

Poly Poly::operator+(const Poly& other) const { return AddScaled(other, 1); }
Poly Poly::operator-(const Poly& other) const { return AddScaled(other, -1); }
Poly Poly::operator*(int64_t factor) const {
  return factor == 0 && valid_ ? Poly() : Poly().AddScaled(*this, factor);
}

Poly Poly::operator*(const Term& term) const {
  if (!valid_) return Invalid();
  Poly out;
  for (const Term& t : terms_) {
    std::optional<Monomial> mono = Monomial::Product(t.mono, term.mono);
    int64_t coef;
    if (!mono || __builtin_mul_overflow(t.coef, term.coef, &coef) || coef == kNegInf) {
      return Invalid();
    }
    if (coef != 0) out.terms_.push_back({coef, *mono});
  }
  // Multiplying by a monomial does not keep the order: {1} < {1, 2} but {1, 3} > {1, 2, 3}.
  std::sort(out.terms_.begin(), out.terms_.end(),
            [](const Term& a, const Term& b) { return a.mono < b.mono; });
  return out;
}

Poly Poly::operator*(const Poly& other) const {
  if (!valid_ || !other.valid_ || terms_.size() * other.terms_.size() > 4 * kMaxTerms) {
    return Invalid();
  }
  Poly out;
  for (const Term& t : other.terms_) out = out + *this * t;
  return out;
}

Poly Poly::DivideExactly(int64_t divisor) const {
  Poly out = *this;
  for (Term& t : out.terms_) t.coef /= divisor;
  return out;
}

std::optional<Poly> Poly::DivideExactly(const Term& term) const {
  if (!valid_) return std::nullopt;
  Poly out;
  for (const Term& t : terms_) {
    std::optional<Monomial> mono = t.mono.Divide(term.mono);
    if (!mono || t.coef % term.coef != 0) return std::nullopt;
    out.terms_.push_back({t.coef / term.coef, *mono});
  }
  std::sort(out.terms_.begin(), out.terms_.end(),
            [](const Term& a, const Term& b) { return a.mono < b.mono; });
  return out;
}

size_t Poly::Hash() const {
  uint64_t h = 0x9e3779b97f4a7c15ull + terms_.size();
  auto mix = [&h](uint64_t v) { h = (h ^ v) * 0xff51afd7ed558ccdull, h ^= h >> 32; };
  for (const Term& t : terms_) {
    mix(static_cast<uint64_t>(t.coef));
    for (AtomId atom : t.mono) mix(static_cast<uint64_t>(atom) + 1);
  }
  return h;
}

}  // namespace relaxvm::arith
