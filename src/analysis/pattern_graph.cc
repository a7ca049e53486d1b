// SPDX-License-Identifier: Apache-2.0
// Patterns that are related by uses: finds variables of a block that satisfy all of them at once.
#include <algorithm>
#include <unordered_set>
#include <utility>

#include "analysis/pattern.h"
#include "ir/visitor.h"
#include "ops/op_def.h"

namespace relaxvm::analysis {
namespace {

using ir::Expr;
using ir::Var;

struct Use {
  const ir::VarObj* user;
  int64_t index;  // of the argument; -1 when it is no argument of a call
};

// Places of variables among the arguments of a value; the tuple of a destination-passing call is
// its arguments.
void NoteUses(const ir::VarObj* user, const Expr& value,
              const std::function<void(const ir::VarObj*, Use)>& note) {
  class Vars : public ir::Visitor {
   public:
    std::vector<const ir::VarObj*> found;
    void VisitVar(const ir::VarObj* v) override { found.push_back(v); }
    void VisitOther(const ir::ExprObj*) override {}
  };
  auto all = [&](const Expr& e, int64_t index) {
    Vars vars;
    vars.Visit(e);
    for (const ir::VarObj* v : vars.found) note(v, {user, index});
  };
  auto* call = value.as<ir::CallObj>();
  if (call == nullptr) return all(value, -1);
  all(call->op, -1);
  for (size_t i = 0; i < call->args.size(); ++i) {
    auto* tuple = call->args[i].as<ir::TupleObj>();
    if (tuple == nullptr) {
      all(call->args[i], static_cast<int64_t>(i));
      continue;
    }
    for (size_t j = 0; j < tuple->fields.size(); ++j) {
      all(tuple->fields[j], static_cast<int64_t>(j));
    }
  }
}

class Search {
 public:
  Search(const PatternGraph& graph, const ir::BindingBlock& block)
      : graph_(graph), matcher_(values_), facts_(ops::MakeTypeContext()) {
    std::unordered_set<const ffi::Object*> bound;
    for (const ir::Binding& b : block->bindings) {
      values_.emplace(b->var.get(), b->value);
      bound.insert(b->var.get());
      vars_.push_back(b->var);
    }
    for (const ir::Binding& b : block->bindings) {
      NoteUses(b->var.get(), b->value, [&](const ir::VarObj* v, Use use) {
        uses_[v].push_back(use);
        reads_[use.user].push_back(v);
        if (bound.insert(v).second) vars_.push_back(ffi::GetRef<Var>(v));
      });
    }
    for (const Var& v : vars_) by_object_.emplace(v.get(), v);
    Order();
  }

  ffi::Optional<ffi::Map<Pattern, Expr>> Run() {
    if (!Assign(0)) return std::nullopt;
    return matcher_.Found(false);
  }

 private:
  // A node follows one that it has an edge with: few candidates are left for it.
  void Order() {
    std::vector<const PatternObj*> left = graph_.nodes;
    auto linked = [&](const PatternObj* p) {
      return std::any_of(graph_.edges.begin(), graph_.edges.end(), [&](const PatternEdge& e) {
        const PatternObj* other = e.from == p ? e.to : e.to == p ? e.from : nullptr;
        return other != nullptr && std::find(order_.begin(), order_.end(), other) != order_.end();
      });
    };
    while (!left.empty()) {
      auto it = std::find_if(left.begin(), left.end(), linked);
      if (it == left.end()) it = left.begin();
      order_.push_back(*it);
      left.erase(it);
    }
  }

  bool IsUsed(const PatternEdge& edge) const {
    const Var &from = at_.at(edge.from), &to = at_.at(edge.to);
    auto it = uses_.find(from.get());
    if (it == uses_.end()) return false;
    return std::any_of(it->second.begin(), it->second.end(), [&](const Use& use) {
      return use.user == to.get() && (edge.index < 0 || edge.index == use.index);
    });
  }

  bool EdgesHold(const PatternObj* p) const {
    for (const PatternEdge& e : graph_.edges) {
      if (e.from != p && e.to != p) continue;
      if (at_.count(e.from) && at_.count(e.to) && !IsUsed(e)) return false;
    }
    return true;
  }

  // All users of what `only` edges start from are ends of such edges.
  bool NobodyElseUses() const {
    for (const PatternEdge& e : graph_.edges) {
      if (!e.only) continue;
      auto it = uses_.find(at_.at(e.from).get());
      for (const Use& use : it->second) {
        const bool known =
            std::any_of(graph_.edges.begin(), graph_.edges.end(), [&](const PatternEdge& other) {
              return other.from == e.from && at_.at(other.to).get() == use.user;
            });
        if (!known) return false;
      }
    }
    return true;
  }

  bool ShapesAgree() {
    for (const auto& group : graph_.same_shape) {
      ffi::Optional<ffi::Array<Expr>> first;
      for (const PatternObj* p : group) {
        auto it = matcher_.found().find(p);
        if (it == matcher_.found().end()) continue;
        auto* tensor = it->second->ty.as<ir::TensorTypeObj>();
        auto dims = tensor == nullptr ? std::nullopt : tensor->GetShape();
        if (!dims) return false;
        if (!first) first = dims;
        if (first.value().size() != dims.value().size()) return false;
        for (size_t i = 0; i < dims.value().size(); ++i) {
          if (!facts_->ProveEqual(first.value()[i], dims.value()[i])) return false;
        }
      }
    }
    return true;
  }

  std::vector<Var> Candidates(const PatternObj* p) const {
    std::vector<Var> out;
    std::unordered_set<const ffi::Object*> seen;
    auto add = [&](const ir::VarObj* v) {
      if (seen.insert(v).second) out.push_back(by_object_.at(v));
    };
    for (const PatternEdge& e : graph_.edges) {
      if (e.to == p && at_.count(e.from)) {
        auto it = uses_.find(at_.at(e.from).get());
        if (it != uses_.end()) {
          for (const Use& use : it->second) add(use.user);
        }
        return out;
      }
      if (e.from == p && at_.count(e.to)) {
        auto it = reads_.find(at_.at(e.to).get());
        if (it != reads_.end()) {
          for (const ir::VarObj* v : it->second) add(v);
        }
        return out;
      }
    }
    return vars_;
  }

  bool Assign(size_t k) {
    if (k == order_.size()) return NobodyElseUses() && ShapesAgree();
    const PatternObj* p = order_[k];
    for (const Var& v : Candidates(p)) {
      if (!taken_.insert(v.get()).second) continue;
      at_.insert_or_assign(p, v);
      if (EdgesHold(p) && matcher_.Match(p, v, [&] { return Assign(k + 1); })) return true;
      at_.erase(p);
      taken_.erase(v.get());
    }
    return false;
  }

  const PatternGraph& graph_;
  VarValues values_;
  PatternMatcher matcher_;
  std::unique_ptr<ir::TypeContext> facts_;
  std::vector<Var> vars_;
  std::unordered_map<const ffi::Object*, Var> by_object_;
  std::unordered_map<const ffi::Object*, std::vector<Use>> uses_;
  std::unordered_map<const ffi::Object*, std::vector<const ir::VarObj*>> reads_;
  std::vector<const PatternObj*> order_;
  std::unordered_map<const PatternObj*, Var> at_;
  std::unordered_set<const ffi::Object*> taken_;
};

}  // namespace

ffi::Optional<ffi::Map<Pattern, Expr>> MatchGraph(const PatternGraph& graph,
                                                  const ir::BindingBlock& block) {
  if (graph.nodes.empty()) return std::nullopt;
  return Search(graph, block).Run();
}

}  // namespace relaxvm::analysis
