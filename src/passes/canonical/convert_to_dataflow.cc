// SPDX-License-Identifier: Apache-2.0
// ConvertToDataflow: runs of bindings without effects and control flow become dataflow blocks.
// Stage: any.  Options: min_size, shorter runs stay as they are.
#include <unordered_map>

#include "analysis/calls.h"
#include "ir/visitor.h"
#include "passes/pass.h"

namespace relaxvm::passes {
namespace {

using ir::Expr;
using ir::Var;

bool FitsDataflow(const ir::Binding& binding) {
  return !analysis::Branches(binding->value) && !binding->value.as<ir::SeqExprObj>() &&
         !analysis::HasEffect(binding->value);
}

class Converter : public ir::Mutator {
 public:
  explicit Converter(int64_t min_size) : min_size_(min_size) {}

  Expr MutateSeq(const ir::SeqExpr& input) override {
    ir::SeqExpr seq = ir::Mutator::MutateSeq(input).as<ir::SeqExpr>().value();
    // Runs of bindings: those of dataflow blocks and their pure neighbours, or what cannot be in
    // one.
    struct Run {
      bool dataflow;
      bool had_block;
      std::vector<ir::Binding> bindings;
    };
    std::vector<Run> runs;
    for (const ir::BindingBlock& block : seq->blocks) {
      bool is_dataflow = block.as<ir::DataflowBlockObj>() != nullptr;
      for (const ir::Binding& binding : block->bindings) {
        bool fits = is_dataflow || FitsDataflow(binding);
        if (runs.empty() || runs.back().dataflow != fits) runs.push_back({fits, false, {}});
        runs.back().had_block |= is_dataflow;
        runs.back().bindings.push_back(binding);
      }
    }
    bool changed = false;
    for (Run& run : runs) {
      if (!run.dataflow || run.had_block) continue;
      run.dataflow = static_cast<int64_t>(run.bindings.size()) >= min_size_;
      changed |= run.dataflow;
    }
    std::vector<Run> merged;
    for (Run& run : runs) {
      if (merged.empty() || merged.back().dataflow != run.dataflow) {
        merged.push_back(std::move(run));
      } else {
        auto& into = merged.back().bindings;
        into.insert(into.end(), run.bindings.begin(), run.bindings.end());
      }
    }
    runs = std::move(merged);
    changed |= HasPlainPartsBesideBlocks(seq, runs.size());
    if (!changed) return seq;
    std::unordered_map<const ffi::Object*, size_t> last_run = LastUses(runs, seq->body);
    ffi::Array<ir::BindingBlock> blocks;
    for (size_t r = 0; r < runs.size(); ++r) {
      ffi::Array<ir::Binding> bindings;
      for (const ir::Binding& binding : runs[r].bindings) {
        auto it = last_run.find(binding->var.get());
        bool stays = runs[r].dataflow && (it == last_run.end() || it->second == r);
        ir::Binding now = Rewrite(binding);
        bindings.push_back(stays ? AsDataflow(now, binding->var) : now);
      }
      blocks.push_back(runs[r].dataflow ? ir::DataflowBlock(bindings) : ir::BindingBlock(bindings));
    }
    return ir::SeqExpr(blocks, Mutate(seq->body), seq->span);
  }

 private:
  static bool HasPlainPartsBesideBlocks(const ir::SeqExpr& seq, size_t num_runs) {
    size_t num_blocks = 0;
    for (const ir::BindingBlock& block : seq->blocks) num_blocks += !block->bindings.empty();
    return num_blocks > num_runs;
  }

  // For every variable that is used: the last run that uses it; one past the end for the result.
  template <typename Runs>
  static std::unordered_map<const ffi::Object*, size_t> LastUses(const Runs& runs,
                                                                 const Expr& body) {
    class Uses : public ir::Visitor {
     public:
      std::unordered_map<const ffi::Object*, size_t> last;
      size_t now = 0;
      void VisitVar(const ir::VarObj* v) override { last[v] = now; }
      void VisitOther(const ir::ExprObj*) override {}
    } uses;
    for (size_t r = 0; r < runs.size(); ++r) {
      uses.now = r;
      for (const ir::Binding& binding : runs[r].bindings) uses.Visit(binding->value);
    }
    uses.now = runs.size();
    uses.Visit(body);
    return std::move(uses.last);
  }

  ir::Binding Rewrite(const ir::Binding& binding) {
    ffi::Array<ir::Binding> out;
    MutateBinding(binding, &out);
    return out[0];
  }

  // The variable is seen inside its block only.
  ir::Binding AsDataflow(const ir::Binding& binding, const Var& original) {
    if (binding->var.as<ir::DataflowVarObj>()) return binding;
    ir::DataflowVar var(binding->var->name, binding->var->ty, binding->var->span);
    Replace(original, var);
    if (auto* cast = binding.as<ir::MatchCastObj>()) {
      return ir::MatchCast(var, binding->value, cast->ty, binding->span);
    }
    return ir::VarBinding(var, binding->value, binding->span);
  }

  int64_t min_size_;
};

}  // namespace

IRModule ConvertToDataflow(IRModule mod, const PassContext& context) {
  auto min_size = context.Option<int64_t>("min_size");
  return ir::MutateFunctions(std::move(mod), [&](const ir::GlobalVar&, const ir::Function& f) {
    return Converter(min_size).Mutate(f).as<ir::Function>().value();
  });
}

}  // namespace relaxvm::passes
