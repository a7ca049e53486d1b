// SPDX-License-Identifier: Apache-2.0
// Planning with symbolic sizes.  A layout is an order of the blocks: each lies above all earlier
// ones that live together with it,
//   offset[j] = max(offset[i] + size[i])   over i before j that live together with j,
// which is right for all sizes.  How tight it is depends on the order.  Orders come from packing by
// known methods with sample sizes; the one whose worst overhead over all samples is least is kept.
#include "passes/memory/arena.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <unordered_map>

#include "ir/prim.h"
#include "ir/visitor.h"

namespace relaxvm::passes {

using ir::Expr;
using ir::Var;

namespace {

using Sizes = std::vector<double>;  // of each block, for one choice of sample sizes
using Values = std::unordered_map<const tvm::ffi::Object*, double>;

constexpr size_t kMaxPairs = size_t{1} << 22;
constexpr size_t kManyBlocks = 600;  // from here on fewer orders are tried

std::optional<double> ValueOf(const Expr& e, const Values& values) {
  if (const auto* imm = e.as<ir::IntImmObj>()) return static_cast<double>(imm->value);
  if (const auto* var = e.as<ir::VarObj>()) {
    auto it = values.find(var);
    if (it == values.end()) return std::nullopt;
    return it->second;
  }
  if (const auto* cast = e.as<ir::CastObj>()) return ValueOf(cast->value, values);
  const auto* b = e.as<ir::BinaryObj>();
  if (b == nullptr) return std::nullopt;
  std::optional<double> x = ValueOf(b->a, values), y = ValueOf(b->b, values);
  if (!x || !y) return std::nullopt;
  switch (b->op) {
    case ir::BinaryOp::kAdd: return *x + *y;
    case ir::BinaryOp::kSub: return *x - *y;
    case ir::BinaryOp::kMul: return *x * *y;
    case ir::BinaryOp::kDiv:
    case ir::BinaryOp::kFloorDiv: return *y == 0 ? 0 : std::floor(*x / *y);
    case ir::BinaryOp::kMod:
    case ir::BinaryOp::kFloorMod: return *y == 0 ? 0 : *x - *y * std::floor(*x / *y);
    case ir::BinaryOp::kMin: return std::min(*x, *y);
    case ir::BinaryOp::kMax: return std::max(*x, *y);
    default: return std::nullopt;
  }
}

// Sample sizes: all variables equal, small to large, then one large among small ones.
std::vector<Values> SampleValues(const std::vector<Expr>& sizes) {
  std::vector<const tvm::ffi::Object*> vars;
  for (const Expr& size : sizes) {
    for (const Var& var : ir::FreeVars(size)) {
      if (std::find(vars.begin(), vars.end(), var.get()) == vars.end()) vars.push_back(var.get());
    }
  }
  std::vector<Values> samples;
  auto add = [&](double common) -> Values& {
    samples.emplace_back();
    for (const auto* var : vars) samples.back()[var] = common;
    return samples.back();
  };
  if (vars.empty()) {
    add(0);
    return samples;
  }
  for (double common : {64, 1, 8, 320, 1280}) add(common);
  for (size_t i = 0; i < std::min<size_t>(vars.size(), 4); ++i) add(4)[vars[i]] = 640;
  return samples;
}

// Which blocks live together: for each block its neighbours.
class Neighbours {
 public:
  // False when there are too many pairs.
  bool Find(const std::vector<ArenaBlock>& blocks) {
    lists_.resize(blocks.size());
    std::vector<size_t> order(blocks.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return blocks[a].start < blocks[b].start; });
    std::vector<size_t> alive;
    size_t pairs = 0;
    for (size_t i : order) {
      std::erase_if(alive, [&](size_t other) { return blocks[other].end < blocks[i].start; });
      pairs += alive.size();
      if (pairs > kMaxPairs) return false;
      for (size_t other : alive) {
        lists_[i].push_back(other);
        lists_[other].push_back(i);
      }
      alive.push_back(i);
    }
    by_start_ = std::move(order);
    return true;
  }

  const std::vector<size_t>& Of(size_t block) const { return lists_[block]; }
  const std::vector<size_t>& by_start() const { return by_start_; }

  // Most bytes alive at one moment: no layout can do with less.
  double MostAlive(const std::vector<ArenaBlock>& blocks, const Sizes& sizes) const {
    double most = 0;
    for (size_t i : by_start_) {
      double alive = sizes[i];
      for (size_t other : lists_[i]) {
        if (blocks[other].start <= blocks[i].start && blocks[other].end >= blocks[i].start)
          alive += sizes[other];
      }
      most = std::max(most, alive);
    }
    return most;
  }

 private:
  std::vector<std::vector<size_t>> lists_;
  std::vector<size_t> by_start_;
};

// Puts blocks one after another into the lowest gap between their neighbours.
std::vector<double> Pack(const std::vector<size_t>& order, const Sizes& sizes,
                         const Neighbours& neighbours) {
  std::vector<double> offsets(sizes.size(), -1);
  std::vector<std::pair<double, double>> taken;
  for (size_t i : order) {
    taken.clear();
    for (size_t other : neighbours.Of(i)) {
      if (offsets[other] >= 0) taken.emplace_back(offsets[other], offsets[other] + sizes[other]);
    }
    std::sort(taken.begin(), taken.end());
    double at = 0, best = -1, best_gap = std::numeric_limits<double>::infinity();
    for (const auto& [begin, end] : taken) {
      double gap = begin - at;
      if (gap >= sizes[i] && gap < best_gap) {
        best = at;
        best_gap = gap;
      }
      at = std::max(at, end);
    }
    offsets[i] = best >= 0 ? best : at;
  }
  return offsets;
}

// The order that a packing stands for: from low to high.
std::vector<size_t> OrderOf(const std::vector<double>& offsets) {
  std::vector<size_t> order(offsets.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return offsets[a] < offsets[b]; });
  return order;
}

double PeakOf(const std::vector<size_t>& order, const Sizes& sizes, const Neighbours& neighbours) {
  std::vector<double> end(sizes.size(), -1);
  double peak = 0;
  for (size_t i : order) {
    double offset = 0;
    for (size_t other : neighbours.Of(i)) offset = std::max(offset, end[other]);
    end[i] = offset + sizes[i];
    peak = std::max(peak, end[i]);
  }
  return peak;
}

class Planner {
 public:
  Planner(const std::vector<ArenaBlock>& blocks, arith::Analyzer* analyzer)
      : blocks_(blocks), analyzer_(analyzer) {}

  std::optional<ArenaPlan> Run() {
    for (const ArenaBlock& block : blocks_) aligned_.push_back(AlignBytes(block.bytes, analyzer_));
    if (!neighbours_.Find(blocks_)) return std::nullopt;
    for (const Values& values : SampleValues(aligned_)) {
      Sizes sizes;
      for (const Expr& bytes : aligned_) {
        std::optional<double> value = ValueOf(bytes, values);
        if (!value) return std::nullopt;
        sizes.push_back(std::max(0.0, *value));
      }
      samples_.push_back(std::move(sizes));
    }
    return Symbolic(BestOrder());
  }

 private:
  std::vector<size_t> BestOrder() const {
    std::vector<double> least;
    for (const Sizes& sizes : samples_)
      least.push_back(std::max(1.0, neighbours_.MostAlive(blocks_, sizes)));
    size_t tried =
        blocks_.size() > kManyBlocks ? std::min<size_t>(samples_.size(), 2) : samples_.size();
    std::vector<size_t> best;
    double best_worst = std::numeric_limits<double>::infinity();
    for (size_t s = 0; s < tried; ++s) {
      std::vector<size_t> by_size(blocks_.size());
      std::iota(by_size.begin(), by_size.end(), 0);
      std::stable_sort(by_size.begin(), by_size.end(),
                       [&](size_t a, size_t b) { return samples_[s][a] > samples_[s][b]; });
      for (const std::vector<size_t>* order :
           {&neighbours_.by_start(), const_cast<const std::vector<size_t>*>(&by_size)}) {
        std::vector<size_t> layout = OrderOf(Pack(*order, samples_[s], neighbours_));
        double worst = 0;
        for (size_t t = 0; t < samples_.size(); ++t) {
          worst = std::max(worst, PeakOf(layout, samples_[t], neighbours_) / least[t]);
        }
        if (worst < best_worst) {
          best_worst = worst;
          best = std::move(layout);
        }
      }
    }
    return best;
  }

  ArenaPlan Symbolic(const std::vector<size_t>& order) {
    ArenaPlan plan;
    plan.offsets.resize(blocks_.size());
    std::vector<size_t> rank(blocks_.size());
    for (size_t r = 0; r < order.size(); ++r) rank[order[r]] = r;
    std::vector<Expr> ends(blocks_.size());
    std::vector<bool> covered(blocks_.size(), false);  // something lies above it
    for (size_t i : order) {
      std::vector<Expr> below;
      for (size_t p : Supports(i, rank)) {
        below.push_back(ends[p]);
        covered[p] = true;
      }
      plan.offsets[i] = MaxOf(below, "offset", &plan);
      ends[i] = analyzer_->Simplify(plan.offsets[i] + aligned_[i]);
    }
    std::vector<Expr> tops;
    for (size_t i : order) {
      if (!covered[i]) tops.push_back(ends[i]);
    }
    plan.total = MaxOf(tops, "arena", &plan);
    return plan;
  }

  // The neighbours below `i` that no other neighbour below it already lies on.
  std::vector<size_t> Supports(size_t i, const std::vector<size_t>& rank) const {
    std::vector<size_t> below;
    for (size_t other : neighbours_.Of(i)) {
      if (rank[other] < rank[i]) below.push_back(other);
    }
    std::sort(below.begin(), below.end(), [&](size_t a, size_t b) { return rank[a] > rank[b]; });
    std::vector<size_t> supports;
    for (size_t p : below) {
      bool carried = false;
      for (size_t q : supports) {
        const std::vector<size_t>& of_q = neighbours_.Of(q);
        carried = carried || std::find(of_q.begin(), of_q.end(), p) != of_q.end();
      }
      if (!carried) supports.push_back(p);
    }
    return supports;
  }

  // The greatest of `terms`; terms that another one is proved to reach are left out.  A maximum
  // that remains becomes a variable, so that expressions stay small.
  Expr MaxOf(const std::vector<Expr>& terms, const char* name, ArenaPlan* plan) {
    std::vector<Expr> kept;
    for (const Expr& term : terms) {
      bool reached = false;
      for (const Expr& other : kept) reached = reached || AtMost(term, other);
      if (reached) continue;
      std::erase_if(kept, [&](const Expr& other) { return AtMost(other, term); });
      kept.push_back(term);
    }
    if (kept.empty()) return ir::IntImm(Int(64), 0);
    if (kept.size() == 1) return kept[0];
    Expr greatest = kept[0];
    for (size_t i = 1; i < kept.size(); ++i) greatest = ir::Max(greatest, kept[i]);
    Var var(name, Int(64));
    plan->definitions.emplace_back(var, greatest);
    for (const Expr& term : kept) analyzer_->Assume(ir::GreaterEqual(var, term));
    return var;
  }

  bool AtMost(const Expr& a, const Expr& b) {
    auto x = ir::AsInt(a), y = ir::AsInt(b);
    if (x.has_value() && y.has_value()) return x.value() <= y.value();
    return a.same_as(b) || analyzer_->ProveLessEqual(a, b);
  }

  const std::vector<ArenaBlock>& blocks_;
  arith::Analyzer* analyzer_;
  std::vector<Expr> aligned_;
  Neighbours neighbours_;
  std::vector<Sizes> samples_;
};

}  // namespace

Expr AlignBytes(const Expr& bytes, arith::Analyzer* analyzer) {
  Expr simple = analyzer->Simplify(bytes);
  Expr alignment = ir::IntImm(Int(64), kArenaAlignment);
  if (auto value = ir::AsInt(simple); value.has_value()) {
    return ir::IntImm(Int(64),
                      (value.value() + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment);
  }
  arith::ModularSet modular = analyzer->Modular(simple);
  if (modular.coeff % kArenaAlignment == 0 && modular.base % kArenaAlignment == 0) return simple;
  return ir::FloorDiv(simple + ir::IntImm(Int(64), kArenaAlignment - 1), alignment) * alignment;
}

std::optional<ArenaPlan> PlanArena(const std::vector<ArenaBlock>& blocks,
                                   arith::Analyzer* analyzer) {
  return Planner(blocks, analyzer).Run();
}

}  // namespace relaxvm::passes
