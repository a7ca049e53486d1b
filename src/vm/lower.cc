// SPDX-License-Identifier: Apache-2.0
// Chooses the operation of each call, moves function operands into registers, follows results to
// Ret for tail calls.
#include "vm/lower.h"

#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <unordered_map>

#include "bytecode/verify.h"
#include "support/error.h"
#include "vm/virtual_machine.h"

namespace relaxvm::vm {
namespace ffi = tvm::ffi;
using bytecode::Arg;
using bytecode::ArgKind;
using bytecode::Builtin;
using bytecode::FuncInfo;
using bytecode::Instruction;
using bytecode::Opcode;
namespace {

// How far a result is followed through copies and jumps: code generation leaves a handful.
constexpr int kMaxTailSteps = 64;

Slot MakeSlot(int32_t type_index, int64_t payload) {
  Slot slot;
  Store(&slot,
        {static_cast<uint64_t>(static_cast<uint32_t>(type_index)), static_cast<uint64_t>(payload)});
  return slot;
}

class Lowering {
 public:
  Lowering(const Program& program, const std::vector<Binding>& bindings, const FuncInfo& info,
           const std::string& what, LoadScratch* scratch, LowerFor purpose)
      : program_(program),
        data_(*program.executable),
        bindings_(bindings),
        what_(what),
        is_native_(purpose == LowerFor::kNativeCode),
        place_(scratch->place),
        dense_table_(scratch->dense_table) {
    result_.insns = std::move(scratch->insns);
    result_.operands = std::move(scratch->operands);
    result_.constants = std::move(scratch->constants);
    result_.insns.clear();
    result_.operands.clear();
    result_.constants.clear();
    result_.info = &info;
    result_.num_registers = static_cast<uint32_t>(info.num_args);
    none_ = AddConstant(MakeSlot(kTVMFFINone, 0), Arg::Void());
    int64_t num_insns = info.end_instr - info.start_instr;
    dense_table_.assign(static_cast<size_t>(std::min(info.register_file_size, 2 * num_insns)),
                        UINT32_MAX);
    result_.insns.reserve(static_cast<size_t>(num_insns));
  }

  LowFunction Run() {
    const FuncInfo& info = *result_.info;
    size_t num_insns = static_cast<size_t>(info.end_instr - info.start_instr);
    place_.clear();
    place_.reserve(num_insns);
    result_.operands.reserve(NumWords(info) - std::min(NumWords(info), 2 * num_insns));
    for (int64_t i = info.start_instr; i < info.end_instr; ++i) {
      place_.push_back(static_cast<uint32_t>(result_.insns.size()));
      source_ = static_cast<uint32_t>(i);
      LowerInstruction(data_.InstructionAt(i), i - info.start_instr);
    }
    for (LowInsn& insn : result_.insns) {
      if (insn.op == Op::kGoto || insn.op == Op::kIf) insn.target = place_[insn.target];
    }
    for (size_t i = 0; i < result_.insns.size(); ++i) {
      LowInsn& insn = result_.insns[i];
      if (insn.op == Op::kGoto && insn.target <= i) insn.op = Op::kGotoBack;
    }
    MarkTailCalls();
    return std::move(result_);
  }

 private:
  // Words of a function's instructions.
  size_t NumWords(const FuncInfo& info) const {
    bool is_last = static_cast<size_t>(info.end_instr) == data_.instr_offset.size();
    int64_t end = is_last ? static_cast<int64_t>(data_.instr_data.size())
                          : data_.instr_offset[static_cast<size_t>(info.end_instr)];
    return static_cast<size_t>(end - data_.instr_offset[static_cast<size_t>(info.start_instr)]);
  }

  void LowerInstruction(const Instruction& insn, int64_t index) {
    switch (insn.op) {
      case Opcode::kCall: LowerCall(insn); return;
      case Opcode::kRet: EmitWith(Op::kRet, Register(insn.reg)); return;
      case Opcode::kGoto:
        Emit(Op::kGoto, -1).target = static_cast<uint32_t>(index + insn.offset);
        return;
      case Opcode::kIf:
        EmitWith(Op::kIf, Register(insn.reg)).target = static_cast<uint32_t>(index + insn.offset);
        return;
    }
  }

  void LowerCall(const Instruction& insn) {
    const Binding& binding = bindings_[insn.func];
    int32_t dst =
        insn.reg >= bytecode::kBeginSpecialRegister ? -1 : static_cast<int32_t>(Dense(insn.reg));
    bool is_dyn = false;
    int64_t direct = -1;  // a kernel that is called through a builtin
    size_t first_arg = 0;
    if (binding.kind == Binding::Kind::kBuiltin) {
      const bytecode::BuiltinInfo& builtin = bytecode::GetBuiltin(binding.builtin);
      bytecode::VerifyBuiltinCall(data_, builtin, insn, what_);
      // call_tir_dyn of a known kernel goes straight to it.
      bool is_call_tir_dyn =
          binding.builtin == Builtin::kCallTirDyn && insn.arg(0).kind() == ArgKind::kFuncIdx;
      if (is_call_tir_dyn && !program_.is_instrumented && !is_native_ &&
          bindings_[insn.arg(0).value()].kind == Binding::Kind::kKernel) {
        direct = insn.arg(0).value();
        is_dyn = insn.num_args() > 1;
        first_arg = 1;
      }
    }
    bool is_foreign = binding.kind == Binding::Kind::kPacked;
    // No operation that an operand needs before the call has operands of its own.
    const size_t first_operand = result_.operands.size();
    for (size_t i = first_arg; i < insn.num_args(); ++i) {
      result_.operands.push_back(Operand(insn.arg(i), is_foreign));
    }
    LowInsn& call = EmitHere(Op::kCallPacked, dst, first_operand);
    call.func_index = static_cast<uint32_t>(insn.func);
    if (direct >= 0) {
      BindKernel(&call, direct, is_dyn);
    } else {
      Bind(&call, binding, insn.func);
    }
    if (program_.is_instrumented) {
      call.aux = static_cast<uint32_t>(call.op);
      call.op = Op::kInstrumented;
    }
  }

  void Bind(LowInsn* call, const Binding& binding, int64_t func) {
    switch (binding.kind) {
      case Binding::Kind::kVM:
      case Binding::Kind::kCompiled:
        call->op = binding.kind == Binding::Kind::kVM ? Op::kCallVM : Op::kCallTir;
        return;
      case Binding::Kind::kBuiltin: BindBuiltin(call, binding.builtin); return;
      case Binding::Kind::kKernel:
        if (!program_.is_instrumented) {
          BindKernel(call, func, false);
          return;
        }
        [[fallthrough]];
      case Binding::Kind::kPacked: call->op = Op::kCallPacked; return;
      case Binding::Kind::kUnbound: break;
    }
    TVM_FFI_THROW(InternalError) << "function " << func << " is not bound";
  }

  void BindBuiltin(LowInsn* call, Builtin builtin) {
    call->op = Op::kCallBuiltin;
    if (program_.is_instrumented) return;
    switch (builtin) {
      case Builtin::kNullValue: call->op = Op::kNull; break;
      case Builtin::kCopy: call->op = Op::kCopy; break;
      case Builtin::kReadIfCond: call->op = Op::kReadCond; break;
      case Builtin::kInvokeClosure:
        call->op = Op::kInvokeClosure;
        call->first_arg += 1;  // the VM register is known
        call->num_args -= 1;
        break;
      default: break;
    }
  }

  [[noreturn]] void BadKernelCall(const RelaxvmKernelEntry* kernel,
                                  const std::string& reason) const {
    Fail(ErrorKind::kValueError, what_, " is invalid (kernel): function ", result_.info->name,
         " calls kernel ", kernel->name, "(", kernel->params, ") ", reason);
  }

  // Tensors first, then scalars, each in order; constants are checked now.
  void BindKernel(LowInsn* call, int64_t func, bool is_dyn) {
    const RelaxvmKernelEntry* kernel = bindings_[func].kernel;
    std::string_view params = kernel->params;
    LowOperand* operands = result_.args(*call);
    size_t num_tensors = 0;
    scalars_.clear();
    size_t num_given = call->num_args - (is_dyn ? 1 : 0);
    if (num_given > params.size() || (!is_dyn && num_given != params.size())) {
      BadKernelCall(kernel, "with " + std::to_string(num_given) + " arguments, it takes " +
                                std::to_string(params.size()));
    }
    for (size_t i = 0; i < num_given; ++i) {
      LowOperand operand = operands[i];
      int32_t type = operand.is_const ? result_.constants[operand.index].type_index : -1;
      if (params[i] == 't') {
        if (operand.is_const && type != kTVMFFITensor)
          BadKernelCall(kernel, "with a constant that is no tensor");
        operands[num_tensors++] = operand;
      } else {
        bool is_number =
            type == kTVMFFIInt || type == kTVMFFIBool || (params[i] == 'f' && type == kTVMFFIFloat);
        if (operand.is_const && !is_number)
          BadKernelCall(kernel, "with a constant that is no number");
        operand.is_float = params[i] == 'f';
        scalars_.push_back(operand);
      }
    }
    if (is_dyn) {
      for (size_t i = num_given; i < params.size(); ++i) {
        if (params[i] != 'i') BadKernelCall(kernel, "with a shape in place of other parameters");
      }
      LowOperand shape = operands[num_given];
      if (shape.is_const && result_.constants[shape.index].type_index != kTVMFFIShape) {
        BadKernelCall(kernel, "with a constant that is no shape");
      }
      scalars_.push_back(shape);
    }
    call->op = is_dyn ? Op::kCallKernelDyn : Op::kCallKernel;
    call->target = static_cast<uint32_t>(func);
    call->aux = static_cast<uint32_t>(num_tensors);
    std::copy(scalars_.begin(), scalars_.end(), operands + num_tensors);
  }

  // A call whose result reaches a Ret through nothing but copies, kills and jumps replaces its
  // frame.
  void MarkTailCalls() {
    for (LowInsn& call : result_.insns) {
      bool is_watched = call.op == Op::kInstrumented;
      Op op = is_watched ? static_cast<Op>(call.aux) : call.op;
      if (op != Op::kCallVM && (op != Op::kInvokeClosure || is_native_)) continue;
      if (call.dst < 0 || !ResultIsReturned(static_cast<size_t>(&call - result_.insns.data())))
        continue;
      call.op = is_watched          ? Op::kInstrumentedTail
                : op == Op::kCallVM ? Op::kTailCallVM
                                    : Op::kTailInvokeClosure;
    }
  }

  bool ResultIsReturned(size_t at) const {
    uint32_t result = static_cast<uint32_t>(result_.insns[at].dst);
    ++at;
    for (int step = 0; step < kMaxTailSteps; ++step) {
      const LowInsn& insn = result_.insns[at];
      const LowOperand* args = result_.args(insn);
      switch (Unwatched(insn)) {
        case Op::kRet: return !args[0].is_const && args[0].index == result;
        case Op::kGoto: at = insn.target; continue;
        case Op::kNull:
          if (insn.dst == static_cast<int32_t>(result)) return false;
          break;
        case Op::kCopy:
          if (!args[0].is_const && args[0].index == result) {
            if (insn.dst >= 0) result = static_cast<uint32_t>(insn.dst);
          } else if (insn.dst == static_cast<int32_t>(result)) {
            return false;
          }
          break;
        default: return false;
      }
      ++at;
    }
    return false;
  }

  // What an instrumented call of a builtin is when nobody watches.
  Op Unwatched(const LowInsn& insn) const {
    if (insn.op != Op::kInstrumented || static_cast<Op>(insn.aux) != Op::kCallBuiltin)
      return insn.op;
    auto is = [&](Builtin builtin) { return bindings_[insn.func_index].builtin == builtin; };
    return is(Builtin::kCopy) ? Op::kCopy : is(Builtin::kNullValue) ? Op::kNull : insn.op;
  }

  LowOperand Operand(Arg arg, bool is_foreign) {
    switch (arg.kind()) {
      case ArgKind::kRegister:
        if (arg.value() == bytecode::kVMRegister) return VMOperand(is_foreign);
        return Register(arg.value());
      case ArgKind::kImmediate: return AddConstant(MakeSlot(kTVMFFIInt, arg.value()), arg);
      case ArgKind::kConstIdx:
        return AddConstant(*reinterpret_cast<const Slot*>(&program_.constants[arg.value()]), arg);
      case ArgKind::kFuncIdx: return FunctionOperand(arg.value());
    }
    RELAXVM_UNREACHABLE();
  }

  // Builtins take the VM as a pointer; foreign functions get the module, which no one can mistake
  // for TVM's own VM.
  LowOperand VMOperand(bool is_foreign) {
    if (!is_foreign) {
      return AddConstant(MakeSlot(kTVMFFIOpaquePtr, reinterpret_cast<int64_t>(program_.vm)),
                         Arg::VM());
    }
    int64_t module =
        program_.vm == nullptr ? 0 : reinterpret_cast<int64_t>(VMModuleObject(program_.vm));
    LowOperand operand = AddConstant(MakeSlot(kTVMFFIModule, module), Arg::VM());
    if (is_native_) result_.origins.back().is_module = true;
    return operand;
  }

  // A VM function as a value is made anew for each use: a closure owns its VM, so the VM must not
  // own closures.
  LowOperand FunctionOperand(int64_t func) {
    const Binding& binding = bindings_[func];
    if (binding.kind != Binding::Kind::kVM && binding.kind != Binding::Kind::kCompiled) {
      return AddConstant(*reinterpret_cast<const Slot*>(&program_.func_pool[func]),
                         Arg::Func(func));
    }
    uint32_t temporary = result_.num_registers++;
    LowInsn& insn = Emit(Op::kMakeFunc, static_cast<int32_t>(temporary));
    insn.func_index = static_cast<uint32_t>(func);
    return {temporary, false};
  }

  LowOperand Register(int64_t reg) {
    if (reg == bytecode::kVoidRegister) return none_;
    return {Dense(reg), false};
  }

  uint32_t Dense(int64_t reg) {
    if (reg < result_.info->num_args) return static_cast<uint32_t>(reg);
    if (static_cast<size_t>(reg) < dense_table_.size()) {
      uint32_t& place = dense_table_[static_cast<size_t>(reg)];
      if (place == UINT32_MAX) place = result_.num_registers++;
      return place;
    }
    auto [it, is_new] = dense_.emplace(reg, result_.num_registers);
    if (is_new) ++result_.num_registers;
    return it->second;
  }

  LowOperand AddConstant(Slot slot, Arg origin) {
    if (is_native_) result_.origins.push_back({origin});
    result_.constants.push_back(slot);
    return {static_cast<uint32_t>(result_.constants.size() - 1), true};
  }

  LowInsn& EmitWith(Op op, LowOperand operand) {
    result_.operands.push_back(operand);
    return EmitHere(op, -1, result_.operands.size() - 1);
  }

  LowInsn& Emit(Op op, int32_t dst) { return EmitHere(op, dst, result_.operands.size()); }

  // Its operands are those from `first_operand` on.
  LowInsn& EmitHere(Op op, int32_t dst, size_t first_operand) {
    LowInsn& insn = result_.insns.emplace_back();
    insn.op = op;
    insn.dst = dst;
    insn.first_arg = static_cast<uint32_t>(first_operand);
    insn.num_args = static_cast<uint32_t>(result_.operands.size() - first_operand);
    insn.source = source_;
    return insn;
  }

  const Program& program_;
  const bytecode::ExecutableData& data_;
  const std::vector<Binding>& bindings_;
  const std::string& what_;
  const bool is_native_;
  std::vector<uint32_t>& place_;  // of each instruction in result_.insns
  LowFunction result_;
  LowOperand none_;
  uint32_t source_ = 0;
  std::vector<LowOperand> scalars_;  // of the kernel call at hand
  // File's register -> ours: the table for low numbers, as many as the code can mention; the map
  // for the rest.
  std::vector<uint32_t>& dense_table_;
  std::unordered_map<int64_t, uint32_t> dense_;
};

}  // namespace

LowFunction Lower(const Program& program, const std::vector<Binding>& bindings,
                  const FuncInfo& info, const std::string& what, LoadScratch* scratch,
                  LowerFor purpose) {
  return Lowering(program, bindings, info, what, scratch, purpose).Run();
}

void GiveBack(LowFunction function, LoadScratch* scratch) {
  scratch->insns = std::move(function.insns);
  scratch->operands = std::move(function.operands);
  scratch->constants = std::move(function.constants);
}

size_t LoadScratch::NumBytes() const {
  size_t num_bytes = insns.capacity() * sizeof(LowInsn) + operands.capacity() * sizeof(LowOperand) +
                     constants.capacity() * sizeof(Slot) + is_leader.capacity();
  for (const auto* words : {&place, &dense_table, &start_of, &block_of, &seen_in, &live_end, &first,
                            &last, &order, &ending_at, &next})
    num_bytes += words->capacity() * sizeof(uint32_t);
  return num_bytes;
}

}  // namespace relaxvm::vm
