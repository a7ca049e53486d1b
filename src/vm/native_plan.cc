// SPDX-License-Identifier: Apache-2.0
// The loader's lowering and liveness, turned into plain data.
#include "vm/native_plan.h"

#include <algorithm>
#include <memory>

#include "support/error.h"
#include "vm/liveness.h"
#include "vm/lower.h"

namespace relaxvm::vm {
using bytecode::Arg;
using bytecode::ArgKind;
using bytecode::FuncInfo;
using bytecode::FuncKind;
using bytecode::NativeArg;
using bytecode::NativeOp;
using bytecode::NativeOpKind;
using bytecode::NativePlan;
namespace {

class Planner {
 public:
  Planner(const bytecode::ExecutableData& data, const NativePlanOptions& options)
      : data_(data), options_(options) {}

  NativePlan Run(int64_t func) {
    MakeBindings();
    const FuncInfo& info = data_.func_table[static_cast<size_t>(func)];
    LoadScratch scratch;
    low_ = Lower(program_, bindings_, info, info.name, &scratch, LowerFor::kNativeCode);
    live_ = ComputeLiveness(&low_, &scratch);
    plan_.name = info.name;
    plan_.func = static_cast<uint32_t>(func);
    plan_.num_params = static_cast<uint32_t>(info.num_args);
    plan_.num_slots = live_.num_slots;
    plan_.is_watched = options_.is_watched;
    for (uint32_t reg : live_.entry_drops) plan_.entry_drops.push_back(live_.slot[reg]);
    for (uint32_t reg : live_.entry_nulls) plan_.entry_nulls.push_back(live_.slot[reg]);
    for (const LiveRange& range : live_.live_ranges)
      plan_.live_ranges.push_back({range.slot, range.from, range.to});
    for (const FuncInfo& callee : data_.func_table) plan_.function_names.push_back(callee.name);
    plan_.ops.reserve(low_.insns.size());
    for (uint32_t i = 0; i < low_.insns.size(); ++i) AddOp(i);
    for (const Liveness::EdgeDrops& edge : live_.edge_drops) {
      for (uint32_t reg : edge.on_true)
        plan_.ops[edge.insn].drop_on_true.push_back(live_.slot[reg]);
      for (uint32_t reg : edge.on_false)
        plan_.ops[edge.insn].drop_on_false.push_back(live_.slot[reg]);
    }
    return std::move(plan_);
  }

 private:
  void MakeBindings() {
    program_.executable = &data_;
    program_.is_instrumented = options_.is_watched;
    program_.constants = data_.constants;
    program_.func_pool.resize(data_.func_table.size());
    program_.functions.resize(data_.func_table.size());
    entries_.resize(data_.func_table.size());
    for (size_t i = 0; i < data_.func_table.size(); ++i) {
      const FuncInfo& info = data_.func_table[i];
      Binding binding;
      if (info.kind != FuncKind::kPackedFunc) {
        binding.kind = Binding::Kind::kVM;
      } else if (auto kernel = options_.kernels.find(info.name); kernel != options_.kernels.end()) {
        entries_[i] = {kernel->first.c_str(), kernel->second.c_str(), nullptr, nullptr};
        binding.kind = Binding::Kind::kKernel;
        binding.kernel = &entries_[i];
      } else if (auto builtin = bytecode::FindBuiltin(info.name)) {
        binding.kind = Binding::Kind::kBuiltin;
        binding.builtin = *builtin;
      } else {
        binding.kind = Binding::Kind::kPacked;
      }
      bindings_.push_back(binding);
    }
  }

  NativeOpKind KindOf(const LowInsn& insn) const {
    switch (insn.op) {
      case Op::kCallPacked: return NativeOpKind::kCallPacked;
      case Op::kCallBuiltin: return NativeOpKind::kCallBuiltin;
      case Op::kCallKernel: return NativeOpKind::kCallKernel;
      case Op::kCallVM: return NativeOpKind::kCallNative;
      case Op::kTailCallVM: return NativeOpKind::kTailCallNative;
      case Op::kInvokeClosure: return NativeOpKind::kInvoke;
      case Op::kMakeFunc: return NativeOpKind::kMakeFunc;
      case Op::kNull: return NativeOpKind::kNull;
      case Op::kCopy: return NativeOpKind::kCopy;
      case Op::kReadCond: return NativeOpKind::kReadCond;
      case Op::kIf: return NativeOpKind::kIf;
      case Op::kGoto: return NativeOpKind::kGoto;
      case Op::kGotoBack: return NativeOpKind::kGotoBack;
      case Op::kRet: return NativeOpKind::kRet;
      case Op::kInstrumented: return NativeOpKind::kCallAny;
      case Op::kInstrumentedTail: return NativeOpKind::kWatchedTailCall;
      default: break;
    }
    TVM_FFI_THROW(InternalError) << "an operation that native code does not have";
  }

  NativeArg ArgOf(const LowOperand& operand) const {
    NativeArg arg;
    arg.is_last_use = operand.is_last_use;
    arg.is_float = operand.is_float;
    if (!operand.is_const) {
      arg.kind = NativeArg::Kind::kSlot;
      arg.value = live_.slot[operand.index];
      return arg;
    }
    const LowOrigin& origin = low_.origins[operand.index];
    arg.value = origin.arg.value();
    switch (origin.arg.kind()) {
      case ArgKind::kRegister:
        arg.kind = arg.value != bytecode::kVMRegister ? NativeArg::Kind::kNone
                   : origin.is_module                 ? NativeArg::Kind::kVMModule
                                                      : NativeArg::Kind::kVM;
        break;
      case ArgKind::kImmediate: arg.kind = NativeArg::Kind::kImmediate; break;
      case ArgKind::kConstIdx: arg.kind = NativeArg::Kind::kConstant; break;
      case ArgKind::kFuncIdx: arg.kind = NativeArg::Kind::kFunction; break;
    }
    return arg;
  }

  void AddOp(uint32_t i) {
    const LowInsn& insn = low_.insns[i];
    NativeOp op;
    op.kind = KindOf(insn);
    bool is_dead = insn.dst < 0 || live_.is_result_dead[i];
    op.dst = is_dead ? -1 : static_cast<int32_t>(live_.slot[static_cast<size_t>(insn.dst)]);
    op.func = insn.func_index;
    op.num_tensors = op.kind == NativeOpKind::kCallKernel ? insn.aux : 0;
    op.target = insn.target;
    op.source = insn.source - static_cast<uint32_t>(low_.info->start_instr);
    op.is_reachable = live_.is_reachable[i];
    for (uint32_t k = 0; k < insn.num_args; ++k) op.args.push_back(ArgOf(low_.args(insn)[k]));
    if (op.kind == NativeOpKind::kCopy && op.args[0].kind == NativeArg::Kind::kSlot &&
        op.args[0].is_last_use && !is_dead)
      op.kind = NativeOpKind::kMove;
    plan_.max_args = std::max(plan_.max_args, insn.num_args);
    plan_.ops.push_back(std::move(op));
  }

  const bytecode::ExecutableData& data_;
  const NativePlanOptions& options_;
  Program program_;
  std::vector<RelaxvmKernelEntry> entries_;
  std::vector<Binding> bindings_;
  LowFunction low_;
  Liveness live_;
  NativePlan plan_;
};

}  // namespace

NativePlan MakeNativePlan(const bytecode::ExecutableData& data, int64_t func,
                          const NativePlanOptions& options) {
  return Planner(data, options).Run(func);
}

}  // namespace relaxvm::vm
