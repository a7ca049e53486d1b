// SPDX-License-Identifier: Apache-2.0
// Operators whose result's size depends on the data: unique and nonzero (functions of the runtime,
// which allocate their own results); and bucketize.
#include "ops/compute.h"

namespace relaxvm::ops {
namespace {

// A constant scalar that is a truth value.
bool Flag(const TypeCtx& ctx, size_t i) {
  ctx.Prim(i);
  auto value = ir::AsInt(ctx.arg(i));
  if (!value.has_value()) {
    ctx.Error(ErrorKind::kValueError, ctx.ArgName(i), " must be a constant True or False");
  }
  return *value != 0;
}

Type InferUnique(TypeCtx& ctx, const NoAttrs&) {
  TensorType x = ctx.Tensor(0);
  Flag(ctx, 1);
  // A single element is the only one.
  const std::optional<Dims> count = x->ndim == 0 ? std::optional<Dims>({Expr(1)}) : std::nullopt;
  int64_t ndim = 1;
  if (ctx.Has(5)) {
    ctx.Prim(5);
    auto axis = ir::AsInt(ctx.arg(5));
    if (!axis.has_value()) ctx.Error(ErrorKind::kValueError, "axis must be a constant integer");
    if (!x->IsUnknownRank()) ctx.Axis(*axis, x->ndim);
    ndim = x->ndim;
  }
  ffi::Array<Type> results{ctx.Result(count, ndim, x->dtype)};
  for (size_t i = 2; i < 5; ++i) {
    if (Flag(ctx, i)) results.push_back(ctx.Result(count, 1, Int(64)));
  }
  if (results.size() == 1) return results[0];
  return ir::TupleType(results);
}

struct Bucketize {
  bool out_int32 = false;
  bool right = false;
};

bool IsNumber(DLDataType t) { return IsFloat(t) || IsInteger(t); }

Type InferBucketize(TypeCtx& ctx, const Bucketize& a) {
  TensorType x = ctx.TensorOf(0, IsNumber, "a tensor of numbers");
  ctx.TensorOf(1, IsNumber, "a tensor of numbers");
  ctx.SameDtype(0, 1);
  ctx.CheckRank(1, 1);
  return ctx.Like(x, a.out_int32 ? Int(32) : Int(64));
}

// The boundaries ascend, so the bucket is the number of those below the element.  NaN is above all.
Tensors ComputeBucketize(const ComputeArgs& in, const Bucketize& a) {
  DLDataType dtype = in.OutDtype();
  auto formula = [&](const Indices& i, const Indices& r) {
    Expr x = in[0](i), boundary = in[1](r);
    Expr below = a.right ? ir::LessEqual(boundary, x) : ir::Less(boundary, x);
    if (IsFloat(x.dtype())) below = ir::Or(below, ir::CallIntrin(Intrin::kIsNan, {Widen(x)}));
    return ir::Select(below, Number(dtype, 1), Number(dtype, 0));
  };
  return {
      tir::Reduce(in[0]->shape, {in[1]->shape[0]}, tir::SumReducer(dtype), formula, "bucketize")};
}

ArgDoc FlagArg(const char* name, const char* doc, bool value) {
  return {name, doc, ArgKind::kPrim, true, ffi::Any(value)};
}

}  // namespace

OpDef unique() {
  return Define<NoAttrs>({
      .name = "unique",
      .doc = "The different elements, or slices along an axis.",
      .args = {{"x", "The tensor."},
               FlagArg("sorted", "In ascending order.", true),
               FlagArg("return_index", "Also where each stands first.", false),
               FlagArg("return_inverse", "Also which one each element of x is.", false),
               FlagArg("return_counts", "Also how often each stands in x.", false),
               {"axis", "The axis; left out: all elements in a row.", ArgKind::kPrim, true}},
      .type = InferUnique,
      .packed = "relax.run.unique",
  });
}

OpDef nonzero() {
  return Define<NoAttrs>({
      .name = "nonzero",
      .doc = "The indices of the elements that are not 0, one row for each dimension.",
      .args = {{"x", "The tensor."}},
      .type = [](TypeCtx& ctx, const NoAttrs&) -> Type {
        ctx.Tensor(0);
        return ctx.Result(std::nullopt, 2, Int(64));
      },
      .packed = "relax.run.nonzero",
  });
}

OpDef bucketize() {
  return Define<Bucketize>({
      .name = "bucketize",
      .doc = "Between which ascending boundaries each element lies.",
      .args = {{"input_tensor", "The tensor."}, {"boundaries", "The boundaries, ascending."}},
      .attrs = {{"out_int32", &Bucketize::out_int32, "The result is of int32, else int64."},
                {"right", &Bucketize::right, "An element on a boundary lies above it."}},
      .reference = "out = np.searchsorted(boundaries, input_tensor, 'right' if right else 'left')",
      .samples = {{{"input_tensor: f32[4, 3]", "boundaries: f32[6] sorted"}},
                  {{"input_tensor: i32[5]", "boundaries: i32[4] sorted", "out_int32=True",
                    "right=True"}}},
      .type = InferBucketize,
      .compute = ComputeBucketize,
  });
}

}  // namespace relaxvm::ops
