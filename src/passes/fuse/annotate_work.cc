// SPDX-License-Identifier: Apache-2.0
// AnnotateWork: writes down for every tensor program how many operations it does and how many bytes
// it touches, over its sizes: what a profile divides times by.
// Stage: lowered, at its end: schedules repeat work at the edges of their tiles.
// Keeps: what is written down already.
#include "analysis/work.h"
#include "passes/pass.h"

namespace relaxvm::passes {

IRModule AnnotateWork(IRModule mod, const PassContext& context) {
  std::vector<std::pair<ir::GlobalVar, tir::PrimFunc>> changed;
  for (const auto& [var, func] : mod->functions) {
    auto program = func.as<tir::PrimFunc>();
    if (!program || (*program)->attrs.count(analysis::kWork)) continue;
    ffi::String work = analysis::WorkOf(*program);
    changed.emplace_back(var, ir::WithAttr(*program, analysis::kWork, work));
  }
  for (auto& [var, program] : changed) mod.Update(var->name_hint, program);
  return mod;
}

}  // namespace relaxvm::passes
