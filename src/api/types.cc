// SPDX-License-Identifier: Apache-2.0
// Spans, types and global infos for Python.
#include <tvm/ffi/reflection/registry.h>

#include "api/convert.h"
#include "api/register.h"
#include "ir/data_type.h"
#include "ir/type.h"

namespace relaxvm::api {

namespace refl = tvm::ffi::reflection;
using Flag = refl::AttachFieldFlag;
using ir::Expr;
using ir::Type;

namespace {

void RegisterRoots() {
  refl::ObjectDef<ir::SpanObj>(refl::init(false))
      .def_ro("source_name", &ir::SpanObj::source_name)
      .def_ro("line", &ir::SpanObj::line)
      .def_ro("column", &ir::SpanObj::column)
      .def_ro("end_line", &ir::SpanObj::end_line)
      .def_ro("end_column", &ir::SpanObj::end_column);
  refl::ObjectDef<ir::TypeObj>(refl::init(false))
      .def_ro("span", &ir::TypeObj::span, Flag::SEqHashIgnore());
  refl::ObjectDef<ir::ExprObj>(refl::init(false))
      .def_ro("span", &ir::ExprObj::span, Flag::SEqHashIgnore())
      .def_ro("ty", &ir::ExprObj::ty);
  refl::ObjectDef<ir::GlobalInfoObj>(refl::init(false));
  refl::ObjectDef<ir::VDeviceObj>(refl::init(false))
      .def_ro("target", &ir::VDeviceObj::target)
      .def_ro("vdevice_id", &ir::VDeviceObj::vdevice_id)
      .def_ro("memory_scope", &ir::VDeviceObj::memory_scope);
  refl::ObjectDef<ir::DummyGlobalInfoObj>(refl::init(false));
}

void RegisterTypeClasses() {
  refl::ObjectDef<ir::AnyTypeObj>(refl::init(false));
  refl::ObjectDef<ir::PrimTypeObj>(refl::init(false)).def_ro("dtype", &ir::PrimTypeObj::dtype);
  refl::ObjectDef<ir::ShapeTypeObj>(refl::init(false))
      .def_ro("values", &ir::ShapeTypeObj::values)
      .def_ro("ndim", &ir::ShapeTypeObj::ndim);
  refl::ObjectDef<ir::TensorTypeObj>(refl::init(false))
      .def_ro("shape", &ir::TensorTypeObj::shape)
      .def_ro("_dtype", &ir::TensorTypeObj::dtype)
      .def_ro("vdevice", &ir::TensorTypeObj::vdevice)
      .def_ro("ndim", &ir::TensorTypeObj::ndim);
  refl::ObjectDef<ir::TupleTypeObj>(refl::init(false)).def_ro("fields", &ir::TupleTypeObj::fields);
  refl::ObjectDef<ir::FuncTypeObj>(refl::init(false))
      .def_ro("params", &ir::FuncTypeObj::params, Flag::SEqHashDefPattern())
      .def_ro("ret", &ir::FuncTypeObj::ret)
      .def_ro("purity", &ir::FuncTypeObj::purity);
  refl::ObjectDef<ir::NothingTypeObj>(refl::init(false));
  refl::ObjectDef<ir::TypeParamObj>(refl::init(false)).def_ro("name", &ir::TypeParamObj::name);
  refl::ObjectDef<ir::AdtTypeObj>(refl::init(false))
      .def_ro("name", &ir::AdtTypeObj::name)
      .def_ro("args", &ir::AdtTypeObj::args);
  refl::ObjectDef<ir::PointerTypeObj>(refl::init(false))
      .def_ro("element_type", &ir::PointerTypeObj::element_type)
      .def_ro("storage_scope", &ir::PointerTypeObj::storage_scope);
}

// A tensor type from a ShapeExpr, a shape variable or None.
ir::TensorType MakeTensorType(ffi::Optional<Expr> shape, DLDataType dtype,
                              ffi::Optional<ir::VDevice> vdevice, int64_t ndim) {
  if (!shape.has_value()) {
    if (ndim < -1)
      Fail(ErrorKind::kValueError, "TensorType: ndim is ", ndim,
           "; give -1 (unknown) or a rank from 0");
    return ir::TensorType(dtype, ndim, vdevice);
  }
  ir::TensorType type =
      shape.value().as<ir::ShapeExprObj>()
          ? ir::TensorType(shape.value().as<ir::ShapeExprObj>()->values, dtype, vdevice)
          : ir::TensorType(shape.value(), dtype, vdevice);
  if (ndim != -1 && type->ndim != ndim) {
    Fail(ErrorKind::kValueError, "TensorType: ndim is ", ndim, ", but the shape has ", type->ndim,
         " dimensions; leave out ndim");
  }
  return type;
}

}  // namespace

void RegisterTypes() {
  RegisterRoots();
  RegisterTypeClasses();
  refl::GlobalDef()
      .def("relaxvm.ir.Span",
           [](ffi::String name, int64_t line, int64_t column, int64_t end_line,
              int64_t end_column) { return ir::Span(name, line, column, end_line, end_column); })
      .def("relaxvm.ir.VDevice", [](ffi::String target, int64_t id,
                                    ffi::String scope) { return ir::VDevice(target, id, scope); })
      .def("relaxvm.ir.DummyGlobalInfo",
           [] { return ir::GlobalInfo(ffi::make_object<ir::DummyGlobalInfoObj>()); })
      .def("relaxvm.ir.AnyType", [] { return ir::AnyType(); })
      .def("relaxvm.ir.NothingType", [] { return ir::NothingType(); })
      .def("relaxvm.ir.TypeParam", [](ffi::String name) { return ir::TypeParam(name); })
      .def("relaxvm.ir.AdtType",
           [](ffi::String name, ffi::Array<Type> args) { return ir::AdtType(name, args); })
      .def("relaxvm.ir.PrimType", [](DLDataType dtype) { return ir::PrimType(dtype); })
      .def("relaxvm.ir.ShapeType",
           [](ffi::Optional<ffi::Array<ffi::Any>> values, int64_t ndim) {
             if (!values.has_value()) return ir::ShapeType(ndim);
             ffi::Array<Expr> dims = ToScalars(values.value());
             if (ndim != -1 && ndim != static_cast<int64_t>(dims.size())) {
               Fail(ErrorKind::kValueError, "ShapeType: ndim is ", ndim, ", but ", dims.size(),
                    " values are given; leave out ndim");
             }
             return ir::ShapeType(dims);
           })
      .def("relaxvm.ir.TensorType", MakeTensorType)
      .def("relaxvm.ir.TupleType", [](ffi::Array<Type> fields) { return ir::TupleType(fields); })
      .def("relaxvm.ir.FuncType",
           [](ffi::Optional<ffi::Array<Type>> params, Type ret, bool purity) {
             if (params.has_value()) return ir::FuncType(params.value(), ret, purity);
             return ir::FuncType::Opaque(ret, purity);
           })
      .def("relaxvm.ir.PointerType",
           [](Type element, ffi::String scope) { return ir::PointerType(element, scope); });
}

}  // namespace relaxvm::api
