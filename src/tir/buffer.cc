// SPDX-License-Identifier: Apache-2.0
// Construction of buffer types, buffers and loads.
#include "tir/buffer.h"

#include <algorithm>
#include <utility>

namespace relaxvm::tir {

BufferType::BufferType(DLDataType dtype, ffi::Array<Expr> shape, ffi::String storage_scope,
                       ffi::Array<Expr> strides, Expr elem_offset, int64_t data_alignment)
    : ir::Type(ffi::UnsafeInit{}) {
  RELAXVM_CHECK(dtype.lanes == 1) << "a buffer of " << DTypeName(dtype);
  RELAXVM_CHECK(strides.empty() || strides.size() == shape.size()) << "strides of another rank";
  auto node = ffi::make_object<BufferTypeObj>();
  node->dtype = dtype;
  node->shape = std::move(shape);
  node->storage_scope = std::move(storage_scope);
  node->strides = std::move(strides);
  node->elem_offset = std::move(elem_offset);
  node->data_alignment = data_alignment;
  data_ = std::move(node);
}

Buffer::Buffer(ffi::String name, ffi::Array<Expr> shape, DLDataType dtype,
               ffi::String storage_scope)
    : Var(std::move(name), BufferType(dtype, std::move(shape), std::move(storage_scope))) {}

Buffer::Buffer(Var var) : Var(std::move(var)) {
  RELAXVM_CHECK(IsBuffer(*this)) << get()->name << " is not a buffer";
}

Expr Buffer::Load(ffi::Array<Expr> indices) const { return BufferLoad(*this, std::move(indices)); }

bool IsBuffer(const Expr& e) {
  return e.defined() && e.as<ir::VarObj>() != nullptr && e->ty.defined() &&
         e->ty.as<BufferTypeObj>() != nullptr;
}

int IndexLanes(const ffi::Array<Expr>& indices) {
  int lanes = 1;
  for (const Expr& index : indices) {
    int own = index.dtype().lanes;
    RELAXVM_CHECK(own == 1 || lanes == 1 || own == lanes) << "indices with different lanes";
    lanes = std::max(lanes, own);
  }
  return lanes;
}

BufferLoad::BufferLoad(Var buffer, ffi::Array<Expr> indices, Expr predicate, ir::Span span)
    : Expr(ffi::UnsafeInit{}) {
  Buffer typed(buffer);
  RELAXVM_CHECK(indices.size() == typed.shape().size() || indices.size() == 1)
      << "load from " << buffer->name << ": " << indices.size() << " indices for "
      << typed.shape().size() << " dimensions";
  auto node = ffi::make_object<BufferLoadObj>();
  node->ty = ir::PrimType(WithLanes(typed.elem_dtype(), IndexLanes(indices)));
  node->buffer = std::move(buffer);
  node->indices = std::move(indices);
  node->predicate = std::move(predicate);
  node->span = std::move(span);
  data_ = std::move(node);
}

}  // namespace relaxvm::tir
