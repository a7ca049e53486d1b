// SPDX-License-Identifier: Apache-2.0
// LazyGetInput, LazySetOutput: a function that transforms weights asks for each of its weights
// right before the first use, and gives each result away as soon as it is there, so that they need
// not lie in memory all at once.  Stage: graph.  Asking has no effect, giving away has.
#include <algorithm>
#include <functional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "analysis/reads.h"
#include "ir/visitor.h"
#include "passes/params/lazy_inputs.h"
#include "passes/pass.h"

namespace relaxvm::passes {
namespace {

using ir::Expr;
using ir::Type;
using ir::Var;

// A function of an index and perhaps another value: R.Callable([R.Prim("int64"), R.Any], ret).
Type CallbackType(const Type& ret, bool pure) {
  return ir::FuncType({ir::PrimType(Int(64)), ir::AnyType()}, ret, pure);
}

class OutputWriter : public ir::Mutator {
 public:
  explicit OutputWriter(ir::Function func) : func_(std::move(func)) {}

  ir::Function Run() {
    Collect();
    ffi::Array<Var> params = func_->params;
    // Behind the inputs; without weights these are all parameters.
    const auto num_input = ir::GetAttr<int64_t>(func_->attrs, ir::attr::kNumInput,
                                                static_cast<int64_t>(params.size()));
    params.insert(params.begin() + num_input, set_);
    ffi::Array<ir::Binding> bindings;
    // Results that no binding makes: parameters first of all, other values at the end.
    for (const Var& param : func_->params) Write(param, &bindings);
    for (const ir::BindingBlock& block : func_->body->blocks) {
      for (const ir::Binding& b : block->bindings) MutateBinding(b, &bindings);
    }
    for (const auto& [index, value] : results_.values) WriteAs(index, value, &bindings);
    ir::Tuple none(ffi::Array<Expr>{});
    none->ty = ir::VoidType();
    ir::DictAttrs attrs = func_->attrs;
    if (attrs.count(ir::attr::kNumInput)) {
      attrs.Set(ir::attr::kNumInput, NumInput(func_.get()) + 1);
    }
    return ir::Function(params, OneBlock(bindings, none, func_->body->span), ir::VoidType(),
                        /*is_pure=*/false, attrs, func_->span);
  }

  void MutateBinding(const ir::Binding& binding, ffi::Array<ir::Binding>* out) override {
    if (binding->var.same_as(result_)) return;  // the tuple of all results
    out->push_back(binding);
    Write(binding->var, out);
  }
  // Results are variables of the function's own body.
  Expr MutateSeq(const ir::SeqExpr& seq) override { return seq; }

 private:
  void Collect() {
    Expr body = func_->body->body;
    analysis::VarsIn seen;
    seen.Visit(func_->body);
    if (auto var = body.as<Var>()) {
      for (const ir::BindingBlock& block : func_->body->blocks) {
        for (const ir::Binding& b : block->bindings) {
          if (!b->var.same_as(*var) || !b->value.as<ir::TupleObj>()) continue;
          body = b->value;
          const auto uses = std::count(seen.found.begin(), seen.found.end(), var->get());
          if (uses == 1) result_ = *var;
        }
      }
    }
    results_ = ResultsIn(body);
  }

  void Write(const Var& var, ffi::Array<ir::Binding>* out) {
    auto it = results_.places.find(var.get());
    if (it == results_.places.end()) return;
    for (int64_t index : it->second) WriteAs(index, var, out);
  }
  void WriteAs(int64_t index, const Expr& value, ffi::Array<ir::Binding>* out) {
    ir::Call call(set_, {ir::IntImm(Int(64), index), value}, ir::Attrs(), {}, value->span,
                  ir::VoidType());
    out->push_back(ir::VarBinding(Var("_", ir::VoidType()), call));
  }

  const ir::Function func_;
  const Var set_ = Var("fset_output", CallbackType(ir::VoidType(), /*pure=*/false));
  Expr result_;
  Results results_;
};

ir::Function ReadInputs(const ir::Function& func) {
  const int64_t num_input = NumInput(func.get());
  if (num_input >= static_cast<int64_t>(func->params.size())) return func;
  const Var get("fget_param", CallbackType(ir::AnyType(), /*pure=*/true));
  ir::Function made = ReadInputsLazily(
      func, {get},
      [&](int64_t index, const Var& param) {
        return ir::Call(get, {ir::IntImm(Int(64), index), ir::StringImm(param->name)}, ir::Attrs(),
                        {}, param->span, ir::AnyType());
      },
      /*without_effect=*/true);
  if (!func->attrs.count(ir::attr::kNumInput)) return made;
  return ir::WithAttr(made, ir::attr::kNumInput, num_input + 1);
}

using RewriteFn = std::function<ir::Function(const ir::GlobalVar&, const ir::Function&)>;

IRModule Rewrite(IRModule mod, const RewriteFn& rewrite) {
  return ir::MutateFunctions(mod, [&](const ir::GlobalVar& var, const ir::Function& func) {
    // Private functions are called from inside, with all their arguments.
    if (!func->attrs.count(ir::attr::kGlobalSymbol)) return func;
    return rewrite(var, func);
  });
}

}  // namespace

IRModule LazyGetInput(IRModule mod, const PassContext& context) {
  return Rewrite(std::move(mod),
                 [](const ir::GlobalVar&, const ir::Function& func) { return ReadInputs(func); });
}

IRModule LazySetOutput(IRModule mod, const PassContext& context) {
  return Rewrite(std::move(mod), [](const ir::GlobalVar& var, const ir::Function& func) {
    return OutputWriter(WithoutDataflow(var, func)).Run();
  });
}

}  // namespace relaxvm::passes
