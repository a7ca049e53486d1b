// SPDX-License-Identifier: Apache-2.0
// One operator call as a tensor program: through the `compute` rule of the operator's record.
#pragma once

#include "ir/op.h"
#include "ops/op_def.h"
#include "tir/stmt.h"

namespace relaxvm::lowering {

namespace ffi = tvm::ffi;

struct ProgramCall {
  tir::PrimFunc program;
  ffi::Array<ir::Expr> args;      // the tensors that the program reads, in order
  ffi::Array<ir::Expr> tir_vars;  // sizes that no tensor's shape gives
};

// `call` is normal and has a type whose shapes are known; its operator has a compute rule.
ProgramCall OpToProgram(const ir::Call& call, ir::TypeContext& facts);

}  // namespace relaxvm::lowering
