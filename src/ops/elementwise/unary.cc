// SPDX-License-Identifier: Apache-2.0
// Functions of one number, applied to every element: rows of a table.
#include <cmath>

#include "ops/compute.h"
#include "ops/layout_rule.h"

namespace relaxvm::ops {
namespace {

using ir::CallIntrin;

// What a row takes and how it computes.
enum class Domain : uint8_t {
  kFloat,     // floats; those of 16 bits are computed in float32
  kNumber,    // floats and integers
  kRounding,  // floats and integers; integers stay themselves
  kBits,      // integers and bool
  kLogic,     // all: a number is true unless it is 0; the result has its dtype
  kTest,      // numbers; the result is bool
};

struct UnaryRow {
  const char* name;
  const char* doc;
  Domain domain;
  Expr (*formula)(const Expr& x);
  const char* reference;
};

template <Intrin intrin>
Expr Call1(const Expr& x) {
  return CallIntrin(intrin, {x});
}

Expr Abs(const Expr& x) {
  DLDataType t = x.dtype();
  if (IsUInt(t)) return x;
  if (IsFloat(t)) return CallIntrin(Intrin::kAbs, {x});
  return ir::Select(ir::Less(x, Number(t, 0)), Number(t, 0) - x, x);
}

Expr Negative(const Expr& x) {
  return IsFloat(x.dtype()) ? CallIntrin(Intrin::kNeg, {x}) : Number(x.dtype(), 0) - x;
}

Expr Sign(const Expr& x) {
  DLDataType t = x.dtype();
  if (IsFloat(t)) return CallIntrin(Intrin::kSign, {x});
  Expr zero = Number(t, 0);
  Expr positive = ir::Select(ir::Greater(x, zero), Number(t, 1), zero);
  if (IsUInt(t)) return positive;
  return ir::Select(ir::Less(x, zero), Number(t, -1), positive);
}

Expr BitwiseNot(const Expr& x) {
  return IsBool(x.dtype()) ? ir::Not(x) : CallIntrin(Intrin::kBitNot, {x});
}

Expr LogicalNot(const Expr& x) { return ConvertTo(x.dtype(), ir::Not(ConvertTo(Bool(), x))); }

Expr IsFiniteNumber(const Expr& x) {
  return IsFloat(x.dtype()) ? CallIntrin(Intrin::kIsFinite, {Widen(x)}) : ir::BoolImm(true);
}
Expr IsInfinite(const Expr& x) {
  return IsFloat(x.dtype()) ? CallIntrin(Intrin::kIsInf, {Widen(x)}) : ir::BoolImm(false);
}
Expr IsNotANumber(const Expr& x) {
  return IsFloat(x.dtype()) ? CallIntrin(Intrin::kIsNan, {Widen(x)}) : ir::BoolImm(false);
}

const UnaryRow kRows[] = {
    {"abs", "Absolute value.", Domain::kNumber, Abs, "out = np.abs(x)"},
    {"acos", "Inverse cosine.", Domain::kFloat, Call1<Intrin::kAcos>, "out = np.arccos(x)"},
    {"acosh", "Inverse hyperbolic cosine.", Domain::kFloat, Call1<Intrin::kAcosh>,
     "out = np.arccosh(x)"},
    {"asin", "Inverse sine.", Domain::kFloat, Call1<Intrin::kAsin>, "out = np.arcsin(x)"},
    {"asinh", "Inverse hyperbolic sine.", Domain::kFloat, Call1<Intrin::kAsinh>,
     "out = np.arcsinh(x)"},
    {"atan", "Inverse tangent.", Domain::kFloat, Call1<Intrin::kAtan>, "out = np.arctan(x)"},
    {"atanh", "Inverse hyperbolic tangent.", Domain::kFloat, Call1<Intrin::kAtanh>,
     "out = np.arctanh(x)"},
    {"bitwise_not", "Every bit flipped; of bool: not.", Domain::kBits, BitwiseNot,
     "out = np.invert(x)"},
    {"ceil", "Least integer at or above.", Domain::kRounding, Call1<Intrin::kCeil>,
     "out = np.ceil(x)"},
    {"cos", "Cosine.", Domain::kFloat, Call1<Intrin::kCos>, "out = np.cos(x)"},
    {"cosh", "Hyperbolic cosine.", Domain::kFloat, Call1<Intrin::kCosh>, "out = np.cosh(x)"},
    {"erf", "Error function.", Domain::kFloat, Call1<Intrin::kErf>, "out = scipy.special.erf(x)"},
    {"exp", "e to the x.", Domain::kFloat, Call1<Intrin::kExp>, "out = np.exp(x)"},
    {"floor", "Greatest integer at or below.", Domain::kRounding, Call1<Intrin::kFloor>,
     "out = np.floor(x)"},
    {"isfinite", "Is it neither NaN nor infinite?", Domain::kTest, IsFiniteNumber,
     "out = np.isfinite(x)"},
    {"isinf", "Is it infinite?", Domain::kTest, IsInfinite, "out = np.isinf(x)"},
    {"isnan", "Is it a NaN?", Domain::kTest, IsNotANumber, "out = np.isnan(x)"},
    {"log", "Natural logarithm.", Domain::kFloat, Call1<Intrin::kLog>, "out = np.log(x)"},
    {"logical_not", "True where x is False.", Domain::kLogic, LogicalNot,
     "out = np.logical_not(x)"},
    {"negative", "-x.", Domain::kNumber, Negative, "out = np.negative(x)"},
    {"round", "Nearest integer, halves to even.", Domain::kRounding, Call1<Intrin::kRound>,
     "out = np.round(x)"},
    {"rsqrt", "1 / sqrt(x).", Domain::kFloat, Call1<Intrin::kRsqrt>, "out = 1 / np.sqrt(x)"},
    {"rvm.digamma", "Derivative of the gamma function's logarithm.", Domain::kFloat,
     Call1<Intrin::kDigamma>, "out = scipy.special.digamma(x)"},
    {"rvm.erfc", "1 - erf(x), also where erf(x) is nearly 1.", Domain::kFloat, Call1<Intrin::kErfc>,
     "out = scipy.special.erfc(x)"},
    {"rvm.erfinv", "Inverse error function.", Domain::kFloat, Call1<Intrin::kErfInverse>,
     "out = scipy.special.erfinv(x)"},
    {"rvm.exp2", "2 to the x.", Domain::kFloat, Call1<Intrin::kExp2>, "out = np.exp2(x)"},
    {"rvm.expm1", "exp(x) - 1, also where x is small.", Domain::kFloat, Call1<Intrin::kExpm1>,
     "out = np.expm1(x)"},
    {"rvm.lgamma", "Logarithm of the gamma function's magnitude.", Domain::kFloat,
     Call1<Intrin::kLogGamma>, "out = scipy.special.gammaln(x)"},
    {"rvm.log10", "Logarithm to base 10.", Domain::kFloat, Call1<Intrin::kLog10>,
     "out = np.log10(x)"},
    {"rvm.log1p", "log(1 + x), also where x is small.", Domain::kFloat, Call1<Intrin::kLog1p>,
     "out = np.log1p(x)"},
    {"rvm.log2", "Logarithm to base 2.", Domain::kFloat, Call1<Intrin::kLog2>, "out = np.log2(x)"},
    {"sigmoid", "1 / (1 + exp(-x)).", Domain::kFloat, Call1<Intrin::kSigmoid>,
     "out = scipy.special.expit(x)"},
    {"sign", "-1, 0 or 1; NaN for NaN.", Domain::kNumber, Sign, "out = np.sign(x)"},
    {"sin", "Sine.", Domain::kFloat, Call1<Intrin::kSin>, "out = np.sin(x)"},
    {"sinh", "Hyperbolic sine.", Domain::kFloat, Call1<Intrin::kSinh>, "out = np.sinh(x)"},
    {"sqrt", "Square root.", Domain::kFloat, Call1<Intrin::kSqrt>, "out = np.sqrt(x)"},
    {"square", "x * x.", Domain::kNumber, [](const Expr& x) { return x * x; },
     "out = np.square(x)"},
    {"tan", "Tangent.", Domain::kFloat, Call1<Intrin::kTan>, "out = np.tan(x)"},
    {"tanh", "Hyperbolic tangent.", Domain::kFloat, Call1<Intrin::kTanh>, "out = np.tanh(x)"},
    {"trunc", "The integer next towards zero.", Domain::kRounding, Call1<Intrin::kTrunc>,
     "out = np.trunc(x)"},
};

bool IsNumber(DLDataType t) { return IsFloat(t) || IsInteger(t); }
bool IsBits(DLDataType t) { return IsInteger(t) || IsBool(t); }

TensorType InferUnary(TypeCtx& ctx, Domain domain) {
  switch (domain) {
    case Domain::kFloat: return ctx.Like(ctx.Float(0));
    case Domain::kNumber:
    case Domain::kRounding: return ctx.Like(ctx.TensorOf(0, IsNumber, "a tensor of numbers"));
    case Domain::kBits: return ctx.Like(ctx.TensorOf(0, IsBits, "a tensor of integers or bool"));
    case Domain::kLogic: return ctx.Like(ctx.Tensor(0));
    case Domain::kTest: break;
  }
  return ctx.Like(ctx.TensorOf(0, IsNumber, "a tensor of numbers"), Bool());
}

Tensors ComputeUnary(const ComputeArgs& in, const UnaryRow& row) {
  auto apply = [&](const Expr& x) -> Expr {
    if (row.domain == Domain::kFloat) return ir::Cast(x.dtype(), row.formula(Widen(x)));
    if (row.domain == Domain::kRounding) {
      return IsFloat(x.dtype()) ? ir::Cast(x.dtype(), row.formula(Widen(x))) : x;
    }
    return row.formula(x);
  };
  return {tir::Map(in[0], apply, row.name)};
}

}  // namespace

std::vector<OpDef> unary_ops() {
  std::vector<OpDef> defs;
  for (const UnaryRow& row : kRows) {
    bool bits = row.domain == Domain::kBits;
    bool truth = row.domain == Domain::kLogic;
    Sample first = {{truth ? "x: bool[4, 8]" : bits ? "x: i32[4, 8]" : "x: f32[4, 8]"}};
    defs.push_back(Define<NoAttrs>({
        .name = row.name,
        .doc = row.doc,
        .args = {{"x", "The tensor."}},
        .reference = row.reference,
        .samples = {first,
                    {{truth  ? "x: bool[]"
                      : bits ? "x: u8[]"
                             : "x: f32[]"}}},
        .type = [domain = row.domain](TypeCtx& ctx,
                                      const NoAttrs&) { return InferUnary(ctx, domain); },
        .compute = [&row](const ComputeArgs& in, const NoAttrs&) { return ComputeUnary(in, row); },
        .layout = ElementwiseLayout(),
    }));
  }
  return defs;
}

namespace {

// min and max are scalars of any number dtype; they are converted to that of x.
TensorType InferClip(TypeCtx& ctx, const NoAttrs&) {
  TensorType x = ctx.TensorOf(0, IsNumber, "a tensor of numbers");
  ctx.Prim(1);
  ctx.Prim(2);
  return ctx.Like(x);
}

// NaN stays NaN.  A bound beyond the range of an integer dtype does not bind.
Expr ClipBound(const Expr& bound, DLDataType dtype, bool lower) {
  if (IsInteger(dtype)) {
    if (const auto* f = bound.as<ir::FloatImmObj>()) {
      double v = f->value;
      if (v != v) return lower ? ir::MinValue(dtype) : ir::MaxValue(dtype);
      int bits = dtype.bits - (IsInt(dtype) ? 1 : 0);
      double high = std::ldexp(1.0, bits);
      if (v >= high) return ir::MaxValue(dtype);
      if (v < (IsInt(dtype) ? -high : 0.0)) return ir::MinValue(dtype);
    }
    if (const auto* i = bound.as<ir::IntImmObj>()) {
      if (dtype.bits < 64) {
        int bits = dtype.bits - (IsInt(dtype) ? 1 : 0);
        if (i->value >= (int64_t{1} << bits)) return ir::MaxValue(dtype);
        if (i->value < (IsInt(dtype) ? -(int64_t{1} << bits) : 0)) return ir::MinValue(dtype);
      } else if (IsUInt(dtype) && i->value < 0) {
        return ir::MinValue(dtype);
      }
    }
  }
  return ir::Cast(dtype, bound);
}

Tensors ComputeClip(const ComputeArgs& in, const NoAttrs&) {
  Expr low = ClipBound(in.Prim(1), in[0].dtype(), true);
  Expr high = ClipBound(in.Prim(2), in[0].dtype(), false);
  return {tir::Map(in[0], [&](const Expr& x) { return ir::Min(ir::Max(x, low), high); }, "clip")};
}

}  // namespace

OpDef clip() {
  return Define<NoAttrs>({
      .name = "clip",
      .doc = "Values below `min` become `min`, values above `max` become `max`.",
      .args = {{"x", "The tensor."},
               {"min", "The least value.", ArgKind::kPrim},
               {"max", "The greatest value.", ArgKind::kPrim}},
      .reference = "out = np.clip(x, min, max)",
      .samples = {{{"x: f32[4, 8]", "min=0.0", "max=6.0"}}, {{"x: i32[3]", "min=-1", "max=2"}}},
      .type = InferClip,
      .compute = ComputeClip,
      .layout = ElementwiseLayout(),
  });
}

}  // namespace relaxvm::ops
