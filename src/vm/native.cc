// SPDX-License-Identifier: Apache-2.0
// Helpers of compiled functions.  Where the interpreter has an instruction, they make one.
#include "vm/native.h"

#include <algorithm>
#include <cstring>

#include "vm/builtins/table.h"
#include "vm/interpreter.h"
#include "vm/slow_path.h"
#include "vm/virtual_machine.h"

namespace relaxvm::vm {
namespace ffi = tvm::ffi;
namespace {

CallContext* Of(RelaxvmNativeContext* context) { return static_cast<CallContext*>(context); }
const Program* ProgramOf(const RelaxvmNativeEnv* env) {
  return static_cast<const Program*>(env->program);
}

int Poll(RelaxvmNativeContext* context) { return Of(context)->Poll(); }

// A call as the interpreter would have it.
Insn CallOf(const Program* program, uint32_t func, int32_t num_args) {
  Insn insn{};
  insn.num_args = static_cast<uint32_t>(num_args);
  insn.func_index = func;
  const RelaxvmNativeCallee& callee = program->callees[func];
  if (const Function* function = program->functions[func].get()) {
    insn.aux = static_cast<uint32_t>(function->is_compiled() ? Op::kCallTir : Op::kCallVM);
    insn.function = function;
  } else if (bytecode::FindBuiltin(program->executable->func_table[func].name)) {
    insn.aux = static_cast<uint32_t>(Op::kCallBuiltin);
    insn.builtin = reinterpret_cast<BuiltinFunction>(callee.builtin);
  } else {
    insn.aux = static_cast<uint32_t>(Op::kCallPacked);
    insn.safe_call = callee.safe_call;
    insn.self = callee.self;
  }
  return insn;
}

int Call(RelaxvmNativeContext* context, const RelaxvmNativeEnv* env, uint32_t func,
         const Slot* args, int32_t num_args, Slot* result) {
  Insn insn = CallOf(ProgramOf(env), func, num_args);
  return CallInstrumented(Of(context), &insn, args, result);
}

int BeforeTail(RelaxvmNativeContext* context, const RelaxvmNativeEnv* env, uint32_t func,
               const Slot* args, int32_t num_args) {
  Insn insn = CallOf(ProgramOf(env), func, num_args);
  return static_cast<int>(BeforeTailCall(Of(context), &insn, args));
}

int InvokeValue(RelaxvmNativeContext* context, const Slot* args, int32_t num_args, Slot* result) {
  return CallValue(Of(context), &args[0], {args + 1, static_cast<size_t>(num_args - 1)}, result);
}

// The instruction of a kernel call whose operands lie one after another.
class KernelCall {
 public:
  KernelCall(const Program* program, uint32_t func, uint32_t num_tensors, int32_t num_args)
      : words_((sizeof(Insn) + 7) / 8 + static_cast<size_t>(num_args)) {
    Insn* insn = reinterpret_cast<Insn*>(words_.data());
    insn->num_args = static_cast<uint32_t>(num_args);
    insn->aux = num_tensors;
    insn->func_index = func;
    insn->kernel = program->callees[func].kernel;
    const char* letter = insn->kernel == nullptr ? "" : insn->kernel->params;
    for (uint32_t i = 0; i < insn->num_args; ++i) {
      insn->words[i] = i * static_cast<uint32_t>(sizeof(Slot));
      if (i < num_tensors) continue;
      while (*letter == 't') ++letter;
      if (*letter == 'f') insn->words[i] |= kArgFloat;
      if (*letter != '\0') ++letter;
    }
  }
  const Insn* insn() const { return reinterpret_cast<const Insn*>(words_.data()); }

 private:
  std::vector<uint64_t> words_;
};

int NoKernel(const Program* program, uint32_t func) {
  return Raise("RuntimeError", program->executable->func_table[func].name +
                                   " is no kernel of this executable any more; compile it again");
}

int KernelSlowly(RelaxvmNativeContext* context, const RelaxvmNativeEnv* env, uint32_t func,
                 uint32_t num_tensors, const Slot* args, int32_t num_args) {
  KernelCall call(ProgramOf(env), func, num_tensors, num_args);
  if (call.insn()->kernel == nullptr) return NoKernel(ProgramOf(env), func);
  return CallKernelSlowly(Of(context), call.insn(), const_cast<Slot*>(args));
}

int KernelFailed(RelaxvmNativeContext* context, const RelaxvmNativeEnv* env, uint32_t func,
                 uint32_t num_tensors, const Slot* args, int32_t num_args) {
  KernelCall call(ProgramOf(env), func, num_tensors, num_args);
  if (call.insn()->kernel == nullptr) return NoKernel(ProgramOf(env), func);
  return RaiseKernelError(Of(context), call.insn(), const_cast<Slot*>(args));
}

int ReadConditionOf(const Slot* value) { return ReadCondition(nullptr, value); }

int Overflow(const RelaxvmNativeEnv* env, uint32_t func) {
  return RaiseStackOverflow(ProgramOf(env)->functions[func].get());
}

void MakeFunc(const RelaxvmNativeEnv* env, uint32_t func, Slot* result) {
  Store(result, MakeFunctionValue(ProgramOf(env)->functions[func].get()));
}

void DropObject(TVMFFIObject* object) { ffi::detail::ObjectUnsafe::DecRefObjectHandle(object); }

void UnwindNative(RelaxvmNativeContext*, const RelaxvmNativeEnv* env, Slot* regs,
                  RelaxvmLiveTable table, uint32_t at, uint32_t except, uint32_t failed) {
  const uint32_t* ranges = table + 2;
  for (uint32_t i = 0; i < table[1]; ++i, ranges += 3) {
    if (ranges[1] <= at && at < ranges[2] && ranges[0] != except) Drop(Load(&regs[ranges[0]]));
  }
  NotePlaces("  File \"<relaxvm compiled>\", line " + std::to_string(ranges[failed]) + ", in " +
             ProgramOf(env)->executable->func_table[table[0]].name + "\n");
}

int NoBuiltin(RelaxvmNativeContext*, const Slot*, int32_t, Slot*) {
  return Raise("RuntimeError",
               "the compiled function calls a builtin that this relaxvm does not have; compile the "
               "model again");
}

}  // namespace

void MakeNativeEnv(Program* program, const std::vector<Binding>& bindings) {
  program->callees.resize(bindings.size());
  for (size_t i = 0; i < bindings.size(); ++i) {
    RelaxvmNativeCallee& callee = program->callees[i];
    const Binding& binding = bindings[i];
    callee.builtin = NoBuiltin;
    callee.kernel = binding.kernel;
    if (binding.packed != nullptr) {
      callee.safe_call = binding.packed->safe_call;
      callee.self = const_cast<ffi::FunctionObj*>(binding.packed);
    }
    // By name: native code has the builtins of the VM, whatever an import calls itself.
    if (auto builtin = bytecode::FindBuiltin(program->executable->func_table[i].name)) {
      callee.builtin =
          reinterpret_cast<int (*)(RelaxvmNativeContext*, const Slot*, int32_t, Slot*)>(
              GetBuiltinFunction(*builtin));
    }
  }
  RelaxvmNativeEnv& env = program->env;
  env.constants = reinterpret_cast<const Slot*>(program->constants.data());
  env.callees = program->callees.data();
  env.func_pool = reinterpret_cast<const Slot*>(program->func_pool.data());
  env.vm = program->vm;
  env.vm_module = VMModuleObject(program->vm);
  env.poll = Poll;
  env.call = Call;
  env.invoke = InvokeValue;
  env.kernel_slowly = KernelSlowly;
  env.kernel_failed = KernelFailed;
  env.read_condition = ReadConditionOf;
  env.bad_condition = RaiseBadCondition;
  env.overflow = Overflow;
  env.make_func = MakeFunc;
  env.drop = DropObject;
  env.unwind = UnwindNative;
  env.program = program;
  env.before_tail_call = BeforeTail;
}

}  // namespace relaxvm::vm
