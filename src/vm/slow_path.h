// SPDX-License-Identifier: Apache-2.0
// What the loop does out of line: errors, unwinding, kernels with unusual arguments, foreign and
// compiled functions.
#pragma once

#include <span>
#include <string>

#include "vm/call_context.h"
#include "vm/program.h"

namespace relaxvm::vm {

// Frees what every frame holds, from the failing instruction down to the outermost frame of this
// loop, and notes the places in the error's backtrace.
void Unwind(CallContext* context, const Insn* ip, Slot* regs);

// Appends lines to the backtrace of the raised error.
void NotePlaces(const std::string& places);

// All return -1 after raising.
int RaiseStackOverflow(const Function* callee);
int RaiseArity(const Function* callee, size_t num_given, size_t num_captured);
int RaiseBadCondition(const Slot* cond);
int RaiseKernelError(CallContext* context, const Insn* ip, Slot* regs);

// Kernel calls that the fast path declined: a shape as the last argument, tensors of a device,
// arguments that do not fit.
int CallKernelSlowly(CallContext* context, const Insn* ip, Slot* regs);

// Truth of a value: 0, 1, or -1 after raising.
int ReadConditionSlowly(const Slot* value);
inline int ReadCondition(CallContext*, const Slot* value) {
  if (__builtin_expect(value->type_index == kTVMFFIBool || value->type_index == kTVMFFIInt, 1)) {
    return value->v_int64 != 0;
  }
  return ReadConditionSlowly(value);
}

// Our own native code on registers that own its arguments.
inline int RunNative(CallContext* context, const Function* function, Slot* regs, Slot* result) {
  RelaxvmNativeResult value = function->native(context, &function->program->env, regs);
  if (__builtin_expect(value.tag == kNativeFailed, 0)) return -1;
  Store(result, {value.tag, value.payload});
  return 0;
}
// A compiled Relax function: works on a register list of its own.  `args` are borrowed.
int RunCompiled(CallContext* context, const Function* function, const Slot* args, Slot* result);
// Any function value, closures of this or another VM included.
int CallValue(CallContext* context, const Slot* function, std::span<const Slot> args, Slot* result);
// An owned closure of a VM function, nothing captured.
Value MakeFunctionValue(const Function* function);
// A call between two calls of the VM's instrument.
int CallInstrumented(CallContext* context, const Insn* ip, const Slot* args, Slot* result);
// What is due before a watched call that replaces its frame; what is due after it is told when
// RunWatched ends.
enum class TailAction : int { kFail = -1, kCall, kSkip };
TailAction BeforeTailCall(CallContext* context, const Insn* ip, const Slot* args);
// RunFunction, for functions of a watched program.
int RunWatched(CallContext* context, const Function* function, Slot* frame, Slot* result);

}  // namespace relaxvm::vm
