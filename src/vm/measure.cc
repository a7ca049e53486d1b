// SPDX-License-Identifier: Apache-2.0
#include "vm/measure.h"

#include <algorithm>
#include <thread>

#include "support/error.h"

namespace relaxvm::vm {
namespace ffi = tvm::ffi;

ffi::Array<double> Measure(const ffi::Function& function, ffi::PackedArgs args,
                           const MeasureOptions& options) {
  constexpr int kFirstArg = 6;
  if (args.size() < kFirstArg) Fail(ErrorKind::kTypeError, "time_function: arguments are missing");
  ffi::Function preproc(nullptr);  // None would be cast to one
  if (args[0].type_index() == kTVMFFIFunction) preproc = args[0].cast<ffi::Function>();
  int64_t number = std::max<int64_t>(1, args[1].cast<int64_t>()), repeat = args[2].cast<int64_t>();
  double min_seconds = args[3].cast<double>(), pause = args[4].cast<double>();
  int64_t repeats_to_pause = std::max<int64_t>(1, args[5].cast<int64_t>());
  const ffi::AnyView* given = args.data() + kFirstArg;
  int32_t num_given = args.size() - kFirstArg;
  using Clock = std::chrono::steady_clock;
  auto begin = Clock::now();
  auto measure = [&](int64_t count) {
    auto start = Clock::now();
    for (int64_t i = 0; i < count; ++i) {
      ffi::Any ignored;
      function.CallPacked(given, num_given, &ignored);
      constexpr int64_t kCallsBetweenChecks = 256;
      if (options.limit.count() > 0 && i % kCallsBetweenChecks == 0 &&
          Clock::now() - begin > options.limit)
        throw ffi::Error("TimeoutError", "the measurement ran past its deadline", "");
    }
    options.synchronize();
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  constexpr int64_t kMostCalls = int64_t{1} << 30;
  ffi::Array<double> times;
  measure(1);  // warms up
  for (int64_t i = 0; i < repeat; ++i) {
    ffi::Any ignored;
    if (preproc != nullptr) preproc.CallPacked(given, num_given, &ignored);
    double seconds = measure(number);
    while (seconds < min_seconds && number < kMostCalls) {
      number *= 2;
      seconds = measure(number);
    }
    times.push_back(seconds / static_cast<double>(number));
    if (pause > 0 && (i + 1) % repeats_to_pause == 0)
      std::this_thread::sleep_for(std::chrono::duration<double>(pause));
  }
  return times;
}

}  // namespace relaxvm::vm
