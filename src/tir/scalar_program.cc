// SPDX-License-Identifier: Apache-2.0
#include "tir/scalar_program.h"

#include <utility>
#include <vector>

#include "ir/prim.h"
#include "ir/visitor.h"
#include "tir/functor.h"

namespace relaxvm::tir {
namespace {

// Statements that follow one another; the first is the last element.
using Rest = std::vector<Stmt>;

bool IsScalarFormula(const Expr& e) {
  class Check : public StmtVisitor {
   public:
    bool holds = true;
    void VisitCall(const ir::CallObj*) override { holds = false; }
    void VisitOther(const ir::ExprObj*) override { holds = false; }
  };
  Check check;
  check.Visit(e);
  return check.holds;
}

constexpr int kMostSteps = 4096;  // statements behind a branch count once for each of its sides

Expr ValueOf(Rest rest, int* steps) {
  if (rest.empty() || ++*steps > kMostSteps) return Expr();
  Stmt first = rest.back();
  rest.pop_back();
  if (const auto* seq = first.as<SeqStmtObj>()) {
    for (size_t i = seq->seq.size(); i > 0; --i) rest.push_back(seq->seq[i - 1]);
    return ValueOf(std::move(rest), steps);
  }
  if (const auto* eval = first.as<EvaluateObj>()) {
    if (!IsScalarFormula(eval->value)) return Expr();
    const auto* ret = eval->value.as<ir::IntrinObj>();
    if (ret != nullptr && ret->intrin == ir::Intrin::kRet) return ret->args[0];
    return ValueOf(std::move(rest), steps);
  }
  if (const auto* bind = first.as<BindObj>()) {
    if (!IsScalarFormula(bind->value)) return Expr();
    Expr value = ValueOf(std::move(rest), steps);
    return value.defined() ? WithValue(bind->var, bind->value, value) : value;
  }
  if (const auto* branch = first.as<IfThenElseObj>()) {
    if (!IsScalarFormula(branch->condition)) return Expr();
    Rest other = rest;
    rest.push_back(branch->then_case);
    if (branch->else_case.defined()) other.push_back(branch->else_case);
    Expr yes = ValueOf(std::move(rest), steps), no = ValueOf(std::move(other), steps);
    if (!yes.defined() || !no.defined()) return Expr();
    return ir::IfThenElse(branch->condition, yes, no);
  }
  return Expr();
}

}  // namespace

Expr WithValue(const Var& var, const Expr& value, const Expr& body) {
  class Uses : public StmtVisitor {
   public:
    explicit Uses(const Var& var) : var_(var) {}
    int count = 0;
    void VisitVar(const ir::VarObj* v) override { count += v == var_.get() ? 1 : 0; }

   private:
    const Var& var_;
  };
  Uses uses(var);
  uses.Visit(body);
  const bool is_leaf =
      value.as<ir::VarObj>() || value.as<ir::IntImmObj>() || value.as<ir::FloatImmObj>();
  ffi::Map<Var, Expr> map;
  if (is_leaf || uses.count <= 1) {
    map.Set(var, value);
    return tir::Substitute(body, map);
  }
  Var fresh(var->name, var->ty, var->span);
  map.Set(var, fresh);
  return ir::LetExpr(fresh, value, tir::Substitute(body, map));
}

bool ReturnsScalar(const PrimFunc& func) {
  return func->ret_type.defined() && func->ret_type.as<ir::PrimTypeObj>() &&
         !ir::IsVoidType(func->ret_type);
}

Expr ReturnedValue(const PrimFunc& func) {
  if (!ReturnsScalar(func) || !func->body.defined()) return Expr();
  for (const Var& param : func->params) {
    if (!ir::IsPrim(param)) return Expr();
  }
  int steps = 0;
  return ValueOf({func->body}, &steps);
}

PrimFunc WithResult(const PrimFunc& func, const ir::Type& type) {
  auto node = ffi::make_object<PrimFuncObj>(*func.get());
  node->ret_type = type;
  auto result = ir::NodeRef<PrimFunc>(std::move(node));
  result->ty = ir::FuncType::Opaque(type, /*purity=*/ReturnedValue(result).defined());
  return result;
}

PrimFunc MakeScalarProgram(ffi::Array<Var> params, Expr value, ir::DictAttrs attrs) {
  ir::Type type = value->ty;
  Stmt body = Evaluate(ir::CallIntrin(value.dtype(), ir::Intrin::kRet, {value}));
  return WithResult(PrimFunc(std::move(params), body, std::move(attrs)), type);
}

}  // namespace relaxvm::tir
