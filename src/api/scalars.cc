// SPDX-License-Identifier: Apache-2.0
// Scalar expressions for Python: classes, makers that fold, and conversion of numbers.
#include <tvm/ffi/reflection/registry.h>

#include "api/convert.h"
#include "api/register.h"
#include "ir/prim.h"

namespace relaxvm::api {

namespace refl = tvm::ffi::reflection;
using Flag = refl::AttachFieldFlag;
using ir::Expr;

Expr ToScalar(const ffi::Any& value, DLDataType int_dtype) {
  switch (value.type_index()) {
    case ffi::TypeIndex::kTVMFFIBool: return ir::BoolImm(value.cast<bool>());
    case ffi::TypeIndex::kTVMFFIInt: return ir::IntImm(int_dtype, value.cast<int64_t>());
    case ffi::TypeIndex::kTVMFFIFloat: return ir::FloatImm(Float(32), value.cast<double>());
  }
  if (auto e = value.as<Expr>(); e && e->defined()) return *e;
  Fail(ErrorKind::kTypeError, "expected a scalar expression or a number, got a value of type ",
       value.GetTypeKey());
}

ffi::Array<Expr> ToScalars(const ffi::Array<ffi::Any>& values, DLDataType int_dtype) {
  ffi::Array<Expr> result;
  result.reserve(values.size());
  for (const ffi::Any& v : values) result.push_back(ToScalar(v, int_dtype));
  return result;
}

Expr ToOptional(const ffi::Any& value) { return value == nullptr ? Expr() : ToScalar(value); }

namespace {

void RegisterClasses() {
  refl::ObjectDef<ir::IntImmObj>(refl::init(false)).def_ro("value", &ir::IntImmObj::value);
  refl::ObjectDef<ir::FloatImmObj>(refl::init(false)).def_ro("value", &ir::FloatImmObj::value);
  refl::ObjectDef<ir::BinaryObj>(refl::init(false))
      .def_ro("_op", &ir::BinaryObj::op)
      .def_ro("a", &ir::BinaryObj::a)
      .def_ro("b", &ir::BinaryObj::b);
  refl::ObjectDef<ir::CastObj>(refl::init(false)).def_ro("value", &ir::CastObj::value);
  refl::ObjectDef<ir::SelectObj>(refl::init(false))
      .def_ro("condition", &ir::SelectObj::condition)
      .def_ro("true_value", &ir::SelectObj::true_value)
      .def_ro("false_value", &ir::SelectObj::false_value);
  refl::ObjectDef<ir::LetObj>(refl::init(false))
      .def_ro("var", &ir::LetObj::var, Flag::SEqHashDefSimple())
      .def_ro("value", &ir::LetObj::value)
      .def_ro("body", &ir::LetObj::body);
  refl::ObjectDef<ir::RampObj>(refl::init(false))
      .def_ro("base", &ir::RampObj::base)
      .def_ro("stride", &ir::RampObj::stride)
      .def_ro("lanes", &ir::RampObj::lanes);
  refl::ObjectDef<ir::BroadcastObj>(refl::init(false))
      .def_ro("value", &ir::BroadcastObj::value)
      .def_ro("lanes", &ir::BroadcastObj::lanes);
  refl::ObjectDef<ir::ShuffleObj>(refl::init(false))
      .def_ro("vectors", &ir::ShuffleObj::vectors)
      .def_ro("indices", &ir::ShuffleObj::indices);
  refl::ObjectDef<ir::IntrinObj>(refl::init(false))
      .def_ro("_intrin", &ir::IntrinObj::intrin)
      .def_ro("args", &ir::IntrinObj::args);
}

// Both sides as expressions: a number takes the dtype of the other side where it fits one.
std::pair<Expr, Expr> Operands(const ffi::Any& a, const ffi::Any& b, DLDataType int_dtype) {
  auto number = [](const ffi::Any& v) { return v.type_index() <= ffi::TypeIndex::kTVMFFIFloat; };
  auto convert = [&](const ffi::Any& v, const Expr& other) -> Expr {
    DLDataType dtype = ElementOf(other.dtype());
    bool is_float = v.type_index() == ffi::TypeIndex::kTVMFFIFloat;
    if (is_float && !IsFloat(dtype)) return ToScalar(v, int_dtype);
    if (is_float) return ir::ConstFloat(other.dtype(), v.cast<double>());
    if (IsBool(dtype)) return ToScalar(v, int_dtype);
    return ir::Const(other.dtype(), v.cast<int64_t>());
  };
  if (number(a) && !number(b)) return {convert(a, ToScalar(b)), ToScalar(b)};
  if (number(b) && !number(a)) return {ToScalar(a), convert(b, ToScalar(a))};
  return {ToScalar(a, int_dtype), ToScalar(b, int_dtype)};
}

ir::BinaryOp ToBinaryOp(int64_t op) {
  if (op < 0 || op >= ir::kNumBinaryOps)
    Fail(ErrorKind::kValueError, "no operator has number ", op);
  return static_cast<ir::BinaryOp>(op);
}

Expr MakeIntrin(const ffi::String& name, ffi::Array<ffi::Any> args,
                ffi::Optional<DLDataType> dtype) {
  ffi::Optional<int64_t> id = ir::FindIntrin(name);
  if (!id.has_value()) Fail(ErrorKind::kValueError, "there is no scalar function '", name, "'");
  auto intrin = static_cast<ir::Intrin>(id.value());
  int arity = ir::IntrinArity(intrin);
  if (static_cast<int>(args.size()) != arity) {
    Fail(ErrorKind::kTypeError, name, " takes ", arity, arity == 1 ? " argument, " : " arguments, ",
         args.size(), " given");
  }
  // Numbers take the dtype of the first argument that has one.
  Expr like;
  for (const ffi::Any& a : args) {
    if (auto e = a.as<Expr>(); e && e->defined()) like = *e;
  }
  ffi::Array<Expr> exprs;
  for (size_t i = 0; i < args.size(); ++i) {
    bool condition = intrin == ir::Intrin::kIfThenElse && i == 0;
    exprs.push_back(like.defined() && !condition ? Operands(args[i], like, Int(32)).first
                                                 : ToScalar(args[i], Int(32)));
  }
  if (dtype.has_value()) return ir::IntrinExpr(dtype.value(), intrin, exprs);
  Expr made = ir::CallIntrin(intrin, exprs);
  return ir::IntrinExpr(made.dtype(), intrin, exprs);
}

}  // namespace

void RegisterScalars() {
  RegisterClasses();
  refl::GlobalDef()
      .def("relaxvm.prim.IntImm", [](DLDataType dtype, int64_t v) { return ir::IntImm(dtype, v); })
      .def("relaxvm.prim.FloatImm",
           [](DLDataType dtype, double v) { return ir::FloatImm(dtype, v); })
      .def("relaxvm.prim.Const",
           [](DLDataType dtype, ffi::Any v) -> Expr {
             if (v.type_index() == ffi::TypeIndex::kTVMFFIFloat) {
               if (!IsFloat(dtype)) return ir::Const(dtype, static_cast<int64_t>(v.cast<double>()));
               return ir::ConstFloat(dtype, v.cast<double>());
             }
             return ir::Const(dtype, v.cast<int64_t>());
           })
      .def("relaxvm.prim.ToScalar", [](ffi::Any v, DLDataType dtype) { return ToScalar(v, dtype); })
      // The folding maker behind Python's operators.
      .def("relaxvm.prim.Make",
           [](int64_t op, ffi::Any a, ffi::Any b, DLDataType int_dtype) {
             auto [x, y] = Operands(a, b, int_dtype);
             return ir::Make(ToBinaryOp(op), x, y);
           })
      // Exactly this node.
      .def("relaxvm.prim.Binary",
           [](int64_t op, ffi::Any a, ffi::Any b) -> Expr {
             auto [x, y] = Operands(a, b, Int(32));
             if (x.dtype() != y.dtype()) return ir::Make(ToBinaryOp(op), x, y);
             return ir::Binary(ToBinaryOp(op), x, y);
           })
      .def("relaxvm.prim.Cast",
           [](DLDataType dtype, ffi::Any v) { return ir::CastExpr(dtype, ToScalar(v, Int(32))); })
      .def("relaxvm.prim.FoldCast",
           [](DLDataType dtype, ffi::Any v) { return ir::Cast(dtype, ToScalar(v, Int(32))); })
      .def("relaxvm.prim.Select",
           [](ffi::Any c, ffi::Any a, ffi::Any b) {
             auto [x, y] = Operands(a, b, Int(32));
             return ir::SelectExpr(ToScalar(c), x, y);
           })
      .def("relaxvm.prim.Not", [](ffi::Any a) { return ir::Not(ToScalar(a)); })
      .def("relaxvm.prim.Let",
           [](ir::Var var, ffi::Any value, ffi::Any body) {
             return ir::LetExpr(var, ToScalar(value, Int(32)), ToScalar(body, Int(32)));
           })
      .def("relaxvm.prim.Ramp",
           [](ffi::Any base, ffi::Any stride, int64_t lanes) {
             auto [b, s] = Operands(base, stride, Int(32));
             return ir::RampExpr(b, s, lanes);
           })
      .def("relaxvm.prim.Broadcast",
           [](ffi::Any value, int64_t lanes) {
             return ir::BroadcastExpr(ToScalar(value, Int(32)), lanes);
           })
      .def("relaxvm.prim.Shuffle",
           [](ffi::Array<Expr> vectors, ffi::Array<int64_t> indices) {
             return ir::ShuffleExpr(vectors, indices);
           })
      .def("relaxvm.prim.Intrin", MakeIntrin)
      .def("relaxvm.prim.IntrinName",
           [](int64_t id) { return ffi::String(ir::IntrinName(static_cast<ir::Intrin>(id))); })
      .def("relaxvm.prim.IntrinNames",
           [] {
             ffi::Array<ffi::String> names;
#define INTRIN(id, name, arity, meaning) names.push_back(name);
#include "ir/intrin_list.def"
#undef INTRIN
             return names;
           })
      .def("relaxvm.prim.MinValue", [](DLDataType dtype) { return ir::MinValue(dtype); })
      .def("relaxvm.prim.MaxValue", [](DLDataType dtype) { return ir::MaxValue(dtype); })
      .def("relaxvm.prim.CeilDiv", [](ffi::Any a, ffi::Any b) {
        auto [x, y] = Operands(a, b, Int(32));
        return ir::CeilDiv(x, y);
      });
}

}  // namespace relaxvm::api
