// SPDX-License-Identifier: Apache-2.0
// Binding and emission.
#include "vm/loader.h"

#include <algorithm>
#include <cstring>

#include "support/error.h"
#include "vm/builtins/table.h"
#include "vm/closure.h"
#include "vm/interpreter.h"
#include "vm/liveness.h"
#include "vm/native.h"
#include "vm/virtual_machine.h"

namespace relaxvm::vm {
namespace ffi = tvm::ffi;
using bytecode::FuncInfo;
using bytecode::FuncKind;
namespace {

constexpr uint32_t kSlotBytes = sizeof(Slot);

// Writes the instructions of one function.
class Emitter {
 public:
  Emitter(LowFunction low, Liveness live, const std::vector<Binding>& bindings, Function* out)
      : low_(std::move(low)), live_(std::move(live)), bindings_(bindings), out_(*out) {}

  void Run() {
    out_.num_slots = live_.num_slots;
    out_.max_scratch = 1;
    EmitEntry();
    start_of_.assign(low_.insns.size(), UINT32_MAX);
    units_.reserve(low_.insns.size() * 5 + low_.operands.size());
    auto drops = live_.edge_drops.begin();
    for (uint32_t i = 0; i < low_.insns.size(); ++i) {
      if (!live_.is_reachable[i]) continue;
      start_of_[i] = static_cast<uint32_t>(units_.size());
      while (drops != live_.edge_drops.end() && drops->insn < i) ++drops;
      const Liveness::EdgeDrops* edge =
          drops != live_.edge_drops.end() && drops->insn == i ? &*drops : nullptr;
      EmitInsn(i, edge);
    }
    for (const Stub& stub : stubs_) {
      SetJump(stub.from, static_cast<uint32_t>(units_.size()));
      Append(Op::kDrop, 0, {}, Slots(*stub.drops), {}, low_.insns[stub.target].source);
      fixups_.push_back({Append(Op::kGoto, 0, {}, {}, {}, 0), stub.target});
    }
    for (const Fixup& fixup : fixups_) SetJump(fixup.at, start_of_[fixup.target]);
    out_.code = std::move(units_);
    out_.entry = reinterpret_cast<const Insn*>(out_.code.data());
    out_.live_ranges = std::move(live_.live_ranges);
    out_.source_index.reserve(low_.insns.size());
    for (const LowInsn& insn : low_.insns) {
      out_.source_index.push_back(insn.source - static_cast<uint32_t>(low_.info->start_instr));
    }
  }

 private:
  struct Stub {
    uint32_t from, target;
    const std::vector<uint32_t>* drops;
  };
  struct Fixup {
    uint32_t at, target;
  };

  std::vector<uint32_t> Slots(const std::vector<uint32_t>& registers) const {
    std::vector<uint32_t> slots;
    slots.reserve(registers.size());
    for (uint32_t reg : registers) slots.push_back(live_.slot[reg]);
    return slots;
  }

  Insn* At(uint32_t unit) { return reinterpret_cast<Insn*>(&units_[unit]); }

  void SetJump(uint32_t from, uint32_t to) {
    At(from)->jump = (static_cast<int64_t>(to) - static_cast<int64_t>(from)) *
                     static_cast<int64_t>(sizeof(units_[0]));
  }

  void EmitEntry() {
    if (!live_.entry_drops.empty()) Append(Op::kDrop, 0, {}, Slots(live_.entry_drops), {}, 0);
    for (uint32_t reg : live_.entry_nulls) Append(Op::kNull, live_.slot[reg], {}, {}, {}, 0);
  }

  // Appends an instruction; `words` of constants hold their place among `constants`.  Returns where
  // it starts.
  uint32_t Append(Op op, uint32_t dst_slot, const std::vector<uint32_t>& words,
                  const std::vector<uint32_t>& drop_slots, const std::vector<Slot>& constants,
                  uint32_t index) {
    size_t header = sizeof(Insn) + 4 * (words.size() + drop_slots.size());
    header = (header + 15) / 16 * 16;
    size_t length = header + constants.size() * kSlotBytes;
    if (units_.size() + length / 16 > UINT32_MAX / 32) {
      Fail(ErrorKind::kValueError, "function ", low_.info->name,
           " is too large; split it into functions");
    }
    uint32_t start = static_cast<uint32_t>(units_.size());
    units_.resize(units_.size() + length / 16);
    Insn* insn = At(start);
    insn->handler = handlers_[static_cast<size_t>(op)];
    insn->dst = dst_slot * kSlotBytes;
    insn->num_args = static_cast<uint32_t>(words.size());
    insn->num_drops = static_cast<uint32_t>(drop_slots.size());
    insn->length = static_cast<uint32_t>(length);
    insn->index = index;
    for (size_t i = 0; i < words.size(); ++i) {
      bool is_const = words[i] & kArgConst;
      insn->words[i] = is_const ? words[i] + static_cast<uint32_t>(header) : words[i];
    }
    for (size_t i = 0; i < drop_slots.size(); ++i)
      insn->words[words.size() + i] = drop_slots[i] * kSlotBytes;
    if (!constants.empty()) {
      std::memcpy(reinterpret_cast<char*>(insn) + header, constants.data(),
                  constants.size() * kSlotBytes);
    }
    last_start_ = start;
    out_.max_scratch = std::max(out_.max_scratch, static_cast<uint32_t>(words.size()) + 1);
    return start;
  }

  static bool MovesArgs(Op op) {
    switch (op) {
      case Op::kCallVM:
      case Op::kTailCallVM:
      case Op::kInstrumentedTail:
      case Op::kInvokeClosure:
      case Op::kTailInvokeClosure:
      case Op::kRet:
      case Op::kMove: return true;
      default: return false;
    }
  }

  void EmitInsn(uint32_t i, const Liveness::EdgeDrops* edge) {
    const LowInsn& insn = low_.insns[i];
    const LowOperand* args = low_.args(insn);
    Op op = insn.op;
    bool is_dead = insn.dst < 0 || live_.is_result_dead[i];
    switch (op) {
      case Op::kNull:
      case Op::kMakeFunc:
        if (is_dead) return;
        break;
      case Op::kCopy:
        if (is_dead) {
          if (!args[0].is_const && args[0].is_last_use)
            Append(Op::kDrop, 0, {}, {live_.slot[args[0].index]}, {}, i);
          return;
        }
        if (!args[0].is_const && args[0].is_last_use) op = Op::kMove;
        break;
      case Op::kReadCond:
        if (FusesWithNext(i)) return;
        break;
      case Op::kRet:
        if (args[0].is_const) op = Op::kRetConst;
        break;
      case Op::kIf:
        if (is_fused_) {
          is_fused_ = false;
          EmitCall(i - 1, Op::kIfCond, /*is_dead=*/false);
        } else {
          EmitCall(i, Op::kIf, /*is_dead=*/false);
        }
        EmitBranch(insn, edge);
        return;
      case Op::kGoto:
      case Op::kGotoBack: fixups_.push_back({Append(op, 0, {}, {}, {}, i), insn.target}); return;
      default: break;
    }
    EmitCall(i, op, is_dead);
  }

  void EmitBranch(const LowInsn& insn, const Liveness::EdgeDrops* edge) {
    uint32_t at = last_start_;
    if (edge != nullptr && !edge->on_false.empty()) {
      stubs_.push_back({at, insn.target, &edge->on_false});
    } else {
      fixups_.push_back({at, insn.target});
    }
    if (edge != nullptr && !edge->on_true.empty())
      Append(Op::kDrop, 0, {}, Slots(edge->on_true), {}, 0);
  }

  // read_if_cond followed by an If that is the only reader of its result.
  bool FusesWithNext(uint32_t i) {
    const LowInsn& insn = low_.insns[i];
    if (insn.dst < 0 || i + 1 >= low_.insns.size()) return false;
    const LowInsn& next = low_.insns[i + 1];
    if (next.op != Op::kIf || low_.args(next)[0].is_const) return false;
    const LowOperand& cond = low_.args(next)[0];
    if (cond.index != static_cast<uint32_t>(insn.dst) || !cond.is_last_use || IsJumpTarget(i + 1))
      return false;
    is_fused_ = true;
    return true;
  }

  bool IsJumpTarget(uint32_t i) {
    if (jump_targets_.empty()) {
      jump_targets_.assign(low_.insns.size(), false);
      for (const LowInsn& insn : low_.insns) {
        if (insn.op == Op::kGoto || insn.op == Op::kGotoBack || IsBranch(insn.op))
          jump_targets_[insn.target] = true;
      }
    }
    return jump_targets_[i];
  }

  // Everything that reads operands and may write a register.
  void EmitCall(uint32_t i, Op op, bool is_dead) {
    const LowInsn& insn = low_.insns[i];
    const LowOperand* args = low_.args(insn);
    bool moves = MovesArgs(op);
    bool all_const = insn.num_args > 0;
    words_.clear();
    drops_.clear();
    constants_.clear();
    for (uint32_t k = 0; k < insn.num_args; ++k) {
      const LowOperand& arg = args[k];
      uint32_t flags = arg.is_float ? uint32_t{kArgFloat} : 0;
      if (arg.is_const) {
        words_.push_back(static_cast<uint32_t>(constants_.size()) * kSlotBytes | kArgConst | flags);
        constants_.push_back(low_.constants[arg.index]);
        continue;
      }
      all_const = false;
      uint32_t slot = live_.slot[arg.index];
      if (arg.is_last_use && moves) flags |= kArgMove;
      if (arg.is_last_use && !moves) drops_.push_back(slot);
      words_.push_back(slot * kSlotBytes | flags);
    }
    uint32_t dst_slot =
        is_dead ? 0 : live_.slot[static_cast<uint32_t>(insn.dst < 0 ? 0 : insn.dst)];
    Insn* out = At(Append(op, dst_slot, words_, drops_, constants_, i));
    if (is_dead) out->flags |= kDiscardResult;
    if (all_const) out->flags |= kAllConst;
    if (IsTail(op)) out->flags |= kTailFlag;
    if (op == Op::kCallKernelDyn) out->flags |= kDynamicKernel;
    out->aux = insn.aux;
    out->func_index = insn.func_index;
    BindCallee(insn, op, out);
  }

  void BindCallee(const LowInsn& insn, Op op, Insn* out) const {
    const Binding* binding = &bindings_[insn.func_index];
    bool is_watched = op == Op::kInstrumented || op == Op::kInstrumentedTail;
    switch (is_watched ? static_cast<Op>(insn.aux) : op) {
      case Op::kCallPacked:
        out->safe_call = binding->packed->safe_call;
        out->self = const_cast<ffi::FunctionObj*>(binding->packed);
        break;
      case Op::kCallBuiltin: out->builtin = GetBuiltinFunction(binding->builtin); break;
      case Op::kCallKernel:
      case Op::kCallKernelDyn: out->kernel = bindings_[insn.target].kernel; break;
      case Op::kCallVM:
      case Op::kTailCallVM:
      case Op::kCallTir:
      case Op::kMakeFunc: out->function = out_.program->functions[insn.func_index].get(); break;
      default: break;
    }
  }

  LowFunction low_;
  Liveness live_;
  const std::vector<Binding>& bindings_;
  Function& out_;
  const void* const* const handlers_ = HandlerTable();
  std::vector<Function::Unit> units_;
  std::vector<uint32_t> words_, drops_;  // of the instruction at hand
  std::vector<Slot> constants_;
  uint32_t last_start_ = 0;         // of the instruction at hand, in units
  std::vector<uint32_t> start_of_;  // LowInsn -> unit
  std::vector<Stub> stubs_;
  std::vector<Fixup> fixups_;
  std::vector<bool> jump_targets_;
  bool is_fused_ = false;
};

// Finds every function of the table.
class Binder {
 public:
  Binder(Program* program, const FunctionSources& sources, const LoadOptions& options)
      : program_(*program), data_(*program->executable), sources_(sources), options_(options) {}

  std::vector<Binding> Run() {
    std::vector<Binding> bindings;
    program_.func_pool.resize(data_.func_table.size());
    for (size_t i = 0; i < data_.func_table.size(); ++i)
      bindings.push_back(Bind(static_cast<int64_t>(i)));
    if (!missing_.empty()) {
      Fail(ErrorKind::kRuntimeError, "Cannot find ", missing_,
           ": neither the executable's kernels, nor the builtins, nor "
           "the global functions have that name; register it with relaxvm.register_global_func");
    }
    return bindings;
  }

 private:
  Binding Bind(int64_t index) {
    const FuncInfo& info = data_.func_table[index];
    switch (info.kind) {
      case FuncKind::kPackedFunc: return BindPacked(info, &program_.func_pool[index]);
      case FuncKind::kVMFunc:
        program_.func_pool[index] = WeakFunction(program_.vm, index);
        return {Binding::Kind::kVM};
      case FuncKind::kVMTIRFunc: {
        std::string symbol = kCompiledFunctionPrefix + info.name;
        if (RelaxvmNative native = sources_.find_native(symbol)) {
          if (program_.is_instrumented) native = sources_.find_native(symbol + kWatchedSuffix);
          program_.functions[index]->native = native;
          if (native != nullptr) {
            program_.func_pool[index] = WeakFunction(program_.vm, index);
            return {Binding::Kind::kCompiled};
          }
        }
        auto compiled = sources_.find_import(symbol);
        if (!compiled) {
          AddMissing(symbol);
          return {};
        }
        program_.functions[index]->compiled = *compiled;
        program_.func_pool[index] = WeakFunction(program_.vm, index);
        return {Binding::Kind::kCompiled};
      }
    }
    RELAXVM_UNREACHABLE();
  }

  Binding BindPacked(const FuncInfo& info, ffi::Any* pool_entry) {
    Binding binding;
    if (auto import = sources_.find_import(info.name)) {
      *pool_entry = *import;
      binding.kernel = sources_.find_kernel(info.name);
      binding.kind = binding.kernel != nullptr ? Binding::Kind::kKernel : Binding::Kind::kPacked;
    } else if (auto builtin = bytecode::FindBuiltin(info.name)) {
      binding.kind = Binding::Kind::kBuiltin;
      binding.builtin = *builtin;
      *pool_entry = BuiltinAsFunction(*builtin);
    } else if (auto global = sources_.find_global(info.name)) {
      *pool_entry = *global;
      binding.kind = Binding::Kind::kPacked;
    } else {
      AddMissing(info.name);
      return binding;
    }
    TVMFFIAny raw = ffi::AnyView(*pool_entry).CopyToTVMFFIAny();
    binding.packed =
        ffi::detail::ObjectUnsafe::RawObjectPtrFromUnowned<ffi::FunctionObj>(raw.v_obj);
    return binding;
  }

  void AddMissing(const std::string& name) { missing_ += (missing_.empty() ? "" : ", ") + name; }

  Program& program_;
  const bytecode::ExecutableData& data_;
  const FunctionSources& sources_;
  const LoadOptions& options_;
  std::string missing_;
};

}  // namespace

std::unique_ptr<Program> LoadProgram(const bytecode::ExecutableData& data,
                                     std::vector<ffi::Any> constants, VirtualMachine* vm,
                                     const FunctionSources& sources, const LoadOptions& options) {
  auto program = std::make_unique<Program>();
  program->executable = &data;
  program->vm = vm;
  program->is_instrumented = options.instrumented;
  program->constants = std::move(constants);
  for (size_t i = 0; i < data.func_table.size(); ++i) {
    const FuncInfo& info = data.func_table[i];
    auto function = std::make_unique<Function>();
    function->info = &info;
    function->func_index = static_cast<int64_t>(i);
    function->program = program.get();
    function->num_params =
        info.kind == FuncKind::kPackedFunc ? 0 : static_cast<uint32_t>(info.num_args);
    function->num_slots = function->num_params;
    function->max_scratch = 1;
    program->functions.push_back(info.kind == FuncKind::kPackedFunc ? nullptr
                                                                    : std::move(function));
  }
  std::vector<Binding> bindings = Binder(program.get(), sources, options).Run();
  auto is_native = [](const auto& function) { return function && function->native != nullptr; };
  if (std::any_of(program->functions.begin(), program->functions.end(), is_native))
    MakeNativeEnv(program.get(), bindings);
  for (const auto& function : program->functions) {
    if (function == nullptr || function->is_compiled()) continue;
    LowFunction low = Lower(*program, bindings, *function->info, options.what);
    Liveness live = ComputeLiveness(&low);
    Emitter(std::move(low), std::move(live), bindings, function.get()).Run();
  }
  return program;
}

}  // namespace relaxvm::vm
