// SPDX-License-Identifier: Apache-2.0
// BlockBuilder for Python, and the one call by which the parser binds a value.
#include "ir/block_builder.h"

#include <tvm/ffi/reflection/registry.h>

#include <unordered_set>

#include "api/convert.h"
#include "api/register.h"
#include "ir/normal_form.h"
#include "ops/gradient/rule.h"
#include "ops/op_def.h"

namespace relaxvm::api {

namespace refl = tvm::ffi::reflection;
using ir::Expr;
using ir::Span;
using ir::Type;
using ir::Var;

namespace {

class BuilderObj : public ffi::Object {
 public:
  explicit BuilderObj(ir::IRModule mod)
      : facts(ops::MakeTypeContext()), builder(facts.get(), std::move(mod)) {}

  std::unique_ptr<ir::TypeContext> facts;
  ir::BlockBuilder builder;

  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.relax.BlockBuilder", BuilderObj, ffi::Object);
};
class Builder : public ffi::ObjectRef {
 public:
  explicit Builder(ffi::ObjectPtr<BuilderObj> n) : ffi::ObjectRef(std::move(n)) {}
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(Builder, ffi::ObjectRef, BuilderObj);
};

// An annotation fits a value, or is an error; the variable gets the annotation unless it says less
// of an alias.
Type AnnotatedType(const Expr& value, const Type& annotation, const Span& span,
                   ir::TypeContext& facts) {
  ir::TypeFit fit = ir::FitsType(annotation, value->ty, facts);
  if (fit == ir::TypeFit::kNever) {
    Fail(ErrorKind::kTypeError, span.Place(), "the annotation says ", ops::DescribeType(annotation),
         ", but the value is ", ops::DescribeType(value->ty), "; correct one of them");
  }
  const bool alias = value.as<ir::VarObj>() != nullptr;
  if (alias && fit == ir::TypeFit::kAlways) return value->ty;
  if (!alias && !ir::StructuralEqual(value->ty, annotation)) value->ty = annotation;
  return alias ? annotation : value->ty;
}

Var MakeVar(const ffi::String& name, const Type& ty, bool dataflow, const Span& span) {
  if (dataflow) return ir::DataflowVar(name, ty, span);
  return Var(name, ty, span);
}

// Binds `value`, normalized, to a new variable called exactly `name`.
Var Bind(Builder b, Expr value, ffi::String name, bool dataflow, Type annotation, Span span) {
  ir::CallsAsWritten as_written;
  value = b->builder.Normalize(std::move(value));
  if (!value->span.defined()) value->span = span;
  Type ty = annotation.defined() ? AnnotatedType(value, annotation, span, *b->facts) : value->ty;
  Var var = MakeVar(name, ty, dataflow, span);
  b->builder.EmitBinding(ir::VarBinding(var, value, span));
  return var;
}

Var BindMatchCast(Builder b, Expr value, Type ty, ffi::String name, bool dataflow, Span span) {
  value = b->builder.NormalizeArgument(std::move(value));
  if (ir::FitsType(ty, value->ty, *b->facts) == ir::TypeFit::kNever) {
    Fail(ErrorKind::kTypeError, span.Place(), "match_cast to ", ops::DescribeType(ty),
         ", which a value of type ", ops::DescribeType(value->ty), " can never have");
  }
  Var var = MakeVar(name, ty, dataflow, span);
  b->builder.EmitBinding(ir::MatchCast(var, value, ty, span));
  return var;
}

// Symbolic variables that callers of a function know: those of its parameters' types.
std::unordered_set<const ffi::Object*> VisibleVars(const ir::Function& func) {
  std::unordered_set<const ffi::Object*> visible;
  for (const Var& p : func->params) {
    visible.insert(p.get());
    for (const Var& v : ir::DefinableSymbolicVars(p->ty)) visible.insert(v.get());
  }
  return visible;
}

// Variables that the bindings of a body define.
std::unordered_set<const ffi::Object*> InnerVars(const ir::SeqExpr& body) {
  std::unordered_set<const ffi::Object*> inner;
  for (const ir::BindingBlock& block : body->blocks) {
    for (const ir::Binding& b : block->bindings) {
      inner.insert(b->var.get());
      const auto* cast = b.as<ir::MatchCastObj>();
      if (cast == nullptr) continue;
      for (const Var& v : ir::DefinableSymbolicVars(cast->ty)) inner.insert(v.get());
    }
  }
  return inner;
}

// The function as callers see it: its result's type speaks of parameters only.  An annotation that
// says less than the body gives way.
ir::Function FinishFunction(Builder b, ir::Function func, Type ret) {
  auto visible = VisibleVars(func), inner = InnerVars(func->body);
  Type seen = ir::EraseToVisible(func->body->body->ty, [&](const Var& v) {
    return visible.count(v.get()) != 0 || inner.count(v.get()) == 0;
  });
  func->body->ty = seen;
  const bool stated = ret.defined() && ir::FitsType(ret, seen, *b->facts) != ir::TypeFit::kAlways;
  return ir::Function(func->params, func->body, stated ? ret : seen, func->is_pure, func->attrs,
                      func->span);
}

// The gradients of a call's arguments by the operator's own rule; no_grad of those that have none.
ffi::Array<Expr> GradientsOf(Builder b, Var out, Expr value, Expr grad) {
  auto call = b->builder.Normalize(value).as<ir::Call>();
  const ir::OpObj* op = call ? ir::CalledOp(call->get()) : nullptr;
  const ops::GradientRule rule = op == nullptr ? nullptr : ops::FindGradientRule(op);
  RELAXVM_CHECK(rule != nullptr) << "asked for the gradient of what has none";
  ops::Exprs grads = rule(ops::GradientCall(b->builder, out, *call, grad));
  for (size_t i = 0; i < grads.size(); ++i) {
    if (!grads[i].defined()) grads[i] = ops::MakeCall("grad.no_grad", {(*call)->args[i]});
  }
  return ffi::Array<Expr>(grads.begin(), grads.end());
}

}  // namespace

void RegisterBuilder() {
  refl::ObjectDef<BuilderObj>(refl::init(false));
  refl::GlobalDef()
      .def("relaxvm.relax.BlockBuilder",
           [](ffi::Optional<ir::IRModule> mod) {
             return Builder(
                 ffi::make_object<BuilderObj>(mod.has_value() ? mod.value() : ir::IRModule()));
           })
      .def("relaxvm.relax.Builder_Begin",
           [](Builder b, bool dataflow) { b->builder.BeginBlock(dataflow); })
      .def("relaxvm.relax.Builder_End", [](Builder b) { return b->builder.EndBlock(); })
      .def("relaxvm.relax.Builder_InDataflow", [](Builder b) { return b->builder.InDataflow(); })
      .def("relaxvm.relax.Builder_Emit",
           [](Builder b, Expr value, ffi::String name) { return b->builder.Emit(value, name); })
      .def("relaxvm.relax.Builder_EmitOutput",
           [](Builder b, Expr value, ffi::String name) {
             return b->builder.EmitOutput(value, name);
           })
      .def("relaxvm.relax.Builder_MatchCast",
           [](Builder b, Expr value, Type ty, ffi::String name) {
             return b->builder.EmitMatchCast(value, ty, name);
           })
      .def("relaxvm.relax.Builder_EmitBinding",
           [](Builder b, ir::Binding binding) { b->builder.EmitBinding(binding); })
      .def("relaxvm.relax.Builder_Normalize",
           [](Builder b, Expr e) { return b->builder.Normalize(e); })
      .def("relaxvm.relax.Builder_NormalizeArgument",
           [](Builder b, Expr e) { return b->builder.NormalizeArgument(e); })
      // For the parser: calls stay as they are written.
      .def("relaxvm.relax.Builder_NormalizeWritten",
           [](Builder b, Expr e) {
             ir::CallsAsWritten as_written;
             return b->builder.NormalizeArgument(e);
           })
      .def("relaxvm.relax.Builder_Lookup",
           [](Builder b, Var var) -> ffi::Optional<Expr> {
             Expr value = b->builder.LookupBinding(var);
             return value.defined() ? ffi::Optional<Expr>(value) : std::nullopt;
           })
      .def("relaxvm.relax.Builder_UniqueName",
           [](Builder b, ffi::String hint) { return b->builder.UniqueName(hint); })
      .def("relaxvm.relax.Builder_AddFunction",
           [](Builder b, ir::BaseFunc func, ffi::String name) {
             return b->builder.AddFunction(func, name);
           })
      .def("relaxvm.relax.Builder_UpdateFunction",
           [](Builder b, ir::GlobalVar var, ir::BaseFunc func) {
             b->builder.UpdateFunction(var, func);
           })
      .def("relaxvm.relax.Builder_FinishFunction", FinishFunction)
      // A new function; its variable gets another name when `name` is taken.
      .def("relaxvm.relax.Builder_DefineFunction",
           [](Builder b, ffi::String name, ir::BaseFunc func) {
             ir::GlobalVar var(b->builder.module().UniqueName(name));
             b->builder.UpdateFunction(var, func);
             return b->builder.module()->FindVar(var->name_hint).value();
           })
      .def("relaxvm.relax.Builder_Module",
           [](Builder b) {
             const ir::IRModule& mod = b->builder.module();
             return ir::IRModule(mod->functions, mod->attrs, mod->global_infos);
           })
      .def("relaxvm.relax.Builder_Gradients", GradientsOf)
      .def("relaxvm.relax.Builder_Bind", Bind)
      .def("relaxvm.relax.Builder_BindMatchCast", BindMatchCast);
}

}  // namespace relaxvm::api
