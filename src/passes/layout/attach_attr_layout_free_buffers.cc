// SPDX-License-Identifier: Apache-2.0
// AttachAttrLayoutFreeBuffers: writes down for each call of a tensor program which of its arguments
// are weights (parameters behind attribute "num_input") or constants: these may be stored in
// whatever layout the program likes best.  Calls that differ in it get programs of their own, with
// the places of the arguments as attribute "layout_free_buffers".  Stage: graph, after
// CanonicalizeBindings: another name of a weight is no weight.
#include <unordered_set>
#include <utility>

#include "analysis/calls.h"
#include "ops/op_def.h"
#include "passes/layout/emit.h"
#include "passes/pass.h"
#include "tir/functor.h"

namespace relaxvm::passes {
namespace {

using ir::Expr;

constexpr const char* kLayoutFreeBuffers = "layout_free_buffers";

class Annotator : public ir::Mutator {
 public:
  explicit Annotator(ir::BlockBuilder* builder) : builder_(builder) {}

  ir::Function Run(const ir::Function& func) {
    weights_.clear();
    const auto num_params = static_cast<int64_t>(func->params.size());
    for (int64_t i = ir::GetAttr(func->attrs, ir::attr::kNumInput, num_params); i < num_params; ++i)
      weights_.insert(func->params[i].get());
    return MutateFunction(func).as<ir::Function>().value();
  }

  Expr MutateCall(const ir::Call& call) override {
    auto tir_call = analysis::AsCallTir(call);
    if (!tir_call) return ir::Mutator::MutateCall(call);
    auto found = builder_->module()->functions.find(tir_call->func);
    if (found == builder_->module()->functions.end()) return call;
    auto program = (*found).second.as<tir::PrimFunc>();
    if (!program) return call;
    ffi::Array<int64_t> free;
    for (size_t i = 0; i < tir_call->args.size(); ++i) {
      const Expr& arg = tir_call->args[i];
      if (arg.as<ir::ConstantObj>() || weights_.count(arg.get()) != 0)
        free.push_back(static_cast<int64_t>(i));
    }
    auto annotated = ffi::make_object<tir::PrimFuncObj>(*program->get());
    annotated->attrs.Set(kLayoutFreeBuffers, free);
    annotated->attrs.erase(ir::attr::kGlobalSymbol);  // the copy is called from here only
    auto func =
        builder_->AddFunction(tir::RenewDefs(ir::NodeRef<tir::PrimFunc>(std::move(annotated))),
                              tir_call->func->name_hint);
    if (func.same_as(tir_call->func)) return call;
    ffi::Array<Expr> args = call->args;
    args.Set(0, func);
    return ir::Call(call->op, args, call->attrs, call->ty_args, call->span, call->ty);
  }
  Expr MutateOther(const Expr& e) override { return e; }

 private:
  ir::BlockBuilder* builder_;
  std::unordered_set<const ffi::Object*> weights_;
};

}  // namespace

IRModule AttachAttrLayoutFreeBuffers(IRModule mod, const PassContext& context) {
  std::unique_ptr<ir::TypeContext> facts = ops::MakeTypeContext();
  ir::BlockBuilder builder(facts.get(), mod);
  Annotator annotator(&builder);
  return RewriteFunctions(&builder, [&](const ir::Function& func) { return annotator.Run(func); });
}

}  // namespace relaxvm::passes
