// SPDX-License-Identifier: Apache-2.0
// One model called from four threads at once: four_threads MODEL.so CALLS.  The model takes one
// float32 tensor of shape (n, 4), with another n in every call, and gives one back.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <thread>
#include <vector>

#include "relaxvm/runtime.h"

namespace {

using tvm::ffi::Tensor;

Tensor Input(int64_t rows) {
  Tensor x = relaxvm::Empty({rows, 4}, {kDLFloat, 32, 1});
  auto* values = static_cast<float*>(x.data_ptr());
  for (int64_t i = 0; i < rows * 4; ++i) values[i] = static_cast<float>(i % 1000);
  return x;
}

bool SameValues(const Tensor& a, const Tensor& b) {
  return a.numel() == b.numel() && std::memcmp(a.data_ptr(), b.data_ptr(),
                                               static_cast<size_t>(a.numel()) * sizeof(float)) == 0;
}

constexpr int kThreads = 4;
constexpr int64_t kShapes = 16;

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s MODEL.so CALLS\n", argv[0]);
    return 2;
  }
  try {
    relaxvm::VirtualMachine vm(relaxvm::Executable::Load(argv[1]));
    vm.SetNumThreads(1);  // each call in the thread that makes it
    tvm::ffi::Function run = vm["main"];
    std::vector<Tensor> inputs, expected;
    for (int64_t i = 0; i < kShapes; ++i) {
      inputs.push_back(Input(1 + 7 * i));
      expected.push_back(run(inputs.back()).cast<Tensor>());
    }

    const int calls = std::atoi(argv[2]);
    std::atomic<int> differences{0}, done{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < calls; ++i) {
          size_t shape = static_cast<size_t>(t + i) % kShapes;
          differences += !SameValues(run(inputs[shape]).cast<Tensor>(), expected[shape]);
          done += 1;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    std::printf("%d threads, %d calls, %d differences\n", kThreads, done.load(),
                differences.load());
    return differences.load() == 0 ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
