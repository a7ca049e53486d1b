// SPDX-License-Identifier: Apache-2.0
// What is legal in each stage, as named rules.  docs/design/stages.md says the same in words.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ir/module.h"

namespace relaxvm::pipeline {

struct Violation {
  std::string rule;     // "no_operators"
  std::string message;  // what was found, and where
};

// The first rule of `stage` that `mod` breaks; `complete`: the stage's last pass has run, so rules
// that only its end keeps are checked as well.
std::optional<Violation> FindViolation(const ir::IRModule& mod, const std::string& stage,
                                       bool complete);

// Throws InternalError that names pass, stage and rule.
void CheckStage(const ir::IRModule& mod, const std::string& stage, bool complete,
                const std::string& pass);

struct RuleInfo {
  std::string stage;  // the first stage it holds in
  std::string name;
  std::string meaning;
};
std::vector<RuleInfo> AllRules();

}  // namespace relaxvm::pipeline
