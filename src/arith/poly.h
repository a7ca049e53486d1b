// SPDX-License-Identifier: Apache-2.0
// Polynomials with 64-bit coefficients over numbered atoms: the canonical form of integer
// expressions. What an atom is (a variable, a quotient, ...) is known to canonical.h only.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <vector>

namespace relaxvm::arith {

using AtomId = int32_t;

// A product of atoms, sorted, with repetitions: {3, 3, 5} is a3 * a3 * a5; empty is 1.
class Monomial {
 public:
  static constexpr int kMaxDegree = 10;

  Monomial() = default;
  explicit Monomial(AtomId atom) : degree_(1) { atoms_[0] = atom; }

  int degree() const { return degree_; }
  bool IsOne() const { return degree_ == 0; }
  AtomId operator[](int i) const { return atoms_[i]; }
  const AtomId* begin() const { return atoms_.data(); }
  const AtomId* end() const { return atoms_.data() + degree_; }
  int Count(AtomId atom) const;

  // Absent when the degree is beyond kMaxDegree.
  static std::optional<Monomial> Product(const Monomial& a, const Monomial& b);
  // this / other, absent unless `other` divides it.
  std::optional<Monomial> Divide(const Monomial& other) const;
  Monomial Without(AtomId atom) const;  // one factor less

  std::strong_ordering operator<=>(const Monomial& other) const;
  bool operator==(const Monomial& other) const { return (*this <=> other) == 0; }

 private:
  int32_t degree_ = 0;
  std::array<AtomId, kMaxDegree> atoms_ = {};
};

struct Term {
  int64_t coef;
  Monomial mono;
  bool operator==(const Term&) const = default;
};

// A sum of terms, sorted by monomial (the constant comes first), without zero coefficients.
// Arithmetic that would overflow or grow beyond kMaxTerms gives an invalid polynomial, and so does
// all arithmetic with one.
class Poly {
 public:
  static constexpr size_t kMaxTerms = 96;

  Poly() = default;  // 0
  explicit Poly(int64_t constant);
  Poly(int64_t coef, const Monomial& mono);
  static Poly Atom(AtomId atom) { return Poly(1, Monomial(atom)); }
  static Poly Invalid();

  bool valid() const { return valid_; }
  const std::vector<Term>& terms() const { return terms_; }
  bool IsZero() const { return valid_ && terms_.empty(); }
  std::optional<int64_t> AsConstant() const;
  int64_t constant() const;  // the constant term
  int64_t Coefficient(const Monomial& mono) const;
  bool IsSingleTerm() const { return valid_ && terms_.size() == 1; }
  // Greatest common divisor of the coefficients of all terms but the constant; 0 when there are
  // none.
  int64_t CoefficientGcd() const;

  Poly operator+(const Poly& other) const;
  Poly operator-(const Poly& other) const;
  Poly operator*(const Poly& other) const;
  Poly operator*(int64_t factor) const;
  Poly operator-() const { return *this * -1; }
  Poly operator*(const Term& term) const;
  // Every coefficient divided by `divisor`, which must divide them all.
  Poly DivideExactly(int64_t divisor) const;
  // this / term when every term is divisible by it; absent otherwise.
  std::optional<Poly> DivideExactly(const Term& term) const;

  bool operator==(const Poly& other) const = default;
  size_t Hash() const;

 private:
  Poly AddScaled(const Poly& other, int64_t factor) const;

  bool valid_ = true;
  std::vector<Term> terms_;
};

}  // namespace relaxvm::arith
