// SPDX-License-Identifier: Apache-2.0
// Functions of two numbers with NumPy's broadcasting: rows of a table.
#include <algorithm>

#include "ops/compute.h"
#include "ops/layout_rule.h"

namespace relaxvm::ops {
namespace {

using ir::BinaryOp;
using ir::CallIntrin;

enum class Domain : uint8_t {
  kNumber,   // floats and integers
  kFloat,    // floats; those of 16 bits are computed in float32
  kInteger,  // integers
  kBits,     // integers and bool
  kLogic,    // all: a number is true unless it is 0; the result has the operands' dtype
  kAny,      // all
  kCompare,  // all; the result is bool
};

struct BinaryRow {
  const char* name;
  const char* doc;
  Domain domain;
  Expr (*formula)(const Expr& a, const Expr& b);
  const char* reference;
};

template <BinaryOp op>
Expr Plain(const Expr& a, const Expr& b) {
  return ir::Make(op, a, b);
}

// Order of bool: False below True.
template <BinaryOp op>
Expr Compare(const Expr& a, const Expr& b) {
  if (!IsBool(a.dtype())) return ir::Make(op, a, b);
  return ir::Make(op, ir::Cast(UInt(8), a), ir::Cast(UInt(8), b));
}

template <BinaryOp op, BinaryOp bool_op>
Expr BoolOr(const Expr& a, const Expr& b) {
  return ir::Make(IsBool(a.dtype()) ? bool_op : op, a, b);
}

Expr Xor(const Expr& a, const Expr& b) {
  return ir::Make(IsBool(a.dtype()) ? BinaryOp::kNE : BinaryOp::kBitXor, a, b);
}

Expr Divide(const Expr& a, const Expr& b) {
  return IsFloat(a.dtype()) ? ir::Div(a, b) : SafeDivide(a, b, false);
}

Expr Mod(const Expr& a, const Expr& b) {
  if (!IsFloat(a.dtype())) return SafeRemainder(a, b, false);
  return ir::Cast(a.dtype(), ir::Mod(Widen(a), Widen(b)));
}

// Has the remainder `r` towards zero another sign than the divisor?
Expr SignsDiffer(const Expr& r, const Expr& b) {
  Expr zero = Number(r.dtype(), 0);
  return ir::And(ir::NotEqual(r, zero), ir::NotEqual(ir::Less(r, zero), ir::Less(b, zero)));
}

// fmod, moved to the sign of the divisor.
Expr FloatFloorMod(const Expr& a, const Expr& b) {
  Expr zero = Number(a.dtype(), 0);
  ir::Var r("rest", a.dtype());
  Expr moved = SignsDiffer(r, b);
  Expr exact = ir::Select(ir::Equal(r, zero), CallIntrin(Intrin::kCopySign, {zero, b}), r);
  return ir::LetExpr(r, ir::Mod(a, b), ir::Select(moved, r + b, exact));
}

Expr FloorMod(const Expr& a, const Expr& b) {
  if (!IsFloat(a.dtype())) return SafeRemainder(a, b, true);
  return ir::Cast(a.dtype(), FloatFloorMod(Widen(a), Widen(b)));
}

// The quotient that belongs to the remainder: floor(a / b) may be one off when a / b was rounded.
Expr FloatFloorDivide(const Expr& a, const Expr& b) {
  DLDataType t = a.dtype();
  Expr zero = Number(t, 0);
  ir::Var r("rest", t), q("quotient", t);
  Expr towards_zero = ir::Div(a - r, b);
  Expr moved = ir::Select(SignsDiffer(r, b), towards_zero - Number(t, 1), towards_zero);
  Expr down = CallIntrin(Intrin::kFloor, {q});
  Expr nearest = ir::Select(ir::Greater(q - down, Number(t, 0.5)), down + Number(t, 1), down);
  Expr exact =
      ir::Select(ir::Equal(q, zero), CallIntrin(Intrin::kCopySign, {zero, ir::Div(a, b)}), nearest);
  Expr result = ir::Select(ir::Equal(b, zero), ir::Div(a, b), exact);
  return ir::LetExpr(r, ir::Mod(a, b), ir::LetExpr(q, moved, result));
}

Expr FloorDivide(const Expr& a, const Expr& b) {
  if (!IsFloat(a.dtype())) return SafeDivide(a, b, true);
  return ir::Cast(a.dtype(), FloatFloorDivide(Widen(a), Widen(b)));
}

// Integers: by repeated squaring, modulo the dtype's range; a negative exponent gives the quotient
// 1 / a**-b rounded towards zero.
Expr IntegerPower(const Expr& a, const Expr& b) {
  DLDataType t = a.dtype();
  Expr one = Number(t, 1);
  Expr zero = Number(t, 0);
  if (auto exponent = ir::AsInt(b); exponent.has_value() && *exponent >= 0 && *exponent <= 8) {
    Expr result = one;
    for (int64_t n = 0; n < *exponent; ++n) result = result * a;
    return result;
  }
  int bits = IsInt(t) ? t.bits - 1 : t.bits;
  std::vector<std::pair<ir::Var, Expr>> lets;
  auto let = [&](const char* name, Expr value) {
    ir::Var var(name, t);
    lets.emplace_back(var, std::move(value));
    return Expr(var);
  };
  Expr base = let("base", a);
  Expr result = one;
  for (int bit = 0; bit < bits; ++bit) {
    Expr set = ir::Make(BinaryOp::kBitAnd, ir::Make(BinaryOp::kShiftRight, b, Number(t, bit)), one);
    result = let("power", ir::Select(ir::NotEqual(set, zero), result * base, result));
    if (bit + 1 < bits) base = let("base", base * base);
  }
  if (IsInt(t)) {
    Expr odd = ir::NotEqual(ir::Make(BinaryOp::kBitAnd, b, one), zero);
    Expr minus_one = Number(t, -1);
    Expr inverse =
        ir::Select(ir::Equal(a, one), one,
                   ir::Select(ir::Equal(a, minus_one), ir::Select(odd, minus_one, one), zero));
    result = ir::Select(ir::Less(b, zero), inverse, result);
  }
  for (auto it = lets.rbegin(); it != lets.rend(); ++it) {
    result = ir::LetExpr(it->first, it->second, result);
  }
  return result;
}

Expr Power(const Expr& a, const Expr& b) {
  if (!IsFloat(a.dtype())) return IntegerPower(a, b);
  return ir::Cast(a.dtype(), CallIntrin(Intrin::kPow, {Widen(a), Widen(b)}));
}

// A shift by the number of bits or more leaves nothing (right: the sign).
template <BinaryOp op>
Expr Shift(const Expr& a, const Expr& b) {
  DLDataType t = a.dtype();
  Expr zero = Number(t, 0);
  Expr fits = ir::Less(b, Number(t, t.bits));
  if (IsInt(t)) fits = ir::And(fits, ir::GreaterEqual(b, zero));
  Expr rest = zero;
  if (op == BinaryOp::kShiftRight && IsInt(t)) {
    rest = ir::Select(ir::Less(a, zero), Number(t, -1), zero);
  }
  return ir::Select(fits, ir::Make(op, a, ir::Select(fits, b, zero)), rest);
}

// max + log1p(exp(-|a - b|)), which does not overflow.
Expr LogAddExp(const Expr& a, const Expr& b) {
  DLDataType t = a.dtype();
  Expr distance = CallIntrin(Intrin::kAbs, {a - b});
  Expr tail = CallIntrin(Intrin::kLog1p, {CallIntrin(Intrin::kExp, {Number(t, 0) - distance})});
  return ir::Select(ir::Equal(a, b), a + Number(t, 0.69314718055994530942), ir::Max(a, b) + tail);
}

Expr Atan2(const Expr& a, const Expr& b) { return CallIntrin(Intrin::kAtan2, {a, b}); }

const BinaryRow kRows[] = {
    {"add", "x1 + x2.", Domain::kNumber, Plain<BinaryOp::kAdd>, "out = x1 + x2"},
    {"atan2", "The angle of the point (x2, x1).", Domain::kFloat, Atan2,
     "out = np.arctan2(x1, x2)"},
    {"bitwise_and", "x1 & x2.", Domain::kBits, BoolOr<BinaryOp::kBitAnd, BinaryOp::kAnd>,
     "out = x1 & x2"},
    {"bitwise_or", "x1 | x2.", Domain::kBits, BoolOr<BinaryOp::kBitOr, BinaryOp::kOr>,
     "out = x1 | x2"},
    {"bitwise_xor", "x1 ^ x2.", Domain::kBits, Xor, "out = x1 ^ x2"},
    {"divide", "x1 / x2; integers: rounded towards zero.", Domain::kNumber, Divide,
     "out = x1 / x2 if x1.dtype.kind not in 'iu' else trunc_divide(x1, x2)"},
    {"equal", "x1 == x2.", Domain::kCompare, Compare<BinaryOp::kEQ>, "out = x1 == x2"},
    {"floor_divide", "x1 / x2, rounded towards minus infinity.", Domain::kNumber, FloorDivide,
     "out = x1 // x2"},
    {"floor_mod", "The remainder of floor_divide; it has the sign of x2.", Domain::kNumber,
     FloorMod, "out = np.mod(x1, x2)"},
    {"greater", "x1 > x2.", Domain::kCompare, Compare<BinaryOp::kGT>, "out = x1 > x2"},
    {"greater_equal", "x1 >= x2.", Domain::kCompare, Compare<BinaryOp::kGE>, "out = x1 >= x2"},
    {"left_shift", "x1 << x2.", Domain::kInteger, Shift<BinaryOp::kShiftLeft>, "out = x1 << x2"},
    {"less", "x1 < x2.", Domain::kCompare, Compare<BinaryOp::kLT>, "out = x1 < x2"},
    {"less_equal", "x1 <= x2.", Domain::kCompare, Compare<BinaryOp::kLE>, "out = x1 <= x2"},
    {"log_add_exp", "log(exp(x1) + exp(x2)).", Domain::kFloat, LogAddExp,
     "out = np.logaddexp(x1, x2)"},
    {"logical_and", "x1 and x2.", Domain::kLogic, Plain<BinaryOp::kAnd>,
     "out = np.logical_and(x1, x2)"},
    {"logical_or", "x1 or x2.", Domain::kLogic, Plain<BinaryOp::kOr>,
     "out = np.logical_or(x1, x2)"},
    {"logical_xor", "Exactly one of x1 and x2.", Domain::kLogic, Plain<BinaryOp::kNE>,
     "out = np.logical_xor(x1, x2)"},
    {"maximum", "The greater one; NaN when either is NaN.", Domain::kAny,
     BoolOr<BinaryOp::kMax, BinaryOp::kOr>, "out = np.maximum(x1, x2)"},
    {"minimum", "The lesser one; NaN when either is NaN.", Domain::kAny,
     BoolOr<BinaryOp::kMin, BinaryOp::kAnd>, "out = np.minimum(x1, x2)"},
    {"mod", "The remainder of x1 / x2 rounded towards zero; it has the sign of x1.",
     Domain::kNumber, Mod, "out = np.fmod(x1, x2)"},
    {"multiply", "x1 * x2.", Domain::kNumber, Plain<BinaryOp::kMul>, "out = x1 * x2"},
    {"not_equal", "x1 != x2.", Domain::kCompare, Compare<BinaryOp::kNE>, "out = x1 != x2"},
    {"power", "x1 to the x2.", Domain::kNumber, Power, "out = np.power(x1, x2)"},
    {"right_shift", "x1 >> x2; keeps the sign.", Domain::kInteger, Shift<BinaryOp::kShiftRight>,
     "out = x1 >> x2"},
    {"subtract", "x1 - x2.", Domain::kNumber, Plain<BinaryOp::kSub>, "out = x1 - x2"},
};

bool Accepts(Domain domain, DLDataType t) {
  switch (domain) {
    case Domain::kNumber: return IsFloat(t) || IsInteger(t);
    case Domain::kFloat: return IsFloat(t);
    case Domain::kInteger: return IsInteger(t);
    case Domain::kBits: return IsInteger(t) || IsBool(t);
    case Domain::kLogic:
    case Domain::kAny:
    case Domain::kCompare: return true;
  }
  RELAXVM_UNREACHABLE();
}

const char* Wanted(Domain domain) {
  switch (domain) {
    case Domain::kNumber: return "numbers";
    case Domain::kFloat: return "floating-point numbers";
    case Domain::kInteger: return "integers";
    case Domain::kBits: return "integers or bool";
    case Domain::kLogic:
    case Domain::kAny:
    case Domain::kCompare: return "values";
  }
  RELAXVM_UNREACHABLE();
}

// The element type in which numbers of two types are compared.
DLDataType CommonDtype(DLDataType a, DLDataType b) {
  if (a == b || IsBool(b)) return a;
  if (IsBool(a)) return b;
  if (IsFloat(a) != IsFloat(b)) return IsFloat(a) ? a : b;
  const int bits = std::max(a.bits, b.bits);
  if (IsFloat(a)) return a.bits == b.bits ? Float(32) : a.bits > b.bits ? a : b;
  return IsUInt(a) && IsUInt(b) ? UInt(bits) : IsInt(a.bits > b.bits ? a : b) ? Int(bits) : Int(64);
}

// A scalar argument stands for a tensor without dimensions.
TensorType Operand(const TypeCtx& ctx, size_t i) {
  if (const auto* prim = ctx.type(i).as<ir::PrimTypeObj>()) return TensorType(Dims(), prim->dtype);
  return ctx.Tensor(i);
}

Type InferBinary(TypeCtx& ctx, Domain domain) {
  TensorType a = Operand(ctx, 0);
  TensorType b = Operand(ctx, 1);
  for (size_t i = 0; i < 2; ++i) {
    DLDataType t = i == 0 ? a->dtype : b->dtype;
    if (!IsVoid(t) && !Accepts(domain, t)) {
      ctx.Error(ErrorKind::kTypeError, ctx.ArgName(i), " must hold ", Wanted(domain), ", got ",
                DescribeType(ctx.type(i)));
    }
  }
  DLDataType dtype = IsVoid(a->dtype) ? b->dtype : a->dtype;
  if (domain != Domain::kCompare && !IsVoid(a->dtype) && !IsVoid(b->dtype) &&
      a->dtype != b->dtype) {
    ctx.Error(ErrorKind::kTypeError, "x1 and x2 must have one dtype, got ", DTypeName(a->dtype),
              " and ", DTypeName(b->dtype), "; convert one of them with astype");
  }
  if (domain == Domain::kCompare) {
    dtype = Bool();
  } else if (IsVoid(a->dtype) || IsVoid(b->dtype)) {
    dtype = Void();
  }
  if (ctx.type(0).as<ir::PrimTypeObj>() != nullptr &&
      ctx.type(1).as<ir::PrimTypeObj>() != nullptr) {
    return ir::PrimType(dtype);
  }
  auto x = a->GetShape();
  auto y = b->GetShape();
  if (x.has_value() && y.has_value()) {
    auto dims = ctx.Broadcast(*x, *y);
    return ctx.Result(dims, std::max(a->ndim, b->ndim), dtype);
  }
  // One shape variable for both: the result has it too.
  if (a->shape.has_value() && b->shape.has_value() && a->shape.value().same_as(b->shape.value())) {
    return ctx.Like(a, dtype);
  }
  bool known = !a->IsUnknownRank() && !b->IsUnknownRank();
  return ctx.Result(std::nullopt, known ? std::max(a->ndim, b->ndim) : -1, dtype);
}

Tensors ComputeBinary(const ComputeArgs& in, const BinaryRow& row) {
  Dims out = in.OutShape();
  auto operand = [&](size_t i, const Indices& at) {
    return in.tensors[i].empty() ? in.Prim(i) : BroadcastAt(in[i], out, at);
  };
  auto formula = [&](const Indices& i) -> Expr {
    Expr a = operand(0, i);
    Expr b = operand(1, i);
    if (row.domain == Domain::kCompare) {
      DLDataType common = CommonDtype(a.dtype(), b.dtype());
      return row.formula(ir::Cast(common, a), ir::Cast(common, b));
    }
    if (row.domain == Domain::kLogic) {
      return ConvertTo(in.OutDtype(), row.formula(ConvertTo(Bool(), a), ConvertTo(Bool(), b)));
    }
    if (row.domain != Domain::kFloat) return row.formula(a, b);
    return ir::Cast(in.OutDtype(), row.formula(Widen(a), Widen(b)));
  };
  return {tir::Compute(out, formula, row.name)};
}

std::vector<Sample> SamplesFor(const BinaryRow& row) {
  Domain domain = row.domain;
  std::string t = "f32";
  if (domain == Domain::kInteger || domain == Domain::kBits) t = "i32";
  if (domain == Domain::kLogic) t = "bool";
  // NumPy has no negative exponents of integers, and no shifts by negative amounts.
  bool small = row.formula == Power || domain == Domain::kInteger;
  std::string range = small ? " in 0..9" : "";
  return {{{"x1: " + t + "[4, 8]", "x2: " + t + "[4, 8]" + range}},
          {{"x1: " + t + "[4, 1, 3]", "x2: " + t + "[5, 1]" + range}},
          {{"x1: " + t + "[]", "x2: " + t + "[7]" + range}}};
}

}  // namespace

std::vector<OpDef> binary_ops() {
  std::vector<OpDef> defs;
  for (const BinaryRow& row : kRows) {
    defs.push_back(Define<NoAttrs>({
        .name = row.name,
        .doc = row.doc,
        .args = {{"x1", "Left operand."}, {"x2", "Right operand; both shapes broadcast."}},
        .reference = row.reference,
        .samples = SamplesFor(row),
        .type = [domain = row.domain](TypeCtx& ctx,
                                      const NoAttrs&) { return InferBinary(ctx, domain); },
        .compute = [&row](const ComputeArgs& in, const NoAttrs&) { return ComputeBinary(in, row); },
        .layout = ElementwiseLayout(),
    }));
  }
  return defs;
}

}  // namespace relaxvm::ops
