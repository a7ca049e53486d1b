// SPDX-License-Identifier: Apache-2.0
// Memory accesses in flat form: the offset of each load and store as a linear function of the
// stage's axes. After FlattenStage every load and store has one index, the element's offset in
// memory order.
#pragma once

#include <unordered_map>
#include <vector>

#include "arith/analyzer.h"
#include "schedule/stage.h"

namespace relaxvm::schedule {

// The offset of buffer[indices] in elements (compact, last dimension fastest).
Expr FlatOffset(const Buffer& buffer, const ffi::Array<Expr>& indices);

// The stage with every access flat.
Stage FlattenStage(const Stage& stage, arith::Analyzer* analyzer);

// `e` with the indices of its loads simplified.
Expr SimplifyOffsets(const Expr& e, arith::Analyzer* analyzer);
// The same of all that a stage reads, and of where its results go.
Stage SimplifyOffsets(const Stage& stage, arith::Analyzer* analyzer);

// offset = rest + sum over axes of coeff * axis; the coefficients and `rest` use no axis.
class LinearOffset {
 public:
  // Absent when `e` is not linear in `axes`.
  static std::optional<LinearOffset> Of(const Expr& e, const std::vector<Axis>& axes);

  Expr Coeff(const Var& axis) const;  // 0 when the axis does not occur
  const Expr& rest() const { return rest_; }

 private:
  bool Add(const Expr& e, const Expr& factor,
           const std::unordered_map<const ffi::Object*, size_t>& axes);
  std::unordered_map<const ffi::Object*, Expr> coeff_;
  Expr rest_ = Expr(0);
};

// The e for which the comparison (<, <=, >, >=) of integers is e >= 0; undefined for anything else.
Expr AtLeastZero(const Expr& condition);

// Does `index` go through neighbours with `axis`?
bool WalksAlong(const Expr& index, const Axis& axis);

bool UsesAny(const Expr& e, const std::vector<Axis>& axes);
bool UsesVar(const Expr& e, const Var& var);

// Does a load of the flat stage find its elements side by side along `axis`, one of its axes?
bool ReadsAlong(const Stage& flat, const Var& axis);

// Merges neighbouring axes that every access walks as one: x[i, j] over both is one run of i.extent
// * j.extent.
void CollapseAxes(Stage* stage, arith::Analyzer* analyzer);

}  // namespace relaxvm::schedule
