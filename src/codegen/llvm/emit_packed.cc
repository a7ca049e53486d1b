// SPDX-License-Identifier: Apache-2.0
// The packed entry, which any tvm-ffi program calls:
// int __tvm_ffi_<name>(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result)
// TVMFFIAny is { int32 type_index, int32 padding, 8 bytes of value }; a Tensor object holds its
// DLTensor after 24 bytes.
#include <tvm/ffi/c_api.h>

#include "codegen/llvm/emitter.h"
#include "target/kernel_abi.h"

namespace relaxvm::codegen {

using llvm::Value;

namespace {

static_assert(sizeof(TVMFFIAny) == 16 && sizeof(TVMFFIObject) == 24);

// Writes the packed entry: `raise` leaves it with an error.
class PackedEmitter {
 public:
  PackedEmitter(llvm::Module* module, llvm::IRBuilder<>& b,
                std::function<llvm::Constant*(const std::string&)> text)
      : module_(module), b_(b), text_(std::move(text)) {}

  void Emit(const Signature& sig, llvm::Function* direct, const std::string& name) {
    llvm::LLVMContext& context = module_->getContext();
    llvm::Type* ptr = b_.getPtrTy();
    llvm::Type* i32 = b_.getInt32Ty();
    auto* type = llvm::FunctionType::get(i32, {ptr, ptr, i32, ptr}, false);
    fn_ = llvm::Function::Create(type, llvm::Function::ExternalLinkage, kPackedPrefix + name,
                                 module_);
    fn_->copyAttributesFrom(direct);
    fn_->setVisibility(llvm::GlobalValue::DefaultVisibility);
    auto* entry = llvm::BasicBlock::Create(context, "entry", fn_);
    b_.SetInsertPoint(entry);
    auto* tensors_type = llvm::ArrayType::get(ptr, std::max<size_t>(1, sig.tensors.size()));
    auto* scalars_type =
        llvm::ArrayType::get(b_.getInt64Ty(), std::max<size_t>(1, sig.scalars.size()));
    Value* tensors = b_.CreateAlloca(tensors_type);
    Value* scalars = b_.CreateAlloca(scalars_type);
    size_t count = sig.params.size();
    Check(b_.CreateICmpEQ(fn_->getArg(2), b_.getInt32(static_cast<uint32_t>(count))), "TypeError",
          sig.name + ": expected " + std::to_string(count) + " arguments");
    unsigned num_tensors = 0, num_scalars = 0;
    for (size_t i = 0; i < count; ++i) {
      Value* arg = b_.CreateConstInBoundsGEP1_64(b_.getInt8Ty(), fn_->getArg(1), 16 * i);
      Value* index = b_.CreateAlignedLoad(i32, arg, llvm::Align(4));
      Value* value = b_.CreateConstInBoundsGEP1_64(b_.getInt8Ty(), arg, 8);
      if (sig.params[i] == 't') {
        std::string place = Place(sig, i, sig.tensors[num_tensors]->name);
        b_.CreateStore(Tensor(index, value, place),
                       b_.CreateConstInBoundsGEP2_32(tensors_type, tensors, 0, num_tensors++));
      } else {
        std::string place = Place(sig, i, sig.scalars[num_scalars]->name);
        Value* bits =
            sig.params[i] == 'f' ? FloatBits(index, value, place) : Integer(index, value, place);
        b_.CreateStore(bits,
                       b_.CreateConstInBoundsGEP2_32(scalars_type, scalars, 0, num_scalars++));
      }
    }
    CallDirect(direct, tensors, scalars, sig.name);
  }

 private:
  static std::string Place(const Signature& sig, size_t i, const ffi::String& name) {
    return sig.name + ": argument " + std::to_string(i) + " (" + std::string(name) + "): expected ";
  }

  Value* Is(Value* index, TVMFFITypeIndex what) {
    return b_.CreateICmpEQ(index, b_.getInt32(static_cast<uint32_t>(what)));
  }

  Value* Tensor(Value* index, Value* value, const std::string& place) {
    Value* is_object = Is(index, kTVMFFITensor);
    Check(b_.CreateOr(is_object, Is(index, kTVMFFIDLTensorPtr)), "TypeError", place + "a tensor");
    Value* pointer = b_.CreateAlignedLoad(b_.getPtrTy(), value, llvm::Align(8));
    Check(b_.CreateIsNotNull(pointer), "TypeError", place + "a tensor, not null");
    Value* inside = b_.CreateConstInBoundsGEP1_64(b_.getInt8Ty(), pointer, sizeof(TVMFFIObject));
    return b_.CreateSelect(is_object, inside, pointer);
  }

  Value* Integer(Value* index, Value* value, const std::string& place) {
    Check(b_.CreateOr(Is(index, kTVMFFIInt), Is(index, kTVMFFIBool)), "TypeError",
          place + "an integer");
    return b_.CreateAlignedLoad(b_.getInt64Ty(), value, llvm::Align(8));
  }

  Value* FloatBits(Value* index, Value* value, const std::string& place) {
    Value* is_float = Is(index, kTVMFFIFloat);
    Value* known =
        b_.CreateOr(is_float, b_.CreateOr(Is(index, kTVMFFIInt), Is(index, kTVMFFIBool)));
    Check(known, "TypeError", place + "a number");
    Value* bits = b_.CreateAlignedLoad(b_.getInt64Ty(), value, llvm::Align(8));
    Value* converted = b_.CreateBitCast(b_.CreateSIToFP(bits, b_.getDoubleTy()), b_.getInt64Ty());
    return b_.CreateSelect(is_float, bits, converted);
  }

  void Check(Value* condition, const char* kind, const std::string& message) {
    error_exit_.Unless(condition, text_(kind), text_(message), b_, [this](Value* k, Value* m) {
      llvm::Type* ptr = b_.getPtrTy();
      auto raise =
          Hidden(kRaiseSymbol, llvm::FunctionType::get(b_.getVoidTy(), {ptr, ptr, ptr}, false));
      b_.CreateCall(raise, {llvm::Constant::getNullValue(ptr), k, m});
      b_.CreateRet(b_.getInt32(static_cast<uint32_t>(kKernelError)));
    });
  }

  llvm::FunctionCallee Hidden(const char* name, llvm::FunctionType* type) {
    llvm::FunctionCallee callee = module_->getOrInsertFunction(name, type);
    auto* fn = llvm::cast<llvm::Function>(callee.getCallee());
    fn->setVisibility(llvm::GlobalValue::HiddenVisibility);
    fn->setDSOLocal(true);
    fn->setDoesNotThrow();
    return callee;
  }

  // With the context that the host put into the library, or serially without one.
  void CallDirect(llvm::Function* direct, Value* tensors, Value* scalars, const std::string& name) {
    llvm::LLVMContext& context = module_->getContext();
    llvm::Type* ptr = b_.getPtrTy();
    llvm::Type* i32 = b_.getInt32Ty();
    auto* slot =
        llvm::cast<llvm::GlobalVariable>(module_->getOrInsertGlobal(kKernelContextSymbol, ptr));
    Value* host = b_.CreateAlignedLoad(ptr, slot, llvm::Align(8));
    auto* hosted = llvm::BasicBlock::Create(context, "hosted", fn_);
    auto* alone = llvm::BasicBlock::Create(context, "alone", fn_);
    b_.CreateCondBr(b_.CreateIsNotNull(host), hosted, alone);
    b_.SetInsertPoint(hosted);
    Value* rc = b_.CreateCall(direct, {host, tensors, scalars});
    // Who calls a packed entry expects an error to be set whenever the result is not 0.
    Check(b_.CreateICmpNE(rc, b_.getInt32(static_cast<uint32_t>(kKernelInterrupted))),
          "RuntimeError", name + ": interrupted");
    b_.CreateRet(rc);
    b_.SetInsertPoint(alone);
    auto serial = Hidden(kCallSeriallySymbol, llvm::FunctionType::get(i32, {ptr, ptr, ptr}, false));
    b_.CreateRet(b_.CreateCall(serial, {direct, tensors, scalars}));
  }

  llvm::Module* module_;
  llvm::IRBuilder<>& b_;
  std::function<llvm::Constant*(const std::string&)> text_;
  llvm::Function* fn_ = nullptr;
  ErrorExit error_exit_;
};

}  // namespace

void ProgramEmitter::EmitPacked(const Signature& sig, llvm::Function* direct,
                                const std::string& name) {
  PackedEmitter(module_, b_, [this](const std::string& text) {
    return Text(text);
  }).Emit(sig, direct, name);
}

}  // namespace relaxvm::codegen
