// SPDX-License-Identifier: Apache-2.0
// Choosing by probability, for the last step of language models.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "support/dtype.h"
#include "vm/builtins/builtins.h"
#include "vm/virtual_machine.h"

namespace relaxvm::vm::builtins {
namespace ffi = tvm::ffi;
namespace {

// The floats of a dense host tensor.
const float* Floats(const Args& args, int32_t i) {
  const DLTensor& tensor = args.TensorView(i);
  bool is_float = tensor.dtype == Float(32);
  if (!is_float || !runtime::IsHost(tensor.device) || !ffi::IsContiguous(tensor)) {
    Fail(ErrorKind::kTypeError, "argument ", i,
         " must be a contiguous float32 tensor on the CPU, it is ", DescribeValue(args[i]));
  }
  return reinterpret_cast<const float*>(runtime::DataOf(tensor));
}

int64_t NumElems(const DLTensor& tensor) {
  return std::accumulate(tensor.shape, tensor.shape + tensor.ndim, int64_t{1}, std::multiplies<>());
}

// The first place where the running sum passes `u`; the last one with any probability when rounding
// keeps it below.
int64_t InverseCdf(const float* prob, int64_t size, double u) {
  double sum = 0;
  int64_t last = 0;
  for (int64_t i = 0; i < size; ++i) {
    if (!(prob[i] > 0)) continue;
    sum += prob[i];
    last = i;
    if (sum > u) return i;
  }
  return last;
}

// Draws among the most probable entries whose sum reaches `top_p`.
int64_t TopP(const std::vector<double>& prob, double top_p, double u) {
  std::vector<int64_t> order(prob.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return prob[static_cast<size_t>(a)] > prob[static_cast<size_t>(b)];
  });
  double kept = 0;
  size_t count = 0;
  while (count < order.size() && (count == 0 || kept < top_p)) {
    kept += prob[static_cast<size_t>(order[count])];
    ++count;
  }
  double sum = 0;
  for (size_t i = 0; i < count; ++i) {
    sum += prob[static_cast<size_t>(order[i])];
    if (sum > u * kept) return order[i];
  }
  return order[count - 1];
}

double Number(const Args& args, int32_t i) {
  auto number = args.view(i).try_cast<double>();
  if (!number) args.WrongType(i, "a number");
  return *number;
}

uint64_t BitsOfSystem() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

}  // namespace

// SplitMix64 (Steele, Lea, Flood 2014) from a start that the system gives.
void RandomSeed(Args args, ffi::Any* result) {
  constexpr uint64_t kStep = 0x9e3779b97f4a7c15;
  static std::atomic<uint64_t> state{BitsOfSystem()};
  uint64_t z = state.fetch_add(kStep, std::memory_order_relaxed) + kStep;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  z ^= z >> 31;
  ffi::Tensor seed = runtime::EmptyHostTensor({}, Int(64));
  std::memcpy(seed.data_ptr(), &z, sizeof(z));
  *result = std::move(seed);
}

// (prob[batch, size], u[batch, 1]) -> int64[batch, 1]
void MultinomialFromUniform(Args args, ffi::Any* result) {
  const DLTensor& prob = args.TensorView(0);
  const DLTensor& uniform = args.TensorView(1);
  const float* p = Floats(args, 0);
  const float* u = Floats(args, 1);
  if (prob.ndim != 2 || uniform.ndim != 2 || uniform.shape[0] != prob.shape[0] ||
      uniform.shape[1] != 1) {
    Fail(ErrorKind::kValueError,
         "multinomial_from_uniform takes (batch, size) and (batch, 1), given ",
         DescribeValue(args[0]), " and ", DescribeValue(args[1]));
  }
  ffi::Tensor out = runtime::EmptyHostTensor({prob.shape[0], 1}, Int(64));
  for (int64_t i = 0; i < prob.shape[0]; ++i) {
    static_cast<int64_t*>(out.data_ptr())[i] =
        InverseCdf(p + i * prob.shape[1], prob.shape[1], u[i]);
  }
  *result = std::move(out);
}

// (logits, temperature, top_p, u)
void SampleTopPFromLogits(Args args, ffi::Any* result) {
  const float* logits = Floats(args, 0);
  int64_t size = NumElems(args.TensorView(0));
  double temperature = Number(args, 1);
  if (size == 0) Fail(ErrorKind::kValueError, "there is nothing to sample from");
  const float* best = std::max_element(logits, logits + size);
  constexpr double kGreedy = 1e-6;
  if (temperature < kGreedy) {
    *result = static_cast<int64_t>(best - logits);
    return;
  }
  std::vector<double> prob(static_cast<size_t>(size));
  double sum = 0;
  for (int64_t i = 0; i < size; ++i)
    sum += prob[static_cast<size_t>(i)] = std::exp((logits[i] - *best) / temperature);
  for (double& value : prob) value /= sum;
  *result = TopP(prob, Number(args, 2), Number(args, 3));
}

// (prob, top_p, u)
void SampleTopPFromProb(Args args, ffi::Any* result) {
  const float* given = Floats(args, 0);
  int64_t size = NumElems(args.TensorView(0));
  if (size == 0 ||
      std::all_of(given, given + size, [](float value) { return std::isnan(value); })) {
    Fail(ErrorKind::kValueError, "the probabilities are all NaN, or there are none");
  }
  *result = TopP(std::vector<double>(given, given + size), Number(args, 1), Number(args, 2));
}

}  // namespace relaxvm::vm::builtins
