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
constexpr int64_t kLongRow = 24, kLongCostlyRow = 64;

// What a stage computes at each point of `axis`, in additions.
int CostAlong(const Stage& stage, const Var& axis) {
  int cost = 0;
  tir::PostOrderVisit(tir::Evaluate(stage.value), [&](const ffi::ObjectRef& node) {
    if (!node->IsInstance<ir::ExprObj>()) return;
    const Expr e = ffi::GetRef<Expr>(static_cast<const ir::ExprObj*>(node.get()));
    if (node.as<BufferLoadObj>() && UsesVar(e, axis)) cost += 1;
    if (node.as<ir::BinaryObj>() && IsFloat(e.dtype()) && UsesVar(e, axis)) cost += 1;
    if (node.as<ir::IntrinObj>() && UsesVar(e, axis)) cost += kCostlyElement;
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

}  // namespace

std::optional<Axis> AxisOf(const Stage& stage) {
  const std::vector<Axis>& axes = stage.combine == Combine::kNone ? stage.spatial : stage.reduce;
  const bool one = axes.size() == 1 && (stage.combine == Combine::kNone || stage.spatial.empty());
  return one ? std::optional<Axis>(axes[0]) : std::nullopt;
}

void FetchNextRow(RowLoops* rows, int64_t at_once, arith::Analyzer* analyzer) {
  if (!rows->read.defined()) return;
  const Axis axis = *rows->along;
  const Expr next = Later(rows->read, rows->rows.back(), at_once);
  std::vector<std::pair<Stage*, int>> costs;
  int total = 0;
  for (Stage& loop : rows->loops) {
    const std::optional<Axis> along = AxisOf(loop);
    if (rows->loops.size() > 1 && &loop == &rows->loops.front()) continue;
    if (!along.has_value() || !analyzer->ProveEqual(along->extent, axis.extent)) continue;
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
    const Expr chunk = analyzer_->Simplify(
        ir::Max(kFewestRows, ir::Min(kMostRows, ir::FloorDiv(total, kManyTasks))));
    const Axis task{Var("task", Int(64)), analyzer_->Simplify(ir::CeilDiv(total, chunk))};
    const Expr from = analyzer_->Simplify(task.var * chunk);
    Var end("end", Int(64)), row("row", Int(64));
    std::vector<Stage> alone = hosts_;  // the loops of a task's first row
    FetchAndFinish();
    ffi::Array<Stmt> seq = {tir::Bind(end, ir::Min(from + chunk, total))};
    for (const Stmt& temporary : rows_.temporaries) seq.push_back(temporary);
    ffi::Array<Stmt> first;
    for (const Stage& loop : alone) first.push_back(EmitNest(loop, traits_, analyzer_));
    seq.push_back(AtRow(first, from));
    seq.push_back(Loop(row, end - from - 1, ForKind::kSerial, Both(from + row + 1)));
    ffi::Array<Stmt> last;
    if (start_.has_value()) last.push_back(EmitPartial(*start_, traits_, analyzer_));
    last.push_back(EmitNest(last_, traits_, analyzer_));
    seq.push_back(AtRow(last, end - 1));
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
    last_.value = tir::Substitute(last_.value, map);
    last_.indices = {tir::Substitute(last_.indices[0], map)};
    last_.spatial[0].extent = along.extent - skipped_;
    const bool costly = std::any_of(fit_.begin(), fit_.end(), [&](size_t i) {
      return CostOfElement(hosts_[i], AxisOf(hosts_[i])->var) >= kCostlyElement;
    });
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
      if (costly == nullptr && CostOfElement(host, AxisOf(host)->var) >= kCostlyElement)
        costly = &host;
    }
    for (const Axis& row : rows_.rows) {
      before_.push_back({Var(row.var->name, Int(64)), row.extent});
      to_before_.Set(row.var, before_.back().var);
    }
    to_before_.Set(rows_.slot, slot_before_);
    to_before_.Set(skipped_, skipped_before_);
    const auto last = std::make_shared<const Stage>(Previous(last_));
    first.beside = {last, 0, costly == nullptr ? 4 : 2};
    if (costly != nullptr) costly->beside = {last, 2, 2};
    if (!rows_.read.defined() || !analyzer_->ProveEqual(rows_.along->extent, AxisOf(first)->extent))
      return;
    const Axis along = *rows_.along;
    const bool near = costly != nullptr && FitsNear(along.extent);
    if (costly == nullptr) {
      const int64_t bytes =
          SizeInBytes(Buffer(rows_.read.as<BufferLoadObj>()->buffer).elem_dtype());
      Fetch(rows_.read, along, Expr(kAheadBytes / std::max<int64_t>(1, bytes)), 4, &first);
    } else {
      const Expr next = Later(rows_.read, rows_.rows.back(), 1);
      if (near) Fetch(next, along, Expr(0), 1, &first);
      Fetch(next, along, near ? ir::FloorDiv(along.extent, 4) : Expr(0), near ? 3 : 4, costly);
      costly->ahead_near = near;
    }
    first.ahead_near = near;
  }

  // Does the first cache hold what the loops touch of two rows, with room for more?  Where it does
  // not, lines that came early would be gone before they are read.
  bool FitsNear(const Expr& extent) const {
    std::map<const ffi::Object*, int64_t> bytes;  // at each place of a row, of each buffer
    auto add = [&](const Stage& stage) {
      tir::PostOrderVisit(tir::Evaluate(stage.value), [&](const ffi::ObjectRef& node) {
        const auto* load = node.as<BufferLoadObj>();
        if (load == nullptr || !UsesVar(load->indices[0], AxisOf(stage)->var)) return;
        bool own = UsesVar(load->indices[0], rows_.slot);
        for (const Axis& row : rows_.rows) own = own || UsesVar(load->indices[0], row.var);
        bytes[load->buffer.get()] = (own ? 2 : 1) * SizeInBytes(Buffer(load->buffer).elem_dtype());
      });
    };
    for (const Stage& host : hosts_) {
      if (AxisOf(host).has_value()) add(host);
      if (host.before != nullptr) add(*host.before);
    }
    add(last_);
    int64_t each = 0;
    for (const auto& [buffer, size] : bytes) each += size;
    return each * ir::AsInt(extent).value_or(traits_.l1_bytes) < traits_.l1_bytes;
  }

  // A stage for the row before, whose axes and copy of the temporaries have names of their own.
  Stage Previous(const Stage& stage) const {
    auto renamed = [&](const Expr& e) { return tir::Substitute(e, to_before_); };
    Stage previous = stage;
    previous.value = renamed(stage.value);
    previous.indices = stage.indices.Map(renamed);
    previous.spatial[0].extent = renamed(stage.spatial[0].extent);
    return previous;
  }

  // Gives the axes of the row with this number among all rows.
  static void Place(const std::vector<Axis>& axes, const Expr& number, ffi::Array<Stmt>* seq) {
    Expr rest = number;
    for (size_t i = axes.size(); i-- > 0;) {
      seq->push_back(tir::Bind(axes[i].var, i == 0 ? rest : ir::FloorMod(rest, axes[i].extent)));
      if (i == 0) break;
      Var next("rest", Int(64));
      seq->push_back(tir::Bind(next, ir::FloorDiv(rest, axes[i].extent)));
      rest = next;
    }
  }
  Stmt AtRow(const ffi::Array<Stmt>& loops, const Expr& number) {
    ffi::Array<Stmt> seq;
    std::vector<Axis> axes;
    ffi::Map<Var, Expr> map;
    for (const Axis& row : rows_.rows) {
      axes.push_back({Var(row.var->name, Int(64)), row.extent});
      map.Set(row.var, axes.back().var);
    }
    Place(axes, number, &seq);
    Var slot("slot", Int(64));
    seq.push_back(tir::Bind(slot, ir::FloorMod(number, 2)));
    map.Set(rows_.slot, slot);
    if (start_.has_value()) {
      Var skipped("skipped", Int(64));
      seq.push_back(tir::Bind(skipped, tir::Substitute(skip_, map)));
      map.Set(skipped_, skipped);
    }
    for (const Stmt& loop : loops) seq.push_back(tir::Substitute(loop, map));
    return SeqStmt::Flatten(seq);
  }

  Stmt Both(const Expr& number) {
    ffi::Array<Stmt> seq;
    Place(before_, number - 1, &seq);
    seq.push_back(tir::Bind(slot_before_, ir::FloorMod(number - 1, 2)));
    Place(rows_.rows, number, &seq);
    seq.push_back(tir::Bind(rows_.slot, ir::FloorMod(number, 2)));
    if (start_.has_value()) {
      seq.push_back(tir::Bind(skipped_before_, tir::Substitute(skip_, to_before_)));
      seq.push_back(EmitPartial(Previous(*start_), traits_, analyzer_));
    }
    for (const Stage& loop : hosts_) seq.push_back(EmitNest(loop, traits_, analyzer_));
    seq.push_back(EmitRest(*hosts_[fit_[0]].beside.stage, traits_, analyzer_));
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
  Var skipped_{"skipped", Int(64)};
  Expr skip_;
  Expr long_enough_ = 1;
  std::vector<Axis> before_;
  Var slot_before_{"slot", Int(64)}, skipped_before_{"skipped", Int(64)};
  ffi::Map<Var, Expr> to_before_;
};

}  // namespace

std::optional<RowForm> PipelineRows(const RowLoops& rows, const Expr& aligned,
                                    const Machine& traits, arith::Analyzer* analyzer) {
  return Pipeline(rows, aligned, traits, analyzer).Run();
}

}  // namespace relaxvm::schedule::cpu
