// SPDX-License-Identifier: Apache-2.0
// FoldBatchnormToConv2D: batch_norm(conv(x, w)) becomes conv(x, w * s) + b with
//   s = gamma / sqrt(variance + epsilon)      b = beta - mean * s
// as operators on the weight, which FoldConstant evaluates.
// Stage: graph, for inference.  Needs: everything but x known at compile time, the convolution used
// by nothing else.
#include <unordered_map>
#include <unordered_set>

#include "analysis/calls.h"
#include "analysis/module_facts.h"
#include "analysis/uses.h"
#include "ir/block_builder.h"
#include "ops/op_def.h"
#include "passes/pass.h"

namespace relaxvm::passes {
namespace {

using ir::Expr;
using ir::Var;

bool IsConv(const Expr& value) {
  return analysis::CallsOp(value, "relax.nn.conv1d") ||
         analysis::CallsOp(value, "relax.nn.conv2d") || analysis::CallsOp(value, "relax.nn.conv3d");
}

int64_t AxisOf(const ir::Call& conv, const char* layout, char axis) {
  auto text = ops::AttrOf<std::string>(conv, layout);
  size_t at = text.find(axis);
  return at == std::string::npos ? -1 : static_cast<int64_t>(at);
}

class Folder : public ir::Mutator {
 public:
  Folder(const ir::Function& f, const IRModule& mod, ir::TypeContext* facts)
      : builder_(facts, mod) {
    for (const auto& [var, users] : analysis::FindUses(f).users)
      num_users_[var.get()] = users.size();
    for (const Var& v : analysis::FindUses(f).in_result) ++num_users_[v.get()];
    for (const Var& v : analysis::ComputableAtCompileTime(f)) known_.insert(v.get());
    // Without weights marked, all parameters but those that a convolution reads as data may be
    // weights.
    marked_ = f->attrs.count(ir::attr::kNumInput) > 0;
  }

  ir::BindingBlock MutateBlock(const ir::BindingBlock& block) override {
    bool any = false;
    for (const ir::Binding& b : block->bindings)
      any |= analysis::CallsOp(b->value, "relax.nn.batch_norm");
    if (!any) return ir::Mutator::MutateBlock(block);
    // The convolution that was made for a batch_norm is needed no more.
    std::unordered_map<const ffi::Object*, size_t> conv_at;
    std::vector<Plan> plans = FindPlans(block, &conv_at);
    if (plans.empty()) return ir::Mutator::MutateBlock(block);
    std::unordered_map<const ffi::Object*, const Plan*> by_norm;
    std::unordered_set<const ffi::Object*> dropped;
    for (const Plan& plan : plans) {
      by_norm[plan.norm_var.get()] = &plan;
      dropped.insert(plan.conv_var.get());
    }
    builder_.BeginBlock(block.as<ir::DataflowBlockObj>() != nullptr);
    for (const ir::Binding& binding : block->bindings) {
      if (dropped.count(binding->var.get())) continue;
      ffi::Array<ir::Binding> rewritten;
      ir::Mutator::MutateBinding(binding, &rewritten);
      auto it = by_norm.find(binding->var.get());
      if (it == by_norm.end()) {
        builder_.EmitBinding(rewritten[0]);
        continue;
      }
      ir::Call norm = rewritten[0]->value.as<ir::Call>().value();
      Expr value = ir::Tuple({Fused(*it->second, norm), norm->args[3], norm->args[4]});
      builder_.EmitBinding(
          ir::VarBinding(rewritten[0]->var, builder_.Normalize(value), binding->span));
    }
    return builder_.EndBlock();
  }

 private:
  struct Plan {
    Var norm_var;
    Var conv_var;
    ir::Call conv;
  };

  std::vector<Plan> FindPlans(const ir::BindingBlock& block,
                              std::unordered_map<const ffi::Object*, size_t>* conv_at) {
    std::vector<Plan> plans;
    for (size_t i = 0; i < block->bindings.size(); ++i) {
      const ir::Binding& binding = block->bindings[i];
      if (IsConv(binding->value)) conv_at->emplace(binding->var.get(), i);
      if (!analysis::CallsOp(binding->value, "relax.nn.batch_norm")) continue;
      ir::Call norm = binding->value.as<ir::Call>().value();
      auto it = conv_at->find(norm->args[0].get());
      if (it == conv_at->end()) continue;
      const ir::Binding& source = block->bindings[it->second];
      Plan plan{binding->var, source->var, source->value.as<ir::Call>().value()};
      if (CanFold(plan, norm)) plans.push_back(plan);
    }
    return plans;
  }

  bool IsKnown(const Expr& e) const {
    if (e.as<ir::ConstantObj>() || known_.count(e.get())) return true;
    return !marked_ && e.as<ir::VarObj>() && e->ty.as<ir::TensorTypeObj>() && IsParameterOnly(e);
  }
  // Bound by nothing: a parameter.
  bool IsParameterOnly(const Expr& e) const { return !bound_.count(e.get()); }

  bool CanFold(const Plan& plan, const ir::Call& norm) {
    if (num_users_[plan.conv_var.get()] != 1) return false;
    if (!IsKnown(plan.conv->args[1])) return false;
    for (size_t i = 1; i < norm->args.size(); ++i) {
      if (!IsKnown(norm->args[i])) return false;
    }
    auto* type = plan.conv->ty.as<ir::TensorTypeObj>();
    auto* weight = plan.conv->args[1]->ty.as<ir::TensorTypeObj>();
    if (type == nullptr || weight == nullptr || type->ndim < 0 || weight->dtype != type->dtype)
      return false;
    int64_t axis = ops::AttrOf<int64_t>(norm, "axis");
    if (axis < 0) axis += type->ndim;
    return axis == AxisOf(plan.conv, "out_layout", 'C') &&
           AxisOf(plan.conv, "kernel_layout", 'O') >= 0;
  }

  void MutateBinding(const ir::Binding& binding, ffi::Array<ir::Binding>* out) override {
    bound_.insert(binding->var.get());
    ir::Mutator::MutateBinding(binding, out);
  }

  Expr Emit(const char* op, ffi::Array<Expr> args, ffi::Map<ffi::String, ffi::Any> attrs = {}) {
    return builder_.Emit(ops::MakeCall(op, args, attrs));
  }

  // `x` (one value for each channel) as a tensor of rank `ndim` with the channels at `axis`.
  Expr AlongAxis(const Expr& x, int64_t axis, int64_t ndim) {
    ffi::Array<ffi::Any> axes;
    for (int64_t i = 0; i < ndim; ++i) {
      if (i != axis) axes.push_back(i);
    }
    return Emit("expand_dims", {x}, {{"axis", axes}});
  }

  Expr Fused(const Plan& plan, const ir::Call& norm) {
    ir::Call conv = Mutate(plan.conv).as<ir::Call>().value();
    int64_t ndim = conv->ty.as<ir::TensorTypeObj>()->ndim;
    const Expr &gamma = norm->args[1], &beta = norm->args[2], &mean = norm->args[3],
               &variance = norm->args[4];
    ir::FloatImm epsilon(variance->ty.as<ir::TensorTypeObj>()->dtype,
                         ops::AttrOf<double>(norm, "epsilon"));
    Expr scale = Emit("rsqrt", {Emit("add", {variance, epsilon})});
    if (ops::AttrOf<bool>(norm, "scale")) scale = Emit("multiply", {gamma, scale});
    Expr shift = Emit("negative", {Emit("multiply", {mean, scale})});
    if (ops::AttrOf<bool>(norm, "center")) shift = Emit("add", {beta, shift});
    Expr weight = Emit("multiply",
                       {conv->args[1], AlongAxis(scale, AxisOf(conv, "kernel_layout", 'O'), ndim)});
    Expr out =
        builder_.Emit(ir::Call(conv->op, {conv->args[0], weight}, conv->attrs, {}, conv->span));
    return Emit("add", {out, AlongAxis(shift, AxisOf(conv, "out_layout", 'C'), ndim)});
  }

  ir::BlockBuilder builder_;
  std::unordered_map<const ffi::Object*, size_t> num_users_;
  std::unordered_set<const ffi::Object*> known_, bound_;
  bool marked_ = false;
};

}  // namespace

IRModule FoldBatchnormToConv2D(IRModule mod, const PassContext& context) {
  std::unique_ptr<ir::TypeContext> facts = ops::MakeTypeContext();
  return ir::MutateFunctions(mod, [&](const ir::GlobalVar&, const ir::Function& f) {
    return Folder(f, mod, facts.get()).Mutate(f).as<ir::Function>().value();
  });
}

}  // namespace relaxvm::passes
