// SPDX-License-Identifier: Apache-2.0
// Operators.  Integer division by zero gives 0 and least / -1 gives least: nothing traps.
#include "codegen/llvm/ops.h"

#include <llvm/Analysis/VectorUtils.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/PatternMatch.h>

#include <cmath>
#include <optional>
#include <utility>

#include "codegen/llvm/math/emit.h"
#include "support/error.h"

namespace relaxvm::codegen {

using ir::BinaryOp;
using llvm::Constant;
using llvm::Value;
namespace Intrinsics = llvm::Intrinsic;

llvm::Type* LikeShape(llvm::Type* t, llvm::Type* element) {
  if (auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(t)) {
    return llvm::FixedVectorType::get(element, vector->getNumElements());
  }
  return element;
}

std::optional<float> ConstantFloat(Value* v) {
  auto* constant = llvm::dyn_cast<Constant>(v);
  if (constant != nullptr && constant->getType()->isVectorTy())
    constant = constant->getSplatValue();
  const auto* number = llvm::dyn_cast_or_null<llvm::ConstantFP>(constant);
  if (number == nullptr || !number->getType()->isFloatTy()) return std::nullopt;
  return number->getValueAPF().convertToFloat();
}

namespace {

bool IsHalf(DLDataType t) { return t.bits == 16 && IsFloat(t); }
// a / c without a division: a product with 1 / c in two parts,
// rounded once.  Of all float32 values one in millions, for few divisors, differs from the division
// in its last bit, and so may quotients below 1e-30; infinities and NaNs do not.  Null: c is not of
// the kind that allows it.
Value* DivideByConstant(llvm::IRBuilder<>& b, Value* a, Value* divisor) {
  const auto number = ConstantFloat(divisor);
  if (!number.has_value()) return nullptr;
  const float c = *number;
  // Neither the parts nor the product leave the range of normal numbers on their own.
  if (!(std::fabs(c) > 0x1p-60F && std::fabs(c) < 0x1p60F)) return nullptr;
  const double inverse = 1.0 / static_cast<double>(c);
  // Towards zero: both parts then have one sign, and infinity stays infinity.
  float high = static_cast<float>(inverse);
  if (std::fabs(static_cast<double>(high)) > std::fabs(inverse)) high = std::nextafterf(high, 0.0F);
  const auto low = static_cast<float>(inverse - static_cast<double>(high));
  llvm::Type* type = a->getType();
  Value* main = llvm::ConstantFP::get(type, static_cast<double>(high));
  if (low == 0.0F) return b.CreateFMul(a, main);
  Value* rest = b.CreateFMul(a, llvm::ConstantFP::get(type, static_cast<double>(low)));
  return b.CreateIntrinsic(Intrinsics::fma, {type}, {a, main, rest});
}

// The same for a divisor that all lanes share and that is known at run time: what is found out
// about it stands outside of loops over lanes.  Null: it is another one, or a constant that is too
// far from 1 for the other form.
Value* DivideByShared(llvm::IRBuilder<>& b, Value* a, Value* divisor) {
  const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(a->getType());
  Value* shared = vector == nullptr ? nullptr : llvm::getSplatValue(divisor);
  if (shared == nullptr || llvm::isa<Constant>(shared)) return nullptr;
  llvm::Type* type = shared->getType();
  auto number = [&](double value) { return llvm::ConstantFP::get(type, value); };
  auto fma = [&](Value* x, Value* y, Value* z) {
    return b.CreateIntrinsic(Intrinsics::fma, {x->getType()}, {x, y, z});
  };
  // Both sides times a power of two, with which neither part leaves the range of normal numbers.  A
  // product of the left side that is not finite has no finite quotient.
  Value* size = b.CreateUnaryIntrinsic(Intrinsics::fabs, shared);
  Value* scale = b.CreateSelect(
      b.CreateFCmpOLT(size, number(0x1p-60)), number(0x1p60),
      b.CreateSelect(b.CreateFCmpOGT(size, number(0x1p60)), number(0x1p-60), number(1)));
  Value* c = b.CreateFMul(shared, scale);
  // 1 / c towards zero, and what is missing of it.
  Value* nearest = b.CreateFDiv(number(1), c);
  Value* is_beyond = b.CreateFCmpOLT(fma(b.CreateFNeg(nearest), c, number(1)), number(0));
  Value* below =
      b.CreateBitCast(b.CreateSub(b.CreateBitCast(nearest, b.getInt32Ty()), b.getInt32(1)), type);
  Value* high = b.CreateSelect(is_beyond, below, nearest);
  Value* missing = fma(b.CreateFNeg(high), c, number(1));
  // Infinity times nothing would be a NaN: a part that no rounding sees.
  missing = b.CreateSelect(b.CreateFCmpOEQ(missing, number(0)), number(0x1p-60), missing);
  Value* low = b.CreateFMul(missing, high);
  // Of 0, infinity and NaN the inverse alone.
  low = b.CreateSelect(b.CreateFCmpORD(low, low), low, high);
  auto splat = [&](Value* v) { return b.CreateVectorSplat(vector->getNumElements(), v); };
  Value* scaled = b.CreateFMul(a, splat(scale));
  return fma(scaled, splat(high), b.CreateFMul(scaled, splat(low)));
}

// Kept as float32 in registers.
bool IsNarrow(DLDataType t) { return IsHalf(t) || IsFloat8(t); }

llvm::Type* Widen(llvm::Type* element, int lanes) {
  return lanes == 1 ? element : llvm::FixedVectorType::get(element, lanes);
}

void CheckSupported(DLDataType t) {
  bool integer = (IsInteger(t) && (t.bits == 8 || t.bits == 16 || t.bits == 32 || t.bits == 64));
  bool floating = (t.code == kDLFloat && (t.bits == 16 || t.bits == 32 || t.bits == 64)) ||
                  (t.code == kDLBfloat && t.bits == 16) || IsFloat8(t);
  if (integer || floating || IsBool(t)) return;
  Fail(ErrorKind::kTypeError, "native code for ", DTypeName(t), " is not supported");
}

}  // namespace

llvm::Type* ValueOps::RegisterType(DLDataType t) const {
  CheckSupported(t);
  llvm::Type* element = nullptr;
  if (IsBool(t)) {
    element = b_.getInt1Ty();
  } else if (IsInteger(t)) {
    element = b_.getIntNTy(t.bits);
  } else {
    element = t.bits == 64 ? b_.getDoubleTy() : b_.getFloatTy();
  }
  return Widen(element, t.lanes);
}

llvm::Type* ValueOps::StorageType(DLDataType t) const {
  if (IsBool(t)) return Widen(b_.getInt8Ty(), t.lanes);
  if (IsHalf(t)) return Widen(b_.getInt16Ty(), t.lanes);
  if (IsFloat8(t)) return Widen(b_.getInt8Ty(), t.lanes);
  return RegisterType(t);
}

Value* ValueOps::ToStorage(Value* v, DLDataType t) {
  if (IsBool(t)) return b_.CreateZExt(v, StorageType(t));
  if (IsFloat8(t)) return FloatToFloat8(v, t);
  if (!IsHalf(t)) return v;
  return IsBFloat(t) ? FloatToBFloat(v) : FloatToHalf(v);
}

Value* ValueOps::FromStorage(Value* v, DLDataType t) {
  if (IsBool(t)) return b_.CreateICmpNE(v, Constant::getNullValue(v->getType()));
  if (IsFloat8(t)) return Float8ToFloat(v, t);
  if (!IsHalf(t)) return v;
  return IsBFloat(t) ? BFloatToFloat(v) : HalfToFloat(v);
}

Constant* ValueOps::IntConstant(DLDataType t, int64_t value) const {
  llvm::Type* type = RegisterType(t);
  return llvm::ConstantInt::get(type, static_cast<uint64_t>(IsBool(t) ? value != 0 : value),
                                /*IsSigned=*/false, /*ImplicitTrunc=*/true);
}

Value* ValueOps::FloatConstant(DLDataType t, double value) {
  if (!IsNarrow(t)) return llvm::ConstantFP::get(RegisterType(t), value);
  DLDataType wide = {kDLFloat, 64, t.lanes};
  return Cast(llvm::ConstantFP::get(RegisterType(wide), value), wide, t);
}

Value* ValueOps::Splat(Value* scalar, int lanes) {
  return lanes == 1 ? scalar : b_.CreateVectorSplat(static_cast<unsigned>(lanes), scalar);
}

// ---- operators ------------------------------------------------------------------------------

Value* ValueOps::Binary(BinaryOp op, Value* a, Value* b, DLDataType t, const Least& least) {
  if (ir::IsComparison(op)) return Compare(op, a, b, t);
  if (op == BinaryOp::kMin || op == BinaryOp::kMax) return MinMax(op == BinaryOp::kMax, a, b, t);
  if (IsFloat(t)) return RoundTo(FloatBinary(op, a, b, t), t);
  switch (op) {
    case BinaryOp::kAdd: return IsBool(t) ? b_.CreateOr(a, b) : b_.CreateAdd(a, b);
    case BinaryOp::kSub: return IsBool(t) ? b_.CreateXor(a, b) : b_.CreateSub(a, b);
    case BinaryOp::kMul: return IsBool(t) ? b_.CreateAnd(a, b) : b_.CreateMul(a, b);
    case BinaryOp::kDiv:
    case BinaryOp::kMod:
    case BinaryOp::kFloorDiv:
    case BinaryOp::kFloorMod: return IntDivide(op, a, b, t, least);
    case BinaryOp::kAnd:
    case BinaryOp::kBitAnd: return b_.CreateAnd(a, b);
    case BinaryOp::kOr:
    case BinaryOp::kBitOr: return b_.CreateOr(a, b);
    case BinaryOp::kBitXor: return b_.CreateXor(a, b);
    case BinaryOp::kShiftLeft:
    case BinaryOp::kShiftRight: return Shift(op, a, b, t);
    case BinaryOp::kMin:
    case BinaryOp::kMax:
    case BinaryOp::kEQ:
    case BinaryOp::kNE:
    case BinaryOp::kLT:
    case BinaryOp::kLE:
    case BinaryOp::kGT:
    case BinaryOp::kGE: break;  // done above
  }
  RELAXVM_UNREACHABLE();
}

Value* ValueOps::FloatBinary(BinaryOp op, Value* a, Value* b, DLDataType t) {
  switch (op) {
    case BinaryOp::kAdd: return b_.CreateFAdd(a, b);
    case BinaryOp::kSub:
      if (Value* whole = WithoutOffset(a, b)) return whole;
      return b_.CreateFSub(a, b);
    case BinaryOp::kMul: return b_.CreateFMul(a, b);
    case BinaryOp::kDiv:
      if (t.bits == 32 && traits_.fma) {
        if (Value* quotient = DivideByConstant(b_, a, b)) return quotient;
        if (Value* quotient = DivideByShared(b_, a, b)) return quotient;
      }
      return b_.CreateFDiv(a, b);
    default: break;  // the remainders below
  }
  RELAXVM_CHECK(op == BinaryOp::kMod || op == BinaryOp::kFloorMod || op == BinaryOp::kFloorDiv)
      << "operator " << static_cast<int>(op) << " on " << DTypeName(t);
  Value* rest = EmitFmod(a, b, b_, traits_);
  if (op == BinaryOp::kMod) return rest;
  llvm::Type* wide = LikeShape(a->getType(), b_.getDoubleTy());
  Value* x = b_.CreateFPCast(a, wide);
  Value* y = b_.CreateFPCast(b, wide);
  rest = b_.CreateFPCast(rest, wide);
  Value* zero = Constant::getNullValue(wide);
  // The remainder takes the divisor's sign.
  Value* wrong =
      b_.CreateAnd(b_.CreateFCmpUNE(rest, zero),
                   b_.CreateXor(b_.CreateFCmpOLT(rest, zero), b_.CreateFCmpOLT(y, zero)));
  rest = b_.CreateSelect(wrong, b_.CreateFAdd(rest, y), rest);
  if (op == BinaryOp::kFloorDiv) {
    rest = RoundToInteger(Rounding::kEven, b_.CreateFDiv(b_.CreateFSub(x, rest), y), b_, traits_);
  }
  return b_.CreateFPCast(rest, a->getType());
}

Value* ValueOps::Compare(BinaryOp op, Value* a, Value* b, DLDataType t) {
  using P = llvm::CmpInst::Predicate;
  bool is_unsigned = IsUInt(t) || IsBool(t);
  auto pick = [&](P floating, P as_signed, P as_unsigned) {
    return IsFloat(t) ? b_.CreateFCmp(floating, a, b)
                      : b_.CreateICmp(is_unsigned ? as_unsigned : as_signed, a, b);
  };
  switch (op) {
    case BinaryOp::kEQ: return pick(P::FCMP_OEQ, P::ICMP_EQ, P::ICMP_EQ);
    case BinaryOp::kNE: return pick(P::FCMP_UNE, P::ICMP_NE, P::ICMP_NE);
    case BinaryOp::kLT: return pick(P::FCMP_OLT, P::ICMP_SLT, P::ICMP_ULT);
    case BinaryOp::kLE: return pick(P::FCMP_OLE, P::ICMP_SLE, P::ICMP_ULE);
    case BinaryOp::kGT: return pick(P::FCMP_OGT, P::ICMP_SGT, P::ICMP_UGT);
    case BinaryOp::kGE: return pick(P::FCMP_OGE, P::ICMP_SGE, P::ICMP_UGE);
    default: RELAXVM_UNREACHABLE();
  }
}

Value* ValueOps::MinMax(bool is_max, Value* a, Value* b, DLDataType t) {
  if (!IsFloat(t)) {
    Value* first = Compare(is_max ? BinaryOp::kGT : BinaryOp::kLT, a, b, t);
    return b_.CreateSelect(first, a, b);
  }
  // x86's min and max give the second operand when either is a NaN: a constant goes first.
  if (llvm::isa<Constant>(b)) std::swap(a, b);
  auto predicate = is_max ? llvm::CmpInst::FCMP_OGT : llvm::CmpInst::FCMP_OLT;
  Value* chosen = b_.CreateSelect(b_.CreateFCmp(predicate, a, b), a, b);
  if (llvm::isa<Constant>(a)) return chosen;
  if (!a->getType()->getScalarType()->isFloatTy() && !a->getType()->getScalarType()->isDoubleTy())
    return b_.CreateSelect(b_.CreateFCmpUNO(a, a), a, chosen);
  // Any of two zeros will do.  Of the first operand it is asked whether it is a NaN: in a chain of
  // maxima that is not the one which the chain waits for.
  auto* call =
      b_.CreateBinaryIntrinsic(is_max ? llvm::Intrinsic::maximum : llvm::Intrinsic::minimum, b, a);
  llvm::cast<llvm::Instruction>(call)->setHasNoSignedZeros(true);
  return call;
}

Value* ValueOps::Shift(BinaryOp op, Value* a, Value* b, DLDataType t) {
  bool left = op == BinaryOp::kShiftLeft, arithmetic = !left && IsInt(t);
  Value* limit = IntConstant(t, t.bits - 1);
  Value* in_range = b_.CreateICmpULE(b, limit);
  Value* safe = b_.CreateSelect(in_range, b, limit);
  Value* shifted = left         ? b_.CreateShl(a, safe)
                   : arithmetic ? b_.CreateAShr(a, safe)
                                : b_.CreateLShr(a, safe);
  if (arithmetic) return shifted;  // the limit already gives the sign everywhere
  return b_.CreateSelect(in_range, shifted, Constant::getNullValue(a->getType()));
}

Value* ValueOps::IntDivide(BinaryOp op, Value* a, Value* b, DLDataType t, const Least& least) {
  bool is_signed = IsInt(t);
  if (IsBool(t)) {
    bool quotient = op == BinaryOp::kDiv || op == BinaryOp::kFloorDiv;
    return quotient ? b_.CreateAnd(a, b) : Constant::getNullValue(a->getType());
  }
  auto* divisor = llvm::dyn_cast<Constant>(b);
  if (auto* vector = divisor && t.lanes > 1 ? divisor->getSplatValue() : divisor) {
    if (auto* scalar = llvm::dyn_cast<llvm::ConstantInt>(vector);
        scalar && !scalar->isZero() && !scalar->isMinusOne()) {
      return IntDivideByConstant(op, a, divisor, is_signed, least.a.value_or(-1) >= 0);
    }
  }
  const bool wants_rest = op == BinaryOp::kMod || op == BinaryOp::kFloorMod;
  const bool rounds_down = op == BinaryOp::kFloorDiv || op == BinaryOp::kFloorMod;
  Value* one = llvm::ConstantInt::get(a->getType(), 1);
  auto unsigned_result = [&](Value* x) -> Value* {
    Value* quotient = Quotient(x, b, t, false);
    return wants_rest ? b_.CreateSub(x, b_.CreateMul(quotient, b)) : quotient;
  };
  if (is_signed && least.a.has_value() && least.b.value_or(0) >= 1) {
    if (*least.a >= 0) return unsigned_result(a);
    // One divisor more makes it a number of at least 0.
    if (rounds_down && *least.a >= -*least.b) {
      Value* result = unsigned_result(b_.CreateAdd(a, b));
      return wants_rest ? result : b_.CreateSub(result, one);
    }
  }
  if (least.a.value_or(-1) >= 0 && least.b.value_or(-1) >= 0) is_signed = false;
  Value* zero = Constant::getNullValue(a->getType());
  Value* by_zero = b_.CreateICmpEQ(b, zero);
  Value* unsafe = by_zero;
  Value* by_minus_one = nullptr;
  if (is_signed) {
    by_minus_one = b_.CreateICmpEQ(b, Constant::getAllOnesValue(a->getType()));
    unsafe = b_.CreateOr(by_zero, by_minus_one);
  }
  Value* safe = b_.CreateSelect(unsafe, one, b);
  Value* quotient = Quotient(a, safe, t, is_signed);
  Value* rest = b_.CreateSub(a, b_.CreateMul(quotient, safe));
  if (is_signed && rounds_down) {
    Value* adjust =
        b_.CreateAnd(b_.CreateICmpNE(rest, zero), b_.CreateICmpSLT(b_.CreateXor(rest, safe), zero));
    quotient = b_.CreateSub(quotient, b_.CreateZExt(adjust, a->getType()));
    rest = b_.CreateSelect(adjust, b_.CreateAdd(rest, safe), rest);
  }
  if (wants_rest) return b_.CreateSelect(unsafe, zero, rest);
  if (is_signed) quotient = b_.CreateSelect(by_minus_one, b_.CreateNeg(a), quotient);
  return b_.CreateSelect(by_zero, zero, quotient);
}

// Few processors divide vectors of integers.  Floats that hold them do so exactly: a quotient that
// is no integer is 1 / b away from the next one at least, and off by less than a / b / 2^bits.
Value* ValueOps::Quotient(Value* a, Value* b, DLDataType t, bool is_signed) {
  if (t.lanes == 1 || t.bits > 32) return is_signed ? b_.CreateSDiv(a, b) : b_.CreateUDiv(a, b);
  llvm::IRBuilder<>::FastMathFlagGuard guard(b_);
  b_.clearFastMathFlags();
  llvm::Type* element = t.bits > 16 ? b_.getDoubleTy() : b_.getFloatTy();
  llvm::Type* floats = llvm::FixedVectorType::get(element, t.lanes);
  auto widened = [&](Value* v) {
    return is_signed ? b_.CreateSIToFP(v, floats) : b_.CreateUIToFP(v, floats);
  };
  Value* quotient = b_.CreateFDiv(widened(a), widened(b));
  return is_signed ? b_.CreateFPToSI(quotient, a->getType())
                   : b_.CreateFPToUI(quotient, a->getType());
}

Value* ValueOps::IntDivideByConstant(BinaryOp op, Value* a, Constant* divisor, bool is_signed,
                                     bool nonnegative) {
  bool wants_rest = op == BinaryOp::kMod || op == BinaryOp::kFloorMod;
  auto* scalar = llvm::cast<llvm::ConstantInt>(
      divisor->getType()->isVectorTy() ? divisor->getSplatValue() : divisor);
  bool positive = !is_signed || !scalar->isNegative();
  if (!is_signed || (nonnegative && positive)) {
    return wants_rest ? b_.CreateURem(a, divisor) : b_.CreateUDiv(a, divisor);
  }
  if (op == BinaryOp::kDiv) return b_.CreateSDiv(a, divisor);
  if (op == BinaryOp::kMod) return b_.CreateSRem(a, divisor);
  if (scalar->getValue().isPowerOf2() && positive) {
    Constant* low_bits = llvm::ConstantInt::get(divisor->getType(), scalar->getValue() - 1);
    Constant* shift = llvm::ConstantInt::get(divisor->getType(), scalar->getValue().logBase2());
    return wants_rest ? b_.CreateAnd(a, low_bits) : b_.CreateAShr(a, shift);
  }
  Value* quotient = b_.CreateSDiv(a, divisor);
  Value* rest = b_.CreateSub(a, b_.CreateMul(quotient, divisor));
  Value* zero = Constant::getNullValue(a->getType());
  Value* adjust = positive ? b_.CreateICmpSLT(rest, zero) : b_.CreateICmpSGT(rest, zero);
  if (wants_rest) return b_.CreateAdd(rest, b_.CreateSelect(adjust, divisor, zero));
  return b_.CreateSub(quotient, b_.CreateZExt(adjust, a->getType()));
}

// ---- conversions ----------------------------------------------------------------------------

Value* ValueOps::Cast(Value* v, DLDataType from, DLDataType to) {
  if (from == to) return v;
  llvm::Type* type = RegisterType(to);
  if (IsBool(to)) {
    Value* zero = Constant::getNullValue(v->getType());
    return IsFloat(from) ? b_.CreateFCmpUNE(v, zero) : b_.CreateICmpNE(v, zero);
  }
  bool from_unsigned = IsUInt(from) || IsBool(from);
  if (!IsFloat(from) && !IsFloat(to)) {
    return from_unsigned ? b_.CreateZExtOrTrunc(v, type) : b_.CreateSExtOrTrunc(v, type);
  }
  if (to.bits == 32 && IsFloat(to)) {
    if (Value* number = numbers_of_bytes_.Find(v)) return number;
  }
  if (!IsFloat(from)) {
    // Integers wider than a float's digits take the way through double, which holds 32 bits
    // exactly.
    llvm::Type* through =
        IsNarrow(to) && from.bits == 64 ? LikeShape(type, b_.getDoubleTy()) : type;
    Value* f = from_unsigned ? b_.CreateUIToFP(v, through) : b_.CreateSIToFP(v, through);
    return RoundTo(through == type ? f : NarrowToFloat(f, to), to);
  }
  if (!IsFloat(to)) return FloatToInt(v, to);
  if (v->getType() == type) return RoundTo(v, to);
  if (to.bits == 64) return b_.CreateFPExt(v, type);
  return RoundTo(NarrowToFloat(v, to), to);
}

// Rounds to odd, so that the next rounding (to a narrow float) sees what was cut off.
Value* ValueOps::NarrowToFloat(Value* v, DLDataType to) {
  llvm::Type* narrow = LikeShape(v->getType(), b_.getFloatTy());
  if (IsHalf(to) && !IsBFloat(to)) {
    // What float32 has no bits for, as its last bit.  Below the normal numbers of float32 this is
    // lost, but there float16 has only 0.
    constexpr int kCut = 52 - 23;
    llvm::Type* wide = LikeShape(v->getType(), b_.getInt64Ty());
    auto number = [&](uint64_t x) { return llvm::ConstantInt::get(wide, x); };
    Value* bits = b_.CreateBitCast(v, wide);
    Value* rest = b_.CreateAnd(bits, number((uint64_t{1} << kCut) - 1));
    Value* kept = b_.CreateAnd(bits, number(~((uint64_t{1} << kCut) - 1)));
    Value* odd = b_.CreateOr(kept, number(uint64_t{1} << kCut));
    Value* exact = b_.CreateICmpEQ(rest, number(0));
    return b_.CreateFPTrunc(b_.CreateBitCast(b_.CreateSelect(exact, kept, odd), v->getType()),
                            narrow);
  }
  Value* f = b_.CreateFPTrunc(v, narrow);
  if (!IsNarrow(to)) return f;
  llvm::Type* bits_type = LikeShape(v->getType(), b_.getInt32Ty());
  Value* bits = b_.CreateBitCast(f, bits_type);
  Value* back = b_.CreateFPExt(f, v->getType());
  Value* magnitude = b_.CreateUnaryIntrinsic(Intrinsics::fabs, v);
  Value* back_magnitude = b_.CreateUnaryIntrinsic(Intrinsics::fabs, back);
  Value* one = llvm::ConstantInt::get(bits_type, 1);
  Value* even = b_.CreateICmpEQ(b_.CreateAnd(bits, one), Constant::getNullValue(bits_type));
  Value* up = b_.CreateAnd(even, b_.CreateFCmpOLT(back_magnitude, magnitude));
  Value* down = b_.CreateAnd(even, b_.CreateFCmpOGT(back_magnitude, magnitude));
  bits = b_.CreateAdd(bits, b_.CreateZExt(up, bits_type));
  bits = b_.CreateSub(bits, b_.CreateZExt(down, bits_type));
  return b_.CreateBitCast(bits, narrow);
}

Value* ValueOps::RoundTo(Value* v, DLDataType t) {
  return IsNarrow(t) ? FromStorage(ToStorage(v, t), t) : v;
}

Value* ValueOps::BFloatToFloat(Value* bits) {
  llvm::Type* wide = LikeShape(bits->getType(), b_.getInt32Ty());
  Value* shifted = b_.CreateShl(b_.CreateZExt(bits, wide), llvm::ConstantInt::get(wide, 16));
  return b_.CreateBitCast(shifted, LikeShape(wide, b_.getFloatTy()));
}

// To nearest, ties to even, on the bits; a NaN stays one.  What BFloatToFloat made is taken as is.
Value* ValueOps::FloatToBFloat(Value* v) {
  using namespace llvm::PatternMatch;
  Value* exact = nullptr;
  if (match(v, m_BitCast(m_Shl(m_ZExt(m_Value(exact)), m_SpecificInt(16)))) &&
      exact->getType()->getScalarSizeInBits() == 16)
    return exact;
  llvm::Type* wide = LikeShape(v->getType(), b_.getInt32Ty());
  auto number = [&](uint32_t x) { return llvm::ConstantInt::get(wide, x); };
  Value* bits = b_.CreateBitCast(v, wide);
  Value* odd = b_.CreateAnd(b_.CreateLShr(bits, number(16)), number(1));
  Value* rounded = b_.CreateAdd(b_.CreateAdd(bits, number(0x7fff)), odd);
  Value* result =
      b_.CreateSelect(b_.CreateFCmpUNO(v, v), b_.CreateOr(bits, number(0x00400000)), rounded);
  return b_.CreateTrunc(b_.CreateLShr(result, number(16)), LikeShape(wide, b_.getInt16Ty()));
}

Value* ValueOps::HalfToFloat(Value* bits) {
  llvm::Type* type = LikeShape(bits->getType(), b_.getFloatTy());
  if (traits_.f16c) {
    return b_.CreateFPExt(b_.CreateBitCast(bits, LikeShape(type, b_.getHalfTy())), type);
  }
  llvm::Type* wide = LikeShape(type, b_.getInt32Ty());
  auto number = [&](uint32_t x) { return llvm::ConstantInt::get(wide, x); };
  Value* w = b_.CreateZExt(bits, wide);
  Value* sign = b_.CreateShl(b_.CreateAnd(w, number(0x8000)), number(16));
  Value* magnitude = b_.CreateShl(b_.CreateAnd(w, number(0x7fff)), number(13));
  Value* exponent = b_.CreateAnd(magnitude, number(0x7c00 << 13));
  Value* normal = b_.CreateAdd(magnitude, number((127 - 15) << 23));
  Value* special = b_.CreateAdd(normal, number((128 - 16) << 23));
  Value* shifted = b_.CreateBitCast(b_.CreateAdd(normal, number(1 << 23)), type);
  Value* tiny =
      b_.CreateBitCast(b_.CreateFSub(shifted, llvm::ConstantFP::get(type, 0x1p-14)), wide);
  Value* result = b_.CreateSelect(b_.CreateICmpEQ(exponent, number(0x7c00 << 13)), special, normal);
  result = b_.CreateSelect(b_.CreateICmpEQ(exponent, number(0)), tiny, result);
  return b_.CreateBitCast(b_.CreateOr(result, sign), type);
}

Value* ValueOps::FloatToHalf(Value* v) {
  llvm::Type* narrow = LikeShape(v->getType(), b_.getInt16Ty());
  if (traits_.f16c) {
    return b_.CreateBitCast(b_.CreateFPTrunc(v, LikeShape(narrow, b_.getHalfTy())), narrow);
  }
  llvm::Type* wide = LikeShape(v->getType(), b_.getInt32Ty());
  auto number = [&](uint32_t x) { return llvm::ConstantInt::get(wide, x); };
  Value* bits = b_.CreateBitCast(v, wide);
  Value* magnitude = b_.CreateAnd(bits, number(0x7fffffff));
  Value* sign = b_.CreateAnd(b_.CreateLShr(bits, number(16)), number(0x8000));
  Value* odd = b_.CreateAnd(b_.CreateLShr(magnitude, number(13)), number(1));
  Value* rebased =
      b_.CreateAdd(magnitude, number(0xc8000fff));  // exponent 127 -> 15, and half a unit
  Value* normal = b_.CreateLShr(b_.CreateAdd(rebased, odd), number(13));
  // Below the least normal half, adding 0.5 lets the float unit round at the right bit.
  Value* denormal = b_.CreateBitCast(b_.CreateFAdd(b_.CreateBitCast(magnitude, v->getType()),
                                                   llvm::ConstantFP::get(v->getType(), 0.5)),
                                     wide);
  denormal = b_.CreateSub(denormal, number(0x3f000000));
  Value* result =
      b_.CreateSelect(b_.CreateICmpULT(magnitude, number(0x38800000)), denormal, normal);
  result = b_.CreateSelect(b_.CreateICmpUGE(magnitude, number(0x47800000)), number(0x7c00), result);
  Value* payload = b_.CreateAnd(b_.CreateLShr(magnitude, number(13)), number(0x3ff));
  Value* nan = b_.CreateOr(payload, number(0x7e00));
  result = b_.CreateSelect(b_.CreateICmpUGT(magnitude, number(0x7f800000)), nan, result);
  return b_.CreateTrunc(b_.CreateOr(result, sign), narrow);
}

}  // namespace relaxvm::codegen
