// SPDX-License-Identifier: Apache-2.0
// layout_transform: a tensor stored in another layout.
#include "arith/analyzer.h"
#include "ops/compute.h"
#include "tir/index_map.h"

namespace relaxvm::ops {
namespace {

struct LayoutTransform {
  ffi::Any index_map = nullptr;  // tir::IndexMap
  ffi::Any pad_value = nullptr;  // a scalar expression, or a number
};

Type InferLayoutTransform(TypeCtx& ctx, const LayoutTransform& a) {
  TensorType x = ctx.Tensor(0);
  auto map = a.index_map.as<tir::IndexMap>();
  if (!map) {
    ctx.Error(ErrorKind::kTypeError,
              "index_map must be an IndexMap, or a function of a place that gives a place, got ",
              a.index_map.GetTypeKey());
  }
  const auto* pad = a.pad_value.as<ir::ExprObj>();
  if (pad != nullptr && x->dtype != ffi::GetRef<Expr>(pad).dtype() && !x->IsUnknownDtype()) {
    ctx.Error(ErrorKind::kTypeError, "pad_value is of ", DTypeName(ffi::GetRef<Expr>(pad).dtype()),
              " and ", ctx.Describe(0), " is not; write T.", DTypeName(x->dtype), "(...)");
  }
  const int64_t rank = (*map)->final_indices.size();
  if (x->IsUnknownRank()) return ctx.Result(std::nullopt, rank, x->dtype);
  if (x->ndim != static_cast<int64_t>((*map)->initial_indices.size())) {
    ctx.Error(ErrorKind::kValueError, "index_map takes ", (*map)->initial_indices.size(),
              " indices and ", ctx.Describe(0), " has ", x->ndim, " dimensions");
  }
  auto dims = x->GetShape();
  if (!dims.has_value()) return ctx.Result(std::nullopt, rank, x->dtype);
  arith::Analyzer analyzer;
  auto mapped = tir::MapShape(*map, *dims, &analyzer);
  if (!mapped.has_value()) {
    ctx.Error(ErrorKind::kValueError, "index_map has no way back for ", ctx.Describe(0),
              "; every index must be used once, cut by // and % and joined as a * n + b");
  }
  return ctx.Result(mapped->extents, x->dtype);
}

Expr PadValue(const ffi::Any& value, DLDataType dtype) {
  if (const auto* e = value.as<ir::ExprObj>()) return ffi::GetRef<Expr>(e);
  if (auto integer = AttrCodec<int64_t>::Decode(value)) return ir::Const(dtype, *integer);
  return ir::Cast(dtype, ir::ConstFloat(Float(64), AttrCodec<double>::Decode(value).value_or(0)));
}

Tensors ComputeLayoutTransform(const ComputeArgs& in, const LayoutTransform& a) {
  const Tensor& x = in[0];
  arith::Analyzer analyzer;
  const auto mapped = tir::MapShape(a.index_map.cast<tir::IndexMap>(), x->shape, &analyzer);
  RELAXVM_CHECK(mapped.has_value()) << "an index map without a way back";
  auto formula = [&](const Indices& i) {
    ffi::Map<ir::Var, Expr> place;
    for (size_t d = 0; d < mapped->indices.size(); ++d) place.Set(mapped->indices[d], i[d]);
    Expr value = x(mapped->origin.Map([&](const Expr& e) { return ir::Substitute(e, place); }));
    const Expr padding = ir::Substitute(mapped->is_padding, place);
    if (ir::IsIntValue(padding, 0)) return value;
    return ir::IfThenElse(padding, PadValue(a.pad_value, x->dtype), value);
  };
  return {tir::Compute(in.OutShape(), formula, "layout_transform")};
}

}  // namespace

OpDef layout_transform() {
  return Define<LayoutTransform>({
      .name = "layout_transform",
      .doc = "The elements at other places: each index cut into parts, which are joined anew.",
      .args = {{"x", "The tensor."}},
      .attrs = {{"index_map", &LayoutTransform::index_map,
                 "Where each element goes: an IndexMap, or a function of a place.", true},
                {"pad_value", &LayoutTransform::pad_value,
                 "What places that get no element hold; None: it does not matter."}},
      .reference = "out = layout_transform(x, index_map, pad_value)",
      .samples =
          {{{"x: f32[4, 8]", "index_map=lambda i, j: (j, i)"}},
           {{"x: f32[2, 8, 3]", "index_map=lambda n, c, h: (n, c // 4, h, c % 4)"}},
           {{"x: f32[2, 7, 3]", "index_map=lambda n, c, h: (n, c // 4, h, c % 4)", "pad_value=3"}},
           {{"x: f32[18]", "index_map=lambda i: (i // 4 % 4, i // 16, i % 4)"}},
           {{"x: f32[5, =3]", "index_map=lambda i, j: (i * 3 + j,)"}},
           {{"x: f32[6, =4]", "index_map=lambda i, j: (i // 2, j // 2, i % 2 * 2 + j % 2)"}}},
      .type = InferLayoutTransform,
      .compute = ComputeLayoutTransform,
  });
}

}  // namespace relaxvm::ops
