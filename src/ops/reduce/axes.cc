// SPDX-License-Identifier: Apache-2.0
// Which axes a reduction takes away; see the header.
#include "ops/reduce/axes.h"

#include <algorithm>

namespace relaxvm::ops {

Type InferReduced(TypeCtx& ctx, const TensorType& x, const std::optional<Ints>& axes, bool keepdims,
                  DLDataType dtype) {
  if (x->IsUnknownRank()) {
    if (!axes && !keepdims) return ctx.Result(Dims(), dtype);
    return ctx.Result(std::nullopt, -1, dtype);
  }
  Ints reduced;
  if (axes) {
    reduced = ctx.Axes(*axes, x->ndim);
  } else {
    for (int64_t d = 0; d < x->ndim; ++d) reduced.push_back(d);
  }
  auto gone = [&](int64_t d) {
    return std::find(reduced.begin(), reduced.end(), d) != reduced.end();
  };
  auto dims = x->GetShape();
  if (!dims.has_value()) {
    int64_t left = x->ndim - static_cast<int64_t>(reduced.size());
    if (left == 0) {
      Dims ones;
      for (int64_t d = 0; keepdims && d < x->ndim; ++d) ones.push_back(Expr(1));
      return ctx.Result(ones, dtype);
    }
    return ctx.Result(std::nullopt, keepdims ? x->ndim : left, dtype);
  }
  Dims kept;
  for (int64_t d = 0; d < x->ndim; ++d) {
    if (!gone(d)) {
      kept.push_back((*dims)[d]);
    } else if (keepdims) {
      kept.push_back(Expr(1));
    }
  }
  return ctx.Result(kept, dtype);
}

ReducedAxes::ReducedAxes(const Dims& shape, const std::optional<Ints>& axes, bool keepdims)
    : reduced_(shape.size(), !axes.has_value()), keepdims_(keepdims) {
  if (axes) {
    for (int64_t a : *axes) reduced_.at(a < 0 ? a + shape.size() : a) = true;
  }
  for (size_t d = 0; d < shape.size(); ++d) {
    if (!reduced_[d]) {
      kept_.push_back(shape[d]);
      continue;
    }
    extents_.push_back(shape[d]);
    if (keepdims) kept_.push_back(Expr(1));
  }
}

Indices ReducedAxes::At(const Indices& i, const Indices& r) const {
  Indices at;
  size_t next_kept = 0, next_reduced = 0;
  for (bool reduced : reduced_) {
    if (reduced) {
      at.push_back(r[next_reduced++]);
      if (keepdims_) ++next_kept;
    } else {
      at.push_back(i[next_kept++]);
    }
  }
  return at;
}

Indices ReducedAxes::Kept(const Indices& i) const {
  Indices at;
  for (size_t d = 0; d < reduced_.size(); ++d) {
    if (!reduced_[d]) {
      at.push_back(i[d]);
    } else if (keepdims_) {
      at.push_back(Expr(0));
    }
  }
  return at;
}

Tensor ReduceOver(const ReducedAxes& axes, const tir::Reducer& reducer,
                  const std::function<Expr(const Indices&)>& formula, const std::string& name) {
  auto body = [&](const Indices& i, const Indices& r) { return formula(axes.At(i, r)); };
  return tir::Reduce(axes.kept(), axes.extents(), reducer, body, name);
}

}  // namespace relaxvm::ops
