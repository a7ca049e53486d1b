// SPDX-License-Identifier: Apache-2.0
// Tensor programs on constants: compiled in memory, called through their packed entries; for this
// machine where the target is one that it cannot run the code of.  Most are compiled once for all
// sizes, and fast; those that compute long are scheduled, each for its sizes.
#include <tvm/ffi/container/tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>

#include "analysis/work.h"
#include "codegen/llvm/kernels.h"
#include "ir/visitor.h"
#include "pipeline/build.h"
#include "pipeline/machine.h"
#include "runtime/kernel_context.h"
#include "runtime/platform/cpus.h"
#include "runtime/tensor.h"
#include "schedule/cpu/cpu.h"
#include "support/in_parallel.h"
#include "tir/lift_sizes.h"

namespace relaxvm::pipeline {
namespace {

// From here on better code is worth its compilation: as it is written, a sum of products does some
// 10^9 operations a second.
constexpr int64_t kManySteps = 20'000'000;

bool ComputesLong(const tir::PrimFunc& program) {
  return analysis::NumSteps(program).value_or(0) > kManySteps;
}

class Evaluator {
 public:
  explicit Evaluator(const std::string& target)
      : target_(WhyNotHere(target).empty() ? target : "llvm"), machine_(MachineFor(target_)) {}

  std::vector<std::vector<ffi::Tensor>> Run(const std::vector<passes::Evaluation>& work) {
    std::vector<tir::LiftedSizes> lifted;
    for (const passes::Evaluation& item : work) {
      lifted.push_back(ComputesLong(item.program)
                           ? tir::LiftedSizes{schedule::cpu::Schedule(item.program, machine_), {}}
                           : tir::LiftSizes(item.program, &size_names_));
    }
    std::vector<size_t> kernels = CompiledOf(lifted);
    std::vector<std::vector<ffi::Tensor>> results(work.size());
    InParallel(runtime::NumUsableCpus(), work.size(), [&](size_t i) {
      results[i] = Call(kernels_[kernels[i]].packed, lifted[i].values, work[i]);
    });
    runtime::ReleaseThreadWorkspace();
    return results;
  }

 private:
  // Compiled code stays loaded: a program often comes again in a later pass.
  struct Kernel {
    tir::PrimFunc program;
    RelaxvmPackedKernel packed;
    std::shared_ptr<void> keep_alive;
  };

  static std::vector<ffi::Tensor> Call(RelaxvmPackedKernel packed,
                                       const std::vector<int64_t>& sizes,
                                       const passes::Evaluation& work) {
    std::vector<ffi::Tensor> results;
    std::vector<ffi::AnyView> args(sizes.begin(), sizes.end());
    for (const ffi::Tensor& input : work.inputs) args.emplace_back(input);
    for (const passes::OutputTensor& output : work.outputs) {
      const std::vector<int64_t> shape(output.shape.begin(), output.shape.end());
      results.push_back(
          runtime::EmptyHostTensor(ffi::ShapeView(shape.data(), shape.size()), output.dtype));
    }
    for (const ffi::Tensor& result : results) args.emplace_back(result);
    // The packed entry has tvm-ffi's calling convention.
    ffi::Any nothing;
    TVM_FFI_CHECK_SAFE_CALL(packed(nullptr, reinterpret_cast<const TVMFFIAny*>(args.data()),
                                   static_cast<int32_t>(args.size()),
                                   reinterpret_cast<TVMFFIAny*>(&nothing)));
    return results;
  }

  std::optional<size_t> Find(uint64_t hash, const tir::PrimFunc& program) const {
    for (auto [it, end] = by_hash_.equal_range(hash); it != end; ++it) {
      if (ir::StructuralEqual(kernels_[it->second].program, program)) return it->second;
    }
    return std::nullopt;
  }

  // The index of each program's kernel; those that are new are compiled together.
  std::vector<size_t> CompiledOf(const std::vector<tir::LiftedSizes>& work) {
    std::vector<size_t> indices;
    const size_t first = kernels_.size();
    ffi::Map<ir::GlobalVar, ir::BaseFunc> quick, scheduled;
    for (const tir::LiftedSizes& item : work) {
      const uint64_t hash = ir::StructuralHash(item.program);
      std::optional<size_t> found = Find(hash, item.program);
      if (!found) {
        found = kernels_.size();
        const std::string name = NameOf(*found);
        const bool is_final = ir::GetAttr<bool>(item.program->attrs, tir::attr::kScheduled, false);
        (is_final ? scheduled : quick)
            .Set(ir::GlobalVar(name),
                 ir::WithAttr(item.program, ir::attr::kGlobalSymbol, ffi::String(name)));
        by_hash_.emplace(hash, *found);
        kernels_.push_back({item.program, nullptr, nullptr});
      }
      indices.push_back(*found);
    }
    Compile(quick, /*run_once=*/true, first);
    Compile(scheduled, /*run_once=*/false, first);
    return indices;
  }

  // Fills in the kernels, from `first` on, that these functions are.
  void Compile(const ffi::Map<ir::GlobalVar, ir::BaseFunc>& functions, bool run_once,
               size_t first) {
    if (functions.empty()) return;
    codegen::KernelOptions options;
    options.target = target_;
    options.run_once = run_once;
    options.num_threads = runtime::NumUsableCpus();
    codegen::LoadedKernels loaded =
        codegen::LoadInMemory(codegen::BuildKernels(IRModule(functions), options));
    // Without a context packed entries have little room for temporaries.
    auto* context = static_cast<const RelaxvmKernelContext**>(loaded.lookup(kKernelContextSymbol));
    RELAXVM_CHECK(context != nullptr) << "code has a place for its context";
    *context = runtime::DefaultKernelContext();
    std::unordered_map<std::string, RelaxvmPackedKernel> by_name;
    for (int32_t i = 0; i < loaded.table->num_kernels; ++i) {
      by_name.emplace(loaded.table->kernels[i].name, loaded.table->kernels[i].packed);
    }
    for (size_t i = first; i < kernels_.size(); ++i) {
      auto at = by_name.find(NameOf(i));
      if (at == by_name.end()) continue;
      kernels_[i].packed = at->second;
      kernels_[i].keep_alive = loaded.keep_alive;
    }
    RELAXVM_CHECK(by_name.size() == functions.size()) << "one program gives one kernel";
  }

  static std::string NameOf(size_t index) { return "evaluate_" + std::to_string(index); }

  std::string target_;
  target::Machine machine_;
  std::vector<ir::Var> size_names_;
  std::vector<Kernel> kernels_;
  std::unordered_multimap<uint64_t, size_t> by_hash_;
};

}  // namespace

passes::Evaluate MakeEvaluate(const std::string& target) {
  auto evaluator = std::make_shared<Evaluator>(target);
  return [evaluator](const std::vector<passes::Evaluation>& work) { return evaluator->Run(work); };
}

}  // namespace relaxvm::pipeline
