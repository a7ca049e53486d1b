// SPDX-License-Identifier: Apache-2.0
// EmitWinograd: a task takes a block of tiles, transforms them, multiplies, and transforms the
// products back; what it hands from one to the next stays in its core's cache.
#include "schedule/cpu/winograd.h"

#include <algorithm>
#include <array>

#include "schedule/cpu/contraction/contraction.h"

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

constexpr double kNear = kWinogradNear, kFar = kWinogradFar;
constexpr double kNN = kNear * kNear, kFF = kFar * kFar;
constexpr int64_t kMostLayers = 6;   // of a block, where a layer has more tiles than fit
constexpr int64_t kUsualLayers = 4;  // where the depth is not known: it often is a multiple
constexpr int64_t kTasksPerCore = 4;
constexpr int64_t kMostRowsOfTile = 16;  // of a product
// Bytes of weights that are fetched ahead: a panel's points follow each other in memory.
constexpr int64_t kFetchAhead = 2048;

class WinogradEmitter {
 public:
  WinogradEmitter(const WinogradForm& form, const Stage& input, const Stage& product,
                  const Stage& output, const Machine& machine, arith::Analyzer* analyzer)
      : form_(form),
        output_(FlattenStage(output, analyzer)),
        machine_(machine),
        analyzer_(analyzer),
        tile_(form.tile),
        size_(form.Size()),
        points_(size_ * size_),
        lanes_(machine.Lanes(4)),
        in_lanes_(machine.Lanes(SizeInBytes(form.Transformed()))),
        data_(ReadsOf(input)[0]),
        weight_(data_),
        has_depth_(output.spatial.size() == 5),
        at_height_(has_depth_ ? 2 : 1),
        images_(input.spatial[2].extent),
        depth_(has_depth_ ? output.spatial[1].extent : Expr(1)),
        height_(output.spatial[at_height_].extent),
        breadth_(output.spatial[at_height_ + 1].extent),
        down_(analyzer->Simplify(form.TilesOf(height_))),
        across_(analyzer->Simplify(form.TilesOf(breadth_))),
        taps_(has_depth_ ? ir::AsInt(product.reduce[0].extent).value() : 1),
        channels_(form.channels),
        filters_(form.filters),
        all_channels_(ir::AsInt(data_.shape().back()).value()),
        all_filters_(ir::AsInt(output.spatial.back().extent).value()),
        width_(form.width),
        panels_(form.PanelsOfGroup()) {
    const std::vector<Var> reads = ReadsOf(product);
    weight_ = Buffer(reads[reads[0].same_as(*input.out) ? 1 : 0]);
    stride_ = form.Stride(machine);
    ChooseBlock();
    slots_ = block_ * (layers_ + taps_ - 1);
    input_point_ = InOddLines(slots_ * stride_, form.Transformed());
    product_point_ = InOddLines(block_ * layers_ * width_, form.Summed());
    input_ = Buffer("input", {Expr(points_ * input_point_)}, form.Transformed());
    product_ = Buffer("product", {Expr(points_ * product_point_)}, form.Summed());
  }

  Stmt Run() {
    // Without depth the tiles of all images are one list.
    const Axis image{Var("image", Int(64)), has_depth_ ? images_ : Expr(1)};
    const Axis layer{Var("layers", Int(64)), analyzer_->Simplify(ir::CeilDiv(depth_, layers_))};
    const Axis strip{Var("strip", Int(64)), analyzer_->Simplify(ir::CeilDiv(tiles_, block_))};
    // Few blocks: parts of the panels are tasks of their own, no more than cores want, because each
    // transforms its input again.
    Var parts("parts", Int(64)), each("each", Int(64)), first("first", Int(64));
    const int64_t tasks = machine_.num_cores > 1 ? kTasksPerCore * machine_.num_cores : 1;
    const Expr blocks =
        analyzer_->Simplify(Expr(form_.groups) * image.extent * layer.extent * strip.extent);
    const Expr wanted = ir::CeilDiv(Expr(tasks), ir::Max(blocks, 1));
    const Axis group{group_, Expr(form_.groups)}, part{Var("part", Int(64)), parts};
    Var panel("panel", Int(64));
    const Task task{image.var, layer.var * Expr(layers_), strip.var * Expr(block_)};
    ffi::Array<Stmt> body = {
        Bind(count_, analyzer_->Simplify(ir::Min(block_, tiles_ - task.tile))),
        Bind(deep_, analyzer_->Simplify(ir::Min(layers_, depth_ - task.layer))),
        Bind(first, part.var * each),
        tir::AllocBuffer(input_),
        tir::AllocBuffer(product_),
        EachTile(task, deep_ + Expr(taps_ - 1), [&](const Place& at, const Expr& slot) {
          const Expr reach = (size_ - 1) * form_.dilation;
          Expr inside = ir::And(Inside(1, at.y, reach), Inside(2, at.x, reach));
          if (has_depth_) inside = ir::And(inside, Inside(0, at.z, 0));
          return tir::IfThenElse(inside, Input(at, slot, false), Input(at, slot, true));
        })};
    const Expr column = first + panel;
    Stmt of_panel = SeqStmt::Flatten(
        {Multiply(column), EachTile(task, deep_, [&](const Place& at, const Expr& slot) {
           const Expr reach = (tile_ - 1) * form_.dilation;
           const Expr inside =
               ir::And(ir::Less(at.y + reach, height_), ir::Less(at.x + reach, breadth_));
           return tir::IfThenElse(inside, Output(at, slot, column, false),
                                  Output(at, slot, column, true));
         })});
    body.push_back(
        For(panel, 0, ir::Min(Expr(each), Expr(panels_) - first), ForKind::kSerial, of_panel));
    const Expr work =
        Expr(points_ * block_ * layers_ * taps_ * form_.Depth() * (width_ / lanes_)) * each;
    return SeqStmt::Flatten(
        {Bind(parts, analyzer_->Simplify(ir::Select(ir::LessEqual(blocks, most_blocks_),
                                                    Expr(parts_), ir::Min(wanted, Expr(panels_))))),
         Bind(each, ir::CeilDiv(Expr(panels_), parts)),
         OverTasks({group, image, layer, strip, part}, SeqStmt::Flatten(body), work, analyzer_)});
  }

 private:
  // Where a task begins.
  struct Task {
    Expr image, layer, tile;
  };
  // Where a tile of results begins.
  struct Place {
    Var n{"n", Int(64)}, z{"z", Int(64)}, y{"y", Int(64)}, x{"x", Int(64)};
  };

  // Are groups missing among the last ones that are put together?
  bool LacksGroups() const { return form_.groups * channels_ > all_channels_; }

  // What stands at a place of results along axis `axis` (z, y, x) of data, and `reach` behind it:
  // is all of it there?
  Expr Inside(size_t axis, const Expr& place, const Expr& reach) const {
    const Expr first = place - Expr(form_.before[axis]);
    const Expr& size = data_.shape()[static_cast<int64_t>(at_height_ + axis - 1)];
    return ir::And(ir::LessEqual(0, first), ir::Less(first + reach, size));
  }

  // All blocks alike: each reads all weights.  Of a number of images that is not known each one is
  // cut alike, or as many as fit are one block.
  void ChooseBlock() {
    if (has_depth_) return ChooseLayers(form_.NearTiles(machine_));
    tiles_ = analyzer_->Simplify(images_ * down_ * across_);
    block_ = form_.MostTiles(machine_);
    const bool all = ir::AsInt(tiles_).has_value();
    const int64_t even = ir::AsInt(all ? tiles_ : analyzer_->Simplify(down_ * across_)).value_or(0);
    if (even <= 0) {
      // Blocks of an image of usual size are enough for all cores.
      const int64_t usual = ir::AsInt(form_.TilesOf(kWinogradUsualSize)).value();
      const int64_t most = usual * usual * form_.groups * panels_ /
                           std::max(kTasksPerCore * machine_.num_cores, int64_t{1});
      block_ = std::min(block_, std::max(most, form_.NearTiles(machine_)));
      return;
    }
    const WinogradTasks tasks = TasksOf(form_, even, machine_);
    parts_ = tasks.parts;
    most_blocks_ = form_.groups * tasks.blocks;
    if (all || tasks.blocks > 1) {
      block_ = (even + tasks.blocks - 1) / tasks.blocks;
    } else {
      image_tiles_ = even;
      block_ = block_ / even * even;
    }
  }

  // Blocks of layers that lie one behind the other: each transformed layer serves as many layers of
  // results as the kernel is deep.
  void ChooseLayers(int64_t fit) {
    tiles_ = analyzer_->Simplify(down_ * across_);
    const int64_t tiles = ir::AsInt(tiles_).value_or(fit);
    layers_ = std::min(ir::AsInt(depth_).value_or(kUsualLayers), kMostLayers);
    if (tiles * layers_ < fit) layers_ = std::min(ir::AsInt(depth_).value_or(fit), fit / tiles);
    layers_ = Even(ir::AsInt(depth_).value_or(layers_), layers_);
    block_ = Even(tiles, std::clamp<int64_t>(fit / layers_, 1, tiles));
  }

  // Elements from one point to the next: a tile is written to all points at once, and an even
  // number of cache lines would put them into few sets of the first cache.
  static int64_t InOddLines(int64_t elements, DLDataType type) {
    const int64_t line = kLineBytes / SizeInBytes(type);
    const int64_t lines = (elements + line - 1) / line;
    return (lines % 2 == 0 ? lines + 1 : lines) * line;
  }

  // `all` in as few parts as `most` allows: the size of one, all alike.
  static int64_t Even(int64_t all, int64_t most) {
    const int64_t parts = (all + most - 1) / most;
    return (all + parts - 1) / parts;
  }

  // `body` for the task's tiles of `layers` layers, with their place in the block.
  Stmt EachTile(const Task& task, const Expr& layers,
                const std::function<Stmt(const Place&, const Expr&)>& body) const {
    Place at;
    Var row("row", Int(64)), tile("tile", Int(64)), layer("layer", Int(64)), slot("slot", Int(64));
    const Expr number = task.tile + tile;
    ffi::Array<Stmt> one = {
        Bind(row, ir::FloorDiv(number, across_)),
        Bind(at.x, form_.PlaceOf(ir::FloorMod(number, across_))),
        Bind(at.n, has_depth_ ? task.image : ir::FloorDiv(row, down_)),
        Bind(at.y, form_.PlaceOf(has_depth_ ? Expr(row) : ir::FloorMod(row, down_)))};
    if (!has_depth_) {
      one.push_back(body(at, tile));
      return For(tile, 0, count_, ForKind::kSerial, SeqStmt::Flatten(one));
    }
    one.push_back(Bind(at.z, task.layer + layer));
    one.push_back(Bind(slot, layer * Expr(block_) + tile));
    one.push_back(body(at, slot));
    return For(layer, 0, layers, ForKind::kSerial,
               For(tile, 0, count_, ForKind::kSerial, SeqStmt::Flatten(one)));
  }

  // Vectors of `type` in registers.
  struct Registers {
    Registers(int64_t count, DLDataType type, int64_t lanes, ffi::Array<Stmt>* seq)
        : buffer("registers", {Expr(count * lanes)}, type, "local"), lanes(lanes) {
      seq->push_back(tir::AllocBuffer(buffer));
    }
    Expr Get(int64_t i) const { return buffer.Load({Span(Expr(i * lanes), lanes)}); }
    Stmt Put(int64_t i, const Expr& value) const {
      return BufferStore(buffer, value, {Span(Expr(i * lanes), lanes)});
    }
    std::vector<Expr> Row(int64_t count, int64_t first, int64_t step) const {
      std::vector<Expr> row;
      for (int64_t i = 0; i < count; ++i) row.push_back(Get(first + i * step));
      return row;
    }

    Buffer buffer;
    int64_t lanes;
  };
  static Expr Span(const Expr& from, int64_t lanes) { return RampExpr(from, 1, lanes); }
  Expr Number(double value) const {
    return ir::ConstFloat(DLDataType{kDLFloat, 32, static_cast<uint16_t>(lanes_)}, value);
  }
  Expr Fma(double factor, const Expr& a, const Expr& b) const {
    return ir::CallIntrin(Intrin::kFma, {Number(factor), a, b});
  }

  // The input transform along one axis.  `s`: registers for four vectors.
  std::vector<Expr> TransformInput(const std::vector<Expr>& d, const Registers& s,
                                   ffi::Array<Stmt>* seq) const {
    if (form_.of_larger)
      return {Fma(-kNN, d[0], d[2]), Fma(kNear, d[1], d[2]), Fma(-kNear, d[1], d[2]),
              Fma(-kNN, d[1], d[3])};
    if (tile_ == 2) return {d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]};
    seq->push_back(s.Put(0, Fma(-kFF, d[2], d[4])));
    seq->push_back(s.Put(1, Fma(-kFF, d[1], d[3])));
    seq->push_back(s.Put(2, Fma(-kNN, d[2], d[4])));
    seq->push_back(s.Put(3, Fma(-kNN, d[1], d[3])));
    return {Fma(kNN * kFF, d[0], Fma(-(kNN + kFF), d[2], d[4])),
            Fma(kNear, s.Get(1), s.Get(0)),
            Fma(-kNear, s.Get(1), s.Get(0)),
            Fma(kFar, s.Get(3), s.Get(2)),
            Fma(-kFar, s.Get(3), s.Get(2)),
            Fma(kNN * kFF, d[1], Fma(-(kNN + kFF), d[3], d[5]))};
  }
  std::vector<Expr> TransformOutput(const std::vector<Expr>& m, const Registers& s,
                                    ffi::Array<Stmt>* seq) const {
    // The weights of a point are divided by its distances to all other points: those to +-kFar are
    // taken back.
    if (form_.of_larger)
      return {Fma(-kFF, m[0], Number(kNN - kFF) * (m[1] + m[2])),
              Fma(kNear * (kNN - kFF), m[1] - m[2], m[3])};
    if (tile_ == 2) return {m[0] + m[1] + m[2], m[1] - m[2] - m[3]};
    seq->push_back(s.Put(0, m[1] + m[2]));
    seq->push_back(s.Put(1, m[1] - m[2]));
    seq->push_back(s.Put(2, m[3] + m[4]));
    seq->push_back(s.Put(3, m[3] - m[4]));
    return {m[0] + (s.Get(0) + s.Get(2)), Fma(kNear, s.Get(1), Number(kFar) * s.Get(3)),
            Fma(kNN, s.Get(0), Number(kFF) * s.Get(2)),
            Fma(kNN * kNear, s.Get(1), Fma(kFF * kFar, s.Get(3), m[5]))};
  }

  // Of data: the i-th row of a tile's input.
  Expr OffsetOf(const Place& at, int64_t i, const Expr& channel) const {
    auto place = [&](size_t axis, const Expr& of) { return of - Expr(form_.before[axis]); };
    ffi::Array<Expr> indices = {at.n};
    if (has_depth_) indices.push_back(place(0, at.z));
    indices.push_back(place(1, at.y + Expr(i * form_.dilation)));
    indices.push_back(place(2, at.x));
    indices.push_back(group_ * Expr(channels_) + channel);
    return FlatOffset(data_, indices);
  }

  // One tile of all channels; `guarded`: it may reach over the data's end.
  Stmt Input(const Place& at, const Expr& tile, bool guarded) const {
    Var group("channels", Int(64));
    int64_t done = channels_ / in_lanes_ * in_lanes_;
    ffi::Array<Stmt> seq = {
        Loop(group, channels_ / in_lanes_, ForKind::kSerial,
             Input(at, tile, {group * Expr(in_lanes_), in_lanes_, in_lanes_}, guarded))};
    const int64_t half = in_lanes_ / 2;
    if (form_.of_bytes && channels_ - done >= half) {  // masks of bytes are dear
      seq.push_back(Input(at, tile, {Expr(done), half, half}, guarded));
      done += half;
    }
    if (done < channels_) {
      const int64_t lanes = std::min(in_lanes_, stride_ - done);
      seq.push_back(Input(at, tile, {Expr(done), lanes, channels_ - done}, guarded));
    }
    return SeqStmt::Flatten(seq);
  }

  // A register of channels from `first` on, of which `count` are there.
  struct Channels {
    Expr first;
    int64_t lanes, count;
  };
  Stmt Input(const Place& at, const Expr& tile, const Channels& c, bool guarded) const {
    ffi::Array<Stmt> seq;
    std::vector<Var> lines;
    for (int64_t i = 0; i < size_; ++i) {
      lines.emplace_back("line", Int(64));
      seq.push_back(Bind(lines.back(), OffsetOf(at, i, c.first)));
    }
    DLDataType type = form_.Transformed();
    const Registers half(points_, type, c.lanes, &seq), line(size_, type, c.lanes, &seq),
        scratch(4, type, c.lanes, &seq);
    type.lanes = static_cast<uint16_t>(c.lanes);
    Expr predicate;
    if (c.count < c.lanes || LacksGroups()) {
      Expr count = c.count;
      if (LacksGroups())
        count = ir::Min(count, Expr(all_channels_) - group_ * Expr(channels_) - c.first);
      predicate = ir::Less(Span(Expr(0), c.lanes), ir::BroadcastExpr(count, c.lanes));
    }
    for (int64_t j = 0; j < size_; ++j) {
      for (int64_t i = 0; i < size_; ++i) {
        const Expr offset =
            lines[static_cast<size_t>(i)] + Expr(j * form_.dilation * all_channels_);
        Expr value = ir::Cast(type, BufferLoad(data_, {Span(offset, c.lanes)}, predicate));
        if (guarded) {
          Expr inside = ir::And(Inside(1, at.y + Expr(i * form_.dilation), 0),
                                Inside(2, at.x + Expr(j * form_.dilation), 0));
          if (has_depth_) inside = ir::And(inside, Inside(0, at.z, 0));
          value = ir::IfThenElse(inside, value, ir::Const(type, 0));
        }
        seq.push_back(line.Put(i, value));
      }
      const std::vector<Expr> out = TransformInput(line.Row(size_, 0, 1), scratch, &seq);
      for (int64_t a = 0; a < size_; ++a)
        seq.push_back(half.Put(a * size_ + j, out[static_cast<size_t>(a)]));
    }
    for (int64_t a = 0; a < size_; ++a) {
      const std::vector<Expr> out = TransformInput(half.Row(size_, a * size_, 1), scratch, &seq);
      for (int64_t b = 0; b < size_; ++b) {
        const Expr to = Expr((a * size_ + b) * input_point_) + tile * Expr(stride_) + c.first;
        seq.push_back(BufferStore(input_, out[static_cast<size_t>(b)], {Span(to, c.lanes)}));
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

  // Where the weights of a point of a panel begin.
  Expr WeightsOf(const Expr& panel, const Expr& point) const {
    return ((group_ * Expr(panels_) + panel) * Expr(form_.PointsAndPlain()) +
            form_.PlaceOfPoint(point)) *
           Expr(taps_ * form_.Depth() * width_ * form_.Pair());
  }
  // Of what comes behind that point.
  Expr NextPoint(const Expr& panel, const Expr& point) const {
    if (!form_.has_plain) return WeightsOf(panel, point + Expr(1));
    const Expr is_last = ir::Select(ir::Less(point + Expr(1), points_), Expr(0), Expr(1));
    return WeightsOf(panel + is_last, (point + Expr(1)) * (Expr(1) - is_last));
  }

  Stmt MultiplyColumns(const Expr& panel, int64_t vectors) const {
    Var point("point", Int(64)), tap("tap", Int(64)), k("k", Int(64));
    Contraction c;
    c.acc = form_.Summed();
    c.group = form_.Pair();
    const int64_t depth = form_.Depth();
    c.stage.reduce = {{tap, Expr(taps_)}, {k, Expr(depth)}};
    c.panel_width = width_;
    c.fetch_b = {kMostRowsOfTile, kFetchAhead, false};
    // A kernel element's layer lies a block of tiles behind that of the one before.
    const Expr slot = c.row.var + tap * Expr(block_);
    c.a = input_.Load({point * Expr(input_point_) + slot * Expr(stride_) + k * Expr(c.group)});
    const Expr step = tap * Expr(depth) + k;
    c.b = BufferLoad(weight_,
                     {WeightsOf(panel, point) + (step * Expr(width_) + c.column) * Expr(c.group)});
    c.stage.out = product_;
    const int64_t rows = block_ * layers_;
    c.stage.indices = {point * Expr(product_point_) + c.row.var * Expr(width_) + c.vector.var};
    // Rows from here on are computed along with the others of their tile, and not looked at.
    const Expr end = has_depth_ ? (deep_ - 1) * Expr(block_) + count_ : Expr(count_);
    std::vector<Columns> columns;
    for (int64_t v = 0; v < vectors; ++v) columns.push_back({v * lanes_, lanes_});
    const int64_t most = std::clamp<int64_t>(
        vectors == 1 ? machine_.num_vectors - 2 : (machine_.num_vectors - 1 - vectors) / vectors, 1,
        kMostRowsOfTile);
    // Tiles that end with an image, where those are not much lower.
    const bool ends = image_tiles_ <= most && image_tiles_ * 2 > most && block_ % image_tiles_ == 0;
    const int64_t tiles = ends ? block_ / image_tiles_ : (rows + most - 1) / most;
    const int64_t low = rows / tiles, higher = rows % tiles;
    ffi::Array<Stmt> seq;
    auto add = [&](int64_t first, int64_t number, int64_t height, int64_t from) {
      Var tile("tile", Int(64));
      const Expr start = Expr(from) + tile * Expr(height);
      TilePart part{Expr(0), start, height, columns, Expr(), std::nullopt, std::nullopt};
      part.next = PartOfNext{NextPoint(panel, point),
                             Expr(first) + tile,
                             Expr(tiles),
                             taps_ * depth,
                             width_ * c.group * SizeInBytes(form_.Transformed()),
                             Buffer(weight_),
                             Expr()};
      seq.push_back(Loop(
          tile, number, ForKind::kSerial,
          tir::IfThenElse(ir::Less(start, end), EmitTile(c, width_, part, machine_, analyzer_))));
    };
    if (higher > 0) add(0, higher, low + 1, 0);
    add(higher, tiles - higher, low, higher * (low + 1));
    return For(point, 0, points_, ForKind::kSerial, SeqStmt::Flatten(seq));
  }

  // One tile of a panel's results; `guarded`: it may reach over the result's end.
  Stmt Output(const Place& at, const Expr& tile, const Expr& panel, bool guarded) const {
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
  Stmt Output(const Place& at, const Expr& tile, const Expr& panel, const Expr& group, bool guarded,
              bool partial) const {
    ffi::Array<Stmt> seq;
    const DLDataType type = form_.Summed();
    const Registers half(tile_ * size_, type, lanes_, &seq), line(size_, type, lanes_, &seq),
        scratch(4, type, lanes_, &seq), done(tile_ * tile_, type, lanes_, &seq);
    for (int64_t b = 0; b < size_; ++b) {
      for (int64_t a = 0; a < size_; ++a) {
        const Expr from =
            Expr((a * size_ + b) * product_point_) + tile * Expr(width_) + group * Expr(lanes_);
        seq.push_back(line.Put(a, product_.Load({Span(from, lanes_)})));
      }
      const std::vector<Expr> out = TransformOutput(line.Row(size_, 0, 1), scratch, &seq);
      for (int64_t r = 0; r < tile_; ++r)
        seq.push_back(half.Put(r * size_ + b, out[static_cast<size_t>(r)]));
    }
    for (int64_t r = 0; r < tile_; ++r) {
      const std::vector<Expr> out = TransformOutput(half.Row(size_, r * size_, 1), scratch, &seq);
      for (int64_t s = 0; s < tile_; ++s)
        seq.push_back(done.Put(r * tile_ + s, out[static_cast<size_t>(s)]));
    }
    const Expr filter = panel * Expr(width_) + group * Expr(lanes_);
    for (int64_t r = 0; r < tile_; ++r) {
      for (int64_t s = 0; s < tile_; ++s) {
        Stmt store = Store(at, r, s, filter, done.buffer, partial);
        if (guarded)
          store = tir::IfThenElse(ir::And(ir::Less(at.y + Expr(r * form_.dilation), height_),
                                          ir::Less(at.x + Expr(s * form_.dilation), breadth_)),
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
    if (has_depth_) map.Set(output_.spatial[1].var, at.z);
    map.Set(output_.spatial[at_height_].var, at.y + Expr(r * form_.dilation));
    map.Set(output_.spatial[at_height_ + 1].var, at.x + Expr(s * form_.dilation));
    map.Set(output_.spatial[at_height_ + 2].var, group_ * Expr(filters_) + filter + lane);
    Expr value = done.Load({Expr((r * tile_ + s) * lanes_) + lane});
    if (output_.finish.defined()) {
      map.Set(output_.reduced, value);
      value = tir::Substitute(output_.finish, map);
    }
    Expr predicate;
    if (partial || LacksGroups()) {
      Expr count = partial ? filters_ % lanes_ : lanes_;
      if (LacksGroups())
        count = ir::Min(count, Expr(all_filters_) - group_ * Expr(filters_) - filter);
      predicate = ir::Less(lane, count);
      value = PredicateLoads(value, lane, predicate);
    }
    return For(
        lane, 0, lanes_, ForKind::kVectorized,
        BufferStore(*output_.out, value, {tir::Substitute(output_.indices[0], map)}, predicate));
  }

  const WinogradForm& form_;
  Stage output_;
  const Machine& machine_;
  arith::Analyzer* analyzer_;
  int64_t tile_, size_, points_;  // of results, of input; of transforms
  int64_t lanes_, in_lanes_;      // of sums, of the transformed input
  Buffer data_, weight_;
  bool has_depth_;
  size_t at_height_;                             // dimension of data and result
  Expr images_, depth_;                          // of the result
  Expr height_, breadth_;                        // of the result
  Expr down_, across_;                           // of tiles
  int64_t taps_;                                 // of the kernel along the depth
  int64_t channels_, filters_;                   // of a group
  int64_t all_channels_, all_filters_;           // of data and of the result
  int64_t width_, panels_;                       // of the weights of a group
  int64_t stride_ = 1;                           // of input_: channels in whole registers
  int64_t block_ = 1;                            // tiles of a task's layer
  int64_t layers_ = 1;                           // of a task's results
  int64_t slots_ = 1;                            // transformed tiles of a task
  int64_t parts_ = 1, most_blocks_ = 0;          // of the panels, for up to so many blocks
  int64_t input_point_ = 1, product_point_ = 1;  // from one point to the next
  int64_t image_tiles_ = 0;                      // of an image, where several are one block
  Expr tiles_;                                   // of a layer, without depth of all images
  Buffer input_{Buffer("input", {Expr(1)}, Float(32))}, product_ = input_;
  Var group_{Var("group", Int(64))}, count_{Var("tiles", Int(64))},
      deep_{Var("deep", Int(64))};  // of this task
};

}  // namespace

Stmt EmitWinograd(const WinogradForm& form, const Stage& input, const Stage& product,
                  const Stage& output, const Machine& machine, arith::Analyzer* analyzer) {
  return WinogradEmitter(form, input, product, output, machine, analyzer).Run();
}

}  // namespace relaxvm::schedule::cpu
