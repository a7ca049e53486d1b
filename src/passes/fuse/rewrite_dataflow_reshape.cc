// SPDX-License-Identifier: Apache-2.0
// RewriteDataflowReshape: a call of a tensor program that only keeps row-major order becomes
// relax.reshape, which costs nothing at run time. Stage: lowered.  Only inside dataflow blocks:
// elsewhere the argument may be written to while the result lives.
#include <unordered_map>

#include "analysis/calls.h"
#include "analysis/program_kind.h"
#include "ir/visitor.h"
#include "ops/op_def.h"
#include "passes/pass.h"

namespace relaxvm::passes {
namespace {

using ir::Expr;

class Rewriter : public ir::Mutator {
 public:
  explicit Rewriter(const IRModule& mod) : mod_(mod) {}

  ir::BindingBlock MutateBlock(const ir::BindingBlock& block) override {
    bool outer = std::exchange(dataflow_, block.as<ir::DataflowBlockObj>() != nullptr);
    ir::BindingBlock out = ir::Mutator::MutateBlock(block);
    dataflow_ = outer;
    return out;
  }

  Expr MutateCall(const ir::Call& call) override {
    if (!dataflow_) return call;
    std::optional<analysis::TirCall> tir = analysis::AsCallTir(call);
    auto* type = call->ty.as<ir::TensorTypeObj>();
    if (!tir || tir->args.size() != 1 || type == nullptr || !type->GetShape()) return call;
    // A tuple of one result stays a tuple.
    if (!IsReshape(tir->func) || !tir->args[0]->ty.as<ir::TensorTypeObj>()) return call;
    return ir::Call(ops::GetOp("reshape"), {tir->args[0], ir::ShapeExpr(type->GetShape().value())},
                    ir::Attrs(), {}, call->span, call->ty);
  }

 private:
  bool IsReshape(const ir::GlobalVar& var) {
    auto [it, added] = known_.try_emplace(var.get(), false);
    if (added) {
      auto program = mod_->Lookup(var).as<tir::PrimFunc>();
      it->second = program && analysis::HasReshapePattern(*program);
    }
    return it->second;
  }

  IRModule mod_;
  bool dataflow_ = false;
  std::unordered_map<const ffi::Object*, bool> known_;
};

}  // namespace

IRModule RewriteDataflowReshape(IRModule mod, const PassContext& context) {
  Rewriter rewriter(mod);
  return ir::MutateFunctions(std::move(mod), [&](const ir::GlobalVar&, const ir::Function& f) {
    return rewriter.Mutate(f).as<ir::Function>().value();
  });
}

}  // namespace relaxvm::passes
