// SPDX-License-Identifier: Apache-2.0
// AttentionByRows: scores lie row by row.
//
// A block's keys are packed (turned so that they run along the lanes) and serve all rows of the
// chunk; a few rows read them as they lie.
#include <algorithm>

#include "schedule/cpu/attention/task.h"

namespace relaxvm::schedule::cpu {
namespace {

using ir::Intrin;
using tir::BufferStore;
using tir::For;
using tir::ForKind;
using tir::SeqStmt;

// Rows of a task are a multiple of the rows of both kinds of tile.
constexpr int64_t kStep = 2 * kTileRows;
// Rows that turning the keys would not pay for: more of them where the first cache keeps a block.
constexpr int64_t kFewRows = 2, kFewRowsNear = 4;
constexpr int64_t kKeys = 64;  // of a block

class ByRows : public AttentionTask {
 public:
  using AttentionTask::AttentionTask;

  Stmt Run(const Axis& chunk, bool only_few) {
    vectors_ = std::min<int64_t>(traits_.num_vectors >= 32 ? 4 : 2, kKeys / lanes_);
    ffi::Array<Stmt> seq;
    if (!only_few) packed_ = Scratch("keys", depth_ * kKeys, "global", &seq);
    const int64_t most = only_few ? kFewForLanes : kAttentionChunk;
    block_ = Scratch("scores", most * kKeys, "global", &seq);
    sums_ = Scratch("sums", most * padded_width_, "global", &seq);
    greatest_ = Scratch("greatest", most, "local", &seq);
    total_ = Scratch("total", most * lanes_, "local", &seq);
    factor_ = Scratch("factor", most, "local", &seq);
    for (const Stmt& s : Cut(chunk, only_few ? 1 : kStep)) seq.push_back(s);
    seq.push_back(Start());
    Var number("block", Int(64)), first_key("first_key", Int(64)), here("here", Int(64));
    key_start_ = first_key;
    here_ = here;
    const bool near = depth_ * kKeys * 4 * 2 <= traits_.l1_bytes;
    const int64_t few = near ? kFewRowsNear : kFewRows;
    if (IsNarrow(of_.q) && !only_few) {
      queries_ = Scratch("queries", kAttentionChunk * depth_, "global", &seq);
      seq.push_back(tir::IfThenElse(ir::Greater(count_, Expr(few)), WidenQueries(queries_)));
    }
    const Stmt scores = only_few ? Dots()
                                 : tir::IfThenElse(ir::LessEqual(count_, Expr(few)), Dots(),
                                                   SeqStmt::Flatten({PackKeys(), Products()}));
    ffi::Array<Stmt> step = {tir::Bind(first_key, number * Expr(kKeys)),
                             tir::Bind(here, ir::Min(kKeys, keys_ - first_key)), scores};
    Stmt whole = UpdateRows(false), partial = UpdateRows(true);
    step.push_back(analyzer_->ProveEqual(ir::FloorMod(keys_, kKeys), 0)
                       ? whole
                       : Stmt(tir::IfThenElse(ir::Equal(here, Expr(kKeys)), whole, partial)));
    step.push_back(Weigh(
        [&](const Expr& row, const Expr& key) { return block_.Load({row * Expr(kKeys) + key}); },
        only_few));
    seq.push_back(For(number, 0, NumBlocks(kKeys), ForKind::kSerial, SeqStmt::Flatten(step)));
    seq.push_back(Finish([&](const Expr& row) {
      return ir::CallIntrin(Float(32), Intrin::kReduceAdd,
                            {total_.Load({ir::RampExpr(row * Expr(lanes_), 1, lanes_)})});
    }));
    return SeqStmt::Flatten(seq);
  }

 private:
  Stmt Start() {
    Var row("row", Int(64)), v("v", Int(64)), lane("lane", Int(64)), l2("lane", Int(64));
    Stmt zero =
        For(v, 0, padded_width_ / lanes_, ForKind::kSerial,
            For(lane, 0, lanes_, ForKind::kVectorized,
                BufferStore(sums_, Zero(), {row * Expr(padded_width_) + v * Expr(lanes_) + lane})));
    return For(
        row, 0, chunk_rows_, ForKind::kSerial,
        SeqStmt({zero, BufferStore(greatest_, ir::ConstFloat(Float(32), kLowestScore), {row}),
                 For(l2, 0, lanes_, ForKind::kVectorized,
                     BufferStore(total_, Zero(), {row * Expr(lanes_) + l2}))}));
  }

  // keys[d, j] = k[first_key + j, d]; what is behind the last key stays as it is and is masked.
  Stmt PackKeys() {
    Stage pack;
    pack.name = "pack_keys";
    Axis d{Var("d", Int(64)), Expr(depth_)}, j{Var("j", Int(64)), here_};
    pack.spatial = {d, j};
    pack.value = KeyAt(j.var, d.var);
    pack.out = Buffer("keys", {Expr(depth_), Expr(kKeys)}, Float(32));
    pack.indices = {d.var, j.var};
    return Turn(pack, packed_);
  }

  // scores = q k^T, one key after the other.
  Stmt Dots() {
    Var row("row", Int(64));
    Axis j{Var("j", Int(64)), here_};
    Stage dots = *of_.scores;
    dots.spatial = {j};
    Map map = AtRow(first_ + row);
    map.Set(of_.scores->spatial[of_.key].var, key_start_ + j.var);
    dots.value = tir::Substitute(of_.scores->value, map);
    dots.indices = {j.var};
    dots.out = Buffer("scores", {Expr(kKeys)}, Float(32));
    Stage flat = FlattenStage(dots, analyzer_);
    flat.out = block_;
    flat.indices = {row * Expr(kKeys) + j.var};
    return For(row, 0, count_, ForKind::kSerial, EmitNest(flat, traits_, analyzer_));
  }

  // scores = q k^T
  Stmt Products() {
    Var panel("panel", Int(64));
    const int64_t width = vectors_ * lanes_;
    Stmt tiles = TileRows(kTileRows, false, [&](const Expr& first, int64_t rows) {
      Var d("d", Int(64));
      auto right = [&](int64_t v, const Var& lane) {
        return packed_.Load({d * Expr(kKeys) + panel * Expr(width) + Expr(v * lanes_) + lane});
      };
      auto left = [&](const Expr& row) -> Expr {
        if (IsNarrow(of_.q)) return queries_.Load({row * Expr(depth_) + d});
        Map map = AtRow(Inside(row));
        map.Set(of_.scores->reduce[0].var, d);
        return ir::Cast(Float(32), tir::Substitute(of_.q, map));
      };
      auto place = [&](const Expr& row, int64_t v, const Var& lane) {
        return row * Expr(kKeys) + panel * Expr(width) + Expr(v * lanes_) + lane;
      };
      return MultiplyTile(
          {first, rows, vectors_, width, d, Expr(depth_)},
          {.left = left,
           .right = right,
           .store = [&](const Expr& row, int64_t v, const Var& lane, const Expr& sum) {
             return BufferStore(block_, sum, {place(row, v, lane)});
           }});
    });
    return Loop(panel, Expr(kKeys / width), ForKind::kSerial, tiles);
  }

  // Masks the scores of each row, moves its maximum, and leaves exp(score - maximum) in their
  // place.
  Stmt UpdateRows(bool partial) {
    Var row("row", Int(64)), now("now", Float(32)), moved("moved", Float(32));
    const int64_t vectors = kKeys / lanes_;
    Buffer x("x", {Expr(kKeys)}, Float(32), "local");
    ffi::Array<Stmt> seq = {tir::AllocBuffer(x)};
    for (int64_t v = 0; v < vectors; ++v) {
      Var lane("lane", Int(64));
      const Expr at = Expr(v * lanes_) + lane;
      BufferReader reader;
      reader.values[of_.scores->out->get()] = block_.Load({row * Expr(kKeys) + at});
      Map map;
      for (size_t i = 0; i < of_.masked->spatial.size(); ++i) {
        map.Set(of_.masked->spatial[i].var,
                i == of_.key ? key_start_ + at : RowPlace(i, first_ + row));
      }
      Expr value = tir::Substitute(reader.Mutate(FlatValue(of_.masked->value)), map);
      if (partial) {
        Expr predicate = ir::Less(lane, here_ - Expr(v * lanes_));
        value =
            ir::Select(predicate, PredicateLoads(value, lane, predicate), ir::MinValue(Float(32)));
      }
      seq.push_back(For(lane, 0, lanes_, ForKind::kVectorized, BufferStore(x, value, {at})));
    }
    auto part = [&](int64_t v) {
      return Expr(x.Load({ir::RampExpr(Expr(v * lanes_), 1, lanes_)}));
    };
    Expr most = part(0);
    for (int64_t v = 1; v < vectors; ++v) most = ir::Max(most, part(v));
    seq.push_back(tir::Bind(now, ir::Max(greatest_.Load({row}),
                                         ir::CallIntrin(Float(32), Intrin::kReduceMax, {most}))));
    seq.push_back(tir::Bind(
        moved, ir::CallIntrin(Intrin::kExpOfNegative, {greatest_.Load({row}) - Expr(now)})));
    seq.push_back(BufferStore(greatest_, now, {row}));
    seq.push_back(BufferStore(factor_, moved, {row}));
    Var scale_lane("lane", Int(64));
    const Expr own = row * Expr(lanes_);
    seq.push_back(
        For(scale_lane, 0, lanes_, ForKind::kVectorized,
            BufferStore(total_, total_.Load({own + scale_lane}) * moved, {own + scale_lane})));
    for (int64_t v = 0; v < vectors; ++v) {
      Var lane("lane", Int(64)), sum_lane("lane", Int(64));
      const Expr at = Expr(v * lanes_) + lane;
      seq.push_back(
          For(lane, 0, lanes_, ForKind::kVectorized,
              BufferStore(x, ir::CallIntrin(Intrin::kExpOfNegative, {x.Load({at}) - Expr(now)}),
                          {at})));
    }
    for (int64_t v = 0; v < vectors; ++v) {
      Var lane("lane", Int(64)), sum_lane("lane", Int(64));
      const Expr at = Expr(v * lanes_) + lane;
      seq.push_back(For(lane, 0, lanes_, ForKind::kVectorized,
                        BufferStore(block_, x.Load({at}), {row * Expr(kKeys) + at})));
      seq.push_back(For(
          sum_lane, 0, lanes_, ForKind::kVectorized,
          BufferStore(total_, total_.Load({own + sum_lane}) + x.Load({Expr(v * lanes_) + sum_lane}),
                      {own + sum_lane})));
    }
    return For(row, 0, count_, ForKind::kSerial, SeqStmt::Flatten(seq));
  }

  int64_t vectors_ = 1;
  Buffer packed_ = sums_, queries_ = sums_, block_ = sums_, greatest_ = sums_, total_ = sums_;
};

}  // namespace

Stmt AttentionByRows(const AttentionParts& parts, const Axis& chunk, bool only_few,
                     const Machine& traits, arith::Analyzer* analyzer) {
  ByRows task(parts, traits, analyzer);
  task.Fits();
  return task.Run(chunk, only_few);
}

}  // namespace relaxvm::schedule::cpu
