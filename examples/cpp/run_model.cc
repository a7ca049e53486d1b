// SPDX-License-Identifier: Apache-2.0
// Runs a compiled model from C++: run_model MODEL.so ROWS.  The model takes one float32 tensor of
// shape (n, 4) and gives one back; needs librelaxvm_runtime and libtvm_ffi, no compiler and no
// Python.
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "relaxvm/runtime.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s MODEL.so ROWS\n", argv[0]);
    return 2;
  }
  try {
    relaxvm::VirtualMachine vm(relaxvm::Executable::Load(argv[1]));
    tvm::ffi::Function run = vm["main"];

    int64_t rows = std::atoll(argv[2]);
    tvm::ffi::Tensor x = relaxvm::Empty({rows, 4}, {kDLFloat, 32, 1});
    auto* values = static_cast<float*>(x.data_ptr());
    for (int64_t i = 0; i < rows * 4; ++i) values[i] = static_cast<float>(i);

    auto y = run(x).cast<tvm::ffi::Tensor>();
    const auto* result = static_cast<const float*>(y.data_ptr());
    for (int64_t i = 0; i < rows; ++i) {
      const float* row = result + i * 4;
      std::printf("%g %g %g %g\n", row[0], row[1], row[2], row[3]);
    }
    std::printf("peak memory: %lld bytes\n", static_cast<long long>(vm.Memory().peak_used_bytes));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
