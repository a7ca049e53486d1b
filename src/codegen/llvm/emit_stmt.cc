// SPDX-License-Identifier: Apache-2.0
// Statements: stores, loops, conditions, allocation.
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/MDBuilder.h>

#include <algorithm>
#include <string>

#include "codegen/llvm/emitter.h"
#include "support/error.h"
#include "target/kernel_abi.h"
#include "tir/address.h"

namespace relaxvm::codegen {

using llvm::Value;
using tir::ForKind;

namespace {

// Above this a "local" buffer comes from the workspace: stacks of worker threads are small.
constexpr int64_t kMaxStackBytes = 64 << 10;
// Temporaries up to this size need no call of the host.
constexpr int64_t kMaxSmallBytes = 1 << 10;
// An unrolled loop is emitted as often as it runs; above this it stays a loop.
constexpr int64_t kMaxUnroll = 4096;
// Annotation of a serial loop: a load whose cache line is fetched in each iteration.
constexpr const char* kPrefetch = "prefetch";
constexpr const char* kPrefetchNear = "prefetch_near";

// Bytes of a buffer of constant shape, or -1.
int64_t ConstantBytes(const tir::BufferTypeObj* type) {
  int64_t elems = 1;
  for (const ir::Expr& dim : type->shape) {
    ffi::Optional<int64_t> size = ir::AsInt(dim);
    if (!size.has_value() || size.value() < 0) return -1;
    if (__builtin_mul_overflow(elems, size.value(), &elems)) return -1;
  }
  int64_t bytes = 0;
  return __builtin_mul_overflow(elems, SizeInBytes(type->dtype), &bytes) ? -1 : bytes;
}

}  // namespace

void ProgramEmitter::VisitBufferStore(const tir::BufferStoreObj* s) {
  f_->memo.clear();
  auto it = f_->buffers.find(s->buffer.get());
  if (it == f_->buffers.end()) {
    ::relaxvm::Fail(ErrorKind::kValueError, s->span.Place(), "tensor program ", name_, ": buffer ",
                    s->buffer->name, " is written where it is not allocated");
  }
  Address address = AddressOf(it->second, s->indices);
  Value* mask = MaskOf(s->predicate, address.lanes);
  EmitStore(it->second, address, Eval(s->value), mask);
  f_->memo.clear();
}

void ProgramEmitter::VisitBind(const tir::BindObj* s) {
  f_->memo.clear();
  f_->vars[s->var.get()] = Eval(s->value);
  NoteLeast(s->var, s->value);
  f_->memo.clear();
}

void ProgramEmitter::VisitEvaluate(const tir::EvaluateObj* s) {
  f_->memo.clear();
  Eval(s->value);
  f_->memo.clear();
}

void ProgramEmitter::VisitAssert(const tir::AssertStmtObj* s) {
  f_->memo.clear();
  Value* condition = Eval(s->condition);
  f_->memo.clear();
  Require(condition, std::string(s->error_kind).c_str(), std::string(s->message));
}

void ProgramEmitter::VisitSeqStmt(const tir::SeqStmtObj* s) {
  size_t workspaces = f_->workspaces.size();
  for (const tir::Stmt& part : s->seq) Visit(part);
  FreeWorkspaces(workspaces);
  f_->workspaces.resize(workspaces);
}

void ProgramEmitter::VisitAllocBuffer(const tir::AllocBufferObj* s) {
  f_->memo.clear();
  tir::Buffer buffer(s->buffer);
  const tir::BufferTypeObj* type = buffer.type();
  if (type->storage_scope == tir::kAddressScope && type->elem_offset.defined()) {
    Value* data = b_.CreateIntToPtr(EvalIndex(type->elem_offset), b_.getPtrTy());
    DefineBuffer(buffer, data, BufferSlot::Role::kInput, /*offset_done=*/true);
    f_->memo.clear();
    return;
  }
  int64_t bytes = type->strides.empty() ? ConstantBytes(type) : -1;
  bool local = type->storage_scope == "local";
  if (local && bytes < 0) {
    ::relaxvm::Fail(ErrorKind::kValueError, s->span.Place(), "tensor program ", name_, ": buffer ",
                    buffer->name, " has scope local, so its shape must be constant");
  }
  if (!local && type->storage_scope != "global") {
    ::relaxvm::Fail(ErrorKind::kValueError, s->span.Place(), "tensor program ", name_, ": buffer ",
                    buffer->name, " has scope ", std::string(type->storage_scope),
                    ", which a CPU does not have; use global or local");
  }
  if (bytes >= 0 && bytes <= (local ? kMaxStackBytes : kMaxSmallBytes)) {
    llvm::Type* element = ops_.StorageType(type->dtype);
    uint64_t count = static_cast<uint64_t>(std::max<int64_t>(1, bytes / SizeInBytes(type->dtype)));
    DefineBuffer(buffer, Alloca(element, count, 64), BufferSlot::Role::kTemporary);
    return;
  }
  Value* size = b_.getInt64(static_cast<uint64_t>(SizeInBytes(type->dtype)));
  if (type->strides.empty()) {
    for (const ir::Expr& dim : type->shape) size = b_.CreateMul(size, EvalIndex(dim));
  } else {
    RELAXVM_CHECK(!type->shape.empty()) << "strides without dimensions";
    Value* last = b_.getInt64(1);  // 1 + sum (dim - 1) * stride
    for (size_t i = 0; i < type->shape.size(); ++i) {
      Value* steps = b_.CreateSub(EvalIndex(type->shape[i]), b_.getInt64(1));
      last = b_.CreateAdd(last, b_.CreateMul(steps, EvalIndex(type->strides[i])));
    }
    size = b_.CreateMul(size, last);
  }
  llvm::Type* ptr = b_.getPtrTy();
  Value* alloc = LoadField(f_->context, 16, ptr);
  auto* alloc_type = llvm::FunctionType::get(ptr, {ptr, b_.getInt64Ty()}, false);
  Value* data = b_.CreateCall(alloc_type, alloc, {f_->context, size});
  Require(b_.CreateIsNotNull(data), "RuntimeError",
          name_ + ": no memory for the temporary " + std::string(buffer->name) +
              " (a host that is not relaxvm serves 256 KiB)");
  f_->workspaces.push_back(data);
  DefineBuffer(buffer, data, BufferSlot::Role::kTemporary);
  f_->memo.clear();
}

void ProgramEmitter::FreeWorkspaces(size_t down_to) {
  if (f_->workspaces.size() <= down_to) return;
  llvm::Type* ptr = b_.getPtrTy();
  Value* free = LoadField(f_->context, 24, ptr);
  auto* free_type = llvm::FunctionType::get(b_.getVoidTy(), {ptr, ptr}, false);
  for (size_t i = f_->workspaces.size(); i-- > down_to;) {
    b_.CreateCall(free_type, free, {f_->context, f_->workspaces[i]});
  }
}

void ProgramEmitter::VisitIfThenElse(const tir::IfThenElseObj* s) {
  f_->memo.clear();
  Value* condition = Eval(s->condition);
  f_->memo.clear();
  RELAXVM_CHECK(!condition->getType()->isVectorTy())
      << name_ << ": a statement under a vector condition";
  llvm::LLVMContext& context = module_->getContext();
  auto* then_block = llvm::BasicBlock::Create(context, "then", f_->function);
  auto* else_block =
      s->else_case.defined() ? llvm::BasicBlock::Create(context, "else", f_->function) : nullptr;
  auto* join = llvm::BasicBlock::Create(context, "join", f_->function);
  b_.CreateCondBr(condition, then_block, else_block ? else_block : join);
  auto branch = [&](llvm::BasicBlock* block, const tir::Stmt& body) {
    b_.SetInsertPoint(block);
    size_t workspaces = f_->workspaces.size();
    Visit(body);
    FreeWorkspaces(workspaces);
    f_->workspaces.resize(workspaces);
    b_.CreateBr(join);
    f_->memo.clear();
  };
  branch(then_block, s->then_case);
  if (else_block) branch(else_block, s->else_case);
  b_.SetInsertPoint(join);
}

void ProgramEmitter::VisitFor(const tir::ForObj* s) {
  f_->memo.clear();
  ffi::Optional<int64_t> extent = ir::AsInt(s->extent);
  switch (s->kind) {
    case ForKind::kUnrolled:
      if (extent.has_value() && extent.value() <= kMaxUnroll)
        return EmitUnrolledLoop(s, extent.value());
      break;
    case ForKind::kParallel:
      if (depth_of_parallel_ == 0) return EmitParallelLoop(s);
      break;
    case ForKind::kThreadBinding:
      ::relaxvm::Fail(ErrorKind::kValueError, s->span.Place(), "tensor program ", name_, ": loop ",
                      s->loop_var->name, " is bound to ", std::string(s->thread_tag),
                      ", which a CPU does not have");
    case ForKind::kVectorized: RELAXVM_CHECK(false) << "a vectorised loop reached code generation";
    case ForKind::kSerial: break;
  }
  Value* min = Eval(s->min);
  Value* count = Eval(s->extent);
  NoteLeast(s->loop_var, s->min);
  auto loop = [&] {
    EmitSerialLoop(s->loop_var, min, count, s->body, /*poll=*/false, s->annotations);
  };
  return stream_ != nullptr && s->annotations.count(kStores) ? EmitBothWays(stream_, loop) : loop();
}

void ProgramEmitter::EmitPrefetches(const ir::DictAttrs& annotations) {
  for (auto [name, cache] : {std::pair(kPrefetch, 2), {kPrefetchNear, 1}}) {
    if (auto found = annotations.find(name); found != annotations.end())
      EmitPrefetch((*found).second.cast<ir::Expr>(), cache);
  }
}

// Fetches the cache lines of a load (of a ramp of elements) into the first or the second cache.
void ProgramEmitter::EmitPrefetch(const ir::Expr& e, int cache) {
  const auto* load = e.as<tir::BufferLoadObj>();
  auto slot = load == nullptr ? f_->buffers.end() : f_->buffers.find(load->buffer.get());
  RELAXVM_CHECK(slot != f_->buffers.end()) << name_ << ": prefetch of what is no load";
  const Address address = AddressOf(slot->second, load->indices);
  Value* offset = address.offset;
  constexpr int kRead = 0, kData = 1;
  const int locality = cache == 1 ? 3 : 2;
  for (int i = 0; i < address.lanes; ++i) {
    if (i > 0) offset = b_.CreateAdd(offset, address.lane_stride);
    Value* pointer = ElementPointer(slot->second, offset);
    b_.CreateIntrinsic(llvm::Intrinsic::prefetch, {pointer->getType()},
                       {pointer, b_.getInt32(kRead), b_.getInt32(locality), b_.getInt32(kData)});
  }
  f_->memo.clear();
}

void ProgramEmitter::EmitUnrolledLoop(const tir::ForObj* s, int64_t extent) {
  Value* min = Eval(s->min);
  NoteLeast(s->loop_var, s->min);
  for (int64_t i = 0; i < extent; ++i) {
    Value* step = ops_.IntConstant(s->loop_var.dtype(), i);
    f_->vars[s->loop_var.get()] = b_.CreateAdd(min, step);
    size_t workspaces = f_->workspaces.size();
    Visit(s->body);
    FreeWorkspaces(workspaces);
    f_->workspaces.resize(workspaces);
    f_->memo.clear();
  }
}

// Guarded once, tested at the end of each iteration: the form that LLVM's loop passes want.
void ProgramEmitter::EmitSerialLoop(const ir::Var& var, Value* min, Value* extent,
                                    const tir::Stmt& body, bool poll,
                                    const ir::DictAttrs& annotations) {
  llvm::LLVMContext& context = module_->getContext();
  llvm::Type* type = ops_.RegisterType(var.dtype());
  extent = ops_.Cast(extent, Int(static_cast<int>(extent->getType()->getIntegerBitWidth())),
                     var.dtype());
  min = ops_.Cast(min, Int(static_cast<int>(min->getType()->getIntegerBitWidth())), var.dtype());
  auto* loop = llvm::BasicBlock::Create(context, "for." + std::string(var->name), f_->function);
  auto* after = llvm::BasicBlock::Create(context, "end." + std::string(var->name), f_->function);
  Value* zero = llvm::ConstantInt::get(type, 0);
  llvm::BasicBlock* before = b_.GetInsertBlock();
  b_.CreateCondBr(b_.CreateICmpSGT(extent, zero), loop, after);
  b_.SetInsertPoint(loop);
  llvm::PHINode* step = b_.CreatePHI(type, 2);
  step->addIncoming(zero, before);
  bool from_zero =
      llvm::isa<llvm::ConstantInt>(min) && llvm::cast<llvm::ConstantInt>(min)->isZero();
  f_->vars[var.get()] = from_zero ? step : b_.CreateAdd(min, step, "", false, /*HasNSW=*/true);
  f_->memo.clear();
  if (poll) PollInterrupt();
  EmitPrefetches(annotations);
  size_t workspaces = f_->workspaces.size();
  Visit(body);
  FreeWorkspaces(workspaces);
  f_->workspaces.resize(workspaces);
  Value* next =
      b_.CreateAdd(step, llvm::ConstantInt::get(type, 1), "", /*HasNUW=*/true, /*HasNSW=*/true);
  step->addIncoming(next, b_.GetInsertBlock());
  b_.CreateCondBr(b_.CreateICmpSLT(next, extent), loop, after);
  b_.SetInsertPoint(after);
  f_->memo.clear();
}

// Leaves with kKernelInterrupted when the host asks for it.
void ProgramEmitter::PollInterrupt() {
  llvm::LLVMContext& context = module_->getContext();
  auto* look = llvm::BasicBlock::Create(context, "look", f_->function);
  auto* stop = llvm::BasicBlock::Create(context, "stop", f_->function);
  auto* go_on = llvm::BasicBlock::Create(context, "go_on", f_->function);
  Value* flag = LoadField(f_->context, 48, b_.getPtrTy());
  b_.CreateCondBr(b_.CreateIsNotNull(flag), look, go_on);
  b_.SetInsertPoint(look);
  Value* value = b_.CreateAlignedLoad(b_.getInt32Ty(), flag, llvm::Align(4), /*isVolatile=*/true);
  b_.CreateCondBr(b_.CreateICmpNE(value, b_.getInt32(0)), stop, go_on);
  b_.SetInsertPoint(stop);
  FreeWorkspaces(0);
  Return(b_.getInt32(static_cast<uint32_t>(kKernelInterrupted)));
  b_.SetInsertPoint(go_on);
}

void ProgramEmitter::VisitWhile(const tir::WhileObj* s) {
  llvm::LLVMContext& context = module_->getContext();
  auto* test = llvm::BasicBlock::Create(context, "while", f_->function);
  auto* loop = llvm::BasicBlock::Create(context, "do", f_->function);
  auto* after = llvm::BasicBlock::Create(context, "done", f_->function);
  b_.CreateBr(test);
  b_.SetInsertPoint(test);
  f_->memo.clear();
  PollInterrupt();
  b_.CreateCondBr(Eval(s->condition), loop, after);
  b_.SetInsertPoint(loop);
  f_->memo.clear();
  size_t workspaces = f_->workspaces.size();
  Visit(s->body);
  FreeWorkspaces(workspaces);
  f_->workspaces.resize(workspaces);
  b_.CreateBr(test);
  b_.SetInsertPoint(after);
  f_->memo.clear();
}

void ProgramEmitter::VisitSBlock(const tir::SBlockObj* s) {
  RELAXVM_CHECK(false) << "a block reached code generation";
}
void ProgramEmitter::VisitSBlockRealize(const tir::SBlockRealizeObj* s) {
  RELAXVM_CHECK(false) << "a block reached code generation";
}

void ProgramEmitter::Require(Value* condition, const char* kind, const std::string& message) {
  if (auto* known = llvm::dyn_cast<llvm::ConstantInt>(condition); known && known->isOne()) return;
  if (f_->error_slot == nullptr && f_->workspaces.empty()) {
    return f_->error_exit.Unless(condition, Text(kind), Text(message), b_,
                                 [this](Value* k, Value* m) { Raise(k, m); });
  }
  auto* bad = llvm::BasicBlock::Create(module_->getContext(), "bad", f_->function);
  auto* good = llvm::BasicBlock::Create(module_->getContext(), "good", f_->function);
  b_.CreateCondBr(condition, good, bad,
                  llvm::MDBuilder(module_->getContext()).createLikelyBranchWeights());
  b_.SetInsertPoint(bad);
  Fail(kind, message);
  b_.SetInsertPoint(good);
}

// In a task the error is left in the slot of the loop: only the calling thread may report it.
void ProgramEmitter::Fail(const char* kind, const std::string& message) {
  llvm::Constant* kind_text = Text(kind);
  llvm::Constant* message_text = Text(message);
  FreeWorkspaces(0);
  if (f_->error_slot != nullptr) {
    auto* record = llvm::ConstantStruct::getAnon({kind_text, message_text});
    auto* global = new llvm::GlobalVariable(*module_, record->getType(), true,
                                            llvm::GlobalValue::PrivateLinkage, record, "error");
    llvm::StoreInst* store = b_.CreateAlignedStore(global, f_->error_slot, llvm::Align(8));
    store->setAtomic(llvm::AtomicOrdering::Release);
    Return(b_.getInt32(static_cast<uint32_t>(kKernelError)));
  } else {
    Raise(kind_text, message_text);
  }
}

void ProgramEmitter::Raise(Value* kind, Value* message) {
  llvm::Type* ptr = b_.getPtrTy();
  Value* set_error = LoadField(f_->context, 32, ptr);
  auto* type = llvm::FunctionType::get(b_.getVoidTy(), {ptr, ptr, ptr}, false);
  b_.CreateCall(type, set_error, {f_->context, kind, message});
  Return(b_.getInt32(static_cast<uint32_t>(kKernelError)));
}

void ProgramEmitter::Return(Value* rc) {
  RestoreFloatState();
  b_.CreateRet(rc);
}

void ErrorExit::Unless(Value* condition, llvm::Constant* kind, llvm::Constant* message,
                       llvm::IRBuilder<>& b, const Leave& leave) {
  llvm::BasicBlock* from = b.GetInsertBlock();
  llvm::LLVMContext& context = from->getContext();
  if (kind_ == nullptr) {
    b.SetInsertPoint(llvm::BasicBlock::Create(context, "bad", from->getParent()));
    kind_ = b.CreatePHI(b.getPtrTy(), 8);
    message_ = b.CreatePHI(b.getPtrTy(), 8);
    leave(kind_, message_);
    b.SetInsertPoint(from);
  }
  auto* good = llvm::BasicBlock::Create(context, "good", from->getParent());
  b.CreateCondBr(condition, good, kind_->getParent(),
                 llvm::MDBuilder(context).createLikelyBranchWeights());
  kind_->addIncoming(kind, from);
  message_->addIncoming(message, from);
  b.SetInsertPoint(good);
}

llvm::Constant* ProgramEmitter::Text(const std::string& text) {
  llvm::Constant*& known = texts_[text];
  if (known == nullptr) known = b_.CreateGlobalString(text, "text", 0, module_);
  return known;
}

}  // namespace relaxvm::codegen
