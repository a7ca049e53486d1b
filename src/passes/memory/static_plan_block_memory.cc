// SPDX-License-Identifier: Apache-2.0
// StaticPlanBlockMemory: tensors of one block of bindings take over the storage of tensors that
// nobody reads any more; the storages are the plan, as programs that walk through the stages by
// hand expect it.  Stage: planned, after CallTIRRewrite.  The default pipeline runs PlanMemory
// instead, which packs tensors into arenas. Function attributes: "tir_var_upper_bound" and
// "tir_var_lower_bound" bound symbolic sizes by name; with "relax.memory_plan_dynamic_func_output"
// results of symbolic size get a storage too. What leaves the block keeps its own allocation:
// results, what branches read, what may be kept.
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "analysis/calls.h"
#include "analysis/core_ops.h"
#include "arith/analyzer.h"
#include "ir/visitor.h"
#include "passes/pass.h"

namespace relaxvm::passes {
namespace {

using analysis::CoreOp;
using ir::Expr;
using ir::Var;

constexpr const char* kUpper = "tir_var_upper_bound";
constexpr const char* kLower = "tir_var_lower_bound";
constexpr const char* kPlanOutputs = "relax.memory_plan_dynamic_func_output";
// A storage serves sizes this many times smaller or larger than its own.
constexpr int64_t kMatchRange = 16;

struct Storage {
  Expr bytes;
  Var var = Var("storage", ir::AnyType());
  bool emitted = false;
};

// One alloc_tensor.
struct Token {
  const ir::CallObj* call = nullptr;
  Expr bytes;
  bool kept = false;    // leaves the block: keeps its own allocation
  bool output = false;  // leaves as a result of the function
  int last_use = -1;    // binding of the block; -1: nobody reads it
  Storage* storage = nullptr;
};

using Tokens = std::vector<Token*>;

// Largest values of symbolic sizes, by name.
ffi::Map<ffi::String, int64_t> BoundsOf(const ir::Function& func, const char* name) {
  ffi::Map<ffi::String, int64_t> bounds;
  if (!func->attrs.count(name)) return bounds;
  auto given = func->attrs[name].as<ffi::Map<ffi::String, ffi::Any>>();
  if (!given) Fail(ErrorKind::kTypeError, "StaticPlanBlockMemory: ", name, " must be a dictionary");
  for (const auto& [var, value] : given.value()) {
    auto number = value.as<int64_t>();
    auto imm = value.as<Expr>();
    if (!number && imm) {
      if (auto known = ir::AsInt(imm.value())) number = known.value();
    }
    if (!number) {
      Fail(ErrorKind::kTypeError, "StaticPlanBlockMemory: ", name, " of ", var,
           " must be an integer");
    }
    bounds.Set(var, number.value());
  }
  return bounds;
}

// Bytes of allocations, symbolic sizes at their largest where that is known.
class SizeCounter {
 public:
  explicit SizeCounter(const ir::Function& func)
      : upper_(BoundsOf(func, kUpper)), lower_(BoundsOf(func, kLower)) {}

  Expr Bytes(const ir::CallObj* call) {
    const auto* shape = call->args[0].as<ir::ShapeExprObj>();
    const auto* dtype = call->args[1].as<ir::DataTypeImmObj>();
    if (shape == nullptr || dtype == nullptr) return Expr();
    int64_t known = SizeInBytes(dtype->value);
    Expr rest;
    for (const Expr& dim : shape->values) {
      Expr size = Largest(dim);
      if (auto number = ir::AsInt(size)) {
        known *= number.value();
      } else {
        rest = rest.defined() ? rest * size : size;
      }
    }
    return rest.defined() ? Expr(ir::IntImm(Int(64), known)) * rest
                          : Expr(ir::IntImm(Int(64), known));
  }
  bool IsSymbolic(const ir::CallObj* call) const {
    const auto* shape = call->args[0].as<ir::ShapeExprObj>();
    return shape != nullptr && std::any_of(shape->values.begin(), shape->values.end(),
                                           [](const Expr& d) { return !ir::AsInt(d); });
  }

 private:
  // The largest value of a dimension; itself when a variable in it has no bound.
  Expr Largest(const Expr& dim) {
    if (ir::AsInt(dim)) return dim;
    arith::Analyzer analyzer;
    bool bounded = true;
    ffi::Map<Var, Expr> values;
    for (const Var& v : ir::FreeVars(dim)) {
      auto it = upper_.find(v->name);
      if (it == upper_.end()) {
        bounded = false;
        continue;
      }
      auto low = lower_.find(v->name);
      const int64_t from = low == lower_.end() ? 0 : (*low).second;
      analyzer.BindRange(v, {from, (*it).second});
      values.Set(v, ir::IntImm(Int(64), (*it).second));
    }
    if (!bounded) return analyzer.Simplify(ir::Substitute(dim, values));
    const arith::Interval range = analyzer.Bounds(dim);
    return range.max != arith::kPosInf ? Expr(ir::IntImm(Int(64), range.max)) : dim;
  }

  ffi::Map<ffi::String, int64_t> upper_, lower_;
};

// Free storages of one element type and scope.
class Pool {
 public:
  Storage* Take(const Expr& bytes, arith::Analyzer* analyzer) {
    auto size = ir::AsInt(bytes);
    return size ? TakeSize(size.value(), bytes) : TakeEqual(bytes, analyzer);
  }
  void Give(Storage* storage) {
    if (auto size = ir::AsInt(storage->bytes)) {
      by_size_.emplace(size.value(), storage);
    } else {
      symbolic_.push_back(storage);
    }
  }

 private:
  // The smallest that is large enough, else the largest that is not.
  Storage* TakeSize(int64_t size, const Expr& bytes) {
    auto at = by_size_.lower_bound(size);
    if (at != by_size_.end() && at->first / kMatchRange < std::max<int64_t>(size, 1)) {
      Storage* found = at->second;
      by_size_.erase(at);
      return found;
    }
    if (at == by_size_.begin()) return nullptr;
    --at;
    if (at->first < size / kMatchRange) return nullptr;
    Storage* found = at->second;
    found->bytes = bytes;
    by_size_.erase(at);
    return found;
  }
  Storage* TakeEqual(const Expr& bytes, arith::Analyzer* analyzer) {
    for (size_t i = 0; i < symbolic_.size(); ++i) {
      if (!analyzer->ProveEqual(symbolic_[i]->bytes, bytes)) continue;
      Storage* found = symbolic_[i];
      symbolic_.erase(symbolic_.begin() + static_cast<std::ptrdiff_t>(i));
      return found;
    }
    return nullptr;
  }

  std::multimap<int64_t, Storage*> by_size_;
  std::vector<Storage*> symbolic_;
};

class Planner : public ir::Mutator {
 public:
  Planner(const IRModule& mod, const ir::Function& func)
      : mod_(mod), sizes_(func), plan_outputs_(ir::GetAttr<int64_t>(func->attrs, kPlanOutputs, 0)) {
    Collect(func->body, true);
    Keep(func->body->body, true);
  }

  ir::Function Run(const ir::Function& func) {
    for (const auto& [block, tokens] : by_block_) Assign(block, tokens);
    ir::Function made = Mutate(func).as<ir::Function>().value();
    if (!func->attrs.count(kPlanOutputs)) return made;
    ir::DictAttrs attrs = made->attrs;
    attrs.erase(kPlanOutputs);
    return ir::Function(made->params, made->body, made->ret_ty, made->is_pure, attrs, made->span);
  }

  void MutateBinding(const ir::Binding& binding, ffi::Array<ir::Binding>* out) override {
    auto it = allocations_.find(binding->var.get());
    Token* token = it == allocations_.end() ? nullptr : it->second;
    if (token == nullptr || token->storage == nullptr) {
      return ir::Mutator::MutateBinding(binding, out);
    }
    Storage* storage = token->storage;
    const ir::CallObj* call = token->call;
    if (!storage->emitted) {
      storage->emitted = true;
      Expr reserve = analysis::CallCore(
          CoreOp::kAllocStorage,
          {ir::ShapeExpr({storage->bytes}), call->args[2], call->args[3], call->args[1]},
          ir::AnyType());
      out->push_back(ir::VarBinding(storage->var, reserve));
    }
    Expr tensor = analysis::CallCore(
        CoreOp::kAllocTensor,
        {storage->var, ir::IntImm(Int(64), 0), call->args[0], call->args[1], call->args[2]},
        call->ty, call->span);
    out->push_back(ir::VarBinding(binding->var, tensor, binding->span));
  }
  Expr MutateOther(const Expr& e) override { return e; }

 private:
  // ---- which allocations there are, and where they are read

  void Collect(const ir::SeqExpr& seq, bool outermost) {
    for (const ir::BindingBlock& block : seq->blocks) {
      block_ = block.get();
      for (size_t i = 0; i < block->bindings.size(); ++i) {
        block_ = block.get();
        index_ = static_cast<int>(i);
        Note(block->bindings[i]);
      }
    }
    block_ = nullptr;
    if (!outermost) Keep(seq->body, false);
  }

  void Note(const ir::Binding& b) {
    const Expr& value = b->value;
    if (b.as<ir::MatchCastObj>()) {
      names_[b->var.get()] = Of(value);
      return;
    }
    if (analysis::CoreOpOfValue(value) == CoreOp::kBuiltinAllocTensor) {
      const auto* call = value.as<ir::CallObj>();
      Token& token = *tokens_.emplace_back(std::make_unique<Token>());
      token.call = call;
      token.bytes = sizes_.Bytes(call);
      home_[&token] = block_;
      token.kept = !token.bytes.defined();
      names_[b->var.get()] = {&token};
      allocations_.emplace(b->var.get(), &token);
      AllocatedIn(block_).emplace_back(index_, &token);
      return;
    }
    if (value.as<ir::VarObj>() || value.as<ir::TupleObj>() || value.as<ir::TupleGetItemObj>()) {
      names_[b->var.get()] = Of(value);
      return;
    }
    if (auto* branch = value.as<ir::IfObj>()) {
      Keep(branch->cond, false);
      Collect(branch->true_branch, false);
      Collect(branch->false_branch, false);
      return;
    }
    if (auto* call = value.as<ir::CallObj>()) return NoteCall(b->var, call);
    Keep(value, false);
  }

  std::vector<std::pair<int, Token*>>& AllocatedIn(const ffi::Object* block) {
    auto [it, added] = block_number_.try_emplace(block, by_block_.size());
    if (added) by_block_.push_back({block, {}});
    return by_block_[it->second].second;
  }

  void NoteCall(const Var& var, const ir::CallObj* call) {
    if (IsView(call)) {
      names_[var.get()] = Of(call->args[0]);
      return;
    }
    const bool known = KeepsNothing(var, call);
    for (const Expr& arg : call->args) {
      if (known) {
        Read(arg);
      } else {
        Keep(arg, false);
      }
    }
  }

  static bool IsView(const ir::CallObj* call) {
    if (auto* packed = call->op.as<ir::ExternFuncObj>()) {
      return packed->global_symbol == "vm.builtin.reshape";
    }
    const CoreOp op = analysis::CoreOpOf(call);
    return op == CoreOp::kReshape || op == CoreOp::kView || op == CoreOp::kEnsureZeroOffset;
  }

  // Does the callee only read and write the tensors while it runs?
  bool KeepsNothing(const Var& var, const ir::CallObj* call) const {
    if (auto* name = call->op.as<ir::GlobalVarObj>()) {
      auto func = mod_->Find(name->name_hint);
      return func && !func.value().as<ir::FunctionObj>();
    }
    if (call->op.as<ir::ExternFuncObj>()) return var->ty.defined() && ir::IsVoidType(var->ty);
    return analysis::CoreOpOf(call) == CoreOp::kCallTirDyn;
  }

  // The allocations that a value names.
  Tokens Of(const Expr& e) const {
    class Vars : public ir::Visitor {
     public:
      std::vector<const ir::VarObj*> found;
      void VisitVar(const ir::VarObj* v) override { found.push_back(v); }
      void VisitOther(const ir::ExprObj*) override {}
    } vars;
    vars.Visit(e);
    Tokens tokens;
    for (const ir::VarObj* v : vars.found) {
      auto it = names_.find(v);
      if (it == names_.end()) continue;
      for (Token* t : it->second) {
        if (std::find(tokens.begin(), tokens.end(), t) == tokens.end()) tokens.push_back(t);
      }
    }
    return tokens;
  }

  void Read(const Expr& e) {
    for (Token* t : Of(e)) {
      if (home_.at(t) != block_) {
        t->kept = true;
        continue;
      }
      t->last_use = std::max(t->last_use, index_);
      Tokens& read = reads_[block_][index_];
      if (std::find(read.begin(), read.end(), t) == read.end()) read.push_back(t);
    }
  }
  void Keep(const Expr& e, bool result) {
    for (Token* t : Of(e)) {
      t->output = t->output || result;
      const bool planned = result && plan_outputs_ != 0 && sizes_.IsSymbolic(t->call);
      t->kept = t->kept || !planned;
    }
  }

  // ---- who takes which storage

  using Key = std::pair<std::string, std::string>;
  static Key KeyOf(const Token* t) {
    const auto* scope = t->call->args[3].as<ir::StringImmObj>();
    return {scope == nullptr ? "" : std::string(scope->value),
            DTypeName(t->call->args[1].as<ir::DataTypeImmObj>()->value)};
  }

  void Assign(const ffi::Object* block, const std::vector<std::pair<int, Token*>>& allocated) {
    arith::Analyzer analyzer;
    std::map<Key, Pool> pools;
    auto& reads = reads_[block];
    auto give = [&](Token* t) {
      if (t->storage != nullptr && !t->output) pools[KeyOf(t)].Give(t->storage);
    };
    int at = 0;
    for (const auto& [index, token] : allocated) {
      for (; at < index; ++at) {
        auto it = reads.find(at);
        if (it == reads.end()) continue;
        for (Token* t : it->second) {
          if (t->last_use == at) give(t);
        }
      }
      if (token->kept) continue;
      if (!token->output) token->storage = pools[KeyOf(token)].Take(token->bytes, &analyzer);
      if (token->storage == nullptr) {
        storages_.push_back(std::make_unique<Storage>());
        token->storage = storages_.back().get();
        token->storage->bytes = token->bytes;
      }
      if (token->last_use < 0) give(token);
    }
  }

  const IRModule& mod_;
  SizeCounter sizes_;
  int64_t plan_outputs_;
  const ffi::Object* block_ = nullptr;
  int index_ = 0;
  std::vector<std::unique_ptr<Token>> tokens_;
  std::vector<std::unique_ptr<Storage>> storages_;
  std::vector<std::pair<const ffi::Object*, std::vector<std::pair<int, Token*>>>> by_block_;
  std::unordered_map<const ffi::Object*, size_t> block_number_;
  std::unordered_map<const Token*, const ffi::Object*> home_;
  std::unordered_map<const ffi::Object*, std::map<int, Tokens>> reads_;
  std::unordered_map<const ffi::Object*, Tokens> names_;
  std::unordered_map<const ffi::Object*, Token*> allocations_;
};

}  // namespace

IRModule StaticPlanBlockMemory(IRModule mod, const PassContext& context) {
  return ir::MutateFunctions(mod, [&](const ir::GlobalVar&, const ir::Function& func) {
    return Planner(mod, func).Run(func);
  });
}

}  // namespace relaxvm::passes
