// SPDX-License-Identifier: Apache-2.0
// The VM from C++: threads, re-entry, references, limits, kernels of a table in memory.
#include "vm/virtual_machine.h"

#include <gtest/gtest.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/string.h>

#include <atomic>
#include <thread>

#include "../bytecode/programs.h"
#include "counted.h"
#include "machine.h"

namespace relaxvm {
namespace {

namespace ffi = tvm::ffi;
using bytecode::Arg;
using bytecode::Builtin;
using bytecode::ExecBuilder;
using testing::Counted;
using testing::CountedObj;

Arg R(int64_t index) { return Arg::Register(index); }

std::string ErrorOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const ffi::Error& error) {
    return std::string(error.kind()) + ": " + std::string(error.message());
  }
  return "";
}

// loop(n, x): calls step(n) until it is 0, gives x back, as a tail call behind a copy and a jump.
ExecBuilder LoopProgram() {
  ExecBuilder b;
  b.BeginFunction("loop", 2);
  b.EmitIf(R(0), 4);
  b.EmitCall("step", {R(0)}, 2);
  b.EmitCall("loop", {R(2), R(1)}, 3);
  b.EmitGoto(2);
  b.EmitCall(Builtin::kCopy, {R(1)}, 3);
  b.EmitCall(Builtin::kCopy, {R(3)}, 4);
  b.EmitRet(R(4));
  b.EndFunction("loop");
  return b;
}

ffi::Function Step() {
  return ffi::Function::FromTyped([](int64_t n) { return n - 1; });
}

TEST(VirtualMachine, TenMillionTailCallsInConstantStack) {
  auto machine = testing::MakeMachine(LoopProgram(), {{"step", Step()}});
  int64_t alive = CountedObj::num_alive;
  {
    Counted x(5);
    ffi::Any result = machine->FindFunction("loop").value()(int64_t{10'000'000}, x);
    EXPECT_EQ(result.cast<Counted>()->value, 5);
  }
  EXPECT_EQ(CountedObj::num_alive, alive);
}

TEST(VirtualMachine, ManyThreadsCallOneMachineAndReenterIt) {
  ExecBuilder b = LoopProgram();
  b.BeginFunction("main", 2);
  b.EmitCall("reenter", {R(0), R(1)}, 2);
  b.EmitCall(Builtin::kMakeTuple, {R(2), R(1)}, 3);
  b.EmitRet(R(3));
  b.EndFunction("main");
  ffi::Function loop(nullptr);
  auto reenter = ffi::Function::FromPacked(
      [&](ffi::PackedArgs args, ffi::Any* result) { loop.CallPacked(args, result); });
  auto machine = testing::MakeMachine(b, {{"step", Step()}, {"reenter", reenter}});
  loop = machine->FindFunction("loop").value();
  ffi::Function main = machine->FindFunction("main").value();
  int64_t alive = CountedObj::num_alive;
  std::atomic<int> num_wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 2000; ++i) {
        Counted x(t * 10000 + i);
        ffi::Array<ffi::Any> pair = main(int64_t{i % 7}, x).cast<ffi::Array<ffi::Any>>();
        if (pair[0].cast<Counted>()->value != t * 10000 + i || !pair[1].same_as(ffi::Any(x)))
          ++num_wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_wrong, 0);
  EXPECT_EQ(CountedObj::num_alive, alive);
  loop = ffi::Function(nullptr);
}

TEST(VirtualMachine, FunctionsKeepTheMachineAliveAndDieWithIt) {
  int64_t alive = CountedObj::num_alive;
  {
    ffi::Function closure(nullptr);
    {
      ExecBuilder b;
      b.BeginFunction("pair", 2);
      b.EmitCall(Builtin::kMakeTuple, {R(0), R(1)}, 2);
      b.EmitRet(R(2));
      b.EndFunction("pair");
      b.BeginFunction("make", 1);
      b.EmitCall(Builtin::kMakeClosure, {b.GetFunction("pair"), R(0)}, 1);
      b.EmitRet(R(1));
      b.EndFunction("make");
      closure =
          testing::MakeMachine(b)->FindFunction("make").value()(Counted(3)).cast<ffi::Function>();
    }
    ffi::Array<ffi::Any> pair = closure(int64_t{8}).cast<ffi::Array<ffi::Any>>();
    EXPECT_EQ(pair[0].cast<int64_t>(), 8);
    EXPECT_EQ(pair[1].cast<Counted>()->value, 3);
  }
  EXPECT_EQ(CountedObj::num_alive, alive);
}

TEST(VirtualMachine, RunsPastItsTimeLimitIntoAnError) {
  ExecBuilder b;
  b.BeginFunction("forever", 0);
  b.EmitCall(Builtin::kNullValue, {}, 0);
  b.EmitGoto(-1);
  b.EmitRet(R(0));
  b.EndFunction("forever");
  auto machine = testing::MakeMachine(b);
  machine->set_time_limit_ns(1'000'000);
  ffi::Function forever = machine->FindFunction("forever").value();
  EXPECT_EQ(ErrorOf([&] { forever(); }), "TimeoutError: the call ran past its deadline");
}

TEST(VirtualMachine, MemoryLimitIsAnError) {
  ExecBuilder b;
  b.BeginFunction("alloc", 1);
  b.EmitCall(Builtin::kAllocStorage,
             {Arg::VM(), R(0), Arg::Immediate(0), b.ConvertConstant(Float(32)),
              b.ConvertConstant(ffi::String("global"))},
             1);
  b.EmitRet(R(1));
  b.EndFunction("alloc");
  auto machine = testing::MakeMachine(b);
  machine->pool(0)->SetLimit(1 << 20);
  ffi::Function alloc = machine->FindFunction("alloc").value();
  EXPECT_NO_THROW(alloc(ffi::Shape({1000})));
  std::string error = ErrorOf([&] { alloc(ffi::Shape({2 << 20})); });
  EXPECT_NE(error.find("out of memory on cpu(0): 2097152 bytes were asked for"), std::string::npos)
      << error;
  EXPECT_EQ(machine->pool(0)->Stats().used_bytes, 0);
}

TEST(VirtualMachine, ArityErrorNamesTheParameters) {
  ExecBuilder b;
  b.BeginFunction("f", 2, {"data", "weight"});
  b.EmitRet(R(0));
  b.EndFunction("f");
  ffi::Function f = testing::MakeMachine(b)->FindFunction("f").value();
  EXPECT_EQ(ErrorOf([&] { f(1); }),
            "TypeError: Invoking function f expects 2 arguments (data, weight), but 1 arguments "
            "were provided.");
}

TEST(VirtualMachine, RegistersAreNumberedByLiveness) {
  ExecBuilder b;
  b.BeginFunction("chain", 1);
  for (int64_t i = 0; i < 1000; ++i) b.EmitCall(Builtin::kMakeTuple, {R(i)}, i + 1);
  b.EmitRet(R(1000));
  b.EndFunction("chain");
  auto machine = testing::MakeMachine(b);
  EXPECT_EQ(machine->program()->functions[0]->num_slots, 1u);
}

TEST(VirtualMachine, LongListsAreBuiltFoldedAndFreed) {
  // build(n, tail): tail when n is 0, else build(n - 1, Cons(x, tail)); length by a tail call over
  // get_field.
  ExecBuilder b;
  b.BeginFunction("build", 2);
  b.EmitIf(R(0), 5);
  b.EmitCall("step", {R(0)}, 2);
  b.EmitCall(Builtin::kAllocADT, {Arg::Immediate(1), R(0), R(1)}, 3);
  b.EmitCall("build", {R(2), R(3)}, 4);
  b.EmitGoto(2);
  b.EmitCall(Builtin::kCopy, {R(1)}, 4);
  b.EmitRet(R(4));
  b.EndFunction("build");
  b.BeginFunction("sum", 2);
  b.EmitCall(Builtin::kGetTag, {R(0)}, 2);
  b.EmitIf(R(2), 6);
  b.EmitCall(Builtin::kGetField, {R(0), Arg::Immediate(0)}, 3);
  b.EmitCall("add", {R(1), R(3)}, 4);
  b.EmitCall(Builtin::kGetField, {R(0), Arg::Immediate(1)}, 5);
  b.EmitCall("sum", {R(5), R(4)}, 6);
  b.EmitRet(R(6));
  b.EmitRet(R(1));
  b.EndFunction("sum");
  b.BeginFunction("main", 1);
  b.EmitCall(Builtin::kAllocADT, {Arg::Immediate(0)}, 1);
  b.EmitCall("build", {R(0), R(1)}, 2);
  b.EmitCall("sum", {R(2), Arg::Immediate(0)}, 3);
  b.EmitRet(R(3));
  b.EndFunction("main");
  auto add = ffi::Function::FromTyped([](int64_t x, int64_t y) { return x + y; });
  auto machine = testing::MakeMachine(b, {{"step", Step()}, {"add", add}});
  ffi::Any result = machine->FindFunction("main").value()(int64_t{200'000});
  EXPECT_EQ(result.cast<int64_t>(), int64_t{200'000} * 200'001 / 2);
}

TEST(VirtualMachine, InstrumentSeesEveryCallAndMaySkipIt) {
  auto machine = testing::MakeMachine(LoopProgram(), {{"step", Step()}});
  std::vector<std::string> seen;
  machine->SetInstrument(ffi::Function::FromPacked([&](ffi::PackedArgs args, ffi::Any* action) {
    std::string name = std::string(args[1].cast<ffi::String>());
    seen.push_back(name + (args[2].cast<bool>() ? "?" : "!"));
    *action = int64_t{name == "vm.builtin.copy" ? 1 : 0};
  }));
  ffi::Function loop = machine->FindFunction("loop").value();
  ffi::Any result = loop(int64_t{1}, int64_t{7});
  // The tail call replaces its frame: what is due after it is told when its function returns.
  EXPECT_EQ(seen, (std::vector<std::string>{"step?", "step!", "loop?", "vm.builtin.copy?",
                                            "vm.builtin.copy?", "loop!"}));
  EXPECT_EQ(result.type_index(), kTVMFFINone);
  machine->SetInstrument(ffi::Function(nullptr));
  seen.clear();
  EXPECT_EQ(loop(int64_t{1}, int64_t{7}).cast<int64_t>(), 7);
  EXPECT_TRUE(seen.empty());
}

// ---- kernels of a table in memory ----

int Scale(const RelaxvmKernelContext* context, const DLTensor* const* tensors,
          const int64_t* scalars) {
  if (tensors[0]->ndim != 1) {
    context->set_error(context, "ValueError", "x must have 1 dimension");
    return kKernelError;
  }
  for (int64_t i = 0; i < tensors[0]->shape[0]; ++i) {
    static_cast<float*>(tensors[1]->data)[i] =
        static_cast<float*>(tensors[0]->data)[i] * static_cast<float>(scalars[0]);
  }
  return 0;
}

int ScalePacked(void*, const void*, int32_t, void*) { return kKernelError; }

const RelaxvmKernelEntry kScale[] = {{"scale", "tti", Scale, ScalePacked}};
const RelaxvmKernelTable kTable = {kKernelAbiVersion, 1, kScale, "here", "generic", ""};

TEST(VirtualMachine, CallsKernelsOfATableAndKeepsTheirOwner) {
  ExecBuilder b;
  b.BeginFunction("main", 2);
  b.EmitCall("scale", {R(0), R(1), Arg::Immediate(3)}, bytecode::kVoidRegister);
  b.EmitRet(R(1));
  b.EndFunction("main");
  int64_t alive = CountedObj::num_alive;
  {
    vm::KernelTableRef kernels{&kTable, nullptr, Counted(1)};
    auto machine = testing::MakeMachine(b, {}, kernels);
    kernels.keep_alive = nullptr;
    EXPECT_EQ(CountedObj::num_alive, alive + 1);
    ffi::Tensor x = testing::Zeros({4}), y = testing::Zeros({4});
    for (int i = 0; i < 4; ++i) static_cast<float*>(x.data_ptr())[i] = static_cast<float>(i);
    ffi::Function main = machine->FindFunction("main").value();
    main(x, y);
    EXPECT_EQ(static_cast<float*>(y.data_ptr())[3], 9.0f);
    EXPECT_EQ(ErrorOf([&] { main(testing::Zeros({2, 2}), y); }),
              "ValueError: scale: x must have 1 dimension (called with a tensor (2, 2) float32, a "
              "tensor (4,) float32, an "
              "integer 3)");
  }
  EXPECT_EQ(CountedObj::num_alive, alive);
}

TEST(VirtualMachine, KernelCallsThatDoNotFitAreRefusedAtLoad) {
  ExecBuilder b;
  b.BeginFunction("main", 1);
  b.EmitCall("scale", {R(0), R(0)}, bytecode::kVoidRegister);
  b.EmitRet(R(0));
  b.EndFunction("main");
  std::string error = ErrorOf([&] { testing::MakeMachine(b, {}, {&kTable, nullptr, nullptr}); });
  EXPECT_NE(error.find("calls kernel scale(tti) with 2 arguments, it takes 3"), std::string::npos)
      << error;
}

}  // namespace
}  // namespace relaxvm
