// SPDX-License-Identifier: Apache-2.0
// Tensors made from nothing but a shape: full, zeros, ones, arange, eye, hamming_window, and the
// triangles tril and triu.
#include <algorithm>
#include <cmath>

#include "ops/compute.h"

namespace relaxvm::ops {
namespace {

struct Init {
  std::optional<DLDataType> dtype;
};

const ArgDoc kShapeArg = {"shape", "The shape.", ArgKind::kShape};
const ArgDoc kFill = {"fill_value", "A tensor without dimensions, or a scalar."};
const ArgDoc kLike = {"x", "The tensor whose shape is taken."};
const char* const kDtypeDoc = "Element type of the result.";

Type OfShape(TypeCtx& ctx, size_t i, DLDataType dtype) {
  if (ctx.type(i).as<ir::ShapeTypeObj>() == nullptr) {
    ctx.Error(ErrorKind::kTypeError, ctx.ArgName(i), " must be a shape, got ",
              DescribeType(ctx.type(i)));
  }
  return ctx.OfShape(i, dtype);
}

// The dtype of a fill value: a scalar's, or that of a tensor without dimensions.
DLDataType FillDtype(const TypeCtx& ctx, size_t i, ErrorKind kind) {
  if (const auto* prim = ctx.type(i).as<ir::PrimTypeObj>()) return prim->dtype;
  if (ctx.type(i).as<ir::TensorTypeObj>() == nullptr) {
    ctx.Error(kind, ctx.ArgName(i), " must be a tensor or a scalar, got ",
              DescribeType(ctx.type(i)));
  }
  TensorType t = ctx.Tensor(i);
  if (t->ndim != 0) {
    ctx.Error(ErrorKind::kValueError, ctx.ArgName(i), " must have no dimensions, got ",
              DescribeType(t));
  }
  return t->dtype;
}

Tensors Filled(const ComputeArgs& in, const std::function<Expr(const Indices&)>& value,
               const char* name) {
  DLDataType dtype = in.OutDtype();
  return {tir::Compute(
      in.OutShape(), [&](const Indices& i) { return ConvertTo(dtype, value(i)); }, name)};
}

Expr FillValue(const ComputeArgs& in, size_t i) {
  return in.tensors[i].empty() ? in.Prim(i) : in[i]({});
}

OpDef Constant(const char* name, const char* doc, const char* reference, int64_t value) {
  return Define<Init>({
      .name = name,
      .doc = doc,
      .args = {kShapeArg},
      .attrs = {{"dtype", &Init::dtype, kDtypeDoc, true}},
      .reference = reference,
      .samples = {{{"shape=[4, 3]", "dtype='float32'"}}, {{"shape=[]", "dtype='int64'"}}},
      .type = [](TypeCtx& ctx,
                 const Init& a) { return OfShape(ctx, 0, a.dtype.value_or(Float(32))); },
      .compute =
          [value, name](const ComputeArgs& in, const Init&) {
            DLDataType dtype = in.OutDtype();
            return Filled(in, [&](const Indices&) { return Number(dtype, value); }, name);
          },
  });
}

OpDef ConstantLike(const char* name, const char* doc, const char* reference, int64_t value) {
  return Define<Init>({
      .name = name,
      .doc = doc,
      .args = {kLike},
      .attrs = {{"dtype", &Init::dtype, "Element type of the result; None: that of x."}},
      .reference = reference,
      .samples = {{{"x: f32[4, 3]"}}, {{"x: f32[3]", "dtype='int8'"}}},
      .type = [](TypeCtx& ctx, const Init& a) -> Type {
        TensorType x = ctx.Tensor(0);
        return ctx.Like(x, a.dtype.value_or(x->dtype));
      },
      .compute =
          [value, name](const ComputeArgs& in, const Init&) {
            DLDataType dtype = in.OutDtype();
            return Filled(in, [&](const Indices&) { return Number(dtype, value); }, name);
          },
  });
}

// The number of steps from start to end: max(ceil((end - start) / step), 0).
Type InferArange(TypeCtx& ctx, const Init& a) {
  DLDataType common = ctx.Prim(0);
  bool integers = true;
  for (size_t i = 0; i < 3; ++i) {
    integers = integers && IsInteger(ctx.Prim(i));
    if (IsFloat(ctx.Prim(i))) common = ctx.Prim(i);
  }
  DLDataType dtype = a.dtype.value_or(integers ? Int(64) : common);
  Expr start = ctx.arg(0), end = ctx.arg(1), step = ctx.arg(2);
  if (integers) {
    auto value = ir::AsInt(step);
    if (value.has_value() && *value == 0) ctx.Error(ErrorKind::kValueError, "step must not be 0");
    if (!value.has_value()) {
      ctx.Error(ErrorKind::kValueError, "step must be constant, got ", DescribeExpr(step));
    }
    Expr span = *value > 0 ? end - start : start - end;
    Expr count = ctx.Simplify(ir::CeilDiv(ctx.Simplify(span), Expr(std::abs(*value))));
    if (!ctx.Prove(ir::GreaterEqual(count, Expr(0)))) count = ctx.Simplify(ir::Max(count, Expr(0)));
    return ctx.Result(Dims{count}, dtype);
  }
  auto number = [](const Expr& e) -> std::optional<double> {
    return AttrCodec<double>::Decode(ffi::Any(e));
  };
  auto s = number(start), e = number(end), d = number(step);
  if (!s || !e || !d) return ctx.Result(std::nullopt, 1, dtype);
  if (*d == 0) ctx.Error(ErrorKind::kValueError, "step must not be 0");
  return ctx.Result(Dims{Expr(std::max<int64_t>(std::ceil((*e - *s) / *d), 0))}, dtype);
}

Tensors ComputeArange(const ComputeArgs& in, const Init&) {
  DLDataType dtype = in.OutDtype();
  bool integers = IsInteger(in.Prim(0).dtype()) && IsInteger(in.Prim(1).dtype()) &&
                  IsInteger(in.Prim(2).dtype());
  DLDataType work = integers ? Int(64) : Float(64);
  Expr start = ir::Cast(work, in.Prim(0));
  Expr step = ir::Cast(work, in.Prim(2));
  return {tir::Compute(
      in.OutShape(),
      [&](const Indices& i) { return ConvertTo(dtype, start + ir::Cast(work, i[0]) * step); },
      "arange")};
}

Tensors Diagonal(const ComputeArgs& in, const Expr& k, const char* name) {
  Expr offset = ir::Cast(Int(64), k);
  DLDataType dtype = in.OutDtype();
  auto one = [&](const Indices& i) {
    return ir::Select(ir::Equal(i[1] - i[0], offset), Number(dtype, 1), Number(dtype, 0));
  };
  return Filled(in, one, name);
}

Type InferEye(TypeCtx& ctx, const Init& a) {
  for (size_t i = 0; i < 3; ++i) {
    if (!IsInteger(ctx.Prim(i))) {
      ctx.Error(ErrorKind::kTypeError, ctx.ArgName(i), " must be an integer");
    }
  }
  return ctx.Result(Dims{ctx.arg(0), ctx.arg(1)}, a.dtype.value_or(Float(32)));
}

struct Window {
  std::optional<DLDataType> dtype;
};

Type InferWindow(TypeCtx& ctx, const Window& a) {
  if (!IsInteger(ctx.Prim(0))) ctx.Error(ErrorKind::kTypeError, "window_size must be an integer");
  if (ctx.Prove(ir::Less(ctx.arg(0), Expr(1)))) {
    ctx.Error(ErrorKind::kValueError, "window_size must be at least 1, got ",
              DescribeExpr(ctx.arg(0)));
  }
  DLDataType dtype = a.dtype.value_or(Float(32));
  if (!IsFloat(dtype)) {
    ctx.Error(ErrorKind::kTypeError, "dtype must be a floating-point type, got ", DTypeName(dtype));
  }
  return ctx.Result(Dims{ctx.Simplify(ir::Cast(Int(64), ctx.arg(0)))}, dtype);
}

// alpha - beta * cos(2 pi i / n), n the size, or one less when the window is not periodic
Tensors ComputeWindow(const ComputeArgs& in, const Window&) {
  DLDataType dtype = in.OutDtype();
  DLDataType wide = WideDtype(dtype);
  Expr size = ir::Cast(Int(64), in.Prim(0));
  Expr n = ir::Select(ir::NotEqual(ir::Cast(Int(64), in.Prim(1)), Expr(0)), size, size - Expr(1));
  Expr alpha = ir::Cast(wide, in.Prim(2)), beta = ir::Cast(wide, in.Prim(3));
  auto formula = [&](const Indices& i) {
    Expr turn = ir::Div(ir::Cast(wide, i[0]) * Number(wide, 6.283185307179586),
                        ir::Cast(wide, ir::Max(n, Expr(1))));
    Expr value = alpha - beta * ir::CallIntrin(Intrin::kCos, {turn});
    return ir::Cast(dtype, ir::Select(ir::Equal(size, Expr(1)), Number(wide, 1), value));
  };
  return {tir::Compute(in.OutShape(), formula, "hamming_window")};
}

OpDef Triangle(const char* name, const char* doc, const char* reference, bool upper) {
  return Define<NoAttrs>({
      .name = name,
      .doc = doc,
      .args = {{"x", "The tensor; its last two dimensions are matrices."},
               {"k", "The diagonal: 0 is the main one, above it count from 1.", ArgKind::kPrim,
                true, ffi::Any(int64_t{0})}},
      .reference = reference,
      .samples = {{{"x: f32[4, 5]"}}, {{"x: f32[2, 3, 3]", "k=-1"}}, {{"x: f32[3, 4]", "k=1"}}},
      .type = [](TypeCtx& ctx, const NoAttrs&) -> Type {
        TensorType x = ctx.Tensor(0);
        if (!IsInteger(ctx.Prim(1))) ctx.Error(ErrorKind::kTypeError, "k must be an integer");
        if (!x->IsUnknownRank() && x->ndim < 2) {
          ctx.Error(ErrorKind::kValueError, "x must have at least two dimensions, got ",
                    DescribeType(x));
        }
        return ctx.Like(x);
      },
      .compute = [upper, name](const ComputeArgs& in, const NoAttrs&) -> Tensors {
        const Tensor& x = in[0];
        Expr k = ir::Cast(Int(64), in.Prim(1));
        auto formula = [&](const Indices& i) {
          Expr past = i[x.ndim() - 1] - i[x.ndim() - 2];
          Expr keep = upper ? ir::GreaterEqual(past, k) : ir::LessEqual(past, k);
          return ir::Select(keep, x(i), Number(x.dtype(), 0));
        };
        return {tir::Compute(x->shape, formula, name)};
      },
  });
}

}  // namespace

OpDef full() {
  return Define<Init>({
      .name = "full",
      .doc = "A tensor that holds one value.",
      .args = {kShapeArg, kFill},
      .attrs = {{"dtype", &Init::dtype, "Element type of the result; None: that of the value."}},
      .reference = "out = np.full(shape, fill_value, dtype)",
      .samples = {{{"shape=[4, 3]", "fill_value: f32[]"}},
                  {{"shape=[5]", "fill_value: f32[]", "dtype='int32'"}}},
      .type =
          [](TypeCtx& ctx, const Init& a) {
            return OfShape(ctx, 0, a.dtype.value_or(FillDtype(ctx, 1, ErrorKind::kValueError)));
          },
      .compute =
          [](const ComputeArgs& in, const Init&) {
            return Filled(in, [&](const Indices&) { return FillValue(in, 1); }, "full");
          },
  });
}

OpDef full_like() {
  return Define<Init>({
      .name = "full_like",
      .doc = "A tensor of the shape of another one that holds one value.",
      .args = {kLike, kFill},
      .attrs = {{"dtype", &Init::dtype, "Element type of the result; None: that of x."}},
      .reference = "out = np.full_like(x, fill_value, dtype=dtype)",
      .samples = {{{"x: f32[4, 3]", "fill_value: f32[]"}}},
      .type = [](TypeCtx& ctx, const Init& a) -> Type {
        TensorType x = ctx.Tensor(0);
        FillDtype(ctx, 1, ErrorKind::kTypeError);
        return ctx.Like(x, a.dtype.value_or(x->dtype));
      },
      .compute =
          [](const ComputeArgs& in, const Init&) {
            return Filled(in, [&](const Indices&) { return FillValue(in, 1); }, "full_like");
          },
  });
}

OpDef zeros() { return Constant("zeros", "A tensor of zeros.", "out = np.zeros(shape, dtype)", 0); }
OpDef ones() { return Constant("ones", "A tensor of ones.", "out = np.ones(shape, dtype)", 1); }
OpDef zeros_like() {
  return ConstantLike("zeros_like", "Zeros in the shape of another tensor.",
                      "out = np.zeros_like(x, dtype=dtype)", 0);
}
OpDef ones_like() {
  return ConstantLike("ones_like", "Ones in the shape of another tensor.",
                      "out = np.ones_like(x, dtype=dtype)", 1);
}

OpDef arange() {
  return Define<Init>({
      .name = "arange",
      .doc = "start, start + step ... before end.",
      .args = {{"start", "First value.", ArgKind::kPrim},
               {"end", "Value that is not reached.", ArgKind::kPrim},
               {"step", "Step.", ArgKind::kPrim, true, ffi::Any(int64_t{1})}},
      .attrs = {{"dtype", &Init::dtype, "Element type; None: int64, or that of the floats."}},
      .reference = "out = np.arange(start, end, step, dtype=dtype)",
      .samples = {{{"start=2", "end=20", "step=3"}},
                  {{"start=5", "end=-5", "step=-2", "dtype='float32'"}},
                  {{"start=0.0", "end=1.0", "step=0.25", "dtype='float32'"}}},
      .type = InferArange,
      .compute = ComputeArange,
  });
}

OpDef eye() {
  return Define<Init>({
      .name = "eye",
      .doc = "A matrix with ones on a diagonal.",
      .args = {{"n", "Rows.", ArgKind::kPrim},
               {"m", "Columns.", ArgKind::kPrim},
               {"k", "The diagonal.", ArgKind::kPrim, true, ffi::Any(int64_t{0})}},
      .attrs = {{"dtype", &Init::dtype, kDtypeDoc}},
      .reference = "out = np.eye(n, m, k, dtype=dtype)",
      .samples = {{{"n=4", "m=5", "k=1", "dtype='float32'"}}, {{"n=3", "m=3", "dtype='int8'"}}},
      .type = InferEye,
      .compute = [](const ComputeArgs& in, const Init&) { return Diagonal(in, in.Prim(2), "eye"); },
  });
}

OpDef eye_like() {
  return Define<Init>({
      .name = "eye_like",
      .doc = "Ones on a diagonal, in the shape of a matrix.",
      .args = {{"x", "The matrix whose shape is taken."},
               {"k", "The diagonal.", ArgKind::kPrim, true, ffi::Any(int64_t{0})}},
      .attrs = {{"dtype", &Init::dtype, "Element type of the result; None: that of x."}},
      .reference = "out = np.eye(*x.shape, k, dtype=dtype or x.dtype)",
      .samples = {{{"x: f32[4, 5]"}}, {{"x: f32[3, 3]", "k=-1", "dtype='int32'"}}},
      .type = [](TypeCtx& ctx, const Init& a) -> Type {
        TensorType x = ctx.Tensor(0);
        ctx.CheckRank(0, 2);
        if (!IsInteger(ctx.Prim(1))) ctx.Error(ErrorKind::kTypeError, "k must be an integer");
        return ctx.Like(x, a.dtype.value_or(x->dtype));
      },
      .compute = [](const ComputeArgs& in,
                    const Init&) { return Diagonal(in, in.Prim(1), "eye_like"); },
  });
}

OpDef hamming_window() {
  return Define<Window>({
      .name = "hamming_window",
      .doc = "alpha - beta * cos(2 pi i / n).",
      .args = {{"window_size", "Number of elements.", ArgKind::kPrim},
               {"periodic", "n is the size, not one less.", ArgKind::kPrim, true, ffi::Any(true)},
               {"alpha", "Mean.", ArgKind::kPrim, true, ffi::Any(0.54)},
               {"beta", "Height.", ArgKind::kPrim, true, ffi::Any(0.46)}},
      .attrs = {{"dtype", &Window::dtype, kDtypeDoc}},
      .reference = "out = hamming_window(window_size, periodic, alpha, beta)",
      .samples = {{{"window_size=10", "dtype='float32'"}},
                  {{"window_size=7", "periodic=False", "alpha=0.5", "beta=0.5",
                    "dtype='float32'"}}},
      .type = InferWindow,
      .compute = ComputeWindow,
  });
}

OpDef tril() { return Triangle("tril", "Zeros above a diagonal.", "out = np.tril(x, k)", false); }
OpDef triu() { return Triangle("triu", "Zeros below a diagonal.", "out = np.triu(x, k)", true); }

}  // namespace relaxvm::ops
