// SPDX-License-Identifier: Apache-2.0
// Function.inline_functions: calls of given functions become their bodies.  A body that is no
// single dataflow block splits the block that the call stands in.
#include <algorithm>

#include "analysis/calls.h"
#include "passes/canonical/bind.h"
#include "passes/canonical/inline.h"
#include "passes/pass.h"

namespace relaxvm::passes {

namespace ffi = tvm::ffi;

namespace {

using ir::Expr;
using ir::Var;

bool AllDataflow(const ir::SeqExpr& seq) {
  return std::all_of(seq->blocks.begin(), seq->blocks.end(), [](const ir::BindingBlock& b) {
    return b.as<ir::DataflowBlockObj>() != nullptr;
  });
}

class Inliner : public ir::Mutator {
 public:
  explicit Inliner(const FunctionsByName& functions) : functions_(functions) {}

  Expr MutateSeq(const ir::SeqExpr& seq) override {
    ffi::Array<ir::BindingBlock> blocks;
    bool changed = false;
    for (const ir::BindingBlock& block : seq->blocks) {
      current_ = {};
      dataflow_ = block.as<ir::DataflowBlockObj>() != nullptr;
      ffi::Array<ir::BindingBlock> outer = std::exchange(done_, {});
      const bool outer_dataflow = dataflow_;
      for (const ir::Binding& binding : block->bindings) changed |= Rewrite(binding);
      Flush(outer_dataflow);
      for (const ir::BindingBlock& b : done_) blocks.push_back(b);
      done_ = std::move(outer);
    }
    Expr body = Mutate(seq->body);
    if (!changed && body.same_as(seq->body)) return seq;
    return ir::SeqExpr(blocks, body, seq->span);
  }

 private:
  void Flush(bool dataflow) {
    if (current_.empty()) return;
    done_.push_back(dataflow ? ir::DataflowBlock(current_) : ir::BindingBlock(current_));
    current_ = {};
  }

  // What has been written of the sequence at hand, while another one is.
  struct State {
    ffi::Array<ir::Binding> current;
    ffi::Array<ir::BindingBlock> done;
    bool dataflow;
  };
  State Leave() { return {std::exchange(current_, {}), std::exchange(done_, {}), dataflow_}; }
  void Return(State state) {
    current_ = std::move(state.current);
    done_ = std::move(state.done);
    dataflow_ = state.dataflow;
  }

  // Appends what stands for `binding`; is it something else?
  bool Rewrite(const ir::Binding& binding) {
    auto* call = binding.as<ir::VarBindingObj>() ? binding->value.as<ir::CallObj>() : nullptr;
    auto* name = call == nullptr ? nullptr : call->op.as<ir::GlobalVarObj>();
    auto it = name == nullptr ? functions_.end() : functions_.find(std::string(name->name_hint));
    if (it == functions_.end()) {
      // A branch has blocks of its own.
      State saved = Leave();
      ffi::Array<ir::Binding> out;
      MutateBinding(binding, &out);
      Return(std::move(saved));
      for (const ir::Binding& b : out) current_.push_back(b);
      return !out.back().same_as(binding);
    }
    if (std::find(active_.begin(), active_.end(), it->first) != active_.end()) {
      Fail(ErrorKind::kValueError, binding->span.Place(), "function ", it->first,
           " calls itself, directly or not, and cannot be inlined; leave it out");
    }
    Inline(ffi::GetRef<ir::Call>(call), it->first, it->second, binding);
    return true;
  }

  void Inline(const ir::Call& call, const std::string& name, const ir::Function& func,
              const ir::Binding& binding) {
    if (call->args.size() != func->params.size()) {
      Fail(ErrorKind::kTypeError, binding->span.Place(), name, " takes ", func->params.size(),
           " arguments, but ", call->args.size(), " are given");
    }
    ir::Function copy = CopyWithFreshVars(func);
    ffi::Map<Var, Expr> params;
    for (size_t i = 0; i < copy->params.size(); ++i)
      params.Set(copy->params[i], Mutate(call->args[i]));
    ir::SeqExpr body = BindFunction(copy, params, {})->body;
    State saved = Leave();
    active_.push_back(name);
    body = MutateSeq(body).as<ir::SeqExpr>().value();
    active_.pop_back();
    Return(std::move(saved));
    const bool dataflow = dataflow_;
    if (dataflow && AllDataflow(body)) {
      body = WithoutOutputs(body);
      for (const ir::BindingBlock& block : body->blocks) {
        for (const ir::Binding& b : block->bindings) current_.push_back(b);
      }
    } else {
      if (dataflow) Flush(true);
      for (const ir::BindingBlock& block : body->blocks) {
        if (!dataflow && !block.as<ir::DataflowBlockObj>()) {
          for (const ir::Binding& b : block->bindings) current_.push_back(b);
          continue;
        }
        Flush(dataflow);
        done_.push_back(block);
      }
    }
    Var var = MutateDef(binding->var);
    current_.push_back(ir::VarBinding(var, body->body, binding->span));
  }

  const FunctionsByName& functions_;
  std::vector<std::string> active_;  // functions whose bodies are being inlined
  ffi::Array<ir::Binding> current_;
  ffi::Array<ir::BindingBlock> done_;
  bool dataflow_ = false;
};

// Dataflow variables that are used outside of the block that defines them: splitting a block makes
// such.
class OutputMaker : public ir::Mutator {
 public:
  explicit OutputMaker(const ir::Function& func) { Finder(&outside_).VisitFunction(func.get()); }

  Var MutateDef(const Var& v) override {
    if (!v.as<ir::DataflowVarObj>() || !outside_.count(v.get())) return ir::Mutator::MutateDef(v);
    Var fresh(v->name, v->ty, v->span);
    Replace(v, fresh);
    return fresh;
  }

 private:
  class Finder : public ir::Visitor {
   public:
    explicit Finder(std::unordered_set<const ffi::Object*>* outside) : outside_(outside) {}
    void VisitBlock(const ir::BindingBlock& block) override {
      ++block_;
      const int own = block_;
      for (const ir::Binding& b : block->bindings) {
        now_ = own;
        VisitBinding(b);
        home_[b->var.get()] = own;
      }
      now_ = 0;
    }
    void VisitVar(const ir::VarObj* v) override {
      auto it = home_.find(v);
      if (it != home_.end() && it->second != now_) outside_->insert(v);
    }
    void VisitOther(const ir::ExprObj*) override {}

   private:
    std::unordered_set<const ffi::Object*>* outside_;
    std::unordered_map<const ffi::Object*, int> home_;
    int block_ = 0;
    int now_ = 0;
  };
  std::unordered_set<const ffi::Object*> outside_;
};

class OutputHider : public ir::Mutator {
 public:
  Var MutateDef(const Var& v) override {
    if (v.as<ir::DataflowVarObj>()) return ir::Mutator::MutateDef(v);
    ir::DataflowVar inner(v->name, MutateType(v->ty), v->span);
    Replace(v, inner);
    return inner;
  }
};

}  // namespace

ir::SeqExpr WithoutOutputs(const ir::SeqExpr& body) {
  for (const ir::BindingBlock& block : body->blocks) {
    for (const ir::Binding& b : block->bindings) {
      if (b->value.as<ir::FunctionObj>()) return body;
    }
  }
  return OutputHider().Mutate(body).as<ir::SeqExpr>().value();
}

ir::Function InlineFunctions(const ir::Function& func, const FunctionsByName& functions) {
  ir::Function inlined = Inliner(functions).MutateFunction(func).as<ir::Function>().value();
  if (inlined.same_as(func)) return func;
  inlined = OutputMaker(inlined).MutateFunction(inlined).as<ir::Function>().value();
  // The result of a body is another name of the call's.
  const ir::GlobalVar name("inlined");
  IRModule alone(ffi::Map<ir::GlobalVar, ir::BaseFunc>{{name, inlined}});
  return CanonicalizeBindings(alone, PassContext())->functions[name].as<ir::Function>().value();
}

}  // namespace relaxvm::passes
