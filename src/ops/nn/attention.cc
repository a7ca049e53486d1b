// SPDX-License-Identifier: Apache-2.0
// nn.attention and nn.attention_bias: softmax(cap(query key^T scale) + bias) value for each head,
// where cap(s) is softcap tanh(s / softcap), or s.
// Shapes: query [B, S, H, D], key [B, T, G, D], value [B, T, G, E], result [B, S, H, E]; G heads of
// key and value serve H / G heads of query each.
#include "ops/compute.h"

namespace relaxvm::ops {
namespace {

struct Attention {
  std::optional<double> scale;
  std::optional<std::string> causal_mask;
  std::optional<int64_t> window_size;
  std::optional<double> softcap;
};

Type InferAttention(TypeCtx& ctx, const Attention& a) {
  TensorType q = ctx.Float(0), k = ctx.Float(1), v = ctx.Float(2);
  for (size_t i = 0; i < 3; ++i) {
    ctx.CheckRank(i, 4);
    ctx.SameDtype(0, i);
  }
  if (ctx.Has(3)) {
    ctx.Float(3);
    ctx.SameDtype(0, 3);
    ctx.CheckRank(3, 4);
  }
  if (a.causal_mask && *a.causal_mask != "TopLeft" && *a.causal_mask != "BottomRight") {
    ctx.Error(ErrorKind::kValueError, "causal_mask must be 'TopLeft', 'BottomRight' or None, got '",
              *a.causal_mask, "'");
  }
  if (a.window_size && !a.causal_mask) {
    ctx.Error(ErrorKind::kValueError, "window_size needs a causal_mask");
  }
  if (a.softcap && !(*a.softcap > 0)) {
    ctx.Error(ErrorKind::kValueError, "softcap must be above 0 or None, got ", *a.softcap);
  }
  auto qs = q->GetShape(), ks = k->GetShape(), vs = v->GetShape();
  if (!qs.has_value() || !ks.has_value() || !vs.has_value()) {
    return ctx.Result(std::nullopt, 4, q->dtype);
  }
  auto same = [&](const Expr& x, const Expr& y, const char* what) {
    if (ctx.Prove(ir::NotEqual(x, y))) {
      ctx.Error(ErrorKind::kValueError, what, " must agree: query ", DescribeType(q), ", key ",
                DescribeType(k), ", value ", DescribeType(v));
    }
  };
  same((*qs)[0], (*ks)[0], "batches of query and key");
  same((*qs)[0], (*vs)[0], "batches of query and value");
  same((*ks)[1], (*vs)[1], "lengths of key and value");
  same((*ks)[2], (*vs)[2], "heads of key and value");
  same((*qs)[3], (*ks)[3], "the last dimensions of query and key");
  if (ctx.Prove(ir::Equal((*ks)[2], Expr(0))) ||
      (ir::AsInt((*ks)[2]).has_value() &&
       ctx.Prove(ir::NotEqual(ir::FloorMod((*qs)[2], (*ks)[2]), Expr(0))))) {
    ctx.Error(ErrorKind::kValueError, "the ", DescribeExpr((*qs)[2]),
              " heads of query are no multiple of the ", DescribeExpr((*ks)[2]), " of key");
  }
  if (ctx.Has(3)) {
    if (auto bs = ctx.Tensor(3)->GetShape()) {
      Dims scores{(*qs)[0], (*qs)[2], (*qs)[1], (*ks)[1]};
      for (size_t d = 0; d < 4; ++d) {
        if (ir::IsIntValue((*bs)[d], 1) || !ctx.Prove(ir::NotEqual((*bs)[d], scores[d]))) continue;
        ctx.Error(ErrorKind::kValueError, ctx.Describe(3), " does not broadcast to ",
                  DescribeDims(scores), ": batch, heads, query, key");
      }
    }
  }
  return ctx.Result(Dims{(*qs)[0], (*qs)[1], (*qs)[2], (*vs)[3]}, q->dtype);
}

Tensors ComputeAttention(const ComputeArgs& in, const Attention& a) {
  const Tensor &q = in[0], &k = in[1], &v = in[2];
  DLDataType dtype = in.OutDtype();
  DLDataType wide = WideDtype(dtype);
  Expr queries = q->shape[1], keys = k->shape[1], heads = q->shape[2];
  Expr shared = ir::FloorDiv(heads, k->shape[2]);
  auto key_head = [&](const Expr& h) {
    return ir::StructuralEqual(heads, k->shape[2]) ? h : ir::FloorDiv(h, shared);
  };
  Dims score_shape{q->shape[0], heads, queries, keys};
  auto product = [&](const Indices& i, const Indices& r) {
    return Widen(q({i[0], i[2], i[1], r[0]})) * Widen(k({i[0], i[3], key_head(i[1]), r[0]}));
  };
  Tensor raw = tir::Reduce(score_shape, {q->shape[3]}, tir::SumReducer(wide), product, "scores");
  Expr scale = a.scale ? Number(wide, *a.scale)
                       : ir::CallIntrin(Intrin::kRsqrt, {ir::Cast(wide, q->shape[3])});
  auto masked = [&](const Indices& i) -> Expr {
    Expr score = raw(i) * scale;
    if (a.softcap) {
      Expr part = score * Number(wide, 1 / *a.softcap);
      score = Number(wide, *a.softcap) * ir::CallIntrin(Intrin::kTanh, {part});
    }
    if (in.Has(3)) score = score + Widen(BroadcastAt(in[3], score_shape, i));
    if (!a.causal_mask) return score;
    Expr last = *a.causal_mask == "TopLeft" ? i[2] : i[2] + keys - queries;
    Expr visible = ir::LessEqual(i[3], last);
    if (a.window_size) {
      visible = ir::And(visible, ir::Greater(i[3], last - Expr(*a.window_size)));
    }
    return ir::Select(visible, score, ir::MinValue(wide));
  };
  Tensor scores = tir::Compute(score_shape, masked, "masked");
  Dims rows{q->shape[0], heads, queries};
  auto at = [](const Indices& i, const Expr& key) { return Indices{i[0], i[1], i[2], key}; };
  Tensor greatest = tir::Reduce(
      rows, {keys}, tir::MaxReducer(wide),
      [&](const Indices& i, const Indices& r) { return scores(at(i, r[0])); }, "softmax_max");
  auto exponential = [&](const Indices& i) {
    return ir::CallIntrin(Intrin::kExp, {scores(i) - greatest({i[0], i[1], i[2]})});
  };
  Tensor e = tir::Compute(score_shape, exponential, "softmax_exp");
  Tensor sum = tir::Reduce(
      rows, {keys}, tir::SumReducer(wide),
      [&](const Indices& i, const Indices& r) { return e(at(i, r[0])); }, "softmax_sum");
  Dims out = in.OutShape();
  auto weighted = [&](const Indices& i, const Indices& r) {
    return e({i[0], i[2], i[1], r[0]}) * Widen(v({i[0], r[0], key_head(i[2]), i[3]}));
  };
  Tensor total = tir::Reduce(out, {keys}, tir::SumReducer(wide), weighted, "weighted");
  auto normalised = [&](const Indices& i) {
    return ir::Cast(dtype, total(i) * ir::Div(Number(wide, 1), sum({i[0], i[2], i[1]})));
  };
  return {tir::Compute(out, normalised, "attention")};
}

OpDef AttentionOp(bool bias) {
  std::vector<ArgDoc> args = {{"query", "[batch, queries, heads, depth]."},
                              {"key", "[batch, keys, heads, depth]."},
                              {"value", "[batch, keys, heads, depth of the result]."}};
  std::vector<Sample> samples = {
      {{"query: f32[2, 5, 3, 4]", "key: f32[2, 7, 3, 4]", "value: f32[2, 7, 3, 6]"}},
      {{"query: f32[1, 6, 4, 8]", "key: f32[1, 6, 2, 8]", "value: f32[1, 6, 2, 8]", "scale=0.5",
        "causal_mask='TopLeft'"}},
      {{"query: f32[1, 3, 1, 4]", "key: f32[1, 5, 1, 4]", "value: f32[1, 5, 1, 4]",
        "causal_mask='BottomRight'", "window_size=2"}},
      {{"query: f32[1, 3, 2, 4]", "key: f32[1, 5, 2, 4]", "value: f32[1, 5, 2, 4]",
        "softcap=2.0"}}};
  if (bias) {
    args.push_back({"bias", "[batch, heads, queries, keys], dimensions of 1 broadcast."});
    samples = {{{"query: f32[2, 5, 3, 4]", "key: f32[2, 7, 3, 4]", "value: f32[2, 7, 3, 6]",
                 "bias: f32[2, 1, 5, 7]"}}};
  }
  return Define<Attention>({
      .name = bias ? "nn.attention_bias" : "nn.attention",
      .doc = bias ? "Attention with a bias on the scores."
                  : "softmax(query key^T scale) value, for each head.",
      .args = args,
      .attrs =
          {{"scale", &Attention::scale, "Factor of the scores; None: 1 / sqrt(depth)."},
           {"causal_mask", &Attention::causal_mask,
            "'TopLeft' or 'BottomRight': a query sees no later keys, counted from that corner."},
           {"window_size", &Attention::window_size, "How many keys a query sees at most."},
           {"softcap", &Attention::softcap,
            "Scores become softcap tanh(score / softcap) before the bias; None: they stay."}},
      .reference =
          bias ? "out = attention(query, key, value, bias, scale, causal_mask, window_size, "
                 "softcap)"
               : "out = attention(query, key, value, None, scale, causal_mask, "
                 "window_size, softcap)",
      .samples = samples,
      .type = InferAttention,
      .compute = ComputeAttention,
  });
}

}  // namespace

OpDef nn_attention() { return AttentionOp(false); }
OpDef nn_attention_bias() { return AttentionOp(true); }

}  // namespace relaxvm::ops
