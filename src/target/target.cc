// SPDX-License-Identifier: Apache-2.0
// Parsing of target strings.
#include "target/target.h"

#include <sstream>

#include "support/error.h"

namespace relaxvm::target {

Target ParseTarget(const std::string& text) {
  std::istringstream words(text);
  Target target;
  if (!(words >> target.kind) || target.kind != "llvm") {
    Fail(ErrorKind::kValueError, "unknown target '", text,
         "'; write \"llvm\" for this machine, or \"llvm -mcpu=<name>",
         " -mattr=<+feature,-feature>\" for another one");
  }
  std::string word;
  while (words >> word) {
    auto value_of = [&word](const std::string& option) -> const char* {
      return word.rfind(option, 0) == 0 ? word.c_str() + option.size() : nullptr;
    };
    if (const char* cpu = value_of("-mcpu=")) {
      target.cpu = cpu;
    } else if (const char* features = value_of("-mattr=")) {
      target.features = features;
    } else if (const char* triple = value_of("-mtriple=")) {
      target.triple = triple;
    } else {
      Fail(ErrorKind::kValueError, "target '", text, "': unknown option ", word,
           "; use -mcpu=, -mattr= and -mtriple=");
    }
  }
  return target;
}

}  // namespace relaxvm::target
