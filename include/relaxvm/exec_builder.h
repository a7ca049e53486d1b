// SPDX-License-Identifier: Apache-2.0
// Writing an executable by hand, instruction by instruction.  Part of librelaxvm_runtime.
//
//   relaxvm::ExecBuilder b;
//   b.BeginFunction("main", 1);
//   b.EmitCall("my.function", {b.R(0), b.Imm(2)}, b.R(1));
//   b.EmitRet(b.R(1));
//   b.EndFunction();
//   relaxvm::VirtualMachine vm(b.Get());
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "relaxvm/executable.h"

namespace relaxvm {

// Throws tvm::ffi::Error at mistakes; Get proves the whole before it returns it.
class RELAXVM_PUBLIC ExecBuilder {
 public:
  // An encoded argument word.
  struct Operand {
    int64_t word;
  };

  ExecBuilder();

  static Operand R(int64_t index);     // a register
  static Operand Imm(int64_t value);   // an integer of at most 56 bits
  static Operand Void();               // no value, or no destination
  static Operand VM();                 // the machine, which builtins take first
  Operand F(const std::string& name);  // a function as a value
  // A tensor on the CPU, shape, string, number or dtype; equal ones are stored once, and small
  // integers become immediates.
  Operand Constant(const tvm::ffi::Any& value);

  // Parameters are registers 0 to num_inputs - 1.
  void BeginFunction(const std::string& name, int64_t num_inputs,
                     const std::vector<std::string>& param_names = {});
  void EndFunction();
  // Calls a function of the executable, of an import, a builtin or a global function.
  void EmitCall(const std::string& name, const std::vector<Operand>& args, Operand dst = Void());
  void EmitRet(Operand result);
  // Jumps count instructions, from the jump itself.
  void EmitGoto(int64_t offset);
  void EmitIf(Operand cond, int64_t false_offset);

  // The builder can go on.
  Executable Get() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace relaxvm
