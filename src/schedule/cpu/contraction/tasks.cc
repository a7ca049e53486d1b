// SPDX-License-Identifier: Apache-2.0
// The tasks of a contraction, and the order in which they run: what is read again of A or of B is
// to be found in the second cache.
#include "schedule/cpu/contraction/contraction.h"

namespace relaxvm::schedule::cpu {
namespace {

using tir::SeqStmt;

}  // namespace

Expr ChunksInBlock(const Expr& all, const Expr& bytes_of_chunk, const Machine& machine,
                   arith::Analyzer* analyzer) {
  if (!bytes_of_chunk.defined()) return all;
  const Expr some = ir::Max(ir::FloorDiv(machine.l2_bytes / 4, bytes_of_chunk), 1);
  return analyzer->Simplify(ir::Select(ir::LessEqual(all * bytes_of_chunk, machine.l2_bytes / 2),
                                       all, ir::Min(some, all)));
}

Expr LinearIndex(const std::vector<Axis>& axes) {
  Expr at = 0;
  for (const Axis& axis : axes) at = at * axis.extent + axis.var;
  return at;
}

void BindPoint(const std::vector<Axis>& axes, Expr index, ffi::Array<Stmt>* seq) {
  size_t outermost = 0;
  while (outermost + 1 < axes.size() && ir::IsIntValue(axes[outermost].extent, 1)) ++outermost;
  for (size_t i = axes.size(); i-- > 0;) {
    if (ir::IsIntValue(axes[i].extent, 1)) {
      seq->push_back(tir::Bind(axes[i].var, Expr(0)));
      continue;
    }
    seq->push_back(
        tir::Bind(axes[i].var, i == outermost ? index : ir::FloorMod(index, axes[i].extent)));
    if (i > outermost) {
      Var next("rest", Int(64));
      seq->push_back(tir::Bind(next, ir::FloorDiv(index, axes[i].extent)));
      index = next;
    }
  }
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
  ffi::Array<Stmt> seq = {
      tir::Bind(block, ir::FloorDiv(both, num_panels * size)),
      tir::Bind(place, both - block * num_panels * size),
      tir::Bind(here, ir::Min(size, num_chunks - block * size)),
      tir::Bind(in_b, ir::FloorDiv(place, here)),
      tir::Bind(in_a, block * size + ir::FloorMod(place, here)),
  };
  BindPoint(of_b, in_b, &seq);
  BindPoint(of_a, in_a, &seq);
  seq.push_back(tasks.body);
  all.push_back({both, analyzer->Simplify(num_panels * num_chunks)});
  return SeqStmt::Flatten(
      {tir::Bind(size, in_block), OverTasks(all, SeqStmt::Flatten(seq), tasks.work, analyzer)});
}

}  // namespace relaxvm::schedule::cpu
