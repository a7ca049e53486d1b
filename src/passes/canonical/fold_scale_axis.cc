// SPDX-License-Identifier: Apache-2.0
// FoldScaleAxis: a factor for each output channel of a convolution goes into its weight:
//   conv(x, w) * s        ->  conv(x, w * s)
//   (conv(x, w) + b) * s  ->  conv(x, w * s) + b * s
// Stage: graph.  Needs: w, b and s known at compile time; values in between used by nothing else.
// FoldConstant evaluates w * s and b * s afterwards.
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

class Folder : public ir::Mutator {
 public:
  Folder(const ir::Function& f, const IRModule& mod, ir::TypeContext* facts)
      : builder_(facts, mod) {
    analysis::UseChains chains = analysis::FindUses(f);
    for (const auto& [var, users] : chains.users) num_users_[var.get()] = users.size();
    for (const Var& v : chains.in_result) ++num_users_[v.get()];
    for (const Var& v : analysis::ComputableAtCompileTime(f)) known_.insert(v.get());
  }

  ir::BindingBlock MutateBlock(const ir::BindingBlock& block) override {
    bool any = false;
    for (const ir::Binding& b : block->bindings) any |= IsConv(b->value);
    if (!any) return ir::Mutator::MutateBlock(block);
    values_.clear();
    builder_.BeginBlock(block.as<ir::DataflowBlockObj>() != nullptr);
    bool changed = false;
    for (const ir::Binding& binding : block->bindings) {
      ffi::Array<ir::Binding> rewritten;
      ir::Mutator::MutateBinding(binding, &rewritten);
      ir::Binding now = rewritten[0];
      if (Expr folded = Fold(now); folded.defined()) {
        now = ir::VarBinding(now->var, builder_.Normalize(folded), now->span);
        changed = true;
      }
      values_[now->var.get()] = now->value;
      builder_.EmitBinding(now);
    }
    ir::BindingBlock out = builder_.EndBlock();
    return changed ? out : ir::Mutator::MutateBlock(block);
  }

 private:
  bool IsKnown(const Expr& e) const { return e.as<ir::ConstantObj>() || known_.count(e.get()); }

  ir::Call CallOf(const Expr& var, const char* op) const {
    auto it = values_.find(var.get());
    if (it == values_.end() || !analysis::CallsOp(it->second, op))
      return ir::Call(ffi::UnsafeInit{});
    return it->second.as<ir::Call>().value();
  }
  bool UsedOnce(const Expr& var) {
    auto it = num_users_.find(var.get());
    return it != num_users_.end() && it->second == 1;
  }

  // Is `e` known, of rank `ndim` or less, and 1 in every axis but `axis`?
  bool IsPerChannel(const Expr& e, int64_t axis, int64_t ndim) const {
    auto* type = e->ty.as<ir::TensorTypeObj>();
    if (!IsKnown(e) || type == nullptr || !type->GetShape()) return false;
    ffi::Array<Expr> dims = type->GetShape().value();
    auto rank = static_cast<int64_t>(dims.size());
    if (rank > ndim) return false;
    for (int64_t i = 0; i < rank; ++i) {
      if (i + ndim - rank != axis && !ir::IsIntValue(dims[i], 1)) return false;
    }
    return true;
  }

  // The value that stands for `binding`'s; null when it stays.
  Expr Fold(const ir::Binding& binding) {
    if (!binding.as<ir::VarBindingObj>() || !analysis::CallsOp(binding->value, "relax.multiply"))
      return Expr();
    ir::Call product = binding->value.as<ir::Call>().value();
    for (int side : {0, 1}) {
      const Expr &y = product->args[side], &scale = product->args[1 - side];
      if (!UsedOnce(y)) continue;
      if (auto it = values_.find(y.get()); it != values_.end() && IsConv(it->second)) {
        ir::Call conv = it->second.as<ir::Call>().value();
        if (CanScale(conv, scale)) return Scaled(conv, scale);
        continue;
      }
      ir::Call sum = CallOf(y, "relax.add");
      if (!sum.defined()) continue;
      for (int inner : {0, 1}) {
        const Expr &z = sum->args[inner], &bias = sum->args[1 - inner];
        auto it = values_.find(z.get());
        if (it == values_.end() || !IsConv(it->second) || !UsedOnce(z)) continue;
        ir::Call conv = it->second.as<ir::Call>().value();
        if (!CanScale(conv, scale) || !IsPerChannel(bias, ChannelAxis(conv), Rank(conv))) continue;
        Expr shifted = builder_.Emit(ops::MakeCall("multiply", {bias, scale}));
        return ops::MakeCall("add", {builder_.Emit(Scaled(conv, scale)), shifted});
      }
    }
    return Expr();
  }

  static int64_t Rank(const ir::Call& conv) { return conv->ty.as<ir::TensorTypeObj>()->ndim; }
  static int64_t ChannelAxis(const ir::Call& conv) {
    return static_cast<int64_t>(ops::AttrOf<std::string>(conv, "out_layout").find('C'));
  }

  bool CanScale(const ir::Call& conv, const Expr& scale) const {
    auto* out = conv->ty.as<ir::TensorTypeObj>();
    auto* weight = conv->args[1]->ty.as<ir::TensorTypeObj>();
    auto* factor = scale->ty.as<ir::TensorTypeObj>();
    if (out == nullptr || weight == nullptr || factor == nullptr || out->ndim < 0) return false;
    return IsKnown(conv->args[1]) && out->dtype == weight->dtype && out->dtype == factor->dtype &&
           IsFloat(out->dtype) && IsPerChannel(scale, ChannelAxis(conv), out->ndim);
  }

  ir::Call Scaled(const ir::Call& conv, const Expr& scale) {
    // The factor along the weight's axis of output channels.
    ffi::Array<Expr> given = scale->ty.as<ir::TensorTypeObj>()->GetShape().value();
    int64_t at = ChannelAxis(conv) - (Rank(conv) - static_cast<int64_t>(given.size()));
    Expr channels = at < 0 ? Expr(int64_t{1}) : given[at];
    ffi::Array<Expr> dims;
    for (char axis : ops::AttrOf<std::string>(conv, "kernel_layout")) {
      dims.push_back(axis == 'O' ? channels : Expr(int64_t{1}));
    }
    Expr along = builder_.Emit(ops::MakeCall("reshape", {scale, ir::ShapeExpr(dims)}));
    Expr weight = builder_.Emit(ops::MakeCall("multiply", {conv->args[1], along}));
    known_.insert(weight.get());
    return ir::Call(conv->op, {conv->args[0], weight}, conv->attrs, {}, conv->span);
  }

  ir::BlockBuilder builder_;
  std::unordered_map<const ffi::Object*, size_t> num_users_;
  std::unordered_set<const ffi::Object*> known_;
  std::unordered_map<const ffi::Object*, Expr> values_;
};

}  // namespace

IRModule FoldScaleAxis(IRModule mod, const PassContext& context) {
  std::unique_ptr<ir::TypeContext> facts = ops::MakeTypeContext();
  return ir::MutateFunctions(mod, [&](const ir::GlobalVar&, const ir::Function& f) {
    return Folder(f, mod, facts.get()).Mutate(f).as<ir::Function>().value();
  });
}

}  // namespace relaxvm::passes
