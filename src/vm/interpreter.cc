// SPDX-License-Identifier: Apache-2.0
// The loop.  A frame is [link][registers][scratch]; the next frame starts where the registers end.
// Registers that are not live hold nothing: no initialisation, no clearing.
#include "vm/interpreter.h"

#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "vm/builtins/table.h"
#include "vm/closure.h"
#include "vm/slow_path.h"
#include "vm/virtual_machine.h"

#if defined(__GNUC__) && !defined(RELAXVM_SWITCH_DISPATCH)
#define RELAXVM_COMPUTED_GOTO 1
#else
#define RELAXVM_COMPUTED_GOTO 0
#endif
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

namespace relaxvm::vm {
namespace ffi = tvm::ffi;
namespace {

inline Slot* At(Slot* regs, uint32_t offset) {
  return reinterpret_cast<Slot*>(reinterpret_cast<char*>(regs) + offset);
}
inline const Insn* Next(const Insn* ip) {
  return reinterpret_cast<const Insn*>(reinterpret_cast<const char*>(ip) + ip->length);
}
inline const Insn* Jump(const Insn* ip) {
  return reinterpret_cast<const Insn*>(reinterpret_cast<const char*>(ip) + ip->jump);
}

inline const Slot* ArgAt(const Insn* ip, Slot* regs, uint32_t word) {
  const char* base =
      word & kArgConst ? reinterpret_cast<const char*>(ip) : reinterpret_cast<const char*>(regs);
  return reinterpret_cast<const Slot*>(base + (word & ~uint32_t{kArgFlags}));
}

// None, in one piece: written in two halves, the half that is read back after the call is predicted
// to come from here, and the callee's value arrives 4 ns late.
inline void ClearResult(Slot* slot) {
  typedef long long Vector __attribute__((vector_size(16), may_alias));
  *reinterpret_cast<Vector*>(slot) = Vector{0, 0};
}

inline void DropDying(const Insn* ip, Slot* regs) {
  const uint32_t* drops = ip->drops();
  for (uint32_t i = 0; i < ip->num_drops; ++i) Drop(Load(At(regs, drops[i])));
}

inline void StoreDst(const Insn* ip, Slot* regs, Value value) {
  if (LIKELY(!(ip->flags & kDiscardResult))) {
    Store(At(regs, ip->dst), value);
  } else {
    Drop(value);
  }
}

// Copies borrowed values of the arguments to `scratch`; a call of constants alone passes them in
// place.
inline const Slot* Gather(const Insn* ip, Slot* regs, Slot* scratch) {
  if (ip->flags & kAllConst) return ArgAt(ip, regs, ip->words[0]);
  for (uint32_t i = 0; i < ip->num_args; ++i)
    StoreArgument(&scratch[i], ArgAt(ip, regs, ip->words[i]));
  return scratch;
}

// Copies owned values: dying registers are moved.
inline void GatherOwned(const Insn* ip, Slot* regs, Slot* to, uint32_t first) {
  for (uint32_t i = first; i < ip->num_args; ++i) {
    uint32_t word = ip->words[i];
    Value value = Load(ArgAt(ip, regs, word));
    if (!(word & kArgMove)) Retain(value);
    Store(&to[i - first], value);
  }
}

inline const DLTensor* TensorOf(TVMFFIObject* object) {
  return reinterpret_cast<const DLTensor*>(reinterpret_cast<const char*>(object) +
                                           sizeof(TVMFFIObject));
}

// Fills the argument arrays of a kernel.  False: something is not what the kernel takes.
inline bool GatherKernel(const Insn* ip, Slot* regs, const DLTensor** tensors, int64_t* scalars,
                         uint32_t num_scalars) {
  uint32_t num_tensors = ip->aux;
  constexpr DLDevice kHost{kDLCPU, 0};
  uint64_t elsewhere = 0;  // nonzero: a tensor is not on cpu(0)
  for (uint32_t i = 0; i < num_tensors; ++i) {
    const Slot* arg = ArgAt(ip, regs, ip->words[i]);
    if (UNLIKELY(arg->type_index != kTVMFFITensor)) return false;
    tensors[i] = TensorOf(arg->v_obj);
    elsewhere |= std::bit_cast<uint64_t>(tensors[i]->device) ^ std::bit_cast<uint64_t>(kHost);
  }
  for (uint32_t i = 0; i < num_scalars; ++i) {
    uint32_t word = ip->words[num_tensors + i];
    const Slot* arg = ArgAt(ip, regs, word);
    if (LIKELY(!(word & kArgFloat))) {
      if (UNLIKELY(arg->type_index != kTVMFFIInt && arg->type_index != kTVMFFIBool)) return false;
      scalars[i] = arg->v_int64;
    } else {
      double number = arg->v_float64;
      if (arg->type_index == kTVMFFIInt || arg->type_index == kTVMFFIBool) {
        number = static_cast<double>(arg->v_int64);
      } else if (UNLIKELY(arg->type_index != kTVMFFIFloat)) {
        return false;
      }
      std::memcpy(&scalars[i], &number, sizeof(number));
    }
  }
  return elsewhere == 0;
}

struct Link {
  const Insn* caller;  // the call to return to; null in the outermost frame
  Slot* regs;          // of the caller
};
static_assert(sizeof(Link) == sizeof(Slot));
inline Link* LinkOf(Slot* regs) { return reinterpret_cast<Link*>(regs - 1); }

#if RELAXVM_COMPUTED_GOTO
#define HANDLER(op) L_##op:
#define DISPATCH() goto * ip->handler
#else
#define HANDLER(op) case Op::op:
#define DISPATCH() goto dispatch
#endif
#define NEXT()     \
  do {             \
    ip = Next(ip); \
    DISPATCH();    \
  } while (0)
#define POLL() \
  if (UNLIKELY(--c->ticks < 0) && UNLIKELY(c->Poll() != 0)) goto fail

// Runs from `ip` until the frame at `regs` returns.  0, or -1 after unwinding every frame down to
// it.
int Run(CallContext* c, const Insn* ip, Slot* regs, Slot* result, const void* const** table) {
#if RELAXVM_COMPUTED_GOTO
  static const void* const kTable[] = {
#define OP(name) &&L_##name,
      RELAXVM_VM_OPS(OP)
#undef OP
  };
#else
  static const void* kTable[64];
#endif
  if (UNLIKELY(table != nullptr)) {
#if !RELAXVM_COMPUTED_GOTO
    for (uintptr_t i = 0; i < 64; ++i) kTable[i] = reinterpret_cast<const void*>(i);
#endif
    *table = kTable;
    return 0;
  }
  Value returned;
#if RELAXVM_COMPUTED_GOTO
  DISPATCH();
#else
dispatch:
  switch (static_cast<Op>(reinterpret_cast<uintptr_t>(ip->handler))) {
#endif

  HANDLER(kCallPacked) {
    POLL();
    Slot* scratch = c->top;
    const Slot* args = Gather(ip, regs, scratch);
    alignas(16) Slot out;
    ClearResult(&out);
    c->top = scratch + ip->num_args;
    int code = ip->safe_call(ip->self, args, static_cast<int32_t>(ip->num_args), &out);
    c->top = scratch;
    if (UNLIKELY(code != 0)) goto fail;
    DropDying(ip, regs);
    StoreDst(ip, regs, LoadResult(&out));
    NEXT();
  }

  HANDLER(kCallBuiltin) {
    Slot* scratch = c->top;
    const Slot* args = Gather(ip, regs, scratch);
    alignas(16) Slot out;
    ClearResult(&out);
    c->top = scratch + ip->num_args;
    int code = ip->builtin(c, args, static_cast<int32_t>(ip->num_args), &out);
    c->top = scratch;
    if (UNLIKELY(code != 0)) goto fail;
    DropDying(ip, regs);
    StoreDst(ip, regs, LoadResult(&out));
    NEXT();
  }

  HANDLER(kCallKernel) {
    POLL();
    Slot* scratch = c->top;
    const DLTensor** tensors = reinterpret_cast<const DLTensor**>(scratch);
    int64_t* scalars = reinterpret_cast<int64_t*>(scratch) + ip->aux;
    if (UNLIKELY(!GatherKernel(ip, regs, tensors, scalars, ip->num_args - ip->aux))) {
      if (CallKernelSlowly(c, ip, regs) != 0) goto fail;
    } else if (UNLIKELY(ip->kernel->direct(&c->kernel, tensors, scalars) != 0)) {
      RaiseKernelError(c, ip, regs);
      goto fail;
    }
    DropDying(ip, regs);
    StoreDst(ip, regs, Value::None());
    NEXT();
  }

  HANDLER(kCallKernelDyn) {
    POLL();
    if (UNLIKELY(CallKernelSlowly(c, ip, regs) != 0)) goto fail;
    DropDying(ip, regs);
    StoreDst(ip, regs, Value::None());
    NEXT();
  }

  HANDLER(kCallVM) {
    POLL();
    const Function* callee = ip->function;
    Slot* frame = c->top + 1;
    if (UNLIKELY(frame + callee->num_slots + callee->max_scratch > c->limit)) {
      RaiseStackOverflow(callee);
      goto fail;
    }
    GatherOwned(ip, regs, frame, 0);
    *LinkOf(frame) = {ip, regs};
    regs = frame;
    c->top = frame + callee->num_slots;
    ip = callee->entry;
    DISPATCH();
  }

  HANDLER(kTailCallVM) {
    POLL();
    const Function* callee = ip->function;
    if (UNLIKELY(regs + callee->num_slots + callee->max_scratch > c->limit)) {
      RaiseStackOverflow(callee);
      goto fail;
    }
    Slot* scratch = c->top;
    GatherOwned(ip, regs, scratch, 0);
    for (uint32_t i = 0; i < ip->num_args; ++i) Store(&regs[i], Load(&scratch[i]));
    c->top = regs + callee->num_slots;
    ip = callee->entry;
    DISPATCH();
  }

  HANDLER(kCallTir) {
    POLL();
    Slot* scratch = c->top;
    const Slot* args = Gather(ip, regs, scratch);
    alignas(16) Slot out;
    ClearResult(&out);
    c->top = scratch + ip->num_args;
    int code = RunCompiled(c, ip->function, args, &out);
    c->top = scratch;
    if (UNLIKELY(code != 0)) goto fail;
    DropDying(ip, regs);
    StoreDst(ip, regs, LoadResult(&out));
    NEXT();
  }

  HANDLER(kInvokeClosure)
  HANDLER(kTailInvokeClosure) {
    POLL();
    const Slot* target = ArgAt(ip, regs, ip->words[0]);
    const ClosureObj* closure =
        target->type_index == kTVMFFIFunction ? ClosureObj::From(target->v_obj) : nullptr;
    const Function* callee = closure != nullptr && closure->vm() == c->vm
                                 ? c->vm->program()->functions[closure->func_index()].get()
                                 : nullptr;
    bool is_tail = (ip->flags & kTailFlag) != 0;
    if (callee == nullptr || callee->is_compiled()) {
      Slot* scratch = c->top;
      const Slot* args = Gather(ip, regs, scratch);
      alignas(16) Slot out;
      ClearResult(&out);
      c->top = scratch + ip->num_args;
      int code = CallValue(c, &args[0], {args + 1, ip->num_args - 1}, &out);
      c->top = scratch;
      if (UNLIKELY(code != 0)) goto fail;
      for (uint32_t i = 0; i < ip->num_args; ++i) {
        if (ip->words[i] & kArgMove) Drop(Load(At(regs, ip->words[i] & ~uint32_t{kArgFlags})));
      }
      if (is_tail) {
        returned = LoadResult(&out);
        goto return_value;
      }
      StoreDst(ip, regs, LoadResult(&out));
      NEXT();
    }
    uint32_t num_given = ip->num_args - 1;
    uint32_t num_captured = static_cast<uint32_t>(closure->captured().size());
    if (UNLIKELY(num_given + num_captured != callee->num_params)) {
      RaiseArity(callee, num_given, num_captured);
      goto fail;
    }
    // The new registers are put together above this frame in both cases; a tail call then copies
    // them down.
    Slot* frame = is_tail ? c->top : c->top + 1;
    if (UNLIKELY(frame + callee->num_slots + callee->max_scratch > c->limit)) {
      RaiseStackOverflow(callee);
      goto fail;
    }
    Value closure_value = Load(target);
    bool is_closure_moved = (ip->words[0] & kArgMove) != 0;
    GatherOwned(ip, regs, frame, 1);
    for (uint32_t i = 0; i < num_captured; ++i) {
      Value value = Load(reinterpret_cast<const Slot*>(&closure->captured()[i]));
      Retain(value);
      Store(&frame[num_given + i], value);
    }
    if (is_tail) {
      for (uint32_t i = 0; i < callee->num_params; ++i) Store(&regs[i], Load(&frame[i]));
    } else {
      *LinkOf(frame) = {ip, regs};
      regs = frame;
    }
    c->top = regs + callee->num_slots;
    ip = callee->entry;
    if (is_closure_moved) Drop(closure_value);
    DISPATCH();
  }

  HANDLER(kMakeFunc) {
    Store(At(regs, ip->dst), MakeFunctionValue(ip->function));
    NEXT();
  }

  HANDLER(kNull) {
    Store(At(regs, ip->dst), Value::None());
    NEXT();
  }

  HANDLER(kCopy) {
    Value value = Load(ArgAt(ip, regs, ip->words[0]));
    Retain(value);
    Store(At(regs, ip->dst), value);
    NEXT();
  }

  HANDLER(kMove) {
    Store(At(regs, ip->dst), Load(ArgAt(ip, regs, ip->words[0])));
    NEXT();
  }

  HANDLER(kReadCond) {
    int truth = ReadCondition(c, ArgAt(ip, regs, ip->words[0]));
    if (UNLIKELY(truth < 0)) goto fail;
    DropDying(ip, regs);
    StoreDst(ip, regs, {kTVMFFIBool, static_cast<uint64_t>(truth)});
    NEXT();
  }

  HANDLER(kDrop) {
    DropDying(ip, regs);
    NEXT();
  }

  HANDLER(kGoto) {
    ip = Jump(ip);
    DISPATCH();
  }

  HANDLER(kGotoBack) {
    POLL();
    ip = Jump(ip);
    DISPATCH();
  }

  HANDLER(kIf) {
    const Slot* cond = ArgAt(ip, regs, ip->words[0]);
    if (UNLIKELY(cond->type_index != kTVMFFIInt && cond->type_index != kTVMFFIBool)) {
      RaiseBadCondition(cond);
      goto fail;
    }
    if (cond->v_int64 != 0) NEXT();
    ip = Jump(ip);
    DISPATCH();
  }

  HANDLER(kIfCond) {
    int truth = ReadCondition(c, ArgAt(ip, regs, ip->words[0]));
    if (UNLIKELY(truth < 0)) goto fail;
    DropDying(ip, regs);
    if (truth != 0) NEXT();
    ip = Jump(ip);
    DISPATCH();
  }

  HANDLER(kRet) {
    returned = Load(At(regs, ip->words[0] & ~uint32_t{kArgFlags}));
    goto return_value;
  }

  HANDLER(kRetConst) {
    returned = Load(ArgAt(ip, regs, ip->words[0]));
    Retain(returned);
    goto return_value;
  }

  HANDLER(kInstrumented) {
    POLL();
    Slot* scratch = c->top;
    const Slot* args = Gather(ip, regs, scratch);
    alignas(16) Slot out;
    ClearResult(&out);
    c->top = scratch + ip->num_args;
    int code = CallInstrumented(c, ip, args, &out);
    c->top = scratch;
    if (UNLIKELY(code != 0)) goto fail;
    DropDying(ip, regs);
    StoreDst(ip, regs, LoadResult(&out));
    NEXT();
  }

  HANDLER(kInstrumentedTail) {
    POLL();
    const Function* callee = ip->function;
    if (UNLIKELY(regs + callee->num_slots + callee->max_scratch > c->limit)) {
      RaiseStackOverflow(callee);
      goto fail;
    }
    Slot* scratch = c->top;
    const Slot* args = Gather(ip, regs, scratch);
    c->top = scratch + ip->num_args;
    TailAction action = BeforeTailCall(c, ip, args);
    c->top = scratch;
    if (UNLIKELY(action == TailAction::kFail)) goto fail;
    GatherOwned(ip, regs, scratch, 0);
    if (action == TailAction::kSkip) {
      for (uint32_t i = 0; i < ip->num_args; ++i) Drop(Load(&scratch[i]));
      returned = Value::None();
      goto return_value;
    }
    for (uint32_t i = 0; i < ip->num_args; ++i) Store(&regs[i], Load(&scratch[i]));
    c->top = regs + callee->num_slots;
    ip = callee->entry;
    DISPATCH();
  }
#if !RELAXVM_COMPUTED_GOTO
}
#endif

return_value: {
  Link link = *LinkOf(regs);
  c->top = regs - 1;
  if (UNLIKELY(link.caller == nullptr)) {
    Store(result, returned);
    return 0;
  }
  regs = link.regs;
  ip = link.caller;
  StoreDst(ip, regs, returned);
  NEXT();
}

fail: Unwind(c, ip, regs);
return -1;
}

}  // namespace

const void* const* HandlerTable() {
  static const void* const* const table = [] {
    const void* const* result = nullptr;
    Run(nullptr, nullptr, nullptr, nullptr, &result);
    return result;
  }();
  return table;
}

namespace {

// Owned copy of an argument from outside: borrowed kinds become objects.
bool TakeArgument(const Slot* arg, Slot* to) {
  int32_t type = arg->type_index;
  if (LIKELY(type < kTVMFFIDLTensorPtr || type > kTVMFFIObjectRValueRef)) {
    Value value = Load(arg);
    Retain(value);
    Store(to, value);
    return true;
  }
  if (type == kTVMFFIDLTensorPtr) {
    Raise("TypeError",
          "a DLTensor pointer cannot be an argument: its memory may go away; pass a Tensor");
    return false;
  }
  TVMFFIAny owned;
  Store(&owned, Value::None());
  if (TVMFFIAnyViewToOwnedAny(arg, &owned) != 0) return false;
  Store(to, LoadResult(&owned));
  return true;
}

}  // namespace

int RunFunction(CallContext* c, const Function* function, Slot* frame, Slot* result) {
  if (LIKELY(!function->is_compiled())) return Run(c, function->entry, frame, result, nullptr);
  if (function->native != nullptr) return RunNative(c, function, frame, result);
  int code = RunCompiled(c, function, frame, result);
  for (uint32_t i = 0; i < function->num_params; ++i) Drop(Load(&frame[i]));
  return code;
}

int Invoke(const Function* function, std::span<const Slot> args, std::span<const Slot> captured,
           Slot* result) {
  CallContext* c = CallContext::Current();
  if (UNLIKELY(c == nullptr)) return -1;
  if (UNLIKELY(args.size() + captured.size() != function->num_params)) {
    return RaiseArity(function, args.size(), captured.size());
  }
  if (c->c_depth == 0 && UNLIKELY(c->stack_bytes != function->program->vm->stack_bytes()) &&
      c->ResizeStack(function->program->vm->stack_bytes()) != 0)
    return -1;
  Slot* frame = c->top + 1;
  if (UNLIKELY(frame + function->num_slots + function->max_scratch > c->limit || IsStackFull(c)))
    return RaiseStackOverflow(function);
  size_t taken = 0;
  for (; taken < args.size(); ++taken) {
    if (UNLIKELY(!TakeArgument(&args[taken], &frame[taken]))) break;
  }
  if (UNLIKELY(taken != args.size())) {
    for (size_t i = 0; i < taken; ++i) Drop(Load(&frame[i]));
    return -1;
  }
  for (size_t i = 0; i < captured.size(); ++i) {
    Value value = Load(&captured[i]);
    Retain(value);
    Store(&frame[args.size() + i], value);
  }
  Slot* saved_top = c->top;
  VirtualMachine* saved_vm = c->vm;
  int32_t saved_threads = c->kernel.num_threads;
  c->vm = function->program->vm;
  c->kernel.num_threads = c->vm->num_threads();
  c->c_depth += 1;
  if (c->c_depth == 1) c->StartDeadline();
  const ThreadPool::Caller caller;
  *LinkOf(frame) = {nullptr, nullptr};
  c->top = frame + function->num_slots;
  int code = LIKELY(!function->program->is_instrumented) ? RunFunction(c, function, frame, result)
                                                         : RunWatched(c, function, frame, result);
  c->c_depth -= 1;
  c->vm = saved_vm;
  c->kernel.num_threads = saved_threads;
  c->top = saved_top;
  return code;
}

}  // namespace relaxvm::vm
