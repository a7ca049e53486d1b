// SPDX-License-Identifier: Apache-2.0
// Statements of the loop language, and tensor programs (PrimFunc).
#pragma once

#include "ir/module.h"
#include "tir/buffer.h"

namespace relaxvm::tir {

using ir::Span;

class StmtObj : public ffi::Object {
 public:
  mutable Span span;
  static constexpr TVMFFISEqHashKind _type_s_eq_hash_kind = kTVMFFISEqHashKindTreeNode;
  static constexpr uint32_t _type_child_slots = 24;
  TVM_FFI_DECLARE_OBJECT_INFO("relaxvm.tirx.Stmt", StmtObj, ffi::Object);
};
class Stmt : public ffi::ObjectRef {
 public:
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(Stmt, ffi::ObjectRef, StmtObj);
};

// buffer[indices] = value
class BufferStoreObj : public StmtObj {
 public:
  Var buffer = Var(ffi::UnsafeInit{});
  Expr value;
  ffi::Array<Expr> indices;
  Expr predicate;  // null, or a bool vector: lanes that are false are not written
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.tirx.BufferStore", BufferStoreObj, StmtObj);
};
class BufferStore : public Stmt {
 public:
  BufferStore(Var buffer, Expr value, ffi::Array<Expr> indices, Expr predicate = Expr(),
              Span span = Span());
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(BufferStore, Stmt, BufferStoreObj);
};

// var = value, for the statements after it in its SeqStmt.
class BindObj : public StmtObj {
 public:
  Var var = Var(ffi::UnsafeInit{});
  Expr value;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.tirx.Bind", BindObj, StmtObj);
};
class Bind : public Stmt {
 public:
  Bind(Var var, Expr value, Span span = Span());
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(Bind, Stmt, BindObj);
};

// Memory for the statements after it in its SeqStmt.  Scope "local" with constant shape becomes
// registers or stack; "global" comes from the workspace.
class AllocBufferObj : public StmtObj {
 public:
  Var buffer = Var(ffi::UnsafeInit{});
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.tirx.AllocBuffer", AllocBufferObj, StmtObj);
};
class AllocBuffer : public Stmt {
 public:
  explicit AllocBuffer(Var buffer, Span span = Span());
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(AllocBuffer, Stmt, AllocBufferObj);
};

// Leaves the program with an error unless `condition`.
class AssertStmtObj : public StmtObj {
 public:
  Expr condition;
  ffi::String error_kind;  // "ValueError" ...
  ffi::String message;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.tirx.AssertStmt", AssertStmtObj, StmtObj);
};
class AssertStmt : public Stmt {
 public:
  AssertStmt(Expr condition, ffi::String error_kind, ffi::String message, Span span = Span());
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(AssertStmt, Stmt, AssertStmtObj);
};

class SeqStmtObj : public StmtObj {
 public:
  ffi::Array<Stmt> seq;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.tirx.SeqStmt", SeqStmtObj, StmtObj);
};
class SeqStmt : public Stmt {
 public:
  explicit SeqStmt(ffi::Array<Stmt> seq, Span span = Span());
  // Nested sequences are flattened and null parts dropped; a single statement stays itself.
  static Stmt Flatten(ffi::Array<Stmt> seq);
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(SeqStmt, Stmt, SeqStmtObj);
};

class EvaluateObj : public StmtObj {
 public:
  Expr value;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.tirx.Evaluate", EvaluateObj, StmtObj);
};
class Evaluate : public Stmt {
 public:
  explicit Evaluate(Expr value, Span span = Span());
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(Evaluate, Stmt, EvaluateObj);
};

class IfThenElseObj : public StmtObj {
 public:
  Expr condition;
  Stmt then_case;
  Stmt else_case;  // may be null
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.tirx.IfThenElse", IfThenElseObj, StmtObj);
};
class IfThenElse : public Stmt {
 public:
  IfThenElse(Expr condition, Stmt then_case, Stmt else_case = Stmt(), Span span = Span());
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(IfThenElse, Stmt, IfThenElseObj);
};

enum class ForKind : int32_t {
  kSerial = 0,
  kParallel = 1,
  kVectorized = 2,
  kUnrolled = 3,
  kThreadBinding = 4
};

// for loop_var in [min, min + extent)
class ForObj : public StmtObj {
 public:
  Var loop_var = Var(ffi::UnsafeInit{});
  Expr min;
  Expr extent;
  ForKind kind = ForKind::kSerial;
  Stmt body;
  ffi::String thread_tag;  // kThreadBinding: "blockIdx.x", "threadIdx.x" ...
  ir::DictAttrs annotations;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.tirx.For", ForObj, StmtObj);
};
class For : public Stmt {
 public:
  For(Var loop_var, Expr min, Expr extent, ForKind kind, Stmt body, ffi::String thread_tag = "",
      ir::DictAttrs annotations = {}, Span span = Span());
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(For, Stmt, ForObj);
};

class WhileObj : public StmtObj {
 public:
  Expr condition;
  Stmt body;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.tirx.While", WhileObj, StmtObj);
};
class While : public Stmt {
 public:
  While(Expr condition, Stmt body, Span span = Span());
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(While, Stmt, WhileObj);
};

// ---- blocks: the unit that schedules move

enum class IterKind : int32_t { kSpatial = 0, kReduce = 1, kOpaque = 2 };

// An axis of a block: `var` runs over [min, min + extent).
class IterVarObj : public ffi::Object {
 public:
  Var var = Var(ffi::UnsafeInit{});
  Expr min;
  Expr extent;
  IterKind kind = IterKind::kSpatial;
  static constexpr TVMFFISEqHashKind _type_s_eq_hash_kind = kTVMFFISEqHashKindTreeNode;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.tirx.IterVar", IterVarObj, ffi::Object);
};
class IterVar : public ffi::ObjectRef {
 public:
  IterVar(Var var, Expr min, Expr extent, IterKind kind);
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(IterVar, ffi::ObjectRef, IterVarObj);
};

// buffer[min : min + extent] in each dimension.
class BufferRegionObj : public ffi::Object {
 public:
  Var buffer = Var(ffi::UnsafeInit{});
  ffi::Array<Expr> mins;
  ffi::Array<Expr> extents;
  static constexpr TVMFFISEqHashKind _type_s_eq_hash_kind = kTVMFFISEqHashKindTreeNode;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.tirx.BufferRegion", BufferRegionObj, ffi::Object);
};
class BufferRegion : public ffi::ObjectRef {
 public:
  BufferRegion(Var buffer, ffi::Array<Expr> mins, ffi::Array<Expr> extents);
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(BufferRegion, ffi::ObjectRef, BufferRegionObj);
};

// What one iteration does.  Iterations that differ in a spatial axis are independent; those that
// differ only in reduce axes accumulate into the same elements; `init` runs before the first of
// them.
class SBlockObj : public StmtObj {
 public:
  ffi::Array<IterVar> iter_vars;
  ffi::Array<BufferRegion> reads;
  ffi::Array<BufferRegion> writes;
  ffi::String name_hint;
  Stmt body;
  Stmt init;  // may be null
  ffi::Array<Var> alloc_buffers;
  ir::DictAttrs annotations;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.tirx.SBlock", SBlockObj, StmtObj);
};
class SBlock : public Stmt {
 public:
  SBlock(ffi::Array<IterVar> iter_vars, ffi::Array<BufferRegion> reads,
         ffi::Array<BufferRegion> writes, ffi::String name_hint, Stmt body, Stmt init = Stmt(),
         ffi::Array<Var> alloc_buffers = {}, ir::DictAttrs annotations = {}, Span span = Span());
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(SBlock, Stmt, SBlockObj);
};

// A block with values for its axes; runs only where `predicate` holds.
class SBlockRealizeObj : public StmtObj {
 public:
  ffi::Array<Expr> iter_values;
  Expr predicate;
  SBlock block = SBlock(ffi::UnsafeInit{});
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.tirx.SBlockRealize", SBlockRealizeObj, StmtObj);
};
class SBlockRealize : public Stmt {
 public:
  SBlockRealize(ffi::Array<Expr> iter_values, Expr predicate, SBlock block, Span span = Span());
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(SBlockRealize, Stmt, SBlockRealizeObj);
};

// ---- tensor programs

// Parameters: buffers (inputs, then outputs: destination passing) and int64 or float64 scalars, in
// call order. Symbolic sizes in the buffers' shapes are bound from the arguments at entry.  A
// program may have several outputs; attribute "num_outputs" (default 1) counts the buffers at the
// end of the buffers that are outputs. `body` before scheduling: the statements; temporaries are
// AllocBuffer statements at the front of the body.
class PrimFuncObj : public ir::BaseFuncObj {
 public:
  ffi::Array<Var> params;
  ir::Type ret_type;
  Stmt body;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.tirx.PrimFunc", PrimFuncObj, ir::BaseFuncObj);
};
class PrimFunc : public ir::BaseFunc {
 public:
  PrimFunc(ffi::Array<Var> params, Stmt body, ir::DictAttrs attrs = {}, Span span = Span());
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(PrimFunc, ir::BaseFunc, PrimFuncObj);
};

namespace attr {
inline constexpr const char* kNumOutputs = "num_outputs";
inline constexpr const char* kNoAlias = "tirx.noalias";  // outputs overlap no other buffer
inline constexpr const char* kScheduled =
    "tirx.is_scheduled";  // loops are final: schedules leave it alone
}  // namespace attr

}  // namespace relaxvm::tir
