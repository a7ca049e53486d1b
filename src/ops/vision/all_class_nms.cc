// SPDX-License-Identifier: Apache-2.0
// vision.all_class_non_max_suppression: boxes by falling score for each class of each image,
// without those that overlap a better one; and rvm.class_boxes, which computes it into results of
// full size.
#include "ops/search/packed_order.h"
#include "ops/vision/boxes.h"

namespace relaxvm::ops {
namespace {

struct AllClass {
  std::string output_format = "onnx";
};

bool IsNumber(DLDataType t) { return IsFloat(t) || IsInteger(t); }

// Extents of the results: batch, classes, boxes; absent when unknown.
std::optional<Dims> CheckArguments(TypeCtx& ctx, const AllClass& a) {
  TensorType boxes = ctx.Float(0), scores = ctx.Float(1);
  ctx.SameDtype(0, 1);
  ctx.CheckRank(0, 3);
  ctx.CheckRank(1, 3);
  for (size_t i = 2; i < 5; ++i) {
    TensorType t = ctx.TensorOf(i, IsNumber, "a tensor with one number");
    auto dims = t->GetShape();
    if (dims.has_value() && ctx.Prove(ir::NotEqual(ProductOf(*dims), Expr(1)))) {
      ctx.Error(ErrorKind::kValueError, ctx.ArgName(i), " must hold one number, got ",
                DescribeType(t));
    }
  }
  if (a.output_format != "onnx" && a.output_format != "tensorflow") {
    ctx.Error(ErrorKind::kValueError, "output_format must be 'onnx' or 'tensorflow', got '",
              a.output_format, "'");
  }
  auto bs = boxes->GetShape(), ss = scores->GetShape();
  if (bs.has_value() && ctx.Prove(ir::NotEqual((*bs)[2], Expr(4)))) {
    ctx.Error(ErrorKind::kValueError, "boxes must have rows of 4 numbers, got ",
              DescribeType(boxes));
  }
  if (!bs.has_value() || !ss.has_value()) return std::nullopt;
  if (ctx.Prove(ir::NotEqual((*bs)[0], (*ss)[0])) || ctx.Prove(ir::NotEqual((*bs)[1], (*ss)[2]))) {
    ctx.Error(ErrorKind::kValueError,
              "boxes must be [batch, boxes, 4] and scores [batch, classes, boxes], got ",
              ctx.Describe(0), ", ", ctx.Describe(1));
  }
  return *ss;
}

// [indices, scores (tensorflow), count]
ffi::Array<Type> ResultTypes(TypeCtx& ctx, const AllClass& a) {
  std::optional<Dims> dims = CheckArguments(ctx, a);
  if (a.output_format == "onnx") {
    std::optional<Dims> rows;
    if (dims) rows = Dims{(*dims)[0] * (*dims)[1] * (*dims)[2], Expr(3)};
    return {ctx.Result(rows, 2, Int(64)), ctx.Result(Dims{Expr(1)}, Int(64))};
  }
  std::optional<Dims> rows, scores, counts;
  if (dims) {
    Expr each = (*dims)[1] * (*dims)[2];
    rows = Dims{(*dims)[0], each, Expr(2)};
    scores = Dims{(*dims)[0], each};
    counts = Dims{(*dims)[0]};
  }
  return {ctx.Result(rows, 3, Int(64)), ctx.Result(scores, 2, ctx.Float(1)->dtype),
          ctx.Result(counts, 1, Int(64))};
}

// Which boxes stay, for each class of each image: `picked` [batch, classes, boxes] by falling score
// and how many of them count.
class PickBody {
 public:
  explicit PickBody(const std::vector<Buffer>& ins) : ins_(ins) {}

  Stmt Run(const std::vector<Buffer>& outs) const {
    const Buffer &scores = ins_[1], &picked = outs[0];
    Expr classes = scores.shape()[1], boxes = scores.shape()[2];
    ir::Var line("line", Int(64)), image("image", Int(64)), kind("kind", Int(64));
    ir::Var place("place", Int(64)), box("box", Int(64)), other("other", Int(64));
    ir::Var limit("limit", Int(64)),
        least("least", Widen(scores.Load(Indices(3, Expr(0)))).dtype());
    Buffer found("found", {boxes}, Int(64)), order("order", {boxes}, Int(64)),
        spare("spare", {boxes}, Int(64));
    Cell number("number", Int(64)), count("count", Int(64)), k("k", Int(64)),
        overlaps("overlaps", Int(64));
    auto score = [&](const Expr& i) { return scores.Load({image, kind, i}); };
    auto corners = [&](const ir::Var& i) -> Corners {
      return [&, i](int64_t c) { return Widen(ins_[0].Load({image, i, Expr(c)})); };
    };
    Expr overlap = OverlapOf(corners(box), corners(other));
    Stmt look = Search(
        k, count.Get(), overlaps,
        Sequence({tir::Bind(other, picked.Load({image, kind, k.Get()})),
                  tir::IfThenElse(ir::GreaterEqual(overlap, ir::Cast(overlap.dtype(), One(3))),
                                  overlaps.Set(Expr(1)))}));
    Stmt keep = Sequence({tir::BufferStore(picked, box, {image, kind, count.Get()}),
                          count.Set(count.Get() + Expr(1))});
    // Most scores are below the least one that counts: what is left is sorted.
    auto counts = [&](const Expr& i) { return ir::Greater(Widen(score(i)), least); };
    const Stmt find = ForThoseOf(boxes, counts, [&](const Expr& i) {
      return Sequence({tir::BufferStore(found, i, {number.Get()}),
                       number.Set(number.Get() + ir::Cast(Int(64), counts(i)))});
    });
    const Stmt sort = SortPacked([&](const Expr& i) { return score(found.Load({i})); },
                                 number.Get(), order, spare, true);
    Stmt decide = Sequence({tir::Bind(box, found.Load({IndexOf(order.Load({place}))})), look,
                            tir::IfThenElse(ir::Equal(overlaps.Get(), Expr(0)), keep)});
    Stmt scan = tir::For(place, Expr(0), number.Get(), tir::ForKind::kSerial,
                         tir::IfThenElse(ir::Less(count.Get(), limit), decide));
    Stmt all = Sequence(
        {tir::Bind(image, ir::FloorDiv(line, classes)),
         tir::Bind(kind, ir::FloorMod(line, classes)), tir::Bind(limit, ir::Cast(Int(64), One(2))),
         tir::Bind(least, ir::Cast(least.dtype(), One(4))), tir::AllocBuffer(found),
         tir::AllocBuffer(order), tir::AllocBuffer(spare), number.Alloc(), count.Alloc(), k.Alloc(),
         overlaps.Alloc(), number.Set(Expr(0)), count.Set(Expr(0)), find, sort, scan,
         tir::BufferStore(outs[1], count.Get(), {image, kind})});
    return ParallelLines(line, scores.shape()[0] * classes, boxes * boxes, all);
  }

 private:
  // The number in argument `i`.
  Expr One(size_t i) const {
    Indices at(ins_[i].shape().size(), Expr(0));
    return ins_[i].Load(at);
  }

  std::vector<Buffer> ins_;
};

// image, class and box of all that stay, one after the other; how many; and the end of their rows.
Stmt ListAll(const std::vector<Buffer>& ins, const std::vector<Buffer>& outs) {
  const Buffer &picked = ins[0], &counts = ins[1];
  Cell total("total", Int(64));
  ir::Var k("k", Int(64));
  auto number = [&](const Expr& e, int64_t column) {
    return tir::BufferStore(outs[0], e, {total.Get(), Expr(column)});
  };
  Stmt clear = LoopNest(outs[0].shape(),
                        [&](const Indices& i) { return tir::BufferStore(outs[0], Expr(0), i); });
  Stmt lines = LoopNest(counts.shape(), [&](const Indices& i) {
    Stmt row = Sequence({number(i[0], 0), number(i[1], 1), number(picked.Load({i[0], i[1], k}), 2),
                         total.Set(total.Get() + Expr(1))});
    return tir::For(k, Expr(0), counts.Load(i), tir::ForKind::kSerial, row);
  });
  return Sequence({total.Alloc(), total.Set(Expr(0)), clear, lines,
                   tir::BufferStore(outs[1], total.Get(), {Expr(0)}),
                   tir::BufferStore(outs[2], total.Get(), {Expr(0)}),
                   tir::BufferStore(outs[2], Expr(3), {Expr(1)})});
}

// class and box, and the score, of all that stay in each image; how many.
Stmt ListByImage(const std::vector<Buffer>& ins, const std::vector<Buffer>& outs) {
  const Buffer &picked = ins[0], &counts = ins[1], &scores = ins[2];
  Cell total("total", Int(64));
  ir::Var image("image", Int(64)), kind("kind", Int(64)), k("k", Int(64)), box("box", Int(64));
  Stmt clear = LoopNest({outs[1].shape()[1]}, [&](const Indices& i) {
    return Sequence({tir::BufferStore(outs[0], Expr(0), {image, i[0], Expr(0)}),
                     tir::BufferStore(outs[0], Expr(0), {image, i[0], Expr(1)}),
                     tir::BufferStore(outs[1], Number(outs[1].elem_dtype(), 0), {image, i[0]})});
  });
  Stmt row =
      Sequence({tir::Bind(box, picked.Load({image, kind, k})),
                tir::BufferStore(outs[0], kind, {image, total.Get(), Expr(0)}),
                tir::BufferStore(outs[0], box, {image, total.Get(), Expr(1)}),
                tir::BufferStore(outs[1], scores.Load({image, kind, box}), {image, total.Get()}),
                total.Set(total.Get() + Expr(1))});
  Stmt rows = tir::For(k, Expr(0), counts.Load({image, kind}), tir::ForKind::kSerial, row);
  Stmt kinds = tir::For(kind, Expr(0), counts.shape()[1], tir::ForKind::kSerial, rows);
  return tir::For(image, Expr(0), counts.shape()[0], tir::ForKind::kSerial,
                  Sequence({total.Alloc(), total.Set(Expr(0)), clear, kinds,
                            tir::BufferStore(outs[2], total.Get(), {image})}));
}

Tensors ComputeClassBoxes(const ComputeArgs& in, const AllClass& a) {
  const Tensor& scores = in[1];
  auto pick = [](const std::vector<Buffer>& ins, const std::vector<Buffer>& outs) {
    return PickBody(ins).Run(outs);
  };
  Tensors picked = tir::Opaque(
      {{"picked", scores->shape, Int(64)}, {"counts", {scores.dim(0), scores.dim(1)}, Int(64)}},
      {in[0], scores, in[2], in[3], in[4]}, pick, "pick_boxes");
  std::vector<tir::OutputSpec> outputs;
  for (const char* name : {"boxes", "found", "bound"}) {
    outputs.push_back({name, in.OutShape(outputs.size()), in.OutDtype(outputs.size())});
  }
  if (a.output_format == "onnx") {
    return tir::Opaque(outputs, {picked[0], picked[1]}, ListAll, "list_boxes");
  }
  return tir::Opaque(outputs, {picked[0], picked[1], scores}, ListByImage, "list_boxes");
}

Type InferClassBoxes(TypeCtx& ctx, const AllClass& a) {
  ffi::Array<Type> fields = ResultTypes(ctx, a);
  if (a.output_format == "onnx") fields.push_back(ctx.Result(Dims{Expr(2)}, Int(64)));
  return ir::TupleType(fields);
}

ffi::Map<ffi::String, ffi::Any> Int64Attr() {
  ffi::Map<ffi::String, ffi::Any> attrs;
  attrs.Set("dtype", Int(64));
  return attrs;
}

// How many boxes there are is known only while the program runs: the first rows are cut off.
Expr Decompose(ir::BlockBuilder& b, const Call& call, const AllClass& a) {
  ffi::Map<ffi::String, ffi::Any> attrs;
  attrs.Set("output_format", ffi::String(a.output_format));
  Expr found = b.Emit(MakeCall("rvm.class_boxes", call->args, attrs, {}, call->span));
  auto field = [&](int64_t i) { return b.Emit(ir::TupleGetItem(found, i)); };
  if (a.output_format != "onnx") return ir::Tuple({field(0), field(1), field(2)});
  Expr zeros = b.Emit(MakeCall("zeros", {ir::ShapeExpr({Expr(2)})}, Int64Attr(), {}, call->span));
  Expr ones = b.Emit(MakeCall("ones", {ir::ShapeExpr({Expr(2)})}, Int64Attr(), {}, call->span));
  Expr rows = b.Emit(
      MakeCall("dynamic_strided_slice", {field(0), zeros, field(2), ones}, {}, {}, call->span));
  return ir::Tuple({rows, field(1)});
}

std::vector<ArgDoc> Arguments() {
  return {{"boxes", "Corners of the boxes [batch, boxes, 4]."},
          {"scores", "Their scores [batch, classes, boxes]."},
          {"max_output_boxes_per_class", "How many of a class stay at most; one number."},
          {"iou_threshold", "Overlap (shared by joint area) from which a box goes; one number."},
          {"score_threshold", "Boxes that score no more go; one number."}};
}
constexpr const char* kFormat =
    "'onnx': image, class and box of each, and their count; 'tensorflow': for each image classes "
    "and boxes, scores, their count.";

}  // namespace

OpDef vision_all_class_non_max_suppression() {
  return Define<AllClass>({
      .name = "vision.all_class_non_max_suppression",
      .doc = "Boxes by falling score for each class, without those that overlap a better one.",
      .args = Arguments(),
      .attrs = {{"output_format", &AllClass::output_format, kFormat}},
      .type = [](TypeCtx& ctx, const AllClass& a) -> Type {
        return ir::TupleType(ResultTypes(ctx, a));
      },
      .decompose = Decompose,
  });
}

OpDef rvm_class_boxes() {
  return Define<AllClass>({
      .name = "rvm.class_boxes",
      .doc = "all_class_non_max_suppression with rows of 0 after the boxes that stay, and (onnx) "
             "the end of the others.",
      .args = Arguments(),
      .attrs = {{"output_format", &AllClass::output_format, kFormat}},
      .reference = "out = class_boxes(boxes, scores, max_output_boxes_per_class, iou_threshold, "
                   "score_threshold, output_format)",
      .samples = {{{"boxes: f32[2, 5, =4]", "scores: f32[2, 3, 5]",
                    "max_output_boxes_per_class: i64[=1] in 2..2",
                    "iou_threshold: f32[=1] in 0.2..0.3", "score_threshold: f32[=1] in -1..0"}},
                  {{"boxes: f32[2, 5, =4]", "scores: f32[2, 3, 5]",
                    "max_output_boxes_per_class: i64[=1] in 4..4",
                    "iou_threshold: f32[=1] in 0.1..0.2", "score_threshold: f32[=1] in 0..1",
                    "output_format='tensorflow'"}}},
      .type = InferClassBoxes,
      .compute = ComputeClassBoxes,
      .exceptions = {{"f16", "scores and overlaps rounded to 11 bits tie"},
                     {"bf16", "scores and overlaps rounded to 8 bits tie"}},
  });
}

}  // namespace relaxvm::ops
