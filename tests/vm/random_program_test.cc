// SPDX-License-Identifier: Apache-2.0
// Random programs agree with a plain interpreter of the words, and free every object exactly once,
// also when a call somewhere in them fails.
#include <gtest/gtest.h>
#include <tvm/ffi/function.h>

#include <random>

#include "bytecode/verify.h"
#include "counted.h"
#include "machine.h"
#include "vm/describe.h"

namespace relaxvm {
namespace {

namespace ffi = tvm::ffi;
using bytecode::Arg;
using bytecode::ArgKind;
using bytecode::ExecBuilder;
using bytecode::ExecutableData;
using bytecode::Instruction;
using bytecode::Opcode;
using testing::Counted;
using testing::CountedObj;

constexpr int kMaxSteps = 400;

// Mixes the values of its arguments into a new object; None counts as 17.  Throws at the call that
// `fuse` names.
struct Mixer {
  int64_t fuse = -1;
  int64_t calls = 0;
  int64_t Mix(const std::vector<int64_t>& values) {
    if (calls++ == fuse) throw ffi::Error("RuntimeError", "fuse", "");
    uint64_t hash = 1469598103934665603u;
    for (int64_t value : values) hash = (hash ^ static_cast<uint64_t>(value)) * 1099511628211u;
    return static_cast<int64_t>(hash >> 8);
  }
};

int64_t NumberOf(const ffi::Any& value) {
  if (value.type_index() == kTVMFFINone) return 17;
  if (auto integer = value.as<int64_t>()) return *integer;
  return value.cast<Counted>()->value;
}

// Straight from the words: registers start as None, nothing is moved or shared.
class Reference {
 public:
  Reference(const ExecutableData& data, Mixer* mixer) : data_(data), mixer_(*mixer) {}

  ffi::Any Call(const std::string& name, std::vector<ffi::Any> args) {
    const bytecode::FuncInfo& info = *data_.FindFunction(name);
    std::vector<ffi::Any> regs = std::move(args);
    regs.resize(static_cast<size_t>(info.register_file_size));
    for (int64_t pc = info.start_instr;;) {
      if (++steps_ > kMaxSteps) throw ffi::Error("RuntimeError", "too many steps", "");
      Instruction insn = data_.GetInstruction(pc);
      auto read = [&](int64_t reg) {
        return reg == bytecode::kVoidRegister ? ffi::Any() : regs[static_cast<size_t>(reg)];
      };
      switch (insn.op) {
        case Opcode::kRet: return read(insn.reg);
        case Opcode::kGoto: pc += insn.offset; break;
        case Opcode::kIf: {
          ffi::Any cond = read(insn.reg);
          if (!cond.as<int64_t>()) throw ffi::Error("TypeError", "no condition", "");
          pc += cond.cast<int64_t>() != 0 ? 1 : insn.offset;
          break;
        }
        case Opcode::kCall: {
          std::vector<ffi::Any> values;
          for (size_t i = 0; i < insn.num_args(); ++i) {
            Arg arg = insn.arg(i);
            values.push_back(arg.kind() == ArgKind::kRegister ? read(arg.value())
                                                              : ffi::Any(arg.value()));
          }
          ffi::Any result =
              CallOne(data_.func_table[static_cast<size_t>(insn.func)].name, std::move(values));
          if (insn.reg != bytecode::kVoidRegister) regs[static_cast<size_t>(insn.reg)] = result;
          ++pc;
        }
      }
    }
  }

 private:
  ffi::Any CallOne(const std::string& name, std::vector<ffi::Any> values) {
    if (name == "vm.builtin.null_value") return {};
    if (name == "vm.builtin.copy") return values[0];
    if (name == "mix" || name == "coin") {
      std::vector<int64_t> numbers;
      for (const ffi::Any& value : values) numbers.push_back(NumberOf(value));
      int64_t mixed = mixer_.Mix(numbers);
      if (name == "coin") return mixed % 2;
      return Counted(mixed);
    }
    return Call(name, std::move(values));
  }

  const ExecutableData& data_;
  Mixer& mixer_;
  int steps_ = 0;
};

// Functions f0..f3: calls, kills, copies, forward and a few backward jumps, calls of each other.
ExecBuilder RandomProgram(std::mt19937* rng) {
  auto pick = [&](int n) { return static_cast<int>((*rng)() % static_cast<unsigned>(n)); };
  ExecBuilder builder;
  constexpr int kFunctions = 4;
  std::vector<int> num_params;
  for (int f = 0; f < kFunctions; ++f) {
    num_params.push_back(pick(4));
    builder.DeclareFunction("f" + std::to_string(f), bytecode::FuncKind::kVMFunc);
  }
  for (int f = 0; f < kFunctions; ++f) {
    int num_regs = num_params[f] + 2 + pick(6);
    int length = 6 + pick(20);
    builder.BeginFunction("f" + std::to_string(f), num_params[f]);
    // Every register is written first, so that the builder accepts reads of it, and skipped, so
    // that they find nothing.
    std::vector<int> unwritten;
    for (int r = num_params[f]; r < num_regs; ++r) unwritten.push_back(r);
    auto any_register = [&] { return pick(12) == 0 ? Arg::Void() : Arg::Register(pick(num_regs)); };
    auto operands = [&](int count) {
      std::vector<Arg> args;
      for (int i = 0; i < count; ++i)
        args.push_back(pick(5) == 0 ? Arg::Immediate(pick(9)) : any_register());
      return args;
    };
    int start = static_cast<int>(builder.NumInstructions());
    int prelude = 1 + static_cast<int>(unwritten.size());
    builder.EmitGoto(prelude);
    for (int reg : unwritten) builder.EmitCall("vm.builtin.null_value", {}, reg);
    int total = prelude + length + 1;
    for (int i = 0; i < length; ++i) {
      int at = static_cast<int>(builder.NumInstructions()) - start;
      int left = total - 1 - at;  // distance to the final Ret
      int64_t dst = pick(8) == 0 ? bytecode::kVoidRegister : pick(num_regs);
      switch (pick(9)) {
        case 0: builder.EmitCall("vm.builtin.copy", operands(1), dst); break;
        case 1: builder.EmitCall("vm.builtin.null_value", {}, dst); break;
        case 2: {
          int callee = pick(kFunctions);
          builder.EmitCall("f" + std::to_string(callee), operands(num_params[callee]), dst);
          break;
        }
        case 3: builder.EmitGoto(1 + pick(left)); break;
        case 4:
          if (at > 0 && pick(3) == 0) {
            builder.EmitGoto(-(1 + pick(at)));
          } else {
            builder.EmitRet(any_register());
          }
          break;
        case 5: {
          int64_t cond = pick(num_regs);
          builder.EmitCall("coin", operands(2), cond);
          if (left > 2 && i + 1 < length) {
            builder.EmitIf(Arg::Register(cond), 2 + pick(left - 2));
            ++i;
          }
          break;
        }
        default: builder.EmitCall("mix", operands(pick(4)), dst); break;
      }
    }
    builder.EmitRet(any_register());
    builder.EndFunction("f" + std::to_string(f));
  }
  return builder;
}

struct Outcome {
  bool failed;
  int64_t number;
  bool operator==(const Outcome&) const = default;
};

template <typename Call>
Outcome Try(const Call& call) {
  try {
    return {false, NumberOf(call())};
  } catch (const ffi::Error& error) {
    return {true, 0};
  }
}

// Programs that do not end are left out.
bool RunsTooLong(const ExecutableData& data, const std::string& name,
                 const std::vector<ffi::Any>& args) {
  Mixer mixer;
  try {
    Reference(data, &mixer).Call(name, args);
  } catch (const ffi::Error& error) {
    return error.message() == "too many steps";
  }
  return false;
}

TEST(RandomProgram, AgreesWithReferenceAndFreesEverything) {
  int num_compared = 0;
  for (unsigned seed = 0; seed < 3000; ++seed) {
    std::mt19937 rng(seed);
    ExecBuilder builder = RandomProgram(&rng);
    ExecutableData data = builder.Get();
    try {
      bytecode::Verify(data, "random");
    } catch (const ffi::Error& error) {
      continue;  // a jump that hits its own neighbour
    }
    Mixer mixer;
    auto mix = ffi::Function::FromPacked([&](ffi::PackedArgs args, ffi::Any* result) {
      std::vector<int64_t> numbers;
      for (int i = 0; i < args.size(); ++i) numbers.push_back(NumberOf(args[i]));
      *result = Counted(mixer.Mix(numbers));
    });
    auto coin = ffi::Function::FromPacked([&](ffi::PackedArgs args, ffi::Any* result) {
      std::vector<int64_t> numbers;
      for (int i = 0; i < args.size(); ++i) numbers.push_back(NumberOf(args[i]));
      *result = mixer.Mix(numbers) % 2;
    });
    auto machine = testing::MakeMachine(builder, {{"mix", mix}, {"coin", coin}});
    for (int f = 0; f < 4; ++f) {
      std::string name = "f" + std::to_string(f);
      int64_t num_args = data.FindFunction(name)->num_args;
      std::vector<ffi::Any> args;
      for (int64_t i = 0; i < num_args; ++i) args.push_back(Counted(100 + i));
      if (RunsTooLong(data, name, args)) continue;
      std::vector<ffi::AnyView> views(args.begin(), args.end());
      ffi::Function function = machine->FindFunction(name).value();
      for (int64_t fuse : {-1, 0, 2, 5, 9}) {
        Mixer reference_mixer{fuse};
        Outcome expected = Try([&] { return Reference(data, &reference_mixer).Call(name, args); });
        int64_t alive = CountedObj::num_alive;
        mixer = Mixer{fuse};
        Outcome found = Try([&] {
          ffi::Any result;
          function.CallPacked(views.data(), static_cast<int32_t>(views.size()), &result);
          return result;
        });
        ASSERT_EQ(found, expected) << "seed " << seed << " " << name << " fuse " << fuse;
        ASSERT_EQ(mixer.calls, reference_mixer.calls)
            << "seed " << seed << " " << name << " fuse " << fuse;
        ASSERT_EQ(CountedObj::num_alive, alive)
            << "seed " << seed << " " << name << " fuse " << fuse;
        ++num_compared;
      }
    }
  }
  EXPECT_GT(num_compared, 10000);
}

}  // namespace
}  // namespace relaxvm
