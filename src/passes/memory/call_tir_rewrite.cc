// SPDX-License-Identifier: Apache-2.0
// CallTIRRewrite: destination passing made explicit.  call_tir, call_tir_inplace and
// call_dps_packed become allocations (builtin.alloc_tensor) and a call without result that writes
// into them. Stage: lowered -> planned.  Keeps: order of bindings, variables, source spans.
#include "analysis/core_ops.h"
#include "ir/visitor.h"
#include "passes/memory/destination.h"
#include "passes/pass.h"

namespace relaxvm::passes {
namespace {

using analysis::CoreOp;
using ir::Binding;
using ir::Call;
using ir::CallObj;
using ir::Expr;
using ir::TensorType;
using ir::TensorTypeObj;
using ir::Type;
using ir::Var;
using ir::VarBinding;

class Rewriter : public ir::Mutator {
 public:
  explicit Rewriter(const IRModule& mod) : mod_(mod) {}

  void MutateBinding(const Binding& binding, ffi::Array<Binding>* out) override {
    const auto* bound = binding.as<ir::VarBindingObj>();
    switch (bound ? analysis::CoreOpOfValue(bound->value) : CoreOp::kNone) {
      case CoreOp::kCallTir:
      case CoreOp::kCallTirWithGrad:
      case CoreOp::kCallTirInplace:
      case CoreOp::kCallDpsPacked: Lower(bound, bound->value.as<CallObj>(), out); break;
      default: ir::Mutator::MutateBinding(binding, out);
    }
  }

 private:
  void Lower(const ir::BindingObj* binding, const CallObj* call, ffi::Array<Binding>* out) {
    RELAXVM_CHECK(call->args.size() >= 2 && call->ty_args.size() == 1)
        << "call_tir takes a function, arguments and a result type";
    ffi::Array<Expr> args = Fields(call->args[1], out);
    ffi::Array<Expr> results;
    bool is_tuple = call->ty_args[0].as<ir::TupleTypeObj>() != nullptr;
    ffi::Array<Type> types = is_tuple ? call->ty_args[0].as<ir::TupleTypeObj>()->fields
                                      : ffi::Array<Type>{call->ty_args[0]};
    ffi::Array<int64_t> inplace = InplaceIndices(call);
    ffi::Array<Expr> call_args = args;
    for (size_t i = 0; i < types.size(); ++i) {
      int64_t shared = i < inplace.size() ? inplace[i] : -1;
      if (shared >= 0) {
        results.push_back(args[shared]);
        continue;
      }
      Var fresh = Allocate(types[i], call->span, out);
      call_args.push_back(fresh);
      results.push_back(fresh);
    }
    if (call->args.size() > 2) {
      for (const Expr& scalar : call->args[2].as<ir::ShapeExprObj>()->values)
        call_args.push_back(scalar);
    }
    bool dps = call->args[0].as<ir::ExternFuncObj>() != nullptr;
    Call write(call->args[0], std::move(call_args), dps ? DestinationPassing() : ir::Attrs(), {},
               call->span, ir::VoidType());
    out->push_back(VarBinding(Var("_", ir::VoidType()), write, binding->span));
    Expr value = is_tuple ? MakeTuple(results, call) : results[0];
    out->push_back(VarBinding(binding->var, value, binding->span));
  }

  static Expr MakeTuple(const ffi::Array<Expr>& fields, const CallObj* call) {
    ir::Tuple tuple(fields, call->span);
    tuple->ty = call->ty_args[0];
    return tuple;
  }

  static ffi::Array<int64_t> InplaceIndices(const CallObj* call) {
    if (analysis::CoreOpOf(call) != CoreOp::kCallTirInplace) return {};
    return call->attrs->values["inplace_indices"].cast<ffi::Array<int64_t>>();
  }

  // The fields of the argument tuple; a tuple held by a variable is taken apart first.
  static ffi::Array<Expr> Fields(const Expr& tuple, ffi::Array<Binding>* out) {
    if (const auto* literal = tuple.as<ir::TupleObj>()) return literal->fields;
    ffi::Array<Expr> fields;
    const auto* type = tuple->ty.as<ir::TupleTypeObj>();
    RELAXVM_CHECK(type != nullptr) << "the arguments of call_tir are a tuple";
    for (size_t i = 0; i < type->fields.size(); ++i) {
      ir::TupleGetItem item(tuple, static_cast<int64_t>(i));
      item->ty = type->fields[i];
      Var field("arg", type->fields[i]);
      out->push_back(VarBinding(field, item));
      fields.push_back(field);
    }
    return fields;
  }

  Var Allocate(const Type& type, const ir::Span& span, ffi::Array<Binding>* out) {
    const auto* tensor = type.as<TensorTypeObj>();
    if (tensor == nullptr || tensor->IsUnknownDtype() || !tensor->shape.has_value()) {
      Fail(ErrorKind::kValueError, span.Place(),
           "the result of a destination-passing call needs a tensor type with known shape and "
           "dtype: give it in the "
           "call's result type, or call a function that allocates its result (call_packed)");
    }
    Expr shape = KnownShape(tensor->shape.value(), span, out);
    Call alloc = analysis::CallCore(
        CoreOp::kBuiltinAllocTensor,
        {shape, ir::DataTypeImm(tensor->dtype), ir::IntImm(Int(64), DeviceIndex(mod_, tensor)),
         ir::StringImm(MemoryScope(tensor))},
        type, span);
    Var fresh("alloc", type);
    out->push_back(VarBinding(fresh, alloc, span));
    return fresh;
  }

  // A shape given by a variable is matched against fresh symbolic sizes, so that the planner can
  // compute with them.
  static Expr KnownShape(const Expr& shape, const ir::Span& span, ffi::Array<Binding>* out) {
    if (shape.as<ir::ShapeExprObj>()) return shape;
    const auto* type = shape->ty.as<ir::ShapeTypeObj>();
    RELAXVM_CHECK(type != nullptr) << "a tensor's shape has a shape type";
    if (type->values.has_value()) return ir::ShapeExpr(type->values.value(), span);
    if (type->ndim < 0) {
      Fail(ErrorKind::kValueError, span.Place(),
           "the rank of a destination-passing call's result is unknown: match_cast its shape to "
           "R.Shape(ndim=...) first");
    }
    ffi::Array<Expr> dims;
    for (int64_t i = 0; i < type->ndim; ++i) dims.push_back(Var("d" + std::to_string(i), Int(64)));
    ir::ShapeType matched(dims);
    out->push_back(ir::MatchCast(Var("shape", matched), shape, matched, span));
    return ir::ShapeExpr(dims, span);
  }

  IRModule mod_;
};

}  // namespace

IRModule CallTIRRewrite(IRModule mod, const PassContext& context) {
  return ir::MutateFunctions(mod, [&mod](const ir::GlobalVar&, const ir::Function& func) {
    return ffi::GetRef<ir::Function>(Rewriter(mod).MutateFunction(func).as<ir::FunctionObj>());
  });
}

}  // namespace relaxvm::passes
