// SPDX-License-Identifier: Apache-2.0
// Relations between types: least common type, fit, what a call gives, what a caller may see.
#include <string>

#include "ir/block_builder.h"

namespace relaxvm::ir {
namespace {

bool SameDims(const ffi::Array<Expr>& a, const ffi::Array<Expr>& b, TypeContext& context) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!a[i].same_as(b[i]) && !context.ProveEqual(a[i], b[i])) return false;
  }
  return true;
}

bool SameVDevice(const TensorTypeObj* a, const TensorTypeObj* b) {
  if (a->vdevice.has_value() != b->vdevice.has_value()) return false;
  return !a->vdevice.has_value() || StructuralEqual(a->vdevice.value(), b->vdevice.value());
}

Type CommonTensor(const TensorTypeObj* a, const TensorTypeObj* b, TypeContext& context) {
  const DLDataType dtype = a->dtype == b->dtype ? a->dtype : Void();
  ffi::Optional<VDevice> vdevice = SameVDevice(a, b) ? a->vdevice : ffi::Optional<VDevice>();
  if (a->shape.has_value() && b->shape.has_value()) {
    if (a->shape.value().same_as(b->shape.value()))
      return TensorType(a->shape.value(), dtype, vdevice);
    auto da = a->GetShape(), db = b->GetShape();
    if (da.has_value() && db.has_value() && SameDims(da.value(), db.value(), context)) {
      return TensorType(a->shape.value(), dtype, vdevice);
    }
  }
  return TensorType(dtype, a->ndim == b->ndim ? a->ndim : -1, vdevice);
}

// The worst of two fits.
TypeFit Worse(TypeFit a, TypeFit b) { return a < b ? a : b; }

TypeFit FitsDims(const ffi::Array<Expr>& expected, const ffi::Array<Expr>& value,
                 TypeContext& context) {
  if (expected.size() != value.size()) return TypeFit::kNever;
  TypeFit fit = TypeFit::kAlways;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (expected[i].same_as(value[i]) || context.ProveEqual(expected[i], value[i])) continue;
    if (context.Prove(NotEqual(expected[i], value[i]))) return TypeFit::kNever;
    fit = TypeFit::kCheck;
  }
  return fit;
}

TypeFit FitsTensor(const TensorTypeObj* expected, const TensorTypeObj* value,
                   TypeContext& context) {
  TypeFit fit = TypeFit::kAlways;
  if (!expected->IsUnknownDtype() && expected->dtype != value->dtype) {
    if (!value->IsUnknownDtype()) return TypeFit::kNever;
    fit = TypeFit::kCheck;
  }
  if (!expected->IsUnknownRank() && expected->ndim != value->ndim) {
    if (!value->IsUnknownRank()) return TypeFit::kNever;
    fit = TypeFit::kCheck;
  }
  if (!expected->shape.has_value()) return fit;
  if (value->shape.has_value() && expected->shape.value().same_as(value->shape.value())) return fit;
  auto want = expected->GetShape(), have = value->GetShape();
  if (!want.has_value() || !have.has_value()) return Worse(fit, TypeFit::kCheck);
  return Worse(fit, FitsDims(want.value(), have.value(), context));
}

// Binds variables that stand alone in `param` to what stands there in `arg`.
class Unifier {
 public:
  ffi::Map<Var, Expr> bound;

  void Run(const Type& param, const Type& arg) {
    if (!param.defined() || !arg.defined()) return;
    if (const auto* p = param.as<TensorTypeObj>()) {
      const auto* a = arg.as<TensorTypeObj>();
      if (a == nullptr || !p->shape.has_value()) return;
      if (auto v = p->shape.value().as<Var>(); v.has_value() && a->shape.has_value())
        bound.Set(v.value(), a->shape.value());
      auto want = p->GetShape(), have = a->GetShape();
      if (want.has_value() && have.has_value()) Dims(want.value(), have.value());
    } else if (const auto* p = param.as<ShapeTypeObj>()) {
      const auto* a = arg.as<ShapeTypeObj>();
      if (a != nullptr && p->values.has_value() && a->values.has_value())
        Dims(p->values.value(), a->values.value());
    } else if (const auto* p = param.as<TupleTypeObj>()) {
      const auto* a = arg.as<TupleTypeObj>();
      if (a == nullptr || a->fields.size() != p->fields.size()) return;
      for (size_t i = 0; i < p->fields.size(); ++i) Run(p->fields[i], a->fields[i]);
    } else if (const auto* p = param.as<AdtTypeObj>()) {
      const auto* a = arg.as<AdtTypeObj>();
      if (a == nullptr || a->name != p->name || a->args.size() != p->args.size()) return;
      for (size_t i = 0; i < p->args.size(); ++i) Run(p->args[i], a->args[i]);
    }
  }

 private:
  void Dims(const ffi::Array<Expr>& want, const ffi::Array<Expr>& have) {
    if (want.size() != have.size()) return;
    for (size_t i = 0; i < want.size(); ++i) {
      auto v = want[i].as<Var>();
      if (v.has_value() && bound.find(v.value()) == bound.end()) bound.Set(v.value(), have[i]);
    }
  }
};

bool AllVisible(const Expr& e, const std::function<bool(const Var&)>& visible) {
  for (const Var& v : FreeVars(e)) {
    if (!visible(v)) return false;
  }
  return true;
}
bool AllVisible(const ffi::Array<Expr>& dims, const std::function<bool(const Var&)>& visible) {
  for (const Expr& d : dims) {
    if (!AllVisible(d, visible)) return false;
  }
  return true;
}

}  // namespace

Type LeastCommonType(const Type& a, const Type& b, TypeContext& context) {
  if (a.same_as(b)) return a;
  if (!a.defined() || !b.defined()) return Type();
  if (a.as<NothingTypeObj>()) return b;
  if (b.as<NothingTypeObj>()) return a;
  if (const auto* x = a.as<TensorTypeObj>()) {
    if (const auto* y = b.as<TensorTypeObj>()) return CommonTensor(x, y, context);
  } else if (const auto* x = a.as<ShapeTypeObj>()) {
    if (const auto* y = b.as<ShapeTypeObj>()) {
      if (x->values.has_value() && y->values.has_value() &&
          SameDims(x->values.value(), y->values.value(), context))
        return a;
      return ShapeType(x->ndim == y->ndim ? x->ndim : int64_t{-1});
    }
  } else if (const auto* x = a.as<TupleTypeObj>()) {
    const auto* y = b.as<TupleTypeObj>();
    if (y != nullptr && x->fields.size() == y->fields.size()) {
      ffi::Array<Type> fields;
      for (size_t i = 0; i < x->fields.size(); ++i) {
        fields.push_back(LeastCommonType(x->fields[i], y->fields[i], context));
      }
      return TupleType(std::move(fields));
    }
  } else if (const auto* x = a.as<AdtTypeObj>()) {
    const auto* y = b.as<AdtTypeObj>();
    if (y != nullptr && x->name == y->name && x->args.size() == y->args.size()) {
      ffi::Array<Type> args;
      for (size_t i = 0; i < x->args.size(); ++i)
        args.push_back(LeastCommonType(x->args[i], y->args[i], context));
      return AdtType(x->name, std::move(args));
    }
  } else if (const auto* x = a.as<FuncTypeObj>()) {
    if (const auto* y = b.as<FuncTypeObj>()) {
      if (StructuralEqual(a, b, true)) return a;
      return FuncType::Opaque(LeastCommonType(x->ret, y->ret, context), x->purity && y->purity);
    }
  } else if (StructuralEqual(a, b)) {
    return a;
  }
  return AnyType();
}

Type EraseToVisible(const Type& type, const std::function<bool(const Var&)>& visible) {
  if (!type.defined()) return type;
  if (const auto* tensor = type.as<TensorTypeObj>()) {
    if (!tensor->shape.has_value()) return type;
    Expr shape = tensor->shape.value();
    const auto* dims = shape.as<ShapeExprObj>();
    const bool keep =
        dims != nullptr ? AllVisible(dims->values, visible) : AllVisible(shape, visible);
    return keep ? type : Type(TensorType(tensor->dtype, tensor->ndim, tensor->vdevice));
  }
  if (const auto* shape = type.as<ShapeTypeObj>()) {
    if (!shape->values.has_value() || AllVisible(shape->values.value(), visible)) return type;
    return ShapeType(shape->ndim);
  }
  if (const auto* tuple = type.as<TupleTypeObj>()) {
    ffi::Array<Type> fields =
        tuple->fields.Map([&](const Type& t) { return EraseToVisible(t, visible); });
    return fields.same_as(tuple->fields) ? type : Type(TupleType(std::move(fields)));
  }
  if (const auto* adt = type.as<AdtTypeObj>()) {
    ffi::Array<Type> args =
        adt->args.Map([&](const Type& t) { return EraseToVisible(t, visible); });
    return args.same_as(adt->args) ? type : Type(AdtType(adt->name, std::move(args)));
  }
  return type;
}

TypeFit FitsType(const Type& expected, const Type& value, TypeContext& context) {
  if (!expected.defined() || expected.as<AnyTypeObj>() || expected.same_as(value))
    return TypeFit::kAlways;
  if (!value.defined() || value.as<AnyTypeObj>()) return TypeFit::kCheck;
  if (value.as<NothingTypeObj>()) return TypeFit::kAlways;
  if (const auto* want = expected.as<AdtTypeObj>()) {
    const auto* have = value.as<AdtTypeObj>();
    if (have == nullptr || have->name != want->name || have->args.size() != want->args.size())
      return TypeFit::kNever;
    TypeFit fit = TypeFit::kAlways;  // values never change: a list of fours is a list of tensors
    for (size_t i = 0; i < want->args.size(); ++i)
      fit = Worse(fit, FitsType(want->args[i], have->args[i], context));
    return fit;
  }
  if (const auto* want = expected.as<TensorTypeObj>()) {
    const auto* have = value.as<TensorTypeObj>();
    return have ? FitsTensor(want, have, context) : TypeFit::kNever;
  }
  if (const auto* want = expected.as<ShapeTypeObj>()) {
    const auto* have = value.as<ShapeTypeObj>();
    if (have == nullptr) return TypeFit::kNever;
    if (want->ndim >= 0 && want->ndim != have->ndim)
      return have->ndim < 0 ? TypeFit::kCheck : TypeFit::kNever;
    if (!want->values.has_value()) return TypeFit::kAlways;
    if (!have->values.has_value()) return TypeFit::kCheck;
    return FitsDims(want->values.value(), have->values.value(), context);
  }
  if (const auto* want = expected.as<TupleTypeObj>()) {
    const auto* have = value.as<TupleTypeObj>();
    if (have == nullptr || have->fields.size() != want->fields.size()) return TypeFit::kNever;
    TypeFit fit = TypeFit::kAlways;
    for (size_t i = 0; i < want->fields.size(); ++i) {
      fit = Worse(fit, FitsType(want->fields[i], have->fields[i], context));
    }
    return fit;
  }
  if (const auto* want = expected.as<FuncTypeObj>()) {
    const auto* have = value.as<FuncTypeObj>();
    if (have == nullptr || (want->purity && !have->purity)) return TypeFit::kNever;
    if (!want->params.has_value() || StructuralEqual(expected, value, true)) {
      return FitsType(want->ret, have->ret, context);
    }
    if (!have->params.has_value()) return TypeFit::kCheck;
    if (have->params.value().size() != want->params.value().size()) return TypeFit::kNever;
    TypeFit fit = FitsType(want->ret, have->ret, context);
    for (size_t i = 0; i < want->params.value().size(); ++i) {  // parameters the other way round
      fit = Worse(fit, FitsType(have->params.value()[i], want->params.value()[i], context));
    }
    return fit;
  }
  return StructuralEqual(expected, value) ? TypeFit::kAlways : TypeFit::kNever;
}

Type CallResultType(const FuncType& func, const Call& call, TypeContext& context) {
  if (!func->params.has_value()) {
    if (call->ty_args.size() == 1) return call->ty_args[0];
    if (call->ty_args.size() > 1) return TupleType(call->ty_args);
    return func->ret.defined() ? func->ret : Type(AnyType());
  }
  const ffi::Array<Type> params = func->params.value();
  auto called = [&]() -> std::string {
    if (const auto* g = call->op.as<GlobalVarObj>()) return std::string(g->name_hint);
    if (const auto* v = call->op.as<VarObj>()) return std::string(v->name);
    return "the function";
  };
  if (params.size() != call->args.size()) {
    Fail(ErrorKind::kTypeError, call->span.Place(), called(), " takes ", params.size(),
         " arguments, but ", call->args.size(), " are given");
  }
  Unifier unifier;
  for (size_t i = 0; i < params.size(); ++i) unifier.Run(params[i], call->args[i]->ty);
  for (size_t i = 0; i < params.size(); ++i) {
    Type expected = Substitute(params[i], unifier.bound);
    if (FitsType(expected, call->args[i]->ty, context) == TypeFit::kNever) {
      Fail(ErrorKind::kTypeError, call->span.Place(), "argument ", i, " of ", called(),
           " has a type that its parameter does not accept; check rank, dtype and dimensions");
    }
  }
  std::unordered_set<const ffi::Object*> inner;
  for (const Type& p : params) {
    for (const Var& v : SymbolicVars(p)) {
      if (unifier.bound.find(v) == unifier.bound.end()) inner.insert(v.get());
    }
  }
  // Variables of the callee that no argument determines mean nothing to the caller; its own pass
  // through.
  Type ret = EraseToVisible(func->ret, [&](const Var& v) { return !inner.count(v.get()); });
  return Substitute(ret, unifier.bound);
}

namespace {

// What the type parameters in `param` stand for where a value of type `arg` is given.
void BindParams(const Type& param, const Type& arg, TypeArgs* bound, TypeContext& context) {
  if (const auto* p = param.as<TypeParamObj>()) {
    Type given = arg.defined() ? arg : Type(AnyType());
    auto [it, fresh] = bound->emplace(std::string(p->name), given);
    if (!fresh) it->second = LeastCommonType(it->second, given, context);
    return;
  }
  if (!arg.defined()) return;
  auto all = [&](const ffi::Array<Type>& params, const ffi::Array<Type>& args) {
    if (params.size() != args.size()) return;
    for (size_t i = 0; i < params.size(); ++i) BindParams(params[i], args[i], bound, context);
  };
  if (const auto* p = param.as<AdtTypeObj>()) {
    const auto* a = arg.as<AdtTypeObj>();
    if (a != nullptr && a->name == p->name) all(p->args, a->args);
  } else if (const auto* p = param.as<TupleTypeObj>()) {
    if (const auto* a = arg.as<TupleTypeObj>()) all(p->fields, a->fields);
  }
}

}  // namespace

Type ConstructorResultType(const Constructor& constructor, const Call& call, TypeContext& context) {
  const ffi::Array<Type>& fields = constructor->def()->fields;
  const std::string name = constructor->FullName();
  if (call->args.size() != fields.size()) {
    Fail(ErrorKind::kTypeError, call->span.Place(), name, " has ", fields.size(),
         fields.size() == 1 ? " field, but " : " fields, but ", call->args.size(),
         call->args.size() == 1 ? " is" : " are", " given");
  }
  TypeArgs bound;
  for (size_t i = 0; i < fields.size(); ++i)
    BindParams(fields[i], call->args[i]->ty, &bound, context);
  for (size_t i = 0; i < fields.size(); ++i) {
    Type expected = SubstituteParams(fields[i], bound, NothingType());
    if (FitsType(expected, call->args[i]->ty, context) != TypeFit::kNever) continue;
    Fail(ErrorKind::kTypeError, call->span.Place(), "field ", constructor->def()->field_names[i],
         " of ", name, " does not accept the value that is given; check its type");
  }
  ffi::Array<Type> args;
  for (const ffi::String& param : constructor->adt->params) {
    auto it = bound.find(std::string(param));
    args.push_back(it == bound.end() ? Type(NothingType()) : it->second);
  }
  return AdtType(constructor->adt->name, std::move(args));
}

Type TypeOfConstant(const ffi::Tensor& data) { return Constant(data)->ty; }

}  // namespace relaxvm::ir
