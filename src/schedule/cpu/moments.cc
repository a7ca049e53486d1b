// SPDX-License-Identifier: Apache-2.0
// JoinSpreads, EmitMoments: a sum and the sum of squared distances to what it gives (mean and
// variance of a norm), made while the values are read once.  Each lane keeps the mean of its values
// and the squares of their distances to it; groups of vectors are merged as Chan, Golub and LeVeque
// do ("Updating formulae and a pairwise algorithm for computing sample variances"): all terms are
// squares, so nothing cancels.
#include <algorithm>

#include "arith/same.h"
#include "schedule/cpu/nest.h"

namespace relaxvm::schedule::cpu {
namespace {

using ir::BinaryObj;
using ir::BinaryOp;
using ir::Intrin;
using tir::BufferLoadObj;
using tir::BufferStore;
using tir::For;
using tir::ForKind;
using tir::SeqStmt;

constexpr int64_t kGroup = 8;  // vectors that are merged at once
// In vectors: shorter rows are read twice from the first cache as fast as they are merged.
constexpr int64_t kLongEnough = 48;

bool IsRowSum(const Stage& stage) {
  const auto* identity = stage.identity.as<ir::FloatImmObj>();
  return stage.combine == Combine::kSum && stage.spatial.empty() && stage.reduce.size() == 1 &&
         identity != nullptr && identity->value == 0;
}

// Equality as written, of loads too.
bool SameFormula(const Expr& a, const Expr& b) {
  if (a.same_as(b)) return true;
  if (const auto* x = a.as<BufferLoadObj>()) {
    const auto* y = b.as<BufferLoadObj>();
    return y != nullptr && x->buffer.same_as(y->buffer) && !x->predicate.defined() &&
           !y->predicate.defined() && arith::SameScalar(x->indices[0], y->indices[0]);
  }
  if (const auto* x = a.as<BinaryObj>()) {
    const auto* y = b.as<BinaryObj>();
    return y != nullptr && x->op == y->op && SameFormula(x->a, y->a) && SameFormula(x->b, y->b);
  }
  if (const auto* x = a.as<ir::CastObj>()) {
    const auto* y = b.as<ir::CastObj>();
    return y != nullptr && a.dtype() == b.dtype() && SameFormula(x->value, y->value);
  }
  if (const auto* x = a.as<ir::IntrinObj>()) {
    const auto* y = b.as<ir::IntrinObj>();
    if (y == nullptr || x->intrin != y->intrin || x->args.size() != y->args.size()) return false;
    for (size_t i = 0; i < x->args.size(); ++i) {
      if (!SameFormula(x->args[i], y->args[i])) return false;
    }
    return true;
  }
  return arith::SameScalar(a, b);
}

// What the squares in `squares` are distances of the values of `sum` to; null: they are not.
Expr CentreOf(const Stage& sum, const Stage& squares, const Machine& traits,
              arith::Analyzer* analyzer) {
  if (!IsRowSum(sum) || !IsRowSum(squares) || squares.before != nullptr) return Expr();
  const Axis &from = squares.reduce[0], &to = sum.reduce[0];
  const int64_t enough = kLongEnough * traits.Lanes(ElemBytes(sum));
  if (ir::AsInt(to.extent).value_or(enough) < enough) return Expr();
  const auto* product = squares.value.as<BinaryObj>();
  if (product == nullptr || product->op != BinaryOp::kMul || !SameFormula(product->a, product->b) ||
      !analyzer->ProveEqual(from.extent, to.extent) || squares.value.dtype() != sum.value.dtype() ||
      ElemBytes(squares) != ElemBytes(sum) || SizeInBytes(sum.value.dtype()) != ElemBytes(sum) ||
      !RunsAlong(sum, traits, analyzer) || !RunsAlong(squares, traits, analyzer))
    return Expr();
  const auto* distance = product->a.as<BinaryObj>();
  if (distance == nullptr || distance->op != BinaryOp::kSub || UsesVar(distance->b, from.var))
    return Expr();
  ffi::Map<Var, Expr> map;
  map.Set(from.var, to.var);
  return SameFormula(tir::Substitute(distance->a, map), sum.value) ? distance->b : Expr();
}

bool Reads(const Stage& stage, const Var& buffer) {
  for (const Var& read : ReadsOf(stage)) {
    if (read.same_as(buffer)) return true;
  }
  return false;
}

class MomentsEmitter {
 public:
  MomentsEmitter(const Stage& stage, const Machine& traits, arith::Analyzer* analyzer)
      : stage_(stage),
        spread_(stage.spread->sum),
        analyzer_(analyzer),
        lanes_(traits.Lanes(ElemBytes(stage))),
        mean_(Accumulators(stage, lanes_)),
        squares_(Accumulators(stage, kAccumulators * lanes_)) {}

  Stmt Run() const {
    const Axis& axis = stage_.reduce[0];
    const Expr zero = stage_.identity;
    ffi::Array<Stmt> seq = {tir::AllocBuffer(mean_), tir::AllocBuffer(squares_),
                            Fill(mean_, zero, lanes_, lanes_),
                            Fill(squares_, zero, kAccumulators * lanes_, lanes_)};
    Expr done = 0;
    for (int64_t vectors = kGroup; vectors > 0; vectors /= 2) {
      const Expr step = vectors * lanes_;
      const Expr blocks = analyzer_->Simplify(ir::FloorDiv(axis.extent - done, step));
      const Var block("block", Int(64));
      seq.push_back(
          Loop(block, blocks, ForKind::kSerial, Merge(Expr(done + block * step), vectors)));
      done = analyzer_->Simplify(done + blocks * step);
    }
    Expr rest = 0;
    if (!analyzer_->ProveEqual(done, axis.extent)) {
      rest = analyzer_->Simplify(axis.extent - done);
      seq.push_back(tir::IfThenElse(ir::Less(Expr(0), rest), Partial(done)));
    }
    seq.push_back(Store(analyzer_->Simplify(ir::FloorDiv(done, lanes_)), rest));
    return SeqStmt::Flatten(seq);
  }

 private:
  Expr Number(const Expr& e) const { return ir::Cast(stage_.value.dtype(), e); }
  Expr Fma(const Expr& a, const Expr& b, const Expr& c) const {
    return ir::CallIntrin(Intrin::kFma, {a, b, c});
  }
  // to[at + lane] = value(lane)
  template <typename Value>
  Stmt Lanes(const Buffer& to, int64_t at, const Value& value) const {
    Var lane("lane", Int(64));
    return For(lane, 0, lanes_, ForKind::kVectorized,
               BufferStore(to, value(lane), {Expr(at) + lane}));
  }
  Expr ValueAt(const Expr& place) const {
    ffi::Map<Var, Expr> map;
    map.Set(stage_.reduce[0].var, place);
    return tir::Substitute(stage_.value, map);
  }

  // Puts `vectors` vectors from `base` on to those before them.
  Stmt Merge(const Expr& base, int64_t vectors) const {
    const Buffer values = Accumulators(stage_, vectors * lanes_),
                 mean = Accumulators(stage_, lanes_);
    ffi::Array<Stmt> seq = {tir::AllocBuffer(values), tir::AllocBuffer(mean)};
    for (int64_t u = 0; u < vectors; ++u) {
      const Expr at = base + Expr(u * lanes_);
      if (stage_.before != nullptr)
        seq.push_back(ElementwiseVector(*stage_.before, at, Expr(), lanes_));
      seq.push_back(Lanes(values, u * lanes_, [&](const Var& lane) { return ValueAt(at + lane); }));
    }
    seq.push_back(Lanes(mean, 0, [&](const Var& lane) {
      std::vector<Expr> sums;
      for (int64_t u = 0; u < vectors; ++u) sums.push_back(values.Load({Expr(u * lanes_) + lane}));
      for (; sums.size() > 1; sums.resize(sums.size() / 2)) {
        for (size_t i = 0; i < sums.size() / 2; ++i) sums[i] = sums[2 * i] + sums[2 * i + 1];
      }
      return sums[0] * ir::FloatImm(stage_.value.dtype(), 1.0 / static_cast<double>(vectors));
    }));
    for (int64_t u = 0; u < vectors; ++u) {
      seq.push_back(AddSquares(u % kAccumulators, [&](const Var& lane, const Expr& acc) {
        const Expr distance = values.Load({Expr(u * lanes_) + lane}) - mean.Load({lane});
        return Fma(distance, distance, acc);
      }));
    }
    seq.push_back(Move(base, vectors,
                       [&](const Var& lane) { return mean.Load({lane}) - mean_.Load({lane}); }));
    return SeqStmt::Flatten(seq);
  }

  // What is less than a vector at the end, from `base` on.
  Stmt Partial(const Expr& base) const {
    const Expr& extent = stage_.reduce[0].extent;
    ffi::Array<Stmt> seq;
    if (stage_.before != nullptr)
      seq.push_back(ElementwiseVector(*stage_.before, base, extent, lanes_));
    seq.push_back(Move(base, 1, [&](const Var& lane) {
      const Expr inside = ir::Less(lane, extent - base);
      const Expr value = PredicateLoads(ValueAt(base + lane), lane, inside);
      return Expr(ir::Select(inside, value - mean_.Load({lane}), stage_.identity));
    }));
    return SeqStmt::Flatten(seq);
  }

  // The mean moves towards that of `vectors` more values of each lane, from `base` on, which is
  // `distance` away.
  template <typename Value>
  Stmt Move(const Expr& base, int64_t vectors, const Value& distance) const {
    // The share of the new values in all, and their weight beside those before them.
    const Var share("share", stage_.value.dtype()), weight("weight", stage_.value.dtype());
    const Expr seen = analyzer_->Simplify(ir::FloorDiv(base, lanes_));
    const Buffer moved = Accumulators(stage_, lanes_);
    return SeqStmt::Flatten(
        {tir::Bind(share, ir::Div(Number(Expr(vectors)), Number(seen + Expr(vectors)))),
         tir::Bind(weight, Number(seen) * share), tir::AllocBuffer(moved),
         Lanes(moved, 0, distance),
         Lanes(mean_, 0,
               [&](const Var& lane) { return Fma(moved.Load({lane}), share, mean_.Load({lane})); }),
         AddSquares(0, [&](const Var& lane, const Expr& acc) {
           return Fma(moved.Load({lane}) * weight, moved.Load({lane}), acc);
         })});
  }

  template <typename Value>
  Stmt AddSquares(int64_t chain, const Value& value) const {
    return Lanes(squares_, chain * lanes_, [&](const Var& lane) {
      return value(lane, squares_.Load({Expr(chain * lanes_) + lane}));
    });
  }

  // Both sums, where each lane has had `full` values and the first `rest` ones have one more.
  Stmt Store(const Expr& full, const Expr& rest) const {
    const Buffer each = Accumulators(stage_, lanes_);
    auto across = [&] {
      return ir::CallIntrin(Intrin::kReduceAdd, {each.Load({ir::RampExpr(Expr(0), 1, lanes_)})});
    };
    auto count = [&](const Var& lane) {
      if (ir::IsIntValue(rest, 0)) return Number(full);
      return Expr(ir::Select(ir::Less(lane, rest), Number(full + 1), Number(full)));
    };
    const Var centre("centre", stage_.value.dtype());
    return SeqStmt::Flatten(
        {tir::AllocBuffer(each),
         Lanes(each, 0, [&](const Var& lane) { return mean_.Load({lane}) * count(lane); }),
         BufferStore(*stage_.out, Finished(stage_, across()), stage_.indices),
         tir::Bind(centre, stage_.spread->centre),
         Lanes(each, 0,
               [&](const Var& lane) {
                 Expr sum = squares_.Load({lane});
                 for (int64_t c = 1; c < kAccumulators; ++c)
                   sum = sum + squares_.Load({Expr(c * lanes_) + lane});
                 const Expr distance = mean_.Load({lane}) - Expr(centre);
                 return Fma(distance * count(lane), distance, sum);
               }),
         BufferStore(*spread_.out, Finished(spread_, across()), spread_.indices)});
  }

  const Stage& stage_;
  const Stage& spread_;
  arith::Analyzer* analyzer_;
  int64_t lanes_;
  Buffer mean_, squares_;  // of each lane
};

}  // namespace

void JoinSpreads(std::vector<Stage>* loops, const Machine& traits, arith::Analyzer* analyzer) {
  for (size_t i = 0; i + 1 < loops->size(); ++i) {
    // What divides the sum stands in its way.
    const auto at = loops->begin() + static_cast<std::ptrdiff_t>(i);
    const Stage& after = (*loops)[i + 1];
    if (i + 2 < loops->size() && IsRowSum(*at) && !at->finish.defined() &&
        after.combine == Combine::kNone && after.spatial.empty() && Reads(after, *at->out) &&
        std::none_of(at + 2, loops->end(), [&](const Stage& s) { return Reads(s, *at->out); })) {
      const Stage finished = FinishWith(*at, after);
      const Expr centre = CentreOf(finished, (*loops)[i + 2], traits, analyzer);
      if (!centre.defined()) continue;
      *at = finished;
      loops->erase(at + 1);
    }
    const Expr centre = CentreOf(*at, (*loops)[i + 1], traits, analyzer);
    if (!centre.defined()) continue;
    at->spread = std::make_shared<const Spread>(Spread{(*loops)[i + 1], centre});
    loops->erase(at + 1);
  }
}

Stmt EmitMoments(const Stage& flat, const Machine& traits, arith::Analyzer* analyzer) {
  return MomentsEmitter(flat, traits, analyzer).Run();
}

}  // namespace relaxvm::schedule::cpu
