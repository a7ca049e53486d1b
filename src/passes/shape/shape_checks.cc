// SPDX-License-Identifier: Apache-2.0
// Checks of values against types, as calls of the VM's builtins.
#include "passes/shape/shape_checks.h"

#include "analysis/core_ops.h"
#include "ir/data_type.h"
#include "ir/prim.h"
#include "ir/visitor.h"
#include "ops/op_def.h"

namespace relaxvm::passes {

namespace ffi = tvm::ffi;
using ir::Expr;
using ir::IntImm;
using ir::StringImm;
using ir::Type;

namespace {

void EmitCheck(const char* builtin, const ffi::Array<Expr>& args, const EmitValueFn& emit) {
  emit(ir::Call(ir::ExternFunc(builtin), args, ir::Attrs(), {ir::VoidType()}, ir::Span(),
                ir::VoidType()),
       ir::VoidType());
}

bool SameDims(const ffi::Array<Expr>& a, const ffi::Optional<ffi::Array<Expr>>& b) {
  return b.has_value() && ir::StructuralEqual(a, b.value());
}

void CheckTensor(const Match& m, const ir::TensorTypeObj* type, const EmitValueFn& emit,
                 std::vector<SizeMatch>* sizes) {
  const auto* known = m.known.as<ir::TensorTypeObj>();
  bool rank_known = known && (type->ndim < 0 || known->ndim == type->ndim);
  bool dtype_known = known && (type->IsUnknownDtype() || known->dtype == type->dtype);
  if (!rank_known || !dtype_known) {
    ffi::Array<Expr> args = {m.value, IntImm(Int(64), type->ndim)};
    if (!type->IsUnknownDtype()) {
      args.push_back(ir::DataTypeImm(type->dtype));
    } else if (m.plain) {
      args.push_back(
          emit(analysis::CallCore(analysis::CoreOp::kNullValue, {}, ir::AnyType()), ir::AnyType()));
    }
    args.push_back(StringImm(m.context));
    EmitCheck("vm.builtin.check_tensor_info", args, emit);
  }
  auto dims = type->GetShape();
  if (dims.has_value() && !(known && SameDims(dims.value(), known->GetShape()))) {
    sizes->push_back({m.value, dims.value(), m.context});
  }
}

void CheckShape(const Match& m, const ir::ShapeTypeObj* type, const EmitValueFn& emit,
                std::vector<SizeMatch>* sizes) {
  const auto* known = m.known.as<ir::ShapeTypeObj>();
  if (!known || (type->ndim >= 0 && known->ndim != type->ndim)) {
    EmitCheck("vm.builtin.check_shape_info",
              {m.value, IntImm(Int(64), type->ndim), StringImm(m.context)}, emit);
  }
  if (type->values.has_value() && !(known && SameDims(type->values.value(), known->values))) {
    sizes->push_back({m.value, type->values.value(), m.context});
  }
}

void CheckPrim(const Match& m, const ir::PrimTypeObj* type, const EmitValueFn& emit,
               std::vector<SizeMatch>* sizes) {
  const auto* known = m.known.as<ir::PrimTypeObj>();
  if (!known || known->dtype != type->dtype) {
    EmitCheck("vm.builtin.check_prim_value_info",
              {m.value, ir::DataTypeImm(type->dtype), StringImm(m.context)}, emit);
  }
  if (m.value.as<ir::VarObj>() && (IsInteger(type->dtype) || IsBool(type->dtype))) {
    sizes->push_back({m.value, {m.value}, m.context, /*is_scalar=*/true});
  }
}

// Field `i` of a tuple.  In Relax's form a value that may be no tuple is asked by a builtin.
Expr FieldOf(const Match& m, size_t i, const Type& known, const EmitValueFn& emit) {
  const bool tuple = m.value->ty.defined() && m.value->ty.as<ir::TupleTypeObj>() != nullptr;
  if (m.plain && !tuple) {
    Type any = ir::AnyType();
    return emit(ir::Call(ir::ExternFunc("vm.builtin.tuple_getitem"),
                         {m.value, IntImm(Int(64), static_cast<int64_t>(i))}, ir::Attrs(), {any},
                         ir::Span(), any),
                any);
  }
  ir::TupleGetItem item(m.value, static_cast<int64_t>(i));
  if (!m.plain || !item->ty.defined()) item->ty = known.defined() ? known : Type(ir::AnyType());
  return emit(item, item->ty);
}

void CheckTuple(const Match& m, const ir::TupleTypeObj* type, const EmitValueFn& emit,
                std::vector<SizeMatch>* sizes) {
  const auto* known = m.known.as<ir::TupleTypeObj>();
  if (known && known->fields.size() != type->fields.size()) known = nullptr;
  if (!known) {
    EmitCheck(
        "vm.builtin.check_tuple_info",
        {m.value, IntImm(Int(64), static_cast<int64_t>(type->fields.size())), StringImm(m.context)},
        emit);
  }
  for (size_t i = 0; i < type->fields.size(); ++i) {
    Type known_field = known ? known->fields[i] : Type();
    if (!NeedsCheck(type->fields[i], known_field)) continue;
    if (m.only_sizes && ir::SymbolicVars(type->fields[i]).empty()) continue;
    std::string context = m.plain ? "" : m.context + " field " + std::to_string(i) + ":";
    EmitTypeChecks({FieldOf(m, i, known_field, emit), type->fields[i], known_field, context, m.mod,
                    m.plain, m.only_sizes},
                   emit, sizes);
  }
}

const ir::AdtDefObj* FindDataType(const ir::IRModuleObj* mod, const ffi::String& name) {
  if (mod == nullptr) return nullptr;
  auto it = mod->global_infos.find(ir::kDataTypes);
  if (it == mod->global_infos.end()) return nullptr;
  for (const ir::GlobalInfo& info : (*it).second) {
    const auto* adt = info.as<ir::AdtDefObj>();
    if (adt != nullptr && adt->name == name) return adt;
  }
  return nullptr;
}

void CheckAdt(const Match& m, const ir::AdtTypeObj* type, const EmitValueFn& emit) {
  ffi::Array<Expr> args = {m.value, StringImm(m.context)};
  if (const ir::AdtDefObj* adt = FindDataType(m.mod, type->name)) {
    for (const ir::ConstructorDef& constructor : adt->constructors)
      args.push_back(IntImm(Int(64), static_cast<int64_t>(constructor->fields.size())));
  }
  EmitCheck("vm.builtin.check_adt_info", args, emit);
}

bool IsAdt(const Type& type, const ir::AdtTypeObj* expected) {
  const auto* adt = type.defined() ? type.as<ir::AdtTypeObj>() : nullptr;
  return (adt != nullptr && adt->name == expected->name) ||
         (type.defined() && type.as<ir::NothingTypeObj>() != nullptr);
}

}  // namespace

void EmitTypeChecks(const Match& m, const EmitValueFn& emit, std::vector<SizeMatch>* sizes) {
  if (const auto* tensor = m.expected.as<ir::TensorTypeObj>()) {
    CheckTensor(m, tensor, emit, sizes);
  } else if (const auto* shape = m.expected.as<ir::ShapeTypeObj>()) {
    CheckShape(m, shape, emit, sizes);
  } else if (const auto* prim = m.expected.as<ir::PrimTypeObj>()) {
    CheckPrim(m, prim, emit, sizes);
  } else if (const auto* tuple = m.expected.as<ir::TupleTypeObj>()) {
    CheckTuple(m, tuple, emit, sizes);
  } else if (const auto* adt = m.expected.as<ir::AdtTypeObj>()) {
    if (!IsAdt(m.known, adt)) CheckAdt(m, adt, emit);
  } else if (m.expected.as<ir::FuncTypeObj>() && !m.known.as<ir::FuncTypeObj>()) {
    EmitCheck("vm.builtin.check_func_info", {m.value, StringImm(m.context)}, emit);
  }
}

bool NeedsCheck(const Type& expected, const Type& found) {
  if (!expected.defined() || expected.as<ir::AnyTypeObj>()) return false;
  if (!found.defined()) return true;
  if (const auto* want = expected.as<ir::TensorTypeObj>()) {
    const auto* have = found.as<ir::TensorTypeObj>();
    if (!have || (want->ndim >= 0 && have->ndim != want->ndim)) return true;
    if (!want->IsUnknownDtype() && want->dtype != have->dtype) return true;
    auto dims = want->GetShape();
    return dims.has_value() && !SameDims(dims.value(), have->GetShape());
  }
  if (const auto* want = expected.as<ir::ShapeTypeObj>()) {
    const auto* have = found.as<ir::ShapeTypeObj>();
    if (!have || (want->ndim >= 0 && have->ndim != want->ndim)) return true;
    return want->values.has_value() && !SameDims(want->values.value(), have->values);
  }
  if (const auto* want = expected.as<ir::PrimTypeObj>()) {
    const auto* have = found.as<ir::PrimTypeObj>();
    return !have || have->dtype != want->dtype;
  }
  if (const auto* want = expected.as<ir::TupleTypeObj>()) {
    const auto* have = found.as<ir::TupleTypeObj>();
    if (!have || have->fields.size() != want->fields.size()) return true;
    for (size_t i = 0; i < want->fields.size(); ++i) {
      if (NeedsCheck(want->fields[i], have->fields[i])) return true;
    }
    return false;
  }
  if (const auto* want = expected.as<ir::AdtTypeObj>()) return !IsAdt(found, want);
  return expected.as<ir::FuncTypeObj>() && !found.as<ir::FuncTypeObj>();
}

std::string ParamContext(const std::string& function, const ir::Var& param) {
  return function + ": parameter '" + std::string(param->name) + "' (" +
         ops::DescribeType(param->ty) + "):";
}

std::string ResultContext(const std::string& function, const Type& type) {
  return function + ": result (" + ops::DescribeType(type) + "):";
}

std::string CastContext(const std::string& function, const ir::MatchCastObj* cast) {
  std::string where = function + ": match_cast of '" + std::string(cast->var->name) + "'";
  if (cast->span.defined()) where = FormatError(cast->span.Place(), where);
  return where + " (" + ops::DescribeType(cast->ty) + "):";
}

}  // namespace relaxvm::passes
