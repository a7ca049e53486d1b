// SPDX-License-Identifier: Apache-2.0
// Elements written or combined at places that tensors of indices name: scatter_elements,
// scatter_nd, index_put.  Updates are applied in order; an index below 0 counts from the end, one
// that is still outside is left out.
#include <algorithm>

#include "ops/layout_rule.h"
#include "ops/loops.h"

namespace relaxvm::ops {
namespace {

enum class Combine : uint8_t { kUpdate, kAdd, kMul, kMean, kMax, kMin };

std::optional<Combine> ParseCombine(const std::string& name) {
  if (name == "update") return Combine::kUpdate;
  if (name == "add") return Combine::kAdd;
  if (name == "mul") return Combine::kMul;
  if (name == "mean") return Combine::kMean;
  if (name == "max") return Combine::kMax;
  if (name == "min") return Combine::kMin;
  return std::nullopt;
}

void CheckReduction(const TypeCtx& ctx, const std::string& name, const TensorType& x) {
  if (!ParseCombine(name)) {
    ctx.Error(ErrorKind::kValueError,
              "reduction must be 'update', 'add', 'mul', 'mean', 'max' or 'min', got '", name, "'");
  }
  if (name != "update" && IsBool(x->dtype)) {
    ctx.Error(ErrorKind::kTypeError, "reduction '", name, "' needs numbers, got ", DescribeType(x));
  }
}

Expr Combined(Combine combine, const Expr& old, const Expr& update) {
  DLDataType t = old.dtype();
  switch (combine) {
    case Combine::kUpdate: return update;
    case Combine::kAdd: return old + update;
    case Combine::kMul: return old * update;
    case Combine::kMean: {
      Expr sum = Widen(old) + Widen(update);
      Expr two = Number(sum.dtype(), 2);
      return ir::Cast(t, ir::Div(sum, two));
    }
    case Combine::kMax: return ir::Max(old, update);
    case Combine::kMin: return ir::Min(old, update);
  }
  RELAXVM_UNREACHABLE();
}

Stmt CopyAll(const Buffer& from, const Buffer& to) {
  return VectorNest(from.shape(), [&](const Indices& i) -> Stmt {
    return tir::BufferStore(to, from.Load(i), i);
  });
}

// out[at] = combine(out[at], update) unless an index lies outside.
Stmt UpdateAt(const Buffer& out, const Indices& at, const Expr& valid, const Expr& update,
              Combine combine) {
  Stmt store = tir::BufferStore(out, Combined(combine, out.Load(at), update), at);
  return tir::IfThenElse(valid, store);
}

Expr IsInside(const Expr& index, const Expr& extent) {
  return ir::And(ir::GreaterEqual(index, Expr(0)), ir::Less(index, extent));
}

struct ScatterElements {
  int64_t axis = 0;
  std::string reduction = "update";
};

Type InferScatterElements(TypeCtx& ctx, const ScatterElements& a) {
  TensorType x = ctx.Tensor(0);
  TensorType indices = ctx.TensorOf(1, IsInteger, "a tensor of integers");
  TensorType updates = ctx.Tensor(2);
  ctx.SameDtype(0, 2);
  CheckReduction(ctx, a.reduction, x);
  if (x->IsUnknownRank()) return ctx.Like(x);
  ctx.Axis(a.axis, x->ndim);
  ctx.CheckRank(1, x->ndim);
  ctx.CheckRank(2, x->ndim);
  auto places = indices->GetShape();
  auto given = updates->GetShape();
  for (int64_t d = 0; places.has_value() && given.has_value() && d < x->ndim; ++d) {
    if (ctx.Prove(ir::Less((*given)[d], (*places)[d]))) {
      ctx.Error(ErrorKind::kValueError,
                "updates must have the shape of indices: ", DescribeType(updates), " against ",
                DescribeType(indices));
    }
  }
  return ctx.Like(x);
}

Tensors ComputeScatterElements(const ComputeArgs& in, const ScatterElements& a) {
  const Tensor& x = in[0];
  int64_t axis = a.axis < 0 ? a.axis + x.ndim() : a.axis;
  Combine combine = *ParseCombine(a.reduction);
  auto body = [axis, combine](const std::vector<Buffer>& inputs, const std::vector<Buffer>& outs) {
    const Buffer &data = inputs[0], &indices = inputs[1], &updates = inputs[2];
    Stmt update = LoopNest(
        indices.shape(),
        [&](const Indices& i) {
          Indices at = i;
          Expr index = WrapIndex(ir::Cast(Int(64), indices.Load(i)), data.shape()[axis]);
          at.Set(axis, index);
          Expr valid = IsInside(index, data.shape()[axis]);
          for (size_t d = 0; d < i.size(); ++d) {
            if (static_cast<int64_t>(d) == axis) continue;
            if (!ir::StructuralEqual(indices.shape()[d], data.shape()[d])) {
              valid = ir::And(valid, ir::Less(i[d], data.shape()[d]));
            }
          }
          return UpdateAt(outs[0], at, valid, updates.Load(i), combine);
        },
        "u");
    return Sequence({CopyAll(data, outs[0]), update});
  };
  return tir::Opaque({{"scatter_elements", x->shape, x.dtype()}}, {x, in[1], in[2]}, body,
                     "scatter_elements");
}

struct ScatterNd {
  std::string reduction = "update";
};

// data[indices[j.., 0], indices[j.., 1] .., rest..] = updates[j.., rest..]
Type InferScatterNd(TypeCtx& ctx, const ScatterNd& a) {
  TensorType x = ctx.Tensor(0);
  TensorType indices = ctx.TensorOf(1, IsInteger, "a tensor of integers");
  TensorType updates = ctx.Tensor(2);
  ctx.SameDtype(0, 2);
  CheckReduction(ctx, a.reduction, x);
  auto places = indices->GetShape();
  if (x->IsUnknownRank() || !places.has_value()) return ctx.Like(x);
  if (places->empty()) {
    ctx.Error(ErrorKind::kValueError, "indices must have at least one dimension");
  }
  auto length = ir::AsInt((*places)[places->size() - 1]);
  if (!length.has_value()) {
    ctx.Error(ErrorKind::kValueError, "the last dimension of indices must be constant, got ",
              DescribeType(indices));
  }
  if (*length > x->ndim) {
    ctx.Error(ErrorKind::kValueError, "indices names ", *length, " dimensions, but data is ",
              DescribeType(x));
  }
  int64_t want = indices->ndim - 1 + x->ndim - *length;
  if (!updates->IsUnknownRank() && updates->ndim != want) {
    ctx.Error(ErrorKind::kValueError, "updates must have ", want, " dimensions, got ",
              DescribeType(updates));
  }
  auto dims = x->GetShape();
  auto given = updates->GetShape();
  for (int64_t d = 0; dims.has_value() && given.has_value() && d < want; ++d) {
    const int64_t outer = indices->ndim - 1;
    const Expr wanted = d < outer ? (*places)[d] : (*dims)[d - outer + *length];
    if (ctx.Prove(ir::NotEqual((*given)[d], wanted))) {
      ctx.Error(ErrorKind::kValueError, "updates must have extent ", DescribeExpr(wanted),
                " in dimension ", d, ", got ", DescribeType(updates));
    }
  }
  return ctx.Like(x);
}

Tensors ComputeScatterNd(const ComputeArgs& in, const ScatterNd& a) {
  const Tensor& x = in[0];
  Combine combine = *ParseCombine(a.reduction);
  int64_t length = *ir::AsInt(in[1].dim(-1));
  auto body = [combine, length](const std::vector<Buffer>& inputs,
                                const std::vector<Buffer>& outs) {
    const Buffer &data = inputs[0], &indices = inputs[1], &updates = inputs[2];
    const Dims places(indices.shape().begin(), indices.shape().end() - 1);
    const Dims rest(data.shape().begin() + length, data.shape().end());
    // Where a run of elements goes is asked once for all of it.
    auto one = [&](const Indices& place) -> Stmt {
      ffi::Array<Stmt> seq;
      Indices start;
      Expr valid = ir::BoolImm(true);
      for (int64_t k = 0; k < length; ++k) {
        Indices of_index = place;
        of_index.push_back(Expr(k));
        const ir::Var at("at" + std::to_string(k), Int(64));
        Expr index = ir::Cast(Int(64), indices.Load(of_index));
        seq.push_back(tir::Bind(at, WrapIndex(index, data.shape()[k])));
        start.push_back(at);
        valid = ir::And(valid, IsInside(at, data.shape()[k]));
      }
      auto element = [&](const Indices& i) -> Stmt {
        Indices at = start, from = place;
        at.insert(at.end(), i.begin(), i.end());
        from.insert(from.end(), i.begin(), i.end());
        Expr value = Combined(combine, outs[0].Load(at), updates.Load(from));
        return tir::BufferStore(outs[0], value, at);
      };
      seq.push_back(tir::IfThenElse(valid, VectorNest(rest, element, "r")));
      return Sequence(seq);
    };
    return Sequence({CopyAll(data, outs[0]), LoopNest(places, one, "u")});
  };
  return tir::Opaque({{"scatter_nd", x->shape, x.dtype()}}, {x, in[1], in[2]}, body, "scatter_nd");
}

struct IndexPut {
  bool accumulate = false;
};

Type InferIndexPut(TypeCtx& ctx, const IndexPut& a) {
  TensorType x = ctx.Tensor(0);
  std::vector<TensorType> indices = ctx.TensorTuple(1);
  ctx.Tensor(2);
  ctx.SameDtype(0, 2);
  if (a.accumulate) CheckReduction(ctx, "add", x);
  if (!x->IsUnknownRank() && static_cast<int64_t>(indices.size()) > x->ndim) {
    ctx.Error(ErrorKind::kValueError, "there are ", indices.size(), " tensors of indices for the ",
              x->ndim, " dimensions of data");
  }
  std::optional<Dims> places = Dims();
  for (size_t k = 0; k < indices.size(); ++k) {
    if (!indices[k]->IsUnknownDtype() && !IsInteger(indices[k]->dtype)) {
      ctx.Error(ErrorKind::kTypeError, "indices[", k, "] must be a tensor of integers, got ",
                DescribeType(indices[k]));
    }
    auto dims = indices[k]->GetShape();
    if (places && dims.has_value()) places = ctx.Broadcast(*places, *dims);
  }
  return ctx.Like(x);
}

// The larger of two shapes that broadcast; the type rule has shown that they do.
Dims WiderShape(const Dims& a, const Dims& b) {
  const Dims& longer = a.size() >= b.size() ? a : b;
  const Dims& other = a.size() >= b.size() ? b : a;
  Dims result = longer;
  size_t skip = longer.size() - other.size();
  for (size_t d = 0; d < other.size(); ++d) {
    if (ir::IsIntValue(longer[skip + d], 1)) result.Set(skip + d, other[d]);
  }
  return result;
}

Expr BufferBroadcastAt(const Buffer& b, const Dims& out, const Indices& i) {
  Indices at;
  size_t skip = out.size() - b.shape().size();
  for (size_t d = 0; d < b.shape().size(); ++d) {
    bool repeated = ir::IsIntValue(b.shape()[d], 1) && !ir::IsIntValue(out[skip + d], 1);
    at.push_back(repeated ? Expr(0) : i[skip + d]);
  }
  return b.Load(at);
}

Tensors ComputeIndexPut(const ComputeArgs& in, const IndexPut& a) {
  const Tensor& x = in[0];
  Tensors inputs{x, in[2]};
  for (const Tensor& t : in.Tuple(1)) inputs.push_back(t);
  Combine combine = a.accumulate ? Combine::kAdd : Combine::kUpdate;
  auto body = [combine](const std::vector<Buffer>& buffers, const std::vector<Buffer>& outs) {
    const Buffer &data = buffers[0], &values = buffers[1];
    size_t count = buffers.size() - 2;
    Dims places;
    for (size_t k = 0; k < count; ++k) places = WiderShape(places, buffers[2 + k].shape());
    Dims dims = places;
    for (size_t d = count; d < data.shape().size(); ++d) dims.push_back(data.shape()[d]);
    auto one = [&](const Indices& i) {
      Indices own(i.begin(), i.begin() + places.size());
      Indices at;
      Expr valid = ir::BoolImm(true);
      for (size_t k = 0; k < count; ++k) {
        Expr index = ir::Cast(Int(64), BufferBroadcastAt(buffers[2 + k], places, own));
        at.push_back(WrapIndex(index, data.shape()[k]));
        valid = ir::And(valid, IsInside(at.back(), data.shape()[k]));
      }
      for (size_t d = places.size(); d < i.size(); ++d) at.push_back(i[d]);
      return UpdateAt(outs[0], at, valid, BufferBroadcastAt(values, dims, i), combine);
    };
    return Sequence({CopyAll(data, outs[0]), LoopNest(dims, one, "u")});
  };
  return tir::Opaque({{"index_put", x->shape, x.dtype()}}, inputs, body, "index_put");
}

const char* const kReductionDoc =
    "'update', 'add', 'mul', 'max', 'min', or 'mean' of the old and the new value.";

}  // namespace

OpDef scatter_elements() {
  return Define<ScatterElements>({
      .name = "scatter_elements",
      .doc = "data with an element of its line along an axis replaced, for each update.",
      .args = {{"data", "The tensor."},
               {"indices", "Which element, for each update."},
               {"updates", "The new values."}},
      .attrs = {{"axis", &ScatterElements::axis, "The axis."},
                {"reduction", &ScatterElements::reduction, kReductionDoc}},
      .reference = "out = scatter_elements(data, indices, updates, axis, reduction)",
      .samples = {{{"data: f32[4, 3]", "indices: i64[2, 3] in -4..3", "updates: f32[2, 3]"}},
                  {{"data: f32[3, 6]", "indices: i32[3, 4] in 0..5", "updates: f32[3, 4]", "axis=1",
                    "reduction='add'"}},
                  {{"data: f32[5]", "indices: i64[7] in 0..4", "updates: f32[7]",
                    "reduction='max'"}}},
      .type = InferScatterElements,
      .compute = ComputeScatterElements,
      .layout = LayoutOf(LayoutRule::Kind::kAllAxes, "axis"),
  });
}

OpDef scatter_nd() {
  return Define<ScatterNd>({
      .name = "scatter_nd",
      .doc = "data with the elements or slices that vectors of indices name replaced.",
      .args = {{"data", "The tensor."},
               {"indices", "The vectors, along the last dimension."},
               {"updates", "The new values."}},
      .attrs = {{"reduction", &ScatterNd::reduction, kReductionDoc}},
      .reference = "out = scatter_nd(data, indices, updates, reduction)",
      .samples = {{{"data: f32[4, 5, 2]", "indices: i64[3, =2] in -4..3", "updates: f32[3, 2]"}},
                  {{"data: f32[6]", "indices: i64[2, 4, 1] in 0..5", "updates: f32[2, 4]",
                    "reduction='mul'"}}},
      .type = InferScatterNd,
      .compute = ComputeScatterNd,
  });
}

OpDef index_put() {
  return Define<IndexPut>({
      .name = "index_put",
      .doc = "data[indices0, indices1, ...] = values; the tensors of indices broadcast.",
      .args = {{"data", "The tensor."},
               {"indices", "Tensors of integers, for the first dimensions.", ArgKind::kTensors},
               {"values", "The new values."}},
      .attrs = {{"accumulate", &IndexPut::accumulate, "Add to the old values."}},
      .reference = "out = index_put(data, indices, values, accumulate)",
      .samples = {{{"data: f32[4, 5]", "indices: (i64[3] in -4..3, i64[3] in 0..4)",
                    "values: f32[3]"}},
                  {{"data: f32[4, 3]", "indices: (i64[6] in 0..3,)", "values: f32[6, 3]",
                    "accumulate=True"}}},
      .type = InferIndexPut,
      .compute = ComputeIndexPut,
  });
}

}  // namespace relaxvm::ops
