// SPDX-License-Identifier: Apache-2.0
// BlockBuilder: normal form and type inference while a function is built.
#include "ir/block_builder.h"

#include <string>

#include "ir/node_kind.h"
#include "ir/normal_form.h"

namespace relaxvm::ir {
namespace {

thread_local int calls_as_written = 0;

// May stand as an argument: needs no binding of its own.
bool IsLeaf(const Expr& e) {
  switch (NodeOf(e.get())) {
    case Node::kVar:
    case Node::kGlobalVar:
    case Node::kOp:
    case Node::kConstant:
    case Node::kStringImm:
    case Node::kDataTypeImm:
    case Node::kShape:
    case Node::kConstructor:
    case Node::kExternFunc:
    case Node::kIntImm:
    case Node::kFloatImm:
    case Node::kBinary:
    case Node::kCast:
    case Node::kSelect:
    case Node::kLet:
    case Node::kRamp:
    case Node::kBroadcast:
    case Node::kShuffle:
    case Node::kIntrin: return true;
    case Node::kCall:
    case Node::kTuple:
    case Node::kTupleGetItem:
    case Node::kIf:
    case Node::kMatch:
    case Node::kSeq:
    case Node::kFunction:
    case Node::kOther: return false;
  }
  RELAXVM_UNREACHABLE();
}

// Symbolic variables that the bindings of a sequence define: they end with it.
std::unordered_set<const ffi::Object*> DefinedInside(const SeqExprObj* seq) {
  std::unordered_set<const ffi::Object*> defined;
  for (const BindingBlock& block : seq->blocks) {
    for (const Binding& b : block->bindings) {
      defined.insert(b->var.get());
      if (const auto* cast = b.as<MatchCastObj>()) {
        for (const Var& v : DefinableSymbolicVars(cast->ty)) defined.insert(v.get());
      }
    }
  }
  return defined;
}

void NeedsOpenBlock(bool none_is_open) {
  if (!none_is_open) return;
  Fail(ErrorKind::kRuntimeError,
       "BlockBuilder: no block is open, so there is no place for a binding; emit inside of `with "
       "bb.function(...)`");
}

Type TypeSeenOutside(const SeqExpr& seq) {
  std::unordered_set<const ffi::Object*> inside = DefinedInside(seq.get());
  return EraseToVisible(seq->body->ty, [&](const Var& v) { return !inside.count(v.get()); });
}

}  // namespace

CallsAsWritten::CallsAsWritten() { ++calls_as_written; }
CallsAsWritten::~CallsAsWritten() { --calls_as_written; }
bool CallsAsWritten::Active() { return calls_as_written > 0; }

BlockBuilder::BlockBuilder(TypeContext* context, IRModule mod)
    : context_(context),
      mod_(mod.defined() ? std::move(mod) : IRModule(ffi::Map<GlobalVar, BaseFunc>())) {}
BlockBuilder::~BlockBuilder() = default;

void BlockBuilder::BeginBlock(bool dataflow) { blocks_.push_back({dataflow, {}}); }

BindingBlock BlockBuilder::EndBlock() {
  NeedsOpenBlock(blocks_.empty());
  Block block = std::move(blocks_.back());
  blocks_.pop_back();
  return block.dataflow ? BindingBlock(DataflowBlock(std::move(block.bindings)))
                        : BindingBlock(std::move(block.bindings));
}

bool BlockBuilder::InDataflow() const { return !blocks_.empty() && blocks_.back().dataflow; }

Var BlockBuilder::Emit(Expr value, ffi::String name_hint) {
  return EmitAs(false, std::move(value), std::move(name_hint));
}
Var BlockBuilder::EmitOutput(Expr value, ffi::String name_hint) {
  return EmitAs(true, std::move(value), std::move(name_hint));
}

Var BlockBuilder::EmitAs(bool output, Expr value, ffi::String name_hint) {
  value = Normalize(std::move(value));
  NeedsOpenBlock(blocks_.empty());
  const bool dataflow = InDataflow() && !output;
  ffi::String name =
      UniqueName(name_hint.empty() ? ffi::String(dataflow ? "lv" : "gv") : name_hint);
  Var var = dataflow ? Var(DataflowVar(std::move(name), value->ty, value->span))
                     : Var(std::move(name), value->ty, value->span);
  EmitBinding(VarBinding(var, value, value->span));
  return var;
}

Var BlockBuilder::EmitMatchCast(Expr value, Type ty, ffi::String name_hint) {
  value = NormalizeArgument(std::move(value));
  if (FitsType(ty, value->ty, *context_) == TypeFit::kNever) {
    Fail(ErrorKind::kTypeError, value->span.Place(),
         "match_cast to a type that the value can never have");
  }
  const bool dataflow = InDataflow();
  ffi::String name =
      UniqueName(name_hint.empty() ? ffi::String(dataflow ? "lv" : "gv") : name_hint);
  Var var = dataflow ? Var(DataflowVar(std::move(name), ty, value->span))
                     : Var(std::move(name), ty, value->span);
  EmitBinding(MatchCast(var, std::move(value), std::move(ty)));
  return var;
}

void BlockBuilder::EmitBinding(Binding binding) {
  NeedsOpenBlock(blocks_.empty());
  bound_[binding->var.get()] = binding->value;
  blocks_.back().bindings.push_back(std::move(binding));
}

Expr BlockBuilder::LookupBinding(const Var& var) const {
  auto it = bound_.find(var.get());
  return it == bound_.end() ? Expr() : it->second;
}

ffi::String BlockBuilder::UniqueName(ffi::String hint) {
  std::string base(hint);
  auto [it, fresh] = names_.emplace(base, 0);
  if (fresh) return hint;
  for (;;) {
    std::string name = base + std::to_string(++it->second);
    if (names_.emplace(name, 0).second) return name;
    it = names_.find(base);
  }
}

// ---- normal form
// ---------------------------------------------------------------------------------------------------------

Expr BlockBuilder::NormalizeArgument(Expr e) {
  e = Normalize(std::move(e));
  if (IsLeaf(e) || e.as<TupleObj>()) return e;
  return Emit(std::move(e));
}

Expr BlockBuilder::Normalize(Expr e) {
  RELAXVM_CHECK(e.defined()) << "null expression";
  if (IsLeaf(e)) return e;
  switch (NodeOf(e.get())) {
    case Node::kCall: return NormalizeCall(e.as<Call>().value());
    case Node::kIf: return NormalizeIf(e.as<If>().value());
    case Node::kMatch: return NormalizeMatch(e.as<Match>().value());
    case Node::kFunction: return NormalizeFunction(e.as<Function>().value());
    case Node::kTuple: {
      const auto* tuple = e.as<TupleObj>();
      ffi::Array<Expr> fields =
          tuple->fields.Map([this](const Expr& f) { return NormalizeArgument(f); });
      return fields.same_as(tuple->fields) && tuple->ty.defined()
                 ? e
                 : Expr(Tuple(std::move(fields), tuple->span));
    }
    case Node::kTupleGetItem: {
      const auto* item = e.as<TupleGetItemObj>();
      Expr tuple = NormalizeArgument(item->tuple_value);
      if (const auto* known = tuple.as<TupleObj>()) return known->fields[item->index];
      TupleGetItem result(std::move(tuple), item->index, item->span);
      if (!result->ty.defined()) result->ty = AnyType();
      return result;
    }
    case Node::kSeq: {
      const auto* seq = e.as<SeqExprObj>();
      bool inline_it = !blocks_.empty();
      for (const BindingBlock& block : seq->blocks) {
        inline_it = inline_it && (InDataflow() || !block.as<DataflowBlockObj>());
      }
      if (!inline_it) return NormalizeScope(e);
      for (const BindingBlock& block : seq->blocks) {
        for (const Binding& b : block->bindings) {
          if (const auto* cast = b.as<MatchCastObj>()) {
            EmitBinding(MatchCast(b->var, NormalizeArgument(b->value), cast->ty, b->span));
            continue;
          }
          Expr value = Normalize(b->value);
          if (!b->var->ty.defined()) b->var->ty = value->ty;
          EmitBinding(VarBinding(b->var, std::move(value), b->span));
        }
      }
      return Normalize(seq->body);
    }
    default: break;
  }
  // Nodes of other folders (tensor programs) have no parts to bind.
  return e;
}

Expr BlockBuilder::NormalizeCall(const Call& original) {
  Call call = original;
  const OpObj* op = CalledOp(call.get());
  if (op != nullptr && op->normalize && !CallsAsWritten::Active()) {
    Call done = op->normalize(call);
    if (!done.same_as(call)) {
      // A tuple that a variable stands for is known here.
      ffi::Array<Expr> known = call->args.Map([this](const Expr& arg) {
        auto var = arg.as<Var>();
        Expr value = var ? LookupBinding(*var) : Expr();
        return value.defined() && value.as<TupleObj>() ? value : arg;
      });
      Call again(call->op, known, call->attrs, call->ty_args, call->span);
      call = known.same_as(call->args) ? done : op->normalize(again);
    }
  }
  Expr callee = op != nullptr ? call->op : NormalizeArgument(call->op);
  ffi::Array<Expr> args = call->args.Map([this](const Expr& a) { return NormalizeArgument(a); });
  const bool same = callee.same_as(call->op) && args.same_as(call->args);
  if (same) {
    if (!call->ty.defined()) call->ty = InferType(call);
    return call;
  }
  Call result(std::move(callee), std::move(args), call->attrs, call->ty_args, call->span);
  result->ty = InferType(result);
  return result;
}

SeqExpr BlockBuilder::NormalizeScope(const Expr& e) {
  ffi::Array<BindingBlock> done;
  auto close = [&]() {
    BindingBlock block = EndBlock();
    if (!block->bindings.empty()) done.push_back(std::move(block));
  };
  SeqExpr seq = SeqExpr::Wrap(e);
  for (const BindingBlock& block : seq->blocks) {
    BeginBlock(block.as<DataflowBlockObj>() != nullptr);
    for (const Binding& b : block->bindings) {
      if (const auto* cast = b.as<MatchCastObj>()) {
        EmitBinding(MatchCast(b->var, NormalizeArgument(b->value), cast->ty, b->span));
        continue;
      }
      Expr value = Normalize(b->value);
      if (!b->var->ty.defined()) b->var->ty = value->ty;
      EmitBinding(VarBinding(b->var, std::move(value), b->span));
    }
    close();
  }
  BeginBlock(false);
  Expr body = NormalizeArgument(seq->body);
  close();
  SeqExpr result(std::move(done), std::move(body), seq->span);
  result->ty = TypeSeenOutside(result);
  return result;
}

Expr BlockBuilder::NormalizeIf(const If& e) {
  Expr cond = NormalizeArgument(e->cond);
  SeqExpr true_branch = NormalizeScope(e->true_branch);
  SeqExpr false_branch = NormalizeScope(e->false_branch);
  If result(std::move(cond), std::move(true_branch), std::move(false_branch), e->span);
  result->ty = e->ty.defined() ? e->ty : InferType(result);
  return result;
}

Expr BlockBuilder::NormalizeMatch(const Match& e) {
  Expr value = NormalizeArgument(e->value);
  const MatchCaseObj* at = nullptr;
  if (std::string mistake = MistakeInCases(value->ty, e->cases, &at); !mistake.empty()) {
    const Span& span = at != nullptr && at->span.defined() ? at->span : e->span;
    Fail(ErrorKind::kTypeError, span.Place(), mistake);
  }
  bool same = value.same_as(e->value);
  ffi::Array<MatchCase> cases = e->cases.Map([&](const MatchCase& c) {
    if (c->constructor.has_value()) {
      ffi::Array<Type> fields = FieldTypes(c->constructor.value(), value->ty);
      for (size_t i = 0; i < fields.size(); ++i) {
        if (!c->vars[i]->ty.defined()) c->vars[i]->ty = fields[i];
      }
    }
    SeqExpr body = NormalizeScope(c->body);
    if (body.same_as(c->body)) return c;
    same = false;
    return MatchCase(c->constructor, c->vars, std::move(body), c->span);
  });
  if (same && e->ty.defined()) return e;
  Match result(std::move(value), std::move(cases), e->span);
  result->ty = e->ty.defined() ? e->ty : InferType(result);
  return result;
}

Expr BlockBuilder::NormalizeFunction(const Function& f) {
  SeqExpr body = NormalizeScope(f->body);
  if (body.same_as(f->body) && f->ty.defined()) return f;
  Type ret_ty = f->ret_ty.defined() ? f->ret_ty : body->ty;
  return Function(f->params, std::move(body), std::move(ret_ty), f->is_pure, f->attrs, f->span);
}

Type BlockBuilder::InferType(const Expr& e) {
  if (const auto* call = e.as<CallObj>()) {
    if (const OpObj* op = CalledOp(call)) {
      RELAXVM_CHECK(op->type_rule) << op->name << " has no type rule";
      return op->type_rule(ffi::GetRef<Call>(call), *context_);
    }
    if (auto constructor = call->op.as<Constructor>())
      return ConstructorResultType(*constructor, ffi::GetRef<Call>(call), *context_);
    const Type& callee = call->op->ty;
    if (callee.defined()) {
      if (auto func = callee.as<FuncType>())
        return CallResultType(func.value(), ffi::GetRef<Call>(call), *context_);
      if (!callee.as<AnyTypeObj>()) {
        Fail(ErrorKind::kTypeError, call->span.Place(), "the called value is no function");
      }
    }
    if (call->ty_args.size() == 1) return call->ty_args[0];
    if (call->ty_args.size() > 1) return TupleType(call->ty_args);
    return AnyType();
  }
  if (const auto* branch = e.as<IfObj>()) {
    return LeastCommonType(branch->true_branch->ty, branch->false_branch->ty, *context_);
  }
  if (const auto* match = e.as<MatchObj>()) {
    Type common;
    for (const MatchCase& c : match->cases) {
      // Fields end with their case.
      Type type = EraseToVisible(c->body->ty, [&](const Var& v) {
        for (const Var& field : c->vars) {
          if (v.same_as(field)) return false;
        }
        return true;
      });
      common = common.defined() ? LeastCommonType(common, type, *context_) : type;
    }
    return common;
  }
  if (auto seq = e.as<SeqExpr>()) return TypeSeenOutside(seq.value());
  return e->ty;
}

// ---- module
// --------------------------------------------------------------------------------------------------------------

GlobalVar BlockBuilder::AddFunction(BaseFunc func, ffi::String name_hint) {
  std::vector<GlobalVar>& same_hash = by_hash_[StructuralHash(func)];
  for (const GlobalVar& var : same_hash) {
    if (StructuralEqual(mod_->Lookup(var), func)) return var;
  }
  GlobalVar var = mod_.Update(mod_.UniqueName(name_hint), std::move(func));
  same_hash.push_back(var);
  return var;
}

void BlockBuilder::UpdateFunction(const GlobalVar& var, BaseFunc func) {
  mod_.Update(var->name_hint, std::move(func));
}

}  // namespace relaxvm::ir
