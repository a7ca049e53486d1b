// SPDX-License-Identifier: Apache-2.0
// vision.get_valid_counts and vision.non_max_suppression: rows of boxes (class, score, corners)
// that score enough, and of these the ones that overlap no better one.
#include "ops/sort_line.h"
#include "ops/vision/boxes.h"

namespace relaxvm::ops {
namespace {

struct ValidCounts {
  double score_threshold = 0.0;
  int64_t id_index = 0;
  int64_t score_index = 1;
};

struct Suppression {
  int64_t max_output_size = -1;
  double iou_threshold = 0.5;
  bool force_suppress = false;
  int64_t top_k = -1;
  int64_t coord_start = 2;
  int64_t score_index = 1;
  int64_t id_index = 0;
  bool return_indices = true;
  bool invalid_to_bottom = false;
  double soft_nms_sigma = 0.0;
  double score_threshold = 0.0;

  bool soft() const { return soft_nms_sigma > 0; }
};

// An index into the numbers of a row; -1 where `may_lack` means that rows have no such number.
void CheckColumn(const TypeCtx& ctx, const char* name, int64_t column, bool may_lack,
                 const Expr& length, int64_t count = 1) {
  bool low = column < (may_lack ? -1 : 0);
  if (!low && !ctx.Prove(ir::Less(length, Expr(column + count)))) return;
  ctx.Error(ErrorKind::kValueError, name, " is ", column, ", but rows have ", DescribeExpr(length),
            " numbers");
}

Type InferValidCounts(TypeCtx& ctx, const ValidCounts& a) {
  TensorType x = ctx.Float(0);
  ctx.CheckRank(0, 3);
  auto dims = x->GetShape();
  if (!dims.has_value()) {
    return ir::TupleType({ctx.Result(std::nullopt, 1, Int(32)),
                          ctx.Result(std::nullopt, 3, x->dtype),
                          ctx.Result(std::nullopt, 2, Int(32))});
  }
  CheckColumn(ctx, "score_index", a.score_index, false, (*dims)[2]);
  CheckColumn(ctx, "id_index", a.id_index, true, (*dims)[2]);
  return ir::TupleType({ctx.Result(Dims{(*dims)[0]}, Int(32)), ctx.Like(x),
                        ctx.Result(Dims{(*dims)[0], (*dims)[1]}, Int(32))});
}

Expr Int32(const Expr& e) { return ir::Cast(Int(32), e); }

// out[line, first...] = -1
Stmt FillRows(const Buffer& out, const Expr& line) {
  Dims rest(out.shape().begin() + 1, out.shape().end());
  return LoopNest(rest, [&](const Indices& i) {
    Indices at{line};
    for (const Expr& e : i) at.push_back(e);
    return tir::BufferStore(out, Number(out.elem_dtype(), -1), at);
  });
}

Stmt CopyRow(const Buffer& from, const Expr& source, const Buffer& to, const Expr& target,
             const Expr& line) {
  return LoopNest(
      {from.shape()[2]},
      [&](const Indices& k) {
        return tir::BufferStore(to, from.Load({line, source, k[0]}), {line, target, k[0]});
      },
      "k");
}

Tensors ComputeValidCounts(const ComputeArgs& in, const ValidCounts& a) {
  auto body = [a](const std::vector<Buffer>& ins, const std::vector<Buffer>& outs) {
    const Buffer& data = ins[0];
    ir::Var line("line", Int(64)), row("row", Int(64));
    Cell count("count", Int(64));
    auto column = [&](int64_t c) { return Widen(data.Load({line, row, Expr(c)})); };
    Expr score = column(a.score_index);
    Expr valid = ir::Greater(score, Number(score.dtype(), a.score_threshold));
    if (a.id_index >= 0) {
      valid = ir::And(valid, ir::GreaterEqual(column(a.id_index), Number(score.dtype(), 0)));
    }
    Stmt keep = Sequence({CopyRow(data, row, outs[1], count.Get(), line),
                          tir::BufferStore(outs[2], Int32(row), {line, count.Get()}),
                          count.Set(count.Get() + Expr(1))});
    Stmt scan = tir::For(row, Expr(0), data.shape()[1], tir::ForKind::kSerial,
                         tir::IfThenElse(valid, keep));
    Stmt all = Sequence({count.Alloc(), count.Set(Expr(0)), FillRows(outs[1], line),
                         FillRows(outs[2], line), scan,
                         tir::BufferStore(outs[0], Int32(count.Get()), {line})});
    return ParallelLines(line, data.shape()[0], data.shape()[1] * data.shape()[2], all);
  };
  return tir::Opaque({{"valid_count", in.OutShape(0), Int(32)},
                      {"valid_rows", in.OutShape(1), in.OutDtype(1)},
                      {"valid_indices", in.OutShape(2), Int(32)}},
                     {in[0]}, body, "get_valid_counts");
}

Type InferSuppression(TypeCtx& ctx, const Suppression& a) {
  TensorType x = ctx.Float(0), valid = ctx.Tensor(1), indices = ctx.Tensor(2);
  ctx.CheckRank(0, 3);
  ctx.CheckRank(1, 1);
  ctx.CheckRank(2, 2);
  for (size_t i : {1, 2}) {
    TensorType t = ctx.Tensor(i);
    if (!t->IsUnknownDtype() && t->dtype != Int(32)) {
      ctx.Error(ErrorKind::kTypeError, ctx.ArgName(i), " must be an int32 tensor, got ",
                DescribeType(t));
    }
  }
  auto dims = x->GetShape();
  auto same = [&](const TensorType& t, size_t i, int64_t d) {
    auto other = t->GetShape();
    if (!other.has_value() || !ctx.Prove(ir::NotEqual((*other)[d], (*dims)[d]))) return;
    ctx.Error(ErrorKind::kValueError, ctx.ArgName(i), " must have extent ",
              DescribeExpr((*dims)[d]), " in dimension ", d, ", as data has, got ",
              DescribeType(t));
  };
  std::optional<Dims> lines, counts;
  if (dims.has_value()) {
    same(valid, 1, 0);
    same(indices, 2, 0);
    same(indices, 2, 1);
    CheckColumn(ctx, "score_index", a.score_index, false, (*dims)[2]);
    CheckColumn(ctx, "id_index", a.id_index, true, (*dims)[2]);
    CheckColumn(ctx, "coord_start", a.coord_start, false, (*dims)[2], 4);
    lines = Dims{(*dims)[0], (*dims)[1]};
    counts = Dims{(*dims)[0], Expr(1)};
  }
  if (!a.return_indices) return ctx.Like(x);
  ffi::Array<Type> fields;
  if (a.soft()) fields.push_back(ctx.Like(x));
  fields.push_back(ctx.Result(lines, 2, Int(32)));
  fields.push_back(ctx.Result(counts, 2, Int(32)));
  return ir::TupleType(fields);
}

// One line of boxes: `order` holds the rows by falling score, `picked` the places in it that stay.
class SuppressionBody {
 public:
  SuppressionBody(const Suppression& a, const std::vector<Buffer>& ins)
      : a_(a),
        data_(ins[0]),
        valid_(ins[1]),
        indices_(ins[2]),
        real_(WideDtype(data_.elem_dtype())),
        line_("line", Int(64)),
        kept_("kept", Int(64)),
        order_("order", {data_.shape()[1]}, Int(64)),
        spare_("spare", {data_.shape()[1]}, Int(64)),
        picked_("picked", {data_.shape()[1]}, Int(64)),
        scores_("scores", {data_.shape()[1]}, real_),
        final_("final_scores", {data_.shape()[1]}, real_),
        count_("count", Int(64)) {}

  Stmt Run(const std::vector<Buffer>& outs) {
    Expr rows = data_.shape()[1];
    ir::Var given("given", Int(64));
    Expr valid = ir::Max(ir::Min(ir::Cast(Int(64), valid_.Load({line_})), rows), Expr(0));
    Expr kept = a_.top_k > 0 ? ir::Min(Expr(given), Expr(a_.top_k)) : Expr(given);
    auto score = [&](const Expr& row) { return data_.Load({line_, row, Expr(a_.score_index)}); };
    ffi::Array<Stmt> steps{tir::Bind(given, valid),
                           tir::Bind(kept_, kept),
                           tir::AllocBuffer(order_),
                           tir::AllocBuffer(spare_),
                           tir::AllocBuffer(picked_),
                           tir::AllocBuffer(scores_),
                           tir::AllocBuffer(final_),
                           count_.Alloc(),
                           count_.Set(Expr(0)),
                           SortLine(score, given, order_, spare_, true),
                           a_.soft() ? PickDecaying() : PickInOrder(),
                           Write(outs)};
    return ParallelLines(line_, data_.shape()[0], rows * rows, Sequence(steps));
  }

 private:
  // Number `column` of the row at `place` of the order.
  Expr At(const Expr& place, int64_t column) const {
    return Widen(data_.Load({line_, order_.Load({place}), Expr(column)}));
  }
  Expr Overlap(const Expr& a, const Expr& b) const {
    auto box = [this](const Expr& place) -> Corners {
      return [this, place](int64_t k) { return At(place, a_.coord_start + k); };
    };
    return OverlapOf(box(a), box(b));
  }
  Expr SameClass(const Expr& a, const Expr& b) const {
    if (a_.force_suppress || a_.id_index < 0) return ir::BoolImm(true);
    return ir::Equal(At(a, a_.id_index), At(b, a_.id_index));
  }
  Expr Real(double v) const { return Number(real_, v); }
  Expr MoreWanted() const {
    if (a_.max_output_size <= 0) return ir::BoolImm(true);
    return ir::Less(count_.Get(), Expr(a_.max_output_size));
  }
  Stmt Pick(const Expr& place) const {
    return Sequence(
        {tir::BufferStore(picked_, place, {count_.Get()}), count_.Set(count_.Get() + Expr(1))});
  }

  // Boxes by falling score; each that overlaps none picked before stays.
  Stmt PickInOrder() const {
    ir::Var place("place", Int(64)), other("other", Int(64));
    Cell k("k", Int(64)), overlaps("overlaps", Int(64));
    Expr drops = ir::IfThenElse(SameClass(place, other),
                                ir::GreaterEqual(Overlap(place, other), Real(a_.iou_threshold)),
                                ir::BoolImm(false));
    Stmt look = Search(k, count_.Get(), overlaps,
                       Sequence({tir::Bind(other, picked_.Load({k.Get()})),
                                 tir::IfThenElse(drops, overlaps.Set(Expr(1)))}));
    Stmt decide = tir::IfThenElse(ir::Equal(overlaps.Get(), Expr(0)), Pick(place));
    Expr candidate = ir::And(ir::Greater(At(place, a_.score_index), Real(0)), MoreWanted());
    return Sequence({k.Alloc(), overlaps.Alloc(),
                     tir::For(place, Expr(0), kept_, tir::ForKind::kSerial,
                              tir::IfThenElse(candidate, Sequence({look, decide})))});
  }

  // The best box stays; the scores of those it overlaps fall, and the best of the rest is next.
  Stmt PickDecaying() const {
    ir::Var place("place", Int(64)), other("other", Int(64)), winner("winner", Int(64));
    ir::Var overlap("overlap", real_);
    Cell best("best", Int(64)), score("score", real_);
    const Expr gone = ir::MinValue(real_);
    auto left = [&](const Expr& at) { return scores_.Load({at}); };
    Stmt fill = tir::For(place, Expr(0), kept_, tir::ForKind::kSerial,
                         tir::BufferStore(scores_, At(place, a_.score_index), {place}));
    Stmt look = tir::For(other, Expr(0), kept_, tir::ForKind::kSerial,
                         tir::IfThenElse(ir::Greater(left(other), score.Get()),
                                         Sequence({best.Set(other), score.Set(left(other))})));
    Expr decay = ir::CallIntrin(Intrin::kExp,
                                {Expr(overlap) * Expr(overlap) * Real(-0.5 / a_.soft_nms_sigma)});
    Expr fallen =
        ir::Select(ir::GreaterEqual(overlap, Real(a_.iou_threshold)), gone, left(other) * decay);
    Expr affected = ir::And(ir::Greater(left(other), gone), ir::NotEqual(other, winner));
    Stmt lower = tir::For(
        other, Expr(0), kept_, tir::ForKind::kSerial,
        tir::IfThenElse(affected,
                        tir::IfThenElse(SameClass(winner, other),
                                        Sequence({tir::Bind(overlap, Overlap(winner, other)),
                                                  tir::BufferStore(scores_, fallen, {other})}))));
    Stmt take = Sequence({tir::Bind(winner, best.Get()),
                          tir::BufferStore(final_, score.Get(), {count_.Get()}), Pick(winner),
                          tir::BufferStore(scores_, gone, {winner}), lower});
    Stmt round = Sequence({best.Set(Expr(-1)), score.Set(Real(a_.score_threshold)), look,
                           tir::IfThenElse(ir::GreaterEqual(best.Get(), Expr(0)), take)});
    Expr goes_on = ir::And(ir::GreaterEqual(best.Get(), Expr(0)), MoreWanted());
    return Sequence(
        {best.Alloc(), score.Alloc(), fill, best.Set(Expr(0)), tir::While(goes_on, round)});
  }

  Stmt Write(const std::vector<Buffer>& outs) const {
    ir::Var k("k", Int(64)), place("place", Int(64)), row("row", Int(64));
    const Buffer* rows = a_.return_indices && !a_.soft() ? nullptr : &outs[0];
    const Buffer* found = a_.return_indices ? &outs[outs.size() - 2] : nullptr;
    ffi::Array<Stmt> clear,
        write{tir::Bind(place, picked_.Load({k})), tir::Bind(row, order_.Load({place}))};
    if (rows != nullptr) {
      clear.push_back(FillRows(*rows, line_));
      // Suppressed boxes leave gaps, unless they go to the end.
      Expr target = a_.soft() || a_.invalid_to_bottom ? Expr(k) : Expr(place);
      write.push_back(CopyRow(data_, row, *rows, target, line_));
      if (a_.soft()) {
        Expr score = ir::Cast(rows->elem_dtype(), final_.Load({k}));
        write.push_back(tir::BufferStore(*rows, score, {line_, k, Expr(a_.score_index)}));
      }
    }
    if (found != nullptr) {
      clear.push_back(FillRows(*found, line_));
      write.push_back(tir::BufferStore(*found, indices_.Load({line_, row}), {line_, k}));
    }
    clear.push_back(tir::For(k, Expr(0), count_.Get(), tir::ForKind::kSerial, Sequence(write)));
    if (found != nullptr) {
      clear.push_back(tir::BufferStore(outs.back(), Int32(count_.Get()), {line_, Expr(0)}));
    }
    return Sequence(clear);
  }

  const Suppression& a_;
  Buffer data_, valid_, indices_;
  DLDataType real_;
  ir::Var line_, kept_;
  Buffer order_, spare_, picked_;
  Buffer scores_, final_;  // by place in the order; by rank among the picked
  Cell count_;
};

Tensors ComputeSuppression(const ComputeArgs& in, const Suppression& a) {
  auto body = [a](const std::vector<Buffer>& ins, const std::vector<Buffer>& outs) {
    return SuppressionBody(a, ins).Run(outs);
  };
  std::vector<tir::OutputSpec> outputs;
  auto add = [&](const char* name) {
    outputs.push_back({name, in.OutShape(outputs.size()), in.OutDtype(outputs.size())});
  };
  if (a.soft() || !a.return_indices) add("boxes");
  if (a.return_indices) {
    add("box_indices");
    add("valid_box_count");
  }
  return tir::Opaque(outputs, {in[0], in[1], in[2]}, body, "non_max_suppression");
}

const std::pair<const char*, const char*> kSmall[] = {
    {"f16", "scores and overlaps rounded to 11 bits tie"},
    {"bf16", "scores and overlaps rounded to 8 bits tie"}};

}  // namespace

OpDef vision_get_valid_counts() {
  return Define<ValidCounts>({
      .name = "vision.get_valid_counts",
      .doc = "Rows of boxes that score enough, moved to the top: how many, they, their indices.",
      .args = {{"data", "Boxes [batch, count, numbers]."}},
      .attrs = {{"score_threshold", &ValidCounts::score_threshold, "A valid score is greater."},
                {"id_index", &ValidCounts::id_index,
                 "Where a row has its class, below 0 if invalid; -1: nowhere."},
                {"score_index", &ValidCounts::score_index, "Where a row has its score."}},
      .reference = "out = get_valid_counts(data, score_threshold, id_index, "
                   "score_index)",
      .samples = {{{"data: f32[2, 5, =6]", "score_threshold=0.3"}},
                  {{"data: f32[3, 4, =5]", "id_index=-1", "score_index=0"}}},
      .type = InferValidCounts,
      .compute = ComputeValidCounts,
      .exceptions = {std::begin(kSmall), std::end(kSmall)},
  });
}

OpDef vision_non_max_suppression() {
  return Define<Suppression>({
      .name = "vision.non_max_suppression",
      .doc = "Boxes by falling score without those that overlap a better one of their class.",
      .args = {{"data", "Boxes [batch, count, numbers]."},
               {"valid_count", "How many of the first rows count, int32 [batch]."},
               {"indices", "What a row is called in the results, int32 [batch, count]."}},
      .attrs =
          {{"max_output_size", &Suppression::max_output_size, "How many stay; below 1: all."},
           {"iou_threshold", &Suppression::iou_threshold,
            "Overlap (shared by joint area) from which a box goes."},
           {"force_suppress", &Suppression::force_suppress, "Whatever the class."},
           {"top_k", &Suppression::top_k, "How many of the best are looked at; below 1: all."},
           {"coord_start", &Suppression::coord_start, "Where a row has its four coordinates."},
           {"score_index", &Suppression::score_index, "Where a row has its score."},
           {"id_index", &Suppression::id_index, "Where a row has its class; -1: one for all."},
           {"return_indices", &Suppression::return_indices,
            "Indices and their count; else the boxes."},
           {"invalid_to_bottom", &Suppression::invalid_to_bottom,
            "Boxes that went leave no gaps in the returned ones."},
           {"soft_nms_sigma", &Suppression::soft_nms_sigma,
            "Above 0: overlap below the threshold lowers scores; lowered boxes are returned too."},
           {"score_threshold", &Suppression::score_threshold,
            "With soft_nms_sigma: a box stays while its score is greater."}},
      .reference = "out = non_max_suppression(data, valid_count, indices, max_output_size, "
                   "iou_threshold, force_suppress, top_k, coord_start, score_index, id_index, "
                   "return_indices, invalid_to_bottom, soft_nms_sigma, score_threshold)",
      .samples = {{{"data: f32[2, 7, =6] in 0..2", "valid_count: i32[2] in 0..7",
                    "indices: i32[2, 7] in 0..9", "force_suppress=True"}},
                  {{"data: f32[2, 7, =6] in 0..2", "valid_count: i32[2] in 3..7",
                    "indices: i32[2, 7] in 0..9", "id_index=-1", "top_k=5", "max_output_size=2",
                    "iou_threshold=0.2"}},
                  {{"data: f32[2, 7, =5] in 0..2", "valid_count: i32[2] in 3..7",
                    "indices: i32[2, 7] in 0..9", "coord_start=1", "score_index=0", "id_index=-1",
                    "return_indices=False", "iou_threshold=0.1"}},
                  {{"data: f32[2, 7, =6] in 0..2", "valid_count: i32[2] in 3..7",
                    "indices: i32[2, 7] in 0..9", "id_index=-1", "return_indices=False",
                    "invalid_to_bottom=True", "iou_threshold=0.1"}},
                  {{"data: f32[2, 7, =6] in 0..2", "valid_count: i32[2] in 3..7",
                    "indices: i32[2, 7] in 0..9", "id_index=-1", "soft_nms_sigma=0.4",
                    "score_threshold=0.3"}}},
      .type = InferSuppression,
      .compute = ComputeSuppression,
      .exceptions = {std::begin(kSmall), std::end(kSmall)},
  });
}

}  // namespace relaxvm::ops
