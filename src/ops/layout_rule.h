// SPDX-License-Identifier: Apache-2.0
// How an operator takes tensors whose axes were permuted (passes/layout): part of its record.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace relaxvm::ops {

struct LayoutRule {
  enum class Kind : uint8_t {
    kElementwise,  // every tensor argument takes the same permutation (broadcast from the right),
                   // and so does the result
    kAxes,  // the attributes in `axis_attrs` name axes of the first argument, or of each field of a
            // tuple
    kReduce,  // like kAxes; the named axes disappear unless attribute "keepdims" is true; no axis
              // means all
    kImage,   // the attributes "layout" and "out_layout" (or "data_layout") describe the first
              // argument's axes; what stands in `axis_attrs` are the layouts there are (none: all)
    kConvolution,  // like kImage, with "kernel_layout" for the second argument: wanted by name,
                   // never merely followed
    kFirst,        // like kAxes, of the first argument and the first result only; others stay
    kAllAxes,      // like kAxes, and every tensor argument takes the permutation
    kPermute,      // the attribute says where each axis of the result comes from
    kExpand,       // the attribute names new axes of the result
    kSqueeze,      // the attribute names axes that disappear; None is not followed
    kTile,         // the attribute has a number for each axis, the last ones when there are fewer
    kPad,          // the attribute has two numbers for each axis
    kShapes,       // the shapes among its arguments have a number for each axis
    kReshape,      // the second argument is a shape; groups of axes become others
    kSlice,        // the second argument is a tuple that names axes
    kEinsum,       // the attribute has letters for the axes of each field of the first argument
  };
  Kind kind;
  std::vector<std::string> axis_attrs = {};
};

inline std::shared_ptr<const LayoutRule> ElementwiseLayout() {
  static const auto kRule =
      std::make_shared<const LayoutRule>(LayoutRule{LayoutRule::Kind::kElementwise});
  return kRule;
}
inline std::shared_ptr<const LayoutRule> AxesLayout(std::vector<std::string> axis_attrs) {
  return std::make_shared<const LayoutRule>(
      LayoutRule{LayoutRule::Kind::kAxes, std::move(axis_attrs)});
}
inline std::shared_ptr<const LayoutRule> ReduceLayout(std::string axis_attr) {
  return std::make_shared<const LayoutRule>(
      LayoutRule{LayoutRule::Kind::kReduce, {std::move(axis_attr)}});
}
// Another kind, with the attribute that it reads (none for kSlice, kShapes, kReshape).
inline std::shared_ptr<const LayoutRule> LayoutOf(LayoutRule::Kind kind, std::string attr = "") {
  return std::make_shared<const LayoutRule>(LayoutRule{kind, {std::move(attr)}});
}
// The named attributes of the first argument; the other arguments stay.
inline std::shared_ptr<const LayoutRule> FirstLayout(std::vector<std::string> axis_attrs) {
  return std::make_shared<const LayoutRule>(
      LayoutRule{LayoutRule::Kind::kFirst, std::move(axis_attrs)});
}
inline std::shared_ptr<const LayoutRule> ImageLayout() {
  static const auto kRule =
      std::make_shared<const LayoutRule>(LayoutRule{LayoutRule::Kind::kImage});
  return kRule;
}
inline std::shared_ptr<const LayoutRule> ImageLayout(std::vector<std::string> layouts) {
  return std::make_shared<const LayoutRule>(
      LayoutRule{LayoutRule::Kind::kImage, std::move(layouts)});
}
inline std::shared_ptr<const LayoutRule> ConvolutionLayout() {
  static const auto kRule =
      std::make_shared<const LayoutRule>(LayoutRule{LayoutRule::Kind::kConvolution});
  return kRule;
}

}  // namespace relaxvm::ops
