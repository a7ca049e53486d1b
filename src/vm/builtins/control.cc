// SPDX-License-Identifier: Apache-2.0
// Conditions, closures, calls through values, failure, text.
#include <tvm/ffi/function.h>

#include "vm/builtins/builtins.h"
#include "vm/builtins/table.h"
#include "vm/closure.h"
#include "vm/slow_path.h"
#include "vm/virtual_machine.h"

namespace relaxvm::vm::builtins {
namespace ffi = tvm::ffi;
namespace {

// Calls a function value with `args` and throws what it raises.
void Call(const Args& args, int32_t function, std::vector<Slot> values, ffi::Any* result) {
  Slot out;
  Store(&out, Value::None());
  if (CallValue(args.context, &args[function], values, &out) != 0)
    throw ffi::detail::MoveFromSafeCallRaised();
  *result = ffi::detail::AnyUnsafe::MoveTVMFFIAnyToAny(&out);
}

ffi::Function GlobalFunction(const std::string& name) {
  auto function = FindGlobalFunction(name);
  if (!function)
    Fail(ErrorKind::kRuntimeError, "there is no global function ", name, "; register it first");
  return *function;
}

// Python's str.format does the work, so that the text is what the script's author expects.
std::string Format(const Args& args, int32_t first) {
  if (args.size <= first) return "";
  std::vector<ffi::AnyView> values;
  for (int32_t i = first; i < args.size; ++i) values.push_back(args.view(i));
  ffi::Any text;
  GlobalFunction("relaxvm.hook.format")
      .CallPacked(values.data(), static_cast<int32_t>(values.size()), &text);
  return std::string(text.cast<ffi::String>());
}

}  // namespace

void ReadIfCond(Args args, ffi::Any* result) {
  int truth = ReadCondition(args.context, &args[0]);
  if (truth < 0) throw ffi::detail::MoveFromSafeCallRaised();
  *result = truth != 0;
}

void InvokeClosure(Args args, ffi::Any* result) {
  Call(args, 1, std::vector<Slot>(args.data + 2, args.data + args.size), result);
}

void MakeClosure(Args args, ffi::Any* result) {
  std::vector<ffi::Any> captured;
  for (int32_t i = 1; i < args.size; ++i) captured.push_back(args.view(i));
  const ClosureObj* closure =
      args[0].type_index == kTVMFFIFunction ? ClosureObj::From(args[0].v_obj) : nullptr;
  if (closure != nullptr) {
    // What is captured later stands before what was captured first: both are last arguments.
    captured.insert(captured.end(), closure->captured().begin(), closure->captured().end());
    *result = vm::MakeClosure(closure->vm(), closure->func_index(), std::move(captured));
    return;
  }
  if (args[0].type_index != kTVMFFIFunction) args.WrongType(0, "a function");
  *result = ffi::Function::FromPacked([function = args.view(0).cast<ffi::Function>(), captured](
                                          ffi::PackedArgs given, ffi::Any* out) {
    std::vector<ffi::AnyView> all(given.data(), given.data() + given.size());
    for (const ffi::Any& value : captured) all.push_back(value);
    function.CallPacked(all.data(), static_cast<int32_t>(all.size()), out);
  });
}

// (func, tensors..., shape)
void CallTirDyn(Args args, ffi::Any* result) {
  std::vector<Slot> values(args.data + 1, args.data + args.size);
  if (!values.empty() && values.back().type_index == kTVMFFIShape) {
    ffi::ShapeView shape = args.Shape(args.size - 1);
    values.pop_back();
    for (int64_t dim : shape) {
      Slot slot;
      Store(&slot, {kTVMFFIInt, static_cast<uint64_t>(dim)});
      values.push_back(slot);
    }
  }
  Call(args, 0, std::move(values), result);
}

void Fatal(Args args, ffi::Any*) {
  std::string message =
      args.size > 0 && args[0].type_index != kTVMFFINone ? args.String(0) : "the model failed";
  Fail(ErrorKind::kRuntimeError, message);
}

// (io, function name, line, values...); the name may be that of a builtin (vm.builtin.debug_print).
void InvokeDebugFunc(Args args, ffi::Any* result) {
  std::vector<ffi::AnyView> values;
  for (int32_t i = 2; i < args.size; ++i) values.push_back(args.view(i));
  const std::string name = args.String(1);
  const auto builtin = bytecode::FindBuiltin(name);
  ffi::Any ignored;
  (builtin ? BuiltinAsFunction(*builtin) : GlobalFunction(name))
      .CallPacked(values.data(), static_cast<int32_t>(values.size()), &ignored);
  *result = args.view(0);
}

void Print(Args args, ffi::Any*) { GlobalFunction("relaxvm.hook.print")(Format(args, 0)); }

// (line, tensor)
void DebugPrint(Args args, ffi::Any*) {
  const ffi::Tensor tensor = args.Tensor(1);
  const std::string about =
      ": shape = " + DescribeShape(tensor.shape().data(), tensor.shape().size()) +
      ", dtype = " + std::string(ffi::DLDataTypeToString(tensor.dtype())) + ", data =\n";
  GlobalFunction("relaxvm.hook.print")(
      GlobalFunction("relaxvm.hook.format")("{}{}{}", args.view(0), about, tensor));
}

// (cond, format, values...)
void AssertOp(Args args, ffi::Any*) {
  int truth = ReadCondition(args.context, &args[0]);
  if (truth < 0) throw ffi::detail::MoveFromSafeCallRaised();
  if (truth != 0) return;
  std::string message = Format(args, 1);
  throw ffi::Error("AssertionError",
                   message.empty() ? "Assertion Failed" : "Assertion Failed, " + message, "");
}

}  // namespace relaxvm::vm::builtins
