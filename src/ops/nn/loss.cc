// SPDX-License-Identifier: Apache-2.0
// Losses: nn.cross_entropy_with_logits and nn.nll_loss.
#include "ops/compute.h"

namespace relaxvm::ops {
namespace {

Type InferCrossEntropy(TypeCtx& ctx, const NoAttrs&) {
  TensorType predictions = ctx.Float(0);
  TensorType labels = ctx.Float(1);
  ctx.SameDtype(0, 1);
  if (!predictions->IsUnknownRank()) ctx.CheckRank(1, predictions->ndim);
  auto p = predictions->GetShape();
  auto l = labels->GetShape();
  for (size_t d = 0; p.has_value() && l.has_value() && d < (*p).size(); ++d) {
    if (ctx.Prove(ir::NotEqual((*p)[d], (*l)[d]))) {
      ctx.Error(ErrorKind::kValueError, "predictions and labels must have one shape, got ",
                DescribeType(predictions), " and ", DescribeType(labels));
    }
  }
  return ctx.Result(Dims(), IsVoid(labels->dtype) ? Void() : predictions->dtype);
}

// -sum(predictions * labels) / number of rows
Tensors ComputeCrossEntropy(const ComputeArgs& in, const NoAttrs&) {
  const Tensor& x = in[0];
  DLDataType dtype = in.OutDtype();
  DLDataType wide = WideDtype(dtype);
  auto product = [&](const Indices&, const Indices& r) { return Widen(x(r)) * Widen(in[1](r)); };
  Tensor sum = tir::Reduce({}, x->shape, tir::SumReducer(wide), product, "sum");
  Expr rows = x.ndim() > 1 ? ir::Cast(wide, x->shape[0]) : Number(wide, 1);
  auto finish = [&](const Expr& e) { return ir::Cast(dtype, ir::Div(Number(wide, 0) - e, rows)); };
  return {tir::Map(sum, finish, "cross_entropy")};
}

struct NllLoss {
  std::string reduction = "mean";
  int64_t ignore_index = -100;
};

// predictions: [C] or [N, C, d..]; targets: [] or [N, d..]; weights: [C]
Type InferNllLoss(TypeCtx& ctx, const NllLoss& a) {
  TensorType p = ctx.Float(0);
  TensorType t = ctx.TensorOf(1, IsInteger, "a tensor of integers");
  if (ctx.Has(2)) {
    ctx.Float(2);
    ctx.SameDtype(0, 2);
    ctx.CheckRank(2, 1);
  }
  if (a.reduction != "mean" && a.reduction != "sum" && a.reduction != "none") {
    ctx.Error(ErrorKind::kValueError, "reduction must be 'mean', 'sum' or 'none', got '",
              a.reduction, "'");
  }
  if (p->ndim == 0) ctx.Error(ErrorKind::kValueError, "predictions must have classes");
  if (!p->IsUnknownRank()) ctx.CheckRank(1, p->ndim - 1);
  auto ps = p->GetShape();
  auto ts = t->GetShape();
  if (ps.has_value() && ts.has_value()) {
    for (size_t d = 0; d < (*ts).size(); ++d) {
      const Expr& want = (*ps)[d == 0 ? 0 : d + 1];
      if (ctx.Prove(ir::NotEqual(want, (*ts)[d]))) {
        ctx.Error(ErrorKind::kValueError, "targets must have the shape of predictions without its ",
                  "classes, got ", DescribeType(t), " for ", DescribeType(p));
      }
    }
  }
  if (ps.has_value() && ctx.Has(2)) {
    auto ws = ctx.Tensor(2)->GetShape();
    const Expr& classes = (*ps)[(*ps).size() == 1 ? 0 : 1];
    if (ws.has_value() && ctx.Prove(ir::NotEqual((*ws)[0], classes))) {
      ctx.Error(ErrorKind::kValueError, "weights needs one value for each of the ",
                DescribeExpr(classes), " classes, got ", DescribeExpr((*ws)[0]));
    }
  }
  if (a.reduction == "none") return ctx.Like(t, p->dtype);
  return ctx.Result(Dims(), p->dtype);
}

Tensors ComputeNllLoss(const ComputeArgs& in, const NllLoss& a) {
  const Tensor& p = in[0];
  const Tensor& t = in[1];
  DLDataType dtype = in.OutDtype();
  DLDataType wide = WideDtype(dtype);
  Expr classes = p->shape[p.ndim() == 1 ? 0 : 1];
  auto target = [&](const Indices& i) { return ir::Cast(Int(64), t(i)); };
  auto counts = [&](const Indices& i) {
    Expr c = target(i);
    Expr inside = ir::And(ir::GreaterEqual(c, Expr(0)), ir::Less(c, classes));
    return ir::And(inside, ir::NotEqual(c, Expr(a.ignore_index)));
  };
  auto weight = [&](const Indices& i) -> Expr {
    if (!in.Has(2)) return ir::Select(counts(i), Number(wide, 1), Number(wide, 0));
    return ir::IfThenElse(counts(i), Widen(in[2]({target(i)})), Number(wide, 0));
  };
  auto loss = [&](const Indices& i) {
    Indices at = i;
    at.insert(at.begin() + (p.ndim() == 1 ? 0 : 1), target(i));
    Expr picked = ir::IfThenElse(counts(i), Widen(p(at)), Number(wide, 0));
    return (Number(wide, 0) - picked) * weight(i);
  };
  if (a.reduction == "none") {
    return {tir::Compute(
        t->shape, [&](const Indices& i) { return ir::Cast(dtype, loss(i)); }, "nll_loss")};
  }
  auto over = [&](const std::function<Expr(const Indices&)>& f, const char* name) {
    auto formula = [&](const Indices&, const Indices& r) { return f(r); };
    return tir::Reduce({}, t->shape, tir::SumReducer(wide), formula, name);
  };
  Tensor total = over(loss, "loss");
  if (a.reduction == "sum") {
    return {tir::Map(total, [&](const Expr& e) { return ir::Cast(dtype, e); }, "nll_loss")};
  }
  Tensor weights = over(weight, "weights");
  auto mean = [&](const Indices&) { return ir::Cast(dtype, ir::Div(total({}), weights({}))); };
  return {tir::Compute({}, mean, "nll_loss")};
}

}  // namespace

OpDef nn_cross_entropy_with_logits() {
  return Define<NoAttrs>({
      .name = "nn.cross_entropy_with_logits",
      .doc = "-sum(predictions * labels), divided by the number of rows when there are rows.",
      .args = {{"predictions", "Logarithms of probabilities."}, {"labels", "Probabilities."}},
      .reference =
          "out = -np.sum(predictions * labels) / (predictions.shape[0] if predictions.ndim "
          "> 1 else 1)",
      .samples = {{{"predictions: f32[4, 8]", "labels: f32[4, 8]"}},
                  {{"predictions: f32[5]", "labels: f32[5]"}}},
      .type = InferCrossEntropy,
      .compute = ComputeCrossEntropy,
  });
}

OpDef nn_nll_loss() {
  return Define<NllLoss>({
      .name = "nn.nll_loss",
      .doc = "The negative predictions of the target classes, weighted.",
      .args = {{"predictions", "Logarithms of probabilities, classes in the second dimension."},
               {"targets", "The classes."},
               {"weights", "Weight of each class; left out: 1.", ArgKind::kTensor, true}},
      .attrs = {{"reduction", &NllLoss::reduction, "'mean' (by weight), 'sum' or 'none'."},
                {"ignore_index", &NllLoss::ignore_index, "A class that does not count."}},
      .reference = "out = nll_loss(predictions, targets, weights, reduction, ignore_index)",
      .samples = {{{"predictions: f32[4, 5]", "targets: i64[4] in 0..4"}},
                  {{"predictions: f32[2, 5, 3]", "targets: i32[2, 3] in 0..4",
                    "weights: f32[5] in 0.5..2", "reduction='none'", "ignore_index=1"}},
                  {{"predictions: f32[5]", "targets: i64[] in 0..4", "weights: f32[5] in 0.5..2",
                    "reduction='sum'"}}},
      .type = InferNllLoss,
      .compute = ComputeNllLoss,
  });
}

}  // namespace relaxvm::ops
