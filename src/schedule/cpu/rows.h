// SPDX-License-Identifier: Apache-2.0
// The stages of a row group as loops over one row, and what keeps the memory busy while they run.
#pragma once

#include "schedule/cpu/cpu.h"

namespace relaxvm::schedule::cpu {

struct RowLoops {
  std::vector<Axis> rows;
  Var slot = Var("slot", Int(64));  // which copy of the temporaries; used when there are several
  ffi::Array<Stmt> temporaries;
  std::vector<Stage> loops;
  // What the first stage walks along, and a load that it makes of memory there, which goes on with
  // the next row; absent and null: there is none.
  std::optional<Axis> along;
  Expr read;
  Expr work = 0;         // of a row, in additions
  int64_t together = 1;  // rows that go through the loops side by side
};

// The one axis that a stage of a row walks along; absent: there is none, or there are several.
std::optional<Axis> AxisOf(const Stage& stage);

// Neighbouring axes of rows that all memory walks as one become one; axes of a single row go.
void MergeRows(RowLoops* rows, arith::Analyzer* analyzer);

// What the first stage reads of the next row, `at_once` further on, comes near while the others
// run, in parts that grow with what they compute: that leaves the memory time.  Nothing is done
// where rows are no runs of memory.
void FetchNextRow(RowLoops* rows, int64_t at_once, arith::Analyzer* analyzer);

// How many rows PipelineRows is to take side by side: several where rows share what the first cache
// does not hold, so that it is read once for all of them.
int64_t RowsTogether(const RowLoops& rows, const Expr& aligned, const Machine& traits);

// Rows larger than the caches together: the last loop of each row runs inside of the loops of the
// next row, so that memory is read and written at the same time.  `rows` has two copies of its
// temporaries for each row that it takes together.  Where `aligned` does not hold for sure, results
// are stored from the first multiple of the vector in each row on; the form's `stream_if` says
// whether rows are long enough for it. Absent when the loops have another form.
std::optional<RowForm> PipelineRows(const RowLoops& rows, const Expr& aligned,
                                    const Machine& traits, arith::Analyzer* analyzer);

// Rows shorter than a vector, as many at once as it has lanes.  `rows` has one copy of its
// temporaries.  Absent when the loops have another form.
std::optional<RowForm> EmitRowsOnLanes(const RowLoops& rows, const Machine& machine,
                                       arith::Analyzer* analyzer);

}  // namespace relaxvm::schedule::cpu
