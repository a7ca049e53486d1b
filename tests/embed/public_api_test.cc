// SPDX-License-Identifier: Apache-2.0
// The classes of include/relaxvm/, as a program that embeds a model uses them.
#include <gtest/gtest.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/shape.h>

#include "../bytecode/programs.h"
#include "bytecode/serialize.h"
#include "relaxvm/executable.h"
#include "relaxvm/runtime.h"

namespace relaxvm {
namespace {

namespace ffi = tvm::ffi;

Executable Sample(size_t number) {
  return Executable::FromBytes(bytecode::Serialize(testing::SamplePrograms()[number].Get()));
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

TEST(PublicApi, CopiesTensors) {
  ffi::Tensor from = Empty({2, 3}, DLDataType{kDLFloat, 32, 1}),
              to = Empty({2, 3}, DLDataType{kDLFloat, 32, 1});
  for (int i = 0; i < 6; ++i) static_cast<float*>(from.data_ptr())[i] = static_cast<float>(i);
  Copy(from, to);
  EXPECT_EQ(static_cast<float*>(to.data_ptr())[5], 5.0f);
}

}  // namespace
}  // namespace relaxvm
