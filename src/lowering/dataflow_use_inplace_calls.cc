// SPDX-License-Identifier: Apache-2.0
// DataflowUseInplaceCalls: elementwise operators write over an argument that nobody reads any more.
// They become call_tir_inplace of a tensor program, NAME_inplace.  Stage: graph, in dataflow
// blocks.
#include "lowering/dataflow_use_inplace_calls.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "analysis/dataflow_values.h"
#include "analysis/program_inplace.h"
#include "lowering/op_to_program.h"
#include "tir/functor.h"

namespace relaxvm::lowering {
namespace {

using ir::Expr;
using ir::Var;

class BufferReplacer : public tir::StmtMutator {
 public:
  BufferReplacer(const Var& from, const Var& to) { Replace(from, to); }
};

// Equal arguments are passed once: memory that is written has one name.
ProgramCall WithoutEqualArguments(ProgramCall call) {
  ffi::Array<Expr> args;
  ffi::Array<Var> params;
  tir::Stmt body = call.program->body;
  for (size_t i = 0; i < call.args.size(); ++i) {
    auto same = std::find_if(args.begin(), args.end(),
                             [&](const Expr& e) { return e.same_as(call.args[i]); });
    if (same == args.end()) {
      args.push_back(call.args[i]);
      params.push_back(call.program->params[i]);
    } else {
      body = BufferReplacer(call.program->params[i], params[same - args.begin()]).Mutate(body);
    }
  }
  for (size_t i = call.args.size(); i < call.program->params.size(); ++i)
    params.push_back(call.program->params[i]);
  call.args = args;
  call.program = tir::PrimFunc(params, body, call.program->attrs, call.program->span);
  return call;
}

}  // namespace

std::optional<Expr> MakeInplaceCall(const ir::Call& call, size_t arg, ir::BlockBuilder* builder) {
  const ir::OpObj* op = ir::CalledOp(call.get());
  if (op == nullptr || arg >= call->args.size() || !ops::RecordOf(op).compute) return std::nullopt;
  const ProgramCall made = WithoutEqualArguments(OpToProgram(call, *builder->context()));
  const auto at =
      static_cast<size_t>(std::find_if(made.args.begin(), made.args.end(),
                                       [&](const Expr& e) { return e.same_as(call->args[arg]); }) -
                          made.args.begin());
  const auto overwritable = analysis::OverwritableParams(made.program);
  if (std::find(overwritable.begin(), overwritable.end(), static_cast<int64_t>(at)) ==
      overwritable.end())
    return std::nullopt;
  ffi::Array<Var> params = made.program->params;
  const size_t out = made.args.size();  // the result comes right after the tensors that are read
  tir::Stmt body = BufferReplacer(params[out], params[at]).Mutate(made.program->body);
  params.erase(params.begin() + static_cast<int64_t>(out));
  const std::string name = std::string(op->name);
  const ir::GlobalVar func = builder->AddFunction(
      tir::RenewDefs(tir::PrimFunc(params, body, made.program->attrs, made.program->span)),
      name.substr(name.rfind('.') + 1) + "_inplace");
  ffi::Array<Expr> args = {func, ir::Tuple(made.args)};
  if (!made.tir_vars.empty()) args.push_back(ir::ShapeExpr(made.tir_vars));
  const ffi::Array<int64_t> indices = {static_cast<int64_t>(at)};
  return builder->Normalize(ops::MakeCall("relax.call_tir_inplace", args,
                                          {{"inplace_indices", indices}}, {call->ty}, call->span));
}

namespace {

class Rewriter : public ir::Mutator {
 public:
  explicit Rewriter(ir::BlockBuilder* builder) : builder_(builder) {}

  Expr MutateFunction(const ir::Function& func) override {
    const ffi::Array<Var> outer = std::exchange(params_, func->params);
    Expr result = ir::Mutator::MutateFunction(func);
    params_ = outer;
    return result;
  }

  ir::BindingBlock MutateBlock(const ir::BindingBlock& block) override {
    if (!block.as<ir::DataflowBlockObj>()) return ir::Mutator::MutateBlock(block);
    const auto found = analysis::FindInplaceCalls(block, params_, *builder_->context());
    ffi::Array<ir::Binding> bindings = block->bindings;
    for (const analysis::InplaceCall& call : found.same_shape) {
      const ir::Binding& binding = block->bindings[call.binding];
      const auto value = ffi::GetRef<ir::Call>(binding->value.as<ir::CallObj>());
      // Of two arguments that would do, the last.
      const auto made = MakeInplaceCall(value, static_cast<size_t>(*call.args.rbegin()), builder_);
      if (made) bindings.Set(call.binding, ir::VarBinding(binding->var, *made, binding->span));
    }
    return bindings.same_as(block->bindings)
               ? block
               : ir::BindingBlock(ir::DataflowBlock(bindings, block->span));
  }
  Expr MutateOther(const Expr& e) override { return e; }

 private:
  ir::BlockBuilder* builder_;
  ffi::Array<Var> params_;
};

}  // namespace

ir::IRModule UseInplaceCalls(const ir::IRModule& mod) {
  std::unique_ptr<ir::TypeContext> facts = ops::MakeTypeContext();
  ir::BlockBuilder builder(facts.get(), mod);
  Rewriter rewriter(&builder);
  for (const auto& [var, func] : mod->functions) {
    auto function = func.as<ir::Function>();
    if (!function) continue;
    Expr made = rewriter.MutateFunction(*function);
    if (!made.same_as(func)) builder.UpdateFunction(var, made.as<ir::Function>().value());
  }
  return builder.module();
}

}  // namespace relaxvm::lowering
