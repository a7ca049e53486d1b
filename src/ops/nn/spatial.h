// SPDX-License-Identifier: Apache-2.0
// What convolutions, pooling and resizing share: layouts, attributes for one or all axes, padding.
#pragma once

#include "ops/compute.h"

namespace relaxvm::ops {

// An order of dimensions: each letter once.  The spatial ones are the last of D, H, W.  A channel
// may be blocked: in NCHW16c, element (C, c) of the two dimensions is channel 16 * C + c.
class Layout {
 public:
  // `letters`: what must appear ("NCHW").  An error names `attr`.
  Layout(const TypeCtx& ctx, const std::string& text, const std::string& letters, const char* attr);
  explicit Layout(const std::string& checked) { Parse(checked); }

  // The dimension of a letter; the outer one of a blocked letter.
  size_t At(char letter) const { return letters_.find(letter); }
  size_t size() const { return letters_.size(); }

  // Of a letter, blocked or not, in a tensor of this layout.
  Expr Extent(const ffi::Array<Expr>& shape, char letter) const;
  Expr Index(const ffi::Array<Expr>& indices, char letter) const;
  // The other way: indices and extents of the dimensions from those of letters.
  template <typename Value>
  ffi::Array<Expr> Order(const Value& value_of) const {
    return Split(value_of, ir::FloorMod);
  }
  template <typename Value>
  ffi::Array<Expr> Shape(const Value& value_of) const {
    return Split(value_of, [](const Expr&, const Expr& block) { return block; });
  }

 private:
  bool Parse(const std::string& text);
  // The block of a dimension's letter; 0 for none.
  int64_t BlockOf(char letter) const;
  template <typename Value, typename Inner>
  ffi::Array<Expr> Split(const Value& value_of, const Inner& inner) const {
    ffi::Array<Expr> result;
    for (char letter : letters_) {
      const bool is_inner = letter >= 'a';
      const char outer = is_inner ? static_cast<char>(letter - 'a' + 'A') : letter;
      Expr value = value_of(outer);
      if (int64_t block = BlockOf(outer); block != 0) {
        value = is_inner ? inner(value, Expr(block)) : ir::FloorDiv(value, Expr(block));
      }
      result.push_back(value);
    }
    return result;
  }

  std::string letters_;                           // one a dimension; lower case: inside of a block
  std::vector<std::pair<char, int64_t>> blocks_;  // letter and size
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

// Errors when a call is made, unless `values` are `count`; unless `groups` is positive.
void RequireCount(const char* op, const char* attr, const Ints& values, size_t count);
void RequireGroups(const char* op, int64_t groups);

// Errors unless argument `i` is a shape of `count` values.
void CheckSize(const TypeCtx& ctx, size_t i, int64_t count);

// How much is added before and after each dimension.
struct PadAmounts {
  std::vector<Expr> before, after;
  bool IsZero() const;
};
// One stage that surrounds `x` with `value`; `x` itself when nothing is added.
Tensor PadStage(const Tensor& x, const PadAmounts& amounts, const Expr& value);

}  // namespace relaxvm::ops
