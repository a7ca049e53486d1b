// SPDX-License-Identifier: Apache-2.0
// quantize and dequantize: between numbers and scaled integers, with a scale and a zero point for
// the tensor or for each element of an axis.
#include <cmath>

#include "ops/compute.h"
#include "ops/layout_rule.h"

namespace relaxvm::ops {
namespace {

struct Quantize {
  DLDataType out_dtype = Int(8);
  int64_t axis = -1;
};
struct Dequantize {
  DLDataType out_dtype = Float(32);
  int64_t axis = -1;
};

bool IsNumber(DLDataType t) { return IsFloat(t) || IsInteger(t); }

// scale and zero_point: without dimensions, or one value for each element of the axis.
void CheckParameters(const TypeCtx& ctx, const TensorType& x, int64_t axis) {
  ctx.Float(1);
  ctx.TensorOf(2, IsNumber, "a tensor of numbers");
  auto dims = x->GetShape();
  if (!x->IsUnknownRank() && x->ndim > 0) axis = ctx.Axis(axis, x->ndim);
  for (size_t i = 1; i < 3; ++i) {
    TensorType t = ctx.Tensor(i);
    if (t->IsUnknownRank() || t->ndim == 0) continue;
    ctx.CheckRank(i, 1);
    auto count = t->GetShape();
    if (dims.has_value() && count.has_value() && !ir::IsIntValue((*count)[0], 1) &&
        ctx.Prove(ir::NotEqual((*count)[0], (*dims)[axis]))) {
      ctx.Error(ErrorKind::kValueError, ctx.ArgName(i), " needs one value for each of the ",
                DescribeExpr((*dims)[axis]), " elements of axis ", axis, ", or a single one; got ",
                DescribeExpr((*count)[0]));
    }
  }
}

Expr Parameter(const Tensor& t, const Indices& i, int64_t axis) {
  if (t.ndim() == 0) return t({});
  return t({ir::IsIntValue(t->shape[0], 1) ? Expr(0) : i[axis]});
}

Type InferQuantize(TypeCtx& ctx, const Quantize& a) {
  TensorType x = ctx.Float(0);
  if (!IsInteger(a.out_dtype) || a.out_dtype.bits > 16) {
    ctx.Error(ErrorKind::kTypeError, "out_dtype must be an integer type of at most 16 bits, got ",
              DTypeName(a.out_dtype));
  }
  CheckParameters(ctx, x, a.axis);
  return ctx.Like(x, a.out_dtype);
}

// clip(round(data / scale) + zero_point), halves to even
Tensors ComputeQuantize(const ComputeArgs& in, const Quantize& a) {
  const Tensor& x = in[0];
  int64_t axis = a.axis < 0 ? a.axis + x.ndim() : a.axis;
  int bits = a.out_dtype.bits;
  double low = IsUInt(a.out_dtype) ? 0 : -std::ldexp(1.0, bits - 1);
  double high = std::ldexp(1.0, IsUInt(a.out_dtype) ? bits : bits - 1) - 1;
  auto formula = [&](const Indices& i) {
    DLDataType real = Float(32);
    Expr scaled = ir::Div(ir::Cast(real, x(i)), ir::Cast(real, Parameter(in[1], i, axis)));
    Expr shifted =
        ir::CallIntrin(Intrin::kRound, {scaled}) + ir::Cast(real, Parameter(in[2], i, axis));
    Expr bounded = ir::Min(ir::Max(shifted, Number(real, low)), Number(real, high));
    return ir::Cast(a.out_dtype, bounded);
  };
  return {tir::Compute(x->shape, formula, "quantize")};
}

Type InferDequantize(TypeCtx& ctx, const Dequantize& a) {
  TensorType x = ctx.TensorOf(0, IsNumber, "a tensor of numbers");
  if (!IsFloat(a.out_dtype)) {
    ctx.Error(ErrorKind::kTypeError, "out_dtype must be a floating-point type, got ",
              DTypeName(a.out_dtype));
  }
  CheckParameters(ctx, x, a.axis);
  return ctx.Like(x, a.out_dtype);
}

// (data - zero_point) * scale; the difference of integers is taken exactly
Tensors ComputeDequantize(const ComputeArgs& in, const Dequantize& a) {
  const Tensor& x = in[0];
  int64_t axis = a.axis < 0 ? a.axis + x.ndim() : a.axis;
  bool integers = IsInteger(x.dtype()) && IsInteger(in[2].dtype());
  DLDataType work = integers ? (x.dtype().bits < 32 ? Int(32) : Int(64)) : Float(32);
  auto formula = [&](const Indices& i) {
    Expr distance = ir::Cast(work, x(i)) - ir::Cast(work, Parameter(in[2], i, axis));
    Expr value = ir::Cast(Float(32), distance) * ir::Cast(Float(32), Parameter(in[1], i, axis));
    return ir::Cast(a.out_dtype, value);
  };
  return {tir::Compute(x->shape, formula, "dequantize")};
}

}  // namespace

OpDef quantize() {
  return Define<Quantize>({
      .name = "quantize",
      .doc = "round(data / scale) + zero_point, kept inside the range of the integers.",
      .args = {{"data", "The numbers."},
               {"scale", "What one step of the integers is worth."},
               {"zero_point", "The integer that stands for 0."}},
      .attrs = {{"out_dtype", &Quantize::out_dtype, "The integer type."},
                {"axis", &Quantize::axis, "The axis that has several scales."}},
      .reference = "out = quantize(data, scale, zero_point, out_dtype, axis)",
      .samples = {{{"data: f32[4, 8]", "scale: f32[8] in 0.05..0.3", "zero_point: i8[8] in -9..9"}},
                  {{"data: f32[3, 5]", "scale: f32[] in 0.05..0.3", "zero_point: u8[] in 0..200",
                    "out_dtype='uint8'"}}},
      .type = InferQuantize,
      .compute = ComputeQuantize,
      .layout = FirstLayout({"axis"}),
  });
}

OpDef dequantize() {
  return Define<Dequantize>({
      .name = "dequantize",
      .doc = "(data - zero_point) * scale.",
      .args = {{"data", "The integers."},
               {"scale", "What one step of the integers is worth."},
               {"zero_point", "The integer that stands for 0."}},
      .attrs = {{"out_dtype", &Dequantize::out_dtype, "The floating-point type."},
                {"axis", &Dequantize::axis, "The axis that has several scales."}},
      .reference = "out = dequantize(data, scale, zero_point, out_dtype, axis)",
      .samples = {{{"data: i8[4, 8]", "scale: f32[4]", "zero_point: i8[4]", "axis=0"}},
                  {{"data: u8[3, 5]", "scale: f32[]", "zero_point: u8[]"}}},
      .type = InferDequantize,
      .compute = ComputeDequantize,
      .layout = FirstLayout({"axis"}),
  });
}

}  // namespace relaxvm::ops
