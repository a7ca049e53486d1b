// SPDX-License-Identifier: Apache-2.0
// Scalar expressions: dimensions of shapes, and all arithmetic inside tensor programs.  Their type
// is a PrimType, set at construction.  Lanes above 1 appear only in tensor programs.
#pragma once

#include "ir/expr.h"

namespace relaxvm::ir {

class IntImmObj : public ExprObj {  // integers and bool
 public:
  int64_t value = 0;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.ir.IntImm", IntImmObj, ExprObj);
};
class IntImm : public Expr {
 public:
  IntImm(DLDataType dtype, int64_t value, Span span = Span());
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(IntImm, Expr, IntImmObj);
};

class FloatImmObj : public ExprObj {
 public:
  double value = 0;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.ir.FloatImm", FloatImmObj, ExprObj);
};
class FloatImm : public Expr {
 public:
  FloatImm(DLDataType dtype, double value, Span span = Span());
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(FloatImm, Expr, FloatImmObj);
};

// Operators of two operands of one dtype.  Comparisons and logic give bool.
enum class BinaryOp : int32_t {
  kAdd,
  kSub,
  kMul,
  kDiv,  // floats: division; integers: rounds towards zero
  kMod,  // integers: remainder of kDiv; floats: fmod
  kFloorDiv,
  kFloorMod,  // integers: rounds towards minus infinity; the remainder has the divisor's sign
  kMin,
  kMax,  // floats: NaN when either side is NaN
  kEQ,
  kNE,
  kLT,
  kLE,
  kGT,
  kGE,
  kAnd,
  kOr,  // bool
  kBitAnd,
  kBitOr,
  kBitXor,
  kShiftLeft,
  kShiftRight,  // integers; kShiftRight keeps the sign of signed ones
};
inline constexpr int kNumBinaryOps = 22;
bool IsComparison(BinaryOp op);  // kEQ .. kGE

class BinaryObj : public ExprObj {
 public:
  BinaryOp op = BinaryOp::kAdd;
  Expr a;
  Expr b;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.prim.Binary", BinaryObj, ExprObj);
};
class Binary : public Expr {
 public:
  // Operands must already agree in dtype and lanes.  Does not fold; the makers below do.
  Binary(BinaryOp op, Expr a, Expr b, Span span = Span());
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(Binary, Expr, BinaryObj);
};

class CastObj : public ExprObj {  // to the dtype of `ty`
 public:
  Expr value;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.prim.Cast", CastObj, ExprObj);
};
class CastExpr : public Expr {
 public:
  CastExpr(DLDataType dtype, Expr value, Span span = Span());
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(CastExpr, Expr, CastObj);
};

// Both values may be computed; for one that must not be, use Intrin::kIfThenElse.
class SelectObj : public ExprObj {
 public:
  Expr condition;
  Expr true_value;
  Expr false_value;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.prim.Select", SelectObj, ExprObj);
};
class SelectExpr : public Expr {
 public:
  SelectExpr(Expr condition, Expr true_value, Expr false_value, Span span = Span());
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(SelectExpr, Expr, SelectObj);
};

class LetObj : public ExprObj {
 public:
  Var var = Var(ffi::UnsafeInit{});
  Expr value;
  Expr body;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.prim.Let", LetObj, ExprObj);
};
class LetExpr : public Expr {
 public:
  LetExpr(Var var, Expr value, Expr body, Span span = Span());
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(LetExpr, Expr, LetObj);
};

// base, base + stride, base + 2 stride, ...
class RampObj : public ExprObj {
 public:
  Expr base;
  Expr stride;
  int64_t lanes = 1;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.prim.Ramp", RampObj, ExprObj);
};
class RampExpr : public Expr {
 public:
  RampExpr(Expr base, Expr stride, int64_t lanes, Span span = Span());
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(RampExpr, Expr, RampObj);
};

class BroadcastObj : public ExprObj {
 public:
  Expr value;
  int64_t lanes = 1;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.prim.Broadcast", BroadcastObj, ExprObj);
};
class BroadcastExpr : public Expr {
 public:
  BroadcastExpr(Expr value, int64_t lanes, Span span = Span());
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(BroadcastExpr, Expr, BroadcastObj);
};

// Lanes picked by `indices` out of the concatenation of `vectors`.
class ShuffleObj : public ExprObj {
 public:
  ffi::Array<Expr> vectors;
  ffi::Array<int64_t> indices;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.prim.Shuffle", ShuffleObj, ExprObj);
};
class ShuffleExpr : public Expr {
 public:
  ShuffleExpr(ffi::Array<Expr> vectors, ffi::Array<int64_t> indices, Span span = Span());
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(ShuffleExpr, Expr, ShuffleObj);
};

// Named pure functions of scalars; rows of intrin_list.def.
enum class Intrin : int32_t {
#define INTRIN(id, name, arity, meaning) k##id,
#include "ir/intrin_list.def"
#undef INTRIN
};
const char* IntrinName(Intrin intrin);
int IntrinArity(Intrin intrin);
ffi::Optional<int64_t> FindIntrin(const ffi::String& name);  // the enum's value

class IntrinObj : public ExprObj {
 public:
  Intrin intrin = Intrin::kNot;
  ffi::Array<Expr> args;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relaxvm.prim.Intrin", IntrinObj, ExprObj);
};
class IntrinExpr : public Expr {
 public:
  IntrinExpr(DLDataType dtype, Intrin intrin, ffi::Array<Expr> args, Span span = Span());
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(IntrinExpr, Expr, IntrinObj);
};

// ---- makers: match dtypes (an immediate takes the other side's), fold constants and trivial
// identities -----------------

Expr Make(BinaryOp op, Expr a, Expr b, Span span = Span());
Expr Add(Expr a, Expr b);
Expr Sub(Expr a, Expr b);
Expr Mul(Expr a, Expr b);
Expr Div(Expr a, Expr b);
Expr Mod(Expr a, Expr b);
Expr FloorDiv(Expr a, Expr b);
Expr FloorMod(Expr a, Expr b);
Expr CeilDiv(Expr a, Expr b);
Expr Min(Expr a, Expr b);
Expr Max(Expr a, Expr b);
Expr Equal(Expr a, Expr b);
Expr NotEqual(Expr a, Expr b);
Expr Less(Expr a, Expr b);
Expr LessEqual(Expr a, Expr b);
Expr Greater(Expr a, Expr b);
Expr GreaterEqual(Expr a, Expr b);
Expr And(Expr a, Expr b);
Expr Or(Expr a, Expr b);
Expr Not(Expr a);
Expr Select(Expr condition, Expr true_value, Expr false_value);
Expr IfThenElse(Expr condition, Expr true_value, Expr false_value);
Expr Cast(DLDataType dtype, Expr value);
Expr CallIntrin(Intrin intrin,
                ffi::Array<Expr> args);  // dtype of the first argument (bool for predicates)
Expr CallIntrin(DLDataType dtype, Intrin intrin, ffi::Array<Expr> args);
Expr Const(DLDataType dtype, int64_t value);  // IntImm or FloatImm, broadcast when dtype has lanes
Expr ConstFloat(DLDataType dtype, double value);
Expr MinValue(DLDataType dtype);  // least value; -inf for floats
Expr MaxValue(DLDataType dtype);  // greatest value; inf for floats
Expr BoolImm(bool value);

inline Expr operator+(Expr a, Expr b) { return Add(std::move(a), std::move(b)); }
inline Expr operator-(Expr a, Expr b) { return Sub(std::move(a), std::move(b)); }
inline Expr operator*(Expr a, Expr b) { return Mul(std::move(a), std::move(b)); }

// The value of an integer immediate; absent for anything else.
ffi::Optional<int64_t> AsInt(const Expr& e);
bool IsIntValue(const Expr& e, int64_t value);
// Is its type a PrimType?
bool IsPrim(const Expr& e);

}  // namespace relaxvm::ir
