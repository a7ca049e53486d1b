// SPDX-License-Identifier: Apache-2.0
// PiecesOf: a stage whose formula chooses by position (concat, stack) becomes several, one for each
// part of the axis, so that no element is asked where it comes from.
#include "schedule/cpu/cpu.h"

namespace relaxvm::schedule::cpu {
namespace {

using ir::BinaryObj;
using ir::BinaryOp;
using ir::Intrin;

constexpr size_t kMaxPieces = 64;

// axis < threshold
struct Cut {
  size_t axis;
  Expr threshold;
};

class Cutter {
 public:
  explicit Cutter(arith::Analyzer* analyzer) : analyzer_(analyzer) {}

  // Appends the pieces of `stage`; false when there would be too many.
  bool Run(const Stage& stage, std::vector<Stage>* pieces) {
    std::optional<Cut> cut = FindCut(stage);
    if (!cut.has_value()) {
      pieces->push_back(stage);
      return pieces->size() <= kMaxPieces;
    }
    const Axis axis = stage.spatial[cut->axis];
    const Expr at = analyzer_->Simplify(ir::Min(ir::Max(cut->threshold, 0), axis.extent));
    return Part(stage, *cut, Expr(0), at, true, pieces) &&
           Part(stage, *cut, at, axis.extent - at, false, pieces);
  }

 private:
  // The part [from, from + extent) of the axis, where the condition is `holds`.
  bool Part(const Stage& stage, const Cut& cut, const Expr& from, const Expr& extent, bool holds,
            std::vector<Stage>* pieces) {
    const Axis axis = stage.spatial[cut.axis];
    const Expr size = analyzer_->Simplify(extent);
    if (ir::AsInt(size).value_or(1) <= 0) return true;
    Stage part = stage;
    Axis inside{Var(axis.var->name, Int(64)), size};
    ffi::Map<Var, Expr> map;
    map.Set(axis.var, analyzer_->Simplify(from + inside.var));
    part.spatial[cut.axis] = inside;
    part.value = tir::Substitute(Decide(stage, cut, holds), map);
    part.indices = stage.indices.Map([&](const Expr& e) { return tir::Substitute(e, map); });
    return Run(part, pieces);
  }

  // Is `condition` a comparison of one axis with something that no axis changes?
  std::optional<Cut> AsCut(const Stage& stage, const Expr& condition) const {
    const auto* compare = condition.as<BinaryObj>();
    if (compare == nullptr || compare->op != BinaryOp::kLT) return std::nullopt;
    auto linear = LinearOffset::Of(compare->a - compare->b, stage.spatial);
    if (!linear.has_value()) return std::nullopt;
    std::optional<Cut> cut;
    for (size_t i = 0; i < stage.spatial.size(); ++i) {
      const Expr coeff = analyzer_->Simplify(linear->Coeff(stage.spatial[i].var));
      if (ir::IsIntValue(coeff, 0)) continue;
      if (cut.has_value() || !ir::IsIntValue(coeff, 1)) return std::nullopt;
      cut = Cut{i, analyzer_->Simplify(Expr(0) - linear->rest())};
    }
    return cut;
  }

  // An outermost one: the cuts of one side then leave the other side whole.
  std::optional<Cut> FindCut(const Stage& stage) const {
    std::optional<Cut> found;
    tir::PostOrderVisit(tir::Evaluate(stage.value), [&](const ffi::ObjectRef& node) {
      const auto* choice = node.as<ir::IntrinObj>();
      if (choice == nullptr || choice->intrin != Intrin::kIfThenElse) return;
      if (std::optional<Cut> cut = AsCut(stage, choice->args[0])) found = cut;
    });
    return found;
  }

  // The formula where conditions at this cut are known.
  Expr Decide(const Stage& stage, const Cut& cut, bool holds) const {
    class Decider : public tir::StmtMutator {
     public:
      Decider(const Cutter& cutter, const Stage& stage, const Cut& cut, bool holds)
          : cutter_(cutter), stage_(stage), cut_(cut), holds_(holds) {}
      Expr MutateIntrin(const ir::IntrinExpr& e) override {
        if (e->intrin == Intrin::kIfThenElse) {
          std::optional<Cut> own = cutter_.AsCut(stage_, e->args[0]);
          if (own.has_value() && own->axis == cut_.axis &&
              cutter_.analyzer_->ProveEqual(own->threshold, cut_.threshold))
            return Mutate(e->args[holds_ ? 1 : 2]);
        }
        return StmtMutator::MutateIntrin(e);
      }

     private:
      const Cutter& cutter_;
      const Stage& stage_;
      const Cut& cut_;
      bool holds_;
    };
    return Decider(*this, stage, cut, holds).Mutate(stage.value);
  }

  arith::Analyzer* analyzer_;
};

}  // namespace

std::vector<Stage> PiecesOf(const Stage& stage, arith::Analyzer* analyzer) {
  std::vector<Stage> pieces;
  if (stage.combine != Combine::kNone || !Cutter(analyzer).Run(stage, &pieces)) return {stage};
  return pieces;
}

}  // namespace relaxvm::schedule::cpu
