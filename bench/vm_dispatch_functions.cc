// SPDX-License-Identifier: Apache-2.0
// C++ functions that bench/vm_dispatch.py has both virtual machines call, and loops that call
// functions without Python in between.
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace ffi = tvm::ffi;

namespace {

double SecondsNow() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void Call(const ffi::Function& function, const std::vector<ffi::AnyView>& args) {
  ffi::Any result;
  function.CallPacked(args.data(), static_cast<int32_t>(args.size()), &result);
}

}  // namespace

int64_t AddInts(int64_t a, int64_t b) { return a + b; }
int64_t AddOne(int64_t a) { return a + 1; }
ffi::Tensor Identity(ffi::Tensor x) { return x; }

// As a compiled kernel is: plain C, arguments looked at and nothing else.
extern "C" int bench_kernel3(void*, const TVMFFIAny* args, int32_t num_args, TVMFFIAny*) {
  return num_args == 3 && args[2].type_index == kTVMFFITensor ? 0 : -1;
}

extern "C" int bench_minus_one(void*, const TVMFFIAny* args, int32_t num_args, TVMFFIAny* result) {
  if (num_args != 1 || args[0].type_index != kTVMFFIInt) return -1;
  result->type_index = kTVMFFIInt;
  result->v_int64 = args[0].v_int64 - 1;
  return 0;
}

ffi::Function MinusOne() { return ffi::Function::FromExternC(nullptr, bench_minus_one, nullptr); }
ffi::Function Kernel3() { return ffi::Function::FromExternC(nullptr, bench_kernel3, nullptr); }

// Nanoseconds of one call of `bench_kernel3` by its pointer, the least of several rounds.
double BareKernel3(ffi::Tensor x) {
  TVMFFISafeCallType volatile pointer = bench_kernel3;
  ffi::AnyView views[3] = {x, x, x};
  double best = 1e9;
  for (int round = 0; round < 25; ++round) {
    constexpr int kCalls = 100000;
    TVMFFISafeCallType kernel = pointer;
    double start = SecondsNow();
    for (int i = 0; i < kCalls; ++i) {
      TVMFFIAny result{};
      kernel(nullptr, reinterpret_cast<const TVMFFIAny*>(views), 3, &result);
      asm volatile("" : : "r"(&result) : "memory");
    }
    best = std::min(best, (SecondsNow() - start) / kCalls * 1e9);
  }
  return best;
}

// Seconds of `count` calls of f(arg).
double SecondsOfCalls(ffi::Function f, ffi::Any arg, int64_t count) {
  std::vector<ffi::AnyView> args = {arg};
  double start = SecondsNow();
  for (int64_t i = 0; i < count; ++i) Call(f, args);
  return SecondsNow() - start;
}

// Calls of f(arg) in a second, by `num_threads` threads at once for `seconds`.
double CallsPerSecond(ffi::Function f, ffi::Any arg, int64_t num_threads, double seconds) {
  std::atomic<int64_t> total{0};
  std::atomic<bool> begin{false}, end{false};
  std::vector<std::thread> threads;
  for (int64_t i = 0; i < num_threads; ++i) {
    threads.emplace_back([&] {
      std::vector<ffi::AnyView> args = {arg};
      while (!begin) std::this_thread::yield();
      int64_t calls = 0;
      for (; !end.load(std::memory_order_relaxed); ++calls) Call(f, args);
      total += calls;
    });
  }
  double start = SecondsNow();
  begin = true;
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  end = true;
  for (std::thread& thread : threads) thread.join();
  return static_cast<double>(total) / (SecondsNow() - start);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(add_ints, AddInts);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(add_one, AddOne);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(minus_one, MinusOne);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(identity, Identity);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(kernel3, Kernel3);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(bare_kernel3, BareKernel3);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(seconds_of_calls, SecondsOfCalls);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(calls_per_second, CallsPerSecond);
