// SPDX-License-Identifier: Apache-2.0
// matmul and outer.
#include <algorithm>

#include "ops/compute.h"

namespace relaxvm::ops {
namespace {

struct Matmul {
  std::optional<DLDataType> out_dtype;
};

bool IsNumber(DLDataType t) { return IsFloat(t) || IsInteger(t); }

DLDataType OutDtype(const TensorType& a, const TensorType& b, const Matmul& m) {
  if (m.out_dtype) return *m.out_dtype;
  return IsVoid(b->dtype) ? b->dtype : a->dtype;
}

// [..., m, k] x [..., k, n] -> [..., m, n]; a vector is a row on the left, a column on the right.
Type InferMatmul(TypeCtx& ctx, const Matmul& m) {
  TensorType a = ctx.TensorOf(0, IsNumber, "a tensor of numbers");
  TensorType b = ctx.TensorOf(1, IsNumber, "a tensor of numbers");
  if (!m.out_dtype) ctx.SameDtype(0, 1);
  DLDataType dtype = OutDtype(a, b, m);
  if (!IsVoid(dtype) && !IsNumber(dtype)) {
    ctx.Error(ErrorKind::kTypeError, "out_dtype must be a number type, got ", DTypeName(dtype));
  }
  if (a->IsUnknownRank() || b->IsUnknownRank()) return ctx.Result(std::nullopt, -1, dtype);
  for (size_t i = 0; i < 2; ++i) {
    if (ctx.Rank(i) == 0) {
      ctx.Error(ErrorKind::kValueError, ctx.ArgName(i), " must have at least one dimension");
    }
  }
  int64_t ndim = std::max<int64_t>({a->ndim, b->ndim, 2});
  ndim -= (a->ndim == 1) + (b->ndim == 1);
  auto x = a->GetShape();
  auto y = b->GetShape();
  if (!x.has_value() || !y.has_value()) return ctx.Result(std::nullopt, ndim, dtype);
  Expr k1 = (*x)[x->size() - 1];
  Expr k2 = (*y)[y->size() == 1 ? 0 : y->size() - 2];
  if (ctx.Prove(ir::NotEqual(k1, k2))) {
    ctx.Error(ErrorKind::kValueError, "the last dimension of x1 (", DescribeExpr(k1),
              ") must be the ", y->size() == 1 ? "only" : "second to last", " one of x2 (",
              DescribeExpr(k2), "): ", DescribeType(a), " times ", DescribeType(b));
  }
  auto batch = [](const Dims& dims) {
    return dims.size() <= 2 ? Dims() : Dims(dims.begin(), dims.end() - 2);
  };
  auto dims = ctx.Broadcast(batch(*x), batch(*y));
  if (!dims) return ctx.Result(std::nullopt, ndim, dtype);
  if (x->size() > 1) dims->push_back((*x)[x->size() - 2]);
  if (y->size() > 1) dims->push_back((*y)[y->size() - 1]);
  return ctx.Result(*dims, dtype);
}

Tensors ComputeMatmul(const ComputeArgs& in, const Matmul&) {
  const Tensor& a = in[0];
  const Tensor& b = in[1];
  Dims out = in.OutShape();
  DLDataType dtype = in.OutDtype();
  DLDataType wide = WideDtype(dtype);
  size_t num_batch = out.size() - (a.ndim() > 1) - (b.ndim() > 1);
  auto batch_index = [&](const Tensor& t, const Indices& i) {
    Indices at;
    size_t own = t.ndim() > 2 ? t.ndim() - 2 : 0;
    for (size_t d = 0; d < own; ++d) {
      size_t o = num_batch - own + d;
      bool repeated = ir::IsIntValue(t->shape[d], 1) && !ir::IsIntValue(out[o], 1);
      at.push_back(repeated ? Expr(0) : i[o]);
    }
    return at;
  };
  auto formula = [&](const Indices& i, const Indices& r) {
    Indices x = batch_index(a, i);
    Indices y = batch_index(b, i);
    if (a.ndim() > 1) x.push_back(i[num_batch]);
    x.push_back(r[0]);
    y.push_back(r[0]);
    if (b.ndim() > 1) y.push_back(i[out.size() - 1]);
    return ir::Cast(wide, a(x)) * ir::Cast(wide, b(y));
  };
  // Both sides have the same number of steps (kernels check it): a number, where one of them says
  // so.
  Expr steps = b.dim(b.ndim() > 1 ? -2 : -1);
  if (!ir::AsInt(steps).has_value()) steps = a.dim(-1);
  // A sum of one product is elementwise, and fuses as such.
  if (ir::IsIntValue(steps, 1)) {
    return {tir::Compute(
        out, [&](const Indices& i) { return ir::Cast(dtype, formula(i, {Expr(0)})); }, "matmul")};
  }
  Tensor result = tir::Reduce(out, {steps}, tir::SumReducer(wide), formula, "matmul");
  if (wide == dtype) return {result};
  return {tir::Map(result, [&](const Expr& e) { return ir::Cast(dtype, e); }, "cast")};
}

Type InferOuter(TypeCtx& ctx, const NoAttrs&) {
  TensorType a = ctx.TensorOf(0, IsNumber, "a tensor of numbers");
  TensorType b = ctx.TensorOf(1, IsNumber, "a tensor of numbers");
  ctx.SameDtype(0, 1);
  ctx.CheckRank(0, 1);
  ctx.CheckRank(1, 1);
  DLDataType dtype = OutDtype(a, b, {});
  auto x = a->GetShape();
  auto y = b->GetShape();
  if (!x.has_value() || !y.has_value()) return ctx.Result(std::nullopt, 2, dtype);
  return ctx.Result(Dims{(*x)[0], (*y)[0]}, dtype);
}

Tensors ComputeOuter(const ComputeArgs& in, const NoAttrs&) {
  auto formula = [&](const Indices& i) { return in[0]({i[0]}) * in[1]({i[1]}); };
  return {tir::Compute(in.OutShape(), formula, "outer")};
}

}  // namespace

OpDef matmul() {
  return Define<Matmul>({
      .name = "matmul",
      .doc = "Matrix product of the last two dimensions; those before them broadcast.",
      .args = {{"x1", "Left factor; a vector is a row."},
               {"x2", "Right factor; a vector is a column."}},
      .attrs = {{"out_dtype", &Matmul::out_dtype,
                 "Element type of the result and of the sums; None: that of x1."}},
      .reference = "out = np.matmul(x1, x2, dtype=out_dtype or x1.dtype)",
      .samples = {{{"x1: f32[4, 8]", "x2: f32[8, 5]"}},
                  {{"x1: f32[2, 1, 3, 4]", "x2: f32[5, 4, 6]"}},
                  {{"x1: f32[4]", "x2: f32[4]"}},
                  {{"x1: f32[2, 3, 4]", "x2: f32[4]"}},
                  {{"x1: i8[3, 4]", "x2: i8[4, 2]", "out_dtype='int32'"}}},
      .type = InferMatmul,
      .compute = ComputeMatmul,
  });
}

OpDef outer() {
  return Define<NoAttrs>({
      .name = "outer",
      .doc = "All products of an element of x1 and one of x2.",
      .args = {{"x1", "A vector."}, {"x2", "A vector."}},
      .reference = "out = np.outer(x1, x2)",
      .samples = {{{"x1: f32[4]", "x2: f32[5]"}}},
      .type = InferOuter,
      .compute = ComputeOuter,
  });
}

}  // namespace relaxvm::ops
