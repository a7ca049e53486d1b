// SPDX-License-Identifier: Apache-2.0
// sort, argsort, topk: each line's elements are packed with their indices (packed_order.h) and
// sorted; few of many are selected.  NaN comes after everything (descending: before everything).
#include <cmath>

#include "ops/reduce/axes.h"
#include "ops/search/packed_order.h"
#include "ops/sort_line.h"

namespace relaxvm::ops {
namespace {

struct Sort {
  int64_t axis = -1;
  bool descending = false;
};
struct Argsort {
  int64_t axis = -1;
  bool descending = false;
  std::optional<DLDataType> dtype = Int(32);
};
struct TopK {
  int64_t k = 1;
  int64_t axis = -1;
  std::string ret_type = "both";
  bool largest = true;
  std::optional<DLDataType> dtype = Int(32);
};

bool IsNumber(DLDataType t) { return IsFloat(t) || IsInteger(t); }

constexpr int64_t kFewestByVectors = 64;  // elements of a line

// Puts the indices of the `keep` first elements of line `value(0 .. n)` in order into `order`: each
// element that comes before the last of them moves in among them.  For few: nearly all elements are
// compared once, and where a line's follow each other in memory, `are_neighbours`, by vectors.
Stmt SelectLine(const LineValue& value, const Expr& n, const Buffer& order, int64_t keep,
                bool descending, bool are_neighbours) {
  DLDataType dtype = value(Expr(0)).dtype();
  Buffer best("best", {Expr(keep)}, dtype, "local");
  Cell count("count", Int(64)), place("place", Int(64));
  auto at = [](const Expr& e) { return Indices{e}; };
  auto enters = [&](const Expr& element) {
    return ir::Or(ir::Less(count.Get(), Expr(keep)),
                  ComesBefore(element, best.Load(at(Expr(keep - 1))), descending));
  };
  auto look = [&](const Expr& i) {
    ir::Var now("now", dtype);
    const Expr before = place.Get() - Expr(1);
    const Expr moves =
        ir::IfThenElse(ir::Greater(place.Get(), Expr(0)),
                       ComesBefore(now, best.Load(at(before)), descending), ir::BoolImm(false));
    const Stmt shift = tir::While(
        moves, Sequence({tir::BufferStore(best, best.Load(at(before)), at(place.Get())),
                         tir::BufferStore(order, order.Load(at(before)), at(place.Get())),
                         place.Set(before)}));
    const Stmt insert = Sequence({place.Set(ir::Min(count.Get(), Expr(keep - 1))), shift,
                                  tir::BufferStore(best, now, at(place.Get())),
                                  tir::BufferStore(order, i, at(place.Get())),
                                  count.Set(ir::Min(count.Get() + Expr(1), Expr(keep)))});
    return Sequence({tir::Bind(now, value(i)), tir::IfThenElse(enters(now), insert)});
  };
  const bool by_vectors =
      are_neighbours && ir::AsInt(n).value_or(kFewestByVectors) >= kFewestByVectors;
  const Stmt scan = by_vectors ? ForThoseOf(
                                     n, [&](const Expr& i) { return enters(value(i)); }, look)
                               : LoopNest({n}, [&](const Indices& i) { return look(i[0]); });
  return Sequence({tir::AllocBuffer(best), count.Alloc(), place.Alloc(), count.Set(Expr(0)),
                   tir::BufferStore(best, Number(dtype, 0), at(Expr(keep - 1))), scan});
}

// Are the `keep` first of `n` elements, neighbours in memory, sooner found by SelectLine than by
// SelectPacked?  In nanoseconds of a Zen 4 (random numbers; 100 to 50,000 elements, 2 to 50 kept):
// an element that moves in is a branch that was guessed wrong, and so many of them do.  In a line
// that is in order, the wrong way round, all do: the more are kept the longer that takes.
bool IsSelectionFaster(int64_t n, int64_t keep) {
  constexpr int64_t kMostKept = 64, kFewest = 16;
  if (keep > kMostKept) return false;
  const auto all = static_cast<double>(n), kept = static_cast<double>(keep);
  const double moves = kept * (1 + std::log(all / kept));
  const double selected = 0.17 * all + moves * (30 + 0.5 * kept),
               packed = 1.05 * all + 10 * kept + 60;
  return n < kFewest || selected <= packed;
}

// Up to here elements are selected where sizes are not known, or they are no neighbours.
constexpr int64_t kMaxSelected = 32;

// What is written for the element of rank `k` of a line, which is the one at `index`.
using Emit = std::function<Stmt(const std::vector<Buffer>& outs, const Indices& to,
                                const Expr& index, const Expr& value)>;

Tensors Sorted(const Tensor& x, int64_t axis, bool descending, const Expr& keep,
               std::vector<tir::OutputSpec> outputs, const Emit& emit, const char* name) {
  if (axis < 0) axis += x.ndim();
  auto body = [=](const std::vector<Buffer>& inputs, const std::vector<Buffer>& outs) {
    const Buffer& data = inputs[0];
    Expr n = data.shape()[axis];
    Dims lines;
    for (size_t d = 0; d < data.shape().size(); ++d) {
      if (static_cast<int64_t>(d) != axis) lines.push_back(data.shape()[d]);
    }
    const auto kept = ir::AsInt(keep);
    // Of many elements, few are found before they are sorted.
    const auto extent = ir::AsInt(n);
    const bool part = kept.has_value() && kept.value() > 0 &&
                      (!extent.has_value() || kept.value() * 2 <= extent.value());
    const bool by_words = SelectsByWords(data.elem_dtype());
    const bool are_neighbours = axis + 1 == static_cast<int64_t>(data.shape().size());
    const bool select = part && (are_neighbours && extent.has_value() && !by_words
                                     ? IsSelectionFaster(*extent, *kept)
                                     : *kept <= kMaxSelected);
    const bool few = part && !select && (!by_words || extent.has_value());
    const Expr length = select ? keep : !few ? n : (by_words ? n : keep) + Expr(1);
    Buffer order("order", {length}, Int(64)), spare("spare", {length}, Int(64));
    auto line = [&](const Indices& i) {
      ffi::Array<Stmt> one_line;
      auto element = [&](const Expr& index) {
        Indices at = i;
        at.insert(at.begin() + axis, index);
        return at;
      };
      auto value = [&](const Expr& index) { return data.Load(element(index)); };
      one_line.push_back(tir::AllocBuffer(order));
      if (!select) one_line.push_back(tir::AllocBuffer(spare));
      one_line.push_back(select ? SelectLine(value, n, order, *kept, descending, are_neighbours)
                         : few  ? SelectPacked(value, n, keep, order, spare, descending)
                                : SortPacked(value, n, order, spare, descending));
      // Ranks that the line does not have get 0 and index -1.
      const bool all_there = kept.has_value() && ir::AsInt(n).has_value() && *kept <= *ir::AsInt(n);
      const bool guarded = !all_there && !ir::StructuralEqual(keep, n);
      one_line.push_back(LoopNest(
          {keep},
          [&](const Indices& k) -> Stmt {
            Expr index = select ? Expr(order.Load(k)) : IndexOf(order.Load(k));
            Stmt there = emit(outs, element(k[0]), index, value(index));
            if (!guarded) return there;
            Stmt missing = emit(outs, element(k[0]), Expr(-1), Number(data.elem_dtype(), 0));
            return tir::IfThenElse(ir::Less(k[0], n), there, missing);
          },
          "k"));
      return Sequence(one_line);
    };
    return ParallelNest(lines, n, line);
  };
  return tir::Opaque(std::move(outputs), {x}, body, name);
}

Type InferSorted(TypeCtx& ctx, int64_t axis, std::optional<DLDataType> dtype) {
  TensorType x = ctx.TensorOf(0, IsNumber, "a tensor of numbers");
  if (!x->IsUnknownRank()) ctx.Axis(axis, x->ndim);
  if (dtype && !IsNumber(*dtype)) {
    ctx.Error(ErrorKind::kTypeError, "dtype must be a type of numbers, got ", DTypeName(*dtype));
  }
  return ctx.Like(x, dtype.value_or(x->dtype));
}

Tensors ComputeSort(const ComputeArgs& in, const Sort& a) {
  const Tensor& x = in[0];
  Emit emit = [](const std::vector<Buffer>& outs, const Indices& to, const Expr&,
                 const Expr& value) -> Stmt { return tir::BufferStore(outs[0], value, to); };
  return Sorted(x, a.axis, a.descending, x.dim(a.axis), {{"sort", x->shape, x.dtype()}}, emit,
                "sort");
}

Tensors ComputeArgsort(const ComputeArgs& in, const Argsort& a) {
  const Tensor& x = in[0];
  DLDataType dtype = in.OutDtype();
  Emit emit = [dtype](const std::vector<Buffer>& outs, const Indices& to, const Expr& index,
                      const Expr&) -> Stmt {
    return tir::BufferStore(outs[0], ir::Cast(dtype, index), to);
  };
  return Sorted(x, a.axis, a.descending, x.dim(a.axis), {{"argsort", x->shape, dtype}}, emit,
                "argsort");
}

Type InferTopK(TypeCtx& ctx, const TopK& a) {
  TensorType x = ctx.TensorOf(0, IsNumber, "a tensor of numbers");
  if (a.ret_type != "both" && a.ret_type != "values" && a.ret_type != "indices") {
    ctx.Error(ErrorKind::kValueError, "ret_type must be 'both', 'values' or 'indices', got '",
              a.ret_type, "'");
  }
  DLDataType index = a.dtype.value_or(Int(32));
  if (!IsNumber(index)) {
    ctx.Error(ErrorKind::kTypeError, "dtype must be a type of numbers, got ", DTypeName(index));
  }
  std::optional<Dims> result;
  if (!x->IsUnknownRank()) {
    int64_t axis = ctx.Axis(a.axis, x->ndim);
    if (auto dims = x->GetShape()) {
      result = *dims;
      if (a.k > 0) {
        // Of fewer elements all are taken, where it is known that there are fewer.
        bool fewer = ctx.Prove(ir::Less((*dims)[axis], Expr(a.k)));
        if (!fewer) result->Set(axis, Expr(a.k));
      }
    }
  }
  Type values = ctx.Result(result, x->ndim, x->dtype);
  Type indices = ctx.Result(result, x->ndim, index);
  if (a.ret_type == "values") return values;
  if (a.ret_type == "indices") return indices;
  return ir::TupleType({values, indices});
}

Tensors ComputeTopK(const ComputeArgs& in, const TopK& a) {
  const Tensor& x = in[0];
  bool values = a.ret_type != "indices", indices = a.ret_type != "values";
  Dims shape = in.OutShape();
  int64_t axis = a.axis < 0 ? a.axis + x.ndim() : a.axis;
  DLDataType index_dtype = a.dtype.value_or(Int(32));
  // The greatest one runs along vectors.  (Of the least, NaN would come first.)
  if (a.k == 1 && a.largest && ir::AsInt(x->shape[axis]).value_or(0) > 0) {
    Extreme found = ExtremeOf(x, ReducedAxes(x->shape, Ints{axis}, /*keepdims=*/true), true);
    auto as = [](const Tensor& from, DLDataType dtype, const char* name) {
      return tir::Map(from, [&](const Expr& e) { return ir::Cast(dtype, e); }, name);
    };
    Tensors results;
    if (values) results.push_back(as(found.value, x.dtype(), "values"));
    if (indices) results.push_back(as(found.index, index_dtype, "indices"));
    return results;
  }
  std::vector<tir::OutputSpec> outputs;
  if (values) outputs.push_back({"values", shape, x.dtype()});
  if (indices) outputs.push_back({"indices", shape, index_dtype});
  Emit emit = [=](const std::vector<Buffer>& outs, const Indices& to, const Expr& index,
                  const Expr& value) -> Stmt {
    ffi::Array<Stmt> stores;
    if (values) stores.push_back(tir::BufferStore(outs[0], value, to));
    if (indices) stores.push_back(tir::BufferStore(outs.back(), ir::Cast(index_dtype, index), to));
    return Sequence(stores);
  };
  return Sorted(x, axis, a.largest, shape[axis], outputs, emit, "topk");
}

}  // namespace

OpDef sort() {
  return Define<Sort>({
      .name = "sort",
      .doc = "The elements of each line along an axis in order.",
      .args = {{"x", "The tensor."}},
      .attrs = {{"axis", &Sort::axis, "The axis."},
                {"descending", &Sort::descending, "The greatest first."}},
      .reference = "out = np.flip(np.sort(x, axis), axis) if descending else np.sort(x, axis)",
      .samples = {{{"x: f32[4, 7]"}}, {{"x: f32[5, 3, 2]", "axis=0", "descending=True"}}},
      .type = [](TypeCtx& ctx, const Sort& a) { return InferSorted(ctx, a.axis, std::nullopt); },
      .compute = ComputeSort,
  });
}

OpDef argsort() {
  return Define<Argsort>({
      .name = "argsort",
      .doc = "The indices that bring each line along an axis into order; equal ones keep theirs.",
      .args = {{"data", "The tensor."}},
      .attrs = {{"axis", &Argsort::axis, "The axis."},
                {"descending", &Argsort::descending, "The greatest first."},
                {"dtype", &Argsort::dtype, "Element type of the indices."}},
      .reference = "out = argsort(data, axis, descending)",
      .samples = {{{"data: f32[4, 7]"}},
                  {{"data: f32[5, 3]", "axis=0", "descending=True", "dtype='int64'"}}},
      .type = [](TypeCtx& ctx,
                 const Argsort& a) { return InferSorted(ctx, a.axis, a.dtype.value_or(Int(32))); },
      .compute = ComputeArgsort,
  });
}

OpDef topk() {
  return Define<TopK>({
      .name = "topk",
      .doc = "The k greatest (or least) elements of each line along an axis, and their indices.",
      .args = {{"data", "The tensor."}},
      .attrs = {{"k", &TopK::k, "How many; below 1: all."},
                {"axis", &TopK::axis, "The axis."},
                {"ret_type", &TopK::ret_type, "'both', 'values' or 'indices'."},
                {"largest", &TopK::largest, "The greatest; else the least."},
                {"dtype", &TopK::dtype, "Element type of the indices."}},
      .reference = "out = topk(data, k, axis, ret_type, largest)",
      .samples = {{{"data: f32[4, 7]", "k=3"}},
                  {{"data: f32[6, 3]", "k=2", "axis=0", "ret_type='values'", "largest=False"}},
                  {{"data: f32[5]", "k=5", "ret_type='indices'", "dtype='int64'"}}},
      .type = InferTopK,
      .compute = ComputeTopK,
  });
}

}  // namespace relaxvm::ops
