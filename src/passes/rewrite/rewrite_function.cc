// SPDX-License-Identifier: Apache-2.0
// Values that match a pattern are replaced where they stand; a pattern of several results also
// where its results are bound one by one.
#include <algorithm>
#include <string>
#include <unordered_set>
#include <utility>

#include "analysis/calls.h"
#include "analysis/reads.h"
#include "ir/visitor.h"
#include "ops/op_def.h"
#include "passes/canonical/sweep.h"
#include "passes/rewrite/rewrite.h"

namespace relaxvm::passes {
namespace {

using analysis::PatternKind;
using analysis::PatternMatcher;
using analysis::PatternObj;
using analysis::VarsIn;
using analysis::VarValues;
using ir::Expr;
using ir::Var;

// Rules that feed each other for longer than this are taken for rules that never end.
constexpr int kMaxRounds = 200;

class Rewriter {
 public:
  explicit Rewriter(const std::vector<RewriteRule>& rules)
      : rules_(rules), facts_(ops::MakeTypeContext()) {}

  ir::Function Run(ir::Function func) {
    const ir::Function given = func;
    for (int round = 0; round < kMaxRounds; ++round) {
      changed_ = false;
      renamed_ = {};
      ir::SeqExpr body = Sequence(func->body, {});
      if (!changed_) return func.same_as(given) ? func : RemoveUnusedBindings(func);
      func = ir::Function(func->params, body, func->ret_ty, func->is_pure, func->attrs, func->span);
      func = RemoveUnusedBindings(func);
    }
    Fail(ErrorKind::kRuntimeError, given->span.Place(), "rewriting does not end: after ",
         kMaxRounds,
         " rounds the rules still match what they made; let a rule give back its argument "
         "unchanged where nothing is to be done");
  }

 private:
  struct Scope {
    bool dataflow = false;
    ffi::Array<ir::Binding> bindings;
    VarValues values;  // of what stands between two effects
    std::unordered_map<const ffi::Object*, Var> var_of;
  };

  // Variables whose type changed, and values that are bound already.
  class Renamer : public ir::Mutator {
   public:
    Renamer(const ffi::Map<Var, Expr>& renamed,
            const std::unordered_map<const ffi::Object*, Var>& var_of)
        : renamed_(renamed), var_of_(var_of) {}
    Expr MutateVar(const Var& v) override {
      auto it = renamed_.find(v);
      return it == renamed_.end() ? Expr(v) : (*it).second;
    }
    Expr MutateCall(const ir::Call& c) override {
      auto it = var_of_.find(c.get());
      return it != var_of_.end() ? Expr(it->second) : ir::Mutator::MutateCall(c);
    }
    Expr MutateOther(const Expr& e) override { return e; }

   private:
    const ffi::Map<Var, Expr>& renamed_;
    const std::unordered_map<const ffi::Object*, Var>& var_of_;
  };

  void Append(Scope* scope, const ir::Binding& binding) {
    scope->bindings.push_back(binding);
    if (analysis::HasEffect(binding->value)) {
      scope->values.clear();
      scope->var_of.clear();
      return;
    }
    scope->values.insert_or_assign(binding->var.get(), binding->value);
    scope->var_of.insert_or_assign(binding->value.get(), binding->var);
  }

  static Var VarLike(const Scope& scope, const Var& v, const ir::Type& type) {
    return scope.dataflow ? Var(ir::DataflowVar(v->name, type, v->span))
                          : Var(v->name, type, v->span);
  }

  // Emits what a replacement computes first; gives the expression that is left for the binding.
  Expr Flatten(Scope* scope, Expr made) {
    made = Renamer(renamed_, scope->var_of).Mutate(made);
    if (auto seq = made.as<ir::SeqExpr>()) {
      for (const ir::BindingBlock& block : (*seq)->blocks) {
        for (const ir::Binding& b : block->bindings) {
          Expr value = Renamer(renamed_, {}).Mutate(b->value);
          Var var = VarLike(*scope, b->var, b->var->ty);
          renamed_.Set(b->var, var);
          if (auto* cast = b.as<ir::MatchCastObj>()) {
            Append(scope, ir::MatchCast(var, value, cast->ty, cast->span));
          } else {
            Append(scope, ir::VarBinding(var, value, b->span));
          }
        }
      }
      return TakeLast(scope, Renamer(renamed_, {}).Mutate((*seq)->body));
    }
    ir::BlockBuilder builder(facts_.get());
    builder.BeginBlock(scope->dataflow);
    Expr value = builder.Normalize(made);
    const ir::BindingBlock first = builder.EndBlock();
    for (const ir::Binding& b : first->bindings) Append(scope, b);
    return value;
  }

  // The value of the binding just emitted when `result` is its variable: it is bound anew.
  static Expr TakeLast(Scope* scope, const Expr& result) {
    if (scope->bindings.empty() || !scope->bindings.back()->var.same_as(result)) return result;
    const ir::Binding last = scope->bindings.back();
    if (!last.as<ir::VarBindingObj>() || analysis::HasEffect(last->value)) return result;
    scope->bindings.pop_back();
    scope->values.erase(last->var.get());
    scope->var_of.erase(last->value.get());
    return last->value;
  }

  // What the first rule that fits makes of `value`; null when none does.
  Expr Apply(const Scope& scope, const Expr& value) {
    if (value.as<ir::VarObj>()) return Expr();  // another name: replaced where it is computed
    for (const RewriteRule& rule : rules_) {
      PatternMatcher matcher(scope.values);
      if (!matcher.Match(rule.pattern.get(), value)) continue;
      Expr made = rule.replace(value, matcher);
      if (made.defined() && !made.same_as(value)) return made;
    }
    return Expr();
  }

  void Bind(Scope* scope, const Var& var, const Expr& value, const ir::Span& span) {
    Var target = var;
    if (!ir::StructuralEqual(value->ty, var->ty)) {
      target = var.as<ir::DataflowVarObj>() ? Var(ir::DataflowVar(var->name, value->ty, var->span))
                                            : Var(var->name, value->ty, var->span);
      renamed_.Set(var, target);
    }
    Append(scope, ir::VarBinding(target, value, span));
  }

  Expr Inside(const Scope& scope, const Expr& value) {
    if (auto* branch = value.as<ir::IfObj>()) {
      ir::SeqExpr yes = Sequence(branch->true_branch, scope.values),
                  no = Sequence(branch->false_branch, scope.values);
      if (yes.same_as(branch->true_branch) && no.same_as(branch->false_branch)) return value;
      Expr made = ir::If(branch->cond, yes, no, branch->span);
      made->ty = branch->ty;
      return made;
    }
    if (auto func = value.as<ir::Function>()) {
      ir::SeqExpr body = Sequence((*func)->body, {});
      if (body.same_as((*func)->body)) return value;
      return ir::Function((*func)->params, body, (*func)->ret_ty, (*func)->is_pure, (*func)->attrs,
                          (*func)->span);
    }
    return value;
  }

  ir::SeqExpr Sequence(const ir::SeqExpr& seq, const VarValues& outer) {
    const bool outside = std::exchange(changed_, false);
    Scope scope;
    scope.values = outer;
    ffi::Array<ir::BindingBlock> blocks;
    for (const ir::BindingBlock& block : seq->blocks) {
      scope.dataflow = block.as<ir::DataflowBlockObj>() != nullptr;
      scope.bindings = {};
      for (const ir::Binding& binding : block->bindings) OneBinding(&scope, binding);
      if (scope.bindings.empty()) continue;
      blocks.push_back(scope.dataflow ? ir::DataflowBlock(scope.bindings, block->span)
                                      : ir::BindingBlock(scope.bindings, block->span));
    }
    scope.dataflow = false;
    scope.bindings = {};
    Expr body = Renamer(renamed_, {}).Mutate(seq->body);
    if (!body.as<ir::VarObj>() && !body.as<ir::SeqExprObj>()) {
      if (Expr made = Apply(scope, body); made.defined()) {
        changed_ = true;
        Expr value = Flatten(&scope, made);
        Var var("gv", value->ty, value->span);
        Append(&scope, ir::VarBinding(var, value));
        body = var;
      }
    }
    if (!scope.bindings.empty()) blocks.push_back(ir::BindingBlock(scope.bindings));
    ir::SeqExpr out = changed_ ? ir::SeqExpr(blocks, body, seq->span) : seq;
    if (!changed_) out = ImplicitTuples(seq);
    changed_ = changed_ || outside;
    return out;
  }

  void OneBinding(Scope* scope, const ir::Binding& binding) {
    Expr value = Renamer(renamed_, {}).Mutate(binding->value);
    if (auto* cast = binding.as<ir::MatchCastObj>()) {
      return Append(scope, value.same_as(binding->value)
                               ? binding
                               : ir::MatchCast(cast->var, value, cast->ty, cast->span));
    }
    value = Inside(*scope, value);
    Expr made = Apply(*scope, value);
    if (!made.defined()) {
      return Append(scope, value.same_as(binding->value)
                               ? binding
                               : ir::VarBinding(binding->var, value, binding->span));
    }
    changed_ = true;
    Bind(scope, binding->var, Flatten(scope, made), binding->span);
  }

  // ---- several results that are bound one by one

  struct Place {
    ir::Binding binding;
    size_t block;
    int region;
  };

  ir::SeqExpr ImplicitTuples(const ir::SeqExpr& seq) {
    for (const RewriteRule& rule : rules_) {
      if (rule.pattern->Kind() != PatternKind::kTuple || rule.pattern->parts.empty()) continue;
      ir::SeqExpr out = ImplicitTuple(seq, rule);
      if (!out.same_as(seq)) return out;
    }
    return seq;
  }

  ir::SeqExpr ImplicitTuple(const ir::SeqExpr& seq, const RewriteRule& rule) {
    std::vector<Place> places;
    VarValues values;
    int region = 0;
    for (size_t b = 0; b < seq->blocks.size(); ++b) {
      for (const ir::Binding& binding : seq->blocks[b]->bindings) {
        const bool effect = analysis::HasEffect(binding->value);
        if (effect) ++region;
        places.push_back({binding, b, effect ? -1 : region});
      }
    }
    for (int r = 0; r <= region; ++r) {
      values.clear();
      std::vector<size_t> inside;
      for (size_t i = 0; i < places.size(); ++i) {
        if (places[i].region != r) continue;
        values.emplace(places[i].binding->var.get(), places[i].binding->value);
        inside.push_back(i);
      }
      PatternMatcher matcher(values);
      std::vector<size_t> chosen;
      if (!Choose(rule.pattern.get(), places, inside, &chosen, &matcher)) continue;
      ffi::Array<Expr> fields;
      for (size_t i : chosen) fields.push_back(places[i].binding->var);
      Expr made = rule.replace(ir::Tuple(fields), matcher);
      if (made.defined()) return WithTuple(seq, places, chosen, made);
    }
    return seq;
  }

  bool Choose(const PatternObj* tuple, const std::vector<Place>& places,
              const std::vector<size_t>& inside, std::vector<size_t>* chosen,
              PatternMatcher* matcher) {
    if (chosen->size() == tuple->parts.size()) return NoEarlyUse(places, *chosen);
    const PatternObj* part = tuple->part(chosen->size());
    for (size_t i : inside) {
      if (std::find(chosen->begin(), chosen->end(), i) != chosen->end()) continue;
      if (places[i].binding.as<ir::MatchCastObj>()) continue;
      chosen->push_back(i);
      if (matcher->Match(part, places[i].binding->var,
                         [&] { return Choose(tuple, places, inside, chosen, matcher); })) {
        return true;
      }
      chosen->pop_back();
    }
    return false;
  }

  // The tuple stands where its last field stood: nobody may read a field before.
  static bool NoEarlyUse(const std::vector<Place>& places, const std::vector<size_t>& chosen) {
    const size_t last = *std::max_element(chosen.begin(), chosen.end());
    std::unordered_set<const ffi::Object*> fields;
    for (size_t i : chosen) fields.insert(places[i].binding->var.get());
    for (size_t i = 0; i <= last; ++i) {
      VarsIn vars;
      vars.Visit(places[i].binding->value);
      for (const ffi::Object* v : vars.found) {
        if (fields.count(v)) return false;
      }
    }
    return true;
  }

  ir::SeqExpr WithTuple(const ir::SeqExpr& seq, const std::vector<Place>& places,
                        const std::vector<size_t>& chosen, const Expr& made) {
    changed_ = true;
    const size_t last = *std::max_element(chosen.begin(), chosen.end());
    ffi::Array<ir::BindingBlock> blocks;
    Scope scope;
    size_t i = 0;
    for (const ir::BindingBlock& block : seq->blocks) {
      scope.dataflow = block.as<ir::DataflowBlockObj>() != nullptr;
      scope.bindings = {};
      for (const ir::Binding& binding : block->bindings) {
        const size_t at = i++;
        const bool field = std::find(chosen.begin(), chosen.end(), at) != chosen.end();
        if (!field) Append(&scope, binding);
        if (at == last) BindFields(&scope, places, chosen, made);
      }
      if (scope.bindings.empty()) continue;
      blocks.push_back(scope.dataflow ? ir::DataflowBlock(scope.bindings, block->span)
                                      : ir::BindingBlock(scope.bindings, block->span));
    }
    return ir::SeqExpr(blocks, seq->body, seq->span);
  }

  void BindFields(Scope* scope, const std::vector<Place>& places, const std::vector<size_t>& chosen,
                  const Expr& made) {
    Expr whole = Flatten(scope, made);
    auto* written = whole.as<ir::TupleObj>();
    if (written == nullptr && !whole.as<ir::VarObj>()) {
      Var var = scope->dataflow ? Var(ir::DataflowVar("lv", whole->ty)) : Var("gv", whole->ty);
      Append(scope, ir::VarBinding(var, whole));
      whole = var;
    }
    std::vector<size_t> order(chosen.size());
    for (size_t k = 0; k < order.size(); ++k) order[k] = k;
    std::sort(order.begin(), order.end(),
              [&](size_t a, size_t b) { return chosen[a] < chosen[b]; });
    for (size_t k : order) {
      const ir::Binding& binding = places[chosen[k]].binding;
      Expr field = written != nullptr ? written->fields[k]
                                      : Expr(ir::TupleGetItem(whole, static_cast<int64_t>(k)));
      if (!field->ty.defined()) {
        field->ty = whole->ty.as<ir::TupleTypeObj>()->fields[k];
      }
      Append(scope, ir::VarBinding(binding->var, field, binding->span));
    }
  }

  const std::vector<RewriteRule>& rules_;
  std::unique_ptr<ir::TypeContext> facts_;
  ffi::Map<Var, Expr> renamed_;
  bool changed_ = false;
};

class Names : public ir::Mutator {
 public:
  std::vector<ir::GlobalVar> found;
  std::unordered_map<const ffi::Object*, ir::GlobalVar> renamed;
  Expr MutateGlobalVar(const ir::GlobalVar& v) override {
    found.push_back(v);
    auto it = renamed.find(v.get());
    return it == renamed.end() ? Expr(v) : Expr(it->second);
  }
  Expr MutateOther(const Expr& e) override { return e; }
};

}  // namespace

ir::Function RewriteFunction(const ir::Function& func, const std::vector<RewriteRule>& rules) {
  return Rewriter(rules).Run(func);
}

ir::IRModule RewriteModule(ir::IRModule mod, const std::vector<RewriteRule>& rules) {
  std::vector<std::pair<ir::GlobalVar, ir::Function>> todo;
  for (const auto& [var, func] : mod->functions) {
    auto f = func.as<ir::Function>();
    if (!f) continue;
    ir::Function made = RewriteFunction(*f, rules);
    if (!made.same_as(*f)) todo.emplace_back(var, made);
  }
  Names names;
  auto add = [&](const ir::GlobalVar& wanted) {
    if (names.renamed.count(wanted.get())) return;
    for (const RewriteRule& rule : rules) {
      auto it = rule.subroutines.find(wanted);
      if (it == rule.subroutines.end()) continue;
      std::string name(wanted->name_hint);
      for (int i = 1; mod->FindVar(name); ++i) {
        name = std::string(wanted->name_hint) + "_" + std::to_string(i);
      }
      ir::GlobalVar var(name, wanted->ty);
      names.renamed.emplace(wanted.get(), var);
      mod.CopyOnWrite()->functions.Set(var, (*it).second);
      mod->RebuildNames();
      if (auto f = (*it).second.as<ir::Function>()) todo.emplace_back(var, *f);
    }
  };
  for (size_t i = 0; i < todo.size(); ++i) {
    names.found.clear();
    names.Mutate(todo[i].second);
    for (const ir::GlobalVar& used : std::vector<ir::GlobalVar>(names.found)) add(used);
    auto [var, func] = todo[i];
    mod.CopyOnWrite()->functions.Set(var, names.Mutate(func).as<ir::Function>().value());
  }
  return mod;
}

}  // namespace relaxvm::passes
