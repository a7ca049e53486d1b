// SPDX-License-Identifier: Apache-2.0
// FoldConstant: calls of tensor programs on constants become constants, and what is known of shapes
// becomes shapes. Stage: lowered (values), any (shapes).  Needs: context.evaluate, for values.
// Keeps: function signatures, spans.
#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "analysis/calls.h"
#include "analysis/program_kind.h"
#include "ir/visitor.h"
#include "passes/pass.h"
#include "support/host_tensor.h"
#include "tir/functor.h"

namespace relaxvm::passes {
namespace {

using ir::Expr;
using ir::Var;

// Results that grow: a broadcast of a scalar to a gigabyte is better computed where it is used,
// unless a contraction reads it, which wants its operands in memory.
constexpr int64_t kSmallResult = int64_t{1} << 20;
constexpr int64_t kMaxGrowth = 4;

int64_t NumElements(const ffi::Array<int64_t>& shape) {
  int64_t product = 1;
  for (int64_t dim : shape) {
    if (__builtin_mul_overflow(product, dim, &product)) return -1;
  }
  return product;
}

// The static shape and dtype of a tensor type.
std::optional<OutputTensor> StaticOutput(const ir::Type& type) {
  auto* tensor = type.as<ir::TensorTypeObj>();
  if (tensor == nullptr || !tensor->GetShape() || tensor->IsUnknownDtype()) return std::nullopt;
  OutputTensor out{{}, tensor->dtype};
  for (const Expr& dim : tensor->GetShape().value()) {
    ffi::Optional<int64_t> value = ir::AsInt(dim);
    if (!value) return std::nullopt;
    out.shape.push_back(*value);
  }
  return out;
}

// A call that can be folded, under the variable it is bound to.
struct Task {
  Var var;
  Evaluation work;
  bool is_tuple;
  ir::Span span;
};
using Values = std::unordered_map<const ffi::Object*, Expr>;
using Vars = std::unordered_set<const ffi::Object*>;

// What contractions read, and what that is computed from, where all of it is constant.
class WeightFinder : public ir::Visitor {
 public:
  explicit WeightFinder(const IRModule& mod) : mod_(mod) {}

  Vars Find(const ir::Function& f) {
    Visit(f);
    for (auto it = calls_.rbegin(); it != calls_.rend(); ++it) {
      if (!weights_.count(it->first)) continue;
      for (const Expr& arg : it->second) weights_.insert(arg.get());
    }
    return std::move(weights_);
  }

  void VisitBinding(const ir::Binding& binding) override {
    ir::Visitor::VisitBinding(binding);
    const std::optional<analysis::TirCall> call = analysis::AsCallTir(binding->value);
    if (!call.has_value()) return;
    const auto is_constant = [&](const Expr& arg) {
      return arg.as<ir::ConstantObj>() || constant_.count(arg.get());
    };
    if (std::all_of(call->args.begin(), call->args.end(), is_constant)) {
      constant_.insert(binding->var.get());
      calls_.emplace_back(binding->var.get(), call->args);
    } else if (IsContraction(*call)) {
      for (const Expr& arg : call->args) {
        if (constant_.count(arg.get())) weights_.insert(arg.get());
      }
    }
  }

 private:
  bool IsContraction(const analysis::TirCall& call) const {
    const auto program = mod_->Lookup(call.func).as<tir::PrimFunc>();
    constexpr auto kContraction = static_cast<int64_t>(analysis::FusionKind::kContraction);
    return program &&
           ir::GetAttr<int64_t>((*program)->attrs, ir::attr::kOpPattern, 0) == kContraction;
  }

  const IRModule& mod_;
  Vars constant_, weights_;
  std::vector<std::pair<const ffi::Object*, ffi::Array<Expr>>> calls_;  // of constants, in order
};

// One walk: puts in the values that are `done`, and lists the calls whose arguments are all known.
class Folder : public ir::Mutator {
 public:
  Folder(const IRModule& mod, const Values& done, const Vars& weights, std::vector<Task>* tasks)
      : mod_(mod), done_(done), weights_(weights), tasks_(tasks) {}

  void MutateBinding(const ir::Binding& binding, ffi::Array<ir::Binding>* out) override {
    ffi::Array<ir::Binding> rewritten;
    ir::Mutator::MutateBinding(binding, &rewritten);
    const ir::Binding& now = rewritten[0];
    Expr value = now.as<ir::VarBindingObj>() ? Fold(now->var, now->value) : now->value;
    if (IsKnown(value)) known_[now->var.get()] = value;
    // Tensors stand where they are used; their variable is needed outside of its block only.
    if (value.as<ir::ConstantObj>() && now.as<ir::VarBindingObj>()) {
      Replace(binding->var, value);
      if (binding->var.as<ir::DataflowVarObj>()) return;
    }
    out->push_back(
        value.same_as(now->value) ? now : ir::Binding(ir::VarBinding(now->var, value, now->span)));
  }

  Expr MutateTupleGetItem(const ir::TupleGetItem& item) override {
    Expr out = ir::Mutator::MutateTupleGetItem(item);
    auto* rest = out.as<ir::TupleGetItemObj>();
    if (rest == nullptr) return out;
    auto it = known_.find(rest->tuple_value.get());
    auto* tuple = it == known_.end() ? nullptr : it->second.as<ir::TupleObj>();
    return tuple == nullptr ? out : tuple->fields[rest->index];
  }

 private:
  static bool IsKnown(const Expr& value) {
    if (auto* tuple = value.as<ir::TupleObj>()) {
      for (const Expr& field : tuple->fields) {
        if (!field.as<ir::ConstantObj>()) return false;
      }
      return true;
    }
    return value.as<ir::ConstantObj>() || value.as<ir::ShapeExprObj>();
  }

  Expr Resolve(const Expr& e) const {
    auto it = known_.find(e.get());
    return it == known_.end() ? e : it->second;
  }

  Expr Fold(const Var& var, const Expr& value) {
    if (auto it = done_.find(var.get()); it != done_.end()) return it->second;
    if (std::optional<analysis::TirCall> call = analysis::AsCallTir(value)) {
      if (tasks_ != nullptr) AddTask(var, *call);
      return value;
    }
    if (value.as<ir::CallObj>()) {
      Expr folded = FoldShape(value.as<ir::Call>().value());
      return folded.defined() ? folded : value;
    }
    return value;
  }

  // ---- values

  void AddTask(const Var& var, const analysis::TirCall& call) {
    std::vector<ffi::Tensor> inputs;
    int64_t input_bytes = 0;
    for (const Expr& arg : call.args) {
      auto* constant = Resolve(arg).as<ir::ConstantObj>();
      if (constant == nullptr) return;
      inputs.push_back(constant->data);
      input_bytes += SizeInBytes(constant->data.dtype(), constant->data.numel());
    }
    std::vector<OutputTensor> outputs;
    auto* tuple = call.call->ty.as<ir::TupleTypeObj>();
    int64_t output_bytes = 0;
    for (const ir::Type& type :
         tuple != nullptr ? tuple->fields : ffi::Array<ir::Type>{call.call->ty}) {
      std::optional<OutputTensor> output = StaticOutput(type);
      if (!output) return;
      int64_t elements = NumElements(output->shape);
      if (elements < 0) return;
      output_bytes += SizeInBytes(output->dtype, elements);
      outputs.push_back(*output);
    }
    if (output_bytes > kSmallResult && output_bytes / kMaxGrowth > input_bytes &&
        !weights_.count(var.get()))
      return;
    std::optional<tir::PrimFunc> program = WithoutScalars(call);
    if (!program) return;
    tasks_->push_back({var,
                       {*program, std::move(inputs), std::move(outputs)},
                       tuple != nullptr,
                       call.call->span});
  }

  // The program with the values of its scalar parameters put in; absent when one is not known.
  std::optional<tir::PrimFunc> WithoutScalars(const analysis::TirCall& call) {
    auto program = mod_->Lookup(call.func).as<tir::PrimFunc>();
    if (!program) return std::nullopt;
    analysis::ProgramParams params = analysis::ParamsOf(*program);
    if (params.scalars.size() != call.tir_vars.size()) return std::nullopt;
    if (params.scalars.empty()) return *program;
    ffi::Map<Var, Expr> values;
    for (size_t i = 0; i < params.scalars.size(); ++i) {
      ffi::Optional<int64_t> value = ir::AsInt(call.tir_vars[i]);
      if (!value) return std::nullopt;
      values.Set(params.scalars[i], ir::Const(params.scalars[i].dtype(), *value));
    }
    ffi::Array<Var> kept;
    for (const Var& param : (*program)->params) {
      if (!values.count(param)) kept.push_back(param);
    }
    tir::PrimFunc shorter(kept, (*program)->body, (*program)->attrs, (*program)->span);
    return tir::SpecializeSizes(shorter, values);
  }

  // ---- shapes

  Expr FoldShape(const ir::Call& call) {
    if (analysis::CallsOp(call, "relax.shape_of")) {
      auto* type = call->args[0]->ty.as<ir::TensorTypeObj>();
      if (type == nullptr || !type->GetShape()) return Expr();
      return ir::ShapeExpr(type->GetShape().value(), call->span);
    }
    if (analysis::CallsOp(call, "relax.shape_to_tensor")) {
      auto* shape = Resolve(call->args[0]).as<ir::ShapeExprObj>();
      return shape == nullptr ? Expr() : TensorOf(shape->values, call->span);
    }
    if (analysis::CallsOp(call, "relax.tensor_to_shape")) {
      auto* constant = Resolve(call->args[0]).as<ir::ConstantObj>();
      return constant == nullptr ? Expr() : ShapeOf(constant->data, call->span);
    }
    return Expr();
  }

  static Expr TensorOf(const ffi::Array<Expr>& values, const ir::Span& span) {
    std::vector<int64_t> numbers;
    for (const Expr& value : values) {
      ffi::Optional<int64_t> number = ir::AsInt(value);
      if (!number) return Expr();
      numbers.push_back(*number);
    }
    int64_t size = static_cast<int64_t>(numbers.size());
    ffi::Tensor data = NewHostTensor({size}, Int(64));
    std::copy(numbers.begin(), numbers.end(), static_cast<int64_t*>(data.data_ptr()));
    return ir::Constant(data, span);
  }

  static Expr ShapeOf(const ffi::Tensor& data, const ir::Span& span) {
    if (data.ndim() != 1 || data.dtype() != Int(64) || data.device().device_type != kDLCPU ||
        !data.IsContiguous()) {
      return Expr();
    }
    auto* numbers = static_cast<const int64_t*>(data.data_ptr());
    ffi::Array<Expr> values;
    for (int64_t i = 0; i < data.numel(); ++i) values.push_back(Expr(numbers[i]));
    return ir::ShapeExpr(values, span);
  }

  const IRModule& mod_;
  const Values& done_;
  const Vars& weights_;       // made at any size
  std::vector<Task>* tasks_;  // null: nothing can be computed, only shapes are folded
  Values known_;
};

// What can be computed is computed together, then what became known by that, and so on.
ir::Function FoldFunction(const IRModule& mod, const ir::Function& f, const PassContext& context) {
  Values done;
  const Vars weights = context.evaluate ? WeightFinder(mod).Find(f) : Vars();
  while (true) {
    std::vector<Task> tasks;
    ir::Function folded = Folder(mod, done, weights, context.evaluate ? &tasks : nullptr)
                              .Mutate(f)
                              .as<ir::Function>()
                              .value();
    if (tasks.empty()) return folded;
    std::vector<Evaluation> work;
    for (const Task& task : tasks) work.push_back(task.work);
    std::vector<std::vector<ffi::Tensor>> results = context.evaluate(work);
    RELAXVM_CHECK(results.size() == tasks.size()) << "each program has its results";
    for (size_t i = 0; i < tasks.size(); ++i) {
      ffi::Array<Expr> constants;
      for (const ffi::Tensor& result : results[i]) {
        constants.push_back(ir::Constant(result, tasks[i].span));
      }
      done.emplace(tasks[i].var.get(),
                   tasks[i].is_tuple ? Expr(ir::Tuple(constants, tasks[i].span)) : constants[0]);
    }
  }
}

}  // namespace

IRModule FoldConstant(IRModule mod, const PassContext& context) {
  const IRModule given = mod;
  return ir::MutateFunctions(std::move(mod), [&](const ir::GlobalVar&, const ir::Function& f) {
    return FoldFunction(given, f, context);
  });
}

}  // namespace relaxvm::passes
