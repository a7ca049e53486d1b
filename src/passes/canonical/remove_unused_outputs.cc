// SPDX-License-Identifier: Apache-2.0
// RemoveUnusedOutputs: a private function returns only those fields of its tuple that some caller
// takes out; a single one without a tuple around it.  Stage: any.  Leaves alone: exported
// functions, those used as values, and tuples that some caller uses as a whole; what computed a
// dropped field is left to DeadCodeElimination.
#include <unordered_set>

#include "ir/visitor.h"
#include "passes/canonical/signatures.h"

namespace relaxvm::passes {
namespace {

using ir::Expr;
using ir::Var;
using Functions = std::unordered_map<std::string, ir::Function>;

// Which fields of what each function returns are taken out.
class FieldUses : public ir::Visitor {
 public:
  explicit FieldUses(const Functions& functions) {
    for (const auto& [name, func] : functions) {
      if (const auto* tuple = func->ret_ty.as<ir::TupleTypeObj>())
        used.emplace(name, std::vector<bool>(tuple->fields.size()));
    }
  }
  std::unordered_map<std::string, std::vector<bool>> used;

  void VisitBinding(const ir::Binding& binding) override {
    if (const auto* call = binding->value.as<ir::CallObj>()) {
      if (const auto* name = call->op.as<ir::GlobalVarObj>();
          name && binding.as<ir::VarBindingObj>())
        results_[binding->var.get()] = std::string(name->name_hint);
    }
    ir::Visitor::VisitBinding(binding);
  }
  void VisitTupleGetItem(const ir::TupleGetItemObj* item) override {
    auto it = results_.find(item->tuple_value.get());
    if (it == results_.end()) return ir::Visitor::VisitTupleGetItem(item);
    if (auto function = used.find(it->second); function != used.end())
      function->second[item->index] = true;
  }
  void VisitVar(const ir::VarObj* var) override {  // as a whole
    auto it = results_.find(var);
    if (it != results_.end()) used.erase(it->second);
  }
  void VisitOther(const ir::ExprObj*) override {}

 private:
  std::unordered_map<const ffi::Object*, std::string> results_;
};

// Where a kept field stands now; -1 for a dropped one.
std::vector<int> NewPlaces(const std::vector<bool>& used) {
  std::vector<int> places;
  int next = 0;
  for (bool u : used) places.push_back(u ? next++ : -1);
  return places;
}

// Items of the results of changed functions.
class ItemMover : public ir::Mutator {
 public:
  explicit ItemMover(const std::unordered_map<std::string, std::vector<bool>>& used)
      : used_(used) {}

  void MutateBinding(const ir::Binding& binding, ffi::Array<ir::Binding>* out) override {
    if (const auto* call = binding->value.as<ir::CallObj>()) {
      if (const auto* name = call->op.as<ir::GlobalVarObj>()) {
        auto it = used_.find(std::string(name->name_hint));
        if (it != used_.end()) results_.emplace(binding->var.get(), &it->second);
      }
    }
    ir::Mutator::MutateBinding(binding, out);
  }
  Expr MutateTupleGetItem(const ir::TupleGetItem& item) override {
    auto it = results_.find(item->tuple_value.get());
    if (it == results_.end()) return ir::Mutator::MutateTupleGetItem(item);
    const std::vector<int> places = NewPlaces(*it->second);
    // Not built with a checked index: the tuple's own type changes afterwards.
    const auto* var = item->tuple_value.as<ir::VarObj>();
    int kept = 0;
    for (int p : places) kept += p >= 0;
    if (kept == 1) return ffi::GetRef<Var>(var);
    ir::TupleGetItem moved(item->tuple_value, places[item->index], item->span);
    moved->ty = item->ty;
    return moved;
  }

 private:
  const std::unordered_map<std::string, std::vector<bool>>& used_;
  std::unordered_map<const ffi::Object*, const std::vector<bool>*> results_;
};

ir::Type Select(const ir::Type& type, const std::vector<bool>& used) {
  const auto* tuple = type.as<ir::TupleTypeObj>();
  ffi::Array<ir::Type> kept;
  for (size_t i = 0; i < used.size(); ++i) {
    if (used[i]) kept.push_back(tuple->fields[i]);
  }
  return kept.size() == 1 ? kept[0] : ir::Type(ir::TupleType(kept));
}

ir::Function Narrow(const ir::Function& func, const std::vector<bool>& used) {
  ffi::Array<ir::BindingBlock> blocks = func->body->blocks;
  ffi::Array<ir::Binding> taken;
  const Expr& result = func->body->body;
  const auto* known = result.as<ir::TupleObj>();
  ffi::Array<Expr> kept;
  for (size_t i = 0; i < used.size(); ++i) {
    if (!used[i]) continue;
    if (known != nullptr) {
      kept.push_back(known->fields[i]);
      continue;
    }
    ir::TupleGetItem item(result, static_cast<int64_t>(i));
    Var var("out", item->ty);
    taken.push_back(ir::VarBinding(var, item));
    kept.push_back(var);
  }
  if (!taken.empty()) blocks.push_back(ir::BindingBlock(taken));
  Expr body = kept.size() == 1 ? kept[0] : Expr(ir::Tuple(kept));
  ir::SeqExpr seq(blocks, body, func->body->span);
  ir::Type ret = Select(func->ret_ty, used);
  return ir::Function(func->params, seq, ret, func->is_pure, func->attrs, func->span);
}

}  // namespace

IRModule RemoveUnusedOutputs(IRModule mod, const PassContext& context) {
  Functions functions = ChangeableFunctions(mod);
  FieldUses uses(functions);
  for (const auto& [var, func] : mod->functions) {
    if (func.as<ir::FunctionObj>()) uses.Visit(func);
  }
  std::erase_if(uses.used, [](const auto& row) {
    size_t kept = 0;
    for (bool u : row.second) kept += u;
    // A call whose result nobody uses is another pass's business.
    return kept == 0 || kept == row.second.size();
  });
  if (uses.used.empty()) return mod;
  IRModule moved = ir::MutateFunctions(mod, [&](const ir::GlobalVar&, const ir::Function& f) {
    return ItemMover(uses.used).MutateFunction(f).as<ir::Function>().value();
  });
  std::unordered_map<std::string, NewSignature> changes;
  for (const auto& [name, used] : uses.used) {
    ir::Function func = moved->Lookup(name).as<ir::Function>().value();
    changes.emplace(name,
                    NewSignature{Narrow(func, used), [used](const ir::Call& call, const EmitFn&) {
                                   return ir::Call(call->op, call->args, call->attrs, call->ty_args,
                                                   call->span, Select(call->ty, used));
                                 }});
  }
  return CanonicalizeBindings(ChangeSignatures(moved, changes), context);
}

}  // namespace relaxvm::passes
