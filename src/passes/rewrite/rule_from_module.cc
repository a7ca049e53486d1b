// SPDX-License-Identifier: Apache-2.0
// A rule written as two functions: what "pattern" computes is replaced by what "replacement"
// computes.
#include <string>
#include <unordered_map>

#include "ops/op_def.h"
#include "passes/canonical/bind.h"
#include "passes/rewrite/rewrite.h"

namespace relaxvm::passes {
namespace {

using analysis::Pattern;
using analysis::PatternKind;
using ir::Expr;
using ir::Var;

// Turns what a function computes into a pattern; parameters match any value of their type.
class PatternMaker {
 public:
  explicit PatternMaker(const ir::Function& f) {
    for (const Var& param : f->params) {
      Pattern any(PatternKind::kWildcard, {});
      Pattern typed(PatternKind::kType, {any}, param->ty);
      params.push_back(typed);
      made_.emplace(param.get(), typed);
    }
    for (const ir::BindingBlock& block : f->body->blocks) {
      for (const ir::Binding& b : block->bindings) {
        if (b.as<ir::MatchCastObj>()) {
          Fail(ErrorKind::kValueError, b->span.Place(),
               "a pattern cannot check types while it runs; state the types of its parameters");
        }
        made_.insert_or_assign(b->var.get(), Of(b->value));
      }
    }
    whole_.push_back(Of(f->body->body));
  }

  std::vector<Pattern> params;
  const Pattern& whole() const { return whole_.front(); }

 private:
  static Pattern Exactly(const Expr& e) { return Pattern(PatternKind::kExpr, {}, e); }

  Pattern Of(const Expr& e) {
    if (auto it = made_.find(e.get()); it != made_.end()) return it->second;
    if (auto* tuple = e.as<ir::TupleObj>()) {
      return Pattern(PatternKind::kTuple, All(tuple->fields));
    }
    if (auto* item = e.as<ir::TupleGetItemObj>()) {
      return Pattern(PatternKind::kTupleGetItem, {Of(item->tuple_value)}, nullptr, "", item->index);
    }
    if (auto* call = e.as<ir::CallObj>()) {
      ffi::Array<ffi::ObjectRef> parts = {Exactly(call->op)};
      for (const ffi::ObjectRef& arg : All(call->args)) parts.push_back(arg);
      Pattern out(PatternKind::kCall, parts);
      if (call->attrs.defined() && !call->attrs->values.empty()) {
        out = Pattern(PatternKind::kAttr, {out}, call->attrs->values);
      }
      // A packed function says nothing about its result but what the call states.
      if (!call->ty_args.empty()) out = Pattern(PatternKind::kType, {out}, call->ty);
      return out;
    }
    if (e.as<ir::IfObj>() || e.as<ir::FunctionObj>() || e.as<ir::SeqExprObj>()) {
      Fail(ErrorKind::kValueError, e->span.Place(),
           "a pattern holds calls and tuples; branches and local functions cannot be matched");
    }
    return Exactly(e);
  }

  ffi::Array<ffi::ObjectRef> All(const ffi::Array<Expr>& exprs) {
    ffi::Array<ffi::ObjectRef> out;
    for (const Expr& e : exprs) out.push_back(Of(e));
    return out;
  }

  std::unordered_map<const ffi::Object*, Pattern> made_;
  std::vector<Pattern> whole_;
};

ir::Function FunctionOf(const ir::IRModule& mod, const char* name) {
  auto func = mod->Find(name);
  if (!func) {
    Fail(ErrorKind::kKeyError, "a rewriter needs a function called \"", name, "\"; it has none");
  }
  auto relax = func.value().as<ir::Function>();
  if (!relax) {
    Fail(ErrorKind::kTypeError, "the rewriter's \"", name,
         "\" must be a function of the graph language (@R.function)");
  }
  return *relax;
}

void CheckSignatures(const ir::Function& pattern, const ir::Function& replacement) {
  ffi::Array<ir::Type> a, b;
  for (const Var& p : pattern->params) a.push_back(p->ty);
  for (const Var& p : replacement->params) b.push_back(p->ty);
  auto facts = ops::MakeTypeContext();
  const bool same =
      ir::StructuralEqual(a, b, true) &&
      ir::FitsType(pattern->ret_ty, replacement->ret_ty, *facts) != ir::TypeFit::kNever;
  if (!same) {
    Fail(ErrorKind::kValueError, replacement->span.Place(),
         "the rewriter's pattern and replacement must have the same signature, but they are ",
         ops::DescribeType(pattern->ty), " and ", ops::DescribeType(replacement->ty));
  }
}

// Packed functions are compared by identity of their nodes: each replacement names its own.
class FreshNames : public ir::Mutator {
 public:
  Expr MutateExternFunc(const ir::ExternFunc& f) override {
    return ir::ExternFunc(f->global_symbol, f->ty, f->span);
  }
  Expr MutateOther(const Expr& e) override { return e; }
};

}  // namespace

RewriteRule RuleFromModule(const ir::IRModule& mod) {
  const ir::Function pattern = FunctionOf(mod, "pattern"),
                     replacement = FunctionOf(mod, "replacement");
  CheckSignatures(pattern, replacement);
  ffi::Map<ir::GlobalVar, ir::BaseFunc> subroutines;
  for (const auto& [var, func] : mod->functions) {
    if (var->name_hint == "pattern" || var->name_hint == "replacement") continue;
    if (func->attrs.count(ir::attr::kGlobalSymbol)) {
      Fail(ErrorKind::kValueError, "the rewriter's function \"", var->name_hint,
           "\" is publicly exposed; declare it private=True, for it is added to other modules");
    }
    subroutines.Set(var, func);
  }
  PatternMaker maker(pattern);
  std::vector<Pattern> params = maker.params;
  auto replace = [params, replacement](const Expr&,
                                       const analysis::PatternMatcher& matched) -> Expr {
    ir::Function copy = CopyWithFreshVars(replacement);
    ffi::Map<Var, Expr> args, sizes;
    for (size_t i = 0; i < params.size(); ++i) {
      auto it = matched.found().find(params[i].get());
      if (it == matched.found().end()) return Expr();  // the pattern does not use it
      args.Set(copy->params[i], it->second);
    }
    return FreshNames().Mutate(BindFunction(copy, args, sizes)->body);
  };
  return {maker.whole(), replace, subroutines};
}

}  // namespace relaxvm::passes
