// SPDX-License-Identifier: Apache-2.0
// The CPU schedule: stages that share rows run row by row, contractions run on tiles, rows are
// split over threads.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "schedule/cpu/cpu.h"
#include "schedule/cpu/rows.h"
#include "schedule/cpu/winograd.h"
#include "tir/dot.h"

namespace relaxvm::schedule::cpu {
namespace {

using tir::BufferLoad;
using tir::BufferLoadObj;
using tir::ForKind;
using tir::SeqStmt;

constexpr int64_t kBlockElems =
    4096;  // one iteration of a parallel loop over a plain run of elements
constexpr int64_t kBlockWork = 65536;      // additions of a block of reductions
constexpr int64_t kWorkPerRow = 8192;      // additions; below it, finding the row would be felt
constexpr int kCostlyFinish = 20;          // additions; mostly empty vectors waste it
constexpr int64_t kVectorsOfARow = 5;      // that pay for adding up across the lanes
constexpr int64_t kTypicalSize = 64;       // of a dimension that is not known
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

bool ReadsBuffer(const Stage& stage, const Var& buffer) {
  for (const Var& read : ReadsOf(stage)) {
    if (read.same_as(buffer)) return true;
  }
  return false;
}

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

// One loop over all rows, split over threads; with several axes these are found by division, once a
// row.
Stmt RunRows(const RowForm& form, arith::Analyzer* analyzer) {
  const std::vector<Axis>& rows = form.rows;
  if (rows.empty()) return form.body;
  // Vectors do several additions at once.
  const Expr cost = ir::FloorDiv(form.work, 4);
  auto streamed = [&](const Stmt& loop) -> Stmt {
    if (!form.stream_if.defined()) return loop;
    auto copy = ffi::make_object<tir::ForObj>(*loop.as<tir::ForObj>());
    copy->annotations.Set(kStreamIf, form.stream_if);
    return ir::NodeRef<tir::For>(std::move(copy));
  };
  if (rows.size() == 1)
    return streamed(ParallelLoop(rows[0].var, rows[0].extent, cost, form.body, analyzer));
  Expr total = 1;
  for (const Axis& a : rows) total = total * a.extent;
  Var row("row", Int(64));
  ffi::Array<Stmt> seq;
  Expr rest = row;
  for (size_t i = rows.size(); i-- > 0;) {
    seq.push_back(tir::Bind(rows[i].var, i == 0 ? rest : ir::FloorMod(rest, rows[i].extent)));
    if (i > 0) {
      Var next("rest", Int(64));
      seq.push_back(tir::Bind(next, ir::FloorDiv(rest, rows[i].extent)));
      rest = next;
    }
  }
  seq.push_back(form.body);
  return streamed(
      ParallelLoop(row, analyzer->Simplify(total), cost, SeqStmt::Flatten(seq), analyzer));
}

// Attention becomes one statement: what is known about it is lost when formulas are put together.
Program WithAttention(Program program, const Machine& traits) {
  arith::Analyzer analyzer;
  for (size_t at = 0; at < program.stages.size(); ++at) {
    auto found = EmitAttention(program, at, traits, &analyzer);
    if (!found.has_value()) continue;
    Stage done;
    done.name = "attention";
    done.opaque = RunRows(found->form, &analyzer);
    auto begin = program.stages.begin() + static_cast<std::ptrdiff_t>(at);
    program.stages.erase(begin, begin + static_cast<std::ptrdiff_t>(found->num_stages));
    program.stages.insert(program.stages.begin() + static_cast<std::ptrdiff_t>(at), done);
  }
  return program;
}

bool UsesPairs(const Stmt& body) {
  bool found = false;
  tir::PostOrderVisit(body, [&](const ffi::ObjectRef& node) {
    const auto* call = node.as<ir::IntrinObj>();
    if (call == nullptr || call->intrin != ir::Intrin::kFma) return;
    found = found || tir::AsDotOfPairs(ffi::GetRef<Expr>(call)).has_value();
  });
  return found;
}

class Scheduler {
 public:
  Scheduler(Program program, const Machine& traits)
      : program_(std::move(program)), traits_(traits) {
    for (const Buffer& b : program_.temps) temps_.insert(b.get());
  }

  PrimFunc Run() {
    ffi::Array<Stmt> parts;
    for (size_t at = 0; at < program_.stages.size();) {
      const Stage& stage = program_.stages[at];
      if (stage.IsOpaque()) {
        parts.push_back(stage.opaque);
        ++at;
        continue;
      }
      if (IsWinograd(program_, at)) {
        parts.push_back(Winograd(at));
        at += 3;
        continue;
      }
      if (const Stage* after = stage.combine != Combine::kNone ? EpilogueOf(at) : nullptr) {
        gone_.insert(stage.out->get());
        const Stage finished = FinishWith(stage, *after);
        program_.stages.erase(program_.stages.begin() + static_cast<std::ptrdiff_t>(at));
        program_.stages[at] = finished;
      }
      const Stage split = SplitAxes(program_.stages[at], &analyzer_);
      if (IsContraction(split)) {
        if (auto done = EmitContraction(split, traits_, &analyzer_)) {
          const Expr dots = BetterAsDots(split, traits_, &analyzer_);
          if (!dots.defined())
            parts.push_back(*done);
          else if (ir::IsIntValue(dots, 1))
            parts.push_back(EmitSingle(split));
          else
            parts.push_back(tir::IfThenElse(dots, EmitSingle(split), *done));
          ++at;
          continue;
        }
      }
      Group group = GroupFrom(at);
      parts.push_back(EmitGroup(group));
      at = group.end;
    }
    ffi::Array<Stmt> body;
    for (const Buffer& b : program_.temps) {
      if (!gone_.count(b.get())) body.push_back(tir::AllocBuffer(b));
    }
    for (const Stmt& part : parts) body.push_back(part);
    auto copy = ffi::make_object<tir::PrimFuncObj>(*program_.func.get());
    copy->body = SeqStmt::Flatten(body);
    copy->attrs.Set(tir::attr::kScheduled, true);
    if (traits_.dot_bf16 && UsesPairs(copy->body)) copy->attrs.Set(tir::kFastPairs, true);
    return ir::NodeRef<PrimFunc>(std::move(copy));
  }

 private:
  // Three stages, and what finishes the last one.
  Stmt Winograd(size_t at) {
    if (const Stage* after = EpilogueOf(at + 2)) {
      gone_.insert(program_.stages[at + 2].out->get());
      const Stage finished = FinishWith(program_.stages[at + 2], *after);
      program_.stages.erase(program_.stages.begin() + static_cast<std::ptrdiff_t>(at + 2));
      program_.stages[at + 2] = finished;
    }
    for (size_t i = at; i < at + 2; ++i) gone_.insert(program_.stages[i].out->get());
    return EmitWinograd(program_.stages[at], program_.stages[at + 1], program_.stages[at + 2],
                        traits_, &analyzer_);
  }

  bool ReadOnlyBy(const Buffer& buffer, size_t begin, size_t end) const {
    for (size_t i = 0; i < program_.stages.size(); ++i) {
      if ((i < begin || i >= end) && ReadsBuffer(program_.stages[i], buffer)) return false;
    }
    return true;
  }

  // A contraction whose vectors would be mostly empty.
  bool HasFewColumns(const Stage& stage) const {
    if (stage.spatial.empty() || !IsContraction(SplitAxes(stage, &analyzer_))) return false;
    const auto columns = ir::AsInt(stage.spatial.back().extent);
    return columns.has_value() && columns.value() * 4 <= traits_.Lanes(ElemBytes(stage));
  }

  // The next stage, when it consumes the contraction element by element and nobody else does.
  const Stage* EpilogueOf(size_t at) const {
    if (at + 1 >= program_.stages.size()) return nullptr;
    const Stage& main = program_.stages[at];
    const Stage& next = program_.stages[at + 1];
    if (!temps_.count(main.out->get()) || next.IsOpaque() || next.combine != Combine::kNone)
      return nullptr;
    if (!ReadsBuffer(next, *main.out) || !ReadOnlyBy(*main.out, at + 1, at + 2)) return nullptr;
    if (next.spatial.size() != main.spatial.size() || main.indices.size() != main.spatial.size())
      return nullptr;
    for (size_t i = 0; i < main.spatial.size(); ++i) {
      if (!main.indices[i].same_as(main.spatial[i].var)) return nullptr;
    }
    if (HasFewColumns(main) && CostOf(next.value) >= kCostlyFinish) return nullptr;
    bool identity = true;
    tir::PostOrderVisit(tir::Evaluate(next.value), [&](const ffi::ObjectRef& node) {
      const auto* load = node.as<BufferLoadObj>();
      if (load == nullptr || !load->buffer.same_as(*main.out)) return;
      for (size_t i = 0; i < load->indices.size(); ++i)
        identity = identity && load->indices[i].same_as(next.spatial[i].var);
    });
    return identity ? &next : nullptr;
  }

  // How many leading axes `stage` shares with the group's first stage, given the temporaries it
  // reads from the group.
  size_t SharedRows(const Group& group, const Stage& stage) const {
    const Stage& first = program_.stages[group.begin];
    size_t rows = 0;
    for (; rows < std::min(group.num_rows, stage.spatial.size()); ++rows) {
      if (!analyzer_.ProveEqual(first.spatial[rows].extent, stage.spatial[rows].extent)) break;
      if (rows >= stage.indices.size() || !stage.indices[rows].same_as(stage.spatial[rows].var))
        break;
      bool same_row = true;
      for (size_t i = group.begin; i < group.end; ++i) {
        const Stage& writer = program_.stages[i];
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
    Group group{begin, begin + 1, program_.stages[begin].spatial.size()};
    while (group.end < program_.stages.size()) {
      const Stage& next = program_.stages[group.end];
      if (next.IsOpaque() || IsContraction(SplitAxes(next, &analyzer_))) break;
      bool reads_group = false;
      for (size_t i = group.begin; i < group.end; ++i) {
        reads_group = reads_group || ReadsBuffer(next, *program_.stages[i].out);
      }
      const size_t rows = reads_group ? SharedRows(group, next) : 0;
      if (rows == 0) break;
      group.num_rows = rows;
      ++group.end;
    }
    if (HasFewRows(group)) return {begin, begin + 1, program_.stages[begin].spatial.size()};
    // Something must be left to run along the lanes.
    bool has_inner = group.num_rows == 0 || group.end == group.begin + 1;
    for (size_t i = group.begin; i < group.end; ++i) {
      has_inner = has_inner || program_.stages[i].spatial.size() > group.num_rows;
    }
    has_inner = has_inner || AllReadAlongTheirSums(group);
    if (!has_inner && --group.num_rows == 0)
      return {begin, begin + 1, program_.stages[begin].spatial.size()};
    return group;
  }

  // Is every stage a reduction that reads memory along its innermost axis, for some vectors at
  // least?
  bool AllReadAlongTheirSums(const Group& group) {
    for (size_t i = group.begin; i < group.end; ++i) {
      const Stage flat = FlattenStage(program_.stages[i], &analyzer_);
      if (flat.reduce.empty()) return false;
      const Axis& along = flat.reduce.back();
      const int64_t enough = kVectorsOfARow * traits_.Lanes(ElemBytes(flat));
      if (ir::AsInt(along.extent).value_or(enough) < enough || !ReadsAlong(flat, along.var))
        return false;
    }
    return true;
  }

  // Elementwise stages go one after the other when their rows are too few for threads.
  bool HasFewRows(const Group& group) {
    if (group.end == group.begin + 1) return false;
    Expr rows = 1;
    for (size_t d = 0; d < group.num_rows; ++d)
      rows = rows * program_.stages[group.begin].spatial[d].extent;
    for (size_t i = group.begin; i < group.end; ++i)
      if (program_.stages[i].combine != Combine::kNone) return false;
    return ir::AsInt(analyzer_.Simplify(rows)).value_or(kEnoughRows) < kEnoughRows;
  }

  Stmt EmitGroup(const Group& group) {
    if (group.end == group.begin + 1) return EmitSingle(program_.stages[group.begin]);
    const Stage& first = program_.stages[group.begin];
    const std::vector<Axis> row_axes(
        first.spatial.begin(), first.spatial.begin() + static_cast<std::ptrdiff_t>(group.num_rows));
    const Stage* result = OneResult(group);
    const Streaming past =
        result == nullptr ? Streaming() : StreamingOf(FlattenStage(*result, &analyzer_));
    const Stmt plain = EmitRows(group, row_axes, BothHold(past));
    if (!past.larger.defined() || row_axes.empty()) return plain;
    // The last stage alone can be made to store from any multiple of the vector on.
    if (result != &program_.stages[group.end - 1]) return plain;
    RowLoops loops = LoopsOf(group, row_axes, 2);
    const int64_t together = RowsTogether(loops, past.aligned, traits_);
    if (together > 1) loops = LoopsOf(group, row_axes, 2 * together);
    loops.together = together;
    auto piped = PipelineRows(loops, past.aligned, traits_, &analyzer_);
    if (!piped.has_value()) return plain;
    const Expr stream_if = analyzer_.Simplify(ir::And(past.larger, piped->stream_if));
    if (ir::IsIntValue(stream_if, 0)) return plain;
    const Stmt streamed = OverRows(piped->rows, piped->body, piped->work, stream_if);
    if (ir::IsIntValue(stream_if, 1)) return streamed;
    return tir::IfThenElse(stream_if, streamed, EmitRows(group, row_axes, Expr()));
  }

  // One row after the other, or a few at once.
  Stmt EmitRows(const Group& group, std::vector<Axis> row_axes, const Expr& stream_if) {
    const int64_t at_once = RowsAtOnce(group, row_axes);
    RowLoops rows = LoopsOf(group, row_axes, at_once);
    ffi::Array<Stmt> body = rows.temporaries;
    FetchNextRow(&rows, at_once, &analyzer_);
    if (at_once == 1) {
      for (const Stage& s : rows.loops) body.push_back(EmitNest(s, traits_, &analyzer_));
      return OverRows(row_axes, SeqStmt::Flatten(body), rows.work, stream_if);
    }
    const Axis row = row_axes.back();
    const Axis block{Var("block", Int(64)),
                     analyzer_.Simplify(ir::CeilDiv(row.extent, Expr(at_once)))};
    const Expr from = block.var * Expr(at_once);
    const bool divides = analyzer_.ProveEqual(ir::FloorMod(row.extent, at_once), 0);
    const Expr count = divides ? Expr(at_once) : ir::Min(at_once, row.extent - from);
    for (const Stage& s : rows.loops) {
      Var one("one", Int(64));
      ffi::Map<Var, Expr> map;
      map.Set(rows.slot, one);
      map.Set(row.var, from + one);
      body.push_back(Loop(one, count, ForKind::kSerial,
                          tir::Substitute(EmitNest(s, traits_, &analyzer_), map)));
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
      const Stage& s = program_.stages[i];
      if (!temps_.count(s.out->get()) || !ReadOnlyBy(*s.out, group.begin, group.end)) continue;
      gone_.insert(s.out->get());
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
      Stage s = program_.stages[i];
      ffi::Map<Var, Expr> map;
      for (size_t d = 0; d < group.num_rows; ++d) map.Set(s.spatial[d].var, row_axes[d].var);
      s.spatial.erase(s.spatial.begin(),
                      s.spatial.begin() + static_cast<std::ptrdiff_t>(group.num_rows));
      s.value = rows.Mutate(tir::Substitute(s.value, map));
      if (s.finish.defined()) s.finish = rows.Mutate(tir::Substitute(s.finish, map));
      s.indices = s.indices.Map([&](const Expr& e) { return tir::Substitute(e, map); });
      if (rows.Has(*s.out)) {
        s.indices = rows.Inner(*s.out, s.indices);
        s.out = rows.BufferOf(*s.out);
      }
      result.work = result.work + WorkOf(s);
      Stage flat = FlattenStage(s, &analyzer_);
      CollapseAxes(&flat, &analyzer_);
      flats.push_back(flat);
    }
    for (size_t i = 0; i < flats.size(); ++i) {
      if (i + 1 < flats.size() && GoesInto(flats[i], flats[i + 1])) {
        flats[i + 1].before = std::make_shared<const Stage>(flats[i]);
      } else {
        result.loops.push_back(flats[i]);
      }
    }
    if (!row_axes.empty()) {
      result.along = AxisOf(flats.front());
      result.read = ReadAlong(flats.front(), row_axes.back(), rows);
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
      const Stage& s = program_.stages[i];
      Expr elems = 1;
      for (size_t d = group.num_rows; d < s.spatial.size(); ++d)
        elems = elems * s.spatial[d].extent;
      for (const Axis& a : s.reduce) elems = elems * a.extent;
      bytes = std::max(bytes, Estimate(elems) * ElemBytes(s));
      adds_up = adds_up || (s.combine != Combine::kNone && s.spatial.size() == group.num_rows);
    }
    Expr total = 1;
    for (const Axis& a : row_axes) total = total * a.extent;
    if (!adds_up || bytes > kShortRowBytes) return 1;
    return ir::AsInt(analyzer_.Simplify(total)).value_or(kManyRows) < kManyRows ? 1 : 2;
  }

  // Can `elementwise` run inside of the loop of `reduction`, which reads what it stores?
  bool GoesInto(const Stage& elementwise, const Stage& reduction) const {
    if (elementwise.combine != Combine::kNone || elementwise.spatial.size() != 1) return false;
    if (reduction.combine == Combine::kNone || reduction.reduce.size() != 1) return false;
    const Axis &from = elementwise.spatial[0], &to = reduction.reduce[0];
    if (!reduction.spatial.empty() || !analyzer_.ProveEqual(from.extent, to.extent)) return false;
    if (ElemBytes(elementwise) != ElemBytes(reduction)) return false;
    ffi::Map<Var, Expr> map;
    map.Set(from.var, to.var);
    const Expr at = tir::Substitute(elementwise.indices[0], map);
    bool reads = false, only_there = true;
    tir::PostOrderVisit(tir::Evaluate(reduction.value), [&](const ffi::ObjectRef& node) {
      const auto* load = node.as<BufferLoadObj>();
      if (load == nullptr || !load->buffer.same_as(*elementwise.out)) return;
      reads = true;
      only_there = only_there && analyzer_.ProveEqual(load->indices[0], at);
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
      if (ir::IsIntValue(analyzer_.Simplify(linear->Coeff(row.var)), 0)) return;
      read = ffi::GetRef<BufferLoad>(load);
    });
    return read;
  }

  // The stage that stores the group's one result; null: there are several.
  const Stage* OneResult(const Group& group) const {
    const Stage* result = nullptr;
    for (size_t i = group.begin; i < group.end; ++i) {
      if (temps_.count(program_.stages[i].out->get())) continue;
      if (result != nullptr) return nullptr;
      result = &program_.stages[i];
    }
    return result;
  }

  // One stage: all axes but the one along the lanes are rows.
  Stmt EmitSingle(const Stage& stage) {
    ffi::Array<Stmt> parts;
    for (const Stage& piece : PiecesOf(stage, &analyzer_)) parts.push_back(EmitPiece(piece));
    return SeqStmt::Flatten(parts);
  }

  Stmt EmitPiece(const Stage& whole) {
    // Parts that fill a vector are runs of memory.
    const Stage stage =
        whole.combine == Combine::kNone
            ? SplitAxes(whole, &analyzer_, std::max<int64_t>(2, traits_.Lanes(ElemBytes(whole))))
            : whole;
    Stage flat = FlattenStage(stage, &analyzer_);
    CollapseAxes(&flat, &analyzer_);
    if (flat.spatial.size() == 1 && flat.combine == Combine::kNone) return EmitRun(flat);
    if (const auto parts = InParts(flat, traits_)) return EmitParts(*parts, WorkOf(flat));
    if (flat.spatial.empty()) return EmitNest(flat, traits_, &analyzer_);
    if (auto turned = EmitTranspose(flat, /*past_caches=*/false, traits_, &analyzer_)) {
      const Stmt plain = OverRows(turned->rows, turned->body, turned->work);
      const Expr stream_if = turned->streams ? StreamIf(flat) : Expr();
      if (!stream_if.defined()) return plain;
      const RowForm past = *EmitTranspose(flat, /*past_caches=*/true, traits_, &analyzer_);
      const Stmt streamed = OverRows(past.rows, past.body, past.work, stream_if);
      return ir::IsIntValue(stream_if, 1) ? streamed : tir::IfThenElse(stream_if, streamed, plain);
    }
    if (flat.spatial.size() == 1) return EmitRun(flat);
    // The last axis that the store walks contiguously stays inside; the others are rows.
    size_t inner = flat.spatial.size() - 1;
    for (size_t i = 0; i < flat.spatial.size(); ++i) {
      auto linear = LinearOffset::Of(flat.indices[0], flat.spatial);
      if (linear.has_value() && ir::IsIntValue(linear->Coeff(flat.spatial[i].var), 1)) inner = i;
    }
    Stage row = flat;
    row.spatial = {flat.spatial[inner]};
    std::vector<Axis> rows = flat.spatial;
    rows.erase(rows.begin() + static_cast<std::ptrdiff_t>(inner));
    // Finding a row's axes costs divisions: rows are made long enough to forget them.  Windows
    // share what they read with their neighbours.
    const bool window =
        flat.combine != Combine::kNone && row.spatial[0].var.same_as(flat.spatial.back().var);
    while (rows.size() > 1 &&
           ((window && row.spatial.size() == 1) || Estimate(WorkOf(row)) < kWorkPerRow)) {
      row.spatial.insert(row.spatial.begin(), rows.back());
      rows.pop_back();
    }
    return OverRows(rows, EmitNest(row, traits_, &analyzer_), WorkOf(row), StreamIf(flat));
  }

  Stmt EmitParts(const Parts& parts, const Expr& work) {
    const Expr of_part = analyzer_.Simplify(ir::FloorDiv(work, parts.part.extent));
    return SeqStmt::Flatten(
        {tir::AllocBuffer(parts.partial),
         OverRows({parts.part}, EmitNest(parts.each, traits_, &analyzer_), of_part),
         EmitNest(parts.rest, traits_, &analyzer_)});
  }

  // A number for choices that need one: every unknown size is taken for kTypicalSize.
  int64_t Estimate(const Expr& e) {
    ffi::Map<Var, Expr> sizes;
    for (const Var& v : ir::FreeVars(e)) sizes.Set(v, kTypicalSize);
    return ir::AsInt(analyzer_.Simplify(ir::Substitute(e, sizes))).value_or(kWorkPerRow);
  }

  // How many neighbouring results of a reduction make a block: enough for its work, and a kilobyte
  // and more where they lie side by side in what is read.
  int64_t ResultsPerBlock(const Stage& flat) {
    const int64_t lanes = traits_.Lanes(ElemBytes(flat));
    Stage one = flat;
    one.spatial.clear();
    const int64_t work = std::max<int64_t>(1, Estimate(WorkOf(one)));
    const int64_t enough = (kBlockWork + work - 1) / work;
    const int64_t unit = ReadsAlong(flat, flat.spatial[0].var) ? 16 * lanes
                         : enough < 4 * lanes                  ? 1
                                                               : 4 * lanes;
    return (enough + unit - 1) / unit * unit;
  }

  // A run of results, cut into blocks.
  Stmt EmitRun(const Stage& flat) {
    const Axis axis = flat.spatial[0];
    const int64_t size = flat.combine == Combine::kNone ? kBlockElems : ResultsPerBlock(flat);
    if (auto extent = ir::AsInt(axis.extent); extent.has_value() && extent.value() <= size)
      return EmitNest(flat, traits_, &analyzer_);
    Axis block{Var("block", Int(64)), analyzer_.Simplify(ir::CeilDiv(axis.extent, size))};
    Expr from = block.var * Expr(size);
    Axis inside{Var(axis.var->name, Int(64)), ir::Min(size, axis.extent - from)};
    ffi::Map<Var, Expr> map;
    map.Set(axis.var, from + inside.var);
    Stage part = flat;
    part.spatial = {inside};
    part.value = tir::Substitute(flat.value, map);
    part.indices = {tir::Substitute(flat.indices[0], map)};
    if (flat.finish.defined()) part.finish = tir::Substitute(flat.finish, map);
    Stage whole = part;
    whole.spatial[0].extent = size;
    return OverRows({block}, EmitNest(part, traits_, &analyzer_), WorkOf(whole), StreamIf(flat));
  }

  // Additions that the axes inside a row cost.
  Expr WorkOf(const Stage& s) const {
    Expr work = CostOf(s.value) + 1;
    for (const Axis& a : s.spatial) work = work * a.extent;
    for (const Axis& a : s.reduce) work = work * a.extent;
    return work;
  }

  Stmt OverRows(const std::vector<Axis>& rows, Stmt body, const Expr& work,
                const Expr& stream_if = Expr()) {
    return RunRows({rows, std::move(body), work, stream_if}, &analyzer_);
  }

  // Is the result of a stage larger than the last cache, and does each of its vectors start at a
  // multiple of the vector?  Null: it never is larger, or this cannot be said.
  struct Streaming {
    Expr larger, aligned;
  };
  // `flat` has all its axes.
  Streaming StreamingOf(const Stage& flat) {
    if (temps_.count(flat.out->get()) || traits_.l3_bytes == 0) return {};
    const int64_t lanes = traits_.Lanes(ElemBytes(flat));
    auto linear = LinearOffset::Of(flat.indices[0], flat.spatial);
    if (lanes < 2 || !linear.has_value()) return {};
    Expr bytes = Expr(SizeInBytes(flat.out->elem_dtype()));
    for (const Expr& d : flat.out->shape()) bytes = bytes * d;
    const Expr larger = analyzer_.Simplify(ir::Greater(bytes, Expr(traits_.l3_bytes)));
    if (ir::IsIntValue(larger, 0)) return {};
    Expr aligned = ir::Equal(ir::FloorMod(linear->rest(), lanes), Expr(0));
    auto multiple = [&](const Expr& e) {
      aligned = ir::And(aligned, ir::Equal(ir::FloorMod(e, lanes), Expr(0)));
    };
    for (const Axis& axis : flat.spatial) {
      const Expr coeff = analyzer_.Simplify(linear->Coeff(axis.var));
      if (!ir::IsIntValue(coeff, 1)) multiple(coeff);
    }
    return {larger, analyzer_.Simplify(aligned)};
  }

  // Null: they never do.
  Expr BothHold(const Streaming& past) {
    if (!past.larger.defined()) return Expr();
    const Expr both = analyzer_.Simplify(ir::And(past.larger, past.aligned));
    return ir::IsIntValue(both, 0) ? Expr() : both;
  }
  Expr StreamIf(const Stage& flat) { return BothHold(StreamingOf(flat)); }

  Program program_;
  const Machine& traits_;
  mutable arith::Analyzer analyzer_;
  std::unordered_set<const ffi::Object*> temps_;
  std::unordered_set<const ffi::Object*>
      gone_;  // temporaries that need no memory of their own any more
};

}  // namespace

PrimFunc Schedule(const PrimFunc& func, const Machine& traits) {
  if (ir::GetAttr<bool>(func->attrs, tir::attr::kScheduled, false)) return func;
  std::optional<Program> program = ParseProgram(func);
  if (!program.has_value()) return func;
  return Scheduler(InlineStages(WithAttention(std::move(*program), traits)), traits).Run();
}

}  // namespace relaxvm::schedule::cpu
