// SPDX-License-Identifier: Apache-2.0
// Elements repeated or moved: broadcast_to, repeat, tile, flip, permute_dims, reverse_sequence.
#include <algorithm>
#include <numeric>

#include "ops/compute.h"
#include "ops/layout_rule.h"

namespace relaxvm::ops {
namespace {

struct PermuteDims {
  std::optional<Ints> axes;
};

Type InferPermute(TypeCtx& ctx, const PermuteDims& a) {
  TensorType x = ctx.Tensor(0);
  if (x->IsUnknownRank()) {
    return ctx.Result(std::nullopt, a.axes ? static_cast<int64_t>(a.axes->size()) : -1, x->dtype);
  }
  if (a.axes && static_cast<int64_t>(a.axes->size()) != x->ndim) {
    ctx.Error(ErrorKind::kValueError, "axes has ", a.axes->size(), " entries for ", DescribeType(x),
              "; name each of its ", x->ndim, " dimensions once");
  }
  auto dims = x->GetShape();
  Ints axes;
  if (a.axes) axes = ctx.Axes(*a.axes, x->ndim);
  if (!dims.has_value()) return ctx.Result(std::nullopt, x->ndim, x->dtype);
  Dims result;
  for (int64_t d = 0; d < x->ndim; ++d) {
    result.push_back((*dims)[a.axes ? axes[d] : x->ndim - 1 - d]);
  }
  return ctx.Result(result, x->dtype);
}

Tensors ComputePermute(const ComputeArgs& in, const PermuteDims& a) {
  const Tensor& x = in[0];
  auto formula = [&](const Indices& i) {
    std::vector<Expr> at(x.ndim());
    for (int d = 0; d < x.ndim(); ++d) {
      int64_t from = a.axes ? (*a.axes)[d] : x.ndim() - 1 - d;
      at[from < 0 ? from + x.ndim() : from] = i[d];
    }
    return x(Indices(at.begin(), at.end()));
  };
  return {tir::Compute(in.OutShape(), formula, "permute_dims")};
}

Type InferBroadcastTo(TypeCtx& ctx, const NoAttrs&) {
  TensorType x = ctx.Tensor(0);
  if (ctx.type(1).as<ir::ShapeTypeObj>() == nullptr) {
    ctx.Error(ErrorKind::kTypeError, "shape must be a shape, got ", DescribeType(ctx.type(1)));
  }
  auto to = ctx.Shape(1);
  int64_t ndim = ctx.Rank(1);
  if (!x->IsUnknownRank() && ndim >= 0 && x->ndim > ndim) {
    ctx.Error(ErrorKind::kValueError, DescribeType(x),
              " has more dimensions than the shape, which ", "has ", ndim);
  }
  if (!to) return ctx.OfShape(1, x->dtype);
  if (auto from = x->GetShape()) {
    size_t skip = to->size() - from->size();
    for (size_t d = 0; d < from->size(); ++d) {
      const Expr& have = (*from)[d];
      const Expr& want = (*to)[skip + d];
      if (ir::IsIntValue(have, 1) || ctx.Equal(have, want)) continue;
      if (ctx.Prove(ir::And(ir::NotEqual(have, want), ir::NotEqual(have, Expr(1))))) {
        ctx.Error(ErrorKind::kValueError, DescribeType(x), " does not broadcast to ",
                  DescribeDims(*to), ": ", DescribeExpr(have), " against ", DescribeExpr(want));
      }
    }
  }
  return ctx.OfShape(1, x->dtype);
}

// A dimension that may or may not be 1 is decided when the program runs.
Tensors ComputeBroadcastTo(const ComputeArgs& in, const NoAttrs&) {
  const Tensor& x = in[0];
  Dims out = in.OutShape();
  size_t skip = out.size() - x->shape.size();
  auto formula = [&](const Indices& i) {
    Indices at;
    for (size_t d = 0; d < x->shape.size(); ++d) {
      const Expr& have = x->shape[d];
      if (ir::StructuralEqual(have, out[skip + d])) {
        at.push_back(i[skip + d]);
      } else if (ir::AsInt(have).has_value()) {
        at.push_back(ir::IsIntValue(have, 1) ? Expr(0) : i[skip + d]);
      } else {
        at.push_back(ir::Select(ir::Equal(have, Expr(1)), Expr(0), i[skip + d]));
      }
    }
    return x(at);
  };
  return {tir::Compute(out, formula, "broadcast_to")};
}

struct Repeat {
  int64_t repeats = 1;
  std::optional<int64_t> axis;
};

Type InferRepeat(TypeCtx& ctx, const Repeat& a) {
  TensorType x = ctx.Tensor(0);
  if (a.repeats < 0)
    ctx.Error(ErrorKind::kValueError, "repeats must be at least 0, got ", a.repeats);
  auto dims = x->GetShape();
  if (!a.axis) {
    if (!dims.has_value()) return ctx.Result(std::nullopt, 1, x->dtype);
    return ctx.Result(Dims{ctx.Simplify(ProductOf(*dims) * Expr(a.repeats))}, x->dtype);
  }
  if (x->IsUnknownRank()) return ctx.Result(std::nullopt, -1, x->dtype);
  int64_t axis = ctx.Axis(*a.axis, x->ndim);
  if (!dims.has_value()) return ctx.Result(std::nullopt, x->ndim, x->dtype);
  Dims result = *dims;
  result.Set(axis, ctx.Simplify(result[axis] * Expr(a.repeats)));
  return ctx.Result(result, x->dtype);
}

Tensors ComputeRepeat(const ComputeArgs& in, const Repeat& a) {
  const Tensor& x = in[0];
  Expr repeats(std::max<int64_t>(a.repeats, 1));  // without elements nothing is divided
  auto formula = [&](const Indices& i) {
    if (!a.axis) return x(Unflatten(ir::FloorDiv(i[0], repeats), x->shape));
    int64_t axis = *a.axis < 0 ? *a.axis + x.ndim() : *a.axis;
    Indices at = i;
    at.Set(axis, ir::FloorDiv(i[axis], repeats));
    return x(at);
  };
  return {tir::Compute(in.OutShape(), formula, "repeat")};
}

struct Tile {
  Ints repeats;
};

Type InferTile(TypeCtx& ctx, const Tile& a) {
  TensorType x = ctx.Tensor(0);
  for (int64_t r : a.repeats) {
    if (r < 0) ctx.Error(ErrorKind::kValueError, "repeats must be at least 0, got ", r);
  }
  if (x->IsUnknownRank()) return ctx.Result(std::nullopt, -1, x->dtype);
  int64_t ndim = std::max<int64_t>(x->ndim, a.repeats.size());
  auto dims = x->GetShape();
  if (!dims.has_value()) return ctx.Result(std::nullopt, ndim, x->dtype);
  std::vector<Expr> result(ndim, Expr(1));
  for (size_t d = 0; d < dims->size(); ++d) result[ndim - dims->size() + d] = (*dims)[d];
  for (size_t d = 0; d < a.repeats.size(); ++d) {
    Expr& dim = result[ndim - a.repeats.size() + d];
    dim = ctx.Simplify(dim * Expr(a.repeats[d]));
  }
  return ctx.Result(Dims(result.begin(), result.end()), x->dtype);
}

Tensors ComputeTile(const ComputeArgs& in, const Tile&) {
  const Tensor& x = in[0];
  Dims out = in.OutShape();
  size_t skip = out.size() - x->shape.size();
  auto formula = [&](const Indices& i) {
    Indices at;
    for (size_t d = 0; d < x->shape.size(); ++d) {
      bool once = ir::StructuralEqual(x->shape[d], out[skip + d]);
      at.push_back(once ? i[skip + d] : ir::FloorMod(i[skip + d], x->shape[d]));
    }
    return x(at);
  };
  return {tir::Compute(out, formula, "tile")};
}

struct Flip {
  int64_t axis = 0;
};

Type InferFlip(TypeCtx& ctx, const Flip& a) {
  TensorType x = ctx.Tensor(0);
  if (!x->IsUnknownRank()) ctx.Axis(a.axis, x->ndim);
  return ctx.Like(x);
}

Tensors ComputeFlip(const ComputeArgs& in, const Flip& a) {
  const Tensor& x = in[0];
  int64_t axis = a.axis < 0 ? a.axis + x.ndim() : a.axis;
  auto formula = [&](const Indices& i) {
    Indices at = i;
    at.Set(axis, x->shape[axis] - Expr(1) - i[axis]);
    return x(at);
  };
  return {tir::Compute(x->shape, formula, "flip")};
}

struct ReverseSequence {
  int64_t seq_axis = 1;
  int64_t batch_axis = 0;
};

Type InferReverseSequence(TypeCtx& ctx, const ReverseSequence& a) {
  TensorType x = ctx.Tensor(0);
  const TensorType counts = ctx.Tensor(1);
  if (!IsVoid(counts->dtype) && !IsInteger(counts->dtype)) {
    ctx.Error(ErrorKind::kValueError, "seq_lengths must hold integers, got ", ctx.Describe(1));
  }
  ctx.CheckRank(1, 1);
  if (!x->IsUnknownRank()) {
    int64_t seq = ctx.Axis(a.seq_axis, x->ndim);
    int64_t batch = ctx.Axis(a.batch_axis, x->ndim);
    if (seq == batch) ctx.Error(ErrorKind::kValueError, "seq_axis and batch_axis must differ");
    auto dims = x->GetShape();
    auto lengths = ctx.Shape(1);
    if (dims.has_value() && lengths && ctx.Prove(ir::NotEqual((*dims)[batch], (*lengths)[0]))) {
      ctx.Error(ErrorKind::kValueError, "seq_lengths needs one length for each of the ",
                DescribeExpr((*dims)[batch]), " batches, got ", DescribeExpr((*lengths)[0]));
    }
  }
  return ctx.Like(x);
}

Tensors ComputeReverseSequence(const ComputeArgs& in, const ReverseSequence& a) {
  const Tensor& x = in[0];
  int64_t seq = a.seq_axis < 0 ? a.seq_axis + x.ndim() : a.seq_axis;
  int64_t batch = a.batch_axis < 0 ? a.batch_axis + x.ndim() : a.batch_axis;
  auto formula = [&](const Indices& i) {
    Expr length = ir::Min(ir::Cast(Int(64), in[1]({i[batch]})), x->shape[seq]);
    Indices at = i;
    Expr mirrored = length - Expr(1) - i[seq];
    at.Set(seq, ir::Select(ir::Less(i[seq], length), mirrored, i[seq]));
    return x(at);
  };
  return {tir::Compute(x->shape, formula, "reverse_sequence")};
}

}  // namespace

OpDef permute_dims() {
  return Define<PermuteDims>({
      .name = "permute_dims",
      .doc = "The dimensions in another order.",
      .args = {{"x", "The tensor."}},
      .attrs = {{"axes", &PermuteDims::axes,
                 "For each dimension of the result the one of x; None: reversed."}},
      .reference = "out = np.transpose(x, axes)",
      .samples = {{{"x: f32[4, 8]"}}, {{"x: f32[2, 3, 5]", "axes=[1, -1, 0]"}}},
      .type = InferPermute,
      .compute = ComputePermute,
      .layout = LayoutOf(LayoutRule::Kind::kPermute, "axes"),
  });
}

OpDef broadcast_to() {
  return Define<NoAttrs>({
      .name = "broadcast_to",
      .doc = "Dimensions of extent 1, and missing ones in front, repeated to a shape.",
      .args = {{"x", "The tensor."}, {"shape", "The shape.", ArgKind::kShape}},
      .reference = "out = np.broadcast_to(x, shape)",
      .samples = {{{"x: f32[4, 1]", "shape=[4, 8]"}}, {{"x: f32[3]", "shape=[2, 5, 3]"}}},
      .type = InferBroadcastTo,
      .compute = ComputeBroadcastTo,
      .layout = LayoutOf(LayoutRule::Kind::kShapes),
  });
}

OpDef repeat() {
  return Define<Repeat>({
      .name = "repeat",
      .doc = "Each element several times in a row.",
      .args = {{"data", "The tensor."}},
      .attrs = {{"repeats", &Repeat::repeats, "How often.", true},
                {"axis", &Repeat::axis, "The axis; None: over all elements in a row."}},
      .reference = "out = np.repeat(data, repeats, axis)",
      .samples = {{{"data: f32[4, 3]", "repeats=2", "axis=1"}}, {{"data: f32[2, 3]", "repeats=3"}}},
      .type = InferRepeat,
      .compute = ComputeRepeat,
      .layout = AxesLayout({"axis"}),
  });
}

OpDef tile() {
  return Define<Tile>({
      .name = "tile",
      .doc = "The whole tensor several times along each dimension.",
      .args = {{"data", "The tensor."}},
      .attrs = {{"repeats", &Tile::repeats, "How often, for the last dimensions.", true}},
      .reference = "out = np.tile(data, repeats)",
      .samples = {{{"data: f32[4, 3]", "repeats=[2, 1]"}}, {{"data: f32[3]", "repeats=[2, 2]"}}},
      .type = InferTile,
      .compute = ComputeTile,
      .layout = LayoutOf(LayoutRule::Kind::kTile, "repeats"),
  });
}

OpDef flip() {
  return Define<Flip>({
      .name = "flip",
      .doc = "The elements along an axis in reverse order.",
      .args = {{"data", "The tensor."}},
      .attrs = {{"axis", &Flip::axis, "The axis.", true}},
      .reference = "out = np.flip(data, axis)",
      .samples = {{{"data: f32[4, 3]", "axis=0"}}, {{"data: f32[2, 5]", "axis=-1"}}},
      .type = InferFlip,
      .compute = ComputeFlip,
      .layout = AxesLayout({"axis"}),
  });
}

OpDef reverse_sequence() {
  return Define<ReverseSequence>({
      .name = "reverse_sequence",
      .doc = "The first seq_lengths[b] elements of batch b in reverse order.",
      .args = {{"data", "The tensor."}, {"seq_lengths", "How many, for each batch."}},
      .attrs = {{"seq_axis", &ReverseSequence::seq_axis, "The axis that is reversed."},
                {"batch_axis", &ReverseSequence::batch_axis, "The axis of the batches."}},
      .reference = "out = reverse_sequence(data, seq_lengths, seq_axis, batch_axis)",
      .samples = {{{"data: f32[3, 5, 2]", "seq_lengths: i64[3] in 0..5"}}},
      .type = InferReverseSequence,
      .compute = ComputeReverseSequence,
  });
}

}  // namespace relaxvm::ops
