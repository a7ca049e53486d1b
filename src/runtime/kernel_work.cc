// SPDX-License-Identifier: Apache-2.0
// A stack machine over doubles: counts beyond 2^53 lose only their last digits.
#include "runtime/kernel_work.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace relaxvm::runtime {
namespace {

bool ParseNumber(std::string_view text, int64_t* value) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

std::optional<KernelWork::Code> KernelWork::ParseCode(std::string_view text) {
  static constexpr std::pair<std::string_view, Op> kOperators[] = {
      {"+", Op::kAdd}, {"-", Op::kSub},   {"*", Op::kMul},  {"/", Op::kDiv},
      {"%", Op::kMod}, {"min", Op::kMin}, {"max", Op::kMax}};
  Code code;
  int64_t depth = 0;
  while (!text.empty()) {
    std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    Token token{Op::kNumber};
    auto it = std::find_if(std::begin(kOperators), std::end(kOperators),
                           [&](const auto& row) { return row.first == word; });
    bool is_good = !word.empty();
    if (it != std::end(kOperators)) {
      token.op = it->second;
      depth -= 1;
    } else {
      char kind = is_good ? word[0] : ' ';
      size_t dot = word.find('.');
      if (kind == 't') {
        token.op = Op::kDim;
        is_good = dot != std::string_view::npos && ParseNumber(word.substr(1, dot - 1), &token.a) &&
                  ParseNumber(word.substr(dot + 1), &token.b);
      } else if (kind == 'n' || kind == 's') {
        token.op = kind == 'n' ? Op::kElems : Op::kScalar;
        is_good = ParseNumber(word.substr(1), &token.a);
      } else {
        is_good = is_good && ParseNumber(word, &token.a);
      }
      depth += 1;
    }
    if (!is_good || depth < 1) return std::nullopt;
    code.push_back(token);
  }
  if (!code.empty() && depth != 1) return std::nullopt;
  return code;
}

std::optional<KernelWork> KernelWork::Parse(std::string_view text) {
  size_t bar = text.find('|');
  if (bar == std::string_view::npos) return std::nullopt;
  const std::string_view rest = text.substr(bar + 1);
  const size_t second = std::min(rest.find('|'), rest.size());
  auto operations = ParseCode(text.substr(0, bar)), bytes = ParseCode(rest.substr(0, second));
  if (!operations || !bytes) return std::nullopt;
  KernelWork work;
  work.operations_ = std::move(*operations);
  work.bytes_ = std::move(*bytes);
  work.products_ = rest.substr(std::min(second + 1, rest.size()));
  return work;
}

double KernelWork::Run(const Code& code, std::span<const DLTensor* const> tensors,
                       std::span<const int64_t> scalars) {
  if (code.empty()) return -1;
  std::vector<double> stack;
  for (const Token& token : code) {
    double value = 0;
    switch (token.op) {
      case Op::kNumber: value = static_cast<double>(token.a); break;
      case Op::kScalar:
        if (token.a < 0 || static_cast<size_t>(token.a) >= scalars.size()) return -1;
        value = static_cast<double>(scalars[static_cast<size_t>(token.a)]);
        break;
      case Op::kDim:
      case Op::kElems: {
        if (token.a < 0 || static_cast<size_t>(token.a) >= tensors.size()) return -1;
        const DLTensor& tensor = *tensors[static_cast<size_t>(token.a)];
        if (token.op == Op::kDim) {
          if (token.b < 0 || token.b >= tensor.ndim) return -1;
          value = static_cast<double>(tensor.shape[token.b]);
        } else {
          value = 1;
          for (int i = 0; i < tensor.ndim; ++i) value *= static_cast<double>(tensor.shape[i]);
        }
        break;
      }
      default: {
        double b = stack.back();
        stack.pop_back();
        double a = stack.back();
        stack.pop_back();
        switch (token.op) {
          case Op::kAdd: value = a + b; break;
          case Op::kSub: value = a - b; break;
          case Op::kMul: value = a * b; break;
          case Op::kDiv: value = b == 0 ? 0 : std::floor(a / b); break;
          case Op::kMod: value = b == 0 ? 0 : a - b * std::floor(a / b); break;
          case Op::kMin: value = std::min(a, b); break;
          default: value = std::max(a, b); break;
        }
      }
    }
    stack.push_back(value);
  }
  return stack.back();
}

double KernelWork::Operations(std::span<const DLTensor* const> tensors,
                              std::span<const int64_t> scalars) const {
  return Run(operations_, tensors, scalars);
}

double KernelWork::Bytes(std::span<const DLTensor* const> tensors,
                         std::span<const int64_t> scalars) const {
  return Run(bytes_, tensors, scalars);
}

std::unordered_map<std::string, KernelWork> ParseWorkTable(std::string_view text) {
  std::unordered_map<std::string, KernelWork> table;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    size_t tab = line.find('\t');
    if (tab == std::string_view::npos) continue;
    if (auto work = KernelWork::Parse(line.substr(tab + 1)))
      table.emplace(std::string(line.substr(0, tab)), std::move(*work));
  }
  return table;
}

}  // namespace relaxvm::runtime
