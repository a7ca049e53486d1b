// SPDX-License-Identifier: Apache-2.0
// Emits words, stores equal constants once, renumbers registers.
#include "bytecode/builder.h"

#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/string.h>

#include "bytecode/constants.h"
#include "support/error.h"

namespace relaxvm::bytecode {
namespace ffi = tvm::ffi;

void ExecBuilder::DeclareFunction(const std::string& name, FuncKind kind) {
  auto [it, is_new] = data_.func_index.emplace(name, static_cast<int64_t>(data_.func_table.size()));
  if (is_new) {
    data_.func_table.push_back({kind, name});
  } else if (data_.func_table[it->second].kind != kind) {
    Fail(ErrorKind::kValueError, "function ", name, " is declared with two kinds");
  }
}

void ExecBuilder::BeginFunction(const std::string& name, int64_t num_inputs,
                                std::vector<std::string> param_names, FuncKind kind,
                                int64_t register_file_size) {
  if (open_function_ >= 0) {
    Fail(ErrorKind::kRuntimeError, "function ", name, " begins inside ",
         data_.func_table[open_function_].name);
  }
  if (!param_names.empty() && static_cast<int64_t>(param_names.size()) != num_inputs) {
    Fail(ErrorKind::kValueError, "function ", name, " has ", num_inputs, " inputs, but ",
         param_names.size(), " names");
  }
  if (kind == FuncKind::kPackedFunc)
    Fail(ErrorKind::kValueError, "packed function ", name, " has no body to write");
  // A call that came before the body declared it as packed.
  auto known = data_.func_index.find(name);
  if (known == data_.func_index.end()) {
    DeclareFunction(name, kind);
    known = data_.func_index.find(name);
  }
  int64_t index = known->second;
  FuncInfo& info = data_.func_table[index];
  if (info.kind == FuncKind::kPackedFunc) info.kind = kind;
  if (info.kind != kind)
    Fail(ErrorKind::kValueError, "function ", name, " is declared with two kinds");
  if (info.num_args != -2) Fail(ErrorKind::kValueError, "function ", name, " is already defined");
  info.num_args = num_inputs;
  info.register_file_size = register_file_size;
  info.param_names = std::move(param_names);
  info.start_instr = info.end_instr = kind == FuncKind::kVMFunc ? NumInstructions() : 0;
  open_function_ = index;
}

void ExecBuilder::EndFunction(const std::string& name) {
  if (open_function_ < 0 || data_.func_table[open_function_].name != name) {
    Fail(ErrorKind::kRuntimeError, "function ", name, " is not the one being written");
  }
  FuncInfo& info = data_.func_table[open_function_];
  if (info.kind == FuncKind::kVMFunc) info.end_instr = NumInstructions();
  open_function_ = -1;
}

Arg ExecBuilder::GetFunction(const std::string& name) {
  auto it = data_.func_index.find(name);
  if (it == data_.func_index.end()) {
    DeclareFunction(name, FuncKind::kPackedFunc);
    it = data_.func_index.find(name);
  }
  return Arg::Func(it->second);
}

Arg ExecBuilder::ConvertConstant(const ffi::Any& value) {
  if (value.type_index() == kTVMFFIInt || value.type_index() == kTVMFFIBool) {
    int64_t integer = value.cast<int64_t>();
    if (Arg::FitsImmediate(integer)) return Arg::Immediate(integer);
  }
  CheckConstant(value);
  uint64_t hash = HashConstant(value);
  for (int64_t place : constant_by_hash_[hash]) {
    if (ConstantsEqual(data_.constants[place], value)) return Arg::Const(place);
  }
  return Append(value, hash);
}

Arg ExecBuilder::AddConstant(const ffi::Any& value) {
  CheckConstant(value);
  return Append(value, HashConstant(value));
}

Arg ExecBuilder::Append(const ffi::Any& value, uint64_t hash) {
  Arg result = Arg::Const(static_cast<int64_t>(data_.constants.size()));
  constant_by_hash_[hash].push_back(result.value());
  data_.constants.push_back(value);
  return result;
}

void ExecBuilder::SetMemoryScope(Arg constant, const std::string& scope) {
  if (constant.kind() != ArgKind::kConstIdx || constant.value() < 0 ||
      static_cast<size_t>(constant.value()) >= data_.constants.size()) {
    Fail(ErrorKind::kValueError, "a memory scope needs a constant of the pool");
  }
  if (scope != "global") data_.memory_scopes[constant.value()] = scope;
}

void ExecBuilder::CheckInFunction() const {
  if (open_function_ < 0)
    Fail(ErrorKind::kRuntimeError, "an instruction needs a function: call function() first");
}

void ExecBuilder::EmitCall(const std::string& func, const std::vector<Arg>& args, int64_t dst) {
  EmitCall(GetFunction(func), args, dst);
}

void ExecBuilder::EmitCall(Builtin builtin, const std::vector<Arg>& args, int64_t dst) {
  EmitCall(std::string(GetBuiltin(builtin).name), args, dst);
}

void ExecBuilder::EmitCall(Arg func, const std::vector<Arg>& args, int64_t dst) {
  CheckInFunction();
  if (func.kind() != ArgKind::kFuncIdx)
    Fail(ErrorKind::kValueError, "a call needs a function operand");
  data_.instr_offset.push_back(static_cast<int64_t>(data_.instr_data.size()));
  data_.instr_data.insert(data_.instr_data.end(), {static_cast<Word>(Opcode::kCall), dst,
                                                   func.value(), static_cast<Word>(args.size())});
  for (Arg arg : args) data_.instr_data.push_back(arg.word());
}

void ExecBuilder::EmitRegister(Arg arg) {
  if (arg.kind() != ArgKind::kRegister)
    Fail(ErrorKind::kValueError, "the operand must be a register");
  data_.instr_data.push_back(arg.value());
}

void ExecBuilder::EmitRet(Arg result) {
  CheckInFunction();
  data_.instr_offset.push_back(static_cast<int64_t>(data_.instr_data.size()));
  data_.instr_data.push_back(static_cast<Word>(Opcode::kRet));
  EmitRegister(result);
}

void ExecBuilder::EmitGoto(int64_t offset) {
  CheckInFunction();
  data_.instr_offset.push_back(static_cast<int64_t>(data_.instr_data.size()));
  data_.instr_data.insert(data_.instr_data.end(), {static_cast<Word>(Opcode::kGoto), offset});
}

void ExecBuilder::EmitIf(Arg cond, int64_t false_offset) {
  CheckInFunction();
  data_.instr_offset.push_back(static_cast<int64_t>(data_.instr_data.size()));
  data_.instr_data.push_back(static_cast<Word>(Opcode::kIf));
  EmitRegister(cond);
  data_.instr_data.push_back(false_offset);
}

void ExecBuilder::PatchJump(int64_t instruction, int64_t offset) {
  int64_t start = data_.instr_offset.at(instruction);
  Opcode op = static_cast<Opcode>(data_.instr_data[start]);
  RELAXVM_CHECK(op == Opcode::kGoto || op == Opcode::kIf)
      << "instruction " << instruction << " is no jump";
  data_.instr_data[start + (op == Opcode::kGoto ? 1 : 2)] = offset;
}

namespace {

// Numbers the registers of one function in order of their first write, after the parameters.
class RegisterNumbering {
 public:
  RegisterNumbering(ExecutableData* data, FuncInfo* info)
      : data_(data), info_(info), next_(info->num_args) {}

  void Run() {
    for (int64_t i = info_->start_instr; i < info_->end_instr; ++i) Rename(i);
    info_->register_file_size = next_;
  }

 private:
  static bool IsPlain(int64_t reg) { return reg < kBeginSpecialRegister; }

  int64_t Define(int64_t reg) {
    if (reg < 0) Fail(ErrorKind::kRuntimeError, "function ", info_->name, " writes register ", reg);
    if (!IsPlain(reg) || reg < info_->num_args) return reg;
    auto [it, is_new] = new_index_.emplace(reg, next_);
    if (is_new) ++next_;
    return it->second;
  }

  int64_t Lookup(int64_t reg) const {
    if (!IsPlain(reg) || (reg >= 0 && reg < info_->num_args)) return reg;
    auto it = new_index_.find(reg);
    if (it == new_index_.end()) {
      Fail(ErrorKind::kRuntimeError, "function ", info_->name, " reads register ", reg,
           ", which nothing writes before");
    }
    return it->second;
  }

  void Rename(int64_t index) {
    Word* words = &data_->instr_data[data_->instr_offset[index]];
    Instruction insn = data_->GetInstruction(index);
    switch (insn.op) {
      case Opcode::kCall:
        for (size_t i = 0; i < insn.num_args(); ++i) {
          Arg arg = insn.arg(i);
          if (arg.kind() == ArgKind::kRegister)
            words[4 + i] = Arg::Register(Lookup(arg.value())).word();
        }
        words[1] = Define(words[1]);
        break;
      case Opcode::kRet:
      case Opcode::kIf: words[1] = Lookup(words[1]); break;
      case Opcode::kGoto: break;
    }
  }

  ExecutableData* data_;
  FuncInfo* info_;
  int64_t next_;
  std::unordered_map<int64_t, int64_t> new_index_;
};

}  // namespace

ExecutableData ExecBuilder::Get() const {
  if (open_function_ >= 0) {
    Fail(ErrorKind::kRuntimeError, "function ", data_.func_table[open_function_].name,
         " is not finished");
  }
  ExecutableData result = data_;
  for (FuncInfo& info : result.func_table) {
    if (info.kind == FuncKind::kPackedFunc) continue;
    if (info.num_args == -2)
      Fail(ErrorKind::kRuntimeError, "function ", info.name, " is declared, but has no body");
    if (info.kind == FuncKind::kVMFunc && info.register_file_size == 0)
      RegisterNumbering(&result, &info).Run();
  }
  return result;
}

}  // namespace relaxvm::bytecode
