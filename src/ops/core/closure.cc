// SPDX-License-Identifier: Apache-2.0
// Closures: functions with captured values.
#include "ops/core/core.h"

namespace relaxvm::ops {
namespace {

const ArgDoc kClosure = {"closure", "What make_closure gave.", ArgKind::kFunc};

Type InferInvoke(TypeCtx& ctx, const NoAttrs&) {
  CheckArgsTuple(ctx);
  return StatedResult(ctx.call(), ir::AnyType());
}

}  // namespace

OpDef make_closure() {
  return Define<NoAttrs>({
      .name = "make_closure",
      .doc = "A function of the module together with the values of its last parameters.",
      .args = {{"func", "A function of the module.", ArgKind::kFunc},
               {"args", "The captured values, a tuple.", ArgKind::kTensors}},
      .type = [](TypeCtx& ctx, const NoAttrs&) -> Type {
        CheckArgsTuple(ctx);
        return ir::AnyType();
      },
      .normalize = WithArgsAsTuple,
  });
}

OpDef invoke_closure() {
  return Define<NoAttrs>({
      .name = "invoke_closure",
      .doc = "Calls a closure.",
      .args = {kClosure, {"args", "The arguments, a tuple.", ArgKind::kTensors}},
      .type = InferInvoke,
      .normalize = WithArgsAsTuple,
      .effect = Effect::kImpure,
  });
}

OpDef invoke_pure_closure() {
  return Define<NoAttrs>({
      .name = "invoke_pure_closure",
      .doc = "Calls a closure that has no effect besides its result.",
      .args = {kClosure, {"args", "The arguments, a tuple.", ArgKind::kTensors}},
      .type = InferInvoke,
      .normalize = WithArgsAsTuple,
  });
}

}  // namespace relaxvm::ops
