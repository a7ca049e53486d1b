// SPDX-License-Identifier: Apache-2.0
// EmitWindow: a reduction with another axis along the lanes (depthwise convolutions, pooling, sums
// over rows).
//
// Several neighbours of a third axis are computed together when they share loads: a depthwise
// filter is read once for four to eight pixels, and what two pixels' windows have in common as
// well, because the innermost axis of the window is unrolled.  Padding is not tested element by
// element: loops over the window are cut to what lies inside, and along the neighbours' axis only
// the tiles at the edges choose, for each of their sums, whether an element counts.
#include <algorithm>

#include "schedule/cpu/cpu.h"

namespace relaxvm::schedule::cpu {
namespace {

using ir::BinaryObj;
using ir::BinaryOp;
using ir::Intrin;
using ir::IntrinObj;
using tir::BufferLoadObj;
using tir::BufferStore;
using tir::For;
using tir::ForKind;
using tir::SeqStmt;

constexpr int64_t kNeighbours = 4;
constexpr int64_t kSums = 8;         // at once: as many as multiply-adds are under way, or one less
constexpr int64_t kMaxUnrolled = 8;  // of the window's innermost axis

// The window's axis number `axis` runs from `least` on, or up to `end`: formulas of the spatial
// axes; one of the two is null.  All of the axis is inside where `whole` is at least 0, an element
// of it where `condition` holds.
struct Bound {
  size_t axis;
  Expr least;
  Expr end;
  Expr whole;
  Expr condition;
};

// Removes conditions that choose between a value and one that adds nothing, and remembers them.
class ConditionStripper : public tir::StmtMutator {
 public:
  ConditionStripper(const Stage& stage, const Var& vector) : stage_(stage), vector_(vector) {}
  std::vector<Expr> conditions;

  Expr Strip(const Expr& e) {
    if (const auto* choice = e.as<IntrinObj>();
        choice != nullptr && choice->intrin == Intrin::kIfThenElse &&
        !UsesVar(choice->args[0], vector_) && AddsNothing(choice->args[2])) {
      conditions.push_back(choice->args[0]);
      return Strip(choice->args[1]);
    }
    if (const auto* cast = e.as<ir::CastObj>(); cast != nullptr && stage_.combine == Combine::kSum)
      return ir::Cast(e.dtype(), Strip(cast->value));
    // 0 * w is 0: what the padding is multiplied with does not matter.
    if (const auto* product = e.as<BinaryObj>();
        product != nullptr && product->op == BinaryOp::kMul && stage_.combine == Combine::kSum)
      return ir::Mul(Strip(product->a), Strip(product->b));
    return e;
  }

 private:
  bool AddsNothing(const Expr& e) const {
    if (stage_.combine == Combine::kSum) {
      const auto* number = e.as<ir::FloatImmObj>();
      return ir::IsIntValue(e, 0) || (number != nullptr && number->value == 0);
    }
    return ir::StructuralEqual(e, stage_.identity);
  }

  const Stage& stage_;
  const Var& vector_;
};

// Reads that depend on `near` go to another column, which exists, where theirs is not `inside`:
// what is read there is not used.  Reads without lanes would do, but next to an unmapped page these
// take the machine hundreds of cycles.
class EdgeReader : public tir::StmtMutator {
 public:
  // What the index of a read takes from `near` and the axis `tap` of the window, as factors.
  struct Column {
    Axis near;
    Axis tap;
    Expr existing;  // a place along `near` where all taps are inside
  };
  EdgeReader(const Column& column, const Expr& inside, const ffi::Map<Var, Expr>& map,
             arith::Analyzer* analyzer)
      : column_(column), inside_(inside), map_(map), analyzer_(analyzer) {}

  Expr MutateBufferLoad(const tir::BufferLoad& load) override {
    const Var &near = column_.near.var, &tap = column_.tap.var;
    if (!UsesVar(load->indices[0], near)) return StmtMutator::MutateBufferLoad(load);
    const auto linear = LinearOffset::Of(load->indices[0], {column_.near, column_.tap});
    RELAXVM_CHECK(linear.has_value()) << "a window is read along an axis that is not linear";
    const Expr factor = linear->Coeff(near);
    const Expr own = tir::Substitute(factor * near + linear->Coeff(tap) * tap, map_);
    const Expr at = ir::Select(inside_, analyzer_->Simplify(own),
                               analyzer_->Simplify(factor * column_.existing));
    return tir::BufferLoad(load->buffer, {linear->rest() + at}, load->predicate, load->span);
  }

 private:
  const Column& column_;
  const Expr& inside_;
  const ffi::Map<Var, Expr>& map_;
  arith::Analyzer* analyzer_;
};

// `count` places along the neighbours' axis from `near` on (null: there is no such axis); at an
// edge parts of their windows lie outside.
struct Neighbours {
  Expr near;
  int64_t count;
  bool edge;
};

// One accumulator: what its axes are, which lanes count (null: all), where it lies.
struct Vector {
  Var lane{"lane", Int(64)};
  ffi::Map<Var, Expr> map;
  Expr predicate;
  Expr sum;
};

class WindowEmitter {
 public:
  WindowEmitter(const Stage& stage, size_t vector, int64_t lanes, const Machine& machine,
                arith::Analyzer* analyzer)
      : stage_(stage),
        vector_(stage.spatial[vector]),
        lanes_(lanes),
        analyzer_(analyzer),
        l1_bytes_(machine.l1_bytes) {
    outer_ = stage.spatial;
    outer_.erase(outer_.begin() + static_cast<std::ptrdiff_t>(vector));
    ReadBounds();
    ChooseNeighbours(machine);
  }

  Stmt Run() {
    if (neighbours_ == 1) return Loops(outer_, Blocks(Expr(), kOnce));
    const std::vector<Axis> outer(outer_.begin(), outer_.end() - 1);
    const Axis& along = outer_.back();
    // [first, end) is where every window lies inside along this axis.
    Expr first = 0, end = along.extent;
    if (!FindInterior(&first, &end) || !FindColumn())
      return Loops(outer_, Blocks(along.var, kOnce));
    Stmt all = InsideAlong().defined() ? CutTiles(first, end) : Tiles(0, NumTiles(), false);
    const Expr wide = analyzer_->Simplify(
        ir::And(ir::GreaterEqual(along.extent, Expr(neighbours_)), ir::Less(first, end)));
    if (!ir::IsIntValue(wide, 1)) {
      Stmt single = Loop(along.var, along.extent, ForKind::kSerial, Blocks(along.var, kOnce));
      all = tir::IfThenElse(wide, all, single);
    }
    return Loops(outer, all);
  }

 private:
  // The conditions under which elements count, as bounds of the window's axes.  Conditions of
  // another form stay where they are.
  void ReadBounds() {
    value_ = stage_.value;
    ConditionStripper stripper(stage_, vector_.var);
    Expr inside = stripper.Strip(stage_.value);
    if (stripper.conditions.empty()) return;
    std::vector<Bound> bounds;
    for (const Expr& condition : stripper.conditions) {
      if (!AddBounds(condition, &bounds)) return;
    }
    value_ = inside;
    bounds_ = std::move(bounds);
  }

  bool AddBounds(const Expr& condition, std::vector<Bound>* bounds) {
    const auto* binary = condition.as<BinaryObj>();
    if (binary == nullptr) return ir::IsIntValue(condition, 1);
    if (binary->op == BinaryOp::kAnd)
      return AddBounds(binary->a, bounds) && AddBounds(binary->b, bounds);
    const Expr slack = AtLeastZero(condition);
    return slack.defined() && AddBound(slack, condition, bounds);
  }

  // `condition` is e >= 0, linear in one axis of the window.
  bool AddBound(const Expr& e, const Expr& condition, std::vector<Bound>* bounds) {
    auto linear = LinearOffset::Of(e, stage_.reduce);
    if (!linear.has_value()) return false;
    std::optional<size_t> found;
    int64_t coeff = 0;
    for (size_t i = 0; i < stage_.reduce.size(); ++i) {
      auto here = ir::AsInt(analyzer_->Simplify(linear->Coeff(stage_.reduce[i].var)));
      if (!here.has_value() || (here.value() != 0 && found.has_value())) return false;
      if (here.value() == 0) continue;
      found = i;
      coeff = here.value();
    }
    if (!found.has_value()) return false;
    const Expr rest = linear->rest();
    const Expr& extent = stage_.reduce[*found].extent;
    Bound bound{*found, Expr(), Expr(), Expr(), condition};
    if (coeff > 0) {
      bound.least = analyzer_->Simplify(ir::FloorDiv(Expr(coeff - 1) - rest, coeff));
      bound.whole = rest;
    } else {
      bound.end = analyzer_->Simplify(ir::FloorDiv(rest, -coeff) + 1);
      bound.whole = rest + Expr(coeff) * (extent - 1);
    }
    bounds->push_back(bound);
    return true;
  }

  // How reads depend on the neighbours' axis; false: in a way that tiles at an edge cannot follow.
  bool FindColumn() {
    for (const Bound& b : bounds_) {
      if (!UsesNear(b.whole)) continue;
      const Axis& tap = stage_.reduce[b.axis];
      if (column_.has_value() && !column_->tap.var.same_as(tap.var)) return false;
      column_ = EdgeReader::Column{outer_.back(), tap, Expr()};
    }
    if (!column_.has_value()) return true;
    bool linear = true;
    tir::PostOrderVisit(tir::Evaluate(value_), [&](const ffi::ObjectRef& node) {
      const auto* load = node.as<BufferLoadObj>();
      linear = linear && (load == nullptr ||
                          LinearOffset::Of(load->indices[0], {column_->near, column_->tap}));
    });
    return linear;
  }

  Expr NumTiles() const {
    return analyzer_->Simplify(ir::CeilDiv(outer_.back().extent, neighbours_));
  }

  // Tiles number `begin` to `end` along the neighbours' axis.
  Stmt Tiles(const Expr& begin, const Expr& end, bool edge) {
    Var tile("tile", Int(64));
    return TilesOf({tile, analyzer_->Simplify(end - begin)}, begin + tile, edge);
  }

  // Tile `number` for each value of `tile`.  The last one is moved back: what it computes again has
  // the same value.
  Stmt TilesOf(const Axis& tile, const Expr& number, bool edge) {
    const Expr& extent = outer_.back().extent;
    const Expr start = number * Expr(neighbours_);
    const bool divides = analyzer_->ProveEqual(ir::FloorMod(extent, neighbours_), 0);
    const Expr near = divides ? start : ir::Min(start, extent - Expr(neighbours_));
    return Blocks(near, tile, neighbours_, edge);
  }

  // Tiles inside [first, end) first, then those at both edges.
  Stmt CutTiles(const Expr& first, const Expr& end) {
    const Expr& extent = outer_.back().extent;
    const Expr tiles = NumTiles(), width = neighbours_;
    ffi::Array<Stmt> seq;
    const Expr whole = ir::Select(ir::GreaterEqual(end, extent), tiles, ir::FloorDiv(end, width));
    const Expr cut = ir::Select(ir::GreaterEqual(extent - width, first),
                                ir::CeilDiv(ir::Max(first, 0), width), tiles);
    const Expr from = Named("from", ir::Min(cut, tiles), &seq, analyzer_);
    const Expr to = Named("to", ir::Max(whole, from), &seq, analyzer_);
    column_->existing = Named("existing", first, &seq, analyzer_);
    seq.push_back(Tiles(from, to, false));
    Var edge("edge", Int(64));
    const Axis edges{edge, analyzer_->Simplify(tiles - to + from)};
    seq.push_back(
        TilesOf(edges, edge + ir::Select(ir::Less(edge, from), Expr(0), to - from), true));
    return SeqStmt::Flatten(seq);
  }

  // Where along the last outer axis all windows lie inside; false when that cannot be said.
  bool FindInterior(Expr* first, Expr* end) {
    for (const Bound& b : bounds_) {
      if (!UsesNear(b.whole)) continue;
      auto linear = LinearOffset::Of(b.whole, {outer_.back()});
      if (!linear.has_value() || UsesAny(linear->rest(), outer_)) return false;
      auto step = ir::AsInt(analyzer_->Simplify(linear->Coeff(outer_.back().var)));
      if (!step.has_value() || step.value() == 0) return false;
      const Expr rest = linear->rest();
      // step * near + rest >= 0
      if (step.value() > 0)
        *first = ir::Max(*first, ir::CeilDiv(Expr(0) - rest, step.value()));
      else
        *end = ir::Min(*end, ir::FloorDiv(rest, -step.value()) + 1);
    }
    return true;
  }

  // Neighbours along the last outer axis pay when a load is the same for all of them.
  void ChooseNeighbours(const Machine& machine) {
    if (outer_.empty()) return;
    const Var& near = outer_.back().var;
    bool shared = false;
    tir::PostOrderVisit(tir::Evaluate(stage_.value), [&](const ffi::ObjectRef& node) {
      const auto* load = node.as<BufferLoadObj>();
      shared = shared || (load != nullptr && !UsesVar(load->indices[0], near));
    });
    if (!shared) return;
    neighbours_ = machine.num_vectors >= 32 ? kNeighbours : kNeighbours / 2;
    auto columns = ir::AsInt(vector_.extent);
    if (columns.has_value() && columns.value() <= lanes_) neighbours_ *= 2;
    if (auto known = ir::AsInt(outer_.back().extent)) {
      neighbours_ = std::min(neighbours_, std::max<int64_t>(1, known.value()));
      if (machine.num_vectors >= 32) neighbours_ = LeastComputed(*known);
    }
  }

  // As many neighbours as usual, unless with more, or fewer, the tiles along `extent` have a tenth
  // less to compute.
  int64_t LeastComputed(int64_t extent) const {
    const auto computed = [&](int64_t n) { return (extent + n - 1) / n * n; };
    int64_t best = neighbours_;
    for (int64_t n = kNeighbours; n <= kSums && n <= extent; ++n) {
      if (computed(n) * 10 <= computed(best) * 9) best = n;
    }
    return best;
  }

  bool UsesNear(const Expr& e) const {
    return e.defined() && !outer_.empty() && UsesVar(e, outer_.back().var);
  }

  // All of the vector axis for `count` neighbours from `near` on (null: there is no such axis), for
  // each value of `tile`.  What one tile reads of a chunk of the vector axis, and the filter, stay
  // in the first cache until the next tile reads them.
  Stmt Blocks(const Expr& near, const Axis& tile, int64_t count = 1, bool edge = false) {
    const int64_t most = VectorsOfBlock(std::clamp<int64_t>((kSums + count - 2) / count, 1, 4));
    const int64_t chunk = std::max<int64_t>(1, VectorsAtOnce(count) / most);
    const Expr all = analyzer_->Simplify(ir::FloorDiv(vector_.extent, most * lanes_));
    const bool fits = ir::AsInt(all).value_or(chunk + 1) <= chunk;
    const Axis inner = fits ? kOnce : tile;
    ffi::Array<Stmt> seq;
    Expr done = 0;
    for (int64_t vectors : {most, int64_t{1}}) {
      const Expr step = vectors * lanes_;
      const Expr blocks = analyzer_->Simplify(ir::FloorDiv(vector_.extent - done, step));
      auto block = [&, from = done](const Expr& i) {
        return Block({near, count, edge}, from + i * step, vectors, false);
      };
      seq.push_back(Chunks(inner, blocks, chunk * most / vectors, block));
      done = analyzer_->Simplify(done + blocks * step);
      if (most == 1) break;
    }
    if (!analyzer_->ProveEqual(done, vector_.extent)) {
      Stmt rest = Again(inner, Block({near, count, edge}, done, 1, true));
      seq.push_back(tir::IfThenElse(ir::Less(done, vector_.extent), rest));
    }
    return Again(fits ? tile : kOnce, SeqStmt::Flatten(seq));
  }

  // How many vectors, of `most` at once, a block has so that few are left over: those run alone, at
  // half the speed.
  int64_t VectorsOfBlock(int64_t most) const {
    const auto extent = ir::AsInt(vector_.extent);
    if (!extent.has_value()) return most;
    const int64_t all = extent.value() / lanes_;
    int64_t best = most;
    for (int64_t vectors = most - 1; vectors > 1; --vectors) {
      if (all % vectors < all % best) best = vectors;
    }
    return best;
  }

  // `body` of each of `blocks`, for each value of `tile`: `chunk` blocks at a time.
  Stmt Chunks(const Axis& tile, const Expr& blocks, int64_t chunk,
              const std::function<Stmt(const Expr&)>& body) const {
    Var block("block", Int(64)), number("chunk", Int(64));
    if (ir::IsIntValue(tile.extent, 1) || ir::AsInt(blocks).value_or(chunk + 1) <= chunk)
      return Again(tile, Loop(block, blocks, ForKind::kSerial, body(block)));
    const Expr first = number * Expr(chunk);
    const Expr count = chunk == 1 ? Expr(1) : ir::Min(chunk, blocks - first);
    return Loop(number, analyzer_->Simplify(ir::CeilDiv(blocks, chunk)), ForKind::kSerial,
                Again(tile, Loop(block, count, ForKind::kSerial, body(first + block))));
  }

  // A loop over `tile`, with a variable of its own.
  static Stmt Again(const Axis& tile, const Stmt& body) {
    Var again(tile.var->name, Int(64));
    ffi::Map<Var, Expr> map;
    map.Set(tile.var, again);
    return Loop(again, tile.extent, ForKind::kSerial, tir::Substitute(body, map));
  }

  // How many vectors along the vector axis of what a tile of `count` neighbours reads fill three
  // quarters of the first cache.
  int64_t VectorsAtOnce(int64_t count) const {
    int64_t taps = 1, columns = 1;
    for (const Axis& axis : stage_.reduce) {
      columns = ir::AsInt(axis.extent).value_or(1);
      taps *= columns;
    }
    const int64_t reads = taps + taps / std::max<int64_t>(1, columns) * (columns + count - 1);
    const int64_t bytes = reads * lanes_ * SizeInBytes(stage_.value.dtype());
    return l1_bytes_ * 3 / 4 / std::max<int64_t>(1, bytes);
  }

  // An accumulator for each neighbour and vector; masked: lanes at or above the axis' end are left
  // out.
  Stmt Block(const Neighbours& at, const Expr& base, int64_t vectors, bool masked) {
    Buffer acc("acc", {Expr(at.count * vectors * lanes_)}, stage_.value.dtype(), "local");
    auto each = [&](const std::function<Stmt(const Vector&)>& body) {
      ffi::Array<Stmt> seq;
      for (int64_t v = 0; v < vectors; ++v) {
        for (int64_t i = 0; i < at.count; ++i) {
          Vector vector;
          const Expr lane = vector.lane;
          vector.map.Set(vector_.var, base + Expr(v * lanes_) + lane);
          if (at.near.defined()) vector.map.Set(outer_.back().var, at.near + Expr(i));
          if (masked) vector.predicate = ir::Less(lane, vector_.extent - base - Expr(v * lanes_));
          vector.sum = Expr((v * at.count + i) * lanes_) + lane;
          seq.push_back(For(vector.lane, 0, lanes_, ForKind::kVectorized, body(vector)));
        }
      }
      return SeqStmt::Flatten(seq);
    };
    auto step = [&](const std::optional<int64_t>& innermost) {
      return each([&](Vector vector) {
        if (innermost.has_value()) vector.map.Set(stage_.reduce.back().var, Expr(*innermost));
        return BufferStore(acc, Added(vector, acc.Load({vector.sum}), at.edge), {vector.sum});
      });
    };
    Buffer done("done", {Expr(at.count * vectors * lanes_)}, stage_.out->elem_dtype(), "local");
    const Stmt finish = each([&](const Vector& vector) {
      ffi::Map<Var, Expr> with_result = vector.map;
      Expr value = acc.Load({vector.sum});
      if (stage_.finish.defined()) {
        with_result.Set(stage_.reduced, value);
        value = tir::Substitute(stage_.finish, with_result);
        if (masked) value = PredicateLoads(value, vector.lane, vector.predicate);
      }
      return BufferStore(done, value, {vector.sum});
    });
    const Stmt store = each([&](const Vector& vector) {
      const Expr index = tir::Substitute(stage_.indices[0], vector.map);
      return BufferStore(*stage_.out, done.Load({vector.sum}), {index}, vector.predicate);
    });
    const For stores(Var("once", Int(64)), 0, 1, ForKind::kSerial, store);
    return SeqStmt::Flatten({tir::AllocBuffer(acc), tir::AllocBuffer(done),
                             Fill(acc, stage_.identity, at.count * vectors * lanes_, lanes_),
                             Window(at.near, at.count, step), finish,
                             Annotated(stores.get(), kStores, 1)});
  }

  // `sum` and what one element of the window adds to it.
  Expr Added(const Vector& at, const Expr& sum, bool edge) {
    Expr value = value_, inside;
    if (edge) {
      inside = analyzer_->Simplify(tir::Substitute(InsideAlong(), at.map));
      value = EdgeReader(*column_, inside, at.map, analyzer_).Mutate(value);
    }
    value = tir::Substitute(value, at.map);
    if (at.predicate.defined()) value = PredicateLoads(value, at.lane, at.predicate);
    value = Accumulated(stage_.combine, sum, value);
    return edge ? Expr(ir::Select(inside, value, sum)) : value;
  }

  // Is an element of the window inside along the neighbours' axis?
  Expr InsideAlong() const {
    Expr all;
    for (const Bound& bound : bounds_) {
      if (!UsesNear(bound.whole)) continue;
      all = all.defined() ? Expr(ir::And(all, bound.condition)) : bound.condition;
    }
    return all;
  }

  // The loops over the window.  Several neighbours are inside along their own axis.
  Stmt Window(const Expr& near, int64_t count,
              const std::function<Stmt(const std::optional<int64_t>&)>& step) {
    ffi::Map<Var, Expr> here;
    if (near.defined()) here.Set(outer_.back().var, near);
    Stmt body;
    for (size_t i = stage_.reduce.size(); i-- > 0;) {
      const Axis& axis = stage_.reduce[i];
      Expr least = 0, end = axis.extent;
      bool cut = false;
      for (const Bound& b : bounds_) {
        if (b.axis != i || (count > 1 && UsesNear(b.whole))) continue;
        cut = true;
        if (b.least.defined()) least = ir::Max(least, tir::Substitute(b.least, here));
        if (b.end.defined()) end = ir::Min(end, tir::Substitute(b.end, here));
      }
      auto extent = ir::AsInt(axis.extent);
      if (i + 1 == stage_.reduce.size() && !cut && extent.has_value() && extent.value() > 0 &&
          extent.value() <= kMaxUnrolled) {
        ffi::Array<Stmt> taps;
        for (int64_t tap = 0; tap < extent.value(); ++tap) taps.push_back(step(tap));
        body = SeqStmt::Flatten(taps);
        continue;
      }
      if (!body.defined()) body = step(std::nullopt);
      if (!cut) {
        body = Loop(axis.var, axis.extent, ForKind::kSerial, body);
        continue;
      }
      Var tap(axis.var->name, Int(64)), first("first", Int(64));
      ffi::Map<Var, Expr> map;
      map.Set(axis.var, first + tap);
      body = SeqStmt::Flatten(
          {tir::Bind(first, analyzer_->Simplify(least)),
           For(tap, 0, ir::Max(end - first, 0), ForKind::kSerial, tir::Substitute(body, map))});
    }
    return body.defined() ? body : step(std::nullopt);
  }

  const Axis kOnce{Var("once", Int(64)), Expr(1)};
  const Stage& stage_;
  Axis vector_;
  std::vector<Axis> outer_;
  int64_t lanes_;
  arith::Analyzer* analyzer_;
  int64_t l1_bytes_;
  int64_t neighbours_ = 1;
  Expr value_;  // of an element of the window that is inside
  std::vector<Bound> bounds_;
  std::optional<EdgeReader::Column> column_;
};

// Do the windows of neighbouring rows read some of the same?
bool RowsOverlap(const Stage& stage, const Axis& row, arith::Analyzer* analyzer) {
  bool overlap = false;
  tir::PostOrderVisit(tir::Evaluate(stage.value), [&](const ffi::ObjectRef& node) {
    const auto* load = node.as<BufferLoadObj>();
    if (load == nullptr || overlap) return;
    for (const Axis& axis : stage.reduce) {
      const auto linear = LinearOffset::Of(load->indices[0], {row, axis});
      if (!linear.has_value()) return;
      const auto step = ir::AsInt(analyzer->Simplify(linear->Coeff(row.var)));
      const auto reach = ir::AsInt(analyzer->Simplify(linear->Coeff(axis.var) * axis.extent));
      overlap = overlap || (step.value_or(0) > 0 && *step < reach.value_or(0));
    }
  });
  return overlap;
}

// In how many groups the last axis is cut so that what the windows of one row read stays in the
// second cache until those of the next row read most of it again: 1 where it does as a whole.
int64_t GroupsForCache(const Stage& stage, const Machine& machine) {
  const size_t rank = stage.spatial.size();
  if (rank < 3 || stage.reduce.size() < 2) return 1;
  const int64_t columns = ir::AsInt(stage.spatial[rank - 1].extent).value_or(0);
  int64_t bytes = ir::AsInt(stage.spatial[rank - 2].extent).value_or(0) * columns *
                  SizeInBytes(stage.value.dtype());
  for (size_t i = 0; i + 1 < stage.reduce.size(); ++i)
    bytes *= ir::AsInt(stage.reduce[i].extent).value_or(0);
  const int64_t width = kSums / kNeighbours * machine.Lanes(SizeInBytes(stage.value.dtype()));
  if (bytes <= machine.l2_bytes / 2 || columns % width != 0) return 1;
  for (int64_t groups = 2; groups < columns / width; ++groups) {
    if (columns / width % groups == 0 && bytes / groups <= machine.l2_bytes / 4) return groups;
  }
  return columns / width;
}

}  // namespace

std::optional<Stage> CutWindows(const Stage& stage, const Machine& machine,
                                arith::Analyzer* analyzer) {
  const int64_t groups = GroupsForCache(stage, machine);
  if (groups == 1 || !RowsOverlap(stage, *(stage.spatial.end() - 3), analyzer)) return std::nullopt;
  const Axis whole = stage.spatial.back();
  const Expr width = ir::AsInt(whole.extent).value() / groups;
  const Axis group{Var("group", Int(64)), Expr(groups)};
  const Axis inner{Var(whole.var->name, Int(64)), width};
  ffi::Map<Var, Expr> map;
  map.Set(whole.var, group.var * width + inner.var);
  Stage cut = Substituted(stage, map);
  cut.spatial.back() = inner;
  cut.spatial.insert(cut.spatial.end() - 3, group);
  return cut;
}

Stmt EmitWindow(const Stage& flat, size_t vector, int64_t lanes, const Machine& traits,
                arith::Analyzer* analyzer) {
  const auto plain = [&] { return WindowEmitter(flat, vector, lanes, traits, analyzer).Run(); };
  if (const auto bytes = EmitByteWindow(flat, vector, traits, analyzer, plain)) return *bytes;
  return plain();
}

}  // namespace relaxvm::schedule::cpu
