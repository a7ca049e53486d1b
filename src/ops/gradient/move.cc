// SPDX-License-Identifier: Apache-2.0
// Gradients of operators that take, repeat and pad elements; g is the gradient of the result y.
#include <algorithm>

#include "ir/prim.h"
#include "ops/gradient/rule.h"

namespace relaxvm::ops {
namespace {

ffi::Any Encode(const Ints& ints) { return AttrCodec<Ints>::Encode(ints); }

Expr Reshape(const GradientCall& g, const Expr& e, const Dims& dims) {
  return g.Step("reshape", {e, ir::ShapeExpr(dims)});
}
Expr Zeros(const GradientCall& g, const Dims& dims) {
  return g.Step("zeros", {ir::ShapeExpr(dims)}, {{"dtype", g.Tensor(0)->dtype}});
}
int64_t AxisOf(const GradientCall& g, int64_t rank, int64_t otherwise = 0) {
  return (g.MaybeAttr<int64_t>("axis").value_or(otherwise) + rank) % rank;
}
[[noreturn]] void Reject(const GradientCall& g, const char* why) {
  Fail(ErrorKind::kValueError, g.call->span.Place(), ir::CalledOp(g.call.get())->name, ": ", why);
}

// -------- slices

struct Slice {
  int64_t axis;
  Expr begin;
  int64_t stride;
};

std::vector<Slice> SlicesOf(const GradientCall& g) {
  auto numbers = [&](size_t i) { return g.arg(i).as<ir::TupleObj>()->fields; };
  const ffi::Array<Expr> axes = numbers(1), begin = numbers(2);
  std::vector<Slice> slices;
  for (size_t k = 0; k < axes.size(); ++k) {
    const int64_t rank = g.Rank(0);
    Slice s{(*ir::AsInt(axes[k]) + rank) % rank, begin[k], 1};
    if (g.call->args.size() > 4) {
      auto stride = ir::AsInt(numbers(4)[k]);
      if (!stride) Reject(g, "its gradient needs strides that are numbers");
      s.stride = *stride;
    }
    slices.push_back(s);
  }
  return slices;
}

// The elements of g along an axis back in their places of an axis of `extent` elements: those that
// a stride left out between them and those around them are 0.
Expr PlaceAlong(const GradientCall& g, Expr grad, const Slice& s, int64_t extent, int64_t count) {
  const auto shape = grad->ty.as<ir::TensorTypeObj>()->GetShape().value();
  const auto rank = static_cast<int64_t>(shape.size());
  int64_t begin = *ir::AsInt(s.begin), step = s.stride;
  if (begin < 0) begin += extent;
  begin = std::clamp<int64_t>(begin, 0, step > 0 ? extent : extent - 1);
  if (step < 0) {
    grad = g.Step("flip", {grad}, {{"axis", s.axis}});
    begin += (count - 1) * step;
    step = -step;
  }
  if (step > 1) {
    Dims split, joined;
    Ints between(2 * (rank + 1), 0);
    for (int64_t d = 0; d < rank; ++d) {
      split.push_back(shape[d]);
      if (d == s.axis) split.push_back(Expr(int64_t{1}));
      joined.push_back(d == s.axis ? Expr(count * step) : shape[d]);
    }
    between[2 * (s.axis + 1) + 1] = step - 1;
    grad = g.Step("nn.pad", {Reshape(g, grad, split)}, {{"pad_width", Encode(between)}});
    grad = Reshape(g, grad, joined);
  }
  Ints around(2 * rank, 0);
  around[2 * s.axis] = begin;
  around[2 * s.axis + 1] = extent - begin - count * step;
  return g.Step("nn.pad", {grad}, {{"pad_width", Encode(around)}});
}

// The same of an axis whose extent only the running program knows.
Expr PlaceBetweenZeros(const GradientCall& g, const Expr& grad, const Slice& s,
                       const Expr& extent) {
  Dims shape = grad->ty.as<ir::TensorTypeObj>()->GetShape().value();
  auto begin = ir::AsInt(s.begin);
  if (s.stride != 1 || (begin && *begin < 0)) {
    Reject(g, "its gradient along a symbolic axis needs stride 1 and a begin that is not negative");
  }
  ir::TypeContext* facts = g.builder().context();
  Expr rest = facts->Simplify(extent - s.begin - shape[s.axis]);
  ffi::Array<Expr> parts;
  auto add_zeros = [&](const Expr& count) {
    if (facts->ProveEqual(count, Expr(int64_t{0}))) return;
    shape.Set(s.axis, count);
    parts.push_back(Zeros(g, shape));
  };
  add_zeros(s.begin);
  parts.push_back(grad);
  add_zeros(rest);
  if (parts.size() == 1) return grad;
  return g.Step("concat", {ir::Tuple(parts)}, {{"axis", s.axis}});
}

Exprs StridedSlice(const GradientCall& g) {
  const Dims shape = g.Shape(0);
  Expr grad = g.grad;
  for (const Slice& s : SlicesOf(g)) {
    const Dims given = grad->ty.as<ir::TensorTypeObj>()->GetShape().value();
    auto extent = ir::AsInt(shape[s.axis]), count = ir::AsInt(given[s.axis]);
    const bool known = extent && count && ir::AsInt(s.begin);
    grad = known ? PlaceAlong(g, grad, s, *extent, *count)
                 : PlaceBetweenZeros(g, grad, s, shape[s.axis]);
  }
  Exprs grads(g.call->args.size());
  grads[0] = grad;
  return grads;
}

// A constant border is cut off again.
Exprs Pad(const GradientCall& g) {
  if (AttrOf<std::string>(g.call, "pad_mode") != "constant") {
    Reject(g, "a gradient is there for pad_mode 'constant'");
  }
  Ints widths = AttrOf<Ints>(g.call, "pad_width");
  for (int64_t& width : widths) width = -width;
  return {g.Make("nn.pad", {g.grad}, {{"pad_width", Encode(widths)}})};
}

// -------- repeated elements

Exprs Flip(const GradientCall& g) {
  return {g.Make("flip", {g.grad}, {{"axis", g.call->attrs.Get("axis")}})};
}

// [r0 * d0, r1 * d1, ...] is summed as [r0, d0, r1, d1, ...].
Exprs Tile(const GradientCall& g) {
  const Ints repeats = AttrOf<Ints>(g.call, "repeats");
  const Dims shape = g.Shape(0);
  const size_t rank = std::max(repeats.size(), shape.size());
  Dims split;
  Ints over;
  for (size_t d = 0; d < rank; ++d) {
    const size_t r = d + repeats.size() - rank, s = d + shape.size() - rank;
    over.push_back(static_cast<int64_t>(split.size()));
    split.push_back(Expr(d + repeats.size() >= rank ? repeats[r] : int64_t{1}));
    split.push_back(d + shape.size() >= rank ? shape[s] : Expr(int64_t{1}));
  }
  Expr sum =
      g.Step("sum", {Reshape(g, g.grad, split)}, {{"axis", Encode(over)}, {"keepdims", false}});
  return {g.Make("reshape", {sum, ir::ShapeExpr(shape)})};
}

// Each element's copies stand beside each other.
Exprs Repeat(const GradientCall& g) {
  const Expr copies(AttrOf<int64_t>(g.call, "repeats"));
  const Dims shape = g.Shape(0);
  const auto rank = static_cast<int64_t>(shape.size());
  auto given = g.MaybeAttr<int64_t>("axis");
  const int64_t axis = given ? (*given + rank) % rank : rank - 1;
  Dims split;
  for (int64_t d = 0; d < rank; ++d) {
    split.push_back(shape[d]);
    if (d == axis) split.push_back(copies);
  }
  if (rank == 0) split.push_back(copies);
  return {g.Make("sum", {Reshape(g, g.grad, split)},
                 {{"axis", Encode({axis + 1})}, {"keepdims", false}})};
}

Exprs Stack(const GradientCall& g) {
  const auto* parts = g.arg(0)->ty.as<ir::TupleTypeObj>();
  RELAXVM_CHECK(parts != nullptr);
  const int64_t rank = g.grad->ty.as<ir::TensorTypeObj>()->ndim;
  const int64_t axis = AxisOf(g, rank);
  const auto count = static_cast<int64_t>(parts->fields.size());
  Expr split = g.Step("split", {g.grad}, {{"indices_or_sections", count}, {"axis", axis}});
  ffi::Array<Expr> grads;
  for (int64_t i = 0; i < count; ++i) {
    grads.push_back(
        g.Step("squeeze", {g.Step(ir::TupleGetItem(split, i))}, {{"axis", Encode({axis})}}));
  }
  return {ir::Tuple(grads)};
}

// -------- elements by index, sums over what was broadcast

Exprs GatherElements(const GradientCall& g) {
  return {g.Make("scatter_elements", {Zeros(g, g.Shape(0)), g.arg(1), g.grad},
                 {{"axis", g.call->attrs.Get("axis")}, {"reduction", "add"}}),
          Expr()};
}
Exprs CollapseSum(const GradientCall& g) {
  return {g.Make("broadcast_to", {g.grad, ir::ShapeExpr(g.Shape(0))}), Expr()};
}
Exprs BatchFlatten(const GradientCall& g) {
  return {g.Make("reshape", {g.grad, ir::ShapeExpr(g.Shape(0))})};
}
// x1' = g @ x2, x2' = x1 @ g
Exprs Outer(const GradientCall& g) {
  const ffi::Map<ffi::String, ffi::Any> plain{{"out_dtype", nullptr}};
  return {g.Make("matmul", {g.grad, g.arg(1)}, plain), g.Make("matmul", {g.arg(0), g.grad}, plain)};
}

}  // namespace

std::vector<GradientRow> MoveGradients() {
  return {{"strided_slice", StridedSlice},
          {"nn.pad", Pad},
          {"flip", Flip},
          {"tile", Tile},
          {"repeat", Repeat},
          {"stack", Stack},
          {"gather_elements", GatherElements},
          {"collapse_sum_to", CollapseSum},
          {"collapse_sum_like", CollapseSum},
          {"nn.batch_flatten", BatchFlatten},
          {"outer", Outer}};
}

}  // namespace relaxvm::ops
