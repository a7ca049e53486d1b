// SPDX-License-Identifier: Apache-2.0
// ConvertLayout: runs chosen operators (convolutions) in a wanted layout and lets the operators
// between them follow, so that no conversion stands between neighbours. Stage: graph.  Keeps:
// meaning, names of functions, spans.
//
// Each variable may exist in several orders of its axes (versions.h); follow.h says how operators
// take them.  Weights are converted by ordinary operators that FoldConstant evaluates.
#include <functional>

#include "passes/layout/follow.h"
#include "passes/layout/narrow_outputs.h"
#include "passes/pass.h"

namespace relaxvm::passes {
namespace {

using ir::Call;
using ir::Expr;
using ir::Var;
using layout::Perm;
using layout::Versions;
using layout::Wanted;

// The layouts that are wanted of a call; absent when none are.
using Chooser = std::function<std::optional<Wanted>(const Call& call, const std::string& name)>;

class Converter {
 public:
  Converter(const Chooser& wanted, ir::BlockBuilder* builder)
      : wanted_(wanted), builder_(builder), versions_(builder) {}

  ir::Function Run(const ir::Function& func) {
    ffi::Array<ir::BindingBlock> blocks = Blocks(func->body->blocks);
    if (!versions_.changed()) return func;
    ir::Function result(func->params,
                        ir::SeqExpr(std::move(blocks), func->body->body, func->body->span),
                        func->ret_ty, func->is_pure, func->attrs, func->span);
    return layout::NarrowOutputs(result, versions_.TakeHomes());
  }

 private:
  ffi::Array<ir::BindingBlock> Blocks(const ffi::Array<ir::BindingBlock>& from) {
    ffi::Array<ir::BindingBlock> blocks;
    for (const ir::BindingBlock& block : from) {
      builder_->BeginBlock(block.as<ir::DataflowBlockObj>() != nullptr);
      for (const ir::Binding& binding : block->bindings) Convert(binding);
      ir::BindingBlock done = builder_->EndBlock();
      versions_.LeaveBlock(done);
      if (!done->bindings.empty()) blocks.push_back(std::move(done));
    }
    return blocks;
  }

  void Convert(const ir::Binding& binding) {
    if (ConvertMatchCast(binding) || ConvertCall(binding) || ConvertItem(binding) ||
        ConvertIf(binding)) {
      return;
    }
    Keep(binding);
  }

  bool ConvertCall(const ir::Binding& binding) {
    auto call = binding->value.as<Call>();
    if (!call.has_value() || !binding.as<ir::VarBindingObj>()) return false;
    const ir::OpObj* op = ir::CalledOp(call.value().get());
    if (op == nullptr || op->record == nullptr) return false;
    const ops::LayoutRule* rule = ops::RecordOf(op).layout.get();
    if (rule == nullptr) return false;
    using Kind = ops::LayoutRule::Kind;
    const std::string name(op->name);
    std::optional<Wanted> want;
    if (rule->kind == Kind::kConvolution || rule->kind == Kind::kImage)
      want = wanted_(call.value(), name);
    return layout::Follow({versions_, binding->var, call.value(), name, *rule}, want);
  }

  // The sizes of a permuted value are matched in its own order.
  bool ConvertMatchCast(const ir::Binding& binding) {
    const auto* cast = binding.as<ir::MatchCastObj>();
    if (cast == nullptr) return false;
    const auto* type = cast->ty.as<ir::TensorTypeObj>();
    const Perm perm = versions_.PermOf(cast->value);
    if (type == nullptr || layout::IsIdentity(perm) || !type->GetShape().has_value()) return false;
    const ffi::Array<Expr> dims = type->GetShape().value();
    if (dims.size() != perm.size()) return false;
    ir::TensorType permuted(layout::Permuted(dims, perm), type->dtype, type->vdevice);
    Var matched = binding->var.as<ir::DataflowVarObj>() != nullptr
                      ? Var(ir::DataflowVar(binding->var->name, permuted))
                      : Var(binding->var->name, permuted);
    builder_->EmitBinding(
        ir::MatchCast(matched, versions_.Get(cast->value, perm), permuted, binding->span));
    versions_.DefineAs(binding->var, matched, perm);
    return true;
  }

  bool ConvertItem(const ir::Binding& binding) {
    const auto* item = binding->value.as<ir::TupleGetItemObj>();
    if (item == nullptr || !binding.as<ir::VarBindingObj>()) return false;
    Expr value;
    const Perm* perm = versions_.FieldOf(item, &value);
    if (perm == nullptr) return false;
    if (perm->empty()) {
      builder_->EmitBinding(
          ir::VarBinding(binding->var, builder_->Normalize(value), binding->span));
    } else {
      versions_.DefineAs(binding->var, versions_.EmitLike(binding->var, value), Perm(*perm));
    }
    return true;
  }

  ir::SeqExpr Branch(const ir::SeqExpr& branch) {
    Versions::Scope scope = versions_.EnterBranch();
    ffi::Array<ir::BindingBlock> blocks = Blocks(branch->blocks);
    Expr body = versions_.Plain(branch->body);
    versions_.LeaveBranch(std::move(scope));
    ir::SeqExpr converted(std::move(blocks), std::move(body), branch->span);
    converted->ty = branch->ty;
    return converted;
  }

  bool ConvertIf(const ir::Binding& binding) {
    const auto* choice = binding->value.as<ir::IfObj>();
    if (choice == nullptr || !binding.as<ir::VarBindingObj>()) return false;
    const bool changed = versions_.ExchangeChanged(false);
    ir::SeqExpr yes = Branch(choice->true_branch), no = Branch(choice->false_branch);
    if (!versions_.changed()) {
      versions_.ExchangeChanged(changed);
      return false;
    }
    ir::If value(versions_.Plain(choice->cond), yes, no, choice->span);
    value->ty = choice->ty;
    builder_->EmitBinding(ir::VarBinding(binding->var, value, binding->span));
    return true;
  }

  Expr WithPlainVars(const Expr& e) {
    class Plainer : public ir::Mutator {
     public:
      explicit Plainer(Versions* versions) : versions_(versions) {}
      Expr MutateVar(const Var& v) override { return versions_->Plain(v); }
      Var MutateDef(const Var& v) override { return v; }

     private:
      Versions* versions_;
    };
    return Plainer(&versions_).Mutate(e);
  }

  void Keep(const ir::Binding& binding) {
    Expr value = WithPlainVars(binding->value);
    if (value.same_as(binding->value)) return builder_->EmitBinding(binding);
    versions_.MarkChanged();
    if (const auto* cast = binding.as<ir::MatchCastObj>()) {
      return builder_->EmitBinding(ir::MatchCast(cast->var, value, cast->ty, cast->span));
    }
    builder_->EmitBinding(ir::VarBinding(binding->var, value, binding->span));
  }

  const Chooser& wanted_;
  ir::BlockBuilder* builder_;
  Versions versions_;
};

using Layouts = ffi::Map<ffi::String, ffi::Array<ffi::String>>;

std::optional<Wanted> WantedIn(const Layouts& layouts, const std::string& op) {
  auto it = layouts.find(op);
  if (it == layouts.end()) return std::nullopt;
  const ffi::Array<ffi::String>& names = (*it).second;
  const bool convolution = op.find("conv") != std::string::npos;
  if (names.empty() || (convolution && names.size() < 2)) {
    Fail(ErrorKind::kValueError, "ConvertLayout: ", op,
         " needs two layouts, data and kernel, for example [\"NHWC\", \"HWIO\"]");
  }
  return Wanted{std::string(names[0]), names.size() > 1 ? std::string(names[1]) : ""};
}

}  // namespace

ir::IRModule ConvertLayout(ir::IRModule mod, const PassContext& context) {
  auto desired = context.Option<Layouts>("desired_layouts");
  for (const auto& [op, layouts] : desired) WantedIn(desired, std::string(op));
  const ffi::Any callback = context.options["layout_cb"];
  Chooser chooser = [&](const Call& call, const std::string& name) {
    if (callback != nullptr) {
      ffi::Any chosen = callback.cast<ffi::Function>()(call);
      if (auto layouts = chosen.as<Layouts>()) {
        if (auto want = WantedIn(layouts.value(), name)) return want;
      }
    }
    return WantedIn(desired, name);
  };
  auto facts = ops::MakeTypeContext();
  return ir::MutateFunctions(std::move(mod), [&](const ir::GlobalVar&, const ir::Function& func) {
    ir::BlockBuilder builder(facts.get());
    return Converter(chooser, &builder).Run(func);
  });
}

}  // namespace relaxvm::passes
