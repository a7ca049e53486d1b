// SPDX-License-Identifier: Apache-2.0
// FuseOps: makes each group of calls that can run as one program a private function with attribute
// "Primitive". Stage: lowered, with kinds annotated.  Keeps: the order of everything else.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "analysis/calls.h"
#include "ir/visitor.h"
#include "passes/fuse/groups.h"
#include "passes/pass.h"

namespace relaxvm::passes {
namespace {

using ir::Expr;
using ir::Var;

constexpr size_t kMaxNameLength = 80;

// Makes the function of one group.
class GroupFunction {
 public:
  GroupFunction(const ir::DataflowBlock& block, const FusionGroup& group) {
    for (int i : group.calls) inside_.insert(block->bindings[i]->var.get());
    ffi::Array<ir::Binding> bindings;
    ffi::Array<Expr> outputs;
    for (int i : group.calls) {
      const bool output = std::binary_search(group.outputs.begin(), group.outputs.end(), i);
      bindings.push_back(Rebind(block->bindings[i], output));
      if (output) outputs.push_back(bindings.back()->var);
    }
    AddSizes();
    // The function has symbolic sizes of its own.
    ffi::Map<Var, Expr> sizes;
    for (const Var& v : sizes_) sizes.Set(v, Var(v->name, v->ty, v->span));
    Expr result = outputs.size() == 1 ? outputs[0] : Expr(ir::Tuple(outputs));
    ir::Function made(params_, ir::SeqExpr({ir::DataflowBlock(bindings)}, result), ir::Type(), true,
                      {{ir::attr::kPrimitive, ffi::Any(true)}});
    function_ = SizeRenamer(sizes).Run(made);
    name_ = Name(block, group.calls);
  }

  const ir::Function& function() const { return function_; }
  const ffi::Array<Expr>& args() const { return args_; }
  const std::string& name() const { return name_; }

 private:
  class SizeRenamer : public ir::Mutator {
   public:
    explicit SizeRenamer(const ffi::Map<Var, Expr>& sizes) {
      for (const auto& [from, to] : sizes) Replace(from, to);
    }
    ir::Function Run(const ir::Function& f) { return Mutate(f).as<ir::Function>().value(); }
  };

  ir::Binding Rebind(const ir::Binding& binding, bool output) {
    std::optional<analysis::TirCall> call = analysis::AsCallTir(binding->value);
    RELAXVM_CHECK(call.has_value()) << "a group holds calls of tensor programs only";
    ffi::Array<Expr> args;
    for (const Expr& arg : call->args) args.push_back(Argument(arg));
    for (const Expr& size : call->tir_vars) NoteSizes(size);
    NoteSizes(binding->var->ty);
    ffi::Array<Expr> whole = call->call->args;
    whole.Set(1, ir::Tuple(args));
    Expr value = ir::Call(call->call->op, whole, call->call->attrs, call->call->ty_args,
                          call->call->span, call->call->ty);
    Var var = output
                  ? Var(binding->var->name, binding->var->ty, binding->var->span)
                  : Var(ir::DataflowVar(binding->var->name, binding->var->ty, binding->var->span));
    replaced_.insert_or_assign(binding->var.get(), var);
    return ir::VarBinding(var, value, binding->span);
  }

  // A result of the group as it is; anything else becomes a parameter.
  Expr Argument(const Expr& arg) {
    auto it = replaced_.find(arg.get());
    if (it != replaced_.end()) return it->second;
    auto var = arg.as<ir::VarObj>();
    Var param(var != nullptr ? var->name : ffi::String("param_" + std::to_string(params_.size())),
              arg->ty);
    params_.push_back(param);
    args_.push_back(arg);
    replaced_.emplace(arg.get(), param);
    NoteSizes(arg->ty);
    return param;
  }

  void NoteSizes(const ir::Type& type) {
    for (const Var& v : ir::SymbolicVars(type)) AddSize(v);
  }
  void NoteSizes(const Expr& e) {
    for (const Var& v : ir::FreeVars(e)) AddSize(v);
  }
  void AddSize(const Var& v) {
    if (seen_.insert(v.get()).second) sizes_.push_back(v);
  }

  // Sizes that no tensor parameter gives come as a shape.
  void AddSizes() {
    std::unordered_set<const ffi::Object*> defined;
    for (const Var& param : params_) {
      for (const Var& v : ir::DefinableSymbolicVars(param->ty)) defined.insert(v.get());
    }
    ffi::Array<Expr> missing;
    for (const Var& v : sizes_) {
      if (!defined.count(v.get())) missing.push_back(v);
    }
    if (missing.empty()) return;
    params_.push_back(Var("sizes", ir::ShapeType(missing)));
    args_.push_back(ir::ShapeExpr(missing));
  }

  static std::string Name(const ir::DataflowBlock& block, const std::vector<int>& group) {
    std::string name = "fused";
    for (int i : group) {
      std::string part(analysis::AsCallTir(block->bindings[i]->value)->func->name_hint);
      if (name.size() + part.size() >= kMaxNameLength) break;
      name += "_" + part;
    }
    return name;
  }

  std::unordered_set<const ffi::Object*> inside_;
  std::unordered_map<const ffi::Object*, Var> replaced_;
  std::unordered_set<const ffi::Object*> seen_;
  std::vector<Var> sizes_;
  ffi::Array<Var> params_;
  ffi::Array<Expr> args_;
  ir::Function function_ = ir::Function(ffi::UnsafeInit{});
  std::string name_;
};

class Fuser : public ir::Mutator {
 public:
  Fuser(const IRModule& mod, const FusionLimits& limits) : mod_(mod), out_(mod), limits_(limits) {}

  IRModule Run() {
    std::vector<std::pair<ir::GlobalVar, ir::Function>> changed;
    for (const auto& [var, func] : mod_->functions) {
      auto function = func.as<ir::Function>();
      if (!function || (*function)->attrs.count(ir::attr::kPrimitive)) continue;
      Expr result = Mutate(*function);
      if (!result.same_as(*function)) changed.emplace_back(var, result.as<ir::Function>().value());
    }
    for (auto& [var, func] : changed) out_.Update(var->name_hint, func);
    return out_;
  }

  ir::BindingBlock MutateBlock(const ir::BindingBlock& block) override {
    auto dataflow = block.as<ir::DataflowBlock>();
    if (!dataflow) return ir::Mutator::MutateBlock(block);
    std::vector<FusionGroup> groups = FindFusionGroups(*dataflow, mod_, limits_);
    if (groups.empty()) return block;
    // A group's call stands where its last member stood: everything that it reads is there by then.
    std::unordered_map<int, const FusionGroup*> last;
    std::unordered_set<int> dropped;
    for (const FusionGroup& group : groups) {
      last[group.calls.back()] = &group;
      dropped.insert(group.calls.begin(), group.calls.end() - 1);
    }
    ffi::Array<ir::Binding> bindings;
    for (int i = 0; i < static_cast<int>(block->bindings.size()); ++i) {
      if (dropped.count(i)) continue;
      const ir::Binding& binding = block->bindings[i];
      auto it = last.find(i);
      if (it == last.end()) {
        bindings.push_back(binding);
      } else {
        CallGroup(*dataflow, *it->second, &bindings);
      }
    }
    return ir::DataflowBlock(bindings, block->span);
  }

 private:
  void CallGroup(const ir::DataflowBlock& block, const FusionGroup& group,
                 ffi::Array<ir::Binding>* out) {
    GroupFunction made(block, group);
    ir::GlobalVar var = out_.Update(UniqueName(made.name()), made.function());
    const ir::Binding& at = block->bindings[group.calls.back()];
    if (group.outputs.size() == 1) {
      ir::Call call(var, made.args(), ir::Attrs(), {}, at->span, at->var->ty);
      return out->push_back(ir::VarBinding(at->var, call, at->span));
    }
    ffi::Array<ir::Type> types;
    for (int i : group.outputs) types.push_back(block->bindings[i]->var->ty);
    ir::TupleType type(types);
    ir::DataflowVar results(made.name(), type, at->span);
    ir::Call call(var, made.args(), ir::Attrs(), {}, at->span, type);
    out->push_back(ir::VarBinding(results, call, at->span));
    for (size_t k = 0; k < group.outputs.size(); ++k) {
      const ir::Binding& output = block->bindings[group.outputs[k]];
      ir::TupleGetItem item(results, static_cast<int64_t>(k), output->span);
      out->push_back(ir::VarBinding(output->var, item, output->span));
    }
  }

  // Thousands of groups may want the same name: the search for a free number goes on where it
  // ended.
  std::string UniqueName(const std::string& hint) {
    for (int& next = next_number_[hint];; ++next) {
      std::string name = next == 0 ? hint : hint + std::to_string(next);
      if (!out_->FindVar(name)) return name;
    }
  }

  IRModule mod_;
  IRModule out_;
  FusionLimits limits_;
  std::unordered_map<std::string, int> next_number_;
};

}  // namespace

IRModule FuseOps(IRModule mod, const PassContext& context) {
  if (context.Option<int64_t>("fuse_opt_level") == 0) return mod;
  FusionLimits limits;
  limits.max_outputs = context.Option<int64_t>("max_outputs");
  limits.keep_reshapes = context.Option<bool>("keep_reshapes");
  limits.extend_reductions = context.Option<bool>("extend_reductions");
  auto it = context.config.find("relax.FuseOps.max_depth");
  if (it != context.config.end()) limits.max_calls = (*it).second.cast<int64_t>();
  return Fuser(mod, limits).Run();
}

}  // namespace relaxvm::passes
