// SPDX-License-Identifier: Apache-2.0
// Replacing variables in statements and programs, and copies with fresh definitions.
#include <unordered_set>
#include <vector>

#include "tir/functor.h"

namespace relaxvm::tir {
namespace {

class Substituter : public StmtMutator {
 public:
  explicit Substituter(const ffi::Map<Var, Expr>& map) {
    for (const auto& [from, to] : map) Replace(from, to);
  }
};

// Every definition gets a new variable, symbolic sizes in the parameters' shapes included.
class Renewer : public StmtMutator {
 public:
  Var MutateDef(const Var& v) override {
    if (IsBuffer(v)) RenewSizes(v);
    // A scalar parameter may already have been met as a size of a buffer before it.
    if (!defined_.insert(v.get()).second) return ffi::GetRef<Var>(MutateVar(v).as<ir::VarObj>());
    Var fresh(v->name, MutateType(v->ty), v->span);
    Replace(v, fresh);
    return fresh;
  }

 private:
  // Sizes that appear here for the first time: a parameter's shape defines them.
  void RenewSizes(const Var& buffer) {
    struct Collector : StmtVisitor {
      std::vector<Var> vars;
      void VisitVar(const ir::VarObj* v) override { vars.push_back(ffi::GetRef<Var>(v)); }
    } collector;
    collector.VisitType(buffer->ty);
    for (const Var& size : collector.vars) {
      if (!defined_.insert(size.get()).second) continue;
      Replace(size, Var(size->name, size->ty, size->span));
    }
  }

  std::unordered_set<const ffi::Object*> defined_;
};

class Walker : public StmtVisitor {
 public:
  explicit Walker(const std::function<void(const ffi::ObjectRef&)>& f) : f_(f) {}

  void WalkStmt(const Stmt& s) { Visit(s); }

#define RELAXVM_WALK(Method, Obj)          \
  void Method(const Obj* node) override {  \
    StmtVisitor::Method(node);             \
    f_(ffi::GetRef<ffi::ObjectRef>(node)); \
  }
  RELAXVM_WALK(VisitBufferLoad, BufferLoadObj)
  RELAXVM_WALK(VisitBufferStore, BufferStoreObj)
  RELAXVM_WALK(VisitBind, BindObj)
  RELAXVM_WALK(VisitAllocBuffer, AllocBufferObj)
  RELAXVM_WALK(VisitAssert, AssertStmtObj)
  RELAXVM_WALK(VisitSeqStmt, SeqStmtObj)
  RELAXVM_WALK(VisitEvaluate, EvaluateObj)
  RELAXVM_WALK(VisitIfThenElse, IfThenElseObj)
  RELAXVM_WALK(VisitFor, ForObj)
  RELAXVM_WALK(VisitWhile, WhileObj)
  RELAXVM_WALK(VisitSBlock, SBlockObj)
  RELAXVM_WALK(VisitSBlockRealize, SBlockRealizeObj)
  RELAXVM_WALK(VisitVar, ir::VarObj)
  RELAXVM_WALK(VisitIntImm, ir::IntImmObj)
  RELAXVM_WALK(VisitFloatImm, ir::FloatImmObj)
  RELAXVM_WALK(VisitBinary, ir::BinaryObj)
  RELAXVM_WALK(VisitCast, ir::CastObj)
  RELAXVM_WALK(VisitSelect, ir::SelectObj)
  RELAXVM_WALK(VisitLet, ir::LetObj)
  RELAXVM_WALK(VisitRamp, ir::RampObj)
  RELAXVM_WALK(VisitBroadcast, ir::BroadcastObj)
  RELAXVM_WALK(VisitShuffle, ir::ShuffleObj)
  RELAXVM_WALK(VisitIntrin, ir::IntrinObj)
#undef RELAXVM_WALK

 private:
  const std::function<void(const ffi::ObjectRef&)>& f_;
};

PrimFunc AsPrimFunc(const Expr& e) { return ffi::GetRef<PrimFunc>(e.as<PrimFuncObj>()); }

}  // namespace

Stmt Substitute(const Stmt& s, const ffi::Map<Var, Expr>& map) {
  return map.empty() ? s : Substituter(map).Mutate(s);
}

Expr Substitute(const Expr& e, const ffi::Map<Var, Expr>& map) {
  return map.empty() ? e : Substituter(map).Mutate(e);
}

void PostOrderVisit(const Stmt& s, const std::function<void(const ffi::ObjectRef&)>& f) {
  Walker(f).WalkStmt(s);
}

PrimFunc RenewDefs(const PrimFunc& func) { return AsPrimFunc(Renewer().MutatePrimFunc(func)); }

PrimFunc SpecializeSizes(const PrimFunc& func, const ffi::Map<Var, Expr>& sizes) {
  return AsPrimFunc(Substituter(sizes).MutatePrimFunc(func));
}

}  // namespace relaxvm::tir
