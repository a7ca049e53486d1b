// SPDX-License-Identifier: Apache-2.0
// Look-ups in an executable.
#include "bytecode/executable.h"

#include "support/error.h"

namespace relaxvm::bytecode {

const FuncInfo* ExecutableData::FindFunction(const std::string& name) const {
  auto it = func_index.find(name);
  return it == func_index.end() ? nullptr : &func_table[it->second];
}

Instruction ExecutableData::GetInstruction(int64_t index) const {
  RELAXVM_CHECK(index >= 0 && static_cast<size_t>(index) < instr_offset.size())
      << "instruction " << index;
  size_t start = static_cast<size_t>(instr_offset[index]);
  RELAXVM_CHECK(start <= instr_data.size()) << "instruction " << index << " starts after the code";
  Instruction result;
  RELAXVM_CHECK(Decode(std::span<const Word>(instr_data).subspan(start), &result))
      << "instruction " << index;
  return result;
}

}  // namespace relaxvm::bytecode
