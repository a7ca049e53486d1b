// SPDX-License-Identifier: Apache-2.0
// What differs between the kinds of processor that code is made for: LLVM's back ends, the features
// that code may use and a loader can check, and what they are worth to code generation and
// schedules.
#pragma once

#include <llvm/Analysis/TargetLibraryInfo.h>
#include <llvm/MC/MCSubtargetInfo.h>
#include <llvm/MC/TargetRegistry.h>

#include <string>

#include "codegen/llvm/ops.h"
#include "target/machine.h"
#include "target/target.h"

namespace relaxvm::codegen {

// The triple that a target stands for: this process's where it names none.  Throws ValueError for
// one that kernels cannot be made for.
llvm::Triple TripleOf(const target::Target& wanted);

// LLVM's back end for a triple of TripleOf; throws when this build has none.
const llvm::Target* BackEndFor(const llvm::Triple& triple, const std::string& text);

// Throws ValueError, with what is meant by `text`, when the back end knows no such CPU.
void CheckCpu(const llvm::Target& back_end, const llvm::Triple& triple, const std::string& cpu,
              const std::string& text);

// The C library is absent: no loop or store may become a call of it.
llvm::TargetLibraryInfoImpl NoLibrary(const llvm::Triple& triple);

// The features that a program may rely on, of those a loader can check: "+avx2,+fma".
std::string RequiredFeatures(const llvm::MCSubtargetInfo& subtarget);

TargetTraits TraitsOf(const llvm::MCSubtargetInfo& subtarget);

// Vectors and instructions; caches and cores stay what a CPU is taken for.
target::Machine MachineFor(const llvm::MCSubtargetInfo& subtarget);

}  // namespace relaxvm::codegen
