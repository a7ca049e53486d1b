// SPDX-License-Identifier: Apache-2.0
// TopologicalSort: bindings of dataflow blocks in an order in which every one comes after what it
// needs.  depth-first goes on with what has just become computable, breadth-first takes all that is
// computable before what depends on it; from-outputs builds the order from its end.  Parameters are
// computable one after another.  Stage: any.  Keeps: everything but the order.
#include <algorithm>
#include <deque>
#include <unordered_map>

#include "ir/visitor.h"
#include "passes/pass.h"

namespace relaxvm::passes {
namespace {

using ir::Binding;
using ir::Expr;
using ir::Var;

// Values and sizes that a binding uses, in order.
class Uses : public ir::Visitor {
 public:
  std::vector<const ffi::Object*> found;
  void VisitVar(const ir::VarObj* v) override { found.push_back(v); }
  void VisitDef(const Var& v) override { VisitType(v->ty); }
  void VisitOther(const ir::ExprObj*) override {}
};

using Lists = std::vector<std::vector<int>>;

// Nodes are the bindings, then the parameters that they read.
struct Edges {
  Lists users, needs;

  Edges(const ir::BindingBlock& block, const ffi::Array<Var>& params) {
    const int n = static_cast<int>(block->bindings.size());
    std::unordered_map<const ffi::Object*, int> defined;
    for (size_t i = 0; i < params.size(); ++i) {
      defined.emplace(params[i].get(), n + static_cast<int>(i));
    }
    users.resize(n + params.size());
    needs.resize(n + params.size());
    for (int i = 0; i < n; ++i) {
      const Binding& b = block->bindings[i];
      Uses uses;
      uses.VisitBinding(b);
      for (const ffi::Object* v : uses.found) {
        auto it = defined.find(v);
        if (it == defined.end()) continue;
        std::vector<int>& known = users[it->second];
        if (!known.empty() && known.back() == i) continue;
        known.push_back(i);
        needs[i].push_back(it->second);
      }
      defined.insert_or_assign(b->var.get(), i);
      if (const auto* cast = b.as<ir::MatchCastObj>()) {
        for (const Var& v : ir::DefinableSymbolicVars(cast->ty)) defined.emplace(v.get(), i);
      }
    }
  }
};

// Every node after those it `needs`, beginning with `roots`.  `last_first`: of several, depth-first
// goes on with the last one.
std::vector<int> Sort(const Lists& needs, const Lists& users, std::vector<int> roots,
                      bool depth_first, bool last_first) {
  auto ordered = [&](std::vector<int> list) {
    if (depth_first && last_first) std::reverse(list.begin(), list.end());
    return list;
  };
  roots = ordered(std::move(roots));
  std::deque<int> ready(roots.begin(), roots.end());
  std::vector<size_t> missing;
  for (const std::vector<int>& list : needs) missing.push_back(list.size());
  std::vector<int> order;
  while (!ready.empty()) {
    const int n = ready.front();
    ready.pop_front();
    order.push_back(n);
    std::vector<int> freed;
    for (int user : ordered(users[n])) {
      if (--missing[user] == 0) freed.push_back(user);
    }
    ready.insert(depth_first ? ready.begin() : ready.end(), freed.begin(), freed.end());
  }
  return order;
}

class Sorter : public ir::Mutator {
 public:
  Sorter(const ffi::Array<Var>& params, bool depth_first, bool from_inputs)
      : params_(params), depth_first_(depth_first), from_inputs_(from_inputs) {}

  Expr MutateSeq(const ir::SeqExpr& seq) override {
    const std::vector<const ffi::Object*> outer = behind_;
    for (const ir::BindingBlock& block : seq->blocks) {
      Uses uses;
      for (const Binding& b : block->bindings) uses.VisitBinding(b);
      if (!block.as<ir::DataflowBlockObj>()) {
        behind_.insert(behind_.end(), uses.found.begin(), uses.found.end());
      }
    }
    Uses result;
    result.Visit(seq->body);
    behind_.insert(behind_.end(), result.found.begin(), result.found.end());
    Expr sorted = ir::Mutator::MutateSeq(seq);
    behind_ = outer;
    return sorted;
  }

  ir::BindingBlock MutateBlock(const ir::BindingBlock& block) override {
    if (!block.as<ir::DataflowBlockObj>()) return ir::Mutator::MutateBlock(block);
    const Edges edges(block, params_);
    const int n = static_cast<int>(block->bindings.size());
    std::vector<int> order = from_inputs_ ? FromInputs(edges, n) : FromOutputs(block, edges, n);
    order.erase(std::remove_if(order.begin(), order.end(), [&](int node) { return node >= n; }),
                order.end());
    RELAXVM_CHECK(order.size() == block->bindings.size()) << "a dataflow block with a cycle";
    if (std::is_sorted(order.begin(), order.end())) return block;
    ffi::Array<Binding> bindings;
    for (int node : order) bindings.push_back(block->bindings[node]);
    return ir::DataflowBlock(bindings, block->span);
  }

 private:
  // Parameters, then what needs none.
  std::vector<int> FromInputs(const Edges& edges, int n) const {
    std::vector<int> roots;
    for (size_t i = 0; i < params_.size(); ++i) roots.push_back(n + static_cast<int>(i));
    for (int i = 0; i < n; ++i) {
      if (edges.needs[i].empty()) roots.push_back(i);
    }
    return Sort(edges.needs, edges.users, roots, depth_first_, false);
  }
  // What nobody reads, then what is read behind the block, in the order in which it is.
  std::vector<int> FromOutputs(const ir::BindingBlock& block, const Edges& edges, int n) const {
    std::unordered_map<const ffi::Object*, int> defined;
    for (int i = 0; i < n; ++i) defined.emplace(block->bindings[i]->var.get(), i);
    std::vector<int> outputs, roots;
    for (const ffi::Object* v : behind_) {
      auto it = defined.find(v);
      if (it == defined.end()) continue;
      if (std::find(outputs.begin(), outputs.end(), it->second) == outputs.end()) {
        outputs.push_back(it->second);
      }
    }
    for (int i = 0; i < n + static_cast<int>(params_.size()); ++i) {
      const bool output = std::find(outputs.begin(), outputs.end(), i) != outputs.end();
      if (edges.users[i].empty() && !output) roots.push_back(i);
    }
    roots.insert(roots.end(), outputs.begin(), outputs.end());
    std::vector<int> order = Sort(edges.users, edges.needs, roots, depth_first_, true);
    std::reverse(order.begin(), order.end());
    return order;
  }

  const ffi::Array<Var> params_;
  bool depth_first_, from_inputs_;
  std::vector<const ffi::Object*> behind_;  // what is read outside of dataflow blocks, in order
};

// Is the option the first of two words?
bool IsFirst(const PassContext& context, const char* option, const char* first,
             const char* second) {
  const auto value = context.Option<ffi::String>(option);
  if (value != first && value != second) {
    Fail(ErrorKind::kValueError, "TopologicalSort: ", option, " is '", value, "'; use '", first,
         "' or '", second, "'");
  }
  return value == first;
}

}  // namespace

IRModule TopologicalSort(IRModule mod, const PassContext& context) {
  const bool depth_first = IsFirst(context, "order", "depth-first", "breadth-first");
  const bool from_inputs = IsFirst(context, "direction", "from-inputs", "from-outputs");
  return ir::MutateFunctions(mod, [&](const ir::GlobalVar&, const ir::Function& f) {
    return Sorter(f->params, depth_first, from_inputs).MutateFunction(f).as<ir::Function>().value();
  });
}

}  // namespace relaxvm::passes
