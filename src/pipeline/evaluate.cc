// SPDX-License-Identifier: Apache-2.0
// Tensor programs on constants: compiled in memory, called through their packed entries.
#include <tvm/ffi/container/tensor.h>

#include <map>
#include <memory>
#include <utility>

#include "codegen/llvm/kernels.h"
#include "ir/visitor.h"
#include "pipeline/build.h"
#include "support/host_tensor.h"
#include "tir/functor.h"

namespace relaxvm::pipeline {
namespace {

class Evaluator {
 public:
  explicit Evaluator(std::string target) : target_(std::move(target)) {}

  std::vector<ffi::Tensor> Run(const tir::PrimFunc& program, const std::vector<ffi::Tensor>& inputs,
                               const std::vector<passes::OutputTensor>& outputs) {
    std::vector<ffi::Tensor> results;
    std::vector<ffi::AnyView> args;
    for (const ffi::Tensor& input : inputs) args.emplace_back(input);
    for (const passes::OutputTensor& output : outputs) {
      std::vector<int64_t> shape(output.shape.begin(), output.shape.end());
      results.push_back(NewHostTensor(shape, output.dtype));
    }
    for (const ffi::Tensor& result : results) args.emplace_back(result);
    ffi::Any nothing;
    CompiledOf(program).CallPacked(args.data(), static_cast<int32_t>(args.size()), &nothing);
    return results;
  }

 private:
  ffi::Function CompiledOf(const tir::PrimFunc& program) {
    uint64_t hash = ir::StructuralHash(program);
    for (auto [it, end] = compiled_.equal_range(hash); it != end; ++it) {
      if (ir::StructuralEqual(it->second.first, program)) return it->second.second;
    }
    static constexpr const char* kName = "evaluate";
    ffi::Map<ir::GlobalVar, ir::BaseFunc> functions;
    functions.Set(ir::GlobalVar(kName),
                  ir::WithAttr(program, ir::attr::kGlobalSymbol, ffi::String(kName)));
    codegen::KernelOptions options;
    options.target = target_;
    codegen::LoadedKernels loaded =
        codegen::LoadInMemory(codegen::BuildKernels(IRModule(functions), options));
    RELAXVM_CHECK(loaded.table->num_kernels == 1) << "one program gives one kernel";
    RelaxvmPackedKernel packed = loaded.table->kernels[0].packed;
    // The packed entry has tvm-ffi's calling convention.
    auto call = [packed, keep = loaded.keep_alive](ffi::PackedArgs args, ffi::Any* result) {
      TVM_FFI_CHECK_SAFE_CALL(packed(nullptr, args.data(), args.size(), result));
    };
    ffi::Function function = ffi::Function::FromPacked(call);
    compiled_.emplace(hash, std::make_pair(program, function));
    return function;
  }

  std::string target_;
  std::multimap<uint64_t, std::pair<tir::PrimFunc, ffi::Function>> compiled_;
};

}  // namespace

passes::Evaluate MakeEvaluate(const std::string& target) {
  auto evaluator = std::make_shared<Evaluator>(target);
  return [evaluator](const tir::PrimFunc& program, const std::vector<ffi::Tensor>& inputs,
                     const std::vector<passes::OutputTensor>& outputs) {
    return evaluator->Run(program, inputs, outputs);
  };
}

}  // namespace relaxvm::pipeline
