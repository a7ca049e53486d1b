// SPDX-License-Identifier: Apache-2.0
// Construction of statements, blocks and tensor programs.
#include "tir/stmt.h"

#include <utility>

namespace relaxvm::tir {
namespace {

bool SameElement(DLDataType a, DLDataType b) { return a.code == b.code && a.bits == b.bits; }

}  // namespace

BufferStore::BufferStore(Var buffer, Expr value, ffi::Array<Expr> indices, Expr predicate,
                         Span span)
    : Stmt(ffi::UnsafeInit{}) {
  Buffer typed(buffer);
  RELAXVM_CHECK(indices.size() == typed.shape().size() || indices.size() == 1)
      << "store to " << buffer->name << ": " << indices.size() << " indices for "
      << typed.shape().size() << " dimensions";
  RELAXVM_CHECK(SameElement(value.dtype(), typed.elem_dtype()))
      << "store of " << DTypeName(value.dtype()) << " to " << buffer->name << ", which holds "
      << DTypeName(typed.elem_dtype());
  int lanes = IndexLanes(indices);
  RELAXVM_CHECK(value.dtype().lanes == lanes)
      << "store of " << value.dtype().lanes << " lanes to " << buffer->name << " at an index of "
      << lanes << " lanes";
  auto node = ffi::make_object<BufferStoreObj>();
  node->buffer = std::move(buffer);
  node->value = std::move(value);
  node->indices = std::move(indices);
  node->predicate = std::move(predicate);
  node->span = std::move(span);
  data_ = std::move(node);
}

Bind::Bind(Var var, Expr value, Span span) : Stmt(ffi::UnsafeInit{}) {
  auto node = ffi::make_object<BindObj>();
  node->var = std::move(var);
  node->value = std::move(value);
  node->span = std::move(span);
  data_ = std::move(node);
}

AllocBuffer::AllocBuffer(Var buffer, Span span) : Stmt(ffi::UnsafeInit{}) {
  RELAXVM_CHECK(IsBuffer(buffer)) << buffer->name << " is not a buffer";
  auto node = ffi::make_object<AllocBufferObj>();
  node->buffer = std::move(buffer);
  node->span = std::move(span);
  data_ = std::move(node);
}

AssertStmt::AssertStmt(Expr condition, ffi::String error_kind, ffi::String message, Span span)
    : Stmt(ffi::UnsafeInit{}) {
  auto node = ffi::make_object<AssertStmtObj>();
  node->condition = std::move(condition);
  node->error_kind = std::move(error_kind);
  node->message = std::move(message);
  node->span = std::move(span);
  data_ = std::move(node);
}

SeqStmt::SeqStmt(ffi::Array<Stmt> seq, Span span) : Stmt(ffi::UnsafeInit{}) {
  auto node = ffi::make_object<SeqStmtObj>();
  node->seq = std::move(seq);
  node->span = std::move(span);
  data_ = std::move(node);
}

namespace {

void AppendFlat(const ffi::Array<Stmt>& seq, ffi::Array<Stmt>* out) {
  for (const Stmt& s : seq) {
    if (!s.defined()) continue;
    if (const auto* nested = s.as<SeqStmtObj>()) {
      AppendFlat(nested->seq, out);
    } else {
      out->push_back(s);
    }
  }
}

}  // namespace

Stmt SeqStmt::Flatten(ffi::Array<Stmt> seq) {
  ffi::Array<Stmt> flat;
  AppendFlat(seq, &flat);
  if (flat.size() == 1) return flat[0];
  return SeqStmt(std::move(flat));
}

Evaluate::Evaluate(Expr value, Span span) : Stmt(ffi::UnsafeInit{}) {
  auto node = ffi::make_object<EvaluateObj>();
  node->value = std::move(value);
  node->span = std::move(span);
  data_ = std::move(node);
}

IfThenElse::IfThenElse(Expr condition, Stmt then_case, Stmt else_case, Span span)
    : Stmt(ffi::UnsafeInit{}) {
  auto node = ffi::make_object<IfThenElseObj>();
  node->condition = std::move(condition);
  node->then_case = std::move(then_case);
  node->else_case = std::move(else_case);
  node->span = std::move(span);
  data_ = std::move(node);
}

For::For(Var loop_var, Expr min, Expr extent, ForKind kind, Stmt body, ffi::String thread_tag,
         ir::DictAttrs annotations, Span span)
    : Stmt(ffi::UnsafeInit{}) {
  RELAXVM_CHECK(body.defined()) << "a loop without a body";
  auto node = ffi::make_object<ForObj>();
  node->loop_var = std::move(loop_var);
  node->min = std::move(min);
  node->extent = std::move(extent);
  node->kind = kind;
  node->body = std::move(body);
  node->thread_tag = std::move(thread_tag);
  node->annotations = std::move(annotations);
  node->span = std::move(span);
  data_ = std::move(node);
}

While::While(Expr condition, Stmt body, Span span) : Stmt(ffi::UnsafeInit{}) {
  auto node = ffi::make_object<WhileObj>();
  node->condition = std::move(condition);
  node->body = std::move(body);
  node->span = std::move(span);
  data_ = std::move(node);
}

IterVar::IterVar(Var var, Expr min, Expr extent, IterKind kind)
    : ffi::ObjectRef(ffi::UnsafeInit{}) {
  auto node = ffi::make_object<IterVarObj>();
  node->var = std::move(var);
  node->min = std::move(min);
  node->extent = std::move(extent);
  node->kind = kind;
  data_ = std::move(node);
}

BufferRegion::BufferRegion(Var buffer, ffi::Array<Expr> mins, ffi::Array<Expr> extents)
    : ffi::ObjectRef(ffi::UnsafeInit{}) {
  RELAXVM_CHECK(mins.size() == extents.size()) << "a region of " << buffer->name;
  auto node = ffi::make_object<BufferRegionObj>();
  node->buffer = std::move(buffer);
  node->mins = std::move(mins);
  node->extents = std::move(extents);
  data_ = std::move(node);
}

SBlock::SBlock(ffi::Array<IterVar> iter_vars, ffi::Array<BufferRegion> reads,
               ffi::Array<BufferRegion> writes, ffi::String name_hint, Stmt body, Stmt init,
               ffi::Array<Var> alloc_buffers, ir::DictAttrs annotations, Span span)
    : Stmt(ffi::UnsafeInit{}) {
  auto node = ffi::make_object<SBlockObj>();
  node->iter_vars = std::move(iter_vars);
  node->reads = std::move(reads);
  node->writes = std::move(writes);
  node->name_hint = std::move(name_hint);
  node->body = std::move(body);
  node->init = std::move(init);
  node->alloc_buffers = std::move(alloc_buffers);
  node->annotations = std::move(annotations);
  node->span = std::move(span);
  data_ = std::move(node);
}

SBlockRealize::SBlockRealize(ffi::Array<Expr> iter_values, Expr predicate, SBlock block, Span span)
    : Stmt(ffi::UnsafeInit{}) {
  RELAXVM_CHECK(iter_values.size() == block->iter_vars.size())
      << "block " << block->name_hint << ": " << iter_values.size() << " values for "
      << block->iter_vars.size() << " axes";
  auto node = ffi::make_object<SBlockRealizeObj>();
  node->iter_values = std::move(iter_values);
  node->predicate = std::move(predicate);
  node->block = std::move(block);
  node->span = std::move(span);
  data_ = std::move(node);
}

PrimFunc::PrimFunc(ffi::Array<Var> params, Stmt body, ir::DictAttrs attrs, Span span)
    : ir::BaseFunc(ffi::UnsafeInit{}) {
  auto node = ffi::make_object<PrimFuncObj>();
  node->params = std::move(params);
  node->ret_type = ir::VoidType();
  // Called directly, a tensor program writes to its arguments.
  node->ty = ir::FuncType::Opaque(node->ret_type, /*purity=*/false);
  node->body = std::move(body);
  node->attrs = std::move(attrs);
  node->span = std::move(span);
  data_ = std::move(node);
}

}  // namespace relaxvm::tir
