// SPDX-License-Identifier: Apache-2.0
// The entry into the VM from outside.
#include "vm/closure.h"

#include "vm/interpreter.h"
#include "vm/virtual_machine.h"

namespace relaxvm::vm {
namespace ffi = tvm::ffi;

ClosureObj::ClosureObj(ffi::ObjectRef owner, VirtualMachine* vm, int64_t func_index,
                       std::vector<ffi::Any> captured)
    : owner_(std::move(owner)), vm_(vm), func_index_(func_index), captured_(std::move(captured)) {
  safe_call = Call;
  cpp_call = nullptr;
}

const ClosureObj* ClosureObj::From(const TVMFFIObject* function) {
  if (function->type_index != kTVMFFIFunction) return nullptr;
  const auto* object = ffi::detail::ObjectUnsafe::RawObjectPtrFromUnowned<ffi::FunctionObj>(
      const_cast<TVMFFIObject*>(function));
  return object->safe_call == Call ? static_cast<const ClosureObj*>(object) : nullptr;
}

int ClosureObj::Call(void* self, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  const ClosureObj* closure = static_cast<const ClosureObj*>(self);
  const Function* function = closure->vm_->program()->functions[closure->func_index_].get();
  return Invoke(
      function, {args, static_cast<size_t>(num_args)},
      {reinterpret_cast<const Slot*>(closure->captured_.data()), closure->captured_.size()},
      result);
}

ffi::Function MakeClosure(VirtualMachine* vm, int64_t func_index, std::vector<ffi::Any> captured) {
  auto closure = ffi::make_object<ClosureObj>(vm->Self(), vm, func_index, std::move(captured));
  return ffi::detail::ObjectUnsafe::ObjectRefFromObjectPtr<ffi::Function>(
      ffi::ObjectPtr<ffi::Object>(closure));
}

}  // namespace relaxvm::vm
