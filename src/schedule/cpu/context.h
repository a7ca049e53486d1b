// SPDX-License-Identifier: Apache-2.0
// What the parts of a CPU schedule share: the program at hand, and what becomes of single stages.
#pragma once

#include <unordered_set>

#include "schedule/cpu/cpu.h"

namespace relaxvm::schedule::cpu {

struct Context {
  Context(Program p, const Machine& m) : program(std::move(p)), machine(m) {
    for (const Buffer& b : program.temps) temps.insert(b.get());
    for (const Stmt& check : program.checks)
      analyzer.Assume(check.as<tir::AssertStmtObj>()->condition);
  }
  // Does no stage outside of [begin, end) read `buffer`?
  bool ReadOnlyBy(const Buffer& buffer, size_t begin, size_t end) const;

  Program program;
  const Machine& machine;
  mutable arith::Analyzer analyzer;
  std::unordered_set<const ffi::Object*> temps;
  // Temporaries that need no memory of their own any more.
  std::unordered_set<const ffi::Object*> gone;
};

bool ReadsBuffer(const Stage& stage, const Var& buffer);

// Additions that the axes of a stage cost.
Expr WorkOf(const Stage& stage);

// One loop over all rows of a form, split over threads; with several axes these are found by
// division, once a row.
Stmt RunRows(const RowForm& form, arith::Analyzer* analyzer);

// A number for choices that need one: every unknown size is taken for a typical one.
int64_t Estimate(const Expr& e, arith::Analyzer* analyzer);

// Is the result of a stage larger than the last cache, and does each of its vectors start at a
// multiple of the vector?  Null: it never is larger, or this cannot be said.
struct Streaming {
  Expr larger, aligned;
  // Null: they never hold both.
  Expr Both(arith::Analyzer* analyzer) const;
};
// The first of these; null: the result is a temporary.
Expr IsLarge(const Stage& stage, Context* context);
// `flat` has all its axes; `larger` is what IsLarge says, or a variable that holds it.
Streaming StreamingOf(const Stage& flat, Context* context, const Expr& larger);

// One stage: all axes but the one along the lanes are rows.
Stmt EmitSingle(const Stage& stage, Context* context);

// The stages from `at` on that share rows, row by row; `end` is set to the first one after them.
Stmt EmitGroup(size_t at, Context* context, size_t* end);

}  // namespace relaxvm::schedule::cpu
