// SPDX-License-Identifier: Apache-2.0
// A program as the interpreter runs it: decoded once, bound once, immutable, shared by all threads.
#pragma once

#include <tvm/ffi/function.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bytecode/builtins.h"
#include "bytecode/executable.h"
#include "target/native_abi.h"
#include "vm/value.h"

namespace relaxvm::vm {

struct CallContext;
struct Program;
class VirtualMachine;

// What implements a builtin.  0, or -1 after setting tvm-ffi's raised error.  `out` holds None
// before the call.
using BuiltinFunction = int (*)(CallContext* context, const Slot* args, int32_t num_args,
                                Slot* out);

// Operations of the decoded stream.  Each is a label of the interpreter.
#define RELAXVM_VM_OPS(OP)                                                                       \
  OP(kCallPacked)        /* R[dst] := function(args)                                          */ \
  OP(kCallBuiltin)       /* R[dst] := builtin(args)                                           */ \
  OP(kCallKernel)        /* kernel(args); R[dst] := None                                      */ \
  OP(kCallKernelDyn)     /* the same; the last argument is a shape that supplies the scalars  */ \
  OP(kCallVM)            /* enters a VM function                                              */ \
  OP(kTailCallVM)        /* enters a VM function in place of this one                         */ \
  OP(kCallTir)           /* runs a compiled Relax function                                    */ \
  OP(kInvokeClosure)     /* enters the closure in args[0], or calls it when it is foreign     */ \
  OP(kTailInvokeClosure) /* the same in place of this function                                */ \
  OP(kMakeFunc)          /* R[dst] := closure of a VM function, nothing captured              */ \
  OP(kNull)              /* R[dst] := None                                                    */ \
  OP(kCopy)              /* R[dst] := arg, counted                                            */ \
  OP(kMove)              /* R[dst] := arg, taken over                                         */ \
  OP(kReadCond)          /* R[dst] := truth of arg                                            */ \
  OP(kDrop)              /* frees registers                                                   */ \
  OP(kGoto)                                                                                      \
  OP(kGotoBack)         /* Goto to an earlier place: polls for interrupts                    */  \
  OP(kIf)               /* if arg (int or bool) is zero then goto                            */  \
  OP(kIfCond)           /* ReadCond and If in one                                            */  \
  OP(kRet)              /* return arg, taken over                                            */  \
  OP(kRetConst)         /* return a constant                                                 */  \
  OP(kInstrumented)     /* any call, between two calls of the instrument                     */  \
  OP(kInstrumentedTail) /* kTailCallVM after a call of the instrument                  */

enum class Op : uint32_t {
#define OP(name) name,
  RELAXVM_VM_OPS(OP)
#undef OP
};

struct Function;

// One instruction: this header, `num_args` argument words, `num_drops` register offsets, padding to
// 16 bytes, then the constants that arguments refer to. Argument word: byte offset, a multiple of
// 16, from the registers or (kArgConst) from the instruction.
struct Insn {
  const void* handler;  // label address, or Op in builds without computed goto
  union {
    TVMFFISafeCallType safe_call;      // kCallPacked
    BuiltinFunction builtin;           // kCallBuiltin
    const RelaxvmKernelEntry* kernel;  // kCallKernel, kCallKernelDyn
    const Function* function;          // kCallVM, kTailCallVM, kCallTir, kMakeFunc
    int64_t jump;                      // bytes to the target
  };
  void* self;    // kCallPacked: the function's cell
  uint32_t dst;  // byte offset of the register
  uint32_t num_args;
  uint32_t length;  // bytes of the whole instruction
  uint32_t num_drops;
  uint32_t flags;
  uint32_t index;       // place in the function's LowInsn list, for unwinding
  uint32_t aux;         // kCallKernel: number of tensors.  kInstrumented: the wrapped Op.
  uint32_t func_index;  // callee in the executable's function table, for names
  uint32_t words[];     // NOLINT

  const uint32_t* args() const { return words; }
  const uint32_t* drops() const { return words + num_args; }
};
static_assert(sizeof(Insn) == 56);

enum ArgFlag : uint32_t { kArgConst = 1, kArgMove = 2, kArgFloat = 4, kArgFlags = 15 };
enum InsnFlag : uint32_t { kDiscardResult = 1, kAllConst = 2, kTailFlag = 4, kDynamicKernel = 8 };

// Instructions [from, to) at whose start the register holds an owned value.
struct LiveRange {
  uint32_t slot;
  uint32_t from;
  uint32_t to;
};

struct Function {
  const Insn* entry = nullptr;
  uint32_t num_params = 0;
  uint32_t num_slots = 0;    // registers of a frame
  uint32_t max_scratch = 0;  // argument slots that its calls need beyond the registers
  int64_t func_index = 0;    // in the executable's function table
  const bytecode::FuncInfo* info = nullptr;
  const Program* program = nullptr;
  // kVMTIRFunc: our own native code, or a function that takes lists of registers, constants and
  // functions.
  RelaxvmNative native = nullptr;
  tvm::ffi::Function compiled{nullptr};

  struct alignas(16) Unit {
    uint64_t words[2];
  };
  std::unique_ptr<Unit[]> code;
  uint32_t num_units = 0;
  std::vector<LiveRange> live_ranges;
  std::vector<uint32_t> source_index;  // LowInsn -> instruction of the executable
  bool is_compiled() const { return info->kind == bytecode::FuncKind::kVMTIRFunc; }
};

struct Program {
  const bytecode::ExecutableData* executable = nullptr;
  VirtualMachine* vm = nullptr;
  bool is_instrumented = false;
  std::vector<std::unique_ptr<Function>>
      functions;                         // by function table index; null for packed functions
  std::vector<tvm::ffi::Any> constants;  // on the VM's devices
  std::vector<tvm::ffi::Any> func_pool;  // what f[...] stands for, where it is no VM function
  // What native code sees of all this, when there is any.
  std::vector<RelaxvmNativeCallee> callees;
  RelaxvmNativeEnv env{};
};

}  // namespace relaxvm::vm
