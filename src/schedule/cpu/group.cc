// SPDX-License-Identifier: Apache-2.0
// EmitGroup: stages that share rows run row by row.
#include <algorithm>
#include <unordered_map>

#include "schedule/cpu/context.h"
#include "schedule/cpu/rows.h"

namespace relaxvm::schedule::cpu {
namespace {

using tir::BufferLoad;
using tir::BufferLoadObj;
using tir::ForKind;
using tir::SeqStmt;

constexpr int64_t kVectorsOfARow = 5;      // that pay for adding up across the lanes
constexpr int64_t kMaxLocalBytes = 16384;  // of a row's temporary on the stack
// Rows of up to so many bytes go two at a time, where there are so many of them: while one is
// added up across its lanes, the other one's vectors pass.
constexpr int64_t kShortRowBytes = 8192;
constexpr int64_t kManyRows = 32;
constexpr int64_t kEnoughRows = 16;  // for a few threads

// Stages [begin, end) that run together for each combination of the first `num_rows` axes.
struct Group {
  size_t begin;
  size_t end;
  size_t num_rows;
};

class RowTemps : public tir::StmtMutator {
 public:
  // Stands in front of the indices of all temporaries, when it is defined.
  Expr slot;
  // Accesses of `from` lose their first `num_rows` indices and go to `to`.
  void Add(const Var& from, Buffer to, size_t num_rows) {
    map_.emplace(from.get(), std::pair(std::move(to), num_rows));
  }
  bool Has(const Var& buffer) const { return map_.count(buffer.get()); }
  // Is `buffer` one that accesses go to?
  bool IsOne(const Var& buffer) const {
    return std::any_of(map_.begin(), map_.end(),
                       [&](const auto& entry) { return entry.second.first.same_as(buffer); });
  }
  const Buffer& BufferOf(const Var& from) const { return map_.at(from.get()).first; }
  ffi::Array<Expr> Inner(const Var& from, const ffi::Array<Expr>& indices) const {
    ffi::Array<Expr> inner(
        indices.begin() + static_cast<std::ptrdiff_t>(map_.at(from.get()).second), indices.end());
    if (slot.defined()) inner.insert(inner.begin(), slot);
    return inner;
  }
  Expr MutateBufferLoad(const BufferLoad& load) override {
    if (!Has(load->buffer)) return StmtMutator::MutateBufferLoad(load);
    return BufferLoad(BufferOf(load->buffer), Inner(load->buffer, MutateAll(load->indices)),
                      load->predicate, load->span);
  }

 private:
  std::unordered_map<const ffi::Object*, std::pair<Buffer, size_t>> map_;
};

class RowGroup {
 public:
  explicit RowGroup(Context* context) : context_(context) {}

  Stmt Emit(size_t at, size_t* end) {
    const Group group = GroupFrom(at);
    *end = group.end;
    return EmitGroup(group);
  }

 private:
  // How many leading axes `stage` shares with the group's first stage, given the temporaries it
  // reads from the group.
  size_t SharedRows(const Group& group, const Stage& stage) const {
    const Stage& first = context_->program.stages[group.begin];
    size_t rows = 0;
    for (; rows < std::min(group.num_rows, stage.spatial.size()); ++rows) {
      if (!context_->analyzer.ProveEqual(first.spatial[rows].extent, stage.spatial[rows].extent))
        break;
      if (rows >= stage.indices.size() || !stage.indices[rows].same_as(stage.spatial[rows].var))
        break;
      bool same_row = true;
      for (size_t i = group.begin; i < group.end; ++i) {
        const Stage& writer = context_->program.stages[i];
        if (!ReadsBuffer(stage, *writer.out)) continue;
        same_row = same_row && rows < writer.indices.size() &&
                   writer.indices[rows].same_as(writer.spatial[rows].var);
        tir::PostOrderVisit(tir::Evaluate(stage.value), [&](const ffi::ObjectRef& node) {
          const auto* load = node.as<BufferLoadObj>();
          if (load == nullptr || !load->buffer.same_as(*writer.out)) return;
          same_row = same_row && rows < load->indices.size() &&
                     load->indices[rows].same_as(stage.spatial[rows].var);
        });
      }
      if (!same_row) break;
    }
    return rows;
  }

  Group GroupFrom(size_t begin) {
    Group group{begin, begin + 1, context_->program.stages[begin].spatial.size()};
    while (group.end < context_->program.stages.size()) {
      const Stage& next = context_->program.stages[group.end];
      if (next.IsOpaque() || IsContraction(SplitAxes(next, &context_->analyzer))) break;
      bool reads_group = false;
      for (size_t i = group.begin; i < group.end; ++i) {
        reads_group = reads_group || ReadsBuffer(next, *context_->program.stages[i].out);
      }
      const size_t rows = reads_group ? SharedRows(group, next) : 0;
      if (rows == 0) break;
      group.num_rows = rows;
      ++group.end;
    }
    if (HasFewRows(group))
      return {begin, begin + 1, context_->program.stages[begin].spatial.size()};
    // Something must be left to run along the lanes.
    bool has_inner = group.num_rows == 0 || group.end == group.begin + 1;
    for (size_t i = group.begin; i < group.end; ++i) {
      has_inner = has_inner || context_->program.stages[i].spatial.size() > group.num_rows;
    }
    has_inner = has_inner || AllReadAlongTheirSums(group) || OnLanes(group).has_value();
    if (!has_inner && --group.num_rows == 0)
      return {begin, begin + 1, context_->program.stages[begin].spatial.size()};
    return group;
  }

  // Is every stage a reduction that reads memory along its innermost axis, for some vectors at
  // least?
  bool AllReadAlongTheirSums(const Group& group) {
    for (size_t i = group.begin; i < group.end; ++i) {
      const Stage flat = FlattenStage(context_->program.stages[i], &context_->analyzer);
      if (flat.reduce.empty()) return false;
      const Axis& along = flat.reduce.back();
      const int64_t enough = kVectorsOfARow * context_->machine.Lanes(ElemBytes(flat));
      if (ir::AsInt(along.extent).value_or(enough) < enough || !ReadsAlong(flat, along.var))
        return false;
    }
    return true;
  }

  // Elementwise stages go one after the other when their rows are too few for threads.  Rows that
  // are counted at run time may be a single one: what each of them holds must be one line then.
  bool HasFewRows(const Group& group) {
    if (group.end == group.begin + 1) return false;
    Expr rows = 1;
    for (size_t d = 0; d < group.num_rows; ++d)
      rows = rows * context_->program.stages[group.begin].spatial[d].extent;
    bool has_planes = false;
    for (size_t i = group.begin; i < group.end; ++i) {
      const Stage& stage = context_->program.stages[i];
      if (stage.combine != Combine::kNone) return false;
      has_planes = has_planes || stage.spatial.size() > group.num_rows + 1;
    }
    const auto count = ir::AsInt(context_->analyzer.Simplify(rows));
    return count.has_value() ? count.value() < kEnoughRows : has_planes;
  }

  // Is what stage `i` stores read by the group alone?
  bool IsOfTheRow(const Group& group, size_t i) const {
    const Buffer& out = *context_->program.stages[i].out;
    return context_->temps.count(out.get()) && context_->ReadOnlyBy(out, group.begin, group.end);
  }

  std::vector<Axis> RowAxes(const Group& group) const {
    const Stage& first = context_->program.stages[group.begin];
    return {first.spatial.begin(),
            first.spatial.begin() + static_cast<std::ptrdiff_t>(group.num_rows)};
  }

  std::optional<RowForm> OnLanes(const Group& group) {
    return EmitRowsOnLanes(LoopsOf(group, RowAxes(group), 1), context_->machine,
                           &context_->analyzer);
  }

  Stmt EmitGroup(const Group& group) {
    if (group.end == group.begin + 1)
      return EmitSingle(context_->program.stages[group.begin], context_);
    for (size_t i = group.begin; i < group.end; ++i) {
      if (IsOfTheRow(group, i)) context_->gone.insert(context_->program.stages[i].out->get());
    }
    if (const auto form = OnLanes(group)) return OverRows(form->rows, form->body, form->work);
    const std::vector<Axis> row_axes = RowAxes(group);
    const Stage* result = OneResult(group);
    const Streaming past = result == nullptr
                               ? Streaming()
                               : StreamingOf(FlattenStage(*result, &context_->analyzer), context_,
                                             IsLarge(*result, context_));
    const Stmt plain = EmitRows(group, row_axes, past.Both(&context_->analyzer));
    if (!past.larger.defined() || row_axes.empty()) return plain;
    // The last stage alone can be made to store from any multiple of the vector on.
    if (result != &context_->program.stages[group.end - 1]) return plain;
    RowLoops loops = LoopsOf(group, row_axes, 2);
    const int64_t together = RowsTogether(loops, past.aligned, context_->machine);
    if (together > 1) loops = LoopsOf(group, row_axes, 2 * together);
    loops.together = together;
    auto piped = PipelineRows(loops, past.aligned, context_->machine, &context_->analyzer);
    if (!piped.has_value()) return plain;
    const Expr stream_if = context_->analyzer.Simplify(ir::And(past.larger, piped->stream_if));
    if (ir::IsIntValue(stream_if, 0)) return plain;
    const Stmt streamed = OverRows(piped->rows, piped->body, piped->work, stream_if);
    if (ir::IsIntValue(stream_if, 1)) return streamed;
    return tir::IfThenElse(stream_if, streamed, EmitRows(group, row_axes, Expr()));
  }

  // One row after the other, or a few at once.
  Stmt EmitRows(const Group& group, const std::vector<Axis>& all_axes, const Expr& stream_if) {
    const int64_t at_once = RowsAtOnce(group, all_axes);
    RowLoops rows = LoopsOf(group, all_axes, at_once);
    std::vector<Axis> row_axes = rows.rows;
    ffi::Array<Stmt> body = rows.temporaries;
    JoinSpreads(&rows.loops, context_->machine, &context_->analyzer);
    FetchNextRow(&rows, at_once, &context_->analyzer);
    if (at_once == 1) {
      for (const Stage& s : rows.loops)
        body.push_back(EmitNest(s, context_->machine, &context_->analyzer));
      return OverRows(row_axes, SeqStmt::Flatten(body), rows.work, stream_if);
    }
    const Axis row = row_axes.back();
    const Axis block{Var("block", Int(64)),
                     context_->analyzer.Simplify(ir::CeilDiv(row.extent, Expr(at_once)))};
    const Expr from = block.var * Expr(at_once);
    const bool divides = context_->analyzer.ProveEqual(ir::FloorMod(row.extent, at_once), 0);
    const Expr count = divides ? Expr(at_once) : ir::Min(at_once, row.extent - from);
    for (const Stage& s : rows.loops) {
      Var one("one", Int(64));
      ffi::Map<Var, Expr> map;
      map.Set(rows.slot, one);
      map.Set(row.var, from + one);
      body.push_back(
          Loop(one, count, ForKind::kSerial,
               tir::Substitute(EmitNest(s, context_->machine, &context_->analyzer), map)));
    }
    row_axes.back() = block;
    return OverRows(row_axes, SeqStmt::Flatten(body), rows.work * Expr(at_once), stream_if);
  }

  // The stages of a group as loops over one row, with `slots` copies of what they hand on.
  RowLoops LoopsOf(const Group& group, const std::vector<Axis>& row_axes, int64_t slots) {
    RowLoops result;
    result.rows = row_axes;
    RowTemps rows;
    if (slots > 1) rows.slot = result.slot;
    for (size_t i = group.begin; i < group.end; ++i) {
      const Stage& s = context_->program.stages[i];
      if (!IsOfTheRow(group, i)) continue;
      const ffi::Array<Expr>& shape = s.out->shape();
      ffi::Array<Expr> inner(shape.begin() + static_cast<std::ptrdiff_t>(group.num_rows),
                             shape.end());
      if (slots > 1) inner.insert(inner.begin(), Expr(slots));
      int64_t bytes = SizeInBytes(s.out->elem_dtype());
      for (const Expr& d : inner)
        bytes = ir::AsInt(d).has_value() && bytes < (1 << 30) ? bytes * ir::AsInt(d).value()
                                                              : int64_t{1} << 40;
      Buffer buffer((*s.out)->name, inner, s.out->elem_dtype(),
                    bytes <= kMaxLocalBytes ? "local" : "global");
      rows.Add(*s.out, buffer, group.num_rows);
      result.temporaries.push_back(tir::AllocBuffer(buffer));
    }
    std::vector<Stage> flats;
    for (size_t i = group.begin; i < group.end; ++i) {
      const Stage& whole = context_->program.stages[i];
      ffi::Map<Var, Expr> map;
      for (size_t d = 0; d < group.num_rows; ++d) map.Set(whole.spatial[d].var, row_axes[d].var);
      Stage s = Substituted(whole, map);
      s.spatial.erase(s.spatial.begin(),
                      s.spatial.begin() + static_cast<std::ptrdiff_t>(group.num_rows));
      s.value = rows.Mutate(s.value);
      if (s.finish.defined()) s.finish = rows.Mutate(s.finish);
      if (rows.Has(*s.out)) {
        s.indices = rows.Inner(*s.out, s.indices);
        s.out = rows.BufferOf(*s.out);
      }
      result.work = result.work + WorkOf(s);
      Stage flat = FlattenStage(s, &context_->analyzer);
      CollapseAxes(&flat, &context_->analyzer);
      flats.push_back(flat);
    }
    for (size_t i = 0; i < flats.size(); ++i) {
      if (i + 1 < flats.size() && GoesInto(flats[i], flats[i + 1])) {
        flats[i + 1].before = std::make_shared<const Stage>(flats[i]);
      } else {
        result.loops.push_back(flats[i]);
      }
    }
    MergeRows(&result, &context_->analyzer);
    if (!row_axes.empty()) {
      const Stage& loop = result.loops.front();
      const Stage& first = loop.before != nullptr ? *loop.before : loop;
      result.along = AxisOf(first);
      result.read = ReadAlong(first, result.rows.back(), rows);
    }
    return result;
  }

  // Of the last row axis, how many rows go together through the stages of a group, one stage after
  // the other.
  int64_t RowsAtOnce(const Group& group, const std::vector<Axis>& row_axes) {
    if (row_axes.empty() || ir::AsInt(row_axes.back().extent).value_or(kManyRows) < 2) return 1;
    int64_t bytes = 0;
    bool adds_up = false;
    for (size_t i = group.begin; i < group.end; ++i) {
      const Stage& s = context_->program.stages[i];
      Expr elems = 1;
      for (size_t d = group.num_rows; d < s.spatial.size(); ++d)
        elems = elems * s.spatial[d].extent;
      for (const Axis& a : s.reduce) elems = elems * a.extent;
      bytes = std::max(bytes, Estimate(elems, &context_->analyzer) * ElemBytes(s));
      adds_up = adds_up || (s.combine != Combine::kNone && s.spatial.size() == group.num_rows);
    }
    Expr total = 1;
    for (const Axis& a : row_axes) total = total * a.extent;
    if (!adds_up || bytes > kShortRowBytes) return 1;
    return ir::AsInt(context_->analyzer.Simplify(total)).value_or(kManyRows) < kManyRows ? 1 : 2;
  }

  // Can `elementwise` run inside of the loop of `reduction`, which reads what it stores?
  bool GoesInto(const Stage& elementwise, const Stage& reduction) const {
    if (elementwise.combine != Combine::kNone || elementwise.spatial.size() != 1) return false;
    if (reduction.combine == Combine::kNone || reduction.reduce.size() != 1) return false;
    const Axis &from = elementwise.spatial[0], &to = reduction.reduce[0];
    if (!reduction.spatial.empty() || !context_->analyzer.ProveEqual(from.extent, to.extent))
      return false;
    if (ElemBytes(elementwise) != ElemBytes(reduction)) return false;
    ffi::Map<Var, Expr> map;
    map.Set(from.var, to.var);
    const Expr at = tir::Substitute(elementwise.indices[0], map);
    bool reads = false, only_there = true;
    tir::PostOrderVisit(tir::Evaluate(reduction.value), [&](const ffi::ObjectRef& node) {
      const auto* load = node.as<BufferLoadObj>();
      if (load == nullptr || !load->buffer.same_as(*elementwise.out)) return;
      reads = true;
      only_there = only_there && context_->analyzer.ProveEqual(load->indices[0], at);
    });
    return reads && only_there;
  }

  // A load of memory that runs along the axis of `first` and goes on with the next row; null: there
  // is none.
  Expr ReadAlong(const Stage& first, const Axis& row, const RowTemps& temps) {
    const std::optional<Axis> axis = AxisOf(first);
    Expr read;
    if (!axis.has_value()) return read;
    tir::PostOrderVisit(tir::Evaluate(first.value), [&](const ffi::ObjectRef& node) {
      const auto* load = node.as<BufferLoadObj>();
      if (load == nullptr || read.defined() || temps.IsOne(load->buffer)) return;
      auto linear = LinearOffset::Of(load->indices[0], {*axis, row});
      if (!linear.has_value() || !ir::IsIntValue(linear->Coeff(axis->var), 1)) return;
      if (ir::IsIntValue(context_->analyzer.Simplify(linear->Coeff(row.var)), 0)) return;
      read = ffi::GetRef<BufferLoad>(load);
    });
    return read;
  }

  // The stage that stores the group's one result; null: there are several.
  const Stage* OneResult(const Group& group) const {
    const Stage* result = nullptr;
    for (size_t i = group.begin; i < group.end; ++i) {
      if (context_->temps.count(context_->program.stages[i].out->get())) continue;
      if (result != nullptr) return nullptr;
      result = &context_->program.stages[i];
    }
    return result;
  }

  Stmt OverRows(const std::vector<Axis>& rows, Stmt body, const Expr& work,
                const Expr& stream_if = Expr()) {
    return RunRows({rows, std::move(body), work, stream_if}, &context_->analyzer);
  }

  Context* context_;
};

}  // namespace

Stmt EmitGroup(size_t at, Context* context, size_t* end) { return RowGroup(context).Emit(at, end); }

}  // namespace relaxvm::schedule::cpu
