// SPDX-License-Identifier: Apache-2.0
// ToNonDataflow: dataflow blocks become plain blocks and their variables plain variables, because
// memory has effects. Stage: lowered.
#include "ir/visitor.h"
#include "passes/pass.h"

namespace relaxvm::passes {
namespace {

class Converter : public ir::Mutator {
 public:
  ir::Var MutateDef(const ir::Var& var) override {
    if (!var.as<ir::DataflowVarObj>()) return ir::Mutator::MutateDef(var);
    ir::Var plain(var->name, MutateType(var->ty), var->span);
    Replace(var, plain);
    return plain;
  }

  ir::BindingBlock MutateBlock(const ir::BindingBlock& block) override {
    ir::BindingBlock result = ir::Mutator::MutateBlock(block);
    if (!result.as<ir::DataflowBlockObj>()) return result;
    return ir::BindingBlock(result->bindings, result->span);
  }
};

}  // namespace

IRModule ToNonDataflow(IRModule mod, const PassContext& context) {
  return ir::MutateFunctions(std::move(mod), [](const ir::GlobalVar&, const ir::Function& func) {
    return ffi::GetRef<ir::Function>(Converter().MutateFunction(func).as<ir::FunctionObj>());
  });
}

}  // namespace relaxvm::passes
