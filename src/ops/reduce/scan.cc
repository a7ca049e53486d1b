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

constexpr int64_t kLanes = 16;    // what is more than a register becomes several
constexpr int64_t kVectors = 16;  // at once: of each row as much as is fetched well

// Along an axis that is not the last: columns run along vectors, whose totals stay in registers.
class ColumnScan {
 public:
  ColumnScan(const Buffer& in, const Buffer& out, size_t axis, bool exclusive, bool product)
      : in_(in), out_(out), exclusive_(exclusive), product_(product), rows_(in.shape()[axis]) {
    const Dims& dims = in.shape();
    const auto at = dims.begin() + static_cast<std::ptrdiff_t>(axis);
    lines_ = ProductOf(Dims(dims.begin(), at));
    columns_ = ProductOf(Dims(at + 1, dims.end()));
  }

  Stmt Run() const {
    const int64_t width = kVectors * kLanes;
    const Expr whole = ir::FloorDiv(columns_, Expr(width)), done = whole * Expr(width);
    const Expr vectors = ir::FloorDiv(columns_ - done, Expr(kLanes));
    auto rest = [&](const Expr& line) {
      const Expr after = done + vectors * Expr(kLanes);
      return Sequence(
          {LoopNest(
               {vectors},
               [&](const Indices& v) { return Down(line, done + v[0] * Expr(kLanes), 1, kLanes); },
               "v"),
           LoopNest(
               {columns_ - after}, [&](const Indices& c) { return Down(line, after + c[0], 1, 1); },
               "c")});
    };
    ir::Var task("task", Int(64));
    const Expr tasks = whole + Expr(1), line = ir::FloorDiv(task, tasks);
    const Expr block = ir::FloorMod(task, tasks);
    return ParallelLines(
        task, lines_ * tasks, rows_ * Expr(width),
        tir::IfThenElse(ir::Less(block, whole), Down(line, block * Expr(width), kVectors, kLanes),
                        rest(line)));
  }

 private:
  // Columns from `first` on, down all rows.
  Stmt Down(const Expr& line, const Expr& first, int64_t vectors, int64_t lanes) const {
    const DLDataType dtype = out_.elem_dtype(), wide = WideDtype(dtype);
    Buffer total("total", {Expr(vectors * lanes)}, wide, "local");
    auto each = [&](const std::function<Stmt(const Expr&)>& body) {
      ffi::Array<Stmt> all;
      for (int64_t v = 0; v < vectors; ++v) {
        ir::Var lane("lane", Int(64));
        all.push_back(tir::For(lane, Expr(0), Expr(lanes), tir::ForKind::kVectorized,
                               body(Expr(v * lanes) + lane)));
      }
      return Sequence(all);
    };
    // Less than 0 by its sign alone: the first sum is the element itself.
    const double start = product_ ? 1 : exclusive_ ? 0 : -0.0;
    Stmt clear = each(
        [&](const Expr& i) -> Stmt { return tir::BufferStore(total, Number(wide, start), {i}); });
    Stmt rows = LoopNest({rows_}, [&](const Indices& row) {
      return each([&](const Expr& i) -> Stmt {
        const Expr at = (line * rows_ + row[0]) * columns_ + first + i;
        const Expr value = ConvertTo(wide, ConvertTo(dtype, in_.Load({at}))),
                   before = total.Load({i});
        Stmt add = tir::BufferStore(total, product_ ? before * value : before + value, {i});
        Stmt store = tir::BufferStore(out_, ir::Cast(dtype, total.Load({i})), {at});
        return exclusive_ ? Sequence({store, add}) : Sequence({add, store});
      });
    });
    return Sequence({tir::AllocBuffer(total), clear, rows});
  }

  Buffer in_, out_;
  bool exclusive_, product_;
  Expr rows_, lines_, columns_;
};

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
  if (a.axis && axis + 1 < dims.size())
    return ColumnScan(in, out, axis, a.exclusive, product).Run();
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
