// SPDX-License-Identifier: Apache-2.0
// LowerRuntimeBuiltin: operators that the virtual machine does itself become calls of its builtins,
// by their users' names. Stage: planned -> shapes.
#include "analysis/core_ops.h"
#include "ir/prim.h"
#include "ir/visitor.h"
#include "passes/memory/destination.h"
#include "passes/pass.h"

namespace relaxvm::passes {
namespace {

using analysis::CoreOp;
using ir::Call;
using ir::CallObj;
using ir::Expr;
using ir::ExternFunc;
using ir::IntImm;
using ir::StringImm;

class Lowerer : public ir::Mutator {
 public:
  explicit Lowerer(const IRModule& mod) : mod_(mod) {}

  Expr MutateCall(const Call& original) override {
    Expr mutated = ir::Mutator::MutateCall(original);
    const auto* call = mutated.as<CallObj>();
    CoreOp op = analysis::CoreOpOf(call);
    switch (op) {
      // size, virtual_device_index, storage_scope, dtype: the space counts bytes by now.
      case CoreOp::kAllocStorage:
        return Rename(call, CoreOp::kVmAllocStorage,
                      {call->args[0], call->args[1], ir::DataTypeImm(UInt(8)), call->args[2]});
      case CoreOp::kAllocTensor: return Rename(call, CoreOp::kVmAllocTensor, call->args);
      case CoreOp::kKillStorage:
      case CoreOp::kKillTensor: return Rename(call, CoreOp::kVmKillObject, call->args);
      case CoreOp::kBuiltinAllocTensor:
        Fail(ErrorKind::kRuntimeError, call->span.Place(),
             "builtin.alloc_tensor has no storage yet; run LowerAllocTensor before "
             "LowerRuntimeBuiltin");
      case CoreOp::kReshape: return Packed(call, "vm.builtin.reshape", call->args);
      case CoreOp::kShapeOf: return Packed(call, "vm.builtin.shape_of", call->args);
      case CoreOp::kTensorToShape: return Packed(call, "vm.builtin.tensor_to_shape", call->args);
      case CoreOp::kShapeToTensor: return Packed(call, "relax.run.shape_to_tensor", call->args);
      case CoreOp::kPrint: return Packed(call, "relax.run.print", call->args);
      case CoreOp::kFatal: return Packed(call, "vm.builtin.fatal", call->args);
      case CoreOp::kAssertOp: return Packed(call, "relax.run.assert_op", call->args);
      case CoreOp::kEnsureZeroOffset:
        return Packed(call, "vm.builtin.ensure_zero_offset", call->args);
      case CoreOp::kView: return View(call);
      case CoreOp::kMakeClosure: return Packed(call, "vm.builtin.make_closure", Spread(call));
      case CoreOp::kInvokeClosure:
      case CoreOp::kInvokePureClosure: return WithContext(call, "vm.builtin.invoke_closure");
      case CoreOp::kCallTirDyn: return Packed(call, "vm.builtin.call_tir_dyn", Spread(call));
      // The builtin takes one array: the name, and the array of arguments.
      case CoreOp::kCallPyFunc:
        return Packed(call, "vm.builtin.call_py_func", {ir::Tuple(call->args)});
      case CoreOp::kToVDevice: return ToDevice(call);
      case CoreOp::kHintOnDevice:
      case CoreOp::kStopLiftParams: return call->args[0];
      default: return mutated;
    }
  }

 private:
  static Expr Rename(const CallObj* call, CoreOp op, ffi::Array<Expr> args) {
    return analysis::CallCore(op, std::move(args), call->ty, call->span);
  }

  static Expr Packed(const CallObj* call, const char* name, ffi::Array<Expr> args) {
    return Call(ExternFunc(name), std::move(args), ir::Attrs(), {call->ty}, call->span, call->ty);
  }

  // f(callee, (a, b)) -> callee, a, b
  static ffi::Array<Expr> Spread(const CallObj* call) {
    ffi::Array<Expr> args = {call->args[0]};
    for (size_t i = 1; i < call->args.size(); ++i) {
      if (const auto* tuple = call->args[i].as<ir::TupleObj>()) {
        for (const Expr& field : tuple->fields) args.push_back(field);
      } else {
        args.push_back(call->args[i]);
      }
    }
    return args;
  }

  static Expr WithContext(const CallObj* call, const char* name) {
    ir::Tuple args(Spread(call), call->span);
    return Call(analysis::GetCoreOp(CoreOp::kCallBuiltinWithCtx), {ExternFunc(name), args},
                ir::Attrs(), {call->ty}, call->span, call->ty);
  }

  // view(x, shape?, dtype?, relative_byte_offset?): what is left out comes from x.
  static Expr View(const CallObj* call) {
    const auto* type = call->ty.as<ir::TensorTypeObj>();
    auto given = [call](size_t i) {
      if (i >= call->args.size()) return false;
      const auto* void_tuple = call->args[i].as<ir::TupleObj>();
      return !(void_tuple && void_tuple->fields.empty());
    };
    Expr shape = given(1)                          ? call->args[1]
                 : type && type->shape.has_value() ? type->shape.value()
                                                   : Expr();
    if (!shape.defined() || !type || type->IsUnknownDtype()) {
      Fail(ErrorKind::kValueError, call->span.Place(),
           "memory.view: the shape or dtype of the result is not known; give `shape` and `dtype`");
    }
    Expr dtype = given(2) ? call->args[2] : ir::DataTypeImm(type->dtype);
    Expr offset = given(3) ? call->args[3] : IntImm(Int(64), 0);
    return Packed(call, "runtime.TVMTensorCreateView", {call->args[0], shape, dtype, offset});
  }

  Expr ToDevice(const CallObj* call) const {
    ir::VDevice device = call->attrs->values["dst_vdevice"].cast<ir::VDevice>();
    DLDevice place = DeviceOf(device);
    return Packed(call, "vm.builtin.to_device",
                  {call->args[0], IntImm(Int(64), static_cast<int>(place.device_type)),
                   IntImm(Int(64), place.device_id), StringImm(device->memory_scope)});
  }

  IRModule mod_;
};

}  // namespace

IRModule LowerRuntimeBuiltin(IRModule mod, const PassContext& context) {
  return ir::MutateFunctions(mod, [&mod](const ir::GlobalVar&, const ir::Function& func) {
    return ffi::GetRef<ir::Function>(Lowerer(mod).MutateFunction(func).as<ir::FunctionObj>());
  });
}

}  // namespace relaxvm::passes
