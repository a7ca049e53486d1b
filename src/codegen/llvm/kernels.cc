// SPDX-License-Identifier: Apache-2.0
// From a module of tensor programs to objects: equal programs once, several at a time.
#include "codegen/llvm/kernels.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>
#include <unordered_map>

#include <llvm/Support/raw_ostream.h>
#include <llvm/TargetParser/Host.h>

#include "codegen/llvm/compiler.h"
#include "codegen/llvm/emitter.h"
#include "codegen/llvm/native.h"
#include "codegen/llvm/table.h"
#include "codegen/tir/lower_blocks.h"
#include "codegen/tir/program_key.h"
#include "codegen/tir/vectorize.h"
#include "support/error.h"
#include "target/native_abi.h"

namespace relaxvm::codegen {
namespace {

constexpr const char* kWorkAttribute = "relaxvm.work";  // of analysis/work.h

struct Program {
  tir::PrimFunc func = tir::PrimFunc(ffi::UnsafeInit{});
  std::vector<std::string> names;
  size_t size = 0;  // of its text
};

std::string SymbolOf(const ir::GlobalVar& var, const tir::PrimFunc& func) {
  return ir::GetAttr<ffi::String>(func->attrs, ir::attr::kGlobalSymbol, var->name_hint);
}

std::vector<Program> DistinctPrograms(const ir::IRModule& mod) {
  std::vector<Program> programs;
  std::unordered_map<std::string, size_t> by_key;
  for (const auto& [var, func] : mod->functions) {
    auto program = func.as<tir::PrimFunc>();
    if (!program.has_value()) continue;
    std::string key = ProgramKey(program.value());
    const size_t size = key.size();
    auto [it, fresh] = by_key.emplace(std::move(key), programs.size());
    if (fresh) programs.push_back({program.value(), {}, size});
    programs[it->second].names.push_back(SymbolOf(var, program.value()));
  }
  return programs;
}

std::vector<TableRow> RowsOf(const std::vector<Program>& programs,
                             const std::vector<bytecode::NativePlan>& plans) {
  std::vector<TableRow> rows;
  for (const Program& program : programs) {
    std::string params = SignatureOf(program.func, program.names[0]).params;
    std::string work = ir::GetAttr<ffi::String>(program.func->attrs, kWorkAttribute, "");
    for (const std::string& name : program.names) rows.push_back({name, params, work});
  }
  for (const bytecode::NativePlan& plan : plans)
    rows.push_back({NativeSymbol(plan), kNativeParams});
  return rows;
}

Compiler::Unit CompileToIr(const Compiler& compiler, const Program& program, bool run_once) {
  Signature sig = SignatureOf(program.func, program.names[0]);
  auto lowered = ffi::make_object<tir::PrimFuncObj>(*program.func.get());
  lowered->body = VectorizeLoops(LowerBlocks(program.func->body));
  Compiler::Unit unit = compiler.NewUnit(program.names[0]);
  ProgramEmitter emitter(unit.module.get(), compiler.traits());
  emitter.Emit(ffi::detail::ObjectUnsafe::ObjectRefFromObjectPtr<tir::PrimFunc>(lowered), sig,
               program.names);
  compiler.Prepare(unit.module.get());
  bool scheduled = ir::GetAttr<bool>(program.func->attrs, tir::attr::kScheduled, false);
  compiler.Optimize(unit.module.get(), run_once    ? Effort::kLeast
                                       : scheduled ? Effort::kScheduled
                                                   : Effort::kFull);
  return unit;
}

Compiler::Unit CompileToIr(const Compiler& compiler, const bytecode::NativePlan& plan) {
  Compiler::Unit unit = compiler.NewUnit(NativeSymbol(plan));
  EmitNativeFunction(plan, unit.module.get());
  compiler.Prepare(unit.module.get());
  compiler.Optimize(unit.module.get(), Effort::kScheduled);
  return unit;
}

// The order of jobs, the longest first: what begins last then ends soon.  What is no program comes
// before all.
std::vector<size_t> LongestFirst(const std::vector<Program>& programs, size_t count) {
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  auto size = [&](size_t i) { return i < programs.size() ? programs[i].size : SIZE_MAX; };
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return size(a) > size(b); });
  return order;
}

// Runs `work(compiler, i)` for each i of `order` on several threads; rethrows the first error.
class Jobs {
 public:
  Jobs(const KernelOptions& options, std::vector<size_t> order)
      : options_(options), order_(std::move(order)), count_(order_.size()) {}

  void Run(const std::function<void(const Compiler&, size_t)>& work) {
    const size_t wanted = static_cast<size_t>(std::max(1, options_.num_threads));
    const size_t num_threads = std::max<size_t>(1, std::min(wanted, count_));
    std::vector<std::thread> threads;
    for (size_t i = 1; i < num_threads; ++i) threads.emplace_back([&] { Loop(work); });
    Loop(work);
    for (std::thread& thread : threads) thread.join();
    if (error_) std::rethrow_exception(error_);
  }

 private:
  void Loop(const std::function<void(const Compiler&, size_t)>& work) {
    try {
      Compiler compiler(options_.target, options_.run_once);
      for (size_t i = next_++; i < count_ && !failed_; i = next_++) {
        work(compiler, order_[i]);
        std::lock_guard<std::mutex> lock(mutex_);
        ++done_;
        if (options_.progress) options_.progress(done_, static_cast<int>(count_));
      }
    } catch (...) {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!error_) error_ = std::current_exception();
      failed_ = true;
    }
  }

  const KernelOptions& options_;
  std::vector<size_t> order_;
  size_t count_;
  std::atomic<size_t> next_{0};
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  int done_ = 0;
  std::exception_ptr error_;
};

}  // namespace

KernelSet BuildKernels(const ir::IRModule& mod, const KernelOptions& options,
                       const std::vector<bytecode::NativePlan>& plans) {
  std::vector<Program> programs = DistinctPrograms(mod);
  KernelSet set;
  set.target = options.target;
  std::vector<TableRow> rows = RowsOf(programs, plans);
  const Effort table_effort = options.run_once ? Effort::kLeast : Effort::kScheduled;
  const size_t table = programs.size() + plans.size();  // its place
  set.objects.resize(table + 1);
  Jobs(options, LongestFirst(programs, table + 1)).Run([&](const Compiler& compiler, size_t i) {
    if (i == table) {
      set.objects[i].bytes = EmitTable(compiler, rows, table_effort);
      return;
    }
    bool is_kernel = i < programs.size();
    Compiler::Unit unit = is_kernel ? CompileToIr(compiler, programs[i], options.run_once)
                                    : CompileToIr(compiler, plans[i - programs.size()]);
    if (is_kernel) set.objects[i].names = programs[i].names;
    set.objects[i].bytes = compiler.EmitObject(unit.module.get());
    CheckSelfContained(set.objects[i].bytes, unit.module->getName().str());
  });
  return set;
}

std::map<std::string, std::string> KernelParams(const ir::IRModule& mod) {
  std::map<std::string, std::string> params;
  for (const auto& [var, func] : mod->functions) {
    auto program = func.as<tir::PrimFunc>();
    if (!program.has_value()) continue;
    std::string name = SymbolOf(var, program.value());
    params[name] = SignatureOf(program.value(), name).params;
  }
  return params;
}

target::Machine MachineOf(const std::string& target) { return Compiler(target).Machine(); }

MachineCode MachineCodeOf(const std::string& target) {
  Compiler compiler(target);
  const llvm::Triple here(llvm::sys::getProcessTriple());
  return {compiler.triple(), compiler.cpu(), compiler.features(),
          llvm::Triple(compiler.triple()).getArch() != here.getArch()};
}

std::string InspectKernel(const ir::IRModule& mod, const std::string& name,
                          const KernelOptions& options, bool assembly) {
  for (const auto& [var, func] : mod->functions) {
    auto program = func.as<tir::PrimFunc>();
    if (!program.has_value() || SymbolOf(var, program.value()) != name) continue;
    Compiler compiler(options.target);
    Compiler::Unit unit = CompileToIr(compiler, {program.value(), {name}}, options.run_once);
    if (assembly) return compiler.EmitAssembly(unit.module.get());
    std::string text;
    llvm::raw_string_ostream out(text);
    unit.module->print(out, nullptr);
    return text;
  }
  Fail(ErrorKind::kKeyError, "the module has no tensor program called ", name);
}

}  // namespace relaxvm::codegen
