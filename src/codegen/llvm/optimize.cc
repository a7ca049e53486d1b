// SPDX-License-Identifier: Apache-2.0
// Compiler::Optimize: the passes over LLVM's form of a program, and the analyses that these ask
// for.  LLVM's own pipelines name every pass there is: they alone would be 8 MB of the library.
#include <llvm/ADT/MapVector.h>
#include <llvm/Analysis/AliasAnalysis.h>
#include <llvm/Analysis/AssumptionCache.h>
#include <llvm/Analysis/BasicAliasAnalysis.h>
#include <llvm/Analysis/BlockFrequencyInfo.h>
#include <llvm/Analysis/BranchProbabilityInfo.h>
#include <llvm/Analysis/CycleAnalysis.h>
#include <llvm/Analysis/DemandedBits.h>
#include <llvm/Analysis/LastRunTrackingAnalysis.h>
#include <llvm/Analysis/LoopAccessAnalysis.h>
#include <llvm/Analysis/LoopInfo.h>
#include <llvm/Analysis/MemoryDependenceAnalysis.h>
#include <llvm/Analysis/MemorySSA.h>
#include <llvm/Analysis/OptimizationRemarkEmitter.h>
#include <llvm/Analysis/PostDominators.h>
#include <llvm/Analysis/ProfileSummaryInfo.h>
#include <llvm/Analysis/ScalarEvolution.h>
#include <llvm/Analysis/ScopedNoAliasAA.h>
#include <llvm/Analysis/TargetLibraryInfo.h>
#include <llvm/Analysis/TargetTransformInfo.h>
#include <llvm/Analysis/TypeBasedAliasAnalysis.h>
#include <llvm/Analysis/UniformityAnalysis.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/PassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Transforms/InstCombine/InstCombine.h>
#include <llvm/Transforms/Scalar/DeadStoreElimination.h>
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Scalar/GVN.h>
#include <llvm/Transforms/Scalar/IndVarSimplify.h>
#include <llvm/Transforms/Scalar/LICM.h>
#include <llvm/Transforms/Scalar/LoopDeletion.h>
#include <llvm/Transforms/Scalar/LoopInstSimplify.h>
#include <llvm/Transforms/Scalar/LoopLoadElimination.h>
#include <llvm/Transforms/Scalar/LoopPassManager.h>
#include <llvm/Transforms/Scalar/LoopRotation.h>
#include <llvm/Transforms/Scalar/LoopUnrollPass.h>
#include <llvm/Transforms/Scalar/SROA.h>
#include <llvm/Transforms/Scalar/SimpleLoopUnswitch.h>
#include <llvm/Transforms/Scalar/SimplifyCFG.h>
#include <llvm/Transforms/Vectorize/LoopVectorize.h>

#include <tuple>
#include <vector>

#include "codegen/llvm/compiler.h"
#include "codegen/llvm/targets.h"
#include "support/error.h"
#include "support/flags.h"

namespace relaxvm::codegen {
namespace {

// Of functions and their loops, for a module.
class Analyses {
 public:
  explicit Analyses(const llvm::TargetMachine& machine) {
    functions_.registerPass([&] { return llvm::TargetIRAnalysis(machine.getTargetIRAnalysis()); });
    functions_.registerPass(
        [&] { return llvm::TargetLibraryAnalysis(NoLibrary(machine.getTargetTriple())); });
    functions_.registerPass([] {
      llvm::AAManager aliases;
      aliases.registerFunctionAnalysis<llvm::BasicAA>();
      aliases.registerFunctionAnalysis<llvm::ScopedNoAliasAA>();
      aliases.registerFunctionAnalysis<llvm::TypeBasedAA>();
      return aliases;
    });
    functions_.registerPass([&] { return llvm::LoopAnalysisManagerFunctionProxy(loops_); });
    functions_.registerPass([&] { return llvm::ModuleAnalysisManagerFunctionProxy(modules_); });
    Add<llvm::AssumptionAnalysis, llvm::BasicAA, llvm::BlockFrequencyAnalysis,
        llvm::BranchProbabilityAnalysis, llvm::CycleAnalysis, llvm::DemandedBitsAnalysis,
        llvm::DominatorTreeAnalysis, llvm::LastRunTrackingAnalysis, llvm::LoopAccessAnalysis,
        llvm::LoopAnalysis, llvm::MemoryDependenceAnalysis, llvm::MemorySSAAnalysis,
        llvm::OptimizationRemarkEmitterAnalysis, llvm::PassInstrumentationAnalysis,
        llvm::PostDominatorTreeAnalysis, llvm::ScalarEvolutionAnalysis, llvm::ScopedNoAliasAA,
        llvm::ShouldRunExtraVectorPasses, llvm::TypeBasedAA, llvm::UniformityInfoAnalysis>();
    loops_.registerPass([&] { return llvm::FunctionAnalysisManagerLoopProxy(functions_); });
    loops_.registerPass([] { return llvm::PassInstrumentationAnalysis(); });
    loops_.registerPass([] { return llvm::ShouldRunExtraSimpleLoopUnswitch(); });
    modules_.registerPass([&] { return llvm::FunctionAnalysisManagerModuleProxy(functions_); });
    modules_.registerPass([] { return llvm::PassInstrumentationAnalysis(); });
    modules_.registerPass([] { return llvm::ProfileSummaryAnalysis(); });
  }

  void Run(llvm::FunctionPassManager passes, llvm::Module* module) {
    llvm::ModulePassManager all;
    all.addPass(llvm::createModuleToFunctionPassAdaptor(std::move(passes)));
    all.run(*module, modules_);
  }

 private:
  template <typename... Each>
  void Add() {
    (functions_.registerPass([] { return Each(); }), ...);
  }

  llvm::LoopAnalysisManager loops_;
  llvm::FunctionAnalysisManager functions_;
  llvm::ModuleAnalysisManager modules_;
};

template <typename... Each>
void AddLoopPasses(llvm::FunctionPassManager* functions, bool use_memory, Each... each) {
  llvm::LoopPassManager loops;
  (loops.addPass(std::move(each)), ...);
  functions->addPass(llvm::createFunctionToLoopPassAdaptor(std::move(loops), use_memory));
}

void AddCleaning(llvm::FunctionPassManager* functions, bool use_memory = true,
                 bool combine = true) {
  functions->addPass(llvm::EarlyCSEPass(use_memory));
  if (combine) functions->addPass(llvm::InstCombinePass());
  functions->addPass(llvm::SimplifyCFGPass());
}

void AddHoisting(llvm::FunctionPassManager* functions) {
  AddLoopPasses(functions, /*use_memory=*/true, llvm::LICMPass(llvm::LICMOptions()));
}

// Loops as they were written: short ones away, the others in vectors, some steps at a time.
void AddLoopWork(llvm::FunctionPassManager* functions) {
  AddLoopPasses(functions, /*use_memory=*/true, llvm::LoopInstSimplifyPass(),
                llvm::LoopRotatePass(), llvm::LICMPass(llvm::LICMOptions()),
                llvm::SimpleLoopUnswitchPass());
  AddCleaning(functions);
  AddLoopPasses(functions, /*use_memory=*/false, llvm::IndVarSimplifyPass(),
                llvm::LoopDeletionPass(), llvm::LoopFullUnrollPass());
  functions->addPass(llvm::SROAPass(llvm::SROAOptions::ModifyCFG));
  functions->addPass(llvm::GVNPass());
  functions->addPass(llvm::DSEPass());
  AddCleaning(functions);
  AddHoisting(functions);
  AddLoopPasses(functions, /*use_memory=*/false, llvm::LoopRotatePass());
  functions->addPass(llvm::LoopVectorizePass());
  functions->addPass(llvm::LoopLoadEliminationPass());
  AddCleaning(functions);
  functions->addPass(llvm::LoopUnrollPass());
  functions->addPass(llvm::SROAPass(llvm::SROAOptions::ModifyCFG));
  AddCleaning(functions);
  AddHoisting(functions);
}

// Addresses of a block that differ by what does not change in its loop begin at one pointer, which
// is sealed: loop strength reduction sees one use of it in place of them all.  It tries all sums of
// the parts of each address, which took up to two fifths of a kernel's time.
class ShareAddresses : public llvm::PassInfoMixin<ShareAddresses> {
 public:
  llvm::PreservedAnalyses run(llvm::Function& fn, llvm::FunctionAnalysisManager& analyses) {
    const llvm::LoopInfo& loops = analyses.getResult<llvm::LoopAnalysis>(fn);
    bool changed = false;
    for (llvm::BasicBlock& block : fn) {
      if (const llvm::Loop* loop = loops.getLoopFor(&block)) changed |= Share(&block, *loop);
    }
    if (!changed) return llvm::PreservedAnalyses::all();
    llvm::PreservedAnalyses kept;
    kept.preserveSet<llvm::CFGAnalyses>();
    return kept;
  }

 private:
  // Equal addresses, and those that are found from one of them by something unchanging.
  struct Base {
    llvm::GetElementPtrInst* first = nullptr;
    std::vector<llvm::GetElementPtrInst*> users;
  };

  static llvm::GetElementPtrInst* PlainAddress(llvm::Value* value) {
    auto* address = llvm::dyn_cast<llvm::GetElementPtrInst>(value);
    const bool is_plain =
        address != nullptr && address->getNumIndices() == 1 && !address->getType()->isVectorTy();
    return is_plain ? address : nullptr;
  }

  static bool Share(llvm::BasicBlock* block, const llvm::Loop& loop) {
    llvm::MapVector<std::tuple<llvm::Value*, llvm::Value*, llvm::Type*>, Base> bases;
    for (llvm::Instruction& inst : *block) {
      llvm::GetElementPtrInst* address = PlainAddress(&inst);
      if (address == nullptr || !loop.isLoopInvariant(address->getOperand(1))) continue;
      llvm::GetElementPtrInst* from = PlainAddress(address->getPointerOperand());
      if (from == nullptr || from->getParent() != block) continue;
      Base& base =
          bases[{from->getPointerOperand(), from->getOperand(1), from->getSourceElementType()}];
      if (base.first == nullptr || from->comesBefore(base.first)) base.first = from;
      base.users.push_back(address);
    }
    bool changed = false;
    for (auto& [key, base] : bases) {
      if (base.users.size() < 2) continue;
      base.first->dropPoisonGeneratingFlags();
      auto* sealed = new llvm::FreezeInst(base.first, "", std::next(base.first->getIterator()));
      for (llvm::GetElementPtrInst* user : base.users) user->setOperand(0, sealed);
      changed = true;
    }
    return changed;
  }
};

// Takes some thirtieth of the time that a kernel takes.
void Verify(const llvm::Module& module) {
  std::string problem;
  llvm::raw_string_ostream out(problem);
  RELAXVM_CHECK(!llvm::verifyModule(module, &out))
      << "generated code of " << module.getName().str() << ": " << problem;
}

}  // namespace

void Compiler::Optimize(llvm::Module* module, Effort effort) const {
#ifdef NDEBUG
  if (FlagIsOn(Flag::kVerify))
#endif
    Verify(*module);
  llvm::FunctionPassManager functions;
  functions.addPass(llvm::SROAPass(llvm::SROAOptions::ModifyCFG));
  // Scheduled programs are most of a model's.  Combining instructions takes half of the time of all
  // passes here, so they have it once, when all that moves has moved.
  const bool is_scheduled = effort == Effort::kScheduled;
  AddCleaning(&functions, /*use_memory=*/!is_scheduled, /*combine=*/!is_scheduled);
  AddHoisting(&functions);
  if (effort != Effort::kLeast) AddCleaning(&functions, /*use_memory=*/!is_scheduled);
  if (effort == Effort::kFull) AddLoopWork(&functions);
  if (is_scheduled) functions.addPass(ShareAddresses());
  Analyses(*machine_).Run(std::move(functions), module);
}

}  // namespace relaxvm::codegen
