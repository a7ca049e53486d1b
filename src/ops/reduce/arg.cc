// SPDX-License-Identifier: Apache-2.0
// argmax and argmin: the index of the first greatest or least element; a NaN is greater and less
// than everything.
#include "ops/reduce/axes.h"

namespace relaxvm::ops {
namespace {

struct ArgAttrs {
  std::optional<int64_t> axis;
  bool keepdims = false;
};

std::optional<Ints> AxisList(const ArgAttrs& a) {
  if (!a.axis) return std::nullopt;
  return Ints{*a.axis};
}

bool IsNumber(DLDataType t) { return IsFloat(t) || IsInteger(t); }

Type InferArg(TypeCtx& ctx, const ArgAttrs& a) {
  TensorType x = ctx.TensorOf(0, IsNumber, "a tensor of numbers");
  if (a.axis && x->IsUnknownRank()) return ctx.Result(std::nullopt, -1, Int(64));
  return InferReduced(ctx, x, AxisList(a), a.keepdims, Int(64));
}

// Combines (index, value) pairs in any order.
tir::Reducer ArgReducer(DLDataType dtype, bool greatest) {
  ir::Var li("li", Int(64)), ri("ri", Int(64)), lv("lv", dtype), rv("rv", dtype);
  auto is_nan = [](const Expr& v) {
    return IsFloat(v.dtype()) ? ir::CallIntrin(Intrin::kIsNan, {v}) : ir::BoolImm(false);
  };
  Expr better = greatest ? ir::Greater(rv, lv) : ir::Less(rv, lv);
  Expr same = ir::Or(ir::Equal(rv, lv), ir::And(is_nan(rv), is_nan(lv)));
  better = ir::Or(better, ir::And(is_nan(rv), ir::Not(is_nan(lv))));
  Expr take = ir::Or(better, ir::And(same, ir::Less(ri, li)));
  return tir::Reducer(
      {li, lv}, {ri, rv}, {ir::Select(take, ri, li), ir::Select(take, rv, lv)},
      {ir::MaxValue(Int(64)), greatest ? ir::MinValue(dtype) : ir::MaxValue(dtype)});
}

Tensors ComputeArg(const ComputeArgs& in, const ArgAttrs& a, bool greatest) {
  const Tensor& x = in[0];
  ReducedAxes axes(x->shape, AxisList(a), a.keepdims);
  auto formula = [&](const Indices& i, const Indices& r) -> std::vector<Expr> {
    return {Flatten(r, axes.extents()), Widen(x(axes.At(i, r)))};
  };
  const char* name = greatest ? "argmax" : "argmin";
  return {tir::MultiReduce(axes.kept(), axes.extents(), ArgReducer(WideDtype(x.dtype()), greatest),
                           formula, {name, "value"})[0]};
}

OpDef ArgOp(const char* name, const char* doc, const char* reference, bool greatest) {
  return Define<ArgAttrs>({
      .name = name,
      .doc = doc,
      .args = {{"x", "The tensor."}},
      .attrs = {{"axis", &ArgAttrs::axis, "The axis; None: the index counts all elements."},
                {"keepdims", &ArgAttrs::keepdims, "Keep the reduced axes, with extent 1."}},
      .reference = reference,
      .samples = {{{"x: f32[4, 8]"}},
                  {{"x: f32[2, 3, 5]", "axis=1"}},
                  {{"x: f32[2, 3, 5]", "axis=-1", "keepdims=True"}}},
      .type = InferArg,
      .compute = [greatest](const ComputeArgs& in,
                            const ArgAttrs& a) { return ComputeArg(in, a, greatest); },
  });
}

}  // namespace

OpDef argmax() {
  return ArgOp("argmax", "The index of the first greatest element.",
               "out = np.argmax(x, axis=axis, keepdims=keepdims)", true);
}

OpDef argmin() {
  return ArgOp("argmin", "The index of the first least element.",
               "out = np.argmin(x, axis=axis, keepdims=keepdims)", false);
}

}  // namespace relaxvm::ops
