// SPDX-License-Identifier: Apache-2.0
// TopologicalSort: bindings of dataflow blocks in an order in which every one comes after what it
// needs.  depth-first goes on with what has just become computable, breadth-first takes all that is
// computable before what depends on it; from-outputs builds the order from its end.
// Stage: any.  Keeps: everything but the order; among equals the order they had.
#include <algorithm>
#include <deque>
#include <unordered_map>

#include "ir/visitor.h"
#include "passes/pass.h"

namespace relaxvm::passes {
namespace {

using ir::Binding;
using ir::Var;

struct Edges {
  std::vector<std::vector<int>> users;  // of each binding, ascending
  std::vector<std::vector<int>> needs;
};

// Values and sizes that a binding uses.
class Uses : public ir::Visitor {
 public:
  std::vector<const ffi::Object*> found;
  void VisitVar(const ir::VarObj* v) override { found.push_back(v); }
  void VisitDef(const Var& v) override { VisitType(v->ty); }
  void VisitOther(const ir::ExprObj*) override {}
};

Edges ReadEdges(const ir::BindingBlock& block) {
  const int n = static_cast<int>(block->bindings.size());
  Edges edges{std::vector<std::vector<int>>(n), std::vector<std::vector<int>>(n)};
  std::unordered_map<const ffi::Object*, int> defined;
  for (int i = 0; i < n; ++i) {
    const Binding& b = block->bindings[i];
    Uses uses;
    uses.VisitBinding(b);
    for (const ffi::Object* v : uses.found) {
      auto it = defined.find(v);
      if (it == defined.end()) continue;
      std::vector<int>& users = edges.users[it->second];
      if (!users.empty() && users.back() == i) continue;
      users.push_back(i);
      edges.needs[i].push_back(it->second);
    }
    defined.emplace(b->var.get(), i);
    if (const auto* cast = b.as<ir::MatchCastObj>()) {
      for (const Var& v : ir::DefinableSymbolicVars(cast->ty)) defined.emplace(v.get(), i);
    }
  }
  for (std::vector<int>& needs : edges.needs) std::sort(needs.begin(), needs.end());
  return edges;
}

// Every node after those it `needs`.
std::vector<int> Sort(const std::vector<std::vector<int>>& needs,
                      const std::vector<std::vector<int>>& users, bool depth_first) {
  std::vector<size_t> missing;
  std::deque<int> ready;
  for (size_t i = 0; i < needs.size(); ++i) {
    missing.push_back(needs[i].size());
    if (needs[i].empty()) ready.push_back(static_cast<int>(i));
  }
  std::vector<int> order;
  while (!ready.empty()) {
    const int n = ready.front();
    ready.pop_front();
    order.push_back(n);
    std::vector<int> freed;
    for (int user : users[n]) {
      if (--missing[user] == 0) freed.push_back(user);
    }
    ready.insert(depth_first ? ready.begin() : ready.end(), freed.begin(), freed.end());
  }
  return order;
}

// The same edges, seen from the other end.
void Reverse(std::vector<std::vector<int>>* lists) {
  const int last = static_cast<int>(lists->size()) - 1;
  std::reverse(lists->begin(), lists->end());
  for (std::vector<int>& list : *lists) {
    std::reverse(list.begin(), list.end());
    for (int& n : list) n = last - n;
  }
}

class Sorter : public ir::Mutator {
 public:
  Sorter(bool depth_first, bool from_inputs)
      : depth_first_(depth_first), from_inputs_(from_inputs) {}

  ir::BindingBlock MutateBlock(const ir::BindingBlock& block) override {
    if (!block.as<ir::DataflowBlockObj>()) return ir::Mutator::MutateBlock(block);
    Edges edges = ReadEdges(block);
    std::vector<int> order;
    if (from_inputs_) {
      order = Sort(edges.needs, edges.users, depth_first_);
    } else {
      Reverse(&edges.needs);
      Reverse(&edges.users);
      order = Sort(edges.users, edges.needs, depth_first_);
      std::reverse(order.begin(), order.end());
      for (int& n : order) n = static_cast<int>(order.size()) - 1 - n;
    }
    RELAXVM_CHECK(order.size() == block->bindings.size()) << "a dataflow block with a cycle";
    if (std::is_sorted(order.begin(), order.end())) return block;
    ffi::Array<Binding> bindings;
    for (int n : order) bindings.push_back(block->bindings[n]);
    return ir::DataflowBlock(bindings, block->span);
  }

 private:
  bool depth_first_, from_inputs_;
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
    return Sorter(depth_first, from_inputs).MutateFunction(f).as<ir::Function>().value();
  });
}

}  // namespace relaxvm::passes
