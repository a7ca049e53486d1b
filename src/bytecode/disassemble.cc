// SPDX-License-Identifier: Apache-2.0
// Prints executables; works on anything that Deserialize accepts, verified or not.
#include "bytecode/disassemble.h"

#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/string.h>

#include <cstdio>
#include <iomanip>
#include <sstream>

#include "bytecode/constants.h"
#include "support/dtype.h"
#include "support/error.h"

namespace relaxvm::bytecode {
namespace ffi = tvm::ffi;
namespace {

std::string FunctionName(const ExecutableData& data, int64_t index) {
  if (index < 0 || static_cast<size_t>(index) >= data.func_table.size()) {
    return "unknown_func_index(" + std::to_string(index) + ")";
  }
  return data.func_table[index].name;
}

std::string RegisterText(int64_t reg) {
  if (reg == kVoidRegister) return "%void";
  if (reg == kVMRegister) return "%vm";
  return "%" + std::to_string(reg);
}

std::string ArgText(const ExecutableData& data, Arg arg) {
  switch (arg.kind()) {
    case ArgKind::kRegister: return RegisterText(arg.value());
    case ArgKind::kImmediate: return "i" + std::to_string(arg.value());
    case ArgKind::kConstIdx: return "c[" + std::to_string(arg.value()) + "]";
    case ArgKind::kFuncIdx: return "f[" + FunctionName(data, arg.value()) + "]";
  }
  return "unknown_argument";
}

void PrintInstruction(std::ostream& os, const ExecutableData& data, const Instruction& insn) {
  os << "  " << std::left;
  switch (insn.op) {
    case Opcode::kCall: {
      std::string args;
      for (size_t i = 0; i < insn.num_args(); ++i)
        args += (i ? ", " : "") + ArgText(data, insn.arg(i));
      os << std::setw(6) << "call" << std::setw(16) << FunctionName(data, insn.func)
         << " in: " << std::setw(12) << args << " dst: " << RegisterText(insn.reg);
      break;
    }
    case Opcode::kRet: os << std::setw(6) << "ret" << RegisterText(insn.reg); break;
    case Opcode::kGoto: os << std::setw(6) << "goto" << insn.offset; break;
    case Opcode::kIf:
      os << std::setw(6) << "If" << RegisterText(insn.reg) << ", " << insn.offset;
      break;
  }
  os << "\n";
}

// Python literal of a string.
std::string Quote(const std::string& text) {
  std::ostringstream os;
  os << '"';
  for (unsigned char c : text) {
    if (c == '"' || c == '\\') {
      os << '\\' << c;
    } else if (c < 0x20 || c >= 0x7f) {
      os << "\\x" << std::hex << std::setw(2) << std::setfill('0') << static_cast<int>(c)
         << std::dec;
    } else {
      os << c;
    }
  }
  os << '"';
  return os.str();
}

std::string PythonConstant(const ffi::Any& value, int64_t index) {
  if (value.as<ffi::Tensor>()) return "make_constant(" + std::to_string(index) + ")";
  std::ostringstream os;
  if (auto shape = value.as<ffi::Shape>()) {
    os << "relaxvm.runtime.ShapeTuple([";
    for (size_t i = 0; i < shape->size(); ++i) os << (i ? ", " : "") << (*shape)[i];
    os << "])";
  } else if (auto text = value.as<ffi::String>()) {
    os << Quote(std::string(*text));
  } else if (auto dtype = value.as<DLDataType>()) {
    os << "relaxvm.DataType(" << Quote(DTypeName(*dtype)) << ")";
  } else if (auto number = value.as<double>()) {
    char hex[40];  // exact
    std::snprintf(hex, sizeof(hex), "%a", *number);
    os << "float.fromhex(" << Quote(hex) << ")";
  } else {
    os << value.cast<int64_t>();
  }
  return os.str();
}

std::string PythonArg(const ExecutableData& data, Arg arg) {
  switch (arg.kind()) {
    case ArgKind::kRegister:
      if (arg.value() == kVoidRegister) return "ib.void_arg()";
      if (arg.value() == kVMRegister) return "ib.vm_state()";
      return "ib.r(" + std::to_string(arg.value()) + ")";
    case ArgKind::kImmediate: return "ib.imm(" + std::to_string(arg.value()) + ")";
    case ArgKind::kConstIdx: return "c[" + std::to_string(arg.value()) + "]";
    case ArgKind::kFuncIdx: return "ib.f(" + Quote(FunctionName(data, arg.value())) + ")";
  }
  return "None";
}

void PythonInstruction(std::ostream& os, const ExecutableData& data, const Instruction& insn) {
  os << "    ";
  switch (insn.op) {
    case Opcode::kCall:
      os << "ib.emit_call(" << Quote(FunctionName(data, insn.func)) << ", args=[";
      for (size_t i = 0; i < insn.num_args(); ++i)
        os << (i ? ", " : "") << PythonArg(data, insn.arg(i));
      os << "]";
      if (insn.reg != kVoidRegister) os << ", dst=ib.r(" << insn.reg << ")";
      os << ")";
      break;
    case Opcode::kRet:
      os << "ib.emit_ret(" << PythonArg(data, Arg::Register(insn.reg)) << ")";
      break;
    case Opcode::kGoto: os << "ib.emit_goto(" << insn.offset << ")"; break;
    case Opcode::kIf: os << "ib.emit_if(ib.r(" << insn.reg << "), " << insn.offset << ")"; break;
  }
  os << "\n";
}

const char* KindName(FuncKind kind) {
  switch (kind) {
    case FuncKind::kPackedFunc: return "PACKED_FUNC";
    case FuncKind::kVMFunc: return "VM_FUNC";
    case FuncKind::kVMTIRFunc: return "VM_TIR_FUNC";
  }
  return "";
}

void PythonFunction(std::ostream& os, const ExecutableData& data, const FuncInfo& info) {
  os << "with ib.function(" << Quote(info.name) << ", num_inputs=" << info.num_args;
  if (!info.param_names.empty()) {
    os << ", param_names=[";
    for (size_t i = 0; i < info.param_names.size(); ++i)
      os << (i ? ", " : "") << Quote(info.param_names[i]);
    os << "]";
  }
  if (info.kind == FuncKind::kVMTIRFunc) {
    os << ", kind=relaxvm.relax.VMFuncKind.VM_TIR_FUNC, register_file_size="
       << info.register_file_size;
  }
  os << "):\n";
  for (int64_t i = info.start_instr; i < info.end_instr; ++i)
    PythonInstruction(os, data, data.GetInstruction(i));
  if (info.start_instr == info.end_instr) os << "    pass\n";
}

}  // namespace

std::string AsText(const ExecutableData& data) {
  std::ostringstream os;
  for (const FuncInfo& info : data.func_table) {
    os << "@" << info.name;
    switch (info.kind) {
      case FuncKind::kPackedFunc: os << " packed_func;\n\n"; continue;
      case FuncKind::kVMTIRFunc:
        os << " num_inputs=" << info.num_args << " vm_tir_func;\n\n";
        continue;
      case FuncKind::kVMFunc: break;
    }
    os << ":\n";
    for (int64_t i = info.start_instr; i < info.end_instr; ++i)
      PrintInstruction(os, data, data.GetInstruction(i));
    os << "\n";
  }
  return os.str();
}

std::string AsPython(const ExecutableData& data) {
  std::ostringstream os;
  os << "ib = relaxvm.relax.ExecBuilder()\n";
  // In table order, so that function indices agree.
  for (const FuncInfo& info : data.func_table) {
    os << "ib.declare_function(" << Quote(info.name) << ", relaxvm.relax.VMFuncKind."
       << KindName(info.kind) << ")\n";
  }
  os << "c = [\n";
  for (size_t i = 0; i < data.constants.size(); ++i) {
    os << "    ib.convert_constant(" << PythonConstant(data.constants[i], static_cast<int64_t>(i))
       << "),\n";
  }
  os << "]\n";
  for (const FuncInfo& info : data.func_table) {
    if (info.kind != FuncKind::kPackedFunc) PythonFunction(os, data, info);
  }
  return os.str();
}

std::string Stats(const ExecutableData& data) {
  std::ostringstream os;
  std::string constants, globals, packed;
  uint64_t constant_bytes = 0;
  for (const ffi::Any& value : data.constants) {
    constants += (constants.empty() ? "" : ", ") + DescribeConstant(value);
    if (auto tensor = value.as<ffi::Tensor>())
      constant_bytes += SizeInBytes(tensor->dtype(), tensor->numel());
  }
  int64_t num_globals = 0, num_packed = 0;
  for (const FuncInfo& info : data.func_table) {
    bool is_packed = info.kind == FuncKind::kPackedFunc;
    std::string& list = is_packed ? packed : globals;
    (is_packed ? num_packed : num_globals) += 1;
    list += (list.empty() ? "" : ", ") + info.name;
    if (info.kind == FuncKind::kVMFunc)
      list += " (" + std::to_string(info.end_instr - info.start_instr) + " instructions)";
    if (info.kind == FuncKind::kVMTIRFunc) list += " (compiled)";
  }
  os << "Relax VM executable statistics:\n";
  os << "  Constants (#" << data.constants.size() << ", " << constant_bytes << " bytes): ["
     << constants << "]\n";
  os << "  Globals (#" << num_globals << "): [" << globals << "]\n";
  os << "  Packed functions (#" << num_packed << "): [" << packed << "]\n";
  os << "  Instructions (#" << data.instr_offset.size() << ", " << data.instr_data.size()
     << " words)\n";
  return os.str();
}

}  // namespace relaxvm::bytecode
