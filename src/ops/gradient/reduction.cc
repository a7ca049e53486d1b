// SPDX-License-Identifier: Apache-2.0
// Gradients of reductions, scans and matrix products; g is the gradient of the result y.
#include "ir/prim.h"
#include "ops/gradient/rule.h"

namespace relaxvm::ops {
namespace {

ffi::Any Encode(const Ints& ints) { return AttrCodec<Ints>::Encode(ints); }

// -------- reductions

// g with the reduced axes as axes of extent 1, so that it broadcasts with x.
Expr Spread(const GradientCall& g, Expr value) {
  auto axes = g.MaybeAttr<Ints>("axis");
  if (!axes || axes->empty() || AttrOf<bool>(g.call, "keepdims")) return value;
  return g.Step("expand_dims", {value}, {{"axis", Encode(*axes)}});
}
Dims Reduced(const GradientCall& g) {
  const Dims shape = g.Shape(0);
  auto axes = g.MaybeAttr<Ints>("axis");
  if (!axes) return shape;
  Dims dims;
  const auto rank = static_cast<int64_t>(shape.size());
  for (int64_t axis : *axes) dims.push_back(shape[(axis + rank) % rank]);
  return dims;
}
Exprs Sum(const GradientCall& g) {
  return {g.Make("broadcast_to", {Spread(g, g.grad), ir::ShapeExpr(g.Shape(0))})};
}
Exprs Mean(const GradientCall& g) {
  Expr part = g.Step("divide", {g.grad, g.Count(Reduced(g), 0)});
  return {g.Make("broadcast_to", {Spread(g, part), ir::ShapeExpr(g.Shape(0))})};
}
// g * (2 / n * x - 2 / n / n * sum(x))
Exprs Variance(const GradientCall& g) {
  Expr spread = Spread(g, g.grad);
  double n = 1;
  bool known = true;
  for (const Expr& dim : Reduced(g)) {
    const auto* number = dim.as<ir::IntImmObj>();
    known = known && number != nullptr;
    if (known) n *= static_cast<double>(number->value);
  }
  Expr once, twice;
  if (known) {
    once = g.Number(2.0 / n);
    twice = g.Number(2.0 / n / n);
  } else {
    Expr count = g.Count(Reduced(g), 0);
    once = g.Step("divide", {g.Number(2), count});
    twice = g.Step("divide", {once, count});
  }
  Expr left = g.Step("multiply", {once, g.arg(0)});
  Expr sum = g.Step("sum", {g.arg(0)}, {{"axis", g.call->attrs.Get("axis")}, {"keepdims", true}});
  Expr slope = g.Step("subtract", {left, g.Step("multiply", {twice, sum})});
  return {g.Make("multiply", {spread, slope})};
}

// g * (x - mean(x)) / (n * y)
Exprs Std(const GradientCall& g) {
  Expr mean = g.Step("mean", {g.arg(0)}, {{"axis", g.call->attrs.Get("axis")}, {"keepdims", true}});
  Expr part = g.Step("divide", {g.grad, g.Step("multiply", {g.Count(Reduced(g), 0), g.out})});
  return {g.Make("multiply", {g.Step("subtract", {g.arg(0), mean}), Spread(g, part)})};
}
// In equal parts to all elements that are the result.
Exprs Extreme(const GradientCall& g) {
  Expr chosen = g.Step("equal", {g.arg(0), Spread(g, g.out)});
  Expr ones = g.Step("astype", {chosen}, {{"dtype", g.Tensor(0)->dtype}});
  Expr count = g.Step("sum", {ones}, {{"axis", g.call->attrs.Get("axis")}, {"keepdims", true}});
  Expr part = g.Step("divide", {Spread(g, g.grad), count});
  return {g.Make("multiply", {ones, part})};
}
// g times the product of the other elements, which are those before and those after each one; the
// reduced axes as one, the last.  No division: elements may be 0.
Exprs Prod(const GradientCall& g) {
  const Dims shape = g.Shape(0);
  const auto rank = static_cast<int64_t>(shape.size());
  auto given = g.MaybeAttr<Ints>("axis");
  std::vector<bool> reduced(rank, !given.has_value());
  for (int64_t axis : given.value_or(Ints())) reduced[(axis + rank) % rank] = true;
  Ints order, back(rank);
  Dims moved, joined;
  Expr count(int64_t{1});
  for (bool last : {false, true}) {
    for (int64_t d = 0; d < rank; ++d) {
      if (reduced[d] != last) continue;
      back[d] = static_cast<int64_t>(order.size());
      order.push_back(d);
      moved.push_back(shape[d]);
      if (last) {
        count = g.builder().context()->Simplify(count * shape[d]);
      } else {
        joined.push_back(shape[d]);
      }
    }
  }
  const auto axis = static_cast<int64_t>(joined.size());
  joined.push_back(count);
  auto reshape = [&](const Expr& e, const Dims& dims) {
    return g.Step("reshape", {e, ir::ShapeExpr(dims)});
  };
  Expr x = g.Step("permute_dims", {g.arg(0)}, {{"axes", Encode(order)}});
  x = reshape(x, joined);
  auto product_before = [&](const Expr& e) {
    return g.Step("cumprod", {e}, {{"axis", axis}, {"dtype", nullptr}, {"exclusive", true}});
  };
  auto flip = [&](const Expr& e) { return g.Step("flip", {e}, {{"axis", axis}}); };
  Expr others = g.Step("multiply", {product_before(x), flip(product_before(flip(x)))});
  others = reshape(others, moved);
  others = g.Step("permute_dims", {others}, {{"axes", Encode(back)}});
  return {g.Make("multiply", {Spread(g, g.grad), others})};
}

// -------- scans

// The sum of what comes after each element: sum(g) - cumsum(g), and g itself unless exclusive.
Exprs Cumsum(const GradientCall& g) {
  auto axis = g.MaybeAttr<int64_t>("axis");
  const ffi::Any one = axis ? Encode({*axis}) : ffi::Any(nullptr);
  const ffi::Any same = axis ? ffi::Any(*axis) : ffi::Any(nullptr);
  Expr total = g.Step("sum", {g.grad}, {{"axis", one}, {"keepdims", true}});
  Expr so_far =
      g.Step("cumsum", {g.grad}, {{"axis", same}, {"dtype", nullptr}, {"exclusive", false}});
  Expr result = g.Step("subtract", {total, so_far});
  if (!AttrOf<bool>(g.call, "exclusive")) {
    Expr grad = axis ? g.grad : g.Step("flatten", {g.grad});
    result = g.Make("add", {result, grad});
  }
  if (!axis) result = g.Make("reshape", {result, ir::ShapeExpr(g.Shape(0))});
  auto dtype = g.MaybeAttr<DLDataType>("dtype");
  if (dtype && *dtype != g.Tensor(0)->dtype) {
    result = g.Make("astype", {result}, {{"dtype", g.Tensor(0)->dtype}});
  }
  return {result};
}

// -------- matrix products

Expr Transposed(const GradientCall& g, const Expr& matrix, int64_t rank) {
  Ints axes(rank);
  for (int64_t d = 0; d < rank; ++d) axes[d] = d;
  std::swap(axes[rank - 1], axes[rank - 2]);
  return g.Step("permute_dims", {matrix}, {{"axes", Encode(axes)}});
}
// A vector on the left is a row, one on the right is a column; the result is without that axis.
//   x1' = g @ x2^T,  x2' = x1^T @ g
Exprs Matmul(const GradientCall& g) {
  const int64_t left = g.Rank(0), right = g.Rank(1);
  if (left == 1 && right == 1) {
    return {g.Make("multiply", {g.grad, g.arg(1)}), g.Make("multiply", {g.grad, g.arg(0)})};
  }
  Expr grad = g.grad;
  if (left == 1) grad = g.Step("expand_dims", {grad}, {{"axis", Encode({-2})}});
  if (right == 1) grad = g.Step("expand_dims", {grad}, {{"axis", Encode({-1})}});
  Expr second = right == 1 ? g.Step("expand_dims", {g.arg(1)}, {{"axis", Encode({0})}})
                           : Transposed(g, g.arg(1), right);
  Expr first = left == 1 ? g.Step("expand_dims", {g.arg(0)}, {{"axis", Encode({1})}})
                         : Transposed(g, g.arg(0), left);
  auto product = [&](const Expr& a, const Expr& b) {
    return g.Make("matmul", {a, b}, {{"out_dtype", nullptr}});
  };
  Expr to_second = product(first, grad);
  if (right == 1) to_second = g.Make("squeeze", {to_second}, {{"axis", Encode({-1})}});
  Expr to_first = g.Fit(product(grad, second), 0);
  return {to_first, g.Fit(to_second, 1)};
}

}  // namespace

std::vector<GradientRow> ReductionGradients() {
  return {{"sum", Sum},   {"mean", Mean},     {"variance", Variance},
          {"std", Std},   {"max", Extreme},   {"min", Extreme},
          {"prod", Prod}, {"cumsum", Cumsum}, {"matmul", Matmul}};
}

}  // namespace relaxvm::ops
