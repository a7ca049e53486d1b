// SPDX-License-Identifier: Apache-2.0
// The default walks over statements and their rewrites.
#include "tir/functor.h"

#include <utility>
#include <vector>

namespace relaxvm::tir {
namespace {

// Type index -> kind, for the small range of indices that statements have.
struct KindTable {
  int32_t base;
  std::vector<int> kinds;

  KindTable() {
    const std::pair<int32_t, StmtKind> rows[] = {
        {BufferStoreObj::RuntimeTypeIndex(), StmtKind::kBufferStore},
        {BindObj::RuntimeTypeIndex(), StmtKind::kBind},
        {AllocBufferObj::RuntimeTypeIndex(), StmtKind::kAllocBuffer},
        {AssertStmtObj::RuntimeTypeIndex(), StmtKind::kAssert},
        {SeqStmtObj::RuntimeTypeIndex(), StmtKind::kSeq},
        {EvaluateObj::RuntimeTypeIndex(), StmtKind::kEvaluate},
        {IfThenElseObj::RuntimeTypeIndex(), StmtKind::kIfThenElse},
        {ForObj::RuntimeTypeIndex(), StmtKind::kFor},
        {WhileObj::RuntimeTypeIndex(), StmtKind::kWhile},
        {SBlockObj::RuntimeTypeIndex(), StmtKind::kBlock},
        {SBlockRealizeObj::RuntimeTypeIndex(), StmtKind::kBlockRealize},
    };
    base = rows[0].first;
    for (const auto& row : rows) base = std::min(base, row.first);
    for (const auto& [index, kind] : rows) {
      size_t at = static_cast<size_t>(index - base);
      if (at >= kinds.size()) kinds.resize(at + 1, -1);
      kinds[at] = static_cast<int>(kind);
    }
  }
};

}  // namespace

StmtKind KindOf(const StmtObj* s) {
  static const KindTable table;
  size_t at = static_cast<size_t>(s->type_index() - table.base);
  RELAXVM_CHECK(at < table.kinds.size() && table.kinds[at] >= 0)
      << "no statement: " << s->GetTypeKey();
  return static_cast<StmtKind>(table.kinds[at]);
}

// ---- visitor --------------------------------------------------------------------------------

void StmtVisitor::Visit(const Stmt& s) {
  if (!s.defined()) return;
  const StmtObj* node = s.get();
  switch (KindOf(node)) {
    case StmtKind::kBufferStore: return VisitBufferStore(static_cast<const BufferStoreObj*>(node));
    case StmtKind::kBind: return VisitBind(static_cast<const BindObj*>(node));
    case StmtKind::kAllocBuffer: return VisitAllocBuffer(static_cast<const AllocBufferObj*>(node));
    case StmtKind::kAssert: return VisitAssert(static_cast<const AssertStmtObj*>(node));
    case StmtKind::kSeq: return VisitSeqStmt(static_cast<const SeqStmtObj*>(node));
    case StmtKind::kEvaluate: return VisitEvaluate(static_cast<const EvaluateObj*>(node));
    case StmtKind::kIfThenElse: return VisitIfThenElse(static_cast<const IfThenElseObj*>(node));
    case StmtKind::kFor: return VisitFor(static_cast<const ForObj*>(node));
    case StmtKind::kWhile: return VisitWhile(static_cast<const WhileObj*>(node));
    case StmtKind::kBlock: return VisitSBlock(static_cast<const SBlockObj*>(node));
    case StmtKind::kBlockRealize:
      return VisitSBlockRealize(static_cast<const SBlockRealizeObj*>(node));
  }
}

void StmtVisitor::VisitBufferUse(const Var& buffer) { VisitVar(buffer.get()); }

void StmtVisitor::VisitType(const ir::Type& type) {
  const auto* buffer = type.defined() ? type.as<BufferTypeObj>() : nullptr;
  if (buffer == nullptr) return ir::Visitor::VisitType(type);
  for (const Expr& e : buffer->shape) Visit(e);
  for (const Expr& e : buffer->strides) Visit(e);
  Visit(buffer->elem_offset);
}

void StmtVisitor::VisitPrimFunc(const PrimFuncObj* f) {
  for (const Var& param : f->params) VisitDef(param);
  Visit(f->body);
}

void StmtVisitor::VisitBufferLoad(const BufferLoadObj* l) {
  VisitBufferUse(l->buffer);
  for (const Expr& e : l->indices) Visit(e);
  Visit(l->predicate);
}

void StmtVisitor::VisitOther(const ir::ExprObj* e) {
  if (const auto* load =
          e->IsInstance<BufferLoadObj>() ? static_cast<const BufferLoadObj*>(e) : nullptr) {
    return VisitBufferLoad(load);
  }
  if (e->IsInstance<PrimFuncObj>()) return VisitPrimFunc(static_cast<const PrimFuncObj*>(e));
  ir::Visitor::VisitOther(e);
}

void StmtVisitor::VisitBufferStore(const BufferStoreObj* s) {
  VisitBufferUse(s->buffer);
  for (const Expr& e : s->indices) Visit(e);
  Visit(s->value);
  Visit(s->predicate);
}

void StmtVisitor::VisitBind(const BindObj* s) {
  Visit(s->value);
  VisitDef(s->var);
}

void StmtVisitor::VisitAllocBuffer(const AllocBufferObj* s) { VisitDef(s->buffer); }

void StmtVisitor::VisitAssert(const AssertStmtObj* s) { Visit(s->condition); }

void StmtVisitor::VisitSeqStmt(const SeqStmtObj* s) {
  for (const Stmt& part : s->seq) Visit(part);
}

void StmtVisitor::VisitEvaluate(const EvaluateObj* s) { Visit(s->value); }

void StmtVisitor::VisitIfThenElse(const IfThenElseObj* s) {
  Visit(s->condition);
  Visit(s->then_case);
  Visit(s->else_case);
}

void StmtVisitor::VisitFor(const ForObj* s) {
  Visit(s->min);
  Visit(s->extent);
  VisitDef(s->loop_var);  // annotations may name it
  for (const auto& [name, value] : s->annotations) {
    if (auto e = value.as<Expr>()) Visit(e.value());
  }
  Visit(s->body);
}

void StmtVisitor::VisitWhile(const WhileObj* s) {
  Visit(s->condition);
  Visit(s->body);
}

void StmtVisitor::VisitSBlock(const SBlockObj* s) {
  for (const IterVar& iter : s->iter_vars) {
    Visit(iter->min);
    Visit(iter->extent);
    VisitDef(iter->var);
  }
  for (const Var& buffer : s->alloc_buffers) VisitDef(buffer);
  for (const auto* regions : {&s->reads, &s->writes}) {
    for (const BufferRegion& region : *regions) {
      VisitBufferUse(region->buffer);
      for (const Expr& e : region->mins) Visit(e);
      for (const Expr& e : region->extents) Visit(e);
    }
  }
  Visit(s->init);
  Visit(s->body);
}

void StmtVisitor::VisitSBlockRealize(const SBlockRealizeObj* s) {
  for (const Expr& e : s->iter_values) Visit(e);
  Visit(s->predicate);
  Visit(Stmt(s->block));
}

// ---- mutator --------------------------------------------------------------------------------

Stmt StmtMutator::Mutate(const Stmt& s) {
  if (!s.defined()) return s;
  switch (KindOf(s.get())) {
    case StmtKind::kBufferStore: return MutateBufferStore(s.as<BufferStore>().value());
    case StmtKind::kBind: return MutateBind(s.as<Bind>().value());
    case StmtKind::kAllocBuffer: return MutateAllocBuffer(s.as<AllocBuffer>().value());
    case StmtKind::kAssert: return MutateAssert(s.as<AssertStmt>().value());
    case StmtKind::kSeq: return MutateSeqStmt(s.as<SeqStmt>().value());
    case StmtKind::kEvaluate: return MutateEvaluate(s.as<Evaluate>().value());
    case StmtKind::kIfThenElse: return MutateIfThenElse(s.as<IfThenElse>().value());
    case StmtKind::kFor: return MutateFor(s.as<For>().value());
    case StmtKind::kWhile: return MutateWhile(s.as<While>().value());
    case StmtKind::kBlock: return MutateSBlock(s.as<SBlock>().value());
    case StmtKind::kBlockRealize: return MutateSBlockRealize(s.as<SBlockRealize>().value());
  }
  RELAXVM_UNREACHABLE();
  return s;
}

Var StmtMutator::MutateBuffer(const Var& buffer) {
  Expr to = MutateVar(buffer);
  RELAXVM_CHECK(IsBuffer(to)) << "buffer " << buffer->name << " replaced by something else";
  return ffi::GetRef<Var>(to.as<ir::VarObj>());
}

ir::Type StmtMutator::MutateType(const ir::Type& type) {
  const auto* buffer = type.defined() ? type.as<BufferTypeObj>() : nullptr;
  if (buffer == nullptr) return ir::Mutator::MutateType(type);
  ffi::Array<Expr> shape = MutateAll(buffer->shape);
  ffi::Array<Expr> strides = MutateAll(buffer->strides);
  Expr offset = Mutate(buffer->elem_offset);
  if (shape.same_as(buffer->shape) && strides.same_as(buffer->strides) &&
      offset.same_as(buffer->elem_offset)) {
    return type;
  }
  return BufferType(buffer->dtype, shape, buffer->storage_scope, strides, offset,
                    buffer->data_alignment);
}

Expr StmtMutator::MutatePrimFunc(const PrimFunc& f) {
  ffi::Array<Var> params = f->params.Map([this](const Var& param) { return MutateDef(param); });
  Stmt body = Mutate(f->body);
  if (params.same_as(f->params) && body.same_as(f->body)) return f;
  return PrimFunc(params, body, f->attrs, f->span);
}

Expr StmtMutator::MutateBufferLoad(const BufferLoad& l) {
  Var buffer = MutateBuffer(l->buffer);
  ffi::Array<Expr> indices = MutateAll(l->indices);
  Expr predicate = Mutate(l->predicate);
  if (buffer.same_as(l->buffer) && indices.same_as(l->indices) && predicate.same_as(l->predicate)) {
    return l;
  }
  return BufferLoad(buffer, indices, predicate, l->span);
}

Expr StmtMutator::MutateOther(const Expr& e) {
  if (auto load = e.as<BufferLoad>()) return MutateBufferLoad(load.value());
  if (auto func = e.as<PrimFunc>()) return MutatePrimFunc(func.value());
  return ir::Mutator::MutateOther(e);
}

Stmt StmtMutator::MutateBufferStore(const BufferStore& s) {
  Expr value = Mutate(s->value);
  Var buffer = MutateBuffer(s->buffer);
  ffi::Array<Expr> indices = MutateAll(s->indices);
  Expr predicate = Mutate(s->predicate);
  if (value.same_as(s->value) && buffer.same_as(s->buffer) && indices.same_as(s->indices) &&
      predicate.same_as(s->predicate)) {
    return s;
  }
  return BufferStore(buffer, value, indices, predicate, s->span);
}

Stmt StmtMutator::MutateBind(const Bind& s) {
  Expr value = Mutate(s->value);
  Var var = MutateDef(s->var);
  if (value.same_as(s->value) && var.same_as(s->var)) return s;
  return Bind(var, value, s->span);
}

Stmt StmtMutator::MutateAllocBuffer(const AllocBuffer& s) {
  Var buffer = MutateDef(s->buffer);
  if (buffer.same_as(s->buffer)) return s;
  return AllocBuffer(buffer, s->span);
}

Stmt StmtMutator::MutateAssert(const AssertStmt& s) {
  Expr condition = Mutate(s->condition);
  if (condition.same_as(s->condition)) return s;
  return AssertStmt(condition, s->error_kind, s->message, s->span);
}

Stmt StmtMutator::MutateSeqStmt(const SeqStmt& s) {
  ffi::Array<Stmt> seq = s->seq.Map([this](const Stmt& part) { return Mutate(part); });
  if (seq.same_as(s->seq)) return s;
  return SeqStmt::Flatten(seq);
}

Stmt StmtMutator::MutateEvaluate(const Evaluate& s) {
  Expr value = Mutate(s->value);
  if (value.same_as(s->value)) return s;
  return Evaluate(value, s->span);
}

Stmt StmtMutator::MutateIfThenElse(const IfThenElse& s) {
  Expr condition = Mutate(s->condition);
  Stmt then_case = Mutate(s->then_case);
  Stmt else_case = Mutate(s->else_case);
  if (condition.same_as(s->condition) && then_case.same_as(s->then_case) &&
      else_case.same_as(s->else_case)) {
    return s;
  }
  return IfThenElse(condition, then_case, else_case, s->span);
}

ir::DictAttrs StmtMutator::MutateAnnotations(const ir::DictAttrs& annotations) {
  ir::DictAttrs result = annotations;
  for (const auto& [name, value] : annotations) {
    auto e = value.as<Expr>();
    if (!e.has_value()) continue;
    Expr mutated = Mutate(e.value());
    if (!mutated.same_as(e.value())) result.Set(name, mutated);
  }
  return result;
}

Stmt StmtMutator::MutateFor(const For& s) {
  Expr min = Mutate(s->min);
  Expr extent = Mutate(s->extent);
  Var loop_var = MutateDef(s->loop_var);
  ir::DictAttrs annotations = MutateAnnotations(s->annotations);
  Stmt body = Mutate(s->body);
  if (min.same_as(s->min) && extent.same_as(s->extent) && loop_var.same_as(s->loop_var) &&
      body.same_as(s->body) && annotations.same_as(s->annotations)) {
    return s;
  }
  if (!body.defined()) return Stmt();
  return For(loop_var, min, extent, s->kind, body, s->thread_tag, annotations, s->span);
}

Stmt StmtMutator::MutateWhile(const While& s) {
  Expr condition = Mutate(s->condition);
  Stmt body = Mutate(s->body);
  if (condition.same_as(s->condition) && body.same_as(s->body)) return s;
  return While(condition, body, s->span);
}

Stmt StmtMutator::MutateSBlock(const SBlock& s) {
  auto mutate_region = [this](const BufferRegion& region) {
    Var buffer = MutateBuffer(region->buffer);
    ffi::Array<Expr> mins = MutateAll(region->mins);
    ffi::Array<Expr> extents = MutateAll(region->extents);
    if (buffer.same_as(region->buffer) && mins.same_as(region->mins) &&
        extents.same_as(region->extents)) {
      return region;
    }
    return BufferRegion(buffer, mins, extents);
  };
  ffi::Array<IterVar> iter_vars = s->iter_vars.Map([this](const IterVar& iter) {
    Expr min = Mutate(iter->min);
    Expr extent = Mutate(iter->extent);
    Var var = MutateDef(iter->var);
    if (min.same_as(iter->min) && extent.same_as(iter->extent) && var.same_as(iter->var)) {
      return iter;
    }
    return IterVar(var, min, extent, iter->kind);
  });
  ffi::Array<Var> allocs =
      s->alloc_buffers.Map([this](const Var& buffer) { return MutateDef(buffer); });
  ffi::Array<BufferRegion> reads = s->reads.Map(mutate_region);
  ffi::Array<BufferRegion> writes = s->writes.Map(mutate_region);
  Stmt init = Mutate(s->init);
  Stmt body = Mutate(s->body);
  if (iter_vars.same_as(s->iter_vars) && allocs.same_as(s->alloc_buffers) &&
      reads.same_as(s->reads) && writes.same_as(s->writes) && init.same_as(s->init) &&
      body.same_as(s->body)) {
    return s;
  }
  return SBlock(iter_vars, reads, writes, s->name_hint, body, init, allocs, s->annotations,
                s->span);
}

Stmt StmtMutator::MutateSBlockRealize(const SBlockRealize& s) {
  ffi::Array<Expr> values = MutateAll(s->iter_values);
  Expr predicate = Mutate(s->predicate);
  Stmt block = Mutate(Stmt(s->block));
  if (values.same_as(s->iter_values) && predicate.same_as(s->predicate) &&
      block.same_as(s->block)) {
    return s;
  }
  auto typed = block.as<SBlock>();
  RELAXVM_CHECK(typed.has_value()) << "a block replaced by another statement";
  return SBlockRealize(values, predicate, typed.value(), s->span);
}

}  // namespace relaxvm::tir
