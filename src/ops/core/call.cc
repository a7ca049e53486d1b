// SPDX-License-Identifier: Apache-2.0
// Calls of tensor programs and of packed functions.  Their results' types are type arguments.
#include "ops/core/core.h"

namespace relaxvm::ops {
namespace {

struct InplaceAttrs {
  Ints inplace_indices;
};
struct WithGradAttrs {
  std::string te_grad_name;
  ffi::Any te_grad_kwargs = nullptr;
};

const ArgDoc kProgram = {"func", "A tensor program of the module.", ArgKind::kFunc};
const ArgDoc kPacked = {"func", "The name of a packed function.", ArgKind::kFunc};
const ArgDoc kArgs = {"args", "The arguments, a tuple.", ArgKind::kTensors};
const ArgDoc kTirVars = {"tir_vars", "Sizes that no argument's shape gives, as a shape.",
                         ArgKind::kShape, true};

// A result must be stated: a tensor program does not say it.
Type OneResult(const TypeCtx& ctx) {
  const Call& call = ctx.call();
  if (call->ty_args.size() != 1) {
    ctx.Error(ErrorKind::kTypeError, "the type of the result must be given, got ",
              call->ty_args.size(), " types; several results are one tuple type");
  }
  for (const Type& field : FieldsOf(call->ty_args[0])) {
    if (field.as<ir::TensorTypeObj>() != nullptr) continue;
    ctx.Error(ErrorKind::kTypeError, "a result must be a tensor, got ", DescribeType(field));
  }
  return call->ty_args[0];
}

void CheckProgramCall(const TypeCtx& ctx) {
  if (ctx.arg(0).as<ir::GlobalVarObj>() == nullptr) {
    ctx.Error(ErrorKind::kTypeError, "func must name a tensor program of the module");
  }
  CheckArgsTuple(ctx);
  if (ctx.Has(2) && ctx.type(2).as<ir::ShapeTypeObj>() == nullptr) {
    ctx.Error(ErrorKind::kTypeError, "tir_vars must be a shape, got ", DescribeType(ctx.type(2)));
  }
}

Type InferCallTir(TypeCtx& ctx) {
  CheckProgramCall(ctx);
  return OneResult(ctx);
}

Type InferCallTirInplace(TypeCtx& ctx, const InplaceAttrs& a) {
  CheckProgramCall(ctx);
  Type result = OneResult(ctx);
  CheckInplaceIndices(ctx, a.inplace_indices, FieldsOf(ctx.type(1)), result);
  return result;
}

Type InferCallDpsPacked(TypeCtx& ctx, const NoAttrs&) {
  CheckArgsTuple(ctx);
  return OneResult(ctx);
}

// The result of calling args[0] with the others.
Type InferInnerCall(const TypeCtx& ctx) {
  const Call& call = ctx.call();
  if (call->args.empty()) ctx.Error(ErrorKind::kTypeError, "func must be given");
  if (!call->ty_args.empty()) return StatedResult(call, Type());
  Type callee = call->args[0]->ty;
  if (auto func = callee.as<ir::FuncType>()) {
    ffi::Array<Expr> rest(call->args.begin() + 1, call->args.end());
    return ir::CallResultType(*func, Call(call->args[0], rest), ctx.facts());
  }
  return ir::AnyType();
}

Type InferCallInplacePacked(TypeCtx& ctx, const InplaceAttrs& a) {
  Type result = InferInnerCall(ctx);
  std::vector<Type> args;
  for (size_t i = 1; i < ctx.size(); ++i) args.push_back(ctx.type(i));
  CheckInplaceIndices(ctx, a.inplace_indices, args, result);
  return result;
}

Type InferStated(TypeCtx& ctx, const NoAttrs&) {
  CheckArgsTuple(ctx);
  return StatedResult(ctx.call(), ir::VoidType());
}

}  // namespace

OpDef call_tir() {
  return Define<NoAttrs>({
      .name = "call_tir",
      .doc = "Calls a tensor program on fresh results, destination passing.",
      .args = {kProgram, kArgs, kTirVars},
      .type = [](TypeCtx& ctx, const NoAttrs&) { return InferCallTir(ctx); },
      .normalize = WithArgsAsTuple,
  });
}

OpDef call_tir_inplace() {
  return Define<InplaceAttrs>({
      .name = "call_tir_inplace",
      .doc = "Calls a tensor program whose results overwrite some of its arguments.",
      .args = {kProgram, kArgs, kTirVars},
      .attrs = {{"inplace_indices", &InplaceAttrs::inplace_indices,
                 "For each result the argument that it overwrites, or -1.", true}},
      .type = InferCallTirInplace,
      .normalize = WithArgsAsTuple,
  });
}

OpDef call_tir_with_grad() {
  return Define<WithGradAttrs>({
      .name = "call_tir_with_grad",
      .doc = "Calls a tensor program whose gradient is another one, named in the attributes.",
      .args = {kProgram, kArgs, kTirVars},
      .attrs = {{"te_grad_name", &WithGradAttrs::te_grad_name, "The gradient's name.", true},
                {"te_grad_kwargs", &WithGradAttrs::te_grad_kwargs, "Its further arguments."}},
      .type = [](TypeCtx& ctx, const WithGradAttrs&) { return InferCallTir(ctx); },
      .normalize = WithArgsAsTuple,
  });
}

OpDef call_dps_packed() {
  return Define<NoAttrs>({
      .name = "call_dps_packed",
      .doc = "Calls a packed function with the arguments and fresh results to write to.",
      .args = {kPacked, kArgs},
      .type = InferCallDpsPacked,
      .normalize = WithArgsAsTuple,
  });
}

OpDef call_pure_packed() {
  return Define<NoAttrs>({
      .name = "call_pure_packed",
      .doc = "Calls a packed function that has no effect besides its result.",
      .args = {kPacked},
      .type = [](TypeCtx& ctx, const NoAttrs&) { return InferInnerCall(ctx); },
      .variadic = true,
  });
}

OpDef call_inplace_packed() {
  return Define<InplaceAttrs>({
      .name = "call_inplace_packed",
      .doc = "Calls a packed function whose results overwrite some of its arguments.",
      .args = {kPacked},
      .attrs = {{"inplace_indices", &InplaceAttrs::inplace_indices,
                 "For each result the argument that it overwrites, or -1.", true}},
      .type = InferCallInplacePacked,
      .variadic = true,
  });
}

OpDef call_builtin_with_ctx() {
  return Define<NoAttrs>({
      .name = "call_builtin_with_ctx",
      .doc = "Calls a builtin of the VM that takes the running VM as its first argument.",
      .args = {kPacked, kArgs},
      .type = InferStated,
      .normalize = WithArgsAsTuple,
      .effect = Effect::kImpure,
  });
}

OpDef call_py_func() {
  return Define<NoAttrs>({
      .name = "call_py_func",
      .doc = "Calls a Python function that was registered with the VM under a name.",
      .args = {{"func_name", "Its name.", ArgKind::kString}, kArgs},
      .type = InferStated,
      .normalize = WithArgsAsTuple,
      .effect = Effect::kImpure,
  });
}

OpDef vm_call_tir_dyn() {
  return Define<NoAttrs>({
      .name = "vm.call_tir_dyn",
      .doc = "Calls a tensor program with tensors and, last, a shape whose values are passed.",
      .args = {kProgram, kArgs},
      .type = [](TypeCtx& ctx, const NoAttrs&) -> Type {
        CheckArgsTuple(ctx);
        return ir::VoidType();
      },
      .normalize = WithArgsAsTuple,
      .effect = Effect::kImpure,
  });
}

}  // namespace relaxvm::ops
