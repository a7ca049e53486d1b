// SPDX-License-Identifier: Apache-2.0
// Passes of pass_list.def that reach into folders which passes/ does not know: lowering/ and
// schedule/.
#include "analysis/program_inplace.h"
#include "codegen/llvm/kernels.h"
#include "lowering/legalize_ops.h"
#include "passes/pass.h"
#include "schedule/cpu/cpu.h"

namespace relaxvm::passes {

IRModule LegalizeOps(IRModule mod, const PassContext& context) {
  lowering::LegalizeOptions options;
  if (auto skip = context.options.Get("skip_ops"); skip.has_value()) {
    for (const ffi::Any& name : skip.value().cast<ffi::Array<ffi::Any>>()) {
      options.skip_ops.insert(std::string(name.cast<ffi::String>()));
    }
  }
  return lowering::LegalizeOps(std::move(mod), options);
}

namespace {

// Loops no longer show which arguments a program may overwrite, so that is written down before.
tir::PrimFunc WithOverwritable(const tir::PrimFunc& scheduled, const tir::PrimFunc& before) {
  std::vector<int64_t> found = analysis::OverwritableParams(before);
  if (found.empty()) return scheduled;
  return ir::WithAttr(scheduled, analysis::kOverwritable,
                      ffi::Array<int64_t>(found.begin(), found.end()));
}

}  // namespace

IRModule ScheduleTensorPrograms(IRModule mod, const PassContext& context) {
  const target::Machine machine = codegen::MachineOf(context.target);
  const schedule::cpu::Traits traits{machine.vector_bytes, machine.num_vectors};
  std::vector<std::pair<ir::GlobalVar, tir::PrimFunc>> scheduled;
  for (const auto& [var, func] : mod->functions) {
    if (auto program = func.as<tir::PrimFunc>()) {
      tir::PrimFunc final_form = schedule::cpu::Schedule(program.value(), traits);
      if (final_form.same_as(program.value())) continue;
      scheduled.emplace_back(var, WithOverwritable(final_form, program.value()));
    }
  }
  for (auto& [var, program] : scheduled) mod.Update(var->name_hint, std::move(program));
  return mod;
}

}  // namespace relaxvm::passes
