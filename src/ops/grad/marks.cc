// SPDX-License-Identifier: Apache-2.0
// Marks that differentiation reads; elsewhere they are the value itself.
#include "ops/compute.h"

namespace relaxvm::ops {
namespace {

// `of_variable`: a checkpoint stands between bindings, so it takes a variable.
OpDef Mark(const char* name, const char* doc, bool of_variable) {
  return Define<NoAttrs>({
      .name = name,
      .doc = doc,
      .args = {{"input", "The tensor."}},
      .reference = "out = input",
      .samples = {{{"input: f32[4, 8]"}}},
      .type = [of_variable](TypeCtx& ctx, const NoAttrs&) -> Type {
        if (of_variable && ctx.arg(0).as<ir::VarObj>() == nullptr) {
          ctx.Error(ErrorKind::kTypeError, "input must be a variable, got ",
                    DescribeType(ctx.type(0)));
        }
        return ctx.Tensor(0);
      },
      .compute = [](const ComputeArgs& in, const NoAttrs&) -> Tensors {
        return {tir::Map(in[0], [](Expr e) { return e; }, "mark")};
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
