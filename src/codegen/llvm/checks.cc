// SPDX-License-Identifier: Apache-2.0
// Lists of checks and the functions that read them.
// DLTensor: data 0, device 8 (type, id), ndim 16, dtype 20, shape 24, strides 32, byte_offset 40.
// TVMFFIAny is { int32 type_index, int32 padding, 8 bytes of value }; a Tensor object holds its
// DLTensor after 24 bytes.
#include "codegen/llvm/checks.h"

#include <llvm/IR/MDBuilder.h>
#include <tvm/ffi/c_api.h>

#include <cstring>

#include "codegen/llvm/emitter.h"
#include "support/error.h"
#include "target/kernel_abi.h"

namespace relaxvm::codegen {
namespace {

using llvm::BasicBlock;
using llvm::Constant;
using llvm::Function;
using llvm::Value;

static_assert(sizeof(TVMFFIAny) == 16 && sizeof(TVMFFIObject) == 24);

constexpr int64_t kListHeader = 8;
constexpr int64_t kCheckBytes = 24;
constexpr int64_t kPackedHeader = 12;
constexpr int64_t kPackedBytes = 12;

// Bytes of a list; texts are put behind all records.
class ListBytes {
 public:
  explicit ListBytes(size_t record_bytes) : record_bytes_(record_bytes) {}

  void Int32(int64_t value) { Append(static_cast<int32_t>(value)); }
  void Int64(int64_t value) { Append(value); }
  void Text(const std::string& text) {
    Int32(static_cast<int64_t>(record_bytes_ + texts_.size()));
    texts_ += text + '\0';
  }

  Constant* Finish(llvm::Module* module) {
    RELAXVM_CHECK(bytes_.size() == record_bytes_);
    auto* data = llvm::ConstantDataArray::getString(module->getContext(), bytes_ + texts_,
                                                    /*AddNull=*/false);
    auto* list = new llvm::GlobalVariable(*module, data->getType(), true,
                                          llvm::GlobalValue::PrivateLinkage, data, "checks");
    list->setAlignment(llvm::Align(8));
    return list;
  }

 private:
  template <typename T>
  void Append(T value) {
    char bytes[sizeof(T)];
    std::memcpy(bytes, &value, sizeof(T));
    bytes_.append(bytes, sizeof(T));
  }

  size_t record_bytes_;
  std::string bytes_;
  std::string texts_;
};

// Writes one shared function.
class SharedEmitter {
 public:
  SharedEmitter(llvm::Module* module, const char* name, llvm::FunctionType* type)
      : module_(module), b_(module->getContext()) {
    fn_ = llvm::cast<Function>(SharedFunction(module, name, type).getCallee());
    b_.SetInsertPoint(Block("entry"));
  }

 protected:
  BasicBlock* Block(const char* name) {
    return BasicBlock::Create(module_->getContext(), name, fn_);
  }
  Value* At(Value* base, Value* offset) { return b_.CreateGEP(b_.getInt8Ty(), base, offset); }
  Value* At(Value* base, int64_t offset) { return At(base, b_.getInt64(offset)); }
  Value* Int32(Value* base, int64_t offset) {
    return b_.CreateAlignedLoad(b_.getInt32Ty(), At(base, offset), llvm::Align(4));
  }
  Value* Wide(Value* base, int64_t offset) {  // a 32-bit field as 64 bits
    return b_.CreateSExt(Int32(base, offset), b_.getInt64Ty());
  }
  Value* Int64(Value* base, int64_t offset) {
    return b_.CreateAlignedLoad(b_.getInt64Ty(), At(base, offset), llvm::Align(8));
  }
  Value* Pointer(Value* base, int64_t offset) {
    return b_.CreateAlignedLoad(b_.getPtrTy(), At(base, offset), llvm::Align(8));
  }
  Value* Item(llvm::Type* type, Value* array, Value* index) {
    return b_.CreateAlignedLoad(type, b_.CreateGEP(type, array, index), llvm::Align(8));
  }
  Constant* Text(const char* text) { return b_.CreateGlobalString(text, "text", 0, module_); }

  // for (i = 0; i < count; ++i) body(i); `body` may make blocks.
  void Loop(Value* count, llvm::function_ref<void(Value*)> body) {
    BasicBlock* before = b_.GetInsertBlock();
    BasicBlock *head = Block("head"), *inside = Block("inside"), *after = Block("after");
    b_.CreateBr(head);
    b_.SetInsertPoint(head);
    llvm::PHINode* i = b_.CreatePHI(b_.getInt64Ty(), 2);
    i->addIncoming(b_.getInt64(0), before);
    b_.CreateCondBr(b_.CreateICmpSLT(i, count), inside, after);
    b_.SetInsertPoint(inside);
    body(i);
    i->addIncoming(b_.CreateAdd(i, b_.getInt64(1)), b_.GetInsertBlock());
    b_.CreateBr(head);
    b_.SetInsertPoint(after);
  }

  llvm::Module* module_;
  llvm::IRBuilder<> b_;
  Function* fn_;
};

class ReportEmitter : public SharedEmitter {
 public:
  explicit ReportEmitter(llvm::Module* module)
      : SharedEmitter(module, kReportSymbol, ReportType(module->getContext())) {}

  void Emit() {
    Value *context = fn_->getArg(0), *list = fn_->getArg(1);
    state_ = b_.CreateAlloca(llvm::ArrayType::get(b_.getInt64Ty(), 2));
    Loop(Wide(list, 0), [&](Value* i) {
      Value* check = At(
          list, b_.CreateAdd(b_.CreateMul(i, b_.getInt64(kCheckBytes)), b_.getInt64(kListHeader)));
      BasicBlock *bad = Block("bad"), *next = Block("next");
      b_.CreateCondBr(Holds(check), next, bad);
      b_.SetInsertPoint(bad);
      Value* is_dtype = b_.CreateICmpEQ(Int32(check, 0), b_.getInt32(Check::kDtype));
      Value* kind = b_.CreateSelect(is_dtype, Text("TypeError"), Text("ValueError"));
      llvm::Type* ptr = b_.getPtrTy();
      auto* type = llvm::FunctionType::get(b_.getVoidTy(), {ptr, ptr, ptr}, false);
      b_.CreateCall(type, Pointer(context, 32), {context, kind, At(list, Wide(check, 12))});
      b_.CreateRet(b_.getTrue());
      b_.SetInsertPoint(next);
    });
    b_.CreateRet(b_.getFalse());
  }

 private:
  // Is the check passed?
  Value* Holds(Value* check) {
    Value* tensor = Item(b_.getPtrTy(), fn_->getArg(2), Wide(check, 4));
    Value* place = Wide(check, 8);
    Value* expected = Int64(check, 16);
    BasicBlock* done = Block("done");
    llvm::PHINode* holds = llvm::PHINode::Create(b_.getInt1Ty(), 4, "holds", done);
    auto* choice = b_.CreateSwitch(Int32(check, 0), done, 5);
    holds->addIncoming(b_.getTrue(), b_.GetInsertBlock());
    auto on = [&](std::initializer_list<Check::Kind> kinds, llvm::function_ref<Value*()> value) {
      BasicBlock* block = Block("kind");
      for (Check::Kind kind : kinds) choice->addCase(b_.getInt32(kind), block);
      b_.SetInsertPoint(block);
      Value* result = value();
      holds->addIncoming(result, b_.GetInsertBlock());
      b_.CreateBr(done);
    };
    auto size = [&] { return Item(b_.getInt64Ty(), Pointer(tensor, 24), place); };
    on({Check::kField, Check::kDtype}, [&] {
      Value* field = b_.CreateAlignedLoad(b_.getInt32Ty(), At(tensor, place), llvm::Align(4));
      return b_.CreateICmpEQ(b_.CreateZExt(field, b_.getInt64Ty()), expected);
    });
    on({Check::kSize}, [&] { return b_.CreateICmpEQ(size(), expected); });
    on({Check::kValue},
       [&] { return b_.CreateICmpEQ(size(), Item(b_.getInt64Ty(), fn_->getArg(3), expected)); });
    on({Check::kCompact}, [&] { return IsCompact(tensor); });
    b_.SetInsertPoint(done);
    return holds;
  }

  // Null strides, or those of a dense row-major tensor; dimensions of size 1 may have any.  An
  // empty tensor passes.
  Value* IsCompact(Value* tensor) {
    Value *shape = Pointer(tensor, 24), *strides = Pointer(tensor, 32);
    Value* ndim = Wide(tensor, 16);
    Value *product = state_, *same = At(state_, 8);
    b_.CreateStore(b_.getInt64(1), product);
    b_.CreateStore(b_.getInt64(1), same);
    Value* is_null = b_.CreateIsNull(strides);
    // What is read instead of null strides does not count.
    Value* read = b_.CreateSelect(is_null, shape, strides);
    Loop(ndim, [&](Value* i) {
      Value* d = b_.CreateSub(b_.CreateSub(ndim, i), b_.getInt64(1));
      Value* size = Item(b_.getInt64Ty(), shape, d);
      Value* expected = Int64(product, 0);
      Value* ok = b_.CreateOr(b_.CreateICmpEQ(Item(b_.getInt64Ty(), read, d), expected),
                              b_.CreateICmpEQ(size, b_.getInt64(1)));
      b_.CreateStore(b_.CreateAnd(Int64(same, 0), b_.CreateZExt(ok, b_.getInt64Ty())), same);
      b_.CreateStore(b_.CreateMul(expected, size), product);
    });
    Value* compact = b_.CreateICmpNE(Int64(same, 0), b_.getInt64(0));
    Value* empty = b_.CreateICmpEQ(Int64(product, 0), b_.getInt64(0));
    return b_.CreateOr(is_null, b_.CreateOr(compact, empty));
  }

  Value* state_ = nullptr;  // of IsCompact
};

class CallPackedEmitter : public SharedEmitter {
 public:
  explicit CallPackedEmitter(llvm::Module* module)
      : SharedEmitter(module, kCallPackedSymbol, CallPackedType(module->getContext())) {}

  void Emit() {
    Value *list = fn_->getArg(0), *direct = fn_->getArg(1), *args = fn_->getArg(2);
    Value* count = Wide(list, 0);
    Require(b_.CreateICmpEQ(b_.CreateSExt(fn_->getArg(3), b_.getInt64Ty()), count), list, 4);
    Value* room = b_.CreateAdd(count, b_.getInt64(1));
    Value* tensors = b_.CreateAlloca(b_.getPtrTy(), room);
    Value* scalars = b_.CreateAlloca(b_.getInt64Ty(), room);
    Value* used = b_.CreateAlloca(llvm::ArrayType::get(b_.getInt64Ty(), 2));
    b_.CreateStore(b_.getInt64(0), used);
    b_.CreateStore(b_.getInt64(0), At(used, 8));
    auto append = [&](Value* array, Value* counter, Value* value) {
      Value* at = Int64(counter, 0);
      b_.CreateStore(value, b_.CreateGEP(b_.getInt64Ty(), array, at));
      b_.CreateStore(b_.CreateAdd(at, b_.getInt64(1)), counter);
    };
    Loop(count, [&](Value* i) {
      Value* param = At(list, b_.CreateAdd(b_.CreateMul(i, b_.getInt64(kPackedBytes)),
                                           b_.getInt64(kPackedHeader)));
      Value* arg = At(args, b_.CreateMul(i, b_.getInt64(sizeof(TVMFFIAny))));
      Value* index = Int32(arg, 0);
      Value* letter = Int32(param, 0);
      BasicBlock *tensor = Block("tensor"), *scalar = Block("scalar"), *next = Block("next");
      b_.CreateCondBr(b_.CreateICmpEQ(letter, b_.getInt32('t')), tensor, scalar);
      b_.SetInsertPoint(tensor);
      append(tensors, used, Tensor(index, arg, param));
      b_.CreateBr(next);
      b_.SetInsertPoint(scalar);
      append(scalars, At(used, 8), Scalar(index, arg, param, letter));
      b_.CreateBr(next);
      b_.SetInsertPoint(next);
    });
    CallDirect(direct, tensors, scalars);
  }

 private:
  Value* Is(Value* index, TVMFFITypeIndex what) {
    return b_.CreateICmpEQ(index, b_.getInt32(static_cast<uint32_t>(what)));
  }

  Value* Tensor(Value* index, Value* arg, Value* param) {
    Value* is_object = Is(index, kTVMFFITensor);
    Require(b_.CreateOr(is_object, Is(index, kTVMFFIDLTensorPtr)), param, 4);
    Value* pointer = Pointer(arg, 8);
    Require(b_.CreateIsNotNull(pointer), param, 8);
    return b_.CreateSelect(is_object, At(pointer, sizeof(TVMFFIObject)), pointer);
  }

  // The bits of an integer, or of a double.
  Value* Scalar(Value* index, Value* arg, Value* param, Value* letter) {
    Value* takes_float = b_.CreateICmpEQ(letter, b_.getInt32('f'));
    Value* is_float = Is(index, kTVMFFIFloat);
    Value* is_integer = b_.CreateOr(Is(index, kTVMFFIInt), Is(index, kTVMFFIBool));
    Require(b_.CreateOr(is_integer, b_.CreateAnd(is_float, takes_float)), param, 4);
    Value* bits = Int64(arg, 8);
    Value* converted = b_.CreateBitCast(b_.CreateSIToFP(bits, b_.getDoubleTy()), b_.getInt64Ty());
    return b_.CreateSelect(b_.CreateAnd(takes_float, is_integer), converted, bits);
  }

  // With the context that the host put into the library, or serially without one.
  void CallDirect(Value* direct, Value* tensors, Value* scalars) {
    llvm::Type* ptr = b_.getPtrTy();
    llvm::Type* i32 = b_.getInt32Ty();
    auto* type = llvm::FunctionType::get(i32, {ptr, ptr, ptr}, false);
    Value* host = Pointer(module_->getOrInsertGlobal(kKernelContextSymbol, ptr), 0);
    BasicBlock *hosted = Block("hosted"), *alone = Block("alone");
    b_.CreateCondBr(b_.CreateIsNotNull(host), hosted, alone);
    b_.SetInsertPoint(hosted);
    Value* rc = b_.CreateCall(type, direct, {host, tensors, scalars});
    // Who calls a packed entry expects an error to be set whenever the result is not 0.
    Require(b_.CreateICmpNE(rc, b_.getInt32(static_cast<uint32_t>(kKernelInterrupted))),
            fn_->getArg(0), 8, "RuntimeError");
    b_.CreateRet(rc);
    b_.SetInsertPoint(alone);
    b_.CreateRet(b_.CreateCall(SharedFunction(module_, kCallSeriallySymbol, type),
                               {direct, tensors, scalars}));
  }

  // Leaves with the error whose text stands at `offset` of `record`.
  void Require(Value* condition, Value* record, int64_t offset, const char* kind = "TypeError") {
    BasicBlock *bad = Block("bad"), *good = Block("good");
    b_.CreateCondBr(condition, good, bad);
    b_.SetInsertPoint(bad);
    llvm::Type* ptr = b_.getPtrTy();
    auto* type = llvm::FunctionType::get(b_.getVoidTy(), {ptr, ptr, ptr}, false);
    b_.CreateCall(
        SharedFunction(module_, kRaiseSymbol, type),
        {Constant::getNullValue(ptr), Text(kind), At(fn_->getArg(0), Wide(record, offset))});
    b_.CreateRet(b_.getInt32(static_cast<uint32_t>(kKernelError)));
    b_.SetInsertPoint(good);
  }
};

}  // namespace

void Differences::AddBits(Value* bits) {
  auto* type = llvm::dyn_cast<llvm::FixedVectorType>(bits->getType());
  Value*& all = type == nullptr ? words_ : type->getNumElements() == 2 ? pairs_ : fours_;
  all = all == nullptr ? bits : b_.CreateOr(all, bits);
}

void Differences::WhereAny(llvm::function_ref<void(BasicBlock*)> other) {
  if (fours_ != nullptr) {
    AddBits(b_.CreateShuffleVector(fours_, {0, 1}));
    AddBits(b_.CreateShuffleVector(fours_, {2, 3}));
  }
  if (pairs_ != nullptr) AddBits(b_.CreateOrReduce(pairs_));
  if (words_ == nullptr) return;
  Value* any = b_.CreateICmpNE(words_, b_.getInt64(0));
  auto* known = llvm::dyn_cast<llvm::ConstantInt>(any);
  if (known != nullptr && known->isZero()) return;
  Function* fn = b_.GetInsertBlock()->getParent();
  llvm::LLVMContext& context = fn->getContext();
  auto* good = BasicBlock::Create(context, "good", fn);
  auto* bad = BasicBlock::Create(context, "bad", fn);
  b_.CreateCondBr(any, bad, good, llvm::MDBuilder(context).createUnlikelyBranchWeights());
  b_.SetInsertPoint(bad);
  other(good);
  b_.SetInsertPoint(good);
}

Constant* MakeCheckList(llvm::Module* module, const std::vector<Check>& checks) {
  ListBytes list(kListHeader + kCheckBytes * checks.size());
  list.Int32(static_cast<int64_t>(checks.size()));
  list.Int32(0);
  for (const Check& check : checks) {
    list.Int32(check.kind);
    list.Int32(check.tensor);
    list.Int32(check.place);
    list.Text(check.message);
    list.Int64(check.expected);
  }
  return list.Finish(module);
}

Constant* MakePackedList(llvm::Module* module, const std::string& count_message,
                         const std::string& interrupted_message,
                         const std::vector<PackedParam>& params) {
  ListBytes list(kPackedHeader + kPackedBytes * params.size());
  list.Int32(static_cast<int64_t>(params.size()));
  list.Text(count_message);
  list.Text(interrupted_message);
  for (const PackedParam& param : params) {
    list.Int32(param.letter);
    list.Text(param.type_message);
    list.Text(param.null_message);
  }
  return list.Finish(module);
}

void EmitReport(llvm::Module* module) { ReportEmitter(module).Emit(); }
void EmitCallPacked(llvm::Module* module) { CallPackedEmitter(module).Emit(); }

llvm::FunctionCallee SharedFunction(llvm::Module* module, const char* name,
                                    llvm::FunctionType* type) {
  llvm::FunctionCallee callee = module->getOrInsertFunction(name, type);
  auto* fn = llvm::cast<Function>(callee.getCallee());
  fn->setVisibility(llvm::GlobalValue::HiddenVisibility);
  fn->setDSOLocal(true);
  fn->setDoesNotThrow();
  return callee;
}

llvm::FunctionType* ReportType(llvm::LLVMContext& context) {
  auto* ptr = llvm::PointerType::getUnqual(context);
  return llvm::FunctionType::get(llvm::Type::getInt1Ty(context), {ptr, ptr, ptr, ptr}, false);
}

llvm::FunctionType* CallPackedType(llvm::LLVMContext& context) {
  auto* ptr = llvm::PointerType::getUnqual(context);
  auto* i32 = llvm::Type::getInt32Ty(context);
  return llvm::FunctionType::get(i32, {ptr, ptr, ptr, i32}, false);
}

}  // namespace relaxvm::codegen
