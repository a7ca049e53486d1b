// SPDX-License-Identifier: Apache-2.0
// Gradients of operators that move elements; g is the gradient of the result y.
#include "ir/prim.h"
#include "ops/gradient/rule.h"

namespace relaxvm::ops {
namespace {

ffi::Any Encode(const Ints& ints) { return AttrCodec<Ints>::Encode(ints); }

Exprs PermuteDims(const GradientCall& g) {
  auto axes = g.MaybeAttr<Ints>("axes");
  if (!axes) return {g.Make("permute_dims", {g.grad}, {{"axes", nullptr}})};
  const auto rank = static_cast<int64_t>(axes->size());
  Ints back(rank);
  for (int64_t d = 0; d < rank; ++d) back[((*axes)[d] + rank) % rank] = d;
  return {g.Make("permute_dims", {g.grad}, {{"axes", Encode(back)}})};
}

// The parts again: a split at numbers, slices where a size is symbolic.
Exprs Concat(const GradientCall& g) {
  const auto* parts = g.arg(0)->ty.as<ir::TupleTypeObj>();
  RELAXVM_CHECK(parts != nullptr);
  std::vector<Dims> shapes;
  for (const Type& part : parts->fields) {
    auto dims = part.as<ir::TensorTypeObj>()->GetShape();
    if (!dims.has_value()) {
      Fail(ErrorKind::kValueError, g.call->span.Place(),
           "concat: its gradient needs the shape of every tensor, and one is unknown");
    }
    shapes.push_back(*dims);
  }
  const auto rank = static_cast<int64_t>(shapes[0].size());
  const int64_t given = g.MaybeAttr<int64_t>("axis").value_or(0);
  const int64_t axis = (given + rank) % rank;
  Ints ends;
  Expr end(int64_t{0});
  Dims bounds{end};
  for (const Dims& shape : shapes) {
    end = g.builder().context()->Simplify(end + shape[axis]);
    bounds.push_back(end);
    if (const auto* number = end.as<ir::IntImmObj>()) ends.push_back(number->value);
  }
  if (ends.size() == shapes.size()) {
    ends.pop_back();
    return {g.Make("split", {g.grad}, {{"indices_or_sections", Encode(ends)}, {"axis", given}})};
  }
  ffi::Array<Expr> slices;
  for (size_t i = 0; i < shapes.size(); ++i) {
    slices.push_back(g.Step(
        "strided_slice",
        {g.grad, ir::Tuple({Expr(axis)}), ir::Tuple({bounds[i]}), ir::Tuple({bounds[i + 1]})},
        {{"assume_inbound", true}}));
  }
  return {ir::Tuple(slices)};
}
Exprs Split(const GradientCall& g) {
  return {g.Make("concat", {g.grad}, {{"axis", g.call->attrs.Get("axis")}})};
}
Exprs Reshape(const GradientCall& g) {
  Exprs grads(g.call->args.size());
  grads[0] = g.Make("reshape", {g.grad, ir::ShapeExpr(g.Shape(0))});
  return grads;
}
Exprs ExpandDims(const GradientCall& g) {
  return {g.Make("squeeze", {g.grad}, {{"axis", g.call->attrs.Get("axis")}})};
}
Exprs BroadcastTo(const GradientCall& g) {
  return {g.Make("collapse_sum_to", {g.grad, ir::ShapeExpr(g.Shape(0))}), Expr()};
}
template <bool kUpper>
Exprs Triangle(const GradientCall& g) {
  Exprs grads(g.call->args.size());
  ffi::Array<Expr> args = g.call->args;
  args.Set(0, g.grad);
  grads[0] = g.Make(kUpper ? "triu" : "tril", args);
  return grads;
}
Exprs Take(const GradientCall& g) {
  return {g.Make("grad.take_backward", {g.grad, g.arg(0), g.arg(1)},
                 {{"axis", g.call->attrs.Get("axis")}, {"mode", g.call->attrs.Get("mode")}}),
          Expr()};
}

}  // namespace

std::vector<GradientRow> ShapeGradients() {
  return {{"permute_dims", PermuteDims},
          {"concat", Concat},
          {"split", Split},
          {"reshape", Reshape},
          {"squeeze", Reshape},
          {"flatten", Reshape},
          {"expand_dims", ExpandDims},
          {"broadcast_to", BroadcastTo},
          {"triu", Triangle<true>},
          {"tril", Triangle<false>},
          {"take", Take}};
}

}  // namespace relaxvm::ops
