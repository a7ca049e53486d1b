// SPDX-License-Identifier: Apache-2.0
// What convolutions, pooling and resizing share; see the header.
#include "ops/nn/spatial.h"

#include <algorithm>

namespace relaxvm::ops {

Layout::Layout(const TypeCtx& ctx, const std::string& text, const std::string& letters,
               const char* attr)
    : text_(text) {
  std::string sorted = text, wanted = letters;
  std::sort(sorted.begin(), sorted.end());
  std::sort(wanted.begin(), wanted.end());
  if (sorted != wanted) {
    ctx.Error(ErrorKind::kValueError, attr, " must be an order of the letters ", letters, ", got '",
              text, "'");
  }
}

std::string SpatialLetters(size_t count) { return std::string("DHW").substr(3 - count); }

void SpreadTo(Ints& values, size_t count) {
  if (values.size() == 1) values.assign(count, values[0]);
}

void SpreadPadding(Ints& values, size_t count) {
  if (values.size() == 1) values.assign(2 * count, values[0]);
  if (values.size() == count) {
    Ints ends = values;
    values.insert(values.end(), ends.begin(), ends.end());
  }
}

void CheckSpatial(const TypeCtx& ctx, const char* attr, const Ints& values, size_t count,
                  int64_t least) {
  if (values.size() != count) {
    ctx.Error(ErrorKind::kValueError, attr, " needs ", count, " values, got ", values.size());
  }
  for (int64_t v : values) {
    if (v < least) {
      ctx.Error(ErrorKind::kValueError, attr, " must be at least ", least, ", got ", v);
    }
  }
}

bool PadAmounts::IsZero() const {
  auto zero = [](const Expr& e) { return ir::IsIntValue(e, 0); };
  return std::all_of(before.begin(), before.end(), zero) &&
         std::all_of(after.begin(), after.end(), zero);
}

Tensor PadStage(const Tensor& x, const PadAmounts& amounts, const Expr& value) {
  if (amounts.IsZero()) return x;
  Dims shape;
  for (size_t d = 0; d < x->shape.size(); ++d) {
    shape.push_back(amounts.before[d] + x->shape[d] + amounts.after[d]);
  }
  auto formula = [&](const Indices& i) {
    Indices at;
    Expr inside = ir::BoolImm(true);
    for (size_t d = 0; d < x->shape.size(); ++d) {
      at.push_back(i[d] - amounts.before[d]);
      if (!ir::IsIntValue(amounts.before[d], 0)) {
        inside = ir::And(inside, ir::GreaterEqual(i[d], amounts.before[d]));
      }
      if (!ir::IsIntValue(amounts.after[d], 0)) {
        inside = ir::And(inside, ir::Less(i[d], amounts.before[d] + x->shape[d]));
      }
    }
    return ir::IfThenElse(inside, x(at), value);
  };
  return tir::Compute(shape, formula, "pad");
}

}  // namespace relaxvm::ops
