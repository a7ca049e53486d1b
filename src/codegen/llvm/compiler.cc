// SPDX-License-Identifier: Apache-2.0
// Target machines, pass pipelines, object emission.
#include "codegen/llvm/compiler.h"

#include <llvm/Analysis/TargetLibraryInfo.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/Object/ELFObjectFile.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/TargetParser/Host.h>

#include <vector>

#include "codegen/llvm/checks.h"
#include "codegen/llvm/emitter.h"
#include "codegen/llvm/targets.h"
#include "support/error.h"
#include "support/flags.h"
#include "target/amx.h"
#include "target/kernel_abi.h"

namespace relaxvm::codegen {
namespace {

std::string HostFeatures() {
  std::vector<std::string> parts;
  for (const auto& [name, on] : llvm::sys::getHostCPUFeatures()) {
    const bool granted = on && (!name.starts_with("amx-") || target::AskForAmx());
    parts.push_back((granted ? "+" : "-") + name.str());
  }
  std::sort(parts.begin(), parts.end());
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ",") + part;
  return text;
}

}  // namespace

Compiler::Compiler(const std::string& text, bool quick) {
  const target::Target wanted = target::ParseTarget(text);
  const llvm::Triple triple = TripleOf(wanted);
  const llvm::Target* found = BackEndFor(triple, text);
  std::string features = wanted.features;
  cpu_ = wanted.cpu;
  if (cpu_.empty() && wanted.triple.empty()) cpu_ = FlagText(Flag::kCpu);
  if (cpu_.empty()) {
    cpu_ = wanted.triple.empty() ? llvm::sys::getHostCPUName().str() : "generic";
    if (wanted.triple.empty()) features = HostFeatures() + (features.empty() ? "" : "," + features);
  }
  CheckCpu(*found, triple, cpu_, text);
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  machine_.reset(found->createTargetMachine(
      triple, cpu_, features, options, llvm::Reloc::PIC_, llvm::CodeModel::Small,
      quick ? llvm::CodeGenOptLevel::None : llvm::CodeGenOptLevel::Default));
  RELAXVM_CHECK(machine_ != nullptr) << "no target machine for " << triple.str();
  const llvm::MCSubtargetInfo& subtarget = machine_->getMCSubtargetInfo();
  traits_ = TraitsOf(subtarget);
  features_ = RequiredFeatures(subtarget);
}

target::Machine Compiler::Machine() const {
  target::Machine machine = MachineFor(machine_->getMCSubtargetInfo());
  target::DescribeCpu(cpu_, &machine);
  // A hypervisor may give a core another name: one with matrix registers is Intel's newest.
  if (machine.matrix_bf16) machine.panel_ahead = target::kPanelAheadOfMatrices;
  return machine;
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
                *symbol_name == kReportSymbol || *symbol_name == kCallPackedSymbol;
    RELAXVM_CHECK(ours) << "kernel " << name << " would call " << symbol_name->str()
                        << ", which no library provides";
  }
}

}  // namespace relaxvm::codegen
