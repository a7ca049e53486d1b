// SPDX-License-Identifier: Apache-2.0
// The packed entry, which any tvm-ffi program calls:
// int __tvm_ffi_<name>(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result)
#include "codegen/llvm/checks.h"
#include "codegen/llvm/emitter.h"
#include "target/kernel_abi.h"

namespace relaxvm::codegen {

void ProgramEmitter::EmitPacked(const Signature& sig, llvm::Function* direct,
                                const std::string& name) {
  std::vector<PackedParam> params;
  size_t num_tensors = 0, num_scalars = 0;
  for (char letter : sig.params) {
    const ffi::String& called =
        letter == 't' ? sig.tensors[num_tensors++]->name : sig.scalars[num_scalars++]->name;
    std::string place = sig.name + ": argument " + std::to_string(params.size()) + " (" +
                        std::string(called) + "): expected ";
    const char* what = letter == 't' ? "a tensor" : letter == 'f' ? "a number" : "an integer";
    params.push_back({letter, place + what, letter == 't' ? place + "a tensor, not null" : ""});
  }
  llvm::Constant* list = MakePackedList(
      module_, sig.name + ": expected " + std::to_string(params.size()) + " arguments",
      sig.name + ": interrupted", params);

  llvm::LLVMContext& context = module_->getContext();
  llvm::Type *ptr = b_.getPtrTy(), *i32 = b_.getInt32Ty();
  auto* type = llvm::FunctionType::get(i32, {ptr, ptr, i32, ptr}, false);
  auto* fn =
      llvm::Function::Create(type, llvm::Function::ExternalLinkage, kPackedPrefix + name, module_);
  fn->copyAttributesFrom(direct);
  fn->setVisibility(llvm::GlobalValue::DefaultVisibility);
  b_.SetInsertPoint(llvm::BasicBlock::Create(context, "entry", fn));
  llvm::FunctionCallee call = SharedFunction(module_, kCallPackedSymbol, CallPackedType(context));
  llvm::CallInst* rc = b_.CreateCall(call, {list, direct, fn->getArg(1), fn->getArg(2)});
  rc->setTailCall();
  b_.CreateRet(rc);
}

}  // namespace relaxvm::codegen
