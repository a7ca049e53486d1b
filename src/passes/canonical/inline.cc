// SPDX-License-Identifier: Apache-2.0
#include "passes/canonical/inline.h"

#include <algorithm>
#include <unordered_set>
#include <utility>
#include <vector>

#include "passes/canonical/bind.h"

namespace relaxvm::passes {
namespace {

namespace ffi = tvm::ffi;
using ir::Expr;
using ir::Var;

// Gives definitions another variable: the result of a body the caller's, others the kind that
// their block asks for.
class Redefiner : public ir::Mutator {
 public:
  explicit Redefiner(bool dataflow) : dataflow_(dataflow) {}
  void Rename(const Var& from, const Var& to) { named_.Set(from, to); }

  Var MutateDef(const Var& v) override {
    auto it = named_.find(v);
    Var made = it != named_.end() ? (*it).second : Kind(v);
    if (!made.same_as(v)) Replace(v, made);
    return made;
  }
  Expr MutateFunction(const ir::Function& f) override {
    const bool outer = std::exchange(dataflow_, false);
    Expr made = ir::Mutator::MutateFunction(f);
    dataflow_ = outer;
    return made;
  }
  Expr MutateOther(const Expr& e) override { return e; }

 private:
  Var Kind(const Var& v) const {
    if (!dataflow_ || v.as<ir::DataflowVarObj>()) return v;
    return ir::DataflowVar(v->name, v->ty, v->span);
  }
  bool dataflow_;
  ffi::Map<Var, Var> named_;
};

// Dataflow variables that code outside of their block reads become plain ones.
class Publisher : public ir::Mutator {
 public:
  explicit Publisher(const std::vector<ir::BindingBlock>& blocks, const Expr& body) {
    for (size_t i = 0; i < blocks.size(); ++i) {
      for (const ir::Binding& b : blocks[i]->bindings) home_[b->var.get()] = i;
    }
    for (size_t i = 0; i < blocks.size(); ++i) {
      for (const ir::Binding& b : blocks[i]->bindings) Note(b->value, i);
    }
    Note(body, blocks.size());
  }
  Var MutateDef(const Var& v) override {
    if (!public_.count(v.get())) return v;
    Var made(v->name, v->ty, v->span);
    Replace(v, made);
    return made;
  }
  Expr MutateOther(const Expr& e) override { return e; }
  bool any() const { return !public_.empty(); }

 private:
  void Note(const Expr& e, size_t block) {
    class Vars : public ir::Visitor {
     public:
      std::vector<const ir::VarObj*> found;
      void VisitVar(const ir::VarObj* v) override { found.push_back(v); }
      void VisitOther(const ir::ExprObj*) override {}
    } vars;
    vars.Visit(e);
    for (const ir::VarObj* v : vars.found) {
      auto it = home_.find(v);
      const bool local = v->IsInstance<ir::DataflowVarObj>();
      if (local && it != home_.end() && it->second != block) public_.insert(v);
    }
  }
  std::unordered_map<const ffi::Object*, size_t> home_;
  std::unordered_set<const ffi::Object*> public_;
};

bool OnlyDataflow(const ir::Function& f) {
  return std::all_of(f->body->blocks.begin(), f->body->blocks.end(),
                     [](const ir::BindingBlock& b) { return b.as<ir::DataflowBlockObj>(); });
}

class Inliner : public ir::Mutator {
 public:
  explicit Inliner(const std::unordered_map<std::string, ir::Function>& bodies) : bodies_(bodies) {}

  Expr MutateSeq(const ir::SeqExpr& seq) override {
    std::vector<Segment> outer = std::exchange(segments_, {});
    bool changed = false;
    for (const ir::BindingBlock& block : seq->blocks) {
      const bool dataflow = block.as<ir::DataflowBlockObj>() != nullptr;
      segments_.push_back({dataflow, {}, block->span});
      for (const ir::Binding& binding : block->bindings) {
        const ir::Function* body = BodyOf(binding);
        if (body != nullptr) {
          changed = true;
          Inline(binding, *body, dataflow);
          continue;
        }
        ffi::Array<ir::Binding> made;
        MutateBinding(binding, &made);
        changed |= made.size() != 1 || !made[0].same_as(binding);
        for (const ir::Binding& b : made) segments_.back().bindings.push_back(b);
      }
    }
    Expr body = Mutate(seq->body);
    std::vector<Segment> segments = std::exchange(segments_, std::move(outer));
    if (!changed && body.same_as(seq->body)) return seq;
    return Joined(segments, body, seq->span);
  }
  Expr MutateOther(const Expr& e) override { return e; }

 private:
  struct Segment {
    bool dataflow;
    ffi::Array<ir::Binding> bindings;
    ir::Span span;
  };

  static Expr Joined(const std::vector<Segment>& segments, const Expr& body, const ir::Span& span) {
    std::vector<Segment> merged;
    for (const Segment& s : segments) {
      if (s.bindings.empty()) continue;
      if (!merged.empty() && !merged.back().dataflow && !s.dataflow) {
        for (const ir::Binding& b : s.bindings) merged.back().bindings.push_back(b);
      } else {
        merged.push_back(s);
      }
    }
    std::vector<ir::BindingBlock> blocks;
    for (const Segment& s : merged) {
      blocks.push_back(s.dataflow ? ir::BindingBlock(ir::DataflowBlock(s.bindings, s.span))
                                  : ir::BindingBlock(s.bindings, s.span));
    }
    ir::SeqExpr seq(ffi::Array<ir::BindingBlock>(blocks.begin(), blocks.end()), body, span);
    Publisher publisher(blocks, body);
    return publisher.any() ? publisher.Mutate(seq) : Expr(seq);
  }

  const ir::Function* BodyOf(const ir::Binding& binding) const {
    auto* call = binding.as<ir::VarBindingObj>() ? binding->value.as<ir::CallObj>() : nullptr;
    auto* name = call == nullptr ? nullptr : call->op.as<ir::GlobalVarObj>();
    if (name == nullptr) return nullptr;
    auto it = bodies_.find(std::string(name->name_hint));
    return it == bodies_.end() ? nullptr : &it->second;
  }

  void Inline(const ir::Binding& binding, const ir::Function& f, bool dataflow) {
    auto* call = binding->value.as<ir::CallObj>();
    const std::string name(call->op.as<ir::GlobalVarObj>()->name_hint);
    if (!open_.insert(name).second) {
      Fail(ErrorKind::kValueError, binding->span.Place(), "function ", name,
           " calls itself; it cannot be replaced by its body");
    }
    ir::Function copy = CopyWithFreshVars(f);
    if (copy->params.size() != call->args.size()) {
      Fail(ErrorKind::kValueError, binding->span.Place(), "function ", name, " takes ",
           copy->params.size(), " arguments, the call gives ", call->args.size());
    }
    ffi::Map<Var, Expr> params;
    for (size_t i = 0; i < copy->params.size(); ++i) {
      params.Set(copy->params[i], Mutate(call->args[i]));
    }
    ir::Function bound = BindFunction(copy, params, {});
    ir::SeqExpr body = Mutate(bound->body).as<ir::SeqExpr>().value();
    open_.erase(name);
    const bool stays = dataflow && OnlyDataflow(bound) && OnlyBlocksOf(body);
    Redefiner redefine(stays);
    auto result = body->body.as<Var>();
    const Var target = ir::Mutator::MutateDef(binding->var);
    const bool direct = result && IsDefinedBy(body, *result);
    if (direct) redefine.Rename(*result, target);
    body = redefine.Mutate(body).as<ir::SeqExpr>().value();
    const ir::Span span = segments_.back().span;
    for (const ir::BindingBlock& block : body->blocks) {
      if (!stays) segments_.push_back({block.as<ir::DataflowBlockObj>() != nullptr, {}, span});
      for (const ir::Binding& b : block->bindings) segments_.back().bindings.push_back(b);
    }
    if (!stays) segments_.push_back({dataflow, {}, span});
    if (!direct) {
      segments_.back().bindings.push_back(ir::VarBinding(target, body->body, binding->span));
    }
  }

  static bool OnlyBlocksOf(const ir::SeqExpr& body) {
    return std::all_of(body->blocks.begin(), body->blocks.end(),
                       [](const ir::BindingBlock& b) { return b.as<ir::DataflowBlockObj>(); });
  }
  static bool IsDefinedBy(const ir::SeqExpr& body, const Var& v) {
    for (const ir::BindingBlock& block : body->blocks) {
      for (const ir::Binding& b : block->bindings) {
        if (b->var.same_as(v)) return true;
      }
    }
    return false;
  }

  const std::unordered_map<std::string, ir::Function>& bodies_;
  std::vector<Segment> segments_;
  std::unordered_set<std::string> open_;
};

}  // namespace

ir::Function InlineCalls(const ir::Function& f,
                         const std::unordered_map<std::string, ir::Function>& bodies) {
  return Inliner(bodies).Mutate(f).as<ir::Function>().value();
}

ir::Function InlineNamedCalls(const ir::Function& f,
                              const ffi::Map<ffi::Any, ir::Function>& functions) {
  std::unordered_map<std::string, ir::Function> bodies;
  for (const auto& [key, func] : functions) {
    auto var = key.as<ir::GlobalVar>();
    auto text = key.as<ffi::String>();
    if (!var && !text) {
      Fail(ErrorKind::kTypeError, "inline_functions: a key is a GlobalVar or a name, not ",
           key.GetTypeKey());
    }
    std::string name(var ? (*var)->name_hint : *text);
    if (!bodies.emplace(name, func).second) {
      Fail(ErrorKind::kValueError, "inline_functions: ", name,
           " is given twice, as a name and as a GlobalVar");
    }
  }
  return InlineCalls(f, bodies);
}

}  // namespace relaxvm::passes
