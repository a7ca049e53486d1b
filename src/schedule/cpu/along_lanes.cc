// SPDX-License-Identifier: Apache-2.0
// Which axis of a stage its vectors run along.
#include <algorithm>
#include <vector>

#include "arith/analyzer.h"
#include "schedule/cpu/nest.h"

namespace relaxvm::schedule::cpu {
namespace {

using tir::BufferLoadObj;

constexpr int64_t kFewLanes = 16;  // the fewest of a narrower register

double Score(const Stage& stage, const Axis& axis, bool reduce, int64_t lanes) {
  // Where an index is read from memory says little: it is read once for all that it leads to.
  class Loads : public tir::StmtVisitor {
   public:
    std::vector<const BufferLoadObj*> outer, of_indices;
    void VisitBufferLoad(const BufferLoadObj* load) override {
      (depth_ == 0 ? outer : of_indices).push_back(load);
      ++depth_;
      StmtVisitor::VisitBufferLoad(load);
      --depth_;
    }

   private:
    int depth_ = 0;
  } loads;
  loads.Visit(tir::Evaluate(stage.value));
  double score = reduce ? -1 : 0;
  for (const BufferLoadObj* load : loads.outer) {
    switch (StepOf(load->indices[0], axis)) {
      case Step::kContiguous: score += 2; break;
      case Step::kSame: score += 0.25; break;
      case Step::kSpaced: score -= 1; break;
      case Step::kRepeated: score += 1; break;
      case Step::kScattered: score -= 3; break;
    }
  }
  for (const BufferLoadObj* load : loads.of_indices) {
    if (StepOf(load->indices[0], axis) != Step::kContiguous) continue;
    score += 1;
    break;
  }
  if (!reduce) {
    switch (StepOf(stage.indices[0], axis)) {
      case Step::kContiguous: score += 3; break;
      case Step::kSame: score -= 100; break;  // several lanes would write one element
      case Step::kSpaced:
      case Step::kRepeated:
      case Step::kScattered: score -= 4; break;
    }
  }
  if (auto extent = ir::AsInt(axis.extent);
      extent.has_value() && extent.value() * 2 < std::min(lanes, kFewLanes))
    score -= 4;
  return score;
}

// The odd part of the period in which the elements at `offset` are repeated: it is what does not
// depend on the axis, and a quotient of the axis.  0: it is something else, or too long.
int64_t OddPeriod(const Expr& offset, const Axis& axis) {
  constexpr int64_t kMaxOdd = 7;  // vectors at once
  const auto* binary = offset.as<ir::BinaryObj>();
  if (binary == nullptr) return 0;
  if (binary->op == ir::BinaryOp::kAdd) {
    if (!UsesVar(binary->b, axis.var)) return OddPeriod(binary->a, axis);
    return UsesVar(binary->a, axis.var) ? 0 : OddPeriod(binary->b, axis);
  }
  const auto period = ir::AsInt(binary->b);
  if (binary->op != ir::BinaryOp::kFloorDiv || period.value_or(0) < 2) return 0;
  const auto linear = LinearOffset::Of(binary->a, {axis});
  if (!linear.has_value() || !arith::Analyzer().Remainder(linear->rest(), *period).has_value())
    return 0;
  const int64_t step = ir::AsInt(linear->Coeff(axis.var)).value_or(0);
  int64_t odd = *period;
  while (odd % 2 == 0) odd /= 2;
  return step >= 1 && step < *period && odd <= kMaxOdd ? odd : 0;
}

}  // namespace

Step StepOf(const Expr& offset, const Axis& axis) {
  if (!UsesVar(offset, axis.var)) return Step::kSame;
  auto linear = LinearOffset::Of(offset, {axis});
  if (!linear.has_value()) return OddPeriod(offset, axis) > 0 ? Step::kRepeated : Step::kScattered;
  const Expr coeff = linear->Coeff(axis.var);
  if (ir::IsIntValue(coeff, 1) || ir::IsIntValue(coeff, -1)) return Step::kContiguous;
  if (const auto step = ir::AsInt(coeff); step.has_value() && *step >= 2 && *step <= kMaxSpacing)
    return Step::kSpaced;
  return Step::kScattered;
}

int64_t VectorsOfPeriods(const Expr& value, const Axis& axis) {
  int64_t vectors = 1;
  tir::PostOrderVisit(tir::Evaluate(value), [&](const ffi::ObjectRef& node) {
    const auto* load = node.as<BufferLoadObj>();
    const int64_t odd = load == nullptr ? 0 : OddPeriod(load->indices[0], axis);
    vectors = std::max(vectors, odd);
  });
  return vectors;
}

bool HorizontalForm(Combine combine) {
  return combine == Combine::kSum || combine == Combine::kProd || combine == Combine::kMin ||
         combine == Combine::kMax;
}

int64_t LanesAlong(const Axis& axis, int64_t lanes) {
  const auto extent = ir::AsInt(axis.extent);
  while (extent.has_value() && lanes > kFewLanes && extent.value() <= lanes / 2) lanes /= 2;
  return lanes;
}

Choice ChooseLanes(const Stage& stage, int64_t lanes) {
  Choice best;
  double best_score = 0;
  if (lanes < 2) return best;
  for (size_t i = 0; i < stage.spatial.size(); ++i) {
    if (ir::IsIntValue(stage.spatial[i].extent, 1)) continue;
    if (double s = Score(stage, stage.spatial[i], false, lanes); s > best_score)
      best = {AlongLanes::kSpatial, i}, best_score = s;
  }
  if (!HorizontalForm(stage.combine)) return best;
  for (size_t i = 0; i < stage.reduce.size(); ++i) {
    if (double s = Score(stage, stage.reduce[i], true, lanes); s > best_score)
      best = {AlongLanes::kReduce, i}, best_score = s;
  }
  return best;
}

}  // namespace relaxvm::schedule::cpu
