// SPDX-License-Identifier: Apache-2.0
// EmitTranspose: an elementwise stage that reads along one axis and writes along another.
//
// Tiles of lanes x lanes elements are read by rows, turned round in registers and stored by rows of
// the result, so that both sides touch whole cache lines.  Tiles go by blocks of 64 KiB: inside,
// neighbours in the result follow each other, so that memory is written by runs of several lines;
// while a block is turned round, the next one is fetched in the order of memory.  What is written
// past the caches goes by narrower blocks of 32 KiB where the first cache has room for more than
// one, else by blocks of a quarter of the second cache.
//
// Turning round takes log2(lanes) steps of two-register shuffles.  First elements inside blocks of
// 128 bits (interleaving low and high halves, which every vector unit does in one instruction),
// then whole blocks (even and odd ones of two registers).
#include <algorithm>

#include "schedule/cpu/cpu.h"
#include "schedule/cpu/loads.h"

namespace relaxvm::schedule::cpu {
namespace {

using tir::BufferLoad;
using tir::BufferStore;
using tir::For;
using tir::ForKind;
using tir::ForObj;
using tir::SeqStmt;

constexpr int64_t kMaxLanes = 16;  // code grows with its square
// Bytes of a block in a row of the result, and elements of it in a row of the operand.
struct BlockShape {
  int64_t run_bytes, from;
  const char* prefetch;  // of the next block
};
constexpr BlockShape kPlain = {256, 256, kPrefetch}, kNear = {128, 256, kPrefetchNear};
constexpr int64_t kNearBytes = 32 << 10;
constexpr int64_t kStreamBytes = 32;  // shorter vectors do not fill a line soon enough

class TransposeEmitter {
 public:
  TransposeEmitter(const Stage& stage, bool past_caches, const Machine& traits,
                   arith::Analyzer* analyzer)
      : stage_(stage),
        block_(past_caches ? PastCaches(traits) : kPlain),
        analyzer_(analyzer),
        lanes_(std::min(kMaxLanes, traits.Lanes(ElemBytes(stage)))) {}

  // Finds the axes that are walked by reads and by writes; false when there are none.
  bool Find() {
    if (stage_.combine != Combine::kNone || lanes_ < 4 || stage_.spatial.size() < 2) return false;
    LoadCollector loads;
    loads.Visit(stage_.value);
    const Axis* to = nullptr;
    for (const Axis& axis : stage_.spatial) {
      if (StepOf(stage_.indices[0], axis.var) == 1) to = &axis;
    }
    if (to == nullptr) return false;
    const Axis* from = nullptr;
    for (const BufferLoad& load : loads.always) {
      if (StepOf(load->indices[0], to->var) == 1) continue;
      for (const Axis& axis : stage_.spatial) {
        if (!axis.var.same_as(to->var) && StepOf(load->indices[0], axis.var) == 1) from = &axis;
      }
    }
    if (from == nullptr || !LongEnough(*to) || !LongEnough(*from)) return false;
    for (const auto* list : {&loads.always, &loads.sometimes}) {
      for (const BufferLoad& load : *list) {
        const int64_t step = StepOf(load->indices[0], to->var);
        if (step == 0 || step == 1) continue;
        if (list == &loads.sometimes || StepOf(load->indices[0], from->var) != 1) return false;
        if (SizeInBytes(load.dtype()) * 8 != load.dtype().bits) return false;
        turned_.push_back(load);
      }
    }
    to_ = *to;
    from_ = *from;
    return !turned_.empty();
  }

  // One block.
  RowForm Run() {
    const int64_t bytes = ElemBytes(stage_);
    const int64_t block_to = std::max(lanes_, block_.run_bytes / bytes);
    const Axis rows_to = Blocks("block_to", to_, block_to);
    const Axis rows_from = Blocks("block_from", from_, block_.from);
    const Expr first_to = rows_to.var * Expr(block_to), first_from = rows_from.var * block_.from;
    Var tile_to("tile_to", Int(64)), tile_from("tile_from", Int(64));
    const Expr to = first_to + tile_to * Expr(lanes_), from = first_from + tile_from * Expr(lanes_);
    Stmt body = Tile(to, from, /*edge=*/false);
    const Expr to_fits = ir::LessEqual(to + Expr(lanes_), to_.extent);
    const Expr from_fits = ir::LessEqual(from + Expr(lanes_), from_.extent);
    const bool to_divides = Divides(to_), from_divides = Divides(from_);
    if (!to_divides || !from_divides) {
      Expr fits = to_divides ? from_fits : from_divides ? to_fits : ir::And(to_fits, from_fits);
      body = tir::IfThenElse(fits, body, Tile(to, from, /*edge=*/true));
    }
    body = Loop(tile_to, TilesOf(to_, first_to, block_to), ForKind::kSerial, body);
    const Expr number = tile_from * Expr(block_to / lanes_) + tile_to;
    body = FetchingNext(body, {first_to, first_from, number}, block_to, bytes);
    RowForm form;
    form.body = Loop(tile_from, TilesOf(from_, first_from, block_.from), ForKind::kSerial, body);
    for (const Axis& axis : stage_.spatial) {
      if (!axis.var.same_as(to_.var) && !axis.var.same_as(from_.var)) form.rows.push_back(axis);
    }
    form.rows.push_back(rows_from);
    form.rows.push_back(rows_to);
    form.work = ir::Min(from_.extent, block_.from) * ir::Min(to_.extent, Expr(block_to)) *
                Expr(CostOf(stage_.value) + 1);
    form.streams = lanes_ * bytes >= kStreamBytes;
    return form;
  }

 private:
  static BlockShape PastCaches(const Machine& traits) {
    if (traits.l1_bytes > kNearBytes) return kNear;
    BlockShape block = kPlain;
    block.from = std::max(block.from, traits.l2_bytes / 4 / block.run_bytes);
    return block;
  }

  // 1, 0, or 2 for anything else.
  int64_t StepOf(const Expr& offset, const Var& axis) const {
    if (!UsesVar(offset, axis)) return 0;
    auto linear = LinearOffset::Of(offset, {Axis{axis, Expr(1)}});
    return linear.has_value() && ir::IsIntValue(analyzer_->Simplify(linear->Coeff(axis)), 1) ? 1
                                                                                             : 2;
  }

  Axis Blocks(const char* name, const Axis& axis, int64_t elems) const {
    return {Var(name, Int(64)), analyzer_->Simplify(ir::CeilDiv(axis.extent, Expr(elems)))};
  }
  // Tiles along `axis` in the block that begins at `first`.
  Expr TilesOf(const Axis& axis, const Expr& first, int64_t elems) const {
    if (auto extent = ir::AsInt(axis.extent); extent.has_value() && extent.value() <= elems)
      return Expr((extent.value() + lanes_ - 1) / lanes_);
    if (analyzer_->ProveEqual(ir::FloorMod(axis.extent, elems), 0)) return Expr(elems / lanes_);
    return ir::Min(elems / lanes_, ir::CeilDiv(axis.extent - first, Expr(lanes_)));
  }

  // A tile of a block, by its number in it.
  struct Place {
    Expr first_to, first_from, number;
  };
  // With each tile (of the loop `tiles`) some lines of the next block are fetched: all of them by
  // the last tile.
  Stmt FetchingNext(const Stmt& tiles, const Place& place, int64_t block_to, int64_t bytes) const {
    const auto* loop = tiles.as<ForObj>();
    if (loop == nullptr) return tiles;
    const int64_t line = std::max<int64_t>(1, kLineBytes / bytes), per_row = block_.from / line;
    const int64_t num_tiles = (block_to / lanes_) * (block_.from / lanes_);
    const int64_t lines = std::max<int64_t>(1, block_to * per_row / num_tiles);
    if (per_row % lines != 0) return tiles;
    const Expr row = ir::FloorDiv(place.number, per_row / lines);
    const Expr in_row = ir::FloorMod(place.number, per_row / lines) * Expr(lines * line);
    // Below in the same columns, or at the top of the next ones.
    const Expr below = place.first_to + Expr(block_to);
    const Expr last = ir::GreaterEqual(below, to_.extent);
    ffi::Map<Var, Expr> map;
    map.Set(to_.var, ir::Select(last, Expr(0), below) + row);
    map.Set(from_.var, ir::Select(last, place.first_from + block_.from, place.first_from) + in_row);
    Expr at = tir::Substitute(turned_.front()->indices[0], map);
    if (lines > 1) at = ir::RampExpr(at, line, lines);
    return Annotated(loop, block_.prefetch, Buffer(turned_.front()->buffer).Load({at}));
  }

  bool LongEnough(const Axis& axis) const {
    return ir::AsInt(axis.extent).value_or(lanes_) * 2 >= lanes_;
  }
  bool Divides(const Axis& axis) const {
    return analyzer_->ProveEqual(ir::FloorMod(axis.extent, lanes_), 0);
  }

  Stmt Tile(const Expr& to, const Expr& from, bool edge) {
    ffi::Array<Stmt> seq;
    LoadReplacer replacer;
    std::vector<Buffer> tiles;
    for (const BufferLoad& load : turned_) {
      Buffer tile("turned", {Expr(lanes_ * lanes_)}, load.dtype(), "local");
      seq.push_back(tir::AllocBuffer(tile));
      Turn(load, tile, to, from, edge, &seq);
      tiles.push_back(tile);
    }
    for (int64_t row = 0; row < lanes_; ++row) {
      Var lane("lane", Int(64));
      replacer.values.clear();
      for (size_t i = 0; i < turned_.size(); ++i) {
        replacer.values.emplace_back(turned_[i].get(), tiles[i].Load({Expr(row * lanes_) + lane}));
      }
      ffi::Map<Var, Expr> map;
      map.Set(to_.var, to + lane);
      map.Set(from_.var, from + Expr(row));
      Expr value = replacer.Mutate(stage_.value), predicate;
      value = tir::Substitute(value, map);
      if (edge) {
        predicate = ir::Less(lane, to_.extent - to);
        value = PredicateLoads(value, lane, predicate);
      }
      Stmt store = For(
          lane, 0, lanes_, ForKind::kVectorized,
          BufferStore(*stage_.out, value, {tir::Substitute(stage_.indices[0], map)}, predicate));
      if (edge) store = tir::IfThenElse(ir::Less(from + Expr(row), from_.extent), store);
      seq.push_back(store);
    }
    return SeqStmt::Flatten(seq);
  }

  // Fills `tile` with the loaded square, turned round.
  void Turn(const BufferLoad& load, const Buffer& tile, const Expr& to, const Expr& from, bool edge,
            ffi::Array<Stmt>* seq) const {
    std::vector<Expr> rows;
    for (int64_t row = 0; row < lanes_; ++row) {
      Var lane("lane", Int(64));
      ffi::Map<Var, Expr> map;
      // Rows outside of the tensor read the last one; nothing of them is stored.
      map.Set(to_.var, edge ? ir::Min(to + Expr(row), to_.extent - 1) : to + Expr(row));
      map.Set(from_.var, from + lane);
      Expr value = tir::Substitute(Expr(load), map);
      if (edge) value = PredicateLoads(value, lane, ir::Less(lane, from_.extent - from));
      seq->push_back(For(lane, 0, lanes_, ForKind::kVectorized,
                         BufferStore(tile, value, {Expr(row * lanes_) + lane})));
    }
    for (int64_t row = 0; row < lanes_; ++row) {
      rows.push_back(tile.Load({ir::RampExpr(Expr(row * lanes_), 1, lanes_)}));
    }
    TurnInRegisters(&rows, SizeInBytes(load.dtype()), seq);
    for (int64_t row = 0; row < lanes_; ++row) {
      seq->push_back(BufferStore(tile, rows[row], {ir::RampExpr(Expr(row * lanes_), 1, lanes_)}));
    }
  }

  const Stage& stage_;
  const BlockShape block_;
  arith::Analyzer* analyzer_;
  int64_t lanes_;
  Axis to_{Var("to", Int(64)), Expr(1)};
  Axis from_{Var("from", Int(64)), Expr(1)};
  std::vector<BufferLoad> turned_;
};

}  // namespace

std::optional<RowForm> EmitTranspose(const Stage& flat, bool past_caches, const Machine& traits,
                                     arith::Analyzer* analyzer) {
  TransposeEmitter emitter(flat, past_caches, traits, analyzer);
  if (!emitter.Find()) return std::nullopt;
  return emitter.Run();
}

}  // namespace relaxvm::schedule::cpu
