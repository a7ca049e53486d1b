// SPDX-License-Identifier: Apache-2.0
// KillAfterLastUse: a variable that holds a storage or a tensor is emptied right after its last
// use, so that memory goes back as early as the program allows.  Memory itself is counted by
// reference: killing one variable never takes a tensor away from a view, a tuple or a packed
// function that still holds it.  Dataflow blocks become plain ones: a kill is an effect. Stage:
// planned.
#include <unordered_map>
#include <vector>

#include "analysis/core_ops.h"
#include "ir/visitor.h"
#include "passes/pass.h"

namespace relaxvm::passes {
namespace {

using analysis::CoreOp;
using ir::Binding;
using ir::Expr;
using ir::Var;

// Where each variable of one sequence is used last, counted in bindings of that sequence; uses
// inside branches count for the binding that holds the If.
class LastUse : public ir::Visitor {
 public:
  void VisitVar(const ir::VarObj* var) override { last[var] = position; }
  void VisitType(const ir::Type& type) override {}
  void VisitDef(const Var& var) override {}

  std::unordered_map<const ir::VarObj*, int64_t> last;
  int64_t position = 0;
};

bool IsKill(const Expr& value) {
  switch (analysis::CoreOpOfValue(value)) {
    case CoreOp::kKillStorage:
    case CoreOp::kKillTensor:
    case CoreOp::kVmKillObject: return true;
    default: return false;
  }
}

// What empties the variable of `binding`; kNone for values that hold no memory, and for what the
// caller owns.
CoreOp KillerOf(const Binding& binding) {
  const auto* bound = binding.as<ir::VarBindingObj>();
  switch (bound ? analysis::CoreOpOfValue(bound->value) : CoreOp::kNone) {
    case CoreOp::kAllocStorage: return CoreOp::kKillStorage;
    case CoreOp::kAllocTensor: return CoreOp::kKillTensor;
    case CoreOp::kVmAllocStorage:
    case CoreOp::kVmAllocTensor: return CoreOp::kVmKillObject;
    default: break;
  }
  const ir::Type& type = binding->var->ty;
  if (type.as<ir::TensorTypeObj>()) return CoreOp::kVmKillObject;
  const auto* tuple = type.as<ir::TupleTypeObj>();
  return tuple && !tuple->fields.empty() ? CoreOp::kVmKillObject : CoreOp::kNone;
}

// One name for each value: a second one would have to be killed as well.
class AliasRemover : public ir::Mutator {
 public:
  void MutateBinding(const Binding& binding, ffi::Array<Binding>* out) override {
    const auto* source = binding->value.as<ir::VarObj>();
    bool same = source && binding.as<ir::VarBindingObj>() &&
                ir::StructuralEqual(source->ty, binding->var->ty);
    if (!same) return ir::Mutator::MutateBinding(binding, out);
    Replace(binding->var, Mutate(binding->value));
  }
};

class Killer : public ir::Mutator {
 public:
  Expr MutateSeq(const ir::SeqExpr& seq) override {
    LastUse uses;
    std::unordered_map<const ir::VarObj*, bool> killed;  // by the program itself
    for (const ir::BindingBlock& block : seq->blocks) {
      for (const Binding& binding : block->bindings) {
        uses.VisitBinding(binding);
        const auto* bound = binding.as<ir::VarBindingObj>();
        if (bound && IsKill(bound->value)) {
          if (const auto* var = bound->value.as<ir::CallObj>()->args[0].as<ir::VarObj>())
            killed[var] = true;
        }
        ++uses.position;
      }
    }
    uses.position = -1;  // the result stays
    uses.Visit(seq->body);

    std::unordered_map<int64_t, std::vector<std::pair<Var, CoreOp>>> kills;  // after which binding
    int64_t position = 0;
    for (const ir::BindingBlock& block : seq->blocks) {
      for (const Binding& binding : block->bindings) {
        CoreOp killer = KillerOf(binding);
        auto use = uses.last.find(binding->var.get());
        int64_t last = use == uses.last.end() ? position : use->second;
        if (killer != CoreOp::kNone && last >= 0 && !killed.count(binding->var.get())) {
          kills[last].emplace_back(binding->var, killer);
        }
        ++position;
      }
    }
    return Rebuild(seq, kills);
  }

 private:
  Expr Rebuild(const ir::SeqExpr& seq,
               const std::unordered_map<int64_t, std::vector<std::pair<Var, CoreOp>>>& kills) {
    int64_t position = 0;
    ffi::Array<ir::BindingBlock> blocks;
    for (const ir::BindingBlock& block : seq->blocks) {
      ffi::Array<Binding> bindings;
      for (const Binding& binding : block->bindings) {
        MutateBinding(binding, &bindings);
        if (auto it = kills.find(position); it != kills.end()) {
          for (const auto& [var, killer] : it->second) {
            bindings.push_back(ir::VarBinding(Var("_", ir::VoidType()),
                                              analysis::CallCore(killer, {var}, ir::VoidType())));
          }
        }
        ++position;
      }
      blocks.push_back(ir::BindingBlock(bindings, block->span));
    }
    ir::SeqExpr result(blocks, Mutate(seq->body), seq->span);
    result->ty = seq->ty;
    return result;
  }
};

}  // namespace

IRModule KillAfterLastUse(IRModule mod, const PassContext& context) {
  mod = ToNonDataflow(std::move(mod), context);
  return ir::MutateFunctions(std::move(mod), [](const ir::GlobalVar&, const ir::Function& func) {
    ir::Function named = func;
    if (!analysis::KillsVariables(func.get())) {
      named = ffi::GetRef<ir::Function>(AliasRemover().MutateFunction(func).as<ir::FunctionObj>());
    }
    return ffi::GetRef<ir::Function>(Killer().MutateFunction(named).as<ir::FunctionObj>());
  });
}

}  // namespace relaxvm::passes
