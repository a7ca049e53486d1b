// SPDX-License-Identifier: Apache-2.0
// median: the element in the middle of the reduced axes in order (the lower of two), and its index.
#include "ops/reduce/axes.h"
#include "ops/sort_line.h"

namespace relaxvm::ops {
namespace {

struct Median {
  std::optional<Ints> axis;
  bool keepdims = false;
};

bool IsNumber(DLDataType t) { return IsFloat(t) || IsInteger(t); }

Type InferMedian(TypeCtx& ctx, const Median& a) {
  TensorType x = ctx.TensorOf(0, IsNumber, "a tensor of numbers");
  const bool unknown = x->IsUnknownRank() && (a.axis || a.keepdims);
  auto reduced = [&](DLDataType dtype) -> Type {
    if (unknown) return ctx.Result(std::nullopt, -1, dtype);
    return InferReduced(ctx, x, a.axis, a.keepdims, dtype);
  };
  // Over all elements there is no index.
  if (!a.axis && !unknown) return reduced(x->dtype);
  return ir::TupleType({reduced(x->dtype), reduced(Int(64))});
}

Tensors ComputeMedian(const ComputeArgs& in, const Median& a) {
  const Tensor& x = in[0];
  ReducedAxes axes(x->shape, a.axis, a.keepdims);
  const Dims kept = axes.kept();
  const bool with_index = a.axis.has_value();
  auto body = [=](const std::vector<Buffer>& ins, const std::vector<Buffer>& outs) {
    const Buffer& data = ins[0];
    Expr n = axes.Count();
    return LoopNest(kept, [&](const Indices& i) {
      Buffer order("order", {n}, Int(64)), spare("spare", {n}, Int(64));
      auto value = [&](const Expr& k) {
        return data.Load(axes.At(i, Unflatten(k, axes.extents())));
      };
      ir::Var middle("middle", Int(64));
      ffi::Array<Stmt> found{tir::AllocBuffer(order), tir::AllocBuffer(spare),
                             SortLine(value, n, order, spare, false),
                             tir::Bind(middle, order.Load({ir::FloorDiv(n - Expr(1), Expr(2))})),
                             tir::BufferStore(outs[0], value(middle), i)};
      if (with_index) found.push_back(tir::BufferStore(outs[1], middle, i));
      ffi::Array<Stmt> none{tir::BufferStore(outs[0], Number(data.elem_dtype(), 0), i)};
      if (with_index) none.push_back(tir::BufferStore(outs[1], Expr(-1), i));
      return tir::IfThenElse(ir::Greater(n, Expr(0)), Sequence(found), Sequence(none));
    });
  };
  std::vector<tir::OutputSpec> outputs{{"median", kept, x.dtype()}};
  if (with_index) outputs.push_back({"indices", kept, Int(64)});
  return tir::Opaque(outputs, {x}, body, "median");
}

}  // namespace

OpDef median() {
  return Define<Median>({
      .name = "median",
      .doc = "The middle element of the reduced axes in order (the lower of two), and its index.",
      .args = {{"x", "The tensor."}},
      .attrs = {{"axis", &Median::axis, "The axes; None: all, and no index."},
                {"keepdims", &Median::keepdims, "Keep the reduced axes, with extent 1."}},
      .reference = "out = median(x, axis, keepdims)",
      .samples = {{{"x: f32[4, 7]"}},
                  {{"x: f32[2, 6, 5]", "axis=[1]"}},
                  {{"x: f32[2, 6, 5]", "axis=[-1]", "keepdims=True"}},
                  {{"x: i32[3, 4, 5]", "axis=[0, 2]"}}},
      .type = InferMedian,
      .compute = ComputeMedian,
  });
}

}  // namespace relaxvm::ops
