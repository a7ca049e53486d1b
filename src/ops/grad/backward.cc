// SPDX-License-Identifier: Apache-2.0
// Gradients that are operators of their own: what each element of the data adds to the result,
// times the gradient of that.  grad.take_backward and grad.nll_loss_backward; pooling has its own
// file.
#include "ops/loops.h"

namespace relaxvm::ops {
namespace {

struct Take {
  std::optional<int64_t> axis;
  std::string mode = "fast";
};
struct NllLoss {
  std::string reduction = "mean";
  int64_t ignore_index = -100;
};

Type LikeSecond(TypeCtx& ctx) {
  ctx.Tensor(0);
  return ctx.Tensor(1);
}

Stmt Clear(const Buffer& out) {
  return LoopNest(
      out.shape(),
      [&](const Indices& i) { return tir::BufferStore(out, Number(out.elem_dtype(), 0), i); }, "z");
}

// Each element of the gradient goes to where take() read; one place may be read many times.
Tensors ComputeTake(const ComputeArgs& in, const Take& a) {
  const int64_t rank = in[1].ndim();
  const int64_t axis = !a.axis ? 0 : *a.axis < 0 ? *a.axis + rank : *a.axis;
  const int64_t indices = in[2].ndim();
  const bool flat = !a.axis;
  auto body = [=](const std::vector<Buffer>& ins, const std::vector<Buffer>& outs) {
    const Buffer &grad = ins[0], &index = ins[1], &out = outs[0];
    Expr extent = flat ? ProductOf(out.shape()) : out.shape()[axis];
    Stmt add = LoopNest(grad.shape(), [&](const Indices& i) {
      Indices before(i.begin(), i.begin() + axis);
      Indices which(i.begin() + axis, i.begin() + axis + indices);
      ir::Var at("at", Int(64));
      Expr wrapped = WrapIndex(ir::Cast(Int(64), index.Load(which)), extent);
      if (a.mode == "wrap") wrapped = ir::FloorMod(wrapped, ir::Max(extent, Expr(1)));
      if (a.mode == "clip") wrapped = ir::Max(ir::Min(wrapped, extent - Expr(1)), Expr(0));
      Indices to = flat ? Unflatten(at, out.shape()) : before;
      if (!flat) {
        to.push_back(at);
        for (auto it = i.begin() + axis + indices; it != i.end(); ++it) to.push_back(*it);
      }
      Expr inside = ir::And(ir::GreaterEqual(at, Expr(0)), ir::Less(at, extent));
      Stmt store =
          tir::BufferStore(out, out.Load(to) + ir::Cast(out.elem_dtype(), grad.Load(i)), to);
      return Sequence({tir::Bind(at, wrapped), tir::IfThenElse(inside, store)});
    });
    return Sequence({Clear(out), add});
  };
  return tir::Opaque({{"take_backward", in.OutShape(), in.OutDtype()}}, {in[0], in[2]}, body,
                     "take_backward");
}

Type InferNllLoss(TypeCtx& ctx, const NllLoss& a) {
  TensorType p = ctx.Float(1);
  ctx.TensorOf(2, IsInteger, "a tensor of integers");
  if (!p->IsUnknownRank()) ctx.CheckRank(2, p->ndim - 1);
  if (ctx.Has(3)) {
    ctx.Float(3);
    ctx.CheckRank(3, 1);
  }
  if (a.reduction != "mean" && a.reduction != "sum" && a.reduction != "none") {
    ctx.Error(ErrorKind::kValueError, "reduction must be 'mean', 'sum' or 'none', got '",
              a.reduction, "'");
  }
  return LikeSecond(ctx);
}

Tensors ComputeNllLoss(const ComputeArgs& in, const NllLoss& a) {
  const Tensor &grad = in[0], &p = in[1], &t = in[2];
  DLDataType dtype = in.OutDtype(), wide = WideDtype(dtype);
  const int64_t channel = p.ndim() == 1 ? 0 : 1;
  Expr classes = p->shape[channel];
  auto weight = [&](const Indices& i) -> Expr {
    Expr c = ir::Cast(Int(64), t(i));
    Expr counts = ir::And(ir::And(ir::GreaterEqual(c, Expr(0)), ir::Less(c, classes)),
                          ir::NotEqual(c, Expr(a.ignore_index)));
    Expr value = in.Has(3) ? Widen(in[3]({c})) : Number(wide, 1);
    return ir::IfThenElse(counts, value, Number(wide, 0));
  };
  Tensor total;
  if (a.reduction == "mean") {
    total = tir::Reduce(
        {}, t->shape, tir::SumReducer(wide),
        [&](const Indices&, const Indices& r) { return weight(r); }, "weights");
  }
  auto formula = [&](const Indices& i) -> Expr {
    Indices at;
    for (int64_t d = 0; d < p.ndim(); ++d) {
      if (d != channel) at.push_back(i[d]);
    }
    Expr g = Widen(grad(a.reduction == "none" ? at : Indices()));
    if (total.defined()) g = ir::Div(g, total({}));
    Expr hit = ir::Equal(ir::Cast(Int(64), t(at)), i[channel]);
    return ir::Cast(dtype,
                    ir::IfThenElse(hit, (Number(wide, 0) - g) * weight(at), Number(wide, 0)));
  };
  return {tir::Compute(p->shape, formula, "nll_loss_backward")};
}

}  // namespace

OpDef grad_take_backward() {
  return Define<Take>({
      .name = "grad.take_backward",
      .doc = "The gradient of take with respect to its data.",
      .args = {{"output_grad", "The gradient of take's result."},
               {"x", "take's data."},
               {"indices", "take's indices."}},
      .attrs = {{"axis", &Take::axis, "As in take."}, {"mode", &Take::mode, "As in take."}},
      .reference = "out = take_backward(output_grad, x, indices, axis, mode)",
      .samples = {{{"output_grad: f32[3, =5, 4]", "x: f32[3, =6, 4]", "indices: i64[=5] in -6..5",
                    "axis=1"}},
                  {{"output_grad: f32[=5]", "x: f32[=3, =2]", "indices: i32[=5] in 0..5"}},
                  {{"output_grad: f32[=2, =5, 4]", "x: f32[=6, 4]", "indices: i64[=2, =5] in -9..9",
                    "axis=0", "mode='clip'"}}},
      .type = [](TypeCtx& ctx, const Take&) { return LikeSecond(ctx); },
      .compute = ComputeTake,
      .exceptions = {{"f16", "sums of many rounded numbers"}, {"bf16", "sums of rounded numbers"}},
  });
}

OpDef grad_nll_loss_backward() {
  return Define<NllLoss>({
      .name = "grad.nll_loss_backward",
      .doc = "The gradient of nn.nll_loss with respect to the predictions.",
      .args = {{"output_grad", "The gradient of the loss."},
               {"predictions", "Log-probabilities [batch, classes, ...] or [classes]."},
               {"targets", "Classes [batch, ...] or []."},
               {"weights", "One for each class.", ArgKind::kTensor, true}},
      .attrs = {{"reduction", &NllLoss::reduction, "'mean', 'sum' or 'none'."},
                {"ignore_index", &NllLoss::ignore_index, "A class that does not count."}},
      .reference = "out = nll_loss_backward(output_grad, predictions, targets, "
                   "locals().get('weights'), reduction, ignore_index)",
      .samples = {{{"output_grad: f32[]", "predictions: f32[4, =5, 3]",
                    "targets: i64[4, 3] in 0..4", "weights: f32[=5] in 0.5..2"}},
                  {{"output_grad: f32[4, 3]", "predictions: f32[4, =5, 3]",
                    "targets: i64[4, 3] in 0..4", "reduction='none'", "ignore_index=2"}},
                  {{"output_grad: f32[]", "predictions: f32[=5]", "targets: i32[] in 0..4",
                    "reduction='sum'"}}},
      .type = InferNllLoss,
      .compute = ComputeNllLoss,
  });
}

}  // namespace relaxvm::ops
