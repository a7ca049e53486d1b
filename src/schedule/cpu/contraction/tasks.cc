// SPDX-License-Identifier: Apache-2.0
// The tasks of a contraction, and the order in which they run: what is read again of A or of B is
// to be found in the second cache.
#include <algorithm>

#include "schedule/cpu/contraction/emitter.h"

namespace relaxvm::schedule::cpu {
namespace {

using tir::SeqStmt;

constexpr int64_t kMaxTilesPerTask = 16;
constexpr int64_t kChunksOfBlock = 8;  // of rows that are a thread's own, where there are as many
// Rows for which a panel is widened once: at most, and where so many tasks are left, at least.
constexpr int64_t kMostRowsOfWidePanel = 256, kRowsOfWidePanel = 128, kFewestTasksPerThread = 2;

// How many of `all` chunks pass for each panel of B: all, unless their rows of A do not stay in the
// second cache.  `bytes_of_chunk`: of A; null: not known.
Expr ChunksInBlock(const Expr& all, const Expr& bytes_of_chunk, const Machine& machine,
                   arith::Analyzer* analyzer) {
  if (!bytes_of_chunk.defined()) return all;
  const Expr some = ir::Max(ir::FloorDiv(machine.l2_bytes / 4, bytes_of_chunk), 1);
  return analyzer->Simplify(ir::Select(ir::LessEqual(all * bytes_of_chunk, machine.l2_bytes / 2),
                                       all, ir::Min(some, all)));
}

}  // namespace

Expr ContractionEmitter::InBlock(const Expr& chunks) const {
  const Expr all = analyzer_->Simplify(NumPoints(c_.outer_a) * chunks);
  const Expr in_block = ChunksInBlock(all, BytesOfChunk(), machine_, analyzer_);
  const Expr worth = WorthRowsOfOwn();
  if (!worth.defined()) return in_block;
  return analyzer_->Simplify(
      ir::Select(worth, ir::Min(in_block, ir::CeilDiv(all, BlocksOfOwn())), in_block));
}

void ContractionEmitter::BindInBlock() {
  in_block_ = InBlock(chunks_);
  if (BytesOfChunk().defined()) in_block_ = Named("chunks_of_block", in_block_);
}

int64_t ContractionEmitter::BlocksOfOwn() const {
  return machine_.num_cores > 1 ? machine_.num_cores : kFewestThreads;
}

Expr ContractionEmitter::WorthRowsOfOwn() const {
  const auto of_a = BytesOfRow();
  if (!of_a.has_value() || !ir::IsIntValue(analyzer_->Simplify(NumPoints(c_.batch)), 1))
    return Expr();
  const int64_t bytes_of_b = BytesOfB(analyzer_->Simplify(NumPoints(c_.stage.reduce)));
  if (bytes_of_b == 0 || bytes_of_b > machine_.l2_bytes / 2) return Expr();
  const Expr of_row =
      Expr(*of_a) + c_.vector.extent * NumPoints(c_.outer_b) * Expr(SizeInBytes(c_.acc));
  return analyzer_->Simplify(
      ir::Greater(c_.row.extent * NumPoints(c_.outer_a) * of_row, Expr(bytes_of_b)));
}

std::optional<int64_t> ContractionEmitter::BytesOfRow() const {
  if (c_.stage.reduce.empty() || c_.side_by_side.has_value() || depth_blocks_.has_value())
    return std::nullopt;
  const auto inner = ir::AsInt(c_.stage.reduce.back().extent);
  if (!inner.has_value()) return std::nullopt;
  return *inner * c_.group * SizeInBytes(Buffer(c_.LoadOf(c_.a)->buffer).elem_dtype());
}

Expr ContractionEmitter::BytesOfChunk() const {
  const auto of_row = BytesOfRow();
  return of_row.has_value() ? per_task_ * Expr(rows_ * *of_row) : Expr();
}

bool ContractionEmitter::GroupsPassForRows() const {
  auto bytes = [&](const Expr& operand) {
    const Buffer buffer(c_.LoadOf(operand)->buffer);
    return ir::AsInt(
        analyzer_->Simplify(NumElements(buffer) * Expr(SizeInBytes(buffer.elem_dtype()))));
  };
  const auto of_a = bytes(c_.a), of_b = bytes(c_.b);
  if (of_a.value_or(machine_.l2_bytes) <= machine_.l2_bytes / 2 ||
      of_b.value_or(machine_.l2_bytes) > machine_.l2_bytes * 5 / 8)
    return false;
  if (c_.side_by_side.has_value()) return true;
  if (c_.batch.empty()) return false;
  const Axis& group = c_.batch.back();
  const auto a = LinearOffset::Of(c_.LoadOf(c_.a)->indices[0], c_.AllAxes());
  const auto step = ir::AsInt(a->Coeff(group.var)), of_row = ir::AsInt(a->Coeff(c_.row.var)),
             groups = ir::AsInt(group.extent);
  return step.value_or(0) > 0 && of_row.has_value() && groups.has_value() &&
         *step * *groups <= *of_row;
}

void ContractionEmitter::ChooseTilesPerTask(int64_t most, bool is_cut) {
  most = std::clamp<int64_t>(most, 1, kMaxTilesPerTask);
  const bool widens = !ir::IsIntValue(WidensPanelFor(num_tiles_), 0);
  if (widens) most = std::max(most, (kMostRowsOfWidePanel + rows_ - 1) / rows_);
  const Expr tiles = num_tiles_ * NumPoints(c_.OuterOfB()) * NumPoints(c_.outer_a);
  const int64_t tasks = kTasksPerThread * std::max<int64_t>(machine_.num_cores, kFewestThreads);
  Expr even = ir::Min(ir::FloorDiv(tiles * panels_, tasks), most);
  if (const Expr worth = is_cut ? Expr() : WorthRowsOfOwn(); worth.defined()) {
    // The last block of rows has fewer chunks than others.
    const Expr fine =
        ir::FloorDiv(num_tiles_ * NumPoints(c_.outer_a), kChunksOfBlock * BlocksOfOwn());
    even = ir::Select(worth, ir::Min(even, fine), even);
  }
  if (widens) {
    const int64_t fewest = kFewestTasksPerThread * std::max<int64_t>(machine_.num_cores, 1);
    const Expr enough = ir::FloorDiv(tiles * panels_, fewest);
    even = ir::Max(even, ir::Min((kRowsOfWidePanel + rows_ - 1) / rows_, enough));
  }
  even = analyzer_->Simplify(ir::Max(even, 1));
  // Ranges of rows share one number.
  per_task_ = is_cut && !ir::AsInt(even).has_value() ? Expr(most) : Named("tiles_of_task", even);
}

Expr LinearIndex(const std::vector<Axis>& axes) {
  Expr at = 0;
  for (const Axis& axis : axes) at = at * axis.extent + axis.var;
  return at;
}

Stmt OverTasks(const std::vector<Axis>& axes, const Stmt& body, const Expr& work,
               arith::Analyzer* analyzer) {
  Var task("task", Int(64));
  ffi::Array<Stmt> seq;
  BindPoint(axes, task, &seq);
  seq.push_back(body);
  return ParallelLoop(task, analyzer->Simplify(NumPoints(axes)), work, SeqStmt::Flatten(seq),
                      analyzer);
}

Stmt RunTasks(const Contraction& c, const Tasks& tasks, arith::Analyzer* analyzer) {
  std::vector<Axis> all = c.batch, of_b = c.outer_b, of_a = c.outer_a;
  of_a.push_back(tasks.chunk);
  of_b.push_back(tasks.panel);
  if (tasks.groups_pass) {
    std::vector<Axis> groups = of_b;
    if (!c.side_by_side.has_value()) {
      groups.insert(groups.begin(), all.back());
      all.pop_back();
    }
    all.insert(all.end(), of_a.begin(), of_a.end());
    all.insert(all.end(), groups.begin(), groups.end());
    return OverTasks(all, tasks.body, tasks.work, analyzer);
  }
  const Expr num_panels = analyzer->Simplify(NumPoints(of_b));
  const Expr num_chunks = analyzer->Simplify(NumPoints(of_a));
  const Expr& in_block = tasks.in_block;
  if (ir::IsIntValue(num_panels, 1) || in_block.same_as(num_chunks) ||
      analyzer->ProveEqual(in_block, num_chunks)) {
    // Each panel of B stays in the second cache while rows of A pass.
    all.insert(all.end(), of_b.begin(), of_b.end());
    all.insert(all.end(), of_a.begin(), of_a.end());
    return OverTasks(all, tasks.body, tasks.work, analyzer);
  }
  // A block of rows of A stays there while panels of B pass, each for all rows of the block.
  Var both("chunks_and_panels", Int(64)), size("block_chunks", Int(64)), block("block", Int(64)),
      place("place", Int(64)), here("here", Int(64)), in_b("in_b", Int(64)), in_a("in_a", Int(64));
  // Numbers that are seen to be at least 0, and divisors at least 1, make short divisions.
  ffi::Array<Stmt> seq = {
      tir::Bind(block, ir::FloorDiv(both, num_panels * size)),
      tir::Bind(place, ir::Max(both - block * num_panels * size, 0)),
      tir::Bind(here, ir::Max(ir::Min(size, num_chunks - block * size), 1)),
      tir::Bind(in_b, ir::FloorDiv(place, here)),
      tir::Bind(in_a, block * size + (place - in_b * here)),
  };
  BindPoint(of_b, in_b, &seq);
  BindPoint(of_a, in_a, &seq);
  seq.push_back(tasks.body);
  all.push_back({both, analyzer->Simplify(num_panels * num_chunks)});
  return SeqStmt::Flatten({tir::Bind(size, ir::Max(in_block, 1)),
                           OverTasks(all, SeqStmt::Flatten(seq), tasks.work, analyzer)});
}

}  // namespace relaxvm::schedule::cpu
