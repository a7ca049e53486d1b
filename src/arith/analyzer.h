// SPDX-License-Identifier: Apache-2.0
// Facts about integer expressions: simplified forms, equality, comparisons, bounds, divisibility.
//
// What is assumed: signed 32- and 64-bit arithmetic does not overflow, nothing is divided by 0, and
// a variable about which nothing was said is a dimension: at least 0 (BindRange says otherwise).
// Narrow and unsigned arithmetic, which may wrap, is left alone.  "No" always means "not proved".
// All work is bounded: large expressions are answered with "no", or come back as they are.
#pragma once

#include <memory>
#include <optional>

#include "arith/interval.h"
#include "ir/prim.h"

namespace relaxvm::arith {

using ir::Expr;
using ir::Var;

// The value is  base + k * coeff  for some integer k, with 0 <= base < coeff; coeff 0: it is
// `base`.
struct ModularSet {
  int64_t coeff = 1;
  int64_t base = 0;
  bool operator==(const ModularSet&) const = default;
};

// Holds facts in scopes.  One per thread and task; not copyable.
class Analyzer {
 public:
  Analyzer();
  ~Analyzer();
  Analyzer(Analyzer&&) noexcept;
  Analyzer& operator=(Analyzer&&) noexcept;

  // ---- facts: hold until the scope that was open when they were entered is left
  void Bind(const Var& var, const Expr& value);  // var = value
  void Bind(const Var& var, const Expr& min,
            const Expr& extent);                   // min <= var < min + extent: a loop's variable
  void BindRange(const Var& var, Interval range);  // replaces "at least 0"
  void Assume(const Expr& condition);              // a bool expression that is true from here on

  // Facts entered while it lives are forgotten when it dies.
  class Scope {
   public:
    explicit Scope(Analyzer* analyzer);
    Scope(Analyzer* analyzer, const Expr& condition) : Scope(analyzer) {
      analyzer->Assume(condition);
    }
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Analyzer* analyzer_;
    size_t mark_;
  };

  // ---- questions
  // An expression with the same value, not larger than `e`; `e` itself when nothing can be said
  // more briefly.
  Expr Simplify(const Expr& e);
  bool ProveEqual(const Expr& a, const Expr& b);
  bool Prove(const Expr& condition);
  bool ProveAtLeast(const Expr& e, int64_t value);
  bool ProveLessEqual(const Expr& a, const Expr& b);
  Interval Bounds(const Expr& e);
  ModularSet Modular(const Expr& e);
  // The remainder, not negative, of `e` divided by `n` > 0; absent where it is not always the same.
  std::optional<int64_t> Remainder(const Expr& e, int64_t n);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace relaxvm::arith
