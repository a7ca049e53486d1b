// SPDX-License-Identifier: Apache-2.0
// Constructors of the nodes of data types, and what their fields are.
#include "ir/data_type.h"

#include <string>
#include <vector>

#include "support/error.h"

namespace relaxvm::ir {

TypeParam::TypeParam(ffi::String name) : Type(ffi::UnsafeInit{}) {
  auto n = ffi::make_object<TypeParamObj>();
  n->name = std::move(name);
  data_ = std::move(n);
}

NothingType::NothingType() : Type(ffi::make_object<NothingTypeObj>()) {}

AdtType::AdtType(ffi::String name, ffi::Array<Type> args) : Type(ffi::UnsafeInit{}) {
  auto n = ffi::make_object<AdtTypeObj>();
  n->name = std::move(name);
  n->args = std::move(args);
  data_ = std::move(n);
}

ConstructorDef::ConstructorDef(ffi::String name, ffi::Array<ffi::String> field_names,
                               ffi::Array<Type> fields, Span span)
    : ffi::ObjectRef(ffi::UnsafeInit{}) {
  if (field_names.size() != fields.size()) {
    Fail(ErrorKind::kValueError, span.Place(), "constructor ", name, " has ", fields.size(),
         " fields and ", field_names.size(), " names for them");
  }
  auto n = ffi::make_object<ConstructorDefObj>();
  n->name = std::move(name);
  n->field_names = std::move(field_names);
  n->fields = std::move(fields);
  n->span = std::move(span);
  data_ = std::move(n);
}

AdtDef::AdtDef(ffi::String name, ffi::Array<ffi::String> params,
               ffi::Array<ConstructorDef> constructors, Span span)
    : GlobalInfo(ffi::UnsafeInit{}) {
  if (constructors.empty()) {
    Fail(ErrorKind::kValueError, span.Place(), "data type ", name,
         " has no constructor, so it has no value; add one");
  }
  for (size_t i = 0; i < constructors.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (constructors[i]->name != constructors[j]->name) continue;
      Fail(ErrorKind::kValueError, constructors[i]->span.Place(), "data type ", name,
           " has two constructors called ", constructors[i]->name, "; rename one");
    }
  }
  auto n = ffi::make_object<AdtDefObj>();
  n->name = std::move(name);
  n->params = std::move(params);
  n->constructors = std::move(constructors);
  n->span = std::move(span);
  data_ = std::move(n);
}

std::string ConstructorObj::FullName() const {
  return std::string(adt->name) + "." + std::string(def()->name);
}

Constructor::Constructor(AdtDef adt, int64_t tag, Span span) : Expr(ffi::UnsafeInit{}) {
  if (tag < 0 || tag >= static_cast<int64_t>(adt->constructors.size())) {
    Fail(ErrorKind::kIndexError, span.Place(), "data type ", adt->name, " has ",
         adt->constructors.size(), " constructors; there is none with tag ", tag);
  }
  auto n = ffi::make_object<ConstructorObj>();
  ffi::Array<Type> args;
  for (const ffi::String& param : adt->params) args.push_back(TypeParam(param));
  n->ty = FuncType(adt->constructors[tag]->fields, AdtType(adt->name, std::move(args)));
  n->adt = std::move(adt);
  n->tag = tag;
  n->span = std::move(span);
  data_ = std::move(n);
}

MatchCase::MatchCase(ffi::Optional<Constructor> constructor, ffi::Array<Var> vars, Expr body,
                     Span span)
    : ffi::ObjectRef(ffi::UnsafeInit{}) {
  auto n = ffi::make_object<MatchCaseObj>();
  n->constructor = std::move(constructor);
  n->vars = std::move(vars);
  n->body = SeqExpr::Wrap(std::move(body));
  n->span = std::move(span);
  data_ = std::move(n);
}

Match::Match(Expr value, ffi::Array<MatchCase> cases, Span span) : Expr(ffi::UnsafeInit{}) {
  auto n = ffi::make_object<MatchObj>();
  n->value = std::move(value);
  n->cases = std::move(cases);
  n->span = std::move(span);
  data_ = std::move(n);
}

// ---- what constructors and cases mean

Type SubstituteParams(const Type& type, const TypeArgs& args, const Type& otherwise) {
  if (!type.defined()) return type;
  auto all = [&](const ffi::Array<Type>& types) {
    return types.Map([&](const Type& t) { return SubstituteParams(t, args, otherwise); });
  };
  if (const auto* param = type.as<TypeParamObj>()) {
    auto it = args.find(std::string(param->name));
    return it == args.end() ? otherwise : it->second;
  }
  if (const auto* adt = type.as<AdtTypeObj>())
    return adt->args.empty() ? type : Type(AdtType(adt->name, all(adt->args)));
  if (const auto* tuple = type.as<TupleTypeObj>()) return TupleType(all(tuple->fields));
  if (const auto* func = type.as<FuncTypeObj>()) {
    Type ret = SubstituteParams(func->ret, args, otherwise);
    if (!func->params.has_value()) return FuncType::Opaque(std::move(ret), func->purity);
    return FuncType(all(func->params.value()), std::move(ret), func->purity);
  }
  return type;
}

ffi::Array<Type> FieldTypes(const Constructor& constructor, const Type& value) {
  TypeArgs args;
  const auto* type = value.defined() ? value.as<AdtTypeObj>() : nullptr;
  if (type != nullptr && type->args.size() == constructor->adt->params.size()) {
    for (size_t i = 0; i < type->args.size(); ++i)
      args.emplace(std::string(constructor->adt->params[i]), type->args[i]);
  }
  return constructor->def()->fields.Map(
      [&](const Type& field) { return SubstituteParams(field, args, AnyType()); });
}

std::string MistakeInCases(const Type& value, const ffi::Array<MatchCase>& cases,
                           const MatchCaseObj** at) {
  *at = nullptr;
  if (cases.empty()) return "a match needs a case";
  if (value.defined() && !value.as<AdtTypeObj>() && !value.as<AnyTypeObj>() &&
      !value.as<NothingTypeObj>())
    return "a match takes a value of a data type, and this is none";
  const AdtDefObj* adt = nullptr;
  std::vector<bool> seen;
  bool any = false;
  for (const MatchCase& c : cases) {
    *at = c.get();
    if (any) return "this case never runs: the one before it takes every value";
    if (!c->constructor.has_value()) {
      if (!c->vars.empty()) return "case _ has no fields";
      any = true;
      continue;
    }
    const ConstructorObj* constructor = c->constructor.value().get();
    const std::string name = constructor->FullName();
    if (adt == nullptr) {
      adt = constructor->adt.get();
      seen.resize(adt->constructors.size());
    }
    const auto* type = value.defined() ? value.as<AdtTypeObj>() : nullptr;
    const ffi::String expected = type != nullptr ? type->name : adt->name;
    if (constructor->adt->name != expected) return name + " never makes a " + std::string(expected);
    if (seen[constructor->tag]) return "there are two cases of " + name;
    seen[constructor->tag] = true;
    const size_t fields = constructor->def()->fields.size();
    if (c->vars.size() != fields) {
      return name + " has " + std::to_string(fields) +
             (fields == 1 ? " field, but " : " fields, but ") + std::to_string(c->vars.size()) +
             (c->vars.size() == 1 ? " is" : " are") + " given";
    }
  }
  *at = nullptr;
  if (any || adt == nullptr) return "";
  std::string missing;
  for (size_t tag = 0; tag < seen.size(); ++tag) {
    if (seen[tag]) continue;
    missing += (missing.empty() ? "" : ", ") + std::string(adt->name) + "." +
               std::string(adt->constructors[tag]->name);
  }
  return missing.empty() ? "" : "no case for " + missing + "; add it, or case _";
}

}  // namespace relaxvm::ir
