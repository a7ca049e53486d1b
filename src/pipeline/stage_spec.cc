// SPDX-License-Identifier: Apache-2.0
// One function a rule.  A rule holds in its stage and in all later ones, until a row says where it
// ends.
#include "pipeline/stage_spec.h"

#include <functional>
#include <sstream>
#include <string_view>
#include <unordered_set>

#include "analysis/core_ops.h"
#include "analysis/well_formed.h"
#include "ir/op.h"
#include "ir/prim.h"
#include "ir/visitor.h"
#include "ops/op_def.h"
#include "tir/functor.h"

namespace relaxvm::pipeline {
namespace {

namespace ffi = tvm::ffi;
using analysis::CoreOp;
using ir::Expr;

// Calls `report` with a message for the first thing that is illegal.
using Report = std::function<void(const std::string&)>;
using RuleFn = void (*)(const ir::IRModule&, const Report&);

// Visits the functions of a module; `where` begins a message.
class FunctionVisitor : public ir::Visitor {
 public:
  explicit FunctionVisitor(const Report& report) : report_(report) {}
  void Run(const ir::IRModule& mod) {
    for (const auto& [var, func] : mod->functions) {
      const auto* function = func.as<ir::FunctionObj>();
      if (function == nullptr) continue;
      name_ = var->name_hint;
      VisitFunction(function);
    }
  }
  void VisitDef(const ir::Var& var) override {}  // types are free to keep sizes
  void VisitType(const ir::Type& type) override {}

 protected:
  template <typename... Parts>
  void Found(const Parts&... parts) {
    std::ostringstream text;
    text << "function '" << name_ << "': ";
    (text << ... << parts);
    report_(text.str());
  }

 private:
  const Report& report_;
  std::string name_;
};

// graph: the rules of the language itself.  Types may keep sizes that lowering has taken away, and
// what a call names is asked from stage `lowered` on.
void WellFormed(const ir::IRModule& mod, const Report& report) {
  for (const analysis::Finding& found : analysis::CheckWellFormed(mod)) {
    std::string_view rule = found.rule;
    if (rule == "sizes-are-defined" || rule == "called-function-exists") continue;
    report(found.message + " [" + found.rule + "]");
  }
}

// Visits each operator call with its record.
class OpVisitor : public FunctionVisitor {
 public:
  using FunctionVisitor::FunctionVisitor;
  virtual void VisitOpCall(const ir::CallObj* call, const ir::OpObj* op, CoreOp core) = 0;
  void VisitCall(const ir::CallObj* call) override {
    if (const ir::OpObj* op = ir::CalledOp(call)) VisitOpCall(call, op, analysis::CoreOpOf(call));
    FunctionVisitor::VisitCall(call);
  }
};

// lowered: what is left of operators are calls, memory, views and closures.
void NoOperators(const ir::IRModule& mod, const Report& report) {
  class Check : public OpVisitor {
   public:
    using OpVisitor::OpVisitor;
    void VisitOpCall(const ir::CallObj*, const ir::OpObj* op, CoreOp core) override {
      if (core == CoreOp::kNone) Found("operator ", std::string(op->name), " is not lowered");
    }
  };
  Check(report).Run(mod);
}

// lowered: functions are functions of the module, not values inside of one.
void NoLocalFunctions(const ir::IRModule& mod, const Report& report) {
  class Check : public FunctionVisitor {
   public:
    using FunctionVisitor::FunctionVisitor;
    void VisitFunction(const ir::FunctionObj* func) override {
      if (inside_) Found("there is a local function");
      bool outer = std::exchange(inside_, true);
      FunctionVisitor::VisitFunction(func);
      inside_ = outer;
    }

   private:
    bool inside_ = false;
  };
  Check(report).Run(mod);
}

// lowered: call_tir names a tensor program of the module and says the type of its result.
void ProgramsExist(const ir::IRModule& mod, const Report& report) {
  class Check : public OpVisitor {
   public:
    Check(const Report& report, const ir::IRModule& mod) : OpVisitor(report), mod_(mod) {}
    void VisitOpCall(const ir::CallObj* call, const ir::OpObj* op, CoreOp core) override {
      if (core != CoreOp::kCallTir && core != CoreOp::kCallTirInplace &&
          core != CoreOp::kCallTirWithGrad)
        return;
      const auto* var = call->args[0].as<ir::GlobalVarObj>();
      auto callee = var ? mod_->Find(var->name_hint) : std::nullopt;
      if (!callee.has_value() || !callee.value().as<tir::PrimFuncObj>()) {
        Found(std::string(op->name), " calls ", var ? std::string(var->name_hint) : "a value",
              ", which is no tensor program of the module");
      }
    }

   private:
    const ir::IRModule& mod_;
  };
  Check(report, mod).Run(mod);
}

// lowered: a tensor program uses only its parameters and what it defines.
void ProgramsAreClosed(const ir::IRModule& mod, const Report& report) {
  class Check : public tir::StmtVisitor {
   public:
    void VisitVar(const ir::VarObj* var) override { Use(var); }
    void VisitBufferLoad(const tir::BufferLoadObj* load) override {
      Use(load->buffer.get());
      tir::StmtVisitor::VisitBufferLoad(load);
    }
    void VisitBufferStore(const tir::BufferStoreObj* store) override {
      Use(store->buffer.get());
      tir::StmtVisitor::VisitBufferStore(store);
    }
    void VisitBind(const tir::BindObj* s) override {
      tir::StmtVisitor::VisitBind(s);
      defined.insert(s->var.get());
    }
    void VisitAllocBuffer(const tir::AllocBufferObj* s) override {
      defined.insert(s->buffer.get());
      tir::StmtVisitor::VisitAllocBuffer(s);
    }
    void VisitFor(const tir::ForObj* s) override {
      defined.insert(s->loop_var.get());
      tir::StmtVisitor::VisitFor(s);
    }
    void VisitLet(const ir::LetObj* l) override {
      defined.insert(l->var.get());
      tir::StmtVisitor::VisitLet(l);
    }
    void VisitSBlock(const tir::SBlockObj* s) override {
      for (const tir::IterVar& axis : s->iter_vars) defined.insert(axis->var.get());
      for (const ir::Var& buffer : s->alloc_buffers) defined.insert(buffer.get());
      tir::StmtVisitor::VisitSBlock(s);
    }
    void Use(const ir::VarObj* var) {
      if (!defined.count(var) && unknown.empty()) unknown = var->name;
    }
    std::unordered_set<const ffi::Object*> defined;
    std::string unknown;
  };
  for (const auto& [var, func] : mod->functions) {
    const auto* program = func.as<tir::PrimFuncObj>();
    if (program == nullptr) continue;
    Check check;
    for (const ir::Var& param : program->params) {
      check.defined.insert(param.get());
      if (!tir::IsBuffer(param)) continue;
      for (const Expr& dim : tir::Buffer(param).shape()) {
        if (dim.as<ir::VarObj>()) check.defined.insert(dim.get());
      }
    }
    check.Visit(program->body);
    if (!check.unknown.empty())
      report("tensor program '" + std::string(var->name_hint) + "' uses '" + check.unknown +
             "', which it does not define");
  }
}

// planned: results are allocated by the program, destination passing is explicit.
void MemoryIsExplicit(const ir::IRModule& mod, const Report& report) {
  class Check : public OpVisitor {
   public:
    using OpVisitor::OpVisitor;
    void VisitOpCall(const ir::CallObj*, const ir::OpObj* op, CoreOp core) override {
      switch (core) {
        case CoreOp::kCallTir:
        case CoreOp::kCallTirInplace:
        case CoreOp::kCallTirWithGrad:
        case CoreOp::kCallDpsPacked: Found(std::string(op->name), " hides an allocation"); break;
        default: break;
      }
    }
  };
  Check(report).Run(mod);
}

// planned, at its end: every tensor lies in a storage.
void TensorsHaveStorage(const ir::IRModule& mod, const Report& report) {
  class Check : public OpVisitor {
   public:
    using OpVisitor::OpVisitor;
    void VisitOpCall(const ir::CallObj*, const ir::OpObj* op, CoreOp core) override {
      if (core == CoreOp::kBuiltinAllocTensor) Found(std::string(op->name), " has no storage");
    }
  };
  Check(report).Run(mod);
}

// planned, at its end: no dataflow blocks, because memory has effects.
void NoDataflow(const ir::IRModule& mod, const Report& report) {
  class Check : public FunctionVisitor {
   public:
    using FunctionVisitor::FunctionVisitor;
    void VisitBlock(const ir::BindingBlock& block) override {
      if (block.as<ir::DataflowBlockObj>()) Found("there is a dataflow block");
      FunctionVisitor::VisitBlock(block);
    }
  };
  Check(report).Run(mod);
}

// planned, at its end: a variable is not used after it was killed.
void NoUseAfterKill(const ir::IRModule& mod, const Report& report) {
  class Check : public FunctionVisitor {
   public:
    using FunctionVisitor::FunctionVisitor;
    void VisitVar(const ir::VarObj* var) override {
      if (killed_.count(var))
        Found("variable '", std::string(var->name), "' is used after it was killed");
    }
    void VisitIf(const ir::IfObj* branch) override {
      Visit(branch->cond);
      auto before = killed_;
      Visit(branch->true_branch);
      auto after = std::exchange(killed_, before);
      Visit(branch->false_branch);
      killed_.insert(after.begin(), after.end());
    }
    void VisitBinding(const ir::Binding& binding) override {
      FunctionVisitor::VisitBinding(binding);
      killed_.erase(binding->var.get());
      switch (analysis::CoreOpOfValue(binding->value)) {
        case CoreOp::kKillStorage:
        case CoreOp::kKillTensor:
        case CoreOp::kVmKillObject:
          killed_.insert(binding->value.as<ir::CallObj>()->args[0].get());
          break;
        default: break;
      }
    }

   private:
    std::unordered_set<const ffi::Object*> killed_;
  };
  Check(report).Run(mod);
}

// shapes, at its end: sizes are numbers in registers or on the heap.
void NoSymbolicSizes(const ir::IRModule& mod, const Report& report) {
  class Check : public FunctionVisitor {
   public:
    using FunctionVisitor::FunctionVisitor;
    void VisitShape(const ir::ShapeExprObj* shape) override {
      for (const Expr& dim : shape->values) {
        if (!ir::AsInt(dim).has_value())
          Found("a shape has the symbolic size ", ops::DescribeExpr(dim));
      }
    }
    void VisitBinary(const ir::BinaryObj* b) override {
      Found("the scalar ", ops::DescribeExpr(ffi::GetRef<Expr>(b)), " is computed by nothing");
    }
    void VisitBinding(const ir::Binding& binding) override {
      if (binding.as<ir::MatchCastObj>())
        Found("a match_cast of '", std::string(binding->var->name), "' is left");
      FunctionVisitor::VisitBinding(binding);
    }
  };
  Check(report).Run(mod);
}

// shapes, at its end: operators are those that VMCodeGen knows.
void OnlyVmCalls(const ir::IRModule& mod, const Report& report) {
  class Check : public OpVisitor {
   public:
    using OpVisitor::OpVisitor;
    void VisitOpCall(const ir::CallObj*, const ir::OpObj* op, CoreOp core) override {
      switch (core) {
        case CoreOp::kVmAllocStorage:
        case CoreOp::kVmAllocTensor:
        case CoreOp::kVmKillObject:
        case CoreOp::kCallBuiltinWithCtx:
        case CoreOp::kNullValue: break;
        default: Found(std::string(op->name), " is no call of the virtual machine");
      }
    }
  };
  Check(report).Run(mod);
}

enum class When { kAlways, kAtEnd };

struct Rule {
  const char* stage;  // the first stage it holds in
  const char* until;  // the last one
  const char* name;
  When when;  // in its first stage
  RuleFn check;
  const char* meaning;
};

constexpr const char* kStages[] = {"graph", "lowered", "scheduled", "planned", "shapes"};

constexpr Rule kRules[] = {
    {"graph", "scheduled", "well_formed", When::kAlways, WellFormed,
     "names are defined once, before use and in their scope; values are bound; types are known; "
     "pure code is pure"},
    {"lowered", "shapes", "no_operators", When::kAlways, NoOperators,
     "operators are calls of tensor programs, of packed functions and of the VM"},
    {"lowered", "shapes", "no_local_functions", When::kAlways, NoLocalFunctions,
     "functions are functions of the module; closures are made by make_closure"},
    {"lowered", "shapes", "programs_exist", When::kAlways, ProgramsExist,
     "call_tir names a tensor program of the module"},
    {"lowered", "shapes", "programs_are_closed", When::kAlways, ProgramsAreClosed,
     "a tensor program uses only its parameters and what it defines"},
    {"planned", "shapes", "memory_is_explicit", When::kAtEnd, MemoryIsExplicit,
     "destination passing is explicit: no call hides an allocation"},
    {"planned", "shapes", "tensors_have_storage", When::kAtEnd, TensorsHaveStorage,
     "every tensor lies in a storage"},
    {"planned", "shapes", "no_dataflow", When::kAtEnd, NoDataflow, "there are no dataflow blocks"},
    {"planned", "shapes", "no_use_after_kill", When::kAtEnd, NoUseAfterKill,
     "a killed variable is not used again"},
    {"shapes", "shapes", "no_symbolic_sizes", When::kAtEnd, NoSymbolicSizes,
     "sizes are numbers in registers or on the shape heap; no match_cast is left"},
    {"shapes", "shapes", "only_vm_calls", When::kAtEnd, OnlyVmCalls,
     "operators are those that the VM runs"},
};

int StageIndex(const std::string& stage) {
  int i = 0;
  for (const char* name : kStages) {
    if (stage == name) return i;
    ++i;
  }
  return -1;
}

}  // namespace

std::optional<Violation> FindViolation(const ir::IRModule& mod, const std::string& stage,
                                       bool complete) {
  int now = StageIndex(stage);
  if (now < 0) return std::nullopt;  // a stage of a user's own pipeline: no spec
  for (const Rule& rule : kRules) {
    int from = StageIndex(rule.stage);
    if (now < from || now > StageIndex(rule.until)) continue;
    if (now == from && rule.when == When::kAtEnd && !complete) continue;
    std::optional<Violation> found;
    rule.check(mod, [&](const std::string& message) {
      if (!found) found = Violation{rule.name, message};
    });
    if (found) return found;
  }
  return std::nullopt;
}

void CheckStage(const ir::IRModule& mod, const std::string& stage, bool complete,
                const std::string& pass) {
  std::optional<Violation> found = FindViolation(mod, stage, complete);
  if (!found) return;
  Fail(ErrorKind::kValueError, "after pass ", pass, ": the module breaks rule '", found->rule,
       "' of stage '", stage, "': ", found->message);
}

std::vector<RuleInfo> AllRules() {
  std::vector<RuleInfo> rules;
  for (const Rule& rule : kRules) rules.push_back({rule.stage, rule.name, rule.meaning});
  return rules;
}

}  // namespace relaxvm::pipeline
