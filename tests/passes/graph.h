// SPDX-License-Identifier: Apache-2.0
// Functions made of calls of small tensor programs, and a way to run them by walking: what fusion
// is tested with.
#pragma once

#include <map>
#include <random>
#include <string>
#include <vector>

#include "../schedule/interpreter.h"
#include "analysis/calls.h"
#include "analysis/program_kind.h"
#include "ops/op_def.h"
#include "passes/pass.h"
#include "tir/tensor.h"

namespace relaxvm::testing {

using ir::Expr;
using ir::Var;
using tir::Indices;
using tir::Tensor;
using Dims = ffi::Array<Expr>;

// A function `main` with one dataflow block.
class Graph {
 public:
  Var Input(const std::string& name, Dims dims) {
    Var v(name, ir::TensorType(dims, Float(32)));
    params_.push_back(v);
    return v;
  }

  using Body = std::function<Tensor(const std::vector<Tensor>&)>;
  // name = call_tir(program of `body`, args); an output is visible outside of the block.
  Var Call(const std::string& name, const std::vector<Expr>& args, const Body& body,
           bool output = false, const ffi::Array<Var>& sizes = {}) {
    std::vector<Tensor> inputs;
    for (const Expr& arg : args) {
      auto* type = arg->ty.as<ir::TensorTypeObj>();
      inputs.push_back(
          Tensor("a" + std::to_string(inputs.size()), type->GetShape().value(), type->dtype));
    }
    Tensor result = body(inputs);
    tir::PrimFunc program = tir::CreatePrimFunc(inputs, {result}, sizes);
    ir::GlobalVar global = mod_.Update(mod_.UniqueName(name), program);
    ir::TensorType type(result->shape, result->dtype);
    ffi::Array<Expr> all = {global, ir::Tuple(ffi::Array<Expr>(args.begin(), args.end()))};
    if (!sizes.empty())
      all.push_back(ir::ShapeExpr(sizes.Map([](const Var& v) { return Expr(v); })));
    ir::Call call(ops::GetOp("call_tir"), all, ir::Attrs(), {type}, ir::Span(), type);
    Var var = output ? Var(name, type) : Var(ir::DataflowVar(name, type));
    bindings_.push_back(ir::VarBinding(var, call));
    return var;
  }
  void Bind(const ir::Binding& binding) { bindings_.push_back(binding); }

  Var Map(const std::string& name, const Expr& x, const std::function<Expr(Expr)>& f,
          bool output = false) {
    return Call(name, {x}, [&](const auto& in) { return tir::Map(in[0], f, name); }, output);
  }
  Var Zip(const std::string& name, const Expr& x, const Expr& y, bool output = false) {
    return Call(
        name, {x, y},
        [&](const auto& in) {
          return tir::Compute(
              in[0]->shape,
              [&](const Indices& i) {
                // The second argument lines up with the last axes of the first.
                Indices j(i.end() - in[1].ndim(), i.end());
                return in[0](i) + in[1](j);
              },
              name);
        },
        output);
  }
  Var Transpose(const std::string& name, const Expr& x, bool output = false) {
    return Call(
        name, {x},
        [&](const auto& in) {
          return tir::Compute(
              {in[0].dim(1), in[0].dim(0)}, [&](const Indices& i) { return in[0]({i[1], i[0]}); },
              name);
        },
        output);
  }
  Var RowSum(const std::string& name, const Expr& x, bool output = false) {
    return Call(
        name, {x},
        [&](const auto& in) {
          return tir::Reduce(
              {in[0].dim(0)}, {in[0].dim(1)}, tir::SumReducer(Float(32)),
              [&](const Indices& i, const Indices& r) { return in[0]({i[0], r[0]}); }, name);
        },
        output);
  }
  Var Matmul(const std::string& name, const Expr& x, const Expr& y, bool output = false) {
    return Call(
        name, {x, y},
        [&](const auto& in) {
          return tir::Reduce(
              {in[0].dim(0), in[1].dim(1)}, {in[0].dim(1)}, tir::SumReducer(Float(32)),
              [&](const Indices& i, const Indices& r) {
                return in[0]({i[0], r[0]}) * in[1]({r[0], i[1]});
              },
              name);
        },
        output);
  }

  ir::IRModule Finish(const std::vector<Expr>& results) {
    Expr result = results.size() == 1
                      ? results[0]
                      : Expr(ir::Tuple(ffi::Array<Expr>(results.begin(), results.end())));
    ir::Function f(params_, ir::SeqExpr({ir::DataflowBlock(bindings_)}, result), ir::Type());
    mod_.Update("main", ir::WithAttr(f, ir::attr::kGlobalSymbol, ffi::String("main")));
    return mod_;
  }
  const ffi::Array<Var>& params() const { return params_; }

 private:
  ir::IRModule mod_{ffi::Map<ir::GlobalVar, ir::BaseFunc>()};
  ffi::Array<Var> params_;
  ffi::Array<ir::Binding> bindings_;
};

using Sizes = std::map<std::string, int64_t>;
using Values = std::vector<double>;

inline int64_t Size(const Expr& dim, const Sizes& sizes) {
  if (auto* v = dim.as<ir::VarObj>()) return sizes.at(std::string(v->name));
  if (auto* b = dim.as<ir::BinaryObj>()) {
    RELAXVM_CHECK(b->op == ir::BinaryOp::kMul);
    return Size(b->a, sizes) * Size(b->b, sizes);
  }
  return *ir::AsInt(dim);
}
inline size_t NumElements(const ir::Type& type, const Sizes& sizes) {
  int64_t product = 1;
  for (const Expr& dim : type.as<ir::TensorTypeObj>()->GetShape().value())
    product *= Size(dim, sizes);
  return static_cast<size_t>(product);
}

// The results of `main`; every call must be a call_tir.
inline std::vector<Values> RunMain(const ir::IRModule& mod, const std::vector<Values>& inputs,
                                   const Sizes& sizes) {
  ir::Function f = mod->Lookup("main").as<ir::Function>().value();
  std::map<const ffi::Object*, Values> values;
  for (size_t i = 0; i < inputs.size(); ++i) values[f->params[i].get()] = inputs[i];
  for (const ir::BindingBlock& block : f->body->blocks) {
    for (const ir::Binding& binding : block->bindings) {
      auto call = analysis::AsCallTir(binding->value);
      RELAXVM_CHECK(call.has_value()) << "only call_tir can be run here: " << binding->var->name;
      auto program = mod->Lookup(call->func).as<tir::PrimFunc>().value();
      std::vector<Values*> memory;
      for (const Expr& arg : call->args) memory.push_back(&values.at(arg.get()));
      values[binding->var.get()] = Values(NumElements(binding->var->ty, sizes), -1e30);
      memory.push_back(&values[binding->var.get()]);
      std::vector<Values> scalars;
      scalars.reserve(call->tir_vars.size());
      for (const Expr& size : call->tir_vars) {
        scalars.push_back({static_cast<double>(Size(size, sizes))});
        memory.push_back(&scalars.back());
      }
      Interpreter interpreter;
      interpreter.Run(program, memory, sizes);
      RELAXVM_CHECK(interpreter.num_out_of_bounds == 0) << binding->var->name;
    }
  }
  std::vector<Values> out;
  if (auto* tuple = f->body->body.as<ir::TupleObj>()) {
    for (const Expr& field : tuple->fields) out.push_back(values.at(field.get()));
  } else {
    out.push_back(values.at(f->body->body.get()));
  }
  return out;
}

inline std::vector<Values> RandomInputs(const ir::IRModule& mod, const Sizes& sizes,
                                        unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Values> out;
  for (const Var& param : mod->Lookup("main").as<ir::Function>().value()->params) {
    Values v(NumElements(param->ty, sizes));
    for (double& x : v) x = static_cast<double>(random() % 17) - 8;
    out.push_back(std::move(v));
  }
  return out;
}

inline ir::IRModule Fuse(ir::IRModule mod, ffi::Map<ffi::String, ffi::Any> config = {}) {
  passes::PassContext context;
  context.options = {{"fuse_opt_level", ffi::Any(int64_t{-1})},
                     {"max_outputs", ffi::Any(int64_t{4})},
                     {"keep_reshapes", ffi::Any(true)},
                     {"extend_reductions", ffi::Any(true)}};
  context.config = std::move(config);
  mod = passes::AnnotateTIROpPattern(std::move(mod), context);
  mod = passes::FuseOps(std::move(mod), context);
  return passes::FuseTIR(std::move(mod), context);
}

// Names of the variables that `main` binds: what is left after fusion.
inline std::vector<std::string> Bound(const ir::IRModule& mod) {
  std::vector<std::string> names;
  for (const ir::BindingBlock& block :
       mod->Lookup("main").as<ir::Function>().value()->body->blocks) {
    for (const ir::Binding& binding : block->bindings) names.emplace_back(binding->var->name);
  }
  return names;
}

}  // namespace relaxvm::testing
