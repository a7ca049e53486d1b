// SPDX-License-Identifier: Apache-2.0
// Walks over and rewrites of programs, dispatched by type index.  Straight-line code is walked in a
// loop: a chain of bindings of any length takes constant stack.
#pragma once

#include <functional>

#include "ir/data_type.h"
#include "ir/module.h"
#include "ir/prim.h"

namespace relaxvm::ir {

// Calls the Visit method of a node's class.  Override what is of interest; the default visits all
// children. Tensor programs inside modules are visited through VisitOther (tir/ overrides it in its
// own visitor).
class Visitor {
 public:
  virtual ~Visitor() = default;
  void Visit(const Expr& e);  // null is skipped

  virtual void VisitVar(const VarObj* v) {}  // uses only; definitions go to VisitDef
  virtual void VisitDef(const Var& v);       // default: visits the dimensions in its type
  virtual void VisitGlobalVar(const GlobalVarObj* v) {}
  virtual void VisitOp(const ffi::Object* op) {}
  virtual void VisitCall(const CallObj* c);
  virtual void VisitConstant(const ConstantObj* c) {}
  virtual void VisitStringImm(const StringImmObj* s) {}
  virtual void VisitDataTypeImm(const DataTypeImmObj* d) {}
  virtual void VisitShape(const ShapeExprObj* s);
  virtual void VisitTuple(const TupleObj* t);
  virtual void VisitTupleGetItem(const TupleGetItemObj* t);
  virtual void VisitIf(const IfObj* i);
  virtual void VisitMatch(const MatchObj* m);
  virtual void VisitConstructor(const ConstructorObj* c) {}
  virtual void VisitSeq(const SeqExprObj* s);
  virtual void VisitFunction(const FunctionObj* f);
  virtual void VisitExternFunc(const ExternFuncObj* f) {}

  virtual void VisitIntImm(const IntImmObj* i) {}
  virtual void VisitFloatImm(const FloatImmObj* f) {}
  virtual void VisitBinary(const BinaryObj* b);
  virtual void VisitCast(const CastObj* c);
  virtual void VisitSelect(const SelectObj* s);
  virtual void VisitLet(const LetObj* l);
  virtual void VisitRamp(const RampObj* r);
  virtual void VisitBroadcast(const BroadcastObj* b);
  virtual void VisitShuffle(const ShuffleObj* s);
  virtual void VisitIntrin(const IntrinObj* i);
  virtual void VisitOther(const ExprObj* e);  // nodes of other folders; default: an error

  virtual void VisitBlock(const BindingBlock& block);
  virtual void VisitBinding(
      const Binding& binding);  // value, then VisitDef(var); a MatchCast also visits its type
  // Visits the scalar expressions inside a type.
  virtual void VisitType(const Type& type);
};

// Rewrites bottom-up and shares what did not change: a rewrite that changes nothing returns the
// same object. Variables: a definition whose type changed gets a new Var, and its uses follow.
class Mutator {
 public:
  virtual ~Mutator() = default;
  Expr Mutate(const Expr& e);  // null stays null

  virtual Expr MutateVar(
      const Var& v);  // default: the replacement recorded by MutateDef, or itself
  // A definition: rewrites its type; a changed type gives a new Var (recorded).
  virtual Var MutateDef(const Var& v);
  virtual Expr MutateGlobalVar(const GlobalVar& v) { return v; }
  virtual Expr MutateOp(const Expr& op) { return op; }
  virtual Expr MutateCall(const Call& c);
  virtual Expr MutateConstant(const Constant& c) { return c; }
  virtual Expr MutateShape(const ShapeExpr& s);
  virtual Expr MutateTuple(const Tuple& t);
  virtual Expr MutateTupleGetItem(const TupleGetItem& t);
  virtual Expr MutateIf(const If& i);
  virtual Expr MutateMatch(const Match& m);
  virtual Expr MutateConstructor(const Constructor& c) { return c; }
  virtual Expr MutateSeq(const SeqExpr& s);
  virtual Expr MutateFunction(const Function& f);
  virtual Expr MutateExternFunc(const ExternFunc& f) { return f; }
  virtual Expr MutateImm(const Expr& e) { return e; }  // IntImm, FloatImm, StringImm, DataTypeImm

  virtual Expr MutateBinary(const Binary& b);
  virtual Expr MutateCast(const CastExpr& c);
  virtual Expr MutateSelect(const SelectExpr& s);
  virtual Expr MutateLet(const LetExpr& l);
  virtual Expr MutateRamp(const RampExpr& r);
  virtual Expr MutateBroadcast(const BroadcastExpr& b);
  virtual Expr MutateShuffle(const ShuffleExpr& s);
  virtual Expr MutateIntrin(const IntrinExpr& i);
  virtual Expr MutateOther(const Expr& e);  // nodes of other folders; default: an error

  virtual BindingBlock MutateBlock(const BindingBlock& block);
  // The bindings that stand for `binding`, appended to `out` (none removes it).  Default: one with
  // a rewritten value.
  virtual void MutateBinding(const Binding& binding, ffi::Array<Binding>* out);
  virtual Type MutateType(const Type& type);

 protected:
  void Replace(const Var& from, Expr to) { replaced_.Set(from, std::move(to)); }
  ffi::Array<Expr> MutateAll(const ffi::Array<Expr>& exprs);

 private:
  ffi::Map<Var, Expr> replaced_;
};

// Rewrites every Relax function of a module; tensor programs stay.
IRModule MutateFunctions(IRModule mod,
                         const std::function<Function(const GlobalVar&, const Function&)>& rewrite);

// Replaces free variables, also inside types.
Expr Substitute(const Expr& e, const ffi::Map<Var, Expr>& map);
Type Substitute(const Type& type, const ffi::Map<Var, Expr>& map);

// Calls `f` for every node, children before parents.
void PostOrderVisit(const Expr& e, const std::function<void(const Expr&)>& f);

// Symbolic variables in a type, in order of appearance; `definable` gives those that stand alone in
// a dimension.
ffi::Array<Var> SymbolicVars(const Type& type);
ffi::Array<Var> DefinableSymbolicVars(const Type& type);
ffi::Array<Var> FreeVars(const Expr& e);

// Equality up to names of bound variables (tvm-ffi structural equality); `map_free_vars` also
// matches free ones.
bool StructuralEqual(const ffi::Any& a, const ffi::Any& b, bool map_free_vars = false);
uint64_t StructuralHash(const ffi::Any& a, bool map_free_vars = false);

}  // namespace relaxvm::ir
