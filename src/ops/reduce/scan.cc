// SPDX-License-Identifier: Apache-2.0
// cumsum and cumprod: running sums and products along an axis.
#include "ops/compute.h"
#include "ops/layout_rule.h"
#include "ops/loops.h"

namespace relaxvm::ops {
namespace {

struct Scan {
  std::optional<int64_t> axis;
  std::optional<DLDataType> dtype;
  bool exclusive = false;
};

bool IsNumber(DLDataType t) { return IsFloat(t) || IsInteger(t); }
bool IsNumberOrBool(DLDataType t) { return IsNumber(t) || IsBool(t); }

Type InferScan(TypeCtx& ctx, const Scan& a) {
  TensorType x = ctx.TensorOf(0, IsNumberOrBool, "a tensor of numbers or bool");
  DLDataType dtype = a.dtype.value_or(x->dtype);
  if (!IsVoid(dtype) && !IsNumber(dtype)) {
    ctx.Error(ErrorKind::kTypeError, "cannot accumulate in ", DTypeName(dtype), "; give dtype");
  }
  if (a.axis) {
    if (!x->IsUnknownRank()) ctx.Axis(*a.axis, x->ndim);
    return ctx.Like(x, dtype);
  }
  auto dims = x->GetShape();
  if (!dims.has_value()) return ctx.Result(std::nullopt, 1, dtype);
  return ctx.Result(Dims{ctx.Simplify(ProductOf(*dims))}, dtype);
}

// For every line along the axis: one accumulator, in the wide dtype, carried from element to
// element.
// Along an axis that is not the last: each row is the one before plus the next, so that rows run
// along vectors.
tir::Stmt ScanRows(const tir::Buffer& in, const tir::Buffer& out, size_t axis, bool exclusive,
                   bool product) {
  const Dims& dims = in.shape();
  DLDataType dtype = out.elem_dtype();
  Dims outer(dims.begin(), dims.begin() + static_cast<std::ptrdiff_t>(axis));
  Dims inner(dims.begin() + static_cast<std::ptrdiff_t>(axis) + 1, dims.end());
  auto row = [&](const Indices& o) {
    return LoopNest(
        {dims[axis]},
        [&](const Indices& k) {
          auto at = [&](const Indices& j, const Expr& step) {
            Indices all = o;
            all.push_back(step);
            for (const Expr& e : j) all.push_back(e);
            return all;
          };
          const Expr before = k[0] - Expr(1);
          auto first = [&](const Indices& j) -> Stmt {
            Expr start =
                exclusive ? Number(dtype, product ? 1 : 0) : ConvertTo(dtype, in.Load(at(j, k[0])));
            return tir::BufferStore(out, start, at(j, k[0]));
          };
          auto next = [&](const Indices& j) -> Stmt {
            Expr done = out.Load(at(j, before));
            Expr value = ConvertTo(dtype, in.Load(at(j, exclusive ? before : k[0])));
            return tir::BufferStore(out, product ? done * value : done + value, at(j, k[0]));
          };
          return Stmt(tir::IfThenElse(ir::Equal(k[0], Expr(0)), LoopNest(inner, first, "j"),
                                      LoopNest(inner, next, "j")));
        },
        "k");
  };
  return LoopNest(outer, row, "o");
}

tir::Stmt ScanBody(const tir::Buffer& in, const tir::Buffer& out, const Scan& a, bool product) {
  const Dims& dims = in.shape();
  DLDataType dtype = out.elem_dtype();
  DLDataType wide = WideDtype(dtype);
  tir::Buffer total("total", {Expr(1)}, wide, "local");
  size_t axis = a.axis ? (*a.axis < 0 ? *a.axis + dims.size() : *a.axis) : 0;
  if (a.axis && axis + 1 < dims.size() && wide == dtype)
    return ScanRows(in, out, axis, a.exclusive, product);
  size_t num_inner = a.axis ? 1 : dims.size();  // loops inside of the accumulator's

  std::vector<ir::Var> vars;
  Indices at;
  for (size_t d = 0; d < dims.size(); ++d) {
    vars.emplace_back("i" + std::to_string(d), Int(64));
    at.push_back(vars.back());
  }
  Indices to = a.axis ? at : Indices{Flatten(at, dims)};
  Expr now = total.Load({Expr(0)});
  Expr value = ConvertTo(wide, ConvertTo(dtype, in.Load(at)));
  tir::Stmt add = tir::BufferStore(total, product ? now * value : now + value, {Expr(0)});
  tir::Stmt store = tir::BufferStore(out, ir::Cast(dtype, now), to);
  tir::Stmt body = a.exclusive ? tir::SeqStmt({store, add}) : tir::SeqStmt({add, store});
  auto loop = [&](size_t d) {
    body = tir::For(vars[d], Expr(0), dims[d], tir::ForKind::kSerial, body);
  };
  if (num_inner == 1) {
    loop(axis);
  } else {
    for (size_t d = dims.size(); d-- > 0;) loop(d);
  }
  tir::Stmt start = tir::BufferStore(total, Number(wide, product ? 1 : 0), {Expr(0)});
  body = tir::SeqStmt({start, body});
  if (a.axis) {
    for (size_t d = dims.size(); d-- > 0;) {
      if (d != axis) loop(d);
    }
  }
  return tir::SeqStmt::Flatten({tir::AllocBuffer(total), body});
}

Tensors ComputeScan(const ComputeArgs& in, const Scan& a, bool product) {
  auto body = [a, product](const std::vector<tir::Buffer>& inputs,
                           const std::vector<tir::Buffer>& outputs) {
    return ScanBody(inputs[0], outputs[0], a, product);
  };
  const char* name = product ? "cumprod" : "cumsum";
  return tir::Opaque({{name, in.OutShape(), in.OutDtype()}}, {in[0]}, body, name);
}

OpDef ScanOp(const char* name, const char* doc, const char* reference, bool product) {
  return Define<Scan>({
      .name = name,
      .doc = doc,
      .args = {{"data", "The tensor."}},
      .attrs = {{"axis", &Scan::axis, "The axis; None: over all elements in a row."},
                {"dtype", &Scan::dtype, "The element type of the result; None: that of data."},
                {"exclusive", &Scan::exclusive, "Leave the element itself out."}},
      .reference = reference,
      .samples = {{{"data: f32[4, 8]", "axis=1"}},
                  {{"data: f32[2, 3, 5]", "axis=-2", "exclusive=True"}},
                  {{"data: i32[2, 3]", "dtype='int64'"}}},
      .type = InferScan,
      .compute = [product](const ComputeArgs& in,
                           const Scan& a) { return ComputeScan(in, a, product); },
      .layout = AxesLayout({"axis"}),
  });
}

}  // namespace

OpDef cumsum() {
  return ScanOp("cumsum", "Sums of the elements up to each one.",
                "out = scan(np.cumsum, data, axis, dtype, exclusive)", false);
}

OpDef cumprod() {
  return ScanOp("cumprod", "Products of the elements up to each one.",
                "out = scan(np.cumprod, data, axis, dtype, exclusive)", true);
}

}  // namespace relaxvm::ops
