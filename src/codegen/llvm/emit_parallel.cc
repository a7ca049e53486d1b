// SPDX-License-Identifier: Apache-2.0
// Parallel loops: the body becomes a task function; what it uses from outside travels in a closure
// on the stack. closure: { error slot, captured scalars and pointers... }
#include <llvm/IR/IntrinsicsX86.h>

#include <vector>

#include "codegen/llvm/emitter.h"
#include "codegen/tir/free_vars.h"
#include "support/error.h"
#include "target/kernel_abi.h"

namespace relaxvm::codegen {

using llvm::Value;

struct Capture {
  FreeVars free;
  std::vector<BufferSlot> slots;  // of free.buffers, as the caller has them
  std::vector<llvm::Type*> types;
  llvm::StructType* closure = nullptr;
};

namespace {

// Annotation of a parallel loop: an integer; how many threads it is worth.  For less than two the
// loop runs in the calling thread.
constexpr const char* kMostThreads = "most_threads";
// A bool expression; where it holds and results are aligned, whole vectors of them are written past
// the caches.
constexpr const char* kStreamIf = "stream_if";
// The number of steps that the iterations are cut into: those of a step may run at once, a step
// begins when the one before it is done.
constexpr const char* kInSteps = "in_steps";

}  // namespace

void ProgramEmitter::EmitParallelLoop(const tir::ForObj* s) {
  llvm::LLVMContext& context = module_->getContext();
  llvm::Type* ptr = b_.getPtrTy();
  llvm::Type* i32 = b_.getInt32Ty();
  llvm::Type* i64 = b_.getInt64Ty();
  Value* extent = EvalIndex(s->extent);
  Value* worth_it = b_.CreateICmpSGT(extent, b_.getInt64(1));
  worth_it =
      b_.CreateAnd(worth_it, b_.CreateICmpSGT(LoadField(f_->context, 4, i32), b_.getInt32(1)));
  Value* most_threads = extent;
  if (auto it = s->annotations.find(kMostThreads); it != s->annotations.end()) {
    most_threads = EvalIndex((*it).second.cast<ir::Expr>());
    worth_it = b_.CreateAnd(worth_it, b_.CreateICmpSGT(most_threads, b_.getInt64(1)));
  }
  Value* num_steps = nullptr;
  if (auto it = s->annotations.find(kInSteps); it != s->annotations.end())
    num_steps = EvalIndex((*it).second.cast<ir::Expr>());
  f_->memo.clear();

  Capture capture;
  ffi::Array<tir::Stmt> uses = {tir::Evaluate(s->min), s->body};
  if (auto it = s->annotations.find(kStreamIf); it != s->annotations.end())
    uses.push_back(tir::Evaluate((*it).second.cast<ir::Expr>()));
  capture.free = FreeVarsOf(tir::SeqStmt(uses), {s->loop_var});
  std::vector<Value*> values{llvm::Constant::getNullValue(ptr)};
  for (const ir::Var& v : capture.free.scalars) values.push_back(Eval(v));
  for (const tir::Buffer& b : capture.free.buffers) {
    auto it = f_->buffers.find(b.get());
    RELAXVM_CHECK(it != f_->buffers.end())
        << name_ << ": buffer " << b->name << " is used where it is not allocated";
    capture.slots.push_back(it->second);
    values.push_back(it->second.data);
  }
  for (Value* v : values) capture.types.push_back(v->getType());
  capture.closure = llvm::StructType::get(context, capture.types);
  llvm::Function* task = EmitTask(s, capture);

  llvm::IRBuilder<> at(f_->allocas, f_->allocas->begin());
  llvm::AllocaInst* closure = at.CreateAlloca(capture.closure);
  for (unsigned i = 0; i < values.size(); ++i)
    b_.CreateStore(values[i], b_.CreateStructGEP(capture.closure, closure, i));

  auto* many = llvm::BasicBlock::Create(context, "parallel", f_->function);
  auto* alone = llvm::BasicBlock::Create(context, "alone", f_->function);
  auto* join = llvm::BasicBlock::Create(context, "join", f_->function);
  b_.CreateCondBr(worth_it, many, alone);
  b_.SetInsertPoint(many);
  Value* rc_many = nullptr;
  if (num_steps == nullptr) {
    auto* type = llvm::FunctionType::get(i32, {ptr, ptr, ptr, i64, i64}, false);
    rc_many = b_.CreateCall(type, LoadField(f_->context, 8, ptr),
                            {f_->context, task, closure, extent, most_threads});
  } else {  // more than one iteration: there are steps
    auto* type = llvm::FunctionType::get(i32, {ptr, ptr, ptr, i64, i64, i64}, false);
    rc_many = b_.CreateCall(
        type, LoadField(f_->context, 64, ptr),
        {f_->context, task, closure, num_steps, b_.CreateSDiv(extent, num_steps), most_threads});
  }
  b_.CreateBr(join);
  b_.SetInsertPoint(alone);
  Value* rc_alone = b_.CreateCall(task, {f_->context, closure, b_.getInt64(0), extent});
  b_.CreateBr(join);
  b_.SetInsertPoint(join);
  llvm::PHINode* rc = b_.CreatePHI(i32, 2);
  rc->addIncoming(rc_many, many);
  rc->addIncoming(rc_alone, alone);

  auto* failed = llvm::BasicBlock::Create(context, "failed", f_->function);
  auto* report = llvm::BasicBlock::Create(context, "report", f_->function);
  auto* leave = llvm::BasicBlock::Create(context, "leave", f_->function);
  auto* good = llvm::BasicBlock::Create(context, "good", f_->function);
  b_.CreateCondBr(b_.CreateICmpEQ(rc, b_.getInt32(0)), good, failed);
  b_.SetInsertPoint(failed);
  llvm::LoadInst* record = b_.CreateAlignedLoad(ptr, closure, llvm::Align(8));
  record->setAtomic(llvm::AtomicOrdering::Acquire);
  b_.CreateCondBr(b_.CreateIsNotNull(record), report, leave);
  b_.SetInsertPoint(report);
  auto* error_type = llvm::FunctionType::get(b_.getVoidTy(), {ptr, ptr, ptr}, false);
  Value* kind = LoadField(record, 0, ptr);
  Value* message = LoadField(record, 8, ptr);
  b_.CreateCall(error_type, LoadField(f_->context, 32, ptr), {f_->context, kind, message});
  b_.CreateBr(leave);
  b_.SetInsertPoint(leave);
  FreeWorkspaces(0);
  Return(rc);
  b_.SetInsertPoint(good);
}

llvm::Function* ProgramEmitter::EmitTask(const tir::ForObj* s, const Capture& capture) {
  llvm::LLVMContext& context = module_->getContext();
  llvm::Type* ptr = b_.getPtrTy();
  llvm::Type* i64 = b_.getInt64Ty();
  auto* type = llvm::FunctionType::get(b_.getInt32Ty(), {ptr, ptr, i64, i64}, false);
  auto* task = llvm::Function::Create(type, llvm::Function::InternalLinkage,
                                      name_ + ".task" + std::to_string(num_tasks_++), module_);
  task->copyAttributesFrom(f_->function);
  task->addFnAttr(llvm::Attribute::NoInline);

  Frame frame;
  frame.function = task;
  frame.allocas = llvm::BasicBlock::Create(context, "entry", task);
  auto* body = llvm::BasicBlock::Create(context, "body", task);
  frame.context = task->getArg(0);
  frame.error_slot = task->getArg(1);
  Frame* outer = f_;
  llvm::BasicBlock* resume = b_.GetInsertBlock();
  f_ = &frame;
  b_.SetInsertPoint(body);
  auto field = [&](unsigned i) {
    return b_.CreateLoad(capture.types[i], b_.CreateStructGEP(capture.closure, task->getArg(1), i));
  };
  unsigned at = 1;
  for (const ir::Var& v : capture.free.scalars) frame.vars[v.get()] = field(at++);
  for (size_t i = 0; i < capture.slots.size(); ++i) {
    // The pointer already stands at element 0: an offset in the type is not added again.
    DefineBuffer(capture.free.buffers[i], field(at++), capture.slots[i].role, /*offset_done=*/true);
  }
  ++depth_of_parallel_;
  FlushSubnormals();
  Value* begin = task->getArg(2);
  Value* min = b_.CreateAdd(EvalIndex(s->min), begin, "", false, /*HasNSW=*/true);
  Value* extent = b_.CreateSub(task->getArg(3), begin);
  NoteLeast(s->loop_var, s->min);
  EmitShare(s, min, extent);
  --depth_of_parallel_;
  Return(b_.getInt32(0));
  llvm::IRBuilder<>(frame.allocas).CreateBr(body);
  f_ = outer;
  b_.SetInsertPoint(resume);
  return task;
}

// Are there loops in `body` marked as kStores, and is every store of a whole vector of a result in
// one of them?
bool ProgramEmitter::MarksItsStores(const tir::Stmt& body) const {
  bool all = true;
  std::unordered_set<const ffi::Object*> marked;
  auto stores_result = [&](const ffi::ObjectRef& node) {
    const auto* store = node.as<tir::BufferStoreObj>();
    if (store == nullptr || store->predicate.defined() || store->value.dtype().lanes == 1)
      return false;
    auto slot = f_->buffers.find(store->buffer.get());
    return slot != f_->buffers.end() && slot->second.role == BufferSlot::Role::kOutput;
  };
  tir::PostOrderVisit(body, [&](const ffi::ObjectRef& node) {
    const auto* loop = node.as<tir::ForObj>();
    if (loop == nullptr || !loop->annotations.count(kStores)) return;
    tir::PostOrderVisit(loop->body, [&](const ffi::ObjectRef& inner) {
      if (stores_result(inner)) marked.insert(inner.get());
    });
  });
  tir::PostOrderVisit(body, [&](const ffi::ObjectRef& node) {
    if (stores_result(node) && !marked.count(node.get())) all = false;
  });
  return all && !marked.empty();
}

// Both ways to store, one of which is taken at run time.
void ProgramEmitter::EmitBothWays(llvm::Value* stream, llvm::function_ref<void()> body) {
  llvm::LLVMContext& context = module_->getContext();
  auto* past = llvm::BasicBlock::Create(context, "stream", f_->function);
  auto* plain = llvm::BasicBlock::Create(context, "plain", f_->function);
  auto* join = llvm::BasicBlock::Create(context, "join", f_->function);
  b_.CreateCondBr(stream, past, plain);
  for (auto* block : {past, plain}) {
    b_.SetInsertPoint(block);
    f_->memo.clear();
    streaming_ = block == past;
    body();
    streaming_ = false;
    b_.CreateBr(join);
  }
  b_.SetInsertPoint(join);
  f_->memo.clear();
}

// One thread's iterations.  When results may be streamed, the loops that store them have both ways,
// or all of it is there twice.
void ProgramEmitter::EmitShare(const tir::ForObj* s, Value* min, Value* extent) {
  auto loop = [&] { EmitSerialLoop(s->loop_var, min, extent, s->body, /*poll=*/true); };
  auto annotation = s->annotations.find(kStreamIf);
  if (annotation == s->annotations.end() || !module_->getTargetTriple().isX86()) return loop();
  Value* stream = Eval((*annotation).second.cast<ir::Expr>());
  f_->memo.clear();
  for (const auto& [key, slot] : f_->buffers) {
    if (slot.role != BufferSlot::Role::kOutput) continue;
    Value* low = b_.CreateAnd(b_.CreatePtrToInt(slot.data, b_.getInt64Ty()), b_.getInt64(63));
    stream = b_.CreateAnd(stream, b_.CreateICmpEQ(low, b_.getInt64(0)));
  }
  // What goes past the caches is not ordered with the store that tells of the loop's end.
  auto fence = [&] {
    b_.CreateIntrinsic(llvm::Intrinsic::x86_sse_sfence, llvm::ArrayRef<llvm::Type*>(),
                       llvm::ArrayRef<Value*>());
  };
  if (!MarksItsStores(s->body)) {
    return EmitBothWays(stream, [&] {
      loop();
      if (streaming_) fence();
    });
  }
  stream_ = stream;
  loop();
  stream_ = nullptr;
  When(stream, fence);
}

}  // namespace relaxvm::codegen
