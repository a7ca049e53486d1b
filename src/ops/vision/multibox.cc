// SPDX-License-Identifier: Apache-2.0
// vision.multibox_transform_loc: boxes from anchors and the offsets that a detector predicts, and
// the scores of their classes.
#include "ops/compute.h"

namespace relaxvm::ops {
namespace {

struct Multibox {
  bool clip = false;
  double threshold = 0.0;
  std::vector<double> variances = {1.0, 1.0, 1.0, 1.0};
  bool keep_background = true;
  bool apply_softmax = true;
};

Type InferMultibox(TypeCtx& ctx, const Multibox& a) {
  TensorType scores = ctx.Float(0), offsets = ctx.Float(1), anchors = ctx.Float(2);
  ctx.SameDtype(0, 1);
  ctx.SameDtype(0, 2);
  ctx.CheckRank(0, 3);
  ctx.CheckRank(1, 2);
  ctx.CheckRank(2, 3);
  if (a.variances.size() != 4) {
    ctx.Error(ErrorKind::kValueError, "variances needs 4 numbers, got ", a.variances.size());
  }
  auto ss = scores->GetShape(), os = offsets->GetShape(), as = anchors->GetShape();
  auto differ = [&](const Expr& x, const Expr& y) { return ctx.Prove(ir::NotEqual(x, y)); };
  auto wrong = [&](size_t i, const char* what) {
    ctx.Error(ErrorKind::kValueError, ctx.ArgName(i), " must ", what, ", got ", ctx.Describe(i));
  };
  if (os.has_value() && differ(ir::FloorMod((*os)[1], Expr(4)), Expr(0))) {
    wrong(1, "have 4 numbers for each anchor");
  }
  if (as.has_value() && (differ((*as)[0], Expr(1)) || differ((*as)[2], Expr(4)))) {
    wrong(2, "have the shape (1, anchors, 4)");
  }
  if (!ss.has_value()) {
    Type unknown = ctx.Result(std::nullopt, 3, scores->dtype);
    return ir::TupleType({unknown, unknown});
  }
  Expr batch = (*ss)[0], count = (*ss)[2];
  if (os.has_value() && (differ((*os)[0], batch) || differ((*os)[1], count * Expr(4)))) {
    wrong(1, "be [batch, 4 * anchors] with cls_pred's batch and anchors");
  }
  if (as.has_value() && differ((*as)[1], count)) wrong(2, "have as many anchors as cls_pred");
  return ir::TupleType({ctx.Result(Dims{batch, count, Expr(4)}, scores->dtype), ctx.Like(scores)});
}

Tensor Boxes(const ComputeArgs& in, const Multibox& a) {
  const Tensor &offsets = in[1], &anchors = in[2];
  DLDataType dtype = in.OutDtype(0), real = WideDtype(dtype);
  auto formula = [&](const Indices& i) -> Expr {
    auto number = [&](double v) { return Number(real, v); };
    // The corner along y (i[2] even) or x: columns 1 and 3 or 0 and 2 of an anchor.
    Expr axis = ir::FloorMod(i[2], Expr(2)), column = Expr(1) - axis;
    auto anchor = [&](const Expr& k) { return Widen(anchors({Expr(0), i[1], k})); };
    auto offset = [&](const Expr& k) { return Widen(offsets({i[0], i[1] * Expr(4) + k})); };
    auto variance = [&](size_t of_x, size_t of_y) {
      return ir::Select(ir::Equal(axis, Expr(0)), number(a.variances[of_y]),
                        number(a.variances[of_x]));
    };
    Expr low = anchor(column), high = anchor(column + Expr(2));
    Expr size = high - low;
    Expr centre = offset(column) * variance(0, 1) * size + (low + high) * number(0.5);
    Expr growth = ir::CallIntrin(Intrin::kExp, {offset(column + Expr(2)) * variance(2, 3)});
    Expr half = number(0.5) * growth * size;
    Expr corner = ir::Select(ir::Less(i[2], Expr(2)), centre - half, centre + half);
    if (a.clip) corner = ir::Max(ir::Min(corner, number(1)), number(0));
    return ir::Cast(dtype, corner);
  };
  return tir::Compute(in.OutShape(0), formula, "boxes");
}

Tensor Scores(const ComputeArgs& in, const Multibox& a) {
  const Tensor& x = in[0];
  DLDataType dtype = in.OutDtype(1), real = WideDtype(dtype);
  Tensor greatest, sum;
  auto power = [&](const Indices& i) {
    return ir::CallIntrin(Intrin::kExp, {Widen(x(i)) - greatest({i[0], i[2]})});
  };
  if (a.apply_softmax) {
    auto at = [](const Indices& i, const Indices& r) { return Indices{i[0], r[0], i[1]}; };
    Dims lines{x.dim(0), x.dim(2)};
    greatest = tir::Reduce(
        lines, {x.dim(1)}, tir::MaxReducer(real),
        [&](const Indices& i, const Indices& r) { return Widen(x(at(i, r))); }, "greatest");
    sum = tir::Reduce(
        lines, {x.dim(1)}, tir::SumReducer(real),
        [&](const Indices& i, const Indices& r) { return power(at(i, r)); }, "total");
  }
  auto formula = [&](const Indices& i) -> Expr {
    Expr score = a.apply_softmax ? ir::Div(power(i), sum({i[0], i[2]})) : Widen(x(i));
    Expr zero = Number(real, 0);
    if (a.threshold > 0) {
      score = ir::Select(ir::GreaterEqual(score, Number(real, a.threshold)), score, zero);
    }
    if (!a.keep_background) score = ir::Select(ir::Equal(i[1], Expr(0)), zero, score);
    return ir::Cast(dtype, score);
  };
  return tir::Compute(x->shape, formula, "scores");
}

}  // namespace

OpDef vision_multibox_transform_loc() {
  return Define<Multibox>({
      .name = "vision.multibox_transform_loc",
      .doc =
          "Boxes (ymin, xmin, ymax, xmax) from anchors and offsets, and scores of their classes.",
      .args = {{"cls_pred", "Scores or logits [batch, classes, anchors]."},
               {"loc_pred", "Offsets x, y, w, h of each anchor [batch, 4 * anchors]."},
               {"anchor", "Left, top, right, bottom [1, anchors, 4]."}},
      .attrs = {{"clip", &Multibox::clip, "Corners stay within [0, 1]."},
                {"threshold", &Multibox::threshold, "Scores below become 0."},
                {"variances", &Multibox::variances, "Factors of the offsets x, y, w, h."},
                {"keep_background", &Multibox::keep_background,
                 "The scores of class 0 stay; else they become 0."},
                {"apply_softmax", &Multibox::apply_softmax, "cls_pred holds logits."}},
      .reference = "out = multibox_transform_loc(cls_pred, loc_pred, anchor, clip, threshold, "
                   "variances, keep_background, apply_softmax)",
      .samples = {{{"cls_pred: f32[2, 3, =5]", "loc_pred: f32[2, =20]",
                    "anchor: f32[=1, =5, =4] in 0..1", "variances=[0.1, 0.1, 0.2, 0.3]"}},
                  {{"cls_pred: f32[2, 3, =5]", "loc_pred: f32[2, =20]",
                    "anchor: f32[=1, =5, =4] in 0..1", "clip=True", "threshold=0.3",
                    "keep_background=False", "apply_softmax=False"}}},
      .type = InferMultibox,
      .compute = [](const ComputeArgs& in, const Multibox& a) -> Tensors {
        return {Boxes(in, a), Scores(in, a)};
      },
      .exceptions = {{"bf16", "scores rounded to 8 bits cross the threshold"}},
  });
}

}  // namespace relaxvm::ops
