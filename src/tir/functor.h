// SPDX-License-Identifier: Apache-2.0
// Visitor and mutator over statements and the expressions in them.  Loads, stores and regions name
// their buffer as a use.
#pragma once

#include <tvm/ffi/cast.h>

#include "ir/visitor.h"
#include "tir/stmt.h"

namespace relaxvm::tir {

enum class StmtKind : uint8_t {
  kBufferStore,
  kBind,
  kAllocBuffer,
  kAssert,
  kSeq,
  kEvaluate,
  kIfThenElse,
  kFor,
  kWhile,
  kBlock,
  kBlockRealize,
};
StmtKind KindOf(const StmtObj* s);

class StmtVisitor : public ir::Visitor {
 public:
  using ir::Visitor::Visit;
  void Visit(const Stmt& s);  // null is skipped

  // The buffer of a load, a store or a region; definitions (AllocBuffer) go to VisitDef.
  virtual void VisitBufferUse(const Var& buffer);
  void VisitType(const ir::Type& type) override;     // also BufferType
  virtual void VisitPrimFunc(const PrimFuncObj* f);  // parameters, then the body

  virtual void VisitBufferLoad(const BufferLoadObj* l);
  void VisitOther(const ir::ExprObj* e) override;  // BufferLoad, PrimFunc

  virtual void VisitBufferStore(const BufferStoreObj* s);
  virtual void VisitBind(const BindObj* s);
  virtual void VisitAllocBuffer(const AllocBufferObj* s);
  virtual void VisitAssert(const AssertStmtObj* s);
  virtual void VisitSeqStmt(const SeqStmtObj* s);
  virtual void VisitEvaluate(const EvaluateObj* s);
  virtual void VisitIfThenElse(const IfThenElseObj* s);
  virtual void VisitFor(const ForObj* s);
  virtual void VisitWhile(const WhileObj* s);
  virtual void VisitSBlock(const SBlockObj* s);
  virtual void VisitSBlockRealize(const SBlockRealizeObj* s);
};

// Shares what did not change.  A buffer or loop variable replaced through MutateBuffer / Replace
// follows everywhere.
class StmtMutator : public ir::Mutator {
 public:
  using ir::Mutator::Mutate;
  Stmt Mutate(const Stmt& s);

  // The buffer of a load, a store or a region.
  virtual Var MutateBuffer(const Var& buffer);
  ir::Type MutateType(const ir::Type& type) override;  // also BufferType
  virtual Expr MutatePrimFunc(const PrimFunc& f);
  virtual Expr MutateBufferLoad(const BufferLoad& l);
  Expr MutateOther(const Expr& e) override;

  virtual Stmt MutateBufferStore(const BufferStore& s);
  virtual Stmt MutateBind(const Bind& s);
  virtual Stmt MutateAllocBuffer(const AllocBuffer& s);
  virtual Stmt MutateAssert(const AssertStmt& s);
  virtual Stmt MutateSeqStmt(const SeqStmt& s);
  virtual Stmt MutateEvaluate(const Evaluate& s);
  virtual Stmt MutateIfThenElse(const IfThenElse& s);
  virtual Stmt MutateFor(const For& s);
  // Values that are expressions belong to the program: "most_threads".
  ir::DictAttrs MutateAnnotations(const ir::DictAttrs& annotations);
  virtual Stmt MutateWhile(const While& s);
  virtual Stmt MutateSBlock(const SBlock& s);
  virtual Stmt MutateSBlockRealize(const SBlockRealize& s);
};

Stmt Substitute(const Stmt& s, const ffi::Map<Var, Expr>& map);
Expr Substitute(const Expr& e, const ffi::Map<Var, Expr>& map);  // also looks into BufferLoad
void PostOrderVisit(const Stmt& s, const std::function<void(const ffi::ObjectRef&)>& f);

// A copy with fresh variables and buffers, so that a program can be put into another one twice.
PrimFunc RenewDefs(const PrimFunc& func);
// The program with symbolic sizes replaced: for one call's shapes.
PrimFunc SpecializeSizes(const PrimFunc& func, const ffi::Map<Var, Expr>& sizes);

}  // namespace relaxvm::tir
