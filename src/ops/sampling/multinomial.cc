// SPDX-License-Identifier: Apache-2.0
// multinomial_from_uniform: the index that a uniform number picks from a row of probabilities.
#include "ops/loops.h"

namespace relaxvm::ops {
namespace {

struct Multinomial {
  std::optional<DLDataType> dtype = Int(64);
};

Type InferMultinomial(TypeCtx& ctx, const Multinomial& a) {
  TensorType prob = ctx.Float(0), uniform = ctx.Float(1);
  ctx.TensorOf(2, IsInteger, "a tensor of integers");
  for (size_t i = 0; i < 3; ++i) ctx.CheckRank(i, 2);
  DLDataType dtype = a.dtype.value_or(Int(64));
  if (!IsInteger(dtype)) {
    ctx.Error(ErrorKind::kTypeError, "dtype must be an integer type, got ", DTypeName(dtype));
  }
  auto us = uniform->GetShape();
  auto ss = ctx.Shape(2);
  for (const auto& shape : {us ? std::optional<Dims>(*us) : std::nullopt, ss}) {
    if (!shape || !ctx.Prove(ir::NotEqual((*shape)[1], Expr(1)))) continue;
    ctx.Error(ErrorKind::kValueError,
              "uniform_sample and sample_indices hold one value a row: ", ctx.Describe(1), ", ",
              ctx.Describe(2));
  }
  if (!us.has_value() || !ss) return ctx.Result(std::nullopt, 2, dtype);
  if (ctx.Prove(ir::NotEqual((*us)[0], (*ss)[0]))) {
    ctx.Error(ErrorKind::kValueError,
              "uniform_sample and sample_indices differ in their rows: ", ctx.Describe(1), ", ",
              ctx.Describe(2));
  }
  return ctx.Result(Dims{(*us)[0], Expr(1)}, dtype);
}

// The first index whose sum of probabilities, its own included, exceeds the number; the last index
// when rounding leaves none.
Tensors ComputeMultinomial(const ComputeArgs& in, const Multinomial&) {
  DLDataType dtype = in.OutDtype();
  DLDataType real = WideDtype(in[0].dtype());
  auto body = [=](const std::vector<Buffer>& ins, const std::vector<Buffer>& outs) {
    Expr rows = ins[0].shape()[0], count = ins[0].shape()[1];
    auto draw = [&](const Indices& i) {
      Cell total("total", real), picked("picked", Int(64));
      ir::Var row("row", Int(64));
      Expr wanted = ir::Cast(Int(64), ins[2].Load({i[0], Expr(0)}));
      Expr inside = ir::Max(ir::Min(wanted, rows - Expr(1)), Expr(0));
      Expr number = ir::Cast(real, ins[1].Load({i[0], Expr(0)}));
      Stmt look = LoopNest(
          {count},
          [&](const Indices& v) {
            Expr sum = total.Get() + ir::Cast(real, ins[0].Load({row, v[0]}));
            Expr open = ir::Equal(picked.Get(), count);
            Expr next =
                ir::Select(ir::And(open, ir::Greater(total.Get(), number)), v[0], picked.Get());
            return Sequence({total.Set(sum), picked.Set(next)});
          },
          "v");
      Expr last = ir::Max(ir::Min(picked.Get(), count - Expr(1)), Expr(0));
      return Sequence({tir::Bind(row, inside), total.Alloc(), picked.Alloc(),
                       total.Set(Number(real, 0)), picked.Set(count),
                       tir::IfThenElse(ir::Greater(rows, Expr(0)), look),
                       tir::BufferStore(outs[0], ir::Cast(dtype, last), {i[0], Expr(0)})});
    };
    return LoopNest({outs[0].shape()[0]}, draw);
  };
  return tir::Opaque({{"multinomial", in.OutShape(), dtype}}, {in[0], in[1], in[2]}, body,
                     "multinomial_from_uniform");
}

}  // namespace

OpDef multinomial_from_uniform() {
  return Define<Multinomial>({
      .name = "multinomial_from_uniform",
      .doc = "Indices drawn from rows of probabilities by uniform numbers.",
      .args = {{"prob", "Rows of probabilities."},
               {"uniform_sample", "Numbers in [0, 1), one a row."},
               {"sample_indices", "The row of prob that each number draws from, one a row."}},
      .attrs = {{"dtype", &Multinomial::dtype, "Element type of the result."}},
      .reference = "out = multinomial(prob, uniform_sample, sample_indices)",
      .samples = {{{"prob: f32[3, 5] in 0..0.4", "uniform_sample: f32[6, =1] in 0..0.9",
                    "sample_indices: i64[6, =1] in 0..2"}}},
      .type = InferMultinomial,
      .compute = ComputeMultinomial,
      .exceptions = {{"f16", "sums in another order pick other indices"},
                     {"bf16", "sums in another order pick other indices"}},
  });
}

}  // namespace relaxvm::ops
