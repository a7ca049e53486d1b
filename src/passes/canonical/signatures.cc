// SPDX-License-Identifier: Apache-2.0
#include "passes/canonical/signatures.h"

#include <unordered_set>

#include "analysis/module_facts.h"
#include "ir/visitor.h"

namespace relaxvm::passes {
namespace {

using ir::Expr;
using ir::Var;

class Rewriter : public ir::Mutator {
 public:
  Rewriter(const std::unordered_map<std::string, NewSignature>& changes,
           const std::unordered_map<std::string, ir::GlobalVar>& vars)
      : changes_(changes), vars_(vars) {}

  ir::BindingBlock MutateBlock(const ir::BindingBlock& block) override {
    const bool outer = std::exchange(dataflow_, block.as<ir::DataflowBlockObj>() != nullptr);
    ir::BindingBlock result = ir::Mutator::MutateBlock(block);
    dataflow_ = outer;
    return result;
  }

  void MutateBinding(const ir::Binding& binding, ffi::Array<ir::Binding>* out) override {
    auto call = binding->value.as<ir::Call>();
    const auto* name = call ? (*call)->op.as<ir::GlobalVarObj>() : nullptr;
    auto it = name == nullptr ? changes_.end() : changes_.find(std::string(name->name_hint));
    if (it == changes_.end()) return ir::Mutator::MutateBinding(binding, out);
    EmitFn emit = [&](Expr value, const ir::Type& type) {
      value->ty = type;
      Var var = dataflow_ ? Var(ir::DataflowVar(binding->var->name, type))
                          : Var(binding->var->name, type);
      out->push_back(ir::VarBinding(var, std::move(value), binding->span));
      return var;
    };
    ir::Call mutated = ir::Mutator::MutateCall(*call).as<ir::Call>().value();
    ir::Call fresh = it->second.call(mutated, emit);
    ir::Call result(vars_.at(it->first), fresh->args, fresh->attrs, fresh->ty_args, fresh->span,
                    fresh->ty);
    Var var = binding->var;
    if (!ir::StructuralEqual(var->ty, result->ty) &&
        !ir::StructuralEqual(mutated->ty, result->ty)) {
      var = var.as<ir::DataflowVarObj>() ? Var(ir::DataflowVar(var->name, result->ty, var->span))
                                         : Var(var->name, result->ty, var->span);
      Replace(binding->var, var);
    }
    out->push_back(ir::VarBinding(var, result, binding->span));
  }

 private:
  const std::unordered_map<std::string, NewSignature>& changes_;
  const std::unordered_map<std::string, ir::GlobalVar>& vars_;
  bool dataflow_ = false;
};

}  // namespace

std::unordered_map<std::string, ir::Function> ChangeableFunctions(const IRModule& mod) {
  const std::unordered_set<std::string> values = analysis::UsedAsValues(mod);
  std::unordered_map<std::string, ir::Function> found;
  for (const auto& [var, func] : mod->functions) {
    auto f = func.as<ir::Function>();
    const std::string name(var->name_hint);
    if (f && !(*f)->attrs.count(ir::attr::kGlobalSymbol) &&
        !(*f)->attrs.count(ir::attr::kPrimitive) && !values.count(name))
      found.emplace(name, *f);
  }
  return found;
}

IRModule ChangeSignatures(const IRModule& mod,
                          const std::unordered_map<std::string, NewSignature>& changes) {
  if (changes.empty()) return mod;
  std::unordered_map<std::string, ir::GlobalVar> vars;
  for (const auto& [name, change] : changes)
    vars.emplace(name, ir::GlobalVar(name, change.func->ty));
  ffi::Map<ir::GlobalVar, ir::BaseFunc> functions;
  for (const auto& [var, func] : mod->functions) {
    const std::string name(var->name_hint);
    auto it = changes.find(name);
    ir::BaseFunc current = it == changes.end() ? func : ir::BaseFunc(it->second.func);
    if (auto f = current.as<ir::Function>())
      current = Rewriter(changes, vars).MutateFunction(*f).as<ir::Function>().value();
    functions.Set(it == changes.end() ? var : vars.at(name), current);
  }
  return IRModule(functions, mod->attrs, mod->global_infos);
}

}  // namespace relaxvm::passes
