// SPDX-License-Identifier: Apache-2.0
// Mutator: default rewrites that share what did not change, and substitution.
#include "ir/node_kind.h"
#include "ir/visitor.h"

namespace relaxvm::ir {
namespace {

// A copy of `node` to change, with the same type and span.
template <typename Ref>
ffi::ObjectPtr<typename Ref::ContainerType> Copy(const Ref& ref) {
  return ffi::make_object<typename Ref::ContainerType>(*ref.get());
}

template <typename Ref>
Ref Cast(const Expr& e) {
  return ffi::GetRef<Ref>(static_cast<const typename Ref::ContainerType*>(e.get()));
}

}  // namespace

Expr Mutator::Mutate(const Expr& e) {
  if (!e.defined()) return e;
  switch (NodeOf(e.get())) {
    case Node::kVar: return MutateVar(Cast<Var>(e));
    case Node::kGlobalVar: return MutateGlobalVar(Cast<GlobalVar>(e));
    case Node::kOp: return MutateOp(e);
    case Node::kCall: return MutateCall(Cast<Call>(e));
    case Node::kConstant: return MutateConstant(Cast<Constant>(e));
    case Node::kStringImm:
    case Node::kDataTypeImm:
    case Node::kIntImm:
    case Node::kFloatImm: return MutateImm(e);
    case Node::kShape: return MutateShape(Cast<ShapeExpr>(e));
    case Node::kTuple: return MutateTuple(Cast<Tuple>(e));
    case Node::kTupleGetItem: return MutateTupleGetItem(Cast<TupleGetItem>(e));
    case Node::kIf: return MutateIf(Cast<If>(e));
    case Node::kMatch: return MutateMatch(Cast<Match>(e));
    case Node::kConstructor: return MutateConstructor(Cast<Constructor>(e));
    case Node::kSeq: return MutateSeq(Cast<SeqExpr>(e));
    case Node::kFunction: return MutateFunction(Cast<Function>(e));
    case Node::kExternFunc: return MutateExternFunc(Cast<ExternFunc>(e));
    case Node::kBinary: return MutateBinary(Cast<Binary>(e));
    case Node::kCast: return MutateCast(Cast<CastExpr>(e));
    case Node::kSelect: return MutateSelect(Cast<SelectExpr>(e));
    case Node::kLet: return MutateLet(Cast<LetExpr>(e));
    case Node::kRamp: return MutateRamp(Cast<RampExpr>(e));
    case Node::kBroadcast: return MutateBroadcast(Cast<BroadcastExpr>(e));
    case Node::kShuffle: return MutateShuffle(Cast<ShuffleExpr>(e));
    case Node::kIntrin: return MutateIntrin(Cast<IntrinExpr>(e));
    case Node::kOther: return MutateOther(e);
  }
  RELAXVM_UNREACHABLE();
}

ffi::Array<Expr> Mutator::MutateAll(const ffi::Array<Expr>& exprs) {
  return exprs.Map(
      [this](const Expr& e) { return Mutate(e); });  // the same array when nothing changed
}

Expr Mutator::MutateVar(const Var& v) {
  auto it = replaced_.find(v);
  return it == replaced_.end() ? Expr(v) : (*it).second;
}

Var Mutator::MutateDef(const Var& v) {
  Type ty = MutateType(v->ty);
  if (ty.same_as(v->ty)) return v;
  Var fresh = v.as<DataflowVarObj>() ? Var(DataflowVar(v->name, std::move(ty), v->span))
                                     : Var(v->name, std::move(ty), v->span);
  Replace(v, fresh);
  return fresh;
}

Expr Mutator::MutateCall(const Call& c) {
  Expr op = Mutate(c->op);
  ffi::Array<Expr> args = MutateAll(c->args);
  ffi::Array<Type> ty_args = c->ty_args.Map([this](const Type& t) { return MutateType(t); });
  Type ty = MutateType(c->ty);
  if (op.same_as(c->op) && args.same_as(c->args) && ty_args.same_as(c->ty_args) &&
      ty.same_as(c->ty))
    return c;
  auto n = Copy(c);
  n->op = std::move(op);
  n->args = std::move(args);
  n->ty_args = std::move(ty_args);
  n->ty = std::move(ty);
  return NodeRef<Call>(std::move(n));
}

Expr Mutator::MutateShape(const ShapeExpr& s) {
  ffi::Array<Expr> values = MutateAll(s->values);
  return values.same_as(s->values) ? Expr(s) : Expr(ShapeExpr(std::move(values), s->span));
}

Expr Mutator::MutateTuple(const Tuple& t) {
  ffi::Array<Expr> fields = MutateAll(t->fields);
  return fields.same_as(t->fields) ? Expr(t) : Expr(Tuple(std::move(fields), t->span));
}

Expr Mutator::MutateTupleGetItem(const TupleGetItem& t) {
  Expr value = Mutate(t->tuple_value);
  if (value.same_as(t->tuple_value)) return t;
  if (const auto* tuple = value.as<TupleObj>()) return tuple->fields[t->index];
  return TupleGetItem(std::move(value), t->index, t->span);
}

Expr Mutator::MutateIf(const If& i) {
  Expr cond = Mutate(i->cond);
  Expr true_branch = Mutate(i->true_branch);
  Expr false_branch = Mutate(i->false_branch);
  if (cond.same_as(i->cond) && true_branch.same_as(i->true_branch) &&
      false_branch.same_as(i->false_branch))
    return i;
  If result(std::move(cond), std::move(true_branch), std::move(false_branch), i->span);
  result->ty = MutateType(i->ty);
  return result;
}

Expr Mutator::MutateMatch(const Match& m) {
  Expr value = Mutate(m->value);
  ffi::Array<MatchCase> cases = m->cases.Map([this](const MatchCase& c) {
    ffi::Array<Var> vars = c->vars.Map([this](const Var& v) { return MutateDef(v); });
    Expr body = Mutate(c->body);
    if (vars.same_as(c->vars) && body.same_as(c->body)) return c;
    return MatchCase(c->constructor, std::move(vars), std::move(body), c->span);
  });
  Type ty = MutateType(m->ty);
  if (value.same_as(m->value) && cases.same_as(m->cases) && ty.same_as(m->ty)) return m;
  Match result(std::move(value), std::move(cases), m->span);
  result->ty = std::move(ty);
  return result;
}

Expr Mutator::MutateSeq(const SeqExpr& s) {
  ffi::Array<BindingBlock> blocks;
  bool same = true;
  for (const BindingBlock& block : s->blocks) {
    BindingBlock mutated = MutateBlock(block);
    same = same && mutated.same_as(block);
    if (!mutated->bindings.empty() || mutated.same_as(block)) blocks.push_back(std::move(mutated));
  }
  Expr body = Mutate(s->body);
  if (same && body.same_as(s->body)) return s;
  SeqExpr result(same ? s->blocks : std::move(blocks), body, s->span);
  // A type from which what only the bindings know was erased stays so.
  if (s->ty.defined() && s->body->ty.defined() && body->ty.defined() &&
      !s->ty.same_as(s->body->ty)) {
    const Type before = MutateType(s->body->ty);
    if (before.same_as(body->ty) || StructuralEqual(before, body->ty))
      result->ty = MutateType(s->ty);
  }
  return result;
}

BindingBlock Mutator::MutateBlock(const BindingBlock& block) {
  ffi::Array<Binding> bindings;
  bool same = true;
  for (const Binding& b : block->bindings) {
    const size_t before = bindings.size();
    MutateBinding(b, &bindings);
    same = same && bindings.size() == before + 1 && bindings.back().same_as(b);
  }
  if (same) return block;
  auto n = block.as<DataflowBlockObj>() ? DataflowBlock(std::move(bindings), block->span)
                                        : BindingBlock(std::move(bindings), block->span);
  return n;
}

void Mutator::MutateBinding(const Binding& binding, ffi::Array<Binding>* out) {
  Expr value = Mutate(binding->value);
  if (const auto* cast = binding.as<MatchCastObj>()) {
    Type ty = MutateType(cast->ty);
    Var var = MutateDef(cast->var);
    if (value.same_as(cast->value) && ty.same_as(cast->ty) && var.same_as(cast->var))
      return out->push_back(binding);
    return out->push_back(MatchCast(std::move(var), std::move(value), std::move(ty), cast->span));
  }
  Var var = MutateDef(binding->var);
  if (value.same_as(binding->value) && var.same_as(binding->var)) return out->push_back(binding);
  out->push_back(VarBinding(std::move(var), std::move(value), binding->span));
}

Expr Mutator::MutateFunction(const Function& f) {
  ffi::Array<Var> params = f->params.Map([this](const Var& p) { return MutateDef(p); });
  Expr body = Mutate(f->body);
  Type ret_ty = MutateType(f->ret_ty);
  if (params.same_as(f->params) && body.same_as(f->body) && ret_ty.same_as(f->ret_ty)) return f;
  return Function(std::move(params), std::move(body), std::move(ret_ty), f->is_pure, f->attrs,
                  f->span);
}

Type Mutator::MutateType(const Type& type) {
  if (!type.defined()) return type;
  if (const auto* tensor = type.as<TensorTypeObj>()) {
    if (!tensor->shape.has_value()) return type;
    Expr shape = Mutate(tensor->shape.value());
    if (shape.same_as(tensor->shape.value())) return type;
    return TensorType(std::move(shape), tensor->dtype, tensor->vdevice);
  }
  if (const auto* shape = type.as<ShapeTypeObj>()) {
    if (!shape->values.has_value()) return type;
    ffi::Array<Expr> values = MutateAll(shape->values.value());
    return values.same_as(shape->values.value()) ? type : Type(ShapeType(std::move(values)));
  }
  if (const auto* tuple = type.as<TupleTypeObj>()) {
    ffi::Array<Type> fields = tuple->fields.Map([this](const Type& t) { return MutateType(t); });
    return fields.same_as(tuple->fields) ? type : Type(TupleType(std::move(fields)));
  }
  if (const auto* adt = type.as<AdtTypeObj>()) {
    ffi::Array<Type> args = adt->args.Map([this](const Type& t) { return MutateType(t); });
    return args.same_as(adt->args) ? type : Type(AdtType(adt->name, std::move(args)));
  }
  return type;
}

Expr Mutator::MutateBinary(const Binary& b) {
  Expr x = Mutate(b->a), y = Mutate(b->b);
  return x.same_as(b->a) && y.same_as(b->b) ? Expr(b)
                                            : Make(b->op, std::move(x), std::move(y), b->span);
}
Expr Mutator::MutateCast(const CastExpr& c) {
  Expr value = Mutate(c->value);
  if (value.same_as(c->value)) return c;
  const DLDataType dtype = WithLanes(c.dtype(), value.dtype().lanes);
  return ir::Cast(dtype, std::move(value));
}
Expr Mutator::MutateSelect(const SelectExpr& s) {
  Expr c = Mutate(s->condition), t = Mutate(s->true_value), f = Mutate(s->false_value);
  if (c.same_as(s->condition) && t.same_as(s->true_value) && f.same_as(s->false_value)) return s;
  return Select(std::move(c), std::move(t), std::move(f));
}
Expr Mutator::MutateLet(const LetExpr& l) {
  Expr value = Mutate(l->value);
  Var var = MutateDef(l->var);
  Expr body = Mutate(l->body);
  if (value.same_as(l->value) && var.same_as(l->var) && body.same_as(l->body)) return l;
  return LetExpr(std::move(var), std::move(value), std::move(body), l->span);
}
Expr Mutator::MutateRamp(const RampExpr& r) {
  Expr base = Mutate(r->base), stride = Mutate(r->stride);
  if (base.same_as(r->base) && stride.same_as(r->stride)) return r;
  return RampExpr(std::move(base), std::move(stride), r->lanes, r->span);
}
Expr Mutator::MutateBroadcast(const BroadcastExpr& b) {
  Expr value = Mutate(b->value);
  return value.same_as(b->value) ? Expr(b)
                                 : Expr(BroadcastExpr(std::move(value), b->lanes, b->span));
}
Expr Mutator::MutateShuffle(const ShuffleExpr& s) {
  ffi::Array<Expr> vectors = MutateAll(s->vectors);
  return vectors.same_as(s->vectors) ? Expr(s)
                                     : Expr(ShuffleExpr(std::move(vectors), s->indices, s->span));
}
Expr Mutator::MutateIntrin(const IntrinExpr& i) {
  ffi::Array<Expr> args = MutateAll(i->args);
  if (args.same_as(i->args)) return i;
  if (i->intrin == Intrin::kIfThenElse) return IfThenElse(args[0], args[1], args[2]);
  if (i->intrin == Intrin::kNot) return Not(args[0]);
  return IntrinExpr(i.dtype(), i->intrin, std::move(args), i->span);
}
Expr Mutator::MutateOther(const Expr& e) {
  RELAXVM_CHECK(false) << "this mutator does not know " << e->GetTypeKey();
  return e;
}

// ---- whole modules, substitution
// ------------------------------------------------------------------------------------------

IRModule MutateFunctions(
    IRModule mod, const std::function<Function(const GlobalVar&, const Function&)>& rewrite) {
  std::vector<std::pair<GlobalVar, Function>> changed;
  for (const auto& [var, func] : mod->functions) {
    auto function = func.as<Function>();
    if (!function.has_value()) continue;
    Function result = rewrite(var, function.value());
    if (!result.same_as(func)) changed.emplace_back(var, std::move(result));
  }
  for (auto& [var, func] : changed) mod.Update(var->name_hint, std::move(func));
  return mod;
}

namespace {

class Substituter : public Mutator {
 public:
  explicit Substituter(const ffi::Map<Var, Expr>& map) {
    for (const auto& [from, to] : map) Replace(from, to);
  }
  Expr MutateOther(const Expr& e) override { return e; }
};

}  // namespace

Expr Substitute(const Expr& e, const ffi::Map<Var, Expr>& map) {
  return map.empty() ? e : Substituter(map).Mutate(e);
}
Type Substitute(const Type& type, const ffi::Map<Var, Expr>& map) {
  return map.empty() ? type : Substituter(map).MutateType(type);
}

}  // namespace relaxvm::ir
