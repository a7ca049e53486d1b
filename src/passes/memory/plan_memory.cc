// SPDX-License-Identifier: Apache-2.0
// PlanMemory: tensors that only the function itself sees share arenas, one for each
// place where sizes become known, each device and each memory scope.  An arena is one storage,
// reserved before its first tensor; tensors lie in it at offsets that are computed once per call
// (arena.h). Stage: planned, after CallTIRRewrite.  What it leaves (results, what packed functions
// may keep) gets a storage of its own in LowerAllocTensor.
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "analysis/core_ops.h"
#include "arith/analyzer.h"
#include "ir/prim.h"
#include "ir/visitor.h"
#include "passes/memory/arena.h"
#include "passes/memory/destination.h"
#include "passes/memory/lifetimes.h"
#include "passes/pass.h"
#include "tir/stmt.h"

namespace relaxvm::passes {
namespace {

using analysis::CoreOp;
using ir::Expr;
using ir::Var;

struct Arena {
  ArenaPlan plan;
  Var storage = Var("storage", ir::AnyType());
  bool reserved = false;  // emitted
};

struct Place {
  Arena* arena;
  Expr offset;
};

// Copies of programs whose result may lie where an argument lies: code generation must not assume
// otherwise.
class InPlacePrograms {
 public:
  explicit InPlacePrograms(const IRModule& mod) : mod_(mod) {}

  ir::GlobalVar Of(const ir::GlobalVar& var) {
    auto it = copies_.find(var.get());
    if (it != copies_.end()) return it->second;
    auto program = ffi::GetRef<tir::PrimFunc>(mod_->Lookup(var).as<tir::PrimFuncObj>());
    ir::DictAttrs attrs = program->attrs;
    attrs.Set(tir::attr::kNoAlias, false);
    attrs.erase(ir::attr::kGlobalSymbol);
    tir::PrimFunc copy(program->params, program->body, attrs, program->span);
    std::string name = mod_.UniqueName(std::string(var->name_hint) + "_in_place");
    ir::GlobalVar added = mod_.Update(name, copy);
    copies_.emplace(var.get(), added);
    added_.push_back(added);
    return added;
  }

  // A program that all calls left for its copy is gone.
  IRModule AddTo(IRModule mod) const {
    if (added_.empty()) return mod;
    Named named;
    for (const auto& [var, func] : mod->functions) {
      if (auto function = func.as<ir::Function>()) named.Visit(*function);
    }
    ffi::Map<ir::GlobalVar, ir::BaseFunc> functions = mod->functions;
    for (const auto& [var, func] : mod->functions) {
      if (copies_.count(var.get()) && !named.found.count(var.get()) &&
          !func->attrs.count(ir::attr::kGlobalSymbol))
        functions.erase(var);
    }
    for (const ir::GlobalVar& var : added_) functions.Set(var, mod_->Lookup(var));
    return IRModule(functions, mod->attrs, mod->global_infos);
  }

 private:
  class Named : public ir::Visitor {
   public:
    std::unordered_set<const ffi::Object*> found;
    void VisitGlobalVar(const ir::GlobalVarObj* var) override { found.insert(var); }
  };

  IRModule mod_;  // with the copies
  std::unordered_map<const ffi::Object*, ir::GlobalVar> copies_;
  std::vector<ir::GlobalVar> added_;
};

class Rewriter : public ir::Mutator {
 public:
  Rewriter(std::unordered_map<const ffi::Object*, Place> places,
           const std::unordered_set<const ir::CallObj*>& in_place, InPlacePrograms* programs)
      : places_(std::move(places)), in_place_(in_place), programs_(programs) {}

  Expr MutateCall(const ir::Call& call) override {
    if (!in_place_.count(call.get())) return ir::Mutator::MutateCall(call);
    auto var = ffi::GetRef<ir::GlobalVar>(call->op.as<ir::GlobalVarObj>());
    return ir::Call(programs_->Of(var), call->args, call->attrs, call->ty_args, call->span,
                    call->ty);
  }

  void MutateBinding(const ir::Binding& binding, ffi::Array<ir::Binding>* out) override {
    auto it = places_.find(binding->var.get());
    if (it == places_.end()) return ir::Mutator::MutateBinding(binding, out);
    const auto* call = binding->value.as<ir::CallObj>();
    Arena* arena = it->second.arena;
    if (!arena->reserved) Reserve(arena, call, out);
    // builtin.alloc_tensor(shape, dtype, device, scope) -> memory.alloc_tensor(storage, offset,
    // shape, dtype, device)
    out->push_back(ir::VarBinding(binding->var,
                                  analysis::CallCore(CoreOp::kAllocTensor,
                                                     {arena->storage, it->second.offset,
                                                      call->args[0], call->args[1], call->args[2]},
                                                     call->ty, call->span),
                                  binding->span));
  }

 private:
  static void Reserve(Arena* arena, const ir::CallObj* first, ffi::Array<ir::Binding>* out) {
    arena->reserved = true;
    for (const auto& [var, value] : arena->plan.definitions)
      out->push_back(ir::VarBinding(var, value));
    Expr size = ir::ShapeExpr({arena->plan.total});
    out->push_back(ir::VarBinding(
        arena->storage,
        analysis::CallCore(CoreOp::kAllocStorage,
                           {size, first->args[2], first->args[3], ir::DataTypeImm(UInt(8))},
                           ir::AnyType())));
  }

  std::unordered_map<const ffi::Object*, Place> places_;
  const std::unordered_set<const ir::CallObj*>& in_place_;
  InPlacePrograms* programs_;
};

using ArenaKey =
    std::tuple<int, int, int64_t, std::string>;  // sequence, order of sizes, device, scope

std::optional<ArenaKey> KeyOf(const Allocation& allocation) {
  auto device = ir::AsInt(allocation.call->args[2]);
  const auto* scope = allocation.call->args[3].as<ir::StringImmObj>();
  if (allocation.shared || !device.has_value() || scope == nullptr) return std::nullopt;
  return ArenaKey{allocation.sequence, allocation.scope.order, device.value(),
                  std::string(scope->value)};
}

Expr BytesOfAllocation(const Allocation& allocation) {
  const auto* shape = allocation.call->args[0].as<ir::ShapeExprObj>();
  return BytesOf(shape->values, allocation.call->args[1].as<ir::DataTypeImmObj>()->value);
}

// Allocations that are one block of memory, one after the other: a result that is written over an
// argument that nobody needs any more.
class Blocks {
 public:
  explicit Blocks(const FunctionMemory& memory)
      : memory_(memory), first_(memory.allocations.size()) {
    for (size_t i = 0; i < first_.size(); ++i) {
      first_[i] = i;
      end_.push_back(memory.allocations[i].end);
    }
    arith::Analyzer analyzer;
    for (const Takeover& takeover : memory.takeovers) Take(takeover, &analyzer);
  }

  size_t FirstOf(size_t allocation) const { return first_[allocation]; }
  int64_t EndOf(size_t first) const { return end_[first]; }
  const std::unordered_set<const ir::CallObj*>& in_place() const { return in_place_; }

 private:
  void Take(const Takeover& takeover, arith::Analyzer* analyzer) {
    const Allocation& result = memory_.allocations[takeover.result];
    const Allocation& argument = memory_.allocations[takeover.argument];
    size_t block = first_[takeover.argument];
    if (first_[takeover.result] != takeover.result || block == takeover.result)
      return;  // has taken another one
    std::optional<ArenaKey> key = KeyOf(result);
    if (!key || key != KeyOf(argument) || end_[block] != takeover.moment) return;
    if (!analyzer->ProveEqual(BytesOfAllocation(result), BytesOfAllocation(argument))) return;
    first_[takeover.result] = block;
    end_[block] = result.end;
    in_place_.insert(takeover.call);
  }

  const FunctionMemory& memory_;
  std::vector<size_t> first_;
  std::vector<int64_t> end_;  // of the block that starts with an allocation
  std::unordered_set<const ir::CallObj*> in_place_;
};

// Results and what others may keep: until the end, as far as is known.
std::vector<ArenaBlock> BlocksOutside(const FunctionMemory& memory) {
  std::vector<ArenaBlock> outside;
  for (const Allocation& allocation : memory.allocations) {
    if (!allocation.shared || !allocation.call->args[0].as<ir::ShapeExprObj>()) continue;
    outside.push_back(
        {allocation.start, std::numeric_limits<int64_t>::max(), BytesOfAllocation(allocation)});
  }
  return outside;
}

ir::Function PlanFunction(const IRModule& mod, const ir::Function& func,
                          InPlacePrograms* programs) {
  FunctionMemory memory = FindAllocations(mod, func);
  Blocks blocks_of(memory);
  std::map<ArenaKey, std::vector<size_t>> by_key;  // first allocations of blocks
  for (size_t i = 0; i < memory.allocations.size(); ++i) {
    if (blocks_of.FirstOf(i) != i) continue;
    if (std::optional<ArenaKey> key = KeyOf(memory.allocations[i])) by_key[*key].push_back(i);
  }
  std::unordered_map<const ffi::Object*, Place> places;
  std::unordered_map<size_t, Place> by_block;
  std::vector<ArenaBlock> outside = BlocksOutside(memory);
  std::map<std::pair<ArenaKey, int>, Arena> arenas;
  for (const auto& [key, members] : by_key) {
    arith::Analyzer analyzer;
    std::vector<ArenaBlock> candidates;
    for (size_t member : members) {
      const Allocation& allocation = memory.allocations[member];
      candidates.push_back(
          {allocation.start, blocks_of.EndOf(member), BytesOfAllocation(allocation)});
    }
    std::vector<int> groups = DivideIntoArenas(candidates, outside, &analyzer);
    std::map<int, std::vector<size_t>> by_group;
    for (size_t i = 0; i < groups.size(); ++i) {
      if (groups[i] != kApart) by_group[groups[i]].push_back(i);
    }
    for (const auto& [group, places_in] : by_group) {
      std::vector<ArenaBlock> blocks;
      for (size_t i : places_in) blocks.push_back(candidates[i]);
      std::optional<ArenaPlan> plan = PlanArena(blocks, &analyzer);
      if (!plan) continue;
      Arena& arena = arenas[{key, group}];
      arena.plan = std::move(*plan);
      for (size_t i = 0; i < places_in.size(); ++i) {
        by_block[members[places_in[i]]] = Place{&arena, arena.plan.offsets[i]};
      }
    }
  }
  for (size_t i = 0; i < memory.allocations.size(); ++i) {
    auto it = by_block.find(blocks_of.FirstOf(i));
    if (it != by_block.end()) places.emplace(memory.allocations[i].var.get(), it->second);
  }
  if (places.empty()) return func;
  Rewriter rewriter(std::move(places), blocks_of.in_place(), programs);
  return ffi::GetRef<ir::Function>(rewriter.MutateFunction(func).as<ir::FunctionObj>());
}

}  // namespace

IRModule PlanMemory(IRModule mod, const PassContext& context) {
  InPlacePrograms programs(mod);
  IRModule result = ir::MutateFunctions(mod, [&](const ir::GlobalVar&, const ir::Function& func) {
    return PlanFunction(mod, func, &programs);
  });
  return programs.AddTo(result);
}

}  // namespace relaxvm::passes
