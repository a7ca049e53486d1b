// SPDX-License-Identifier: Apache-2.0
// FuseTIR: makes one tensor program of every function with attribute "Primitive", and call_tir of
// its calls.  The bodies are put one after another, results in between become temporaries; what is
// computed where is the schedule's business. Stage: lowered.  Leaves alone: a function that holds
// anything but calls of tensor programs.
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "analysis/calls.h"
#include "analysis/program_kind.h"
#include "ir/visitor.h"
#include "ops/op_def.h"
#include "passes/fuse/composite.h"
#include "passes/pass.h"
#include "tir/functor.h"

namespace relaxvm::passes {
namespace {

using ir::Expr;
using ir::Var;
using tir::Buffer;

// Declares its buffers as results of a program would: fresh variables for what a program defines
// inside.
class Inliner : public tir::StmtMutator {
 public:
  explicit Inliner(const ffi::Map<Var, Expr>& map) {
    for (const auto& [from, to] : map) Replace(from, to);
  }
};

class Merger {
 public:
  Merger(const IRModule& mod, const ir::Function& function) : mod_(mod), function_(function) {}

  // Absent when the function is left alone.
  std::optional<tir::PrimFunc> Run() {
    if (!ReadParams() || !ReadResults()) return std::nullopt;
    for (const ir::BindingBlock& block : function_->body->blocks) {
      for (const ir::Binding& binding : block->bindings) {
        if (!binding.as<ir::VarBindingObj>() || !Inline(binding)) return std::nullopt;
      }
    }
    if (num_written_ != outputs_.size()) return std::nullopt;
    ffi::Array<Var> params = inputs_;
    for (const Buffer& output : outputs_) params.push_back(output);
    for (const Var& scalar : scalars_) params.push_back(scalar);
    ffi::Array<tir::Stmt> body = allocs_;
    for (const tir::Stmt& s : body_) body.push_back(s);
    ir::DictAttrs attrs;
    attrs.Set(tir::attr::kNoAlias, ffi::Any(true));
    if (outputs_.size() != 1)
      attrs.Set(tir::attr::kNumOutputs, ffi::Any(static_cast<int64_t>(outputs_.size())));
    return tir::PrimFunc(params, tir::SeqStmt::Flatten(body), attrs);
  }

 private:
  bool ReadParams() {
    for (const Var& param : function_->params) {
      if (auto tensor = param->ty.as<ir::TensorType>()) {
        if (!(*tensor)->GetShape() || (*tensor)->IsUnknownDtype()) return false;
        Buffer buffer(param->name, (*tensor)->GetShape().value(), (*tensor)->dtype);
        inputs_.push_back(buffer);
        values_.emplace(param.get(), buffer);
      } else if (auto* shape = param->ty.as<ir::ShapeTypeObj>()) {
        if (!shape->values) return false;
        for (const Expr& value : shape->values.value()) {
          auto var = value.as<Var>();
          if (!var) return false;
          scalars_.push_back(*var);
        }
      } else {
        return false;
      }
    }
    return true;
  }

  bool ReadResults() {
    const Expr& result = function_->body->body;
    ffi::Array<Expr> fields;
    if (auto* tuple = result.as<ir::TupleObj>()) {
      fields = tuple->fields;
    } else if (auto* tuple = Definition(result).as<ir::TupleObj>()) {
      fields = tuple->fields;
      tuple_ = result;
    } else {
      fields = {result};
    }
    for (const Expr& field : fields) {
      auto* tensor = field->ty.as<ir::TensorTypeObj>();
      if (tensor == nullptr || !tensor->GetShape() || !field.as<ir::VarObj>()) return false;
      // A result twice, or a parameter as result, would need a copy.
      if (results_.count(field.get()) || values_.count(field.get())) return false;
      Buffer buffer(field.as<Var>().value()->name, tensor->GetShape().value(), tensor->dtype);
      outputs_.push_back(buffer);
      results_.emplace(field.get(), buffer);
    }
    return true;
  }

  Expr Definition(const Expr& var) {
    for (const ir::BindingBlock& block : function_->body->blocks) {
      for (const ir::Binding& binding : block->bindings) {
        if (binding->var.same_as(var)) return binding->value;
      }
    }
    return var;
  }

  bool Inline(const ir::Binding& binding) {
    if (tuple_.defined() && binding->var.same_as(tuple_)) return true;
    std::optional<analysis::TirCall> call = analysis::AsCallTir(binding->value);
    if (!call) return false;
    auto callee = mod_->Lookup(call->func).as<tir::PrimFunc>();
    auto* type = binding->var->ty.as<ir::TensorTypeObj>();
    if (!callee || type == nullptr) return false;
    tir::PrimFunc program = tir::RenewDefs(*callee);
    analysis::ProgramParams params = analysis::ParamsOf(program);
    if (params.outputs.size() != 1 || params.inputs.size() != call->args.size() ||
        params.scalars.size() != call->tir_vars.size()) {
      return false;
    }
    std::vector<Buffer> actual;
    for (const Expr& arg : call->args) {
      auto it = values_.find(arg.get());
      if (it == values_.end()) return false;
      actual.push_back(it->second);
    }
    actual.push_back(ResultBuffer(binding->var, type));
    values_.emplace(binding->var.get(), actual.back());

    ffi::Map<Var, Expr> map;
    std::vector<Buffer> formal = params.inputs;
    formal.push_back(params.outputs[0]);
    for (size_t i = 0; i < params.scalars.size(); ++i)
      BindSize(params.scalars[i], call->tir_vars[i], &map);
    for (size_t i = 0; i < formal.size(); ++i) {
      if (formal[i].shape().size() != actual[i].shape().size()) return false;
      for (size_t d = 0; d < formal[i].shape().size(); ++d) {
        if (auto size = formal[i].shape()[d].as<Var>()) BindSize(*size, actual[i].shape()[d], &map);
      }
    }
    for (size_t i = 0; i < formal.size(); ++i) map.Set(formal[i], actual[i]);
    Append(Inliner(map).Mutate(program->body));
    return true;
  }

  static void BindSize(const Var& size, const Expr& value, ffi::Map<Var, Expr>* map) {
    if (!map->count(size)) map->Set(size, ir::Cast(size.dtype(), value));
  }

  Buffer ResultBuffer(const Var& var, const ir::TensorTypeObj* type) {
    auto it = results_.find(var.get());
    if (it != results_.end()) {
      ++num_written_;
      return it->second;
    }
    Buffer buffer(var->name, type->GetShape().value(), type->dtype);
    allocs_.push_back(tir::AllocBuffer(buffer));
    return buffer;
  }

  // Temporaries of the parts go to the front, too.
  void Append(const tir::Stmt& s) {
    if (auto* seq = s.as<tir::SeqStmtObj>()) {
      for (const tir::Stmt& part : seq->seq) Append(part);
    } else if (s.as<tir::AllocBufferObj>()) {
      allocs_.push_back(s);
    } else {
      body_.push_back(s);
    }
  }

  const IRModule& mod_;
  ir::Function function_;
  std::unordered_map<const ffi::Object*, Buffer> values_;
  std::unordered_map<const ffi::Object*, Buffer> results_;
  Expr tuple_;  // the variable that holds the results
  ffi::Array<Var> inputs_;
  std::vector<Buffer> outputs_;
  ffi::Array<Var> scalars_;
  ffi::Array<tir::Stmt> allocs_;
  std::vector<tir::Stmt> body_;
  size_t num_written_ = 0;
};

// A function that became a program, and the program's name.
struct Fused {
  ir::Function function;
  ir::GlobalVar program;
};

// Calls of the functions that became programs.
class CallRewriter : public ir::Mutator {
 public:
  explicit CallRewriter(const std::unordered_map<const ffi::Object*, Fused>& fused)
      : fused_(fused) {}

  Expr MutateCall(const ir::Call& call) override {
    auto it = fused_.find(call->op.get());
    if (it == fused_.end()) return ir::Mutator::MutateCall(call);
    const ir::Function& function = it->second.function;
    ffi::Array<Expr> tensors, sizes;
    for (size_t i = 0; i < call->args.size(); ++i) {
      if (function->params[i]->ty.as<ir::TensorTypeObj>()) {
        tensors.push_back(call->args[i]);
      } else {
        // The values of a shape are part of its type.
        for (const Expr& value : call->args[i]->ty.as<ir::ShapeTypeObj>()->values.value())
          sizes.push_back(value);
      }
    }
    ffi::Array<Expr> args = {it->second.program, ir::Tuple(tensors)};
    if (!sizes.empty()) args.push_back(ir::ShapeExpr(sizes));
    return ir::Call(ops::GetOp("call_tir"), args, ir::Attrs(), {call->ty}, call->span, call->ty);
  }

 private:
  const std::unordered_map<const ffi::Object*, Fused>& fused_;
};

}  // namespace

IRModule FuseTIR(IRModule mod, const PassContext& context) {
  std::unordered_map<const ffi::Object*, Fused> fused;
  ffi::Map<ir::GlobalVar, ir::BaseFunc> functions;
  for (const auto& [var, func] : mod->functions) {
    auto function = func.as<ir::Function>();
    std::optional<tir::PrimFunc> program;
    if (function && (*function)->attrs.count(ir::attr::kPrimitive))
      program = Merger(mod, *function).Run();
    if (!program) {
      functions.Set(var, func);
      continue;
    }
    // A variable of its own: the function's carries a function's type, which says that calls are
    // pure.
    ir::GlobalVar name(var->name_hint);
    functions.Set(name, *program);
    fused.emplace(var.get(), Fused{*function, name});
  }
  if (fused.empty()) return RemoveUnusedComposites(mod);
  std::unordered_set<std::string> members;
  for (const auto& [var, function] : fused) members.merge(NamesIn(function.function));
  mod = IRModule(functions, mod->attrs, mod->global_infos);
  mod = ir::MutateFunctions(std::move(mod), [&](const ir::GlobalVar&, const ir::Function& f) {
    return CallRewriter(fused).Mutate(f).as<ir::Function>().value();
  });
  // Private programs that were only members of groups.
  mod = WithoutUnused(mod, [&](const ir::GlobalVar& var, const ir::BaseFunc& func) {
    return func.as<tir::PrimFunc>() && members.count(std::string(var->name_hint)) &&
           !func->attrs.count(ir::attr::kGlobalSymbol);
  });
  return RemoveUnusedComposites(mod);
}

}  // namespace relaxvm::passes
