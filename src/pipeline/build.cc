// SPDX-License-Identifier: Apache-2.0
// Runs the pipeline, generates bytecode and native code, and links them.
#include "pipeline/build.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "bytecode/verify.h"
#include "codegen/llvm/kernels.h"
#include "codegen/vm/vm_codegen.h"
#include "pipeline/kernel_module.h"
#include "pipeline/machine.h"
#include "runtime/platform/cpus.h"
#include "runtime/platform/memory.h"
#include "script/print.h"
#include "tir/stmt.h"
#include "vm/executable_module.h"
#include "vm/native_plan.h"

namespace relaxvm::pipeline {
namespace {

bool IsCompiled(const std::string& mode) {
  if (mode == "bytecode" || mode == "compiled") return mode == "compiled";
  Fail(ErrorKind::kValueError, "exec_mode=\"", mode,
       "\" is unknown; use \"bytecode\" or \"compiled\"");
}

// VMTIRCodeGen, first half: the bytecode functions planned as native code, each plain and watched.
std::vector<bytecode::NativePlan> PlanNativeFunctions(const bytecode::ExecutableData& data,
                                                      const IRModule& programs) {
  bytecode::Verify(data, "the compiled executable");
  vm::NativePlanOptions options;
  options.kernels = codegen::KernelParams(programs);
  std::vector<bytecode::NativePlan> plans;
  for (size_t i = 0; i < data.func_table.size(); ++i) {
    if (data.func_table[i].kind != bytecode::FuncKind::kVMFunc) continue;
    for (bool is_watched : {false, true}) {
      options.is_watched = is_watched;
      plans.push_back(vm::MakeNativePlan(data, static_cast<int64_t>(i), options));
    }
  }
  return plans;
}

// Second half: what is native now needs no instructions.
void DropBytecode(const std::vector<bytecode::NativePlan>& plans, bytecode::ExecutableData* data) {
  for (const bytecode::NativePlan& plan : plans) {
    bytecode::FuncInfo& info = data->func_table[plan.func];
    info.kind = bytecode::FuncKind::kVMTIRFunc;
    info.start_instr = info.end_instr = 0;
    info.register_file_size = std::max<int64_t>(plan.num_slots, info.num_args + 1);
  }
  data->instr_offset.clear();
  data->instr_data.clear();
}

// The tensor programs, each under the name that bytecode calls.
IRModule TensorPrograms(const IRModule& mod) {
  ffi::Map<ir::GlobalVar, ir::BaseFunc> programs;
  for (const auto& [var, func] : mod->functions) {
    const auto* program = func.as<tir::PrimFuncObj>();
    if (program == nullptr) continue;
    std::string symbol = codegen::SymbolOf(var, func);
    programs.Set(var, ir::WithAttr(ffi::GetRef<tir::PrimFunc>(program), ir::attr::kGlobalSymbol,
                                   ffi::String(symbol)));
  }
  return IRModule(programs);
}

// Runs `step`, recorded like a pass.
template <typename Step>
auto Timed(const char* name, const RunOptions& options, std::vector<PassTiming>* timings,
           const Step& step) {
  if (options.check_interrupt) options.check_interrupt();
  auto start = std::chrono::steady_clock::now();
  auto result = step();
  std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  timings->push_back({"executable", name, seconds.count(), true});
  return result;
}

int NumThreads(const BuildOptions& options) {
  return options.num_threads > 0 ? options.num_threads : runtime::NumUsableCpus();
}

codegen::KernelOptions OptionsForKernels(const BuildOptions& options) {
  codegen::KernelOptions kernels;
  kernels.target = options.run.target;
  kernels.num_threads = NumThreads(options);
  kernels.progress = [&options](int done, int total) {
    if (options.run.check_interrupt) options.run.check_interrupt();
    if (options.run.progress) options.run.progress({"native code", done, total});
  };
  return kernels;
}

vm::KernelTableRef TableOf(const codegen::KernelSet& kernels) {
  codegen::LoadedKernels loaded = codegen::LoadInMemory(kernels);
  vm::KernelTableRef ref;
  ref.table = loaded.table;
  if (loaded.lookup) {
    ref.context_slot =
        static_cast<const RelaxvmKernelContext**>(loaded.lookup(kKernelContextSymbol));
    ref.work = static_cast<const char*>(loaded.lookup(kKernelWorkSymbol));
  }
  // A function owns what it captures: the code lives as long as somebody holds it.
  ref.keep_alive = ffi::Function::FromTyped([keep = loaded.keep_alive]() {});
  return ref;
}

}  // namespace

std::string ModuleText(const IRModule& mod) { return script::Print(mod); }

BuildResult Build(IRModule mod, const BuildOptions& options) {
  bool is_compiled = IsCompiled(options.exec_mode);
  Pipeline pipeline;
  MakePipeline(options.pipeline, &pipeline);
  RunOptions run = options.run;
  if (!run.evaluate) run.evaluate = MakeEvaluate(run.target);
  run.num_threads = NumThreads(options);
  RunResult lowered = pipeline.Execute(std::move(mod), run);
  BuildResult result;
  result.mod = lowered.mod;
  result.timings = std::move(lowered.timings);
  result.stopped = lowered.stopped;
  if (result.stopped) return result;
  auto data =
      Timed("VMCodeGen", run, &result.timings, [&] { return codegen::VMCodeGen(result.mod); });
  IRModule programs = TensorPrograms(result.mod);
  std::vector<bytecode::NativePlan> plans;
  if (is_compiled) {
    plans = Timed("VMTIRCodeGen", run, &result.timings,
                  [&] { return PlanNativeFunctions(data, programs); });
    DropBytecode(plans, &data);
  }
  codegen::KernelSet kernels = Timed("BuildKernels", run, &result.timings, [&] {
    return codegen::BuildKernels(programs, OptionsForKernels(options), plans);
  });
  const std::string why_not = WhyNotHere(options.run.target);
  result.executable = Timed("Link", run, &result.timings, [&] {
    vm::KernelTableRef table = why_not.empty() ? TableOf(kernels) : vm::KernelTableRef{};
    return vm::LinkExecutable(std::move(data), table,
                              {KernelObjects::Make(std::move(kernels), why_not)});
  });
  // A process that compiled keeps running the model: what only the compiler needed goes back.
  runtime::ReleaseAfterWork(reinterpret_cast<const void*>(&MakePipeline));
  return result;
}

}  // namespace relaxvm::pipeline
