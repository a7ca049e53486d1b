// SPDX-License-Identifier: Apache-2.0
// EmitWinograd: a task takes a block of tiles, transforms them, multiplies, and transforms the
// products back; what it hands from one to the next stays in its core's cache.
#include "schedule/cpu/winograd.h"

#include <algorithm>
#include <array>

#include "schedule/cpu/contraction.h"

namespace relaxvm::schedule::cpu {
namespace {

using ir::Intrin;
using ir::RampExpr;
using tir::Bind;
using tir::BufferLoad;
using tir::BufferStore;
using tir::For;
using tir::ForKind;
using tir::SeqStmt;

constexpr int64_t kTile = kWinogradTile, kSize = kWinogradSize, kPoints = kSize * kSize;
constexpr double kNear = kWinogradNear, kFar = kWinogradFar;
constexpr int64_t kMostTiles = 24;  // of a block: weights are read once for each block
constexpr int64_t kTasksPerCore = 4;

class WinogradEmitter {
 public:
  WinogradEmitter(const Stage& input, const Stage& product, const Stage& output,
                  const Machine& machine, arith::Analyzer* analyzer)
      : output_(FlattenStage(output, analyzer)),
        machine_(machine),
        analyzer_(analyzer),
        lanes_(machine.Lanes(4)),
        data_(ReadsOf(input)[0]),
        weight_(data_),
        images_(input.spatial[2].extent),
        down_(input.spatial[3].extent),
        across_(input.spatial[4].extent),
        height_(output.spatial[1].extent),
        breadth_(output.spatial[2].extent),
        channels_(ir::AsInt(input.spatial[5].extent).value()),
        filters_(ir::AsInt(output.spatial[3].extent).value()) {
    const std::vector<Var> reads = ReadsOf(product);
    weight_ = Buffer(reads[reads[0].same_as(*input.out) ? 1 : 0]);
    width_ = ir::AsInt(weight_.shape()[4]).value();
    panels_ = (filters_ + width_ - 1) / width_;
    stride_ = (channels_ + lanes_ - 1) / lanes_ * lanes_;
    ChooseBlock();
    input_ = Buffer("input", {Expr(kPoints * block_ * stride_)}, Float(32));
    product_ = Buffer("product", {Expr(kPoints * block_ * width_)}, Float(32));
  }

  Stmt Run() {
    Axis strip{Var("strip", Int(64)), analyzer_->Simplify(ir::CeilDiv(tiles_, block_))};
    // Few blocks: groups of panels are tasks of their own, no more than cores want, because each
    // transforms its input again.
    Var groups("groups", Int(64)), each("each", Int(64)), first("first", Int(64));
    const int64_t tasks = machine_.num_cores > 1 ? kTasksPerCore * machine_.num_cores : 1;
    const Expr wanted = ir::CeilDiv(Expr(tasks), ir::Max(strip.extent, 1));
    Axis group{Var("group", Int(64)), groups};
    Var tile("tile", Int(64)), panel("panel", Int(64));
    const Expr start = strip.var * Expr(block_);
    ffi::Array<Stmt> body = {
        Bind(count_, analyzer_->Simplify(ir::Min(block_, tiles_ - start))),
        Bind(first, group.var * each), tir::AllocBuffer(input_), tir::AllocBuffer(product_),
        For(tile, 0, count_, ForKind::kSerial, Placed(start + tile, [&](const Place& at) {
              const Expr inside = ir::And(ir::LessEqual(at.y + Expr(kSize), data_.shape()[1]),
                                          ir::LessEqual(at.x + Expr(kSize), data_.shape()[2]));
              return tir::IfThenElse(inside, Input(at, tile, false), Input(at, tile, true));
            }))};
    const Expr column = first + panel;
    Stmt of_panel = SeqStmt::Flatten(
        {Multiply(column),
         For(tile, 0, count_, ForKind::kSerial, Placed(start + tile, [&](const Place& at) {
               const Expr inside = ir::And(ir::LessEqual(at.y + Expr(kTile), height_),
                                           ir::LessEqual(at.x + Expr(kTile), breadth_));
               return tir::IfThenElse(inside, Output(at, tile, column, false),
                                      Output(at, tile, column, true));
             }))});
    body.push_back(
        For(panel, 0, ir::Min(Expr(each), Expr(panels_) - first), ForKind::kSerial, of_panel));
    const Expr work = Expr(kPoints * block_ * channels_ * (width_ / lanes_)) * each;
    return SeqStmt::Flatten({Bind(groups, analyzer_->Simplify(ir::Min(wanted, Expr(panels_)))),
                             Bind(each, ir::CeilDiv(Expr(panels_), groups)),
                             OverTasks({strip, group}, SeqStmt::Flatten(body), work, analyzer_)});
  }

 private:
  // Where a tile of results begins.
  struct Place {
    Var n{"n", Int(64)}, y{"y", Int(64)}, x{"x", Int(64)};
  };

  // As many tiles as leave their transforms in half of the cache, all blocks alike.  Of a number of
  // images that is not known each one is cut alike, or as many as fit are one block.
  void ChooseBlock() {
    tiles_ = analyzer_->Simplify(images_ * down_ * across_);
    const int64_t fit = machine_.l2_bytes / 2 / (kPoints * 4 * stride_);
    block_ = std::clamp<int64_t>(fit, 6, kMostTiles);
    const bool all = ir::AsInt(tiles_).has_value();
    const int64_t even = ir::AsInt(all ? tiles_ : analyzer_->Simplify(down_ * across_)).value_or(0);
    if (even <= 0) return;
    if (even <= block_) {
      if (!all) image_tiles_ = even;
      block_ = all ? even : block_ / even * even;
      return;
    }
    const int64_t blocks = (even + block_ - 1) / block_;
    block_ = (even + blocks - 1) / blocks;
  }

  Stmt Placed(const Expr& tile, const std::function<Stmt(const Place&)>& body) const {
    Place at;
    Var row("row", Int(64));
    return SeqStmt::Flatten({Bind(row, ir::FloorDiv(tile, across_)),
                             Bind(at.x, ir::FloorMod(tile, across_) * Expr(kTile)),
                             Bind(at.n, ir::FloorDiv(row, down_)),
                             Bind(at.y, ir::FloorMod(row, down_) * Expr(kTile)), body(at)});
  }

  // Registers: `count` vectors.
  Buffer Registers(int64_t count, ffi::Array<Stmt>* seq) const {
    Buffer b("registers", {Expr(count * lanes_)}, Float(32), "local");
    seq->push_back(tir::AllocBuffer(b));
    return b;
  }
  Expr Span(const Expr& from) const { return RampExpr(from, 1, lanes_); }
  Expr Get(const Buffer& b, int64_t i) const { return b.Load({Span(Expr(i * lanes_))}); }
  Stmt Put(const Buffer& b, int64_t i, const Expr& value) const {
    return BufferStore(b, value, {Span(Expr(i * lanes_))});
  }
  Expr Number(double value) const {
    return ir::ConstFloat(DLDataType{kDLFloat, 32, static_cast<uint16_t>(lanes_)}, value);
  }
  Expr Fma(double factor, const Expr& a, const Expr& b) const {
    return ir::CallIntrin(Intrin::kFma, {Number(factor), a, b});
  }

  using Six = std::array<Expr, kSize>;
  // The input transform along one axis.  `s`: registers for four vectors.
  Six TransformInput(const Six& d, const Buffer& s, ffi::Array<Stmt>* seq) const {
    constexpr double kNN = kNear * kNear, kFF = kFar * kFar;
    seq->push_back(Put(s, 0, Fma(-kFF, d[2], d[4])));
    seq->push_back(Put(s, 1, Fma(-kFF, d[1], d[3])));
    seq->push_back(Put(s, 2, Fma(-kNN, d[2], d[4])));
    seq->push_back(Put(s, 3, Fma(-kNN, d[1], d[3])));
    return {Fma(kNN * kFF, d[0], Fma(-(kNN + kFF), d[2], d[4])),
            Fma(kNear, Get(s, 1), Get(s, 0)),
            Fma(-kNear, Get(s, 1), Get(s, 0)),
            Fma(kFar, Get(s, 3), Get(s, 2)),
            Fma(-kFar, Get(s, 3), Get(s, 2)),
            Fma(kNN * kFF, d[1], Fma(-(kNN + kFF), d[3], d[5]))};
  }
  std::array<Expr, kTile> TransformOutput(const Six& m, const Buffer& s,
                                          ffi::Array<Stmt>* seq) const {
    constexpr double kNN = kNear * kNear, kFF = kFar * kFar;
    seq->push_back(Put(s, 0, m[1] + m[2]));
    seq->push_back(Put(s, 1, m[1] - m[2]));
    seq->push_back(Put(s, 2, m[3] + m[4]));
    seq->push_back(Put(s, 3, m[3] - m[4]));
    return {m[0] + (Get(s, 0) + Get(s, 2)), Fma(kNear, Get(s, 1), Number(kFar) * Get(s, 3)),
            Fma(kNN, Get(s, 0), Number(kFF) * Get(s, 2)),
            Fma(kNN * kNear, Get(s, 1), Fma(kFF * kFar, Get(s, 3), m[5]))};
  }
  Six Row(const Buffer& b, int64_t first, int64_t step) const {
    Six row;
    for (int64_t i = 0; i < kSize; ++i) row[static_cast<size_t>(i)] = Get(b, first + i * step);
    return row;
  }

  // One tile of all channels; `guarded`: it may reach over the data's end.
  Stmt Input(const Place& at, const Var& tile, bool guarded) const {
    Var group("channels", Int(64));
    const int64_t whole = channels_ / lanes_;
    ffi::Array<Stmt> seq = {Loop(group, whole, ForKind::kSerial,
                                 Input(at, tile, group * Expr(lanes_), guarded, false))};
    if (stride_ != channels_) seq.push_back(Input(at, tile, Expr(whole * lanes_), guarded, true));
    return SeqStmt::Flatten(seq);
  }

  // One register of channels; `partial`: there are fewer.
  Stmt Input(const Place& at, const Var& tile, const Expr& channel, bool guarded,
             bool partial) const {
    ffi::Array<Stmt> seq;
    std::array<Var, kSize> lines{Var("line", Int(64)), Var("line", Int(64)), Var("line", Int(64)),
                                 Var("line", Int(64)), Var("line", Int(64)), Var("line", Int(64))};
    for (int64_t i = 0; i < kSize; ++i)
      seq.push_back(Bind(lines[static_cast<size_t>(i)],
                         FlatOffset(data_, {at.n, at.y + Expr(i), at.x, channel})));
    const Buffer half = Registers(kPoints, &seq), line = Registers(kSize, &seq),
                 scratch = Registers(4, &seq);
    for (int64_t j = 0; j < kSize; ++j) {
      for (int64_t i = 0; i < kSize; ++i) {
        Expr inside = ir::BoolImm(true), predicate;
        if (guarded) {
          inside = ir::And(ir::Less(at.y + Expr(i), data_.shape()[1]),
                           ir::Less(at.x + Expr(j), data_.shape()[2]));
          predicate = ir::BroadcastExpr(inside, lanes_);
        }
        if (partial) {
          const Expr count = ir::Select(inside, Expr(channels_ % lanes_), Expr(0));
          predicate = ir::Less(Span(Expr(0)), ir::BroadcastExpr(count, lanes_));
        }
        const Expr offset = lines[static_cast<size_t>(i)] + Expr(j * channels_);
        const Expr value = BufferLoad(data_, {Span(offset)}, predicate);
        seq.push_back(Put(line, i, ir::Cast(Number(0).dtype(), value)));
      }
      const Six out = TransformInput(Row(line, 0, 1), scratch, &seq);
      for (int64_t a = 0; a < kSize; ++a)
        seq.push_back(Put(half, a * kSize + j, out[static_cast<size_t>(a)]));
    }
    for (int64_t a = 0; a < kSize; ++a) {
      const Six out = TransformInput(Row(half, a * kSize, 1), scratch, &seq);
      for (int64_t b = 0; b < kSize; ++b) {
        const Expr to = (Expr((a * kSize + b) * block_) + tile) * Expr(stride_) + channel;
        seq.push_back(BufferStore(input_, out[static_cast<size_t>(b)], {Span(to)}));
      }
    }
    return SeqStmt::Flatten(seq);
  }

  // product_ = input_ times the weights of one panel, point by point.
  Stmt Multiply(const Expr& panel) const {
    const int64_t vectors = width_ / lanes_;
    const int64_t rest = (filters_ - (panels_ - 1) * width_ + lanes_ - 1) / lanes_;
    Stmt whole = MultiplyColumns(panel, vectors);
    if (rest == vectors) return whole;
    if (panels_ == 1) return MultiplyColumns(panel, rest);
    return tir::IfThenElse(ir::Less(panel, panels_ - 1), whole, MultiplyColumns(panel, rest));
  }

  Stmt MultiplyColumns(const Expr& panel, int64_t vectors) const {
    Var point("point", Int(64)), k("k", Int(64));
    Contraction c;
    c.acc = Float(32);
    c.stage.reduce = {{k, Expr(channels_)}};
    c.panel_width = width_;
    c.a = input_.Load({(point * Expr(block_) + c.row.var) * Expr(stride_) + k});
    c.b = BufferLoad(
        weight_,
        {((point * Expr(panels_) + panel) * Expr(channels_) + k) * Expr(width_) + c.column});
    c.stage.out = product_;
    c.stage.indices = {(point * Expr(block_) + c.row.var) * Expr(width_) + c.vector.var};
    std::vector<Columns> columns;
    for (int64_t v = 0; v < vectors; ++v) columns.push_back({v * lanes_, lanes_});
    const int64_t most = std::clamp<int64_t>(
        vectors == 1 ? machine_.num_vectors - 2 : (machine_.num_vectors - 1 - vectors) / vectors, 1,
        16);
    // Tiles that end with an image, where those are not much lower.
    const bool ends = image_tiles_ <= most && image_tiles_ * 2 > most && block_ % image_tiles_ == 0;
    const int64_t tiles = ends ? block_ / image_tiles_ : (block_ + most - 1) / most;
    const int64_t low = block_ / tiles, higher = block_ % tiles;
    ffi::Array<Stmt> seq;
    auto add = [&](int64_t number, int64_t rows, int64_t from) {
      Var tile("tile", Int(64));
      const Expr start = Expr(from) + tile * Expr(rows);
      // Rows above count_ are computed along with the others of their tile, and not looked at.
      seq.push_back(Loop(
          tile, number, ForKind::kSerial,
          tir::IfThenElse(
              ir::Less(start, count_),
              EmitTile(c, width_, {Expr(0), start, rows, columns, Expr()}, machine_, analyzer_))));
    };
    if (higher > 0) add(higher, low + 1, 0);
    add(tiles - higher, low, higher * (low + 1));
    return For(point, 0, kPoints, ForKind::kSerial, SeqStmt::Flatten(seq));
  }

  // One tile of a panel's results; `guarded`: it may reach over the result's end.
  Stmt Output(const Place& at, const Var& tile, const Expr& panel, bool guarded) const {
    Var group("filters", Int(64));
    const int64_t per_panel = width_ / lanes_, whole = filters_ / lanes_;
    ffi::Array<Stmt> seq = {For(
        group, 0, analyzer_->Simplify(ir::Min(per_panel, Expr(whole) - panel * Expr(per_panel))),
        ForKind::kSerial, Output(at, tile, panel, group, guarded, false))};
    if (filters_ % lanes_ != 0) {
      const Stmt rest =
          Output(at, tile, panel, Expr(whole - (panels_ - 1) * per_panel), guarded, true);
      seq.push_back(panels_ == 1 ? rest
                                 : Stmt(tir::IfThenElse(ir::Equal(panel, panels_ - 1), rest)));
    }
    return SeqStmt::Flatten(seq);
  }

  // One register of filters, number `group` of the panel; `partial`: there are fewer.
  Stmt Output(const Place& at, const Var& tile, const Expr& panel, const Expr& group, bool guarded,
              bool partial) const {
    ffi::Array<Stmt> seq;
    const Buffer half = Registers(kTile * kSize, &seq), line = Registers(kSize, &seq),
                 scratch = Registers(4, &seq), done = Registers(kTile * kTile, &seq);
    for (int64_t b = 0; b < kSize; ++b) {
      for (int64_t a = 0; a < kSize; ++a) {
        const Expr from =
            (Expr((a * kSize + b) * block_) + tile) * Expr(width_) + group * Expr(lanes_);
        seq.push_back(Put(line, a, product_.Load({Span(from)})));
      }
      const auto out = TransformOutput(Row(line, 0, 1), scratch, &seq);
      for (int64_t r = 0; r < kTile; ++r)
        seq.push_back(Put(half, r * kSize + b, out[static_cast<size_t>(r)]));
    }
    for (int64_t r = 0; r < kTile; ++r) {
      const auto out = TransformOutput(Row(half, r * kSize, 1), scratch, &seq);
      for (int64_t s = 0; s < kTile; ++s)
        seq.push_back(Put(done, r * kTile + s, out[static_cast<size_t>(s)]));
    }
    const Expr filter = panel * Expr(width_) + group * Expr(lanes_);
    for (int64_t r = 0; r < kTile; ++r) {
      for (int64_t s = 0; s < kTile; ++s) {
        Stmt store = Store(at, r, s, filter, done, partial);
        if (guarded)
          store = tir::IfThenElse(
              ir::And(ir::Less(at.y + Expr(r), height_), ir::Less(at.x + Expr(s), breadth_)),
              store);
        seq.push_back(store);
      }
    }
    return SeqStmt::Flatten(seq);
  }

  Stmt Store(const Place& at, int64_t r, int64_t s, const Expr& filter, const Buffer& done,
             bool partial) const {
    Var lane("lane", Int(64));
    ffi::Map<Var, Expr> map;
    map.Set(output_.spatial[0].var, at.n);
    map.Set(output_.spatial[1].var, at.y + Expr(r));
    map.Set(output_.spatial[2].var, at.x + Expr(s));
    map.Set(output_.spatial[3].var, filter + lane);
    Expr value = done.Load({Expr((r * kTile + s) * lanes_) + lane});
    if (output_.finish.defined()) {
      map.Set(output_.reduced, value);
      value = tir::Substitute(output_.finish, map);
    }
    Expr predicate;
    if (partial) {
      predicate = ir::Less(lane, Expr(filters_ % lanes_));
      value = PredicateLoads(value, lane, predicate);
    }
    return For(
        lane, 0, lanes_, ForKind::kVectorized,
        BufferStore(*output_.out, value, {tir::Substitute(output_.indices[0], map)}, predicate));
  }

  Stage output_;
  const Machine& machine_;
  arith::Analyzer* analyzer_;
  int64_t lanes_;
  Buffer data_, weight_;
  Expr images_, down_, across_;  // of tiles
  Expr height_, breadth_;        // of the result
  int64_t channels_, filters_;
  int64_t width_ = 1, panels_ = 1;  // of the weights
  int64_t stride_ = 1;              // of input_: channels in whole registers
  int64_t block_ = 1;               // tiles of a task
  int64_t image_tiles_ = 0;         // of an image, where several are one block
  Expr tiles_;
  Buffer input_{Buffer("input", {Expr(1)}, Float(32))}, product_ = input_;
  Var count_{Var("tiles", Int(64))};  // of this task
};

}  // namespace

Stmt EmitWinograd(const Stage& input, const Stage& product, const Stage& output,
                  const Machine& machine, arith::Analyzer* analyzer) {
  return WinogradEmitter(input, product, output, machine, analyzer).Run();
}

}  // namespace relaxvm::schedule::cpu
