// SPDX-License-Identifier: Apache-2.0
// One tensor program as LLVM functions: the direct entry, its parallel tasks, and the packed entry.
#pragma once

#include <llvm/ADT/STLFunctionalExtras.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "codegen/llvm/ops.h"
#include "codegen/tir/signature.h"
#include "tir/dot.h"
#include "tir/functor.h"

namespace relaxvm::codegen {

// Annotation of a serial loop that stores results and does little else: where they may go past the
// caches, it alone is there twice.
inline constexpr const char* kStores = "stores";

namespace ffi = tvm::ffi;

struct Check;
class Differences;

// Symbols between the objects of one kernel set; hidden, so they never leave the library.
inline constexpr const char* kDirectPrefix = "__relaxvm_direct_";
inline constexpr const char* kRaiseSymbol = "__relaxvm_raise";  // void(ctx, kind, message)
inline constexpr const char* kCallSeriallySymbol =
    "__relaxvm_call_serially";  // int(direct, tensors, scalars)

// A buffer while its code is emitted.
struct BufferSlot {
  llvm::Value* data = nullptr;  // element 0
  DLDataType dtype;
  std::vector<llvm::Value*> strides;  // in elements, int64
  llvm::MDNode* scope = nullptr;      // alias scope
  enum class Role : uint8_t { kInput, kOutput, kTemporary } role = Role::kTemporary;
};

// One way out of a function for all of its errors, to which each check hands two texts: a call for
// each of them would be most of a small kernel's code.
class ErrorExit {
 public:
  // Ends the block with what leaves the function.
  using Leave = std::function<void(llvm::Value* kind, llvm::Value* message)>;
  void Unless(llvm::Value* condition, llvm::Constant* kind, llvm::Constant* message,
              llvm::IRBuilder<>& b, const Leave& leave);

 private:
  llvm::PHINode *kind_ = nullptr, *message_ = nullptr;
};

// A function that is being written.
struct Frame {
  llvm::Function* function = nullptr;
  llvm::BasicBlock* allocas = nullptr;  // runs before everything else
  llvm::Value* context = nullptr;
  llvm::Value* error_slot = nullptr;        // tasks: where the record of an error goes
  llvm::AllocaInst* float_state = nullptr;  // what the caller's MXCSR holds, where it is changed
  ErrorExit error_exit;                     // of checks that nothing is to be freed after
  std::unordered_map<const ffi::Object*, llvm::Value*> vars;
  std::unordered_map<const ffi::Object*, BufferSlot> buffers;
  std::unordered_map<const ffi::Object*, llvm::Value*>
      memo;                              // values of this statement's expressions
  std::vector<llvm::Value*> workspaces;  // to free on the way out
  llvm::MDNode* alias_domain = nullptr;
  llvm::Value* mask = nullptr;  // lanes that a conditional expression computes
};

class ProgramEmitter : private tir::StmtVisitor {
 public:
  ProgramEmitter(llvm::Module* module, const TargetTraits& traits)
      : module_(module), b_(module->getContext()), ops_(b_, traits) {}

  // Defines the entries of `func`, whose body is lowered (no blocks, no vectorised loops), under
  // names[0], and aliases for the other names.
  void Emit(const tir::PrimFunc& func, const Signature& sig, const std::vector<std::string>& names);

 private:
  // ---- emit_entry.cc
  llvm::Function* EmitDirect(const tir::PrimFunc& func, const Signature& sig,
                             const std::string& name);
  void CheckArguments(const Signature& sig, const std::vector<llvm::Value*>& tensors);
  void CheckTensor(const Signature& sig, int index, llvm::Value* tensor, std::vector<Check>* checks,
                   Differences* wrong);
  std::vector<std::vector<llvm::Value*>> CheckSizes(const Signature& sig,
                                                    const std::vector<llvm::Value*>& tensors,
                                                    std::vector<Check>* checks,
                                                    std::vector<llvm::Value*>* values,
                                                    Differences* wrong);
  void CheckStrides(const Signature& sig, int index, llvm::Value* tensor,
                    const std::vector<llvm::Value*>& dims, std::vector<Check>* checks,
                    Differences* wrong);
  void CompareWords(llvm::Value* base, const std::vector<llvm::Value*>& expected,
                    Differences* wrong);
  void Report(const std::vector<Check>& checks, const std::vector<llvm::Value*>& values,
              llvm::BasicBlock* good);
  void BindScalars(const Signature& sig, llvm::Value* scalars);
  void DefineParameters(const Signature& sig, const std::vector<llvm::Value*>& tensors);
  void Require(llvm::Value* condition, const char* kind, const std::string& message);
  // Leaves the function with an error.
  void Raise(llvm::Value* kind, llvm::Value* message);
  llvm::Value* LoadField(llvm::Value* base, int64_t offset, llvm::Type* type);
  llvm::Value* LoadWords(llvm::Value* base, int64_t offset, size_t count);
  void EmitPacked(const Signature& sig, llvm::Function* direct, const std::string& name);

  // ---- emit_stmt.cc
  void VisitBufferStore(const tir::BufferStoreObj* s) override;
  void VisitBind(const tir::BindObj* s) override;
  void VisitAllocBuffer(const tir::AllocBufferObj* s) override;
  void VisitAssert(const tir::AssertStmtObj* s) override;
  void VisitSeqStmt(const tir::SeqStmtObj* s) override;
  void VisitEvaluate(const tir::EvaluateObj* s) override;
  void VisitIfThenElse(const tir::IfThenElseObj* s) override;
  void VisitFor(const tir::ForObj* s) override;
  void VisitWhile(const tir::WhileObj* s) override;
  void VisitSBlock(const tir::SBlockObj* s) override;
  void VisitSBlockRealize(const tir::SBlockRealizeObj* s) override;
  void EmitSerialLoop(const ir::Var& var, llvm::Value* min, llvm::Value* extent,
                      const tir::Stmt& body, bool poll, const ir::DictAttrs& annotations = {});
  llvm::Value* Kept(llvm::Value* v);
  llvm::Value* PickWords(const ir::ShuffleObj* e);
  void EmitPrefetches(const ir::DictAttrs& annotations);
  void EmitPrefetch(const ir::Expr& load, int cache);
  void EmitUnrolledLoop(const tir::ForObj* s, int64_t extent);
  void PollInterrupt();
  void Fail(const char* kind, const std::string& message);  // leaves the function with an error
  void FreeWorkspaces(size_t down_to);
  void Return(llvm::Value* rc);
  // ---- emit_float_state.cc
  void FlushSubnormals();
  void RestoreFloatState();
  llvm::Constant* Text(const std::string& text);
  // ---- emit_matrix.cc
  bool EmitMatrixOp(const ir::CallObj* e);
  void ConfigureMatrices(const ir::CallObj* e);
  // ---- emit_parallel.cc
  void EmitParallelLoop(const tir::ForObj* s);
  llvm::Function* EmitTask(const tir::ForObj* s, const struct Capture& capture);
  void EmitShare(const tir::ForObj* s, llvm::Value* min, llvm::Value* extent);
  bool MarksItsStores(const tir::Stmt& body) const;
  void EmitBothWays(llvm::Value* stream, llvm::function_ref<void()> body);

  // ---- emit_expr.cc
  llvm::Value* Eval(const ir::Expr& e);
  llvm::Value* EvalIndex(const ir::Expr& e);  // as int64, or a vector of it
  void VisitVar(const ir::VarObj* e) override;
  void VisitIntImm(const ir::IntImmObj* e) override;
  void VisitFloatImm(const ir::FloatImmObj* e) override;
  void VisitBinary(const ir::BinaryObj* e) override;
  void VisitCast(const ir::CastObj* e) override;
  void VisitSelect(const ir::SelectObj* e) override;
  void VisitLet(const ir::LetObj* e) override;
  void VisitRamp(const ir::RampObj* e) override;
  void VisitBroadcast(const ir::BroadcastObj* e) override;
  void VisitShuffle(const ir::ShuffleObj* e) override;
  void VisitIntrin(const ir::IntrinObj* e) override;
  void VisitBufferLoad(const tir::BufferLoadObj* e) override;
  void VisitCall(const ir::CallObj* e) override;
  void VisitOther(const ir::ExprObj* e) override;
  llvm::Value* EmitBranch(const ir::IntrinObj* e, llvm::Value* condition);
  llvm::Value* EmitMaskedChoice(const ir::IntrinObj* e, llvm::Value* condition);
  llvm::Value* RampBelow(
      const ir::BinaryObj* e);  // ramp < n, without wide vectors; null for other forms
  // What an integer is known to be at least, if that is known.
  std::optional<int64_t> LeastOf(const ir::Expr& e) const;
  void NoteLeast(const ir::Var& var, const ir::Expr& value);  // which is at least that of `value`
  const BufferSlot& SlotOf(const tir::BufferLoadObj* e);
  llvm::Value* EmitByteTable(const BufferSlot& slot, const tir::BufferLoadObj* e);
  llvm::Value* LoadBits(const tir::BufferLoadObj* e, DLDataType result);
  llvm::Value* EmitDot(const tir::Dot& dot,
                       llvm::Value* (ValueOps::*emit)(llvm::Value*, llvm::Value*, llvm::Value*));

  // ---- emit_memory.cc
  struct Address {
    llvm::Value* offset;        // of lane 0, or what all lanes share, in elements
    llvm::Value* lane_stride;   // null: 0
    llvm::Value* lane_offsets;  // null, or a vector on top
    int lanes;
  };
  void DefineBuffer(const tir::Buffer& buffer, llvm::Value* data, BufferSlot::Role role,
                    bool offset_done = false);
  Address AddressOf(const BufferSlot& slot, const ffi::Array<ir::Expr>& indices);
  void AddIndex(const ir::Expr& index, llvm::Value* stride, Address* address);
  llvm::Value* LoadSpaced(const BufferSlot& slot, const Address& address, int64_t step,
                          llvm::Value* mask);
  llvm::Value* LoadPicked(const BufferSlot& slot, const Address& address, llvm::Value* mask);
  llvm::Value* EmitLoad(const BufferSlot& slot, const Address& address, llvm::Value* mask);
  void EmitStore(const BufferSlot& slot, const Address& address, llvm::Value* value,
                 llvm::Value* mask);
  llvm::Value* LanePointers(const BufferSlot& slot, const Address& address);
  llvm::Value* ElementPointer(const BufferSlot& slot, llvm::Value* offset);
  llvm::Value* MaskOf(const ir::Expr& predicate, int lanes);
  template <typename Inst>
  Inst* WithAlias(const BufferSlot& slot, Inst* inst);
  void When(llvm::Value* condition, llvm::function_ref<void()> body);
  llvm::AllocaInst* Alloca(llvm::Type* type, uint64_t count, uint64_t alignment);

  llvm::Module* module_;
  llvm::IRBuilder<> b_;
  ValueOps ops_;
  Frame* f_ = nullptr;
  llvm::Value* result_ = nullptr;
  std::string name_;
  bool no_alias_ = false;
  bool fast_pairs_ = false;        // tir::kFastPairs
  bool flush_subnormals_ = false;  // tir::kFlushSubnormals, on a machine that gains from it
  int num_tasks_ = 0;
  int depth_of_parallel_ = 0;
  bool streaming_ = false;         // whole vectors of results go past the caches
  llvm::Value* stream_ = nullptr;  // do those of loops marked as kStores?
  std::unordered_map<const ffi::Object*, int64_t> least_;  // of variables
  std::unordered_map<std::string, llvm::Constant*> texts_;
};

}  // namespace relaxvm::codegen
