// SPDX-License-Identifier: Apache-2.0
// vision.roi_align and vision.roi_pool: regions of images, each reduced to the same small size.
// A region is a row (image, x1, y1, x2, y2).
#include <functional>
#include <vector>

#include "ops/layout_rule.h"
#include "ops/loops.h"

namespace relaxvm::ops {
namespace {

using ir::CallIntrin;

struct Roi {
  Ints pooled_size;
  double spatial_scale = 1.0;
  int64_t sample_ratio = -1;
  bool aligned = false;
  std::string layout = "NCHW";
  std::string mode = "avg";
};

// `takes_last`: channels may stand last.
Type InferRoi(TypeCtx& ctx, const Roi& a, bool takes_last) {
  TensorType x = ctx.Float(0), rois = ctx.Float(1);
  ctx.SameDtype(0, 1);
  ctx.CheckRank(0, 4);
  ctx.CheckRank(1, 2);
  const bool last = a.layout == "NHWC" && takes_last;
  if (a.layout != "NCHW" && !last) {
    ctx.Error(ErrorKind::kValueError, "layout must be 'NCHW'", takes_last ? " or 'NHWC'" : "",
              ", got '", a.layout, "'");
  }
  if (a.mode != "avg" && a.mode != "max") {
    ctx.Error(ErrorKind::kValueError, "mode must be 'avg' or 'max', got '", a.mode, "'");
  }
  if (a.pooled_size.size() != 2 || a.pooled_size[0] < 1 || a.pooled_size[1] < 1) {
    ctx.Error(ErrorKind::kValueError, "pooled_size must be one or two positive integers");
  }
  auto xs = x->GetShape(), rs = rois->GetShape();
  if (!xs.has_value() || !rs.has_value()) return ctx.Result(std::nullopt, 4, x->dtype);
  if (ctx.Prove(ir::NotEqual((*rs)[1], Expr(5)))) {
    ctx.Error(ErrorKind::kValueError, "rois must have rows of 5 numbers, got ", DescribeType(rois));
  }
  Expr rows(a.pooled_size[0]), columns(a.pooled_size[1]);
  if (last) return ctx.Result(Dims{(*rs)[0], rows, columns, (*xs)[3]}, x->dtype);
  return ctx.Result(Dims{(*rs)[0], (*xs)[1], rows, columns}, x->dtype);
}

void SpreadSize(Roi& a) {
  if (a.pooled_size.size() == 1) a.pooled_size.push_back(a.pooled_size[0]);
}

// The cells of a region, many channels of a cell at once: where they read is found once for all.
class RoiBody {
 public:
  RoiBody(const Roi& a, const Buffer& data, const Buffer& rois, const Buffer& out)
      : a_(a),
        last_(a.layout == "NHWC"),
        data_(data),
        rois_(rois),
        out_(out),
        real_(WideDtype(data.elem_dtype())) {}
  virtual ~RoiBody() = default;

  Stmt Run() {
    if (last_) return AllChannels(data_);
    const Buffer turned("turned", {data_.shape()[0], height(), width(), channels()},
                        data_.elem_dtype());
    const Stmt all = Sequence({tir::AllocBuffer(turned), Turn(turned), AllChannels(turned)});
    const Expr reads =
        rois_.shape()[0] * Expr(a_.pooled_size[0] * a_.pooled_size[1]) * Expr(SamplesOfCell());
    const Expr places = data_.shape()[0] * height() * width();
    return tir::IfThenElse(ir::GreaterEqual(reads * Expr(kReadsOfMove), places), all,
                           SomeChannels());
  }

 protected:
  // Where elements are read: data, or a copy of it whose channels stand last.
  struct Images {
    Buffer buffer;
    bool last;   // channels
    Expr image;  // the one that is read

    Expr Load(const Expr& channel, const Expr& row, const Expr& column) const {
      return buffer.Load(last ? Indices{image, row, column, channel}
                              : Indices{image, channel, row, column});
    }
  };

  // Channels of a cell that are computed together, and where their totals stand.
  struct Channels {
    Expr first, count;
    Buffer totals;
    std::function<Indices(const Expr& c)> at;  // channel first + c

    Stmt Each(const std::function<Expr(const Expr& total, const Expr& c)>& next) const {
      return VectorNest({count}, [&](const Indices& c) {
        return tir::BufferStore(totals, next(totals.Load(at(c[0])), c[0]), at(c[0]));
      });
    }
  };

  // What a row of cells finds once, and the totals of its cell in column `j`.
  struct Row {
    Stmt bind;
    std::function<Stmt(const Expr& j, const Images& images, const Channels& channels)> totals;
  };
  virtual Row RowOf(const Expr& r, const Expr& i) const = 0;
  // Of each channel: about how many are read.
  virtual int64_t SamplesOfCell() const { return kFewSamples; }

  // `i` (image or region, channel, row, column) in the order of data and result.
  Indices Placed(const Indices& i) const { return last_ ? Indices{i[0], i[2], i[3], i[1]} : i; }

  Expr Real(double v) const { return ir::ConstFloat(real_, v); }
  Expr Real(const Expr& e) const { return ir::Cast(real_, e); }
  Expr Corner(const Expr& r, int64_t k) const {
    return Real(rois_.Load({r, Expr(k)})) * Real(a_.spatial_scale);
  }
  Expr Clamped(const Expr& i, const Expr& extent) const {
    return ir::Max(ir::Min(i, extent - Expr(1)), Expr(0));
  }
  Expr Image(const Expr& r) const {
    Expr index = ir::Cast(Int(64), Real(rois_.Load({r, Expr(0)})));
    return Clamped(index, data_.shape()[0]);
  }
  Stmt Store(const Indices& i, const Expr& value) const {
    return tir::BufferStore(out_, ir::Cast(out_.elem_dtype(), value), Placed(i));
  }
  // Nothing can be read.
  Expr IsEmpty() const { return ir::Equal(data_.shape()[0] * height() * width(), Expr(0)); }
  Expr channels() const { return data_.shape()[last_ ? 3 : 1]; }
  Expr height() const { return data_.shape()[last_ ? 1 : 2]; }
  Expr width() const { return data_.shape()[last_ ? 2 : 3]; }

  const Roi& a_;
  bool last_;  // channels
  Buffer data_, rois_, out_;
  DLDataType real_;

 private:
  static constexpr int64_t kWorkOfElement = 16;
  static constexpr int64_t kReadsOfMove = 3;  // elements moved while one sample is read, by planes
  static constexpr int64_t kFewSamples = 4;   // of a cell that has as many as it needs
  static constexpr int64_t kBlock = 16;       // channels, and columns, that are read together

  // A row of cells, `count` channels (of at most `room`) from `first` on.
  Stmt RowOfCells(const Expr& r, const Expr& i, const Buffer& images, bool last, const Expr& first,
                  const Expr& count, const Expr& room) const {
    const Row cells = RowOf(r, i);
    const ir::Var j("j", Int(64)), image("image", Int(64));
    const Buffer totals("totals", {room}, real_);
    ffi::Array<Stmt> row{cells.bind, tir::Bind(image, Image(r))}, cell;
    if (last_ && out_.elem_dtype() == real_) {
      const Channels channels{first, count, out_,
                              [&](const Expr& c) { return Indices{r, i, j, first + c}; }};
      cell.push_back(cells.totals(j, {images, last, image}, channels));
    } else {
      const Channels channels{first, count, totals, [](const Expr& c) { return Indices{c}; }};
      row.push_back(tir::AllocBuffer(totals));
      cell.push_back(cells.totals(j, {images, last, image}, channels));
      cell.push_back(LoopNest({count}, [&](const Indices& c) {
        return Store({r, first + c[0], i, j}, totals.Load({c[0]}));
      }));
    }
    row.push_back(
        tir::For(j, Expr(0), Expr(a_.pooled_size[1]), tir::ForKind::kSerial, Sequence(cell)));
    return Sequence(row);
  }

  // Channels stand last: all of a cell at once.
  Stmt AllChannels(const Buffer& images) const {
    const Expr work = Expr(a_.pooled_size[1]) * (channels() + Expr(kFewSamples * kWorkOfElement));
    return ParallelNest({rois_.shape()[0], Expr(a_.pooled_size[0])}, work, [&](const Indices& i) {
      return RowOfCells(i[0], i[1], images, true, Expr(0), channels(), channels());
    });
  }

  // Each channel is a plane: some planes at once, so that the parts that are read stay in the
  // cache.
  Stmt SomeChannels() const {
    const Expr room(kBlock), work(a_.pooled_size[1] * kBlock * kWorkOfElement);
    const Dims lines{rois_.shape()[0], ir::CeilDiv(channels(), room), Expr(a_.pooled_size[0])};
    return ParallelNest(lines, work, [&](const Indices& i) {
      const ir::Var first("first", Int(64)), count("count", Int(64));
      return Sequence({tir::Bind(first, i[1] * room),
                       tir::Bind(count, ir::Min(channels() - Expr(first), room)),
                       RowOfCells(i[0], i[2], data_, false, first, count, room)});
    });
  }

  // Copies data into `turned`, channels last.
  Stmt Turn(const Buffer& turned) const {
    const Dims lines{data_.shape()[0], height()};
    return ParallelNest(lines, width() * channels(), [&](const Indices& i) {
      const Dims blocks{ir::CeilDiv(channels(), Expr(kBlock)), ir::CeilDiv(width(), Expr(kBlock))};
      return LoopNest(
          blocks,
          [&](const Indices& b) {
            auto left = [&](const Expr& extent, const Expr& block) {
              return ir::Min(extent - block * Expr(kBlock), Expr(kBlock));
            };
            return LoopNest(
                {left(width(), b[1]), left(channels(), b[0])},
                [&](const Indices& k) {
                  const Expr column = b[1] * Expr(kBlock) + k[0],
                             channel = b[0] * Expr(kBlock) + k[1];
                  return tir::BufferStore(turned, data_.Load({i[0], channel, i[1], column}),
                                          {i[0], i[1], column, channel});
                },
                "k");
          },
          "b");
    });
  }
};

// The mean (or greatest) of interpolated samples in each cell.
class AlignBody : public RoiBody {
 public:
  using RoiBody::RoiBody;

 private:
  Row RowOf(const Expr& r, const Expr& i) const override {
    const Samples s = SamplesOf(r);
    return {Sequence({s.y.bind, s.x.bind}),
            [this, s, i](const Expr& j, const Images& images, const Channels& channels) {
              return Totals(s, i, j, images, channels);
            }};
  }
  int64_t SamplesOfCell() const override {
    return a_.sample_ratio > 0 ? a_.sample_ratio * a_.sample_ratio : RoiBody::SamplesOfCell();
  }

  struct Axis {
    ir::Var begin, cell, count;
    Stmt bind;
  };

  Axis AxisOf(const char* name, const Expr& r, int64_t first, int64_t last, int64_t parts) const {
    std::string text(name);
    ir::Var begin(text + "_begin", real_), cell(text + "_cell", real_), count(text, Int(64));
    Expr offset = Real(a_.aligned ? 0.5 : 0.0);
    Expr extent = Corner(r, last) - offset - Expr(begin);
    if (!a_.aligned) extent = ir::Max(extent, Real(1));
    Expr adaptive = ir::Cast(Int(64), CallIntrin(Intrin::kCeil, {cell}));
    Expr samples = a_.sample_ratio > 0 ? Expr(a_.sample_ratio) : adaptive;
    Stmt bind = Sequence({tir::Bind(begin, Corner(r, first) - offset),
                          tir::Bind(cell, ir::Div(extent, Real(static_cast<double>(parts)))),
                          tir::Bind(count, ir::Max(samples, Expr(0)))});
    return {begin, cell, count, bind};
  }

  // Sample `k` of cell `i`.
  Expr Sample(const Axis& axis, const Expr& i, const Expr& k) const {
    Expr share = ir::Div((Real(k) + Real(0.5)) * Expr(axis.cell), Real(Expr(axis.count)));
    return Expr(axis.begin) + Real(i) * Expr(axis.cell) + share;
  }

  struct Neighbours {
    Expr low, high, share;  // of the higher one
  };
  Neighbours Around(const Expr& at, const Expr& extent) const {
    Expr inside = ir::Max(at, Real(0));
    Expr low = ir::Min(ir::Cast(Int(64), inside), extent - Expr(1));
    Expr last = ir::GreaterEqual(low, extent - Expr(1));
    Expr share = ir::Select(last, Real(0), inside - Real(low));
    return {ir::Max(low, Expr(0)), ir::Max(ir::Min(low + Expr(1), extent - Expr(1)), Expr(0)),
            share};
  }

  Expr Outside(const Expr& at, const Expr& extent) const {
    return ir::Or(ir::Less(at, Real(-1)), ir::Greater(at, Real(extent)));
  }

  // One cell: its samples' places, and the neighbours of each.
  struct Samples {
    Axis y, x;
    ir::Var iy{"iy", Int(64)}, ix{"ix", Int(64)};
    ir::Var row, column;
    Neighbours v, h;

    Expr Count() const { return Expr(y.count) * Expr(x.count); }
  };
  Samples SamplesOf(const Expr& r) const {
    Samples s{.y = AxisOf("rows", r, 2, 4, a_.pooled_size[0]),
              .x = AxisOf("columns", r, 1, 3, a_.pooled_size[1]),
              .row = ir::Var("row", real_),
              .column = ir::Var("column", real_),
              .v = {},
              .h = {}};
    s.v = Around(s.row, height());
    s.h = Around(s.column, width());
    return s;
  }
  Expr IsOutside(const Samples& s) const {
    return ir::Or(IsEmpty(), ir::Or(Outside(s.row, height()), Outside(s.column, width())));
  }
  Expr With(const Expr& total, const Expr& value) const {
    return IsAverage() ? total + value : ir::Max(total, value);
  }
  Expr First() const { return IsAverage() ? Real(0) : ir::MinValue(real_); }
  Expr Finished(const Samples& s, const Expr& total) const {
    return IsAverage() ? ir::Div(total, Real(ir::Max(s.Count(), Expr(1))))
                       : ir::Select(ir::Greater(s.Count(), Expr(0)), total, Real(0));
  }
  // `sample` for each one of the cell.
  Stmt Each(const Samples& s, const Expr& i, const Expr& j, const Stmt& sample) const {
    Stmt placed = Sequence({tir::Bind(s.row, Sample(s.y, i, s.iy)),
                            tir::Bind(s.column, Sample(s.x, j, s.ix)), sample});
    return tir::For(s.iy, Expr(0), Expr(s.y.count), tir::ForKind::kSerial,
                    tir::For(s.ix, Expr(0), Expr(s.x.count), tir::ForKind::kSerial, placed));
  }
  bool IsAverage() const { return a_.mode == "avg"; }

  // Adds a sample that is not outside.
  Stmt AddSample(const Samples& s, const Images& images, const Channels& channels) const {
    const Expr up = Real(1) - s.v.share, left = Real(1) - s.h.share;
    const Expr weights[] = {up * left, up * s.h.share, s.v.share * left, s.v.share * s.h.share};
    ffi::Array<Stmt> all;
    std::vector<ir::Var> bound;
    for (const Expr& weight : weights) {
      bound.emplace_back("weight", real_);
      all.push_back(tir::Bind(bound.back(), weight));
    }
    all.push_back(channels.Each([&](const Expr& total, const Expr& c) {
      auto part = [&](const Expr& row, const Expr& column, size_t k) {
        return Real(images.Load(channels.first + c, row, column)) * Expr(bound[k]);
      };
      const Expr parts[] = {part(s.v.low, s.h.low, 0), part(s.v.low, s.h.high, 1),
                            part(s.v.high, s.h.low, 2), part(s.v.high, s.h.high, 3)};
      return With(total, IsAverage()
                             ? parts[0] + parts[1] + parts[2] + parts[3]
                             : ir::Max(ir::Max(parts[0], parts[1]), ir::Max(parts[2], parts[3])));
    }));
    return Sequence(all);
  }

  // The totals of the cell in row `i` and column `j`.
  Stmt Totals(const Samples& s, const Expr& i, const Expr& j, const Images& images,
              const Channels& channels) const {
    const Stmt outside =
        channels.Each([&](const Expr& total, const Expr&) { return With(total, Real(0)); });
    const Stmt sample = tir::IfThenElse(IsOutside(s), outside, AddSample(s, images, channels));
    return Sequence(
        {channels.Each([&](const Expr&, const Expr&) { return First(); }), Each(s, i, j, sample),
         channels.Each([&](const Expr& total, const Expr&) { return Finished(s, total); })});
  }
};

// The greatest element of each cell, whose borders are rounded.
class PoolBody : public RoiBody {
 public:
  using RoiBody::RoiBody;

 private:
  struct Range {
    Expr begin, end;
  };
  Range CellOf(const Expr& r, int64_t first, int64_t last, int64_t parts, const Expr& i,
               const Expr& extent) const {
    auto rounded = [&](int64_t k) {
      Expr half = CallIntrin(Intrin::kFloor, {Corner(r, k) + Real(0.5)});
      return ir::Cast(Int(64), half);
    };
    Expr start = rounded(first);
    Expr size = Real(ir::Max(rounded(last) - start + Expr(1), Expr(1)));
    Expr cell = ir::Div(size, Real(static_cast<double>(parts)));
    Expr low = ir::Cast(Int(64), CallIntrin(Intrin::kFloor, {Real(i) * cell}));
    Expr high = ir::Cast(Int(64), CallIntrin(Intrin::kCeil, {(Real(i) + Real(1)) * cell}));
    auto bounded = [&](const Expr& e) { return ir::Max(ir::Min(e + start, extent), Expr(0)); };
    return {bounded(low), bounded(high)};
  }

  Row RowOf(const Expr& r, const Expr& i) const override {
    const Range rows = CellOf(r, 2, 4, a_.pooled_size[0], i, height());
    const ir::Var y0("y0", Int(64)), y1("y1", Int(64));
    const Stmt bind = Sequence({tir::Bind(y0, rows.begin), tir::Bind(y1, rows.end)});
    auto totals = [=, this](const Expr& j, const Images& images, const Channels& channels) {
      const Range columns = CellOf(r, 1, 3, a_.pooled_size[1], j, width());
      const ir::Var x0("x0", Int(64)), x1("x1", Int(64)), y("y", Int(64)), x("x", Int(64));
      const Stmt look = channels.Each([&](const Expr& total, const Expr& c) {
        return ir::Max(total, Real(images.Load(channels.first + c, y, x)));
      });
      auto all = [](const ir::Var& at, const ir::Var& from, const ir::Var& to, const Stmt& body) {
        const Expr count = ir::Max(Expr(to) - Expr(from), Expr(0));
        return tir::For(at, from, count, tir::ForKind::kSerial, body);
      };
      const Expr empty = ir::Or(IsEmpty(), ir::Or(ir::LessEqual(y1, y0), ir::LessEqual(x1, x0)));
      const Expr first = ir::Select(empty, Real(0), ir::MinValue(real_));
      return Sequence({tir::Bind(x0, columns.begin), tir::Bind(x1, columns.end),
                       channels.Each([&](const Expr&, const Expr&) { return first; }),
                       tir::IfThenElse(ir::Not(empty), all(y, y0, y1, all(x, x0, x1, look)))});
    };
    return {bind, totals};
  }
};

template <typename Body>
Tensors ComputeRoi(const ComputeArgs& in, const Roi& a, const char* name) {
  auto body = [a](const std::vector<Buffer>& ins, const std::vector<Buffer>& outs) {
    return Body(a, ins[0], ins[1], outs[0]).Run();
  };
  return tir::Opaque({{name, in.OutShape(), in.OutDtype()}}, {in[0], in[1]}, body, name);
}

const ArgDoc kData = {"data", "The images, in the order of `layout`."};
const ArgDoc kRois = {"rois", "Rows of image, x1, y1, x2, y2."};
const std::pair<const char*, const char*> kSmall[] = {
    {"f16", "corners rounded to 11 bits lie in other cells"},
    {"bf16", "corners rounded to 8 bits lie in other cells"}};

}  // namespace

OpDef vision_roi_align() {
  return Define<Roi>({
      .name = "vision.roi_align",
      .doc = "Regions of images, each cell the mean of interpolated samples.",
      .args = {kData, kRois},
      .attrs = {{"pooled_size", &Roi::pooled_size, "Cells along height and width.", true},
                {"spatial_scale", &Roi::spatial_scale, "Factor of the corners.", true},
                {"sample_ratio", &Roi::sample_ratio,
                 "Samples of a cell along each axis; below 1: one for each element."},
                {"aligned", &Roi::aligned, "Corners count from the edges of elements."},
                {"layout", &Roi::layout, "'NCHW' or 'NHWC'."},
                {"mode", &Roi::mode, "'avg' or 'max'."}},
      .reference = "out = roi_align(data, rois, pooled_size, spatial_scale, sample_ratio, aligned, "
                   "mode, layout)",
      .samples = {{{"data: f32[2, 3, 8, 9]", "rois: f32[4, =5] in 0..5", "pooled_size=[3, 2]",
                    "spatial_scale=1.0", "sample_ratio=2"}},
                  {{"data: f32[2, 3, 8, 9]", "rois: f32[4, =5] in 0..7", "pooled_size=2",
                    "spatial_scale=0.5", "aligned=True"}},
                  {{"data: f32[2, 3, 8, 9]", "rois: f32[4, =5] in 0..7", "pooled_size=2",
                    "spatial_scale=1.0", "mode='max'"}},
                  {{"data: f32[2, 8, 9, 3]", "rois: f32[4, =5] in 0..7", "pooled_size=[3, 2]",
                    "spatial_scale=0.5", "layout='NHWC'"}}},
      .type = [](TypeCtx& ctx, const Roi& a) { return InferRoi(ctx, a, true); },
      .compute = [](const ComputeArgs& in,
                    const Roi& a) { return ComputeRoi<AlignBody>(in, a, "roi_align"); },
      .complete = SpreadSize,
      .layout = ImageLayout({"NCHW", "NHWC"}),
      .exceptions = {std::begin(kSmall), std::end(kSmall)},
  });
}

OpDef vision_roi_pool() {
  return Define<Roi>({
      .name = "vision.roi_pool",
      .doc = "Regions of images, each cell its greatest element.",
      .args = {kData, kRois},
      .attrs = {{"pooled_size", &Roi::pooled_size, "Cells along height and width.", true},
                {"spatial_scale", &Roi::spatial_scale, "Factor of the corners.", true},
                {"layout", &Roi::layout, "'NCHW'."}},
      .reference = "out = roi_pool(data, rois, pooled_size, spatial_scale)",
      .samples = {{{"data: f32[2, 3, 8, 9]", "rois: f32[4, =5] in 0..7", "pooled_size=[3, 2]",
                    "spatial_scale=1.0"}},
                  {{"data: f32[2, 3, 8, 9]", "rois: f32[4, =5] in 0..9", "pooled_size=2",
                    "spatial_scale=0.5"}}},
      .type = [](TypeCtx& ctx, const Roi& a) { return InferRoi(ctx, a, false); },
      .compute = [](const ComputeArgs& in,
                    const Roi& a) { return ComputeRoi<PoolBody>(in, a, "roi_pool"); },
      .complete = SpreadSize,
      .exceptions = {std::begin(kSmall), std::end(kSmall)},
  });
}

}  // namespace relaxvm::ops
