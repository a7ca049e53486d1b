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
  TransposeEmitter(const Stage& stage, const Expr& past_caches, const Machine& traits,
                   arith::Analyzer* analyzer)
      : stage_(stage),
        past_caches_(past_caches),
        analyzer_(analyzer),
        lanes_(std::min(kMaxLanes, traits.Lanes(ElemBytes(stage)))) {
    if (!ir::IsIntValue(past_caches, 0)) shapes_.push_back(PastCaches(traits));
    if (!ir::IsIntValue(past_caches, 1)) shapes_.push_back(kPlain);
  }

  // Finds the axes that are walked by reads and by writes; false when there are none.
  bool Find() {
    if (stage_.combine != Combine::kNone || lanes_ < 4 || stage_.spatial.size() < 2) return false;
    LoadCollector loads;
    loads.Visit(stage_.value);
    const Axis* to = nullptr;
    for (const Axis& axis : stage_.spatial) {
      if (WalksAlong(stage_.indices[0], axis)) to = &axis;
    }
    if (to == nullptr) return false;
    const Axis* from = nullptr;
    for (const BufferLoad& load : loads.always) {
      if (WalksAlong(load->indices[0], *to)) continue;
      for (const Axis& axis : stage_.spatial) {
        if (!axis.var.same_as(to->var) && WalksAlong(load->indices[0], axis)) from = &axis;
      }
    }
    if (from == nullptr || !LongEnough(*to) || !LongEnough(*from)) return false;
    for (const auto* list : {&loads.always, &loads.sometimes}) {
      for (const BufferLoad& load : *list) {
        const Expr& offset = load->indices[0];
        if (!UsesVar(offset, to->var) || WalksAlong(offset, *to)) continue;
        if (list == &loads.sometimes || !WalksAlong(offset, *from)) return false;
        if (SizeInBytes(load.dtype()) * 8 != load.dtype().bits) return false;
        turned_.push_back(load);
      }
    }
    to_ = *to;
    from_ = *from;
    if (turned_.empty()) return false;
    by_copy_ = !ir::IsIntValue(past_caches_, 0) && lanes_ * ElemBytes(stage_) < kLineBytes &&
               RowsShareSets();
    if (by_copy_) shapes_.front() = kPlain;
    // What is turned round in memory, or fetched into another cache, has code of its own.
    return shapes_.size() == 1 || (!by_copy_ && shapes_[0].prefetch == shapes_[1].prefetch);
  }

  // One block.
  RowForm Run() {
    const int64_t bytes = ElemBytes(stage_);
    const Axis rows_to{Var("block_to", Int(64)), OfBlock([&](const BlockShape& block) {
                         return ir::CeilDiv(to_.extent, To(block));
                       })};
    const Axis rows_from{Var("block_from", Int(64)), OfBlock([&](const BlockShape& block) {
                           return ir::CeilDiv(from_.extent, block.from);
                         })};
    const Expr block_to = OfBlock([&](const BlockShape& block) { return Expr(To(block)); });
    const Expr block_from = OfBlock([](const BlockShape& block) { return Expr(block.from); });
    const Expr first_to = rows_to.var * block_to, first_from = rows_from.var * block_from;
    Var tile_to("tile_to", Int(64)), tile_from("tile_from", Int(64));
    const Expr to = first_to + tile_to * Expr(lanes_), from = first_from + tile_from * Expr(lanes_);
    const Place place{first_to, first_from};
    if (by_copy_) {
      // Columns of the block do not begin a power of two apart.
      pitch_ = To(kPlain) + kLineBytes / bytes;
      copy_ = Buffer("block", {Expr(kPlain.from * pitch_)}, (*stage_.out).elem_dtype(), "global");
      copied_ = place;
    }
    Stmt body = WholeTile(to, from);
    const Expr to_fits = ir::LessEqual(to + Expr(lanes_), to_.extent);
    const Expr from_fits = ir::LessEqual(from + Expr(lanes_), from_.extent);
    const bool to_divides = Divides(to_), from_divides = Divides(from_);
    if (!to_divides || !from_divides) {
      Expr fits = to_divides ? from_fits : from_divides ? to_fits : ir::And(to_fits, from_fits);
      body = tir::IfThenElse(fits, body, TileAtEdge(to, from));
    }
    const Expr tiles_to =
        OfBlock([&](const BlockShape& block) { return TilesOf(to_, first_to, To(block)); });
    const Expr tiles_from =
        OfBlock([&](const BlockShape& block) { return TilesOf(from_, first_from, block.from); });
    RowForm form;
    for (const Axis& axis : stage_.spatial) {
      if (!axis.var.same_as(to_.var) && !axis.var.same_as(from_.var)) form.rows.push_back(axis);
    }
    if (by_copy_) {
      // Rows of the operand are read as they lie, block after block.
      body = Loop(tile_from, tiles_from, ForKind::kSerial, body);
      body = Loop(tile_to, tiles_to, ForKind::kSerial, body);
      form.body =
          SeqStmt::Flatten(ffi::Array<Stmt>{tir::AllocBuffer(*copy_), body, StoreCopy(tiles_to)});
      form.rows.push_back(rows_to);
      form.rows.push_back(rows_from);
    } else {
      body = Loop(tile_to, tiles_to, ForKind::kSerial, body);
      body = FetchingNext(body, place, [&](const BlockShape& block) {
        const int64_t in_row = To(block) / lanes_;
        return Number{tile_from * Expr(in_row) + tile_to, in_row * (block.from / lanes_)};
      });
      form.body = Loop(tile_from, tiles_from, ForKind::kSerial, body);
      form.rows.push_back(rows_from);
      form.rows.push_back(rows_to);
    }
    form.work = OfBlock([&](const BlockShape& block) {
      return ir::Min(from_.extent, block.from) * ir::Min(to_.extent, To(block)) *
             Expr(CostOf(stage_.value) + 1);
    });
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

  int64_t To(const BlockShape& block) const {
    return std::max(lanes_, block.run_bytes / ElemBytes(stage_));
  }

  // What `of` says of the block's shape, which may be chosen at run time.
  Expr OfBlock(const std::function<Expr(const BlockShape&)>& of) const {
    const Expr first = analyzer_->Simplify(of(shapes_.front()));
    if (shapes_.size() == 1) return first;
    const Expr second = analyzer_->Simplify(of(shapes_.back()));
    if (analyzer_->ProveEqual(first, second)) return first;
    return ir::Select(past_caches_, first, second);
  }

  // The block that lies turned round in memory of its own goes to the result, row by row.
  Stmt StoreCopy(const Expr& tiles_to) const {
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
    const Expr rows = analyzer_->Simplify(ir::Min(kPlain.from, from_.extent - copied_.first_from));
    const Stmt tiles = For(tile, 0, tiles_to, ForKind::kSerial, store);
    const Stmt all = Loop(row, rows, ForKind::kSerial, Storing(tiles));
    return FetchingNext(all, copied_,
                        [&](const BlockShape& block) { return Number{row, block.from}; });
  }

  static Stmt Storing(const Stmt& loop) { return Annotated(loop.as<ForObj>(), kStores, 1); }

  // Do rows of the operand, as far as is known, fall into few sets of the caches?
  bool RowsShareSets() const {
    auto linear = LinearOffset::Of(turned_.front()->indices[0], {Axis{to_.var, Expr(1)}});
    if (!linear.has_value()) return true;
    const auto step = ir::AsInt(analyzer_->Simplify(linear->Coeff(to_.var)));
    return !step.has_value() || *step * ElemBytes(stage_) % kSharedSets == 0;
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
  Place Next(const Place& place, const BlockShape& block) const {
    if (by_copy_) {
      const Expr right = place.first_from + block.from;
      const Expr last = ir::GreaterEqual(right, from_.extent);
      return {ir::Select(last, place.first_to + Expr(To(block)), place.first_to),
              ir::Select(last, Expr(0), right)};
    }
    const Expr below = place.first_to + Expr(To(block));
    const Expr last = ir::GreaterEqual(below, to_.extent);
    return {ir::Select(last, Expr(0), below),
            ir::Select(last, place.first_from + block.from, place.first_from)};
  }

  struct Number {  // of an iteration in a block, and how many there are
    Expr value;
    int64_t count;
  };
  // `body` is a loop each iteration of which fetches some lines of the next block: all of them by
  // the last one.
  Stmt FetchingNext(const Stmt& body, const Place& place,
                    const std::function<Number(const BlockShape&)>& number) const {
    const auto* loop = body.as<ForObj>();
    if (loop == nullptr) return body;
    const int64_t line = std::max<int64_t>(1, kLineBytes / ElemBytes(stage_));
    auto per_row = [&](const BlockShape& block) { return block.from / line; };
    auto lines_of = [&](const BlockShape& block) {
      return std::max<int64_t>(1, To(block) * per_row(block) / number(block).count);
    };
    const int64_t lines = lines_of(shapes_.front());
    for (const BlockShape& block : shapes_) {
      if (lines_of(block) != lines || per_row(block) % lines != 0) return body;
    }
    ffi::Map<Var, Expr> map;
    map.Set(to_.var, OfBlock([&](const BlockShape& block) {
              const int64_t in_row = per_row(block) / lines;
              return Next(place, block).first_to + ir::FloorDiv(number(block).value, in_row);
            }));
    map.Set(from_.var, OfBlock([&](const BlockShape& block) {
              const int64_t in_row = per_row(block) / lines;
              return Next(place, block).first_from +
                     ir::FloorMod(number(block).value, in_row) * Expr(lines * line);
            }));
    Expr at = tir::Substitute(turned_.front()->indices[0], map);
    if (lines > 1) at = ir::RampExpr(at, line, lines);
    return Annotated(loop, shapes_.front().prefetch, Buffer(turned_.front()->buffer).Load({at}));
  }

  bool LongEnough(const Axis& axis) const {
    return ir::AsInt(axis.extent).value_or(lanes_) * 2 >= lanes_;
  }
  bool Divides(const Axis& axis) const {
    return analyzer_->ProveEqual(ir::FloorMod(axis.extent, lanes_), 0);
  }

  // Row `row` of a tile of the result; `inside`: the lanes that it has (null: all).
  Expr Value(const std::vector<Buffer>& tiles, const Expr& row, const Var& lane, const Expr& to,
             const Expr& from, const Expr& inside) const {
    LoadReplacer replacer;
    for (size_t i = 0; i < turned_.size(); ++i)
      replacer.values.emplace_back(turned_[i].get(), tiles[i].Load({row * Expr(lanes_) + lane}));
    const Expr value =
        tir::Substitute(replacer.Mutate(stage_.value), Coordinates(to + lane, from + row));
    return inside.defined() ? PredicateLoads(value, lane, inside) : value;
  }

  ffi::Map<Var, Expr> Coordinates(const Expr& to, const Expr& from) const {
    ffi::Map<Var, Expr> map;
    map.Set(to_.var, to);
    map.Set(from_.var, from);
    return map;
  }

  // Where row `row` of a tile goes.
  BufferStore StoreOf(const Expr& value, const Expr& row, const Expr& lane, const Expr& to,
                      const Expr& from, const Expr& inside) const {
    if (!by_copy_) {
      const Expr index = tir::Substitute(stage_.indices[0], Coordinates(to + lane, from + row));
      return BufferStore(*stage_.out, value, {index}, inside);
    }
    // There is room for all of a tile.
    const Expr column = to + lane - copied_.first_to;
    return BufferStore(*copy_, value, {(from + row - copied_.first_from) * Expr(pitch_) + column});
  }

  Buffer Square(const char* name, DLDataType type) const {
    return Buffer(name, {Expr(lanes_ * lanes_)}, type, "local");
  }

  Stmt WholeTile(const Expr& to, const Expr& from) const {
    ffi::Array<Stmt> seq;
    std::vector<Buffer> tiles;
    for (const BufferLoad& load : turned_) {
      tiles.push_back(Square("turned", load.dtype()));
      seq.push_back(tir::AllocBuffer(tiles.back()));
      for (int64_t row = 0; row < lanes_; ++row)
        seq.push_back(LoadRow(load, tiles.back(), Expr(row), to + Expr(row), from, Expr()));
      Turn(tiles.back(), &seq);
    }
    const Buffer done = Square("done", (*stage_.out).elem_dtype());
    seq.push_back(tir::AllocBuffer(done));
    ffi::Array<Stmt> stores;
    for (int64_t row = 0; row < lanes_; ++row) {
      Var lane("lane", Int(64)), same("lane", Int(64));
      const Expr value = Value(tiles, Expr(row), lane, to, from, Expr());
      seq.push_back(For(lane, 0, lanes_, ForKind::kVectorized,
                        BufferStore(done, value, {Expr(row * lanes_) + lane})));
      stores.push_back(
          For(same, 0, lanes_, ForKind::kVectorized,
              StoreOf(done.Load({Expr(row * lanes_) + same}), Expr(row), same, to, from, Expr())));
    }
    seq.push_back(
        Storing(For(Var("once", Int(64)), 0, 1, ForKind::kSerial, SeqStmt::Flatten(stores))));
    return SeqStmt::Flatten(seq);
  }

  // A tile of which there is a part: its rows come and go one after the other, which is little
  // code.
  Stmt TileAtEdge(const Expr& to, const Expr& from) const {
    ffi::Array<Stmt> seq;
    std::vector<Buffer> tiles;
    for (const BufferLoad& load : turned_) {
      tiles.push_back(Square("turned", load.dtype()));
      seq.push_back(tir::AllocBuffer(tiles.back()));
      Var row("row", Int(64));
      // Rows outside of the tensor read the last one; nothing of them is stored.
      const Expr at = Divides(to_) ? to + row : ir::Min(to + row, to_.extent - 1);
      const Expr limit = Divides(from_) ? Expr() : from_.extent - from;
      seq.push_back(
          For(row, 0, lanes_, ForKind::kSerial, LoadRow(load, tiles.back(), row, at, from, limit)));
      Turn(tiles.back(), &seq);
    }
    Var row("row", Int(64)), lane("lane", Int(64));
    const Expr inside = Divides(to_) ? Expr() : ir::Less(lane, to_.extent - to);
    const Stmt store =
        For(lane, 0, lanes_, ForKind::kVectorized,
            StoreOf(Value(tiles, row, lane, to, from, inside), row, lane, to, from, inside));
    const Expr rows = Divides(from_) ? Expr(lanes_) : ir::Min(lanes_, from_.extent - from);
    seq.push_back(Storing(For(row, 0, rows, ForKind::kSerial, store)));
    return SeqStmt::Flatten(seq);
  }

  // Row `row` of `tile`: what `load` reads at `to` from `from` on, of which there are `limit`
  // (null: enough).
  Stmt LoadRow(const BufferLoad& load, const Buffer& tile, const Expr& row, const Expr& to,
               const Expr& from, const Expr& limit) const {
    Var lane("lane", Int(64));
    Expr value = tir::Substitute(Expr(load), Coordinates(to, from + lane));
    if (limit.defined()) value = PredicateLoads(value, lane, ir::Less(lane, limit));
    return For(lane, 0, lanes_, ForKind::kVectorized,
               BufferStore(tile, value, {row * Expr(lanes_) + lane}));
  }

  void Turn(const Buffer& tile, ffi::Array<Stmt>* seq) const {
    std::vector<Expr> rows;
    for (int64_t row = 0; row < lanes_; ++row)
      rows.push_back(tile.Load({ir::RampExpr(Expr(row * lanes_), 1, lanes_)}));
    TurnInRegisters(&rows, SizeInBytes(tile.elem_dtype()), seq);
    for (int64_t row = 0; row < lanes_; ++row)
      seq->push_back(BufferStore(tile, rows[static_cast<size_t>(row)],
                                 {ir::RampExpr(Expr(row * lanes_), 1, lanes_)}));
  }

  const Stage& stage_;
  const Expr past_caches_;          // a condition
  std::vector<BlockShape> shapes_;  // where it holds, where it does not: those that may occur
  arith::Analyzer* analyzer_;
  int64_t lanes_;
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

std::optional<RowForm> EmitTranspose(const Stage& flat, const Expr& past_caches,
                                     const Machine& traits, arith::Analyzer* analyzer) {
  TransposeEmitter emitter(flat, past_caches, traits, analyzer);
  if (!emitter.Find()) return std::nullopt;
  return emitter.Run();
}

}  // namespace relaxvm::schedule::cpu
