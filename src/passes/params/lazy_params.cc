// SPDX-License-Identifier: Apache-2.0
// LazyGetInput, LazySetOutput: a function that transforms weights asks for each of its weights
// right before the first use, and gives each result away as soon as it is there, so that they need
// not lie in memory all at once.  Stage: graph.  The function then has effects.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "analysis/reads.h"
#include "ir/block_builder.h"
#include "ir/visitor.h"
#include "ops/op_def.h"
#include "passes/pass.h"

namespace relaxvm::passes {
namespace {

using ir::Expr;
using ir::Type;
using ir::Var;

// A function of an index and perhaps another value: R.Callable([R.Prim("int64"), R.Any], ret).
Type CallbackType(const Type& ret) {
  return ir::FuncType({ir::PrimType(Int(64)), ir::AnyType()}, ret, /*purity=*/false);
}

int64_t NumInput(const ir::FunctionObj* func) {
  return ir::GetAttr<int64_t>(func->attrs, ir::attr::kNumInput, 0);
}

// Calls with effects stand outside of dataflow blocks.
ir::Function WithoutDataflow(const ir::GlobalVar& var, const ir::Function& func) {
  IRModule one = ToNonDataflow(IRModule({{var, func}}), PassContext());
  return one->functions[var].as<ir::Function>().value();
}

ir::SeqExpr OneBlock(const ffi::Array<ir::Binding>& bindings, const Expr& body,
                     const ir::Span& span) {
  ffi::Array<ir::BindingBlock> blocks;
  if (!bindings.empty()) blocks.push_back(ir::BindingBlock(bindings));
  return ir::SeqExpr(blocks, body, span);
}

// Sizes that a kept parameter tells.
std::unordered_set<const ffi::Object*> SizesOf(const ffi::Array<Var>& params) {
  std::unordered_set<const ffi::Object*> sizes;
  for (const Var& param : params) {
    sizes.insert(param.get());
    for (const Var& size : ir::DefinableSymbolicVars(param->ty)) sizes.insert(size.get());
  }
  return sizes;
}

Type TypeForCaller(const Type& type, const ffi::Array<Var>& params) {
  const auto sizes = SizesOf(params);
  return ir::EraseToVisible(type, [&](const Var& v) { return sizes.count(v.get()) != 0; });
}

class InputReader : public ir::Mutator {
 public:
  explicit InputReader(ir::Function func) : func_(std::move(func)) {
    for (size_t i = 0; i < func_->params.size(); ++i) {
      if (static_cast<int64_t>(i) >= NumInput(func_.get())) index_[func_->params[i].get()] = i;
    }
  }

  ir::Function Run() {
    if (index_.empty()) return func_;
    ffi::Array<Var> params;
    for (const Var& param : func_->params) {
      if (!index_.count(param.get())) params.push_back(param);
    }
    params.insert(params.begin() + NumInput(func_.get()), get_);
    ir::SeqExpr body = Mutate(func_->body).as<ir::SeqExpr>().value();
    ir::DictAttrs attrs = func_->attrs;
    if (attrs.count(ir::attr::kNumInput)) {
      attrs.Set(ir::attr::kNumInput, NumInput(func_.get()) + 1);
    }
    return ir::Function(params, body, TypeForCaller(func_->ret_ty, params), /*is_pure=*/false,
                        attrs, func_->span);
  }

  void MutateBinding(const ir::Binding& binding, ffi::Array<ir::Binding>* out) override {
    ReadWhatIsUsed(binding->value, out);
    if (const auto* cast = binding.as<ir::MatchCastObj>()) ReadSizes(cast->ty, out);
    ir::Mutator::MutateBinding(binding, out);
  }

  Expr MutateSeq(const ir::SeqExpr& seq) override {
    const auto outer = read_;  // what a branch reads is not there after it
    ffi::Array<ir::Binding> bindings;
    for (const ir::BindingBlock& block : seq->blocks) {
      for (const ir::Binding& b : block->bindings) MutateBinding(b, &bindings);
    }
    ReadWhatIsUsed(seq->body, &bindings);
    Expr body = Mutate(seq->body);
    read_ = outer;
    return OneBlock(bindings, body, seq->span);
  }
  Expr MutateVar(const Var& v) override {
    auto it = read_.find(v.get());
    return it == read_.end() ? ir::Mutator::MutateVar(v) : Expr(it->second);
  }
  Expr MutateOther(const Expr& e) override { return e; }

 private:
  // The weights in `value` itself; branches read for themselves.
  class Used : public ir::Visitor {
   public:
    std::vector<Var> found;
    void VisitVar(const ir::VarObj* v) override { found.push_back(ffi::GetRef<Var>(v)); }
    void VisitIf(const ir::IfObj* i) override { Visit(i->cond); }
    void VisitOther(const ir::ExprObj*) override {}
  };

  void ReadWhatIsUsed(const Expr& value, ffi::Array<ir::Binding>* out) {
    Used used;
    used.Visit(value);
    for (const Var& v : used.found) ReadVar(v, out);
  }
  void ReadSizes(const Type& type, ffi::Array<ir::Binding>* out) {
    for (const Var& v : ir::SymbolicVars(type)) ReadVar(v, out);
  }

  // A weight, or a size that only weights tell.
  void ReadVar(const Var& v, ffi::Array<ir::Binding>* out) {
    if (index_.count(v.get())) return Read(v, out);
    for (const Var& param : func_->params) {
      if (!index_.count(param.get()) || read_.count(param.get())) continue;
      for (const Var& size : ir::DefinableSymbolicVars(param->ty)) {
        if (size.same_as(v) && !SizesOf(Kept()).count(v.get())) return Read(param, out);
      }
    }
  }
  ffi::Array<Var> Kept() const {
    ffi::Array<Var> kept;
    for (const Var& param : func_->params) {
      if (!index_.count(param.get())) kept.push_back(param);
    }
    return kept;
  }

  void Read(const Var& param, ffi::Array<ir::Binding>* out) {
    if (read_.count(param.get())) return;
    const int64_t index = static_cast<int64_t>(index_.at(param.get())) - NumInput(func_.get());
    ir::Call call(get_, {ir::IntImm(Int(64), index), ir::StringImm(param->name)}, ir::Attrs(), {},
                  param->span, ir::AnyType());
    Var untyped(param->name + "_untyped", ir::AnyType());
    out->push_back(ir::VarBinding(untyped, call, param->span));
    Var typed(param->name, param->ty, param->span);
    out->push_back(ir::MatchCast(typed, untyped, param->ty, param->span));
    read_.insert_or_assign(param.get(), typed);
  }

  const ir::Function func_;
  const Var get_ = Var("fget_param", CallbackType(ir::AnyType()));
  std::unordered_map<const ffi::Object*, size_t> index_;
  std::unordered_map<const ffi::Object*, Var> read_;
};

class OutputWriter : public ir::Mutator {
 public:
  explicit OutputWriter(ir::Function func) : func_(std::move(func)) {}

  ir::Function Run() {
    Collect();
    ffi::Array<Var> params = func_->params;
    // Behind the inputs; without weights these are all parameters.
    const auto num_input = ir::GetAttr<int64_t>(func_->attrs, ir::attr::kNumInput,
                                                static_cast<int64_t>(params.size()));
    params.insert(params.begin() + num_input, set_);
    ffi::Array<ir::Binding> bindings;
    // Results that no binding makes: parameters first of all, other values at the end.
    for (const Var& param : func_->params) Write(param, &bindings);
    for (const ir::BindingBlock& block : func_->body->blocks) {
      for (const ir::Binding& b : block->bindings) MutateBinding(b, &bindings);
    }
    for (const auto& [index, value] : values_) WriteAs(index, value, &bindings);
    ir::Tuple none(ffi::Array<Expr>{});
    none->ty = ir::VoidType();
    ir::DictAttrs attrs = func_->attrs;
    if (attrs.count(ir::attr::kNumInput)) {
      attrs.Set(ir::attr::kNumInput, NumInput(func_.get()) + 1);
    }
    return ir::Function(params, OneBlock(bindings, none, func_->body->span), ir::VoidType(),
                        /*is_pure=*/false, attrs, func_->span);
  }

  void MutateBinding(const ir::Binding& binding, ffi::Array<ir::Binding>* out) override {
    if (binding->var.same_as(result_)) return;  // the tuple of all results
    out->push_back(binding);
    Write(binding->var, out);
  }
  // Results are variables of the function's own body.
  Expr MutateSeq(const ir::SeqExpr& seq) override { return seq; }

 private:
  void Collect() {
    Expr body = func_->body->body;
    analysis::VarsIn seen;
    seen.Visit(func_->body);
    if (auto var = body.as<Var>()) {
      for (const ir::BindingBlock& block : func_->body->blocks) {
        for (const ir::Binding& b : block->bindings) {
          if (!b->var.same_as(*var) || !b->value.as<ir::TupleObj>()) continue;
          body = b->value;
          const auto uses = std::count(seen.found.begin(), seen.found.end(), var->get());
          if (uses == 1) result_ = *var;
        }
      }
    }
    const auto* tuple = body.as<ir::TupleObj>();
    const ffi::Array<Expr> fields = tuple != nullptr ? tuple->fields : ffi::Array<Expr>{body};
    for (size_t i = 0; i < fields.size(); ++i) {
      if (auto var = fields[i].as<Var>()) {
        indices_[var->get()].push_back(static_cast<int64_t>(i));
      } else {
        values_.emplace_back(static_cast<int64_t>(i), fields[i]);
      }
    }
  }

  void Write(const Var& var, ffi::Array<ir::Binding>* out) {
    auto it = indices_.find(var.get());
    if (it == indices_.end()) return;
    for (int64_t index : it->second) WriteAs(index, var, out);
  }
  void WriteAs(int64_t index, const Expr& value, ffi::Array<ir::Binding>* out) {
    ir::Call call(set_, {ir::IntImm(Int(64), index), value}, ir::Attrs(), {}, value->span,
                  ir::VoidType());
    out->push_back(ir::VarBinding(Var("_", ir::VoidType()), call));
  }

  const ir::Function func_;
  const Var set_ = Var("fset_output", CallbackType(ir::VoidType()));
  Expr result_;
  std::unordered_map<const ffi::Object*, std::vector<int64_t>> indices_;
  std::vector<std::pair<int64_t, Expr>> values_;
};

template <typename Rewriter>
IRModule Rewrite(IRModule mod) {
  return ir::MutateFunctions(mod, [&](const ir::GlobalVar& var, const ir::Function& func) {
    // Private functions are called from inside, with all their arguments.
    if (!func->attrs.count(ir::attr::kGlobalSymbol)) return func;
    return Rewriter(WithoutDataflow(var, func)).Run();
  });
}

}  // namespace

IRModule LazyGetInput(IRModule mod, const PassContext& context) {
  return Rewrite<InputReader>(std::move(mod));
}

IRModule LazySetOutput(IRModule mod, const PassContext& context) {
  return Rewrite<OutputWriter>(std::move(mod));
}

}  // namespace relaxvm::passes
