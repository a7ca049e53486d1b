// SPDX-License-Identifier: Apache-2.0
// EmitContraction: C[m, n] = epilogue(sum over k of A[m, k] * B[k, n]) on register tiles.
//
// The vector axis is the one that runs contiguously through C; the operand that has it is called B,
// the other A.  A tile holds `rows` elements of an A-only axis times `vectors` registers of the
// vector axis; its accumulators stay in registers while all of k passes by.  Convolutions are the
// same with other offsets: over channels-last data C's contiguous axis is the output channel (B is
// the weight), over channels-first data it is the width (B is the image).
#include <algorithm>

#include "schedule/cpu/cpu.h"

namespace relaxvm::schedule::cpu {
namespace {

using ir::Intrin;
using tir::BufferLoad;
using tir::BufferLoadObj;
using tir::BufferStore;
using tir::For;
using tir::ForKind;
using tir::SeqStmt;

struct Tile {
  int64_t rows;
  int64_t vectors;
};

// One register's worth of columns: `lanes` of them from `offset` on.
struct Columns {
  int64_t offset;
  int64_t lanes;
};

// Tiles inside the register file that reach 98 % and more of peak: docs/design/cpu_schedule.md.
Tile TileFor(int64_t num_registers, int64_t vectors) {
  // rows * vectors + vectors + 1 <= registers; one vector: the broadcast folds into the
  // multiplication.
  const int64_t fit = vectors == 1 ? num_registers - 2 : (num_registers - 1 - vectors) / vectors;
  return {std::clamp<int64_t>(fit, 1, 16), vectors};
}

bool IsZero(const Expr& e) { return ir::IsIntValue(e, 0); }

class ContractionEmitter {
 public:
  ContractionEmitter(const Traits& traits, arith::Analyzer* analyzer)
      : traits_(traits), analyzer_(analyzer) {}

  // Reads the stage into the fields below; false when it has another form.
  bool Read(const Stage& contraction) {
    acc_dtype_ = contraction.value.dtype();
    if (!ir::IsIntValue(contraction.identity, 0)) {
      const auto* zero = contraction.identity.as<ir::FloatImmObj>();
      if (zero == nullptr || zero->value != 0) return false;
    }
    stage_ = FlattenStage(contraction, analyzer_);
    OrderReduction(&stage_);
    CollapseAxes(&stage_, analyzer_);
    const auto* times = StripCasts(stage_.value).as<ir::BinaryObj>();
    a_ = times->a;
    b_ = times->b;
    lanes_ = traits_.Lanes(std::max<int64_t>(SizeInBytes(acc_dtype_), 1));
    return StripCasts(a_).as<BufferLoadObj>() && StripCasts(b_).as<BufferLoadObj>() && Classify();
  }

  Stmt Run() {
    ChooseTile();
    ffi::Array<Stmt> seq;
    if (pack_) {
      seq.push_back(tir::AllocBuffer(*packed_));
      seq.push_back(PackB());
    }
    seq.push_back(Compute());
    return SeqStmt::Flatten(seq);
  }

 private:
  const BufferLoadObj* Load(const Expr& operand) const {
    return StripCasts(operand).as<BufferLoadObj>();
  }

  // Puts the axis with the shortest steps through memory last: what stands next to each other is
  // read one after the other.
  void OrderReduction(Stage* all) const {
    std::vector<const BufferLoadObj*> loads;
    tir::PostOrderVisit(tir::Evaluate(all->value), [&](const ffi::ObjectRef& node) {
      if (const auto* load = node.as<BufferLoadObj>()) loads.push_back(load);
    });
    auto step = [&](const Axis& axis) {
      int64_t sum = 0;
      for (const BufferLoadObj* load : loads) {
        auto linear = LinearOffset::Of(load->indices[0], {axis});
        if (!linear.has_value()) continue;
        ffi::Map<Var, Expr> sizes;
        Expr coeff = linear->Coeff(axis.var);
        for (const Var& v : ir::FreeVars(coeff)) sizes.Set(v, 64);
        sum += std::min<int64_t>(
            ir::AsInt(analyzer_->Simplify(ir::Substitute(coeff, sizes))).value_or(0),
            int64_t{1} << 40);
      }
      return sum;
    };
    std::stable_sort(all->reduce.begin(), all->reduce.end(),
                     [&](const Axis& a, const Axis& b) { return step(a) > step(b); });
  }

  bool Classify() {
    auto a = LinearOffset::Of(Load(a_)->indices[0], All());
    auto b = LinearOffset::Of(Load(b_)->indices[0], All());
    auto c = LinearOffset::Of(stage_.indices[0], All());
    if (!a.has_value() || !b.has_value() || !c.has_value()) return false;
    const Axis* vector = nullptr;
    for (const Axis& axis : stage_.spatial) {
      const bool in_a = !IsZero(a->Coeff(axis.var)), in_b = !IsZero(b->Coeff(axis.var));
      if (ir::IsIntValue(c->Coeff(axis.var), 1) && in_a != in_b) vector = &axis;
    }
    if (vector == nullptr) return false;
    if (!IsZero(a->Coeff(vector->var))) {
      std::swap(a_, b_);
      std::swap(a, b);
    }
    vector_ = *vector;
    std::vector<Axis> left;
    for (const Axis& axis : stage_.spatial) {
      if (axis.var.same_as(vector_.var)) continue;
      const bool in_a = !IsZero(a->Coeff(axis.var)), in_b = !IsZero(b->Coeff(axis.var));
      (in_b ? (in_a ? batch_ : outer_b_) : left).push_back(axis);
    }
    if (left.empty()) return false;
    // The tile's rows: the longest A-only axis, the innermost of equals.
    size_t best = left.size() - 1;
    auto length = [&](size_t i) { return ir::AsInt(left[i].extent).value_or(int64_t{1} << 20); };
    for (size_t i = left.size(); i-- > 0;) {
      if (length(i) > length(best) && length(best) < 16) best = i;
    }
    row_ = left[best];
    left.erase(left.begin() + static_cast<std::ptrdiff_t>(best));
    outer_a_ = left;
    // B walked across its rows: copied once so that the vector axis is contiguous.
    const bool contiguous = ir::IsIntValue(b->Coeff(vector_.var), 1);
    pack_ = (!contiguous || FewCacheSets(*b)) && EachElementOnce();
    return true;
  }

  // Do the rows of B fall into a few sets of the cache, because their distance is a multiple of
  // half a page?
  bool FewCacheSets(const LinearOffset& b) const {
    if (stage_.reduce.empty()) return false;
    const auto rows = ir::AsInt(row_.extent), depth = ir::AsInt(stage_.reduce.back().extent);
    const auto step = ir::AsInt(b.Coeff(stage_.reduce.back().var));
    if (rows.value_or(kRowsWorthPacking) < kRowsWorthPacking || depth.value_or(64) < 64)
      return false;
    return step.has_value() && step.value() * SizeInBytes(b_.dtype()) % 2048 == 0;
  }

  std::vector<Axis> All() const {
    std::vector<Axis> all = stage_.spatial;
    all.insert(all.end(), stage_.reduce.begin(), stage_.reduce.end());
    return all;
  }

  // Do the axes of B walk over as many elements as it has (a matrix), not over windows that
  // overlap?
  bool EachElementOnce() const {
    Expr walked = vector_.extent;
    for (const auto* list : {&batch_, &outer_b_, &stage_.reduce}) {
      for (const Axis& axis : *list) walked = walked * axis.extent;
    }
    Expr have = 1;
    for (const Expr& d : Buffer(Load(b_)->buffer).shape()) have = have * d;
    return analyzer_->ProveEqual(walked, have);
  }

  void ChooseTile() {
    const auto extent = ir::AsInt(vector_.extent);
    const auto rows = ir::AsInt(row_.extent);
    int64_t vectors = 4;
    if (extent.has_value()) {
      const int64_t needed = (extent.value() + lanes_ - 1) / lanes_;
      vectors = needed <= 4 ? needed : needed % 4 == 0 || needed >= 8 ? 4 : needed % 3 == 0 ? 3 : 4;
    }
    if (traits_.num_vectors <= 16) vectors = std::min<int64_t>(vectors, 2);
    // One row has no second chain per column: more columns hide the latency.
    if (rows.has_value() && rows.value() == 1) vectors = traits_.num_vectors >= 32 ? 12 : 6;
    if (extent.has_value()) vectors = std::min(vectors, (extent.value() + lanes_ - 1) / lanes_);
    tile_ = TileFor(traits_.num_vectors, vectors);
    if (rows.has_value()) {
      tile_.rows = std::min(tile_.rows, std::max<int64_t>(rows.value(), 1));
      for (int64_t r = tile_.rows; r * 3 >= tile_.rows * 2;
           --r) {  // rows without a rest, when nearly as tall
        if (rows.value() % r == 0) {
          tile_.rows = r;
          break;
        }
      }
    }
    width_ = tile_.vectors * lanes_;
    full_panels_ = analyzer_->Simplify(ir::FloorDiv(vector_.extent, width_));
    panels_ = analyzer_->Simplify(ir::CeilDiv(vector_.extent, width_));
    num_k_ = 1;
    for (const Axis& axis : stage_.reduce) num_k_ = num_k_ * axis.extent;
    if (pack_) {
      Expr size = panels_ * num_k_ * Expr(width_);
      for (const auto* list : {&batch_, &outer_b_}) {
        for (const Axis& axis : *list) size = size * axis.extent;
      }
      packed_ = Buffer("packed", {analyzer_->Simplify(size)}, b_.dtype());
    }
  }

  // Linear index of a point of `axes`.
  static Expr Linear(const std::vector<Axis>& axes) {
    Expr at = 0;
    for (const Axis& axis : axes) at = at * axis.extent + axis.var;
    return at;
  }

  // Where the packed row of B starts: [batch, outer, panel, k, width].
  Expr PackedRow(const Expr& panel) const {
    std::vector<Axis> outer = batch_;
    outer.insert(outer.end(), outer_b_.begin(), outer_b_.end());
    return ((Linear(outer) * panels_ + panel) * num_k_ + Linear(stage_.reduce)) * Expr(width_);
  }

  Stmt PackB() {
    Var panel("panel", Int(64)), lane("column", Int(64));
    ffi::Map<Var, Expr> map;
    Expr column = panel * Expr(width_) + lane;
    map.Set(vector_.var, column);
    Expr value = ir::IfThenElse(ir::Less(column, vector_.extent), tir::Substitute(b_, map),
                                ir::Const(b_.dtype(), 0));
    Stmt body = BufferStore(*packed_, value, {PackedRow(panel) + lane});
    // Reads run along k, writes along the panel: k innermost keeps the reads in few lines.
    body = Loops(stage_.reduce, For(lane, 0, width_, ForKind::kSerial, body));
    std::vector<Axis> tasks = batch_;
    tasks.insert(tasks.end(), outer_b_.begin(), outer_b_.end());
    tasks.push_back({panel, panels_});
    return OverTasks(tasks, body, num_k_ * Expr(width_ * 2));
  }

  Stmt Compute() {
    Var panel("panel", Int(64)), chunk("chunk", Int(64));
    const Expr num_tiles = analyzer_->Simplify(ir::CeilDiv(row_.extent, tile_.rows));
    const Expr chunks = analyzer_->Simplify(ir::CeilDiv(num_tiles, kTilesPerTask));
    const Expr first = chunk * Expr(kTilesPerTask);
    const Expr tiles = analyzer_->Simplify(ir::Min(kTilesPerTask, num_tiles - first));
    Stmt body;
    Stmt full = Tiles(panel, first, tiles, Full(tile_.vectors), Expr());
    if (analyzer_->ProveEqual(full_panels_, panels_)) {
      body = full;
    } else {
      const Stmt rest = RestPanel(panel, first, tiles);
      body = ir::IsIntValue(full_panels_, 0)
                 ? rest
                 : Stmt(tir::IfThenElse(ir::Less(panel, full_panels_), full, rest));
    }
    std::vector<Axis> tasks = batch_;
    tasks.insert(tasks.end(), outer_b_.begin(), outer_b_.end());
    tasks.push_back({panel, panels_});
    tasks.insert(tasks.end(), outer_a_.begin(), outer_a_.end());
    tasks.push_back({chunk, chunks});
    return OverTasks(tasks, body, num_k_ * Expr(width_ / lanes_ * tile_.rows * kTilesPerTask));
  }

  // `vectors` whole registers.
  std::vector<Columns> Full(int64_t vectors) const {
    std::vector<Columns> columns;
    for (int64_t v = 0; v < vectors; ++v) columns.push_back({v * lanes_, lanes_});
    return columns;
  }

  // The panel that is not full: as few registers as hold it, the last one as narrow as it can be.
  Stmt RestPanel(const Var& panel, const Expr& first, const Expr& tiles) {
    Expr rest = analyzer_->Simplify(vector_.extent - full_panels_ * Expr(width_));
    if (auto known = ir::AsInt(rest)) {
      std::vector<Columns> columns = Full(known.value() / lanes_);
      const int64_t done = known.value() / lanes_ * lanes_;
      int64_t narrow = std::min<int64_t>(4, lanes_);
      while (narrow < known.value() - done) narrow *= 2;
      if (done < known.value()) columns.push_back({done, narrow});
      const bool exact = known.value() - done == narrow || done == known.value();
      return Tiles(panel, first, tiles, columns, exact ? Expr() : vector_.extent);
    }
    // Unknown width: one variant for each number of vectors.
    Stmt chosen;
    for (int64_t v = tile_.vectors; v >= 1; --v) {
      Stmt variant = Tiles(panel, first, tiles, Full(v), vector_.extent);
      chosen = chosen.defined()
                   ? Stmt(tir::IfThenElse(ir::LessEqual(rest, v * lanes_), variant, chosen))
                   : variant;
    }
    return chosen;
  }

  // Tiles [first, first + tiles) of the rows; columns at or above `limit` (null: none) are left
  // out.
  Stmt Tiles(const Var& panel, const Expr& first, const Expr& tiles,
             const std::vector<Columns>& columns, const Expr& limit) {
    const int64_t rows = tile_.rows;
    Var tile("tile", Int(64));
    const Expr start = (first + tile) * Expr(rows);
    auto known = ir::AsInt(row_.extent);
    if (known.has_value() && known.value() % rows == 0) {
      return Loop(tile, tiles, ForKind::kSerial, OneTile(panel, start, rows, columns, limit));
    }
    // The last tile is moved back so that it ends with the axis: some rows are computed twice, to
    // the same values.
    Stmt moved =
        Loop(tile, tiles, ForKind::kSerial,
             OneTile(panel, ir::Min(start, row_.extent - Expr(rows)), rows, columns, limit));
    if (analyzer_->ProveAtLeast(row_.extent, rows)) return moved;
    Var one("one", Int(64));
    Stmt few = For(one, 0, row_.extent, ForKind::kSerial, OneTile(panel, one, 1, columns, limit));
    return tir::IfThenElse(ir::GreaterEqual(row_.extent, rows), moved, few);
  }

  // A loop over the lanes of one register; its predicate leaves out what is above `limit`.
  Stmt LaneLoop(const Columns& columns, bool last, const Expr& column, const Expr& limit,
                const std::function<Stmt(const Var&, const Expr&)>& body) const {
    Var lane("lane", Int(64));
    // Only the last register of a rest can be partly outside.
    Expr predicate =
        limit.defined() && last ? ir::Less(lane, limit - column - Expr(columns.offset)) : Expr();
    return For(lane, 0, columns.lanes, ForKind::kVectorized, body(lane, predicate));
  }

  // Everything that one tile's code needs.
  struct TileCode {
    Expr panel, row_start, limit;
    int64_t rows;
    std::vector<Columns> columns;
    int64_t width;  // of all columns
    Buffer acc, right;
  };

  Stmt OneTile(const Var& panel, const Expr& start, int64_t rows,
               const std::vector<Columns>& columns, const Expr& limit) {
    const int64_t width = columns.back().offset + columns.back().lanes;
    Var row_start("row_start", Int(64));
    TileCode t{panel,
               row_start,
               limit,
               rows,
               columns,
               width,
               Buffer("acc", {Expr(rows * width)}, acc_dtype_, "local"),
               Buffer("right", {Expr(width)}, acc_dtype_, "local")};
    ffi::Array<Stmt> seq = {tir::Bind(row_start, start), tir::AllocBuffer(t.acc)};
    for (int64_t i = 0; i < rows; ++i) {
      for (const Columns& c : columns) {
        Var lane("lane", Int(64));
        seq.push_back(
            For(lane, 0, c.lanes, ForKind::kVectorized,
                BufferStore(t.acc, ir::Const(acc_dtype_, 0), {Expr(i * width + c.offset) + lane})));
      }
    }
    seq.push_back(KLoops(t));
    seq.push_back(StoreTile(t));
    return SeqStmt::Flatten(seq);
  }

  Stmt KLoops(const TileCode& t) {
    const Expr column = t.panel * Expr(width_);
    ffi::Array<Stmt> step = {tir::AllocBuffer(t.right)};
    for (size_t v = 0; v < t.columns.size(); ++v) {
      const Columns& c = t.columns[v];
      const bool last = v + 1 == t.columns.size();
      step.push_back(
          LaneLoop(c, last, column, t.limit, [&](const Var& lane, const Expr& predicate) {
            Expr value;
            if (pack_) {
              value = packed_->Load({PackedRow(t.panel) + Expr(c.offset) + lane});
            } else {
              ffi::Map<Var, Expr> map;
              map.Set(vector_.var, column + Expr(c.offset) + lane);
              value = tir::Substitute(b_, map);
              if (predicate.defined()) value = PredicateLoads(value, lane, predicate);
            }
            return BufferStore(t.right, ir::Cast(acc_dtype_, value), {Expr(c.offset) + lane});
          }));
    }
    for (int64_t i = 0; i < t.rows; ++i) {
      Var left("left", acc_dtype_);
      ffi::Map<Var, Expr> map;
      map.Set(row_.var, t.row_start + Expr(i));
      step.push_back(tir::Bind(left, ir::Cast(acc_dtype_, tir::Substitute(a_, map))));
      for (const Columns& c : t.columns) {
        Var lane("lane", Int(64));
        Expr at = Expr(i * t.width + c.offset) + lane;
        Expr next = t.right.Load({Expr(c.offset) + lane});
        Expr sum = IsFloat(acc_dtype_)
                       ? ir::CallIntrin(Intrin::kFma, {left, next, t.acc.Load({at})})
                       : ir::Add(t.acc.Load({at}), ir::Mul(left, next));
        step.push_back(For(lane, 0, c.lanes, ForKind::kVectorized, BufferStore(t.acc, sum, {at})));
      }
    }
    return Loops(stage_.reduce, SeqStmt::Flatten(step));
  }

  Stmt StoreTile(const TileCode& t) {
    const Expr column = t.panel * Expr(width_);
    ffi::Array<Stmt> seq;
    for (int64_t i = 0; i < t.rows; ++i) {
      for (size_t v = 0; v < t.columns.size(); ++v) {
        const Columns& c = t.columns[v];
        const bool last = v + 1 == t.columns.size();
        seq.push_back(
            LaneLoop(c, last, column, t.limit, [&](const Var& lane, const Expr& predicate) {
              ffi::Map<Var, Expr> map;
              map.Set(row_.var, t.row_start + Expr(i));
              map.Set(vector_.var, column + Expr(c.offset) + lane);
              Expr value = t.acc.Load({Expr(i * t.width + c.offset) + lane});
              if (stage_.finish.defined()) {
                map.Set(stage_.reduced, value);
                value = tir::Substitute(stage_.finish, map);
              }
              value = ir::Cast(stage_.out->elem_dtype(), value);
              if (predicate.defined()) value = PredicateLoads(value, lane, predicate);
              return BufferStore(*stage_.out, value, {tir::Substitute(stage_.indices[0], map)},
                                 predicate);
            }));
      }
    }
    return SeqStmt::Flatten(seq);
  }

  // A parallel loop over all points of `tasks`, the last axis fastest.
  Stmt OverTasks(const std::vector<Axis>& tasks, const Stmt& body, const Expr& work) {
    Var task("task", Int(64));
    Expr total = 1;
    for (const Axis& axis : tasks) total = total * axis.extent;
    ffi::Array<Stmt> seq;
    Expr rest = task;
    for (size_t i = tasks.size(); i-- > 0;) {
      if (ir::IsIntValue(tasks[i].extent, 1)) {
        seq.push_back(tir::Bind(tasks[i].var, Expr(0)));
        continue;
      }
      seq.push_back(tir::Bind(tasks[i].var, ir::FloorMod(rest, tasks[i].extent)));
      if (i > 0) {
        Var next("rest", Int(64));
        seq.push_back(tir::Bind(next, ir::FloorDiv(rest, tasks[i].extent)));
        rest = next;
      }
    }
    seq.push_back(body);
    return ParallelLoop(task, analyzer_->Simplify(total), work, SeqStmt::Flatten(seq), analyzer_);
  }

  static constexpr int64_t kTilesPerTask = 8;
  static constexpr int64_t kRowsWorthPacking = 32;

  const Traits& traits_;
  arith::Analyzer* analyzer_;
  DLDataType acc_dtype_;
  int64_t lanes_ = 1;
  Stage stage_;
  Expr a_, b_;
  std::vector<Axis> batch_, outer_a_,
      outer_b_;  // spatial axes of both operands, of A, of B; without row and vector
  Axis row_{Var("row", Int(64)), Expr(1)};
  Axis vector_{Var("vector", Int(64)), Expr(1)};
  bool pack_ = false;
  std::optional<Buffer> packed_;
  Tile tile_{1, 1};
  int64_t width_ = 1;  // elements of a panel
  Expr full_panels_, panels_, num_k_;
};

}  // namespace

std::optional<Stmt> EmitContraction(const Stage& contraction, const Traits& traits,
                                    arith::Analyzer* analyzer) {
  ContractionEmitter emitter(traits, analyzer);
  if (!emitter.Read(contraction)) return std::nullopt;
  return emitter.Run();
}

}  // namespace relaxvm::schedule::cpu
