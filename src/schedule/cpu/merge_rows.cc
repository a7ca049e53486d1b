// SPDX-License-Identifier: Apache-2.0
// MergeRows: finding a row takes a division for each axis but one; rows that lie evenly in memory
// need a single axis.
#include <algorithm>

#include "schedule/cpu/loads.h"
#include "schedule/cpu/rows.h"

namespace relaxvm::schedule::cpu {
namespace {

using tir::BufferLoadObj;

// Where the stages of a row find and leave elements, as functions of the row.
class Offsets {
 public:
  explicit Offsets(const std::vector<Axis>& rows) : rows_(rows) {}

  // False: the row counts for more than places in memory, or not evenly.
  bool Add(const Stage& stage) {
    bool known = Take(stage.indices[0]);
    for (const Expr& formula : {stage.value, stage.finish}) {
      if (!formula.defined()) continue;
      tir::PostOrderVisit(tir::Evaluate(formula), [&](const ffi::ObjectRef& node) {
        if (const auto* load = node.as<BufferLoadObj>()) known = known && Take(load->indices[0]);
      });
      known = known && !UsesAny(LoadEraser().Mutate(formula), rows_);
    }
    return known && (stage.before == nullptr || Add(*stage.before));
  }

  // Do all of them go on from the last point of `inner` to the next one of `outer`?
  bool GoOn(const Axis& outer, const Axis& inner, arith::Analyzer* analyzer) const {
    return std::all_of(offsets_.begin(), offsets_.end(), [&](const LinearOffset& offset) {
      return analyzer->ProveEqual(offset.Coeff(outer.var), offset.Coeff(inner.var) * inner.extent);
    });
  }

 private:
  bool Take(const Expr& at) {
    auto offset = LinearOffset::Of(at, rows_);
    if (!offset.has_value()) return false;
    offsets_.push_back(std::move(*offset));
    return true;
  }

  const std::vector<Axis>& rows_;
  std::vector<LinearOffset> offsets_;
};

}  // namespace

void MergeRows(RowLoops* rows, arith::Analyzer* analyzer) {
  Offsets offsets(rows->rows);
  for (const Stage& loop : rows->loops) {
    if (!offsets.Add(loop)) return;
  }
  std::vector<Axis> merged;
  ffi::Map<Var, Expr> map;
  for (size_t i = rows->rows.size(); i-- > 0;) {
    const Axis& axis = rows->rows[i];
    const bool is_unit = ir::IsIntValue(axis.extent, 1) && (i > 0 || !merged.empty());
    const bool goes_on = !merged.empty() && offsets.GoOn(axis, merged.front(), analyzer);
    if (goes_on)
      merged.front().extent = analyzer->Simplify(axis.extent * merged.front().extent);
    else if (!is_unit)
      merged.insert(merged.begin(), axis);
    if (goes_on || is_unit) map.Set(axis.var, 0);
  }
  if (map.empty()) return;
  for (Axis& axis : merged) {  // what is known about the old variable's range holds no more
    const Var row("row", Int(64));
    map.Set(axis.var, row);
    axis.var = row;
  }
  rows->rows = merged;
  for (Stage& loop : rows->loops) loop = SimplifyOffsets(Substituted(loop, map), analyzer);
}

}  // namespace relaxvm::schedule::cpu
