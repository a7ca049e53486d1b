// SPDX-License-Identifier: Apache-2.0
// Explicit memory: what the memory planner and the lowering to the VM emit, and views.
#include "ir/prim.h"
#include "ops/core/core.h"

namespace relaxvm::ops {
namespace {

const ArgDoc kScope = {"storage_scope", "Where the memory lies.", ArgKind::kString, true,
                       ffi::String("global")};
const ArgDoc kDtypeDoc = {"dtype", "The element type.", ArgKind::kDtype};
const ArgDoc kShapeDoc = {"shape", "The shape.", ArgKind::kShape};
const ArgDoc kDevice = {"runtime_device_ind", "Index of the device; -1 is the host.",
                        ArgKind::kPrim, true, ffi::Any(int64_t{0})};

Type InferAllocStorage(TypeCtx& ctx, const NoAttrs&) {
  ctx.Shape(0);
  return ir::AnyType();
}

// A tensor of the shape at `shape` and the dtype at `dtype`.
Type InferAlloc(TypeCtx& ctx, size_t shape, size_t dtype) {
  auto dims = ctx.Shape(shape);
  DLDataType t = DtypeArg(ctx, dtype);
  if (dims) return TensorType(*dims, t);
  return TensorType(t, ctx.Rank(shape));
}

Type InferKill(TypeCtx& ctx, const NoAttrs&) { return ir::VoidType(); }

bool IsLeftOut(const Type& type) { return ir::IsVoidType(type); }

// Each of shape, dtype and offset may be the empty tuple: as it is.
Type InferView(TypeCtx& ctx, const NoAttrs&) {
  TensorType x = ctx.Tensor(0);
  DLDataType dtype = x->dtype;
  if (ctx.Has(2) && !IsLeftOut(ctx.type(2))) dtype = DtypeArg(ctx, 2);
  bool moved = ctx.Has(3) && !IsLeftOut(ctx.type(3));
  if (moved && !IsInteger(ctx.Prim(3))) {
    ctx.Error(ErrorKind::kTypeError, "relative_byte_offset must be an integer");
  }
  if (!ctx.Has(1) || IsLeftOut(ctx.type(1))) {
    if (!IsVoid(dtype) && !IsVoid(x->dtype) &&
        dtype.bits * dtype.lanes > x->dtype.bits * x->dtype.lanes) {
      ctx.Error(ErrorKind::kValueError, "a view as ", DTypeName(dtype), " of ", DescribeType(x),
                " would be larger; give its shape");
    }
    return ctx.Like(x, dtype);
  }
  auto dims = ctx.Shape(1);
  auto from = x->GetShape();
  if (dims && from && !moved && !IsVoid(dtype) && !IsVoid(x->dtype)) {
    Expr have(int64_t{x->dtype.bits} * x->dtype.lanes);
    for (const Expr& d : *from) have = have * d;
    Expr want(int64_t{dtype.bits} * dtype.lanes);
    for (const Expr& d : *dims) want = want * d;
    if (ctx.Prove(ir::Less(ctx.Simplify(have), ctx.Simplify(want)))) {
      ctx.Error(ErrorKind::kValueError, "a view of shape ", DescribeDims(*dims), " and dtype ",
                DTypeName(dtype), " does not fit into ", DescribeType(x));
    }
  }
  return dims ? ctx.Result(*dims, dtype) : ctx.OfShape(1, dtype);
}

Type InferSame(TypeCtx& ctx, const NoAttrs&) { return ctx.Tensor(0); }

}  // namespace

OpDef builtin_alloc_tensor() {
  return Define<NoAttrs>({
      .name = "builtin.alloc_tensor",
      .doc = "A fresh tensor, not initialised.",
      .args = {kShapeDoc,
               kDtypeDoc,
               {"runtime_device_index", "Index of the device; -1 is the host.", ArgKind::kPrim},
               kScope},
      .type = [](TypeCtx& ctx, const NoAttrs&) { return InferAlloc(ctx, 0, 1); },
      .effect = Effect::kAllocates,
  });
}

OpDef memory_alloc_storage() {
  return Define<NoAttrs>({
      .name = "memory.alloc_storage",
      .doc = "Reserves memory that tensors are placed in.",
      .args = {{"size", "Its size in bytes, a shape of one dimension.", ArgKind::kShape},
               {"virtual_device_index", "Index of the device.", ArgKind::kPrim},
               {"storage_scope", "Where the memory lies.", ArgKind::kString},
               kDtypeDoc},
      .type = InferAllocStorage,
      .effect = Effect::kAllocates,
  });
}

OpDef memory_alloc_tensor() {
  return Define<NoAttrs>({
      .name = "memory.alloc_tensor",
      .doc = "A tensor at an offset into reserved memory.",
      .args = {{"storage", "The memory.", ArgKind::kAny},
               {"offset", "Offset in bytes.", ArgKind::kPrim},
               kShapeDoc,
               kDtypeDoc,
               kDevice},
      .type = [](TypeCtx& ctx, const NoAttrs&) { return InferAlloc(ctx, 2, 3); },
      .effect = Effect::kAllocates,
  });
}

OpDef memory_kill_storage() {
  return Define<NoAttrs>({
      .name = "memory.kill_storage",
      .doc = "Ends the use of reserved memory.",
      .args = {{"storage", "The memory.", ArgKind::kAny}},
      .type = InferKill,
      .effect = Effect::kImpure,
  });
}

OpDef memory_kill_tensor() {
  return Define<NoAttrs>({
      .name = "memory.kill_tensor",
      .doc = "Ends the use of a tensor.",
      .args = {{"tensor", "The tensor."}},
      .type = InferKill,
      .effect = Effect::kImpure,
  });
}

OpDef memory_view() {
  return Define<NoAttrs>({
      .name = "memory.view",
      .doc = "The memory of a tensor seen with another shape, element type or start; no copy.",
      .args = {{"data", "The tensor."},
               {"shape", "The shape; left out: as it is.", ArgKind::kShape, true},
               {"dtype", "The element type; left out: as it is.", ArgKind::kDtype, true},
               {"relative_byte_offset", "Bytes to skip; left out: none.", ArgKind::kPrim, true}},
      .type = InferView,
  });
}

OpDef memory_ensure_zero_offset() {
  return Define<NoAttrs>({
      .name = "memory.ensure_zero_offset",
      .doc = "The tensor, copied when it does not start at its memory's first byte.",
      .args = {{"data", "The tensor."}},
      .type = InferSame,
  });
}

OpDef vm_alloc_storage() {
  return Define<NoAttrs>({
      .name = "vm.alloc_storage",
      .doc = "Reserves memory that tensors are placed in.",
      .args = {{"shape", "Its size in bytes, a shape of one dimension.", ArgKind::kShape},
               {"runtime_device_index", "Index of the device; -1 is the host.", ArgKind::kPrim},
               kDtypeDoc,
               kScope},
      .type = InferAllocStorage,
      .effect = Effect::kAllocates,
  });
}

OpDef vm_alloc_tensor() {
  return Define<NoAttrs>({
      .name = "vm.alloc_tensor",
      .doc = "A tensor at an offset into reserved memory.",
      .args = {{"storage", "The memory.", ArgKind::kAny},
               {"offset", "Offset in bytes.", ArgKind::kPrim},
               kShapeDoc,
               kDtypeDoc,
               kDevice},
      .type = [](TypeCtx& ctx, const NoAttrs&) { return InferAlloc(ctx, 2, 3); },
      .effect = Effect::kAllocates,
  });
}

OpDef vm_kill_object() {
  return Define<NoAttrs>({
      .name = "vm.kill_object",
      .doc = "Empties a register: ends the use of what it holds.",
      .args = {{"obj", "The object.", ArgKind::kAny}},
      .type = InferKill,
      .effect = Effect::kImpure,
  });
}

}  // namespace relaxvm::ops
