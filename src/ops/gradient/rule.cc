// SPDX-License-Identifier: Apache-2.0
// The table of gradient rules, and what rules have in common.
#include "ops/gradient/rule.h"

#include <mutex>
#include <string>
#include <unordered_map>

#include "ir/prim.h"
#include "ops/number.h"

namespace relaxvm::ops {

Expr GradientCall::Make(const char* op, ffi::Array<Expr> args, const AttrMap& attrs) const {
  return MakeCall(op, std::move(args), attrs, {}, call->span);
}

Expr GradientCall::Step(const char* op, ffi::Array<Expr> args, const AttrMap& attrs) const {
  return builder_.Emit(Make(op, std::move(args), attrs));
}

Expr GradientCall::Number(double value, size_t like) const {
  const DLDataType dtype = Tensor(like)->dtype;
  return NumberOf(dtype, value,
                  [&](const Expr& narrow) { return Step("astype", {narrow}, {{"dtype", dtype}}); });
}

void GradientCall::FailUnknown(size_t i, const char* what) const {
  const OpDef& def = RecordOf(ir::CalledOp(call.get()));
  Fail(ErrorKind::kValueError, call->span.Place(), def.name, ": its gradient needs the ", what,
       " of ", i < def.args.size() ? def.args[i].name : "an argument", ", which is unknown");
}

const ir::TensorTypeObj* GradientCall::Tensor(size_t i) const {
  const auto* type = arg(i)->ty.as<ir::TensorTypeObj>();
  if (type == nullptr || type->IsUnknownDtype()) FailUnknown(i, "element type");
  return type;
}

int64_t GradientCall::Rank(size_t i) const {
  const ir::TensorTypeObj* type = Tensor(i);
  if (type->IsUnknownRank()) FailUnknown(i, "rank");
  return type->ndim;
}

Dims GradientCall::Shape(size_t i) const {
  auto dims = Tensor(i)->GetShape();
  if (!dims.has_value()) FailUnknown(i, "shape");
  return *dims;
}

Expr GradientCall::Fit(Expr value, size_t i) const {
  value = builder_.Normalize(value);
  const auto* type = value->ty.as<ir::TensorTypeObj>();
  const Dims target = Shape(i);
  auto given = type == nullptr ? ffi::Optional<Dims>() : type->GetShape();
  bool same = given.has_value() && given.value().size() == target.size();
  for (size_t d = 0; same && d < target.size(); ++d) {
    same = builder_.context()->ProveEqual(given.value()[d], target[d]);
  }
  if (same) return value;
  return Make("collapse_sum_to", {value, ir::ShapeExpr(target)});
}

Expr GradientCall::Count(const Dims& dims, size_t i) const {
  double known = 1;
  Expr unknown;
  for (const Expr& dim : dims) {
    if (const auto* number = dim.as<ir::IntImmObj>()) {
      known *= static_cast<double>(number->value);
    } else {
      unknown = unknown.defined() ? unknown * dim : dim;
    }
  }
  if (!unknown.defined()) return Number(known, i);
  Expr count = Step("shape_to_tensor", {ir::ShapeExpr({unknown})});
  count = Step("astype", {Step("reshape", {count, ir::ShapeExpr(Dims())})},
               {{"dtype", Tensor(i)->dtype}});
  return known == 1 ? count : Step("multiply", {count, Number(known, i)});
}

namespace {

struct OutsideTable {
  std::mutex mutex;
  std::unordered_map<std::string, OutsideGradientRule> rules;
};
OutsideTable& GetOutsideTable() {
  static auto* table = new OutsideTable();  // NOLINT
  return *table;
}

}  // namespace

void SetOutsideGradient(const std::string& op, OutsideGradientRule rule) {
  OutsideTable& table = GetOutsideTable();
  std::lock_guard<std::mutex> lock(table.mutex);
  if (rule) {
    table.rules[op] = std::move(rule);
  } else {
    table.rules.erase(op);
  }
}

OutsideGradientRule FindOutsideGradient(const std::string& op) {
  OutsideTable& table = GetOutsideTable();
  std::lock_guard<std::mutex> lock(table.mutex);
  auto it = table.rules.find(op);
  return it == table.rules.end() ? OutsideGradientRule() : it->second;
}

GradientRule FindGradientRule(const ir::OpObj* op) {
  static const auto* table = [] {
    auto* rules = new std::unordered_map<std::string, GradientRule>();
    for (auto family : {ActivationGradients, ElementwiseGradients, MoveGradients, NeuralGradients,
                        NormGradients, ReductionGradients, ShapeGradients, WindowGradients}) {
      for (const GradientRow& row : family()) {
        RELAXVM_CHECK(rules->emplace("relax." + std::string(row.op), row.rule).second) << row.op;
      }
    }
    return rules;
  }();
  auto it = table->find(op->name);
  return it == table->end() ? nullptr : it->second;
}

}  // namespace relaxvm::ops
