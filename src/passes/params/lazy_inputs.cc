// SPDX-License-Identifier: Apache-2.0
// Weights that are asked for right before their first use.
#include "passes/params/lazy_inputs.h"

#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ir/block_builder.h"
#include "ir/visitor.h"
#include "passes/pass.h"

namespace relaxvm::passes {
namespace {

using ir::Expr;
using ir::Type;
using ir::Var;

// Sizes that a kept parameter tells.
std::unordered_set<const ffi::Object*> SizesOf(const ffi::Array<Var>& params) {
  std::unordered_set<const ffi::Object*> sizes;
  for (const Var& param : params) {
    sizes.insert(param.get());
    for (const Var& size : ir::DefinableSymbolicVars(param->ty)) sizes.insert(size.get());
  }
  return sizes;
}

class InputReader : public ir::Mutator {
 public:
  InputReader(ir::Function func, ffi::Array<Var> extra, AskFor ask, bool pure)
      : func_(std::move(func)), extra_(std::move(extra)), ask_(std::move(ask)), pure_(pure) {
    for (size_t i = 0; i < func_->params.size(); ++i) {
      if (static_cast<int64_t>(i) >= NumInput(func_.get())) index_[func_->params[i].get()] = i;
    }
  }

  ir::Function Run() {
    ffi::Array<Var> params = Kept();
    for (const Var& v : extra_) params.push_back(v);
    ir::SeqExpr read = Mutate(func_->body).as<ir::SeqExpr>().value();
    ir::SeqExpr body(read->blocks, read->body, read->span);
    if (read->ty.defined()) body->ty = TypeForCaller(read->ty, params);
    return ir::Function(params, body, TypeForCaller(func_->ret_ty, params), pure_ && func_->is_pure,
                        func_->attrs, func_->span);
  }

  void MutateBinding(const ir::Binding& binding, ffi::Array<ir::Binding>* out) override {
    ReadWhatIsUsed(binding->value, out);
    if (const auto* cast = binding.as<ir::MatchCastObj>()) ReadSizes(cast->ty, out);
    ir::Mutator::MutateBinding(binding, out);
  }

  Expr MutateSeq(const ir::SeqExpr& seq) override {
    const auto outer = read_;  // what a branch reads is not there after it
    ffi::Array<ir::BindingBlock> blocks;
    ffi::Array<ir::Binding> bindings;
    auto end_block = [&] {
      if (!bindings.empty()) blocks.push_back(ir::BindingBlock(bindings));
      bindings = {};
    };
    for (const ir::BindingBlock& block : seq->blocks) {
      dataflow_ = block.as<ir::DataflowBlockObj>() != nullptr;
      if (dataflow_) {
        end_block();
        const auto before = read_;
        for (const ir::Binding& b : block->bindings) MutateBinding(b, &bindings);
        blocks.push_back(ir::DataflowBlock(bindings, block->span));
        bindings = {};
        read_ = before;
        dataflow_ = false;
      } else {
        for (const ir::Binding& b : block->bindings) MutateBinding(b, &bindings);
      }
    }
    ReadWhatIsUsed(seq->body, &bindings);
    Expr body = Mutate(seq->body);
    read_ = outer;
    end_block();
    return ir::SeqExpr(blocks, body, seq->span);
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
    read_.insert_or_assign(param.get(), BindWeight(ask_(index, param), param, dataflow_, out));
  }

  const ir::Function func_;
  const ffi::Array<Var> extra_;
  const AskFor ask_;
  const bool pure_;
  bool dataflow_ = false;  // within a dataflow block
  std::unordered_map<const ffi::Object*, size_t> index_;
  std::unordered_map<const ffi::Object*, Var> read_;
};

}  // namespace

int64_t NumInput(const ir::FunctionObj* func) {
  return ir::GetAttr<int64_t>(func->attrs, ir::attr::kNumInput, 0);
}

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

Type TypeForCaller(const Type& type, const ffi::Array<Var>& params) {
  const auto sizes = SizesOf(params);
  return ir::EraseToVisible(type, [&](const Var& v) { return sizes.count(v.get()) != 0; });
}

Var BindWeight(const ir::Call& call, const Var& param, bool dataflow,
               ffi::Array<ir::Binding>* out) {
  auto variable = [&](const std::string& name, const Type& type) {
    return dataflow ? Var(ir::DataflowVar(name, type, param->span)) : Var(name, type, param->span);
  };
  Var untyped = variable(std::string(param->name) + "_untyped", ir::AnyType());
  out->push_back(ir::VarBinding(untyped, call, param->span));
  Var typed = variable(std::string(param->name), param->ty);
  out->push_back(ir::MatchCast(typed, untyped, param->ty, param->span));
  return typed;
}

ir::Function ReadInputsLazily(const ir::Function& func, const ffi::Array<Var>& extra,
                              const AskFor& ask, bool without_effect) {
  return InputReader(func, extra, ask, without_effect).Run();
}

Results ResultsIn(const Expr& body) {
  Results results;
  const auto* tuple = body.as<ir::TupleObj>();
  const ffi::Array<Expr> fields = tuple != nullptr ? tuple->fields : ffi::Array<Expr>{body};
  for (size_t i = 0; i < fields.size(); ++i) {
    if (auto var = fields[i].as<ir::Var>()) {
      results.places[var->get()].push_back(static_cast<int64_t>(i));
    } else {
      results.values.emplace_back(static_cast<int64_t>(i), fields[i]);
    }
  }
  return results;
}

}  // namespace relaxvm::passes
