// SPDX-License-Identifier: Apache-2.0
// The machine description that passes and schedules work with.
#pragma once

#include <string>

#include "target/machine.h"

namespace relaxvm::pipeline {

// What `target` names; with the caches and cores of this system when it names no CPU.
target::Machine MachineFor(const std::string& target);

// Why code for `target` cannot run in this process; empty when it can.
std::string WhyNotHere(const std::string& target);

}  // namespace relaxvm::pipeline
