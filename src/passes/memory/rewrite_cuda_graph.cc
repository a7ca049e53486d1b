// SPDX-License-Identifier: Apache-2.0
// RewriteCUDAGraph: storages of constant size are reserved once, in a function "cuda_graph_alloc",
// and runs of kernel calls on such memory become functions that a device records and replays.
// Stage: planned, without dataflow blocks.  Does nothing unless config relax.backend.use_cuda_graph
// is true.  Static is what has the same address in every call: those storages, tensors in them,
// weights (parameters after "num_input"), constants.  Sizes named in attribute
// "relax.rewrite_cuda_graph.capture_symbolic_vars" are part of what a recording is kept for.
#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "analysis/core_ops.h"
#include "ir/visitor.h"
#include "passes/canonical/bind.h"
#include "passes/pass.h"

namespace relaxvm::passes {
namespace {

using analysis::CoreOp;
using ir::Expr;
using ir::Var;
using Objects = std::unordered_set<const ffi::Object*>;

constexpr const char* kEnabled = "relax.backend.use_cuda_graph";
constexpr const char* kCaptureSizes = "relax.rewrite_cuda_graph.capture_symbolic_vars";
constexpr const char* kAllocFunction = "cuda_graph_alloc";

class VarsIn : public ir::Visitor {
 public:
  std::vector<const ir::VarObj*> found;
  void VisitVar(const ir::VarObj* v) override { found.push_back(v); }
  void VisitOther(const ir::ExprObj*) override {}
};
std::vector<const ir::VarObj*> ReadBy(const Expr& e) {
  VarsIn vars;
  vars.Visit(e);
  return std::move(vars.found);
}

bool IsName(const Expr& value) {
  return value.as<ir::VarObj>() || value.as<ir::TupleObj>() || value.as<ir::TupleGetItemObj>();
}

// A storage that is reserved once, for the functions that use it at different times.
struct Slot {
  const ir::CallObj* call = nullptr;  // the largest request
  int64_t size = 0;
  int64_t index = 0;
};

// One function: what is static, and what may be recorded.
class FunctionPlan {
 public:
  FunctionPlan(const IRModule& mod, const ir::Function& func) : mod_(mod), func_(func) {
    for (const ir::BindingBlock& block : func->body->blocks) {
      for (const ir::Binding& b : block->bindings) values_.emplace(b->var.get(), b->value);
    }
    MarkOutputs(func->body->body);
    FindStatic();
  }

  // Storages to reserve once, by scope, in order.
  std::vector<std::pair<Var, const ir::CallObj*>> storages;

  bool IsStorage(const Var& v) const { return lifted_.count(v.get()) != 0; }
  bool IsKernel(const ir::Binding& b) const { return kernels_.count(b->var.get()) != 0; }
  bool MayGoAlong(const ir::Binding& b) const { return along_.count(b->var.get()) != 0; }

 private:
  // What the function gives, through names and views, with the storages behind it.
  void MarkOutputs(const Expr& e) {
    for (const ir::VarObj* v : ReadBy(e)) {
      if (!outputs_.insert(v).second) continue;
      auto it = values_.find(v);
      if (it == values_.end()) continue;
      const CoreOp op = analysis::CoreOpOfValue(it->second);
      const auto* call = it->second.as<ir::CallObj>();
      if (IsName(it->second)) MarkOutputs(it->second);
      if (op == CoreOp::kAllocTensor) MarkOutputs(call->args[0]);
    }
  }

  void FindStatic() {
    const auto num_input = ir::GetAttr<int64_t>(func_->attrs, ir::attr::kNumInput,
                                                static_cast<int64_t>(func_->params.size()));
    for (size_t i = 0; i < func_->params.size(); ++i) {
      if (static_cast<int64_t>(i) < num_input) continue;
      static_.insert(func_->params[i].get());
      for (const Var& v : ir::DefinableSymbolicVars(func_->params[i]->ty)) static_.insert(v.get());
    }
    Objects named;
    if (func_->attrs.count(kCaptureSizes)) {
      auto names = func_->attrs[kCaptureSizes].cast<ffi::Array<ffi::String>>();
      for (const Var& p : func_->params) {
        for (const Var& v : ir::SymbolicVars(p->ty)) {
          if (std::find(names.begin(), names.end(), v->name) != names.end()) {
            static_.insert(v.get());
          }
        }
      }
    }
    for (const ir::BindingBlock& block : func_->body->blocks) {
      if (block.as<ir::DataflowBlockObj>()) continue;
      for (const ir::Binding& b : block->bindings) {
        if (b.as<ir::VarBindingObj>()) Classify(b);
      }
    }
  }

  bool AllStatic(const Expr& e) const {
    for (const ir::VarObj* v : ReadBy(e)) {
      if (!static_.count(v)) return false;
    }
    return true;
  }

  void Classify(const ir::Binding& b) {
    const ffi::Object* v = b->var.get();
    const Expr& value = b->value;
    const auto* call = value.as<ir::CallObj>();
    const CoreOp op = analysis::CoreOpOfValue(value);
    if (op == CoreOp::kAllocStorage) {
      const auto* shape = call->args[0].as<ir::ShapeExprObj>();
      const bool known =
          shape != nullptr && shape->values.size() == 1 && ir::AsInt(shape->values[0]);
      if (!known || outputs_.count(v)) return;
      lifted_.insert(v);
      static_.insert(v);
      storages.emplace_back(b->var, call);
    } else if (op == CoreOp::kAllocTensor || IsName(value)) {
      if (!AllStatic(value) || outputs_.count(v)) return;
      static_.insert(v);
      along_.insert(v);
    } else if (op == CoreOp::kKillTensor || op == CoreOp::kVmKillObject) {
      if (AllStatic(value)) along_.insert(v);
    } else if (call != nullptr && IsKernelCall(call) && AllStatic(value) && !outputs_.count(v)) {
      for (const ir::VarObj* read : ReadBy(value)) {
        if (outputs_.count(read) && values_.count(read)) return;
      }
      kernels_.insert(v);
      static_.insert(v);
    }
  }

  // Does the call start work on the device?  Functions of the VM work on the host.
  bool IsKernelCall(const ir::CallObj* call) const {
    if (const auto* packed = call->op.as<ir::ExternFuncObj>()) {
      return std::string(packed->global_symbol).rfind("vm.builtin.", 0) != 0;
    }
    const auto* var = call->op.as<ir::GlobalVarObj>();
    auto func = var == nullptr ? std::nullopt : mod_->Find(var->name_hint);
    return func && !func.value().as<ir::FunctionObj>();
  }

  const IRModule& mod_;
  const ir::Function& func_;
  std::unordered_map<const ffi::Object*, Expr> values_;
  Objects outputs_, static_, lifted_, along_, kernels_;
};

class Rewriter {
 public:
  explicit Rewriter(IRModule mod) : mod_(std::move(mod)) {}

  IRModule Run() {
    std::vector<std::pair<ir::GlobalVar, ir::Function>> funcs;
    for (const auto& [var, func] : mod_->functions) {
      if (auto f = func.as<ir::Function>()) funcs.emplace_back(var, *f);
    }
    std::sort(funcs.begin(), funcs.end(),
              [](const auto& a, const auto& b) { return a.first->name_hint < b.first->name_hint; });
    std::vector<FunctionPlan> plans;
    for (const auto& [var, func] : funcs) plans.emplace_back(mod_, func);
    Merge(plans);
    if (num_slots_ == 0) return mod_;
    alloc_ = mod_.Update(mod_.UniqueName(kAllocFunction), AllocFunction());
    for (size_t i = 0; i < funcs.size(); ++i) {
      ir::Function made = Rewrite(funcs[i].first, funcs[i].second, plans[i]);
      if (!made.same_as(funcs[i].second)) mod_.Update(funcs[i].first->name_hint, made);
    }
    return mod_;
  }

 private:
  // The n-th largest storages of all functions are one.
  void Merge(const std::vector<FunctionPlan>& plans) {
    for (const FunctionPlan& plan : plans) {
      std::map<std::string, std::vector<std::pair<int64_t, size_t>>> by_scope;
      for (size_t i = 0; i < plan.storages.size(); ++i) {
        const ir::CallObj* call = plan.storages[i].second;
        const auto* scope = call->args[2].as<ir::StringImmObj>();
        const auto size = ir::AsInt(call->args[0].as<ir::ShapeExprObj>()->values[0]).value();
        by_scope[scope == nullptr ? "" : std::string(scope->value)].emplace_back(size, i);
      }
      for (auto& [scope, wanted] : by_scope) {
        std::stable_sort(wanted.begin(), wanted.end(),
                         [](const auto& a, const auto& b) { return a.first > b.first; });
        std::vector<Slot>& slots = slots_[scope];
        if (slots.size() < wanted.size()) slots.resize(wanted.size());
        for (size_t k = 0; k < wanted.size(); ++k) {
          const auto& [var, call] = plan.storages[wanted[k].second];
          if (slots[k].call == nullptr || slots[k].size < wanted[k].first) {
            slots[k].call = call;
            slots[k].size = wanted[k].first;
          }
          slot_of_.emplace(var.get(), std::pair{scope, k});
        }
      }
    }
    for (auto& [scope, slots] : slots_) {
      for (Slot& slot : slots) slot.index = num_slots_++;
    }
  }

  static ir::DictAttrs ForcePure() { return {{ir::attr::kForcePure, ffi::Any(true)}}; }

  ir::Function AllocFunction() {
    ffi::Array<ir::Binding> bindings;
    ffi::Array<Expr> fields;
    ffi::Array<ir::Type> types;
    for (const auto& [scope, slots] : slots_) {
      for (const Slot& slot : slots) {
        Var v("storage", slot.call->ty);
        bindings.push_back(ir::VarBinding(v, ffi::GetRef<ir::Call>(slot.call)));
        fields.push_back(v);
        types.push_back(v->ty);
      }
    }
    slot_types_ = ir::TupleType(types);
    Var out("storages", slot_types_);
    bindings.push_back(ir::VarBinding(out, ir::Tuple(fields)));
    return ir::Function({}, ir::SeqExpr({ir::BindingBlock(bindings)}, out), slot_types_, true,
                        ForcePure());
  }

  static Expr CallBuiltin(const char* name, const ffi::Array<Expr>& args, const ir::Type& type) {
    return ir::Call(analysis::GetCoreOp(CoreOp::kCallBuiltinWithCtx),
                    {ir::ExternFunc(name), ir::Tuple(args)}, ir::Attrs(), {type}, ir::Span(), type);
  }

  ir::Function Rewrite(const ir::GlobalVar& name, const ir::Function& func,
                       const FunctionPlan& plan) {
    if (plan.storages.empty()) return func;
    CountReads(func);
    Var cached("storages", slot_types_);
    bool reserved = false;
    ffi::Array<ir::BindingBlock> blocks;
    for (const ir::BindingBlock& block : func->body->blocks) {
      if (block.as<ir::DataflowBlockObj>()) {
        blocks.push_back(block);
        continue;
      }
      ffi::Array<ir::Binding> out;
      std::vector<ir::Binding> region;
      auto close = [&] {
        if (!region.empty()) EmitRegion(name, region, &out);
        region.clear();
      };
      for (const ir::Binding& b : block->bindings) {
        if (plan.IsStorage(b->var)) {
          if (!std::exchange(reserved, true)) {
            out.push_back(ir::VarBinding(
                cached, CallBuiltin("vm.builtin.cuda_graph.get_cached_alloc",
                                    {alloc_.value(), ir::IntImm(Int(64), 0)}, slot_types_)));
          }
          const auto& [scope, k] = slot_of_.at(b->var.get());
          Expr item = ir::TupleGetItem(cached, slots_.at(scope)[k].index);
          item->ty = b->var->ty;
          out.push_back(ir::VarBinding(b->var, item, b->span));
        } else if (plan.IsKernel(b) || (!region.empty() && plan.MayGoAlong(b))) {
          region.push_back(b);
        } else {
          close();
          out.push_back(b);
        }
      }
      close();
      blocks.push_back(ir::BindingBlock(out, block->span));
    }
    return ir::Function(func->params, ir::SeqExpr(blocks, func->body->body, func->body->span),
                        func->ret_ty, func->is_pure, func->attrs, func->span);
  }

  // In which order the function's bindings read variables.
  void CountReads(const ir::Function& func) {
    readers_.clear();
    for (const ir::BindingBlock& block : func->body->blocks) {
      for (const ir::Binding& b : block->bindings) {
        for (const ir::VarObj* v : ReadBy(b->value)) readers_.emplace_back(v, b->var.get());
      }
    }
    for (const ir::VarObj* v : ReadBy(func->body->body)) readers_.emplace_back(v, nullptr);
  }

  struct Border {
    ffi::Array<Var> inputs;   // in the order of first use
    ffi::Array<Var> outputs;  // in the order of first use outside
    ffi::Array<Expr> sizes;
  };
  Border BorderOf(const std::vector<ir::Binding>& region) const {
    Border border;
    Objects inside, seen;
    std::unordered_map<const ffi::Object*, Var> defined;
    for (const ir::Binding& b : region) {
      inside.insert(b->var.get());
      defined.emplace(b->var.get(), b->var);
    }
    auto note_sizes = [&](const ir::Type& type) {
      for (const Var& v : ir::SymbolicVars(type)) {
        if (seen.insert(v.get()).second) border.sizes.push_back(v);
      }
    };
    for (const ir::Binding& b : region) {
      for (const ir::VarObj* v : ReadBy(b->value)) {
        if (inside.count(v) || !seen.insert(v).second) continue;
        Var var = ffi::GetRef<Var>(v);
        if (var->ty.as<ir::PrimTypeObj>()) {
          border.sizes.push_back(var);
          continue;
        }
        border.inputs.push_back(var);
        note_sizes(var->ty);
      }
      note_sizes(b->var->ty);
    }
    Objects out;
    for (const auto& [read, reader] : readers_) {
      if (!inside.count(read) || (reader != nullptr && inside.count(reader))) continue;
      if (out.insert(read).second) border.outputs.push_back(defined.at(read));
    }
    return border;
  }

  void EmitRegion(const ir::GlobalVar& name, const std::vector<ir::Binding>& region,
                  ffi::Array<ir::Binding>* out) {
    Border border = BorderOf(region);
    ffi::Array<Var> params = border.inputs;
    ffi::Array<Expr> args(border.inputs.begin(), border.inputs.end());
    if (!border.sizes.empty()) {
      params.push_back(Var("shape_expr", ir::ShapeType(border.sizes)));
      args.push_back(ir::ShapeExpr(border.sizes));
    }
    ffi::Array<ir::Type> types;
    for (const Var& v : border.outputs) types.push_back(v->ty);
    ir::TupleType type(types);
    ffi::Array<ir::Binding> bindings(region.begin(), region.end());
    Var result("gv", type);
    bindings.push_back(ir::VarBinding(
        result, ir::Tuple(ffi::Array<Expr>(border.outputs.begin(), border.outputs.end()))));
    Expr body = types.empty() ? Expr(ir::Tuple(ffi::Array<Expr>())) : Expr(result);
    ir::Function capture(params, ir::SeqExpr({ir::BindingBlock(bindings)}, body), type, true,
                         ForcePure());
    const std::string wanted = std::string(name->name_hint) + "_cuda_graph_capture";
    ir::GlobalVar var = mod_.Update(mod_.UniqueName(wanted), CopyWithFreshVars(capture));
    ffi::Array<Expr> call = {var, ir::Tuple(args), ir::IntImm(Int(64), num_captures_++)};
    if (!border.sizes.empty()) call.push_back(ir::ShapeExpr(border.sizes));
    Var all("captured", type);
    out->push_back(
        ir::VarBinding(all, CallBuiltin("vm.builtin.cuda_graph.run_or_capture", call, type)));
    for (const ir::Binding& b : region) {
      for (size_t i = 0; i < border.outputs.size(); ++i) {
        if (!border.outputs[i].same_as(b->var)) continue;
        Expr item = ir::TupleGetItem(all, static_cast<int64_t>(i));
        item->ty = b->var->ty;
        out->push_back(ir::VarBinding(b->var, item, b->span));
      }
    }
  }

  IRModule mod_;
  std::map<std::string, std::vector<Slot>> slots_;  // by memory scope, largest first
  std::unordered_map<const ffi::Object*, std::pair<std::string, size_t>> slot_of_;
  int64_t num_slots_ = 0;
  int64_t num_captures_ = 0;
  ffi::Optional<ir::GlobalVar> alloc_;
  ir::TupleType slot_types_ = ir::TupleType(ffi::Array<ir::Type>());
  std::vector<std::pair<const ffi::Object*, const ffi::Object*>> readers_;
};

}  // namespace

IRModule RewriteCUDAGraph(IRModule mod, const PassContext& context) {
  auto it = context.config.find(kEnabled);
  if (it == context.config.end() || !(*it).second.cast<bool>()) return mod;
  return Rewriter(std::move(mod)).Run();
}

}  // namespace relaxvm::passes
