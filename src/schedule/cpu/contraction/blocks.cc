// SPDX-License-Identifier: Apache-2.0
// Sums that go by blocks: block after block of the sum is added to the sums of a chunk of rows
// times a group of panels of B, so that what is read again lies in the second cache.
#include <algorithm>

#include "schedule/cpu/contraction/emitter.h"
#include "schedule/cpu/loads.h"

namespace relaxvm::schedule::cpu {
namespace {

using tir::ForKind;
using tir::SeqStmt;

// Sums that go by blocks: a task has up to so many tiles of rows and panels of B, and a block at
// least so many steps of the sum.
constexpr int64_t kMostTilesOfBlocks = 32, kMostPanelsOfBlocks = 8, kFewestStepsOfBlock = 256;
// Where so many rows of A with the whole sum fit into half of the second cache, B may come from
// behind it for each of them: from the third cache, from memory.
constexpr int64_t kRowsForCache = 32, kRowsForMemory = 256;

}  // namespace

void ContractionEmitter::ChooseTasksOfBlocks() {
  const DLDataType type = Buffer(c_.LoadOf(c_.a)->buffer).elem_dtype();
  const int64_t bytes_of_tile = rows_ * StepsOfBlock() * c_.group * SizeInBytes(type);
  most_tiles_ = std::clamp<int64_t>(machine_.l2_bytes / 2 / bytes_of_tile, 1, kMostTilesOfBlocks);
  if (const auto known = ir::AsInt(num_tiles_)) most_tiles_ = std::min(most_tiles_, *known);
  const int64_t bytes_of_sums = most_tiles_ * rows_ * width_ * SizeInBytes(c_.acc);
  most_panels_ = std::clamp<int64_t>(machine_.l2_bytes / 4 / bytes_of_sums, 1, kMostPanelsOfBlocks);
  walked_.extent = panels_;
  if (ir::IsIntValue(panels_, 1) && !c_.outer_b.empty()) {
    walked_ = c_.outer_b.back();
    c_.outer_b.pop_back();
    walks_outside_ = true;
  }
  const Expr tasks = kTasksPerThread * std::max<int64_t>(machine_.num_cores, kFewestThreads);
  // Rows are spread evenly over the tasks.
  const Expr chunks = ir::Max(ir::CeilDiv(num_tiles_, most_tiles_), 1);
  per_task_ = Named("tiles_of_task", ir::CeilDiv(num_tiles_, chunks));
  // One tile of rows has no use of a group, and reads B as it lies in memory.
  const Expr all = walked_.extent * chunks * NumPoints(c_.OuterOfB()) * NumPoints(c_.outer_a);
  const Expr group = ir::Max(ir::Min(ir::FloorDiv(all, tasks), most_panels_), 1);
  panels_of_task_ =
      Named("panels_of_task", ir::Select(ir::LessEqual(num_tiles_, 1), Expr(1), group));
}

Stmt ContractionEmitter::ZeroSums(const Buffer& sums, const Expr& begin, const Expr& rows) const {
  Var vector("vector", Int(64)), lane("lane", Int(64));
  const Expr to = begin + vector * Expr(lanes_) + lane;
  return Loop(vector, rows * Expr(width_ / lanes_), ForKind::kSerial,
              tir::For(lane, 0, lanes_, ForKind::kVectorized,
                       tir::BufferStore(sums, ir::Const(c_.acc, 0), {to})));
}

std::optional<PartOfNext> ContractionEmitter::PartOfBlock(const Expr& panel, const Expr& block,
                                                          const Expr& tiles) {
  ffi::Map<Var, Expr> map = BeginOf(block);
  map.Set(walks_outside_ ? walked_.var : c_.panel, panel);
  return PartOf(map, StepsOfBlock(), tiles);
}

int64_t ContractionEmitter::StepsOfBlock() const {
  int64_t steps = depth_blocks_->even;
  for (size_t i = depth_blocks_->axis + 1; i < c_.stage.reduce.size(); ++i)
    steps *= ir::AsInt(c_.stage.reduce[i].extent).value();
  return steps;
}

ffi::Map<Var, Expr> ContractionEmitter::BeginOf(const Expr& block) const {
  const auto& [axis, even, count, all] = *depth_blocks_;
  ffi::Map<Var, Expr> map;
  map.Set(c_.stage.reduce[axis].var, ir::FloorMod(block, count) * Expr(even));
  Expr rest = ir::FloorDiv(block, count);
  for (size_t i = axis; i-- > 0; rest = ir::FloorDiv(rest, c_.stage.reduce[i].extent))
    map.Set(c_.stage.reduce[i].var, ir::FloorMod(rest, c_.stage.reduce[i].extent));
  return map;
}

void ContractionEmitter::CopyRows(ffi::Array<Stmt>* seq) {
  const auto* load = c_.LoadOf(c_.a);
  if (c_.stage.reduce.size() != 1 || c_.group > 1 || c_.line_width > 0) return;
  const Axis inner = c_.stage.reduce.back();
  const auto linear = LinearOffset::Of(load->indices[0], {inner});
  if (!linear.has_value() || !ir::IsIntValue(linear->Coeff(inner.var), 1)) return;
  const auto& [axis, even, count, all] = *depth_blocks_;
  const std::vector<Axis> rows = RowsOfA();
  const Expr num_rows = analyzer_->Simplify(NumPoints(rows));
  rows_of_blocks_ = Buffer("rows", {analyzer_->Simplify(num_rows * Expr(even * count))},
                           Buffer(load->buffer).elem_dtype());
  Var block("block", Int(64)), vector("vector", Int(64)), lane("lane", Int(64)),
      from("from", Int(64)), to("to", Int(64));
  const int64_t depth = ir::AsInt(inner.extent).value(), last = depth - (count - 1) * even;
  ffi::Map<Var, Expr> map;
  auto store = [&](const Expr& at, const Expr& inside) {
    map.Set(inner.var, from + at + lane);
    Expr value = Buffer(load->buffer).Load({tir::Substitute(load->indices[0], map)});
    if (inside.defined()) value = PredicateLoads(value, lane, inside);
    return tir::For(lane, 0, lanes_, ForKind::kVectorized,
                    tir::BufferStore(*rows_of_blocks_, value, {to + at + lane}, inside));
  };
  auto copy = [&](int64_t steps) {
    ffi::Array<Stmt> runs = {
        Loop(vector, steps / lanes_, ForKind::kSerial, store(vector * Expr(lanes_), Expr()))};
    if (const int64_t rest = steps % lanes_; rest > 0)
      runs.push_back(store(steps - rest, ir::Less(lane, rest)));
    return SeqStmt::Flatten(runs);
  };
  Stmt each = copy(even);
  if (last < even) each = tir::IfThenElse(ir::Less(block, count - 1), each, copy(last));
  each =
      SeqStmt::Flatten({tir::Bind(from, block * Expr(even)),
                        tir::Bind(to, (block * num_rows + LinearIndex(rows)) * Expr(even)), each});
  seq->push_back(tir::AllocBuffer(*rows_of_blocks_));
  seq->push_back(OverTasks(rows, Loop(block, count, ForKind::kSerial, each),
                           analyzer_->Simplify(Expr(depth / lanes_)), analyzer_));
}

std::vector<Axis> ContractionEmitter::RowsOfA() const {
  std::vector<Axis> rows = c_.batch;
  rows.insert(rows.end(), c_.outer_a.begin(), c_.outer_a.end());
  rows.push_back(c_.row);
  return rows;
}

Contraction ContractionEmitter::OneBlock(const Var& block, ffi::Array<Stmt>* seq) const {
  Contraction c = c_;
  std::vector<Axis>& reduce = c.stage.reduce;
  const Axis whole = reduce[depth_blocks_->axis];
  const int64_t even = depth_blocks_->even;
  Var from("from", Int(64));
  reduce.erase(reduce.begin(), reduce.begin() + static_cast<std::ptrdiff_t>(depth_blocks_->axis));
  reduce.front() = {Var("in_block", Int(64)), even * depth_blocks_->count == ir::AsInt(whole.extent)
                                                  ? Expr(even)
                                                  : ir::Min(even, whole.extent - from)};
  ffi::Map<Var, Expr> map;
  for (const auto& [axis, begin] : BeginOf(block)) {
    const bool is_cut = axis.same_as(whole.var);
    const Var value = is_cut ? from : Var(axis->name, Int(64));
    seq->push_back(tir::Bind(value, analyzer_->Simplify(begin)));
    map.Set(axis, is_cut ? value + reduce.front().var : Expr(value));
  }
  c.a = tir::Substitute(c.a, map);
  c.b = tir::Substitute(c.b, map);
  if (c.guard.defined()) c.guard = tir::Substitute(c.guard, map);
  if (c.notes.has_value() && reduce.size() == 1) c.first_group = from;
  if (!rows_of_blocks_.has_value()) return c;
  const std::vector<Axis> rows = RowsOfA();
  const Expr row = block * analyzer_->Simplify(NumPoints(rows)) + LinearIndex(rows);
  LoadReplacer replacer;
  replacer.values.emplace_back(c.LoadOf(c.a),
                               rows_of_blocks_->Load({row * Expr(even) + reduce.front().var}));
  c.a = replacer.Mutate(c.a);
  c.fetch_depth = even;
  c.rows_follow = true;
  return c;
}

Stmt ContractionEmitter::OfBlocks(const Var& group, const Expr& chunk) {
  Var first("first_tile", Int(64)), tiles("num_tiles", Int(64)), start("first_row", Int(64)),
      rows("num_rows", Int(64)), block("block", Int(64)), at("at", Int(64)),
      here("num_panels", Int(64)), first_panel("first_panel", Int(64));
  ffi::Array<Stmt> seq = {
      tir::Bind(first, chunk * per_task_),
      tir::Bind(tiles, analyzer_->Simplify(ir::Min(per_task_, num_tiles_ - first))),
      tir::Bind(first_panel, group * panels_of_task_),
      tir::Bind(here, ir::Min(panels_of_task_, walked_.extent - first_panel))};
  const Heights heights = *heights_;
  seq.push_back(tir::Bind(start, heights.StartOf(first)));
  seq.push_back(tir::Bind(rows, EndOf(heights, first + tiles) - start));
  const int64_t size = most_tiles_ * rows_ * width_;
  Buffer sums("sums", {Expr(most_panels_ * size)}, c_.acc);
  seq.push_back(tir::AllocBuffer(sums));
  auto over_panels = [&](const Stmt& body) {
    return Loop(at, here, ForKind::kSerial,
                SeqStmt::Flatten({tir::Bind(walked_.var, first_panel + at), body}));
  };
  const Expr panel = walks_outside_ ? Expr(0) : Expr(walked_.var);
  TilePart part{panel,       start, 0, {}, Expr(), PartialSums{sums, start, at * Expr(size)},
                std::nullopt};
  seq.push_back(over_panels(ZeroSums(sums, at * Expr(size), rows)));
  ffi::Array<Stmt> of_block, of_panel;
  const Contraction c = OneBlock(block, &of_block);
  // After the last panel of the group the first one's next block follows, after the last block the
  // next group.
  Var is_last("is_last", Int(64)), next("next_panel", Int(64)), next_block("next_block", Int(64));
  part.next =
      PartOfBlock(next, next_block, ir::AsInt(per_task_).has_value() ? per_task_ : Expr(tiles));
  if (part.next.has_value()) {
    of_panel.push_back(
        tir::Bind(is_last, ir::Select(ir::Less(at + Expr(1), here), Expr(0), Expr(1))));
    const Expr again = ir::Select(ir::Less(block + Expr(1), depth_blocks_->all), here, Expr(0));
    of_panel.push_back(tir::Bind(next, walked_.var + Expr(1) - is_last * again));
    of_panel.push_back(tir::Bind(next_block, block + is_last));
  }
  const Contraction each =
      HasNarrowPanels() ? WithWidePanel(c, panel, StepsOfBlock(), &of_panel) : c;
  of_panel.push_back(OfPanel(panel, [&](const std::vector<Columns>& columns, const Expr& limit) {
    return ByTiles(columns, limit, [&](const std::vector<Columns>& some, const Expr& end) {
      TilePart tile = part;
      tile.columns = some;
      tile.limit = end;
      return Pass(each, tile, first, tiles, heights);
    });
  }));
  of_block.push_back(over_panels(SeqStmt::Flatten(of_panel)));
  seq.push_back(Loop(block, depth_blocks_->all, ForKind::kSerial, SeqStmt::Flatten(of_block)));
  seq.push_back(
      over_panels(OfPanel(panel, [&](const std::vector<Columns>& columns, const Expr& limit) {
        part.columns = columns;
        part.limit = limit;
        return EmitFinish(c_, width_, part, rows, machine_, analyzer_);
      })));
  return SeqStmt::Flatten(seq);
}

std::optional<ContractionEmitter::DepthBlocks> ContractionEmitter::ChooseDepthBlocks(
    const ffi::Optional<int64_t>& depth) const {
  // A guard leaves most steps out of most rows, and with them of a panel.
  if (depth.value_or(0) == 0 || c_.stage.reduce.empty() || ir::AsInt(num_tiles_).value_or(2) < 2 ||
      c_.side_by_side.has_value() || c_.guard.defined())
    return std::nullopt;
  const DLDataType type = HasNarrowPanels() ? c_.acc : Buffer(c_.LoadOf(c_.b)->buffer).elem_dtype();
  const int64_t size = SizeInBytes(type);
  const int64_t each_step = c_.GroupInB() * size * width_;
  int64_t bytes = depth.value() * each_step;
  if (bytes <= machine_.l2_bytes / 2 && !FewRowsStay(depth.value())) return std::nullopt;
  // Long blocks: sums are read and stored again for each.  A tile's rows of a block stay in the
  // first cache while panel after panel passes, a panel in a quarter of the second one.
  const DLDataType left = Buffer(c_.LoadOf(c_.a)->buffer).elem_dtype();
  const int64_t steps = machine_.l1_bytes * 3 / 4 / (rows_ * c_.group * SizeInBytes(left));
  const int64_t block =
      std::min<int64_t>(machine_.l2_bytes / 4, std::max(steps, kFewestStepsOfBlock) * each_step);
  size_t axis = 0;
  int64_t outside = 1;
  auto extent = [&](size_t i) { return ir::AsInt(c_.stage.reduce[i].extent).value(); };
  // The outermost axis whose steps fit is cut.
  for (; axis + 1 < c_.stage.reduce.size() && bytes / extent(axis) > 2 * block; ++axis) {
    bytes /= extent(axis);
    outside *= extent(axis);
  }
  const int64_t each = bytes / extent(axis);
  const int64_t most = std::max<int64_t>(1, block / std::max<int64_t>(each, 1));
  const int64_t blocks = (extent(axis) + most - 1) / most;
  int64_t even = (extent(axis) + blocks - 1) / blocks;
  if (c_.notes.has_value() && axis + 1 == c_.stage.reduce.size()) {
    const int64_t noted = c_.notes->block;  // blocks of the sum end with those of notes
    even = (even + noted - 1) / noted * noted;
  }
  const int64_t count = (extent(axis) + even - 1) / even;
  return DepthBlocks{axis, even, count, outside * count};
}

bool ContractionEmitter::FewRowsStay(int64_t depth) const {
  if (c_.stage.reduce.size() != 1) return false;
  const DLDataType type = Buffer(c_.LoadOf(c_.a)->buffer).elem_dtype();
  const int64_t stay = machine_.l2_bytes / 2 / (depth * c_.group * SizeInBytes(type));
  const auto rows = ir::AsInt(analyzer_->Simplify(c_.row.extent * NumPoints(c_.outer_a)));
  if (rows.has_value() && *rows <= stay) return false;
  const int64_t bytes = BytesOfB(Expr(depth));
  const bool from_memory = bytes > machine_.l3_bytes / 4;
  return bytes > machine_.l2_bytes / 2 && stay < (from_memory ? kRowsForMemory : kRowsForCache);
}

}  // namespace relaxvm::schedule::cpu
