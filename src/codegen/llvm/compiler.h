// SPDX-License-Identifier: Apache-2.0
// LLVM's side of compilation: from a target to a machine, from a module to an object.  One Compiler
// per thread.
#pragma once

#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/Target/TargetMachine.h>

#include <memory>
#include <string>

#include "codegen/llvm/ops.h"
#include "target/machine.h"
#include "target/target.h"

namespace relaxvm::codegen {

enum class Effort : uint8_t {
  kLeast,      // the code runs once
  kScheduled,  // loops, vectors and unrolling are final: clean up only
  kFull,       // plain loops: vectorise and unroll
};

class Compiler {
 public:
  // `quick`: machine code is emitted fast rather than well.
  explicit Compiler(const std::string& target, bool quick = false);

  // A module for this target, in a context of its own: both belong to the caller's pair.
  struct Unit {
    std::unique_ptr<llvm::LLVMContext> context;
    std::unique_ptr<llvm::Module> module;
  };
  Unit NewUnit(const std::string& name) const;
  // Marks a function as code for this CPU; every function that is defined needs it.
  void Prepare(llvm::Module* module) const;
  void Optimize(llvm::Module* module, Effort effort) const;
  std::string EmitObject(llvm::Module* module) const {
    return Emit(module, llvm::CodeGenFileType::ObjectFile);
  }
  std::string EmitAssembly(llvm::Module* module) const {
    return Emit(module, llvm::CodeGenFileType::AssemblyFile);
  }

  const TargetTraits& traits() const { return traits_; }
  const std::string& cpu() const { return cpu_; }
  // What the code may use, as "+avx2,+fma,...": only what is on.
  const std::string& features() const { return features_; }
  std::string triple() const { return machine_->getTargetTriple().str(); }
  target::Machine Machine() const;

 private:
  std::string Emit(llvm::Module* module, llvm::CodeGenFileType type) const;

  std::unique_ptr<llvm::TargetMachine> machine_;
  TargetTraits traits_;
  std::string cpu_;
  std::string features_;
};

// Throws when the object refers to anything that is not ours: generated code stands alone.
void CheckSelfContained(const std::string& object, const std::string& name);

}  // namespace relaxvm::codegen
