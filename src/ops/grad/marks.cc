// SPDX-License-Identifier: Apache-2.0
// Marks that differentiation reads; elsewhere they are the value itself.
#include "ir/block_builder.h"
#include "ops/compute.h"

namespace relaxvm::ops {
namespace {

// A checkpoint stands between bindings, so it takes a variable, of a tensor; no_grad takes any
// value.
OpDef Mark(const char* name, const char* doc, bool checkpoint) {
  return Define<NoAttrs>({
      .name = name,
      .doc = doc,
      .args = {{"input", checkpoint ? "The tensor." : "The value.",
                checkpoint ? ArgKind::kTensor : ArgKind::kAny}},
      .reference = "out = input",
      .samples = {{{"input: f32[4, 8]"}}},
      .type = [checkpoint](TypeCtx& ctx, const NoAttrs&) -> Type {
        if (!checkpoint) return ctx.type(0);
        if (ctx.arg(0).as<ir::VarObj>() == nullptr) {
          ctx.Error(ErrorKind::kTypeError, "input must be a variable, got ",
                    DescribeType(ctx.type(0)));
        }
        return ctx.Tensor(0);
      },
      .decompose = [](ir::BlockBuilder&, const Call& call, const NoAttrs&) -> Expr {
        return call->args[0];
      },
  });
}

}  // namespace

std::vector<OpDef> grad_marks() {
  return {
      Mark("grad.no_grad", "The value; no gradient passes it.", false),
      Mark("grad.start_checkpoint",
           "The value; what follows is computed again instead of being kept.", true),
      Mark("grad.end_checkpoint", "The value; what follows is kept for the gradient again.", true)};
}

}  // namespace relaxvm::ops
