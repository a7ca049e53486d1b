// SPDX-License-Identifier: Apache-2.0
// Parts of a tensor: strided_slice, slice_scatter.
#include <algorithm>

#include "ops/compute.h"
#include "ops/layout_rule.h"

namespace relaxvm::ops {
namespace {

struct StridedSlice {
  bool assume_inbound = false;
};

using Simplifier = std::function<Expr(const Expr&)>;
using Prover = std::function<bool(const Expr&)>;

// Where a slice of an axis begins, and how many elements it takes, by NumPy's rules.  Clamps that
// `prove` shows to be idle are left out.
struct Range {
  Expr begin, count;
};
Range SliceRange(Expr begin, Expr end, int64_t stride, const Expr& extent, bool inbound,
                 const Simplifier& simplify, const Prover& prove) {
  constexpr int64_t kFar = int64_t{1} << 31;  // "to the end", in any width
  auto from_front = [&](const Expr& e) {
    auto value = ir::AsInt(e);
    if (value.has_value()) return *value < 0 ? simplify(extent + e) : e;
    if (inbound || prove(ir::GreaterEqual(e, Expr(0)))) return e;
    return ir::Select(ir::Less(e, Expr(0)), e + extent, e);
  };
  auto clamp = [&](Expr e, const Expr& least, const Expr& greatest) {
    if (inbound) return e;
    if (!prove(ir::LessEqual(e, greatest))) e = ir::Min(e, greatest);
    if (!prove(ir::GreaterEqual(e, least))) e = ir::Max(e, least);
    return simplify(e);
  };
  bool forward = stride > 0;
  Expr least = forward ? Expr(0) : Expr(-1);
  Expr greatest = forward ? extent : simplify(extent - Expr(1));
  auto b = ir::AsInt(begin);
  auto e = ir::AsInt(end);
  if (b.has_value() && *b >= kFar - 1) {
    begin = greatest;
  } else if (b.has_value() && *b <= -kFar) {
    begin = least;
  } else {
    begin = clamp(from_front(begin), least, greatest);
  }
  if (e.has_value() && *e >= kFar - 1) {
    end = greatest;
  } else if (e.has_value() && *e <= -kFar) {
    end = least;
  } else {
    end = clamp(from_front(end), least, greatest);
  }
  Expr span = forward ? end - begin : begin - end;
  Expr count = simplify(ir::CeilDiv(simplify(span), Expr(std::abs(stride))));
  if (!inbound && !prove(ir::GreaterEqual(count, Expr(0))))
    count = simplify(ir::Max(count, Expr(0)));
  return {begin, count};
}

// The scalars of a tuple argument; absent when it is no literal tuple.
std::optional<Exprs> Scalars(const Call& call, size_t i) {
  const auto* tuple = call->args[i].as<ir::TupleObj>();
  if (tuple == nullptr) return std::nullopt;
  Exprs scalars;
  for (const Expr& e : tuple->fields) scalars.push_back(e);
  return scalars;
}

struct SliceArgs {
  Ints axes;
  Exprs begin, end;
  Ints strides;
};

Exprs ScalarsOf(const TypeCtx& ctx, size_t i) {
  const auto* tuple = ctx.type(i).as<ir::TupleTypeObj>();
  auto scalars = Scalars(ctx.call(), i);
  if (tuple == nullptr || !scalars) {
    ctx.Error(ErrorKind::kTypeError, ctx.ArgName(i), " must be a tuple of integers, got ",
              DescribeType(ctx.type(i)));
  }
  for (const Expr& e : *scalars) {
    if (!ir::IsPrim(e) || !IsInteger(e.dtype())) {
      ctx.Error(ErrorKind::kAttribute, ctx.ArgName(i), " must hold integers");
    }
  }
  return *scalars;
}

Ints Constants(const TypeCtx& ctx, size_t i) {
  Ints values;
  for (const Expr& e : ScalarsOf(ctx, i)) {
    auto value = ir::AsInt(e);
    if (!value.has_value()) {
      ctx.Error(ErrorKind::kValueError, ctx.ArgName(i), " must hold constant integers, got ",
                DescribeExpr(e));
    }
    values.push_back(*value);
  }
  return values;
}

SliceArgs CheckSliceArgs(const TypeCtx& ctx, int64_t ndim) {
  SliceArgs s;
  s.axes = Constants(ctx, 1);
  if (ndim >= 0) s.axes = ctx.Axes(s.axes, ndim);
  s.begin = ScalarsOf(ctx, 2);
  s.end = ScalarsOf(ctx, 3);
  s.strides = ctx.Has(4) ? Constants(ctx, 4) : Ints(s.axes.size(), 1);
  if (s.begin.size() != s.axes.size() || s.end.size() != s.axes.size() ||
      s.strides.size() != s.axes.size()) {
    ctx.Error(ErrorKind::kAttribute, "axes, begin, end and strides must have one length, got ",
              s.axes.size(), ", ", s.begin.size(), ", ", s.end.size(), " and ", s.strides.size());
  }
  for (int64_t stride : s.strides) {
    if (stride == 0) ctx.Error(ErrorKind::kAttribute, "a stride must not be 0");
  }
  return s;
}

Type InferStridedSlice(TypeCtx& ctx, const StridedSlice& a) {
  TensorType x = ctx.Tensor(0);
  SliceArgs s = CheckSliceArgs(ctx, x->ndim);
  auto dims = x->GetShape();
  if (!dims.has_value()) return ctx.Result(std::nullopt, x->ndim, x->dtype);
  Dims result = *dims;
  for (size_t k = 0; k < s.axes.size(); ++k) {
    Range range = SliceRange(
        s.begin[k], s.end[k], s.strides[k], (*dims)[s.axes[k]], a.assume_inbound,
        [&](const Expr& e) { return ctx.Simplify(e); },
        [&](const Expr& e) { return ctx.Prove(e); });
    result.Set(s.axes[k], range.count);
  }
  return ctx.Result(result, x->dtype);
}

Tensors ComputeStridedSlice(const ComputeArgs& in, const StridedSlice& a) {
  const Tensor& x = in[0];
  std::unique_ptr<ir::TypeContext> facts = MakeTypeContext();
  Exprs axes = *Scalars(in.call, 1), begin = *Scalars(in.call, 2), end = *Scalars(in.call, 3);
  std::optional<Exprs> strides;
  if (in.Has(4)) strides = Scalars(in.call, 4);
  std::vector<std::pair<Expr, int64_t>> steps(x.ndim(), {Expr(0), 1});
  for (size_t k = 0; k < axes.size(); ++k) {
    int64_t axis = *ir::AsInt(axes[k]);
    if (axis < 0) axis += x.ndim();
    int64_t stride = strides ? *ir::AsInt((*strides)[k]) : 1;
    Range range = SliceRange(
        begin[k], end[k], stride, x->shape[axis], a.assume_inbound,
        [&](const Expr& e) { return facts->Simplify(e); },
        [&](const Expr& e) { return facts->Prove(e); });
    steps[axis] = {range.begin, stride};
  }
  auto formula = [&](const Indices& i) {
    Indices at;
    for (size_t d = 0; d < steps.size(); ++d) {
      at.push_back(steps[d].first + i[d] * Expr(steps[d].second));
    }
    return x(at);
  };
  return {tir::Compute(in.OutShape(), formula, "strided_slice")};
}

struct SliceScatter {
  int64_t axis = 0;
};

Type InferSliceScatter(TypeCtx& ctx, const SliceScatter& a) {
  TensorType x = ctx.Tensor(0);
  TensorType src = ctx.Tensor(1);
  ctx.SameDtype(0, 1);
  for (size_t i = 2; i < 5; ++i) {
    if (!IsInteger(ctx.Prim(i))) {
      ctx.Error(ErrorKind::kTypeError, ctx.ArgName(i), " must be an integer");
    }
  }
  auto step = ir::AsInt(ctx.arg(4));
  if (!step.has_value() || *step < 1) {
    ctx.Error(ErrorKind::kValueError, "step must be a constant of at least 1, got ",
              DescribeExpr(ctx.arg(4)));
  }
  if (x->IsUnknownRank()) return ctx.Like(x);
  int64_t axis = ctx.Axis(a.axis, x->ndim);
  ctx.CheckRank(1, x->ndim);
  auto dims = x->GetShape();
  auto given = src->GetShape();
  if (dims.has_value() && given.has_value()) {
    Range range = SliceRange(
        ctx.arg(2), ctx.arg(3), *step, (*dims)[axis], false,
        [&](const Expr& e) { return ctx.Simplify(e); },
        [&](const Expr& e) { return ctx.Prove(e); });
    for (int64_t d = 0; d < x->ndim; ++d) {
      Expr want = d == axis ? range.count : (*dims)[d];
      if (ctx.Prove(ir::NotEqual(want, (*given)[d]))) {
        ctx.Error(ErrorKind::kValueError, "src must have extent ", DescribeExpr(want),
                  " in dimension ", d, ", got ", DescribeType(src));
      }
    }
  }
  return ctx.Like(x);
}

Tensors ComputeSliceScatter(const ComputeArgs& in, const SliceScatter& a) {
  const Tensor& x = in[0];
  const Tensor& src = in[1];
  int64_t axis = a.axis < 0 ? a.axis + x.ndim() : a.axis;
  int64_t step = *ir::AsInt(in.Prim(4));
  std::unique_ptr<ir::TypeContext> facts = MakeTypeContext();
  Range range = SliceRange(
      in.Prim(2), in.Prim(3), step, x->shape[axis], false,
      [&](const Expr& e) { return facts->Simplify(e); },
      [&](const Expr& e) { return facts->Prove(e); });
  auto formula = [&](const Indices& i) {
    Expr past = i[axis] - range.begin;
    Expr inside =
        ir::And(ir::GreaterEqual(past, Expr(0)), ir::Less(past, range.count * Expr(step)));
    inside = ir::And(inside, ir::Equal(ir::FloorMod(past, Expr(step)), Expr(0)));
    Indices at = i;
    at.Set(axis, ir::FloorDiv(past, Expr(step)));
    return ir::IfThenElse(inside, src(at), x(i));
  };
  return {tir::Compute(x->shape, formula, "slice_scatter")};
}

}  // namespace

OpDef strided_slice() {
  return Define<StridedSlice>({
      .name = "strided_slice",
      .doc = "The elements begin, begin + stride ... before end, along axes.",
      .args = {{"x", "The tensor."},
               {"axes", "The axes.", ArgKind::kPrims},
               {"begin", "First indices; below 0 they count from the end.", ArgKind::kPrims},
               {"end", "Indices that are not reached.", ArgKind::kPrims},
               {"strides", "Steps; left out: 1.", ArgKind::kPrims, true}},
      .attrs = {{"assume_inbound", &StridedSlice::assume_inbound,
                 "begin and end lie inside of x and are not negative."}},
      .reference = "out = strided_slice(x, axes, begin, end, strides)",
      .samples = {{{"x: f32[8, 9]", "axes=[0, 1]", "begin=[1, 0]", "end=[7, 9]"}},
                  {{"x: f32[8, 9]", "axes=[1]", "begin=[-1]", "end=[-100]", "strides=[-2]"}},
                  {{"x: f32[5]", "axes=[0]", "begin=[2]", "end=[2147483647]", "strides=[2]"}}},
      .type = InferStridedSlice,
      .compute = ComputeStridedSlice,
      .layout = LayoutOf(LayoutRule::Kind::kSlice),
  });
}

OpDef slice_scatter() {
  return Define<SliceScatter>({
      .name = "slice_scatter",
      .doc = "The tensor with a slice along an axis replaced.",
      .args = {{"input_tensor", "The tensor."},
               {"src", "What replaces the slice."},
               {"start", "First index.", ArgKind::kPrim},
               {"end", "Index that is not reached.", ArgKind::kPrim},
               {"step", "Step; left out: 1.", ArgKind::kPrim, true, ffi::Any(int64_t{1})}},
      .attrs = {{"axis", &SliceScatter::axis, "The axis."}},
      .reference = "out = slice_scatter(input_tensor, src, start, end, step, axis)",
      .samples = {{{"input_tensor: f32[=8, 3]", "src: f32[=3, 3]", "start=1", "end=7", "step=2"}},
                  {{"input_tensor: f32[2, 6]", "src: f32[2, =2]", "start=-2", "end=100",
                    "axis=1"}}},
      .type = InferSliceScatter,
      .compute = ComputeSliceScatter,
  });
}

}  // namespace relaxvm::ops
