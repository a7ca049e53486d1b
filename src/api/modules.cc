// SPDX-License-Identifier: Apache-2.0
// Bindings, blocks, functions and modules for Python.
#include <tvm/ffi/extra/structural_equal.h>
#include <tvm/ffi/extra/structural_hash.h>
#include <tvm/ffi/reflection/registry.h>

#include <algorithm>
#include <string>
#include <vector>

#include "api/register.h"
#include "ir/module.h"
#include "ir/visitor.h"

namespace relaxvm::api {

namespace ffi = tvm::ffi;
namespace refl = tvm::ffi::reflection;
using Flag = refl::AttachFieldFlag;
using ffi::AnyView;
using ir::Expr;
using ir::Span;
using ir::Type;
using EqualFn = ffi::TypedFunction<bool(AnyView, AnyView, int, AnyView)>;
using HashFn = ffi::TypedFunction<int64_t(AnyView, int64_t, int)>;

namespace {

constexpr int kUse = kTVMFFIDefRegionKindNone;
constexpr int kDefine = kTVMFFIDefRegionKindSimple;    // binds the variable
constexpr int kPattern = kTVMFFIDefRegionKindPattern;  // binds it and the variables in its type

// A value is compared before the variable it is bound to; a local function may call itself.
void RegisterBindings() {
  refl::ObjectDef<ir::BindingObj>(refl::init(false))
      .def_ro("span", &ir::BindingObj::span, Flag::SEqHashIgnore())
      .def_ro("var", &ir::BindingObj::var, Flag::SEqHashDefSimple())
      .def_ro("value", &ir::BindingObj::value);
  refl::ObjectDef<ir::VarBindingObj>(refl::init(false));
  refl::TypeAttrDef<ir::VarBindingObj>()
      .def("__s_equal__",
           [](const ir::VarBindingObj* a, const ir::VarBindingObj* b, const EqualFn& equal) {
             if (a->value.as<ir::FunctionObj>()) {
               return equal(a->var, b->var, kDefine, "var") &&
                      equal(a->value, b->value, kUse, "value");
             }
             return equal(a->value, b->value, kUse, "value") &&
                    equal(a->var, b->var, kDefine, "var");
           })
      .def("__s_hash__", [](const ir::VarBindingObj* b, int64_t init, const HashFn& hash) {
        if (b->value.as<ir::FunctionObj>())
          return hash(b->value, hash(b->var, init, kDefine), kUse);
        return hash(b->var, hash(b->value, init, kUse), kDefine);
      });
  refl::ObjectDef<ir::MatchCastObj>(refl::init(false))
      .def_ro("ty", &ir::MatchCastObj::ty, Flag::SEqHashDefPattern());
  refl::TypeAttrDef<ir::MatchCastObj>()
      .def("__s_equal__",
           [](const ir::MatchCastObj* a, const ir::MatchCastObj* b, const EqualFn& equal) {
             return equal(a->value, b->value, kUse, "value") &&
                    equal(a->ty, b->ty, kPattern, "ty") && equal(a->var, b->var, kDefine, "var");
           })
      .def("__s_hash__", [](const ir::MatchCastObj* b, int64_t init, const HashFn& hash) {
        return hash(b->var, hash(b->ty, hash(b->value, init, kUse), kPattern), kDefine);
      });
  refl::ObjectDef<ir::BindingBlockObj>(refl::init(false))
      .def_ro("bindings", &ir::BindingBlockObj::bindings)
      .def_ro("span", &ir::BindingBlockObj::span, Flag::SEqHashIgnore());
  refl::ObjectDef<ir::DataflowBlockObj>(refl::init(false));
}

// Parameters define the variables in their types; the function's own type repeats parameters and
// result.
void RegisterFunctions() {
  refl::ObjectDef<ir::BaseFuncObj>(refl::init(false)).def_ro("_attrs", &ir::BaseFuncObj::attrs);
  refl::ObjectDef<ir::FunctionObj>(refl::init(false))
      .def_ro("params", &ir::FunctionObj::params, Flag::SEqHashDefPattern())
      .def_ro("body", &ir::FunctionObj::body)
      .def_ro("ret_ty", &ir::FunctionObj::ret_ty)
      .def_ro("is_pure", &ir::FunctionObj::is_pure);
  refl::TypeAttrDef<ir::FunctionObj>()
      .def("__s_equal__",
           [](const ir::FunctionObj* a, const ir::FunctionObj* b, const EqualFn& equal) {
             return equal(a->ty, b->ty, kUse, "ty") &&
                    equal(a->params, b->params, kPattern, "params") &&
                    equal(a->ret_ty, b->ret_ty, kUse, "ret_ty") &&
                    equal(a->is_pure, b->is_pure, kUse, "is_pure") &&
                    equal(a->attrs, b->attrs, kUse, "attrs") &&
                    equal(a->body, b->body, kUse, "body");
           })
      .def("__s_hash__", [](const ir::FunctionObj* f, int64_t init, const HashFn& hash) {
        init = hash(f->ret_ty, hash(f->params, init, kPattern), kUse);
        return hash(f->body, hash(f->attrs, hash(f->is_pure, init, kUse), kUse), kUse);
      });
  refl::ObjectDef<ir::ExternFuncObj>(refl::init(false))
      .def_ro("global_symbol", &ir::ExternFuncObj::global_symbol);
}

std::vector<std::pair<ir::GlobalVar, ir::BaseFunc>> SortedFunctions(const ir::IRModuleObj* mod) {
  std::vector<std::pair<ir::GlobalVar, ir::BaseFunc>> functions;
  for (const auto& [var, func] : mod->functions) functions.emplace_back(var, func);
  std::sort(functions.begin(), functions.end(),
            [](const auto& a, const auto& b) { return a.first->name_hint < b.first->name_hint; });
  return functions;
}

bool EqualModules(const ir::IRModuleObj* a, const ir::IRModuleObj* b, const EqualFn& equal) {
  auto left = SortedFunctions(a), right = SortedFunctions(b);
  ffi::Array<ffi::Any> left_vars, right_vars, left_funcs, right_funcs;
  for (const auto& [var, func] : left) left_vars.push_back(var), left_funcs.push_back(func);
  for (const auto& [var, func] : right) right_vars.push_back(var), right_funcs.push_back(func);
  return equal(left_vars, right_vars, kPattern, "functions.keys()") &&
         equal(left_funcs, right_funcs, kUse, "functions.values()") &&
         equal(a->attrs, b->attrs, kUse, "attrs") &&
         equal(a->global_infos, b->global_infos, kUse, "global_infos");
}

int64_t HashModule(const ir::IRModuleObj* mod, int64_t init, const HashFn& hash) {
  ffi::Array<ffi::Any> vars, funcs;
  for (const auto& [var, func] : SortedFunctions(mod)) vars.push_back(var), funcs.push_back(func);
  init = hash(funcs, hash(vars, init, kPattern), kUse);
  return hash(mod->global_infos, hash(mod->attrs, init, kUse), kUse);
}

void RegisterModule() {
  refl::ObjectDef<ir::IRModuleObj>(refl::init(false))
      .def_ro("functions", &ir::IRModuleObj::functions)
      .def_ro("_attrs", &ir::IRModuleObj::attrs)
      .def_ro("global_infos", &ir::IRModuleObj::global_infos);
  refl::TypeAttrDef<ir::IRModuleObj>()
      .def("__s_equal__", EqualModules)
      .def("__s_hash__", HashModule);
}

// Python programs change modules in place; passes get the object and copy it when they write.
ir::IRModuleObj* Writable(const ir::IRModule& mod) {
  return const_cast<ir::IRModuleObj*>(mod.get());
}

ir::GlobalVar ModuleSet(const ir::IRModule& mod, const ir::GlobalVar& var,
                        const ir::BaseFunc& func) {
  ffi::Optional<ir::GlobalVar> known = mod->FindVar(var->name_hint);
  ir::IRModuleObj* m = Writable(mod);
  ir::GlobalVar key = known.has_value() ? known.value() : var;
  if (!key.same_as(var) && m->functions.count(key)) m->functions.erase(key);
  m->functions.Set(var, func);
  m->names.insert_or_assign(std::string(var->name_hint), var);
  var->ty = func->ty;
  return var;
}

template <typename F>
F CopyFunc(const ir::BaseFunc& func, ffi::Map<ffi::String, ffi::Any> attrs) {
  auto copy = ffi::make_object<typename F::ContainerType>(
      *static_cast<const typename F::ContainerType*>(func.get()));
  copy->attrs = std::move(attrs);
  return ir::NodeRef<F>(std::move(copy));
}

}  // namespace

void RegisterModules() {
  RegisterBindings();
  RegisterFunctions();
  RegisterModule();
  refl::GlobalDef()
      .def("relaxvm.ir.VarBinding",
           [](ir::Var var, Expr value, Span span) { return ir::VarBinding(var, value, span); })
      .def("relaxvm.ir.MatchCast", [](ir::Var var, Expr value, Type ty,
                                      Span span) { return ir::MatchCast(var, value, ty, span); })
      .def("relaxvm.ir.BindingBlock",
           [](ffi::Array<ir::Binding> b, Span span) { return ir::BindingBlock(b, span); })
      .def("relaxvm.ir.DataflowBlock",
           [](ffi::Array<ir::Binding> b, Span span) { return ir::DataflowBlock(b, span); })
      .def("relaxvm.ir.Function",
           [](ffi::Array<ir::Var> params, Expr body, Type ret, bool pure, ir::DictAttrs attrs,
              Span span) { return ir::Function(params, body, ret, pure, attrs, span); })
      .def("relaxvm.ir.ExternFunc",
           [](ffi::String name, Type ty, Span span) { return ir::ExternFunc(name, ty, span); })
      .def("relaxvm.ir.WithAttrs",
           [](ir::BaseFunc func, ffi::Map<ffi::String, ffi::Any> attrs) -> ir::BaseFunc {
             if (func.as<ir::FunctionObj>()) return CopyFunc<ir::Function>(func, attrs);
             if (func.as<ir::ExternFuncObj>()) return CopyFunc<ir::ExternFunc>(func, attrs);
             static const auto other = ffi::Function::GetGlobalRequired("relaxvm.tirx.WithAttrs");
             return other(func, attrs).cast<ir::BaseFunc>();
           })
      .def("relaxvm.ir.IRModule",
           [](ffi::Map<ir::GlobalVar, ir::BaseFunc> functions, ir::DictAttrs attrs,
              ffi::Map<ffi::String, ffi::Array<ir::GlobalInfo>> infos) {
             for (const auto& [var, func] : functions) var->ty = func->ty;
             return ir::IRModule(functions, attrs, infos);
           })
      .def("relaxvm.ir.Module_FindVar",
           [](ir::IRModule mod, ffi::String name) { return mod->FindVar(name); })
      .def("relaxvm.ir.Module_Lookup",
           [](ir::IRModule mod, ffi::String name) { return mod->Lookup(name); })
      .def("relaxvm.ir.Module_LookupVar",
           [](ir::IRModule mod, ir::GlobalVar v) { return mod->Lookup(v); })
      .def("relaxvm.ir.Module_Set", ModuleSet)
      .def("relaxvm.ir.Module_Remove",
           [](ir::IRModule mod, ir::GlobalVar var) {
             Writable(mod)->functions.erase(var);
             Writable(mod)->names.erase(std::string(var->name_hint));
           })
      .def("relaxvm.ir.Module_SetInfos",
           [](ir::IRModule mod, ffi::String name, ffi::Array<ir::GlobalInfo> infos) {
             Writable(mod)->global_infos.Set(name, infos);
           })
      .def("relaxvm.ir.Module_WithAttrs",
           [](ir::IRModule mod, ir::DictAttrs attrs) {
             return ir::IRModule(mod->functions, attrs, mod->global_infos);
           })
      .def("relaxvm.ir.Module_UniqueName",
           [](ir::IRModule mod, ffi::String hint) { return mod.UniqueName(hint); })
      .def("relaxvm.ir.Substitute",
           [](ffi::Any e, ffi::Map<ir::Var, Expr> map) -> ffi::Any {
             if (auto type = e.as<Type>()) return ir::Substitute(*type, map);
             return ir::Substitute(e.cast<Expr>(), map);
           })
      .def("relaxvm.ir.PostOrderVisit", [](Expr e, ffi::Function f) {
        ir::PostOrderVisit(e, [&f](const Expr& node) { f(node); });
      });
}

}  // namespace relaxvm::api
