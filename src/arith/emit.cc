// SPDX-License-Identifier: Apache-2.0
// Polynomials back to expressions: remainders, minima and maxima appear again under their names.
#include <algorithm>
#include <tuple>
#include <utility>

#include "arith/canonical.h"

namespace relaxvm::arith {

Expr Canonical::EmitAtom(AtomId id, DLDataType dtype) {
  const Atom atom = atoms_[id];
  switch (atom.kind) {
    case AtomKind::kVar:
    case AtomKind::kOpaque: return ir::Cast(dtype, atom.expr);
    case AtomKind::kFloorDiv: return ir::FloorDiv(Emit(atom.a, dtype), Emit(atom.b, dtype));
    case AtomKind::kTruncDiv: return ir::Div(Emit(atom.a, dtype), Emit(atom.b, dtype));
    case AtomKind::kRelu: {
      // max(p - n, 0) with a constant n  is written  max(p, n) - n  by EmitMinMax; here nothing is
      // left to take in.
      return ir::Max(Emit(atom.a, dtype), ir::Const(dtype, 0));
    }
    case AtomKind::kSelect: return ir::Select(atom.expr, Emit(atom.a, dtype), Emit(atom.b, dtype));
    case AtomKind::kLazySelect:
      return ir::IfThenElse(atom.expr, Emit(atom.a, dtype), Emit(atom.b, dtype));
  }
  RELAXVM_UNREACHABLE();
}

Expr Canonical::EmitMonomial(const Monomial& mono, DLDataType dtype) {
  Expr product;
  for (AtomId atom : mono) {
    Expr factor = EmitAtom(atom, dtype);
    product = product.defined() ? ir::Mul(product, factor) : factor;
  }
  return product;
}

Expr Canonical::EmitScaled(const Monomial& mono, Expr factor, DLDataType dtype) {
  return mono.IsOne() ? factor : ir::Mul(EmitMonomial(mono, dtype), factor);
}

// c * m * max(p - n, 0)  together with  c * m * n  is  c * m * max(p, n);
// -c * m * max(p - n, 0)  together with  c * m * p  is  c * m * min(p, n).
Poly Canonical::EmitMinMax(Poly p, DLDataType dtype, std::vector<Piece>* pieces) {
  for (size_t i = 0; i < p.terms().size(); ++i) {
    const Term t = p.terms()[i];
    auto found = std::find_if(t.mono.begin(), t.mono.end(),
                              [&](AtomId a) { return atoms_[a].kind == AtomKind::kRelu; });
    if (found == t.mono.end()) continue;
    const Monomial rest = t.mono.Without(*found);
    Poly positive, negative;
    for (const Term& u : atoms_[*found].a.terms()) {
      (u.coef > 0 ? positive : negative) =
          (u.coef > 0 ? positive + Poly(u.coef, u.mono) : negative + Poly(-u.coef, u.mono));
    }
    // All of the constant may go inside when the factor is 1.
    int64_t constant = 0;
    if (rest.IsOne() && t.coef == 1 && p.constant() != 0 && negative.AsConstant() &&
        !__builtin_sub_overflow(p.constant(), negative.constant(), &constant)) {
      const Poly more = positive + Poly(constant), less = negative + Poly(constant);
      if (more.valid() && less.valid()) std::tie(positive, negative) = std::pair(more, less);
    }
    if (!positive.valid() || !negative.valid()) continue;
    const Poly& taken = t.coef > 0 ? negative : positive;
    Term scale{std::abs(t.coef), rest};
    Poly left = p - Poly(t.coef, t.mono) - taken * scale;
    if (!left.valid() || left.terms().size() >= p.terms().size()) continue;
    Expr a = Emit(positive, dtype), b = Emit(negative, dtype);
    pieces->push_back(
        {scale.coef, EmitScaled(rest, t.coef > 0 ? ir::Max(a, b) : ir::Min(a, b), dtype)});
    p = left;
    i = static_cast<size_t>(-1);
  }
  return p;
}

Expr Canonical::Emit(const Poly& input, DLDataType dtype) {
  RELAXVM_CHECK(input.valid());
  std::vector<Piece> pieces;
  std::vector<ModPart> mods;
  Poly p = ExtractMods(input, /*for_bounds=*/false, &mods);
  p = EmitMinMax(p, dtype, &pieces);
  int64_t constant = p.constant();
  for (const Term& t : p.terms()) {
    if (t.mono.IsOne()) continue;
    if (t.mono.degree() == 1) {
      const Atom& atom = atoms_[t.mono[0]];
      std::optional<int64_t> divisor = atom.b.AsConstant();
      int64_t inside, outside;
      if (atom.kind == AtomKind::kFloorDiv && divisor && atom.shift != 0 &&
          !__builtin_mul_overflow(*divisor, atom.shift, &inside) &&
          !__builtin_mul_overflow(t.coef, atom.shift, &outside) &&
          !__builtin_sub_overflow(constant, outside, &constant)) {
        // floor(a / b)  =  floor((a + b * s) / b) - s, the way it was written
        Poly dividend = atom.a + Poly(inside);
        pieces.push_back({t.coef, ir::FloorDiv(Emit(dividend, dtype), ir::Const(dtype, *divisor))});
        continue;
      }
    }
    pieces.push_back({t.coef, EmitMonomial(t.mono, dtype)});
  }
  for (const ModPart& mod : mods) {
    Expr remainder = ir::FloorMod(Emit(mod.inner, dtype), Emit(mod.modulus, dtype));
    pieces.push_back({mod.scale.coef, EmitScaled(mod.scale.mono, remainder, dtype)});
  }
  // Positive parts first, a positive constant the last of them; then what is subtracted.
  std::stable_partition(pieces.begin(), pieces.end(), [](const Piece& x) { return x.coef > 0; });
  Expr sum;
  for (const Piece& piece : pieces) {
    if (constant > 0 && piece.coef < 0) {
      sum = sum.defined() ? ir::Add(sum, ir::Const(dtype, constant)) : ir::Const(dtype, constant);
      constant = 0;
    }
    int64_t coef = sum.defined() ? std::abs(piece.coef) : piece.coef;
    Expr product = coef == 1 ? piece.factor : ir::Mul(piece.factor, ir::Const(dtype, coef));
    if (!sum.defined()) {
      sum = product;
    } else {
      sum = piece.coef > 0 ? ir::Add(sum, product) : ir::Sub(sum, product);
    }
  }
  if (!sum.defined()) return ir::Const(dtype, constant);
  if (constant > 0) return ir::Add(sum, ir::Const(dtype, constant));
  if (constant < 0) return ir::Sub(sum, ir::Const(dtype, -constant));
  return sum;
}

}  // namespace relaxvm::arith
