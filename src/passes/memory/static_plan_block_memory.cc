// SPDX-License-Identifier: Apache-2.0
// StaticPlanBlockMemory: tensors that only the function itself sees share arenas, one for each
// place where sizes become known, each device and each memory scope.  An arena is one storage,
// reserved before its first tensor; tensors lie in it at offsets that are computed once per call
// (arena.h). Stage: planned, after CallTIRRewrite.  What it leaves (results, what packed functions
// may keep) gets a storage of its own in LowerAllocTensor.
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "analysis/core_ops.h"
#include "arith/analyzer.h"
#include "ir/prim.h"
#include "ir/visitor.h"
#include "passes/memory/arena.h"
#include "passes/memory/destination.h"
#include "passes/memory/lifetimes.h"
#include "passes/pass.h"

namespace relaxvm::passes {
namespace {

using analysis::CoreOp;
using ir::Expr;
using ir::Var;

struct Arena {
  std::vector<const Allocation*> members;
  ArenaPlan plan;
  Var storage = Var("storage", ir::AnyType());
  bool reserved = false;  // emitted
};

struct Place {
  Arena* arena;
  Expr offset;
};

class Rewriter : public ir::Mutator {
 public:
  explicit Rewriter(std::unordered_map<const ffi::Object*, Place> places)
      : places_(std::move(places)) {}

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
};

using ArenaKey =
    std::tuple<int, int, int64_t, std::string>;  // sequence, order of sizes, device, scope

ir::Function PlanFunction(const IRModule& mod, const ir::Function& func) {
  std::vector<Allocation> allocations = FindAllocations(mod, func);
  std::map<ArenaKey, Arena> arenas;
  for (const Allocation& allocation : allocations) {
    if (allocation.shared) continue;
    auto device = ir::AsInt(allocation.call->args[2]);
    const auto* scope = allocation.call->args[3].as<ir::StringImmObj>();
    if (!device.has_value() || scope == nullptr) continue;
    arenas[{allocation.sequence, allocation.scope.order, device.value(), std::string(scope->value)}]
        .members.push_back(&allocation);
  }
  std::unordered_map<const ffi::Object*, Place> places;
  for (auto& [key, arena] : arenas) {
    arith::Analyzer analyzer;
    std::vector<ArenaBlock> blocks;
    for (const Allocation* member : arena.members) {
      const auto* shape = member->call->args[0].as<ir::ShapeExprObj>();
      DLDataType dtype = member->call->args[1].as<ir::DataTypeImmObj>()->value;
      blocks.push_back({member->start, member->end, BytesOf(shape->values, dtype)});
    }
    std::optional<ArenaPlan> plan = PlanArena(blocks, &analyzer);
    if (!plan) continue;
    arena.plan = std::move(*plan);
    for (size_t i = 0; i < arena.members.size(); ++i) {
      places.emplace(arena.members[i]->var.get(), Place{&arena, arena.plan.offsets[i]});
    }
  }
  if (places.empty()) return func;
  return ffi::GetRef<ir::Function>(
      Rewriter(std::move(places)).MutateFunction(func).as<ir::FunctionObj>());
}

}  // namespace

IRModule StaticPlanBlockMemory(IRModule mod, const PassContext& context) {
  return ir::MutateFunctions(mod, [&mod](const ir::GlobalVar&, const ir::Function& func) {
    return PlanFunction(mod, func);
  });
}

}  // namespace relaxvm::passes
