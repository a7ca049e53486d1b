// SPDX-License-Identifier: Apache-2.0
// Operators that are defined from outside, one rule after the other.
#pragma once

#include <functional>
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

// What a rule from outside puts in the place of a call: bindings, then the value; the module has
// the functions that both name.
struct Lowered {
  ir::BindingBlock block;
  Expr value;
  ir::IRModule mod;
};
using LegalizeRule =
    std::function<Lowered(const Call& call, const ir::IRModule& mod, bool dataflow)>;

// The rule that a function gives: (call, module, in a dataflow block) -> [bindings, value, module].
LegalizeRule LegalizeRuleOf(const ffi::Function& f);

// A rule that LegalizeOps asks before its own, for any operator; an empty one takes it away.
void SetLegalizeRule(const std::string& op, LegalizeRule rule);
// Empty when there is none.
LegalizeRule FindLegalizeRule(const std::string& op);

}  // namespace relaxvm::ops
