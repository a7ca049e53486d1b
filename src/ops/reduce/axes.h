// SPDX-License-Identifier: Apache-2.0
// Which axes a reduction takes away, shared by all reductions.
#pragma once

#include "ops/compute.h"

namespace relaxvm::ops {

// The type of reducing `x` over `axes` (absent: all).
Type InferReduced(TypeCtx& ctx, const TensorType& x, const std::optional<Ints>& axes, bool keepdims,
                  DLDataType dtype);

// The split of a tensor's axes by a reduction whose attributes the type rule has checked.
class ReducedAxes {
 public:
  ReducedAxes(const Dims& shape, const std::optional<Ints>& axes, bool keepdims);

  const Dims& kept() const { return kept_; }        // shape of the result
  const Dims& extents() const { return extents_; }  // of the reduced axes
  Expr Count() const { return ProductOf(extents_); }
  // Index into the tensor from one into the result and one into the reduced axes.
  Indices At(const Indices& i, const Indices& r) const;
  // Index into the result from one into the tensor.
  Indices Kept(const Indices& i) const;

 private:
  std::vector<bool> reduced_;
  bool keepdims_;
  Dims kept_, extents_;
};

// One reduction block; formula gets the tensor's index.
Tensor ReduceOver(const ReducedAxes& axes, const tir::Reducer& reducer,
                  const std::function<Expr(const Indices&)>& formula, const std::string& name);

// The greatest (or least) element along axes, in the wide dtype, and the int64 index of the first
// one that has its value; a NaN is greater and less than everything.
struct Extreme {
  Tensor value, index;
};
Extreme ExtremeOf(const Tensor& x, const ReducedAxes& axes, bool greatest);

}  // namespace relaxvm::ops
