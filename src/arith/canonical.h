// SPDX-License-Identifier: Apache-2.0
// The machine behind Analyzer: expressions as polynomials over atoms, and facts about the atoms.
//
// An atom is a variable, floor(a / b), max(a, 0), a choice, or an expression that is not looked
// into.  Everything else is written with these:   a mod b = a - b * floor(a / b)     max(a, b) = b
// + max(a - b, 0)     min(a, b) = a - max(a - b, 0) so that identities between quotients,
// remainders, minima and maxima become equality of polynomials.
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "arith/analyzer.h"
#include "arith/poly.h"

namespace relaxvm::arith {

namespace ffi = tvm::ffi;

enum class AtomKind : uint8_t {
  kVar,
  kFloorDiv,    // floor(a / b)
  kTruncDiv,    // a / b rounded towards 0; used only where the signs are not known
  kRelu,        // max(a, 0)
  kSelect,      // a where `expr` (a condition) holds, else b
  kLazySelect,  // the same, computing only the chosen side
  kOpaque,      // `expr`
};

struct Atom {
  AtomKind kind;
  Expr expr;
  Poly a;
  Poly b;
  // kFloorDiv with a constant divisor: how often b was first written inside: floor((a + b * shift)
  // / b) - shift.
  int64_t shift = 0;
};

// What is known about an atom besides its definition.
struct AtomFact {
  Interval range;
  std::optional<Poly> min;  // symbolic bounds, inclusive
  std::optional<Poly> max;
  std::optional<Poly> value;  // the atom is replaced by this
};

// scale * (inner mod modulus), found in a polynomial.
struct ModPart {
  Term scale;
  Poly inner;
  Poly modulus;
};

class Canonical {
 public:
  // The polynomial of an integer expression; invalid when it is too large.
  Poly Of(const Expr& e);
  // `p` as an expression of integer type `dtype`.
  Expr Emit(const Poly& p, DLDataType dtype);

  Poly FloorDiv(const Poly& a, const Poly& b);
  Poly FloorMod(const Poly& a, const Poly& b);
  Poly Max(const Poly& a, const Poly& b) { return b + Relu(a - b); }
  Poly Min(const Poly& a, const Poly& b) { return a - Relu(a - b); }

  Interval Bound(const Poly& p);
  ModularSet Modular(const Poly& p);
  // Is p >= 0 for all values?  Bounded search; false when not found.
  bool ProveNonNegative(const Poly& p);
  bool ProveZero(const Poly& p);
  bool ProveNonZero(const Poly& p);
  // true / false when the bool expression is decided.
  std::optional<bool> Decide(const Expr& condition, int depth = 6);

  // ---- facts
  void SetFact(const Var& var, AtomFact fact);
  void AddNonNegative(const Poly& p);
  void AddZero(const Poly& p);
  void AddTrue(const Expr& condition);
  size_t Mark() const { return undo_.size(); }
  void ReturnTo(size_t mark);

 private:
  struct Undo {
    enum Kind { kFact, kNonNegative, kNonZero, kTrue } kind;
    AtomId atom = -1;
    AtomFact old = {};
  };

  // canonical.cc
  Poly Compute(const Expr& e);
  Poly OfBinary(const ir::BinaryObj* b, const Expr& e);
  Poly OfCast(const ir::CastObj* c, const Expr& e);
  Poly OfIntrin(const ir::IntrinObj* i, const Expr& e);
  Poly OfSelect(const Expr& e, const Expr& condition, const Expr& a, const Expr& b, AtomKind kind);
  Poly OpaqueOf(const Expr& e);
  Poly FloorDivByConst(Poly a, int64_t b, int depth);
  Poly FloorDivBySymbol(const Poly& a, const Poly& b, int depth);
  std::optional<Poly> SplitByBounds(const Poly& a, int64_t b, int depth);
  std::optional<Poly> MergeNested(const Poly& a, const Poly& b, int depth);
  Poly TruncDiv(const Poly& a, const Poly& b);
  Poly Relu(const Poly& d);
  Poly MakeAtom(Atom atom);
  AtomId VarAtom(const Var& var);
  Poly ValueOf(AtomId id);
  bool MayDependOn(const Poly& p, AtomId atom);
  Poly ReplaceAtom(const Poly& p, AtomId atom, const Poly& by);
  Poly ReplaceIn(AtomId id, AtomId atom, const Poly& by);

  // bounds.cc
  Interval BoundAtom(AtomId id);
  Interval BoundTerms(const Poly& p);
  Poly ExtractMods(Poly p, bool for_bounds, std::vector<ModPart>* parts);
  ModularSet ModularOfAtom(AtomId id, int depth);
  ModularSet ModularOf(const Poly& p, int depth);

  // prove.cc
  bool NonNegative(const Poly& p, int depth);
  bool ByFacts(const Poly& p, int depth);
  bool ByVariable(const Poly& p, AtomId atom, int depth);
  bool ByQuotient(const Poly& p, AtomId atom, int depth);
  bool ByCases(const Poly& p, AtomId atom, int depth);
  AtomId InnermostMaximum(AtomId atom);
  std::optional<bool> DecideComparison(const ir::BinaryObj* b);

  // emit.cc
  Expr EmitAtom(AtomId id, DLDataType dtype);
  Expr EmitMonomial(const Monomial& mono, DLDataType dtype);
  struct Piece {
    int64_t coef;
    Expr factor;
  };
  Poly EmitMinMax(Poly p, DLDataType dtype, std::vector<Piece>* pieces);
  Expr EmitScaled(const Monomial& mono, Expr factor, DLDataType dtype);

  void FactsChanged() {
    memo_.clear();
    bounds_.clear();
  }

  std::vector<Atom> atoms_;
  std::vector<AtomFact> facts_;  // parallel to atoms_
  std::unordered_map<const ffi::Object*, AtomId> vars_;
  std::unordered_multimap<size_t, AtomId> by_hash_;
  struct Known {
    Expr keep;  // keeps the key alive
    Poly poly;
  };
  std::unordered_map<const ffi::Object*, Known> memo_;
  std::unordered_map<AtomId, Interval> bounds_;
  std::vector<Poly> non_negative_;
  std::vector<Poly> non_zero_;
  std::vector<Expr> true_;
  std::vector<Undo> undo_;
  int depth_ = 0;  // of recursion through Of
  int fuel_ = 0;   // steps that the running proof may still take
  bool proving_ = false;
};

// Is arithmetic in `dtype` taken not to overflow: a scalar int32 or int64?
bool IsIndexType(DLDataType dtype);

}  // namespace relaxvm::arith
