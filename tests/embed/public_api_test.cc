// SPDX-License-Identifier: Apache-2.0
// The classes of include/relaxvm/, as a program that embeds a model uses them.
#include <gtest/gtest.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/shape.h>

#include <filesystem>
#include <random>

#include "../bytecode/programs.h"
#include "bytecode/serialize.h"
#include "relaxvm/exec_builder.h"
#include "relaxvm/executable.h"
#include "relaxvm/runtime.h"

namespace relaxvm {
namespace {

namespace ffi = tvm::ffi;

Executable Sample(size_t number) {
  return Executable::FromBytes(bytecode::Serialize(testing::SamplePrograms()[number].Get()).Join());
}

TEST(PublicApi, RunsAnExecutableFromItsBytes) {
  Executable executable = Sample(1);
  EXPECT_EQ(executable.FunctionNames(), std::vector<std::string>{"f0"});
  EXPECT_EQ(Executable::FromBytes(executable.ToBytes()).AsText(), executable.AsText());
  VirtualMachine vm(executable);
  ffi::Shape shape = vm["f0"]().cast<ffi::Shape>();
  EXPECT_EQ(std::vector<int64_t>(shape.begin(), shape.end()), (std::vector<int64_t>{6, 5, 2}));
  EXPECT_EQ(vm.Memory().used_bytes, 0);
  EXPECT_GE(vm.Memory().peak_used_bytes, 96);
  EXPECT_GT(vm.TrimMemory(), 0);
}

TEST(PublicApi, MistakesAreErrors) {
  VirtualMachine vm(Sample(0), {.pooled_memory = false, .num_threads = 2});
  EXPECT_THROW(vm["no such function"], ffi::Error);
  EXPECT_THROW(vm.SetNumThreads(0), ffi::Error);
  EXPECT_THROW(vm.SetTimeLimitMs(-1), ffi::Error);
  EXPECT_THROW(Executable(vm.module()), ffi::Error);
  EXPECT_THROW(Executable::Load("/no/such/file.so"), ffi::Error);
  EXPECT_THROW(Executable::FromBytes("text"), ffi::Error);
}

TEST(PublicApi, BuildsExecutablesByHand) {
  ExecBuilder b;
  b.BeginFunction("main", 2, {"cond", "x"});
  b.EmitIf(b.R(0), 3);
  b.EmitCall("vm.builtin.make_tuple", {b.R(1), b.Imm(-3), b.Constant(1.5)}, b.R(2));
  b.EmitGoto(2);
  b.EmitCall("vm.builtin.copy", {b.Constant(ffi::Shape({2, 3}))}, b.R(2));
  b.EmitRet(b.R(2));
  b.EndFunction();
  VirtualMachine vm(b.Get());
  auto values = vm["main"](true, 7).cast<ffi::Array<ffi::Any>>();
  EXPECT_EQ(values[0].cast<int64_t>(), 7);
  EXPECT_EQ(values[1].cast<int64_t>(), -3);
  EXPECT_EQ(values[2].cast<double>(), 1.5);
  EXPECT_EQ(vm["main"](false, 7).cast<ffi::Shape>().Product(), 6);
}

TEST(PublicApi, MistakesOfTheBuilderAreErrors) {
  ExecBuilder b;
  EXPECT_THROW(b.EmitRet(b.R(0)), ffi::Error);  // no function is open
  EXPECT_THROW(b.EndFunction(), ffi::Error);
  EXPECT_THROW(b.BeginFunction("f", -1), ffi::Error);
  EXPECT_THROW(b.R(-1), ffi::Error);
  EXPECT_THROW(b.Imm(int64_t{1} << 55), ffi::Error);
  b.BeginFunction("f", 0);
  EXPECT_THROW(b.BeginFunction("g", 0), ffi::Error);
  EXPECT_THROW(b.EmitCall("f", {}, b.Imm(1)), ffi::Error);
  EXPECT_THROW(b.Get(), ffi::Error);
  b.EmitRet(b.R(3));
  b.EndFunction();
  EXPECT_THROW(b.Get(), ffi::Error);  // nothing writes register 3
}

TEST(PublicApi, SavesWeightsApart) {
  ExecBuilder b;
  ffi::Tensor weights = Empty({100}, {kDLFloat, 32, 1});
  for (int i = 0; i < 100; ++i) static_cast<float*>(weights.data_ptr())[i] = static_cast<float>(i);
  b.BeginFunction("main", 0);
  b.EmitCall("vm.builtin.copy", {b.Constant(weights)}, b.R(0));
  b.EmitRet(b.R(0));
  b.EndFunction();
  std::filesystem::path folder = std::filesystem::temp_directory_path() /
                                 ("relaxvm_public_api_" + std::to_string(std::random_device()()));
  std::filesystem::create_directory(folder);
  const std::string path = folder / "m.vm";
  b.Get().Save(path, "m.weights");
  auto loaded = VirtualMachine(Executable::Load(path))["main"]().cast<ffi::Tensor>();
  EXPECT_EQ(static_cast<const float*>(loaded.data_ptr())[99], 99.0f);
  EXPECT_THROW(Executable::Load(path, {.weights = path}), ffi::Error);
  std::filesystem::remove_all(folder);
}

TEST(PublicApi, CopiesTensors) {
  ffi::Tensor from = Empty({2, 3}, DLDataType{kDLFloat, 32, 1}),
              to = Empty({2, 3}, DLDataType{kDLFloat, 32, 1});
  for (int i = 0; i < 6; ++i) static_cast<float*>(from.data_ptr())[i] = static_cast<float>(i);
  Copy(from, to);
  EXPECT_EQ(static_cast<float*>(to.data_ptr())[5], 5.0f);
}

}  // namespace
}  // namespace relaxvm
