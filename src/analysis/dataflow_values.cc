// SPDX-License-Identifier: Apache-2.0
#include "analysis/dataflow_values.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "analysis/core_ops.h"
#include "analysis/reads.h"

namespace relaxvm::analysis {
namespace {

using ir::Expr;
using ir::Type;
using ir::Var;

// Elementwise operators of which each element of the result needs one element of an argument.
constexpr std::array<std::string_view, 6> kElementwise = {"relax.add",      "relax.divide",
                                                          "relax.multiply", "relax.nn.relu",
                                                          "relax.nn.silu",  "relax.subtract"};
// What gives its first argument under another shape, name or device.
constexpr std::array<std::string_view, 11> kViews = {"relax.builtin.stop_lift_params",
                                                     "relax.expand_dims",
                                                     "relax.flatten",
                                                     "relax.hint_on_device",
                                                     "relax.memory.ensure_zero_offset",
                                                     "relax.memory.view",
                                                     "relax.permute_dims",
                                                     "relax.reshape",
                                                     "relax.squeeze",
                                                     "relax.to_vdevice",
                                                     "relax.wrap_param"};

template <size_t n>
bool Names(const std::array<std::string_view, n>& names, const ir::OpObj* op) {
  return op != nullptr &&
         std::find(names.begin(), names.end(), std::string(op->name)) != names.end();
}

class MemoryFinder {
 public:
  explicit MemoryFinder(const ffi::Array<Var>& params) {
    for (const Var& param : params) {
      const int first = next_;
      Define(param, Fresh(param->ty));
      for (int i = first; i < next_; ++i) result.owned_elsewhere.insert(i);
    }
    result.owned_elsewhere.insert(kUnknownMemory);
  }

  void Bind(const ir::Binding& binding) { Define(binding->var, OfValue(binding->value)); }

  MemoryOfValues result;

 private:
  void Define(const Var& var, MemorySet memory) {
    result.vars.push_back(var);
    result.of.insert_or_assign(var.get(), std::move(memory));
  }

  // New memory for a value of this type, fields of tuples included.
  MemorySet Fresh(const Type& type) {
    const int number = next_++;
    if (const auto* tuple = type.as<ir::TupleTypeObj>()) {
      std::vector<MemorySet> fields;
      for (const Type& field : tuple->fields) fields.push_back(Fresh(field));
      result.fields[number] = std::move(fields);
    }
    return {number};
  }

  MemorySet OfValue(const Expr& e) {
    if (e.as<ir::VarObj>()) return OfVar(e);
    if (const auto* tuple = e.as<ir::TupleObj>()) {
      const int number = next_++;
      std::vector<MemorySet> fields;
      for (const Expr& field : tuple->fields) fields.push_back(OfValue(field));
      result.fields[number] = std::move(fields);
      return {number};
    }
    if (const auto* item = e.as<ir::TupleGetItemObj>()) return OfItem(item);
    if (const auto* call = e.as<ir::CallObj>()) return OfCall(call);
    MemorySet fresh = Fresh(e->ty);  // a constant, a shape, ...
    result.owned_elsewhere.insert(fresh.begin(), fresh.end());
    return fresh;
  }
  MemorySet OfVar(const Expr& var) const {
    auto it = result.of.find(var.get());
    return it == result.of.end() ? MemorySet{kUnknownMemory} : it->second;
  }
  MemorySet OfItem(const ir::TupleGetItemObj* item) {
    MemorySet memory;
    for (int number : OfValue(item->tuple_value)) {
      auto fields = result.fields.find(number);
      if (fields == result.fields.end()) {
        memory.insert(kUnknownMemory);
      } else {
        const MemorySet& field = fields->second[item->index];
        memory.insert(field.begin(), field.end());
      }
    }
    return memory;
  }

  MemorySet OfCall(const ir::CallObj* call) {
    const ir::OpObj* op = ir::CalledOp(call);
    if (Names(kViews, op)) return OfArgument(call->args[0]);
    switch (CoreOpOf(call)) {
      case CoreOp::kCallTirInplace:
      case CoreOp::kCallInplacePacked: return OfOverwriting(call);
      case CoreOp::kCallPurePacked:
      case CoreOp::kInvokePureClosure:
      case CoreOp::kCallPyFunc: return OfUnknownCall(call);
      default: return op == nullptr ? OfUnknownCall(call) : Fresh(call->ty);
    }
  }
  MemorySet OfArgument(const Expr& arg) { return arg.as<ir::VarObj>() ? OfVar(arg) : OfValue(arg); }

  // Results are new, or written over an argument.
  MemorySet OfOverwriting(const ir::CallObj* call) {
    const bool packed = CoreOpOf(call) == CoreOp::kCallInplacePacked;
    const auto* tuple = packed ? nullptr : call->args[1].as<ir::TupleObj>();
    const auto indices = call->attrs->values["inplace_indices"].cast<ffi::Array<int64_t>>();
    MemorySet memory = Fresh(call->ty);
    auto fields = result.fields.find(*memory.begin());
    for (size_t i = 0; i < indices.size(); ++i) {
      if (indices[i] < 0) continue;
      MemorySet over = {kUnknownMemory};
      if (packed) over = OfArgument(call->args[static_cast<size_t>(indices[i]) + 1]);
      if (tuple != nullptr) over = OfArgument(tuple->fields[indices[i]]);
      if (fields == result.fields.end()) return over;
      fields->second[i] = over;
    }
    return memory;
  }
  // A function may give back whatever it was given, or something of its own.
  MemorySet OfUnknownCall(const ir::CallObj* call) {
    const MemorySet given = AllArguments(call);
    const MemorySet fresh = Fresh(call->ty);
    const MemorySet own = result.Reach(fresh);
    result.owned_elsewhere.insert(own.begin(), own.end());
    if (given.empty()) return fresh;
    MemorySet all = given;
    all.insert(own.begin(), own.end());
    for (int number : own) {
      auto it = result.fields.find(number);
      if (it == result.fields.end()) continue;
      for (MemorySet& field : it->second) field = all;
    }
    return all;
  }
  MemorySet AllArguments(const ir::CallObj* call) {
    MemorySet all;
    VarsIn vars;
    for (const Expr& arg : call->args) vars.Visit(arg);
    for (const ir::VarObj* v : vars.found) {
      if (v->ty.as<ir::PrimTypeObj>()) continue;
      const MemorySet reach = result.Reach(OfVar(ffi::GetRef<Var>(v)));
      all.insert(reach.begin(), reach.end());
    }
    return all;
  }
  int next_ = 0;
};

enum class Fit { kNo, kSize, kShape };
Fit FitOf(const Type& arg, const Type& result, ir::TypeContext& facts) {
  const auto* a = arg.as<ir::TensorTypeObj>();
  const auto* r = result.as<ir::TensorTypeObj>();
  if (a == nullptr || r == nullptr || a->IsUnknownDtype() || a->dtype != r->dtype) return Fit::kNo;
  if (a->vdevice.has_value() != r->vdevice.has_value() ||
      (a->vdevice.has_value() && !ir::StructuralEqual(*a->vdevice, *r->vdevice)))
    return Fit::kNo;
  auto from = a->GetShape(), to = r->GetShape();
  if (!from.has_value() || !to.has_value()) return Fit::kNo;
  auto equal = [&](const Expr& x, const Expr& y) { return facts.ProveEqual(x, y); };
  if (a->ndim == r->ndim &&
      std::equal(from.value().begin(), from.value().end(), to.value().begin(), equal))
    return Fit::kShape;
  auto product = [](const ffi::Array<Expr>& dims) {
    Expr size(1);
    for (const Expr& dim : dims) size = size * dim;
    return size;
  };
  return equal(product(from.value()), product(to.value())) ? Fit::kSize : Fit::kNo;
}

class InplaceFinder {
 public:
  InplaceFinder(const ir::BindingBlock& block, const ffi::Array<Var>& params)
      : ranges_(FindLiveRanges(block)), memory_(FindMemory(block, params)) {}

  // May the call, binding number `i`, write over this argument?  Nobody else may see its memory
  // afterwards, and no other argument may be in it.
  bool IsFree(const ir::CallObj* call, const Expr& arg, int i) const {
    auto it = memory_.of.find(arg.get());
    if (it == memory_.of.end() || it->second.size() != 1) return false;
    const int number = *it->second.begin();
    if (memory_.owned_elsewhere.count(number) || RangeOf(arg.get()).end != i) return false;
    for (const Var& v : memory_.vars) {
      if (v.same_as(arg)) continue;
      const bool is_argument = std::any_of(call->args.begin(), call->args.end(),
                                           [&](const Expr& e) { return e.same_as(v); });
      if ((RangeOf(v.get()).end > i || is_argument) &&
          memory_.Reach(memory_.of.at(v.get())).count(number))
        return false;
    }
    return true;
  }

 private:
  LiveRange RangeOf(const ffi::Object* v) const {
    auto it = ranges_.of.find(v);
    return it == ranges_.of.end() ? LiveRange{} : it->second;
  }
  const LiveRanges ranges_;
  const MemoryOfValues memory_;
};

}  // namespace

MemorySet MemoryOfValues::Reach(const MemorySet& memory) const {
  MemorySet reached;
  std::vector<int> todo(memory.begin(), memory.end());
  while (!todo.empty()) {
    const int number = todo.back();
    todo.pop_back();
    if (!reached.insert(number).second) continue;
    auto it = fields.find(number);
    if (it == fields.end()) continue;
    for (const MemorySet& field : it->second) todo.insert(todo.end(), field.begin(), field.end());
  }
  return reached;
}

LiveRanges FindLiveRanges(const ir::BindingBlock& block) {
  LiveRanges ranges;
  const int count = static_cast<int>(block->bindings.size());
  auto note = [&](const Var& v, LiveRange range) {
    auto [it, fresh] = ranges.of.emplace(v.get(), range);
    if (fresh) {
      ranges.vars.push_back(v);
    } else {
      it->second.end = std::max(it->second.end, range.end);
    }
  };
  for (int i = 0; i < count; ++i) {
    const ir::Binding& binding = block->bindings[i];
    VarsIn uses;
    if (!binding->value.as<ir::TupleGetItemObj>()) uses.Visit(binding->value);
    for (const ir::VarObj* v : uses.found) {
      if (v->ty.as<ir::PrimTypeObj>()) continue;  // a size has no memory
      // What the block does not define belongs to somebody else, to its end.
      note(ffi::GetRef<Var>(v), {-1, ranges.of.count(v) && ranges.of[v].start >= 0 ? i : count});
    }
    const bool leaves = !binding->var.as<ir::DataflowVarObj>();
    note(binding->var, {i, leaves ? count : i});
  }
  return ranges;
}

MemoryOfValues FindMemory(const ir::BindingBlock& block, const ffi::Array<Var>& params) {
  MemoryFinder finder(params);
  for (const ir::Binding& binding : block->bindings) finder.Bind(binding);
  return finder.result;
}

InplaceCalls FindInplaceCalls(const ir::BindingBlock& block, const ffi::Array<Var>& params,
                              ir::TypeContext& facts) {
  InplaceCalls found;
  const InplaceFinder finder(block, params);
  for (int i = 0; i < static_cast<int>(block->bindings.size()); ++i) {
    const ir::Binding& binding = block->bindings[i];
    const auto* call = binding->value.as<ir::CallObj>();
    if (call == nullptr || !Names(kElementwise, ir::CalledOp(call))) continue;
    InplaceCall same_size{i, {}}, same_shape{i, {}};
    for (int a = 0; a < static_cast<int>(call->args.size()); ++a) {
      const Expr& arg = call->args[a];
      if (!arg.as<ir::VarObj>() || !finder.IsFree(call, arg, i)) continue;
      const Fit fit = FitOf(arg->ty, call->ty, facts);
      if (fit == Fit::kNo) continue;
      same_size.args.insert(a);
      if (fit == Fit::kShape) same_shape.args.insert(a);
    }
    if (!same_size.args.empty()) found.same_size.push_back(same_size);
    if (!same_shape.args.empty()) found.same_shape.push_back(same_shape);
  }
  return found;
}

}  // namespace relaxvm::analysis
