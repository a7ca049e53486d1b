// SPDX-License-Identifier: Apache-2.0
// The same elements in another shape: reshape, flatten, squeeze, expand_dims, nn.batch_flatten.
#include <algorithm>

#include "ops/compute.h"
#include "ops/layout_rule.h"

namespace relaxvm::ops {
namespace {

// A product of dimensions as a constant and a bag of symbolic factors, so that groups of equal size
// are found without a prover.
class Factors {
 public:
  void Multiply(const Expr& dim) {
    if (auto value = ir::AsInt(dim)) {
      constant_ *= *value;
    } else {
      symbolic_.push_back(dim);
    }
  }
  bool SameAs(const Factors& other) const {
    if (constant_ != other.constant_ || symbolic_.size() != other.symbolic_.size()) return false;
    std::vector<bool> used(symbolic_.size());
    for (const Expr& e : symbolic_) {
      size_t k = 0;
      while (k < used.size() && (used[k] || !ir::StructuralEqual(e, other.symbolic_[k]))) ++k;
      if (k == used.size()) return false;
      used[k] = true;
    }
    return true;
  }

 private:
  int64_t constant_ = 1;
  std::vector<Expr> symbolic_;
};

// Index into `from` of the element that stands at `i` of `to`: dimensions are matched in the
// shortest groups of equal size, so that unchanged ones need no division.
Indices Regroup(const Indices& i, const Dims& to, const Dims& from) {
  Indices at;
  size_t t = 0, f = 0;
  while (f < from.size()) {
    size_t t_end = t, f_end = f;
    Factors to_size, from_size;
    from_size.Multiply(from[f_end++]);
    while (t_end < to.size() && !to_size.SameAs(from_size)) to_size.Multiply(to[t_end++]);
    if (!to_size.SameAs(from_size)) {  // the rest in one group
      t_end = to.size();
      f_end = from.size();
    }
    Dims to_dims(to.begin() + t, to.begin() + t_end);
    Dims from_dims(from.begin() + f, from.begin() + f_end);
    Expr flat = Flatten(Indices(i.begin() + t, i.begin() + t_end), to_dims);
    for (const Expr& e : Unflatten(flat, from_dims)) at.push_back(e);
    t = t_end;
    f = f_end;
  }
  return at;
}

Tensors Reshaped(const Tensor& x, const Dims& out, const char* name) {
  return {tir::Compute(out, [&](const Indices& i) { return x(Regroup(i, out, x->shape)); }, name)};
}

bool HasZero(const Dims& dims) {
  return std::any_of(dims.begin(), dims.end(), [](const Expr& d) { return ir::IsIntValue(d, 0); });
}

bool HasRest(const Dims& dims) {
  return std::any_of(dims.begin(), dims.end(), [](const Expr& d) { return ir::IsIntValue(d, -1); });
}

// The dimensions that `shape` asks for: -1 is what is left over, 0 the one at the same place of x.
Dims Resolve(const TypeCtx& ctx, const std::optional<Dims>& x, const Dims& shape) {
  std::vector<Expr> dims(shape.begin(), shape.end());
  std::optional<size_t> rest;
  Expr known(1);
  for (size_t d = 0; d < dims.size(); ++d) {
    auto value = ir::AsInt(dims[d]);
    if (value.has_value() && *value == 0 && x && !HasZero(*x)) {
      if (d >= x->size()) {
        ctx.Error(ErrorKind::kValueError, "dimension ", d,
                  " of the shape is 0 (as in x), but x is ", DescribeType(ctx.type(0)));
      }
      dims[d] = (*x)[d];
    } else if (value.has_value() && *value < 0) {
      if (*value != -1) {
        ctx.Error(ErrorKind::kAttribute, "a dimension of the shape is ", *value,
                  "; use sizes of at least 0, or -1 for the one to be computed");
      }
      if (rest) ctx.Error(ErrorKind::kAttribute, "only one dimension of the shape may be -1");
      rest = d;
      continue;
    }
    known = known * dims[d];
  }
  if (rest) {
    Expr total = ctx.Simplify(ProductOf(*x));
    known = ctx.Simplify(known);
    if (ir::IsIntValue(known, 0)) {
      ctx.Error(ErrorKind::kValueError, "-1 cannot be computed beside a dimension of 0");
    }
    auto n = ir::AsInt(total);
    auto m = ir::AsInt(known);
    if (n.has_value() && m.has_value() && *n % *m != 0) {
      ctx.Error(ErrorKind::kValueError, DescribeType(ctx.type(0)), " has ", *n, " elements, which ",
                DescribeDims(shape), " does not divide");
    }
    dims[*rest] = ctx.Simplify(ir::FloorDiv(total, known));
  }
  return Dims(dims.begin(), dims.end());
}

Type InferReshape(TypeCtx& ctx, const NoAttrs&) {
  TensorType x = ctx.Tensor(0);
  if (ctx.type(1).as<ir::ShapeTypeObj>() == nullptr) {
    ctx.Error(ErrorKind::kTypeError, "shape must be a shape, got ", DescribeType(ctx.type(1)));
  }
  auto shape = ctx.Shape(1);
  if (!shape) return ctx.OfShape(1, x->dtype);
  std::optional<Dims> from;
  if (auto dims = x->GetShape()) from = *dims;
  if (!from && HasRest(*shape)) return ctx.Result(std::nullopt, ctx.Rank(1), x->dtype);
  Dims to = Resolve(ctx, from, *shape);
  if (from) {
    Expr before = ctx.Simplify(ProductOf(*from));
    Expr after = ctx.Simplify(ProductOf(to));
    if (!ctx.Equal(before, after) && ctx.Prove(ir::NotEqual(before, after))) {
      ctx.Error(ErrorKind::kValueError, DescribeType(x), " has ", DescribeExpr(before),
                " elements, the shape ", DescribeDims(to), " has ", DescribeExpr(after));
    }
  }
  return ctx.Result(to, x->dtype);
}

Type InferFlatten(TypeCtx& ctx, const NoAttrs&) {
  TensorType x = ctx.Tensor(0);
  auto dims = x->GetShape();
  if (!dims.has_value()) return ctx.Result(std::nullopt, 1, x->dtype);
  return ctx.Result(Dims{ctx.Simplify(ProductOf(*dims))}, x->dtype);
}

Type InferBatchFlatten(TypeCtx& ctx, const NoAttrs&) {
  TensorType x = ctx.Tensor(0);
  if (x->ndim == 0) ctx.Error(ErrorKind::kValueError, "data must have at least one dimension");
  auto dims = x->GetShape();
  if (!dims.has_value()) return ctx.Result(std::nullopt, 2, x->dtype);
  return ctx.Result(Dims{(*dims)[0], ctx.Simplify(ProductOf(*dims, 1, dims->size()))}, x->dtype);
}

struct AxisList {
  std::optional<Ints> axis;
};

Type InferSqueeze(TypeCtx& ctx, const AxisList& a) {
  TensorType x = ctx.Tensor(0);
  if (x->IsUnknownRank()) return ctx.Result(std::nullopt, -1, x->dtype);
  auto dims = x->GetShape();
  if (!a.axis) {
    if (!dims.has_value()) return ctx.Result(std::nullopt, -1, x->dtype);
    Dims kept;
    for (const Expr& d : *dims) {
      if (!ir::IsIntValue(d, 1)) kept.push_back(d);
    }
    return ctx.Result(kept, x->dtype);
  }
  Ints axes = ctx.Axes(*a.axis, x->ndim);
  if (!dims.has_value()) {
    return ctx.Result(std::nullopt, x->ndim - static_cast<int64_t>(axes.size()), x->dtype);
  }
  Dims kept;
  for (int64_t d = 0; d < x->ndim; ++d) {
    const Expr& dim = (*dims)[d];
    if (std::find(axes.begin(), axes.end(), d) == axes.end()) {
      kept.push_back(dim);
    } else if (ctx.Prove(ir::NotEqual(dim, Expr(1)))) {
      kept.push_back(dim);  // as PyTorch has it: only extents of 1 can go
    }
  }
  return ctx.Result(kept, x->dtype);
}

// Which dimension of x a dimension of the result is: the squeezed ones are left out.
Tensors ComputeSqueeze(const ComputeArgs& in, const AxisList& a) {
  const Tensor& x = in[0];
  std::vector<bool> gone(x.ndim());
  for (int d = 0; d < x.ndim(); ++d) gone[d] = !a.axis && ir::IsIntValue(x->shape[d], 1);
  if (a.axis) {
    std::unique_ptr<ir::TypeContext> facts = MakeTypeContext();
    for (int64_t axis : *a.axis) {
      const int64_t d = axis < 0 ? axis + x.ndim() : axis;
      gone.at(d) = !facts->Prove(ir::NotEqual(x->shape[d], Expr(1)));
    }
  }
  auto formula = [&](const Indices& i) {
    Indices at;
    size_t next = 0;
    for (bool g : gone) at.push_back(g ? Expr(0) : i[next++]);
    return x(at);
  };
  return {tir::Compute(in.OutShape(), formula, "squeeze")};
}

struct ExpandDims {
  Ints axis;
};

Type InferExpandDims(TypeCtx& ctx, const ExpandDims& a) {
  TensorType x = ctx.Tensor(0);
  if (x->IsUnknownRank()) return ctx.Result(std::nullopt, -1, x->dtype);
  int64_t ndim = x->ndim + static_cast<int64_t>(a.axis.size());
  Ints axes = ctx.Axes(a.axis, ndim);
  auto dims = x->GetShape();
  if (!dims.has_value()) return ctx.Result(std::nullopt, ndim, x->dtype);
  Dims result;
  size_t next = 0;
  for (int64_t d = 0; d < ndim; ++d) {
    bool added = std::find(axes.begin(), axes.end(), d) != axes.end();
    result.push_back(added ? Expr(1) : (*dims)[next++]);
  }
  return ctx.Result(result, x->dtype);
}

Tensors ComputeExpandDims(const ComputeArgs& in, const ExpandDims& a) {
  Dims out = in.OutShape();
  std::vector<bool> added(out.size());
  for (int64_t axis : a.axis) added.at(axis < 0 ? axis + out.size() : axis) = true;
  auto formula = [&](const Indices& i) {
    Indices at;
    for (size_t d = 0; d < out.size(); ++d) {
      if (!added[d]) at.push_back(i[d]);
    }
    return in[0](at);
  };
  return {tir::Compute(out, formula, "expand_dims")};
}

}  // namespace

OpDef reshape() {
  return Define<NoAttrs>({
      .name = "reshape",
      .doc = "The same elements in another shape; -1 is what is left over, 0 as in x.",
      .args = {{"x", "The tensor."}, {"shape", "The shape.", ArgKind::kShape}},
      .reference = "out = np.reshape(x, shape)",
      .samples = {{{"x: f32[4, 8]", "shape=[8, 4]"}},
                  {{"x: f32[2, =3, =4]", "shape=[2, 12]"}},
                  {{"x: f32[2, 3, 4]", "shape=[6, -1]"}},
                  {{"x: f32[1, 1]", "shape=[]"}}},
      .type = InferReshape,
      .compute = [](const ComputeArgs& in,
                    const NoAttrs&) { return Reshaped(in[0], in.OutShape(), "reshape"); },
      .layout = LayoutOf(LayoutRule::Kind::kReshape),
  });
}

OpDef flatten() {
  return Define<NoAttrs>({
      .name = "flatten",
      .doc = "All elements in one dimension.",
      .args = {{"x", "The tensor."}},
      .reference = "out = np.reshape(x, [-1])",
      .samples = {{{"x: f32[2, 3, 4]"}}, {{"x: f32[]"}}},
      .type = InferFlatten,
      .compute = [](const ComputeArgs& in,
                    const NoAttrs&) { return Reshaped(in[0], in.OutShape(), "flatten"); },
      .layout = LayoutOf(LayoutRule::Kind::kReshape),
  });
}

OpDef nn_batch_flatten() {
  return Define<NoAttrs>({
      .name = "nn.batch_flatten",
      .doc = "All dimensions but the first in one.",
      .args = {{"data", "The tensor."}},
      .reference = "out = np.reshape(data, (data.shape[0], int(np.prod(data.shape[1:]))))",
      .samples = {{{"data: f32[2, 3, 4]"}}, {{"data: f32[5]"}}},
      .type = InferBatchFlatten,
      .compute = [](const ComputeArgs& in,
                    const NoAttrs&) { return Reshaped(in[0], in.OutShape(), "batch_flatten"); },
      .layout = LayoutOf(LayoutRule::Kind::kReshape),
  });
}

OpDef squeeze() {
  return Define<AxisList>({
      .name = "squeeze",
      .doc = "Takes away dimensions of extent 1.",
      .args = {{"x", "The tensor."}},
      .attrs = {{"axis", &AxisList::axis, "The dimensions; None: all of extent 1."}},
      .reference = "out = np.squeeze(x, axis=None if axis is None else tuple(axis))",
      .samples = {{{"x: f32[4, 1, 8]", "axis=[1]"}}, {{"x: f32[1, =3, 1]"}}},
      .type = InferSqueeze,
      .compute = ComputeSqueeze,
      .layout = LayoutOf(LayoutRule::Kind::kSqueeze, "axis"),
  });
}

OpDef expand_dims() {
  return Define<ExpandDims>({
      .name = "expand_dims",
      .doc = "Adds dimensions of extent 1.",
      .args = {{"x", "The tensor."}},
      .attrs = {{"axis", &ExpandDims::axis, "Where they stand in the result.", true}},
      .reference = "out = np.expand_dims(x, tuple(axis))",
      .samples = {{{"x: f32[4, 8]", "axis=[1]"}}, {{"x: f32[3]", "axis=[0, -1]"}}},
      .type = InferExpandDims,
      .compute = ComputeExpandDims,
      .layout = LayoutOf(LayoutRule::Kind::kExpand, "axis"),
  });
}

}  // namespace relaxvm::ops
