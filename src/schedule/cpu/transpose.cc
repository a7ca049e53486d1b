// SPDX-License-Identifier: Apache-2.0
// EmitTranspose: an elementwise stage that reads along one axis and writes along another.
//
// Tiles of lanes x lanes elements are read by rows, turned round in registers and stored by rows of
// the result, so that both sides touch whole cache lines.  Tiles go by blocks of 64 KiB: inside,
// neighbours in the result follow each other, so that memory is written by runs of several lines;
// while a block is turned round, the next one is fetched in the order of memory.  What is written
// past the caches goes by blocks of a quarter of the second cache; by narrower ones where the first
// cache has room for more than 32 KiB: of a sixteenth of the second cache, or of 32 KiB on a core
// that gains from fetching into the first one.  Where a vector is less than a cache line
// and rows of the operand fall into few sets of the caches (their bytes are a multiple of a large
// power of two), a block is turned round in memory of its own, from where it goes to the result row
// by row, while the next block is fetched.
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
// Rows that are a multiple of this many bytes long fall into four of 64 sets, or fewer.
constexpr int64_t kSharedSets = 1024;
constexpr int64_t kStreamBytes = 32;  // shorter vectors do not fill a line soon enough

class TransposeEmitter {
 public:
  TransposeEmitter(const Stage& stage, bool past_caches, const Machine& traits,
                   arith::Analyzer* analyzer)
      : stage_(stage),
        block_(past_caches ? PastCaches(traits) : kPlain),
        analyzer_(analyzer),
        lanes_(std::min(kMaxLanes, traits.Lanes(ElemBytes(stage)))),
        past_caches_(past_caches) {}

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
    if (turned_.empty()) return false;
    by_copy_ = past_caches_ && lanes_ * ElemBytes(stage_) < kLineBytes && RowsShareSets();
    if (by_copy_) block_ = kPlain;
    return true;
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
    const Place place{first_to, first_from};
    if (by_copy_) {
      // Columns of the block do not begin a power of two apart.
      pitch_ = block_to + kLineBytes / bytes;
      copy_ = Buffer("block", {Expr(block_.from * pitch_)}, (*stage_.out).elem_dtype(), "global");
      copied_ = place;
    }
    Stmt body = Tile(to, from, /*edge=*/false);
    const Expr to_fits = ir::LessEqual(to + Expr(lanes_), to_.extent);
    const Expr from_fits = ir::LessEqual(from + Expr(lanes_), from_.extent);
    const bool to_divides = Divides(to_), from_divides = Divides(from_);
    if (!to_divides || !from_divides) {
      Expr fits = to_divides ? from_fits : from_divides ? to_fits : ir::And(to_fits, from_fits);
      body = tir::IfThenElse(fits, body, Tile(to, from, /*edge=*/true));
    }
    const Expr tiles_to = TilesOf(to_, first_to, block_to),
               tiles_from = TilesOf(from_, first_from, block_.from);
    RowForm form;
    for (const Axis& axis : stage_.spatial) {
      if (!axis.var.same_as(to_.var) && !axis.var.same_as(from_.var)) form.rows.push_back(axis);
    }
    if (by_copy_) {
      // Rows of the operand are read as they lie, block after block.
      body = Loop(tile_from, tiles_from, ForKind::kSerial, body);
      body = Loop(tile_to, tiles_to, ForKind::kSerial, body);
      form.body = SeqStmt::Flatten(
          ffi::Array<Stmt>{tir::AllocBuffer(*copy_), body, StoreCopy(tiles_to, block_to)});
      form.rows.push_back(rows_to);
      form.rows.push_back(rows_from);
    } else {
      body = Loop(tile_to, tiles_to, ForKind::kSerial, body);
      const Expr number = tile_from * Expr(block_to / lanes_) + tile_to;
      const int64_t num_tiles = (block_to / lanes_) * (block_.from / lanes_);
      body = FetchingNext(body, place, number, num_tiles, block_to);
      form.body = Loop(tile_from, tiles_from, ForKind::kSerial, body);
      form.rows.push_back(rows_from);
      form.rows.push_back(rows_to);
    }
    form.work = ir::Min(from_.extent, block_.from) * ir::Min(to_.extent, Expr(block_to)) *
                Expr(CostOf(stage_.value) + 1);
    form.streams = lanes_ * bytes >= kStreamBytes;
    return form;
  }

 private:
  static BlockShape PastCaches(const Machine& traits) {
    const bool has_room = traits.l1_bytes > kNearBytes;
    if (has_room && traits.fetch_ahead > 0) return kNear;
    BlockShape block = kPlain;
    if (has_room) block.run_bytes = kNear.run_bytes;
    block.from = std::max(block.from, traits.l2_bytes / (has_room ? 16 : 4) / block.run_bytes);
    return block;
  }

  // The block that lies turned round in memory of its own goes to the result, row by row.
  Stmt StoreCopy(const Expr& tiles_to, int64_t block_to) const {
    Var row("row", Int(64)), tile("tile_to", Int(64)), lane("lane", Int(64));
    const Expr in_row = tile * Expr(lanes_) + lane;
    ffi::Map<Var, Expr> map;
    map.Set(to_.var, copied_.first_to + in_row);
    map.Set(from_.var, copied_.first_from + row);
    Expr predicate;
    if (!Divides(to_)) predicate = ir::Less(in_row, to_.extent - copied_.first_to);
    const Stmt store = For(lane, 0, lanes_, ForKind::kVectorized,
                           BufferStore(*stage_.out, copy_->Load({row * Expr(pitch_) + in_row}),
                                       {tir::Substitute(stage_.indices[0], map)}, predicate));
    const Expr rows = analyzer_->Simplify(ir::Min(block_.from, from_.extent - copied_.first_from));
    const Stmt tiles = Loop(tile, tiles_to, ForKind::kSerial, store);
    return FetchingNext(Loop(row, rows, ForKind::kSerial, tiles), copied_, row, block_.from,
                        block_to);
  }

  // Do rows of the operand, as far as is known, fall into few sets of the caches?
  bool RowsShareSets() const {
    auto linear = LinearOffset::Of(turned_.front()->indices[0], {Axis{to_.var, Expr(1)}});
    if (!linear.has_value()) return true;
    const auto step = ir::AsInt(analyzer_->Simplify(linear->Coeff(to_.var)));
    return !step.has_value() || *step * ElemBytes(stage_) % kSharedSets == 0;
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

  struct Place {  // of a block
    Expr first_to, first_from;
  };
  // Where the block begins that comes after this one: below in the same columns, or at the top of
  // the next ones; by copy to the right in the same rows.
  Place Next(const Place& place, int64_t block_to) const {
    if (by_copy_) {
      const Expr right = place.first_from + block_.from;
      const Expr last = ir::GreaterEqual(right, from_.extent);
      return {ir::Select(last, place.first_to + Expr(block_to), place.first_to),
              ir::Select(last, Expr(0), right)};
    }
    const Expr below = place.first_to + Expr(block_to);
    const Expr last = ir::GreaterEqual(below, to_.extent);
    return {ir::Select(last, Expr(0), below),
            ir::Select(last, place.first_from + block_.from, place.first_from)};
  }

  // `body` is a loop of which iteration `number` of `count` in a block fetches some lines of the
  // next block: all of them by the last one.
  Stmt FetchingNext(const Stmt& body, const Place& place, const Expr& number, int64_t count,
                    int64_t block_to) const {
    const auto* loop = body.as<ForObj>();
    if (loop == nullptr) return body;
    const int64_t line = std::max<int64_t>(1, kLineBytes / ElemBytes(stage_));
    const int64_t per_row = block_.from / line;
    const int64_t lines = std::max<int64_t>(1, block_to * per_row / count);
    if (per_row % lines != 0) return body;
    const Place next = Next(place, block_to);
    ffi::Map<Var, Expr> map;
    map.Set(to_.var, next.first_to + ir::FloorDiv(number, per_row / lines));
    map.Set(from_.var,
            next.first_from + ir::FloorMod(number, per_row / lines) * Expr(lines * line));
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
      Buffer out = *stage_.out;
      Expr index = tir::Substitute(stage_.indices[0], map);
      if (by_copy_) {
        out = *copy_;
        index =
            (from + Expr(row) - copied_.first_from) * Expr(pitch_) + (to + lane - copied_.first_to);
        predicate = Expr();  // there is room for all of a tile
      }
      Stmt store =
          For(lane, 0, lanes_, ForKind::kVectorized, BufferStore(out, value, {index}, predicate));
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
  BlockShape block_;
  arith::Analyzer* analyzer_;
  int64_t lanes_;
  const bool past_caches_;
  bool by_copy_ = false;
  // With `by_copy_`: the block, turned round; elements from a row of it to the next; whence it is.
  std::optional<Buffer> copy_;
  int64_t pitch_ = 0;
  Place copied_;
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
