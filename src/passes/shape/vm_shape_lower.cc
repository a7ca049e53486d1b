// SPDX-License-Identifier: Apache-2.0
// VMShapeLower: symbolic sizes become numbers on a heap of int64 that each call of a function owns.
//   - Parameters and match_cast are checked by builtins that compare or store sizes (match_shape,
//   check_*).
//   - Every size expression has a slot.  A generated tensor program (shape_func) fills the slots of
//   all expressions that
//     become computable at one place, once per call.
//   - Shapes and scalars are read back by make_shape and make_prim_value.
// Without `emit_err_ctx` the result has Relax's form: no texts for errors, every heap bound first,
// sizes computed by stores of expressions, parameters after `num_input` checked for sizes only.
// Stage: planned -> shapes.
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "analysis/core_ops.h"
#include "ir/block_builder.h"
#include "ir/prim.h"
#include "ir/visitor.h"
#include "passes/pass.h"
#include "passes/shape/shape_checks.h"
#include "passes/shape/shape_heap.h"
#include "tir/stmt.h"

namespace relaxvm::passes {
namespace {

using analysis::CoreOp;
using ir::Binding;
using ir::Call;
using ir::CallObj;
using ir::Expr;
using ir::ExternFunc;
using ir::IntImm;
using ir::ShapeExprObj;
using ir::Type;
using ir::Var;
using ir::VarBinding;

// A binding, or the place where the sizes of a definition point are computed (known only when its
// scope is complete).
using Item = std::variant<Binding, int>;
using Items = std::vector<Item>;

// Scalar variables that shapes, types of match_cast and scalar expressions use.
std::unordered_set<const ffi::Object*> UsedAsSizes(const ir::Function& func) {
  class Finder : public ir::Visitor {
   public:
    void VisitVar(const ir::VarObj* var) override {
      if (depth_ > 0) found.insert(var);
    }
    void VisitShape(const ShapeExprObj* s) override {
      Deeper([&] { ir::Visitor::VisitShape(s); });
    }
    void VisitBinary(const ir::BinaryObj* b) override {
      Deeper([&] { ir::Visitor::VisitBinary(b); });
    }
    void VisitCast(const ir::CastObj* c) override {
      Deeper([&] { ir::Visitor::VisitCast(c); });
    }
    void VisitSelect(const ir::SelectObj* s) override {
      Deeper([&] { ir::Visitor::VisitSelect(s); });
    }
    void VisitIntrin(const ir::IntrinObj* i) override {
      Deeper([&] { ir::Visitor::VisitIntrin(i); });
    }
    void VisitType(const Type& type) override {
      Deeper([&] { ir::Visitor::VisitType(type); });
    }
    std::unordered_set<const ffi::Object*> found;

   private:
    void Deeper(const std::function<void()>& visit) {
      ++depth_;
      visit();
      --depth_;
    }
    int depth_ = 0;
  };
  Finder finder;
  finder.VisitFunction(func.get());
  return finder.found;
}

class FunctionLowerer {
 public:
  FunctionLowerer(IRModule* mod, std::string name, bool plain)
      : mod_(mod), name_(std::move(name)), plain_(plain) {}

  ir::Function Run(const ir::Function& func) {
    sizes_ = UsedAsSizes(func);
    heap_.EnterScope();
    Items head;
    MatchParams(func, &head);
    ir::SeqExpr body = LowerSeq(func->body, std::move(head), &func->ret_ty);
    heap_.LeaveScope();
    if (plain_) return FinishPlain(func, body);
    ffi::Array<Binding> entry = {VarBinding(heap_.var(), HeapAllocation())};
    ffi::Array<ir::BindingBlock> blocks = {ir::BindingBlock(entry)};
    for (const ir::BindingBlock& block : body->blocks) blocks.push_back(block);
    if (!needs_heap_) blocks = body->blocks;
    ir::SeqExpr seq(blocks, body->body, body->span);
    seq->ty = func->body->ty;
    ir::Function result(func->params, seq, func->ret_ty, func->is_pure, func->attrs, func->span);
    return ir::WithAttr(result, kShapesLowered, true);
  }

 private:
  ir::Function FinishPlain(const ir::Function& func, const ir::SeqExpr& body) {
    for (const auto& [var, point] : programs_) {
      mod_->Update(var->name_hint, heap_.MakePlainProgram(point));
    }
    Expr value = HeapAllocation();
    ir::SeqExpr rest = body;
    Var heap = heap_.var();
    if (heap_.size() == 0) {
      value = analysis::CallCore(CoreOp::kNullValue, {}, ir::AnyType());
      heap = Var("shape_heap", ir::AnyType());
      rest = ir::Substitute(body, {{heap_.var(), heap}}).as<ir::SeqExpr>().value();
    }
    ffi::Array<Binding> bindings = {VarBinding(heap, value)};
    for (const ir::BindingBlock& block : rest->blocks) {
      for (const Binding& binding : block->bindings) bindings.push_back(binding);
    }
    ir::SeqExpr seq({ir::BindingBlock(bindings)}, rest->body, body->span);
    seq->ty = func->body->ty;
    return ir::Function(func->params, seq, func->ret_ty, func->is_pure, func->attrs, func->span);
  }

  // ---- the head of a function, and match_cast
  // ---------------------------------------------------------------------------

  void MatchParams(const ir::Function& func, Items* out) {
    std::vector<Match> matches;
    const auto count = static_cast<int64_t>(func->params.size());
    const int64_t inputs = plain_ ? ir::GetAttr<int64_t>(func->attrs, "num_input", count) : count;
    for (int64_t i = 0; i < count; ++i) {
      const Var& param = func->params[i];
      if (ir::IsPrim(param)) scalar_values_.insert(param.get());
      const bool weight = i >= inputs;
      if (weight && ir::SymbolicVars(param->ty).empty()) continue;
      matches.push_back(
          {param, param->ty, Type(), ParamContext(name_, param), nullptr, plain_, weight});
    }
    MatchAll(matches, out);
  }

  // Emits the checks of several values at one place: types, then sizes that are known or stored,
  // then, after the size expressions of this place are computed, the sizes that have to equal one.
  void MatchAll(const std::vector<Match>& matches, Items* out) {
    std::vector<SizeMatch> sizes;
    for (Match match : matches) {
      match.mod = mod_->get();
      match.plain = plain_;
      if (plain_) match.context = "";
      EmitTypeChecks(
          match,
          [&](Expr call, Type type) { return EmitValue(std::move(call), std::move(type), out); },
          &sizes);
    }
    std::erase_if(
        sizes, [this](const SizeMatch& m) { return m.is_scalar && !sizes_.count(m.value.get()); });
    int point = heap_.AddPoint();
    for (SizeMatch& size : sizes) {
      bool late = false;
      ffi::Array<Expr> codes;
      for (const Expr& dim : size.dims) late |= !AddFirstCode(dim, &codes);
      EmitMatch(size, codes, out);
      size.pending = late;
    }
    out->push_back(point);
    for (const SizeMatch& size : sizes) {
      if (!size.pending) continue;
      ffi::Array<Expr> codes;
      for (const Expr& dim : size.dims) AddLateCode(dim, size, &codes);
      EmitMatch(size, codes, out);
    }
  }

  // Immediates and lone variables; false for an expression, which has to wait.
  bool AddFirstCode(const Expr& dim, ffi::Array<Expr>* codes) {
    if (auto value = ir::AsInt(dim); value.has_value()) {
      AddCode(MatchCode::kAssertEqualToImm, value.value(), codes);
      return true;
    }
    if (const auto* var = dim.as<ir::VarObj>()) {
      if (auto slot = heap_.Find(dim)) {
        AddCode(MatchCode::kAssertEqualToLoad, *slot, codes);
      } else {
        AddCode(MatchCode::kStoreToHeap, heap_.Define(ffi::GetRef<Var>(var)), codes);
      }
      return true;
    }
    AddCode(MatchCode::kNoOp, 0, codes);
    return false;
  }

  void AddLateCode(const Expr& dim, const SizeMatch& size, ffi::Array<Expr>* codes) {
    if (ir::AsInt(dim).has_value() || dim.as<ir::VarObj>()) {
      if (plain_) {
        AddFirstCode(dim, codes);
      } else {
        AddCode(MatchCode::kNoOp, 0, codes);
      }
      return;
    }
    AddCode(MatchCode::kAssertEqualToLoad, SlotOf(dim, size.context), codes);
  }

  static void AddCode(MatchCode code, int64_t value, ffi::Array<Expr>* codes) {
    codes->push_back(IntImm(Int(64), static_cast<int64_t>(code)));
    codes->push_back(IntImm(Int(64), value));
  }

  void EmitMatch(const SizeMatch& size, const ffi::Array<Expr>& codes, Items* out) {
    bool nothing = true;  // every dimension is a no-op
    for (size_t i = 0; i < codes.size(); i += 2) {
      nothing &= ir::IsIntValue(codes[i], static_cast<int64_t>(MatchCode::kNoOp));
    }
    if (nothing) return;
    ffi::Array<Expr> args = {size.value, HeapArgument(codes)};
    if (!size.is_scalar) args.push_back(IntImm(Int(64), static_cast<int64_t>(size.dims.size())));
    for (const Expr& code : codes) args.push_back(code);
    args.push_back(ir::StringImm(size.context));
    EmitEffect(size.is_scalar ? "vm.builtin.match_prim_value" : "vm.builtin.match_shape", args,
               out);
  }

  // The heap, or nothing where a match only compares with immediates.
  Expr HeapArgument(const ffi::Array<Expr>& codes) {
    for (size_t i = 0; i < codes.size(); i += 2) {
      int64_t code = ir::AsInt(codes[i]).value();
      if (code == static_cast<int64_t>(MatchCode::kStoreToHeap) ||
          code == static_cast<int64_t>(MatchCode::kAssertEqualToLoad)) {
        needs_heap_ = true;
        return heap_.var();
      }
    }
    if (plain_) return heap_.var();
    return analysis::CallCore(CoreOp::kNullValue, {}, ir::AnyType());
  }

  // ---- sequences
  // --------------------------------------------------------------------------------------------------------

  // `ret` is the declared result of a function whose body this is.
  ir::SeqExpr LowerSeq(const ir::SeqExpr& seq, Items items, const Type* ret = nullptr) {
    for (const ir::BindingBlock& block : seq->blocks) {
      for (const Binding& binding : block->bindings) LowerBinding(binding, &items);
    }
    Expr body = LowerArgument(seq->body, &items);
    if (ret != nullptr) CheckResult(body, *ret, &items);
    ffi::Array<Binding> bindings;
    for (const Item& item : items) {
      if (const auto* binding = std::get_if<Binding>(&item)) {
        bindings.push_back(*binding);
      } else {
        EmitComputation(std::get<int>(item), &bindings);
      }
    }
    ffi::Array<ir::BindingBlock> blocks;
    if (!bindings.empty()) blocks.push_back(ir::BindingBlock(bindings));
    ir::SeqExpr result(blocks, body, seq->span);
    result->ty = seq->ty;
    return result;
  }

  ir::SeqExpr LowerBranch(const ir::SeqExpr& seq) {
    heap_.EnterScope();
    auto saved = read_back_;
    ir::SeqExpr result = LowerSeq(seq, {});
    read_back_ = std::move(saved);
    heap_.LeaveScope();
    return result;
  }

  // A result whose type promises more than is known of the value is checked like a match_cast.
  void CheckResult(const Expr& body, const Type& ret, Items* out) {
    const Type& found = body->ty;
    if (!found.defined() || !NeedsCheck(ret, found)) return;
    for (const Var& var : ir::SymbolicVars(ret)) {
      if (!heap_.Find(var)) return;  // a size that only the caller sees
    }
    MatchAll({{body, ret, found, ResultContext(name_, ret)}}, out);
  }

  void LowerBinding(const Binding& binding, Items* out) {
    if (const auto* cast = binding.as<ir::MatchCastObj>()) {
      Expr value = LowerArgument(cast->value, out);
      MatchAll({{value, cast->ty, cast->value->ty, CastContext(name_, cast)}}, out);
      if (plain_) {
        out->push_back(ir::MatchCast(cast->var, value, cast->ty, cast->span));
      } else {
        out->push_back(VarBinding(cast->var, value, cast->span));
      }
      return;
    }
    const Expr& value = binding->value;
    if (IsScalarExpression(value)) {
      LowerScalarBinding(binding, out);
      return;
    }
    Expr lowered = LowerValue(value, out);
    out->push_back(VarBinding(binding->var, lowered, binding->span));
    // A scalar that a call gives may be used as a size.
    if (binding->var->ty.defined() && binding->var->ty.as<ir::PrimTypeObj>() &&
        ir::IsPrim(binding->var)) {
      scalar_values_.insert(binding->var.get());
      if (sizes_.count(binding->var.get()))
        MatchAll({{binding->var, binding->var->ty, binding->var->ty, ""}}, out);
    }
  }

  // var = scalar expression: the variable becomes another name of the expression's slot.
  void LowerScalarBinding(const Binding& binding, Items* out) {
    heap_.Alias(binding->var, binding->value,
                [&](const Expr& e) { return SlotOf(e, binding->var->name); });
  }

  Expr LowerValue(const Expr& value, Items* out) {
    if (const auto* call = value.as<CallObj>()) return LowerCall(call, out);
    if (const auto* branch = value.as<ir::IfObj>()) {
      Expr cond = LowerArgument(branch->cond, out);
      ir::If result(cond, LowerBranch(branch->true_branch), LowerBranch(branch->false_branch),
                    branch->span);
      result->ty = branch->ty;
      return result;
    }
    return LowerArgument(value, out);
  }

  Expr LowerCall(const CallObj* call, Items* out) {
    ffi::Array<Expr> args =
        call->args.Map([&](const Expr& arg) { return LowerArgument(arg, out); });
    ir::Call result(call->op, args, call->attrs, call->ty_args, call->span, call->ty);
    return result;
  }

  static bool IsScalarExpression(const Expr& e) {
    return ir::IsPrim(e) && !e.as<CallObj>() && !e.as<ir::TupleGetItemObj>() && !e.as<ir::IfObj>();
  }

  // ---- values that use sizes
  // --------------------------------------------------------------------------------------------

  Expr LowerArgument(const Expr& e, Items* out) {
    if (!e.defined()) return e;
    if (const auto* shape = e.as<ShapeExprObj>()) return LowerShape(shape, out);
    if (const auto* tuple = e.as<ir::TupleObj>()) {
      ir::Tuple result(
          tuple->fields.Map([&](const Expr& field) { return LowerArgument(field, out); }),
          tuple->span);
      result->ty = tuple->ty;
      return result;
    }
    if (IsScalarExpression(e)) return LowerScalar(e, out);
    return e;
  }

  Expr LowerScalar(const Expr& e, Items* out) {
    if (e.as<ir::IntImmObj>() || e.as<ir::FloatImmObj>()) return e;
    if (const auto* var = e.as<ir::VarObj>(); var && scalar_values_.count(var)) return e;
    if (auto constant = heap_.Constant(e); constant.has_value())
      return IntImm(e.dtype(), constant.value());
    ffi::Array<Expr> args = {heap_.var(),
                             IntImm(Int(64), static_cast<int64_t>(MakeCode::kLoadShape)),
                             IntImm(Int(64), SlotOf(e, name_))};
    return ReadBack("vm.builtin.make_prim_value", args, e->ty, out);
  }

  Expr LowerShape(const ShapeExprObj* shape, Items* out) {
    ffi::Array<Expr> codes;
    ffi::Array<Expr> values;
    bool constant = true;
    for (const Expr& dim : shape->values) {
      auto value = heap_.Constant(dim);
      if (value.has_value()) {
        values.push_back(IntImm(Int(64), value.value()));
        codes.push_back(IntImm(Int(64), static_cast<int64_t>(MakeCode::kUseImm)));
        codes.push_back(IntImm(Int(64), value.value()));
        continue;
      }
      constant = false;
      codes.push_back(IntImm(Int(64), static_cast<int64_t>(MakeCode::kLoadShape)));
      codes.push_back(IntImm(Int(64), SlotOf(dim, name_)));
    }
    if (constant) return ir::ShapeExpr(values, shape->span);
    ffi::Array<Expr> args = {heap_.var(),
                             IntImm(Int(64), static_cast<int64_t>(shape->values.size()))};
    for (const Expr& code : codes) args.push_back(code);
    return ReadBack("vm.builtin.make_shape", args,
                    ir::ShapeType(static_cast<int64_t>(shape->values.size())), out);
  }

  // One read per scope for equal shapes and scalars: heap slots never change once filled.
  Expr ReadBack(const char* builtin, const ffi::Array<Expr>& args, const Type& type, Items* out) {
    needs_heap_ = true;
    std::string key = builtin;
    for (size_t i = 1; i < args.size(); ++i)
      key += "," + std::to_string(ir::AsInt(args[i]).value());
    if (auto it = read_back_.find(key); it != read_back_.end()) return it->second;
    Expr value = EmitValue(Call(ExternFunc(builtin), args, ir::Attrs(), {type}, ir::Span(), type),
                           type, out);
    read_back_.emplace(key, value);
    return value;
  }

  int64_t SlotOf(const Expr& e, const std::string& where) {
    needs_heap_ = true;
    if (auto slot = heap_.Find(e)) return *slot;
    for (const Var& var : ir::FreeVars(e)) {
      if (!heap_.Find(var)) {
        Fail(ErrorKind::kValueError, e->span.Place(), "function '", name_, "': the symbolic size '",
             std::string(var->name), "' is used (", where,
             ") where nothing defines it; a parameter's shape or a match_cast must hold it as a "
             "dimension of its own");
      }
    }
    return heap_.AddExpression(e);
  }

  // ---- emitting
  // ---------------------------------------------------------------------------------------------------------

  Expr EmitValue(Expr value, Type type, Items* out) {
    Var var("v", type);
    out->push_back(VarBinding(var, std::move(value)));
    return var;
  }

  void EmitEffect(const char* builtin, const ffi::Array<Expr>& args, Items* out) {
    Call call(ExternFunc(builtin), args, ir::Attrs(), {ir::VoidType()}, ir::Span(), ir::VoidType());
    out->push_back(VarBinding(Var("_", ir::VoidType()), call));
  }

  void EmitComputation(int point, ffi::Array<Binding>* out) {
    std::optional<tir::PrimFunc> program = heap_.MakeProgram(point);
    if (!program.has_value()) return;
    ir::GlobalVar var = mod_->Update(mod_->UniqueName("shape_func"), *program);
    if (plain_) programs_.emplace_back(var, point);
    Call call(var, {heap_.var()}, ir::Attrs(), {}, ir::Span(), ir::VoidType());
    out->push_back(VarBinding(Var("_", ir::VoidType()), call));
  }

  Expr HeapAllocation() const {
    Expr size = IntImm(Int(64), heap_.size());
    ir::Tuple args(ffi::Array<Expr>{size});
    args->ty = ir::TupleType({size->ty});
    Type type = heap_.var()->ty;
    return Call(analysis::GetCoreOp(CoreOp::kCallBuiltinWithCtx),
                {ExternFunc("vm.builtin.alloc_shape_heap"), args}, ir::Attrs(), {type}, ir::Span(),
                type);
  }

  IRModule* mod_;
  std::string name_;
  const bool plain_;
  std::vector<std::pair<ir::GlobalVar, int>> programs_;  // of the plain form: what they compute
  ShapeHeap heap_;
  bool needs_heap_ = false;
  std::unordered_map<std::string, Expr> read_back_;  // what was read in this scope -> its variable
  std::unordered_set<const ffi::Object*> scalar_values_;  // scalars that are registers of the VM
  std::unordered_set<const ffi::Object*> sizes_;  // variables that occur in size expressions
};

}  // namespace

IRModule VMShapeLower(IRModule mod, const PassContext& context) {
  mod = InlineScalarPrograms(std::move(mod), context);  // ComputePrimValue made some
  IRModule result = mod;
  const bool plain = !context.Option<bool>("emit_err_ctx");
  for (const auto& [var, func] : mod->functions) {
    const auto* function = func.as<ir::FunctionObj>();
    if (function == nullptr || ir::GetAttr<bool>(function->attrs, kShapesLowered, false)) continue;
    ir::Function lowered =
        FunctionLowerer(&result, var->name_hint, plain).Run(ffi::GetRef<ir::Function>(function));
    result.CopyOnWrite()->functions.Set(var, lowered);
  }
  return result;
}

}  // namespace relaxvm::passes
