// SPDX-License-Identifier: Apache-2.0
// LowerDataTypes: a constructor call becomes alloc_adt, and
//   match v:                          If get_tag(v) (or has_tag(v, k) where the tag is not 0):
//     case A(): ...            ->       ...
//     case B(x, y): ...               else: x = get_field(v, 0), ...
// A field whose type says more than that it is a value is checked where it is taken out, since
// values also come from outside.  Stage: graph.  Needs: normal form.  Keeps: names, types, spans.
#include <algorithm>
#include <unordered_set>

#include "analysis/core_ops.h"
#include "ir/prim.h"
#include "ir/visitor.h"
#include "passes/pass.h"

namespace relaxvm::passes {
namespace {

using analysis::CoreOp;
using ir::Expr;
using ir::IntImm;
using ir::Type;
using ir::Var;

Expr Builtin(const char* name, ffi::Array<Expr> args, const Type& type, const ir::Span& span) {
  args.insert(args.begin(), ir::ExternFunc(name));
  return ir::Call(analysis::GetCoreOp(CoreOp::kCallPurePacked), std::move(args), ir::Attrs(),
                  {type}, span, type);
}

// A tensor, shape, tuple or function may be another one than the type says.
bool NeedsCast(const Type& type) {
  return type.as<ir::TensorTypeObj>() || type.as<ir::ShapeTypeObj>() ||
         type.as<ir::TupleTypeObj>() || type.as<ir::FuncTypeObj>();
}

class Lowerer : public ir::Mutator {
 public:
  Expr MutateCall(const ir::Call& input) override {
    Expr mutated = ir::Mutator::MutateCall(input);
    const auto* call = mutated.as<ir::CallObj>();
    const auto* constructor = call->op.as<ir::ConstructorObj>();
    if (constructor == nullptr) return mutated;
    ffi::Array<Expr> args = call->args;
    args.insert(args.begin(), IntImm(Int(64), constructor->tag));
    return Builtin("vm.builtin.alloc_adt", args, call->ty, call->span);
  }

  void MutateBinding(const ir::Binding& binding, ffi::Array<ir::Binding>* out) override {
    auto match = binding->value.as<ir::Match>();
    if (!match.has_value()) return ir::Mutator::MutateBinding(binding, out);
    Expr value = Lower(*match, out);
    out->push_back(ir::VarBinding(MutateDef(binding->var), value, binding->span));
  }

  Var MutateDef(const Var& v) override {
    if (plain_depth_ == 0 || !v.as<ir::DataflowVarObj>()) return ir::Mutator::MutateDef(v);
    Var fresh(v->name, MutateType(v->ty), v->span);
    Replace(v, fresh);
    return fresh;
  }

  Expr MutateMatch(const ir::Match& match) override {
    Fail(ErrorKind::kValueError, match->span.Place(),
         "LowerDataTypes: the match is not the value of a binding; run Normalize first");
  }

 private:
  // The tests go into `out`; the result is an If, or what the only case gives.
  Expr Lower(const ir::Match& match, ffi::Array<ir::Binding>* out) {
    Expr value = Mutate(match->value);
    std::vector<ir::MatchCase> cases(match->cases.begin(), match->cases.end());
    // The last case is what is left.  The bindings of an only case come to stand among those around
    // it: they are not in dataflow blocks any more.
    const bool only = cases.size() == 1;
    plain_depth_ += only;
    ir::SeqExpr rest = Body(value, cases.back());
    plain_depth_ -= only;
    ffi::Array<ir::Binding> tests;
    Expr result = rest;
    for (size_t i = cases.size() - 1; i-- > 0;) {
      const ir::MatchCase& c = cases[i];
      const int64_t tag = c->constructor.value()->tag;
      ir::SeqExpr body = Body(value, c);
      Var cond = tag == 0 ? Var("tag", Int(64)) : Var("is_it", Bool());
      Expr test = tag == 0 ? Builtin("vm.builtin.get_tag", {value}, cond->ty, c->span)
                           : Builtin("vm.builtin.has_tag", {value, IntImm(Int(64), tag)}, cond->ty,
                                     c->span);
      if (!tests.empty()) rest = Bound(tests, result, match->ty);
      ir::If branch(cond, tag == 0 ? rest : body, tag == 0 ? body : rest, c->span);
      branch->ty = match->ty;
      tests = {ir::VarBinding(cond, test, c->span)};
      result = branch;
    }
    for (const ir::Binding& test : tests) out->push_back(test);
    if (!only) return result;
    for (const ir::BindingBlock& block : rest->blocks) {
      for (const ir::Binding& b : block->bindings) out->push_back(b);
    }
    return rest->body;
  }

  // { tests; v = value } v
  static ir::SeqExpr Bound(ffi::Array<ir::Binding> bindings, const Expr& value, const Type& type) {
    Var var("rest", type);
    bindings.push_back(ir::VarBinding(var, value));
    return ir::SeqExpr({ir::BindingBlock(std::move(bindings))}, var);
  }

  ir::SeqExpr Body(const Expr& value, const ir::MatchCase& c) {
    std::unordered_set<const ffi::Object*> used;
    for (const Var& v : ir::FreeVars(c->body)) used.insert(v.get());
    ffi::Array<ir::Binding> fields;
    for (size_t i = 0; i < c->vars.size(); ++i) {
      if (used.count(c->vars[i].get())) TakeOut(value, static_cast<int64_t>(i), c, &fields);
    }
    ir::SeqExpr body = Mutate(c->body).as<ir::SeqExpr>().value();
    if (fields.empty()) return body;
    ffi::Array<ir::BindingBlock> blocks = body->blocks;
    blocks.insert(blocks.begin(), ir::BindingBlock(fields));
    ir::SeqExpr result(std::move(blocks), body->body, body->span);
    result->ty = body->ty;
    return result;
  }

  void TakeOut(const Expr& value, int64_t index, const ir::MatchCase& c,
               ffi::Array<ir::Binding>* out) {
    Var var = MutateDef(c->vars[index]);
    const bool cast = NeedsCast(var->ty);
    const Type type = cast ? Type(ir::AnyType()) : var->ty;
    Expr field = Builtin("vm.builtin.get_field", {value, IntImm(Int(64), index)}, type, c->span);
    if (!cast) {
      out->push_back(ir::VarBinding(var, field, c->span));
      return;
    }
    Var found(var->name, type);
    out->push_back(ir::VarBinding(found, field, c->span));
    out->push_back(ir::MatchCast(var, found, var->ty, c->span));
  }

  int plain_depth_ = 0;
};

}  // namespace

IRModule LowerDataTypes(IRModule mod, const PassContext& context) {
  return ir::MutateFunctions(mod, [](const ir::GlobalVar&, const ir::Function& func) {
    return Lowerer().MutateFunction(func).as<ir::Function>().value();
  });
}

}  // namespace relaxvm::passes
