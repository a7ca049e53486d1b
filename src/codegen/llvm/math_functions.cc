// SPDX-License-Identifier: Apache-2.0
#include "codegen/llvm/math.h"
#include "support/error.h"
namespace relaxvm::codegen {
llvm::Value* EmitMath(ir::Intrin intrin, llvm::ArrayRef<llvm::Value*> args, llvm::IRBuilder<>& b,
                      const TargetTraits& traits) {
  Fail(ErrorKind::kNotImplementedError, ir::IntrinName(intrin), " has no native code yet");
}
}  // namespace relaxvm::codegen
