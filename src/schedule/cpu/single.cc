// SPDX-License-Identifier: Apache-2.0
// EmitSingle: one stage as rows of vectors that threads share, and the loops that all stages use.
#include <algorithm>

#include "schedule/cpu/context.h"

namespace relaxvm::schedule::cpu {
namespace {

using tir::SeqStmt;

constexpr int64_t kBlockElems =
    4096;  // one iteration of a parallel loop over a plain run of elements
constexpr int64_t kBlockWork = 65536;    // additions of a block of reductions
constexpr int64_t kWorkPerRow = 8192;    // additions; below it, finding the row would be felt
constexpr int64_t kPlacesPerBlock = 32;  // of a window that moves along one axis
constexpr int64_t kTypicalSize = 64;     // of a dimension that is not known
// Additions of one of several pieces that is worth a loop of its own for its threads.
constexpr int64_t kWorkOfLargePiece = 64 * kWorkPerThread;

class SingleStage {
 public:
  explicit SingleStage(Context* context) : context_(context) {}

  Stmt Emit(const Stage& stage) {
    Stage pixels = FlattenStage(stage, &context_->analyzer);
    DropUnitAxes(&pixels);
    if (const auto padded = EmitPixels(pixels, context_->machine, &context_->analyzer))
      return OverRows(padded->rows, padded->body, padded->work);
    const Pieces pieces = PiecesOf(stage, &context_->analyzer);
    ffi::Array<Stmt> parts = pieces.definitions;
    if (pieces.stages.size() > 1) {  // asked once
      const Expr large = IsLarge(stage, context_);
      Var var("large", Bool());
      large_ = !large.defined() || large.as<ir::IntImmObj>() ? large : Expr(var);
      if (var.same_as(large_)) parts.push_back(tir::Bind(var, large));
    } else {
      large_ = IsLarge(stage, context_);
    }
    std::vector<Stage> flat;
    for (const Stage& piece : pieces.stages) flat.push_back(Flat(piece));
    auto is_input = [this](const Var& buffer) { return IsInput(buffer); };
    for (const Family& family : FamiliesOf(flat, is_input, &context_->analyzer))
      parts.push_back(EmitFamily(family));
    return SeqStmt::Flatten(parts);
  }

 private:
  bool IsInput(const Var& buffer) const {
    const auto& stages = context_->program.stages;
    return !context_->temps.count(buffer.get()) &&
           std::none_of(stages.begin(), stages.end(),
                        [&](const Stage& stage) { return Writes(stage, buffer); });
  }

  // Small members of one size are rows of one loop; others have loops of their own, one after the
  // other.
  Stmt EmitFamily(const Family& family) {
    if (family.pick.empty()) return EmitPiece(family.stage);
    ffi::Array<Stmt> parts = family.tables;
    if (family.of_one_size && Estimated(WorkOf(family.stage)) < kWorkOfLargePiece) {
      family_ = &family;
      parts.push_back(EmitPiece(family.stage));
      family_ = nullptr;
    } else {
      ffi::Array<Stmt> body = family.pick;
      body.push_back(EmitPiece(family.stage));
      parts.push_back(Loop(family.member.var, family.member.extent, tir::ForKind::kSerial,
                           SeqStmt::Flatten(body)));
    }
    return SeqStmt::Flatten(parts);
  }

  Stage Flat(const Stage& whole) {
    Stage flat = FlattenStage(InRuns(whole), &context_->analyzer);
    DropUnitAxes(&flat);
    CollapseAxes(&flat, &context_->analyzer);
    return InRuns(flat);  // an offset may say more than its indices did
  }

  // Parts of axes that fill a vector are runs of memory.
  Stage InRuns(const Stage& stage) const {
    if (stage.combine != Combine::kNone) return stage;
    const int64_t lanes = context_->machine.Lanes(ElemBytes(stage));
    return SplitAxes(stage, &context_->analyzer, std::max<int64_t>(2, lanes));
  }

  Stmt EmitPiece(const Stage& flat) {
    if (flat.spatial.size() == 1 && flat.combine == Combine::kNone) return EmitRun(flat);
    if (const auto parts = InParts(flat, context_->machine, &context_->analyzer))
      return EmitParts(*parts, WorkOf(flat));
    return EmitWhole(flat);
  }

  Stmt EmitWhole(const Stage& flat) {
    if (flat.spatial.empty()) return Alone(flat);
    if (const auto moved = EmitInterleave(flat, context_->machine, &context_->analyzer))
      return OverRows(moved->rows, moved->body, moved->work);
    if (const Stmt turned = Turned(flat); turned.defined()) return turned;
    if (flat.spatial.size() == 1) return EmitRun(flat);
    // The last axis that the store walks contiguously stays inside; the others are rows.
    size_t inner = flat.spatial.size() - 1;
    for (size_t i = 0; i < flat.spatial.size(); ++i) {
      auto linear = LinearOffset::Of(flat.indices[0], flat.spatial);
      if (linear.has_value() && ir::IsIntValue(linear->Coeff(flat.spatial[i].var), 1)) inner = i;
    }
    Stage row = flat;
    row.spatial = {flat.spatial[inner]};
    std::vector<Axis> rows = flat.spatial;
    rows.erase(rows.begin() + static_cast<std::ptrdiff_t>(inner));
    // Finding a row's axes costs divisions: rows are made long enough to forget them.  Windows
    // share what they read with their neighbours.
    const bool window =
        flat.combine != Combine::kNone && row.spatial[0].var.same_as(flat.spatial.back().var);
    if (window) {
      if (const auto cut = CutWindows(flat, context_->machine, &context_->analyzer))
        return EmitWhole(*cut);
    }
    if (window && OneAxisIsWalked(flat, rows)) {
      // Neighbours share what they read, blocks are tasks.
      row.spatial.insert(row.spatial.begin(), rows.back());
      const Blocks blocks = CutFirstAxis(row, kPlacesPerBlock);
      rows.back() = blocks.block;
      return OverRows(rows, EmitNest(blocks.part, context_->machine, &context_->analyzer),
                      blocks.work, StreamIf(flat));
    }
    while (rows.size() > 1 &&
           ((window && row.spatial.size() == 1) || Estimated(WorkOf(row)) < kWorkPerRow)) {
      row.spatial.insert(row.spatial.begin(), rows.back());
      rows.pop_back();
    }
    if (!window && row.spatial.size() > 1) {
      // Of the axis that was taken last, which may be all there is for threads, as much as a row
      // needs.
      Stage one = row;
      one.spatial.erase(one.spatial.begin());
      const int64_t work = std::max<int64_t>(1, Estimated(WorkOf(one)));
      const int64_t size = (kWorkPerRow + work - 1) / work;
      if (2 * size <= Estimated(row.spatial[0].extent)) {
        const Blocks blocks = CutFirstAxis(row, size);
        rows.push_back(blocks.block);
        return OverRows(rows, EmitNest(blocks.part, context_->machine, &context_->analyzer),
                        blocks.work, StreamIf(flat));
      }
    }
    return OverRows(rows, EmitNest(row, context_->machine, &context_->analyzer), WorkOf(row),
                    StreamIf(flat));
  }

  // By square tiles; null: `flat` has another form.
  Stmt Turned(const Stage& flat) {
    auto emit = [&](const Expr& past_caches) {
      return EmitTranspose(flat, past_caches, context_->machine, &context_->analyzer);
    };
    const auto plain = emit(0);
    if (!plain.has_value()) return Stmt();
    const Expr stream_if = plain->streams ? StreamIf(flat) : Expr();
    if (!stream_if.defined()) return OverRows(plain->rows, plain->body, plain->work);
    if (const auto both = emit(stream_if))
      return OverRows(both->rows, both->body, both->work, stream_if);
    const auto past = emit(1);
    return tir::IfThenElse(stream_if, OverRows(past->rows, past->body, past->work, stream_if),
                           OverRows(plain->rows, plain->body, plain->work));
  }

  // Is `rows` the axis that a window moves along, beside at most a batch, and is something read for
  // all places of it (the filter)?
  static bool OneAxisIsWalked(const Stage& flat, const std::vector<Axis>& rows) {
    std::vector<Axis> taps = flat.reduce;
    std::erase_if(taps, [](const Axis& axis) { return ir::IsIntValue(axis.extent, 1); });
    if (taps.size() != 1 || rows.size() > 2) return false;
    const Var& along = rows.back().var;
    bool moves = false, shared = false;
    tir::PostOrderVisit(tir::Evaluate(flat.value), [&](const ffi::ObjectRef& node) {
      const auto* load = node.as<tir::BufferLoadObj>();
      if (load == nullptr) return;
      if (!UsesVar(load->indices[0], along)) shared = true;
      if (UsesVar(load->indices[0], along) && UsesVar(load->indices[0], taps[0].var)) moves = true;
    });
    return moves && shared;
  }

  struct Blocks {
    Axis block;
    Stage part;  // one block, the last of which may be shorter
    Expr work;   // of a block that is not the last
  };

  // The first axis of the flat stage in blocks of `size`.
  Blocks CutFirstAxis(const Stage& flat, int64_t size) {
    const Axis& axis = flat.spatial[0];
    Axis block{Var("block", Int(64)), context_->analyzer.Simplify(ir::CeilDiv(axis.extent, size))};
    const Expr from = block.var * Expr(size);
    const Axis inside{Var(axis.var->name, Int(64)),
                      context_->analyzer.Simplify(ir::Min(size, axis.extent - from))};
    ffi::Map<Var, Expr> map;
    map.Set(axis.var, from + inside.var);
    Stage part = Substituted(flat, map);
    part.spatial[0] = inside;
    Stage whole = part;
    whole.spatial[0].extent = size;
    return {block, part, WorkOf(whole)};
  }

  // Axes of one point would keep their neighbours from being blocks.
  void DropUnitAxes(Stage* flat) {
    ffi::Map<Var, Expr> map;
    for (const Axis& axis : flat->spatial) {
      if (ir::IsIntValue(axis.extent, 1)) map.Set(axis.var, Expr(0));
    }
    if (map.empty()) return;
    *flat = SimplifyOffsets(Substituted(*flat, map), &context_->analyzer);
    std::erase_if(flat->spatial, [](const Axis& axis) { return ir::IsIntValue(axis.extent, 1); });
  }

  Stmt EmitParts(const Parts& parts, const Expr& work) {
    // Rows are parts, of each point of what is outside of the results that vectors make.
    Stage each = parts.each;
    std::vector<Axis> rows;
    if (!each.spatial.empty()) {
      rows.assign(each.spatial.begin(), each.spatial.end() - 1);
      each.spatial = {each.spatial.back()};
    }
    rows.push_back(parts.part);
    const Expr of_row =
        context_->analyzer.Simplify(ir::FloorDiv(work, ir::Max(NumPoints(rows), 1)));
    ffi::Array<Stmt> seq = parts.definitions;
    seq.push_back(tir::AllocBuffer(parts.partial));
    seq.push_back(OverRows(rows, EmitNest(each, context_->machine, &context_->analyzer), of_row));
    seq.push_back(EmitWhole(parts.rest));
    return SeqStmt::Flatten(seq);
  }

  // How many neighbouring results of a reduction make a block: enough for its work, and a kilobyte
  // and more where they lie side by side in what is read.
  int64_t ResultsPerBlock(const Stage& flat) {
    const int64_t lanes = context_->machine.Lanes(ElemBytes(flat));
    Stage one = flat;
    one.spatial.clear();
    const int64_t work = std::max<int64_t>(1, Estimated(WorkOf(one)));
    const int64_t enough = (kBlockWork + work - 1) / work;
    const int64_t unit = ReadsAlong(flat, flat.spatial[0].var) ? 16 * lanes
                         : enough < 4 * lanes                  ? 1
                                                               : 4 * lanes;
    return (enough + unit - 1) / unit * unit;
  }

  // A run of results, cut into blocks.
  Stmt EmitRun(const Stage& flat) {
    const Axis axis = flat.spatial[0];
    const int64_t size = flat.combine == Combine::kNone ? kBlockElems : ResultsPerBlock(flat);
    if (auto extent = ir::AsInt(axis.extent); extent.has_value() && extent.value() <= size)
      return Alone(flat);
    const Blocks blocks = CutFirstAxis(flat, size);
    return OverRows({blocks.block}, EmitNest(blocks.part, context_->machine, &context_->analyzer),
                    blocks.work, StreamIf(flat));
  }

  Stmt Alone(const Stage& flat) {
    return OverRows({}, EmitNest(flat, context_->machine, &context_->analyzer), WorkOf(flat));
  }

  Stmt OverRows(std::vector<Axis> rows, Stmt body, const Expr& work, Expr stream_if = Expr()) {
    if (family_ != nullptr) {
      rows.push_back(family_->member);  // neighbours of a row are written by one thread
      ffi::Array<Stmt> seq = family_->pick;
      seq.push_back(body);
      body = SeqStmt::Flatten(seq);
      stream_if = Expr();  // where a result lies is known inside only
    }
    return RunRows({std::move(rows), std::move(body), work, stream_if}, &context_->analyzer);
  }
  int64_t Estimated(const Expr& e) { return Estimate(e, &context_->analyzer); }
  Expr StreamIf(const Stage& flat) {
    return StreamingOf(flat, context_, large_).Both(&context_->analyzer);
  }

  Context* context_;
  Expr large_;                      // IsLarge of the result
  const Family* family_ = nullptr;  // whose members are rows of what is emitted
};

}  // namespace

bool Context::ReadOnlyBy(const Buffer& buffer, size_t begin, size_t end) const {
  for (size_t i = 0; i < program.stages.size(); ++i) {
    if ((i < begin || i >= end) && ReadsBuffer(program.stages[i], buffer)) return false;
  }
  return true;
}

bool ReadsBuffer(const Stage& stage, const Var& buffer) {
  for (const Var& read : ReadsOf(stage)) {
    if (read.same_as(buffer)) return true;
  }
  return false;
}

Expr WorkOf(const Stage& s) {
  Expr work = CostOf(s.value) + 1;
  for (const Axis& a : s.spatial) work = work * a.extent;
  for (const Axis& a : s.reduce) work = work * a.extent;
  return work;
}

Stmt RunRows(const RowForm& form, arith::Analyzer* analyzer) {
  const std::vector<Axis>& rows = form.rows;
  if (rows.empty()) return form.body;
  // Vectors do several additions at once.
  const Expr cost = ir::FloorDiv(form.work, 4);
  auto streamed = [&](const Stmt& loop) -> Stmt {
    if (!form.stream_if.defined()) return loop;
    auto copy = ffi::make_object<tir::ForObj>(*loop.as<tir::ForObj>());
    copy->annotations.Set(kStreamIf, form.stream_if);
    return ir::NodeRef<tir::For>(std::move(copy));
  };
  if (rows.size() == 1)
    return streamed(ParallelLoop(rows[0].var, rows[0].extent, cost, form.body, analyzer));
  Var row("row", Int(64));
  ffi::Array<Stmt> seq;
  BindPoint(rows, row, &seq);
  seq.push_back(form.body);
  return streamed(ParallelLoop(row, analyzer->Simplify(NumPoints(rows)), cost,
                               SeqStmt::Flatten(seq), analyzer));
}

int64_t Estimate(const Expr& e, arith::Analyzer* analyzer) {
  ffi::Map<Var, Expr> sizes;
  for (const Var& v : ir::FreeVars(e)) sizes.Set(v, kTypicalSize);
  return ir::AsInt(analyzer->Simplify(ir::Substitute(e, sizes))).value_or(kWorkPerRow);
}

Expr Streaming::Both(arith::Analyzer* analyzer) const {
  if (!larger.defined()) return Expr();
  const Expr both = analyzer->Simplify(ir::And(larger, aligned));
  return ir::IsIntValue(both, 0) ? Expr() : both;
}

Expr IsLarge(const Stage& stage, Context* context) {
  if (context->temps.count(stage.out->get()) || context->machine.l3_bytes == 0) return Expr();
  Expr bytes = Expr(SizeInBytes(stage.out->elem_dtype()));
  for (const Expr& d : stage.out->shape()) bytes = bytes * d;
  return context->analyzer.Simplify(ir::Greater(bytes, Expr(context->machine.l3_bytes)));
}

Streaming StreamingOf(const Stage& flat, Context* context, const Expr& larger) {
  if (!larger.defined() || ir::IsIntValue(larger, 0)) return {};
  const int64_t lanes = context->machine.Lanes(ElemBytes(flat));
  auto linear = LinearOffset::Of(flat.indices[0], flat.spatial);
  if (lanes < 2 || !linear.has_value()) return {};
  Expr aligned = ir::Equal(ir::FloorMod(linear->rest(), lanes), Expr(0));
  auto multiple = [&](const Expr& e) {
    aligned = ir::And(aligned, ir::Equal(ir::FloorMod(e, lanes), Expr(0)));
  };
  for (const Axis& axis : flat.spatial) {
    const Expr coeff = context->analyzer.Simplify(linear->Coeff(axis.var));
    if (!ir::IsIntValue(coeff, 1)) multiple(coeff);
  }
  return {larger, context->analyzer.Simplify(aligned)};
}

Stmt EmitSingle(const Stage& stage, Context* context) { return SingleStage(context).Emit(stage); }

}  // namespace relaxvm::schedule::cpu
