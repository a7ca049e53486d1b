// SPDX-License-Identifier: Apache-2.0
// EmitAttention: softmax(q k^T) v without the matrix of scores (task.h).
#include "schedule/cpu/attention/task.h"

namespace relaxvm::schedule::cpu {
namespace {

// One of two, chosen by sizes.
Stmt Choose(const Expr& condition, const Stmt& yes, const Stmt& no) {
  if (ir::IsIntValue(condition, 1)) return yes;
  return ir::IsIntValue(condition, 0) ? no : tir::IfThenElse(condition, yes, no);
}

}  // namespace

std::optional<AttentionForm> EmitAttention(const Program& program, size_t at, const Machine& traits,
                                           arith::Analyzer* analyzer) {
  const auto parts = ReadAttention(program, at);
  if (!parts.has_value()) return std::nullopt;
  AttentionTask task(*parts, traits, analyzer);
  if (!task.Fits()) return std::nullopt;
  RowForm form;
  form.rows = task.Tasks();
  form.work = task.WorkOfTask();
  const Axis& chunk = form.rows.back();
  if (const auto by_lanes = AttentionByLanes(*parts, chunk, traits, analyzer)) {
    const Expr few = analyzer->Simplify(ir::LessEqual(task.NumRows(), Expr(kFewForLanes)));
    form.body =
        Choose(few, AttentionByRows(*parts, chunk, /*only_few=*/true, traits, analyzer), *by_lanes);
  } else {
    form.body = AttentionByRows(*parts, chunk, /*only_few=*/false, traits, analyzer);
  }
  return AttentionForm{form, kAttentionStages};
}

}  // namespace relaxvm::schedule::cpu
