// SPDX-License-Identifier: Apache-2.0
// Reads environment variables.
#include "support/flags.h"

#include <cstdlib>
#include <cstring>
#include <sstream>

extern char** environ;

namespace relaxvm {
namespace {

struct Row {
  const char* variable;
  const char* default_value;
};

constexpr Row kRows[] = {
#define FLAG(id, variable, type, default_value, doc) {variable, default_value},
#include "support/flags.def"
#undef FLAG
};

}  // namespace

std::string FlagText(Flag flag) {
  const Row& row = kRows[static_cast<int>(flag)];
  const char* value = std::getenv(row.variable);
  return value != nullptr ? value : row.default_value;
}

bool FlagIsOn(Flag flag) {
  std::string text = FlagText(flag);
  return !text.empty() && text != "0" && text != "false" && text != "off";
}

std::vector<std::string> FlagList(Flag flag) {
  std::vector<std::string> parts;
  std::istringstream text(FlagText(flag));
  for (std::string part; std::getline(text, part, ',');) {
    if (!part.empty()) parts.push_back(part);
  }
  return parts;
}

std::vector<std::string> UnknownFlags() {
  std::vector<std::string> unknown;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, "RELAXVM_", 8) != 0) continue;
    std::string name(*entry, std::strcspn(*entry, "="));
    bool known = false;
    for (const Row& row : kRows) known = known || name == row.variable;
    if (!known) unknown.push_back(name);
  }
  return unknown;
}

}  // namespace relaxvm
