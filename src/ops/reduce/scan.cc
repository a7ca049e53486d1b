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

// Along an axis that is not the last: each row is the one before plus the next, so that rows run
// along vectors.
Stmt ScanRows(const Buffer& in, const Buffer& out, size_t axis, bool exclusive, bool product) {
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

// How running totals are combined and where they go.
struct Line {
  Expr count;
  std::function<Expr(const Expr&)> value;                    // element k, in the wide dtype
  std::function<Stmt(const Expr&, const Expr&)> store;       // result k
  std::function<Expr(const Expr&, const Expr&)> accumulate;  // one total
  bool exclusive;
  DLDataType wide;
  Expr nothing;
};

// Totals inside of groups of elements do not wait for the total so far, each group adds to it once.
constexpr int64_t kGroup = 8;

Stmt ScanLine(const Line& line) {
  Cell total("total", line.wide);
  ir::Var group("group", Int(64)), k("k", Int(64));
  ffi::Array<Stmt> seq;
  std::vector<Expr> inside;
  for (int64_t j = 0; j < kGroup; ++j) {
    const Expr value = line.value(group * Expr(kGroup) + Expr(j));
    ir::Var sum("s" + std::to_string(j), line.wide);
    seq.push_back(tir::Bind(sum, j == 0 ? value : line.accumulate(inside.back(), value)));
    inside.push_back(sum);
  }
  ir::Var before("before", line.wide);
  seq.push_back(tir::Bind(before, total.Get()));
  for (int64_t j = 0; j < kGroup; ++j) {
    const Expr to = group * Expr(kGroup) + Expr(j);
    if (line.exclusive)
      seq.push_back(line.store(to, j == 0 ? Expr(before) : line.accumulate(before, inside[j - 1])));
    else
      seq.push_back(line.store(to, line.accumulate(before, inside[j])));
  }
  seq.push_back(total.Set(line.accumulate(before, inside.back())));
  const Expr groups = ir::FloorDiv(line.count, Expr(kGroup)), at = groups * Expr(kGroup) + k;
  Stmt add = total.Set(line.accumulate(total.Get(), line.value(at)));
  Stmt store = line.store(at, total.Get());
  return Sequence({total.Alloc(), total.Set(line.nothing),
                   tir::For(group, Expr(0), groups, tir::ForKind::kSerial, Sequence(seq)),
                   tir::For(k, Expr(0), line.count - groups * Expr(kGroup), tir::ForKind::kSerial,
                            line.exclusive ? Sequence({store, add}) : Sequence({add, store}))});
}

Stmt ScanBody(const Buffer& in, const Buffer& out, const Scan& a, bool product) {
  const Dims& dims = in.shape();
  DLDataType dtype = out.elem_dtype();
  DLDataType wide = WideDtype(dtype);
  size_t axis = a.axis ? (*a.axis < 0 ? *a.axis + dims.size() : *a.axis) : 0;
  if (a.axis && axis + 1 < dims.size() && wide == dtype)
    return ScanRows(in, out, axis, a.exclusive, product);
  Dims lines;
  for (size_t d = 0; a.axis && d < dims.size(); ++d) {
    if (d != axis) lines.push_back(dims[d]);
  }
  const Expr count = a.axis ? dims[axis] : ProductOf(dims);
  auto one = [&](const Indices& i) {
    auto element = [&](const Expr& k) {
      Indices at = i;
      at.insert(at.begin() + static_cast<std::ptrdiff_t>(axis), k);
      return at;
    };
    return ScanLine(
        {count,
         [&](const Expr& k) {
           return ConvertTo(wide,
                            ConvertTo(dtype, in.Load(a.axis ? element(k) : Unflatten(k, dims))));
         },
         [&](const Expr& k, const Expr& value) -> Stmt {
           return tir::BufferStore(out, ir::Cast(dtype, value), a.axis ? element(k) : Indices{k});
         },
         [&](const Expr& sum, const Expr& next) { return product ? sum * next : sum + next; },
         a.exclusive, wide, Number(wide, product ? 1 : 0)});
  };
  return ParallelNest(lines, count, one);
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
