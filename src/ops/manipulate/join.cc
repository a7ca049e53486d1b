// SPDX-License-Identifier: Apache-2.0
// Several tensors into one and one into several: concat, stack, split, meshgrid.
#include <algorithm>

#include "ops/compute.h"
#include "ops/layout_rule.h"

namespace relaxvm::ops {
namespace {

struct JoinAttrs {
  std::optional<int64_t> axis = 0;
};

// One dtype and one rank of all of them; absent when none is known.
struct Common {
  DLDataType dtype = Void();
  int64_t ndim = -1;
  bool shapes_known = true;
};

Common CommonOf(const TypeCtx& ctx, const std::vector<TensorType>& tensors) {
  Common common;
  if (tensors.empty()) ctx.Error(ErrorKind::kValueError, "tensors must not be empty");
  bool dtype_known = true;
  for (size_t n = 0; n < tensors.size(); ++n) {
    const TensorType& t = tensors[n];
    if (t->IsUnknownDtype()) {
      dtype_known = false;
    } else if (IsVoid(common.dtype)) {
      common.dtype = t->dtype;
    } else if (common.dtype != t->dtype) {
      ctx.Error(ErrorKind::kTypeError, "all tensors must have one dtype, but tensors[", n, "] is ",
                DescribeType(t), " and others are ", DTypeName(common.dtype));
    }
    if (!t->IsUnknownRank()) {
      if (common.ndim >= 0 && common.ndim != t->ndim) {
        ctx.Error(ErrorKind::kValueError, "all tensors must have one rank, but tensors[", n,
                  "] is ", DescribeType(t), " and others have ", common.ndim, " dimensions");
      }
      common.ndim = t->ndim;
    }
    common.shapes_known = common.shapes_known && t->GetShape().has_value();
  }
  if (!dtype_known) common.dtype = Void();
  return common;
}

// All dimensions but `axis` (-1: all) must agree; a constant is taken before an expression.
Dims AgreedDims(const TypeCtx& ctx, const std::vector<TensorType>& tensors, int64_t axis) {
  Dims first = *tensors[0]->GetShape();
  std::vector<Expr> dims(first.begin(), first.end());
  for (size_t n = 1; n < tensors.size(); ++n) {
    Dims other = *tensors[n]->GetShape();
    for (size_t d = 0; d < dims.size(); ++d) {
      if (static_cast<int64_t>(d) == axis) continue;
      if (ctx.Prove(ir::NotEqual(dims[d], other[d]))) {
        ctx.Error(ErrorKind::kValueError, "tensors[0] is ", DescribeType(tensors[0]),
                  " and tensors[", n, "] is ", DescribeType(tensors[n]), ": dimension ", d,
                  " must be the same");
      }
      if (ir::AsInt(other[d]).has_value()) dims[d] = other[d];
    }
  }
  return Dims(dims.begin(), dims.end());
}

Type InferConcat(TypeCtx& ctx, const JoinAttrs& a) {
  std::vector<TensorType> tensors = ctx.TensorTuple(0);
  Common common = CommonOf(ctx, tensors);
  if (common.ndim < 0) return ctx.Result(std::nullopt, -1, common.dtype);
  if (!a.axis && common.ndim != 1) {
    ctx.Error(ErrorKind::kValueError, "axis None joins vectors; the tensors have ", common.ndim,
              " dimensions");
  }
  int64_t axis = ctx.Axis(a.axis.value_or(0), common.ndim);
  if (!common.shapes_known) return ctx.Result(std::nullopt, common.ndim, common.dtype);
  Dims dims = AgreedDims(ctx, tensors, axis);
  Expr sum(0);
  for (const TensorType& t : tensors) sum = sum + (*t->GetShape())[axis];
  dims.Set(axis, ctx.Simplify(sum));
  return ctx.Result(dims, common.dtype);
}

Tensors ComputeConcat(const ComputeArgs& in, const JoinAttrs& a) {
  const Tensors& parts = in.Tuple(0);
  int64_t axis = a.axis.value_or(0);
  if (axis < 0) axis += parts[0].ndim();
  std::vector<Expr> begins{Expr(0)};
  for (const Tensor& t : parts) begins.push_back(begins.back() + t->shape[axis]);
  auto formula = [&](const Indices& i) {
    Expr value;
    for (size_t n = parts.size(); n-- > 0;) {
      Indices at = i;
      at.Set(axis, i[axis] - begins[n]);
      Expr own = parts[n](at);
      value = value.defined() ? ir::IfThenElse(ir::Less(i[axis], begins[n + 1]), own, value) : own;
    }
    return value;
  };
  return {tir::Compute(in.OutShape(), formula, "concat")};
}

Type InferStack(TypeCtx& ctx, const JoinAttrs& a) {
  std::vector<TensorType> tensors = ctx.TensorTuple(0);
  Common common = CommonOf(ctx, tensors);
  if (common.ndim < 0) return ctx.Result(std::nullopt, -1, common.dtype);
  int64_t axis = ctx.Axis(a.axis.value_or(0), common.ndim + 1);
  if (!common.shapes_known) return ctx.Result(std::nullopt, common.ndim + 1, common.dtype);
  Dims dims = AgreedDims(ctx, tensors, -1);
  dims.insert(dims.begin() + axis, Expr(static_cast<int64_t>(tensors.size())));
  return ctx.Result(dims, common.dtype);
}

Tensors ComputeStack(const ComputeArgs& in, const JoinAttrs& a) {
  const Tensors& parts = in.Tuple(0);
  int64_t axis = a.axis.value_or(0);
  if (axis < 0) axis += parts[0].ndim() + 1;
  auto formula = [&](const Indices& i) {
    Indices at = i;
    at.erase(at.begin() + axis);
    Expr value = parts.back()(at);
    for (size_t n = parts.size() - 1; n-- > 0;) {
      value =
          ir::IfThenElse(ir::Equal(i[axis], Expr(static_cast<int64_t>(n))), parts[n](at), value);
    }
    return value;
  };
  return {tir::Compute(in.OutShape(), formula, "stack")};
}

struct Split {
  ffi::Any indices_or_sections = nullptr;  // int64, or Array<int64_t>
  int64_t axis = 0;
};

// An integer or a list of integers, in our own objects.
void CompleteSplit(Split& a) {
  if (auto sections = AttrCodec<int64_t>::Decode(a.indices_or_sections)) {
    a.indices_or_sections = *sections;
  } else if (auto indices = AttrCodec<Ints>::Decode(a.indices_or_sections)) {
    a.indices_or_sections = AttrCodec<Ints>::Encode(*indices);
  }
}

// Where the parts begin, and the end of the last one: never behind the axis.
std::vector<Expr> SplitPoints(const Split& a, const Expr& extent, ir::TypeContext& facts) {
  auto simplify = [&](const Expr& e) { return facts.Simplify(e); };
  std::vector<Expr> points{Expr(0)};
  if (auto sections = AttrCodec<int64_t>::Decode(a.indices_or_sections)) {
    Expr length = simplify(ir::CeilDiv(extent, Expr(*sections)));
    for (int64_t n = 1; n < *sections; ++n) {
      Expr at = simplify(length * Expr(n));
      if (!facts.Prove(ir::LessEqual(at, extent))) at = simplify(ir::Min(at, extent));
      points.push_back(at);
    }
  } else {
    Ints indices = *AttrCodec<Ints>::Decode(a.indices_or_sections);
    for (int64_t index : indices) {
      Expr at = index < 0 ? ir::Max(extent + Expr(index), Expr(0)) : ir::Min(Expr(index), extent);
      points.push_back(simplify(at));
    }
  }
  points.push_back(extent);
  return points;
}

Type InferSplit(TypeCtx& ctx, const Split& a) {
  TensorType x = ctx.Tensor(0);
  auto sections = AttrCodec<int64_t>::Decode(a.indices_or_sections);
  auto indices = AttrCodec<Ints>::Decode(a.indices_or_sections);
  if (!sections && !indices) {
    ctx.Error(ErrorKind::kTypeError,
              "indices_or_sections must be a number of parts or a list of indices");
  }
  if (sections && *sections < 1) {
    ctx.Error(ErrorKind::kAttribute, "cannot split into ", *sections, " parts");
  }
  size_t num_parts = sections ? *sections : indices->size() + 1;
  if (x->IsUnknownRank() || !x->GetShape().has_value()) {
    if (!x->IsUnknownRank()) ctx.Axis(a.axis, x->ndim);
    return ir::TupleType(ffi::Array<Type>(num_parts, ctx.Result(std::nullopt, x->ndim, x->dtype)));
  }
  int64_t axis = ctx.Axis(a.axis, x->ndim);
  Dims dims = *x->GetShape();
  std::vector<Expr> points = SplitPoints(a, dims[axis], ctx.facts());
  ffi::Array<Type> parts;
  for (size_t n = 0; n + 1 < points.size(); ++n) {
    Expr length = ctx.Simplify(points[n + 1] - points[n]);
    if (!ctx.Prove(ir::GreaterEqual(length, Expr(0)))) {
      length = ctx.Simplify(ir::Max(length, Expr(0)));
    }
    dims.Set(axis, length);
    parts.push_back(ctx.Result(dims, x->dtype));
  }
  return ir::TupleType(parts);
}

Tensors ComputeSplit(const ComputeArgs& in, const Split& a) {
  const Tensor& x = in[0];
  int64_t axis = a.axis < 0 ? a.axis + x.ndim() : a.axis;
  std::unique_ptr<ir::TypeContext> facts = MakeTypeContext();
  std::vector<Expr> points = SplitPoints(a, x->shape[axis], *facts);
  Tensors parts;
  for (size_t n = 0; n + 1 < points.size(); ++n) {
    auto formula = [&](const Indices& i) {
      Indices at = i;
      at.Set(axis, i[axis] + points[n]);
      return x(at);
    };
    parts.push_back(tir::Compute(in.OutShape(n), formula, "split"));
  }
  return parts;
}

struct Meshgrid {
  std::optional<std::string> indexing = "ij";
};

Type InferMeshgrid(TypeCtx& ctx, const Meshgrid& a) {
  std::vector<TensorType> tensors = ctx.TensorTuple(0);
  std::string indexing = a.indexing.value_or("ij");
  if (indexing != "ij" && indexing != "xy") {
    ctx.Error(ErrorKind::kValueError, "indexing must be 'ij' or 'xy', got '", indexing, "'");
  }
  Common common = CommonOf(ctx, tensors);
  if (common.ndim > 1) ctx.Error(ErrorKind::kValueError, "the tensors must have one dimension");
  auto ndim = static_cast<int64_t>(tensors.size());
  std::optional<Dims> dims;
  if (common.shapes_known) {
    dims = Dims();
    for (const TensorType& t : tensors) {
      dims->push_back(t->ndim == 0 ? Expr(1) : (*t->GetShape())[0]);
    }
    if (indexing == "xy" && ndim > 1) {
      Expr first = (*dims)[0];
      dims->Set(0, (*dims)[1]);
      dims->Set(1, first);
    }
  }
  return ir::TupleType(ffi::Array<Type>(ndim, ctx.Result(dims, ndim, common.dtype)));
}

Tensors ComputeMeshgrid(const ComputeArgs& in, const Meshgrid& a) {
  const Tensors& parts = in.Tuple(0);
  bool swap = a.indexing.value_or("ij") == "xy";
  Tensors result;
  for (size_t n = 0; n < parts.size(); ++n) {
    size_t d = swap && n < 2 && parts.size() > 1 ? 1 - n : n;
    auto formula = [&](const Indices& i) {
      return parts[n].ndim() == 0 ? parts[n]({}) : parts[n]({i[d]});
    };
    result.push_back(tir::Compute(in.OutShape(n), formula, "meshgrid"));
  }
  return result;
}

}  // namespace

OpDef concat() {
  return Define<JoinAttrs>({
      .name = "concat",
      .doc = "Tensors one after another along an axis.",
      .args = {{"tensors", "The tensors; they agree in all other dimensions.", ArgKind::kTensors}},
      .attrs = {{"axis", &JoinAttrs::axis, "The axis; None: the tensors are vectors."}},
      .reference = "out = np.concatenate(tensors, axis=axis or 0)",
      .samples = {{{"tensors: (f32[4, 8], f32[3, 8])"}},
                  {{"tensors: (f32[2, 1, 5], f32[2, 3, 5], f32[2, 2, 5])", "axis=-2"}},
                  {{"tensors: (f32[3],)", "axis=None"}}},
      .type = InferConcat,
      .compute = ComputeConcat,
      .layout = AxesLayout({"axis"}),
  });
}

OpDef stack() {
  return Define<JoinAttrs>({
      .name = "stack",
      .doc = "Tensors of one shape along a new axis.",
      .args = {{"tensors", "The tensors.", ArgKind::kTensors}},
      .attrs = {{"axis", &JoinAttrs::axis, "Where the new axis stands."}},
      .reference = "out = np.stack(tensors, axis=axis or 0)",
      .samples = {{{"tensors: (f32[4, 8], f32[4, 8])"}},
                  {{"tensors: (f32[3], f32[3], f32[3])", "axis=-1"}}},
      .type = InferStack,
      .compute = ComputeStack,
  });
}

OpDef split() {
  return Define<Split>({
      .name = "split",
      .doc = "Cuts a tensor along an axis, into parts of one size (the last may be smaller) or at "
             "indices.",
      .args = {{"x", "The tensor."}},
      .attrs = {{"indices_or_sections", &Split::indices_or_sections,
                 "How many parts, or the indices where the second and later parts begin.", true},
                {"axis", &Split::axis, "The axis."}},
      .reference = "out = split(x, indices_or_sections, axis)",
      .samples = {{{"x: f32[4, 8]", "indices_or_sections=2", "axis=1"}},
                  {{"x: f32[7, 3]", "indices_or_sections=3"}},
                  {{"x: f32[2, 10]", "indices_or_sections=[3, 7]", "axis=-1"}}},
      .type = InferSplit,
      .compute = ComputeSplit,
      .complete = CompleteSplit,
      .layout = AxesLayout({"axis"}),
  });
}

OpDef meshgrid() {
  return Define<Meshgrid>({
      .name = "meshgrid",
      .doc = "Coordinates of a grid from the coordinates of its axes.",
      .args = {{"tensors", "Vectors, one for each axis.", ArgKind::kTensors}},
      .attrs = {{"indexing", &Meshgrid::indexing, "'ij', or 'xy': the first two axes swapped."}},
      .reference = "out = tuple(np.meshgrid(*tensors, indexing=indexing or 'ij'))",
      .samples = {{{"tensors: (f32[4], f32[3])"}},
                  {{"tensors: (f32[4], f32[3], f32[2])", "indexing='xy'"}}},
      .type = InferMeshgrid,
      .compute = ComputeMeshgrid,
  });
}

}  // namespace relaxvm::ops
