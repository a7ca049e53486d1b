// SPDX-License-Identifier: Apache-2.0
// Cold code of the interpreter.
#include "vm/slow_path.h"

#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/string.h>

#include <algorithm>
#include <cstring>

#include "runtime/kernel_launch.h"
#include "runtime/tensor.h"
#include "support/dtype.h"
#include "vm/closure.h"
#include "vm/describe.h"
#include "vm/interpreter.h"
#include "vm/virtual_machine.h"

namespace relaxvm::vm {
namespace ffi = tvm::ffi;
namespace {

const Slot* ArgumentAt(const Insn* ip, Slot* regs, uint32_t i) {
  uint32_t word = ip->words[i];
  const char* base =
      word & kArgConst ? reinterpret_cast<const char*>(ip) : reinterpret_cast<const char*>(regs);
  return reinterpret_cast<const Slot*>(base + (word & ~uint32_t{kArgFlags}));
}

// The function whose code holds `ip`.
const Function* FunctionOf(const VirtualMachine* vm, const Insn* ip) {
  const char* address = reinterpret_cast<const char*>(ip);
  for (const Program* program : vm->AllPrograms()) {
    for (const auto& function : program->functions) {
      if (function == nullptr || function->code == nullptr) continue;
      const char* begin = reinterpret_cast<const char*>(function->code.get());
      if (address >= begin && address < begin + function->num_units * sizeof(Function::Unit))
        return function.get();
    }
  }
  return nullptr;
}

// tensors of a kernel: `params` has them in order, the instruction has them first.
std::string DescribeKernelArgs(const Insn* ip, Slot* regs) {
  std::string text;
  uint32_t num_args = ip->num_args;
  for (uint32_t i = 0; i < num_args; ++i)
    text += (i ? ", " : "") + DescribeValue(*ArgumentAt(ip, regs, i));
  return text;
}

}  // namespace

void NotePlaces(const std::string& places) {
  TVMFFIObjectHandle handle = nullptr;
  TVMFFIErrorMoveFromRaised(&handle);
  if (handle == nullptr) return;
  auto* cell =
      reinterpret_cast<TVMFFIErrorCell*>(static_cast<char*>(handle) + sizeof(TVMFFIObject));
  TVMFFIByteArray text{places.data(), places.size()};
  if (cell->update_backtrace != nullptr) {
    cell->update_backtrace(handle, &text, kTVMFFIBacktraceUpdateModeAppend);
  }
  TVMFFIErrorSetRaised(handle);
  TVMFFIObjectDecRef(handle);
}

void Unwind(CallContext* context, const Insn* ip, Slot* regs) {
  constexpr int kMaxNotedFrames = 32;
  std::string places;
  bool is_suspended =
      false;  // frames below the failing one wait inside a call that took its arguments
  for (int depth = 0;; ++depth) {
    const Function* function = FunctionOf(context->vm, ip);
    if (function == nullptr) break;  // cannot be: every instruction belongs to a function
    uint32_t at = is_suspended ? ip->index + 1 : ip->index;
    for (const LiveRange& range : function->live_ranges) {
      bool is_result =
          is_suspended && !(ip->flags & kDiscardResult) && range.slot * sizeof(Slot) == ip->dst;
      if (range.from <= at && at < range.to && !is_result) Drop(Load(&regs[range.slot]));
    }
    if (depth < kMaxNotedFrames) {
      const bytecode::ExecutableData& data = *function->program->executable;
      places += "  File \"<relaxvm bytecode>\", line " +
                std::to_string(function->source_index[ip->index]) + ", in " +
                data.func_table[function->func_index].name + "\n";
    }
    struct Link {
      const Insn* caller;
      Slot* regs;
    };
    Link link = *reinterpret_cast<Link*>(regs - 1);
    context->top = regs - 1;
    if (link.caller == nullptr) break;
    ip = link.caller;
    regs = link.regs;
    is_suspended = true;
  }
  NotePlaces(places);
}

int RaiseStackOverflow(const Function* callee) {
  return Raise(
      "RecursionError",
      "the call of " + callee->info->name +
          " exceeds the VM's stack; write the recursion as a tail call, or raise the limit with "
          "set_stack_limit");
}

int RaiseArity(const Function* callee, size_t num_given, size_t num_captured) {
  const bytecode::FuncInfo& info = *callee->info;
  size_t expected =
      static_cast<size_t>(info.num_args) - std::min<size_t>(num_captured, info.num_args);
  std::string names;
  for (size_t i = 0; i < std::min(expected, info.param_names.size()); ++i) {
    names += (i ? ", " : " (") + info.param_names[i];
  }
  if (!names.empty()) names += ")";
  return Raise("TypeError", "Invoking function " + info.name + " expects " +
                                std::to_string(expected) + " arguments" + names + ", but " +
                                std::to_string(num_given) + " arguments were provided.");
}

int RaiseBadCondition(const Slot* cond) {
  return Raise("TypeError",
               "a condition must be a bool or an integer, it is " + DescribeValue(*cond));
}

int RaiseKernelError(CallContext* context, const Insn* ip, Slot* regs) {
  runtime::KernelHost::Error error = runtime::TakeKernelError(&context->kernel_host);
  return Raise(error.kind, std::string(ip->kernel->name) + ": " + error.message + " (called with " +
                               DescribeKernelArgs(ip, regs) + ")");
}

int CallKernelSlowly(CallContext* context, const Insn* ip, Slot* regs) {
  const RelaxvmKernelEntry* kernel = ip->kernel;
  // The loop shares this function with both operations; the last argument of a dynamic call is a
  // shape.
  bool is_dyn = (ip->flags & kDynamicKernel) != 0;
  auto bad_argument = [&](uint32_t i, const char* expected) {
    return Raise("TypeError", std::string(kernel->name) + ": argument " + std::to_string(i) +
                                  " must be " + expected + ", it is " +
                                  DescribeValue(*ArgumentAt(ip, regs, i)));
  };
  std::vector<const DLTensor*> tensors;
  for (uint32_t i = 0; i < ip->aux; ++i) {
    const Slot* arg = ArgumentAt(ip, regs, i);
    if (arg->type_index != kTVMFFITensor) return bad_argument(i, "a tensor");
    tensors.push_back(reinterpret_cast<const DLTensor*>(reinterpret_cast<const char*>(arg->v_obj) +
                                                        sizeof(TVMFFIObject)));
  }
  std::vector<int64_t> scalars;
  uint32_t num_given = ip->num_args - (is_dyn ? 1 : 0);
  for (uint32_t i = ip->aux; i < num_given; ++i) {
    const Slot* arg = ArgumentAt(ip, regs, i);
    bool is_int = arg->type_index == kTVMFFIInt || arg->type_index == kTVMFFIBool;
    if (ip->words[i] & kArgFloat) {
      if (!is_int && arg->type_index != kTVMFFIFloat) return bad_argument(i, "a number");
      double number = is_int ? static_cast<double>(arg->v_int64) : arg->v_float64;
      scalars.push_back(0);
      std::memcpy(&scalars.back(), &number, sizeof(number));
    } else {
      if (!is_int) return bad_argument(i, "an integer");
      scalars.push_back(arg->v_int64);
    }
  }
  if (is_dyn) {
    const Slot* arg = ArgumentAt(ip, regs, num_given);
    if (arg->type_index != kTVMFFIShape) return bad_argument(num_given, "a shape");
    ffi::Shape shape = View(arg).cast<ffi::Shape>();
    if (num_given + shape.size() != std::strlen(kernel->params)) {
      return Raise("ValueError", std::string(kernel->name) + ": a shape of " +
                                     std::to_string(shape.size()) + " integers stands for " +
                                     std::to_string(std::strlen(kernel->params) - num_given));
    }
    scalars.insert(scalars.end(), shape.begin(), shape.end());
  }
  try {
    int code = runtime::RunKernel(*kernel, tensors, scalars, &context->kernel, context->vm->Self());
    return code == 0 ? 0 : RaiseKernelError(context, ip, regs);
  } catch (const ffi::Error& error) {
    ffi::detail::SetSafeCallRaised(error);
    return -1;
  }
}

int ReadConditionSlowly(const Slot* value) {
  if (value->type_index != kTVMFFITensor) return RaiseBadCondition(value);
  try {
    ffi::Tensor tensor = View(value).cast<ffi::Tensor>();
    DLDataType dtype = tensor.dtype();
    bool is_scalar =
        tensor.numel() == 1 && dtype.lanes == 1 && dtype.bits % 8 == 0 && dtype.bits <= 64;
    if (!is_scalar || !(IsInteger(dtype) || IsBool(dtype))) return RaiseBadCondition(value);
    if (!runtime::IsHost(tensor.device())) {
      ffi::Tensor host = runtime::EmptyHostTensor(tensor.shape(), dtype);
      runtime::CopyTensor(runtime::Raw(tensor), runtime::Raw(host));
      tensor = host;
    }
    uint64_t bits = 0;
    std::memcpy(&bits, runtime::DataOf(runtime::Raw(tensor)), dtype.bits / 8);
    return bits != 0;
  } catch (const ffi::Error& error) {
    ffi::detail::SetSafeCallRaised(error);
    return -1;
  }
}

int RunCompiled(CallContext* context, const Function* function, const Slot* args, Slot* result) {
  const Program* program = function->program;
  Slot* regs = context->top;
  uint32_t num_regs = function->native != nullptr
                          ? function->num_params
                          : static_cast<uint32_t>(function->info->register_file_size);
  if (regs + num_regs + 8 > context->limit || IsStackFull(context))
    return RaiseStackOverflow(function);
  for (uint32_t i = 0; i < function->num_params; ++i) {
    Value value = Load(&args[i]);
    Retain(value);
    Store(&regs[i], value);
  }
  if (function->native != nullptr) {
    int code = RunNative(context, function, regs, result);
    context->top = regs;
    return code;
  }
  for (uint32_t i = function->num_params; i < num_regs; ++i) Store(&regs[i], Value::None());
  context->top = regs + num_regs;
  context->c_depth += 1;
  Slot lists[4];
  const void* pointers[4] = {program->vm, regs, program->constants.data(),
                             program->func_pool.data()};
  for (int i = 0; i < 4; ++i) {
    Store(&lists[i], {kTVMFFIOpaquePtr, reinterpret_cast<uint64_t>(pointers[i])});
  }
  Slot ignored;
  Store(&ignored, Value::None());
  const ffi::FunctionObj* entry = static_cast<const ffi::FunctionObj*>(function->compiled.get());
  int code = entry->safe_call(const_cast<ffi::FunctionObj*>(entry), lists, 4, &ignored);
  context->c_depth -= 1;
  context->top = regs;
  if (code == 0) {
    Drop(LoadResult(&ignored));
    Value value = Load(&regs[function->num_params]);
    Store(&regs[function->num_params], Value::None());
    Store(result, value);
  }
  for (uint32_t i = 0; i < num_regs; ++i) Drop(Load(&regs[i]));
  return code;
}

int CallValue(CallContext* context, const Slot* function, std::span<const Slot> args,
              Slot* result) {
  if (function->type_index != kTVMFFIFunction) {
    return Raise("TypeError",
                 "only functions and closures can be called, this is " + DescribeValue(*function));
  }
  auto* object =
      ffi::detail::ObjectUnsafe::RawObjectPtrFromUnowned<ffi::FunctionObj>(function->v_obj);
  return object->safe_call(object, args.data(), static_cast<int32_t>(args.size()), result);
}

Value MakeFunctionValue(const Function* function) {
  return Release(ffi::Any(MakeClosure(function->program->vm, function->func_index)));
}

TailAction BeforeTailCall(CallContext* context, const Insn* ip, const Slot* args) {
  return context->vm->BeforeTailCall(context, ip, args);
}

int RunWatched(CallContext* context, const Function* function, Slot* frame, Slot* result) {
  return context->vm->RunWatched(context, function, frame, result);
}

int CallInstrumented(CallContext* context, const Insn* ip, const Slot* args, Slot* result) {
  return context->vm->CallWithInstrument(context, ip, args, result);
}

}  // namespace relaxvm::vm
