// SPDX-License-Identifier: Apache-2.0
// Reads the Python signatures of pass_list.def: literals None, True, False, numbers, strings and
// [].
#include "pipeline/pass_options.h"

#include <cstdlib>
#include <vector>

namespace relaxvm::pipeline {
namespace {

std::string Trim(const std::string& text) {
  size_t begin = text.find_first_not_of(' ');
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

// Splits at commas outside brackets and quotes.
std::vector<std::string> SplitParameters(const std::string& signature) {
  std::vector<std::string> parts(1);
  int depth = 0;
  char quote = 0;
  for (char c : signature) {
    if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '[' || c == '(' || c == '{') {
      ++depth;
    } else if (c == ']' || c == ')' || c == '}') {
      --depth;
    } else if (c == ',' && depth == 0) {
      parts.emplace_back();
      continue;
    }
    parts.back() += c;
  }
  if (Trim(parts.back()).empty()) parts.pop_back();
  return parts;
}

ffi::Any Literal(const std::string& text) {
  if (text == "None") return nullptr;
  if (text == "True" || text == "False") return text == "True";
  if (text == "[]" || text == "()") return ffi::Array<ffi::Any>();
  if (text == "{}") return ffi::Map<ffi::Any, ffi::Any>();
  if (text.size() >= 2 && (text[0] == '"' || text[0] == '\''))
    return ffi::String(text.substr(1, text.size() - 2));
  char* end = nullptr;
  long long integer = std::strtoll(text.c_str(), &end, 10);
  if (end != text.c_str() && *end == '\0') return static_cast<int64_t>(integer);
  double number = std::strtod(text.c_str(), &end);
  RELAXVM_CHECK(end != text.c_str() && *end == '\0') << "no default value: " << text;
  return number;
}

}  // namespace

ffi::Map<ffi::String, ffi::Any> CompleteOptions(const std::string& pass,
                                                const std::string& signature,
                                                const ffi::Map<ffi::String, ffi::Any>& given) {
  ffi::Map<ffi::String, ffi::Any> options;
  for (const std::string& parameter : SplitParameters(signature)) {
    size_t assign = parameter.rfind('=');
    std::string name = Trim(parameter.substr(0, parameter.find_first_of(":=")));
    if (auto it = given.find(name); it != given.end()) {
      options.Set(name, (*it).second);
    } else if (assign == std::string::npos) {
      Fail(ErrorKind::kTypeError, pass, ": option '", name, "' must be given");
    } else {
      options.Set(name, Literal(Trim(parameter.substr(assign + 1))));
    }
  }
  for (const auto& [name, value] : given) {
    if (!options.count(name)) {
      Fail(ErrorKind::kTypeError, pass, " has no option '", std::string(name), "'; it takes (",
           signature, ")");
    }
  }
  return options;
}

void CheckStopAfter(const std::vector<std::string>& stages, const std::vector<std::string>& passes,
                    const std::string& stop_after) {
  if (stop_after.empty()) return;
  std::string all;
  for (const std::string& stage : stages) {
    if (stage == stop_after) return;
    all += (all.empty() ? "" : ", ") + stage;
  }
  for (const std::string& pass : passes) {
    if (pass == stop_after) return;
    all += ", " + pass;
  }
  Fail(ErrorKind::kValueError, "stop_after=\"", stop_after,
       "\" is neither a stage nor a pass of this pipeline; there are: ", all);
}

}  // namespace relaxvm::pipeline
