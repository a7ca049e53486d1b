// SPDX-License-Identifier: Apache-2.0
// Binds each row of builtin_list.def to the function of the same name.
#include "vm/builtins/table.h"

#include "vm/builtins/builtins.h"
#include "vm/call_context.h"
#include "vm/virtual_machine.h"

namespace relaxvm::vm {
namespace ffi = tvm::ffi;
using bytecode::Builtin;
using bytecode::BuiltinInfo;
namespace {

// Turns exceptions into raised errors.
template <builtins::Implementation* implementation>
int Guarded(CallContext* context, const Slot* args, int32_t num_args, Slot* out) {
  try {
    implementation({context, args, num_args}, reinterpret_cast<ffi::Any*>(out));
    return 0;
  } catch (const ffi::Error& error) {
    ffi::detail::SetSafeCallRaised(error);
  } catch (const std::exception& error) {
    Raise("RuntimeError", error.what());
  }
  *reinterpret_cast<ffi::Any*>(out) = nullptr;
  return -1;
}

constexpr BuiltinFunction kFunctions[] = {
#define BUILTIN(name, user_name, signature, effect, meaning) &Guarded<builtins::name>,
#include "bytecode/builtin_list.def"
#undef BUILTIN
};

class BuiltinFunctionObj : public ffi::FunctionObj {
 public:
  explicit BuiltinFunctionObj(const BuiltinInfo* info) : info_(info) {
    safe_call = Call;
    cpp_call = nullptr;
  }

 private:
  static int Call(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
    const BuiltinInfo& info = *static_cast<BuiltinFunctionObj*>(self)->info_;
    if (num_args < info.min_args || (info.max_args >= 0 && num_args > info.max_args)) {
      return Raise("TypeError", std::string(info.name) + std::string(info.signature) +
                                    " is called with " + std::to_string(num_args) + " arguments");
    }
    CallContext* context = CallContext::Current();
    if (context == nullptr) return -1;
    BuiltinFunction function = GetBuiltinFunction(info.id);
    if (!info.takes_ctx) return function(context, args, num_args, result);
    VirtualMachine* vm = nullptr;
    if (args[0].type_index == kTVMFFIModule) {
      vm = VirtualMachine::From(View(&args[0]).cast<ffi::Module>());
    } else if (args[0].type_index == kTVMFFIOpaquePtr && args[0].v_ptr == context->vm) {
      vm = context->vm;
    }
    if (vm == nullptr) {
      return Raise("TypeError", std::string(info.name) +
                                    ": the first argument must be the VM that runs the call");
    }
    VirtualMachine* saved = context->vm;
    context->vm = vm;
    int code = function(context, args, num_args, result);
    context->vm = saved;
    return code;
  }

  const BuiltinInfo* info_;
};

}  // namespace

BuiltinFunction GetBuiltinFunction(Builtin builtin) {
  return kFunctions[static_cast<size_t>(builtin)];
}

ffi::Function BuiltinAsFunction(Builtin builtin) {
  auto object = ffi::make_object<BuiltinFunctionObj>(&bytecode::GetBuiltin(builtin));
  return ffi::detail::ObjectUnsafe::ObjectRefFromObjectPtr<ffi::Function>(
      ffi::ObjectPtr<ffi::Object>(object));
}

}  // namespace relaxvm::vm
