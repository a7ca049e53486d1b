// SPDX-License-Identifier: Apache-2.0
// BindParams: parameters of one function become constants.  BindSymbolicVars: sizes become numbers
// or expressions. Stage: graph.  Options: parameters and sizes are given as variables or by name.
#include <unordered_map>
#include <unordered_set>

#include "analysis/uses.h"
#include "ops/op_def.h"
#include "passes/canonical/bind.h"
#include "passes/pass.h"

namespace relaxvm::passes {
namespace {

using ir::Expr;
using ir::Var;

// The one of `vars` that `key` is, or is the name of.
Var FindVar(const ffi::Any& key, const ffi::Array<Var>& vars, const char* pass,
            const ffi::String& func) {
  if (auto var = key.as<Var>()) {
    for (const Var& v : vars) {
      if (v.same_as(*var)) return v;
    }
    Fail(ErrorKind::kRuntimeError, pass, ": ", (*var)->name, " does not belong to function ", func);
  }
  auto name = key.as<ffi::String>();
  if (!name)
    Fail(ErrorKind::kTypeError, pass, ": a key must be a variable or a name, got ",
         key.GetTypeKey());
  ffi::Optional<Var> found;
  for (const Var& v : vars) {
    if (v->name != *name) continue;
    if (found) {
      Fail(ErrorKind::kRuntimeError, pass, ": function ", func, " has several variables named ",
           *name, "; give the variable itself");
    }
    found = v;
  }
  if (found) return *found;
  std::string names;
  for (const Var& v : vars) names += (names.empty() ? "" : ", ") + std::string(v->name);
  Fail(ErrorKind::kRuntimeError, pass, ": function ", func, " has no ", *name, "; there are ",
       names);
}

Expr AsExpr(const ffi::Any& value, const Var& var, const char* pass) {
  if (auto tensor = value.as<ffi::Tensor>()) return ir::Constant(*tensor);
  if (auto e = value.as<Expr>()) return *e;
  if (auto number = value.as<int64_t>()) {
    bool scalar = var->ty.as<ir::PrimTypeObj>() != nullptr;
    return ir::Const(scalar ? var.dtype() : Int(64), *number);
  }
  Fail(ErrorKind::kTypeError, pass, ": the value of ", var->name,
       " must be a tensor, an expression or an integer, got ", value.GetTypeKey());
}

// Sizes of the parameters, in order of appearance.
ffi::Array<Var> SizesOf(const ir::Function& f) {
  ffi::Array<Var> out;
  auto add = [&](const Var& v) {
    for (const Var& known : out) {
      if (known.same_as(v)) return;
    }
    out.push_back(v);
  };
  for (const Var& param : f->params) {
    if (param->ty.as<ir::PrimTypeObj>()) add(param);
    for (const Var& v : ir::SymbolicVars(param->ty)) add(v);
  }
  for (const Var& v : ir::SymbolicVars(f->ret_ty)) add(v);
  return out;
}

ir::Function Lookup(const IRModule& mod, const ffi::String& name, const char* pass) {
  auto function = mod->Lookup(name).as<ir::Function>();
  if (!function) Fail(ErrorKind::kTypeError, pass, ": ", name, " is no Relax function");
  return *function;
}

}  // namespace

ir::Function BindFunctionParams(const ir::Function& f, const ffi::Map<ffi::Any, ffi::Any>& params,
                                const ffi::String& name) {
  ffi::Map<Var, Expr> map, sizes;
  for (const auto& [key, value] : params) {
    Var param = FindVar(key, f->params, "BindParams", name);
    Expr e = AsExpr(value, param, "BindParams");
    if (param->ty.as<ir::PrimTypeObj>() && !ir::IsPrim(e)) {
      Fail(ErrorKind::kValueError, "BindParams: Explicit binding for symbolic variable ",
           param->name, " must be a primitive expression, not a value of type ",
           ops::DescribeType(e->ty));
    }
    if (!MatchSizes(param->ty, e->ty, &sizes)) {
      Fail(ErrorKind::kValueError, "BindParams: the value of ", param->name,
           " does not have the shape that its type and the other values give it");
    }
    map.Set(param, e);
  }
  auto facts = ops::MakeTypeContext();
  for (const auto& [var, size] : sizes) {
    auto it = map.find(var);
    if (it == map.end() || facts->ProveEqual((*it).second, size)) continue;
    Fail(ErrorKind::kValueError, "BindParams: Explicit binding for symbolic variable ", var->name,
         " conflicts with the value inferred from a parameter shape: ",
         ops::DescribeExpr((*it).second), " and ", ops::DescribeExpr(size));
  }
  return BindFunction(f, map, sizes);
}

ir::Function BindFunctionSizes(const ir::Function& f, const ffi::Map<ffi::Any, ffi::Any>& values,
                               const ffi::String& name) {
  ffi::Map<Var, Expr> sizes;
  ffi::Array<Var> known = SizesOf(f);
  for (const auto& [key, value] : values) {
    Var size = FindVar(key, known, "BindSymbolicVars", name);
    if (sizes.count(size))
      Fail(ErrorKind::kRuntimeError, "BindSymbolicVars: ", size->name, " is given twice");
    sizes.Set(size, AsExpr(value, size, "BindSymbolicVars"));
  }
  ir::Function made = BindFunction(f, {}, sizes);
  std::unordered_set<const ffi::Object*> free_before;
  for (const Var& v : analysis::FreeSizes(f)) free_before.insert(v.get());
  for (const Var& v : analysis::FreeSizes(made)) {
    if (free_before.count(v.get())) continue;
    Fail(ErrorKind::kRuntimeError, "BindSymbolicVars: a new size is an expression of ", v->name,
         ", which nothing in function ", name, " defines");
  }
  return made;
}

IRModule BindParams(IRModule mod, const PassContext& context) {
  auto name = context.Option<ffi::String>("func_name");
  ir::Function f = Lookup(mod, name, "BindParams");
  mod.Update(name,
             BindFunctionParams(f, context.Option<ffi::Map<ffi::Any, ffi::Any>>("params"), name));
  return mod;
}

IRModule BindSymbolicVars(IRModule mod, const PassContext& context) {
  auto values = context.Option<ffi::Map<ffi::Any, ffi::Any>>("binding_map");
  if (auto name = context.options["func_name"].as<ffi::String>()) {
    mod.Update(*name, BindFunctionSizes(Lookup(mod, *name, "BindSymbolicVars"), values, *name));
    return mod;
  }
  // In every function that has them; each must be somewhere.
  std::unordered_map<size_t, bool> used;
  std::vector<std::pair<ffi::Any, ffi::Any>> items;
  for (const auto& [key, value] : values) items.emplace_back(key, value);
  mod = ir::MutateFunctions(std::move(mod), [&](const ir::GlobalVar& var, const ir::Function& f) {
    ffi::Map<ffi::Any, ffi::Any> own;
    ffi::Array<Var> sizes = SizesOf(f);
    for (size_t i = 0; i < items.size(); ++i) {
      auto name = items[i].first.as<ffi::String>();
      auto given = items[i].first.as<Var>();
      for (const Var& size : sizes) {
        if ((name && *name == size->name) || (given && given->same_as(size))) {
          own.Set(items[i].first, items[i].second);
          used[i] = true;
        }
      }
    }
    return own.empty() ? f : BindFunctionSizes(f, own, var->name_hint);
  });
  for (size_t i = 0; i < items.size(); ++i) {
    if (used[i]) continue;
    auto name = items[i].first.as<ffi::String>();
    auto var = items[i].first.as<Var>();
    Fail(ErrorKind::kRuntimeError, "BindSymbolicVars: no function has a size named ",
         name  ? *name
         : var ? (*var)->name
               : ffi::String("?"));
  }
  return mod;
}

}  // namespace relaxvm::passes
