// SPDX-License-Identifier: Apache-2.0
// AnnotateTIROpPattern: writes down for every tensor program how it may be fused.
// Keeps: a kind that is written down already.
#include "analysis/program_kind.h"
#include "passes/pass.h"

namespace relaxvm::passes {

IRModule AnnotateTIROpPattern(IRModule mod, const PassContext& context) {
  std::vector<std::pair<ir::GlobalVar, tir::PrimFunc>> changed;
  for (const auto& [var, func] : mod->functions) {
    auto program = func.as<tir::PrimFunc>();
    if (!program || (*program)->attrs.count(ir::attr::kOpPattern)) continue;
    auto kind = static_cast<int64_t>(analysis::KindOf(*program));
    changed.emplace_back(var, ir::WithAttr(*program, ir::attr::kOpPattern, kind));
  }
  for (auto& [var, program] : changed) mod.Update(var->name_hint, program);
  return mod;
}

}  // namespace relaxvm::passes
