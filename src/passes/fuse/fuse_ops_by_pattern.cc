// SPDX-License-Identifier: Apache-2.0
// FuseOpsByPattern: values that match a pattern become a private function with attribute
// "Composite", for a code generator that knows the pattern.  Stage: graph.  Earlier patterns go
// first; a value belongs to one group.  With annotate_codegen each group is a function of its own
// for the code generator, exported, around a local one.
#include <algorithm>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "analysis/pattern.h"
#include "ops/op_def.h"
#include "passes/fuse/composite.h"
#include "passes/fuse/group_function.h"
#include "passes/pass.h"

namespace relaxvm::passes {
namespace {

using analysis::Pattern;
using analysis::PatternMatcher;
using ir::Expr;
using ir::Var;

struct FusionPattern {
  std::string name;
  Pattern pattern;
  ffi::Map<ffi::String, Pattern> annotations;
  ffi::Optional<ffi::Function> check;
};

std::vector<FusionPattern> PatternsOf(const PassContext& context) {
  std::vector<FusionPattern> out;
  for (const auto& row : context.Option<ffi::Array<ffi::Array<ffi::Any>>>("patterns")) {
    out.push_back({std::string(row[0].cast<ffi::String>()), row[1].cast<Pattern>(),
                   row[2].cast<ffi::Map<ffi::String, Pattern>>(), row[3].as<ffi::Function>()});
  }
  return out;
}

// Groups of one block, by index of binding.
class BlockMatcher {
 public:
  explicit BlockMatcher(const ir::DataflowBlock& block) : block_(block) {
    for (size_t i = 0; i < block->bindings.size(); ++i) {
      const ir::Binding& b = block->bindings[i];
      index_.emplace(b->var.get(), static_cast<int>(i));
      // A second name, and a check, end a group: both are kept.
      if (b.as<ir::VarBindingObj>() && !b->value.as<ir::VarObj>()) {
        values_.emplace(b->var.get(), b->value);
      }
    }
    taken_.resize(block->bindings.size());
  }

  void Run(const FusionPattern& pattern) {
    for (size_t i = block_->bindings.size(); i-- > 0;) {
      const ir::Binding& b = block_->bindings[i];
      if (taken_[i] || !values_.count(b->var.get())) continue;
      PatternMatcher matcher(values_);
      if (!matcher.Match(pattern.pattern.get(), b->value)) continue;
      std::vector<int> members = Members(matcher, static_cast<int>(i));
      if (members.empty() || !Accepts(pattern, matcher, b, members)) continue;
      for (int m : members) taken_[m] = true;
      groups.push_back(std::move(members));
      names.push_back(pattern.name);
    }
  }

  std::vector<std::vector<int>> groups;
  std::vector<std::string> names;

 private:
  // Bindings whose value a node for a computation matched; empty when one is taken.
  std::vector<int> Members(const PatternMatcher& matcher, int root) {
    std::vector<int> members = {root};
    for (const auto& [p, e] : matcher.found()) {
      if (!analysis::MatchesComputation(p)) continue;
      auto it = index_.find(e.get());
      if (it == index_.end() || !values_.count(e.get())) continue;
      members.push_back(it->second);
    }
    std::sort(members.begin(), members.end());
    members.erase(std::unique(members.begin(), members.end()), members.end());
    for (int m : members) {
      if (taken_[m]) return {};
    }
    return members;
  }

  bool Accepts(const FusionPattern& pattern, const PatternMatcher& matcher, const ir::Binding& root,
               const std::vector<int>& members) {
    if (!pattern.check.has_value()) return true;
    ffi::Map<Pattern, Expr> found = matcher.Found(true);
    ffi::Map<ffi::String, Expr> annotated;
    for (const auto& [name, p] : pattern.annotations) {
      if (auto it = found.find(p); it != found.end()) annotated.Set(name, (*it).second);
    }
    ffi::Map<Var, Expr> matched;
    for (int m : members) matched.Set(block_->bindings[m]->var, block_->bindings[m]->value);
    NoteUsers();
    return pattern.check.value()(root->value, annotated, matched, users_, bound_).cast<bool>();
  }

  void NoteUsers() {
    if (!users_.empty()) return;
    class Vars : public ir::Visitor {
     public:
      std::vector<const ir::VarObj*> found;
      void VisitVar(const ir::VarObj* v) override { found.push_back(v); }
      void VisitOther(const ir::ExprObj*) override {}
    };
    for (const ir::Binding& b : block_->bindings) {
      bound_.Set(b->value, b->var);
      if (!users_.count(b->var)) users_.Set(b->var, {});
      Vars vars;
      vars.Visit(b->value);
      for (const ir::VarObj* v : vars.found) {
        Var var = ffi::GetRef<Var>(v);
        ffi::Array<Var> list = users_.count(var) ? users_[var] : ffi::Array<Var>();
        list.push_back(b->var);
        users_.Set(var, list);
      }
    }
  }

  const ir::DataflowBlock& block_;
  analysis::VarValues values_;
  std::unordered_map<const ffi::Object*, int> index_;
  std::vector<bool> taken_;
  ffi::Map<Var, ffi::Array<Var>> users_;
  ffi::Map<Expr, Var> bound_;
};

class Partitioner : public ir::Mutator {
 public:
  Partitioner(IRModule mod, const std::vector<FusionPattern>& patterns, GroupOptions options)
      : patterns_(patterns),
        options_(options),
        facts_(ops::MakeTypeContext()),
        builder_(facts_.get(), std::move(mod)) {}

  void Run(const ir::GlobalVar& var, const ir::Function& func) {
    outside_ = {};
    Expr made = Mutate(func);
    if (!made.same_as(func)) builder_.UpdateFunction(var, made.as<ir::Function>().value());
  }
  const IRModule& module() const { return builder_.module(); }

  Expr MutateFunction(const ir::Function& f) override {
    return IsComposite(f.get()) ? Expr(f) : ir::Mutator::MutateFunction(f);
  }
  ir::BindingBlock MutateBlock(const ir::BindingBlock& block) override {
    for (const ir::Binding& b : block->bindings) outside_.Set(b->var, b->value);
    auto dataflow = block.as<ir::DataflowBlock>();
    if (!dataflow) return ir::Mutator::MutateBlock(block);
    BlockMatcher matcher(*dataflow);
    for (const FusionPattern& pattern : patterns_) matcher.Run(pattern);
    if (matcher.groups.empty()) return block;
    return ReplaceGroups(*dataflow, matcher.groups,
                         [&](const std::vector<int>& group, const std::vector<Var>& outputs) {
                           auto at = std::find(matcher.groups.begin(), matcher.groups.end(), group);
                           return Call(*dataflow, group, outputs,
                                       matcher.names[at - matcher.groups.begin()]);
                         });
  }
  Expr MutateOther(const Expr& e) override { return e; }

 private:
  GroupCall Call(const ir::DataflowBlock& block, const std::vector<int>& group,
                 const std::vector<Var>& outputs, const std::string& composite) {
    std::vector<ir::Binding> bindings;
    std::string name = "fused";
    for (int i : group) {
      bindings.push_back(block->bindings[i]);
      if (std::string op = CalledName(block->bindings[i]->value); !op.empty()) name += "_" + op;
    }
    GroupFunction made = MakeGroupFunction(bindings, outputs, outside_, options_);
    ir::Function func = ir::WithAttr(made.function, kComposite, ffi::String(composite));
    func = ir::WithAttr(func, ir::attr::kPrimitive, true);
    ir::GlobalVar var = builder_.AddFunction(func, name);
    ir::Call call(var, made.args);
    return {builder_.Normalize(call), made.outputs};
  }

  static std::string CalledName(const Expr& value) {
    auto* call = value.as<ir::CallObj>();
    if (call == nullptr) return "";
    std::string name;
    if (auto* op = call->op.as<ir::OpObj>()) {
      name = std::string(op->name);
      if (name == "relax.call_tir" && call->args[0].as<ir::GlobalVarObj>())
        name = std::string(call->args[0].as<ir::GlobalVarObj>()->name_hint);
    } else if (auto* var = call->op.as<ir::GlobalVarObj>()) {
      name = std::string(var->name_hint);
    } else if (auto* packed = call->op.as<ir::ExternFuncObj>()) {
      name = std::string(packed->global_symbol);
    }
    std::replace(name.begin(), name.end(), '.', '_');
    return name;
  }

  const std::vector<FusionPattern>& patterns_;
  GroupOptions options_;
  std::unique_ptr<ir::TypeContext> facts_;
  ir::BlockBuilder builder_;
  ffi::Map<Var, Expr> outside_;
};

// Groups are found by their variables: each must be bound in one place.
void RequireUniqueVariables(const IRModule& mod) {
  class Definitions : public ir::Visitor {
   public:
    void VisitDef(const Var& v) override {
      if (!seen_.insert(v.get()).second) {
        Fail(ErrorKind::kValueError, v->span.Place(), "FuseOpsByPattern: variable ", v->name,
             " is defined twice in the module; copy functions with fresh variables");
      }
    }
    void VisitOther(const ir::ExprObj*) override {}

   private:
    std::unordered_set<const ffi::Object*> seen_;
  } definitions;
  for (const auto& [var, func] : mod->functions) {
    if (func.as<ir::FunctionObj>()) definitions.Visit(func);
  }
}

}  // namespace

IRModule FuseOpsByPattern(IRModule mod, const PassContext& context) {
  RequireUniqueVariables(mod);
  const std::vector<FusionPattern> patterns = PatternsOf(context);
  auto entries = context.options["entry_functions"].as<ffi::Array<ffi::String>>();
  GroupOptions options;
  options.bind_constants = context.Option<bool>("bind_constants");
  Partitioner partitioner(mod, patterns, options);
  for (const auto& [var, func] : mod->functions) {
    auto f = func.as<ir::Function>();
    if (!f || IsComposite(f->get())) continue;
    if (entries && !entries.value().empty() &&
        std::find(entries.value().begin(), entries.value().end(), var->name_hint) ==
            entries.value().end()) {
      continue;
    }
    partitioner.Run(var, *f);
  }
  IRModule out = partitioner.module();
  return context.Option<bool>("annotate_codegen") ? ExportComposites(out) : out;
}

}  // namespace relaxvm::passes
