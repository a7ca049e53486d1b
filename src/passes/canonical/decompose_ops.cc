// SPDX-License-Identifier: Apache-2.0
// DecomposeOpsForInference: operators that are several simpler ones become these, by the rule in
// their record. Stage: graph.  Options: func_name, one function instead of all.
#include "ir/block_builder.h"
#include "ops/op_def.h"
#include "passes/pass.h"

namespace relaxvm::passes {
namespace {

using ir::Expr;

class Decomposer : public ir::Mutator {
 public:
  Decomposer(const IRModule& mod, ir::TypeContext* facts) : builder_(facts, mod) {}

  ir::BindingBlock MutateBlock(const ir::BindingBlock& block) override {
    bool any = false;
    for (const ir::Binding& binding : block->bindings) any |= RuleOf(binding) != nullptr;
    if (!any) return ir::Mutator::MutateBlock(block);
    builder_.BeginBlock(block.as<ir::DataflowBlockObj>() != nullptr);
    for (const ir::Binding& binding : block->bindings) {
      ffi::Array<ir::Binding> rewritten;
      ir::Mutator::MutateBinding(binding, &rewritten);
      const ir::Binding& now = rewritten[0];
      const ops::OpDef* rule = RuleOf(now);
      if (rule == nullptr) {
        builder_.EmitBinding(now);
        continue;
      }
      ir::Call call = now->value.as<ir::Call>().value();
      Expr value = builder_.Normalize(rule->decompose(builder_, call, call->attrs));
      builder_.EmitBinding(ir::VarBinding(now->var, value, now->span));
    }
    return builder_.EndBlock();
  }

 private:
  static const ops::OpDef* RuleOf(const ir::Binding& binding) {
    auto* call = binding.as<ir::VarBindingObj>() ? binding->value.as<ir::CallObj>() : nullptr;
    const ir::OpObj* op = call == nullptr ? nullptr : ir::CalledOp(call);
    if (op == nullptr || op->record == nullptr) return nullptr;
    const ops::OpDef& def = ops::RecordOf(op);
    return def.decompose ? &def : nullptr;
  }

  ir::BlockBuilder builder_;
};

}  // namespace

IRModule DecomposeOpsForInference(IRModule mod, const PassContext& context) {
  auto only = context.options["func_name"].as<ffi::String>();
  if (only) mod->Lookup(*only);
  std::unique_ptr<ir::TypeContext> facts = ops::MakeTypeContext();
  return ir::MutateFunctions(mod, [&](const ir::GlobalVar& var, const ir::Function& f) {
    if (only && var->name_hint != *only) return f;
    return Decomposer(mod, facts.get()).Mutate(f).as<ir::Function>().value();
  });
}

}  // namespace relaxvm::passes
