// SPDX-License-Identifier: Apache-2.0
// Target machines, pass pipelines, object emission.
#include "codegen/llvm/compiler.h"

#include <llvm/Analysis/TargetLibraryInfo.h>
#include <llvm/Analysis/TargetTransformInfo.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/MCSubtargetInfo.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Object/ELFObjectFile.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/Transforms/InstCombine/InstCombine.h>
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Scalar/LICM.h>
#include <llvm/Transforms/Scalar/LoopPassManager.h>
#include <llvm/Transforms/Scalar/Reassociate.h>
#include <llvm/Transforms/Scalar/SROA.h>
#include <llvm/Transforms/Scalar/SimplifyCFG.h>

#include <mutex>
#include <vector>

#include "codegen/llvm/emitter.h"
#include "support/error.h"
#include "target/kernel_abi.h"

namespace relaxvm::codegen {
namespace {

void InitializeTargets() {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    LLVMInitializeX86AsmParser();
  });
}

std::string HostFeatures() {
  std::vector<std::string> parts;
  for (const auto& [name, on] : llvm::sys::getHostCPUFeatures())
    parts.push_back((on ? "+" : "-") + name.str());
  std::sort(parts.begin(), parts.end());
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ",") + part;
  return text;
}

bool Has(const llvm::MCSubtargetInfo& subtarget, const char* feature) {
  return subtarget.checkFeatures(std::string("+") + feature);
}

// The features that a program may rely on, of those a loader can check.
std::string RequiredFeatures(const llvm::MCSubtargetInfo& subtarget) {
  std::string text;
  for (const char* name :
       {"sse3",       "ssse3",      "sse4.1",      "sse4.2",     "popcnt",       "avx",
        "f16c",       "fma",        "avx2",        "bmi",        "bmi2",         "lzcnt",
        "movbe",      "avx512f",    "avx512bw",    "avx512cd",   "avx512dq",     "avx512vl",
        "avx512ifma", "avx512vbmi", "avx512vbmi2", "avx512vnni", "avx512bitalg", "avx512vpopcntdq",
        "avx512bf16", "avx512fp16", "gfni",        "vaes",       "vpclmulqdq",   "avxvnni",
        "amx-tile",   "amx-int8",   "amx-bf16"}) {
    if (Has(subtarget, name)) text += (text.empty() ? "+" : ",+") + std::string(name);
  }
  return text;
}

TargetTraits TraitsOf(const llvm::MCSubtargetInfo& subtarget) {
  TargetTraits traits;
  traits.fma = Has(subtarget, "fma");
  traits.f16c = Has(subtarget, "f16c");
  traits.dot_bf16 = Has(subtarget, "avx512bf16") && Has(subtarget, "avx512vl");
  traits.dot_int8 = Has(subtarget, "avx512vnni") && Has(subtarget, "avx512vl");
  traits.rounding = Has(subtarget, "sse4.1");
  traits.vector_bits = Has(subtarget, "avx512f") ? 512 : Has(subtarget, "avx") ? 256 : 128;
  return traits;
}

// The C library is absent: no loop or store may become a call of it.
llvm::TargetLibraryInfoImpl NoLibrary(const llvm::Triple& triple) {
  llvm::TargetLibraryInfoImpl library(triple);
  library.disableAllFunctions();
  return library;
}

}  // namespace

Compiler::Compiler(const std::string& text, bool quick) {
  InitializeTargets();
  target::Target wanted = target::ParseTarget(text);
  llvm::Triple triple(wanted.triple.empty() ? llvm::sys::getProcessTriple()
                                            : llvm::Triple::normalize(wanted.triple));
  std::string error;
  const llvm::Target* found = llvm::TargetRegistry::lookupTarget(triple, error);
  if (found == nullptr) {
    Fail(ErrorKind::kValueError, "target '", text, "': no code generator for ", triple.str(),
         " is built in");
  }
  std::string features = wanted.features;
  cpu_ = wanted.cpu;
  if (cpu_.empty()) {
    cpu_ = wanted.triple.empty() ? llvm::sys::getHostCPUName().str() : "generic";
    if (wanted.triple.empty()) features = HostFeatures() + (features.empty() ? "" : "," + features);
  }
  std::unique_ptr<llvm::MCSubtargetInfo> names(found->createMCSubtargetInfo(triple, "", ""));
  if (names == nullptr || !names->isCPUStringValid(cpu_)) {
    Fail(ErrorKind::kValueError, "target '", text, "': unknown CPU ", cpu_,
         "; write its LLVM name, such as znver4, haswell or x86-64-v3");
  }
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  machine_.reset(found->createTargetMachine(
      triple, cpu_, features, options, llvm::Reloc::PIC_, llvm::CodeModel::Small,
      quick ? llvm::CodeGenOptLevel::Less : llvm::CodeGenOptLevel::Default));
  RELAXVM_CHECK(machine_ != nullptr) << "no target machine for " << triple.str();
  const llvm::MCSubtargetInfo& subtarget = machine_->getMCSubtargetInfo();
  traits_ = TraitsOf(subtarget);
  features_ = RequiredFeatures(subtarget);
}

Compiler::Unit Compiler::NewUnit(const std::string& name) const {
  Unit unit;
  unit.context = std::make_unique<llvm::LLVMContext>();
  unit.module = std::make_unique<llvm::Module>(name, *unit.context);
  unit.module->setTargetTriple(machine_->getTargetTriple());
  unit.module->setDataLayout(machine_->createDataLayout());
  unit.module->setPICLevel(llvm::PICLevel::BigPIC);
  return unit;
}

void Compiler::Prepare(llvm::Module* module) const {
  for (llvm::Function& fn : *module) {
    if (fn.isDeclaration()) continue;
    fn.addFnAttr("target-cpu", cpu_);
    fn.addFnAttr("target-features", machine_->getTargetFeatureString());
    fn.addFnAttr("prefer-vector-width", std::to_string(traits_.vector_bits));
    fn.addFnAttr("no-builtins");
    fn.addFnAttr(llvm::Attribute::NoUnwind);
  }
}

void Compiler::Optimize(llvm::Module* module, Effort effort) const {
  std::string problem;
  llvm::raw_string_ostream out(problem);
  RELAXVM_CHECK(!llvm::verifyModule(*module, &out))
      << "generated code of " << module->getName().str() << ": " << problem;

  llvm::LoopAnalysisManager lam;
  llvm::FunctionAnalysisManager fam;
  llvm::CGSCCAnalysisManager cgam;
  llvm::ModuleAnalysisManager mam;
  llvm::PipelineTuningOptions tuning;
  tuning.LoopUnrolling = tuning.LoopInterleaving = tuning.LoopVectorization =
      effort == Effort::kFull;
  tuning.SLPVectorization = false;
  llvm::PassBuilder builder(machine_.get(), tuning);
  fam.registerPass(
      [&] { return llvm::TargetLibraryAnalysis(NoLibrary(machine_->getTargetTriple())); });
  builder.registerModuleAnalyses(mam);
  builder.registerCGSCCAnalyses(cgam);
  builder.registerFunctionAnalyses(fam);
  builder.registerLoopAnalyses(lam);
  builder.crossRegisterProxies(lam, fam, cgam, mam);
  if (effort == Effort::kFull) {
    builder.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O2).run(*module, mam);
    return;
  }
  llvm::FunctionPassManager functions;
  functions.addPass(llvm::SROAPass(llvm::SROAOptions::ModifyCFG));
  functions.addPass(llvm::EarlyCSEPass(/*UseMemorySSA=*/true));
  functions.addPass(llvm::InstCombinePass());
  functions.addPass(llvm::SimplifyCFGPass());
  llvm::LoopPassManager loops;
  loops.addPass(llvm::LICMPass(llvm::LICMOptions()));
  functions.addPass(llvm::createFunctionToLoopPassAdaptor(std::move(loops), /*UseMemorySSA=*/true));
  if (effort == Effort::kScheduled) {
    functions.addPass(llvm::EarlyCSEPass(/*UseMemorySSA=*/true));
    functions.addPass(llvm::InstCombinePass());
    functions.addPass(llvm::SimplifyCFGPass());
  }
  llvm::ModulePassManager modules;
  modules.addPass(llvm::createModuleToFunctionPassAdaptor(std::move(functions)));
  modules.run(*module, mam);
}

std::string Compiler::Emit(llvm::Module* module, llvm::CodeGenFileType type) const {
  llvm::SmallVector<char, 0> buffer;
  llvm::raw_svector_ostream out(buffer);
  llvm::legacy::PassManager passes;
  passes.add(new llvm::TargetLibraryInfoWrapperPass(NoLibrary(machine_->getTargetTriple())));
  RELAXVM_CHECK(!machine_->addPassesToEmitFile(passes, out, nullptr, type))
      << "the target cannot emit this kind of file";
  passes.run(*module);
  return std::string(buffer.begin(), buffer.end());
}

void CheckSelfContained(const std::string& object, const std::string& name) {
  auto file = llvm::object::ObjectFile::createObjectFile(llvm::MemoryBufferRef(object, name));
  RELAXVM_CHECK(static_cast<bool>(file)) << "the object of " << name << " is damaged";
  for (const llvm::object::SymbolRef& symbol : (*file)->symbols()) {
    llvm::Expected<uint32_t> flags = symbol.getFlags();
    llvm::Expected<llvm::StringRef> symbol_name = symbol.getName();
    RELAXVM_CHECK(flags && symbol_name) << "the symbols of " << name << " are damaged";
    if (!(*flags & llvm::object::SymbolRef::SF_Undefined) || symbol_name->empty()) continue;
    bool ours = symbol_name->starts_with(kDirectPrefix) ||
                symbol_name->starts_with(kCompiledFunctionPrefix) || *symbol_name == kRaiseSymbol ||
                *symbol_name == kCallSeriallySymbol || *symbol_name == kKernelContextSymbol;
    RELAXVM_CHECK(ours) << "kernel " << name << " would call " << symbol_name->str()
                        << ", which no library provides";
  }
}

}  // namespace relaxvm::codegen
