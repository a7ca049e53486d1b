// SPDX-License-Identifier: Apache-2.0
// Sizes, masks and products of a task of attention.
#include "schedule/cpu/attention/task.h"

#include <algorithm>

namespace relaxvm::schedule::cpu {

using ir::BinaryObj;
using ir::BinaryOp;
using ir::Intrin;
using tir::BufferStore;
using tir::For;
using tir::ForKind;
using tir::SeqStmt;

namespace {

constexpr int64_t kMaxDepth = 512;

}  // namespace

bool AttentionTask::Fits() {
  const auto depth = ir::AsInt(of_.scores->reduce[0].extent);
  const auto width = ir::AsInt(of_.weighted->spatial[of_.WidePlace()].extent);
  if (!depth.has_value() || !width.has_value()) return false;
  depth_ = depth.value(), width_ = width.value();
  keys_ = of_.scores->spatial[of_.key].extent;
  lanes_ = traits_.Lanes(4);
  if (lanes_ < 4) return false;
  padded_width_ = (width_ + lanes_ - 1) / lanes_ * lanes_;
  return of_.scores->value.dtype() == Float(32) && of_.weighted->value.dtype() == Float(32) &&
         depth_ >= 1 && width_ >= 1 && depth_ <= kMaxDepth && width_ <= kMaxDepth;
}

std::vector<Axis> AttentionTask::Tasks() const {
  std::vector<Axis> tasks;
  for (size_t i = 0; i < of_.scores->spatial.size(); ++i) {
    if (i == of_.query || i == of_.key) continue;
    Axis axis = of_.scores->spatial[i];
    if (i == of_.head) axis.extent = analyzer_->Simplify(ir::FloorDiv(axis.extent, of_.shared));
    tasks.push_back(axis);
  }
  tasks.push_back(
      {Var("chunk", Int(64)), analyzer_->Simplify(ir::CeilDiv(NumRows(), kAttentionChunk))});
  return tasks;
}

ffi::Array<Stmt> AttentionTask::Cut(const Axis& chunk, int64_t step) {
  const Expr rows = NumRows();
  const Expr even = ir::CeilDiv(rows, ir::Max(chunk.extent, 1));
  chunk_rows_ = analyzer_->Simplify(ir::CeilDiv(even, step) * Expr(step));
  first_ = chunk.var * chunk_rows_;
  count_ = Var("rows", Int(64));
  return {tir::Bind(count_, ir::Max(ir::Min(chunk_rows_, rows - first_), 0))};
}

AttentionTask::Map AttentionTask::AtRow(const Expr& row) const {
  Map map;
  for (size_t i = 0; i < of_.scores->spatial.size(); ++i) {
    if (i != of_.key) map.Set(of_.scores->spatial[i].var, RowPlace(i, row));
  }
  return map;
}

Expr AttentionTask::RowPlace(size_t axis, const Expr& row) const {
  if (axis == of_.query) return of_.shared == 1 ? row : Expr(ir::FloorDiv(row, of_.shared));
  const Var& own = of_.scores->spatial[axis].var;
  return axis == of_.head ? own * Expr(of_.shared) + ir::FloorMod(row, of_.shared) : Expr(own);
}

Expr AttentionTask::GroupPlace(size_t axis) const {
  const Var& own = of_.scores->spatial[axis].var;
  return axis == of_.head ? own * Expr(of_.shared) : Expr(own);
}

// The last key that a query sees, when the mask is  select(key <= bound(query), score, -inf).
// Undefined for other masks, and where the bound does not grow with the query.
Expr AttentionTask::LastSeen() const {
  const auto* choice = of_.masked->value.as<ir::SelectObj>();
  if (choice == nullptr || !ir::StructuralEqual(choice->false_value, ir::MinValue(Float(32))))
    return Expr();
  const Var &key = of_.masked->spatial[of_.key].var, &query = of_.masked->spatial[of_.query].var;
  std::vector<Expr> terms{choice->condition};
  while (!terms.empty()) {
    Expr term = terms.back();
    terms.pop_back();
    const auto* compare = term.as<BinaryObj>();
    if (compare == nullptr) continue;
    if (compare->op == BinaryOp::kAnd) {
      terms.push_back(compare->a);
      terms.push_back(compare->b);
      continue;
    }
    const Expr slack = AtLeastZero(term);  // where the key is seen
    if (!slack.defined() || slack.dtype() != Int(64)) continue;
    Expr bound = analyzer_->Simplify(slack + key);
    Map next;
    next.Set(query, query + Expr(1));
    Expr growth = analyzer_->Simplify(tir::Substitute(bound, next) - bound);
    if (!UsesVar(bound, key) && ir::IsIntValue(growth, 1)) return bound;
  }
  return Expr();
}

Expr AttentionTask::NumBlocks(int64_t keys_of_block) const {
  Expr all = analyzer_->Simplify(ir::CeilDiv(keys_, keys_of_block));
  Expr bound = LastSeen();
  if (!bound.defined()) return all;
  Map last;
  last.Set(of_.masked->spatial[of_.query].var, RowPlace(of_.query, first_ + count_ - Expr(1)));
  for (size_t i = 0; i < of_.masked->spatial.size(); ++i) {
    if (i != of_.query && UsesVar(bound, of_.masked->spatial[i].var)) return all;
  }
  Expr seen = ir::FloorDiv(tir::Substitute(bound, last), keys_of_block) + Expr(1);
  return ir::Max(ir::Min(all, seen), Expr(0));
}

Stmt AttentionTask::TileRows(int64_t rows, bool one_by_one,
                             const std::function<Stmt(const Expr&, int64_t)>& body) const {
  Var tile("tile", Int(64)), one("one", Int(64));
  Stmt single = For(one, 0, count_, ForKind::kSerial, body(one, 1));
  if (one_by_one) return single;
  Stmt tiles =
      For(tile, 0, ir::CeilDiv(count_, rows), ForKind::kSerial, body(tile * Expr(rows), rows));
  return tir::IfThenElse(ir::Greater(count_, Expr(rows / 2)), tiles, single);
}

Stmt AttentionTask::MultiplyTile(const TileShape& t, const TileParts& parts) const {
  Buffer acc("acc", {Expr(t.rows * t.width)}, Float(32), "local");
  Buffer row_of_right("right", {Expr(t.width)}, Float(32), "local");
  Var base("base", Int(64));
  ffi::Array<Stmt> seq = {tir::Bind(base, t.first), tir::AllocBuffer(acc)};
  auto each = [&](const std::function<Stmt(int64_t, int64_t, const Var&)>& body,
                  ffi::Array<Stmt>* out) {
    for (int64_t i = 0; i < t.rows; ++i) {
      for (int64_t v = 0; v < t.vectors; ++v) {
        Var lane("lane", Int(64));
        out->push_back(For(lane, 0, lanes_, ForKind::kVectorized, body(i, v, lane)));
      }
    }
  };
  auto place = [&](int64_t i, int64_t v, const Var& lane) {
    return Expr(i * t.width + v * lanes_) + lane;
  };
  each(
      [&](int64_t i, int64_t v, const Var& lane) -> Stmt {
        Expr from = parts.start ? parts.start(base + Expr(i), v, lane) : Zero();
        return BufferStore(acc, from, {place(i, v, lane)});
      },
      &seq);
  ffi::Array<Stmt> step = {tir::AllocBuffer(row_of_right)};
  for (int64_t v = 0; v < t.vectors; ++v) {
    Var lane("lane", Int(64));
    step.push_back(For(lane, 0, lanes_, ForKind::kVectorized,
                       BufferStore(row_of_right, parts.right(v, lane), {Expr(v * lanes_) + lane})));
  }
  for (int64_t i = 0; i < t.rows; ++i) {
    Var scalar("left", Float(32));
    step.push_back(tir::Bind(scalar, parts.left(base + Expr(i))));
    for (int64_t v = 0; v < t.vectors; ++v) {
      Var lane("lane", Int(64));
      Expr sum = ir::CallIntrin(Intrin::kFma, {scalar, row_of_right.Load({Expr(v * lanes_) + lane}),
                                               acc.Load({place(i, v, lane)})});
      step.push_back(
          For(lane, 0, lanes_, ForKind::kVectorized, BufferStore(acc, sum, {place(i, v, lane)})));
    }
  }
  seq.push_back(For(t.k, 0, t.depth, ForKind::kSerial, SeqStmt::Flatten(step)));
  if (parts.finish) {
    each(
        [&](int64_t i, int64_t v, const Var& lane) -> Stmt {
          const Expr sum = acc.Load({place(i, v, lane)});
          return BufferStore(acc, parts.finish(base + Expr(i), v, lane, sum), {place(i, v, lane)});
        },
        &seq);
  }
  each(
      [&](int64_t i, int64_t v, const Var& lane) -> Stmt {
        return parts.store(base + Expr(i), v, lane, acc.Load({place(i, v, lane)}));
      },
      &seq);
  if (parts.after) seq.push_back(parts.after(acc));
  return SeqStmt::Flatten(seq);
}

Expr AttentionTask::FlatValue(const Expr& value) const {
  Stage s;
  s.value = value;
  s.out = sums_;
  s.indices = {Expr(0)};
  return FlattenStage(s, analyzer_).value;
}

Stmt AttentionTask::Weigh(const std::function<Expr(const Expr& row, const Expr& key)>& score,
                          bool one_by_one) const {
  ffi::Array<Stmt> seq;
  const int64_t total = padded_width_ / lanes_;
  const int64_t most = traits_.num_vectors >= 32 ? 4 : 2;
  for (int64_t done = 0; done < total; done += most) {
    const int64_t vectors = std::min(most, total - done);
    seq.push_back(TileRows(
        vectors >= 2 ? kTileRows : 2 * kTileRows, one_by_one, [&](const Expr& first, int64_t rows) {
          Var k("k", Int(64));
          auto left = [&](const Expr& row) { return score(row, k); };
          auto right = [&](int64_t v, const Var& lane) {
            const int64_t offset = (done + v) * lanes_;
            Map map;
            for (size_t i = 0; i < of_.scores->spatial.size(); ++i) {
              if (i != of_.key && i != of_.query)
                map.Set(of_.AxisOf(*of_.weighted, i), GroupPlace(i));
            }
            map.Set(of_.weighted->reduce[0].var, key_start_ + k);
            map.Set(of_.wide_axis, Expr(offset) + lane);
            Expr value = ir::Cast(Float(32), tir::Substitute(FlatValue(of_.v), map));
            if (offset + lanes_ > width_)
              value = PredicateLoads(value, lane, ir::Less(lane, Expr(width_ - offset)));
            return value;
          };
          auto place = [&](const Expr& row, int64_t v, const Var& lane) {
            return row * Expr(padded_width_) + Expr((done + v) * lanes_) + lane;
          };
          return MultiplyTile(
              {first, rows, vectors, vectors * lanes_, k, here_},
              {.left = left,
               .right = right,
               .start =
                   [&](const Expr& row, int64_t v, const Var& lane) {
                     return sums_.Load({place(row, v, lane)}) * factor_.Load({row});
                   },
               .store =
                   [&](const Expr& row, int64_t v, const Var& lane, const Expr& sum) {
                     return BufferStore(sums_, sum, {place(row, v, lane)});
                   }});
        }));
  }
  return SeqStmt::Flatten(seq);
}

Stmt AttentionTask::Finish(const std::function<Expr(const Expr& row)>& total) const {
  Var row("row", Int(64)), all("all", Float(32));
  ffi::Array<Stmt> seq = {tir::Bind(all, total(row))};
  for (int64_t offset = 0; offset < width_; offset += lanes_) {
    Var lane("lane", Int(64));
    BufferReader reader;
    reader.values[of_.weighted->out->get()] =
        sums_.Load({row * Expr(padded_width_) + Expr(offset) + lane});
    reader.values[of_.sum->out->get()] = all;
    Map map;
    for (size_t i = 0; i < of_.scores->spatial.size(); ++i) {
      if (i != of_.key) map.Set(of_.ResultAxis(i), RowPlace(i, first_ + row));
    }
    map.Set(of_.result->spatial[of_.WidePlace()].var, Expr(offset) + lane);
    Stage flat = *of_.result;
    flat.value = reader.Mutate(of_.result->value);
    flat = FlattenStage(flat, analyzer_);
    Expr value = tir::Substitute(flat.value, map), predicate;
    if (offset + lanes_ > width_) {
      predicate = ir::Less(lane, Expr(width_ - offset));
      value = PredicateLoads(value, lane, predicate);
    }
    seq.push_back(For(
        lane, 0, lanes_, ForKind::kVectorized,
        BufferStore(*of_.result->out, value, {tir::Substitute(flat.indices[0], map)}, predicate)));
  }
  return For(row, 0, count_, ForKind::kSerial, SeqStmt::Flatten(seq));
}

Expr AttentionTask::KeyAt(const Expr& j, const Expr& d) const {
  Map map;
  map.Set(of_.scores->reduce[0].var, d);
  map.Set(of_.scores->spatial[of_.key].var, key_start_ + j);
  if (of_.shared > 1) map.Set(of_.scores->spatial[of_.head].var, GroupPlace(of_.head));
  return ir::Cast(Float(32), tir::Substitute(of_.k, map));
}

Stmt AttentionTask::WidenQueries(const Buffer& to) const {
  return WidenRows("widen_queries", count_, to, [&](const Var& row, const Var& d) {
    Map map = AtRow(first_ + row);
    map.Set(of_.scores->reduce[0].var, d);
    return ir::Cast(Float(32), tir::Substitute(of_.q, map));
  });
}

Stmt AttentionTask::WidenKeys(const Buffer& to) const {
  return WidenRows("widen_keys", here_, to,
                   [&](const Var& row, const Var& d) { return KeyAt(row, d); });
}

Stmt AttentionTask::WidenRows(
    const char* name, const Expr& rows, const Buffer& to,
    const std::function<Expr(const Var& row, const Var& d)>& value) const {
  Var row("row", Int(64));
  Axis d{Var("d", Int(64)), Expr(depth_)};
  Stage widen;
  widen.name = name;
  widen.spatial = {d};
  widen.value = value(row, d.var);
  widen.indices = {row * Expr(depth_) + d.var};
  widen.out = to;
  return For(row, 0, rows, ForKind::kSerial,
             EmitNest(FlattenStage(widen, analyzer_), traits_, analyzer_));
}

Stmt AttentionTask::Turn(const Stage& turn, const Buffer& to) const {
  Stage flat = FlattenStage(turn, analyzer_);
  flat.out = to;
  if (auto turned = EmitTranspose(flat, /*past_caches=*/0, traits_, analyzer_))
    return Loops(turned->rows, turned->body);
  return EmitNest(flat, traits_, analyzer_);
}

}  // namespace relaxvm::schedule::cpu
