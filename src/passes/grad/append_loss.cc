// SPDX-License-Identifier: Apache-2.0
// AppendLoss: of a backbone and a loss makes the function that a training step differentiates.
//   backbone(x, w) = (out, state)    loss(predictions, targets) = value
//   backbone_loss(x, w, targets) = (loss(out, targets), state)
// The first `num_backbone_outputs` results of the backbone are the first arguments of the loss; its
// other parameters follow those of the backbone, and the backbone's other results follow the value.
// Both bodies must be one dataflow block.  Sizes of the loss are those of the results that it gets.
// Stage: graph.  Options: func_name, loss_function, num_backbone_outputs, new_func_name (null:
// func_name + "_loss").
#include <unordered_set>
#include <utility>

#include "ops/op_def.h"
#include "passes/canonical/bind.h"
#include "passes/pass.h"

namespace relaxvm::passes {
namespace {

using ir::Expr;
using ir::Function;
using ir::Var;

template <typename... Parts>
[[noreturn]] void Reject(const Function& at, const Parts&... parts) {
  Fail(ErrorKind::kAttribute, at->span.Place(), "AppendLoss: ", parts...);
}

ffi::Array<ir::Binding> BindingsOf(const Function& func, const char* what) {
  const auto& blocks = func->body->blocks;
  if (blocks.size() != 1 || !blocks[0].as<ir::DataflowBlockObj>()) {
    Reject(func, "the body of the ", what, " must be one dataflow block");
  }
  return blocks[0]->bindings;
}

std::vector<Var> ResultsOf(const Function& backbone) {
  std::vector<Var> results;
  auto add = [&](const Expr& e) {
    auto var = e.as<Var>();
    if (!var) {
      Reject(backbone,
             "the backbone must give a variable or a tuple of variables; bind each result");
    }
    results.push_back(*var);
  };
  const Expr& body = backbone->body->body;
  if (const auto* tuple = body.as<ir::TupleObj>()) {
    for (const Expr& field : tuple->fields) add(field);
  } else {
    add(body);
  }
  return results;
}

void CheckLossValue(const Function& loss) {
  const Expr& value = loss->body->body;
  const auto* type = value->ty.as<ir::TensorTypeObj>();
  if (!value.as<ir::VarObj>() || type == nullptr || type->ndim != 0) {
    Reject(loss, "the loss must give one scalar tensor, got ", ops::DescribeType(value->ty));
  }
}

// The loss with its first parameters replaced by the backbone's results.
Function BindPredictions(const Function& loss, const std::vector<Var>& results, int64_t count) {
  if (count > static_cast<int64_t>(results.size())) {
    Reject(loss, "num_backbone_outputs is ", count, ", but the backbone gives ", results.size(),
           " values");
  }
  if (count < 0 || count > static_cast<int64_t>(loss->params.size())) {
    Reject(loss, "num_backbone_outputs is ", count, ", but the loss has ", loss->params.size(),
           " parameters");
  }
  ffi::Map<Var, Expr> params, sizes;
  for (int64_t i = 0; i < count; ++i) {
    const Var& param = loss->params[i];
    const bool fits = MatchSizes(param->ty, results[i]->ty, &sizes);
    if (!fits || !ir::StructuralEqual(ir::Substitute(param->ty, sizes), results[i]->ty)) {
      Reject(loss, "result ", i, " of the backbone is ", ops::DescribeType(results[i]->ty),
             ", but parameter ", param->name, " of the loss is ", ops::DescribeType(param->ty));
    }
    params.Set(param, results[i]);
  }
  return BindFunction(loss, params, sizes);
}

// Results that the function no longer gives are visible inside of the dataflow block only.
class HideResults : public ir::Mutator {
 public:
  std::unordered_set<const ffi::Object*> hidden;

  Var MutateDef(const Var& v) override {
    if (!hidden.count(v.get())) return ir::Mutator::MutateDef(v);
    ir::DataflowVar inner(v->name, v->ty, v->span);
    Replace(v, inner);
    return inner;
  }
};

Function Join(const Function& backbone, const Function& loss, int64_t count) {
  ffi::Array<ir::Binding> bindings = BindingsOf(backbone, "backbone");
  const ffi::Array<ir::Binding> loss_bindings = BindingsOf(loss, "loss");
  CheckLossValue(loss);
  const std::vector<Var> results = ResultsOf(backbone);
  const Function bound = BindPredictions(loss, results, count);

  for (const ir::Binding& binding : BindingsOf(bound, "loss")) bindings.push_back(binding);
  ffi::Array<Var> params = backbone->params;
  for (const Var& param : bound->params) params.push_back(param);

  HideResults hide;
  for (int64_t i = 0; i < count; ++i) hide.hidden.insert(results[i].get());
  ffi::Array<Expr> values{bound->body->body};
  for (size_t i = count; i < results.size(); ++i) values.push_back(results[i]);
  for (const Expr& value : values) hide.hidden.erase(value.get());
  for (const Var& param : params) hide.hidden.erase(param.get());
  ffi::Array<ir::Type> types = values.Map([](const Expr& e) { return e->ty; });
  Expr result = values[0];
  if (values.size() > 1) {
    result = ir::Tuple(values);
    result->ty = ir::TupleType(types);
  }
  ir::SeqExpr body({ir::DataflowBlock(bindings)}, result, backbone->body->span);
  Function joined(params, body, result->ty, backbone->is_pure && loss->is_pure, backbone->attrs,
                  backbone->span);
  return CopyWithFreshVars(hide.Mutate(joined).as<Function>().value());
}

}  // namespace

IRModule AppendLoss(IRModule mod, const PassContext& context) {
  const auto name = context.Option<ffi::String>("func_name");
  const auto loss = context.Option<Function>("loss_function");
  const auto new_name = context.Option<ffi::Optional<ffi::String>>("new_func_name")
                            .value_or(ffi::String(std::string(name) + "_loss"));
  auto backbone = mod->Lookup(name).as<Function>();
  if (!backbone.has_value()) {
    Fail(ErrorKind::kTypeError, "AppendLoss: ", name, " is no Relax function");
  }
  if (mod->FindVar(new_name).has_value()) {
    Reject(*backbone, "the module has a function ", new_name, " already; give new_func_name");
  }
  Function joined = Join(*backbone, loss, context.Option<int64_t>("num_backbone_outputs"));
  ir::DictAttrs attrs = joined->attrs;
  attrs.Set(ir::attr::kGlobalSymbol, new_name);
  IRModule result = mod;
  result.Update(new_name, Function(joined->params, joined->body, joined->ret_ty, joined->is_pure,
                                   attrs, joined->span));
  return result;
}

}  // namespace relaxvm::passes
