// SPDX-License-Identifier: Apache-2.0
// What an executable is made of, as plain data: function table, constants, memory scopes,
// instruction words. Built by ExecBuilder or Deserialize, proved by Verify, run by vm/.
#pragma once

#include <tvm/ffi/any.h>

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "bytecode/instruction.h"

namespace relaxvm::bytecode {

enum class FuncKind : int32_t {
  kPackedFunc = 0,  // found by name at load: imports, builtins, the global registry
  kVMFunc = 1,      // bytecode
  kVMTIRFunc =
      2,  // native code that works on the register list, found in imports as __vmtir__<name>
};

struct FuncInfo {
  FuncKind kind = FuncKind::kPackedFunc;
  std::string name;
  int64_t start_instr = 0;  // instructions [start_instr, end_instr)
  int64_t end_instr = 0;
  int64_t num_args = -2;  // -2: not known (packed functions)
  int64_t register_file_size = 0;
  std::vector<std::string> param_names;
};

struct ExecutableData {
  std::vector<FuncInfo> func_table;
  std::unordered_map<std::string, int64_t> func_index;  // name -> place in func_table
  std::vector<tvm::ffi::Any> constants;  // Tensor (on the CPU), Shape, String, int, float, DataType
  std::map<int64_t, std::string>
      memory_scopes;                  // constant -> memory scope, where it is not "global"
  std::vector<int64_t> instr_offset;  // first word of each instruction
  std::vector<Word> instr_data;

  // Null when there is no function of that name.
  const FuncInfo* FindFunction(const std::string& name) const;
  // The instruction must exist (built here, or verified).
  Instruction GetInstruction(int64_t index) const;
  // The same without a check, for code that goes over all instructions of a verified function.
  Instruction InstructionAt(int64_t index) const {
    Instruction result;
    size_t start = static_cast<size_t>(instr_offset[static_cast<size_t>(index)]);
    Decode({instr_data.data() + start, instr_data.size() - start}, &result);
    return result;
  }
};

}  // namespace relaxvm::bytecode
