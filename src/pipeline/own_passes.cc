// SPDX-License-Identifier: Apache-2.0
// Passes of pass_list.def that reach into folders which passes/ does not know: lowering/ and
// schedule/.
#include <map>
#include <optional>
#include <utility>

#include "analysis/calls.h"
#include "analysis/program_inplace.h"
#include "ir/visitor.h"
#include "lowering/dataflow_use_inplace_calls.h"
#include "lowering/legalize_ops.h"
#include "passes/pass.h"
#include "pipeline/machine.h"
#include "schedule/cpu/pair_notes.h"
#include "support/in_parallel.h"

namespace relaxvm::passes {

IRModule LegalizeOps(IRModule mod, const PassContext& context) {
  lowering::LegalizeOptions options;
  if (auto skip = context.options.Get("skip_ops"); skip && *skip != nullptr) {
    for (const ffi::Any& name : skip.value().cast<ffi::Array<ffi::Any>>()) {
      options.skip_ops.insert(std::string(name.cast<ffi::String>()));
    }
  }
  if (auto rules = context.options.Get("customize_legalize_map"); rules && *rules != nullptr) {
    for (const auto& [name, rule] : rules->cast<ffi::Map<ffi::String, ffi::Function>>()) {
      options.rules[std::string(name)] = ops::LegalizeRuleOf(rule);
    }
  }
  return lowering::LegalizeOps(std::move(mod), options);
}

IRModule DataflowUseInplaceCalls(IRModule mod, const PassContext& context) {
  return lowering::UseInplaceCalls(mod);
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
  const target::Machine machine = pipeline::MachineFor(context.target);
  std::vector<std::pair<ir::GlobalVar, tir::PrimFunc>> programs;
  for (const auto& [var, func] : mod->functions) {
    if (auto program = func.as<tir::PrimFunc>()) programs.emplace_back(var, program.value());
  }
  std::vector<std::optional<tir::PrimFunc>> scheduled(programs.size());
  InParallel(context.num_threads, programs.size(), [&](size_t i) {
    const tir::PrimFunc& program = programs[i].second;
    tir::PrimFunc final_form = schedule::cpu::Schedule(program, machine);
    if (!final_form.same_as(program)) scheduled[i] = WithOverwritable(final_form, program);
  });
  for (size_t i = 0; i < programs.size(); ++i) {
    if (scheduled[i]) mod.Update(programs[i].first->name_hint, *std::move(scheduled[i]));
  }
  return mod;
}

namespace {

// Walks twice: the first walk lists what is to be packed, all of it is packed together, the second
// walk puts it in.
class WeightPacker : public ir::Mutator {
 public:
  using Functions = std::vector<std::pair<ir::GlobalVar, ir::Function>>;

  WeightPacker(IRModule* mod, const PassContext& context)
      : mod_(mod), context_(context), machine_(pipeline::MachineFor(context.target)) {}

  // The functions that changed.
  Functions Run(const Functions& functions) {
    Walk(functions);
    panels_ = context_.evaluate(work_);
    return Walk(functions);
  }

  ir::Expr MutateCall(const ir::Call& call) override {
    ir::Expr now = ir::Mutator::MutateCall(call);
    std::optional<analysis::TirCall> tir_call = analysis::AsCallTir(now);
    if (!tir_call) return now;
    // One for each call: panels come first.
    for (const bool is_plain : {false, true}) {
      for (size_t i = 0; i < tir_call->args.size(); ++i) {
        const auto* weight = tir_call->args[static_cast<int64_t>(i)].as<ir::ConstantObj>();
        if (weight == nullptr || weight->data.numel() == 0) continue;
        Packed* packed = PackedFor(tir_call->func, i);
        if (packed != nullptr && packed->operand.is_plain == is_plain)
          return WithPanels(now, *tir_call, i, packed);
      }
    }
    return now;
  }

 private:
  struct Packed {
    ffi::String hint;
    schedule::cpu::PackedOperand operand;
    std::optional<ir::GlobalVar> name, without_notes;
  };

  ir::Expr WithPanels(const ir::Expr& now, const analysis::TirCall& call, size_t i,
                      Packed* packed) {
    const auto at = static_cast<int64_t>(i);
    const std::optional<ffi::Tensor> panels =
        Panels(*packed, call.args[at].as<ir::ConstantObj>()->data);
    if (!panels) return now;
    ffi::Array<ir::Expr> tensors = call.args;
    tensors.Set(at, ir::Constant(*panels, now->span));
    ffi::Array<ir::Expr> args = call.call->args;
    args.Set(0, NameOf(packed, *panels));
    args.Set(1, ir::Tuple(tensors));
    return ir::Call(call.call->op, args, call.call->attrs, call.call->ty_args, now->span,
                    call.call->ty);
  }

  Packed* PackedFor(const ir::GlobalVar& func, size_t arg) {
    auto [it, fresh] = packed_.try_emplace({func.get(), arg});
    if (!fresh) return it->second ? &*it->second : nullptr;
    auto program = mod_->get()->Lookup(func).as<tir::PrimFunc>();
    if (!program) return nullptr;
    auto operand = schedule::cpu::PackOperand(program.value(), arg, machine_);
    if (!operand) return nullptr;
    it->second.emplace(Packed{std::string(func->name_hint) + "_packed", *operand, {}, {}});
    return &*it->second;
  }

  // The program for these panels, which enters the module when it is first needed.
  ir::GlobalVar NameOf(Packed* packed, const ffi::Tensor& panels) {
    const auto without_notes = schedule::cpu::WithoutNotes(packed->operand, panels);
    auto& name = without_notes ? packed->without_notes : packed->name;
    const tir::PrimFunc& program = without_notes ? *without_notes : packed->operand.program;
    if (!name) name = mod_->Update(mod_->UniqueName(packed->hint), program);
    return *name;
  }

  Functions Walk(const Functions& functions) {
    next_ = 0;
    Functions changed;
    for (const auto& [var, function] : functions) {
      ir::Function now = Mutate(function).as<ir::Function>().value();
      if (!now.same_as(function)) changed.emplace_back(var, now);
    }
    return changed;
  }

  // Absent on the first walk.
  std::optional<ffi::Tensor> Panels(const Packed& packed, const ffi::Tensor& weight) {
    if (!panels_.empty()) return panels_.at(next_++)[0];
    OutputTensor out{{}, packed.operand.dtype};
    for (const ir::Expr& dim : packed.operand.shape) out.shape.push_back(ir::AsInt(dim).value());
    work_.push_back({packed.operand.pack, {weight}, {out}});
    return std::nullopt;
  }

  IRModule* mod_;
  const PassContext& context_;
  target::Machine machine_;
  std::map<std::pair<const ffi::Object*, size_t>, std::optional<Packed>> packed_;
  std::vector<Evaluation> work_;
  std::vector<std::vector<ffi::Tensor>> panels_;
  size_t next_ = 0;
};

}  // namespace

IRModule PackWeights(IRModule mod, const PassContext& context) {
  if (!context.evaluate) return mod;
  IRModule grown = mod;
  WeightPacker::Functions functions;
  for (const auto& [var, func] : mod->functions) {
    if (auto function = func.as<ir::Function>()) functions.emplace_back(var, function.value());
  }
  for (auto& [var, function] : WeightPacker(&grown, context).Run(functions)) {
    grown.Update(var->name_hint, function);
  }
  return grown;
}

}  // namespace relaxvm::passes
