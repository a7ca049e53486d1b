// SPDX-License-Identifier: Apache-2.0
// PiecesOf: a stage whose formula chooses by position (concat, stack, padding of the outermost
// axis, of all where axes are permuted as well) becomes several, one for each part of the axis, so
// that no element is asked where it comes from.
#include <algorithm>
#include <limits>
#include <unordered_map>
#include <unordered_set>

#include "schedule/cpu/cpu.h"
#include "schedule/cpu/loads.h"

namespace relaxvm::schedule::cpu {
namespace {

using ir::Binary;
using ir::BinaryObj;
using ir::BinaryOp;
using ir::Intrin;
using ir::IntrinObj;

constexpr size_t kMaxPieces = 512;  // the formula is as deep

// Names for the sums of sizes at which a formula chooses: d0, d0 + d1, d0 + d1 + d2 ...  become
// variables, each defined by the one before it.  Everything that is asked about them is then as
// small for the last part as for the first.
class Ends : public tir::StmtMutator {
 public:
  explicit Ends(arith::Analyzer* analyzer) : analyzer_(analyzer) {}

  // The formula with its ends named.
  Expr Name(const Expr& value) {
    tir::PostOrderVisit(tir::Evaluate(value), [&](const ffi::ObjectRef& node) {
      const auto* choice = node.as<IntrinObj>();
      if (choice == nullptr || choice->intrin != Intrin::kIfThenElse) return;
      const auto* compare = choice->args[0].as<BinaryObj>();
      if (compare == nullptr || compare->op != BinaryOp::kLT || !IsSum(compare->b)) return;
      if (seen_.insert(compare->b.get()).second) NameSum(compare->b);
    });
    return ends_.empty() ? value : Mutate(value);
  }

  // The end of the axis itself: the next one after the last of the others, or else as it is.
  Expr Extent(const Expr& extent) {
    if (ends_.empty() || !IsSum(extent)) return extent;
    const size_t known = ends_.size();
    const Expr named = NameSum(extent);
    const End* last = Find(named);
    const bool follows =
        last != nullptr && ends_.size() == known + 1 && last->before.same_as(ends_[known - 1].var);
    if (follows) return named;
    num_defined_ = known;
    return extent;
  }

  // Surely a <= b?
  bool AtMost(const Expr& a, const Expr& b) const {
    if (a.same_as(b) || ir::IsIntValue(a, 0)) {
      const End* end = Find(b);
      if (a.same_as(b) || end == nullptr) return a.same_as(b) || analyzer_->ProveAtLeast(b, 0);
    }
    for (const End* end = Find(b); end != nullptr && end->grows; end = Find(end->before)) {
      if (end->before.same_as(a)) return true;
      if (Find(end->before) == nullptr) return AtMost(a, end->before);
    }
    return analyzer_->Prove(ir::LessEqual(Sum(a), Sum(b)));
  }

  // to - from
  Expr Between(const Expr& from, const Expr& to) const {
    const End* end = Find(to);
    if (end != nullptr && end->before.same_as(from)) return end->step;
    return analyzer_->Simplify(to - from);
  }

  ffi::Array<Stmt> Definitions() const {
    ffi::Array<Stmt> seq;
    for (size_t i = 0; i < std::min(num_defined_, ends_.size()); ++i)
      seq.push_back(tir::Bind(ends_[i].var, ends_[i].before + ends_[i].step));
    return seq;
  }

  Expr MutateBinary(const Binary& b) override {
    const Expr e = StmtMutator::MutateBinary(b);
    const auto* sum = e.as<BinaryObj>();
    if (sum == nullptr || sum->op != BinaryOp::kAdd || e.dtype() != Int(64)) return e;
    std::vector<size_t>& after = by_before_[FirstOf(sum->a).get()];
    for (const size_t i : after) {
      if (ir::StructuralEqual(ends_[i].step, sum->b)) return ends_[i].var;
    }
    if (!naming_) return e;
    const End* before = Find(sum->a);
    End end{Var("end", Int(64)), sum->a, sum->b,
            (before != nullptr ? before->sum : sum->a) + sum->b};
    end.grows = analyzer_->ProveAtLeast(end.step, 0);
    after.push_back(ends_.size());
    index_.emplace(end.var.get(), ends_.size());
    ends_.push_back(end);
    return end.var;
  }

 private:
  struct End {
    Var var;
    Expr before, step;  // var = before + step
    Expr sum;           // without names
    bool grows = false;
  };

  Expr NameSum(const Expr& sum) {
    naming_ = true;
    const Expr named = Mutate(sum);
    naming_ = false;
    return named;
  }

  // One object for sizes that are equal: what an end is named by.
  Expr FirstOf(const Expr& size) {
    if (size.as<ir::VarObj>() || size.as<ir::IntImmObj>()) return size;
    for (const Expr& known : sizes_) {
      if (ir::StructuralEqual(known, size)) return known;
    }
    if (naming_) sizes_.push_back(size);
    return size;
  }
  Expr Sum(const Expr& e) const {
    const End* end = Find(e);
    return end == nullptr ? e : end->sum;
  }
  static bool IsSum(const Expr& e) {
    const auto* binary = e.as<BinaryObj>();
    return binary != nullptr && binary->op == BinaryOp::kAdd;
  }
  const End* Find(const Expr& e) const {
    auto it = index_.find(e.get());
    return it == index_.end() ? nullptr : &ends_[it->second];
  }

  arith::Analyzer* analyzer_;
  bool naming_ = false;
  std::vector<End> ends_;
  std::vector<Expr> sizes_;
  size_t num_defined_ = std::numeric_limits<size_t>::max();
  std::unordered_map<const ffi::Object*, size_t> index_;
  std::unordered_map<const ffi::Object*, std::vector<size_t>> by_before_;
  std::unordered_set<const ffi::Object*> seen_;
};

// axis < threshold, or else the opposite
struct Cut {
  size_t axis;
  Expr threshold;
  bool opposite = false;
};

// The part [from, to) of an axis.
struct Range {
  Expr from, to;
};

class Cutter {
 public:
  Cutter(const Stage& stage, arith::Analyzer* analyzer)
      : stage_(stage), analyzer_(analyzer), ends_(analyzer), indices_(stage.indices) {}

  // Absent when there would be too many.
  std::optional<Pieces> Run() {
    const Expr value = ends_.Name(stage_.value);
    std::vector<Range> ranges;
    for (const Axis& axis : stage_.spatial) ranges.push_back({Expr(0), axis.extent});
    if (const std::optional<Cut> first = FindCut(value)) {
      Range& range = ranges[first->axis];
      range.to = ends_.Extent(range.to);
      NameSizes(range.to, first->axis);
    }
    if (!Divide(value, ranges)) return std::nullopt;
    pieces_.definitions = ends_.Definitions();
    return std::move(pieces_);
  }

 private:
  // Where the axis that is cut is a dimension of the result, places in it are told with its name.
  void NameSizes(const Expr& extent, size_t axis) {
    ffi::Array<Expr> shape = stage_.out->shape();
    if (extent.same_as(stage_.spatial[axis].extent) || shape.size() != indices_.size()) return;
    Expr offset = 0;
    for (size_t i = 0; i < shape.size(); ++i) {
      const bool is_cut = ir::StructuralEqual(shape[i], stage_.spatial[axis].extent);
      offset = offset * (is_cut ? extent : shape[i]) + indices_[i];
    }
    indices_ = {offset};
  }

  bool Divide(const Expr& value, const std::vector<Range>& ranges) {
    const std::optional<Cut> cut = FindCut(value);
    if (!cut.has_value()) return Finish(value, ranges);
    const Range whole = ranges[cut->axis];
    Expr at = cut->threshold;
    if (!ends_.AtMost(whole.from, at)) at = ir::Max(at, whole.from);
    if (!ends_.AtMost(at, whole.to)) at = ir::Min(at, whole.to);
    if (!at.same_as(cut->threshold)) at = analyzer_->Simplify(at);
    return Part(value, *cut, ranges, {whole.from, at}, true) &&
           Part(value, *cut, ranges, {at, whole.to}, false);
  }

  bool Part(const Expr& value, const Cut& cut, std::vector<Range> ranges, const Range& range,
            bool holds) {
    const auto from = ir::AsInt(range.from), to = ir::AsInt(range.to);
    if (range.from.same_as(range.to) || (from.has_value() && to.has_value() && *from >= *to))
      return true;
    ranges[cut.axis] = range;
    return Divide(Decide(value, cut, holds), ranges);
  }

  // A part that nothing cuts any more.
  bool Finish(const Expr& value, const std::vector<Range>& ranges) {
    Stage part = stage_;
    ffi::Map<Var, Expr> map;
    for (size_t i = 0; i < ranges.size(); ++i) {
      const Axis& axis = stage_.spatial[i];
      const Range& range = ranges[i];
      if (range.to.same_as(axis.extent) && ir::IsIntValue(range.from, 0)) continue;
      const Expr size = ends_.Between(range.from, range.to);
      if (ir::AsInt(size).value_or(1) <= 0) return true;
      const Axis inside{Var(axis.var->name, Int(64)), size};
      map.Set(axis.var, range.from + inside.var);
      part.spatial[i] = inside;
    }
    part.value = tir::Substitute(value, map);
    part.indices = indices_.Map([&](const Expr& e) { return tir::Substitute(e, map); });
    pieces_.stages.push_back(part);
    return pieces_.stages.size() <= kMaxPieces;
  }

  // Is `condition` a comparison of one axis with something that no axis changes?
  const std::optional<Cut>& AsCut(const Expr& condition) const {
    auto [it, fresh] = cuts_.try_emplace(condition.get());
    if (!fresh) return it->second.second;
    it->second.first = condition;  // keeps the key alive
    std::optional<Cut>& cut = it->second.second;
    const auto* compare = condition.as<BinaryObj>();
    if (compare == nullptr || (compare->op != BinaryOp::kLT && compare->op != BinaryOp::kGE))
      return cut;
    auto linear = LinearOffset::Of(compare->a - compare->b, stage_.spatial);
    if (!linear.has_value()) return cut;
    for (size_t i = 0; i < stage_.spatial.size(); ++i) {
      const Expr coeff = analyzer_->Simplify(linear->Coeff(stage_.spatial[i].var));
      if (ir::IsIntValue(coeff, 0)) continue;
      if (cut.has_value() || !ir::IsIntValue(coeff, 1)) {
        cut.reset();
        return cut;
      }
      cut = Cut{i, analyzer_->Simplify(Expr(0) - linear->rest()), compare->op == BinaryOp::kGE};
    }
    return cut;
  }

  // Does the formula read along another axis than the result runs along?  Squares of elements are
  // turned round only where nothing is asked about them.
  bool ReadsAcross() const {
    if (reads_across_.has_value()) return *reads_across_;
    const Stage flat = FlattenStage(stage_, analyzer_);
    LoadCollector loads;
    loads.Visit(flat.value);
    const Axis& run = flat.spatial.back();
    reads_across_ =
        WalksAlong(flat.indices[0], run) &&
        std::any_of(loads.sometimes.begin(), loads.sometimes.end(), [&](const auto& load) {
          const Expr& offset = load->indices[0];
          return UsesVar(offset, run.var) && !WalksAlong(offset, run);
        });
    return *reads_across_;
  }

  // A comparison of the outermost axis among those that hold together, or of any one where axes are
  // permuted: what is left of it are whole runs of memory.
  std::optional<Cut> OuterCut(const Expr& condition) const {
    if (const auto* both = condition.as<BinaryObj>();
        both != nullptr && both->op == BinaryOp::kAnd) {
      std::optional<Cut> cut = OuterCut(both->a);
      return cut.has_value() ? cut : OuterCut(both->b);
    }
    const std::optional<Cut>& cut = AsCut(condition);
    if (!cut.has_value()) return std::nullopt;
    const auto first = stage_.spatial.begin(), at = first + static_cast<std::ptrdiff_t>(cut->axis);
    const bool outermost =
        std::all_of(first, at, [](const Axis& axis) { return ir::IsIntValue(axis.extent, 1); });
    if ((!outermost || at + 1 == stage_.spatial.end()) && !ReadsAcross()) return std::nullopt;
    return cut;
  }

  // An outermost one: the cuts of one side then leave the other side whole.
  std::optional<Cut> FindCut(const Expr& value) const {
    std::optional<Cut> found;
    auto visit = [&](const auto& self, const Expr& e) -> void {
      if (found.has_value()) return;
      const auto* choice = e.as<IntrinObj>();
      if (choice != nullptr && choice->intrin == Intrin::kIfThenElse) {
        const auto* compare = choice->args[0].as<BinaryObj>();
        const bool is_chosen = compare != nullptr && compare->op == BinaryOp::kLT;
        found = is_chosen ? AsCut(choice->args[0]) : OuterCut(choice->args[0]);
        if (found.has_value()) return;
      }
      for (const Expr& child : Children(e)) self(self, child);
    };
    visit(visit, value);
    return found;
  }

  static std::vector<Expr> Children(const Expr& e) {
    if (const auto* n = e.as<IntrinObj>()) return {n->args.begin(), n->args.end()};
    if (const auto* n = e.as<BinaryObj>()) return {n->a, n->b};
    if (const auto* n = e.as<ir::CastObj>()) return {n->value};
    if (const auto* n = e.as<ir::SelectObj>()) return {n->condition, n->true_value, n->false_value};
    if (const auto* n = e.as<ir::LetObj>()) return {n->value, n->body};
    if (const auto* n = e.as<tir::BufferLoadObj>()) return {n->indices.begin(), n->indices.end()};
    return {};
  }

  bool IsSame(const Expr& a, const Expr& b) const {
    if (a.same_as(b)) return true;
    if (a.as<ir::VarObj>() && b.as<ir::VarObj>()) return false;
    return analyzer_->ProveEqual(a, b);
  }

  // The formula where conditions at this cut are known.
  Expr Decide(const Expr& value, const Cut& cut, bool holds) const {
    class Decider : public tir::StmtMutator {
     public:
      Decider(const Cutter& cutter, const Cut& cut, bool holds)
          : cutter_(cutter), cut_(cut), holds_(holds) {}
      Expr MutateIntrin(const ir::IntrinExpr& e) override {
        if (e->intrin == Intrin::kIfThenElse) {
          const Expr condition = Known(e->args[0]);
          if (const auto value = ir::AsInt(condition)) return Mutate(e->args[*value != 0 ? 1 : 2]);
          if (!condition.same_as(e->args[0]))
            return ir::IfThenElse(Mutate(condition), Mutate(e->args[1]), Mutate(e->args[2]));
        }
        return StmtMutator::MutateIntrin(e);
      }

     private:
      // `condition` without what is known.
      Expr Known(const Expr& condition) const {
        if (const auto* both = condition.as<BinaryObj>();
            both != nullptr && both->op == BinaryOp::kAnd) {
          const Expr a = Known(both->a), b = Known(both->b);
          if (a.same_as(both->a) && b.same_as(both->b)) return condition;
          if (const auto value = ir::AsInt(a)) return *value != 0 ? b : a;
          if (const auto value = ir::AsInt(b)) return *value != 0 ? a : b;
          return ir::And(a, b);
        }
        const std::optional<Cut>& own = cutter_.AsCut(condition);
        if (!own.has_value() || own->axis != cut_.axis ||
            !cutter_.IsSame(own->threshold, cut_.threshold))
          return condition;
        return ir::BoolImm(holds_ != own->opposite);
      }

      const Cutter& cutter_;
      const Cut& cut_;
      bool holds_;
    };
    return Decider(*this, cut, holds).Mutate(value);
  }

  const Stage& stage_;
  arith::Analyzer* analyzer_;
  Ends ends_;
  ffi::Array<Expr> indices_;
  Pieces pieces_;
  mutable std::optional<bool> reads_across_;
  mutable std::unordered_map<const ffi::Object*, std::pair<Expr, std::optional<Cut>>> cuts_;
};

}  // namespace

Pieces PiecesOf(const Stage& stage, arith::Analyzer* analyzer) {
  if (stage.combine == Combine::kNone) {
    if (std::optional<Pieces> pieces = Cutter(stage, analyzer).Run()) return *std::move(pieces);
  }
  return {{}, {stage}};
}

}  // namespace relaxvm::schedule::cpu
