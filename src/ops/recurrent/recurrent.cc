// SPDX-License-Identifier: Apache-2.0
// The loop over time that LSTM, GRU and RNN share.
#include "ops/recurrent/recurrent.h"

#include <sstream>

namespace relaxvm::ops {
namespace {

constexpr int kRows = 4;                    // rows of the batch that share a pass over r
constexpr int64_t kWorthAThread = 1 << 15;  // multiplications in all
// Numbers that a row's sums may take: six registers of 16, twelve of 8.
constexpr int64_t kSums = 96;
// At most: where rows and gates have more, the gates take turns.
constexpr int64_t kMostSums = 128;
// Multiplications of a step for each of two threads, and for each of more: they meet after each
// step, which takes the longer the more they are.
constexpr int64_t kStepWorthASecond = 3 << 12, kStepWorthAThread = 1 << 16;

std::vector<std::string> Words(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

struct Activation {
  const char* name;
  double alpha;
  double beta;
  Expr (*apply)(const Expr& x, const Expr& alpha, const Expr& beta);
};

Expr Unary(Intrin intrin, const Expr& x) { return ir::CallIntrin(intrin, {x}); }
Expr Like(const Expr& x, double value) { return Number(x.dtype(), value); }

// log(1 + exp(x)) without overflow
Expr Softplus(const Expr& x) {
  Expr tail = Unary(Intrin::kExp, Like(x, 0) - Unary(Intrin::kAbs, x));
  return ir::Max(x, Like(x, 0)) + Unary(Intrin::kLog1p, tail);
}

constexpr Activation kActivations[] = {
    {"Relu", 0, 0, [](const Expr& x, const Expr&, const Expr&) { return ir::Max(x, Like(x, 0)); }},
    {"Tanh", 0, 0, [](const Expr& x, const Expr&, const Expr&) { return Unary(Intrin::kTanh, x); }},
    {"Sigmoid", 0, 0,
     [](const Expr& x, const Expr&, const Expr&) { return Unary(Intrin::kSigmoid, x); }},
    {"Affine", 1, 0, [](const Expr& x, const Expr& a, const Expr& b) { return a * x + b; }},
    {"LeakyRelu", 0.01, 0,
     [](const Expr& x, const Expr& a, const Expr&) {
       return ir::Select(ir::Less(x, Like(x, 0)), a * x, x);
     }},
    {"ThresholdedRelu", 1, 0,
     [](const Expr& x, const Expr& a, const Expr&) {
       return ir::Select(ir::Greater(x, a), x, Like(x, 0));
     }},
    {"ScaledTanh", 1, 1,
     [](const Expr& x, const Expr& a, const Expr& b) { return a * Unary(Intrin::kTanh, b * x); }},
    {"HardSigmoid", 0.2, 0.5,
     [](const Expr& x, const Expr& a, const Expr& b) {
       return ir::Max(ir::Min(a * x + b, Like(x, 1)), Like(x, 0));
     }},
    {"Elu", 1, 0,
     [](const Expr& x, const Expr& a, const Expr&) {
       Expr below = a * (Unary(Intrin::kExp, ir::Min(x, Like(x, 0))) - Like(x, 1));
       return ir::Select(ir::Less(x, Like(x, 0)), below, x);
     }},
    {"Softsign", 0, 0,
     [](const Expr& x, const Expr&, const Expr&) {
       return ir::Div(x, Like(x, 1) + Unary(Intrin::kAbs, x));
     }},
    {"Softplus", 0, 0, [](const Expr& x, const Expr&, const Expr&) { return Softplus(x); }},
};

const Activation* FindActivation(const std::string& name) {
  for (const Activation& a : kActivations) {
    if (name == a.name) return &a;
  }
  return nullptr;
}

Stmt Loop(const ir::Var& var, const Expr& extent, tir::ForKind kind, Stmt body) {
  return tir::For(var, Expr(0), extent, kind, std::move(body));
}

}  // namespace

void CheckActivations(const TypeCtx& ctx, const RecurrentAttrs& a, int64_t count) {
  const std::vector<std::string> names = Words(a.activations);
  for (const std::string& name : names) {
    if (FindActivation(name) == nullptr) {
      ctx.Error(ErrorKind::kValueError, "there is no activation '", name, "'");
    }
  }
  if (a.direction != "forward" && a.direction != "reverse" && a.direction != "bidirectional") {
    ctx.Error(ErrorKind::kValueError,
              "direction must be 'forward', 'reverse' or 'bidirectional', got '", a.direction, "'");
  }
  if (static_cast<int64_t>(names.size()) != count) {
    ctx.Error(ErrorKind::kValueError, "activations must name ", count, ", got '", a.activations,
              "'");
  }
}

Expr Activate(const RecurrentAttrs& a, size_t index, Expr x) {
  const Activation* activation = FindActivation(Words(a.activations).at(index));
  double alpha = index < a.alpha.size() ? a.alpha[index] : activation->alpha;
  double beta = index < a.beta.size() ? a.beta[index] : activation->beta;
  return activation->apply(x, Like(x, alpha), Like(x, beta));
}

RecurrentTypes CheckRecurrent(const TypeCtx& ctx, const RecurrentAttrs& a, int64_t gates,
                              size_t num_states, size_t lengths) {
  RecurrentTypes types{ctx.Float(0), ctx.Float(1), ctx.Float(2)};
  ctx.CheckRank(0, 6);
  ctx.CheckRank(1, 5);
  for (size_t i = 1; i < 2 + num_states; ++i) ctx.SameDtype(0, i);
  for (size_t i = 2; i < 2 + num_states; ++i) ctx.CheckRank(i, 3);
  if (ctx.Has(lengths)) {
    ctx.TensorOf(lengths, IsInteger, "a tensor of integers");
    ctx.CheckRank(lengths, 1);
  }
  if (!types.AreKnown()) return types;
  auto xs = types.x->GetShape(), rs = types.r->GetShape(), hs = types.state->GetShape();
  auto same = [&](const Expr& left, const Expr& right, const char* what) {
    if (!ctx.Equal(left, right)) {
      ctx.Error(ErrorKind::kValueError, what, " must agree: ", DescribeType(types.x), ", ",
                DescribeType(types.r), ", ", DescribeType(types.state));
    }
  };
  auto is_small = [](const Expr& e) { return ir::AsInt(e).has_value() && *ir::AsInt(e) <= 64; };
  if (!ir::IsIntValue((*rs)[3], gates) || !is_small((*rs)[4])) {
    ctx.Error(ErrorKind::kValueError, "r must have ", gates,
              " gates and a constant width of at most 64, got ", DescribeType(types.r));
  }
  same((*xs)[2], (*rs)[0], "directions");
  same((*xs)[2], (*hs)[0], "directions");
  same((*xs)[3], (*rs)[1], "blocks");
  same((*xs)[4], (*rs)[3], "gates");
  same((*xs)[5], (*rs)[4], "widths");
  same((*xs)[1], (*hs)[1], "batches");
  same((*rs)[2], (*hs)[2], "hidden sizes");
  same((*rs)[1], ir::FloorDiv((*hs)[2] + (*rs)[4] - Expr(1), (*rs)[4]), "blocks and hidden size");
  return types;
}

Type RecurrentResult(TypeCtx& ctx, const RecurrentTypes& types, size_t num_states) {
  std::optional<Dims> sequence;
  if (types.AreKnown()) {
    Dims xs = types.x->GetShape().value(), hs = types.state->GetShape().value();
    sequence = Dims{xs[0], hs[0], hs[1], hs[2]};
  }
  ffi::Array<Type> results{ctx.Result(sequence, 4, types.x->dtype)};
  for (size_t i = 0; i < num_states; ++i) results.push_back(ctx.Like(types.state));
  return ir::TupleType(results);
}

// ---- the loop

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
      steps_(inputs[0].shape()[0]),
      batch_(inputs[2].shape()[1]),
      hidden_(inputs[2].shape()[2]),
      blocks_(inputs[1].shape()[1]) {}

// One tile of rows is shared by its blocks of units, several are tasks.
Stmt Recurrence::Run() {
  if (!ir::IsIntValue(inputs_[1].shape()[0], 1) || ir::IsIntValue(blocks_, 1)) return Tasks();
  if (ffi::Optional<int64_t> batch = ir::AsInt(batch_)) {
    return 0 < *batch && *batch <= kRows ? OneTile(static_cast<int>(*batch)) : Tasks();
  }
  Stmt one = OneTile(1), full = OneTile(kRows), many = Tasks();
  return tir::IfThenElse(ir::Equal(batch_, Expr(1)), one,
                         tir::IfThenElse(ir::Equal(batch_, Expr(kRows)), full, many));
}

// Tasks are (direction, tile of rows): tiles of kRows rows, the last one of what is left.
Stmt Recurrence::Tasks() {
  ir::Var task("task", Int(64)), tile("tile", Int(64)), direction("direction", Int(64));
  Expr tiles = ir::FloorDiv(batch_ + Expr(kRows - 1), Expr(kRows)), first = tile * Expr(kRows);
  direction_ = direction;
  ffi::Optional<int64_t> batch = ir::AsInt(batch_);
  Stmt rows = Rows(kRows, first);
  for (int rest = 1; rest < kRows; ++rest) {
    if (batch.has_value() && *batch % kRows != rest) continue;
    Expr is_rest = ir::Equal(batch_ - first, Expr(rest));
    rows = tir::IfThenElse(is_rest, Rows(rest, first), rows);
  }
  Expr divisor = ir::Max(tiles, Expr(1));
  Stmt body = Sequence({tir::Bind(direction, ir::FloorDiv(task, divisor)),
                        tir::Bind(tile, ir::FloorMod(task, divisor)), rows});
  Expr work = steps_ * batch_ * hidden_ * hidden_ * Expr(gates_);
  ffi::Map<ffi::String, ffi::Any> annotations;
  annotations.Set("most_threads", ir::FloorDiv(work, Expr(kWorthAThread)));
  return tir::For(task, Expr(0), tiles * inputs_[1].shape()[0], tir::ForKind::kParallel, body, "",
                  ir::DictAttrs(annotations));
}

// The whole batch in one tile, one direction: threads share the blocks of each phase.
Stmt Recurrence::OneTile(int num_rows) {
  direction_ = Expr(0);
  ffi::Array<Stmt> parts = Begin(num_rows, Expr(0));
  const int64_t num_phases = static_cast<int64_t>(NumPhases());
  ir::Var task("task", Int(64)), block("block", Int(64)), group("group", Int(64));
  ffi::Array<Stmt> body{
      tir::Bind(group, ir::FloorDiv(task, blocks_)),
      tir::Bind(block, BackAndForth(group, ir::FloorMod(task, blocks_), blocks_))};
  for (const Stmt& part : BeginStep(ir::FloorDiv(group, Expr(num_phases)))) body.push_back(part);
  block_ = block;
  Stmt phases = BlockOf(0);
  for (int64_t phase = 1; phase < num_phases; ++phase) {
    Expr now = ir::Equal(ir::FloorMod(group, Expr(num_phases)), Expr(phase));
    phases = tir::IfThenElse(now, BlockOf(static_cast<size_t>(phase)), phases);
  }
  body.push_back(phases);
  Expr work = hidden_ * hidden_ * Expr(gates_ * num_rows);
  ffi::Map<ffi::String, ffi::Any> annotations;
  annotations.Set("most_threads", ir::Max(ir::Min(ir::FloorDiv(work, Expr(kStepWorthASecond)), 2),
                                          ir::FloorDiv(work, Expr(kStepWorthAThread))));
  annotations.Set("in_steps", used_ * Expr(num_phases));
  parts.push_back(tir::For(task, Expr(0), used_ * Expr(num_phases) * blocks_,
                           tir::ForKind::kParallel, Sequence(body), "",
                           ir::DictAttrs(annotations)));
  parts.push_back(StoreLast());
  if (lengths_ >= 0) parts.push_back(ClearRest());
  return Sequence(parts);
}

// Every second pass over the weights goes backwards: what the one before read last is still near.
Expr Recurrence::BackAndForth(const Expr& group, const Expr& i, const Expr& extent) const {
  return ir::Select(ir::Equal(ir::FloorMod(group, Expr(2)), Expr(0)), i, extent - Expr(1) - i);
}

// The states of the rows from `first` on, loaded.
ffi::Array<Stmt> Recurrence::Begin(int num_rows, const Expr& first) {
  num_rows_ = num_rows;
  states_.clear();
  ffi::Array<Stmt> parts;
  Expr padded = blocks_ * Expr(width_);
  for (size_t s = 0; s < num_states_; ++s) {
    states_.emplace_back("state" + std::to_string(s), Dims{Expr(2), Expr(num_rows), padded}, wide_,
                         "global");
    parts.push_back(tir::AllocBuffer(states_.back()));
  }
  for (const Buffer& b : Scratch()) parts.push_back(tir::AllocBuffer(b));
  rows_.clear();
  for (int i = 0; i < num_rows; ++i) rows_.push_back({i, first + Expr(i), Expr(), Expr()});
  used_ = steps_;
  if (lengths_ >= 0) {  // no row goes on past the longest one
    Expr longest(0);
    for (const Row& row : rows_)
      longest = ir::Max(longest, ir::Cast(Int(64), inputs_[lengths_].Load({row.batch})));
    ir::Var used("used", Int(64));
    parts.push_back(tir::Bind(used, ir::Min(longest, steps_)));
    used_ = used;
  }
  parts.push_back(Load());
  return parts;
}

Stmt Recurrence::Rows(int num_rows, const Expr& first) {
  ffi::Array<Stmt> parts = Begin(num_rows, first);
  parts.push_back(Time());
  parts.push_back(StoreLast());
  if (lengths_ >= 0) parts.push_back(ClearRest());
  return Sequence(parts);
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
  ffi::Array<Stmt> parts;
  for (const Row& row : rows_) parts.push_back(body(row));
  return Sequence(parts);
}

Stmt Recurrence::ForLanes(const std::function<Stmt(const Expr& lane)>& body) const {
  ir::Var lane("lane", Int(64));
  return Loop(lane, Expr(width_), tir::ForKind::kVectorized, body(lane));
}

Expr Recurrence::Old(size_t state, const Row& row, const Expr& unit) const {
  return states_[state].Load({now_, Expr(row.index), unit});
}

Stmt Recurrence::SetNew(size_t state, const Row& row, const Expr& unit, const Expr& value) const {
  Expr kept = row.active.defined() ? ir::Select(row.active, value, Old(state, row, unit)) : value;
  return tir::BufferStore(states_[state], kept, {Expr(1) - now_, Expr(row.index), unit});
}

Buffer Recurrence::Tile(const char* name, size_t num_gates) const {
  return Buffer(name, {Expr(num_rows_), Expr(static_cast<int64_t>(num_gates)), Expr(width_)}, wide_,
                "local");
}

Buffer Recurrence::RowBuffer(const char* name) const {
  return Buffer(name, {Expr(num_rows_), blocks_ * Expr(width_)}, wide_, "global");
}

Expr Recurrence::Input(const Row& row, int64_t gate, const Expr& lane) const {
  return Wide(inputs_[0].Load({row.time, row.batch, direction_, block_, Expr(gate), lane}));
}

Expr Recurrence::Clipped(const Expr& x) const {
  if (attrs_.clip <= 0) return x;
  return ir::Max(ir::Min(x, Number(wide_, attrs_.clip)), Number(wide_, -attrs_.clip));
}

Stmt Recurrence::Products(
    const Buffer& acc, const std::vector<int64_t>& gates,
    const std::function<Expr(const Row&, int64_t gate, const Expr& lane)>& start,
    const std::function<Expr(const Row&, const Expr& k)>& left) {
  const int64_t at_once = std::max<int64_t>(kMostSums / (num_rows_ * width_), 1);
  ffi::Array<Stmt> parts;
  for (size_t from = 0; from < gates.size(); from += static_cast<size_t>(at_once)) {
    const size_t end = std::min(gates.size(), from + static_cast<size_t>(at_once));
    parts.push_back(ProductsOf(acc, {from, end}, gates, start, left));
  }
  return Sequence(parts);
}

Stmt Recurrence::ProductsOf(
    const Buffer& acc, std::pair<size_t, size_t> some, const std::vector<int64_t>& gates,
    const std::function<Expr(const Row&, int64_t gate, const Expr& lane)>& start,
    const std::function<Expr(const Row&, const Expr& k)>& left) {
  // One set of sums for each part of k: a set of few sums alone would wait for its last addition.
  const auto [begin, end] = some;
  const auto num_gates = static_cast<int64_t>(end - begin);
  int64_t sets = 1;
  while (sets < 4 && num_rows_ * num_gates * width_ * sets * 2 <= kSums) sets *= 2;
  std::vector<Buffer> sums{acc};
  for (int64_t set = 1; set < sets; ++set) sums.push_back(Tile("part", gates.size()));
  auto each = [&](const std::function<Stmt(const Row&, int64_t g, const Expr& lane)>& body) {
    ffi::Array<Stmt> all;
    for (auto g = static_cast<int64_t>(begin); g < static_cast<int64_t>(end); ++g) {
      for (const Row& row : rows_)
        all.push_back(ForLanes([&](const Expr& lane) { return body(row, g, lane); }));
    }
    return all;
  };
  auto at_sum = [](const Row& row, int64_t g, const Expr& lane) {
    return ffi::Array<Expr>{Expr(row.index), Expr(g), lane};
  };
  ffi::Array<Stmt> all;
  for (int64_t set = 1; set < sets; ++set)
    all.push_back(tir::AllocBuffer(sums[static_cast<size_t>(set)]));
  auto append = [&all](const ffi::Array<Stmt>& more) {
    all.insert(all.end(), more.begin(), more.end());
  };
  for (const Buffer& sum : sums) {
    append(each([&](const Row& row, int64_t g, const Expr& lane) -> Stmt {
      Expr value =
          sum.same_as(acc) ? start(row, gates[static_cast<size_t>(g)], lane) : Number(wide_, 0);
      return tir::BufferStore(sum, value, at_sum(row, g, lane));
    }));
  }
  auto add = [&](const Buffer& sum, const Expr& k) {
    return each([&](const Row& row, int64_t g, const Expr& lane) -> Stmt {
      Expr gate(gates[static_cast<size_t>(g)]);
      Expr weight = Wide(inputs_[1].Load({direction_, block_, k, gate, lane}));
      ffi::Array<Expr> at = at_sum(row, g, lane);
      return tir::BufferStore(
          sum, ir::CallIntrin(Intrin::kFma, {left(row, k), weight, sum.Load(at)}), at);
    });
  };
  // The sums of a step are added up in the order of its step, whoever does it.
  Expr length = ir::FloorDiv(hidden_, Expr(sets)), back = ir::Equal(now_, Expr(1));
  ir::Var at("at", Int(64)), from("from", Int(64)), by("by", Int(64));
  append({tir::Bind(from, ir::Select(back, length - Expr(1), Expr(0))),
          tir::Bind(by, ir::Select(back, Expr(-1), Expr(1)))});
  ffi::Array<Stmt> body;
  for (int64_t set = 0; set < sets; ++set) {
    ir::Var k("k", Int(64));
    body.push_back(tir::Bind(k, from + at * by + length * Expr(set)));
    for (const Stmt& stmt : add(sums[static_cast<size_t>(set)], k)) body.push_back(stmt);
  }
  all.push_back(Loop(at, length, tir::ForKind::kSerial, Sequence(body)));
  if (sets == 1) return Sequence(all);
  ir::Var last("at", Int(64));  // what the parts leave of k
  all.push_back(Loop(last, hidden_ - length * Expr(sets), tir::ForKind::kSerial,
                     Sequence(add(acc, length * Expr(sets) + last))));
  append(each([&](const Row& row, int64_t g, const Expr& lane) -> Stmt {
    ffi::Array<Expr> at = at_sum(row, g, lane);
    Expr all_parts = acc.Load(at);
    for (size_t set = 1; set < sums.size(); ++set) all_parts = all_parts + sums[set].Load(at);
    return tir::BufferStore(acc, all_parts, at);
  }));
  return Sequence(all);
}

Expr Recurrence::Reversed() const {
  if (attrs_.direction == "bidirectional") return ir::Equal(direction_, Expr(1));
  return ir::BoolImm(attrs_.direction == "reverse");
}

// What the rows read in a step, and which half of the states is the old one.
ffi::Array<Stmt> Recurrence::BeginStep(const Expr& at) {
  ir::Var step("step", Int(64)), now("now", Int(64));
  now_ = now;
  ffi::Array<Stmt> parts{tir::Bind(step, at), tir::Bind(now, ir::FloorMod(step, Expr(2)))};
  for (Row& row : rows_) {
    Expr length = steps_;
    if (lengths_ >= 0) {
      length = ir::Min(ir::Cast(Int(64), inputs_[lengths_].Load({row.batch})), steps_);
      ir::Var active("active", Bool());
      parts.push_back(tir::Bind(active, ir::Less(step, length)));
      row.active = active;
    }
    Expr time = ir::Select(Reversed(), length - Expr(1) - step, step);
    if (row.active.defined()) time = ir::Select(row.active, time, step);
    ir::Var bound("time", Int(64));
    parts.push_back(tir::Bind(bound, time));
    row.time = bound;
  }
  return parts;
}

// One block in one phase; the last one leaves the result.
Stmt Recurrence::BlockOf(size_t phase) {
  return phase + 1 < NumPhases() ? Phase(phase) : Sequence({Phase(phase), StoreStep()});
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

Stmt Recurrence::Load() {
  return ForBlocks([&] {
    return ForRows([&](const Row& row) {
      return ForLanes([&](const Expr& lane) {
        ffi::Array<Stmt> stores;
        Expr unit = Unit(lane);
        for (size_t s = 0; s < num_states_; ++s) {
          Expr given = Wide(inputs_[2 + s].Load({direction_, row.batch, unit}));
          Expr value = ir::IfThenElse(ir::Less(unit, hidden_), given, Number(wide_, 0));
          stores.push_back(tir::BufferStore(states_[s], value, {Expr(0), Expr(row.index), unit}));
        }
        return Sequence(stores);
      });
    });
  });
}

Stmt Recurrence::StoreStep() {
  return ForRows([&](const Row& row) {
    return ForLanes([&](const Expr& lane) -> Stmt {
      Expr unit = Unit(lane);
      Expr value = states_[0].Load({Expr(1) - now_, Expr(row.index), unit});
      if (row.active.defined()) value = ir::Select(row.active, value, Number(wide_, 0));
      value = ir::Cast(outputs_[0].elem_dtype(), value);
      Stmt store = tir::BufferStore(outputs_[0], value, {row.time, direction_, row.batch, unit});
      return tir::IfThenElse(ir::Less(unit, hidden_), store);
    });
  });
}

// The results behind the last step that a row takes are 0.
Stmt Recurrence::ClearRest() {
  ir::Var step("step", Int(64));
  Stmt clear = ForBlocks([&] {
    return ForRows([&](const Row& row) {
      return ForLanes([&](const Expr& lane) -> Stmt {
        Expr unit = Unit(lane);
        Stmt store = tir::BufferStore(outputs_[0], Number(outputs_[0].elem_dtype(), 0),
                                      {used_ + Expr(step), direction_, row.batch, unit});
        return tir::IfThenElse(ir::Less(unit, hidden_), store);
      });
    });
  });
  return Loop(step, steps_ - used_, tir::ForKind::kSerial, clear);
}

Stmt Recurrence::StoreLast() {
  return ForBlocks([&] {
    return ForRows([&](const Row& row) {
      return ForLanes([&](const Expr& lane) -> Stmt {
        ffi::Array<Stmt> stores;
        Expr unit = Unit(lane);
        for (size_t s = 0; s < num_states_; ++s) {
          Expr last = ir::FloorMod(used_, Expr(2));
          Expr value = ir::Cast(outputs_[1 + s].elem_dtype(),
                                states_[s].Load({last, Expr(row.index), unit}));
          stores.push_back(tir::BufferStore(outputs_[1 + s], value, {direction_, row.batch, unit}));
        }
        return tir::IfThenElse(ir::Less(unit, hidden_), Sequence(stores));
      });
    });
  });
}

}  // namespace relaxvm::ops
