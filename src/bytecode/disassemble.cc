// SPDX-License-Identifier: Apache-2.0
// Prints executables; works on anything that Deserialize accepts, verified or not.
#include "bytecode/disassemble.h"

#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/base64.h>
#include <tvm/ffi/string.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iomanip>
#include <sstream>
#include <vector>

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

// Appends a code point of a Python string literal.
void AppendCodePoint(std::ostream& os, uint32_t c) {
  char text[16];
  if (c == '"' || c == '\\') {
    os << '\\' << static_cast<char>(c);
  } else if (c >= 0x20 && c < 0x7f) {
    os << static_cast<char>(c);
  } else {
    std::snprintf(text, sizeof(text),
                  c < 0x100     ? "\\x%02x"
                  : c < 0x10000 ? "\\u%04x"
                                : "\\U%08x",
                  c);
    os << text;
  }
}

// The code point at `text[*at]`, which moves behind it.  A byte that is no UTF-8 becomes the
// surrogate that Python's "surrogateescape" writes for it.
uint32_t NextCodePoint(const std::string& text, size_t* at) {
  auto byte = [&](size_t i) -> uint32_t {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
  };
  uint32_t first = byte(*at);
  size_t length = first < 0x80 ? 1 : first >> 5 == 6 ? 2 : first >> 4 == 14 ? 3 : 4;
  uint32_t c = length == 1 ? first : first & (0x7f >> length);
  bool valid = length < 4 || first >> 3 == 30;
  for (size_t i = 1; i < length; ++i) {
    valid = valid && byte(*at + i) >> 6 == 2;
    c = c << 6 | (byte(*at + i) & 0x3f);
  }
  constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (!valid || c < kSmallest[length] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) {
    *at += 1;
    return 0xdc00 + first;
  }
  *at += length;
  return c;
}

// Python literal of a string.
std::string Quote(const std::string& text) {
  std::ostringstream os;
  os << '"';
  for (size_t at = 0; at < text.size();) AppendCodePoint(os, NextCodePoint(text, &at));
  os << '"';
  return os.str();
}

// Base 64 in lines that fit a page, as adjacent literals.
std::string QuoteBytes(const char* data, size_t num_bytes) {
  constexpr size_t kLineChars = 88;
  const std::string text(ffi::Base64Encode(TVMFFIByteArray{data, num_bytes}));
  if (text.size() <= kLineChars) return "\"" + text + "\"";
  std::string result;
  for (size_t at = 0; at < text.size(); at += kLineChars)
    result += "\n        \"" + text.substr(at, kLineChars) + "\"";
  return result;
}

std::string PythonShape(ffi::ShapeView shape) {
  std::string text = "(";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + (shape.size() == 1 ? ",)" : ")");
}

// A call that appends the constant to the pool.
std::string PythonConstant(const ffi::Any& value) {
  if (auto tensor = value.as<ffi::Tensor>()) {
    const char* data = static_cast<const char*>(tensor->data_ptr()) + tensor->byte_offset();
    auto num_bytes = static_cast<size_t>(SizeInBytes(tensor->dtype(), tensor->numel()));
    return "ib.add_tensor(" + Quote(DTypeName(tensor->dtype())) + ", " +
           PythonShape(tensor->shape()) + ", " + QuoteBytes(data, num_bytes) + ")";
  }
  std::ostringstream os;
  os << "ib.add_constant(";
  if (auto shape = value.as<ffi::Shape>()) {
    os << "relaxvm.runtime.ShapeTuple(" << PythonShape({shape->data(), shape->size()}) << ")";
  } else if (auto text = value.as<ffi::String>()) {
    os << Quote(std::string(*text));
  } else if (auto dtype = value.as<DLDataType>()) {
    os << "relaxvm.DataType(" << Quote(DTypeName(*dtype)) << ")";
  } else if (auto number = value.as<double>()) {
    uint64_t bits;
    std::memcpy(&bits, &*number, sizeof(bits));
    char text[64];  // exact; a NaN has no other literal
    std::snprintf(text, sizeof(text), "struct.unpack(\"<d\", bytes.fromhex(\"%016llx\")[::-1])[0]",
                  static_cast<unsigned long long>(bits));
    if (*number == *number) std::snprintf(text, sizeof(text), "float.fromhex(\"%a\")", *number);
    os << text;
  } else {
    os << value.cast<int64_t>();
  }
  os << ")";
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
  if (info.kind == FuncKind::kVMTIRFunc) os << ", kind=relaxvm.relax.VMFuncKind.VM_TIR_FUNC";
  os << ", register_file_size=" << info.register_file_size << "):\n";
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
  os << "import struct\n\nimport relaxvm\n\nib = relaxvm.relax.ExecBuilder()\n";
  // In table order, so that function indices agree.
  for (const FuncInfo& info : data.func_table) {
    os << "ib.declare_function(" << Quote(info.name) << ", relaxvm.relax.VMFuncKind."
       << KindName(info.kind) << ")\n";
  }
  os << "c = [\n";
  for (const ffi::Any& constant : data.constants) os << "    " << PythonConstant(constant) << ",\n";
  os << "]\n";
  for (const auto& [constant, scope] : data.memory_scopes)
    os << "ib.set_memory_scope(c[" << constant << "], " << Quote(scope) << ")\n";
  // In code order, so that instructions lie where they were.
  std::vector<const FuncInfo*> functions;
  for (const FuncInfo& info : data.func_table) {
    if (info.kind != FuncKind::kPackedFunc) functions.push_back(&info);
  }
  std::stable_sort(functions.begin(), functions.end(), [](const FuncInfo* a, const FuncInfo* b) {
    return a->start_instr < b->start_instr;
  });
  for (const FuncInfo* info : functions) PythonFunction(os, data, *info);
  os << "ex = ib.get()\n";
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
