// SPDX-License-Identifier: Apache-2.0
// EmitAttention: softmax(q k^T) v without the matrix of scores.
//
// A task is a chunk of rows: queries of one head, or of all heads that share keys and values, those
// of one query side by side.  Keys pass by in blocks; a block's keys are packed (turned so that
// they run along the lanes) and serve all rows of the chunk; a few rows read them as they lie:
//   s[r, :]  = q[r, :] k^T                   register tiles, then masked
//   m'       = max(m[r], max(s[r, :])),   p = exp(s[r, :] - m'),   c = exp(m[r] - m')
//   l[r]     = c l[r] + sum(p),   o[r, :] = c o[r, :] + p v        register tiles
// and at the end o[r, :] / l[r] is finished and stored.  Sums are kept in float32.
// Blocks of keys that the mask hides from every query of the chunk are left out.
#include <algorithm>
#include <unordered_map>

#include "schedule/cpu/attention.h"

namespace relaxvm::schedule::cpu {
namespace {

using ir::BinaryObj;
using ir::BinaryOp;
using ir::Intrin;
using tir::BufferLoad;
using tir::BufferLoadObj;
using tir::BufferStore;
using tir::For;
using tir::ForKind;
using tir::SeqStmt;

constexpr int64_t kRows = 6;  // of a register tile
// Rows of a task, at most, and what they are a multiple of: the rows of both kinds of tile.  Each
// task turns all keys.
constexpr int64_t kChunk = 96, kStep = 2 * kRows;
// Rows that turning the keys would not pay for: more of them where the first cache keeps a block.
constexpr int64_t kFewRows = 2, kFewRowsNear = 4;
constexpr int64_t kKeys = 64;  // of a block
constexpr int64_t kMaxDepth = 512;
constexpr double kLowest = -3.4028234663852886e38;  // float32: what starts a maximum

using Map = ffi::Map<Var, Expr>;

// Replaces loads of buffers by values.
class BufferReader : public tir::StmtMutator {
 public:
  std::unordered_map<const ffi::Object*, Expr> values;
  Expr MutateBufferLoad(const BufferLoad& load) override {
    auto it = values.find(load->buffer.get());
    return it == values.end() ? tir::StmtMutator::MutateBufferLoad(load) : it->second;
  }
};

class AttentionEmitter {
 public:
  AttentionEmitter(const AttentionParts& parts, const Machine& traits, arith::Analyzer* analyzer)
      : of_(parts), traits_(traits), analyzer_(analyzer) {}

  // Is there a form for these sizes?
  bool Fits() {
    const auto depth = ir::AsInt(of_.scores->reduce[0].extent);
    const auto width = ir::AsInt(of_.weighted->spatial[of_.WidePlace()].extent);
    if (!depth.has_value() || !width.has_value()) return false;
    depth_ = depth.value(), width_ = width.value();
    keys_ = of_.scores->spatial[of_.key].extent;
    lanes_ = traits_.Lanes(4);
    if (lanes_ < 4 || kKeys % lanes_ != 0) return false;
    vectors_ = std::min<int64_t>(traits_.num_vectors >= 32 ? 4 : 2, kKeys / lanes_);
    padded_width_ = (width_ + lanes_ - 1) / lanes_ * lanes_;
    return of_.scores->value.dtype() == Float(32) && of_.weighted->value.dtype() == Float(32) &&
           depth_ >= 1 && width_ >= 1 && depth_ <= kMaxDepth && width_ <= kMaxDepth;
  }

  RowForm Run() {
    Expr rows = of_.scores->spatial[of_.query].extent * Expr(of_.shared);
    Var chunk("chunk", Int(64));
    // Chunks are alike, as far as tiles allow.
    const Expr chunks = analyzer_->Simplify(ir::CeilDiv(rows, kChunk));
    const Expr even = ir::CeilDiv(rows, ir::Max(chunks, 1));
    chunk_rows_ = analyzer_->Simplify(ir::CeilDiv(even, kStep) * Expr(kStep));
    first_ = chunk * chunk_rows_;
    count_ = Var("rows", Int(64));
    RowForm form;
    for (size_t i = 0; i < of_.scores->spatial.size(); ++i) {
      if (i == of_.query || i == of_.key) continue;
      Axis axis = of_.scores->spatial[i];
      if (i == of_.head) axis.extent = analyzer_->Simplify(ir::FloorDiv(axis.extent, of_.shared));
      form.rows.push_back(axis);
    }
    form.rows.push_back({chunk, chunks});
    form.body = Task(rows);
    form.work = keys_ * Expr(kChunk * (depth_ + width_) / lanes_ * 4);
    return form;
  }

 private:
  // The axes of the scores, but for the keys, at row `row` of all rows of the task's group.
  Map AtRow(const Expr& row) const {
    Map map;
    for (size_t i = 0; i < of_.scores->spatial.size(); ++i) {
      if (i != of_.key) map.Set(of_.scores->spatial[i].var, RowPlace(i, row));
    }
    return map;
  }
  Expr RowPlace(size_t axis, const Expr& row) const {
    if (axis == of_.query) return of_.shared == 1 ? row : Expr(ir::FloorDiv(row, of_.shared));
    const Var& own = of_.scores->spatial[axis].var;
    return axis == of_.head ? own * Expr(of_.shared) + ir::FloorMod(row, of_.shared) : Expr(own);
  }
  // The first head of the task's group stands for all of them.
  Expr GroupPlace(size_t axis) const {
    const Var& own = of_.scores->spatial[axis].var;
    return axis == of_.head ? own * Expr(of_.shared) : Expr(own);
  }

  Buffer Scratch(const char* name, int64_t elems, const char* scope) {
    Buffer buffer(name, {Expr(elems)}, Float(32), scope);
    allocs_.push_back(tir::AllocBuffer(buffer));
    return buffer;
  }

  Stmt Task(const Expr& rows) {
    packed_ = Scratch("keys", depth_ * kKeys, "global");
    block_ = Scratch("scores", kChunk * kKeys, "global");
    sums_ = Scratch("sums", kChunk * padded_width_, "global");
    greatest_ = Scratch("greatest", kChunk, "local");
    total_ = Scratch("total", kChunk * lanes_, "local");
    factor_ = Scratch("factor", kChunk, "local");
    ffi::Array<Stmt> seq = allocs_;
    seq.push_back(tir::Bind(count_, ir::Max(ir::Min(chunk_rows_, rows - first_), 0)));
    seq.push_back(Start());
    Var number("block", Int(64)), first_key("first_key", Int(64));
    key_start_ = first_key;
    Var here("here", Int(64));
    here_ = here;
    const bool near = depth_ * kKeys * 4 * 2 <= traits_.l1_bytes;
    const int64_t few = near ? kFewRowsNear : kFewRows;
    if (IsNarrow()) {
      queries_ = Buffer("queries", {Expr(kChunk * depth_)}, Float(32), "global");
      seq.push_back(tir::AllocBuffer(queries_));
      seq.push_back(tir::IfThenElse(ir::Greater(count_, Expr(few)), WidenQueries()));
    }
    ffi::Array<Stmt> step = {tir::Bind(first_key, number * Expr(kKeys)),
                             tir::Bind(here, ir::Min(kKeys, keys_ - first_key)),
                             tir::IfThenElse(ir::LessEqual(count_, Expr(few)), Dots(),
                                             SeqStmt::Flatten({PackKeys(), Products()}))};
    Stmt whole = UpdateRows(false), partial = UpdateRows(true);
    step.push_back(analyzer_->ProveEqual(ir::FloorMod(keys_, kKeys), 0)
                       ? whole
                       : Stmt(tir::IfThenElse(ir::Equal(here, Expr(kKeys)), whole, partial)));
    step.push_back(Weigh());
    seq.push_back(For(number, 0, NumBlocks(), ForKind::kSerial, SeqStmt::Flatten(step)));
    seq.push_back(Finish());
    return SeqStmt::Flatten(seq);
  }

  // The last key that a query sees, when the mask is  select(key <= bound(query), score, -inf).
  // Undefined for other masks, and where the bound does not grow with the query.
  Expr LastSeen() const {
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

  Expr NumBlocks() const {
    Expr all = analyzer_->Simplify(ir::CeilDiv(keys_, kKeys));
    Expr bound = LastSeen();
    if (!bound.defined()) return all;
    Map last;
    last.Set(of_.masked->spatial[of_.query].var, RowPlace(of_.query, first_ + count_ - Expr(1)));
    for (size_t i = 0; i < of_.masked->spatial.size(); ++i) {
      if (i != of_.query && UsesVar(bound, of_.masked->spatial[i].var)) return all;
    }
    Expr seen = ir::FloorDiv(tir::Substitute(bound, last), kKeys) + Expr(1);
    return ir::Max(ir::Min(all, seen), Expr(0));
  }

  Stmt Start() {
    Var row("row", Int(64)), v("v", Int(64)), lane("lane", Int(64)), l2("lane", Int(64));
    Stmt zero =
        For(v, 0, padded_width_ / lanes_, ForKind::kSerial,
            For(lane, 0, lanes_, ForKind::kVectorized,
                BufferStore(sums_, Zero(), {row * Expr(padded_width_) + v * Expr(lanes_) + lane})));
    return For(row, 0, chunk_rows_, ForKind::kSerial,
               SeqStmt({zero, BufferStore(greatest_, ir::ConstFloat(Float(32), kLowest), {row}),
                        For(l2, 0, lanes_, ForKind::kVectorized,
                            BufferStore(total_, Zero(), {row * Expr(lanes_) + l2}))}));
  }

  static Expr Zero() { return ir::ConstFloat(Float(32), 0); }

  // keys[d, j] = k[first_key + j, d]; what is behind the last key stays as it is and is masked.
  Stmt PackKeys() {
    Stage pack;
    pack.name = "pack_keys";
    Axis d{Var("d", Int(64)), Expr(depth_)}, j{Var("j", Int(64)), here_};
    pack.spatial = {d, j};
    Map map;
    map.Set(of_.scores->reduce[0].var, d.var);
    map.Set(of_.scores->spatial[of_.key].var, key_start_ + j.var);
    if (of_.shared > 1) map.Set(of_.scores->spatial[of_.head].var, GroupPlace(of_.head));
    pack.value = ir::Cast(Float(32), tir::Substitute(of_.k, map));
    Buffer out("keys", {Expr(depth_), Expr(kKeys)}, Float(32));
    pack.out = out;
    pack.indices = {d.var, j.var};
    Stage flat = FlattenStage(pack, analyzer_);
    flat.out = packed_;
    if (auto turned = EmitTranspose(flat, /*past_caches=*/false, traits_, analyzer_))
      return Loops(turned->rows, turned->body);
    return EmitNest(flat, traits_, analyzer_);
  }

  // Does `body(first row, rows)` for tiles of `rows` rows that cover the chunk; what is computed
  // for rows behind the last one is never stored.  Few queries go one by one.
  Stmt TileRows(int64_t rows, const std::function<Stmt(const Expr&, int64_t)>& body) {
    Var tile("tile", Int(64)), one("one", Int(64));
    Stmt tiles =
        For(tile, 0, ir::CeilDiv(count_, rows), ForKind::kSerial, body(tile * Expr(rows), rows));
    Stmt single = For(one, 0, count_, ForKind::kSerial, body(one, 1));
    return tir::IfThenElse(ir::Greater(count_, Expr(rows / 2)), tiles, single);
  }

  // The row that row `r` of the chunk is; rows behind the last are the last.
  Expr Inside(const Expr& row) const { return ir::Min(first_ + row, first_ + count_ - Expr(1)); }

  bool IsNarrow() const { return Buffer(LoadInCasts(of_.q)->buffer).elem_dtype().bits < 32; }

  // queries[r, d] = q[r, d]: tiles take queries element by element for each block of keys, and
  // widening one costs as much as widening a vector of them.
  Stmt WidenQueries() {
    Var row("row", Int(64));
    Axis d{Var("d", Int(64)), Expr(depth_)};
    Map map = AtRow(first_ + row);
    map.Set(of_.scores->reduce[0].var, d.var);
    Stage widen;
    widen.name = "widen_queries";
    widen.spatial = {d};
    widen.value = ir::Cast(Float(32), tir::Substitute(of_.q, map));
    widen.indices = {row * Expr(depth_) + d.var};
    widen.out = queries_;
    return For(row, 0, count_, ForKind::kSerial,
               EmitNest(FlattenStage(widen, analyzer_), traits_, analyzer_));
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
    Stmt tiles = TileRows(kRows, [&](const Expr& first, int64_t rows) {
      Var d("d", Int(64));
      auto right = [&](int64_t v, const Var& lane) {
        return packed_.Load({d * Expr(kKeys) + panel * Expr(width) + Expr(v * lanes_) + lane});
      };
      auto left = [&](const Expr& row) -> Expr {
        if (IsNarrow()) return queries_.Load({row * Expr(depth_) + d});
        Map map = AtRow(Inside(row));
        map.Set(of_.scores->reduce[0].var, d);
        return ir::Cast(Float(32), tir::Substitute(of_.q, map));
      };
      auto place = [&](const Expr& row, int64_t v, const Var& lane) {
        return row * Expr(kKeys) + panel * Expr(width) + Expr(v * lanes_) + lane;
      };
      return MultiplyTile({first, rows, vectors_, width, d, Expr(depth_)}, left, right, nullptr,
                          [&](const Expr& row, int64_t v, const Var& lane, const Expr& sum) {
                            return BufferStore(block_, sum, {place(row, v, lane)});
                          });
    });
    return Loop(panel, Expr(kKeys / width), ForKind::kSerial, tiles);
  }

  struct TileShape {
    Expr first;
    int64_t rows, vectors, width;
    Var k;
    Expr depth;
  };
  using StartOf = std::function<Expr(const Expr& row, int64_t v, const Var& lane)>;

  // sum over k of left(row) * right(v), from start (null: 0).
  Stmt MultiplyTile(
      const TileShape& t, const std::function<Expr(const Expr&)>& left,
      const std::function<Expr(int64_t, const Var&)>& right, const StartOf& start,
      const std::function<Stmt(const Expr&, int64_t, const Var&, const Expr&)>& store) {
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
          Expr from = start ? start(base + Expr(i), v, lane) : Zero();
          return BufferStore(acc, from, {place(i, v, lane)});
        },
        &seq);
    ffi::Array<Stmt> step = {tir::AllocBuffer(row_of_right)};
    for (int64_t v = 0; v < t.vectors; ++v) {
      Var lane("lane", Int(64));
      step.push_back(For(lane, 0, lanes_, ForKind::kVectorized,
                         BufferStore(row_of_right, right(v, lane), {Expr(v * lanes_) + lane})));
    }
    for (int64_t i = 0; i < t.rows; ++i) {
      Var scalar("left", Float(32));
      step.push_back(tir::Bind(scalar, left(base + Expr(i))));
      for (int64_t v = 0; v < t.vectors; ++v) {
        Var lane("lane", Int(64));
        Expr sum = ir::CallIntrin(
            Intrin::kFma,
            {scalar, row_of_right.Load({Expr(v * lanes_) + lane}), acc.Load({place(i, v, lane)})});
        step.push_back(
            For(lane, 0, lanes_, ForKind::kVectorized, BufferStore(acc, sum, {place(i, v, lane)})));
      }
    }
    seq.push_back(For(t.k, 0, t.depth, ForKind::kSerial, SeqStmt::Flatten(step)));
    each(
        [&](int64_t i, int64_t v, const Var& lane) -> Stmt {
          return store(base + Expr(i), v, lane, acc.Load({place(i, v, lane)}));
        },
        &seq);
    return SeqStmt::Flatten(seq);
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

  // The formula with every access flat; loads of the scores are replaced anyway.
  Expr FlatValue(const Expr& value) {
    Stage s;
    s.value = value;
    s.out = block_;
    s.indices = {Expr(0)};
    return FlattenStage(s, analyzer_).value;
  }

  // sums = factor * sums + p v
  Stmt Weigh() {
    ffi::Array<Stmt> seq;
    const int64_t total = padded_width_ / lanes_;
    const int64_t most = traits_.num_vectors >= 32 ? 4 : 2;
    for (int64_t done = 0; done < total; done += most) {
      const int64_t vectors = std::min(most, total - done);
      seq.push_back(
          TileRows(vectors >= 2 ? kRows : 2 * kRows, [&](const Expr& first, int64_t rows) {
            Var k("k", Int(64));
            auto left = [&](const Expr& row) { return block_.Load({row * Expr(kKeys) + k}); };
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
                {first, rows, vectors, vectors * lanes_, k, here_}, left, right,
                [&](const Expr& row, int64_t v, const Var& lane) {
                  return sums_.Load({place(row, v, lane)}) * factor_.Load({row});
                },
                [&](const Expr& row, int64_t v, const Var& lane, const Expr& sum) {
                  return BufferStore(sums_, sum, {place(row, v, lane)});
                });
          }));
    }
    return SeqStmt::Flatten(seq);
  }

  Stmt Finish() {
    Var row("row", Int(64)), all("all", Float(32));
    ffi::Array<Stmt> seq = {tir::Bind(
        all, ir::CallIntrin(Float(32), Intrin::kReduceAdd,
                            {total_.Load({ir::RampExpr(row * Expr(lanes_), 1, lanes_)})}))};
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
      seq.push_back(For(lane, 0, lanes_, ForKind::kVectorized,
                        BufferStore(*of_.result->out, value,
                                    {tir::Substitute(flat.indices[0], map)}, predicate)));
    }
    return For(row, 0, count_, ForKind::kSerial, SeqStmt::Flatten(seq));
  }

  AttentionParts of_;
  const Machine& traits_;
  arith::Analyzer* analyzer_;
  int64_t depth_ = 0, width_ = 0, padded_width_ = 0, lanes_ = 1, vectors_ = 1;
  Expr keys_;
  // of the task
  ffi::Array<Stmt> allocs_;
  Buffer packed_{Buffer("keys", {Expr(1)}, Float(32))},
      queries_ = packed_, block_ = packed_, sums_ = packed_, greatest_ = packed_, total_ = packed_,
      factor_ = packed_;
  Expr chunk_rows_, first_, key_start_, here_;
  Var count_{Var("rows", Int(64))};
};

}  // namespace

std::optional<AttentionForm> EmitAttention(const Program& program, size_t at, const Machine& traits,
                                           arith::Analyzer* analyzer) {
  auto parts = ReadAttention(program, at);
  if (!parts.has_value()) return std::nullopt;
  AttentionEmitter emitter(*parts, traits, analyzer);
  if (!emitter.Fits()) return std::nullopt;
  return AttentionForm{emitter.Run(), kAttentionStages};
}

}  // namespace relaxvm::schedule::cpu
