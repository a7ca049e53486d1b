// SPDX-License-Identifier: Apache-2.0
// What code is compiled for, as the user writes it: "llvm", "llvm -mcpu=znver3", "llvm
// -mcpu=haswell -mattr=+avx2,-fma".
#pragma once

#include <string>

namespace relaxvm::target {

struct Target {
  std::string kind = "llvm";
  std::string cpu;       // empty: this machine's
  std::string features;  // LLVM's notation, on top of the CPU's own
  std::string triple;    // empty: this machine's
};

// Throws ValueError that says what is understood.
Target ParseTarget(const std::string& text);

}  // namespace relaxvm::target
