// SPDX-License-Identifier: Apache-2.0
// The verifier: one pass over offsets, one over functions, one over instructions.
#include "bytecode/verify.h"

#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>

#include <algorithm>

#include "support/error.h"

namespace relaxvm::bytecode {
namespace ffi = tvm::ffi;
namespace {

const char* RuleName(VerifyRule rule) {
  switch (rule) {
#define RULE(name, text) \
  case VerifyRule::name: return text;
    RELAXVM_VERIFY_RULES(RULE)
#undef RULE
  }
  return "";
}

class Verifier {
 public:
  Verifier(const ExecutableData& data, const std::string& what) : data_(data), what_(what) {}

  void Run() {
    CheckOffsets();
    CheckMemoryScopes();
    for (const FuncInfo& info : data_.func_table) CheckSignature(info);
    CheckRanges();
    for (const FuncInfo& info : data_.func_table) {
      if (info.kind == FuncKind::kVMFunc) CheckBody(info);
    }
  }

  template <typename... Parts>
  [[noreturn]] void Reject(VerifyRule rule, const Parts&... parts) const {
    Fail(ErrorKind::kValueError, what_, " is invalid (", RuleName(rule), "): ", parts...);
  }

 private:
  void CheckOffsets() {
    const auto& offsets = data_.instr_offset;
    int64_t num_words = static_cast<int64_t>(data_.instr_data.size());
    int64_t expected = 0;
    for (size_t i = 0; i < offsets.size(); ++i) {
      if (offsets[i] != expected || expected >= num_words) {
        Reject(VerifyRule::kOffsets, "instruction ", i, " starts at word ", offsets[i],
               ", expected ", expected, " of ", num_words);
      }
      Instruction insn;
      if (!Decode(std::span<const Word>(data_.instr_data).subspan(expected), &insn)) {
        Reject(VerifyRule::kEncoding, "instruction ", i, " at word ", expected,
               " is not whole or not known");
      }
      expected += static_cast<int64_t>(NumWords(insn));
    }
    if (expected != num_words)
      Reject(VerifyRule::kOffsets, num_words - expected, " words follow the last instruction");
  }

  void CheckMemoryScopes() {
    for (const auto& [constant, scope] : data_.memory_scopes) {
      if (constant < 0 || constant >= NumConstants() ||
          !data_.constants[constant].as<ffi::Tensor>()) {
        Reject(VerifyRule::kMemoryScope, "constant ", constant, " with scope '", scope,
               "' is no tensor");
      }
    }
  }

  void CheckSignature(const FuncInfo& info) {
    if (info.kind == FuncKind::kPackedFunc) return;
    int64_t needed = info.num_args + (info.kind == FuncKind::kVMTIRFunc ? 1 : 0);
    if (info.num_args < 0 || info.num_args > kMaxParams || info.register_file_size < needed ||
        info.register_file_size > kMaxRegisters) {
      Reject(VerifyRule::kSignature, "function ", info.name, " has ", info.num_args,
             " parameters and ", info.register_file_size, " registers");
    }
    if (!info.param_names.empty() &&
        static_cast<int64_t>(info.param_names.size()) != info.num_args) {
      Reject(VerifyRule::kSignature, "function ", info.name, " has ", info.num_args,
             " parameters, but ", info.param_names.size(), " names");
    }
  }

  void CheckRanges() {
    std::vector<const FuncInfo*> functions;
    for (const FuncInfo& info : data_.func_table) {
      if (info.kind != FuncKind::kVMFunc) continue;
      if (info.start_instr < 0 || info.start_instr >= info.end_instr ||
          info.end_instr > NumInstructions()) {
        Reject(VerifyRule::kFunctionRange, "function ", info.name, " has instructions ",
               info.start_instr, " to ", info.end_instr, " of ", NumInstructions());
      }
      functions.push_back(&info);
    }
    std::sort(functions.begin(), functions.end(),
              [](const FuncInfo* a, const FuncInfo* b) { return a->start_instr < b->start_instr; });
    for (size_t i = 1; i < functions.size(); ++i) {
      if (functions[i - 1]->end_instr > functions[i]->start_instr) {
        Reject(VerifyRule::kFunctionRange, "functions ", functions[i - 1]->name, " and ",
               functions[i]->name, " overlap");
      }
    }
  }

  void CheckBody(const FuncInfo& info) {
    // CheckOffsets decoded every instruction.
    for (int64_t i = info.start_instr; i < info.end_instr; ++i) {
      Instruction insn = data_.InstructionAt(i);
      switch (insn.op) {
        case Opcode::kCall: CheckCall(info, i, insn); break;
        case Opcode::kRet: CheckRead(info, i, insn.reg, /*vm_allowed=*/false); break;
        case Opcode::kGoto: CheckJump(info, i, insn.offset, 0); break;
        case Opcode::kIf:
          CheckRead(info, i, insn.reg, /*vm_allowed=*/false);
          CheckJump(info, i, insn.offset, 1);
          break;
      }
    }
    Opcode last = data_.GetInstruction(info.end_instr - 1).op;
    if (last == Opcode::kCall || last == Opcode::kIf) {
      Reject(VerifyRule::kFallThrough, "function ", info.name, " does not end in Ret or Goto");
    }
  }

  void CheckCall(const FuncInfo& info, int64_t at, const Instruction& insn) {
    // A destination that is no register means that the result is discarded.
    if (insn.reg != kVoidRegister && (insn.reg < 0 || insn.reg >= info.register_file_size)) {
      Reject(VerifyRule::kRegister, "function ", info.name, ", instruction ", at,
             " writes register ", insn.reg, " of ", info.register_file_size);
    }
    if (insn.func < 0 || insn.func >= NumFunctions()) {
      Reject(VerifyRule::kFunction, "function ", info.name, ", instruction ", at,
             " calls function ", insn.func, " of ", NumFunctions());
    }
    const FuncInfo& callee = data_.func_table[insn.func];
    if (callee.kind != FuncKind::kPackedFunc &&
        static_cast<int64_t>(insn.num_args()) != callee.num_args) {
      Reject(VerifyRule::kArity, "function ", info.name, ", instruction ", at, " calls ",
             callee.name, " with ", insn.num_args(), " arguments, it takes ", callee.num_args);
    }
    for (size_t i = 0; i < insn.num_args(); ++i) CheckArg(info, at, insn.arg(i));
  }

  void CheckArg(const FuncInfo& info, int64_t at, Arg arg) {
    switch (arg.kind()) {
      case ArgKind::kRegister: CheckRead(info, at, arg.value(), /*vm_allowed=*/true); return;
      case ArgKind::kImmediate: return;
      case ArgKind::kConstIdx:
        if (arg.value() < 0 || arg.value() >= NumConstants()) {
          Reject(VerifyRule::kConstant, "function ", info.name, ", instruction ", at,
                 " reads constant ", arg.value(), " of ", NumConstants());
        }
        return;
      case ArgKind::kFuncIdx:
        if (arg.value() < 0 || arg.value() >= NumFunctions()) {
          Reject(VerifyRule::kFunction, "function ", info.name, ", instruction ", at,
                 " passes function ", arg.value(), " of ", NumFunctions());
        }
        return;
    }
    Reject(VerifyRule::kArgKind, "function ", info.name, ", instruction ", at,
           " has an argument of kind ", static_cast<int>(arg.kind()));
  }

  void CheckRead(const FuncInfo& info, int64_t at, int64_t reg, bool vm_allowed) {
    bool is_special = reg == kVoidRegister || (vm_allowed && reg == kVMRegister);
    if (!is_special && (reg < 0 || reg >= info.register_file_size)) {
      Reject(VerifyRule::kRegister, "function ", info.name, ", instruction ", at,
             " reads register ", reg, " of ", info.register_file_size);
    }
  }

  // `min_offset`: TVM's false branch is never the next instruction, and no jump stays where it is.
  void CheckJump(const FuncInfo& info, int64_t at, int64_t offset, int64_t min_if_offset) {
    int64_t num_instr = info.end_instr - info.start_instr;
    bool in_range = offset > -num_instr && offset < num_instr && at + offset >= info.start_instr &&
                    at + offset < info.end_instr;
    bool moves = min_if_offset > 0 ? offset > min_if_offset : offset != 0;
    if (!in_range || !moves) {
      Reject(VerifyRule::kJump, "function ", info.name, ", instruction ", at, " jumps by ", offset);
    }
  }

  int64_t NumInstructions() const { return static_cast<int64_t>(data_.instr_offset.size()); }
  int64_t NumConstants() const { return static_cast<int64_t>(data_.constants.size()); }
  int64_t NumFunctions() const { return static_cast<int64_t>(data_.func_table.size()); }

  const ExecutableData& data_;
  const std::string& what_;
};

// Whether a constant (or an immediate, as an integer) can be a parameter of this kind.
bool Fits(ParamKind kind, int32_t type_index) {
  switch (kind) {
    case ParamKind::kInt: return type_index == kTVMFFIInt || type_index == kTVMFFIBool;
    case ParamKind::kBool: return type_index == kTVMFFIInt || type_index == kTVMFFIBool;
    case ParamKind::kNumber: return type_index >= kTVMFFIInt && type_index <= kTVMFFIFloat;
    case ParamKind::kStr: return type_index == kTVMFFISmallStr || type_index == kTVMFFIStr;
    case ParamKind::kDType: return type_index == kTVMFFIDataType;
    case ParamKind::kShape: return type_index == kTVMFFIShape;
    case ParamKind::kTensor: return type_index == kTVMFFITensor;
    case ParamKind::kFunc: return type_index == kTVMFFIFunction;
    case ParamKind::kObject:
    case ParamKind::kAny: return true;
    case ParamKind::kCtx:
    case ParamKind::kStorage:
    case ParamKind::kArray: return false;
  }
  return false;
}

}  // namespace

void Verify(const ExecutableData& data, const std::string& what) { Verifier(data, what).Run(); }

void VerifyBuiltinCall(const ExecutableData& data, const BuiltinInfo& builtin,
                       const Instruction& insn, const std::string& what) {
  Verifier verifier(data, what);
  int64_t num_args = static_cast<int64_t>(insn.num_args());
  if (num_args < builtin.min_args || (builtin.max_args >= 0 && num_args > builtin.max_args)) {
    verifier.Reject(VerifyRule::kBuiltin, builtin.name, " is called with ", num_args,
                    " arguments, it is ", builtin.name, builtin.signature);
  }
  for (size_t i = 0; i < insn.num_args(); ++i) {
    Arg arg = insn.arg(i);
    ParamKind kind = builtin.KindOf(i);
    bool is_vm = arg.kind() == ArgKind::kRegister && arg.value() == kVMRegister;
    bool fits = true;
    switch (arg.kind()) {
      case ArgKind::kRegister:
        fits = is_vm == (kind == ParamKind::kCtx) || (is_vm && kind == ParamKind::kAny);
        break;
      case ArgKind::kImmediate: fits = Fits(kind, kTVMFFIInt); break;
      case ArgKind::kConstIdx: fits = Fits(kind, data.constants[arg.value()].type_index()); break;
      case ArgKind::kFuncIdx: fits = kind == ParamKind::kFunc || kind == ParamKind::kAny; break;
    }
    if (!fits) {
      verifier.Reject(VerifyRule::kBuiltin, "argument ", i, " of ", builtin.name, builtin.signature,
                      " cannot be what the call passes");
    }
  }
}

}  // namespace relaxvm::bytecode
