// SPDX-License-Identifier: Apache-2.0
// Questions about types and programs for Python.
#include <tvm/ffi/reflection/registry.h>

#include <unordered_set>

#include "analysis/calls.h"
#include "api/register.h"
#include "arith/cost.h"
#include "ir/block_builder.h"
#include "ir/visitor.h"
#include "ops/op_def.h"

namespace relaxvm::api {

namespace ffi = tvm::ffi;
namespace refl = tvm::ffi::reflection;
using ffi::Array;
using ffi::Map;
using ir::Expr;
using ir::Type;
using ir::Var;

namespace {

// Variables of a program: uses and definitions in order, each once.
class VarCollector : public ir::Visitor {
 public:
  void VisitVar(const ir::VarObj* v) override { Add(&all, &seen_, v); }
  void VisitDef(const Var& v) override {
    Add(&bound, &seen_bound_, v.get());
    Add(&all, &seen_, v.get());
    ir::Visitor::VisitDef(v);
  }
  void VisitGlobalVar(const ir::GlobalVarObj* v) override {
    if (seen_globals_.insert(v).second) globals.push_back(ffi::GetRef<ir::GlobalVar>(v));
  }
  void VisitFunction(const ir::FunctionObj* f) override { ir::Visitor::VisitFunction(f); }

  Array<Var> all, bound;
  Array<ir::GlobalVar> globals;

 private:
  using Seen = std::unordered_set<const ffi::Object*>;
  static void Add(Array<Var>* list, Seen* seen, const ir::VarObj* v) {
    if (v->ty.as<ir::PrimTypeObj>() != nullptr && !IsRelaxScalar(v)) return;
    if (seen->insert(v).second) list->push_back(ffi::GetRef<Var>(v));
  }
  // Symbolic dimensions are asked for by functions of their own.
  static bool IsRelaxScalar(const ir::VarObj* v) { return v->IsInstance<ir::DataflowVarObj>(); }
  Seen seen_, seen_bound_, seen_globals_;
};

Array<Var> Without(const Array<Var>& all, const Array<Var>& some) {
  std::unordered_set<const ffi::Object*> drop;
  for (const Var& v : some) drop.insert(v.get());
  Array<Var> rest;
  for (const Var& v : all) {
    if (!drop.count(v.get())) rest.push_back(v);
  }
  return rest;
}

int64_t BaseCheck(const Type& base, const Type& derived) {
  auto facts = ops::MakeTypeContext();
  return static_cast<int64_t>(ir::FitsType(base, derived, *facts));
}

// Symbolic variables that a function's parameters and match_casts define.
Array<Var> DefinedSymbolicVars(const Expr& e) {
  class Collector : public ir::Visitor {
   public:
    void VisitBinding(const ir::Binding& b) override {
      if (const auto* cast = b.as<ir::MatchCastObj>()) Add(cast->ty);
      ir::Visitor::VisitBinding(b);
    }
    void VisitFunction(const ir::FunctionObj* f) override {
      for (const Var& p : f->params) {
        if (p->ty.as<ir::PrimTypeObj>() && seen.insert(p.get()).second) found.push_back(p);
        Add(p->ty);
      }
      ir::Visitor::VisitFunction(f);
    }
    void Add(const Type& type) {
      for (const Var& v : ir::DefinableSymbolicVars(type)) {
        if (seen.insert(v.get()).second) found.push_back(v);
      }
    }
    std::unordered_set<const ffi::Object*> seen;
    Array<Var> found;
  } collector;
  collector.Visit(e);
  return collector.found;
}

Array<Var> AllSymbolicVars(const Expr& e) {
  class Collector : public ir::Visitor {
   public:
    void VisitVar(const ir::VarObj* v) override {
      if (v->ty.as<ir::PrimTypeObj>() && seen.insert(v).second)
        found.push_back(ffi::GetRef<Var>(v));
    }
    void VisitDef(const Var& v) override { VisitType(v->ty); }
    void VisitFunction(const ir::FunctionObj* f) override {
      if (f->ret_ty.defined()) VisitType(f->ret_ty);
      ir::Visitor::VisitFunction(f);
    }
    void VisitBinding(const ir::Binding& b) override {
      if (const auto* cast = b.as<ir::MatchCastObj>()) VisitType(cast->ty);
      ir::Visitor::VisitBinding(b);
    }
    std::unordered_set<const ffi::Object*> seen;
    Array<Var> found;
  } collector;
  collector.Visit(e);
  return collector.found;
}

template <typename F>
auto Collect(const Expr& e, F pick) {
  VarCollector collector;
  collector.Visit(e);
  return pick(collector);
}

// Is there a call with effects, besides calls of `own` (a function that calls itself)?
bool ContainsImpureCall(const Expr& e, const Expr& own) {
  if (const auto* func = e.as<ir::FunctionObj>()) return ContainsImpureCall(func->body, own);
  if (const auto* branch = e.as<ir::IfObj>()) {
    return ContainsImpureCall(branch->true_branch, own) ||
           ContainsImpureCall(branch->false_branch, own);
  }
  if (const auto* match = e.as<ir::MatchObj>()) {
    for (const ir::MatchCase& c : match->cases) {
      if (ContainsImpureCall(c->body, own)) return true;
    }
    return false;
  }
  if (const auto* seq = e.as<ir::SeqExprObj>()) {
    for (const ir::BindingBlock& block : seq->blocks) {
      for (const ir::Binding& b : block->bindings) {
        // A function in a function has an effect only where it is called.
        if (!b->value.as<ir::FunctionObj>() && ContainsImpureCall(b->value, own)) return true;
      }
    }
    return ContainsImpureCall(seq->body, own);
  }
  const auto* call = e.as<ir::CallObj>();
  if (call != nullptr && own.defined() && call->op.same_as(own)) return false;
  return analysis::FindImpureCall(e).defined();
}

}  // namespace

void RegisterAnalysis() {
  refl::GlobalDef()
      .def("relaxvm.analysis.all_vars",
           [](Expr e) { return Collect(e, [](auto& c) { return c.all; }); })
      .def("relaxvm.analysis.bound_vars",
           [](Expr e) { return Collect(e, [](auto& c) { return c.bound; }); })
      .def("relaxvm.analysis.free_vars",
           [](Expr e) { return Collect(e, [](auto& c) { return Without(c.all, c.bound); }); })
      .def("relaxvm.analysis.all_global_vars",
           [](Expr e) { return Collect(e, [](auto& c) { return c.globals; }); })
      .def("relaxvm.analysis.defined_symbolic_vars", DefinedSymbolicVars)
      .def("relaxvm.analysis.free_symbolic_vars",
           [](Expr e) { return Without(AllSymbolicVars(e), DefinedSymbolicVars(e)); })
      .def("relaxvm.analysis.tir_vars_in_type", [](Type t) { return ir::SymbolicVars(t); })
      .def("relaxvm.analysis.definable_tir_vars_in_type",
           [](Type t) { return ir::DefinableSymbolicVars(t); })
      .def("relaxvm.analysis.type_fit", BaseCheck)
      .def("relaxvm.analysis.type_lca",
           [](Type a, Type b) {
             auto facts = ops::MakeTypeContext();
             return ir::LeastCommonType(a, b, *facts);
           })
      .def("relaxvm.analysis.erase_to_visible",
           [](Type t, Array<Var> visible) {
             std::unordered_set<const ffi::Object*> keep;
             for (const Var& v : visible) keep.insert(v.get());
             return ir::EraseToVisible(t,
                                       [&keep](const Var& v) { return keep.count(v.get()) != 0; });
           })
      .def("relaxvm.analysis.call_result_type",
           [](ir::FuncType func, ir::Call call) {
             auto facts = ops::MakeTypeContext();
             return ir::CallResultType(func, call, *facts);
           })
      .def("relaxvm.analysis.contains_impure_call",
           [](Expr e, ffi::Optional<Expr> own) {
             return ContainsImpureCall(e, own.has_value() ? own.value() : Expr());
           })
      .def("relaxvm.analysis.prove_equal",
           [](Expr a, Expr b) { return ops::MakeTypeContext()->ProveEqual(a, b); })
      .def("relaxvm.analysis.prove", [](Expr e) { return ops::MakeTypeContext()->Prove(e); })
      .def("relaxvm.analysis.simplify", [](Expr e) { return ops::MakeTypeContext()->Simplify(e); })
      .def("relaxvm.analysis.is_large_size", arith::IsLargeSize);
}

}  // namespace relaxvm::api
