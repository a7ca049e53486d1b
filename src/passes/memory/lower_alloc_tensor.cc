// SPDX-License-Identifier: Apache-2.0
// LowerAllocTensor: every builtin.alloc_tensor that the planner left becomes a storage of its own
// and a tensor in it. Stage: planned.
#include "analysis/core_ops.h"
#include "ir/prim.h"
#include "ir/visitor.h"
#include "passes/memory/destination.h"
#include "passes/pass.h"

namespace relaxvm::passes {
namespace {

using analysis::CoreOp;
using ir::Expr;
using ir::IntImm;
using ir::Var;

class Lowerer : public ir::Mutator {
 public:
  void MutateBinding(const ir::Binding& binding, ffi::Array<ir::Binding>* out) override {
    const auto* bound = binding.as<ir::VarBindingObj>();
    if (!bound || analysis::CoreOpOfValue(bound->value) != CoreOp::kBuiltinAllocTensor) {
      ir::Mutator::MutateBinding(binding, out);
      return;
    }
    const auto* call = bound->value.as<ir::CallObj>();
    // shape, dtype, runtime_device_index, storage_scope
    const auto* shape = call->args[0].as<ir::ShapeExprObj>();
    if (shape == nullptr) {
      Fail(ErrorKind::kValueError, call->span.Place(),
           "builtin.alloc_tensor needs a shape given by its dimensions, R.shape([...]); match_cast "
           "the shape first");
    }
    DLDataType dtype = call->args[1].as<ir::DataTypeImmObj>()->value;
    Var storage("storage", ir::AnyType());
    Expr bytes = ir::ShapeExpr({BytesOf(shape->values, dtype)});
    out->push_back(ir::VarBinding(storage,
                                  analysis::CallCore(CoreOp::kAllocStorage,
                                                     {bytes, call->args[2], call->args[3],
                                                      ir::DataTypeImm(DLDataType{kDLUInt, 8, 1})},
                                                     ir::AnyType(), call->span),
                                  bound->span));
    out->push_back(ir::VarBinding(bound->var,
                                  analysis::CallCore(CoreOp::kAllocTensor,
                                                     {storage, IntImm(Int(64), 0), call->args[0],
                                                      call->args[1], call->args[2]},
                                                     call->ty, call->span),
                                  bound->span));
  }
};

}  // namespace

IRModule LowerAllocTensor(IRModule mod, const PassContext& context) {
  return ir::MutateFunctions(std::move(mod), [](const ir::GlobalVar&, const ir::Function& func) {
    return ffi::GetRef<ir::Function>(Lowerer().MutateFunction(func).as<ir::FunctionObj>());
  });
}

}  // namespace relaxvm::passes
