// SPDX-License-Identifier: Apache-2.0
// EmitTile: the code of one register tile.  Its sums stay in registers while all of k passes by;
// what finishes the contraction is applied on the way to memory.
#include <algorithm>
#include <bit>

#include "schedule/cpu/contraction/contraction.h"
#include "schedule/cpu/contraction/next_of_b.h"
#include "schedule/cpu/loads.h"
#include "tir/dot.h"

namespace relaxvm::schedule::cpu {
namespace {

using ir::Intrin;
using tir::BufferStore;
using tir::For;
using tir::ForKind;
using tir::SeqStmt;

constexpr int64_t kMostSets = 4;
constexpr size_t kMostRegistersOfRun = 4;
constexpr int64_t kFewestWords = 2;  // of a row that are widened together
constexpr int kDearFinish = 20;      // of CostOf: what has a polynomial
// An iteration over the sum takes several steps of a tile that has so many products in each, and at
// most so many of them together.
constexpr int64_t kFewestProducts = 8, kMostProducts = 64;
constexpr uint64_t kMostStepsAtOnce = 4;

class TileEmitter {
 public:
  TileEmitter(const Contraction& c, int64_t panel_width, const TilePart& part,
              const Machine& machine, arith::Analyzer* analyzer)
      : c_(c),
        part_(part),
        analyzer_(analyzer),
        panel_width_(panel_width),
        panel_start_(part.panel * Expr(panel_width)),
        width_(part.columns.back().offset + part.columns.back().lanes),
        lanes_(machine.Lanes(std::max<int64_t>(SizeInBytes(c.acc), 1))),
        num_sets_(SetsFor(machine)),
        acc_("acc", {Expr(num_sets_ * part.rows * width_)}, c.acc, "local"),
        correction_("correction", {Expr(width_)}, c.acc, "local") {
    if (part.next.has_value() && !FetchesB())
      next_.emplace(c, *part.next, StepsOfIteration(), analyzer);
  }

  Stmt Run() {
    ffi::Array<Stmt> seq = {BindStart(), tir::AllocBuffer(acc_)};
    if (next_.has_value()) next_->Bind(&seq);
    for (int64_t set = 0; set < num_sets_; ++set) {
      EachRegister([&](int64_t row, const Columns& c, bool) {
        Var lane("lane", Int(64));
        Expr from = part_.partial.has_value() && set == 0
                        ? part_.partial->sums.Load({InSums(RowAt(row), c) + lane})
                        : Expr(ir::Const(c_.acc, 0));
        seq.push_back(Lanes(lane, c, BufferStore(acc_, from, {At(set, row, c) + lane})));
      });
    }
    if (c_.NeedsCorrection()) {
      seq.push_back(tir::AllocBuffer(correction_));
      for (const Columns& c : part_.columns)
        seq.push_back(BufferStore(correction_, ir::Const(Int(32, c.lanes), 0), {Run(c.offset, c)}));
    }
    seq.push_back(Sum());
    AddSets(&seq);
    if (part_.partial.has_value()) {
      StorePartial(&seq);
    } else {
      Store(&seq);
    }
    return SeqStmt::Flatten(seq);
  }

  Stmt Finish(const Expr& num_rows, const Stmt& beside) const {
    Var row("row", Int(64));
    ffi::Array<Stmt> runs;
    if (beside.defined()) runs.push_back(beside);
    for (const Columns& c : WideRuns())
      runs.push_back(StoreRun(row, c, IsLast(c), part_.partial->sums, InSums(RowAt(row), c)));
    return SeqStmt::Flatten(
        {BindStart(), Loop(row, num_rows, ForKind::kSerial, SeqStmt::Flatten(runs))});
  }

 private:
  // A small tile has few sums; several sets of them, each for every second or fourth k, keep the
  // units busy.
  int64_t SetsFor(const Machine& machine) const {
    const int64_t registers = part_.rows * static_cast<int64_t>(part_.columns.size());
    const auto columns = static_cast<int64_t>(part_.columns.size());
    const int64_t others = columns + 1 + (c_.NeedsCorrection() || ByHalves() ? columns : 0);
    int64_t sets = 1;
    if (c_.stage.reduce.empty() || c_.side_by_side.has_value()) return sets;
    if (c_.guard.defined() && UsesVar(c_.guard, c_.stage.reduce.back().var)) return sets;
    const int64_t depth = ir::AsInt(c_.stage.reduce.back().extent).value_or(int64_t{1} << 20);
    while (sets < kMostSets && registers * sets < machine.chains &&
           registers * sets * 2 + others <= machine.num_vectors && depth >= 16 * sets)
      sets *= 2;
    return sets;
  }

  // Registers of columns, two or four at a time where they are whole: what finishes a sum is a long
  // chain of operations, and a core looks ahead too little to find the next register's by itself.
  std::vector<Columns> WideRuns() const {
    std::vector<Columns> runs;
    auto is_whole = [&](size_t v) {
      return v < part_.columns.size() && part_.columns[v].lanes == lanes_ &&
             !(part_.limit.defined() && v + 1 == part_.columns.size());
    };
    const bool of_panels = c_.panels_of_tile.has_value();
    auto panel_of = [&](size_t v) {
      return of_panels ? part_.columns[v].offset / panel_width_ : int64_t{0};
    };
    for (size_t v = 0; v < part_.columns.size();) {
      size_t count = 1;
      while (count < kMostRegistersOfRun && is_whole(v) && is_whole(v + count) &&
             is_whole(v + 2 * count - 1) && panel_of(v) == panel_of(v + 2 * count - 1))
        count *= 2;
      runs.push_back(
          {part_.columns[v].offset, part_.columns[v].lanes * static_cast<int64_t>(count)});
      v += count;
    }
    return runs;
  }
  bool IsLast(const Columns& c) const { return c.offset + c.lanes == width_; }

  void EachRegister(const std::function<void(int64_t, const Columns&, bool)>& body) const {
    for (int64_t row = 0; row < part_.rows; ++row) {
      for (size_t v = 0; v < part_.columns.size(); ++v)
        body(row, part_.columns[v], v + 1 == part_.columns.size());
    }
  }

  // Where `map` finds lane `lane` of columns.
  void PlaceColumns(const Columns& c, const Expr& lane, ffi::Map<Var, Expr>* map) const {
    if (!c_.panels_of_tile.has_value()) {
      map->Set(c_.vector.var, panel_start_ + Expr(c.offset) + lane);
      return;
    }
    map->Set(c_.panels_of_tile->var, c_.panels_of_tile->var + Expr(c.offset / panel_width_));
    map->Set(c_.vector.var, Expr(c.offset % panel_width_) + lane);
  }

  Expr At(int64_t set, int64_t row, const Columns& c) const {
    return Expr((set * part_.rows + row) * width_ + c.offset);
  }
  // Where the sums of `row` of C lie, of one run of columns.
  Expr InSums(const Expr& row, const Columns& c) const {
    return part_.partial->begin + (row - part_.partial->first_row) * Expr(panel_width_) +
           Expr(c.offset);
  }
  Stmt BindStart() const {
    const bool of_lines = c_.line_width > 0;
    return tir::Bind(row_start_,
                     of_lines ? ir::FloorDiv(part_.row_start, c_.line_width) : part_.row_start);
  }
  // Of the tile.
  Expr RowAt(const Expr& row) const {
    return c_.line_width > 0 ? row_start_ * Expr(c_.line_width) + row : row_start_ + row;
  }
  // Of lines, as they are found from the first one.
  Expr Offsets(const Expr& e) const {
    return c_.line_width > 0 ? SimplifyOffsets(e, analyzer_) : e;
  }
  static Stmt Lanes(const Var& lane, const Columns& c, const Stmt& body) {
    return For(lane, 0, c.lanes, ForKind::kVectorized, body);
  }
  // Which lanes are inside; null: all.  Only the last register of a rest can be partly outside.
  Expr Inside(const Var& lane, const Columns& c, bool last) const {
    if (!part_.limit.defined() || !last) return Expr();
    return ir::Less(lane, part_.limit - panel_start_ - Expr(c.offset));
  }

  // One register of B at the current k.
  Expr Right(const Var& lane, const Columns& c, bool last) const {
    ffi::Map<Var, Expr> map;
    Expr value;
    if (c_.panel_width > 0) {
      const int64_t of_tile = panel_width_ / c_.panel_width;
      map.Set(c_.panel, of_tile == 1
                            ? part_.panel
                            : part_.panel * Expr(of_tile) + Expr(c.offset / c_.panel_width));
      map.Set(c_.column, Expr(c.offset % c_.panel_width) + lane);
      value = tir::Substitute(c_.b, map);
    } else {
      PlaceColumns(c, lane, &map);
      value = tir::Substitute(c_.b, map);
      Expr inside = Inside(lane, c, last);
      if (inside.defined()) value = PredicateLoads(value, lane, inside);
    }
    return ir::Cast(c_.acc, value);
  }

  static Expr Run(int64_t from, const Columns& c) { return ir::RampExpr(Expr(from), 1, c.lanes); }

  // The groups of one register's columns as words.
  Expr RightWords(const Columns& c, bool last) const {
    ffi::Map<Var, Expr> map;
    if (c_.panel_width > 0) {
      map.Set(c_.panel, part_.panel);
      map.Set(c_.column, Expr(c.offset));
    } else {
      map.Set(c_.vector.var, panel_start_ + Expr(c.offset));
    }
    const auto* load = c_.LoadOf(c_.b);
    const int64_t each = c_.GroupInB();
    Expr predicate;
    if (c_.panel_width == 0 && last && part_.limit.defined()) {
      Expr inside = (part_.limit - panel_start_ - Expr(c.offset)) * Expr(each);
      predicate = ir::Less(ir::RampExpr(Expr(0), 1, each * c.lanes),
                           ir::BroadcastExpr(inside, each * c.lanes));
    }
    Expr from = tir::Substitute(load->indices[0], map);
    Expr all = tir::BufferLoad(load->buffer, {ir::RampExpr(from, 1, each * c.lanes)}, predicate);
    return c_.b_in_words ? all : ir::CallIntrin(Int(32, c.lanes), Intrin::kReinterpret, {all});
  }

  // A at `row` of the tile.  Where rows are a fixed distance apart, all of them are found from one
  // address: a pointer for each would leave too few registers.
  Expr LeftAt(int64_t row) const {
    const auto* load = c_.LoadOf(c_.a);
    ffi::Map<Var, Expr> map;
    const auto linear = LinearOffset::Of(load->indices[0], {c_.row});
    if (!linear.has_value() || !ir::AsInt(linear->Coeff(c_.row.var)).has_value()) {
      map.Set(c_.row.var, RowAt(row));
      return Offsets(tir::Substitute(c_.a, map));
    }
    map.Set(c_.row.var, row_start_);
    const Expr from = tir::Substitute(load->indices[0], map);
    const Expr at = from + Expr(row * ir::AsInt(linear->Coeff(c_.row.var)).value());
    LoadReplacer replacer;
    replacer.values.emplace_back(load,
                                 tir::BufferLoad(load->buffer, {at}, load->predicate, load->span));
    return replacer.Mutate(c_.a);
  }

  Expr LeftWord(int64_t row) const { return LeftWords(row, 1); }
  // `count` neighbours along the sum.
  Expr LeftWords(int64_t row, int64_t count) const {
    ffi::Map<Var, Expr> map;
    map.Set(c_.row.var, RowAt(row));
    const auto* load = c_.LoadOf(c_.a);
    Expr from = tir::Substitute(load->indices[0], map);
    if (c_.line_width > 0) from = analyzer_->Simplify(from);
    Expr group = tir::BufferLoad(load->buffer, {ir::RampExpr(from, 1, c_.group * count)});
    Expr word = ir::CallIntrin(Int(32, static_cast<int>(count)), Intrin::kReinterpret, {group});
    return c_.NeedsCorrection() ? Expr(ir::Binary(ir::BinaryOp::kBitXor, word, k128)) : word;
  }

  Expr Dot(const Expr& sum, const Expr& left, const Expr& right) const {
    if (c_.group == 2 && !IsFloat(c_.acc)) return tir::DotOfHalves(sum, left, right);
    if (c_.group == 2) return tir::DotOfPairs(sum, left, right);
    if (c_.BothSigned() && c_.dot_signed) return tir::DotOfSignedBytes(sum, left, right);
    return c_.b_is_signed ? tir::DotOfBytes(sum, left, right) : tir::DotOfBytes(sum, right, left);
  }

  using DotOf = std::function<Expr(const Expr& sum, const Expr& left, const Expr& right)>;

  // The products of one group of k, added to one set of sums.
  Stmt GroupStep(int64_t set) const {
    return GroupStep(set,
                     [&](const Expr& sum, const Expr& a, const Expr& b) { return Dot(sum, a, b); });
  }
  Stmt GroupStep(int64_t set, const DotOf& dot) const {
    ffi::Array<Stmt> step;
    std::vector<Var> right;
    for (size_t v = 0; v < part_.columns.size(); ++v) {
      const Columns& c = part_.columns[v];
      right.emplace_back("right", Int(32, c.lanes));
      step.push_back(tir::Bind(right.back(), RightWords(c, v + 1 == part_.columns.size())));
      if (!c_.NeedsCorrection()) continue;
      Expr sum = correction_.Load({Run(c.offset, c)});
      Expr next = tir::DotOfBytes(sum, ir::BroadcastExpr(k128, c.lanes), right.back());
      step.push_back(BufferStore(correction_, next, {Run(c.offset, c)}));
    }
    for (int64_t row = 0; row < part_.rows; ++row) {
      Var left("left", Int(32));
      step.push_back(tir::Bind(left, LeftWord(row)));
      for (size_t v = 0; v < part_.columns.size(); ++v) {
        const Columns& c = part_.columns[v];
        Expr at = Run((set * part_.rows + row) * width_ + c.offset, c);
        Expr wide = ir::BroadcastExpr(left, c.lanes), sum = acc_.Load({at});
        step.push_back(BufferStore(acc_, dot(sum, wide, right[v]), {at}));
      }
    }
    return SeqStmt::Flatten(step);
  }

  // The same for a group whose pairs keep to 16 bits.
  Stmt PairsStep(int64_t set) const { return GroupStep(set, tir::DotOfBytePairs); }

  bool ByHalves() const { return c_.group == 4 && c_.by_halves; }

  // Words of a row's left side, widened.
  using LeftHalves = std::function<tir::Halves(int64_t row)>;

  // A group step on a machine that multiplies halves.  What is widened of the right side serves all
  // rows.
  Stmt HalvesStep(int64_t set, const LeftHalves& left_at) const {
    ffi::Array<Stmt> step;
    auto bound = [&](const char* name, const Expr& value) {
      Var var(name, value.dtype());
      step.push_back(tir::Bind(var, value));
      return var;
    };
    std::vector<tir::Halves> right;
    for (size_t v = 0; v < part_.columns.size(); ++v) {
      const Var words = bound("words", RightWords(part_.columns[v], v + 1 == part_.columns.size()));
      const tir::Halves halves = tir::HalvesOfBytes(words, c_.b_is_signed);
      right.push_back({bound("even", halves.even), bound("odd", halves.odd)});
    }
    for (int64_t row = 0; row < part_.rows; ++row) {
      const tir::Halves halves = left_at(row);
      const Var even = bound("even", halves.even), odd = bound("odd", halves.odd);
      for (size_t v = 0; v < part_.columns.size(); ++v) {
        const Columns& c = part_.columns[v];
        const Expr at = Run((set * part_.rows + row) * width_ + c.offset, c);
        auto wide = [&](const Var& word) { return ir::BroadcastExpr(word, c.lanes); };
        const Expr sum = tir::DotOfHalves(acc_.Load({at}), wide(even), right[v].even);
        step.push_back(BufferStore(acc_, tir::DotOfHalves(sum, wide(odd), right[v].odd), {at}));
      }
    }
    return SeqStmt::Flatten(step);
  }

  // The left side at a row of the tile, in the type of the sums.
  using Left = std::function<Expr(int64_t row)>;

  // The products of one k, added to one set of sums.
  Stmt Step(int64_t set) const {
    if (ByHalves()) {
      return HalvesStep(
          set, [&](int64_t row) { return tir::HalvesOfBytes(LeftWord(row), c_.a_is_signed); });
    }
    if (c_.group > 1) return GroupStep(set);
    return Step(set, [&](int64_t row) { return ir::Cast(c_.acc, LeftAt(row)); });
  }

  Stmt Step(int64_t set, const Left& left_at) const {
    Buffer right("right", {Expr(width_)}, c_.acc, "local");
    ffi::Array<Stmt> step = {tir::AllocBuffer(right)};
    for (size_t v = 0; v < part_.columns.size(); ++v) {
      const Columns& c = part_.columns[v];
      Var lane("lane", Int(64));
      step.push_back(Lanes(lane, c,
                           BufferStore(right, Right(lane, c, v + 1 == part_.columns.size()),
                                       {Expr(c.offset) + lane})));
    }
    for (int64_t row = 0; row < part_.rows; ++row) {
      Var left("left", c_.acc);
      step.push_back(tir::Bind(left, left_at(row)));
      for (const Columns& c : part_.columns) {
        Var lane("lane", Int(64));
        Expr at = At(set, row, c) + lane;
        Expr next = right.Load({Expr(c.offset) + lane});
        Expr sum = IsFloat(c_.acc) ? ir::CallIntrin(Intrin::kFma, {left, next, acc_.Load({at})})
                                   : ir::Add(acc_.Load({at}), ir::Mul(left, next));
        step.push_back(Lanes(lane, c, BufferStore(acc_, sum, {at})));
      }
    }
    return SeqStmt::Flatten(step);
  }

  // `load` of a run of `count` elements (groups, as words), those at or above `limit` (null: none)
  // left out.
  Expr LoadRun(const tir::BufferLoadObj* load, const ffi::Map<Var, Expr>& map, int64_t count,
               const Expr& limit) const {
    const int64_t all = count * c_.group;
    Expr predicate;
    if (limit.defined()) {
      const Expr end = limit * Expr(c_.group);
      predicate = ir::Less(ir::RampExpr(Expr(0), 1, all), ir::BroadcastExpr(end, all));
    }
    const Expr from = tir::Substitute(load->indices[0], map);
    const Expr run = tir::BufferLoad(load->buffer, {ir::RampExpr(from, 1, all)}, predicate);
    if (c_.group == 1) return run;
    return ir::CallIntrin(Int(32, static_cast<int>(count)), Intrin::kReinterpret, {run});
  }

  Expr Multiplied(const Expr& sum, const Expr& left, const Expr& right) const {
    if (c_.group > 1) return Dot(sum, left, right);
    return IsFloat(c_.acc) ? ir::CallIntrin(Intrin::kFma, {left, right, sum})
                           : ir::Add(sum, ir::Mul(left, right));
  }

  // All of the innermost axis at once: a row's left sides of the groups in a vector are loaded
  // together, and each k picks out one of each group.
  Stmt StepSideBySide() const {
    const auto& [group, columns, depth] = *c_.side_by_side;
    const Var& k = c_.stage.reduce.back().var;
    ffi::Array<Stmt> step;
    for (size_t v = 0; v < part_.columns.size(); ++v) {
      const Columns& c = part_.columns[v];
      DLDataType type = c_.acc;
      type.lanes = static_cast<uint16_t>(c.lanes);
      const Expr first = panel_start_ + Expr(c.offset);
      const Expr limit = part_.limit.defined() && v + 1 == part_.columns.size()
                             ? Expr(part_.limit - first)
                             : Expr();
      ffi::Map<Var, Expr> map;
      map.Set(c_.vector.var, first);
      std::vector<Var> right;
      for (int64_t at = 0; at < depth; ++at) {
        map.Set(k, Expr(at));
        right.emplace_back("right", type);
        step.push_back(tir::Bind(right.back(), LoadRun(c_.LoadOf(c_.b), map, c.lanes, limit)));
      }
      map.Set(k, Expr(0));
      map.Set(group, part_.panel * Expr(panel_width_ / columns) + Expr(c.offset / columns));
      const int64_t count = c.lanes / columns * depth;
      type.lanes = static_cast<uint16_t>(count);
      for (int64_t row = 0; row < part_.rows; ++row) {
        map.Set(c_.row.var, RowAt(row));
        Var left("left", type);
        const Expr inside =
            limit.defined() ? Expr(ir::FloorDiv(limit, columns) * Expr(depth)) : Expr();
        step.push_back(tir::Bind(left, LoadRun(c_.LoadOf(c_.a), map, count, inside)));
        for (int64_t at = 0; at < depth; ++at) {
          ffi::Array<int64_t> picks;
          for (int64_t lane = 0; lane < c.lanes; ++lane)
            picks.push_back(lane / columns * depth + at);
          const Expr to = Run((row * width_) + c.offset, c), sum = acc_.Load({to});
          const Expr picked = ir::ShuffleExpr({left}, picks);
          step.push_back(BufferStore(acc_, Multiplied(sum, picked, right[at]), {to}));
        }
      }
    }
    return SeqStmt::Flatten(step);
  }

  // A loop over k, whose step takes B at `k` and the `count` - 1 that follow, fetching B ahead.
  Stmt FetchingB(const Stmt& steps, const Expr& k, int64_t count) const {
    const auto* loop = steps.as<tir::ForObj>();
    const auto& [most_rows, ahead_bytes, near] = c_.fetch_b;
    if (loop == nullptr) return steps;
    Buffer b(c_.LoadOf(c_.b)->buffer);
    const int64_t line = kLineBytes / SizeInBytes(b.elem_dtype());
    const int64_t run = c_.GroupInB() * width_ * count;  // elements of each step
    const int64_t lines = (run + line - 1) / line;
    const int64_t ahead = std::max<int64_t>(1, ahead_bytes / kLineBytes / lines) * count;
    ffi::Map<Var, Expr> map;
    map.Set(c_.stage.reduce.back().var, k + Expr(ahead));
    if (c_.panel_width > 0) {
      map.Set(c_.panel, part_.panel);
      map.Set(c_.column, Expr(part_.columns.front().offset));
    } else {
      map.Set(c_.vector.var, panel_start_ + Expr(part_.columns.front().offset));
    }
    Expr at = tir::Substitute(c_.LoadOf(c_.b)->indices[0], map);
    if (lines > 1) at = ir::RampExpr(at, line, lines);
    return Annotated(loop, near ? kPrefetchNear : kPrefetch, b.Load({at}));
  }

  // Steps of the sum that one iteration of a loop takes, with what it fetches.
  int64_t StepsOfIteration() const {
    if (HasNotes()) return c_.notes->block;
    return WidensLeft() ? BlockOfLeft() : StepsAtOnce();
  }

  Stmt OverOuter(const std::vector<Axis>& outer, const Stmt& body) const {
    return OverGuarded(c_, outer, body);
  }

  Stmt Sum() const {
    if (c_.stage.reduce.empty()) return Step(0);
    const std::vector<Axis>& reduce = c_.stage.reduce;
    const Axis& inner = reduce.back();
    const std::vector<Axis> outer(reduce.begin(), reduce.end() - 1);
    if (c_.guard.defined() && UsesVar(c_.guard, inner.var)) return OverOuter(reduce, Step(0));
    if (c_.side_by_side.has_value()) return OverOuter(outer, StepSideBySide());
    if (HasNotes()) return OverOuter(outer, StepsByNotes());
    if (WidensLeft()) return OverOuter(outer, WideningLeft());
    if (num_sets_ == 1) return OverOuter(outer, StepsThatFetch());
    // Neighbours along the innermost axis go to different sets, what is left into the first one.
    const Expr rounds = analyzer_->Simplify(ir::FloorDiv(inner.extent, num_sets_));
    Var round("round", Int(64)), rest("rest", Int(64));
    ffi::Array<Stmt> sets;
    for (int64_t set = 0; set < num_sets_; ++set)
      sets.push_back(AtK(Step(set), round * Expr(num_sets_) + Expr(set)));
    const Expr done = analyzer_->Simplify(rounds * Expr(num_sets_));
    const Expr left = analyzer_->Simplify(inner.extent - done);
    Stmt all = Loop(round, rounds, ForKind::kSerial, SeqStmt::Flatten(sets));
    if (CanFetchB()) all = FetchingB(all, round * Expr(num_sets_), num_sets_);
    Stmt both =
        SeqStmt::Flatten({all, Loop(rest, left, ForKind::kSerial, AtK(Step(0), done + rest))});
    return OverOuter(outer, both);
  }

  // Steps that one iteration takes.  What a loop needs for itself is a sixth of a step of a usual
  // tile, and the share grows where a core gives half of its instructions to someone else.
  int64_t StepsAtOnce() const {
    const int64_t products = part_.rows * static_cast<int64_t>(part_.columns.size());
    if (!part_.is_usual || c_.group > 1 || products < kFewestProducts) return 1;
    const auto fit = static_cast<uint64_t>(kMostProducts / products);
    return static_cast<int64_t>(std::bit_floor(std::clamp<uint64_t>(fit, 1, kMostStepsAtOnce)));
  }

  // `count` steps of the innermost axis of the sum from `k` on, one after the other.
  Stmt Steps(const Expr& k, const Expr& count) const {
    const int64_t at_once = StepsAtOnce();
    const int64_t known = ir::AsInt(count).value_or(0);
    Var step("step", Int(64)), rest("rest", Int(64));
    if (at_once == 1 || known < 2 * at_once)
      return Loop(step, count, ForKind::kSerial, AtK(Step(0), k + step));
    const int64_t done = known / at_once * at_once;
    return SeqStmt::Flatten(
        {Loop(step, known / at_once, ForKind::kSerial, SomeSteps(k + step * Expr(at_once))),
         Loop(rest, known - done, ForKind::kSerial, AtK(Step(0), k + Expr(done) + rest))});
  }
  // StepsAtOnce of them.
  Stmt SomeSteps(const Expr& k) const {
    ffi::Array<Stmt> some;
    for (int64_t i = 0; i < StepsAtOnce(); ++i) some.push_back(AtK(Step(0), k + Expr(i)));
    return SeqStmt::Flatten(some);
  }

  // The loop over the innermost axis of the sum, with what it fetches.  What is to be fetched of
  // rows of A is found once for each cache line of one: in every step, that costs a fourth of the
  // instructions.
  Stmt StepsThatFetch() const {
    const Axis& inner = c_.stage.reduce.back();
    const Stmt one_by_one = Loop(inner.var, inner.extent, ForKind::kSerial, Step(0));
    if (FetchesB()) return FetchingB(one_by_one, inner.var, 1);
    const DLDataType type = Buffer(c_.LoadOf(c_.a)->buffer).elem_dtype();
    const int64_t size = kLineBytes / (SizeInBytes(type) * c_.group);
    if (ir::AsInt(inner.extent).value_or(size) < size) return Steps(0, inner.extent);
    if (next_.has_value()) {
      const int64_t each = StepsAtOnce();
      Var iteration("iteration", Int(64)), rest("rest", Int(64));
      const Expr count = analyzer_->Simplify(ir::FloorDiv(inner.extent, each));
      const Expr done = analyzer_->Simplify(count * Expr(each));
      const Expr left = analyzer_->Simplify(inner.extent - done);
      const Stmt steps = SeqStmt::Flatten(
          {next_->WhileFetching(iteration, count, SomeSteps(iteration * Expr(each)), true),
           Loop(rest, left, ForKind::kSerial, AtK(Step(0), done + rest))});
      if (!CanFetchB()) return steps;
      return tir::IfThenElse(ir::Equal(part_.next->tiles, 1), FetchingB(one_by_one, inner.var, 1),
                             steps);
    }
    Var block("block", Int(64));
    const Expr blocks = analyzer_->Simplify(ir::FloorDiv(inner.extent, size));
    const Expr fetched = NextRowsOfA(block * Expr(size));
    if (!fetched.defined()) return Steps(0, inner.extent);
    const Expr done = analyzer_->Simplify(blocks * Expr(size));
    const Expr left = analyzer_->Simplify(inner.extent - done);
    const Stmt steps = Steps(block * Expr(size), Expr(size));
    return SeqStmt::Flatten({OverBlocks(block, blocks, steps, fetched), Steps(done, left)});
  }

  // Do steps fetch B itself ahead?  Not where several tiles share it; perhaps nobody knows.
  bool CanFetchB() const {
    const bool is_shared = part_.next.has_value() && ir::AsInt(part_.next->tiles).value_or(1) > 1;
    return part_.rows <= c_.fetch_b.most_rows && !is_shared;
  }
  bool FetchesB() const {
    return CanFetchB() && (!part_.next.has_value() || ir::IsIntValue(part_.next->tiles, 1));
  }

  // The loop over blocks of steps, of which each fetches what comes next: of B, or `rows`, of A
  // (null: nothing).  The machine itself follows a row after some lines only.
  Stmt OverBlocks(const Var& block, const Expr& blocks, const Stmt& body, const Expr& rows) const {
    if (next_.has_value()) return next_->WhileFetching(block, blocks, body, false);
    if (!rows.defined()) return Loop(block, blocks, ForKind::kSerial, body);
    const For loop(block, 0, blocks, ForKind::kSerial, body);
    return Annotated(loop.get(), kPrefetch, rows);
  }

  // A line of each of the next tile's rows of A at `k`; null: they are not fetched.
  Expr NextRowsOfA(const Expr& k) const {
    const auto* load = c_.LoadOf(c_.a);
    if (c_.fetch_depth == 0 || c_.line_width > 0 || FetchesB()) return Expr();
    const auto linear = LinearOffset::Of(load->indices[0], {c_.row});
    const auto step = linear.has_value() ? ir::AsInt(linear->Coeff(c_.row.var)) : std::nullopt;
    if (!step.has_value()) return Expr();
    ffi::Map<Var, Expr> map;
    map.Set(c_.row.var, row_start_ + Expr(part_.rows));
    map.Set(c_.stage.reduce.back().var, k);
    Expr at = tir::Substitute(load->indices[0], map);
    if (part_.rows > 1) at = ir::RampExpr(at, step.value(), part_.rows);
    return Buffer(load->buffer).Load({at});
  }

  // `stmt` at `k` along the innermost axis of the sum.
  Stmt AtK(const Stmt& stmt, const Expr& k) const {
    ffi::Map<Var, Expr> map;
    map.Set(c_.stage.reduce.back().var, k);
    return tir::Substitute(stmt, map);
  }

  // Are the left side's elements narrower than the sums, and a row's ones a run of memory?
  bool WidensLeft() const {
    const auto* load = c_.LoadOf(c_.a);
    const Axis& inner = c_.stage.reduce.back();
    const int64_t fewest = ByHalves() ? kFewestWords : lanes_;
    if ((c_.group > 1 && !ByHalves()) || lanes_ < kMostSets || load->predicate.defined() ||
        SizeInBytes(Buffer(load->buffer).elem_dtype()) >= SizeInBytes(c_.acc) ||
        ir::AsInt(inner.extent).value_or(lanes_) < fewest)
      return false;
    const auto linear = LinearOffset::Of(load->indices[0], c_.AllAxes());
    return linear.has_value() && ir::IsIntValue(linear->Coeff(inner.var), c_.group);
  }

  // Do notes tell which blocks of this loop over the innermost axis of the sum keep to 16 bits?
  bool HasNotes() const {
    if (!c_.notes.has_value() || !WidensLeft()) return false;
    return c_.first_group.defined() ||
           ir::IsIntValue(c_.stage.reduce.back().extent, c_.notes->groups);
  }

  // The loop over the innermost axis of the sum by blocks, each with the steps that its note says.
  Stmt StepsByNotes() const {
    const auto [groups, size] = *c_.notes;
    Var block("block", Int(64)), round("round", Int(64)), step("step", Int(64));
    const Expr from = block * Expr(size);
    const int64_t num_sets = SetsOfBlock(size);
    ffi::Array<Stmt> sets;
    for (int64_t set = 0; set < num_sets; ++set)
      sets.push_back(AtK(PairsStep(set), from + round * Expr(num_sets) + Expr(set)));
    Stmt pairs = Loop(round, size / num_sets, ForKind::kSerial, SeqStmt::Flatten(sets));
    if (FetchesB()) pairs = FetchingB(pairs, from + round * Expr(num_sets), num_sets);
    ffi::Array<Stmt> halves;
    const Stmt of_block = WidenedSteps(from, step, size, &halves);
    halves.push_back(Loop(step, size / num_sets, ForKind::kSerial, of_block));
    ffi::Map<Var, Expr> behind;
    const Axis& inner = c_.stage.reduce.back();
    const Expr first = c_.first_group.defined() ? c_.first_group : Expr(0);
    behind.Set(inner.var, Expr(groups) - first);
    behind.Set(c_.panel, part_.panel);
    behind.Set(c_.column, Expr(0));
    behind.Set(c_.vector.var, Expr(0));  // one panel, where these are no axis
    const auto* load = c_.LoadOf(c_.b);
    const Expr note =
        Buffer(load->buffer)
            .Load({tir::Substitute(load->indices[0], behind) + ir::FloorDiv(first, size) + block});
    const Stmt both = tir::IfThenElse(ir::Equal(note, ir::Const(note.dtype(), 0)), pairs,
                                      SeqStmt::Flatten(halves));
    const Expr blocks = analyzer_->Simplify(ir::FloorDiv(inner.extent, size));
    return OverBlocks(block, blocks, both, NextRowsOfA(from));
  }

  // Steps of a block of widened left sides: a vector, or of bytes, which are used up sooner, up to
  // a cache line where such ones divide a row.
  int64_t BlockOfLeft() const {
    const int64_t depth = ir::AsInt(c_.stage.reduce.back().extent).value_or(0);
    if (ByHalves() && depth > 0 && depth < lanes_) return depth;
    int64_t size = lanes_;
    while (ByHalves() && size * c_.group < kLineBytes && depth > 0 && depth % (2 * size) == 0)
      size *= 2;
    return size;
  }

  // Sets that the steps of a block go to.
  int64_t SetsOfBlock(int64_t size) const { return size % num_sets_ == 0 ? num_sets_ : 1; }

  // What widens a block of `size` steps from `from` on goes to `seq`; the result is round `round`
  // of these steps.
  Stmt WidenedSteps(const Expr& from, const Var& round, int64_t size, ffi::Array<Stmt>* seq) const {
    // Of words: the even bytes of a row, and behind them the odd ones.
    const int64_t row_size = (ByHalves() ? 2 : 1) * size;
    Buffer wide("wide", {Expr(part_.rows * row_size)}, c_.acc, "local");
    seq->push_back(tir::AllocBuffer(wide));
    for (int64_t row = 0; row < part_.rows; ++row) {
      if (ByHalves()) {
        for (int64_t at = 0, count = 0; at < size; at += count) {
          const auto left = static_cast<uint64_t>(std::min(size - at, lanes_));
          count = static_cast<int64_t>(std::bit_floor(left));
          const Stmt store = StoreHalves({row, count}, wide, row * row_size + at, size);
          seq->push_back(AtK(store, from + Expr(at)));
        }
        continue;
      }
      Var lane("lane", Int(64));
      const Stmt store =
          BufferStore(wide, ir::Cast(c_.acc, LeftAt(row)), {Expr(row * row_size) + lane});
      seq->push_back(For(lane, 0, lanes_, ForKind::kVectorized, AtK(store, from + lane)));
    }
    const int64_t num_sets = SetsOfBlock(size);
    ffi::Array<Stmt> sets;
    for (int64_t set = 0; set < num_sets; ++set) {
      const Expr at = round * Expr(num_sets) + Expr(set);
      const auto left = [&](int64_t row) { return wide.Load({Expr(row * row_size) + at}); };
      const auto halves = [&](int64_t row) -> tir::Halves {
        return {left(row), wide.Load({Expr(row * row_size + size) + at})};
      };
      sets.push_back(AtK(ByHalves() ? HalvesStep(set, halves) : Step(set, left), from + at));
    }
    return SeqStmt::Flatten(sets);
  }

  // The loop over the innermost axis of the sum, by blocks of as many steps as a vector has lanes:
  // each row's elements of a block are widened together and lie in the first cache for the steps
  // that take them one by one.  Widening one element costs as much as widening a vector of them.
  Stmt WideningLeft() const {
    const Axis& inner = c_.stage.reduce.back();
    const int64_t size = BlockOfLeft();
    Var block("block", Int(64)), round("round", Int(64)), rest("rest", Int(64));
    const Expr blocks = analyzer_->Simplify(ir::FloorDiv(inner.extent, size));
    const Expr from = block * Expr(size);
    ffi::Array<Stmt> seq;
    const Stmt of_block = WidenedSteps(from, round, size, &seq);
    const int64_t num_sets = SetsOfBlock(size);
    const Stmt steps = Loop(round, size / num_sets, ForKind::kSerial, of_block);
    const Expr k = from + round * Expr(num_sets);
    seq.push_back(FetchesB() ? FetchingB(steps, k, num_sets_) : steps);
    const Stmt over_blocks = OverBlocks(block, blocks, SeqStmt::Flatten(seq), NextRowsOfA(from));
    const Expr done = analyzer_->Simplify(blocks * Expr(size));
    const Expr left = analyzer_->Simplify(inner.extent - done);
    const int64_t last = ir::AsInt(left).value_or(0);
    if (!ByHalves() || last < kFewestWords) {
      return SeqStmt::Flatten(
          {over_blocks, Loop(rest, left, ForKind::kSerial, AtK(Step(0), done + rest))});
    }
    ffi::Array<Stmt> behind = {over_blocks};
    const Stmt of_rest = WidenedSteps(done, rest, last, &behind);
    behind.push_back(Loop(rest, last / SetsOfBlock(last), ForKind::kSerial, of_rest));
    return SeqStmt::Flatten(behind);
  }

  // Neighbouring words of a row, widened, to `wide` from `at` on, where odd bytes lie `size`
  // behind.
  struct WordsOfRow {
    int64_t row, count;
  };
  Stmt StoreHalves(const WordsOfRow& some, const Buffer& wide, int64_t at, int64_t size) const {
    Var words("words", Int(32, static_cast<int>(some.count)));
    const tir::Halves halves = tir::HalvesOfBytes(words, c_.a_is_signed);
    const Columns whole = {0, some.count};
    return SeqStmt::Flatten({tir::Bind(words, LeftWords(some.row, some.count)),
                             BufferStore(wide, halves.even, {Run(at, whole)}),
                             BufferStore(wide, halves.odd, {Run(at + size, whole)})});
  }

  void AddSets(ffi::Array<Stmt>* seq) const {
    for (int64_t step = num_sets_ / 2; step > 0; step /= 2) {
      for (int64_t set = 0; set < step; ++set) {
        EachRegister([&](int64_t row, const Columns& c, bool) {
          Var lane("lane", Int(64));
          Expr to = At(set, row, c) + lane, from = At(set + step, row, c) + lane;
          seq->push_back(
              Lanes(lane, c, BufferStore(acc_, ir::Add(acc_.Load({to}), acc_.Load({from})), {to})));
        });
      }
    }
  }

  // Finishes the sums of `row` in one run of columns, which lie in `sums` from `at` on.
  Stmt StoreRun(const Expr& row, const Columns& c, bool last, const Buffer& sums,
                const Expr& at) const {
    Var lane("lane", Int(64));
    ffi::Map<Var, Expr> map;
    map.Set(c_.row.var, RowAt(row));
    PlaceColumns(c, lane, &map);
    Expr value = sums.Load({at + lane});
    if (c_.NeedsCorrection() && !part_.partial.has_value())
      value = value - correction_.Load({Expr(c.offset) + lane});
    if (c_.stage.finish.defined()) {
      map.Set(c_.stage.reduced, value);
      value = Offsets(tir::Substitute(c_.stage.finish, map));
    }
    value = ir::Cast(c_.stage.out->elem_dtype(), value);
    Expr inside = Inside(lane, c, last);
    if (inside.defined()) value = PredicateLoads(value, lane, inside);
    Expr to = tir::Substitute(c_.stage.indices[0], map);
    if (c_.line_width > 0) to = analyzer_->Simplify(to);
    return Lanes(lane, c, BufferStore(*c_.stage.out, value, {to}, inside));
  }

  void StorePartial(ffi::Array<Stmt>* seq) const {
    EachRegister([&](int64_t row, const Columns& c, bool) {
      Var lane("lane", Int(64));
      Expr sum = acc_.Load({At(0, row, c) + lane});
      if (c_.NeedsCorrection()) sum = sum - correction_.Load({Expr(c.offset) + lane});
      Expr to = InSums(RowAt(row), c) + lane;
      seq->push_back(Lanes(lane, c, BufferStore(part_.partial->sums, sum, {to})));
    });
  }

  void Store(ffi::Array<Stmt>* seq) const {
    const bool is_dear = c_.stage.finish.defined() && CostOf(c_.stage.finish) >= kDearFinish;
    if (!is_dear || part_.rows == 1) {
      EachRegister([&](int64_t row, const Columns& c, bool last) {
        seq->push_back(StoreRun(Expr(row), c, last, acc_, At(0, row, c)));
      });
      return;
    }
    // Written once for each register, a polynomial makes more code than the product itself: the
    // sums go to memory, where a loop over rows reads them.
    Buffer sums("sums", {Expr(part_.rows * width_)}, c_.acc, "local");
    seq->push_back(tir::AllocBuffer(sums));
    EachRegister([&](int64_t row, const Columns& c, bool) {
      Var lane("lane", Int(64));
      Expr at = At(0, row, c) + lane;
      seq->push_back(Lanes(lane, c, BufferStore(sums, acc_.Load({at}), {at})));
    });
    Var row("row", Int(64));
    ffi::Array<Stmt> runs;
    for (const Columns& c : WideRuns()) {
      const Expr at = row * Expr(width_) + Expr(c.offset);
      runs.push_back(StoreRun(row, c, IsLast(c), sums, at));
    }
    seq->push_back(Loop(row, Expr(part_.rows), ForKind::kSerial, SeqStmt::Flatten(runs)));
  }

  const Contraction& c_;
  const TilePart& part_;
  arith::Analyzer* analyzer_;
  int64_t panel_width_;
  Expr panel_start_;
  int64_t width_;  // of all columns
  int64_t lanes_;
  int64_t num_sets_;
  Buffer acc_;
  Buffer correction_;  // 128 times the sum of each column of B
  const Expr k128 = ir::Const(Int(32), static_cast<int32_t>(0x80808080));  // in each byte
  Var row_start_{"row_start", Int(64)};  // of lines: the first line
  std::optional<NextOfB> next_;
};

}  // namespace

Stmt OverGuarded(const Contraction& c, const std::vector<Axis>& outer, const Stmt& body) {
  if (!c.guard.defined()) return Loops(outer, body);
  size_t asked = outer.size();
  while (asked > 0 && !UsesVar(c.guard, outer[asked - 1].var)) --asked;
  const auto at = outer.begin() + static_cast<std::ptrdiff_t>(asked);
  return Loops({outer.begin(), at}, tir::IfThenElse(c.guard, Loops({at, outer.end()}, body)));
}

Stmt EmitTile(const Contraction& c, int64_t width, const TilePart& part, const Machine& machine,
              arith::Analyzer* analyzer) {
  return TileEmitter(c, width, part, machine, analyzer).Run();
}

Stmt EmitFinish(const Contraction& c, int64_t width, const TilePart& part, const Expr& num_rows,
                const Machine& machine, arith::Analyzer* analyzer, const Stmt& beside) {
  return TileEmitter(c, width, part, machine, analyzer).Finish(num_rows, beside);
}

}  // namespace relaxvm::schedule::cpu
