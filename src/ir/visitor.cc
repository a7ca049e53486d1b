// SPDX-License-Identifier: Apache-2.0
// Visitor: dispatch by type index and the default walks.
#include "ir/visitor.h"

#include <unordered_map>
#include <unordered_set>

#include "ir/node_kind.h"

namespace relaxvm::ir {
Node NodeOf(const ffi::Object* node) {
  static const std::unordered_map<int32_t, Node> kTable = {
      {VarObj::RuntimeTypeIndex(), Node::kVar},
      {DataflowVarObj::RuntimeTypeIndex(), Node::kVar},
      {GlobalVarObj::RuntimeTypeIndex(), Node::kGlobalVar},
      {CallObj::RuntimeTypeIndex(), Node::kCall},
      {ConstantObj::RuntimeTypeIndex(), Node::kConstant},
      {StringImmObj::RuntimeTypeIndex(), Node::kStringImm},
      {DataTypeImmObj::RuntimeTypeIndex(), Node::kDataTypeImm},
      {ShapeExprObj::RuntimeTypeIndex(), Node::kShape},
      {TupleObj::RuntimeTypeIndex(), Node::kTuple},
      {TupleGetItemObj::RuntimeTypeIndex(), Node::kTupleGetItem},
      {IfObj::RuntimeTypeIndex(), Node::kIf},
      {MatchObj::RuntimeTypeIndex(), Node::kMatch},
      {ConstructorObj::RuntimeTypeIndex(), Node::kConstructor},
      {SeqExprObj::RuntimeTypeIndex(), Node::kSeq},
      {FunctionObj::RuntimeTypeIndex(), Node::kFunction},
      {ExternFuncObj::RuntimeTypeIndex(), Node::kExternFunc},
      {IntImmObj::RuntimeTypeIndex(), Node::kIntImm},
      {FloatImmObj::RuntimeTypeIndex(), Node::kFloatImm},
      {BinaryObj::RuntimeTypeIndex(), Node::kBinary},
      {CastObj::RuntimeTypeIndex(), Node::kCast},
      {SelectObj::RuntimeTypeIndex(), Node::kSelect},
      {LetObj::RuntimeTypeIndex(), Node::kLet},
      {RampObj::RuntimeTypeIndex(), Node::kRamp},
      {BroadcastObj::RuntimeTypeIndex(), Node::kBroadcast},
      {ShuffleObj::RuntimeTypeIndex(), Node::kShuffle},
      {IntrinObj::RuntimeTypeIndex(), Node::kIntrin},
  };
  static const int32_t kOpIndex = OpObj::RuntimeTypeIndex();
  const int32_t index = node->type_index();
  if (index == kOpIndex) return Node::kOp;
  auto it = kTable.find(index);
  return it == kTable.end() ? Node::kOther : it->second;
}

void Visitor::Visit(const Expr& e) {
  if (!e.defined()) return;
  const ffi::Object* n = e.get();
  switch (NodeOf(n)) {
    case Node::kVar: return VisitVar(static_cast<const VarObj*>(n));
    case Node::kGlobalVar: return VisitGlobalVar(static_cast<const GlobalVarObj*>(n));
    case Node::kOp: return VisitOp(n);
    case Node::kCall: return VisitCall(static_cast<const CallObj*>(n));
    case Node::kConstant: return VisitConstant(static_cast<const ConstantObj*>(n));
    case Node::kStringImm: return VisitStringImm(static_cast<const StringImmObj*>(n));
    case Node::kDataTypeImm: return VisitDataTypeImm(static_cast<const DataTypeImmObj*>(n));
    case Node::kShape: return VisitShape(static_cast<const ShapeExprObj*>(n));
    case Node::kTuple: return VisitTuple(static_cast<const TupleObj*>(n));
    case Node::kTupleGetItem: return VisitTupleGetItem(static_cast<const TupleGetItemObj*>(n));
    case Node::kIf: return VisitIf(static_cast<const IfObj*>(n));
    case Node::kMatch: return VisitMatch(static_cast<const MatchObj*>(n));
    case Node::kConstructor: return VisitConstructor(static_cast<const ConstructorObj*>(n));
    case Node::kSeq: return VisitSeq(static_cast<const SeqExprObj*>(n));
    case Node::kFunction: return VisitFunction(static_cast<const FunctionObj*>(n));
    case Node::kExternFunc: return VisitExternFunc(static_cast<const ExternFuncObj*>(n));
    case Node::kIntImm: return VisitIntImm(static_cast<const IntImmObj*>(n));
    case Node::kFloatImm: return VisitFloatImm(static_cast<const FloatImmObj*>(n));
    case Node::kBinary: return VisitBinary(static_cast<const BinaryObj*>(n));
    case Node::kCast: return VisitCast(static_cast<const CastObj*>(n));
    case Node::kSelect: return VisitSelect(static_cast<const SelectObj*>(n));
    case Node::kLet: return VisitLet(static_cast<const LetObj*>(n));
    case Node::kRamp: return VisitRamp(static_cast<const RampObj*>(n));
    case Node::kBroadcast: return VisitBroadcast(static_cast<const BroadcastObj*>(n));
    case Node::kShuffle: return VisitShuffle(static_cast<const ShuffleObj*>(n));
    case Node::kIntrin: return VisitIntrin(static_cast<const IntrinObj*>(n));
    case Node::kOther: return VisitOther(static_cast<const ExprObj*>(n));
  }
}

void Visitor::VisitDef(const Var& v) { VisitType(v->ty); }

void Visitor::VisitCall(const CallObj* c) {
  Visit(c->op);
  for (const Expr& a : c->args) Visit(a);
  for (const Type& t : c->ty_args) VisitType(t);
}
void Visitor::VisitShape(const ShapeExprObj* s) {
  for (const Expr& v : s->values) Visit(v);
}
void Visitor::VisitTuple(const TupleObj* t) {
  for (const Expr& f : t->fields) Visit(f);
}
void Visitor::VisitTupleGetItem(const TupleGetItemObj* t) { Visit(t->tuple_value); }
void Visitor::VisitIf(const IfObj* i) {
  Visit(i->cond);
  Visit(i->true_branch);
  Visit(i->false_branch);
}
void Visitor::VisitMatch(const MatchObj* m) {
  Visit(m->value);
  for (const MatchCase& c : m->cases) {
    if (c->constructor.has_value()) Visit(c->constructor.value());
    for (const Var& v : c->vars) VisitDef(v);
    Visit(c->body);
  }
}
void Visitor::VisitSeq(const SeqExprObj* s) {
  for (const BindingBlock& b : s->blocks) VisitBlock(b);
  Visit(s->body);
}
void Visitor::VisitFunction(const FunctionObj* f) {
  for (const Var& p : f->params) VisitDef(p);
  Visit(f->body);
  VisitType(f->ret_ty);
}
void Visitor::VisitBinary(const BinaryObj* b) {
  Visit(b->a);
  Visit(b->b);
}
void Visitor::VisitCast(const CastObj* c) { Visit(c->value); }
void Visitor::VisitSelect(const SelectObj* s) {
  Visit(s->condition);
  Visit(s->true_value);
  Visit(s->false_value);
}
void Visitor::VisitLet(const LetObj* l) {
  Visit(l->value);
  VisitDef(l->var);
  Visit(l->body);
}
void Visitor::VisitRamp(const RampObj* r) {
  Visit(r->base);
  Visit(r->stride);
}
void Visitor::VisitBroadcast(const BroadcastObj* b) { Visit(b->value); }
void Visitor::VisitShuffle(const ShuffleObj* s) {
  for (const Expr& v : s->vectors) Visit(v);
}
void Visitor::VisitIntrin(const IntrinObj* i) {
  for (const Expr& a : i->args) Visit(a);
}
void Visitor::VisitOther(const ExprObj* e) {
  RELAXVM_CHECK(false) << "this visitor does not know " << e->GetTypeKey();
}

void Visitor::VisitBlock(const BindingBlock& block) {
  for (const Binding& b : block->bindings) VisitBinding(b);
}
void Visitor::VisitBinding(const Binding& binding) {
  Visit(binding->value);
  if (const auto* cast = binding.as<MatchCastObj>()) VisitType(cast->ty);
  VisitDef(binding->var);
}

void Visitor::VisitType(const Type& type) {
  if (!type.defined()) return;
  if (const auto* tensor = type.as<TensorTypeObj>()) {
    if (tensor->shape.has_value()) Visit(tensor->shape.value());
  } else if (const auto* shape = type.as<ShapeTypeObj>()) {
    if (!shape->values.has_value()) return;
    for (const Expr& v : shape->values.value()) Visit(v);
  } else if (const auto* tuple = type.as<TupleTypeObj>()) {
    for (const Type& f : tuple->fields) VisitType(f);
  } else if (const auto* adt = type.as<AdtTypeObj>()) {
    for (const Type& a : adt->args) VisitType(a);
  }
  // A function type binds its own variables; nothing of the surroundings is visible in it.
}

void PostOrderVisit(const Expr& e, const std::function<void(const Expr&)>& f) {
  // Expressions are walked generically by their children; shared nodes are seen once.
  class Walker : public Visitor {
   public:
    explicit Walker(const std::function<void(const Expr&)>& f) : f_(f) {}
    void Run(const Expr& e) {
      if (!e.defined() || !seen_.insert(e.get()).second) return;
      Visitor::Visit(e);
      f_(e);
    }
#define WALK(Name, Obj) void Visit##Name(const Obj* n) override
    WALK(Call, CallObj) {
      Run(n->op);
      for (const Expr& a : n->args) Run(a);
    }
    WALK(Shape, ShapeExprObj) {
      for (const Expr& v : n->values) Run(v);
    }
    WALK(Tuple, TupleObj) {
      for (const Expr& v : n->fields) Run(v);
    }
    WALK(TupleGetItem, TupleGetItemObj) { Run(n->tuple_value); }
    WALK(If, IfObj) {
      Run(n->cond);
      Run(n->true_branch);
      Run(n->false_branch);
    }
    WALK(Match, MatchObj) {
      Run(n->value);
      for (const MatchCase& c : n->cases) {
        for (const Var& v : c->vars) Run(v);
        Run(c->body);
      }
    }
    WALK(Seq, SeqExprObj) {
      for (const BindingBlock& block : n->blocks) {
        for (const Binding& b : block->bindings) {
          Run(b->value);
          Run(b->var);
        }
      }
      Run(n->body);
    }
    WALK(Function, FunctionObj) {
      for (const Var& p : n->params) Run(p);
      Run(n->body);
    }
    WALK(Binary, BinaryObj) {
      Run(n->a);
      Run(n->b);
    }
    WALK(Cast, CastObj) { Run(n->value); }
    WALK(Select, SelectObj) {
      Run(n->condition);
      Run(n->true_value);
      Run(n->false_value);
    }
    WALK(Let, LetObj) {
      Run(n->value);
      Run(n->var);
      Run(n->body);
    }
    WALK(Ramp, RampObj) {
      Run(n->base);
      Run(n->stride);
    }
    WALK(Broadcast, BroadcastObj) { Run(n->value); }
    WALK(Shuffle, ShuffleObj) {
      for (const Expr& v : n->vectors) Run(v);
    }
    WALK(Intrin, IntrinObj) {
      for (const Expr& a : n->args) Run(a);
    }
#undef WALK
    void VisitOther(const ExprObj*) override {}

   private:
    const std::function<void(const Expr&)>& f_;
    std::unordered_set<const ffi::Object*> seen_;
  };
  Walker(f).Run(e);
}

// ---- symbolic variables
// ---------------------------------------------------------------------------------------------------

namespace {

class SymbolicVarCollector : public Visitor {
 public:
  ffi::Array<Var> found;
  void VisitVar(const VarObj* v) override {
    if (v->ty.defined() && v->ty.as<PrimTypeObj>() && seen_.insert(v).second)
      found.push_back(ffi::GetRef<Var>(v));
    // A shape variable's own values count as well.
    if (v->ty.defined() && v->ty.as<ShapeTypeObj>()) VisitType(v->ty);
  }

 private:
  std::unordered_set<const ffi::Object*> seen_;
};

class FreeVarCollector : public Visitor {
 public:
  ffi::Array<Var> found;
  void VisitVar(const VarObj* v) override {
    if (!defined_.count(v) && seen_.insert(v).second) found.push_back(ffi::GetRef<Var>(v));
  }
  void VisitDef(const Var& v) override {
    // Symbolic variables that stand alone in a definition's type are defined by it.
    for (const Var& s : DefinableSymbolicVars(v->ty)) defined_.insert(s.get());
    VisitType(v->ty);
    defined_.insert(v.get());
  }
  void VisitBinding(const Binding& b) override {
    Visit(b->value);
    if (const auto* cast = b.as<MatchCastObj>()) {
      for (const Var& s : DefinableSymbolicVars(cast->ty)) defined_.insert(s.get());
      VisitType(cast->ty);
    }
    VisitDef(b->var);
  }
  void VisitOther(const ExprObj*) override {}

 private:
  std::unordered_set<const ffi::Object*> defined_;
  std::unordered_set<const ffi::Object*> seen_;
};

void CollectDefinable(const Type& type, std::unordered_set<const ffi::Object*>* seen,
                      ffi::Array<Var>* out) {
  auto take = [&](const ffi::Array<Expr>& dims) {
    for (const Expr& d : dims) {
      if (auto v = d.as<Var>(); v.has_value() && seen->insert(d.get()).second)
        out->push_back(v.value());
    }
  };
  if (const auto* tensor = type.as<TensorTypeObj>()) {
    if (auto dims = tensor->GetShape()) take(dims.value());
  } else if (const auto* shape = type.as<ShapeTypeObj>()) {
    if (shape->values.has_value()) take(shape->values.value());
  } else if (const auto* tuple = type.as<TupleTypeObj>()) {
    for (const Type& f : tuple->fields) CollectDefinable(f, seen, out);
  }
}

}  // namespace

ffi::Array<Var> SymbolicVars(const Type& type) {
  SymbolicVarCollector collector;
  collector.VisitType(type);
  return collector.found;
}
ffi::Array<Var> DefinableSymbolicVars(const Type& type) {
  ffi::Array<Var> out;
  std::unordered_set<const ffi::Object*> seen;
  if (type.defined()) CollectDefinable(type, &seen, &out);
  return out;
}
ffi::Array<Var> FreeVars(const Expr& e) {
  FreeVarCollector collector;
  collector.Visit(e);
  return collector.found;
}

}  // namespace relaxvm::ir
