// SPDX-License-Identifier: Apache-2.0
#include "pipeline/inplace_call.h"

#include "lowering/dataflow_use_inplace_calls.h"
#include "ops/op_def.h"

namespace relaxvm::pipeline {

std::pair<ir::Expr, ir::IRModule> MakeInplaceCall(const ir::IRModule& mod, const ir::Call& call,
                                                  int64_t arg) {
  std::unique_ptr<ir::TypeContext> facts = ops::MakeTypeContext();
  ir::BlockBuilder builder(facts.get(), mod);
  std::optional<ir::Expr> made;
  if (arg >= 0) made = lowering::MakeInplaceCall(call, static_cast<size_t>(arg), &builder);
  if (!made) {
    Fail(ErrorKind::kValueError, call->span.Place(), "argument ", arg,
         " of this call cannot be written over: it must be a tensor of the result's type of which "
         "an elementwise operator reads each element for the result's element at the same place");
  }
  return {*made, builder.module()};
}

}  // namespace relaxvm::pipeline
