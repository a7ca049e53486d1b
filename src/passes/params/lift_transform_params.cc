// SPDX-License-Identifier: Apache-2.0
// LiftTransformParams: what a function computes from its weights alone (parameters after the first
// "num_input") moves into a function <name>_transform_params, which is run once.  Stage: graph.
// The function then takes, instead of the weights, those that it still reads and what was computed.
// Config: relax.lift_transform_params.consume_params frees each weight once it was read.
#include <algorithm>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "analysis/calls.h"
#include "analysis/reads.h"
#include "ir/block_builder.h"
#include "ir/visitor.h"
#include "passes/canonical/bind.h"
#include "passes/params/bundle.h"
#include "passes/pass.h"

namespace relaxvm::passes {
namespace {

using analysis::VarsIn;
using ir::Expr;
using ir::Var;

constexpr const char* kSuffix = "transform_params";
using Objects = std::unordered_set<const ffi::Object*>;

bool IsStop(const Expr& value) {
  return analysis::CallsOp(value, "relax.builtin.stop_lift_params");
}

// May the value be computed ahead of time, as far as its own kind goes?
bool MayMove(const ir::Binding& b) {
  const Expr& value = b->value;
  return b.as<ir::VarBindingObj>() && !value.as<ir::IfObj>() && !value.as<ir::FunctionObj>() &&
         !value.as<ir::SeqExprObj>() && !IsStop(value) && !analysis::HasEffect(value) &&
         !analysis::OverwritesArguments(value);
}

// One function and which of its bindings depend on weights only.
struct Subject {
  ir::GlobalVar var;
  ir::Function func;
  size_t num_input;
  std::vector<ir::Binding> bindings;  // of its body, in order
  std::vector<ir::Binding> movable;   // computed from weights and constants
  Objects from_weights;               // variables of `movable` that depend on a weight
  std::unordered_map<const ffi::Object*, ir::Binding> binding_of;

  Var weight(size_t i) const { return func->params[num_input + i]; }
  size_t num_weights() const { return func->params.size() - num_input; }
};

Subject Analyze(const ir::GlobalVar& var, const ir::Function& func, int64_t num_input) {
  Subject s{var, func, static_cast<size_t>(num_input), {}, {}, {}, {}};
  Objects known;
  for (size_t i = 0; i < s.num_weights(); ++i) {
    const Var w = s.weight(i);
    known.insert(w.get());
    s.from_weights.insert(w.get());
    for (const Var& size : ir::DefinableSymbolicVars(w->ty)) {
      known.insert(size.get());
      s.from_weights.insert(size.get());
    }
  }
  for (const ir::BindingBlock& block : func->body->blocks) {
    for (const ir::Binding& b : block->bindings) {
      s.bindings.push_back(b);
      s.binding_of.emplace(b->var.get(), b);
      if (!MayMove(b)) continue;
      VarsIn vars;
      vars.Visit(b->value);
      vars.VisitType(b->var->ty);
      bool all = true, any = false;
      for (const ir::VarObj* v : vars.found) {
        all &= known.count(v) != 0;
        any |= s.from_weights.count(v) != 0;
      }
      if (!all) continue;
      known.insert(b->var.get());
      if (any) s.from_weights.insert(b->var.get());
      s.movable.push_back(b);
    }
  }
  return s;
}

// Sizes, also inside of types, and variables that the function still reads when `moved` is gone.
Objects ReadAfter(const Subject& s, const Objects& moved) {
  VarsIn vars;
  for (const ir::Binding& b : s.bindings) {
    if (moved.count(b->var.get())) continue;
    vars.Visit(b->value);
    vars.VisitType(b->var->ty);
    if (auto* cast = b.as<ir::MatchCastObj>()) vars.VisitType(cast->ty);
  }
  vars.Visit(s.func->body->body);
  vars.VisitType(s.func->ret_ty);
  return Objects(vars.found.begin(), vars.found.end());
}

void AddDefined(const ir::Type& type, Objects* defined) {
  for (const Var& v : ir::DefinableSymbolicVars(type)) defined->insert(v.get());
}

// What the transformation gives, as variables of the first function.
struct Plan {
  std::vector<size_t> kept_weights;  // numbers, read as they are
  std::vector<ir::Binding> results;  // moved bindings that functions read
  std::vector<ir::Binding> moved;    // all that the transformation computes
};

class Lifter {
 public:
  explicit Lifter(std::vector<Subject> subjects) : subjects_(std::move(subjects)) {
    for (const Subject& s : subjects_) RequireSameWeights(s);
  }

  // The transformation on weights as separate parameters; null when every weight is kept and
  // nothing is moved.
  Plan MakePlan() {
    Plan plan;
    const Subject& first = subjects_[0];
    for (const ir::Binding& b : first.movable) {
      if (InAll(b)) plan.moved.push_back(b);
    }
    std::vector<Objects> moved(subjects_.size()), read(subjects_.size());
    for (size_t j = 0; j < subjects_.size(); ++j) {
      for (const ir::Binding& b : plan.moved) {
        if (first.from_weights.count(b->var.get())) moved[j].insert(Mapped(j, b->var).get());
      }
      read[j] = ReadAfter(subjects_[j], moved[j]);
    }
    auto is_read = [&](const Var& v) {
      for (size_t j = 0; j < subjects_.size(); ++j) {
        if (read[j].count(Mapped(j, v).get())) return true;
      }
      return false;
    };
    for (const ir::Binding& b : plan.moved) {
      if (first.from_weights.count(b->var.get()) && is_read(b->var)) plan.results.push_back(b);
    }
    for (size_t i = 0; i < first.num_weights(); ++i) {
      if (is_read(first.weight(i))) plan.kept_weights.push_back(i);
    }
    AddWeightsForSizes(read, &plan);
    DropUnneeded(&plan);
    return plan;
  }

  ir::Function Transformation(const Plan& plan) const {
    const Subject& first = subjects_[0];
    ffi::Array<Var> params;
    for (size_t i = 0; i < first.num_weights(); ++i) params.push_back(first.weight(i));
    ffi::Array<ir::Binding> bindings;
    std::unordered_map<const ffi::Object*, Var> inner;
    ffi::Map<Var, Expr> renamed;
    for (const ir::Binding& b : plan.moved) {
      Var v = ir::DataflowVar(b->var->name, b->var->ty, b->var->span);
      bindings.push_back(ir::VarBinding(v, ir::Substitute(b->value, renamed), b->span));
      renamed.Set(b->var, v);
    }
    ffi::Array<Expr> fields;
    for (size_t i : plan.kept_weights) fields.push_back(first.weight(i));
    for (const ir::Binding& b : plan.results) fields.push_back(renamed[b->var]);
    ffi::Map<ffi::String, ffi::Any> attrs = {{ir::attr::kNumInput, ffi::Any(int64_t{0})}};
    Expr tuple = ir::Tuple(fields);
    if (fields.empty()) return ir::Function(params, tuple, tuple->ty, true, attrs);
    Var out("transformed", tuple->ty);
    bindings.push_back(ir::VarBinding(out, tuple));
    return ir::Function(params, ir::SeqExpr({ir::DataflowBlock(bindings)}, out), out->ty, true,
                        attrs);
  }

  bool KeepsAll(const Plan& plan) const {
    return plan.results.empty() && plan.kept_weights.size() == subjects_[0].num_weights();
  }

  // Function `j` without what moved.
  ir::Function Remaining(size_t j, const Plan& plan) {
    const Subject& s = subjects_[j];
    ffi::Array<Var> params(s.func->params.begin(), s.func->params.begin() + s.num_input);
    for (size_t i : plan.kept_weights) params.push_back(s.weight(i));
    Objects gone;
    ffi::Map<Var, Expr> renamed;
    for (const ir::Binding& b : plan.moved) {
      if (!subjects_[0].from_weights.count(b->var.get())) continue;
      gone.insert(Mapped(j, b->var).get());
    }
    for (const ir::Binding& b : plan.results) {
      Var v = Mapped(j, b->var);
      Var param(v->name, v->ty, v->span);
      params.push_back(param);
      renamed.Set(v, param);
    }
    return Without(s, gone, renamed, params);
  }

 private:
  void RequireSameWeights(const Subject& s) const {
    const Subject& first = subjects_[0];
    ffi::Array<ir::Type> a, b;
    for (size_t i = 0; i < first.num_weights(); ++i) a.push_back(first.weight(i)->ty);
    for (size_t i = 0; i < s.num_weights(); ++i) b.push_back(s.weight(i)->ty);
    if (ir::StructuralEqual(a, b, true)) return;
    Fail(ErrorKind::kRuntimeError, s.func->span.Place(), "LiftTransformParams: functions ",
         first.var->name_hint, " and ", s.var->name_hint,
         " are to share one transformation, but their weights differ in number, shape or dtype; "
         "name the functions that share in shared_transform");
  }

  Var Mapped(size_t j, const Var& v) const {
    if (j == 0) return v;
    auto it = maps_.find(j);
    if (it == maps_.end()) return v;
    auto at = it->second.find(v);
    return at == it->second.end() ? v : (*at).second.as<Var>().value();
  }

  // Does every other function compute the same from the same weights?  Notes where.
  bool InAll(const ir::Binding& b) {
    std::vector<Var> found;
    for (size_t j = 1; j < subjects_.size(); ++j) {
      const Subject& s = subjects_[j];
      ffi::Map<Var, Expr>& map = maps_[j];
      if (map.empty()) {
        for (size_t i = 0; i < s.num_weights(); ++i) {
          map.Set(subjects_[0].weight(i), s.weight(i));
          MatchSizes(subjects_[0].weight(i)->ty, s.weight(i)->ty, &map);
        }
      }
      Expr wanted = ir::Substitute(b->value, map);
      auto it = std::find_if(s.movable.begin(), s.movable.end(), [&](const ir::Binding& other) {
        return ir::StructuralEqual(other->value, wanted);
      });
      if (it == s.movable.end()) return false;
      found.push_back((*it)->var);
    }
    for (size_t j = 1; j < subjects_.size(); ++j) maps_[j].Set(b->var, found[j - 1]);
    return true;
  }

  // Sizes that a function still needs and nothing else tells it come with the weight that has them.
  void AddWeightsForSizes(const std::vector<Objects>& read, Plan* plan) const {
    for (size_t j = 0; j < subjects_.size(); ++j) {
      const Subject& s = subjects_[j];
      Objects defined;
      for (size_t i = 0; i < s.num_input; ++i) {
        defined.insert(s.func->params[i].get());
        AddDefined(s.func->params[i]->ty, &defined);
      }
      for (size_t i : plan->kept_weights) AddDefined(s.weight(i)->ty, &defined);
      for (const ir::Binding& b : plan->results) AddDefined(Mapped(j, b->var)->ty, &defined);
      for (const ir::Binding& b : plan->results) Require(j, b->var->ty, defined, plan);
      for (size_t i = 0; i < s.num_weights(); ++i) {
        Objects gives;
        AddDefined(s.weight(i)->ty, &gives);
        for (const ffi::Object* v : gives) {
          if (read[j].count(v) && !defined.count(v)) {
            Keep(i, plan);
            defined.insert(gives.begin(), gives.end());
            break;
          }
        }
      }
    }
  }
  // Sizes inside the type of a result: the weight that defines them is kept.
  void Require(size_t j, const ir::Type& type, const Objects& defined, Plan* plan) const {
    if (j != 0) return;
    for (const Var& v : ir::SymbolicVars(type)) {
      if (defined.count(v.get())) continue;
      for (size_t i = 0; i < subjects_[0].num_weights(); ++i) {
        Objects gives;
        AddDefined(subjects_[0].weight(i)->ty, &gives);
        if (gives.count(v.get()) || subjects_[0].weight(i).same_as(v)) Keep(i, plan);
      }
    }
  }
  static void Keep(size_t i, Plan* plan) {
    auto& kept = plan->kept_weights;
    if (std::find(kept.begin(), kept.end(), i) != kept.end()) return;
    kept.push_back(i);
    std::sort(kept.begin(), kept.end());
  }

  // What no result needs is not computed.
  static void DropUnneeded(Plan* plan) {
    Objects needed;
    for (const ir::Binding& b : plan->results) needed.insert(b->var.get());
    std::vector<ir::Binding> moved;
    for (size_t k = plan->moved.size(); k-- > 0;) {
      const ir::Binding& b = plan->moved[k];
      if (!needed.count(b->var.get())) continue;
      VarsIn vars;
      vars.Visit(b->value);
      needed.insert(vars.found.begin(), vars.found.end());
      moved.push_back(b);
    }
    plan->moved.assign(moved.rbegin(), moved.rend());
  }

  static ir::Function Without(const Subject& s, const Objects& gone, ffi::Map<Var, Expr> renamed,
                              const ffi::Array<Var>& params) {
    std::unordered_map<const ffi::Object*, int> uses;
    auto count = [&](const Expr& e) {
      VarsIn vars;
      vars.Visit(e);
      for (const ir::VarObj* v : vars.found) ++uses[v];
    };
    Objects used_before;
    for (const ir::Binding& b : s.bindings) count(b->value);
    count(s.func->body->body);
    for (const auto& [v, n] : uses) used_before.insert(v);
    uses.clear();
    for (const ir::Binding& b : s.bindings) {
      if (!gone.count(b->var.get())) count(b->value);
    }
    count(s.func->body->body);
    ffi::Array<ir::BindingBlock> blocks;
    for (const ir::BindingBlock& block : s.func->body->blocks) {
      ffi::Array<ir::Binding> kept;
      for (const ir::Binding& b : block->bindings) {
        const ffi::Object* v = b->var.get();
        if (gone.count(v)) continue;
        // A constant that only moved values read has moved with them.
        const bool left_alone = !uses.count(v) && used_before.count(v) && MayMove(b);
        if (left_alone) continue;
        if (IsStop(b->value)) {
          renamed.Set(b->var, ir::Substitute(b->value.as<ir::CallObj>()->args[0], renamed));
          continue;
        }
        kept.push_back(b);
      }
      if (kept.empty()) continue;
      blocks.push_back(block.as<ir::DataflowBlockObj>()
                           ? ir::BindingBlock(ir::DataflowBlock(kept, block->span))
                           : ir::BindingBlock(kept, block->span));
    }
    ir::Function made(params, ir::SeqExpr(blocks, s.func->body->body, s.func->body->span),
                      s.func->ret_ty, s.func->is_pure, s.func->attrs, s.func->span);
    return BindFunction(made, renamed, {});
  }

  std::vector<Subject> subjects_;
  std::unordered_map<size_t, ffi::Map<Var, Expr>> maps_;
};

// `second` after `first`: both take one tuple and give one.
ir::Function Composed(const ir::Function& first, const ir::Function& second) {
  if (first->params.size() != 1 || second->params.size() != 1) {
    Fail(ErrorKind::kValueError, first->span.Place(), "LiftTransformParams: the function ", kSuffix,
         " that the module has already must take one tuple of all weights");
  }
  if (first->body->body.same_as(first->params[0])) return second;  // gives what it takes
  ir::Function a = CopyWithFreshVars(first), b = CopyWithFreshVars(second);
  ir::Function bound = BindFunction(b, {{b->params[0], a->body->body}}, {});
  ffi::Array<ir::BindingBlock> blocks = a->body->blocks;
  for (const ir::BindingBlock& block : bound->body->blocks) blocks.push_back(block);
  return ir::Function(a->params, ir::SeqExpr(blocks, bound->body->body), bound->ret_ty, true,
                      a->attrs);
}

bool EndsWith(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// Functions to lift from, sorted by name.
std::vector<Subject> Subjects(const IRModule& mod) {
  std::vector<Subject> out;
  for (const auto& [var, func] : mod->functions) {
    auto f = func.as<ir::Function>();
    const int64_t inputs = f ? ir::GetAttr<int64_t>((*f)->attrs, ir::attr::kNumInput, -1) : -1;
    if (inputs < 0 || EndsWith(std::string(var->name_hint), kSuffix)) continue;
    if (inputs > static_cast<int64_t>((*f)->params.size())) {
      Fail(ErrorKind::kValueError, (*f)->span.Place(), "LiftTransformParams: num_input of ",
           var->name_hint, " is ", inputs, ", but it has ", (*f)->params.size(), " parameters");
    }
    out.push_back(Analyze(var, *f, inputs));
  }
  std::sort(out.begin(), out.end(),
            [](const Subject& a, const Subject& b) { return a.var->name_hint < b.var->name_hint; });
  return out;
}

IRModule Lift(IRModule mod, const std::vector<Subject>& subjects, const std::string& name,
              bool consume) {
  Lifter lifter(subjects);
  Plan plan = lifter.MakePlan();
  auto before = mod->Find(name);
  auto earlier = before ? before.value().as<ir::Function>() : std::nullopt;
  if (lifter.KeepsAll(plan) && earlier) return mod;
  ir::Function transform = CopyWithFreshVars(lifter.Transformation(plan));
  BundleOptions options;
  options.consume = consume;
  const bool identity = lifter.KeepsAll(plan) && !plan.kept_weights.empty() && !consume;
  transform = BundleParams(transform, 0, options);
  if (identity) {
    transform = ir::Function(transform->params, transform->params[0], transform->params[0]->ty,
                             true, transform->attrs);
  }
  if (earlier) transform = Composed(*earlier, transform);
  for (size_t j = 0; j < subjects.size(); ++j) {
    mod.Update(subjects[j].var->name_hint, lifter.Remaining(j, plan));
  }
  mod.Update(name, ir::WithAttr(transform, ir::attr::kGlobalSymbol, ffi::String(name)));
  return mod;
}

}  // namespace

IRModule LiftTransformParams(IRModule mod, const PassContext& context) {
  std::vector<Subject> subjects = Subjects(mod);
  if (subjects.empty()) return mod;
  bool consume = false;
  auto it = context.config.find("relax.lift_transform_params.consume_params");
  if (it != context.config.end()) consume = (*it).second.cast<bool>();
  const ffi::Any shared = context.options["shared_transform"];
  if (auto names = shared.as<ffi::Array<ffi::String>>()) {
    std::vector<Subject> named;
    for (const ffi::String& name : names.value()) {
      auto at = std::find_if(subjects.begin(), subjects.end(),
                             [&](const Subject& s) { return s.var->name_hint == name; });
      if (at == subjects.end()) {
        Fail(ErrorKind::kValueError, "LiftTransformParams: there is no function ", name,
             " with attribute num_input to share a transformation");
      }
      named.push_back(*at);
    }
    if (named.empty()) return mod;
    std::sort(named.begin(), named.end(), [](const Subject& a, const Subject& b) {
      return a.var->name_hint < b.var->name_hint;
    });
    return Lift(std::move(mod), named, kSuffix, consume);
  }
  if (shared.cast<bool>()) return Lift(std::move(mod), subjects, kSuffix, consume);
  for (const Subject& s : subjects) {
    mod = Lift(std::move(mod), {s}, std::string(s.var->name_hint) + "_" + kSuffix, consume);
  }
  return mod;
}

}  // namespace relaxvm::passes
