// SPDX-License-Identifier: Apache-2.0
// `__relaxvm_kernel_table`, `__relaxvm_kernel_context`, what entries share, and the serial host: a
// loop runs its task at once, workspaces come from an arena on the stack, errors go to tvm-ffi.
#include "codegen/llvm/table.h"

#include <llvm/IR/IRBuilder.h>

#include "codegen/llvm/checks.h"
#include "codegen/llvm/emitter.h"
#include "support/error.h"
#include "target/native_abi.h"

namespace relaxvm::codegen {
namespace {

using llvm::Constant;
using llvm::Function;
using llvm::Value;

constexpr uint64_t kArenaBytes = 256 << 10;

class TableEmitter {
 public:
  TableEmitter(llvm::Module* module)
      : module_(module),
        b_(module->getContext()),
        ptr_(b_.getPtrTy()),
        i32_(b_.getInt32Ty()),
        i64_(b_.getInt64Ty()) {}

  void Emit(const Compiler& compiler, const std::vector<TableRow>& rows) {
    auto* context = new llvm::GlobalVariable(
        *module_, ptr_, false, llvm::GlobalValue::ExternalLinkage, Null(), kKernelContextSymbol);
    context->setAlignment(llvm::Align(8));
    EmitRaise();
    EmitCallSerially(EmitParallel(), EmitAlloc(), EmitFree());
    EmitReport(module_);
    EmitCallPacked(module_);
    EmitRows(compiler, rows);
  }

 private:
  Constant* Null() { return Constant::getNullValue(ptr_); }
  Constant* Text(const std::string& text) {
    return b_.CreateGlobalString(text, "text", 0, module_);
  }

  Function* Begin(const char* name, llvm::Type* result, llvm::ArrayRef<llvm::Type*> params,
                  bool internal) {
    auto* type = llvm::FunctionType::get(result, params, false);
    auto* fn = Function::Create(
        type, internal ? Function::InternalLinkage : Function::ExternalLinkage, name, module_);
    if (!internal) fn->setVisibility(llvm::GlobalValue::HiddenVisibility);
    b_.SetInsertPoint(llvm::BasicBlock::Create(module_->getContext(), "entry", fn));
    return fn;
  }
  llvm::BasicBlock* Block(Function* fn, const char* name) {
    return llvm::BasicBlock::Create(module_->getContext(), name, fn);
  }
  Value* Field(Value* base, uint64_t offset) {
    return b_.CreateConstInBoundsGEP1_64(b_.getInt8Ty(), base, offset);
  }
  Value* Load(llvm::Type* type, Value* base, uint64_t offset) {
    return b_.CreateAlignedLoad(type, Field(base, offset), llvm::Align(4));
  }

  // tvm-ffi's function to record an error: put into our slot by a host that registers it, else
  // found among the symbols of the process when tvm-ffi's library is there.
  void EmitRaise() {
    auto* type = llvm::FunctionType::get(b_.getVoidTy(), {ptr_, ptr_}, false);
    auto* slot = new llvm::GlobalVariable(*module_, ptr_, false, llvm::GlobalValue::ExternalLinkage,
                                          Null(), "__TVMFFIErrorSetRaisedFromCStr");
    auto* library = Function::Create(type, Function::ExternalWeakLinkage,
                                     "TVMFFIErrorSetRaisedFromCStr", module_);
    Function* fn = Begin(kRaiseSymbol, b_.getVoidTy(), {ptr_, ptr_, ptr_}, false);
    auto *call = Block(fn, "call"), *done = Block(fn, "done");
    Value* given = b_.CreateAlignedLoad(ptr_, slot, llvm::Align(8));
    Value* raise = b_.CreateSelect(b_.CreateIsNotNull(given), given, library);
    b_.CreateCondBr(b_.CreateIsNotNull(raise), call, done);
    b_.SetInsertPoint(call);
    b_.CreateCall(type, raise, {fn->getArg(1), fn->getArg(2)});
    b_.CreateBr(done);
    b_.SetInsertPoint(done);
    b_.CreateRetVoid();
  }

  // The arena behind context->host: { bytes in use, 56 bytes of padding, memory }.
  Function* EmitAlloc() {
    Function* fn = Begin("relaxvm.alloc", ptr_, {ptr_, i64_}, true);
    auto *fits = Block(fn, "fits"), *full = Block(fn, "full");
    Value* arena = Load(ptr_, fn->getArg(0), 56);
    Value* used = Load(i64_, arena, 0);
    Value* left = b_.CreateSub(b_.getInt64(kArenaBytes), used);
    b_.CreateCondBr(b_.CreateICmpULE(fn->getArg(1), left), fits, full);
    b_.SetInsertPoint(fits);
    Value* size =
        b_.CreateAnd(b_.CreateAdd(fn->getArg(1), b_.getInt64(63)), b_.getInt64(~uint64_t{63}));
    b_.CreateStore(b_.CreateAdd(used, size), arena);
    b_.CreateRet(b_.CreateGEP(b_.getInt8Ty(), Field(arena, 64), used));
    b_.SetInsertPoint(full);
    b_.CreateRet(Null());
    return fn;
  }

  // Kernels free in the reverse order of allocation.
  Function* EmitFree() {
    Function* fn = Begin("relaxvm.free", b_.getVoidTy(), {ptr_, ptr_}, true);
    Value* arena = Load(ptr_, fn->getArg(0), 56);
    Value* used = b_.CreatePtrDiff(b_.getInt8Ty(), fn->getArg(1), Field(arena, 64));
    b_.CreateStore(used, arena);
    b_.CreateRetVoid();
    return fn;
  }

  Function* EmitParallel() {
    Function* fn = Begin("relaxvm.parallel", i32_, {ptr_, ptr_, ptr_, i64_, i64_}, true);
    auto* task = llvm::FunctionType::get(i32_, {ptr_, ptr_, i64_, i64_}, false);
    b_.CreateRet(b_.CreateCall(task, fn->getArg(1),
                               {fn->getArg(0), fn->getArg(2), b_.getInt64(0), fn->getArg(3)}));
    return fn;
  }

  void EmitCallSerially(Function* parallel, Function* alloc, Function* free) {
    Function* fn = Begin(kCallSeriallySymbol, i32_, {ptr_, ptr_, ptr_}, false);
    fn->addFnAttr(llvm::Attribute::NoInline);
    auto bytes = [&](uint64_t size) {
      llvm::AllocaInst* memory = b_.CreateAlloca(llvm::ArrayType::get(b_.getInt8Ty(), size));
      memory->setAlignment(llvm::Align(64));
      return memory;
    };
    Value* context = bytes(sizeof(RelaxvmKernelContext));
    Value* arena = bytes(kArenaBytes + 64);
    auto set = [&](uint64_t offset, Value* v) { b_.CreateStore(v, Field(context, offset)); };
    b_.CreateStore(b_.getInt64(0), arena);
    set(0, b_.getInt32(kKernelAbiVersion));
    set(4, b_.getInt32(1));
    set(8, parallel);
    set(16, alloc);
    set(24, free);
    set(32, module_->getFunction(kRaiseSymbol));
    set(40, Null());
    set(48, Null());
    set(56, arena);
    auto* direct = llvm::FunctionType::get(i32_, {ptr_, ptr_, ptr_}, false);
    b_.CreateRet(b_.CreateCall(direct, fn->getArg(0), {context, fn->getArg(1), fn->getArg(2)}));
  }

  // The packed entry of compiled functions: they work on the registers of a VM.
  Function* OnlyInside() {
    if (only_inside_ != nullptr) return only_inside_;
    only_inside_ = Begin("relaxvm.only_inside", i32_, {ptr_, ptr_, i32_, ptr_}, true);
    b_.CreateCall(
        module_->getFunction(kRaiseSymbol),
        {Null(), Text("TypeError"),
         Text("a compiled Relax function can only be called by a relaxvm.VirtualMachine")});
    b_.CreateRet(b_.getInt32(static_cast<uint32_t>(kKernelError)));
    return only_inside_;
  }

  void EmitRows(const Compiler& compiler, const std::vector<TableRow>& rows) {
    auto* direct_type = llvm::FunctionType::get(i32_, {ptr_, ptr_, ptr_}, false);
    auto* packed_type = llvm::FunctionType::get(i32_, {ptr_, ptr_, i32_, ptr_}, false);
    auto* row_type = llvm::StructType::get(ptr_, ptr_, ptr_, ptr_);
    std::vector<Constant*> entries;
    for (const TableRow& row : rows) {
      if (row.params == kNativeParams) {
        auto* type = llvm::FunctionType::get(b_.getVoidTy(), {}, false);  // by address alone
        auto* code = Function::Create(type, Function::ExternalLinkage, row.name, module_);
        code->setVisibility(llvm::GlobalValue::HiddenVisibility);
        entries.push_back(llvm::ConstantStruct::get(
            row_type, {Text(row.name), Text(row.params), code, OnlyInside()}));
        continue;
      }
      auto* direct = Function::Create(direct_type, Function::ExternalLinkage,
                                      kDirectPrefix + row.name, module_);
      direct->setVisibility(llvm::GlobalValue::HiddenVisibility);
      auto* packed = Function::Create(packed_type, Function::ExternalLinkage,
                                      kPackedPrefix + row.name, module_);
      entries.push_back(
          llvm::ConstantStruct::get(row_type, {Text(row.name), Text(row.params), direct, packed}));
    }
    auto* array = llvm::ConstantArray::get(llvm::ArrayType::get(row_type, entries.size()), entries);
    auto* kernels = new llvm::GlobalVariable(*module_, array->getType(), true,
                                             llvm::GlobalValue::PrivateLinkage, array, "kernels");
    static_assert(sizeof(RelaxvmKernelTable) == 40);
    auto* table = llvm::ConstantStruct::getAnon(
        {b_.getInt32(kKernelAbiVersion), b_.getInt32(static_cast<uint32_t>(rows.size())), kernels,
         Text(compiler.triple()), Text(compiler.cpu()), Text(compiler.features())});
    new llvm::GlobalVariable(*module_, table->getType(), true, llvm::GlobalValue::ExternalLinkage,
                             table, kKernelTableSymbol);
    std::string lines;
    for (const TableRow& row : rows) {
      if (!row.work.empty()) lines += row.name + "\t" + row.work + "\n";
    }
    auto* work = llvm::ConstantDataArray::getString(module_->getContext(), lines);
    new llvm::GlobalVariable(*module_, work->getType(), true, llvm::GlobalValue::ExternalLinkage,
                             work, kKernelWorkSymbol);
  }

  llvm::Module* module_;
  llvm::IRBuilder<> b_;
  llvm::Type* ptr_;
  llvm::Type* i32_;
  llvm::Type* i64_;
  Function* only_inside_ = nullptr;
};

}  // namespace

std::string EmitTable(const Compiler& compiler, const std::vector<TableRow>& rows, Effort effort) {
  Compiler::Unit unit = compiler.NewUnit("relaxvm.table");
  TableEmitter(unit.module.get()).Emit(compiler, rows);
  compiler.Prepare(unit.module.get());
  compiler.Optimize(unit.module.get(), effort);
  return compiler.EmitObject(unit.module.get());
}

}  // namespace relaxvm::codegen
