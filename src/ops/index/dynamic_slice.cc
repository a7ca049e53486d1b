// SPDX-License-Identifier: Apache-2.0
// dynamic_strided_slice, whose bounds are tensors; and the two operators it is made of:
// rvm.slice_bounds (where it begins and how many elements it takes) and rvm.dynamic_strided_slice
// (the elements, once their number is known).
#include "ops/compute.h"
#include "ops/layout_rule.h"

namespace relaxvm::ops {
namespace {

bool IsSignedInt(DLDataType t) { return relaxvm::IsInt(t); }

Type InferDynamicSlice(TypeCtx& ctx, const NoAttrs&) {
  TensorType x = ctx.Tensor(0);
  for (size_t i = 1; i < 4; ++i) {
    TensorType t = ctx.TensorOf(i, IsSignedInt, "a tensor of signed integers");
    ctx.CheckRank(i, 1);
    auto length = t->GetShape();
    if (length.has_value() && !x->IsUnknownRank() &&
        ctx.Prove(ir::NotEqual((*length)[0], Expr(x->ndim)))) {
      ctx.Error(ErrorKind::kAttribute, ctx.ArgName(i), " needs one value for each of the ", x->ndim,
                " dimensions of x, got ", DescribeExpr((*length)[0]));
    }
  }
  return ctx.Result(std::nullopt, x->ndim, x->dtype);
}

Type InferBounds(TypeCtx& ctx, const NoAttrs&) {
  for (size_t i = 0; i < 4; ++i) {
    ctx.TensorOf(i, IsSignedInt, "a tensor of signed integers");
    ctx.CheckRank(i, 1);
  }
  auto dims = ctx.Tensor(0)->GetShape();
  Type result =
      ctx.Result(dims.has_value() ? std::optional<Dims>(*dims) : std::nullopt, 1, Int(64));
  return ir::TupleType({result, result});
}

// NumPy's rules: bounds below 0 count from the end, then bounds are moved inside.
Tensors ComputeBounds(const ComputeArgs& in, const NoAttrs&) {
  auto at = [&](size_t k, const Indices& i) { return ir::Cast(Int(64), in[k](i)); };
  auto forward = [&](const Indices& i) { return ir::Greater(at(3, i), Expr(0)); };
  auto bound = [&](size_t k, const Indices& i) {
    Expr extent = at(0, i);
    Expr least = ir::Select(forward(i), Expr(0), Expr(-1));
    Expr greatest = ir::Select(forward(i), extent, extent - Expr(1));
    return ir::Max(ir::Min(WrapIndex(at(k, i), extent), greatest), least);
  };
  auto count = [&](const Indices& i) -> Expr {
    Expr begin = bound(1, i), end = bound(2, i), stride = at(3, i);
    Expr reach = ir::Select(forward(i), end - begin, begin - end);
    Expr step = ir::Max(ir::Select(forward(i), stride, Expr(0) - stride), Expr(1));
    return ir::Max(ir::FloorDiv(reach + step - Expr(1), step), Expr(0));
  };
  auto begin = [&](const Indices& i) -> Expr { return bound(1, i); };
  return {tir::Compute(in.OutShape(0), begin, "begin"),
          tir::Compute(in.OutShape(1), count, "count")};
}

Type InferElements(TypeCtx& ctx, const NoAttrs&) {
  TensorType x = ctx.Tensor(0);
  for (size_t i = 1; i < 3; ++i) {
    ctx.TensorOf(i, IsSignedInt, "a tensor of signed integers");
    ctx.CheckRank(i, 1);
  }
  if (!x->IsUnknownRank()) ctx.CheckRank(3, x->ndim);
  return ctx.Result(ctx.Shape(3), x->ndim, x->dtype);
}

Tensors ComputeElements(const ComputeArgs& in, const NoAttrs&) {
  const Tensor& x = in[0];
  auto formula = [&](const Indices& i) -> Expr {
    Indices at;
    for (int64_t d = 0; d < x.ndim(); ++d) {
      Indices k{Expr(d)};
      at.push_back(ir::Cast(Int(64), in[1](k)) + i[d] * ir::Cast(Int(64), in[2](k)));
    }
    return x(at);
  };
  return {tir::Compute(in.OutShape(), formula, "dynamic_strided_slice")};
}

Expr Decompose(ir::BlockBuilder& b, const Call& call, const NoAttrs&) {
  const auto* x = call->args[0]->ty.as<ir::TensorTypeObj>();
  if (x == nullptr || x->IsUnknownRank() || x->IsUnknownDtype()) return call;
  auto emit = [&](const char* op, ffi::Array<Expr> args) -> Expr {
    return b.Emit(MakeCall(op, std::move(args), {}, {}, call->span));
  };
  Expr extents = emit("shape_to_tensor", {emit("shape_of", {call->args[0]})});
  Expr bounds = emit("rvm.slice_bounds", {extents, call->args[1], call->args[2], call->args[3]});
  Expr begin = b.Emit(ir::TupleGetItem(bounds, 0)), count = b.Emit(ir::TupleGetItem(bounds, 1));
  Dims sizes;
  for (int64_t d = 0; d < x->ndim; ++d) {
    sizes.push_back(ir::Var("slice" + std::to_string(d), Int(64)));
  }
  b.EmitMatchCast(emit("tensor_to_shape", {count}), ir::ShapeType(sizes));
  return emit("rvm.dynamic_strided_slice",
              {call->args[0], begin, call->args[3], ir::ShapeExpr(sizes)});
}

}  // namespace

OpDef dynamic_strided_slice() {
  return Define<NoAttrs>({
      .name = "dynamic_strided_slice",
      .doc = "strided_slice with tensors for begin, end and strides, one value per dimension.",
      .args = {{"x", "The tensor."},
               {"begin", "First indices."},
               {"end", "Indices that are not reached."},
               {"strides", "Steps."}},
      .type = InferDynamicSlice,
      .decompose = Decompose,
  });
}

OpDef rvm_slice_bounds() {
  return Define<NoAttrs>({
      .name = "rvm.slice_bounds",
      .doc = "Where a slice begins along each axis, and how many elements it takes.",
      .args = {{"extents", "The tensor's shape, as a tensor."},
               {"begin", "First indices; below 0 they count from the end."},
               {"end", "Indices that are not reached."},
               {"strides", "Steps."}},
      .reference = "out = slice_bounds(extents, begin, end, strides)",
      .samples = {{{"extents: i64[6] in 0..9", "begin: i64[6]", "end: i64[6]",
                    "strides: i64[6] in 1..3"}},
                  {{"extents: i64[6] in 0..9", "begin: i64[6]", "end: i64[6]",
                    "strides: i64[6] in -3..-1"}}},
      .type = InferBounds,
      .compute = ComputeBounds,
  });
}

OpDef rvm_dynamic_strided_slice() {
  return Define<NoAttrs>({
      .name = "rvm.dynamic_strided_slice",
      .doc = "The elements begin, begin + stride ... along each axis; all of them lie inside of x.",
      .args = {{"x", "The tensor."},
               {"begin", "First indices."},
               {"strides", "Steps."},
               {"shape", "How many along each axis.", ArgKind::kShape}},
      .reference = "out = x[tuple(np.ix_(*[b + s * np.arange(n) for b, s, n in zip(begin, strides, "
                   "shape)]))]",
      .samples = {{{"x: f32[=8, =9]", "begin: i64[=2] in 0..2", "strides: i64[=2] in 1..2",
                    "shape=[3, 3]"}}},
      .type = InferElements,
      .compute = ComputeElements,
  });
}

}  // namespace relaxvm::ops
