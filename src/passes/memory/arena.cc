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
#include <map>
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
constexpr size_t kManyBlocks = 600;      // from here on fewer orders are tried
constexpr double kGoodEnough = 1.13;     // reserved memory over the most that is alive
constexpr double kFewBytes = 4096;       // less than this is not worth a division
constexpr double kWorthDividing = 0.02;  // what a division must gain
constexpr int kMaxDivisions = 4;
constexpr size_t kMaxMoments = 16;  // blocks around which a division is tried
constexpr size_t kMaxCrossing = 8;  // blocks that get memory of their own for it

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

// Sizes of the blocks for each sample; absent when one cannot be computed.
std::optional<std::vector<Sizes>> SampleSizes(const std::vector<Expr>& bytes,
                                              const std::vector<Values>& of) {
  std::vector<Sizes> samples;
  for (const Values& values : of) {
    Sizes sizes;
    for (const Expr& e : bytes) {
      std::optional<double> value = ValueOf(e, values);
      if (!value) return std::nullopt;
      sizes.push_back(std::max(0.0, *value));
    }
    samples.push_back(std::move(sizes));
  }
  return samples;
}

// An order of the blocks, and the arena's size with it for each sample.
struct Layout {
  std::vector<size_t> order;
  std::vector<double> peaks;
};

Layout FindLayout(const std::vector<ArenaBlock>& blocks, const std::vector<Sizes>& samples,
                  const Neighbours& neighbours) {
  std::vector<double> least;
  for (const Sizes& sizes : samples) {
    least.push_back(std::max(1.0, neighbours.MostAlive(blocks, sizes)));
  }
  size_t tried = blocks.size() > kManyBlocks ? std::min<size_t>(samples.size(), 2) : samples.size();
  Layout best;
  double best_worst = std::numeric_limits<double>::infinity();
  for (size_t s = 0; s < tried; ++s) {
    std::vector<size_t> by_size(blocks.size());
    std::iota(by_size.begin(), by_size.end(), 0);
    std::stable_sort(by_size.begin(), by_size.end(),
                     [&](size_t a, size_t b) { return samples[s][a] > samples[s][b]; });
    const std::vector<size_t>* packings[] = {&neighbours.by_start(), &by_size};
    for (const std::vector<size_t>* packing : packings) {
      Layout layout{OrderOf(Pack(*packing, samples[s], neighbours)), {}};
      double worst = 0;
      for (size_t t = 0; t < samples.size(); ++t) {
        layout.peaks.push_back(PeakOf(layout.order, samples[t], neighbours));
        worst = std::max(worst, layout.peaks.back() / least[t]);
      }
      if (worst < best_worst) {
        best_worst = worst;
        best = std::move(layout);
      }
    }
  }
  return best;
}

class Planner {
 public:
  Planner(const std::vector<ArenaBlock>& blocks, arith::Analyzer* analyzer)
      : blocks_(blocks), analyzer_(analyzer) {}

  std::optional<ArenaPlan> Run() {
    for (const ArenaBlock& block : blocks_) aligned_.push_back(AlignBytes(block.bytes, analyzer_));
    if (!neighbours_.Find(blocks_)) return std::nullopt;
    samples_ = SampleValues(aligned_);
    std::optional<std::vector<Sizes>> samples = SampleSizes(aligned_, samples_);
    if (!samples) return std::nullopt;
    return Symbolic(FindLayout(blocks_, *samples, neighbours_).order);
  }

 private:
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
    for (Values& values : samples_) {
      if (const auto value = ValueOf(greatest, values)) values[var.get()] = *value;
    }
    return var;
  }

  bool AtMost(const Expr& a, const Expr& b) {
    auto x = ir::AsInt(a), y = ir::AsInt(b);
    if (x.has_value() && y.has_value()) return x.value() <= y.value();
    return a.same_as(b) || (!IsRefuted(a, b) && analyzer_->ProveLessEqual(a, b));
  }

  // Not a <= b for some sizes?  Spares proofs that fail, which take longest.
  bool IsRefuted(const Expr& a, const Expr& b) const {
    return std::any_of(samples_.begin(), samples_.end(), [&](const Values& values) {
      const auto x = ValueOf(a, values), y = ValueOf(b, values);
      return x.has_value() && y.has_value() && *x > *y;
    });
  }

  const std::vector<ArenaBlock>& blocks_;
  arith::Analyzer* analyzer_;
  std::vector<Values> samples_;
  std::vector<Expr> aligned_;
  Neighbours neighbours_;
};

// Memory that is reserved from one moment to another.
struct Span {
  int64_t first = 0;
  int64_t last = 0;
  double bytes = 0;
};

double MostReserved(const std::vector<Span>& spans) {
  double most = 0;
  for (const Span& at : spans) {
    double reserved = 0;
    for (const Span& span : spans) {
      if (span.first <= at.first && at.first <= span.last) reserved += span.bytes;
    }
    most = std::max(most, reserved);
  }
  return most;
}

// Looks for the division of blocks into arenas and blocks of their own that reserves least.
class Divider {
 public:
  Divider(const std::vector<ArenaBlock>& blocks, const std::vector<ArenaBlock>& outside)
      : num_(blocks.size()), all_(blocks) {
    all_.insert(all_.end(), outside.begin(), outside.end());
  }

  // False when sizes cannot be computed with.
  bool Prepare(arith::Analyzer* analyzer) {
    std::vector<Expr> aligned;
    for (const ArenaBlock& block : all_) aligned.push_back(AlignBytes(block.bytes, analyzer));
    std::optional<std::vector<Sizes>> samples = SampleSizes(aligned, SampleValues(aligned));
    Neighbours neighbours;
    if (!samples || !neighbours.Find(all_)) return false;
    samples_ = std::move(*samples);
    share_.assign(num_, 0);
    for (const Sizes& sizes : samples_) {
      least_.push_back(std::max(kFewBytes, neighbours.MostAlive(all_, sizes)));
      for (size_t i = 0; i < num_; ++i) share_[i] = std::max(share_[i], sizes[i] / least_.back());
    }
    return true;
  }

  std::vector<int> Run() {
    std::vector<int> best(num_, 0);
    double best_worst = WorstOf(best);
    for (int step = 0; step < kMaxDivisions && best_worst > kGoodEnough; ++step) {
      std::vector<int> next;
      double next_worst = best_worst - kWorthDividing;
      for (int64_t moment : Moments()) {
        std::vector<int> cut = CutAt(moment, best, step + 1);
        if (cut.empty()) continue;
        double worst = WorstOf(cut);
        if (worst >= next_worst) continue;
        next_worst = worst;
        next = std::move(cut);
      }
      if (next.empty()) break;
      best = std::move(next);
      best_worst = next_worst;
    }
    return best;
  }

 private:
  // Before and after the blocks that matter most.
  std::vector<int64_t> Moments() const {
    std::vector<size_t> order(num_);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return share_[a] > share_[b]; });
    std::vector<int64_t> moments;
    for (size_t i = 0; i < std::min(num_, kMaxMoments); ++i) {
      moments.push_back(all_[order[i]].start);
      moments.push_back(all_[order[i]].end + 1);
    }
    return moments;
  }

  // Blocks from `moment` on get an arena of their own, those that live across it memory of their
  // own.
  std::vector<int> CutAt(int64_t moment, const std::vector<int>& groups, int fresh) const {
    std::vector<int> cut = groups;
    size_t crossing = 0;
    bool before = false, after = false;
    for (size_t i = 0; i < num_; ++i) {
      if (groups[i] == kApart) continue;
      if (all_[i].start >= moment) {
        after = true;
        cut[i] = groups[i] * 64 + fresh;  // stays apart from other arenas of that time
      } else if (all_[i].end >= moment) {
        cut[i] = kApart;
        ++crossing;
      } else {
        before = true;
      }
    }
    if (!before || !after || crossing > kMaxCrossing) return {};
    return cut;
  }

  double WorstOf(const std::vector<int>& groups) const {
    std::map<int, std::vector<size_t>> members;
    for (size_t i = 0; i < num_; ++i) {
      if (groups[i] != kApart) members[groups[i]].push_back(i);
    }
    std::vector<std::vector<Span>> spans(samples_.size());
    for (const auto& [group, places] : members) {
      std::vector<ArenaBlock> inside;
      std::vector<Sizes> sizes(samples_.size());
      Span span{std::numeric_limits<int64_t>::max(), -1, 0};
      for (size_t i : places) {
        inside.push_back(all_[i]);
        span.first = std::min(span.first, all_[i].start);
        span.last = std::max(span.last, all_[i].end);
        for (size_t s = 0; s < samples_.size(); ++s) sizes[s].push_back(samples_[s][i]);
      }
      Neighbours neighbours;
      neighbours.Find(inside);
      Layout layout = FindLayout(inside, sizes, neighbours);
      for (size_t s = 0; s < samples_.size(); ++s) {
        spans[s].push_back({span.first, span.last, layout.peaks[s]});
      }
    }
    double worst = 0;
    for (size_t s = 0; s < samples_.size(); ++s) {
      for (size_t i = 0; i < all_.size(); ++i) {
        if (i < num_ && groups[i] != kApart) continue;
        spans[s].push_back({all_[i].start, all_[i].end, samples_[s][i]});
      }
      worst = std::max(worst, MostReserved(spans[s]) / least_[s]);
    }
    return worst;
  }

  size_t num_;
  std::vector<ArenaBlock> all_;  // the blocks, then those outside
  std::vector<Sizes> samples_;
  std::vector<double> least_;  // most bytes alive, by sample
  std::vector<double> share_;  // of a block in what is alive, in the sample where it is greatest
};

}  // namespace

std::vector<int> DivideIntoArenas(const std::vector<ArenaBlock>& blocks,
                                  const std::vector<ArenaBlock>& outside,
                                  arith::Analyzer* analyzer) {
  Divider divider(blocks, outside);
  if (blocks.size() + outside.size() > kManyBlocks || !divider.Prepare(analyzer)) {
    return std::vector<int>(blocks.size(), 0);
  }
  return divider.Run();
}

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
