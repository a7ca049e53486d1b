// SPDX-License-Identifier: Apache-2.0
// MergeCompositeFunctions: neighbouring calls of composite functions for one code generator become
// one exported function with attribute "Codegen".  Stage: graph, after FuseOpsByPattern.  Groups
// that would wait for each other stay apart; second names and items of tuples go along.
#include <algorithm>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "analysis/reads.h"
#include "ops/op_def.h"
#include "passes/canonical/bind.h"
#include "passes/fuse/composite.h"
#include "passes/fuse/group_function.h"
#include "passes/pass.h"

namespace relaxvm::passes {
namespace {

using analysis::VarsIn;
using ir::Expr;
using ir::Var;

std::vector<const ir::VarObj*> ReadBy(const ir::Binding& b) {
  VarsIn vars;
  vars.Visit(b->value);
  return std::move(vars.found);
}

ffi::Optional<ir::Function> CompositeCalled(const IRModule& mod, const Expr& value) {
  auto* call = value.as<ir::CallObj>();
  auto* var = call == nullptr ? nullptr : call->op.as<ir::GlobalVarObj>();
  if (var == nullptr) return std::nullopt;
  auto func = mod->Find(var->name_hint);
  auto f = func ? func.value().as<ir::Function>() : std::nullopt;
  if (!f || CodegenOf(f->get()).empty()) return std::nullopt;
  return f;
}

// Groups of one block.  Bindings come in an order in which values stand before their users.
class GroupFinder {
 public:
  GroupFinder(const ir::DataflowBlock& block, const IRModule& mod) : block_(block), mod_(mod) {
    const size_t n = block->bindings.size();
    for (size_t i = 0; i < n; ++i) index_.emplace(block->bindings[i]->var.get(), i);
    sources_.resize(n);
    users_.resize(n);
    codegen_.resize(n);
    for (size_t i = 0; i < n; ++i) {
      for (const ir::VarObj* v : ReadBy(block->bindings[i])) {
        auto it = index_.find(v);
        if (it == index_.end()) continue;
        sources_[i].push_back(it->second);
        users_[it->second].push_back(i);
      }
      if (auto f = CompositeCalled(mod, block->bindings[i]->value)) {
        codegen_[i] = CodegenOf(f.value().get());
      }
    }
  }

  std::vector<std::vector<int>> Run() {
    const size_t n = block_->bindings.size();
    group_.resize(n);
    for (size_t i = 0; i < n; ++i) {
      group_[i] = NewGroup(codegen_[i], i);
      if (!codegen_[i].empty()) {
        for (size_t s : sources_[i]) TryMerge(group_[s], group_[i]);
      } else if (GoesAlong(i)) {
        Merge(group_[sources_[i][0]], group_[i]);
      }
    }
    DropLooseEnds();
    std::vector<std::vector<int>> out;
    for (Group& g : groups_) {
      if (g.codegen.empty() || g.members.empty()) continue;
      std::vector<int> members(g.members.begin(), g.members.end());
      std::sort(members.begin(), members.end());
      out.push_back(std::move(members));
    }
    return out;
  }

 private:
  struct Group {
    std::string codegen;
    std::vector<int> members;
  };

  size_t NewGroup(const std::string& codegen, size_t i) {
    groups_.push_back({codegen, {static_cast<int>(i)}});
    return groups_.size() - 1;
  }

  // Is there a way from group `from` to group `to` that leaves both in between?
  bool Detour(size_t from, size_t to) const {
    std::vector<int> todo;
    std::unordered_set<int> seen;
    auto follow = [&](int i) {
      for (size_t u : users_[i]) {
        if (u < group_.size() && seen.insert(static_cast<int>(u)).second) {
          todo.push_back(static_cast<int>(u));
        }
      }
    };
    for (int m : groups_[from].members) {
      for (size_t u : users_[m]) {
        // What is not placed yet stands in no group.
        if (!Placed(u) || group_[u] == from || group_[u] == to) continue;
        if (seen.insert(static_cast<int>(u)).second) todo.push_back(static_cast<int>(u));
      }
    }
    while (!todo.empty()) {
      const int i = todo.back();
      todo.pop_back();
      if (!Placed(i)) continue;
      if (group_[i] == to || group_[i] == from) return true;
      // Groups are entered as a whole.
      for (int m : groups_[group_[i]].members) follow(m);
    }
    return false;
  }
  bool Placed(size_t i) const { return i < placed_; }

  void TryMerge(size_t a, size_t b) {
    if (a == b || groups_[a].codegen != groups_[b].codegen) return;
    placed_ = std::max(placed_, static_cast<size_t>(groups_[b].members.back()) + 1);
    if (!Detour(a, b) && !Detour(b, a)) Merge(a, b);
  }
  void Merge(size_t into, size_t from) {
    for (int m : groups_[from].members) {
      groups_[into].members.push_back(m);
      group_[m] = into;
    }
    groups_[from].members.clear();
    std::sort(groups_[into].members.begin(), groups_[into].members.end());
  }

  // Another name, an item of a tuple or a tuple of what one group computes.
  bool GoesAlong(size_t i) {
    const Expr& value = block_->bindings[i]->value;
    if (!block_->bindings[i].as<ir::VarBindingObj>() || sources_[i].empty()) return false;
    const size_t group = group_[sources_[i][0]];
    if (groups_[group].codegen.empty()) return false;
    for (size_t s : sources_[i]) {
      if (group_[s] != group) return false;
    }
    placed_ = std::max(placed_, i + 1);
    if (value.as<ir::VarObj>()) return true;
    if (value.as<ir::TupleObj>()) {
      auto* tuple = value.as<ir::TupleObj>();
      const bool all = tuple->fields.size() == sources_[i].size();
      return all && !Escapes(i, groups_[group].codegen);
    }
    return value.as<ir::TupleGetItemObj>() &&
           !Escapes(Root(sources_[i][0]), groups_[group].codegen);
  }

  size_t Root(size_t i) const {
    while (block_->bindings[i]->value.as<ir::VarObj>() && !sources_[i].empty()) {
      i = sources_[i][0];
    }
    return i;
  }

  // Does somebody read the whole tuple, besides calls for the same code generator?
  bool Escapes(size_t tuple, const std::string& codegen) const {
    std::vector<size_t> names = {tuple};
    while (!names.empty()) {
      const size_t i = names.back();
      names.pop_back();
      if (!block_->bindings[i]->var.as<ir::DataflowVarObj>()) return true;
      for (size_t u : users_[i]) {
        const Expr& value = block_->bindings[u]->value;
        if (value.as<ir::VarObj>()) {
          names.push_back(u);
        } else if (!value.as<ir::TupleGetItemObj>() && codegen_[u] != codegen) {
          return true;
        }
      }
    }
    return false;
  }

  // Items and tuples that no member of their group reads stay outside.
  void DropLooseEnds() {
    for (size_t i = block_->bindings.size(); i-- > 0;) {
      const Expr& value = block_->bindings[i]->value;
      if (!value.as<ir::TupleObj>() && !value.as<ir::TupleGetItemObj>()) continue;
      Group& g = groups_[group_[i]];
      if (g.codegen.empty()) continue;
      const bool read = std::any_of(users_[i].begin(), users_[i].end(),
                                    [&](size_t u) { return group_[u] == group_[i]; });
      if (read) continue;
      g.members.erase(std::find(g.members.begin(), g.members.end(), static_cast<int>(i)));
      group_[i] = NewGroup("", i);
    }
  }

  const ir::DataflowBlock& block_;
  const IRModule& mod_;
  std::unordered_map<const ffi::Object*, size_t> index_;
  std::vector<std::vector<size_t>> sources_, users_;
  std::vector<std::string> codegen_;
  std::vector<size_t> group_;
  std::vector<Group> groups_;
  size_t placed_ = 0;
};

class Merger : public ir::Mutator {
 public:
  explicit Merger(IRModule mod) : mod_(std::move(mod)) {}

  IRModule Run() {
    std::vector<std::pair<ir::GlobalVar, ir::Function>> todo;
    for (const auto& [var, func] : mod_->functions) {
      auto f = func.as<ir::Function>();
      if (f && !IsComposite(f->get())) todo.emplace_back(var, *f);
    }
    for (const auto& [var, func] : todo) {
      outside_ = {};
      Expr made = Mutate(func);
      if (!made.same_as(func)) mod_.Update(var->name_hint, made.as<ir::BaseFunc>().value());
    }
    return RemoveUnusedComposites(mod_);
  }

  ir::BindingBlock MutateBlock(const ir::BindingBlock& block) override {
    for (const ir::Binding& b : block->bindings) outside_.Set(b->var, b->value);
    auto dataflow = block.as<ir::DataflowBlock>();
    if (!dataflow) return ir::Mutator::MutateBlock(block);
    auto groups = GroupFinder(*dataflow, mod_).Run();
    if (groups.empty()) return block;
    return ReplaceGroups(*dataflow, groups,
                         [&](const std::vector<int>& group, const std::vector<Var>& outputs) {
                           return Call(*dataflow, group, outputs);
                         });
  }
  Expr MutateFunction(const ir::Function& f) override {
    return IsComposite(f.get()) ? Expr(f) : ir::Mutator::MutateFunction(f);
  }
  Expr MutateOther(const Expr& e) override { return e; }

 private:
  GroupCall Call(const ir::DataflowBlock& block, const std::vector<int>& group,
                 const std::vector<Var>& outputs) {
    std::vector<ir::Binding> bindings;
    std::string name = "fused", codegen;
    for (int i : group) {
      const ir::Binding& b = block->bindings[i];
      bindings.push_back(b);
      auto f = CompositeCalled(mod_, b->value);
      if (!f) continue;
      codegen = CodegenOf(f.value().get());
      std::string part(b->value.as<ir::CallObj>()->op.as<ir::GlobalVarObj>()->name_hint);
      if (part.rfind("fused_", 0) == 0) part = part.substr(6);
      name += "_" + part;
    }
    GroupOptions options;
    options.dataflow = false;
    options.bind_constants = false;  // what FuseOpsByPattern bound lies in the composite function
    GroupFunction made = MakeGroupFunction(bindings, outputs, outside_, options);
    ir::Function func = WithLocals(made.function);
    func = ir::WithAttr(func, kCodegen, ffi::String(codegen));
    ir::GlobalVar var = Named(func, name, codegen);
    ffi::Array<ir::Type> fields;
    for (const Var& v : made.outputs) fields.push_back(v->ty);
    ir::Type type = fields.size() == 1 ? fields[0] : ir::Type(ir::TupleType(fields));
    return {ir::Call(var, made.args, ir::Attrs(), {}, block->span, type), made.outputs};
  }

  // Equal groups are one function.
  ir::GlobalVar Named(const ir::Function& func, const std::string& name,
                      const std::string& codegen) {
    auto& same = by_hash_[ir::StructuralHash(func)];
    for (const auto& [known, var] : same) {
      if (ir::StructuralEqual(known, func)) return var;
    }
    const std::string full =
        std::string(mod_.UniqueName(std::string(mod_.UniqueName(name)) + "_" + codegen));
    ir::GlobalVar var =
        mod_.Update(full, ir::WithAttr(func, ir::attr::kGlobalSymbol, ffi::String(full)));
    same.emplace_back(func, var);
    return var;
  }

  // Each called composite function stands before its first call, as a local function.
  ir::Function WithLocals(const ir::Function& f) {
    ffi::Array<ir::Binding> bindings;
    std::unordered_map<const ffi::Object*, Var> locals;
    for (const ir::Binding& b : f->body->blocks[0]->bindings) {
      auto composite = CompositeCalled(mod_, b->value);
      if (!composite) {
        bindings.push_back(b);
        continue;
      }
      auto it = locals.find(composite.value().get());
      if (it == locals.end()) {
        ir::Function inner = AsLocal(CopyWithFreshVars(composite.value()));
        it = locals.emplace(composite.value().get(), Var("local", inner->ty)).first;
        bindings.push_back(ir::VarBinding(it->second, inner));
      }
      auto* call = b->value.as<ir::CallObj>();
      bindings.push_back(ir::VarBinding(
          b->var, ir::Call(it->second, call->args, ir::Attrs(), {}, call->span, call->ty),
          b->span));
    }
    return ir::Function(f->params, ir::SeqExpr({ir::BindingBlock(bindings)}, f->body->body),
                        f->ret_ty, f->is_pure, f->attrs, f->span);
  }

  IRModule mod_;
  ffi::Map<Var, Expr> outside_;
  std::unordered_map<uint64_t, std::vector<std::pair<ir::Function, ir::GlobalVar>>> by_hash_;
};

}  // namespace

IRModule MergeCompositeFunctions(IRModule mod, const PassContext& context) {
  return Merger(std::move(mod)).Run();
}

}  // namespace relaxvm::passes
