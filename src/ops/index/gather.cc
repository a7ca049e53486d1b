// SPDX-License-Identifier: Apache-2.0
// Elements picked by tensors of indices: take, gather_elements, gather_nd, index_tensor, one_hot.
// An index below 0 counts from the end.  One that is still outside is moved to the border, so that
// a wrong index never reads foreign memory.
#include <algorithm>
#include <cmath>

#include "ops/compute.h"
#include "ops/layout_rule.h"

namespace relaxvm::ops {
namespace {

Expr Inside(const Expr& index, const Expr& extent) {
  Expr at = WrapIndex(ir::Cast(Int(64), index), extent);
  return ir::Max(ir::Min(at, extent - Expr(1)), Expr(0));
}

struct Take {
  std::optional<int64_t> axis;
  std::string mode = "fast";
};

Type InferTake(TypeCtx& ctx, const Take& a) {
  TensorType x = ctx.Tensor(0);
  if (a.mode != "fast" && a.mode != "clip" && a.mode != "wrap" && a.mode != "nan") {
    ctx.Error(ErrorKind::kValueError, "mode must be 'fast', 'clip', 'wrap' or 'nan', got '", a.mode,
              "'");
  }
  if (a.mode == "nan" && !IsVoid(x->dtype) && !IsFloat(x->dtype)) {
    ctx.Error(ErrorKind::kTypeError, "mode 'nan' needs floating-point elements, got ",
              DescribeType(x));
  }
  Dims picked;
  int64_t picked_ndim = 0;
  bool picked_known = true;
  if (const auto* prim = ctx.type(1).as<ir::PrimTypeObj>()) {
    if (!IsInteger(prim->dtype)) ctx.Error(ErrorKind::kTypeError, "indices must be integers");
  } else {
    TensorType indices = ctx.TensorOf(1, IsInteger, "a tensor of integers");
    picked_ndim = indices->ndim;
    auto dims = indices->GetShape();
    picked_known = dims.has_value();
    if (picked_known) picked = *dims;
  }
  if (x->IsUnknownRank()) return ctx.Result(std::nullopt, a.axis ? -1 : picked_ndim, x->dtype);
  if (!a.axis && x->ndim != 1) {
    ctx.Error(ErrorKind::kValueError, "axis must be given: x has ", x->ndim, " dimensions");
  }
  int64_t axis = ctx.Axis(a.axis.value_or(0), x->ndim);
  if (picked_ndim < 0) return ctx.Result(std::nullopt, -1, x->dtype);
  auto dims = x->GetShape();
  if (!dims.has_value() || !picked_known) {
    return ctx.Result(std::nullopt, x->ndim - 1 + picked_ndim, x->dtype);
  }
  Dims result((*dims).begin(), (*dims).begin() + axis);
  for (const Expr& d : picked) result.push_back(d);
  for (int64_t d = axis + 1; d < x->ndim; ++d) result.push_back((*dims)[d]);
  return ctx.Result(result, x->dtype);
}

Tensors ComputeTake(const ComputeArgs& in, const Take& a) {
  const Tensor& x = in[0];
  int64_t axis = a.axis.value_or(0) < 0 ? *a.axis + x.ndim() : a.axis.value_or(0);
  bool scalar = in.tensors[1].empty();
  size_t picked = scalar ? 0 : in[1]->shape.size();
  Expr extent = x->shape[axis];
  auto formula = [&](const Indices& i) -> Expr {
    Indices of_index(i.begin() + axis, i.begin() + axis + picked);
    Expr index = ir::Cast(Int(64), scalar ? in.Prim(1) : in[1](of_index));
    Expr inside = Inside(index, extent);
    if (a.mode == "clip") inside = ir::Max(ir::Min(index, extent - Expr(1)), Expr(0));
    if (a.mode == "wrap") inside = SafeRemainder(index, extent, true);
    Indices at(i.begin(), i.begin() + axis);
    at.push_back(inside);
    for (size_t d = axis + picked; d < i.size(); ++d) at.push_back(i[d]);
    Expr value = GuardEmpty(x(at), {extent});
    if (a.mode != "nan") return value;
    Expr known = ir::And(ir::GreaterEqual(index, Expr(0) - extent), ir::Less(index, extent));
    return ir::Select(known, value, ir::ConstFloat(x.dtype(), std::nan("")));
  };
  return {tir::Compute(in.OutShape(), formula, "take")};
}

struct GatherElements {
  int64_t axis = 0;
};

Type InferGatherElements(TypeCtx& ctx, const GatherElements& a) {
  TensorType x = ctx.Tensor(0);
  TensorType indices = ctx.TensorOf(1, IsInteger, "a tensor of integers");
  if (!x->IsUnknownRank()) {
    int64_t axis = ctx.Axis(a.axis, x->ndim);
    ctx.CheckRank(1, x->ndim);
    auto dims = x->GetShape();
    auto picked = indices->GetShape();
    for (int64_t d = 0; dims.has_value() && picked.has_value() && d < x->ndim; ++d) {
      if (d != axis && ctx.Prove(ir::Greater((*picked)[d], (*dims)[d]))) {
        ctx.Error(ErrorKind::kValueError, "indices has ", DescribeExpr((*picked)[d]),
                  " elements in dimension ", d, ", but data only ", DescribeExpr((*dims)[d]));
      }
    }
  }
  return ctx.Like(indices, x->dtype);
}

Tensors ComputeGatherElements(const ComputeArgs& in, const GatherElements& a) {
  const Tensor& x = in[0];
  int64_t axis = a.axis < 0 ? a.axis + x.ndim() : a.axis;
  auto formula = [&](const Indices& i) {
    Indices at = i;
    at.Set(axis, Inside(in[1](i), x->shape[axis]));
    return GuardEmpty(x(at), {x->shape[axis]});
  };
  return {tir::Compute(in.OutShape(), formula, "gather_elements")};
}

struct GatherNd {
  int64_t batch_dims = 0;
};

// data[b.., indices[b.., j.., 0], indices[b.., j.., 1] .., rest..]
Type InferGatherNd(TypeCtx& ctx, const GatherNd& a) {
  TensorType x = ctx.Tensor(0);
  TensorType indices = ctx.TensorOf(1, IsInteger, "a tensor of integers");
  if (a.batch_dims < 0) {
    ctx.Error(ErrorKind::kValueError, "batch_dims must be at least 0, got ", a.batch_dims);
  }
  if (indices->ndim == 0) {
    ctx.Error(ErrorKind::kValueError, "indices must have at least one dimension");
  }
  auto picked = indices->GetShape();
  if (x->IsUnknownRank() || !picked.has_value()) return ctx.Result(std::nullopt, -1, x->dtype);
  auto length = ir::AsInt((*picked)[picked->size() - 1]);
  // How many dimensions a vector of unknown length picks along is not known either.
  if (!length.has_value()) return ctx.Result(std::nullopt, -1, x->dtype);
  if (a.batch_dims >= indices->ndim || a.batch_dims + *length > x->ndim) {
    ctx.Error(ErrorKind::kValueError, "indices picks along ", *length, " dimensions after ",
              a.batch_dims, " batch dimensions, which do not fit ", DescribeType(x), " and ",
              DescribeType(indices));
  }
  int64_t ndim = indices->ndim - 1 + x->ndim - a.batch_dims - *length;
  auto dims = x->GetShape();
  if (!dims.has_value()) return ctx.Result(std::nullopt, ndim, x->dtype);
  Dims result((*picked).begin(), (*picked).end() - 1);
  for (int64_t d = a.batch_dims + *length; d < x->ndim; ++d) result.push_back((*dims)[d]);
  return ctx.Result(result, x->dtype);
}

Tensors ComputeGatherNd(const ComputeArgs& in, const GatherNd& a) {
  const Tensor& x = in[0];
  const Tensor& indices = in[1];
  size_t outer = indices->shape.size() - 1;
  int64_t length = *ir::AsInt(indices.dim(-1));
  auto formula = [&](const Indices& i) {
    Indices at(i.begin(), i.begin() + a.batch_dims);
    Dims extents;
    for (int64_t k = 0; k < length; ++k) {
      Indices of_index(i.begin(), i.begin() + outer);
      of_index.push_back(Expr(k));
      extents.push_back(x->shape[a.batch_dims + k]);
      at.push_back(Inside(indices(of_index), extents.back()));
    }
    for (size_t d = outer; d < i.size(); ++d) at.push_back(i[d]);
    return GuardEmpty(x(at), extents);
  };
  return {tir::Compute(in.OutShape(), formula, "gather_nd")};
}

// data[indices0, indices1, ...], the index tensors broadcast.
Type InferIndexTensor(TypeCtx& ctx, const NoAttrs&) {
  TensorType x = ctx.Tensor(0);
  std::vector<TensorType> indices = ctx.TensorTuple(1);
  if (indices.empty()) ctx.Error(ErrorKind::kValueError, "indices must not be empty");
  std::optional<Dims> picked = Dims();
  int64_t picked_ndim = 0;
  for (size_t k = 0; k < indices.size(); ++k) {
    const TensorType& t = indices[k];
    if (!t->IsUnknownDtype() && !IsInteger(t->dtype)) {
      ctx.Error(ErrorKind::kTypeError, "indices[", k, "] must be a tensor of integers, got ",
                DescribeType(t));
    }
    auto dims = t->GetShape();
    if (picked && dims.has_value()) {
      picked = ctx.Broadcast(*picked, *dims);
    } else {
      picked.reset();
    }
    picked_ndim = picked_ndim < 0 || t->IsUnknownRank() ? -1 : std::max(picked_ndim, t->ndim);
  }
  auto count = static_cast<int64_t>(indices.size());
  if (x->IsUnknownRank()) return ctx.Result(std::nullopt, -1, x->dtype);
  if (count > x->ndim) {
    ctx.Error(ErrorKind::kValueError, "there are ", count, " tensors of indices for the ", x->ndim,
              " dimensions of data");
  }
  auto dims = x->GetShape();
  if (!picked || !dims.has_value()) {
    int64_t ndim = picked_ndim < 0 ? -1 : picked_ndim + x->ndim - count;
    return ctx.Result(std::nullopt, ndim, x->dtype);
  }
  for (int64_t d = count; d < x->ndim; ++d) picked->push_back((*dims)[d]);
  return ctx.Result(*picked, x->dtype);
}

Tensors ComputeIndexTensor(const ComputeArgs& in, const NoAttrs&) {
  const Tensor& x = in[0];
  const Tensors& indices = in.Tuple(1);
  Dims out = in.OutShape();
  size_t rest = x->shape.size() - indices.size();
  Dims picked(out.begin(), out.end() - rest);
  auto formula = [&](const Indices& i) {
    Indices own(i.begin(), i.begin() + picked.size());
    Indices at;
    Dims extents;
    for (size_t k = 0; k < indices.size(); ++k) {
      extents.push_back(x->shape[k]);
      at.push_back(Inside(BroadcastAt(indices[k], picked, own), x->shape[k]));
    }
    for (size_t d = picked.size(); d < i.size(); ++d) at.push_back(i[d]);
    return GuardEmpty(x(at), extents);
  };
  return {tir::Compute(out, formula, "index_tensor")};
}

struct OneHot {
  int64_t depth = 1;
  int64_t axis = -1;
};

Type InferOneHot(TypeCtx& ctx, const OneHot& a) {
  TensorType indices = ctx.TensorOf(0, IsInteger, "a tensor of integers");
  DLDataType on = ctx.Prim(1);
  if (on != ctx.Prim(2)) {
    ctx.Error(ErrorKind::kAttribute, "on_value and off_value must have one dtype, got ",
              DTypeName(on), " and ", DTypeName(ctx.Prim(2)));
  }
  if (a.depth < 1) ctx.Error(ErrorKind::kAttribute, "depth must be at least 1, got ", a.depth);
  if (indices->IsUnknownRank()) return ctx.Result(std::nullopt, -1, on);
  int64_t axis = ctx.Axis(a.axis, indices->ndim + 1);
  auto dims = indices->GetShape();
  if (!dims.has_value()) return ctx.Result(std::nullopt, indices->ndim + 1, on);
  Dims result = *dims;
  result.insert(result.begin() + axis, Expr(a.depth));
  return ctx.Result(result, on);
}

Tensors ComputeOneHot(const ComputeArgs& in, const OneHot& a) {
  Dims out = in.OutShape();
  int64_t axis = a.axis < 0 ? a.axis + out.size() : a.axis;
  auto formula = [&](const Indices& i) {
    Indices at = i;
    at.erase(at.begin() + axis);
    Expr hit = ir::Equal(ir::Cast(Int(64), in[0](at)), i[axis]);
    return ir::Select(hit, in.Prim(1), in.Prim(2));
  };
  return {tir::Compute(out, formula, "one_hot")};
}

}  // namespace

OpDef take() {
  return Define<Take>({
      .name = "take",
      .doc = "The elements of an axis that indices name.",
      .args = {{"x", "The tensor."}, {"indices", "Integers: a tensor, or one scalar."}},
      .attrs = {{"axis", &Take::axis, "The axis; None: x is a vector."},
                {"mode", &Take::mode,
                 "An index outside: 'fast' and 'clip' give the border, 'wrap' counts on from the "
                 "start, 'nan' gives NaN."}},
      .reference = "out = np.take(x, indices, axis)",
      .samples = {{{"x: f32[5, 3]", "indices: i64[4] in -5..4", "axis=0"}},
                  {{"x: f32[2, 7, 3]", "indices: i32[2, 2] in 0..6", "axis=1"}},
                  {{"x: f32[6]", "indices: i64[] in 0..5"}}},
      .type = InferTake,
      .compute = ComputeTake,
  });
}

OpDef gather_elements() {
  return Define<GatherElements>({
      .name = "gather_elements",
      .doc = "For each place an element of its line along an axis.",
      .args = {{"data", "The tensor."}, {"indices", "Which element, for each place."}},
      .attrs = {{"axis", &GatherElements::axis, "The axis."}},
      .reference = "out = np.take_along_axis(data[tuple(slice(None) if d == axis % data.ndim else "
                   "slice(n) for d, n in enumerate(indices.shape))], indices, axis)",
      .samples = {{{"data: f32[4, 3]", "indices: i64[2, 3] in -4..3"}},
                  {{"data: f32[2, 5]", "indices: i32[2, 4] in 0..4", "axis=1"}}},
      .type = InferGatherElements,
      .compute = ComputeGatherElements,
      .layout = LayoutOf(LayoutRule::Kind::kAllAxes, "axis"),
  });
}

OpDef gather_nd() {
  return Define<GatherNd>({
      .name = "gather_nd",
      .doc = "Elements or slices that vectors of indices name.",
      .args = {{"data", "The tensor."}, {"indices", "The vectors, along the last dimension."}},
      .attrs = {{"batch_dims", &GatherNd::batch_dims, "Leading dimensions that both share."}},
      .reference = "out = gather_nd(data, indices, batch_dims)",
      .samples = {{{"data: f32[3, 4, 5]", "indices: i64[2, 6, =2] in -3..2"}},
                  {{"data: f32[2, 4, 5]", "indices: i64[2, 3, 1] in 0..3", "batch_dims=1"}}},
      .type = InferGatherNd,
      .compute = ComputeGatherNd,
  });
}

OpDef index_tensor() {
  return Define<NoAttrs>({
      .name = "index_tensor",
      .doc = "data[indices0, indices1, ...]: the tensors of indices broadcast.",
      .args = {{"data", "The tensor."},
               {"indices", "Tensors of integers, for the first dimensions.", ArgKind::kTensors}},
      .reference = "out = data[tuple(indices)]",
      .samples = {{{"data: f32[3, 4, 5]", "indices: (i64[2, 1] in -3..2, i64[6] in 0..3)"}}},
      .type = InferIndexTensor,
      .compute = ComputeIndexTensor,
  });
}

OpDef one_hot() {
  return Define<OneHot>({
      .name = "one_hot",
      .doc = "A new axis that holds on_value where its index is the element, else off_value.",
      .args = {{"indices", "The integers."},
               {"on_value", "Value where it is.", ArgKind::kPrim},
               {"off_value", "Value elsewhere.", ArgKind::kPrim}},
      .attrs = {{"depth", &OneHot::depth, "Extent of the new axis.", true},
                {"axis", &OneHot::axis, "Where it stands."}},
      .reference = "out = one_hot(indices, on_value, off_value, depth, axis)",
      .samples = {{{"indices: i64[4, 3] in 0..5", "on_value=1.0", "off_value=0.0", "depth=6"}},
                  {{"indices: i32[5] in 0..2", "on_value=7", "off_value=-1", "depth=3", "axis=0"}}},
      .type = InferOneHot,
      .compute = ComputeOneHot,
  });
}

}  // namespace relaxvm::ops
