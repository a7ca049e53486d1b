// SPDX-License-Identifier: Apache-2.0
#include "passes/fuse/group_function.h"

#include <queue>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "analysis/reads.h"
#include "passes/canonical/bind.h"

namespace relaxvm::passes {
namespace {

using analysis::VarsIn;
using ir::Expr;
using ir::Var;

bool IsStaticShape(const Expr& e) {
  auto* shape = e.as<ir::ShapeExprObj>();
  if (shape == nullptr) return false;
  for (const Expr& v : shape->values) {
    if (!ir::AsInt(v)) return false;
  }
  return true;
}

class Maker : public ir::Mutator {
 public:
  Maker(const ffi::Map<Var, Expr>& outside, const GroupOptions& options)
      : outside_(outside), options_(options) {}

  GroupFunction Run(const std::vector<ir::Binding>& bindings, const std::vector<Var>& outputs) {
    std::unordered_set<const ffi::Object*> results;
    for (const Var& v : outputs) results.insert(v.get());
    ffi::Array<ir::Binding> inner;
    for (const ir::Binding& b : bindings) {
      Expr value = Mutate(b->value);
      NoteSizes(b->var->ty);
      const bool local = options_.dataflow && !results.count(b->var.get());
      Var var = local ? Var(ir::DataflowVar(b->var->name, b->var->ty, b->var->span))
                      : Var(b->var->name, b->var->ty, b->var->span);
      inside_.insert_or_assign(b->var.get(), var);
      if (auto* cast = b.as<ir::MatchCastObj>()) {
        inner.push_back(ir::MatchCast(var, value, cast->ty, b->span));
      } else {
        inner.push_back(ir::VarBinding(var, value, b->span));
      }
    }
    AddSizes();
    ffi::Array<Expr> fields;
    for (const Var& v : outputs) fields.push_back(inside_.at(v.get()));
    Expr result = fields.size() == 1 ? fields[0] : Expr(ir::Tuple(fields));
    ir::BindingBlock block = options_.dataflow ? ir::DataflowBlock(inner) : ir::BindingBlock(inner);
    ir::Function made(params_, ir::SeqExpr({block}, result), ir::Type());
    return {CopyWithFreshVars(made), args_, outputs};
  }

  Expr MutateVar(const Var& v) override {
    if (auto it = inside_.find(v.get()); it != inside_.end()) return it->second;
    if (v->ty.as<ir::PrimTypeObj>() && !outside_.count(v)) {
      NoteSize(v);
      return v;
    }
    if (auto it = outside_.find(v); it != outside_.end() && IsStaticShape((*it).second)) {
      return (*it).second;
    }
    return Param(v, v->name);
  }
  Expr MutateConstant(const ir::Constant& c) override {
    if (options_.bind_constants) return c;
    return Param(c, "param_" + std::to_string(params_.size()));
  }
  // A shape that sizes of the caller stand in comes from the caller.
  Expr MutateShape(const ir::ShapeExpr& s) override {
    if (IsStaticShape(s)) return s;
    return Param(s, "param_" + std::to_string(params_.size()));
  }
  // Local functions see what is around them by their own rules.
  ir::Type MutateType(const ir::Type& type) override {
    NoteSizes(type);
    return type;
  }
  Var MutateDef(const Var& v) override {
    inside_.insert_or_assign(v.get(), v);
    return v;
  }
  Expr MutateOther(const Expr& e) override { return e; }

 private:
  Expr Param(const Expr& arg, ffi::String name) {
    if (auto it = inside_.find(arg.get()); it != inside_.end()) return it->second;
    Var param(std::move(name), arg->ty);
    params_.push_back(param);
    args_.push_back(arg);
    inside_.emplace(arg.get(), param);
    NoteSizes(arg->ty);
    return param;
  }
  void NoteSizes(const ir::Type& type) {
    if (!type.defined()) return;
    for (const Var& v : ir::SymbolicVars(type)) NoteSize(v);
  }
  void NoteSize(const Var& v) {
    if (seen_.insert(v.get()).second) sizes_.push_back(v);
  }
  // Sizes that no parameter gives come as a shape.
  void AddSizes() {
    std::unordered_set<const ffi::Object*> known;
    for (const Var& param : params_) {
      for (const Var& v : ir::DefinableSymbolicVars(param->ty)) known.insert(v.get());
    }
    for (const auto& [from, to] : inside_) known.insert(from);
    ffi::Array<Expr> missing;
    for (const Var& v : sizes_) {
      if (!known.count(v.get())) missing.push_back(v);
    }
    if (missing.empty()) return;
    params_.push_back(Var("sizes", ir::ShapeType(missing)));
    args_.push_back(ir::ShapeExpr(missing));
  }

  const ffi::Map<Var, Expr>& outside_;
  GroupOptions options_;
  std::unordered_map<const ffi::Object*, Expr> inside_;
  std::unordered_set<const ffi::Object*> seen_;
  std::vector<Var> sizes_;
  ffi::Array<Var> params_;
  ffi::Array<Expr> args_;
};

// The block as units: a group, or a binding on its own.
class Replacer {
 public:
  Replacer(const ir::DataflowBlock& block, const std::vector<std::vector<int>>& groups)
      : block_(block) {
    const int n = static_cast<int>(block->bindings.size());
    std::vector<int> group_of(n, -1);
    for (size_t g = 0; g < groups.size(); ++g) {
      for (int i : groups[g]) group_of[i] = static_cast<int>(g);
    }
    std::unordered_map<int, int> unit_of_group;
    unit_.resize(n);
    for (int i = 0; i < n; ++i) {
      auto [it, added] = unit_of_group.try_emplace(group_of[i], static_cast<int>(units_.size()));
      if (group_of[i] < 0 || added) {
        it->second = static_cast<int>(units_.size());
        units_.push_back({{}, group_of[i] >= 0});
      }
      unit_[i] = it->second;
      units_[unit_[i]].members.push_back(i);
      index_.emplace(block->bindings[i]->var.get(), i);
      // Sizes that a cast binds belong to it.
      if (auto* cast = block->bindings[i].as<ir::MatchCastObj>()) {
        for (const Var& v : ir::DefinableSymbolicVars(cast->ty)) index_.emplace(v.get(), i);
      }
    }
    for (int i = 0; i < n; ++i) NoteReads(i);
  }

  template <typename MakeCall>
  ir::DataflowBlock Run(const MakeCall& make_call) {
    // The unit that ended first goes first, among those that wait for nobody.
    auto later = [this](int a, int b) {
      return units_[a].members.back() > units_[b].members.back();
    };
    std::priority_queue<int, std::vector<int>, decltype(later)> ready(later);
    for (size_t u = 0; u < units_.size(); ++u) {
      if (units_[u].waits == 0) ready.push(static_cast<int>(u));
    }
    size_t done = 0;
    while (!ready.empty()) {
      const int u = ready.top();
      ready.pop();
      ++done;
      Emit(units_[u], make_call);
      for (int next : units_[u].readers) {
        if (--units_[next].waits == 0) ready.push(next);
      }
    }
    if (done != units_.size()) {
      Fail(ErrorKind::kRuntimeError, block_->span.Place(),
           "A cyclic dependency detected: what a pattern groups needs a value from outside that "
           "needs the group itself; make the pattern smaller, or cover the values between");
    }
    return ir::DataflowBlock(out_, block_->span);
  }

 private:
  struct Unit {
    std::vector<int> members;
    bool group = false;
    int waits = 0;
    std::vector<int> readers = {};
    std::unordered_set<int> sources = {};
    std::vector<Var> outputs = {};  // in the order of first use outside
  };

  void NoteReads(int i) {
    VarsIn vars;
    vars.VisitBinding(block_->bindings[i]);
    const int me = unit_[i];
    for (const ir::VarObj* v : vars.found) {
      auto it = index_.find(v);
      if (it == index_.end() || unit_[it->second] == me) continue;
      Unit& source = units_[unit_[it->second]];
      if (units_[me].sources.insert(unit_[it->second]).second) {
        source.readers.push_back(me);
        ++units_[me].waits;
      }
      AddOutput(&source, block_->bindings[it->second]->var);
    }
  }
  static void AddOutput(Unit* unit, const Var& v) {
    for (const Var& known : unit->outputs) {
      if (known.same_as(v)) return;
    }
    unit->outputs.push_back(v);
  }

  template <typename MakeCall>
  void Emit(Unit& unit, const MakeCall& make_call) {
    if (!unit.group) return out_.push_back(block_->bindings[unit.members[0]]);
    for (int i : unit.members) {
      const Var& v = block_->bindings[i]->var;
      if (!v.as<ir::DataflowVarObj>()) AddOutput(&unit, v);
    }
    if (unit.outputs.empty()) {
      unit.outputs.push_back(block_->bindings[unit.members.back()]->var);
    }
    GroupCall call = make_call(unit.members, unit.outputs);
    if (call.outputs.size() == 1) {
      return out_.push_back(ir::VarBinding(call.outputs[0], call.value));
    }
    Var whole = ir::DataflowVar("lv", call.value->ty);
    out_.push_back(ir::VarBinding(whole, call.value));
    for (int i : unit.members) {
      const Var& v = block_->bindings[i]->var;
      for (size_t k = 0; k < call.outputs.size(); ++k) {
        if (!call.outputs[k].same_as(v)) continue;
        Expr item = ir::TupleGetItem(whole, static_cast<int64_t>(k));
        item->ty = v->ty;
        out_.push_back(ir::VarBinding(v, item));
      }
    }
  }

  const ir::DataflowBlock& block_;
  std::vector<int> unit_;
  std::vector<Unit> units_;
  std::unordered_map<const ffi::Object*, int> index_;
  ffi::Array<ir::Binding> out_;
};

}  // namespace

GroupFunction MakeGroupFunction(const std::vector<ir::Binding>& bindings,
                                const std::vector<Var>& outputs, const ffi::Map<Var, Expr>& outside,
                                const GroupOptions& options) {
  return Maker(outside, options).Run(bindings, outputs);
}

ir::DataflowBlock ReplaceGroups(
    const ir::DataflowBlock& block, const std::vector<std::vector<int>>& groups,
    const std::function<GroupCall(const std::vector<int>&, const std::vector<Var>&)>& make_call) {
  return Replacer(block, groups).Run(make_call);
}

}  // namespace relaxvm::passes
