// SPDX-License-Identifier: Apache-2.0
// How a thread treats subnormal numbers while it adds up products or exponentials: as 0, where
// arithmetic on them takes x86 a hundred times as long as on others. The caller's state comes back
// on every way out. MXCSR: Intel 64 and IA-32 Architectures Software Developer's Manual, volume
// 1, 10.2.3.
#include <llvm/IR/IntrinsicsX86.h>

#include "codegen/llvm/emitter.h"

namespace relaxvm::codegen {

using llvm::Value;

namespace {

constexpr uint32_t kFlushResults = 1u << 15;  // FTZ
constexpr uint32_t kFlushOperands = 1u << 6;  // DAZ
constexpr uint32_t kFlush = kFlushResults | kFlushOperands;

void CallWithState(llvm::IRBuilder<>& b, llvm::Intrinsic::ID id, Value* state) {
  b.CreateIntrinsic(id, llvm::ArrayRef<llvm::Type*>(), llvm::ArrayRef<Value*>(state));
}

// Loads `changed` (null: what `state` holds) unless the caller flushes already, as a kernel that
// runs its own task does.
void LoadUnlessFlushing(llvm::IRBuilder<>& b, llvm::AllocaInst* state, llvm::AllocaInst* changed) {
  llvm::Function* function = b.GetInsertBlock()->getParent();
  auto* load = llvm::BasicBlock::Create(b.getContext(), "load_state", function);
  auto* go_on = llvm::BasicBlock::Create(b.getContext(), "go_on", function);
  Value* before = b.CreateLoad(b.getInt32Ty(), state);
  Value* flushes = b.CreateICmpEQ(b.CreateAnd(before, b.getInt32(kFlush)), b.getInt32(kFlush));
  b.CreateCondBr(flushes, go_on, load);
  b.SetInsertPoint(load);
  if (changed != nullptr) b.CreateStore(b.CreateOr(before, b.getInt32(kFlush)), changed);
  CallWithState(b, llvm::Intrinsic::x86_sse_ldmxcsr, changed != nullptr ? changed : state);
  b.CreateBr(go_on);
  b.SetInsertPoint(go_on);
}

}  // namespace

void ProgramEmitter::FlushSubnormals() {
  if (!flush_subnormals_) return;
  f_->float_state = Alloca(b_.getInt32Ty(), 1, 4);
  CallWithState(b_, llvm::Intrinsic::x86_sse_stmxcsr, f_->float_state);
  LoadUnlessFlushing(b_, f_->float_state, Alloca(b_.getInt32Ty(), 1, 4));
}

void ProgramEmitter::RestoreFloatState() {
  if (f_->float_state != nullptr) LoadUnlessFlushing(b_, f_->float_state, nullptr);
}

}  // namespace relaxvm::codegen
