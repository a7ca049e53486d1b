// SPDX-License-Identifier: Apache-2.0
// Normalize: every argument becomes a leaf and every expression gets a type.
// NormalizeGlobalVar: an exported function is called by its exported name.
#include "ir/block_builder.h"
#include "ops/op_def.h"
#include "passes/pass.h"
#include "tir/functor.h"

namespace relaxvm::passes {

IRModule Normalize(IRModule mod, const PassContext& context) {
  std::unique_ptr<ir::TypeContext> facts = ops::MakeTypeContext();
  return ir::MutateFunctions(mod, [&](const ir::GlobalVar&, const ir::Function& f) {
    ir::BlockBuilder builder(facts.get(), mod);
    return builder.Normalize(f).as<ir::Function>().value();
  });
}

namespace {

class Renamer : public tir::StmtMutator {
 public:
  explicit Renamer(const ffi::Map<ir::GlobalVar, ir::GlobalVar>& names) : names_(names) {}
  ir::Expr MutateGlobalVar(const ir::GlobalVar& v) override {
    auto it = names_.find(v);
    return it == names_.end() ? v : (*it).second;
  }

 private:
  const ffi::Map<ir::GlobalVar, ir::GlobalVar>& names_;
};

}  // namespace

IRModule NormalizeGlobalVar(IRModule mod, const PassContext& context) {
  ffi::Map<ir::GlobalVar, ir::GlobalVar> names;
  for (const auto& [var, func] : mod->functions) {
    auto symbol = ir::GetAttr<ffi::String>(func->attrs, ir::attr::kGlobalSymbol, "");
    if (!symbol.empty() && symbol != var->name_hint) names.Set(var, ir::GlobalVar(symbol, var->ty));
  }
  if (names.empty()) return mod;
  // A private function that has an exported one's name gives way.
  for (const auto& [var, func] : mod->functions) {
    if (names.count(var)) continue;
    bool taken = false;
    for (const auto& [from, to] : names) taken |= to->name_hint == var->name_hint;
    if (taken && !func->attrs.count(ir::attr::kGlobalSymbol)) {
      names.Set(var, ir::GlobalVar(mod.UniqueName(var->name_hint), var->ty));
    } else if (taken) {
      Fail(ErrorKind::kValueError, "two functions are exported as ", var->name_hint,
           "; give one of them another name");
    }
  }
  Renamer renamer(names);
  ffi::Map<ir::GlobalVar, ir::BaseFunc> functions;
  for (const auto& [var, func] : mod->functions) {
    ir::GlobalVar name = names.count(var) ? names[var] : var;
    if (functions.count(name)) {
      Fail(ErrorKind::kValueError, "two functions are exported as ", name->name_hint,
           "; give one of them another name");
    }
    functions.Set(name, renamer.Mutate(func).as<ir::BaseFunc>().value());
  }
  return IRModule(functions, mod->attrs, mod->global_infos);
}

}  // namespace relaxvm::passes
