// SPDX-License-Identifier: Apache-2.0
// One walk in order of execution.  A value is the set of allocations that it may be, by field for
// tuples.
#include "passes/memory/lifetimes.h"

#include <algorithm>
#include <unordered_map>

#include "analysis/core_ops.h"
#include "analysis/program_inplace.h"
#include "ir/prim.h"
#include "ir/visitor.h"
#include "passes/memory/destination.h"
#include "tir/stmt.h"

namespace relaxvm::passes {
namespace {

namespace ffi = tvm::ffi;
using analysis::CoreOp;
using ir::CallObj;
using ir::Expr;
using ir::Var;

struct Value {
  std::vector<size_t> allocations;  // it may be any of these
  std::vector<Value> fields;        // of a tuple that is known
};

class Walker {
 public:
  explicit Walker(const ir::IRModule& mod) : mod_(mod) {}

  FunctionMemory Run(const ir::Function& func) {
    int sequence = num_sequences_++;
    for (const Var& param : func->params) {
      if (ir::IsPrim(param)) Define(param, {sequence, 0});
      DefineAll(param->ty, {sequence, 0});
    }
    Share(WalkSeq(func->body, sequence));
    return {std::move(allocations_), std::move(takeovers_)};
  }

 private:
  Value WalkSeq(const ir::SeqExpr& seq, int sequence) {
    SizeScope outer = std::exchange(now_, SizeScope{sequence, 0});
    for (const ir::BindingBlock& block : seq->blocks) {
      for (const ir::Binding& binding : block->bindings) WalkBinding(binding);
    }
    ++moment_;
    Value result = Read(seq->body);
    now_ = outer;
    return result;
  }

  void WalkBinding(const ir::Binding& binding) {
    ++moment_;
    if (const auto* cast = binding.as<ir::MatchCastObj>()) {
      values_[cast->var.get()] = Read(cast->value);
      if (DefinesNew(cast->ty)) {
        ++now_.order;
        DefineAll(cast->ty, now_);
      }
      return;
    }
    const Expr& value = binding->value;
    if (analysis::CoreOpOfValue(value) == CoreOp::kBuiltinAllocTensor)
      return Allocate(binding->var, value.as<CallObj>());
    if (binding->var->ty.defined() && ir::IsPrim(binding->var)) return WalkScalar(binding);
    values_[binding->var.get()] = Evaluate(value);
  }

  void WalkScalar(const ir::Binding& binding) {
    if (binding->value.as<CallObj>() || binding->value.as<ir::TupleGetItemObj>() ||
        binding->value.as<ir::IfObj>()) {
      Evaluate(binding->value);
      ++now_.order;
      Define(binding->var, now_);
    } else {
      Define(binding->var, ScopeOf(binding->value).value_or(now_));
    }
  }

  void Allocate(const Var& var, const CallObj* call) {
    Allocation allocation{var, call, moment_, moment_, now_.sequence, {}, false};
    std::optional<SizeScope> scope = ScopeOf(call->args[0]);
    allocation.scope = scope.value_or(now_);
    allocation.shared = !scope || !call->args[0].as<ir::ShapeExprObj>();
    values_[var.get()] = Value{{allocations_.size()}, {}};
    allocations_.push_back(allocation);
  }

  // ---- values -----------------------------------------------------------------------------------------------------------

  // A leaf: what it may be, without touching memory.
  Value Read(const Expr& e) {
    if (e.as<ir::VarObj>()) {
      auto it = values_.find(e.get());
      return it == values_.end() ? Value{} : it->second;
    }
    if (const auto* tuple = e.as<ir::TupleObj>()) {
      Value value;
      for (const Expr& field : tuple->fields) value.fields.push_back(Read(field));
      return value;
    }
    return {};
  }

  Value Evaluate(const Expr& e) {
    if (const auto* item = e.as<ir::TupleGetItemObj>()) {
      Value tuple = Read(item->tuple_value);
      if (static_cast<size_t>(item->index) < tuple.fields.size()) return tuple.fields[item->index];
      return tuple;
    }
    if (const auto* branch = e.as<ir::IfObj>()) return EvaluateIf(branch);
    if (const auto* call = e.as<CallObj>()) return EvaluateCall(call);
    if (const auto* func = e.as<ir::FunctionObj>()) {  // a local function may keep what it captures
      for (const Var& var : ir::FreeVars(ffi::GetRef<Expr>(func))) Share(Read(var));
      return {};
    }
    return Read(e);
  }

  Value EvaluateIf(const ir::IfObj* branch) {
    Touch(Read(branch->cond));
    size_t before = allocations_.size();
    Value a = WalkSeq(branch->true_branch, num_sequences_++);
    Value b = WalkSeq(branch->false_branch, num_sequences_++);
    Value joined = Join(a, b);
    // What a branch allocates and gives out outlives its arena.
    for (size_t i : AllOf(joined)) {
      if (i >= before) allocations_[i].shared = true;
    }
    return joined;
  }

  Value EvaluateCall(const CallObj* call) {
    if (const auto* callee = call->op.as<ir::GlobalVarObj>()) {
      auto func = mod_->Find(callee->name_hint);
      const auto* program = func.has_value() ? func.value().as<tir::PrimFuncObj>() : nullptr;
      if (program == nullptr) return ShareAll(call);
      FindTakeovers(call, program);
      return TouchAll(call);
    }
    if (call->op.as<ir::ExternFuncObj>())
      return IsDestinationPassing(call) ? TouchAll(call) : ShareAll(call);
    switch (analysis::CoreOpOf(call)) {
      case CoreOp::kReshape:
      case CoreOp::kView:
      case CoreOp::kEnsureZeroOffset:
      case CoreOp::kHintOnDevice:
      case CoreOp::kStopLiftParams:
      case CoreOp::kToVDevice: {
        Value view = Read(call->args[0]);
        Touch(view);
        return view;
      }
      case CoreOp::kShapeOf:
      case CoreOp::kKillTensor:
      case CoreOp::kKillStorage:
      case CoreOp::kVmKillObject:
      case CoreOp::kAllocStorage:
      case CoreOp::kAllocTensor:
      case CoreOp::kVmAllocStorage:
      case CoreOp::kVmAllocTensor:
      case CoreOp::kNullValue: return {};
      case CoreOp::kAssertOp:
      case CoreOp::kPrint:
      case CoreOp::kTensorToShape:
      case CoreOp::kShapeToTensor:
      case CoreOp::kCallTirDyn: return TouchAll(call);
      default:
        return ShareAll(call);  // closures, calls of functions, operators that are not lowered
    }
  }

  // The result is the last buffer.  Every argument that may be the same memory must be one that may
  // be overwritten.
  void FindTakeovers(const CallObj* call, const tir::PrimFuncObj* program) {
    auto overwritable =
        ir::GetAttr<ffi::Array<int64_t>>(program->attrs, analysis::kOverwritable, {});
    if (overwritable.empty() || call->args.size() != program->params.size()) return;
    size_t last = call->args.size();
    while (last > 0 && !tir::IsBuffer(program->params[last - 1])) --last;
    if (last == 0) return;
    Value result = Read(call->args[last - 1]);
    if (result.allocations.size() != 1) return;
    for (int64_t i : overwritable) {
      Value argument = Read(call->args[i]);
      if (argument.allocations.size() != 1) continue;
      bool safe = true;
      for (size_t other = 0; other + 1 < last; ++other) {
        if (std::find(overwritable.begin(), overwritable.end(), static_cast<int64_t>(other)) !=
            overwritable.end())
          continue;
        std::vector<size_t> all = AllOf(Read(call->args[other]));
        safe = safe && std::find(all.begin(), all.end(), argument.allocations[0]) == all.end();
      }
      if (safe)
        takeovers_.push_back({call, moment_, result.allocations[0], argument.allocations[0]});
    }
  }

  // The call reads or writes its arguments and keeps none of them.
  Value TouchAll(const CallObj* call) {
    for (const Expr& arg : call->args) Touch(Read(arg));
    return {};
  }

  // The call may keep its arguments or give them back.
  Value ShareAll(const CallObj* call) {
    for (const Expr& arg : call->args) Share(Read(arg));
    if (call->op.as<ir::VarObj>()) Share(Read(call->op));
    return {};
  }

  void Touch(const Value& value) {
    for (size_t i : AllOf(value)) allocations_[i].end = std::max(allocations_[i].end, moment_);
  }
  void Share(const Value& value) {
    for (size_t i : AllOf(value)) allocations_[i].shared = true;
  }

  static std::vector<size_t> AllOf(const Value& value) {
    std::vector<size_t> all = value.allocations;
    for (const Value& field : value.fields) {
      std::vector<size_t> more = AllOf(field);
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  }

  static Value Join(const Value& a, const Value& b) {
    Value joined;
    if (a.fields.size() == b.fields.size()) {
      for (size_t i = 0; i < a.fields.size(); ++i)
        joined.fields.push_back(Join(a.fields[i], b.fields[i]));
      joined.allocations = a.allocations;
      joined.allocations.insert(joined.allocations.end(), b.allocations.begin(),
                                b.allocations.end());
      return joined;
    }
    joined.allocations = AllOf(a);
    std::vector<size_t> more = AllOf(b);
    joined.allocations.insert(joined.allocations.end(), more.begin(), more.end());
    return joined;
  }

  // ---- where sizes are known ----------------------------------------------------------------------------------------------

  void Define(const Var& var, SizeScope scope) { sizes_.emplace(var.get(), scope); }
  void DefineAll(const ir::Type& type, SizeScope scope) {
    for (const Var& var : ir::SymbolicVars(type)) Define(var, scope);
  }
  bool DefinesNew(const ir::Type& type) const {
    for (const Var& var : ir::SymbolicVars(type)) {
      if (!sizes_.count(var.get())) return true;
    }
    return false;
  }

  // The earliest place of the current sequence at which `e` can be computed; absent when one of its
  // variables is unknown.
  std::optional<SizeScope> ScopeOf(const Expr& e) const {
    SizeScope scope{now_.sequence, 0};
    for (const Var& var : ir::FreeVars(e)) {
      auto it = sizes_.find(var.get());
      if (it == sizes_.end()) return std::nullopt;
      if (it->second.sequence == scope.sequence)
        scope.order = std::max(scope.order, it->second.order);
    }
    return scope;
  }

  const ir::IRModule& mod_;
  std::vector<Allocation> allocations_;
  std::vector<Takeover> takeovers_;
  std::unordered_map<const ffi::Object*, Value> values_;
  std::unordered_map<const ffi::Object*, SizeScope> sizes_;
  SizeScope now_;
  int64_t moment_ = 0;
  int num_sequences_ = 0;
};

}  // namespace

FunctionMemory FindAllocations(const ir::IRModule& mod, const ir::Function& func) {
  return Walker(mod).Run(func);
}

}  // namespace relaxvm::passes
