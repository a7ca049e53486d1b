// SPDX-License-Identifier: Apache-2.0
// FetchNextRow, PipelineRows: a row is read, computed with and written in turns; each of these
// would leave the memory idle, or half of it.
#include "schedule/cpu/rows.h"

#include <algorithm>
#include <map>

namespace relaxvm::schedule::cpu {
namespace {

using tir::BufferLoadObj;
using tir::ForKind;
using tir::SeqStmt;

constexpr int kCostlyElement = 20;  // additions: an exponential
// How far ahead of the loop that reads a row it is fetched.
constexpr int64_t kAheadBytes = 6144;
// Rows that a task takes one into the other; the first and the last one of them run alone.
constexpr int64_t kMostRows = 64, kFewestRows = 4, kManyTasks = 64;
// In vectors: below it, the ends of a row that may start anywhere, which are partial vectors and go
// one at a time, cost more than writing past the caches gains; with exponentials they wait longer.
constexpr int64_t kLongRow = 24, kLongCostlyRow = 32;

// What a stage computes at each point of `axis`, in additions.
int CostAlong(const Stage& stage, const Var& axis) {
  int cost = 0;
  tir::PostOrderVisit(tir::Evaluate(stage.value), [&](const ffi::ObjectRef& node) {
    if (!node->IsInstance<ir::ExprObj>()) return;
    const Expr e = ffi::GetRef<Expr>(static_cast<const ir::ExprObj*>(node.get()));
    if (node.as<BufferLoadObj>() && UsesVar(e, axis)) cost += 1;
    if (node.as<ir::BinaryObj>() && IsFloat(e.dtype()) && UsesVar(e, axis)) cost += 1;
    if (const auto* call = node.as<ir::IntrinObj>(); call != nullptr && UsesVar(e, axis))
      cost += call->intrin == ir::Intrin::kFma ? 2 : kCostlyElement;
  });
  return cost;
}

int CostOfElement(const Stage& loop, const Var& axis) {
  int cost = CostAlong(loop, axis);
  if (loop.before != nullptr) cost += CostAlong(*loop.before, loop.before->spatial[0].var);
  return cost;
}

// While the whole of `loop` runs, `quarters` of a row are fetched, from `begin` on.
void Fetch(const Expr& read, const Axis& along, const Expr& begin, int64_t quarters, Stage* loop) {
  ffi::Map<Var, Expr> map;
  map.Set(along.var, begin + AxisOf(*loop)->var);
  loop->ahead = tir::Substitute(read, map);
  loop->ahead_quarters = quarters;
}

Expr Later(const Expr& read, const Axis& row, int64_t rows) {
  ffi::Map<Var, Expr> map;
  map.Set(row.var, row.var + Expr(rows));
  return tir::Substitute(read, map);
}

// Bytes that the loops touch at each place along a row: of the row itself, and of what all rows
// share.
struct Touched {
  int64_t own = 0, shared = 0;

  int64_t OfTwoRows(int64_t extent) const { return (2 * own + shared) * extent; }
};
Touched TouchedBy(const RowLoops& rows) {
  std::map<const ffi::Object*, std::pair<bool, int64_t>> buffers;
  auto add = [&](const Stage& stage) {
    const std::optional<Axis> along = AxisOf(stage);
    if (!along.has_value()) return;
    tir::PostOrderVisit(tir::Evaluate(stage.value), [&](const ffi::ObjectRef& node) {
      const auto* load = node.as<BufferLoadObj>();
      if (load == nullptr || !UsesVar(load->indices[0], along->var)) return;
      bool own = UsesVar(load->indices[0], rows.slot);
      for (const Axis& row : rows.rows) own = own || UsesVar(load->indices[0], row.var);
      buffers[load->buffer.get()] = {own, SizeInBytes(Buffer(load->buffer).elem_dtype())};
    });
  };
  for (const Stage& loop : rows.loops) {
    add(loop);
    if (loop.before != nullptr) add(*loop.before);
  }
  Touched touched;
  for (const auto& [buffer, entry] : buffers)
    (entry.first ? touched.own : touched.shared) += entry.second;
  return touched;
}

bool IsCostly(const Stage& loop) {
  const std::optional<Axis> along = AxisOf(loop);
  return along.has_value() && CostOfElement(loop, along->var) >= kCostlyElement;
}

}  // namespace

int64_t RowsTogether(const RowLoops& rows, const Expr& aligned, const Machine& traits) {
  if (!ir::IsIntValue(aligned, 1) || rows.loops.size() < 2) return 1;
  // What comes into the first cache in time is not waited for: one row is as fast.
  if (traits.fetch_ahead > 0) return 1;
  // Parts of cache lines that go past the caches to several rows by turns are slower.
  if (traits.vector_bytes < kLineBytes) return 1;
  if (std::any_of(rows.loops.begin(), rows.loops.end(), IsCostly)) return 1;
  const std::optional<Axis> along = AxisOf(rows.loops.back());
  const auto extent = along.has_value() ? ir::AsInt(along->extent) : std::nullopt;
  if (!extent.has_value()) return 1;
  const Touched touched = TouchedBy(rows);
  if (touched.shared == 0 || touched.OfTwoRows(extent.value()) <= traits.l1_bytes) return 1;
  // Their sums take half of the registers; half of the second cache holds them and the next ones.
  const int64_t together = traits.num_vectors / 8;
  const int64_t bytes = 2 * together * touched.own * extent.value();
  return bytes <= traits.l2_bytes / 2 ? std::max<int64_t>(1, together) : 1;
}

std::optional<Axis> AxisOf(const Stage& stage) {
  const std::vector<Axis>& axes = stage.combine == Combine::kNone ? stage.spatial : stage.reduce;
  const bool one = axes.size() == 1 && (stage.combine == Combine::kNone || stage.spatial.empty());
  return one ? std::optional<Axis>(axes[0]) : std::nullopt;
}

void FetchNextRow(RowLoops* rows, int64_t at_once, arith::Analyzer* analyzer) {
  // Without one that computes long, the core fetches the next row better by itself.
  if (!rows->read.defined() || std::none_of(rows->loops.begin(), rows->loops.end(), IsCostly))
    return;
  const Axis axis = *rows->along;
  const Expr next = Later(rows->read, rows->rows.back(), at_once);
  std::vector<std::pair<Stage*, int>> costs;
  int total = 0;
  for (Stage& loop : rows->loops) {
    const std::optional<Axis> along = AxisOf(loop);
    if (rows->loops.size() > 1 && &loop == &rows->loops.front()) continue;
    if (!along.has_value() || loop.spread != nullptr ||
        !analyzer->ProveEqual(along->extent, axis.extent))
      continue;
    costs.emplace_back(&loop, CostOfElement(loop, along->var));
    total += costs.back().second;
  }
  int done = 0;
  for (const auto& [loop, cost] : costs) {
    const int begin = (4 * done + total / 2) / std::max(total, 1);
    done += cost;
    const int end = (4 * done + total / 2) / std::max(total, 1);
    Fetch(next, axis, ir::FloorDiv(axis.extent * Expr(begin), 4), end - begin, loop);
  }
}

namespace {

class Pipeline {
 public:
  Pipeline(const RowLoops& rows, const Expr& aligned, const Machine& traits,
           arith::Analyzer* analyzer)
      : rows_(rows), aligned_(aligned), traits_(traits), analyzer_(analyzer) {}

  std::optional<RowForm> Run() {
    if (!Split() || !StartAtVectors()) return std::nullopt;
    Expr total = 1;
    for (const Axis& row : rows_.rows) total = total * row.extent;
    total = analyzer_->Simplify(total);
    const int64_t each = rows_.together;
    const Expr many = ir::FloorDiv(total, kManyTasks * each) * Expr(each);
    const Expr chunk =
        analyzer_->Simplify(ir::Max(std::max(kFewestRows, each), ir::Min(kMostRows * each, many)));
    const Axis task{Var("task", Int(64)), analyzer_->Simplify(ir::CeilDiv(total, chunk))};
    const Expr from = analyzer_->Simplify(task.var * chunk);
    Var end("end", Int(64)), whole("whole", Int(64)), group("group", Int(64));
    const std::vector<Stage> alone = hosts_;
    FetchAndFinish();
    // The loops of a task's first rows, those of the others, the last loop of its last ones.
    ffi::Array<Stmt> first = Emitted(alone), last = LastLoop();
    const ffi::Array<Stmt> groups = {EachRow(first, from, each),
                                     Loop(group, ir::FloorDiv(whole - from, each) - 1,
                                          ForKind::kSerial, Both(from + (group + 1) * Expr(each))),
                                     EachRow(last, whole - each, each)};
    ffi::Array<Stmt> seq = {tir::Bind(end, ir::Min(from + chunk, total))};
    for (const Stmt& temporary : rows_.temporaries) seq.push_back(temporary);
    if (analyzer_->ProveEqual(ir::FloorMod(total, each), 0)) {
      seq.push_back(tir::Bind(whole, end));
      for (const Stmt& stmt : groups) seq.push_back(stmt);
    } else {
      seq.push_back(tir::Bind(whole, from + ir::FloorDiv(end - from, each) * Expr(each)));
      seq.push_back(tir::IfThenElse(ir::Less(from, whole), SeqStmt::Flatten(groups)));
      for (const Stmt& stmt : last) first.push_back(stmt);
      seq.push_back(EachRow(first, whole, end - whole));
    }
    RowForm form;
    form.stream_if = long_enough_;
    form.rows = {task};
    form.body = SeqStmt::Flatten(seq);
    form.work = rows_.work * chunk;
    return form;
  }

 private:
  // The last loop, and those before it, some of which can take it in.
  bool Split() {
    if (rows_.loops.size() < 2) return false;
    hosts_.assign(rows_.loops.begin(), rows_.loops.end() - 1);
    last_ = rows_.loops.back();
    const std::optional<Axis> along = AxisOf(last_);
    if (last_.combine != Combine::kNone || !along.has_value() ||
        !RunsAlong(last_, traits_, analyzer_))
      return false;
    for (size_t i = 0; i < hosts_.size(); ++i) {
      const std::optional<Axis> axis = AxisOf(hosts_[i]);
      if (hosts_[i].combine == Combine::kNone || !axis.has_value()) continue;
      if (!analyzer_->ProveEqual(axis->extent, along->extent)) continue;
      if (ElemBytes(hosts_[i]) != ElemBytes(last_) || !RunsAlong(hosts_[i], traits_, analyzer_))
        continue;
      fit_.push_back(i);
    }
    return !fit_.empty();
  }

  // Where rows may start anywhere, the last loop begins at a multiple of the vector, and what lies
  // before it is a stage of its own.
  bool StartAtVectors() {
    if (ir::IsIntValue(aligned_, 1)) return true;
    const Axis along = last_.spatial[0];
    const int64_t lanes = traits_.Lanes(ElemBytes(last_));
    auto linear = LinearOffset::Of(last_.indices[0], {along});
    if (!linear.has_value() || !ir::IsIntValue(linear->Coeff(along.var), 1)) return false;
    skip_ = ir::FloorMod(Expr(0) - linear->rest(), lanes);
    start_ = last_;
    start_->spatial[0].extent = skipped_;
    ffi::Map<Var, Expr> map;
    map.Set(along.var, skipped_ + along.var);
    last_ = Substituted(last_, map);
    last_.spatial[0].extent = along.extent - skipped_;
    const bool costly =
        std::any_of(fit_.begin(), fit_.end(), [&](size_t i) { return IsCostly(hosts_[i]); });
    const int64_t least = (costly ? kLongCostlyRow : kLongRow) * lanes;
    long_enough_ = ir::Or(aligned_, ir::GreaterEqual(along.extent, Expr(least)));
    return true;
  }

  // The last loop goes into the first one that fits, and half of it into one that computes long
  // where there is such a one; so does the fetching.  With nothing to wait for but memory, what the
  // loop that reads is about to read comes into the second cache: lines that come into the first
  // one are waited for there.
  void FetchAndFinish() {
    Stage& first = hosts_[fit_[0]];
    Stage* costly = nullptr;
    for (size_t i = 1; i < fit_.size(); ++i) {
      Stage& host = hosts_[fit_[i]];
      if (costly == nullptr && IsCostly(host)) costly = &host;
    }
    for (int64_t i = 0; i < rows_.together; ++i) {
      now_.push_back(NewRow());
      before_.push_back(NewRow());
      if (rows_.together > 1) first.together.push_back(now_.back().map);
      first.beside.stages.push_back(std::make_shared<const Stage>(InRow(last_, before_.back())));
    }
    first.beside.quarters = 4;
    if (costly != nullptr) {
      first.beside.quarters = 2;
      costly->beside = {first.beside.stages, 2, 2};
    }
    if (!rows_.read.defined() || !analyzer_->ProveEqual(rows_.along->extent, AxisOf(first)->extent))
      return;
    const Axis along = *rows_.along;
    // Where the first cache has no room for more than two rows, lines that came early would be gone
    // before they are read; a core that gains from fetching gains nevertheless.
    const int64_t extent = ir::AsInt(along.extent).value_or(traits_.l1_bytes);
    const bool near = traits_.fetch_ahead > 0 ||
                      (costly != nullptr && TouchedBy(rows_).OfTwoRows(extent) < traits_.l1_bytes);
    if (rows_.together > 1) {
      // Their lines follow each other.
      const Expr next = Later(rows_.read, rows_.rows.back(), rows_.together);
      Fetch(next, along, Expr(0), 4 * rows_.together, &first);
    } else if (costly == nullptr) {
      const int64_t bytes =
          SizeInBytes(Buffer(rows_.read.as<BufferLoadObj>()->buffer).elem_dtype());
      Fetch(rows_.read, along, Expr(kAheadBytes / std::max<int64_t>(1, bytes)), 4, &first);
    } else {
      const Expr next = Later(rows_.read, rows_.rows.back(), 1);
      // Quarters that come in the first loop: there memory would have nothing to do but to take
      // what the last loop stores.  Half of them is what a Granite Rapids gains from.
      const int quarters = near ? 1 : traits_.panel_ahead > 0 ? 2 : 0;
      if (quarters > 0) Fetch(next, along, Expr(0), quarters, &first);
      Fetch(next, along, ir::FloorDiv(along.extent * Expr(quarters), 4), 4 - quarters, costly);
      costly->ahead_near = near;
    }
    first.ahead_near = near;
  }

  // A row whose axes, copy of the temporaries and first vector have names of their own.
  struct Row {
    std::vector<Axis> axes;
    Var slot{"slot", Int(64)}, skipped{"skipped", Int(64)};
    ffi::Map<Var, Expr> map;
  };
  Row NewRow() const {
    Row row;
    for (const Axis& axis : rows_.rows) {
      row.axes.push_back({Var(axis.var->name, Int(64)), axis.extent});
      row.map.Set(axis.var, row.axes.back().var);
    }
    row.map.Set(rows_.slot, row.slot);
    row.map.Set(skipped_, row.skipped);
    return row;
  }
  static Stage InRow(const Stage& elementwise, const Row& row) {
    Stage stage = Substituted(elementwise, row.map);
    stage.spatial[0].extent = tir::Substitute(stage.spatial[0].extent, row.map);
    return stage;
  }

  // `row` is the one with this number among all rows.
  void Place(const Row& row, const Expr& number, ffi::Array<Stmt>* seq) const {
    Expr rest = number;
    for (size_t i = row.axes.size(); i-- > 0;) {
      const Axis& axis = row.axes[i];
      seq->push_back(tir::Bind(axis.var, i == 0 ? rest : ir::FloorMod(rest, axis.extent)));
      if (i == 0) break;
      Var next("rest", Int(64));
      seq->push_back(tir::Bind(next, ir::FloorDiv(rest, axis.extent)));
      rest = next;
    }
    seq->push_back(tir::Bind(row.slot, ir::FloorMod(number, 2 * rows_.together)));
    if (start_.has_value()) seq->push_back(tir::Bind(row.skipped, tir::Substitute(skip_, row.map)));
  }
  // `loops` of `count` rows from this one on, one row after the other.
  Stmt EachRow(const ffi::Array<Stmt>& loops, const Expr& number, const Expr& count) const {
    const Row row = NewRow();
    const Var one("one", Int(64));
    ffi::Array<Stmt> seq;
    Place(row, number + one, &seq);
    for (const Stmt& loop : loops) seq.push_back(tir::Substitute(loop, row.map));
    return Loop(one, count, ForKind::kSerial, SeqStmt::Flatten(seq));
  }

  ffi::Array<Stmt> Emitted(const std::vector<Stage>& loops) const {
    ffi::Array<Stmt> seq;
    for (const Stage& loop : loops) seq.push_back(EmitNest(loop, traits_, analyzer_));
    return seq;
  }
  ffi::Array<Stmt> LastLoop() const {
    ffi::Array<Stmt> seq;
    if (start_.has_value()) seq.push_back(EmitPartial(*start_, traits_, analyzer_));
    seq.push_back(EmitNest(last_, traits_, analyzer_));
    return seq;
  }

  // What the rows from this one on take in of those before them.
  Stmt Both(const Expr& number) const {
    ffi::Array<Stmt> seq;
    const int64_t each = rows_.together;
    for (int64_t i = 0; i < each; ++i) {
      Place(before_[i], number + Expr(i - each), &seq);
      Place(now_[i], number + Expr(i), &seq);
    }
    if (start_.has_value())
      seq.push_back(EmitPartial(InRow(*start_, before_[0]), traits_, analyzer_));
    for (const Stage& host : hosts_) {
      const Stmt loop = EmitNest(host, traits_, analyzer_);
      const bool alone = each > 1 && host.beside.stages.empty();
      seq.push_back(alone ? EachRow({loop}, number, each) : tir::Substitute(loop, now_[0].map));
    }
    for (const auto& last : hosts_[fit_[0]].beside.stages)
      seq.push_back(EmitRest(*last, traits_, analyzer_));
    return SeqStmt::Flatten(seq);
  }

  const RowLoops& rows_;
  const Expr& aligned_;
  const Machine& traits_;
  arith::Analyzer* analyzer_;
  std::vector<Stage> hosts_;
  std::vector<size_t> fit_;  // of the hosts
  Stage last_;
  // What of the last loop lies before the first multiple of the vector in the row: `skipped_`
  // elements, which are `skip_`.  Absent: rows start at such multiples.
  std::optional<Stage> start_;
  const Var skipped_{"skipped", Int(64)};
  Expr skip_;
  Expr long_enough_ = 1;
  std::vector<Row> now_, before_;  // as many as go together
};

}  // namespace

std::optional<RowForm> PipelineRows(const RowLoops& rows, const Expr& aligned,
                                    const Machine& traits, arith::Analyzer* analyzer) {
  return Pipeline(rows, aligned, traits, analyzer).Run();
}

}  // namespace relaxvm::schedule::cpu
