// SPDX-License-Identifier: Apache-2.0
// Data types as script: definitions, types, match.
#include <unordered_set>

#include "ir/visitor.h"
#include "script/printer.h"

namespace relaxvm::script {

namespace {

std::string Text(const ffi::String& s) { return std::string(s.data(), s.size()); }

// Names of data types and parameters do not exist yet when Python reads a definition.
bool NamesData(const Type& type) {
  if (type.as<ir::TypeParamObj>() || type.as<ir::AdtTypeObj>()) return true;
  if (const auto* tuple = type.as<ir::TupleTypeObj>()) {
    for (const Type& f : tuple->fields) {
      if (NamesData(f)) return true;
    }
  }
  if (const auto* func = type.as<ir::FuncTypeObj>()) {
    if (NamesData(func->ret)) return true;
    if (!func->params.has_value()) return false;
    for (const Type& p : func->params.value()) {
      if (NamesData(p)) return true;
    }
  }
  return false;
}

}  // namespace

std::string Printer::AdtTypeText(const ir::AdtTypeObj* adt) {
  if (adt->args.empty()) return Text(adt->name);
  std::vector<std::string> args;
  for (const Type& a : adt->args) args.push_back(TypeText(a));
  return Text(adt->name) + "[" + Join(args) + "]";
}

void Printer::DataType(const ir::AdtDefObj* adt) {
  std::vector<std::string> params;
  for (const ffi::String& p : adt->params) params.push_back(Quoted(Text(p)));
  Line("@R.data" + (params.empty() ? "" : "(" + Join(params) + ")"));
  Line("class " + Text(adt->name) + ":");
  Indent indent(this);
  for (const ir::ConstructorDef& constructor : adt->constructors) {
    std::vector<std::string> fields;
    for (size_t i = 0; i < constructor->fields.size(); ++i) {
      const Type& type = constructor->fields[i];
      const std::string text = TypeText(type);
      fields.push_back(Text(constructor->field_names[i]) + ": " +
                       (NamesData(type) ? Quoted(text) : text));
    }
    Line("def " + Text(constructor->name) + "(" + Join(fields) + "): ...");
  }
}

void Printer::Cases(const ir::MatchObj* match, const Var& var) {
  const std::string value = Value(match->value);
  const std::string result =
      IsDefined(var.get()) ? names_[var.get()] : Define(var.get(), Text(var->name));
  Line("match " + value + ":");
  Indent indent(this);
  for (const ir::MatchCase& c : match->cases) {
    std::unordered_set<const ffi::Object*> used;
    for (const Var& v : ir::FreeVars(c->body)) used.insert(v.get());
    std::vector<std::string> names;
    for (const Var& v : c->vars)
      names.push_back(used.count(v.get()) ? Define(v.get(), Text(v->name)) : "_");
    Line("case " +
         (c->constructor.has_value() ? c->constructor.value()->FullName() + "(" + Join(names) + ")"
                                     : std::string("_")) +
         ":");
    Indent inner(this);
    Branch(c->body.get(), result);
  }
}

}  // namespace relaxvm::script
