// SPDX-License-Identifier: Apache-2.0
// What changes the logits of a language model in place, before a token is chosen.
#include <algorithm>
#include <cmath>

#include "support/dtype.h"
#include "vm/builtins/builtins.h"

namespace relaxvm::vm::builtins {
namespace ffi = tvm::ffi;
namespace {

// The elements of a dense tensor on the host.
template <typename T>
std::span<T> Values(const Args& args, int32_t i, DLDataType dtype) {
  const DLTensor& tensor = args.TensorView(i);
  if (!(tensor.dtype == dtype) || !runtime::IsHost(tensor.device) || !ffi::IsContiguous(tensor)) {
    Fail(ErrorKind::kTypeError, "argument ", i, " must be a contiguous ",
         std::string(ffi::DLDataTypeToString(dtype)), " tensor on the CPU, it is ",
         DescribeValue(args[i]));
  }
  size_t count = 1;
  for (int32_t d = 0; d < tensor.ndim; ++d) count *= static_cast<size_t>(tensor.shape[d]);
  return {reinterpret_cast<T*>(runtime::DataOf(tensor)), count};
}

double Number(const Args& args, int32_t i) {
  auto number = args.view(i).try_cast<double>();
  if (!number) args.WrongType(i, "a number");
  return *number;
}

// Tokens, every one an index of `logits`.
std::span<const int32_t> Tokens(const Args& args, int32_t i, size_t num_logits) {
  std::span<const int32_t> tokens = Values<const int32_t>(args, i, Int(32));
  for (int32_t token : tokens) {
    if (token < 0 || static_cast<size_t>(token) >= num_logits) {
      Fail(ErrorKind::kIndexError, "token ", token, " is none of the ", num_logits, " logits");
    }
  }
  return tokens;
}

}  // namespace

// (logits, tokens, penalty)
void ApplyRepetitionPenalty(Args args, ffi::Any*) {
  std::span<float> logits = Values<float>(args, 0, Float(32));
  std::span<const int32_t> tokens = Tokens(args, 1, logits.size());
  const auto penalty = static_cast<float>(Number(args, 2));
  if (!(penalty > 0)) {
    Fail(ErrorKind::kValueError, "a repetition penalty is positive, it is ", penalty);
  }
  for (int32_t token : tokens) {
    float& logit = logits[static_cast<size_t>(token)];
    logit = logit <= 0 ? logit * penalty : logit / penalty;
  }
}

// (logits, tokens, counts, presence, frequency)
void ApplyPresenceAndFrequencyPenalty(Args args, ffi::Any*) {
  std::span<float> logits = Values<float>(args, 0, Float(32));
  std::span<const int32_t> tokens = Tokens(args, 1, logits.size());
  std::span<const int32_t> counts = Values<const int32_t>(args, 2, Int(32));
  if (counts.size() != tokens.size()) {
    Fail(ErrorKind::kValueError, "there are ", tokens.size(), " tokens and ", counts.size(),
         " counts; each token needs one");
  }
  const double presence = Number(args, 3);
  const double frequency = Number(args, 4);
  for (size_t i = 0; i < tokens.size(); ++i) {
    logits[static_cast<size_t>(tokens[i])] -= static_cast<float>(presence + counts[i] * frequency);
  }
}

// (logits, temperature); a temperature of nearly 0 gives all probability to the largest logit
void ApplySoftmaxWithTemperature(Args args, ffi::Any*) {
  std::span<float> logits = Values<float>(args, 0, Float(32));
  const double temperature = Number(args, 1);
  const DLTensor& tensor = args.TensorView(0);
  if (!(temperature >= 0)) {
    Fail(ErrorKind::kValueError, "a temperature is not negative, it is ", temperature);
  }
  if (logits.empty() || tensor.ndim == 0) {
    Fail(ErrorKind::kValueError, "there are no logits: ", DescribeValue(args[0]));
  }
  const auto row_size = static_cast<size_t>(tensor.shape[tensor.ndim - 1]);
  constexpr double kGreedy = 1e-6;
  for (size_t start = 0; start < logits.size(); start += row_size) {
    std::span<float> row = logits.subspan(start, row_size);
    const auto best = std::max_element(row.begin(), row.end());
    if (temperature < kGreedy) {
      std::fill(row.begin(), best, 0.0f);
      std::fill(best + 1, row.end(), 0.0f);
      *best = 1;
      continue;
    }
    const double top = *best;
    double sum = 0;
    for (float& value : row) {
      const double e = std::exp((value - top) / temperature);
      sum += e;
      value = static_cast<float>(e);
    }
    for (float& value : row) value = static_cast<float>(value / sum);
  }
}

}  // namespace relaxvm::vm::builtins
