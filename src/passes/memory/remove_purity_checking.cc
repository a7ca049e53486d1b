// SPDX-License-Identifier: Apache-2.0
// RemovePurityChecking: calls that were marked pure become plain calls, because from here on the
// order is fixed. Stage: lowered.
#include "analysis/core_ops.h"
#include "ir/visitor.h"
#include "passes/pass.h"

namespace relaxvm::passes {
namespace {

using analysis::CoreOp;
using ir::Call;
using ir::CallObj;
using ir::Expr;

class PurityRemover : public ir::Mutator {
 public:
  Expr MutateCall(const Call& original) override {
    Expr mutated = ir::Mutator::MutateCall(original);
    const auto* call = mutated.as<CallObj>();
    switch (analysis::CoreOpOf(call)) {
      case CoreOp::kCallPurePacked:
      case CoreOp::kCallInplacePacked: {
        ffi::Array<Expr> args(call->args.begin() + 1, call->args.end());
        return Call(call->args[0], args, ir::Attrs(), call->ty_args, call->span, call->ty);
      }
      case CoreOp::kInvokePureClosure:
        return Call(analysis::GetCoreOp(CoreOp::kInvokeClosure), call->args, call->attrs,
                    call->ty_args, call->span, call->ty);
      default: return mutated;
    }
  }
};

}  // namespace

IRModule RemovePurityChecking(IRModule mod, const PassContext& context) {
  return ir::MutateFunctions(std::move(mod), [](const ir::GlobalVar&, const ir::Function& func) {
    ir::Function result =
        ffi::GetRef<ir::Function>(PurityRemover().MutateFunction(func).as<ir::FunctionObj>());
    if (!result->is_pure || ir::GetAttr<bool>(result->attrs, ir::attr::kForcePure, false))
      return result;
    return ir::WithAttr(result, ir::attr::kForcePure, true);
  });
}

}  // namespace relaxvm::passes
