// SPDX-License-Identifier: Apache-2.0
// Scalar expressions: nodes, and makers that match dtypes and fold constants.
#include "ir/prim.h"

#include <cmath>
#include <limits>
#include <string>

namespace relaxvm::ir {
namespace {

template <typename Obj>
ffi::ObjectPtr<Obj> MakeNode(DLDataType dtype, Span span) {
  auto n = ffi::make_object<Obj>();
  n->ty = PrimType(dtype);
  n->span = std::move(span);
  return n;
}

struct IntrinRow {
  const char* name;
  int arity;
};
constexpr IntrinRow kIntrins[] = {
#define INTRIN(id, name, arity, meaning) {name, arity},
#include "ir/intrin_list.def"
#undef INTRIN
};

// `value` wrapped to the width of an integer dtype.
int64_t Wrap(DLDataType dtype, int64_t value) {
  if (IsBool(dtype)) return value != 0;
  if (dtype.bits >= 64) return value;
  const uint64_t mask = (uint64_t{1} << dtype.bits) - 1;
  const uint64_t low = static_cast<uint64_t>(value) & mask;
  const bool negative = IsInt(dtype) && ((low >> (dtype.bits - 1)) & 1);
  return static_cast<int64_t>(negative ? low | ~mask : low);
}

bool IsImm(const Expr& e) { return e.as<IntImmObj>() != nullptr || e.as<FloatImmObj>() != nullptr; }

// An immediate takes the dtype of the other side (unless a float would become an integer); lanes
// are broadcast.
void MatchDtypes(Expr* a, Expr* b) {
  DLDataType ta = a->dtype(), tb = b->dtype();
  if (ta.lanes != tb.lanes) {
    if (ta.lanes == 1)
      *a = BroadcastExpr(*a, tb.lanes);
    else if (tb.lanes == 1)
      *b = BroadcastExpr(*b, ta.lanes);
    else
      RELAXVM_CHECK(false) << "operands of " << ta.lanes << " and " << tb.lanes << " lanes";
    ta = a->dtype(), tb = b->dtype();
  }
  if (ta == tb) return;
  const Expr* pa = a;
  const Expr* pb = b;
  if (const auto* x = pa->as<BroadcastObj>()) pa = &x->value;
  if (const auto* x = pb->as<BroadcastObj>()) pb = &x->value;
  const bool a_imm = IsImm(*pa), b_imm = IsImm(*pb);
  if (b_imm && !(IsFloat(tb) && !IsFloat(ta))) {
    *b = Cast(ta, *b);
  } else if (a_imm && !(IsFloat(ta) && !IsFloat(tb))) {
    *a = Cast(tb, *a);
  } else if (IsInteger(ta) && IsInteger(tb)) {  // index arithmetic of two widths: the wider one
    if (ta.bits >= tb.bits)
      *b = Cast(ta, *b);
    else
      *a = Cast(tb, *a);
  } else {
    Fail(ErrorKind::kTypeError, (*a)->span.Place(), "operands have dtypes ", DTypeName(ta), " and ",
         DTypeName(tb), "; cast one of them");
  }
}

bool FoldInt(BinaryOp op, DLDataType dtype, int64_t x, int64_t y, int64_t* out) {
  const bool is_unsigned = IsUInt(dtype) && dtype.bits == 64;
  auto less = [&](int64_t p, int64_t q) {
    return is_unsigned ? static_cast<uint64_t>(p) < static_cast<uint64_t>(q) : p < q;
  };
  switch (op) {
    case BinaryOp::kAdd: return !__builtin_add_overflow(x, y, out) || is_unsigned;
    case BinaryOp::kSub: return !__builtin_sub_overflow(x, y, out) || is_unsigned;
    case BinaryOp::kMul: return !__builtin_mul_overflow(x, y, out) || is_unsigned;
    case BinaryOp::kDiv:
    case BinaryOp::kMod:
    case BinaryOp::kFloorDiv:
    case BinaryOp::kFloorMod: {
      if (y == 0 || (x == std::numeric_limits<int64_t>::min() && y == -1)) return false;
      if (is_unsigned) {
        const uint64_t q = static_cast<uint64_t>(x) / static_cast<uint64_t>(y);
        const uint64_t r = static_cast<uint64_t>(x) % static_cast<uint64_t>(y);
        *out = static_cast<int64_t>(op == BinaryOp::kDiv || op == BinaryOp::kFloorDiv ? q : r);
        return true;
      }
      const int64_t q = x / y, r = x % y;
      const bool adjust = r != 0 && ((r < 0) != (y < 0));
      if (op == BinaryOp::kDiv)
        *out = q;
      else if (op == BinaryOp::kMod)
        *out = r;
      else if (op == BinaryOp::kFloorDiv)
        *out = q - adjust;
      else
        *out = adjust ? r + y : r;
      return true;
    }
    case BinaryOp::kMin: *out = less(y, x) ? y : x; return true;
    case BinaryOp::kMax: *out = less(x, y) ? y : x; return true;
    case BinaryOp::kEQ: *out = x == y; return true;
    case BinaryOp::kNE: *out = x != y; return true;
    case BinaryOp::kLT: *out = less(x, y); return true;
    case BinaryOp::kLE: *out = !less(y, x); return true;
    case BinaryOp::kGT: *out = less(y, x); return true;
    case BinaryOp::kGE: *out = !less(x, y); return true;
    case BinaryOp::kAnd: *out = x && y; return true;
    case BinaryOp::kOr: *out = x || y; return true;
    case BinaryOp::kBitAnd: *out = x & y; return true;
    case BinaryOp::kBitOr: *out = x | y; return true;
    case BinaryOp::kBitXor: *out = x ^ y; return true;
    case BinaryOp::kShiftLeft:
    case BinaryOp::kShiftRight:
      if (y < 0 || y >= dtype.bits) return false;
      if (op == BinaryOp::kShiftLeft)
        *out = static_cast<int64_t>(static_cast<uint64_t>(x) << y);
      else
        *out = IsUInt(dtype) ? static_cast<int64_t>(static_cast<uint64_t>(x) >> y) : x >> y;
      return true;
  }
  RELAXVM_UNREACHABLE();
}

// Constant operands, and the identities that are exact for every value.
Expr FoldBinary(BinaryOp op, const Expr& a, const Expr& b) {
  const DLDataType dtype = a.dtype();
  if (dtype.lanes != 1) return Expr();
  const auto* x = a.as<IntImmObj>();
  const auto* y = b.as<IntImmObj>();
  int64_t folded = 0;
  if (x && y && FoldInt(op, dtype, x->value, y->value, &folded)) {
    if (IsComparison(op)) return BoolImm(folded != 0);
    return IntImm(dtype, Wrap(dtype, folded));
  }
  if (op == BinaryOp::kAnd || op == BinaryOp::kOr) {
    const bool is_and = op == BinaryOp::kAnd;
    if (x) return (x->value != 0) == is_and ? b : a;
    if (y) return (y->value != 0) == is_and ? a : b;
    return Expr();
  }
  if (!IsInteger(dtype)) return Expr();
  const bool x0 = x && x->value == 0, y0 = y && y->value == 0, x1 = x && x->value == 1,
             y1 = y && y->value == 1;
  switch (op) {
    case BinaryOp::kAdd: return x0 ? b : y0 ? a : Expr();
    case BinaryOp::kSub: return y0 ? a : a.same_as(b) ? Expr(IntImm(dtype, 0)) : Expr();
    case BinaryOp::kMul: return x1 || y0 ? b : y1 || x0 ? a : Expr();
    case BinaryOp::kDiv:
    case BinaryOp::kFloorDiv: return y1 ? a : Expr();
    case BinaryOp::kMod:
    case BinaryOp::kFloorMod: return y1 ? Expr(IntImm(dtype, 0)) : Expr();
    case BinaryOp::kMin:
    case BinaryOp::kMax: return a.same_as(b) ? a : Expr();
    case BinaryOp::kEQ:
    case BinaryOp::kLE:
    case BinaryOp::kGE: return a.same_as(b) ? BoolImm(true) : Expr();
    case BinaryOp::kNE:
    case BinaryOp::kLT:
    case BinaryOp::kGT: return a.same_as(b) ? BoolImm(false) : Expr();
    case BinaryOp::kAnd:
    case BinaryOp::kOr:
    case BinaryOp::kBitAnd:
    case BinaryOp::kBitOr:
    case BinaryOp::kBitXor:
    case BinaryOp::kShiftLeft:
    case BinaryOp::kShiftRight: return Expr();
  }
  RELAXVM_UNREACHABLE();
}

}  // namespace

bool IsComparison(BinaryOp op) { return op >= BinaryOp::kEQ && op <= BinaryOp::kGE; }

// ---- nodes
// ---------------------------------------------------------------------------------------------------------------

IntImm::IntImm(DLDataType dtype, int64_t value, Span span) : Expr(ffi::UnsafeInit{}) {
  auto n = MakeNode<IntImmObj>(dtype, std::move(span));
  n->value = value;
  data_ = std::move(n);
}
FloatImm::FloatImm(DLDataType dtype, double value, Span span) : Expr(ffi::UnsafeInit{}) {
  auto n = MakeNode<FloatImmObj>(dtype, std::move(span));
  n->value = value;
  data_ = std::move(n);
}
Binary::Binary(BinaryOp op, Expr a, Expr b, Span span) : Expr(ffi::UnsafeInit{}) {
  const DLDataType dtype = a.dtype();
  RELAXVM_CHECK(dtype == b.dtype())
      << "operands of dtypes " << DTypeName(dtype) << " and " << DTypeName(b.dtype());
  auto n = MakeNode<BinaryObj>(IsComparison(op) ? Bool(dtype.lanes) : dtype, std::move(span));
  n->op = op;
  n->a = std::move(a);
  n->b = std::move(b);
  data_ = std::move(n);
}
CastExpr::CastExpr(DLDataType dtype, Expr value, Span span) : Expr(ffi::UnsafeInit{}) {
  auto n = MakeNode<CastObj>(dtype, std::move(span));
  n->value = std::move(value);
  data_ = std::move(n);
}
SelectExpr::SelectExpr(Expr condition, Expr true_value, Expr false_value, Span span)
    : Expr(ffi::UnsafeInit{}) {
  auto n = MakeNode<SelectObj>(true_value.dtype(), std::move(span));
  n->condition = std::move(condition);
  n->true_value = std::move(true_value);
  n->false_value = std::move(false_value);
  data_ = std::move(n);
}
LetExpr::LetExpr(Var var, Expr value, Expr body, Span span) : Expr(ffi::UnsafeInit{}) {
  auto n = MakeNode<LetObj>(body.dtype(), std::move(span));
  n->var = std::move(var);
  n->value = std::move(value);
  n->body = std::move(body);
  data_ = std::move(n);
}
RampExpr::RampExpr(Expr base, Expr stride, int64_t lanes, Span span) : Expr(ffi::UnsafeInit{}) {
  auto n = MakeNode<RampObj>(WithLanes(base.dtype(), static_cast<int>(lanes)), std::move(span));
  n->stride =
      stride.dtype() == base.dtype() ? std::move(stride) : Cast(base.dtype(), std::move(stride));
  n->base = std::move(base);
  n->lanes = lanes;
  data_ = std::move(n);
}
BroadcastExpr::BroadcastExpr(Expr value, int64_t lanes, Span span) : Expr(ffi::UnsafeInit{}) {
  auto n =
      MakeNode<BroadcastObj>(WithLanes(value.dtype(), static_cast<int>(lanes)), std::move(span));
  n->value = std::move(value);
  n->lanes = lanes;
  data_ = std::move(n);
}
ShuffleExpr::ShuffleExpr(ffi::Array<Expr> vectors, ffi::Array<int64_t> indices, Span span)
    : Expr(ffi::UnsafeInit{}) {
  RELAXVM_CHECK(!vectors.empty() && !indices.empty());
  auto n = MakeNode<ShuffleObj>(WithLanes(vectors[0].dtype(), static_cast<int>(indices.size())),
                                std::move(span));
  n->vectors = std::move(vectors);
  n->indices = std::move(indices);
  data_ = std::move(n);
}
IntrinExpr::IntrinExpr(DLDataType dtype, Intrin intrin, ffi::Array<Expr> args, Span span)
    : Expr(ffi::UnsafeInit{}) {
  RELAXVM_CHECK(static_cast<int>(args.size()) == IntrinArity(intrin))
      << IntrinName(intrin) << " of " << args.size();
  auto n = MakeNode<IntrinObj>(dtype, std::move(span));
  n->intrin = intrin;
  n->args = std::move(args);
  data_ = std::move(n);
}

const char* IntrinName(Intrin intrin) { return kIntrins[static_cast<int>(intrin)].name; }
int IntrinArity(Intrin intrin) { return kIntrins[static_cast<int>(intrin)].arity; }
ffi::Optional<int64_t> FindIntrin(const ffi::String& name) {
  for (size_t i = 0; i < std::size(kIntrins); ++i) {
    if (name == kIntrins[i].name) return static_cast<int64_t>(i);
  }
  return std::nullopt;
}

// ---- makers
// --------------------------------------------------------------------------------------------------------------

Expr Make(BinaryOp op, Expr a, Expr b, Span span) {
  MatchDtypes(&a, &b);
  if (Expr folded = FoldBinary(op, a, b); folded.defined()) return folded;
  return Binary(op, std::move(a), std::move(b), std::move(span));
}
Expr Add(Expr a, Expr b) { return Make(BinaryOp::kAdd, std::move(a), std::move(b)); }
Expr Sub(Expr a, Expr b) { return Make(BinaryOp::kSub, std::move(a), std::move(b)); }
Expr Mul(Expr a, Expr b) { return Make(BinaryOp::kMul, std::move(a), std::move(b)); }
Expr Div(Expr a, Expr b) { return Make(BinaryOp::kDiv, std::move(a), std::move(b)); }
Expr Mod(Expr a, Expr b) { return Make(BinaryOp::kMod, std::move(a), std::move(b)); }
Expr FloorDiv(Expr a, Expr b) { return Make(BinaryOp::kFloorDiv, std::move(a), std::move(b)); }
Expr FloorMod(Expr a, Expr b) { return Make(BinaryOp::kFloorMod, std::move(a), std::move(b)); }
Expr CeilDiv(Expr a, Expr b) { return FloorDiv(Add(std::move(a), Sub(b, 1)), b); }
Expr Min(Expr a, Expr b) { return Make(BinaryOp::kMin, std::move(a), std::move(b)); }
Expr Max(Expr a, Expr b) { return Make(BinaryOp::kMax, std::move(a), std::move(b)); }
Expr Equal(Expr a, Expr b) { return Make(BinaryOp::kEQ, std::move(a), std::move(b)); }
Expr NotEqual(Expr a, Expr b) { return Make(BinaryOp::kNE, std::move(a), std::move(b)); }
Expr Less(Expr a, Expr b) { return Make(BinaryOp::kLT, std::move(a), std::move(b)); }
Expr LessEqual(Expr a, Expr b) { return Make(BinaryOp::kLE, std::move(a), std::move(b)); }
Expr Greater(Expr a, Expr b) { return Make(BinaryOp::kGT, std::move(a), std::move(b)); }
Expr GreaterEqual(Expr a, Expr b) { return Make(BinaryOp::kGE, std::move(a), std::move(b)); }
Expr And(Expr a, Expr b) { return Make(BinaryOp::kAnd, std::move(a), std::move(b)); }
Expr Or(Expr a, Expr b) { return Make(BinaryOp::kOr, std::move(a), std::move(b)); }
Expr Not(Expr a) {
  if (const auto* imm = a.as<IntImmObj>()) return BoolImm(imm->value == 0);
  if (const auto* inner = a.as<IntrinObj>(); inner && inner->intrin == Intrin::kNot)
    return inner->args[0];
  DLDataType dtype = Bool(a.dtype().lanes);
  return IntrinExpr(dtype, Intrin::kNot, {std::move(a)});
}

Expr Select(Expr condition, Expr true_value, Expr false_value) {
  MatchDtypes(&true_value, &false_value);
  if (const auto* imm = condition.as<IntImmObj>()) return imm->value ? true_value : false_value;
  const int lanes = true_value.dtype().lanes;
  const int condition_lanes = condition.dtype().lanes;
  if (condition_lanes == 1 && lanes > 1) condition = BroadcastExpr(condition, lanes);
  if (condition_lanes > 1 && lanes == 1) {
    true_value = BroadcastExpr(true_value, condition_lanes);
    false_value = BroadcastExpr(false_value, condition_lanes);
  }
  return SelectExpr(std::move(condition), std::move(true_value), std::move(false_value));
}
Expr IfThenElse(Expr condition, Expr true_value, Expr false_value) {
  MatchDtypes(&true_value, &false_value);
  if (const auto* imm = condition.as<IntImmObj>()) return imm->value ? true_value : false_value;
  const DLDataType dtype = true_value.dtype();
  return IntrinExpr(dtype, Intrin::kIfThenElse,
                    {std::move(condition), std::move(true_value), std::move(false_value)});
}

Expr Cast(DLDataType dtype, Expr value) {
  const DLDataType from = value.dtype();
  if (from == dtype) return value;
  if (from.lanes == 1 && dtype.lanes > 1)
    return BroadcastExpr(Cast(ElementOf(dtype), std::move(value)), dtype.lanes);
  RELAXVM_CHECK(from.lanes == dtype.lanes)
      << "cast of " << DTypeName(from) << " to " << DTypeName(dtype);
  if (const auto* b = value.as<BroadcastObj>())
    return BroadcastExpr(Cast(ElementOf(dtype), b->value), b->lanes);
  if (const auto* imm = value.as<IntImmObj>()) {
    if (IsFloat(dtype)) return FloatImm(dtype, static_cast<double>(imm->value));
    if (IsInteger(dtype) || IsBool(dtype)) return IntImm(dtype, Wrap(dtype, imm->value));
  }
  if (const auto* imm = value.as<FloatImmObj>()) {
    if (IsFloat(dtype) && dtype.bits >= from.bits) return FloatImm(dtype, imm->value);
    if (IsFloat(dtype) && dtype == Float(32))
      return FloatImm(dtype, static_cast<float>(imm->value));
    // Only what every machine agrees on: integers that fit.
    if (IsInteger(dtype) && std::fabs(imm->value) < 1e15) {
      const int64_t truncated = static_cast<int64_t>(imm->value);
      if (Wrap(dtype, truncated) == truncated) return IntImm(dtype, truncated);
    }
  }
  return CastExpr(dtype, std::move(value));
}

Expr CallIntrin(Intrin intrin, ffi::Array<Expr> args) {
  DLDataType dtype = args[0].dtype();
  switch (intrin) {
    case Intrin::kNot: return Not(args[0]);
    case Intrin::kIsNan:
    case Intrin::kIsInf:
    case Intrin::kIsFinite: dtype = Bool(dtype.lanes); break;
    case Intrin::kVectorRoom:
    case Intrin::kNumThreads: dtype = Int(64); break;
    case Intrin::kIfThenElse: return IfThenElse(args[0], args[1], args[2]);
    case Intrin::kReduceAdd:
    case Intrin::kReduceMul:
    case Intrin::kReduceMin:
    case Intrin::kReduceMax: dtype = ElementOf(dtype); break;
    default:  // every other row: the dtype of its first argument
      break;
  }
  return IntrinExpr(dtype, intrin, std::move(args));
}
Expr CallIntrin(DLDataType dtype, Intrin intrin, ffi::Array<Expr> args) {
  return IntrinExpr(dtype, intrin, std::move(args));
}

Expr Const(DLDataType dtype, int64_t value) {
  if (dtype.lanes > 1) return BroadcastExpr(Const(ElementOf(dtype), value), dtype.lanes);
  if (IsFloat(dtype)) return FloatImm(dtype, static_cast<double>(value));
  return IntImm(dtype, Wrap(dtype, value));
}
Expr ConstFloat(DLDataType dtype, double value) {
  if (dtype.lanes > 1) return BroadcastExpr(ConstFloat(ElementOf(dtype), value), dtype.lanes);
  if (IsFloat(dtype)) return FloatImm(dtype, value);
  return IntImm(dtype, Wrap(dtype, static_cast<int64_t>(value)));
}
Expr MinValue(DLDataType dtype) {
  if (IsFloat(dtype)) return ConstFloat(dtype, -std::numeric_limits<double>::infinity());
  if (IsInt(dtype))
    return Const(dtype, dtype.bits == 64 ? std::numeric_limits<int64_t>::min()
                                         : -(int64_t{1} << (dtype.bits - 1)));
  return Const(dtype, 0);
}
Expr MaxValue(DLDataType dtype) {
  if (IsFloat(dtype)) return ConstFloat(dtype, std::numeric_limits<double>::infinity());
  if (IsBool(dtype)) return Const(dtype, 1);
  if (IsInt(dtype))
    return Const(dtype, dtype.bits == 64 ? std::numeric_limits<int64_t>::max()
                                         : (int64_t{1} << (dtype.bits - 1)) - 1);
  return Const(dtype, -1);
}
Expr BoolImm(bool value) { return IntImm(Bool(), value); }

ffi::Optional<int64_t> AsInt(const Expr& e) {
  if (const auto* imm = e.as<IntImmObj>()) return imm->value;
  return std::nullopt;
}
bool IsIntValue(const Expr& e, int64_t value) {
  const auto* imm = e.as<IntImmObj>();
  return imm != nullptr && imm->value == value;
}
bool IsPrim(const Expr& e) {
  return e.defined() && e->ty.defined() && e->ty.as<PrimTypeObj>() != nullptr;
}

}  // namespace relaxvm::ir
