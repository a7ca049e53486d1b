// SPDX-License-Identifier: Apache-2.0
// ExecBuilder: writes an executable function by function.  Used by code generation and from Python.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "bytecode/builtins.h"
#include "bytecode/executable.h"

namespace relaxvm::bytecode {

class ExecBuilder {
 public:
  // Declares a function without a body, so that it can be called before it is written.
  void DeclareFunction(const std::string& name, FuncKind kind);
  // Starts a function of `num_inputs` parameters in registers 0..num_inputs-1.  Ends with
  // EndFunction.  With a `register_file_size` the registers of a VM function stay as they are
  // written; 0 numbers and counts them.
  void BeginFunction(const std::string& name, int64_t num_inputs,
                     std::vector<std::string> param_names = {}, FuncKind kind = FuncKind::kVMFunc,
                     int64_t register_file_size = 0);
  void EndFunction(const std::string& name);

  // The function of that name as an operand; an unknown name becomes a packed function.
  Arg GetFunction(const std::string& name);
  // An integer that fits becomes an immediate; everything else a constant, equal ones stored once.
  Arg ConvertConstant(const tvm::ffi::Any& value);
  // A constant of its own, whatever the pool holds already.
  Arg AddConstant(const tvm::ffi::Any& value);
  // Keeps a constant in `scope` ("global" is the default) once a VM loads it.
  void SetMemoryScope(Arg constant, const std::string& scope);

  void EmitCall(const std::string& func, const std::vector<Arg>& args, int64_t dst);
  void EmitCall(Arg func, const std::vector<Arg>& args, int64_t dst);
  void EmitCall(Builtin builtin, const std::vector<Arg>& args, int64_t dst);
  void EmitRet(Arg result);
  void EmitGoto(int64_t offset);
  void EmitIf(Arg cond, int64_t false_offset);

  // Number of instructions so far, for jump distances; PatchJump sets the offset of a Goto or an
  // If.
  int64_t NumInstructions() const { return static_cast<int64_t>(data_.instr_offset.size()); }
  void PatchJump(int64_t instruction, int64_t offset);

  // The executable with registers numbered in order of their first write, where a function gave no
  // number of registers.  Throws RuntimeError when a register is read that nothing writes, or a
  // declared function has no body.  The builder stays usable.
  ExecutableData Get() const;

 private:
  Arg Append(const tvm::ffi::Any& value, uint64_t hash);
  void EmitRegister(Arg arg);
  void CheckInFunction() const;

  ExecutableData data_;
  std::unordered_map<uint64_t, std::vector<int64_t>> constant_by_hash_;
  int64_t open_function_ = -1;
};

}  // namespace relaxvm::bytecode
