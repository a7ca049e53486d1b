// SPDX-License-Identifier: Apache-2.0
// The graph language as script: types, values, calls, bindings, functions.
#include <functional>

#include "ir/node_kind.h"
#include "ir/op.h"
#include "ir/visitor.h"
#include "script/printer.h"

namespace relaxvm::script {

using ir::Node;

namespace {

std::string Text(const ffi::String& s) { return std::string(s.data(), s.size()); }

std::string FirstWord(const ffi::String& target) {
  const std::string text = Text(target);
  return text.substr(0, text.find(' '));
}

// At the end of a branch such a value is the branch's result itself, not a binding.
bool NeedsNoBinding(const ir::BindingObj* binding) {
  const Expr& e = binding->value;
  return binding->IsInstance<ir::VarBindingObj>() &&
         (e.as<ir::VarObj>() || e.as<ir::ConstantObj>() || e.as<ir::GlobalVarObj>() ||
          e.as<ir::ShapeExprObj>() || (e->ty.defined() && e->ty.as<ir::PrimTypeObj>()));
}

std::string PrimAnnotation(const Type& type) {
  const auto* prim = type.defined() ? type.as<ir::PrimTypeObj>() : nullptr;
  return prim != nullptr ? ": T." + DTypeName(prim->dtype) : "";
}

}  // namespace

// ---- types

std::string Printer::TypeText(const Type& type) {
  if (!type.defined()) return "None";
  if (const auto* t = type.as<ir::TensorTypeObj>()) return TensorTypeText(t);
  if (const auto* t = type.as<ir::ShapeTypeObj>()) {
    if (t->values.has_value()) return "R.Shape(" + Dims(t->values.value(), "[", "]") + ")";
    return t->ndim < 0 ? "R.Shape" : "R.Shape(ndim=" + std::to_string(t->ndim) + ")";
  }
  if (const auto* t = type.as<ir::TupleTypeObj>()) {
    std::vector<std::string> parts;
    for (const Type& f : t->fields) parts.push_back(TypeText(f));
    return "R.Tuple(" + Join(parts) + ")";
  }
  if (const auto* t = type.as<ir::PrimTypeObj>())
    return "R.Prim(" + Quoted(DTypeName(t->dtype)) + ")";
  if (type.as<ir::AnyTypeObj>()) return "R.Any";
  if (const auto* t = type.as<ir::AdtTypeObj>()) return AdtTypeText(t);
  if (const auto* t = type.as<ir::TypeParamObj>()) return Text(t->name);
  if (type.as<ir::NothingTypeObj>()) return "R.Nothing";
  if (const auto* t = type.as<ir::FuncTypeObj>()) return FuncTypeText(t);
  if (const auto* t = type.as<ir::PointerTypeObj>()) {
    const auto* element = t->element_type.as<ir::PrimTypeObj>();
    const std::string dtype =
        element != nullptr ? Quoted(DTypeName(element->dtype)) : TypeText(t->element_type);
    return "T.handle(" + dtype + ", " + Quoted(Text(t->storage_scope)) + ")";
  }
  if (const auto* t = type.as<tir::BufferTypeObj>()) return "T.Buffer(" + BufferArguments(t) + ")";
  return "I.unprintable(" + Quoted(type->GetTypeKey()) + ")";
}

std::string Printer::TensorTypeText(const ir::TensorTypeObj* t) {
  std::vector<std::string> parts;
  if (t->shape.has_value()) {
    const auto* dims = t->shape.value().as<ir::ShapeExprObj>();
    parts.push_back(dims != nullptr ? Dims(dims->values, "(", ")") : Value(t->shape.value()));
  }
  if (!t->IsUnknownDtype()) parts.push_back("dtype=" + Quoted(DTypeName(t->dtype)));
  if (!t->shape.has_value() && t->ndim >= 0) parts.push_back("ndim=" + std::to_string(t->ndim));
  if (t->vdevice.has_value()) parts.push_back("vdevice=" + DeviceText(t->vdevice.value()));
  return parts.empty() ? "R.Tensor" : "R.Tensor(" + Join(parts) + ")";
}

std::string Printer::FuncTypeText(const ir::FuncTypeObj* f) {
  if (!f->params.has_value()) {
    return "R.Callable(ret=" + TypeText(f->ret) + ", purity=" + (f->purity ? "True)" : "False)");
  }
  std::vector<std::string> parts;
  for (const Type& p : f->params.value()) parts.push_back(TypeText(p));
  const std::string params = "(" + Join(parts) + (parts.size() == 1 ? ",)" : ")");
  return "R.Callable(" + params + ", " + TypeText(f->ret) + ", " + (f->purity ? "True)" : "False)");
}

// In a signature, variables do not exist yet: their dimensions are strings.
std::string Printer::Dim(const Expr& e) {
  if (!in_header_ || e.as<ir::IntImmObj>()) return Scalar(e);
  ir::PostOrderVisit(e, [this](const Expr& part) {
    auto var = part.as<Var>();
    if (!var || IsDefined(var->get())) return;
    Define(var->get(), Text(var->get()->name));
    header_vars_.push_back(*var);
  });
  return Quoted(Scalar(e));
}

std::string Printer::Dims(const ffi::Array<Expr>& dims, const char* open, const char* close) {
  std::vector<std::string> parts;
  for (const Expr& d : dims) parts.push_back(Dim(d));
  return open + Join(parts) + (parts.size() == 1 && *open == '(' ? "," : "") + close;
}

// Devices are named by kind and number among the module's devices of that kind.
std::string Printer::DeviceText(const ir::VDevice& device) {
  if (mod_ != nullptr) {
    auto it = mod_->global_infos.find("vdevice");
    int number = 0;
    if (it != mod_->global_infos.end()) {
      for (const ir::GlobalInfo& info : (*it).second) {
        const auto* known = info.as<ir::VDeviceObj>();
        if (known == nullptr || FirstWord(known->target) != FirstWord(device->target)) continue;
        if (ir::StructuralEqual(info, device)) {
          return Quoted(FirstWord(device->target) + ":" + std::to_string(number) + ":" +
                        Text(device->memory_scope));
        }
        ++number;
      }
    }
  }
  return "I.vdevice(" + Quoted(Text(device->target)) + ", " + std::to_string(device->vdevice_id) +
         ", " + Quoted(Text(device->memory_scope)) + ")";
}

// ---- values

std::string Printer::Values(const ffi::Array<Expr>& list) {
  std::vector<std::string> parts;
  for (const Expr& e : list) parts.push_back(Value(e));
  return Join(parts);
}

std::string Printer::TupleText(const ffi::Array<Expr>& fields) {
  if (fields.empty()) return "R.tuple()";
  return "(" + Values(fields) + (fields.size() == 1 ? ",)" : ")");
}

std::string Printer::Value(const Expr& e) {
  switch (ir::NodeOf(e.get())) {
    case Node::kVar: return NameOf(e.as<Var>().value());
    case Node::kGlobalVar: {
      const std::string name = Text(e.as<ir::GlobalVarObj>()->name_hint);
      if (mod_ == nullptr || !mod_->FindVar(name).has_value())
        return "I.GlobalVar(" + Quoted(name) + ")";
      uses_cls_ = true;
      return "cls." + name;
    }
    case Node::kOp: return "I.Op(" + Quoted(Text(e.as<ir::OpObj>()->name)) + ")";
    case Node::kCall: return CallText(e.as<ir::CallObj>());
    case Node::kConstant: return ConstantValue(e.as<ir::ConstantObj>()->data);
    case Node::kStringImm: return "R.str(" + Quoted(Text(e.as<ir::StringImmObj>()->value)) + ")";
    case Node::kDataTypeImm:
      return "R.dtype(" + Quoted(DTypeName(e.as<ir::DataTypeImmObj>()->value)) + ")";
    case Node::kShape: return "R.shape(" + Dims(e.as<ir::ShapeExprObj>()->values, "[", "]") + ")";
    case Node::kTuple: return TupleText(e.as<ir::TupleObj>()->fields);
    case Node::kTupleGetItem: {
      const auto* item = e.as<ir::TupleGetItemObj>();
      return Value(item->tuple_value) + "[" + std::to_string(item->index) + "]";
    }
    case Node::kExternFunc:
      return "R.ExternFunc(" + Quoted(Text(e.as<ir::ExternFuncObj>()->global_symbol)) + ")";
    case Node::kIntImm:
    case Node::kFloatImm:
    case Node::kBinary:
    case Node::kCast:
    case Node::kSelect:
    case Node::kLet:
    case Node::kRamp:
    case Node::kBroadcast:
    case Node::kShuffle:
    case Node::kIntrin:
      return in_program_ || fragment_ ? Scalar(e) : "R.prim_value(" + Scalar(e) + ")";
    case Node::kIf: {
      // Outside of a binding only unfinished programs have one.
      const auto* i = e.as<ir::IfObj>();
      return "R.If(" + Value(i->cond) + ", " + Value(i->true_branch) + ", " +
             Value(i->false_branch) + ")";
    }
    case Node::kMatch: {
      const auto* match = e.as<ir::MatchObj>();
      return "R.Match(" + Value(match->value) + ", ...)";
    }
    case Node::kConstructor: return e.as<ir::ConstructorObj>()->FullName();
    case Node::kSeq: {
      const auto* seq = e.as<ir::SeqExprObj>();
      return seq->blocks.empty() ? Value(seq->body) : "R.SeqExpr(..., " + Value(seq->body) + ")";
    }
    case Node::kFunction: return "R.Function(...)";
    case Node::kOther: break;
  }
  if (e.as<tir::BufferLoadObj>()) return Scalar(e);
  if (e.as<tir::PrimFuncObj>()) return "T.PrimFunc(...)";
  return "I.unprintable(" + Quoted(e->GetTypeKey()) + ")";
}

// ---- calls

std::string Printer::AttrArguments(const ir::CallObj* call) {
  if (!call->attrs.defined()) return "";
  std::string text;
  for (const auto& [name, value] : call->attrs->values) {
    const bool is_dtype = value.type_index() == ffi::TypeIndex::kTVMFFIDataType;
    text += ", " + Text(name) + "=" +
            (is_dtype ? Quoted(DTypeName(value.cast<DLDataType>())) : AnyValue(value));
  }
  return text;
}

std::string Printer::OutTypes(const ffi::Array<Type>& types) {
  if (types.size() != 1) {
    std::vector<std::string> parts;
    for (const Type& t : types) parts.push_back(TypeText(t));
    return "[" + Join(parts) + "]";
  }
  const auto* tuple = types[0].as<ir::TupleTypeObj>();
  // A list of one is the type itself, not a tuple of one.
  if (tuple == nullptr || tuple->fields.size() < 2) return TypeText(types[0]);
  return OutTypes(tuple->fields);
}

// call_tir and its kin: function, tuple of arguments, types of what it writes.
std::string Printer::DestinationCall(const ir::CallObj* call, const std::string& name) {
  const auto* packed = call->args[0].as<ir::ExternFuncObj>();
  std::string text =
      "R." + name + "(" +
      (packed != nullptr ? Quoted(Text(packed->global_symbol)) : Value(call->args[0]));
  if (call->args.size() > 1) text += ", " + Value(call->args[1]);
  text += ", out_ty=" + OutTypes(call->ty_args);
  if (call->args.size() > 2) text += ", tir_vars=" + Value(call->args[2]);
  return text + AttrArguments(call) + ")";
}

std::string Printer::OperatorCall(const ir::CallObj* call, const std::string& name) {
  std::vector<std::string> parts;
  for (const Expr& a : call->args) {
    const auto* packed = a.as<ir::ExternFuncObj>();
    parts.push_back(packed != nullptr ? Quoted(Text(packed->global_symbol)) : Value(a));
  }
  std::string text = Join(parts) + AttrArguments(call);
  if (!call->ty_args.empty()) {
    std::vector<std::string> types;
    for (const Type& t : call->ty_args) types.push_back(TypeText(t));
    text += ", ty_args=(" + Join(types) + (types.size() == 1 ? ",)" : ")");
  }
  if (text.rfind(", ", 0) == 0) text = text.substr(2);
  return name + "(" + text + ")";
}

std::string Printer::CallText(const ir::CallObj* call) {
  using Form = std::string (Printer::*)(const ir::CallObj*, const std::string&);
  static const std::unordered_map<std::string, Form> kForms = {
      {"call_dps_packed", &Printer::DestinationCall},
      {"call_tir", &Printer::DestinationCall},
      {"call_tir_inplace", &Printer::DestinationCall},
      {"call_tir_with_grad", &Printer::DestinationCall},
  };
  if (const auto* op = call->op.as<ir::OpObj>()) {
    const std::string full = Text(op->name);
    if (full.rfind("relax.", 0) != 0) {
      return "R.call_op(" + Quoted(full) + ", [" + Values(call->args) + "]" + AttrArguments(call) +
             ")";
    }
    const std::string name = full.substr(6);
    auto it = kForms.find(name);
    return it == kForms.end() ? OperatorCall(call, "R." + name) : (this->*it->second)(call, name);
  }
  if (const auto* packed = call->op.as<ir::ExternFuncObj>()) {
    std::string text = OperatorCall(call, "R.call_packed");
    const std::string name = Quoted(Text(packed->global_symbol));
    return text.insert(std::string("R.call_packed(").size(),
                       text.back() == ')' && text.size() == 15 ? name : name + ", ");
  }
  return OperatorCall(call, Value(call->op));
}

// ---- bindings

// The annotation of `var = value`; "" where the value says it all.
std::string Printer::Annotation(const Var& var, const Expr& value) {
  if (!var->ty.defined()) return "";
  if (value.as<ir::VarObj>() && value->ty.defined() && ir::StructuralEqual(value->ty, var->ty))
    return "";
  if (const auto* call = value.as<ir::CallObj>(); call != nullptr && call->ty_args.size() == 1) {
    if (ir::StructuralEqual(call->ty_args[0], var->ty)) return "";
  }
  if (const auto* prim = var->ty.as<ir::PrimTypeObj>()) return ": T." + DTypeName(prim->dtype);
  return ": " + TypeText(var->ty);
}

void Printer::Binding(const ir::Binding& binding) {
  const Var& var = binding->var;
  const std::string hint = Text(var->name);
  if (const auto* func = binding->value.as<ir::FunctionObj>()) {
    const std::string name = IsDefined(var.get()) ? names_[var.get()] : Define(var.get(), hint);
    GraphFunction(func, name, true, "");
    return;
  }
  if (const auto* branch = binding->value.as<ir::IfObj>()) {
    Conditional(branch, var);
    return;
  }
  if (const auto* match = binding->value.as<ir::MatchObj>()) {
    Cases(match, var);
    return;
  }
  std::string text;
  if (const auto* cast = binding.as<ir::MatchCastObj>()) {
    text = " = R.match_cast(" + Value(binding->value) + ", " + TypeText(cast->ty) + ")";
  } else {
    text = Annotation(var, binding->value) + " = " + Value(binding->value);
  }
  const std::string name = IsDefined(var.get()) ? names_[var.get()] : Define(var.get(), hint);
  Line(name + text);
}

void Printer::Conditional(const ir::IfObj* branch, const Var& var) {
  const std::string cond = Value(branch->cond);
  const std::string result =
      IsDefined(var.get()) ? names_[var.get()] : Define(var.get(), Text(var->name));
  Line("if " + cond + ":");
  {
    Indent indent(this);
    Branch(branch->true_branch.get(), result);
  }
  Line("else:");
  Indent indent(this);
  Branch(branch->false_branch.get(), result);
}

// The last binding of a branch carries the name of the conditional's variable.
void Printer::Branch(const ir::SeqExprObj* seq, const std::string& result) {
  const ir::BindingObj* last = nullptr;
  if (!seq->blocks.empty() && !seq->blocks.back()->bindings.empty()) {
    last = seq->blocks.back()->bindings.back().get();
  }
  const bool named = last != nullptr && seq->body.same_as(last->var) &&
                     !seq->blocks.back().as<ir::DataflowBlockObj>() &&
                     !last->value.as<ir::FunctionObj>() && !NeedsNoBinding(last);
  if (named) DefineAs(last->var.get(), result);
  Blocks(seq->blocks);
  if (!named) Line(result + PrimAnnotation(seq->body->ty) + " = " + Value(seq->body));
}

void Printer::DataflowBlock(const ir::BindingBlock& block) {
  Line("with R.dataflow():");
  Indent indent(this);
  std::vector<std::string> outputs;
  for (const ir::Binding& b : block->bindings) {
    Binding(b);
    if (!b->var.as<ir::DataflowVarObj>()) outputs.push_back(names_[b->var.get()]);
  }
  Line("R.output(" + Join(outputs) + ")");
}

void Printer::Blocks(const ffi::Array<ir::BindingBlock>& blocks) {
  for (const ir::BindingBlock& block : blocks) {
    if (block.as<ir::DataflowBlockObj>()) {
      DataflowBlock(block);
    } else {
      for (const ir::Binding& b : block->bindings) Binding(b);
    }
  }
}

void Printer::Body(const ir::SeqExprObj* seq) {
  Blocks(seq->blocks);
  Line("return " + Value(seq->body));
}

// ---- functions

void Printer::GraphFunction(const ir::FunctionObj* func, const std::string& name, bool local,
                            const std::string& in_module) {
  if (!local) StartFunction();
  std::vector<Var> outer_vars;
  std::swap(outer_vars, header_vars_);
  in_header_ = true;
  std::vector<std::string> params;
  for (const Var& p : func->params) {
    std::string type = TypeText(p->ty);
    params.push_back(Define(p.get(), Text(p->name)) + ": " + type);
  }
  std::string ret = func->ret_ty.defined() ? " -> " + TypeText(func->ret_ty) : "";
  in_header_ = false;

  auto symbol = func->attrs.find(ir::attr::kGlobalSymbol);
  const bool is_private = !local && symbol == func->attrs.end();
  std::vector<std::string> flags;
  if (is_private) flags.push_back("private=True");
  if (!func->is_pure) flags.push_back("pure=False");
  Line("@R.function" + (flags.empty() ? "" : "(" + Join(flags) + ")"));
  Line("def " + name + "(" + Join(params) + ")" + ret + ":");
  Indent indent(this);
  for (const Var& v : header_vars_) Line(NameOf(v) + " = " + "T." + DTypeName(v.dtype()) + "()");
  std::unordered_set<std::string> implied;
  if (symbol != func->attrs.end() && !local) {
    if (auto text = (*symbol).second.as<ffi::String>(); text && Text(*text) == name)
      implied.insert(ir::attr::kGlobalSymbol);
  }
  std::string attrs = Dictionary(func->attrs, implied);
  if (attrs != "{}") Line("R.func_attr(" + attrs + ")");
  // `cls` is bound where it is used; whether that is so shows only afterwards.
  const size_t at = out_.size();
  const bool outer_cls = uses_cls_;
  if (!local) uses_cls_ = false;
  Body(func->body.get());
  if (!local && uses_cls_) out_.insert(at, std::string(indent_, ' ') + "cls = " + in_module + "\n");
  if (local) uses_cls_ = uses_cls_ || outer_cls;
  std::swap(outer_vars, header_vars_);
}

}  // namespace relaxvm::script
