// SPDX-License-Identifier: Apache-2.0
// What convolutions, pooling and resizing share: layouts, attributes for one or all axes, padding.
#pragma once

#include "ops/compute.h"

namespace relaxvm::ops {

// An order of dimensions: each letter once.  The spatial ones are the last of D, H, W.
class Layout {
 public:
  // `letters`: what must appear ("NCHW").  An error names `attr`.
  Layout(const TypeCtx& ctx, const std::string& text, const std::string& letters, const char* attr);
  explicit Layout(std::string checked) : text_(std::move(checked)) {}

  size_t At(char letter) const { return text_.find(letter); }
  const std::string& text() const { return text_; }
  size_t size() const { return text_.size(); }

  // Values for letters, in this layout's order.
  template <typename Value>
  ffi::Array<Expr> Order(const Value& value_of) const {
    ffi::Array<Expr> result;
    for (char letter : text_) result.push_back(value_of(letter));
    return result;
  }

 private:
  std::string text_;
};

// "W", "HW" or "DHW".
std::string SpatialLetters(size_t count);

// One value becomes `count` values.
void SpreadTo(Ints& values, size_t count);
// Padding of 1 (all sides), `count` (both sides of each axis) or 2 * count values (begins, then
// ends) becomes the last form.
void SpreadPadding(Ints& values, size_t count);

// Errors unless `values` are `count` integers of at least `least`.
void CheckSpatial(const TypeCtx& ctx, const char* attr, const Ints& values, size_t count,
                  int64_t least);

// How much is added before and after each dimension.
struct PadAmounts {
  std::vector<Expr> before, after;
  bool IsZero() const;
};
// One stage that surrounds `x` with `value`; `x` itself when nothing is added.
Tensor PadStage(const Tensor& x, const PadAmounts& amounts, const Expr& value);

}  // namespace relaxvm::ops
