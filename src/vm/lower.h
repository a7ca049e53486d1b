// SPDX-License-Identifier: Apache-2.0
// First half of loading: a function's words become a list of simple operations with every callee
// bound, jumps as indices, tail calls and fused branches recognised.  Registers are still the
// file's.
#pragma once

#include <vector>

#include "vm/program.h"

namespace relaxvm::vm {

struct LowOperand {
  uint32_t index = 0;  // register, or place in LowFunction::constants
  bool is_const = false;
  bool is_float = false;     // a float scalar of a kernel
  bool is_last_use = false;  // set by liveness
};

struct LowInsn {
  Op op = Op::kRet;
  int32_t dst = -1;        // -1: result discarded
  uint32_t first_arg = 0;  // in LowFunction::operands
  uint32_t num_args = 0;
  uint32_t target = 0;  // jumps: LowInsn index.  Kernels: place in the function table
  uint32_t source = 0;  // instruction of the executable
  uint32_t aux = 0;
  uint32_t func_index = 0;  // of the function that the instruction names
};
static_assert(sizeof(LowInsn) == 32);

// What a constant of a LowFunction stands for, in native code that has no such constants.
struct LowOrigin {
  bytecode::Arg arg;       // kVMRegister: the VM itself; kVoidRegister: None
  bool is_module = false;  // the VM as functions outside of it take it
};

struct LowFunction {
  const bytecode::FuncInfo* info = nullptr;
  uint32_t num_registers = 0;  // dense: registers that the function mentions, parameters first
  std::vector<LowInsn> insns;
  std::vector<LowOperand> operands;
  std::vector<Slot> constants;     // borrowed from the program
  std::vector<LowOrigin> origins;  // of the constants; LowerFor::kNativeCode

  LowOperand* args(const LowInsn& insn) { return operands.data() + insn.first_arg; }
  const LowOperand* args(const LowInsn& insn) const { return operands.data() + insn.first_arg; }
};

// Memory that loading one function leaves to the next: most of what loading costs is memory that it
// touches for the first time.  What it holds between functions means nothing.
struct LoadScratch {
  std::vector<LowInsn> insns;
  std::vector<LowOperand> operands;
  std::vector<Slot> constants;
  std::vector<uint32_t> place, dense_table, start_of;  // Lower, Emitter
  std::vector<uint8_t> is_leader;                      // ComputeLiveness
  std::vector<uint32_t> block_of, seen_in, live_end, first, last, order, ending_at, next;  // too

  size_t NumBytes() const;
};

inline bool IsTail(Op op) {
  return op == Op::kTailCallVM || op == Op::kTailInvokeClosure || op == Op::kInstrumentedTail;
}
inline bool IsBranch(Op op) { return op == Op::kIf || op == Op::kIfCond; }
// Whether control never goes on to the next operation.
inline bool EndsFlow(Op op) {
  return op == Op::kGoto || op == Op::kGotoBack || op == Op::kRet || IsTail(op);
}

// What a function table entry is bound to.
struct Binding {
  enum class Kind : uint8_t {
    kUnbound,
    kVM,
    kCompiled,
    kKernel,
    kBuiltin,
    kPacked
  } kind = Kind::kUnbound;
  const RelaxvmKernelEntry* kernel = nullptr;
  bytecode::Builtin builtin{};
  const tvm::ffi::FunctionObj* packed =
      nullptr;  // also of kernels and builtins: for use as a value
};

enum class LowerFor : uint8_t {
  kInterpreter,
  kNativeCode,  // notes where constants come from; functions need not exist yet
};

// Throws ValueError when a call does not fit its callee.  GiveBack returns what the function took
// of `scratch`.
LowFunction Lower(const Program& program, const std::vector<Binding>& bindings,
                  const bytecode::FuncInfo& info, const std::string& what, LoadScratch* scratch,
                  LowerFor purpose = LowerFor::kInterpreter);
void GiveBack(LowFunction function, LoadScratch* scratch);

}  // namespace relaxvm::vm
