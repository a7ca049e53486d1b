// SPDX-License-Identifier: Apache-2.0
// One LLVM function for each plan.  A register is a slot of 16 bytes in the VM's stack; moves and
// counts of references are those of the interpreter (vm/value.h explains the widths of loads and
// stores).
#include "codegen/llvm/native.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/MDBuilder.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <unordered_map>

#include "codegen/llvm/emitter.h"
#include "support/error.h"
#include "target/native_abi.h"

namespace relaxvm::codegen {

using bytecode::NativeArg;
using bytecode::NativeOp;
using bytecode::NativeOpKind;
using bytecode::NativePlan;
using llvm::Value;

namespace {

static_assert(sizeof(TVMFFIAny) == 16 && sizeof(RelaxvmNativeCallee) == 32);
static_assert(offsetof(RelaxvmNativeContext, kernel) == 32);
static_assert(offsetof(RelaxvmNativeEnv, poll) == 40 && offsetof(RelaxvmNativeEnv, program) == 128);

constexpr uint64_t kSlotBytes = sizeof(TVMFFIAny);
constexpr uint64_t kObjectHeader = sizeof(TVMFFIObject);

std::string SymbolOf(const std::string& name, bool is_watched) {
  return kCompiledFunctionPrefix + name + (is_watched ? kWatchedSuffix : "");
}

class NativeEmitter {
 public:
  NativeEmitter(llvm::Module* module, const NativePlan& plan)
      : module_(module),
        plan_(plan),
        context_(module->getContext()),
        b_(context_),
        ptr_(b_.getPtrTy()),
        i32_(b_.getInt32Ty()),
        i64_(b_.getInt64Ty()),
        result_type_(llvm::StructType::get(i64_, i64_)) {}

  void Emit() {
    fn_ = Declare(SymbolOf(plan_.name, plan_.is_watched));
    allocas_ = NewBlock("entry");
    failed_ = NewBlock("failed");
    b_.SetInsertPoint(failed_);
    fail_at_ = b_.CreatePHI(i32_, 8, "at");
    fail_except_ = b_.CreatePHI(i32_, 8, "except");
    fail_op_ = b_.CreatePHI(i32_, 8, "op");
    b_.SetInsertPoint(allocas_);
    out_ = Alloca(llvm::ArrayType::get(b_.getInt8Ty(), kSlotBytes), 16);
    if (HasKernelCall()) {
      auto* type = llvm::ArrayType::get(i64_, std::max<uint32_t>(1, plan_.max_args));
      tensors_ = Alloca(type, 8);
      scalars_ = Alloca(type, 8);
    }
    constants_ = LoadInvariant(ptr_, Env(), offsetof(RelaxvmNativeEnv, constants));
    callees_ = LoadInvariant(ptr_, Env(), offsetof(RelaxvmNativeEnv, callees));
    Prologue();
    FindTargets();
    for (uint32_t i = 0; i < plan_.ops.size(); ++i) {
      if (!plan_.ops[i].is_reachable) continue;
      if (auto it = block_of_.find(i); it != block_of_.end()) {
        if (!b_.GetInsertBlock()->hasTerminator()) b_.CreateBr(it->second);
        b_.SetInsertPoint(it->second);
      }
      EmitOp(i);
    }
    EmitFailed();
  }

 private:
  // A register's words.
  struct Pair {
    Value* tag;
    Value* payload;
  };

  Value* Context() { return fn_->getArg(0); }
  Value* Env() { return fn_->getArg(1); }
  Value* Regs() { return fn_->getArg(2); }

  void Return(Pair value) {
    Value* both = llvm::PoisonValue::get(result_type_);
    both = b_.CreateInsertValue(both, value.tag, 0);
    b_.CreateRet(b_.CreateInsertValue(both, value.payload, 1));
  }
  void ReturnFailed() { Return({b_.getInt64(kNativeFailed), b_.getInt64(0)}); }

  // ---- small things

  llvm::Function* Declare(const std::string& symbol) {
    if (llvm::Function* known = module_->getFunction(symbol)) return known;
    auto* type = llvm::FunctionType::get(result_type_, {ptr_, ptr_, ptr_}, false);
    auto* fn = llvm::Function::Create(type, llvm::Function::ExternalLinkage, symbol, module_);
    fn->setVisibility(llvm::GlobalValue::HiddenVisibility);
    fn->setDSOLocal(true);
    fn->setDoesNotThrow();
    return fn;
  }

  llvm::BasicBlock* NewBlock(const char* name) {
    return llvm::BasicBlock::Create(context_, name, fn_);
  }

  Value* Alloca(llvm::Type* type, uint64_t alignment) {
    llvm::AllocaInst* memory = b_.CreateAlloca(type);
    memory->setAlignment(llvm::Align(alignment));
    return memory;
  }

  Value* Word(uint32_t value) { return b_.getInt32(value); }

  Value* Field(Value* base, uint64_t offset) {
    return offset == 0 ? base : b_.CreateConstInBoundsGEP1_64(b_.getInt8Ty(), base, offset);
  }
  llvm::LoadInst* LoadAt(llvm::Type* type, Value* base, uint64_t offset) {
    uint64_t align = type == i32_ ? 4 : 8;
    return b_.CreateAlignedLoad(type, Field(base, offset), llvm::Align(align));
  }
  Value* LoadInvariant(llvm::Type* type, Value* base, uint64_t offset) {
    llvm::LoadInst* load = LoadAt(type, base, offset);
    load->setMetadata(llvm::LLVMContext::MD_invariant_load, llvm::MDNode::get(context_, {}));
    return load;
  }
  void StoreAt(Value* value, Value* base, uint64_t offset) {
    b_.CreateAlignedStore(value, Field(base, offset),
                          llvm::Align(value->getType() == i32_ ? 4 : 8));
  }

  Value* Slot(uint64_t index) { return Field(Regs(), index * kSlotBytes); }
  // Above the registers: arguments of calls, registers of callees.
  Value* Scratch(uint64_t index) { return Slot(plan_.num_slots + index); }

  // Unordered atomics: two accesses of 8 bytes stay that, so a value is read as it was written, and
  // what was just stored needs no load.
  Pair Load(Value* slot) {
    llvm::LoadInst* tag = LoadAt(i64_, slot, 0);
    llvm::LoadInst* payload = LoadAt(i64_, slot, 8);
    tag->setAtomic(llvm::AtomicOrdering::Unordered);
    payload->setAtomic(llvm::AtomicOrdering::Unordered);
    return {tag, payload};
  }
  void Store(Value* slot, Pair value) {
    for (auto [part, offset] : {std::pair{value.tag, 0u}, {value.payload, 8u}}) {
      b_.CreateAlignedStore(part, Field(slot, offset), llvm::Align(8))
          ->setAtomic(llvm::AtomicOrdering::Unordered);
    }
  }
  // As whoever is called reads it: in one piece.
  void StoreArgument(Value* slot, Pair value) {
    auto* type = llvm::FixedVectorType::get(i64_, 2);
    Value* both = b_.CreateInsertElement(llvm::PoisonValue::get(type), value.tag, uint64_t{0});
    both = b_.CreateInsertElement(both, value.payload, uint64_t{1});
    b_.CreateAlignedStore(both, slot, llvm::Align(8));
  }
  // As whoever was called may have written it: in parts.
  Pair LoadResult() {
    auto part = [&](llvm::Type* type, uint64_t offset) {
      llvm::LoadInst* load = LoadAt(type, out_, offset);
      load->setVolatile(true);
      return load;
    };
    Value* low = b_.CreateZExt(part(i32_, 0), i64_);
    Value* high = b_.CreateShl(b_.CreateZExt(part(i32_, 4), i64_), b_.getInt64(32));
    Value* payload = part(i64_, 8);
    return {b_.CreateOr(low, high), payload};
  }
  // In one piece: a part that is read later must not look as if it came from here.
  void ClearResult() {
    auto* type = llvm::FixedVectorType::get(i64_, 2);
    b_.CreateAlignedStore(llvm::Constant::getNullValue(type), out_, llvm::Align(16));
  }

  Pair None() { return {b_.getInt64(0), b_.getInt64(0)}; }
  Pair Tagged(int32_t type_index, Value* payload) {
    return {b_.getInt64(static_cast<uint32_t>(type_index)), payload};
  }

  Value* IsObject(Value* tag) {
    return b_.CreateICmpSGE(b_.CreateTrunc(tag, i32_), Word(kTVMFFIStaticObjectBegin));
  }

  void When(Value* condition, bool is_likely, llvm::function_ref<void()> body) {
    auto *then = NewBlock("then"), *next = NewBlock("next");
    Branch(condition, then, next, is_likely);
    b_.SetInsertPoint(then);
    body();
    if (!b_.GetInsertBlock()->hasTerminator()) b_.CreateBr(next);
    b_.SetInsertPoint(next);
  }

  void Branch(Value* condition, llvm::BasicBlock* yes, llvm::BasicBlock* no, bool is_likely) {
    llvm::MDNode* weights =
        llvm::MDBuilder(context_).createBranchWeights(is_likely ? 1000 : 1, is_likely ? 1 : 1000);
    b_.CreateCondBr(condition, yes, no, weights);
  }

  void Retain(Pair value) {
    When(IsObject(value.tag), true, [&] {
      Value* object = b_.CreateIntToPtr(value.payload, ptr_);
      b_.CreateAtomicRMW(llvm::AtomicRMWInst::Add, object, b_.getInt64(1), llvm::Align(8),
                         llvm::AtomicOrdering::Monotonic);
    });
  }
  void Drop(Pair value) {
    When(IsObject(value.tag), true, [&] {
      CallEnv(b_.getVoidTy(), offsetof(RelaxvmNativeEnv, drop),
              {b_.CreateIntToPtr(value.payload, ptr_)});
    });
  }

  Value* CallEnv(llvm::Type* result, uint64_t offset, std::vector<Value*> args) {
    std::vector<llvm::Type*> types;
    for (Value* arg : args) types.push_back(arg->getType());
    Value* code = LoadInvariant(ptr_, Env(), offset);
    return b_.CreateCall(llvm::FunctionType::get(result, types, false), code, args);
  }

  // ---- frame

  bool HasKernelCall() const {
    return std::any_of(plan_.ops.begin(), plan_.ops.end(), [](const NativeOp& op) {
      return op.is_reachable && op.kind == NativeOpKind::kCallKernel;
    });
  }

  void Prologue() {
    auto *overflow = NewBlock("overflow"), *body = NewBlock("body");
    Value* end = Slot(plan_.num_slots + plan_.max_args + 1);
    Value* limit = LoadAt(ptr_, Context(), offsetof(RelaxvmNativeContext, limit));
    Value* is_full = b_.CreateICmpUGT(end, limit);
    Value* least = LoadAt(ptr_, Context(), offsetof(RelaxvmNativeContext, stack_limit));
    Branch(b_.CreateOr(is_full, b_.CreateICmpULT(out_, least)), overflow, body, false);
    b_.SetInsertPoint(overflow);
    CallEnv(i32_, offsetof(RelaxvmNativeEnv, overflow), {Env(), Word(plan_.func)});
    for (uint32_t i = 0; i < plan_.num_params; ++i) Drop(Load(Slot(i)));
    ReturnFailed();
    b_.SetInsertPoint(body);
    for (uint32_t slot : plan_.entry_drops) Drop(Load(Slot(slot)));
    for (uint32_t slot : plan_.entry_nulls) Store(Slot(slot), None());
  }

  void FindTargets() {
    for (const NativeOp& op : plan_.ops) {
      bool jumps = op.kind == NativeOpKind::kIf || op.kind == NativeOpKind::kGoto ||
                   op.kind == NativeOpKind::kGotoBack;
      if (op.is_reachable && jumps) block_of_.try_emplace(op.target, nullptr);
    }
    for (auto& [at, block] : block_of_) block = NewBlock("target");
  }

  // To the common end when `code` is not 0.  `is_suspended`: the call took its arguments.
  void FailIf(Value* is_failed, uint32_t at, bool is_suspended = false) {
    auto* next = NewBlock("next");
    auto* from = b_.GetInsertBlock();
    Branch(is_failed, failed_, next, false);
    int32_t dst = plan_.ops[at].dst;
    fail_at_->addIncoming(Word(is_suspended ? at + 1 : at), from);
    fail_except_->addIncoming(Word(is_suspended ? static_cast<uint32_t>(dst) : UINT32_MAX), from);
    fail_op_->addIncoming(Word(at), from);
    b_.SetInsertPoint(next);
  }
  void FailIfNot0(Value* code, uint32_t at, bool is_suspended = false) {
    FailIf(b_.CreateICmpNE(code, Word(0)), at, is_suspended);
  }

  void EmitFailed() {
    b_.SetInsertPoint(failed_);
    if (fail_at_->getNumIncomingValues() == 0) {  // nothing can fail
      fail_at_->eraseFromParent();
      fail_except_->eraseFromParent();
      fail_op_->eraseFromParent();
      failed_->eraseFromParent();
      return;
    }
    std::vector<uint32_t> words = {plan_.func, static_cast<uint32_t>(plan_.live_ranges.size())};
    for (const bytecode::NativeRange& range : plan_.live_ranges)
      words.insert(words.end(), {range.slot, range.from, range.to});
    for (const NativeOp& op : plan_.ops) words.push_back(op.source);
    auto* data = llvm::ConstantDataArray::get(context_, words);
    auto* table = new llvm::GlobalVariable(*module_, data->getType(), true,
                                           llvm::GlobalValue::PrivateLinkage, data, "live");
    CallEnv(b_.getVoidTy(), offsetof(RelaxvmNativeEnv, unwind),
            {Context(), Env(), Regs(), table, fail_at_, fail_except_, fail_op_});
    ReturnFailed();
  }

  // ---- operands

  Pair ArgValue(const NativeArg& arg) {
    auto in_pool = [&](Value* pool) { return Load(Field(pool, Offset(arg.value))); };
    switch (arg.kind) {
      case NativeArg::Kind::kSlot: return Load(Slot(static_cast<uint64_t>(arg.value)));
      case NativeArg::Kind::kConstant: return in_pool(constants_);
      case NativeArg::Kind::kFunction:
        return in_pool(LoadInvariant(ptr_, Env(), offsetof(RelaxvmNativeEnv, func_pool)));
      case NativeArg::Kind::kImmediate:
        return Tagged(kTVMFFIInt, b_.getInt64(static_cast<uint64_t>(arg.value)));
      case NativeArg::Kind::kVM:
        return Tagged(kTVMFFIOpaquePtr, LoadInvariant(i64_, Env(), offsetof(RelaxvmNativeEnv, vm)));
      case NativeArg::Kind::kVMModule:
        return Tagged(kTVMFFIModule,
                      LoadInvariant(i64_, Env(), offsetof(RelaxvmNativeEnv, vm_module)));
      case NativeArg::Kind::kNone: return None();
    }
    RELAXVM_UNREACHABLE();
  }
  static uint64_t Offset(int64_t place) { return static_cast<uint64_t>(place) * kSlotBytes; }

  // Borrowed, into the scratch slots; callees find free room above them.  Right after the operation
  // before, so that its result comes from machine registers.
  Value* Gather(const NativeOp& op) {
    for (size_t i = 0; i < op.args.size(); ++i) StoreArgument(Scratch(i), ArgValue(op.args[i]));
    StoreAt(Scratch(op.args.size()), Context(), offsetof(RelaxvmNativeContext, top));
    return Scratch(0);
  }

  // Owned, into the registers of a callee: what is not used again is moved.
  void GatherOwned(const NativeOp& op) {
    for (size_t i = 0; i < op.args.size(); ++i) {
      Pair value = ArgValue(op.args[i]);
      bool is_counted = op.args[i].kind == NativeArg::Kind::kSlot ||
                        op.args[i].kind == NativeArg::Kind::kConstant ||
                        op.args[i].kind == NativeArg::Kind::kFunction ||
                        op.args[i].kind == NativeArg::Kind::kVMModule;
      if (is_counted && !op.args[i].is_last_use) Retain(value);
      Store(Scratch(i), value);
    }
  }

  void DropArgs(const NativeOp& op) {
    for (const NativeArg& arg : op.args) {
      if (arg.kind == NativeArg::Kind::kSlot && arg.is_last_use)
        Drop(Load(Slot(static_cast<uint64_t>(arg.value))));
    }
  }

  void StoreDst(const NativeOp& op, Pair value) {
    if (op.dst >= 0) {
      Store(Slot(static_cast<uint64_t>(op.dst)), value);
    } else if (!llvm::isa<llvm::Constant>(value.tag)) {
      Drop(value);
    }
  }

  void Poll(uint32_t at) {
    constexpr uint64_t kTicks = offsetof(RelaxvmNativeContext, ticks);
    Value* ticks = b_.CreateSub(LoadAt(i32_, Context(), kTicks), Word(1));
    StoreAt(ticks, Context(), kTicks);
    When(b_.CreateICmpSLT(ticks, Word(0)), false,
         [&] { FailIfNot0(CallEnv(i32_, offsetof(RelaxvmNativeEnv, poll), {Context()}), at); });
  }

  // ---- operations

  void EmitOp(uint32_t at) {
    const NativeOp& op = plan_.ops[at];
    switch (op.kind) {
      case NativeOpKind::kCallPacked: return EmitCallPacked(op, at);
      case NativeOpKind::kCallBuiltin: return EmitCallBuiltin(op, at);
      case NativeOpKind::kCallKernel: return EmitCallKernel(op, at);
      case NativeOpKind::kCallNative: return EmitCallNative(op, at);
      case NativeOpKind::kTailCallNative: return EmitTailCall(op, at);
      case NativeOpKind::kWatchedTailCall: return EmitWatchedTailCall(op, at);
      case NativeOpKind::kCallAny: return EmitCallAny(op, at);
      case NativeOpKind::kInvoke: return EmitInvoke(op, at);
      case NativeOpKind::kMakeFunc:
        if (op.dst < 0) return;
        ClearResult();
        CallEnv(b_.getVoidTy(), offsetof(RelaxvmNativeEnv, make_func),
                {Env(), Word(op.func), out_});
        return StoreDst(op, LoadResult());
      case NativeOpKind::kNull:
        if (op.dst >= 0) StoreDst(op, None());
        return;
      case NativeOpKind::kCopy: return EmitCopy(op);
      case NativeOpKind::kMove: return StoreDst(op, ArgValue(op.args[0]));
      case NativeOpKind::kReadCond: return EmitReadCond(op, at);
      case NativeOpKind::kIf: return EmitIf(op, at);
      case NativeOpKind::kGoto: b_.CreateBr(block_of_.at(op.target)); return;
      case NativeOpKind::kGotoBack:
        Poll(at);
        b_.CreateBr(block_of_.at(op.target));
        return;
      case NativeOpKind::kRet: return EmitRet(op);
    }
  }

  void EmitCopy(const NativeOp& op) {
    if (op.dst < 0) return DropArgs(op);
    Pair value = ArgValue(op.args[0]);
    Retain(value);
    StoreDst(op, value);
  }

  // After a call that borrowed its arguments and wrote `out_`.
  void Finish(const NativeOp& op, uint32_t at, Value* code) {
    FailIfNot0(code, at);
    DropArgs(op);
    StoreDst(op, LoadResult());
  }

  Value* Callee(const NativeOp& op, uint64_t offset) {
    return LoadInvariant(ptr_, callees_, op.func * sizeof(RelaxvmNativeCallee) + offset);
  }

  Value* NumArgs(const NativeOp& op) { return Word(static_cast<uint32_t>(op.args.size())); }

  void EmitCallPacked(const NativeOp& op, uint32_t at) {
    Value* args = Gather(op);
    ClearResult();
    Poll(at);
    auto* type = llvm::FunctionType::get(i32_, {ptr_, ptr_, i32_, ptr_}, false);
    Value* self = Callee(op, offsetof(RelaxvmNativeCallee, self));
    Finish(op, at,
           b_.CreateCall(type, Callee(op, offsetof(RelaxvmNativeCallee, safe_call)),
                         {self, args, NumArgs(op), out_}));
  }

  void EmitCallBuiltin(const NativeOp& op, uint32_t at) {
    Value* args = Gather(op);
    ClearResult();
    auto* type = llvm::FunctionType::get(i32_, {ptr_, ptr_, i32_, ptr_}, false);
    Finish(op, at,
           b_.CreateCall(type, Callee(op, offsetof(RelaxvmNativeCallee, builtin)),
                         {Context(), args, NumArgs(op), out_}));
  }

  void EmitCallAny(const NativeOp& op, uint32_t at) {
    Value* args = Gather(op);
    ClearResult();
    Poll(at);
    Finish(op, at,
           CallEnv(i32_, offsetof(RelaxvmNativeEnv, call),
                   {Context(), Env(), Word(op.func), args, NumArgs(op), out_}));
  }

  void EmitInvoke(const NativeOp& op, uint32_t at) {
    Value* args = Gather(op);
    ClearResult();
    Poll(at);
    Finish(op, at,
           CallEnv(i32_, offsetof(RelaxvmNativeEnv, invoke), {Context(), args, NumArgs(op), out_}));
  }

  // Tensors first, then scalars; anything unusual goes through the VM.
  void EmitCallKernel(const NativeOp& op, uint32_t at) {
    Poll(at);
    auto *slow = NewBlock("slow"), *failed = NewBlock("kernel_failed"), *done = NewBlock("done");
    Value* is_usual = b_.getTrue();
    for (size_t i = 0; i < op.args.size(); ++i) {
      const NativeArg& arg = op.args[i];
      Pair value = ArgValue(arg);
      Value* tag = b_.CreateTrunc(value.tag, i32_);
      auto is = [&](TVMFFITypeIndex index) {
        return b_.CreateICmpEQ(tag, Word(static_cast<uint32_t>(index)));
      };
      if (i < op.num_tensors) {
        is_usual = is(kTVMFFITensor);
        Value* object = b_.CreateIntToPtr(value.payload, ptr_);
        auto* look = NewBlock("tensor");
        Branch(is_usual, look, slow, true);
        b_.SetInsertPoint(look);
        Value* tensor = Field(object, kObjectHeader);
        StoreAt(tensor, tensors_, 8 * i);
        auto* next = NewBlock("on_cpu");
        Value* device = LoadAt(i64_, tensor, offsetof(DLTensor, device));        // kind and index
        Branch(b_.CreateICmpEQ(device, b_.getInt64(kDLCPU)), next, slow, true);  // cpu(0)
        b_.SetInsertPoint(next);
        continue;
      }
      Value* bits = value.payload;
      Value* is_int = b_.CreateOr(is(kTVMFFIInt), is(kTVMFFIBool));
      if (arg.is_float) {
        Value* number = b_.CreateBitCast(b_.CreateSIToFP(bits, b_.getDoubleTy()), i64_);
        bits = b_.CreateSelect(is_int, number, bits);
        is_usual = b_.CreateOr(is_int, is(kTVMFFIFloat));
      } else {
        is_usual = is_int;
      }
      StoreAt(bits, scalars_, 8 * (i - op.num_tensors));
      if (llvm::isa<llvm::Constant>(is_usual)) continue;
      auto* next = NewBlock("number");
      Branch(is_usual, next, slow, true);
      b_.SetInsertPoint(next);
    }
    auto* type = llvm::FunctionType::get(i32_, {ptr_, ptr_, ptr_}, false);
    auto kernel = module_->getOrInsertFunction(kDirectPrefix + plan_.function_names[op.func], type);
    auto* symbol = llvm::cast<llvm::Function>(kernel.getCallee());
    symbol->setVisibility(llvm::GlobalValue::HiddenVisibility);
    symbol->setDSOLocal(true);
    StoreAt(Scratch(op.args.size()), Context(), offsetof(RelaxvmNativeContext, top));
    Value* host = Field(Context(), offsetof(RelaxvmNativeContext, kernel));
    Value* code = b_.CreateCall(kernel, {host, tensors_, scalars_});
    Branch(b_.CreateICmpEQ(code, Word(0)), done, failed, true);
    auto report = [&](llvm::BasicBlock* block, uint64_t offset) {
      b_.SetInsertPoint(block);
      Value* args = Gather(op);
      FailIfNot0(
          CallEnv(i32_, offset,
                  {Context(), Env(), Word(op.func), Word(op.num_tensors), args, NumArgs(op)}),
          at);
      b_.CreateBr(done);
    };
    report(slow, offsetof(RelaxvmNativeEnv, kernel_slowly));
    report(failed, offsetof(RelaxvmNativeEnv, kernel_failed));
    b_.SetInsertPoint(done);
    DropArgs(op);
    if (op.dst >= 0) StoreDst(op, None());
  }

  llvm::Function* NativeCallee(const NativeOp& op) {
    return Declare(SymbolOf(plan_.function_names[op.func], plan_.is_watched));
  }

  void EmitCallNative(const NativeOp& op, uint32_t at) {
    Poll(at);
    GatherOwned(op);
    Value* both = b_.CreateCall(NativeCallee(op), {Context(), Env(), Scratch(0)});
    Pair value{b_.CreateExtractValue(both, 0), b_.CreateExtractValue(both, 1)};
    FailIf(b_.CreateICmpEQ(value.tag, b_.getInt64(kNativeFailed)), at, /*is_suspended=*/true);
    StoreDst(op, value);
  }

  // In place of this function: loops written as recursion need no more stack than one call.
  void EmitTailCall(const NativeOp& op, uint32_t at) {
    Poll(at);
    ReplaceFrame(op);
  }

  void EmitWatchedTailCall(const NativeOp& op, uint32_t at) {
    Poll(at);
    Value* args = Gather(op);
    Value* action = CallEnv(i32_, offsetof(RelaxvmNativeEnv, before_tail_call),
                            {Context(), Env(), Word(op.func), args, NumArgs(op)});
    FailIf(b_.CreateICmpSLT(action, Word(0)), at);
    auto *skip = NewBlock("skip"), *call = NewBlock("call");
    Branch(b_.CreateICmpEQ(action, Word(0)), call, skip, true);
    b_.SetInsertPoint(skip);
    DropArgs(op);
    Return(None());
    b_.SetInsertPoint(call);
    ReplaceFrame(op);
  }

  void ReplaceFrame(const NativeOp& op) {
    GatherOwned(op);
    for (size_t i = 0; i < op.args.size(); ++i) Store(Slot(i), Load(Scratch(i)));
    llvm::CallInst* call = b_.CreateCall(NativeCallee(op), {Context(), Env(), Regs()});
    call->setTailCallKind(llvm::CallInst::TCK_MustTail);
    b_.CreateRet(call);
  }

  void EmitRet(const NativeOp& op) {
    const NativeArg& arg = op.args[0];
    Pair value = ArgValue(arg);
    if (arg.kind == NativeArg::Kind::kConstant) Retain(value);
    Return(value);
  }

  Value* IsPlainCondition(Pair value) {
    Value* tag = b_.CreateTrunc(value.tag, i32_);
    return b_.CreateOr(b_.CreateICmpEQ(tag, Word(kTVMFFIInt)),
                       b_.CreateICmpEQ(tag, Word(kTVMFFIBool)));
  }

  void EmitReadCond(const NativeOp& op, uint32_t at) {
    Pair value = ArgValue(op.args[0]);
    auto *plain = NewBlock("plain"), *other = NewBlock("other"), *done = NewBlock("done");
    Branch(IsPlainCondition(value), plain, other, true);
    b_.SetInsertPoint(plain);
    Value* truth = b_.CreateZExt(b_.CreateICmpNE(value.payload, b_.getInt64(0)), i64_);
    b_.CreateBr(done);
    b_.SetInsertPoint(other);
    Value* slot = Gather(op);
    Value* code = CallEnv(i32_, offsetof(RelaxvmNativeEnv, read_condition), {slot});
    FailIf(b_.CreateICmpSLT(code, Word(0)), at);
    Value* other_truth = b_.CreateZExt(code, i64_);
    auto* from = b_.GetInsertBlock();
    b_.CreateBr(done);
    b_.SetInsertPoint(done);
    llvm::PHINode* both = b_.CreatePHI(i64_, 2);
    both->addIncoming(truth, plain);
    both->addIncoming(other_truth, from);
    DropArgs(op);
    if (op.dst >= 0) StoreDst(op, Tagged(kTVMFFIBool, both));
  }

  void EmitIf(const NativeOp& op, uint32_t at) {
    Pair value = ArgValue(op.args[0]);
    auto *plain = NewBlock("plain"), *other = NewBlock("other"), *next = NewBlock("true");
    Branch(IsPlainCondition(value), plain, other, true);
    b_.SetInsertPoint(other);
    Value* slot = Gather(op);
    FailIfNot0(CallEnv(i32_, offsetof(RelaxvmNativeEnv, bad_condition), {slot}), at);
    b_.CreateBr(plain);
    b_.SetInsertPoint(plain);
    auto* on_false = op.drop_on_false.empty() ? block_of_.at(op.target) : NewBlock("false");
    b_.CreateCondBr(b_.CreateICmpNE(value.payload, b_.getInt64(0)), next, on_false);
    if (!op.drop_on_false.empty()) {
      b_.SetInsertPoint(on_false);
      for (uint32_t register_of : op.drop_on_false) Drop(Load(Slot(register_of)));
      b_.CreateBr(block_of_.at(op.target));
    }
    b_.SetInsertPoint(next);
    for (uint32_t register_of : op.drop_on_true) Drop(Load(Slot(register_of)));
  }

  llvm::Module* module_;
  const NativePlan& plan_;
  llvm::LLVMContext& context_;
  llvm::IRBuilder<> b_;
  llvm::Type* ptr_;
  llvm::Type* i32_;
  llvm::Type* i64_;
  llvm::StructType* result_type_;
  llvm::Function* fn_ = nullptr;
  llvm::BasicBlock* allocas_ = nullptr;
  llvm::BasicBlock* failed_ = nullptr;
  llvm::PHINode *fail_at_ = nullptr, *fail_except_ = nullptr, *fail_op_ = nullptr;
  Value *out_ = nullptr, *tensors_ = nullptr, *scalars_ = nullptr;
  Value *constants_ = nullptr, *callees_ = nullptr;
  std::unordered_map<uint32_t, llvm::BasicBlock*> block_of_;
};

}  // namespace

std::string NativeSymbol(const NativePlan& plan) { return SymbolOf(plan.name, plan.is_watched); }

void EmitNativeFunction(const NativePlan& plan, llvm::Module* module) {
  NativeEmitter(module, plan).Emit();
}

}  // namespace relaxvm::codegen
