// SPDX-License-Identifier: Apache-2.0
// collapse_sum_like and collapse_sum_to: the opposite of broadcasting, sums over what was repeated.
#include "ops/compute.h"

namespace relaxvm::ops {
namespace {

bool IsNumber(DLDataType t) { return IsFloat(t) || IsInteger(t); }

Type InferCollapse(TypeCtx& ctx, const NoAttrs&) {
  TensorType x = ctx.TensorOf(0, IsNumber, "a tensor of numbers");
  auto from = x->GetShape();
  auto to = ctx.Shape(1);
  int64_t ndim = ctx.Rank(1);
  if (!x->IsUnknownRank() && ndim > x->ndim) {
    ctx.Error(ErrorKind::kValueError, DescribeType(x), " has fewer dimensions than the target, ",
              DescribeType(ctx.type(1)));
  }
  if (from.has_value() && to) {
    size_t skip = from->size() - to->size();
    for (size_t d = 0; d < to->size(); ++d) {
      const Expr& have = (*from)[skip + d];
      const Expr& want = (*to)[d];
      if (ir::IsIntValue(want, 1) || ctx.Equal(have, want)) continue;
      // A sum over an extent that only turns out to be another one has no meaning.
      ctx.Error(ErrorKind::kValueError, DescribeType(x), " is not known to be a broadcast of ",
                DescribeDims(*to), ": ", DescribeExpr(have), " against ", DescribeExpr(want));
    }
  }
  return to ? ctx.Result(*to, x->dtype) : ctx.OfShape(1, x->dtype);
}

Tensors ComputeCollapse(const ComputeArgs& in, const NoAttrs&) {
  const Tensor& x = in[0];
  Dims out = in.OutShape();
  DLDataType dtype = in.OutDtype();
  DLDataType wide = WideDtype(dtype);
  size_t skip = x->shape.size() - out.size();
  std::vector<bool> summed;
  Dims reduced;
  for (size_t d = 0; d < x->shape.size(); ++d) {
    bool gone = d < skip || (ir::IsIntValue(out[d - skip], 1) && !ir::IsIntValue(x->shape[d], 1));
    summed.push_back(gone);
    if (gone) reduced.push_back(x->shape[d]);
  }
  auto at = [&](const Indices& i, const Indices& r) {
    Indices index;
    size_t next = 0;
    for (size_t d = 0; d < summed.size(); ++d) {
      index.push_back(summed[d] ? r[next++] : i[d - skip]);
    }
    return index;
  };
  if (reduced.empty()) {
    return {tir::Compute(out, [&](const Indices& i) { return x(at(i, {})); }, "collapse_sum")};
  }
  auto formula = [&](const Indices& i, const Indices& r) { return Widen(x(at(i, r))); };
  Tensor sum = tir::Reduce(out, reduced, tir::SumReducer(wide), formula, "collapse_sum");
  if (wide == dtype) return {sum};
  return {tir::Map(sum, [&](const Expr& e) { return ir::Cast(dtype, e); }, "cast")};
}

}  // namespace

OpDef collapse_sum_like() {
  return Define<NoAttrs>({
      .name = "collapse_sum_like",
      .doc = "Sums data to the shape of another tensor that broadcasts to it.",
      .args = {{"data", "The tensor."}, {"collapse_target", "The tensor whose shape is taken."}},
      .reference = "out = collapse_sum(data, collapse_target.shape)",
      .samples = {{{"data: f32[2, 3, 4]", "collapse_target: f32[3, 1]"}}},
      .type = InferCollapse,
      .compute = ComputeCollapse,
  });
}

OpDef collapse_sum_to() {
  return Define<NoAttrs>({
      .name = "collapse_sum_to",
      .doc = "Sums data to a shape that broadcasts to its own.",
      .args = {{"data", "The tensor."}, {"shape", "The shape.", ArgKind::kShape}},
      .reference = "out = collapse_sum(data, shape)",
      .samples = {{{"data: f32[2, 3, 4]", "shape=[3, 1]"}}, {{"data: f32[2, 3]", "shape=[2, 3]"}}},
      .type = InferCollapse,
      .compute = ComputeCollapse,
  });
}

}  // namespace relaxvm::ops
