// SPDX-License-Identifier: Apache-2.0
// The loop over time that LSTM, GRU and RNN share.
#include "ops/recurrent/recurrent.h"

#include <algorithm>
#include <utility>

namespace relaxvm::ops {
namespace {

constexpr int64_t kWorthAThread = 1 << 15;  // multiplications in all
// Multiplications of a step for each of two threads, and for each of more: they meet after each
// step, which takes the longer the more they are.
constexpr int64_t kStepWorthASecond = 3 << 12, kStepWorthAThread = 1 << 16;
// Rows of the batch that share a pass over r, and numbers that their sums take in registers at
// once; gates take turns where they have more.  With 32 registers of 16 numbers, and with fewer.
constexpr int64_t kManyNumbers = 512;
constexpr int64_t kManyRows = 8, kManySums = 256;
constexpr int64_t kFewRows = 4, kFewSums = 96;
// Up to here a tile adds up several parts of the product at once: six registers of 16, twelve of 8.
constexpr int64_t kSumsOfParts = 96;
// Bytes of r that each thread may read for itself.
constexpr int64_t kNearWeights = 1 << 20;
constexpr int64_t kChunk = 16;  // lanes of a sum; a whole number of registers

Stmt Loop(const ir::Var& var, const Expr& extent, tir::ForKind kind, Stmt body) {
  return tir::For(var, Expr(0), extent, kind, std::move(body));
}

}  // namespace

Recurrence::Recurrence(const RecurrentAttrs& a, const std::vector<Buffer>& inputs,
                       const std::vector<Buffer>& outputs, size_t num_states, int64_t lengths)
    : attrs_(a),
      inputs_(inputs),
      outputs_(outputs),
      wide_(WideDtype(inputs[0].elem_dtype())),
      gates_(*ir::AsInt(inputs[1].shape()[3])),
      width_(*ir::AsInt(inputs[1].shape()[4])),
      num_states_(num_states),
      lengths_(lengths),
      chunk_(width_ % kChunk == 0 ? kChunk : width_),
      steps_(inputs[0].shape()[0]),
      directions_(inputs[1].shape()[0]),
      batch_(inputs[2].shape()[1]),
      hidden_(inputs[2].shape()[2]),
      blocks_(inputs[1].shape()[1]) {}

Stmt Recurrence::Run() {
  most_rows_ = kManyRows;
  most_sums_ = kManySums;
  Stmt many = Forms();
  most_rows_ = kFewRows;
  most_sums_ = kFewSums;
  Expr numbers = ir::CallIntrin(Intrin::kVectorRoom, {Number(wide_, 0)});
  return tir::IfThenElse(ir::LessEqual(Expr(kManyNumbers), numbers), many, Forms());
}

// Rows of one batch have the same sums whatever the form, which depends on the number of threads.
Stmt Recurrence::Forms() {
  if (ffi::Optional<int64_t> batch = ir::AsInt(batch_)) {
    is_single_ = *batch == 1;
    return FormsOf(std::max<int64_t>(1, std::min(*batch, most_rows_)));
  }
  is_single_ = true;
  Stmt single = FormsOf(1);
  is_single_ = false;
  return tir::IfThenElse(ir::Equal(batch_, Expr(1)), single, FormsOf(most_rows_));
}

// Threads that have tiles of their own need not meet; others share the blocks of each step.  So
// does one thread, for which the tiles then read a block's weights together.
Stmt Recurrence::FormsOf(int64_t tile_rows) {
  const Expr full(tile_rows);
  if (ir::IsIntValue(blocks_, 1)) return Tasks(tile_rows, full);
  const bool has_one = ir::IsIntValue(directions_, 1);
  if (has_one && tile_rows == 1) return InSteps(tile_rows);
  const Expr threads = ir::CallIntrin(Intrin::kNumThreads, {Expr(1)}), tiles = TilesOf(full);
  const Expr is_alone = ir::LessEqual(threads, Expr(1));
  const Expr weights = hidden_ * hidden_ * Expr(gates_ * (inputs_[1].elem_dtype().bits / 8));
  const Expr enough =
      ir::And(ir::LessEqual(threads, tiles * directions_),
              ir::Or(ir::Equal(tiles, Expr(1)), ir::LessEqual(weights, kNearWeights)));
  Expr rows = full, in_tasks = enough;
  if (tile_rows > kFewRows) {
    const Expr fewer(kFewRows);
    rows = ir::Select(ir::Or(enough, is_alone), full, fewer);
    in_tasks = ir::Or(in_tasks, ir::And(ir::LessEqual(threads, TilesOf(fewer) * directions_),
                                        ir::LessEqual(weights, kNearWeights / 2)));
  }
  in_tasks = ir::Select(is_alone, ir::BoolImm(!has_one), in_tasks);
  Stmt tasks = Tasks(tile_rows, rows);
  return tir::IfThenElse(in_tasks, tasks, InSteps(tile_rows));
}

// Multiplications of one direction.
Expr Recurrence::StepWork() const { return batch_ * hidden_ * hidden_ * Expr(gates_); }

Expr Recurrence::TilesOf(const Expr& rows) const {
  return ir::FloorDiv(batch_ + rows - Expr(1), rows);
}

// Tasks are (direction, tile of `rows` rows, `most_rows` or fewer).
Stmt Recurrence::Tasks(int64_t most_rows, const Expr& rows) {
  ir::Var task("task", Int(64)), tile("tile", Int(64)), direction("direction", Int(64));
  ir::Var of_tile("rows", Int(64)), tiles("tiles", Int(64));
  direction_ = direction;
  const Expr divisor = ir::Max(tiles, Expr(1));
  ffi::Array<Stmt> body{tir::Bind(direction, ir::FloorDiv(task, divisor)),
                        tir::Bind(tile, ir::FloorMod(task, divisor))};
  body.push_back(TakeTile(tile, most_rows, of_tile, ir::IsIntValue(rows, most_rows)));
  first_place_ = Expr(0);
  used_ = steps_;
  for (const Stmt& part : Alloc(Expr(most_rows))) body.push_back(part);
  if (lengths_ >= 0) {  // no row goes on past the longest one
    ir::Var used("used", Int(64));
    body.push_back(tir::Bind(used, ir::Min(Longest(), steps_)));
    used_ = used;
  }
  body.push_back(Load(first_row_, num_rows_));
  body.push_back(Time());
  body.push_back(StoreLast(first_row_, num_rows_));
  if (lengths_ >= 0) body.push_back(ClearRest());
  ffi::Map<ffi::String, ffi::Any> annotations;
  annotations.Set("most_threads", ir::FloorDiv(steps_ * StepWork(), Expr(kWorthAThread)));
  annotations.Set("operations", steps_ * StepWork() * directions_ * Expr(2));
  Stmt loop = tir::For(task, Expr(0), Expr(tiles) * directions_, tir::ForKind::kParallel,
                       Sequence(body), "", ir::DictAttrs(annotations));
  return Sequence({tir::Bind(of_tile, rows), tir::Bind(tiles, TilesOf(of_tile)), loop});
}

// Threads share the blocks and the tiles of each phase, of all directions.  The tiles of a block
// follow each other: its weights are still near.
Stmt Recurrence::InSteps(int64_t tile_rows) {
  const Expr rows(tile_rows), num_phases(static_cast<int64_t>(NumPhases()));
  ir::Var bound("tiles", Int(64)), task("task", Int(64)), group("group", Int(64));
  ir::Var direction("direction", Int(64)), block("block", Int(64)), tile("tile", Int(64));
  ir::Var unit("unit", Int(64));
  const Expr tiles = is_single_ ? Expr(1) : Expr(bound);
  const Expr divisor = is_single_ ? tiles : ir::Max(tiles, Expr(1)), places = tiles * rows;
  used_ = steps_;
  ffi::Array<Stmt> parts;
  if (!is_single_) parts.push_back(tir::Bind(bound, TilesOf(rows)));
  for (const Stmt& part : Alloc(directions_ * places)) parts.push_back(part);
  ir::Var each("direction", Int(64));
  direction_ = each;
  first_place_ = Expr(each) * places;
  parts.push_back(Loop(each, directions_, tir::ForKind::kSerial, Load(Expr(0), batch_)));
  const Expr units = divisor * blocks_ * directions_;
  ffi::Array<Stmt> body{tir::Bind(group, ir::FloorDiv(task, units)),
                        tir::Bind(unit, BackAndForth(group, ir::FloorMod(task, units), units)),
                        tir::Bind(tile, ir::FloorMod(unit, divisor))};
  const Expr of_all = ir::FloorDiv(unit, divisor);  // block of all directions
  const bool has_one = ir::IsIntValue(directions_, 1);
  body.push_back(tir::Bind(direction, has_one ? Expr(0) : ir::FloorDiv(of_all, blocks_)));
  body.push_back(tir::Bind(block, has_one ? of_all : ir::FloorMod(of_all, blocks_)));
  direction_ = direction;
  block_ = block;
  body.push_back(TakeTile(tile, tile_rows, rows, true));
  first_place_ = Expr(direction) * places + first_row_;
  for (const Stmt& part : BeginStep(ir::FloorDiv(group, num_phases))) body.push_back(part);
  if (lengths_ < 0) {
    body.push_back(PhaseOf(group));
  } else {  // past the longest row states stay as they are
    Expr is_last = ir::Equal(ir::FloorMod(group, num_phases), num_phases - Expr(1));
    body.push_back(tir::IfThenElse(ir::Less(step_, Longest()), PhaseOf(group),
                                   Stmt(tir::IfThenElse(is_last, KeepStep()))));
  }
  const Expr work = StepWork() * directions_;
  ffi::Map<ffi::String, ffi::Any> annotations;
  annotations.Set("most_threads", ir::Max(ir::Min(ir::FloorDiv(work, Expr(kStepWorthASecond)), 2),
                                          ir::FloorDiv(work, Expr(kStepWorthAThread))));
  annotations.Set("in_steps", steps_ * num_phases);
  annotations.Set("operations", steps_ * work * Expr(2));
  parts.push_back(tir::For(task, Expr(0), steps_ * num_phases * tiles * blocks_ * directions_,
                           tir::ForKind::kParallel, Sequence(body), "",
                           ir::DictAttrs(annotations)));
  ir::Var last("direction", Int(64));
  direction_ = last;
  first_place_ = Expr(last) * places;
  parts.push_back(Loop(last, directions_, tir::ForKind::kSerial, StoreLast(Expr(0), batch_)));
  return Sequence(parts);
}

// The rows of a tile: `rows`, or what is left; `is_most`: `rows` is `most_rows`.
Stmt Recurrence::TakeTile(const Expr& tile, int64_t most_rows, const Expr& rows, bool is_most) {
  tile_rows_ = most_rows;
  counts_.clear();
  if (ffi::Optional<int64_t> batch = ir::AsInt(batch_)) {
    for (int64_t of_tile : {most_rows, is_most ? most_rows : kFewRows}) {
      if (*batch >= of_tile) counts_.insert(of_tile);
      if (*batch % of_tile != 0) counts_.insert(*batch % of_tile);
    }
  } else {
    for (int64_t count = 1; count <= most_rows; ++count) counts_.insert(count);
  }
  first_row_ = tile * rows;
  if (is_single_) {
    num_rows_ = Expr(1);
    return tir::Evaluate(Expr(0));
  }
  const ir::Var left("left", Int(64));
  num_rows_ = left;
  return tir::Bind(left, ir::Min(batch_ - first_row_, rows));
}

// A row of the tile in the step.
Recurrence::Row Recurrence::RowAt(const Expr& index, const std::string& name,
                                  ffi::Array<Stmt>* bounds) const {
  Row row{index, first_place_ + index, first_row_ + index, Expr(), Expr()};
  Expr length = steps_;
  if (lengths_ >= 0) {
    length = ir::Min(ir::Cast(Int(64), inputs_[lengths_].Load({row.batch})), steps_);
    ir::Var active("active" + name, Bool());
    bounds->push_back(tir::Bind(active, ir::Less(step_, length)));
    row.active = active;
  }
  Expr time = ir::Select(Reversed(), length - Expr(1) - step_, step_);
  if (row.active.defined()) time = ir::Select(row.active, time, step_);
  ir::Var bound("time" + name, Int(64));
  bounds->push_back(tir::Bind(bound, time));
  row.time = bound;
  return row;
}

// The steps of the tile's longest row.
Expr Recurrence::Longest() const {
  Expr longest(0);
  for (int64_t i = 0; i < tile_rows_; ++i) {
    Expr row = i == 0 ? first_row_ : ir::Min(first_row_ + Expr(i), batch_ - Expr(1));
    longest = ir::Max(longest, ir::Cast(Int(64), inputs_[lengths_].Load({row})));
  }
  return longest;
}

// Every second pass over the weights goes backwards: what the one before read last is still near.
Expr Recurrence::BackAndForth(const Expr& group, const Expr& i, const Expr& extent) const {
  return ir::Select(ir::Equal(ir::FloorMod(group, Expr(2)), Expr(0)), i, extent - Expr(1) - i);
}

ffi::Array<Stmt> Recurrence::Alloc(const Expr& num_places) {
  num_places_ = num_places;
  states_.clear();
  ffi::Array<Stmt> parts;
  Expr padded = blocks_ * Expr(width_);
  for (size_t s = 0; s < num_states_; ++s) {
    states_.emplace_back("state" + std::to_string(s), Dims{Expr(2), num_places, padded}, wide_,
                         "global");
    parts.push_back(tir::AllocBuffer(states_.back()));
  }
  for (const Buffer& b : Scratch()) parts.push_back(tir::AllocBuffer(b));
  return parts;
}

Stmt Recurrence::ForBlocks(const std::function<Stmt()>& body) {
  ir::Var block("block", Int(64));
  block_ = block;
  return Loop(block, blocks_, tir::ForKind::kSerial, body());
}

// The blocks of a phase in the order of its group.
Stmt Recurrence::ForBlocks(const Expr& group, const std::function<Stmt()>& body) {
  ir::Var at("at", Int(64)), block("block", Int(64));
  block_ = block;
  Stmt bound = tir::Bind(block, BackAndForth(group, at, blocks_));
  return Loop(at, blocks_, tir::ForKind::kSerial, Sequence({bound, body()}));
}

Stmt Recurrence::ForRows(const EachRow& body) const {
  ir::Var index("row", Int(64));
  ffi::Array<Stmt> parts;
  const Row row = RowAt(is_single_ ? Expr(0) : Expr(index), "", &parts);
  parts.push_back(body(row));
  if (is_single_) return Sequence(parts);
  return Loop(index, num_rows_, tir::ForKind::kSerial, Sequence(parts));
}

Stmt Recurrence::ForLanes(const std::function<Stmt(const Expr& lane)>& body) const {
  ir::Var lane("lane", Int(64));
  return Loop(lane, Expr(width_), tir::ForKind::kVectorized, body(lane));
}

Expr Recurrence::Old(size_t state, const Row& row, const Expr& unit) const {
  return states_[state].Load({now_, row.place, unit});
}

Stmt Recurrence::SetNew(size_t state, const Row& row, const Expr& unit, const Expr& value) const {
  Expr kept = row.active.defined() ? ir::Select(row.active, value, Old(state, row, unit)) : value;
  return tir::BufferStore(states_[state], kept, {Expr(1) - now_, row.place, unit});
}

Buffer Recurrence::Tile(const char* name, size_t num_gates) const {
  return Buffer(name, {Expr(tile_rows_), Expr(static_cast<int64_t>(num_gates)), Expr(width_)},
                wide_, "local");
}

Buffer Recurrence::RowBuffer(const char* name) const {
  return Buffer(name, {num_places_, blocks_ * Expr(width_)}, wide_, "global");
}

Expr Recurrence::Input(const Row& row, int64_t gate, const Expr& lane) const {
  return Wide(inputs_[0].Load({row.time, row.batch, direction_, block_, Expr(gate), lane}));
}

Expr Recurrence::Clipped(const Expr& x) const {
  if (attrs_.clip <= 0) return x;
  return ir::Max(ir::Min(x, Number(wide_, attrs_.clip)), Number(wide_, -attrs_.clip));
}

// A form for each number of rows; the rest of a step is a loop over them.
Stmt Recurrence::Products(const Buffer& acc, const std::vector<int64_t>& gates, const Start& start,
                          const Left& left) {
  const int64_t num_columns = static_cast<int64_t>(gates.size()) * (width_ / chunk_);
  Stmt result;
  for (auto count = counts_.rbegin(); count != counts_.rend(); ++count) {
    ffi::Array<Stmt> parts;
    rows_.clear();
    for (int64_t i = 0; i < *count; ++i) rows_.push_back(RowAt(Expr(i), std::to_string(i), &parts));
    const int64_t most = std::max<int64_t>(most_sums_ / (*count * chunk_), 1);
    const int64_t num_turns = (num_columns + most - 1) / most;
    const int64_t at_once = (num_columns + num_turns - 1) / num_turns;
    for (int64_t from = 0; from < num_columns; from += at_once) {
      const Columns columns{from, std::min(num_columns, from + at_once)};
      parts.push_back(ProductsOf(acc, columns, gates, start, left));
    }
    Stmt of_count = Sequence(parts);
    result = result.defined()
                 ? tir::IfThenElse(ir::LessEqual(num_rows_, Expr(*count)), of_count, result)
                 : of_count;
  }
  return result;
}

Stmt Recurrence::ProductsOf(const Buffer& acc, Columns columns, const std::vector<int64_t>& gates,
                            const Start& start, const Left& left) {
  // One set of sums for each part of k: a set of few sums alone would wait for its last addition.
  const int64_t num_columns = columns.end - columns.begin;
  const auto num_rows = static_cast<int64_t>(rows_.size());
  const int64_t numbers = num_rows * num_columns * chunk_;
  // Where a row may be in tiles of any size, all of these have the same.
  const bool is_many = most_sums_ == kManySums && !is_single_;
  const bool has_one = static_cast<int64_t>(gates.size()) * width_ == chunk_;
  int64_t num_sets = is_many && has_one ? 2 : 1;
  while (!is_many && num_sets < 4 && numbers * num_sets * 2 <= kSumsOfParts) num_sets *= 2;
  std::vector<Buffer> sums;
  ffi::Array<Stmt> all;
  for (int64_t set = 0; set < num_sets; ++set) {
    sums.emplace_back("sums", Dims{Expr(num_rows), Expr(num_columns), Expr(chunk_)}, wide_,
                      "local");
    all.push_back(tir::AllocBuffer(sums.back()));
  }
  // `lane`: of the block's units; `at`: in the sums.  In the order in which the fewest weights and
  // left sides wait in registers.
  using Body =
      std::function<Stmt(const Row&, int64_t g, const Expr& lane, const ffi::Array<Expr>& at)>;
  auto each = [&](const Body& body) {
    const bool by_row = num_rows > 2 * num_columns;
    for (int64_t i = 0; i < num_rows * num_columns; ++i) {
      const int64_t column = by_row ? i % num_columns : i / num_rows, c = columns.begin + column;
      const Row& row = rows_[static_cast<size_t>(by_row ? i / num_columns : i % num_rows)];
      const int64_t of_gate = width_ / chunk_, from = c % of_gate * chunk_;
      ir::Var lane("lane", Int(64));
      all.push_back(Loop(lane, Expr(chunk_), tir::ForKind::kVectorized,
                         body(row, c / of_gate, Expr(from) + lane, {row.index, column, lane})));
    }
  };
  for (const Buffer& sum : sums) {
    each([&](const Row& row, int64_t g, const Expr& lane, const ffi::Array<Expr>& at) -> Stmt {
      const bool is_first = sum.same_as(sums[0]);
      const int64_t gate = gates[static_cast<size_t>(g)];
      return tir::BufferStore(sum, is_first ? start(row, gate, lane) : Number(wide_, 0), at);
    });
  }
  auto add = [&](const Buffer& sum, const Expr& k) {
    each([&](const Row& row, int64_t g, const Expr& lane, const ffi::Array<Expr>& at) -> Stmt {
      const Expr gate(gates[static_cast<size_t>(g)]);
      Expr weight = Wide(inputs_[1].Load({direction_, block_, k, gate, lane}));
      return tir::BufferStore(
          sum, ir::CallIntrin(Intrin::kFma, {left(row, k), weight, sum.Load(at)}), at);
    });
  };
  auto loop = [&](const ir::Var& at, const Expr& extent, const std::function<void()>& body) {
    ffi::Array<Stmt> outer = std::exchange(all, {});
    body();
    outer.push_back(Loop(at, extent, tir::ForKind::kSerial, Sequence(all)));
    all = outer;
  };
  // The sums of a step are added up in the order of its step, whoever does it.
  const Expr length = ir::FloorDiv(hidden_, Expr(num_sets)), back = ir::Equal(now_, Expr(1));
  const ir::Var at("at", Int(64)), from("from", Int(64)), by("by", Int(64));
  all.push_back(tir::Bind(from, ir::Select(back, length - Expr(1), Expr(0))));
  all.push_back(tir::Bind(by, ir::Select(back, Expr(-1), Expr(1))));
  loop(at, length, [&] {
    for (int64_t set = 0; set < num_sets; ++set) {
      const ir::Var k("k", Int(64));
      all.push_back(tir::Bind(k, from + at * by + length * Expr(set)));
      add(sums[static_cast<size_t>(set)], k);
    }
  });
  if (num_sets > 1) {
    const ir::Var last("at", Int(64));  // what the parts leave of k
    loop(last, hidden_ - length * Expr(num_sets),
         [&] { add(sums[0], length * Expr(num_sets) + last); });
  }
  each([&](const Row& row, int64_t g, const Expr& lane, const ffi::Array<Expr>& at) -> Stmt {
    Expr value = sums[0].Load(at);
    for (size_t set = 1; set < sums.size(); ++set) value = value + sums[set].Load(at);
    return tir::BufferStore(acc, value, {row.index, Expr(g), lane});
  });
  return Sequence(all);
}

Expr Recurrence::Reversed() const {
  if (attrs_.direction == "bidirectional") return ir::Equal(direction_, Expr(1));
  return ir::BoolImm(attrs_.direction == "reverse");
}

// The step, and which half of the states is the old one.
ffi::Array<Stmt> Recurrence::BeginStep(const Expr& at) {
  ir::Var step("step", Int(64)), now("now", Int(64));
  step_ = step;
  now_ = now;
  return {tir::Bind(step, at), tir::Bind(now, ir::FloorMod(step, Expr(2)))};
}

// One block in one phase; the last one leaves the result.
Stmt Recurrence::BlockOf(size_t phase) {
  return phase + 1 < NumPhases() ? Phase(phase) : Sequence({Phase(phase), StoreStep()});
}

// The phase of `group`.
Stmt Recurrence::PhaseOf(const Expr& group) {
  const auto num_phases = static_cast<int64_t>(NumPhases());
  Stmt phases = BlockOf(0);
  for (int64_t phase = 1; phase < num_phases; ++phase) {
    Expr now = ir::Equal(ir::FloorMod(group, Expr(num_phases)), Expr(phase));
    phases = tir::IfThenElse(now, BlockOf(static_cast<size_t>(phase)), phases);
  }
  return phases;
}

Stmt Recurrence::Time() {
  ir::Var step("at", Int(64));
  ffi::Array<Stmt> parts = BeginStep(step);
  for (size_t phase = 0; phase < NumPhases(); ++phase) {
    Expr group = step * Expr(static_cast<int64_t>(NumPhases())) + Expr(static_cast<int64_t>(phase));
    parts.push_back(ForBlocks(group, [&] { return BlockOf(phase); }));
  }
  return Loop(step, used_, tir::ForKind::kSerial, Sequence(parts));
}

// The initial states of the rows from `first` on.
Stmt Recurrence::Load(const Expr& first, const Expr& num_rows) {
  ir::Var index("row", Int(64));
  Expr row = first + index;
  Stmt blocks = ForBlocks([&] {
    return ForLanes([&](const Expr& lane) {
      ffi::Array<Stmt> stores;
      Expr unit = Unit(lane);
      for (size_t s = 0; s < num_states_; ++s) {
        Expr given = Wide(inputs_[2 + s].Load({direction_, row, unit}));
        Expr value = ir::IfThenElse(ir::Less(unit, hidden_), given, Number(wide_, 0));
        stores.push_back(
            tir::BufferStore(states_[s], value, {Expr(0), first_place_ + index, unit}));
      }
      return Sequence(stores);
    });
  });
  return Loop(index, num_rows, tir::ForKind::kSerial, blocks);
}

Stmt Recurrence::StoreStep() {
  return ForRows([&](const Row& row) {
    return ForLanes([&](const Expr& lane) -> Stmt {
      Expr unit = Unit(lane);
      Expr value = states_[0].Load({Expr(1) - now_, row.place, unit});
      if (row.active.defined()) value = ir::Select(row.active, value, Number(wide_, 0));
      value = ir::Cast(outputs_[0].elem_dtype(), value);
      Stmt store = tir::BufferStore(outputs_[0], value, {row.time, direction_, row.batch, unit});
      return tir::IfThenElse(ir::Less(unit, hidden_), store);
    });
  });
}

// A step that none of the rows takes: states stay, the results are 0.
Stmt Recurrence::KeepStep() {
  return ForRows([&](const Row& row) {
    return ForLanes([&](const Expr& lane) {
      Expr unit = Unit(lane);
      ffi::Array<Stmt> stores;
      for (size_t s = 0; s < num_states_; ++s) {
        stores.push_back(
            tir::BufferStore(states_[s], Old(s, row, unit), {Expr(1) - now_, row.place, unit}));
      }
      Stmt clear = tir::BufferStore(outputs_[0], Number(outputs_[0].elem_dtype(), 0),
                                    {step_, direction_, row.batch, unit});
      stores.push_back(tir::IfThenElse(ir::Less(unit, hidden_), clear));
      return Sequence(stores);
    });
  });
}

// The results behind the last step that a tile's rows take are 0.
Stmt Recurrence::ClearRest() {
  ir::Var step("step", Int(64)), index("row", Int(64));
  Expr row = first_row_ + index;
  Stmt rows = ForBlocks([&] {
    return ForLanes([&](const Expr& lane) -> Stmt {
      Expr unit = Unit(lane);
      Stmt store = tir::BufferStore(outputs_[0], Number(outputs_[0].elem_dtype(), 0),
                                    {used_ + Expr(step), direction_, row, unit});
      return tir::IfThenElse(ir::Less(unit, hidden_), store);
    });
  });
  return Loop(step, steps_ - used_, tir::ForKind::kSerial,
              Loop(index, num_rows_, tir::ForKind::kSerial, rows));
}

// The last states of the rows from `first` on.
Stmt Recurrence::StoreLast(const Expr& first, const Expr& num_rows) {
  ir::Var index("row", Int(64));
  Expr row = first + index, last = ir::FloorMod(used_, Expr(2));
  Stmt blocks = ForBlocks([&] {
    return ForLanes([&](const Expr& lane) -> Stmt {
      ffi::Array<Stmt> stores;
      Expr unit = Unit(lane);
      for (size_t s = 0; s < num_states_; ++s) {
        Expr value = ir::Cast(outputs_[1 + s].elem_dtype(),
                              states_[s].Load({last, first_place_ + index, unit}));
        stores.push_back(tir::BufferStore(outputs_[1 + s], value, {direction_, row, unit}));
      }
      return tir::IfThenElse(ir::Less(unit, hidden_), Sequence(stores));
    });
  });
  return Loop(index, num_rows, tir::ForKind::kSerial, blocks);
}

}  // namespace relaxvm::ops
