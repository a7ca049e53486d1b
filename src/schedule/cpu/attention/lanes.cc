// SPDX-License-Identifier: Apache-2.0
// AttentionByLanes: scores lie key by key, the queries of a chunk along the lanes.
//
// The queries are turned once for a chunk, and what a mask has for each query and each key once for
// a block; keys are read as they lie, element by element.  Maxima and sums of a query are those of
// its lane, so that nothing goes across a vector.
#include <algorithm>

#include "schedule/cpu/attention/task.h"
#include "schedule/cpu/loads.h"

namespace relaxvm::schedule::cpu {
namespace {

using ir::Intrin;
using tir::BufferLoad;
using tir::BufferStore;
using tir::For;
using tir::ForKind;
using tir::SeqStmt;

constexpr int64_t kKeys = 96;  // of a block; a multiple of lanes and of both heights of tiles
constexpr int64_t kPitch = kAttentionChunk;  // from one key to the next

// The largest one; any of them where one is a NaN, which makes all of a query's results NaNs.
Expr Largest(std::vector<Expr> of) {
  while (of.size() > 1) {
    std::vector<Expr> half;
    for (size_t i = 0; i + 1 < of.size(); i += 2)
      half.push_back(ir::Select(ir::Less(of[i], of[i + 1]), of[i + 1], of[i]));
    if (of.size() % 2 == 1) half.push_back(of.back());
    of = half;
  }
  return of[0];
}

class ByLanes : public AttentionTask {
 public:
  using AttentionTask::AttentionTask;

  // Finds what the mask reads for each query and each key; false for what cannot be turned.
  bool Suits() {
    if (kPitch % lanes_ != 0) return false;
    const Var &query = of_.masked->spatial[of_.query].var, &key = of_.masked->spatial[of_.key].var;
    LoadCollector loads;
    loads.Visit(of_.masked->value);
    auto depends = [](const BufferLoad& load, const Var& var) {
      return std::any_of(load->indices.begin(), load->indices.end(),
                         [&](const Expr& index) { return UsesVar(index, var); });
    };
    for (const auto* list : {&loads.always, &loads.sometimes}) {
      for (const BufferLoad& load : *list) {
        if (load->buffer.get() == of_.scores->out->get()) continue;
        const bool of_head = of_.shared > 1 && depends(load, of_.masked->spatial[of_.head].var);
        if (!of_head && !depends(load, query)) continue;
        if (of_.shared > 1 || list == &loads.sometimes || !depends(load, key)) return false;
        masks_.push_back({load, Buffer("mask", {}, load.dtype())});
      }
    }
    return true;
  }

  Stmt Run(const Axis& chunk) {
    tile_ = traits_.num_vectors >= 32 ? 2 * kTileRows : kTileRows;
    ffi::Array<Stmt> seq;
    turned_ = Scratch("queries", depth_ * kPitch, "global", &seq);
    block_ = Scratch("scores", kKeys * kPitch, "global", &seq);
    sums_ = Scratch("sums", kPitch * padded_width_, "global", &seq);
    if (IsNarrow(of_.k)) widened_ = Scratch("keys", kKeys * depth_, "global", &seq);
    for (Mask& mask : masks_) {
      mask.turned = Buffer("mask", {Expr(kKeys * kPitch)}, mask.load.dtype());
      seq.push_back(tir::AllocBuffer(mask.turned));
    }
    greatest_ = Scratch("greatest", kPitch, "local", &seq);
    next_ = Scratch("next", kPitch, "local", &seq);
    total_ = Scratch("total", kPitch, "local", &seq);
    factor_ = Scratch("factor", kPitch, "local", &seq);
    for (const Stmt& s : Cut(chunk, lanes_)) seq.push_back(s);
    Var vectors("vectors", Int(64));
    num_vectors_ = vectors;
    seq.push_back(tir::Bind(vectors, ir::CeilDiv(count_, Expr(lanes_))));
    seq.push_back(Start());
    seq.push_back(TurnQueries());
    Var number("block", Int(64)), first_key("first_key", Int(64)), here("here", Int(64));
    key_start_ = first_key;
    here_ = here;
    ffi::Array<Stmt> step = {tir::Bind(first_key, number * Expr(kKeys)),
                             tir::Bind(here, ir::Min(kKeys, keys_ - first_key))};
    if (IsNarrow(of_.k)) step.push_back(WidenKeys(widened_));
    for (const Mask& mask : masks_) step.push_back(TurnMask(mask));
    step.push_back(Products());
    step.push_back(Update());
    step.push_back(Weigh(
        [&](const Expr& row, const Expr& key) { return block_.Load({key * Expr(kPitch) + row}); },
        /*one_by_one=*/false));
    seq.push_back(For(number, 0, NumBlocks(kKeys), ForKind::kSerial, SeqStmt::Flatten(step)));
    seq.push_back(Finish([&](const Expr& row) { return total_.Load({row}); }));
    return SeqStmt::Flatten(seq);
  }

 private:
  struct Mask {
    BufferLoad load;
    Buffer turned;  // of a block and a chunk
  };

  // One vector of lanes.
  Stmt Vector(const std::function<Stmt(const Var& lane)>& body) const {
    Var lane("lane", Int(64));
    return For(lane, 0, lanes_, ForKind::kVectorized, body(lane));
  }

  Stmt Start() const {
    Var row("row", Int(64)), v("v", Int(64)), of_row("v", Int(64));
    const Stmt zero = Vector([&](const Var& lane) {
      return BufferStore(sums_, Zero(), {row * Expr(padded_width_) + of_row * Expr(lanes_) + lane});
    });
    const Expr at = v * Expr(lanes_);
    const Stmt lowest = Vector([&](const Var& lane) {
      return BufferStore(greatest_, ir::ConstFloat(Float(32), kLowestScore), {at + lane});
    });
    const Stmt none =
        Vector([&](const Var& lane) { return BufferStore(total_, Zero(), {at + lane}); });
    return SeqStmt({For(row, 0, count_, ForKind::kSerial,
                        For(of_row, 0, padded_width_ / lanes_, ForKind::kSerial, zero)),
                    For(v, 0, num_vectors_, ForKind::kSerial, SeqStmt({lowest, none}))});
  }

  // turned[d, r] = q[r, d]; lanes behind the last row are 0.
  Stmt TurnQueries() const {
    Axis d{Var("d", Int(64)), Expr(depth_)}, r{Var("r", Int(64)), count_};
    ffi::Array<Stmt> seq;
    Var row_of_turned("d", Int(64));
    const Expr last = (num_vectors_ - 1) * Expr(lanes_);
    seq.push_back(For(row_of_turned, 0, depth_, ForKind::kSerial, Vector([&](const Var& lane) {
                        return BufferStore(turned_, Zero(),
                                           {row_of_turned * Expr(kPitch) + last + lane});
                      })));
    Stage turn;
    turn.name = "turn_queries";
    turn.spatial = {d, r};
    turn.indices = {d.var, r.var};
    turn.out = Buffer("queries", {Expr(depth_), Expr(kPitch)}, Float(32));
    if (IsNarrow(of_.q) || of_.shared > 1) {
      const Buffer rows = Scratch("rows", kPitch * depth_, "global", &seq);
      seq.push_back(WidenQueries(rows));
      turn.value = rows.Load({r.var * Expr(depth_) + d.var});
    } else {
      Map map = AtRow(first_ + r.var);
      map.Set(of_.scores->reduce[0].var, d.var);
      turn.value = tir::Substitute(of_.q, map);
    }
    seq.push_back(Turn(turn, turned_));
    return SeqStmt::Flatten(seq);
  }

  // mask[j, r] = what the mask of query r reads for key j
  Stmt TurnMask(const Mask& mask) const {
    Axis j{Var("j", Int(64)), here_}, r{Var("r", Int(64)), count_};
    Map map;
    for (size_t i = 0; i < of_.masked->spatial.size(); ++i) {
      map.Set(of_.masked->spatial[i].var,
              i == of_.key ? key_start_ + j.var : RowPlace(i, first_ + r.var));
    }
    Stage turn;
    turn.name = "turn_mask";
    turn.spatial = {j, r};
    turn.indices = {j.var, r.var};
    turn.value = tir::Substitute(Expr(mask.load), map);
    turn.out = Buffer("mask", {Expr(kKeys), Expr(kPitch)}, mask.load.dtype());
    return Turn(turn, mask.turned);
  }

  // The key that key `j` of the block is; keys behind the last are the last.
  Expr Key(const Expr& j) const { return ir::Min(j, here_ - Expr(1)); }

  // scores[j, r], masked, and the greatest of them so far.
  Stmt Products() {
    Var tile("tile", Int(64)), pair("pair", Int(64)), v("v", Int(64));
    const Stmt begin = For(v, 0, num_vectors_, ForKind::kSerial, Vector([&](const Var& lane) {
                             const Expr at = v * Expr(lanes_) + lane;
                             return BufferStore(next_, greatest_.Load({at}), {at});
                           }));
    const Expr pairs = ir::FloorDiv(num_vectors_, 2), first = tile * Expr(tile_);
    const Stmt all = SeqStmt::Flatten(
        {For(pair, 0, pairs, ForKind::kSerial, Tile(first, pair * Expr(2 * lanes_), 2)),
         tir::IfThenElse(ir::Equal(ir::FloorMod(num_vectors_, 2), 1),
                         Tile(first, pairs * Expr(2 * lanes_), 1))});
    return SeqStmt({begin, For(tile, 0, ir::CeilDiv(here_, Expr(tile_)), ForKind::kSerial, all)});
  }

  // Keys from `first` on, rows from `column` on.
  Stmt Tile(const Expr& first, const Expr& column, int64_t vectors) {
    Var d("d", Int(64));
    const int64_t width = vectors * lanes_;
    TileParts parts;
    parts.left = [&](const Expr& j) {
      return IsNarrow(of_.k) ? Expr(widened_.Load({Key(j) * Expr(depth_) + d})) : KeyAt(Key(j), d);
    };
    parts.right = [&](int64_t v, const Var& lane) {
      return turned_.Load({d * Expr(kPitch) + column + Expr(v * lanes_) + lane});
    };
    parts.finish = [&](const Expr& j, int64_t v, const Var& lane, const Expr& sum) {
      LoadReplacer turned;
      const Expr place = Key(j) * Expr(kPitch) + column + Expr(v * lanes_) + lane;
      for (const Mask& mask : masks_)
        turned.values.emplace_back(mask.load.get(), mask.turned.Load({place}));
      BufferReader reader;
      reader.values[of_.scores->out->get()] = sum;
      Map map;
      for (size_t i = 0; i < of_.masked->spatial.size(); ++i) {
        map.Set(of_.masked->spatial[i].var,
                i == of_.key ? key_start_ + Key(j)
                             : RowPlace(i, first_ + column + Expr(v * lanes_) + lane));
      }
      return tir::Substitute(reader.Mutate(FlatValue(turned.Mutate(of_.masked->value))), map);
    };
    parts.store = [&](const Expr& j, int64_t v, const Var& lane, const Expr& sum) {
      return BufferStore(block_, sum, {j * Expr(kPitch) + column + Expr(v * lanes_) + lane});
    };
    parts.after = [&](const Buffer& acc) {
      ffi::Array<Stmt> seq;
      for (int64_t v = 0; v < vectors; ++v) {
        seq.push_back(Vector([&](const Var& lane) {
          auto sum = [&](int64_t i) { return acc.Load({Expr(i * width + v * lanes_) + lane}); };
          const Expr at = column + Expr(v * lanes_) + lane;
          std::vector<Expr> scores = {next_.Load({at})};
          for (int64_t i = 0; i < tile_; ++i) scores.push_back(sum(i));
          return BufferStore(next_, Largest(scores), {at});
        }));
      }
      return SeqStmt::Flatten(seq);
    };
    return MultiplyTile({first, tile_, vectors, width, d, Expr(depth_)}, parts);
  }

  // Leaves exp(score - maximum) in place of the scores.
  Stmt Update() const {
    Var v("v", Int(64)), j("j", Int(64));
    const Expr at = v * Expr(lanes_);
    ffi::Array<Stmt> seq;
    const Buffer now = Scratch("now", lanes_, "local", &seq);
    const Buffer sum = Scratch("sum", lanes_, "local", &seq);
    seq.push_back(
        Vector([&](const Var& lane) { return BufferStore(now, next_.Load({at + lane}), {lane}); }));
    seq.push_back(Vector([&](const Var& lane) {
      return BufferStore(
          factor_,
          ir::CallIntrin(Intrin::kExpOfNegative, {greatest_.Load({at + lane}) - now.Load({lane})}),
          {at + lane});
    }));
    seq.push_back(Vector(
        [&](const Var& lane) { return BufferStore(greatest_, now.Load({lane}), {at + lane}); }));
    seq.push_back(Vector([&](const Var& lane) {
      return BufferStore(sum, total_.Load({at + lane}) * factor_.Load({at + lane}), {lane});
    }));
    auto place = [&](const Var& lane) { return j * Expr(kPitch) + at + lane; };
    const Stmt one = SeqStmt(
        {Vector([&](const Var& lane) {
           return BufferStore(block_,
                              ir::CallIntrin(Intrin::kExpOfNegative,
                                             {block_.Load({place(lane)}) - now.Load({lane})}),
                              {place(lane)});
         }),
         Vector([&](const Var& lane) {
           return BufferStore(sum, sum.Load({lane}) + block_.Load({place(lane)}), {lane});
         })});
    seq.push_back(For(j, 0, here_, ForKind::kSerial, one));
    seq.push_back(Vector(
        [&](const Var& lane) { return BufferStore(total_, sum.Load({lane}), {at + lane}); }));
    return For(v, 0, num_vectors_, ForKind::kSerial, SeqStmt::Flatten(seq));
  }

  std::vector<Mask> masks_;
  int64_t tile_ = 1;  // keys of a register tile
  Expr num_vectors_;  // of the rows of the task
  Buffer turned_ = sums_, block_ = sums_, widened_ = sums_, greatest_ = sums_, next_ = sums_,
         total_ = sums_;
};

}  // namespace

std::optional<Stmt> AttentionByLanes(const AttentionParts& parts, const Axis& chunk,
                                     const Machine& traits, arith::Analyzer* analyzer) {
  ByLanes task(parts, traits, analyzer);
  if (!task.Fits() || !task.Suits()) return std::nullopt;
  return task.Run(chunk);
}

}  // namespace relaxvm::schedule::cpu
