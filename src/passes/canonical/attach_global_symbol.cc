// SPDX-License-Identifier: Apache-2.0
// AttachGlobalSymbol: every function gets its name in the module as its exported name.
#include "passes/pass.h"

namespace relaxvm::passes {

IRModule AttachGlobalSymbol(IRModule mod, const PassContext& context) {
  std::vector<std::pair<ffi::String, ir::BaseFunc>> changed;
  for (const auto& [var, func] : mod->functions) {
    if (ir::GetAttr<ffi::String>(func->attrs, ir::attr::kGlobalSymbol, "") == var->name_hint)
      continue;
    if (auto f = func.as<ir::Function>()) {
      changed.emplace_back(var->name_hint,
                           ir::WithAttr(*f, ir::attr::kGlobalSymbol, var->name_hint));
    } else if (auto p = func.as<tir::PrimFunc>()) {
      changed.emplace_back(var->name_hint,
                           ir::WithAttr(*p, ir::attr::kGlobalSymbol, var->name_hint));
    }
  }
  for (auto& [name, func] : changed) mod.Update(name, func);
  return mod;
}

}  // namespace relaxvm::passes
