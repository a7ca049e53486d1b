// SPDX-License-Identifier: Apache-2.0
// sum, mean, max and their kin over axes.  Floats of 16 bits are accumulated in float32.
#include "ops/layout_rule.h"
#include "ops/reduce/axes.h"

namespace relaxvm::ops {
namespace {

struct Statistical {
  std::optional<Ints> axis;
  bool keepdims = false;
};

enum class Kind : uint8_t { kSum, kProd, kMax, kMin, kMean, kVariance, kStd };

struct StatRow {
  const char* name;
  const char* doc;
  Kind kind;
  const char* reference;
};

const StatRow kRows[] = {
    {"max", "The greatest element; NaN when there is one.", Kind::kMax,
     "out = np.max(x, axis=axis, keepdims=keepdims)"},
    {"mean", "The sum divided by the number of elements; integers: rounded towards zero.",
     Kind::kMean,
     "out = np.mean(x, axis=axis, keepdims=keepdims) if x.dtype.kind not in 'iu' else "
     "trunc_divide(np.sum(x, axis=axis, keepdims=keepdims, dtype=x.dtype), "
     "np.array(count(x, axis)).astype(x.dtype))"},
    {"min", "The least element; NaN when there is one.", Kind::kMin,
     "out = np.min(x, axis=axis, keepdims=keepdims)"},
    {"prod", "The product.", Kind::kProd,
     "out = np.prod(x, axis=axis, keepdims=keepdims, dtype=x.dtype)"},
    {"std", "The square root of the variance.", Kind::kStd,
     "out = np.std(x, axis=axis, keepdims=keepdims)"},
    {"sum", "The sum.", Kind::kSum, "out = np.sum(x, axis=axis, keepdims=keepdims, dtype=x.dtype)"},
    {"variance", "The mean of the squared distances from the mean.", Kind::kVariance,
     "out = np.var(x, axis=axis, keepdims=keepdims)"},
};

bool IsNumber(DLDataType t) { return IsFloat(t) || IsInteger(t); }
bool IsAny(DLDataType) { return true; }

TensorType Input(const TypeCtx& ctx, Kind kind) {
  switch (kind) {
    case Kind::kMax:
    case Kind::kMin: return ctx.TensorOf(0, IsAny, "a tensor");
    case Kind::kSum:
    case Kind::kProd:
    case Kind::kMean: return ctx.TensorOf(0, IsNumber, "a tensor of numbers");
    case Kind::kVariance:
    case Kind::kStd: break;
  }
  return ctx.Float(0);
}

tir::Reducer ReducerOf(Kind kind, DLDataType dtype) {
  if (kind == Kind::kMax) return IsBool(dtype) ? tir::OrReducer() : tir::MaxReducer(dtype);
  if (kind == Kind::kMin) return IsBool(dtype) ? tir::AndReducer() : tir::MinReducer(dtype);
  return kind == Kind::kProd ? tir::ProdReducer(dtype) : tir::SumReducer(dtype);
}

Tensor CastTo(const Tensor& x, DLDataType dtype, const char* name) {
  if (x.dtype() == dtype) return x;
  return tir::Map(x, [dtype](const Expr& e) { return ir::Cast(dtype, e); }, name);
}

Tensors ComputeStat(const ComputeArgs& in, const Statistical& a, const StatRow& row) {
  const Tensor& x = in[0];
  ReducedAxes axes(x->shape, a.axis, a.keepdims);
  DLDataType dtype = in.OutDtype();
  // max and min choose an element: nothing to gain from a wider one.
  if (row.kind == Kind::kMax || row.kind == Kind::kMin) {
    return {ReduceOver(
        axes, ReducerOf(row.kind, dtype), [&](const Indices& i) { return x(i); }, row.name)};
  }
  DLDataType wide = WideDtype(dtype);
  auto widened = [&](const Indices& i) { return Widen(x(i)); };
  Tensor total = ReduceOver(axes, ReducerOf(row.kind, wide), widened, row.name);
  if (row.kind == Kind::kSum || row.kind == Kind::kProd) return {CastTo(total, dtype, row.name)};

  Expr count = ir::Cast(wide, axes.Count());
  auto divide = [&](const Expr& e) {
    return IsFloat(wide) ? ir::Div(e, count) : SafeDivide(e, count, false);
  };
  if (row.kind == Kind::kMean) {
    return {tir::Map(total, [&](const Expr& e) { return ir::Cast(dtype, divide(e)); }, "mean")};
  }
  Tensor mean = tir::Map(total, divide, "mean");
  auto squared = [&](const Indices& i) {
    Expr d = Widen(x(i)) - mean(axes.Kept(i));
    return d * d;
  };
  Tensor squares = ReduceOver(axes, tir::SumReducer(wide), squared, "squares");
  auto finish = [&](const Expr& e) {
    Expr variance = divide(e);
    if (row.kind == Kind::kStd) variance = ir::CallIntrin(Intrin::kSqrt, {variance});
    return ir::Cast(dtype, variance);
  };
  return {tir::Map(squares, finish, row.name)};
}

}  // namespace

std::vector<OpDef> statistical_ops() {
  std::vector<OpDef> defs;
  for (const StatRow& row : kRows) {
    defs.push_back(Define<Statistical>({
        .name = row.name,
        .doc = row.doc,
        .args = {{"x", "The tensor."}},
        .attrs = {{"axis", &Statistical::axis, "Axes to reduce; None: all."},
                  {"keepdims", &Statistical::keepdims, "Keep reduced axes, with extent 1."}},
        .reference = row.reference,
        .samples = {{{"x: f32[4, 8]"}},
                    {{"x: f32[2, 3, 5]", "axis=[1]"}},
                    {{"x: f32[2, 3, 5]", "axis=[0, -1]", "keepdims=True"}},
                    {{"x: f32[]"}}},
        .type =
            [kind = row.kind](TypeCtx& ctx, const Statistical& a) {
              TensorType x = Input(ctx, kind);
              return InferReduced(ctx, x, a.axis, a.keepdims, x->dtype);
            },
        .compute = [&row](const ComputeArgs& in,
                          const Statistical& a) { return ComputeStat(in, a, row); },
        .layout = ReduceLayout("axis"),
    }));
  }
  return defs;
}

}  // namespace relaxvm::ops
