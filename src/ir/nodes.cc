// SPDX-License-Identifier: Apache-2.0
// Constructors of types, expressions, bindings, functions and modules.
#include <algorithm>
#include <string>

#include "ir/block_builder.h"
#include "ir/module.h"
#include "ir/prim.h"

namespace relaxvm::ir {

Span::Span(ffi::String source_name, int64_t line, int64_t column, int64_t end_line,
           int64_t end_column) {
  auto n = ffi::make_object<SpanObj>();
  n->source_name = std::move(source_name);
  n->line = line;
  n->column = column;
  n->end_line = end_line;
  n->end_column = end_column;
  data_ = std::move(n);
}

SourcePlace Span::Place() const {
  if (!defined()) return {};
  return {std::string(get()->source_name), static_cast<int>(get()->line),
          static_cast<int>(get()->column)};
}

// ---- types
// ---------------------------------------------------------------------------------------------------------------

AnyType::AnyType() : Type(ffi::make_object<AnyTypeObj>()) {}

PrimType::PrimType(DLDataType dtype) : Type(ffi::UnsafeInit{}) {
  auto n = ffi::make_object<PrimTypeObj>();
  n->dtype = dtype;
  data_ = std::move(n);
}

ShapeType::ShapeType(ffi::Array<Expr> values) : Type(ffi::UnsafeInit{}) {
  auto n = ffi::make_object<ShapeTypeObj>();
  n->ndim = static_cast<int64_t>(values.size());
  n->values = std::move(values);
  data_ = std::move(n);
}
ShapeType::ShapeType(int64_t ndim) : Type(ffi::UnsafeInit{}) {
  auto n = ffi::make_object<ShapeTypeObj>();
  n->ndim = ndim < 0 ? -1 : ndim;
  data_ = std::move(n);
}

ffi::Optional<ffi::Array<Expr>> TensorTypeObj::GetShape() const {
  if (!shape.has_value()) return std::nullopt;
  Expr s = shape.value();
  if (const auto* values = s.as<ShapeExprObj>()) return values->values;
  if (s->ty.defined()) {
    if (const auto* type = s->ty.as<ShapeTypeObj>()) return type->values;
  }
  return std::nullopt;
}

TensorType::TensorType(ffi::Array<Expr> dims, DLDataType dtype, ffi::Optional<VDevice> vdevice)
    : TensorType(ShapeExpr(std::move(dims)), dtype, std::move(vdevice)) {}
TensorType::TensorType(Expr shape, DLDataType dtype, ffi::Optional<VDevice> vdevice)
    : Type(ffi::UnsafeInit{}) {
  auto n = ffi::make_object<TensorTypeObj>();
  n->dtype = dtype;
  n->vdevice = std::move(vdevice);
  if (const auto* values = shape.as<ShapeExprObj>()) {
    n->ndim = static_cast<int64_t>(values->values.size());
  } else {
    const auto* type = shape->ty.defined() ? shape->ty.as<ShapeTypeObj>() : nullptr;
    if (type == nullptr) {
      Fail(ErrorKind::kTypeError, shape->span.Place(),
           "the shape of a tensor type must be R.shape([...]) or a variable of shape type");
    }
    n->ndim = type->ndim;
  }
  n->shape = std::move(shape);
  data_ = std::move(n);
}
TensorType::TensorType(DLDataType dtype, int64_t ndim, ffi::Optional<VDevice> vdevice)
    : Type(ffi::UnsafeInit{}) {
  auto n = ffi::make_object<TensorTypeObj>();
  n->dtype = dtype;
  n->ndim = ndim < 0 ? -1 : ndim;
  n->vdevice = std::move(vdevice);
  data_ = std::move(n);
}

TupleType::TupleType(ffi::Array<Type> fields) : Type(ffi::UnsafeInit{}) {
  auto n = ffi::make_object<TupleTypeObj>();
  n->fields = std::move(fields);
  data_ = std::move(n);
}

FuncType::FuncType(ffi::Array<Type> params, Type ret, bool purity) : Type(ffi::UnsafeInit{}) {
  auto n = ffi::make_object<FuncTypeObj>();
  n->params = std::move(params);
  n->ret = std::move(ret);
  n->purity = purity;
  data_ = std::move(n);
}
FuncType FuncType::Opaque(Type ret, bool purity) {
  auto n = ffi::make_object<FuncTypeObj>();
  n->ret = std::move(ret);
  n->purity = purity;
  FuncType result{ffi::UnsafeInit{}};
  result.data_ = std::move(n);
  return result;
}

PointerType::PointerType(Type element_type, ffi::String storage_scope) : Type(ffi::UnsafeInit{}) {
  auto n = ffi::make_object<PointerTypeObj>();
  n->element_type = std::move(element_type);
  n->storage_scope = std::move(storage_scope);
  data_ = std::move(n);
}

TupleType VoidType() { return TupleType(ffi::Array<Type>()); }
bool IsVoidType(const Type& type) {
  const auto* tuple = type.as<TupleTypeObj>();
  return tuple != nullptr && tuple->fields.empty();
}

// ---- expressions
// ---------------------------------------------------------------------------------------------------------

Expr::Expr(int value) : Expr(static_cast<int64_t>(value)) {}
Expr::Expr(int64_t value) : Expr(IntImm(Int(64), value)) {}

DLDataType Expr::dtype() const {
  const auto* prim = get()->ty.defined() ? get()->ty.as<PrimTypeObj>() : nullptr;
  RELAXVM_CHECK(prim != nullptr) << "dtype() of an expression that is no scalar: "
                                 << get()->GetTypeKey();
  return prim->dtype;
}

Var::Var(ffi::String name, Type ty, Span span) : Expr(ffi::UnsafeInit{}) {
  auto n = ffi::make_object<VarObj>();
  n->name = std::move(name);
  n->ty = std::move(ty);
  n->span = std::move(span);
  data_ = std::move(n);
}
Var::Var(ffi::String name, DLDataType dtype) : Var(std::move(name), PrimType(dtype)) {}

DataflowVar::DataflowVar(ffi::String name, Type ty, Span span) : Var(ffi::UnsafeInit{}) {
  auto n = ffi::make_object<DataflowVarObj>();
  n->name = std::move(name);
  n->ty = std::move(ty);
  n->span = std::move(span);
  data_ = std::move(n);
}

GlobalVar::GlobalVar(ffi::String name_hint, Type ty) : Expr(ffi::UnsafeInit{}) {
  auto n = ffi::make_object<GlobalVarObj>();
  n->name_hint = std::move(name_hint);
  n->ty = std::move(ty);
  data_ = std::move(n);
}

Attrs::Attrs(ffi::Map<ffi::String, ffi::Any> values) {
  auto n = ffi::make_object<AttrsObj>();
  n->values = std::move(values);
  data_ = std::move(n);
}
ffi::Any Attrs::Get(const ffi::String& name) const {
  if (!defined()) return ffi::Any();
  auto it = get()->values.find(name);
  return it == get()->values.end() ? ffi::Any() : (*it).second;
}

Call::Call(Expr op, ffi::Array<Expr> args, Attrs attrs, ffi::Array<Type> ty_args, Span span,
           Type ty)
    : Expr(ffi::UnsafeInit{}) {
  auto n = ffi::make_object<CallObj>();
  n->op = std::move(op);
  n->args = std::move(args);
  n->attrs = std::move(attrs);
  n->ty_args = std::move(ty_args);
  n->span = std::move(span);
  n->ty = std::move(ty);
  data_ = std::move(n);
}

Constant::Constant(ffi::Tensor data, Span span) : Expr(ffi::UnsafeInit{}) {
  auto n = ffi::make_object<ConstantObj>();
  ffi::Array<Expr> dims;
  for (int64_t d : data.shape()) dims.push_back(IntImm(Int(64), d));
  n->ty = TensorType(std::move(dims), data.dtype());
  n->data = std::move(data);
  n->span = std::move(span);
  data_ = std::move(n);
}

StringImm::StringImm(ffi::String value, Span span) : Expr(ffi::UnsafeInit{}) {
  auto n = ffi::make_object<StringImmObj>();
  n->value = std::move(value);
  n->span = std::move(span);
  n->ty = AnyType();
  data_ = std::move(n);
}

DataTypeImm::DataTypeImm(DLDataType value, Span span) : Expr(ffi::UnsafeInit{}) {
  auto n = ffi::make_object<DataTypeImmObj>();
  n->value = value;
  n->span = std::move(span);
  n->ty = AnyType();
  data_ = std::move(n);
}

ShapeExpr::ShapeExpr(ffi::Array<Expr> values, Span span) : Expr(ffi::UnsafeInit{}) {
  auto n = ffi::make_object<ShapeExprObj>();
  // Dimensions are int64 everywhere.
  n->values = values.Map([](const Expr& v) -> Expr {
    if (!IsPrim(v))
      Fail(ErrorKind::kTypeError, v->span.Place(), "a dimension must be an integer expression");
    return v.dtype() == Int(64) ? v : Cast(Int(64), v);
  });
  n->ty = ShapeType(n->values);
  n->span = std::move(span);
  data_ = std::move(n);
}

Tuple::Tuple(ffi::Array<Expr> fields, Span span) : Expr(ffi::UnsafeInit{}) {
  auto n = ffi::make_object<TupleObj>();
  ffi::Array<Type> types;
  bool known = true;
  for (const Expr& f : fields) {
    known = known && f->ty.defined();
    types.push_back(f->ty);
  }
  if (known) n->ty = TupleType(std::move(types));
  n->fields = std::move(fields);
  n->span = std::move(span);
  data_ = std::move(n);
}

TupleGetItem::TupleGetItem(Expr tuple_value, int64_t index, Span span) : Expr(ffi::UnsafeInit{}) {
  auto n = ffi::make_object<TupleGetItemObj>();
  if (index < 0)
    Fail(ErrorKind::kIndexError, span.Place(), "index ", index,
         " of a tuple item must be 0 or more");
  if (tuple_value->ty.defined()) {
    if (const auto* type = tuple_value->ty.as<TupleTypeObj>()) {
      if (index >= static_cast<int64_t>(type->fields.size())) {
        Fail(ErrorKind::kIndexError, span.Place(), "index ", index,
             " is out of range for a tuple of ", type->fields.size());
      }
      n->ty = type->fields[index];
    }
  }
  n->tuple_value = std::move(tuple_value);
  n->index = index;
  n->span = std::move(span);
  data_ = std::move(n);
}

VarBinding::VarBinding(Var var, Expr value, Span span) : Binding(ffi::UnsafeInit{}) {
  auto n = ffi::make_object<VarBindingObj>();
  n->var = std::move(var);
  n->value = std::move(value);
  n->span = std::move(span);
  data_ = std::move(n);
}

MatchCast::MatchCast(Var var, Expr value, Type ty, Span span) : Binding(ffi::UnsafeInit{}) {
  auto n = ffi::make_object<MatchCastObj>();
  n->var = std::move(var);
  n->value = std::move(value);
  n->ty = std::move(ty);
  n->span = std::move(span);
  data_ = std::move(n);
}

BindingBlock::BindingBlock(ffi::Array<Binding> bindings, Span span) : ObjectRef(ffi::UnsafeInit{}) {
  auto n = ffi::make_object<BindingBlockObj>();
  n->bindings = std::move(bindings);
  n->span = std::move(span);
  data_ = std::move(n);
}

DataflowBlock::DataflowBlock(ffi::Array<Binding> bindings, Span span)
    : BindingBlock(ffi::UnsafeInit{}) {
  auto n = ffi::make_object<DataflowBlockObj>();
  n->bindings = std::move(bindings);
  n->span = std::move(span);
  data_ = std::move(n);
}

SeqExpr::SeqExpr(ffi::Array<BindingBlock> blocks, Expr body, Span span) : Expr(ffi::UnsafeInit{}) {
  auto n = ffi::make_object<SeqExprObj>();
  n->blocks = std::move(blocks);
  n->ty = body->ty;
  n->body = std::move(body);
  n->span = std::move(span);
  data_ = std::move(n);
}
SeqExpr SeqExpr::Wrap(Expr body) {
  if (auto seq = body.as<SeqExpr>()) return seq.value();
  Span span = body->span;
  return SeqExpr({}, std::move(body), std::move(span));
}

If::If(Expr cond, Expr true_branch, Expr false_branch, Span span) : Expr(ffi::UnsafeInit{}) {
  auto n = ffi::make_object<IfObj>();
  n->cond = std::move(cond);
  n->true_branch = SeqExpr::Wrap(std::move(true_branch));
  n->false_branch = SeqExpr::Wrap(std::move(false_branch));
  n->span = std::move(span);
  data_ = std::move(n);
}

// ---- functions and modules
// -----------------------------------------------------------------------------------------------

Function::Function(ffi::Array<Var> params, Expr body, Type ret_ty, bool is_pure, DictAttrs attrs,
                   Span span)
    : BaseFunc(ffi::UnsafeInit{}) {
  auto n = ffi::make_object<FunctionObj>();
  ffi::Array<Type> types;
  for (const Var& p : params) {
    if (!p->ty.defined()) {
      Fail(ErrorKind::kTypeError, p->span.Place(), "parameter ", p->name,
           " needs a type annotation");
    }
    types.push_back(p->ty);
  }
  n->params = std::move(params);
  n->body = SeqExpr::Wrap(std::move(body));
  n->ret_ty = ret_ty.defined() ? std::move(ret_ty) : n->body->ty;
  if (n->ret_ty.defined()) {
    // A function's type has no names for its parameters: what speaks of one means nothing in it.
    Type ret = EraseToVisible(n->ret_ty, [&](const Var& v) {
      return std::none_of(n->params.begin(), n->params.end(),
                          [&](const Var& p) { return p.same_as(v); });
    });
    n->ty = FuncType(std::move(types), std::move(ret), is_pure);
  }
  n->is_pure = is_pure;
  n->attrs = std::move(attrs);
  n->span = std::move(span);
  data_ = std::move(n);
}

ExternFunc::ExternFunc(ffi::String global_symbol, Type ty, Span span)
    : BaseFunc(ffi::UnsafeInit{}) {
  auto n = ffi::make_object<ExternFuncObj>();
  n->global_symbol = std::move(global_symbol);
  if (ty.defined()) {
    n->ty = std::move(ty);
  } else {
    n->ty = FuncType::Opaque(AnyType());
  }
  n->span = std::move(span);
  data_ = std::move(n);
}

VDevice::VDevice(ffi::String target, int64_t vdevice_id, ffi::String memory_scope)
    : GlobalInfo(ffi::UnsafeInit{}) {
  auto n = ffi::make_object<VDeviceObj>();
  n->target = std::move(target);
  n->vdevice_id = vdevice_id;
  n->memory_scope = std::move(memory_scope);
  data_ = std::move(n);
}

IRModule::IRModule(ffi::Map<GlobalVar, BaseFunc> functions, DictAttrs attrs,
                   ffi::Map<ffi::String, ffi::Array<GlobalInfo>> global_infos) {
  auto n = ffi::make_object<IRModuleObj>();
  n->functions = std::move(functions);
  n->attrs = std::move(attrs);
  n->global_infos = std::move(global_infos);
  data_ = std::move(n);
  get()->RebuildNames();
}

void IRModuleObj::RebuildNames() const {
  names.clear();
  for (const auto& [var, func] : functions) {
    auto [it, fresh] = names.emplace(std::string(var->name_hint), var);
    if (!fresh)
      Fail(ErrorKind::kValueError, "the module has two functions called '", var->name_hint,
           "'; rename one");
  }
}

ffi::Optional<GlobalVar> IRModuleObj::FindVar(const ffi::String& name) const {
  auto it = names.find(std::string(name));
  if (it == names.end()) return std::nullopt;
  return it->second;
}
ffi::Optional<BaseFunc> IRModuleObj::Find(const ffi::String& name) const {
  auto var = FindVar(name);
  if (!var.has_value()) return std::nullopt;
  return functions.at(var.value());
}
BaseFunc IRModuleObj::Lookup(const ffi::String& name) const {
  if (auto func = Find(name)) return func.value();
  std::string have;
  for (const auto& [known, var] : names) have += (have.empty() ? "" : ", ") + known;
  Fail(ErrorKind::kKeyError, "the module has no function '", name, "'; it has: ", have);
}
BaseFunc IRModuleObj::Lookup(const GlobalVar& var) const {
  auto it = functions.find(var);
  if (it != functions.end()) return (*it).second;
  return Lookup(var->name_hint);
}

IRModuleObj* IRModule::CopyOnWrite() {
  if (!data_.unique()) data_ = ffi::make_object<IRModuleObj>(*get());
  return static_cast<IRModuleObj*>(const_cast<ffi::Object*>(data_.get()));
}

GlobalVar IRModule::Update(const ffi::String& name, BaseFunc func) {
  IRModuleObj* mod = CopyOnWrite();
  auto found = mod->FindVar(name);
  GlobalVar var = found.has_value() ? found.value() : GlobalVar(name, func->ty);
  // A function's type belongs to its variable as well: calls are typed by it.
  if (func->ty.defined()) var->ty = func->ty;
  mod->functions.Set(var, std::move(func));
  mod->names.emplace(std::string(name), var);
  return var;
}

ffi::String IRModule::UniqueName(const ffi::String& hint) const {
  if (!defined() || !get()->names.count(std::string(hint))) return hint;
  for (int i = 1;; ++i) {
    std::string name = std::string(hint) + std::to_string(i);
    if (!get()->names.count(name)) return name;
  }
}

}  // namespace relaxvm::ir
