// SPDX-License-Identifier: Apache-2.0
// The entry of the printer: text, names, modules.
#include "script/print.h"

#include <algorithm>
#include <cctype>

#include "script/printer.h"

namespace relaxvm::script {

namespace {

constexpr const char* kHeader =
    "# from relaxvm.script import ir as I\n"
    "# from relaxvm.script import relax as R\n"
    "# from relaxvm.script import tirx as T\n\n";

// Words that a variable cannot be called.
constexpr const char* kReserved[] = {
    "False",    "None",     "True",     "and",    "as",   "assert", "async", "await",  "break",
    "class",    "cls",      "continue", "def",    "del",  "elif",   "else",  "except", "finally",
    "float",    "for",      "from",     "global", "if",   "import", "in",    "is",     "lambda",
    "metadata", "nonlocal", "not",      "or",     "pass", "raise",  "range", "return", "try",
    "while",    "with",     "yield",    "I",      "R",    "T",      "_"};

std::string Text(const ffi::String& s) { return std::string(s.data(), s.size()); }

std::string Identifier(const std::string& hint) {
  std::string name;
  for (char c : hint) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0]))) name = "v_" + name;
  return name;
}

// The name a function carries itself; functions without one are private and called main.
std::string OwnName(const ir::BaseFunc& func) {
  auto it = func->attrs.find(ir::attr::kGlobalSymbol);
  if (it == func->attrs.end()) return "main";
  auto name = (*it).second.as<ffi::String>();
  return name ? Identifier(Text(*name)) : "main";
}

}  // namespace

void Printer::Line(const std::string& text) {
  for (const std::string& declaration : pending_) {
    out_.append(indent_, ' ').append(declaration).append("\n");
  }
  pending_.clear();
  out_.append(indent_, ' ').append(text).append("\n");
}

void Printer::Blank() {
  if (!out_.empty()) out_ += "\n";
}

void Printer::StartFunction() {
  names_.clear();
  used_.clear();
  header_vars_.clear();
  loops_.clear();
  for (const char* word : kReserved) used_[word] = 1;
  used_[options_.module_name] = 1;
  if (mod_ == nullptr) return;
  auto data_types = mod_->global_infos.find(ir::kDataTypes);
  if (data_types == mod_->global_infos.end()) return;
  for (const ir::GlobalInfo& info : (*data_types).second) {
    if (const auto* adt = info.as<ir::AdtDefObj>()) used_[Text(adt->name)] = 1;
  }
}

std::string Printer::FreshName(const std::string& hint) {
  const std::string base = Identifier(hint);
  for (int& next = used_[base];;) {
    std::string name = next == 0 ? base : base + "_" + std::to_string(next);
    ++next;
    if (name == base || used_.emplace(name, 1).second) return name;
  }
}

std::string Printer::Define(const ffi::Object* var, const std::string& hint) {
  return names_[var] = FreshName(hint);
}

std::string Printer::NameOf(const Var& var) {
  auto it = names_.find(var.get());
  if (it != names_.end()) return it->second;
  if (fragment_) return Define(var.get(), Text(var->name));
  std::string name = Define(var.get(), Text(var->name));
  if (const auto* prim = var->ty.as<ir::PrimTypeObj>()) {
    pending_.push_back(name + " = T." + DTypeName(prim->dtype) + "()");
  } else if (const auto* buffer = var->ty.as<tir::BufferTypeObj>()) {
    pending_.push_back(name + " = T.Buffer(" + BufferArguments(buffer) + ")");
  }
  return name;
}

std::string Printer::Function(const ir::BaseFunc& func) {
  const std::string name = OwnName(func);
  if (const auto* f = func.as<ir::FunctionObj>()) {
    GraphFunction(f, name, false, options_.module_name);
  } else if (const auto* p = func.as<tir::PrimFuncObj>()) {
    TensorProgram(p, name, options_.module_name);
  } else {
    fragment_ = true;
    return Value(func) + "\n";
  }
  return kHeader + Metadata() + out_;
}

std::string Printer::Module(const ir::IRModuleObj* mod) {
  mod_ = mod;
  Line("@I.ir_module");
  Line("class " + options_.module_name + ":");
  Indent indent(this);
  bool empty = true;
  if (!mod->attrs.empty()) {
    Line("I.module_attrs(" + Dictionary(mod->attrs) + ")");
    empty = false;
  }
  for (const auto& [key, infos] : mod->global_infos) {
    if (key != ir::kDataTypes) continue;
    for (const ir::GlobalInfo& info : infos) {
      if (!empty) Blank();
      DataType(info.as<ir::AdtDefObj>());
      empty = false;
    }
  }
  const size_t other_infos = mod->global_infos.size() - mod->global_infos.count(ir::kDataTypes);
  if (other_infos > 0) {
    const ir::IRModuleObj* names = nullptr;
    std::swap(mod_, names);  // here devices are spelled out
    std::vector<std::string> groups;
    for (const auto& [key, infos] : mod->global_infos) {
      if (key == ir::kDataTypes) continue;
      std::vector<std::string> parts;
      for (const ir::GlobalInfo& info : infos) {
        auto device = info.as<ir::VDevice>();
        parts.push_back(device ? DeviceText(*device) : "I.dummy_global_info()");
      }
      groups.push_back(Quoted(Text(key)) + ": [" + Join(parts) + "]");
    }
    std::swap(mod_, names);
    Line("I.module_global_infos({" + Join(groups) + "})");
    empty = false;
  }
  // Tensor programs first, then by name: the order does not depend on how the module was made.
  std::vector<std::pair<ir::GlobalVar, ir::BaseFunc>> functions(mod->functions.begin(),
                                                                mod->functions.end());
  std::sort(functions.begin(), functions.end(), [](const auto& a, const auto& b) {
    const bool a_graph = a.second.template as<ir::FunctionObj>();
    const bool b_graph = b.second.template as<ir::FunctionObj>();
    if (a_graph != b_graph) return b_graph;
    return a.first->name_hint < b.first->name_hint;
  });
  for (const auto& [var, func] : functions) {
    if (!empty) Blank();
    empty = false;
    const std::string name = Text(var->name_hint);
    if (const auto* f = func.as<ir::FunctionObj>()) {
      GraphFunction(f, name, false, options_.module_name);
    } else if (const auto* p = func.as<tir::PrimFuncObj>()) {
      TensorProgram(p, name, options_.module_name);
    } else {
      Line(name + " = " + Value(func));
    }
  }
  if (empty) Line("pass");
  return kHeader + Metadata() + out_;
}

std::string Printer::Fragment(const ffi::Any& what) {
  fragment_ = true;
  StartFunction();
  if (auto e = what.as<Expr>(); e && e->defined()) {
    if (const auto* seq = e->as<ir::SeqExprObj>()) {
      Body(seq);
      return out_;
    }
    if (const auto* branch = e->as<ir::IfObj>()) {
      Conditional(branch, Var("result", branch->ty));
      return out_;
    }
    if (const auto* match = e->as<ir::MatchObj>()) {
      Cases(match, Var("result", match->ty));
      return out_;
    }
    return Value(*e);
  }
  if (auto type = what.as<Type>(); type && type->defined()) return TypeText(*type);
  if (auto binding = what.as<ir::Binding>(); binding && binding->defined()) {
    Binding(*binding);
  } else if (auto block = what.as<ir::BindingBlock>()) {
    Blocks({*block});
  } else if (auto stmt = what.as<Stmt>(); stmt && stmt->defined()) {
    in_program_ = true;
    Statement(*stmt);
  } else if (const auto* adt = what.as<ir::AdtDefObj>()) {
    DataType(adt);
  } else if (auto region = what.as<tir::BufferRegion>()) {
    in_program_ = true;
    return Region(*region);
  } else {
    return AnyValue(what);
  }
  return out_;
}

std::string Print(const ffi::Any& what, const PrintOptions& options) {
  Printer printer(options);
  if (const auto* mod = what.as<ir::IRModuleObj>()) return printer.Module(mod);
  if (auto func = what.as<ir::BaseFunc>(); func && func->defined()) return printer.Function(*func);
  return printer.Fragment(what);
}

}  // namespace relaxvm::script
