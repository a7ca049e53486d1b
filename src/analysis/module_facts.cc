// SPDX-License-Identifier: Apache-2.0
#include "analysis/module_facts.h"

#include <algorithm>
#include <iomanip>
#include <sstream>
#include <unordered_map>
#include <unordered_set>

#include "analysis/calls.h"
#include "ir/visitor.h"

namespace relaxvm::analysis {
namespace {

namespace ffi = tvm::ffi;
using ir::Expr;
using ir::Var;

// Strongly connected components (Tarjan), with a stack of our own: call chains may be long.
class Components {
 public:
  explicit Components(const std::vector<std::vector<int>>& edges)
      : edges_(edges),
        index_(edges.size(), -1),
        low_(edges.size(), 0),
        on_stack_(edges.size(), false) {
    for (size_t v = 0; v < edges.size(); ++v) {
      if (index_[v] < 0) Walk(static_cast<int>(v));
    }
  }
  std::vector<std::vector<int>> found;

 private:
  void Enter(int v) {
    index_[v] = low_[v] = next_++;
    stack_.push_back(v);
    on_stack_[v] = true;
    todo_.emplace_back(v, 0);
  }
  void Walk(int root) {
    Enter(root);
    while (!todo_.empty()) {
      auto [v, edge] = todo_.back();
      if (edge < edges_[v].size()) {
        ++todo_.back().second;
        int w = edges_[v][edge];
        if (index_[w] < 0) {
          Enter(w);
        } else if (on_stack_[w]) {
          low_[v] = std::min(low_[v], index_[w]);
        }
        continue;
      }
      todo_.pop_back();
      if (!todo_.empty()) low_[todo_.back().first] = std::min(low_[todo_.back().first], low_[v]);
      if (low_[v] != index_[v]) continue;
      std::vector<int> component;
      for (int w = -1; w != v;) {
        w = stack_.back();
        stack_.pop_back();
        on_stack_[w] = false;
        component.push_back(w);
      }
      found.push_back(std::move(component));
    }
  }

  const std::vector<std::vector<int>>& edges_;
  std::vector<int> index_, low_, stack_;
  std::vector<bool> on_stack_;
  std::vector<std::pair<int, size_t>> todo_;
  int next_ = 0;
};

std::optional<int64_t> StaticBytes(const ffi::Array<Expr>& dims, DLDataType dtype) {
  int64_t elems = 1;
  for (const Expr& dim : dims) {
    ffi::Optional<int64_t> value = ir::AsInt(dim);
    if (!value || __builtin_mul_overflow(elems, *value, &elems)) return std::nullopt;
  }
  return SizeInBytes(dtype, elems);
}

void AddTensor(const ir::Type& type, MemoryUse* use) {
  auto* tensor = type.as<ir::TensorTypeObj>();
  if (tensor == nullptr) return;
  auto shape = tensor->GetShape();
  std::optional<int64_t> bytes;
  if (shape && !tensor->IsUnknownDtype()) bytes = StaticBytes(shape.value(), tensor->dtype);
  if (!bytes) {
    ++use->num_dynamic;
    return;
  }
  ++use->num_tensors;
  use->tensor_bytes += *bytes;
}

void AddStorage(const ir::CallObj* call, MemoryUse* use) {
  auto* shape = call->args[0].as<ir::ShapeExprObj>();
  if (shape == nullptr) return;
  std::optional<int64_t> bytes = StaticBytes(shape->values, UInt(8));
  if (!bytes) return;
  ++use->num_storages;
  use->storage_bytes += *bytes;
}

std::string Gigabytes(int64_t bytes) {
  std::ostringstream out;
  out << std::setprecision(4) << static_cast<double>(bytes) / (1 << 30) << " GB";
  return out.str();
}

}  // namespace

std::vector<std::vector<ir::GlobalVar>> FindRecursion(const ir::IRModule& mod) {
  class Calls : public ir::Visitor {
   public:
    std::vector<std::string> names;
    void VisitGlobalVar(const ir::GlobalVarObj* v) override { names.emplace_back(v->name_hint); }
    void VisitOther(const ir::ExprObj*) override {}
  };
  std::vector<ir::GlobalVar> functions;
  std::unordered_map<std::string, int> number;
  for (const auto& [var, func] : mod->functions) {
    if (!func.as<ir::FunctionObj>()) continue;
    number.emplace(std::string(var->name_hint), static_cast<int>(functions.size()));
    functions.push_back(var);
  }
  std::vector<std::vector<int>> edges(functions.size());
  for (size_t i = 0; i < functions.size(); ++i) {
    Calls calls;
    calls.Visit(mod->Lookup(functions[i]));
    for (const std::string& name : calls.names) {
      if (auto it = number.find(name); it != number.end()) edges[i].push_back(it->second);
    }
  }
  std::vector<std::vector<ir::GlobalVar>> groups;
  for (const std::vector<int>& component : Components(edges).found) {
    int v = component[0];
    bool calls_itself = std::find(edges[v].begin(), edges[v].end(), v) != edges[v].end();
    if (component.size() == 1 && !calls_itself) continue;
    std::vector<ir::GlobalVar> group;
    for (int w : component) group.push_back(functions[w]);
    std::sort(group.begin(), group.end(),
              [](const auto& a, const auto& b) { return a->name_hint < b->name_hint; });
    groups.push_back(std::move(group));
  }
  std::sort(groups.begin(), groups.end(),
            [](const auto& a, const auto& b) { return a[0]->name_hint < b[0]->name_hint; });
  return groups;
}

ffi::Array<Var> ComputableAtCompileTime(const ir::Function& f) {
  class Uses : public ir::Visitor {
   public:
    std::vector<const ir::VarObj*> vars;
    void VisitVar(const ir::VarObj* v) override { vars.push_back(v); }
    void VisitOther(const ir::ExprObj*) override {}
  };
  ffi::Array<Var> out;
  std::unordered_set<const ffi::Object*> known;
  auto add = [&](const Var& v) {
    out.push_back(v);
    known.insert(v.get());
    for (const Var& size : ir::DefinableSymbolicVars(v->ty)) known.insert(size.get());
  };
  int64_t num_input =
      ir::GetAttr<int64_t>(f->attrs, ir::attr::kNumInput, static_cast<int64_t>(f->params.size()));
  // Sizes that come with an input at run time.
  std::unordered_set<const ffi::Object*> runtime_sizes;
  for (size_t i = 0; i < f->params.size(); ++i) {
    if (static_cast<int64_t>(i) >= num_input) {
      add(f->params[i]);
    } else {
      for (const Var& size : ir::DefinableSymbolicVars(f->params[i]->ty))
        runtime_sizes.insert(size.get());
    }
  }
  for (const ir::BindingBlock& block : f->body->blocks) {
    for (const ir::Binding& binding : block->bindings) {
      if (HasEffect(binding->value)) continue;
      Uses uses;
      uses.Visit(binding->value);
      uses.VisitType(binding->var->ty);
      bool all = true;
      for (const ir::VarObj* v : uses.vars) {
        bool is_own_size = binding.as<ir::MatchCastObj>() && v->ty.as<ir::PrimTypeObj>() &&
                           !runtime_sizes.count(v);
        all &= known.count(v) > 0 || is_own_size;
      }
      if (all) add(binding->var);
    }
  }
  return out;
}

MemoryUse EstimateMemory(const ir::Function& f) {
  class Counter : public ir::Visitor {
   public:
    MemoryUse use;
    void VisitBinding(const ir::Binding& b) override {
      if (CallsOp(b->value, "relax.builtin.alloc_tensor")) {
        AddTensor(b->var->ty, &use);
        // A tensor that has no planned storage gets one of its own.
        MemoryUse own;
        AddTensor(b->var->ty, &own);
        use.num_storages += own.num_tensors;
        use.storage_bytes += own.tensor_bytes;
      } else if (CallsOp(b->value, "relax.memory.alloc_tensor") ||
                 CallsOp(b->value, "relax.vm.alloc_tensor")) {
        AddTensor(b->var->ty, &use);
      } else if (CallsOp(b->value, "relax.memory.alloc_storage") ||
                 CallsOp(b->value, "relax.vm.alloc_storage")) {
        AddStorage(b->value.as<ir::CallObj>(), &use);
      }
      ir::Visitor::VisitBinding(b);
    }
    void VisitOther(const ir::ExprObj*) override {}
  } counter;
  counter.Visit(f);
  return counter.use;
}

std::string DescribeMemoryUse(const ir::IRModule& mod) {
  std::ostringstream out;
  out << "Memory usage estimation:\n";
  for (const auto& [var, func] : mod->functions) {
    auto f = func.as<ir::Function>();
    if (!f) continue;
    MemoryUse use = EstimateMemory(*f);
    if (use.num_tensors + use.num_dynamic + use.num_storages == 0) continue;
    out << "- Function " << var->name_hint << ":\n"
        << " * Without memory planning, there are " << use.num_tensors
        << " constant-size memory allocation(s) with total size " << Gigabytes(use.tensor_bytes)
        << ".\n";
    if (use.num_dynamic > 0)
      out << " * There are " << use.num_dynamic << " dynamic-size memory allocation(s)";
    if (use.num_dynamic > 0) out << ".\n";
    out << " * With memory planning, there are " << use.num_storages
        << " constant-size memory allocation(s) with total size " << Gigabytes(use.storage_bytes)
        << ".\n";
    if (use.tensor_bytes > 0) {
      double saved = 100.0 * (1.0 - static_cast<double>(use.storage_bytes) /
                                        static_cast<double>(use.tensor_bytes));
      out << " * Memory planning reduces constant memory size to " << std::fixed
          << std::setprecision(1) << 100.0 - saved << "%.\n";
      out.unsetf(std::ios_base::floatfield);
    }
  }
  return out.str();
}

std::unordered_set<std::string> UsedAsValues(const ir::IRModule& mod) {
  class Finder : public ir::Visitor {
   public:
    std::unordered_set<std::string> found;
    void VisitCall(const ir::CallObj* call) override {
      if (!call->op.as<ir::GlobalVarObj>()) Visit(call->op);
      for (const Expr& arg : call->args) Visit(arg);
    }
    void VisitGlobalVar(const ir::GlobalVarObj* v) override {
      found.insert(std::string(v->name_hint));
    }
    void VisitOther(const ir::ExprObj*) override {}
  } finder;
  for (const auto& [var, func] : mod->functions) {
    if (func.as<ir::FunctionObj>()) finder.Visit(func);
  }
  return std::move(finder.found);
}

}  // namespace relaxvm::analysis
