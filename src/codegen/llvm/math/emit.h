// SPDX-License-Identifier: Apache-2.0
// Elementary functions as inlined polynomial code on float or double, scalars or vectors: no
// library is called. How exact each is: tests/codegen/math_test.cc.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include "codegen/llvm/ops.h"
#include "ir/prim.h"

namespace relaxvm::codegen {

// kSqrt .. kAtan2 of the intrinsic list: what is transcendental, plus sqrt, rsqrt and rounding.
llvm::Value* EmitMath(ir::Intrin intrin, llvm::ArrayRef<llvm::Value*> args, llvm::IRBuilder<>& b,
                      const TargetTraits& traits);

// fmod of two floats or doubles: exact.
llvm::Value* EmitFmod(llvm::Value* x, llvm::Value* y, llvm::IRBuilder<>& b,
                      const TargetTraits& traits);

// a * b + c: fused where the target fuses, else rounded twice.
llvm::Value* MulAdd(llvm::Value* a, llvm::Value* b, llvm::Value* c, llvm::IRBuilder<>& builder,
                    const TargetTraits& traits);

enum class Rounding { kFloor, kCeil, kTrunc, kEven };
llvm::Value* RoundToInteger(Rounding rounding, llvm::Value* v, llvm::IRBuilder<>& b,
                            const TargetTraits& traits);

}  // namespace relaxvm::codegen
