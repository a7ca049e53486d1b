// SPDX-License-Identifier: Apache-2.0
// How much a kernel does for given arguments: evaluates what the compiler wrote down over symbolic
// sizes (analysis/work.h).
#pragma once

#include <dlpack/dlpack.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace relaxvm::runtime {

class KernelWork {
 public:
  // "operations|bytes" in postfix notation, or "operations|bytes|dtype".  Empty when the text is
  // not of that form.
  static std::optional<KernelWork> Parse(std::string_view text);

  // -1 when it depends on data.  `scalars` as a kernel takes them.
  double Operations(std::span<const DLTensor* const> tensors,
                    std::span<const int64_t> scalars) const;
  double Bytes(std::span<const DLTensor* const> tensors, std::span<const int64_t> scalars) const;
  // What is multiplied, where a machine may do that faster than floats; else empty.
  const std::string& products() const { return products_; }

 private:
  enum class Op : uint8_t {
    kNumber,
    kDim,
    kElems,
    kScalar,
    kAdd,
    kSub,
    kMul,
    kDiv,
    kMod,
    kMin,
    kMax
  };
  struct Token {
    Op op;
    int64_t a = 0;  // number, tensor or scalar
    int64_t b = 0;  // dimension
  };
  using Code = std::vector<Token>;
  static std::optional<Code> ParseCode(std::string_view text);
  static double Run(const Code& code, std::span<const DLTensor* const> tensors,
                    std::span<const int64_t> scalars);

  Code operations_, bytes_;  // empty: not known
  std::string products_;
};

// Lines "kernel<tab>text", as a kernel library holds them.
std::unordered_map<std::string, KernelWork> ParseWorkTable(std::string_view text);

}  // namespace relaxvm::runtime
