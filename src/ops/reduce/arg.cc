// SPDX-License-Identifier: Apache-2.0
// argmax and argmin: the index of the first greatest or least element; a NaN is greater and less
// than everything.
#include "ops/layout_rule.h"
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

Tensors ComputeArg(const ComputeArgs& in, const ArgAttrs& a, bool greatest) {
  const Tensor& x = in[0];
  return {ExtremeOf(x, ReducedAxes(x->shape, AxisList(a), a.keepdims), greatest).index};
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
      .layout = ReduceLayout("axis"),
  });
}

}  // namespace

// First the value, then the first index that has it: both run along vectors.
Extreme ExtremeOf(const Tensor& x, const ReducedAxes& axes, bool greatest) {
  DLDataType wide = WideDtype(x.dtype());
  Tensor best = ReduceOver(
      axes, greatest ? tir::MaxReducer(wide) : tir::MinReducer(wide),
      [&](const Indices& i) { return Widen(x(i)); }, "best");
  auto index_if_best = [&](const Indices& i, const Indices& r) {
    Expr value = Widen(x(axes.At(i, r))), wanted = best(i);
    Expr same = ir::Equal(value, wanted);
    if (IsFloat(wide)) {
      same = ir::Or(same, ir::And(ir::CallIntrin(Intrin::kIsNan, {value}),
                                  ir::CallIntrin(Intrin::kIsNan, {wanted})));
    }
    return ir::Select(same, Flatten(r, axes.extents()), ir::MaxValue(Int(64)));
  };
  return {best, tir::Reduce(axes.kept(), axes.extents(), tir::MinReducer(Int(64)), index_if_best,
                            greatest ? "argmax" : "argmin")};
}

OpDef argmax() {
  return ArgOp("argmax", "The index of the first greatest element.",
               "out = np.argmax(x, axis=axis, keepdims=keepdims)", true);
}

OpDef argmin() {
  return ArgOp("argmin", "The index of the first least element.",
               "out = np.argmin(x, axis=axis, keepdims=keepdims)", false);
}

}  // namespace relaxvm::ops
