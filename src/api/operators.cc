// SPDX-License-Identifier: Apache-2.0
// The table of operators for Python, and calls made from what Python passes.
#include <tvm/ffi/reflection/registry.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/convert.h"
#include "api/register.h"
#include "ops/gradient/rule.h"
#include "ops/op_def.h"
#include "ops/open_op.h"

namespace relaxvm::api {

namespace refl = tvm::ffi::reflection;
using ffi::Any;
using ffi::Array;
using ir::Expr;
using ops::ArgKind;

namespace {

// [name, doc, arguments, attributes, any number of arguments?]
Array<Any> DescribeOperator(const ops::OpDef& def) {
  Array<Any> args, attrs;
  for (const ops::ArgDoc& a : def.args) {
    args.push_back(Array<Any>{ffi::String(a.name), ffi::String(a.doc), static_cast<int64_t>(a.kind),
                              a.optional, a.default_value});
  }
  for (const ops::AttrField& f : def.attrs) {
    attrs.push_back(Array<Any>{ffi::String(f.name), ffi::String(f.type), ffi::String(f.doc),
                               f.default_value, f.required});
  }
  return {ffi::String(def.name), ffi::String(def.doc), args, attrs, def.variadic};
}

// What tests know of an operator: [computed?, reference, samples, exceptions, defaults of
// arguments]
Array<Any> DescribeOracle(const ops::OpDef& def) {
  Array<Any> samples, exceptions, defaults;
  for (const ops::Sample& sample : def.samples) {
    Array<Any> items;
    for (const std::string& item : sample.items) items.push_back(ffi::String(item));
    samples.push_back(items);
  }
  for (const auto& [dtype, reason] : def.exceptions) {
    exceptions.push_back(Array<Any>{ffi::String(dtype), ffi::String(reason)});
  }
  for (const ops::ArgDoc& a : def.args) defaults.push_back(a.default_value);
  return {def.compute != nullptr, ffi::String(def.reference), samples, exceptions, defaults};
}

bool IsNumber(const Any& v) {
  return v.type_index() == ffi::TypeIndex::kTVMFFIBool ||
         v.type_index() == ffi::TypeIndex::kTVMFFIInt ||
         v.type_index() == ffi::TypeIndex::kTVMFFIFloat;
}

class Arguments {
 public:
  Arguments(const std::string& op, const ops::OpDef& def) : op_(op), def_(def) {}

  Expr Convert(size_t i, const Any& v) const {
    const ops::ArgDoc* doc = i < def_.args.size() ? &def_.args[i]
                             : def_.args.empty()  ? nullptr
                                                  : &def_.args.back();
    ArgKind kind = doc == nullptr || i >= def_.args.size() ? ArgKind::kAny : doc->kind;
    if (auto e = v.as<Expr>(); e && e->defined()) return *e;
    switch (kind) {
      case ArgKind::kTensor:
        if (IsNumber(v)) {
          Fail(ErrorKind::kTypeError, op_, ": ", doc->name,
               " must be a tensor; write the number as R.const(...)");
        }
        break;
      case ArgKind::kTensors:
      case ArgKind::kPrims:
        if (auto list = v.as<Array<Any>>()) return Tuple(*list, kind == ArgKind::kPrims);
        break;
      case ArgKind::kShape:
        if (auto list = v.as<Array<Any>>()) return ir::ShapeExpr(ToScalars(*list));
        if (auto shape = v.as<ffi::Shape>()) {
          Array<Expr> dims;
          for (int64_t d : *shape) dims.push_back(ir::IntImm(Int(64), d));
          return ir::ShapeExpr(dims);
        }
        if (v.type_index() == ffi::TypeIndex::kTVMFFIInt) return ir::ShapeExpr({ToScalar(v)});
        break;
      case ArgKind::kPrim:
        if (IsNumber(v)) return ToScalar(v);
        break;
      case ArgKind::kDtype:
        if (auto text = v.as<ffi::String>()) return ir::DataTypeImm(ParseDType(std::string(*text)));
        if (auto dtype = v.as<DLDataType>()) return ir::DataTypeImm(*dtype);
        break;
      case ArgKind::kString:
        if (auto text = v.as<ffi::String>()) return ir::StringImm(*text);
        break;
      case ArgKind::kFunc:
        if (auto text = v.as<ffi::String>()) return ir::ExternFunc(*text);
        break;
      case ArgKind::kAny: break;
    }
    return General(i, v);
  }

 private:
  Expr Tuple(const Array<Any>& list, bool scalars) const {
    Array<Expr> fields;
    for (const Any& v : list) fields.push_back(scalars ? ToScalar(v) : General(0, v));
    return ir::Tuple(fields);
  }

  Expr General(size_t i, const Any& v) const {
    if (auto e = v.as<Expr>(); e && e->defined()) return *e;
    if (IsNumber(v)) return ToScalar(v);
    if (auto list = v.as<Array<Any>>()) return Tuple(*list, false);
    if (auto text = v.as<ffi::String>()) return ir::StringImm(*text);
    if (auto data = v.as<ffi::Tensor>()) return ir::Constant(*data);
    if (auto dtype = v.as<DLDataType>()) return ir::DataTypeImm(*dtype);
    const char* name = i < def_.args.size() ? def_.args[i].name : "an argument";
    Fail(ErrorKind::kTypeError, op_, ": ", name, " must be an expression, got a value of type ",
         v.GetTypeKey());
  }

  const std::string& op_;
  const ops::OpDef& def_;
};

ir::Call MakeCall(ffi::String name, Array<Any> args, ffi::Map<ffi::String, Any> attrs,
                  Array<ir::Type> ty_args, ir::Span span) {
  const std::string op(name);
  const ops::OpDef& def = ops::RecordOf(ops::GetOp(op).get());
  Arguments arguments(op, def);
  Array<Expr> exprs;
  exprs.reserve(args.size());
  for (size_t i = 0; i < args.size(); ++i) exprs.push_back(arguments.Convert(i, args[i]));
  return ops::MakeCall(op, exprs, attrs, ty_args, span);
}

// FLegalize, of any operator.
void SetLegalize(const ffi::String& name, const Any& value) {
  ops::LegalizeRule rule;
  if (value != nullptr) rule = ops::LegalizeRuleOf(value.cast<ffi::Function>());
  ops::OpenOperator(std::string(name));  // made when it is named for the first time
  ops::SetLegalizeRule(std::string(name), std::move(rule));
}

// FPrimalGradient, of any operator: gives [bindings, [gradient or None], module].
void SetGradient(const ffi::String& name, const Any& value) {
  ops::OutsideGradientRule rule;
  if (value != nullptr) {
    rule = [f = value.cast<ffi::Function>()](const Expr& out, const ir::Call& call,
                                             const Expr& grad, const ir::IRModule& mod) {
      auto parts = f(out, call, grad, mod).cast<Array<Any>>();
      std::vector<Expr> grads;
      for (const Any& made : parts[1].cast<Array<Any>>()) {
        grads.push_back(made == nullptr ? Expr() : made.cast<Expr>());
      }
      return ops::OutsideGradient{parts[0].cast<ir::BindingBlock>(), grads,
                                  parts[2].cast<ir::IRModule>()};
    };
  }
  ops::OpenOperator(std::string(name));  // made when it is named for the first time
  ops::SetOutsideGradient(std::string(name), std::move(rule));
}

// A rule of an operator that Python defines.  Functions take the call; None takes a rule away.
void SetRule(ffi::String name, ffi::String rule, Any value) {
  if (rule == "FLegalize") return SetLegalize(name, value);
  if (rule == "FPrimalGradient") return SetGradient(name, value);
  ops::OpenOp open = ops::OpenOperator(std::string(name));
  if (open.record == nullptr) {
    Fail(ErrorKind::kValueError, std::string(name),
         " has its rules in the table of operators; they cannot be replaced");
  }
  if (rule == "FPurity") {
    const bool pure = value == nullptr || value.cast<bool>();
    open.op->effect = open.record->effect = pure ? ir::Effect::kPure : ir::Effect::kImpure;
    return;
  }
  std::optional<ffi::Function> f;
  if (value != nullptr) f = value.cast<ffi::Function>();
  if (rule == "FInferType") {
    open.record->type = nullptr;
    if (!f) return;
    open.record->type = [f = *f](ops::TypeCtx& ctx, const ir::Attrs&) {
      return f(ctx.call()).cast<ir::Type>();
    };
  } else if (rule == "FNormalize") {
    open.op->normalize = nullptr;
    if (!f) return;
    open.op->normalize = [f = *f](const ir::Call& call) { return f(call).cast<ir::Call>(); };
  } else {
    Fail(ErrorKind::kValueError, "there is no rule ", std::string(rule));
  }
}

}  // namespace

void RegisterOperators() {
  refl::GlobalDef()
      .def("relaxvm.ops.List",
           [] {
             Array<Any> rows;
             for (const ir::Op& op : ops::AllOps())
               rows.push_back(DescribeOperator(ops::RecordOf(op.get())));
             return rows;
           })
      .def("relaxvm.ops.Oracle",
           [](ffi::String name) {
             return DescribeOracle(ops::RecordOf(ops::GetOp(std::string(name)).get()));
           })
      .def("relaxvm.ops.Get", [](ffi::String name) { return ops::GetOp(std::string(name)); })
      .def("relaxvm.ops.MakeCall", MakeCall)
      .def("relaxvm.ops.SetRule", SetRule)
      .def("relaxvm.ops.HasGradient",
           [](ffi::String name) {
             auto op = ops::FindOp(std::string(name));
             return op.has_value() && ops::FindGradientRule(op.value().get()) != nullptr;
           })
      .def("relaxvm.ops.InferType", [](ir::Expr e) {
        auto facts = ops::MakeTypeContext();
        ir::BlockBuilder builder(facts.get());
        return builder.InferType(e);
      });
}

}  // namespace relaxvm::api
