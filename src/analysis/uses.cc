// SPDX-License-Identifier: Apache-2.0
#include "analysis/uses.h"

#include <algorithm>
#include <unordered_set>

#include "ir/visitor.h"

namespace relaxvm::analysis {
namespace {

namespace ffi = tvm::ffi;
using ir::Expr;
using ir::Var;

// Tensor programs hold no Relax variables.
class RelaxVisitor : public ir::Visitor {
 public:
  void VisitOther(const ir::ExprObj*) override {}
};

class VarsIn : public RelaxVisitor {
 public:
  std::vector<const ir::VarObj*> found;
  void VisitVar(const ir::VarObj* v) override { found.push_back(v); }
};

class SizeCollector : public RelaxVisitor {
 public:
  ffi::Array<Var> defined, free;

  void VisitVar(const ir::VarObj* v) override {
    if (v->ty.defined() && v->ty.as<ir::PrimTypeObj>() && used_.insert(v).second)
      order_.push_back(ffi::GetRef<Var>(v));
  }
  void VisitFunction(const ir::FunctionObj* f) override {
    for (const Var& param : f->params) {
      if (param->ty.as<ir::PrimTypeObj>()) Define(param);
      DefineIn(param->ty);
    }
    ir::Visitor::VisitFunction(f);
  }
  void VisitBinding(const ir::Binding& b) override {
    if (auto* cast = b.as<ir::MatchCastObj>()) DefineIn(cast->ty);
    if (b->var->ty.defined() && b->var->ty.as<ir::PrimTypeObj>()) known_.insert(b->var.get());
    ir::Visitor::VisitBinding(b);
  }
  void Finish() {
    for (const Var& v : order_) {
      if (!known_.count(v.get())) free.push_back(v);
    }
  }

 private:
  void DefineIn(const ir::Type& type) {
    if (!type.defined()) return;
    for (const Var& v : ir::DefinableSymbolicVars(type)) Define(v);
  }
  void Define(const Var& v) {
    if (known_.insert(v.get()).second) defined.push_back(v);
  }
  std::vector<Var> order_;
  std::unordered_set<const ffi::Object*> used_, known_;
};

// What else names the object that `value` gives.
std::vector<Expr> Aliased(const Expr& value) {
  if (value.as<ir::VarObj>()) return {value};
  if (auto* item = value.as<ir::TupleGetItemObj>()) return {item->tuple_value};
  if (auto* tuple = value.as<ir::TupleObj>()) return {tuple->fields.begin(), tuple->fields.end()};
  // A branch may give anything that it names; what a value of a data type holds is seen by taking
  // it apart.
  if (value.as<ir::IfObj>() || value.as<ir::MatchObj>() || value.as<ir::SeqExprObj>())
    return {value};
  return {};
}

}  // namespace

ffi::Map<Var, Expr> BoundValues(const Expr& e) {
  class Collector : public RelaxVisitor {
   public:
    ffi::Map<Var, Expr> values;
    void VisitBinding(const ir::Binding& b) override {
      values.Set(b->var, b->value);
      ir::Visitor::VisitBinding(b);
    }
  } collector;
  collector.Visit(e);
  return collector.values;
}

UseChains FindUses(const ir::Function& f) {
  class Collector : public RelaxVisitor {
   public:
    std::unordered_map<const ffi::Object*, std::vector<Var>> users;
    std::vector<Var> order;
    ffi::Array<Var> in_result;

    void VisitDef(const Var& v) override { order.push_back(v); }
    void VisitBinding(const ir::Binding& b) override {
      Var outer = std::exchange(user_, b->var);
      ir::Visitor::VisitBinding(b);
      user_ = outer;
    }
    void VisitVar(const ir::VarObj* v) override {
      if (!user_.defined()) {
        in_result.push_back(ffi::GetRef<Var>(v));
        return;
      }
      std::vector<Var>& list = users[v];
      if (list.empty() || !list.back().same_as(user_)) list.push_back(user_);
    }

   private:
    Var user_ = Var(ffi::UnsafeInit{});
  } collector;
  collector.Visit(f);
  UseChains out;
  for (const Var& v : collector.order) {
    const std::vector<Var>& list = collector.users[v.get()];
    out.users.Set(v, ffi::Array<Var>(list.begin(), list.end()));
  }
  out.in_result = collector.in_result;
  return out;
}

ffi::Array<Var> DefinedSizes(const Expr& e) {
  SizeCollector collector;
  collector.Visit(e);
  return collector.defined;
}

ffi::Array<Var> FreeSizes(const Expr& e) {
  SizeCollector collector;
  collector.Visit(e);
  collector.Finish();
  return collector.free;
}

Liveness::Liveness(const ir::SeqExpr& seq) {
  std::vector<ir::Binding> bindings;
  for (const ir::BindingBlock& block : seq->blocks) {
    bindings.insert(bindings.end(), block->bindings.begin(), block->bindings.end());
  }
  num_bindings_ = static_cast<int>(bindings.size());
  auto use = [&](const Expr& e, int where) {
    VarsIn vars;
    vars.Visit(e);
    for (const ir::VarObj* v : vars.found) {
      auto [it, added] = last_use_.try_emplace(v, where);
      if (!added) it->second = std::max(it->second, where);
    }
  };
  use(seq->body, num_bindings_);
  // Backwards: when a binding is met, all uses of its variable are known.
  for (int i = num_bindings_; i-- > 0;) {
    use(bindings[i]->value, i);
    int life = LastUse(bindings[i]->var);
    for (const Expr& same : Aliased(bindings[i]->value)) {
      if (life > i) use(same, life);
    }
  }
}

int Liveness::LastUse(const Var& var) const {
  auto it = last_use_.find(var.get());
  return it == last_use_.end() ? -1 : it->second;
}

}  // namespace relaxvm::analysis
