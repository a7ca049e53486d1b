// SPDX-License-Identifier: Apache-2.0
// One walk over every function; each rule is one method.
#include "analysis/well_formed.h"

#include <unordered_map>
#include <unordered_set>

#include "analysis/calls.h"
#include "ir/visitor.h"
#include "tir/stmt.h"

namespace relaxvm::analysis {
namespace {

namespace ffi = tvm::ffi;
using ir::Expr;
using ir::Var;

bool IsScalarNode(const Expr& e) {
  return e.as<ir::IntImmObj>() || e.as<ir::FloatImmObj>() || e.as<ir::BinaryObj>() ||
         e.as<ir::CastObj>() || e.as<ir::SelectObj>() || e.as<ir::LetObj>() ||
         e.as<ir::IntrinObj>();
}

class Checker {
 public:
  Checker(const ir::IRModule* mod, size_t limit) : mod_(mod), limit_(limit) {}

  std::vector<Finding> findings;

  void Run(const std::string& name, const ir::Function& f) {
    function_ = name;
    visible_.clear();
    sizes_.clear();
    defined_.clear();
    CheckFunction(f);
  }

  void RuleExportedNamesAreUnique() {
    std::unordered_map<std::string, std::string> seen;
    for (const auto& [var, func] : (*mod_)->functions) {
      auto symbol = ir::GetAttr<ffi::String>(func->attrs, ir::attr::kGlobalSymbol, "");
      if (symbol.empty()) continue;
      function_ = var->name_hint;
      auto [it, added] = seen.emplace(symbol, function_);
      if (!added) {
        Report("unique-exported-names", func->span, "exported as ", symbol, ", and so is function ",
               it->second);
      }
      if (func.as<ir::FunctionObj>() && symbol != var->name_hint) {
        Report("exported-name-is-name", func->span, "exported as ", symbol,
               "; NormalizeGlobalVar makes names agree");
      }
    }
  }

 private:
  template <typename... Parts>
  void Report(const char* rule, const ir::Span& span, const Parts&... parts) {
    if (findings.size() >= limit_) return;
    std::ostringstream text;
    text << "function " << function_ << ": ";
    (text << ... << parts);
    findings.push_back({rule, text.str(), span});
  }

  // ---- scopes

  // Names and sizes that are visible in the sequence that is being walked.
  struct Mark {
    size_t vars;
    size_t sizes;
  };
  Mark Here() const { return {visible_order_.size(), size_order_.size()}; }
  void Leave(Mark mark) {
    for (; visible_order_.size() > mark.vars; visible_order_.pop_back())
      visible_.erase(visible_order_.back());
    for (; size_order_.size() > mark.sizes; size_order_.pop_back())
      sizes_.erase(size_order_.back());
  }
  void DefineSizes(const ir::Type& type) {
    if (!type.defined()) return;
    for (const Var& v : ir::DefinableSymbolicVars(type)) DefineSize(v.get());
  }
  void DefineSize(const ffi::Object* v) {
    if (sizes_.insert(v).second) size_order_.push_back(v);
  }

  // ---- rules

  void RuleOneDefinition(const Var& var) {
    if (!defined_.insert(var.get()).second)
      Report("one-definition", var->span, var->name, " is defined twice");
  }

  void RuleDefinedBeforeUse(const ir::VarObj* var) {
    if (visible_.count(var)) return;
    if (var->IsInstance<ir::DataflowVarObj>() && defined_.count(var)) {
      Report("dataflow-variable-stays-inside", var->span, var->name,
             " is used outside of its dataflow block; R.output makes it visible");
    } else {
      Report("defined-before-use", var->span, var->name, " is used but not defined there");
    }
  }

  void RuleSizesAreDefined(const ir::Type& type, const std::string& where) {
    if (!type.defined()) return;
    for (const Var& v : ir::SymbolicVars(type)) {
      if (!sizes_.count(v.get()) && !visible_.count(v.get())) {
        Report("sizes-are-defined", v->span, "size ", v->name, " in the type of ", where,
               " is not defined by a parameter or a match_cast before");
      }
    }
  }

  void RuleHasType(const Expr& e, const std::string& what) {
    if (!e->ty.defined())
      Report("types-are-present", e->span, what, " has no type; Normalize infers it");
  }

  void RuleDataflowVarInBlock(const Var& var, bool dataflow) {
    if (var.as<ir::DataflowVarObj>() && !dataflow) {
      Report("dataflow-variable-in-dataflow-block", var->span, var->name,
             " is defined outside of a dataflow block");
    }
  }

  void RuleNoControlFlowInDataflow(const ir::Binding& binding) {
    if (Branches(binding->value)) {
      Report("no-control-flow-in-dataflow", binding->span, "the value of ", binding->var->name,
             " branches inside a dataflow block");
    }
  }

  // A tensor program called by its name writes into what the function itself has allocated, and a
  // pure function of the module or one held by a variable does nothing, although a call without a
  // result looks as if it did.
  bool CallsHarmlessFunction(const Expr& value) const {
    auto* call = value.as<ir::CallObj>();
    if (call != nullptr && call->op.as<ir::VarObj>() != nullptr && call->op->ty.defined()) {
      auto* type = call->op->ty.as<ir::FuncTypeObj>();
      return type != nullptr && type->purity;
    }
    auto* name = call != nullptr ? call->op.as<ir::GlobalVarObj>() : nullptr;
    if (name == nullptr || mod_ == nullptr) return false;
    auto func = (*mod_)->Find(name->name_hint);
    if (!func) return false;
    auto* relax = func.value().as<ir::FunctionObj>();
    return relax != nullptr ? relax->is_pure : func.value().as<tir::PrimFuncObj>() != nullptr;
  }

  void RuleNoEffectInDataflow(const ir::Binding& binding) {
    if (HasEffect(binding->value) && !CallsHarmlessFunction(binding->value)) {
      Report("no-effect-in-dataflow", binding->span, "the value of ", binding->var->name,
             " has an effect inside a dataflow block");
    }
  }

  void RulePureFunctionCallsPure(const ir::Binding& binding) {
    if (!pure_ || binding->value.as<ir::FunctionObj>() || !HasEffect(binding->value)) return;
    if (Branches(binding->value)) return;  // reported for the binding inside
    if (CallsHarmlessFunction(binding->value)) return;
    Report("pure-function-is-pure", binding->span, "the value of ", binding->var->name,
           " has an effect, but the function is pure; declare it with pure=False, or call through "
           "call_pure_packed");
  }

  void RuleArgumentIsLeaf(const Expr& arg, const std::string& where) {
    if (auto* tuple = arg.as<ir::TupleObj>()) {
      for (const Expr& field : tuple->fields) RuleArgumentIsLeaf(field, where);
      return;
    }
    bool leaf = arg.as<ir::VarObj>() || arg.as<ir::GlobalVarObj>() || arg.as<ir::ConstantObj>() ||
                arg.as<ir::ShapeExprObj>() || arg.as<ir::StringImmObj>() ||
                arg.as<ir::DataTypeImmObj>() || arg.as<ir::OpObj>() ||
                arg.as<ir::ExternFuncObj>() || CallsOp(arg, "relax.null_value") ||
                IsScalarNode(arg);
    if (!leaf) {
      Report("arguments-are-leaves", arg->span, "an argument in the value of ", where,
             " is computed in place; Normalize gives it a variable");
    }
  }

  void RuleFunctionExists(const ir::GlobalVarObj* var) {
    if (mod_ != nullptr && !(*mod_)->FindVar(var->name_hint)) {
      Report("called-function-exists", var->span, "there is no function ", var->name_hint,
             " in the module");
    }
  }

  void RuleParameter(const Var& param) {
    if (param.as<ir::DataflowVarObj>()) {
      Report("parameter-is-no-dataflow-variable", param->span, "parameter ", param->name,
             " is a dataflow variable");
    }
    RuleHasType(param, "parameter " + std::string(param->name));
  }

  void RuleCasesFit(const ir::MatchObj* match, const std::string& where) {
    const ir::MatchCaseObj* at = nullptr;
    std::string mistake = ir::MistakeInCases(match->value->ty, match->cases, &at);
    if (mistake.empty()) return;
    Report("match-covers-all", at != nullptr ? at->span : match->span, "the match of ", where, ": ",
           mistake);
  }

  void RuleDataTypeIsDeclared(const ir::ConstructorObj* constructor) {
    if (mod_ == nullptr) return;
    auto it = (*mod_)->global_infos.find(ir::kDataTypes);
    if (it != (*mod_)->global_infos.end()) {
      for (const ir::GlobalInfo& info : (*it).second) {
        if (info.same_as(constructor->adt) || ir::StructuralEqual(info, constructor->adt)) return;
      }
    }
    Report("data-type-is-declared", constructor->span, "the module does not declare the data type ",
           constructor->adt->name, " that ", constructor->FullName(), " belongs to");
  }

  void RuleForcePureIsPure(const ir::Function& f) {
    if (ir::GetAttr<bool>(f->attrs, ir::attr::kForcePure, false) && !f->is_pure) {
      Report("force-pure-is-pure", f->span,
             "has attribute relax.force_pure, but is not declared pure");
    }
  }

  void RuleProgramCallFits(const Expr& value, const std::string& where) {
    auto* call = value.as<ir::CallObj>();
    if (call == nullptr || !CallsTensorProgram(value)) return;
    if (call->args.size() < 2 || !call->args[1].as<ir::TupleObj>()) {
      Report("call-tir-takes-a-tuple", value->span, "the value of ", where,
             ": the arguments must be a tuple");
      return;
    }
    auto* name = call->args[0].as<ir::GlobalVarObj>();
    if (name == nullptr || mod_ == nullptr) return;
    auto func = (*mod_)->Find(name->name_hint);
    if (!func) return;  // reported where the name is
    auto* program = func.value().as<tir::PrimFuncObj>();
    if (program == nullptr) {
      Report("call-tir-calls-a-tensor-program", value->span, "the value of ", where, ": ",
             name->name_hint, " is no tensor program");
      return;
    }
    CheckArgumentCount(call, program, where, name->name_hint);
  }

  void CheckArgumentCount(const ir::CallObj* call, const tir::PrimFuncObj* program,
                          const std::string& where, const ffi::String& name) {
    if (!CallsOp(ffi::GetRef<Expr>(call), "relax.call_tir")) return;
    size_t given = call->args[1].as<ir::TupleObj>()->fields.size();
    auto* results = call->ty_args.empty() ? nullptr : call->ty_args[0].as<ir::TupleTypeObj>();
    given += results != nullptr ? results->fields.size() : 1;
    if (call->args.size() > 2) {
      auto* shape = call->args[2]->ty.as<ir::ShapeTypeObj>();
      if (shape == nullptr || shape->ndim < 0) return;
      given += static_cast<size_t>(shape->ndim);
    }
    if (given != program->params.size()) {
      Report("call-tir-fits-the-program", call->span, "the value of ", where, ": ", name, " has ",
             program->params.size(), " parameters, but ", given,
             " arguments and results are given");
    }
  }

  // The operator's own normal form (an argument added, arguments as a tuple).
  void RuleCallIsNormal(const ir::Call& call, const std::string& where) {
    const ir::OpObj* op = ir::CalledOp(call.get());
    if (op == nullptr || !op->normalize || CallsTensorProgram(call)) return;
    ir::Call normal = op->normalize(call);
    if (normal.same_as(call) || ir::StructuralEqual(normal, call)) return;
    Report("call-is-normal", call->span, "the value of ", where, ": the call of ", op->name,
           " is not in the operator's normal form; Normalize brings it there");
  }

  // ---- the walk

  void Define(const Var& var, bool dataflow) {
    RuleOneDefinition(var);
    RuleDataflowVarInBlock(var, dataflow);
    RuleHasType(var, std::string(var->name));
    if (visible_.insert(var.get()).second) visible_order_.push_back(var.get());
  }

  void CheckFunction(const ir::Function& f) {
    Mark mark = Here();
    bool outer_pure = pure_;
    pure_ = f->is_pure && !ir::GetAttr<bool>(f->attrs, ir::attr::kForcePure, false);
    RuleForcePureIsPure(f);
    for (const Var& param : f->params) {
      RuleParameter(param);
      DefineSizes(param->ty);
      Define(param, false);
    }
    for (const Var& param : f->params) RuleSizesAreDefined(param->ty, std::string(param->name));
    Mark inside = Here();
    CheckSequence(f->body, /*keep_scope=*/true);
    RuleSizesAreDefined(f->ret_ty, "the result");
    Leave(inside);
    pure_ = outer_pure;
    Leave(mark);
  }

  void CheckSequence(const ir::SeqExpr& seq, bool keep_scope) {
    Mark mark = Here();
    for (const ir::BindingBlock& block : seq->blocks) CheckBlock(block);
    RuleArgumentIsLeaf(seq->body, "the result");
    CheckUses(seq->body, "the result");
    if (!keep_scope) Leave(mark);
  }

  void CheckBlock(const ir::BindingBlock& block) {
    bool dataflow = block.as<ir::DataflowBlockObj>() != nullptr;
    for (const ir::Binding& binding : block->bindings) {
      if (dataflow) {
        RuleNoControlFlowInDataflow(binding);
        RuleNoEffectInDataflow(binding);
      }
      RulePureFunctionCallsPure(binding);
      // A local function may call itself.
      bool function = binding->value.as<ir::FunctionObj>() != nullptr;
      if (function) Define(binding->var, dataflow);
      CheckValue(binding->value, std::string(binding->var->name));
      if (auto* cast = binding.as<ir::MatchCastObj>()) DefineSizes(cast->ty);
      if (!function) Define(binding->var, dataflow);
      RuleSizesAreDefined(binding->var->ty, std::string(binding->var->name));
    }
    if (!dataflow) return;
    for (const ir::Binding& binding : block->bindings) {
      if (binding->var.as<ir::DataflowVarObj>()) visible_.erase(binding->var.get());
    }
  }

  void CheckValue(const Expr& value, const std::string& where) {
    if (auto* branch = value.as<ir::IfObj>()) {
      RuleArgumentIsLeaf(branch->cond, where);
      CheckUses(branch->cond, where);
      CheckSequence(branch->true_branch, false);
      CheckSequence(branch->false_branch, false);
      return;
    }
    if (auto* match = value.as<ir::MatchObj>()) {
      RuleArgumentIsLeaf(match->value, where);
      CheckUses(match->value, where);
      RuleCasesFit(match, where);
      for (const ir::MatchCase& c : match->cases) {
        Mark mark = Here();
        if (c->constructor.has_value()) RuleDataTypeIsDeclared(c->constructor.value().get());
        for (const Var& var : c->vars) Define(var, false);
        CheckSequence(c->body, false);
        Leave(mark);
      }
      return;
    }
    if (auto function = value.as<ir::Function>()) return CheckFunction(*function);
    if (auto* call = value.as<ir::CallObj>()) {
      RuleHasType(value, "the value of " + where);
      auto* constructor = call->op.as<ir::ConstructorObj>();
      if (constructor != nullptr) {
        RuleDataTypeIsDeclared(constructor);
      } else if (!call->op.as<ir::OpObj>()) {
        RuleArgumentIsLeaf(call->op, where);
      }
      for (const Expr& arg : call->args) RuleArgumentIsLeaf(arg, where);
      RuleProgramCallFits(value, where);
      RuleCallIsNormal(ffi::GetRef<ir::Call>(call), where);
    } else if (auto* item = value.as<ir::TupleGetItemObj>()) {
      RuleArgumentIsLeaf(item->tuple_value, where);
    } else {
      RuleArgumentIsLeaf(value, where);
    }
    CheckUses(value, where);
  }

  // Variables, sizes and functions that an expression names.
  void CheckUses(const Expr& e, const std::string& where) {
    class Uses : public ir::Visitor {
     public:
      std::vector<const ir::VarObj*> vars;
      std::vector<const ir::GlobalVarObj*> globals;
      void VisitVar(const ir::VarObj* v) override { vars.push_back(v); }
      void VisitGlobalVar(const ir::GlobalVarObj* v) override { globals.push_back(v); }
      void VisitOther(const ir::ExprObj*) override {}
    } uses;
    uses.Visit(e);
    for (const ir::VarObj* v : uses.vars) {
      if (v->ty.defined() && v->ty.as<ir::PrimTypeObj>() && sizes_.count(v)) continue;
      RuleDefinedBeforeUse(v);
    }
    for (const ir::GlobalVarObj* v : uses.globals) RuleFunctionExists(v);
  }

  const ir::IRModule* mod_;
  size_t limit_;
  std::string function_;
  bool pure_ = true;
  std::unordered_set<const ffi::Object*> visible_, sizes_, defined_;
  std::vector<const ffi::Object*> visible_order_, size_order_;
};

}  // namespace

std::vector<Finding> CheckWellFormed(const ir::IRModule& mod, size_t limit) {
  Checker checker(&mod, limit);
  checker.RuleExportedNamesAreUnique();
  for (const auto& [var, func] : mod->functions) {
    if (auto f = func.as<ir::Function>()) checker.Run(std::string(var->name_hint), *f);
  }
  return std::move(checker.findings);
}

std::vector<Finding> CheckWellFormed(const ir::Function& func, size_t limit) {
  Checker checker(nullptr, limit);
  checker.Run(ir::GetAttr<ffi::String>(func->attrs, ir::attr::kGlobalSymbol, "(private)"), func);
  return std::move(checker.findings);
}

void RequireWellFormed(const ir::IRModule& mod, const std::string& when) {
  std::vector<Finding> findings = CheckWellFormed(mod);
  if (findings.empty()) return;
  std::string text = "the module is not well formed " + when + ":";
  for (const Finding& f : findings) text += "\n  " + f.message + " [" + f.rule + "]";
  Fail(ErrorKind::kValueError, findings[0].span.Place(), text);
}

}  // namespace relaxvm::analysis
