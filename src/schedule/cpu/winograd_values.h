// SPDX-License-Identifier: Apache-2.0
// The formulas of the stages of Winograd's form (winograd.h), as they are made and found again.
#pragma once

#include <functional>

#include "schedule/cpu/winograd.h"
#include "tir/tensor.h"

namespace relaxvm::schedule::cpu {

using WinogradLoad = std::function<Expr(const tir::Indices&)>;

// Where loads of input and weights stand; indices begin with those of the point, then comes the
// image, in volumes the layer.
//   i: a, b, n, [z,] y, x, channel; r: the place in the input tile
Expr WinogradInput(const WinogradForm& form, const WinogradLoad& data,
                   const ffi::Array<Expr>& shape, const tir::Indices& i, const tir::Indices& r);
//   i: a, b, n, [z,] y, x, filter; r: [layer of the kernel,] channel
Expr WinogradProduct(const WinogradForm& form, const WinogradLoad& input,
                     const WinogradLoad& weight, const tir::Indices& i, const tir::Indices& r);
//   i: n, [z,] h, w, filter; r: a, b
Expr WinogradOutput(const WinogradForm& form, const WinogradLoad& product, const tir::Indices& i,
                    const tir::Indices& r);
// Of sums, what the results are.
Expr WinogradResult(const WinogradForm& form, const Expr& sum);
// The transform at point a, b of the weights' elements, which `weight` gives at [h, w].
Expr WinogradWeight(const WinogradForm& form, const WinogradLoad& weight, const Expr& a,
                    const Expr& b);

}  // namespace relaxvm::schedule::cpu
