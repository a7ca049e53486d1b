// SPDX-License-Identifier: Apache-2.0
// rvm.cache_rows: a cache of keys or values with new rows written into it, each element of the
// batch from a place of its own on.
#include "ops/compute.h"

namespace relaxvm::ops {
namespace {

constexpr size_t kCache = 0, kRows = 1, kStarts = 2, kLength = 3;

Type InferCacheRows(TypeCtx& ctx, const NoAttrs&) {
  TensorType cache = ctx.Tensor(kCache);
  for (size_t i : {kCache, kRows}) ctx.CheckRank(i, 4);
  ctx.SameDtype(kCache, kRows);
  ctx.TensorOf(kStarts, [](DLDataType t) { return t == Int(64); }, "a tensor of int64");
  ctx.CheckRank(kStarts, 1);
  auto have = cache->GetShape(), rows = ctx.Tensor(kRows)->GetShape();
  auto length = ctx.Shape(kLength);
  if (length.has_value() && length->size() != 1)
    ctx.Error(ErrorKind::kValueError, "length must be one number, got ", DescribeDims(*length));
  if (have && rows) {
    for (size_t d : {0, 1, 3}) {
      if (!ctx.Prove(ir::NotEqual((*have)[d], (*rows)[d]))) continue;
      ctx.Error(ErrorKind::kValueError,
                "cache and rows may differ in dimension 2 alone: ", ctx.Describe(kCache), ", ",
                ctx.Describe(kRows));
    }
  }
  if (!have || !length) return ctx.Result(std::nullopt, 4, cache->dtype);
  return ctx.Result(Dims{(*have)[0], (*have)[1], (*length)[0], (*have)[3]}, cache->dtype);
}

Tensors ComputeCacheRows(const ComputeArgs& in, const NoAttrs&) {
  const Tensor &cache = in[kCache], &rows = in[kRows];
  auto formula = [&](const Indices& i) -> Expr {
    const Expr at = i[2] - in[kStarts]({i[0]});
    const Expr is_new = ir::And(ir::GreaterEqual(at, Expr(0)), ir::Less(at, rows->shape[2]));
    Expr old = ir::IfThenElse(ir::Less(i[2], cache->shape[2]), cache(i), Number(cache.dtype(), 0));
    return ir::IfThenElse(is_new, rows({i[0], i[1], at, i[3]}), old);
  };
  return {tir::Compute(in.OutShape(), formula, "cache_rows")};
}

}  // namespace

OpDef rvm_cache_rows() {
  return Define<NoAttrs>({
      .name = "rvm.cache_rows",
      .doc = "A cache with rows written into it, and as long as it should be; what nothing fills "
             "is 0.",
      .args = {{"cache", "[batch, heads, old length, depth]."},
               {"rows", "[batch, heads, count, depth]: the new ones."},
               {"starts", "[batch] of int64: where the first of them goes."},
               {"length", "(length,), of the result.", ArgKind::kShape}},
      .reference = "out = cache_rows(cache, rows, starts, length)",
      .samples = {{{"cache: f32[2, 3, 5, 8]", "rows: f32[2, 3, 4, 8]", "starts: i64[2] in 0..4",
                    "length=[7]"}},
                  {{"cache: f32[2, 1, 8, 20]", "rows: f32[2, 1, 1, 20]", "starts: i64[2] in 0..7",
                    "length=[8]"}}},
      .type = InferCacheRows,
      .compute = ComputeCacheRows,
  });
}

}  // namespace relaxvm::ops
