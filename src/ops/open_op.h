// SPDX-License-Identifier: Apache-2.0
// Operators that are defined from outside, one rule after the other.
#pragma once

#include <string>

#include "ops/op_def.h"

namespace relaxvm::ops {

// The record and the operator; rules may be put into both.  Null for an operator of the table.
struct OpenOp {
  OpDef* record = nullptr;
  ir::OpObj* op = nullptr;
};

// The operator called `name`, made when it is named for the first time.
OpenOp OpenOperator(const std::string& name);

}  // namespace relaxvm::ops
