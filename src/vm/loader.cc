// SPDX-License-Identifier: Apache-2.0
// Binding and emission.
#include "vm/loader.h"

#include <algorithm>
#include <atomic>
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
  Emitter(const LowFunction& low, Liveness live, const std::vector<Binding>& bindings,
          LoadScratch* scratch, Function* out)
      : low_(low),
        live_(std::move(live)),
        bindings_(bindings),
        out_(*out),
        start_of_(scratch->start_of) {}

  void Run() {
    out_.num_slots = live_.num_slots;
    out_.max_scratch = 1;
    Reserve(low_.insns.size() * 5 + low_.operands.size());
    EmitEntry();
    start_of_.assign(low_.insns.size(), UINT32_MAX);
    auto drops = live_.edge_drops.begin();
    for (uint32_t i = 0; i < low_.insns.size(); ++i) {
      if (!live_.is_reachable[i]) continue;
      start_of_[i] = num_units_;
      while (drops != live_.edge_drops.end() && drops->insn < i) ++drops;
      const Liveness::EdgeDrops* edge =
          drops != live_.edge_drops.end() && drops->insn == i ? &*drops : nullptr;
      EmitInsn(i, edge);
    }
    for (const Stub& stub : stubs_) {
      SetJump(stub.from, num_units_);
      AppendDrop(*stub.drops, low_.insns[stub.target].source);
      fixups_.push_back({Append(Op::kGoto, 0, 0, 0, 0, 0), stub.target});
    }
    for (const Fixup& fixup : fixups_) SetJump(fixup.at, start_of_[fixup.target]);
    out_.code = std::move(units_);
    out_.num_units = num_units_;
    out_.entry = reinterpret_cast<const Insn*>(out_.code.get());
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

  Insn* At(uint32_t unit) { return reinterpret_cast<Insn*>(&units_[unit]); }

  void SetJump(uint32_t from, uint32_t to) {
    At(from)->jump = (static_cast<int64_t>(to) - static_cast<int64_t>(from)) *
                     static_cast<int64_t>(sizeof(units_[0]));
  }

  void EmitEntry() {
    if (!live_.entry_drops.empty()) AppendDrop(live_.entry_drops, 0);
    for (uint32_t reg : live_.entry_nulls) Append(Op::kNull, live_.slot[reg], 0, 0, 0, 0);
  }

  void Reserve(size_t num_units) {
    if (num_units > UINT32_MAX / 32) {
      Fail(ErrorKind::kValueError, "function ", low_.info->name,
           " is too large; split it into functions");
    }
    auto larger = std::make_unique_for_overwrite<Function::Unit[]>(num_units);
    std::copy(units_.get(), units_.get() + num_units_, larger.get());
    units_ = std::move(larger);
    capacity_ = num_units;
  }

  // Appends an instruction; the caller fills in its argument words, drops and constants.  Returns
  // where it starts.
  uint32_t Append(Op op, uint32_t dst_slot, size_t num_args, size_t num_drops, size_t num_constants,
                  uint32_t index) {
    const size_t header = HeaderBytes(num_args, num_drops);
    const size_t length = header + num_constants * kSlotBytes;
    if (capacity_ - num_units_ < length / 16)
      Reserve(std::max<size_t>(2 * capacity_, num_units_ + length / 16));
    const uint32_t start = num_units_;
    num_units_ += static_cast<uint32_t>(length / 16);
    Insn* insn = At(start);
    insn->handler = handlers_[static_cast<size_t>(op)];
    insn->safe_call = nullptr;
    insn->self = nullptr;
    insn->dst = dst_slot * kSlotBytes;
    insn->num_args = static_cast<uint32_t>(num_args);
    insn->num_drops = static_cast<uint32_t>(num_drops);
    insn->length = static_cast<uint32_t>(length);
    insn->flags = 0;
    insn->index = index;
    insn->aux = 0;
    insn->func_index = 0;
    last_start_ = start;
    out_.max_scratch = std::max(out_.max_scratch, static_cast<uint32_t>(num_args) + 1);
    return start;
  }

  static size_t HeaderBytes(size_t num_args, size_t num_drops) {
    return (sizeof(Insn) + 4 * (num_args + num_drops) + 15) / 16 * 16;
  }

  // An instruction that only frees registers.
  uint32_t AppendDrop(const std::vector<uint32_t>& registers, uint32_t index) {
    uint32_t start = Append(Op::kDrop, 0, 0, registers.size(), 0, index);
    for (size_t i = 0; i < registers.size(); ++i)
      At(start)->words[i] = live_.slot[registers[i]] * kSlotBytes;
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
          if (!args[0].is_const && args[0].is_last_use) AppendDrop({args[0].index}, i);
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
      case Op::kGotoBack: fixups_.push_back({Append(op, 0, 0, 0, 0, i), insn.target}); return;
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
    if (edge != nullptr && !edge->on_true.empty()) AppendDrop(edge->on_true, 0);
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
    const bool moves = MovesArgs(op);
    uint32_t num_constants = 0, num_drops = 0;
    for (uint32_t k = 0; k < insn.num_args; ++k) {
      num_constants += args[k].is_const;
      num_drops += !args[k].is_const && args[k].is_last_use && !moves;
    }
    uint32_t dst_slot =
        is_dead ? 0 : live_.slot[static_cast<uint32_t>(insn.dst < 0 ? 0 : insn.dst)];
    Insn* out = At(Append(op, dst_slot, insn.num_args, num_drops, num_constants, i));
    uint32_t* drop = out->words + insn.num_args;
    auto constant_at = static_cast<uint32_t>(HeaderBytes(insn.num_args, num_drops));
    for (uint32_t k = 0; k < insn.num_args; ++k) {
      const LowOperand& arg = args[k];
      uint32_t flags = arg.is_float ? uint32_t{kArgFloat} : 0;
      if (arg.is_const) {
        std::memcpy(reinterpret_cast<char*>(out) + constant_at, &low_.constants[arg.index],
                    kSlotBytes);
        out->words[k] = constant_at | kArgConst | flags;
        constant_at += kSlotBytes;
        continue;
      }
      uint32_t slot = live_.slot[arg.index] * kSlotBytes;
      if (arg.is_last_use && moves) flags |= kArgMove;
      if (arg.is_last_use && !moves) *drop++ = slot;
      out->words[k] = slot | flags;
    }
    bool all_const = insn.num_args > 0 && num_constants == insn.num_args;
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

  const LowFunction& low_;
  Liveness live_;
  const std::vector<Binding>& bindings_;
  Function& out_;
  const void* const* const handlers_ = HandlerTable();
  std::unique_ptr<Function::Unit[]> units_;
  size_t capacity_ = 0;
  uint32_t num_units_ = 0;
  uint32_t last_start_ = 0;          // of the instruction at hand, in units
  std::vector<uint32_t>& start_of_;  // LowInsn -> unit
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

// The scratch memory of the program that was loaded last, unless that was a large one.
constexpr size_t kMaxKeptBytes = size_t{1} << 20;
std::atomic<LoadScratch*> g_kept_scratch{nullptr};

std::unique_ptr<LoadScratch> TakeScratch() {
  std::unique_ptr<LoadScratch> kept(g_kept_scratch.exchange(nullptr));
  return kept != nullptr ? std::move(kept) : std::make_unique<LoadScratch>();
}

void KeepScratch(std::unique_ptr<LoadScratch> scratch) {
  if (scratch->NumBytes() > kMaxKeptBytes) return;
  delete g_kept_scratch.exchange(scratch.release());
}

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
  std::unique_ptr<LoadScratch> scratch = TakeScratch();
  for (const auto& function : program->functions) {
    if (function == nullptr || function->is_compiled()) continue;
    LowFunction low = Lower(*program, bindings, *function->info, options.what, scratch.get());
    Liveness live = ComputeLiveness(&low, scratch.get());
    Emitter(low, std::move(live), bindings, scratch.get(), function.get()).Run();
    GiveBack(std::move(low), scratch.get());
  }
  KeepScratch(std::move(scratch));
  return program;
}

}  // namespace relaxvm::vm
