// SPDX-License-Identifier: Apache-2.0
// For passes that put calls in front of a binding, and give calls programs of their own.
#pragma once

#include <functional>
#include <utility>

#include "ir/block_builder.h"
#include "passes/pass.h"

namespace relaxvm::passes {

namespace ffi = tvm::ffi;

// A mutator that knows whether it is in a dataflow block, and binds values in front of the binding
// at hand.
class EmittingMutator : public ir::Mutator {
 public:
  explicit EmittingMutator(ir::BlockBuilder* builder) : builder_(builder) {}

  ir::BindingBlock MutateBlock(const ir::BindingBlock& block) override {
    const bool outer = std::exchange(in_dataflow_, block.as<ir::DataflowBlockObj>() != nullptr);
    ir::BindingBlock result = ir::Mutator::MutateBlock(block);
    in_dataflow_ = outer;
    return result;
  }
  ir::Expr MutateOther(const ir::Expr& e) override { return e; }

 protected:
  // The variable that `value`, whose parts have types, is bound to.
  ir::Var Emit(const ir::Expr& value, const char* name, const ir::Span& span,
               ffi::Array<ir::Binding>* out) {
    ir::Expr typed = builder_->Normalize(value);
    ir::Var var = in_dataflow_ ? ir::Var(ir::DataflowVar(name, typed->ty, span))
                               : ir::Var(name, typed->ty, span);
    out->push_back(ir::VarBinding(var, typed, span));
    return var;
  }
  // Binds the variable of `binding` to `value`; it is a new one when the type differs.
  void Rebind(const ir::Binding& binding, const ir::Expr& value, ffi::Array<ir::Binding>* out) {
    ir::Expr typed = builder_->Normalize(value);
    ir::Var var = MutateDef(binding->var);
    if (!ir::StructuralEqual(var->ty, typed->ty)) {
      var = binding->var.as<ir::DataflowVarObj>()
                ? ir::Var(ir::DataflowVar(var->name, typed->ty, var->span))
                : ir::Var(var->name, typed->ty, var->span);
      Replace(binding->var, var);
    }
    out->push_back(ir::VarBinding(var, typed, binding->span));
  }
  ir::BlockBuilder* builder() const { return builder_; }

 private:
  ir::BlockBuilder* builder_;
  bool in_dataflow_ = false;
};

// The builder's module with what `rewrite` makes of each function, without the programs that nobody
// calls any more; the same module where nothing changes.
inline IRModule RewriteFunctions(ir::BlockBuilder* builder,
                                 const std::function<ir::Function(const ir::Function&)>& rewrite) {
  const IRModule before = builder->module();
  bool changed = false;
  for (const auto& [var, func] : before->functions) {
    auto function = func.as<ir::Function>();
    if (!function) continue;
    const ir::Function made = rewrite(*function);
    if (made.same_as(func)) continue;
    builder->UpdateFunction(var, made);
    changed = true;
  }
  if (!changed) return before;
  PassContext all;
  all.options.Set("entry_functions", nullptr);
  return DeadCodeElimination(builder->module(), all);
}

}  // namespace relaxvm::passes
