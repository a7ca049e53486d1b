// SPDX-License-Identifier: Apache-2.0
// Floats of 8 bits: one byte in memory, float32 in registers.  Values too large become the format's
// infinity, or its NaN where it has none; rounding is to nearest even.  e8m0 is the exponent alone:
// powers of two from 2^-127 on, rounded to the nearest, up from the middle; everything that is not
// positive and finite is its NaN.
#include <cmath>
#include <cstring>

#include "codegen/llvm/ops.h"

namespace relaxvm::codegen {

using llvm::Value;

namespace {

// sign, exponent, `mantissa` bits; a value is 2^(exponent - bias) * 1.mantissa.
struct Format {
  int mantissa;
  int bias;
  bool one_zero;      // "fnuz": code 0x80 is the only NaN, there is no negative zero
  uint32_t greatest;  // code of the greatest finite value
  uint32_t overflow;  // code of what is greater
  uint32_t nan;
};

const Format* FormatOf(DLDataType t) {
  static constexpr Format kE4M3FN = {3, 7, false, 0x7e, 0x7f, 0x7f};
  static constexpr Format kE4M3FNUZ = {3, 8, true, 0x7f, 0x80, 0x80};
  static constexpr Format kE5M2 = {2, 15, false, 0x7b, 0x7c, 0x7e};
  static constexpr Format kE5M2FNUZ = {2, 16, true, 0x7f, 0x80, 0x80};
  switch (t.code) {
    case kDLFloat8_e4m3fn: return &kE4M3FN;
    case kDLFloat8_e4m3fnuz: return &kE4M3FNUZ;
    case kDLFloat8_e5m2: return &kE5M2;
    case kDLFloat8_e5m2fnuz: return &kE5M2FNUZ;
    default: return nullptr;
  }
}

float PowerOfTwo(int exponent) { return std::ldexp(1.0F, exponent); }

bool IsExponent(DLDataType t) { return t.code == kDLFloat8_e8m0fnu; }
constexpr uint32_t kExponentNaN = 0xff;
constexpr uint32_t kLeastNormal = 0x00800000;  // of float32

// Of e8m0, from and to 32 bits.
Value* ExponentToFloat(llvm::IRBuilder<>& b, Value* w) {
  auto number = [&](uint32_t x) { return llvm::ConstantInt::get(w->getType(), x); };
  Value* bits = b.CreateShl(w, number(23));
  // 2^-127 has no place among the normal values.
  bits = b.CreateSelect(b.CreateICmpEQ(w, number(0)), number(kLeastNormal / 2), bits);
  bits = b.CreateSelect(b.CreateICmpEQ(w, number(kExponentNaN)), number(0x7fc00000), bits);
  return b.CreateBitCast(bits, LikeShape(w->getType(), b.getFloatTy()));
}

Value* FloatToExponent(llvm::IRBuilder<>& b, Value* bits) {
  auto number = [&](uint32_t x) { return llvm::ConstantInt::get(bits->getType(), x); };
  Value* tiny = b.CreateICmpULT(bits, number(kLeastNormal));
  Value* half = b.CreateSelect(tiny, number(kLeastNormal / 4), number(kLeastNormal / 2));
  Value* code = b.CreateLShr(b.CreateAdd(bits, half), number(23));
  Value* valid = b.CreateICmpULT(b.CreateSub(bits, number(1)), number(0x7f7fffff));
  return b.CreateSelect(valid, code, number(kExponentNaN));
}

}  // namespace

bool IsFloat8(DLDataType t) { return t.bits == 8 && (IsExponent(t) || FormatOf(t) != nullptr); }

Value* ValueOps::Float8ToFloat(Value* code, DLDataType t) {
  llvm::Type* wide = LikeShape(code->getType(), b_.getInt32Ty());
  Value* w = b_.CreateZExt(code, wide);
  if (IsExponent(t)) return ExponentToFloat(b_, w);
  const Format& f = *FormatOf(t);
  llvm::Type* type = LikeShape(wide, b_.getFloatTy());
  auto number = [&](uint32_t x) { return llvm::ConstantInt::get(wide, x); };
  Value* magnitude = b_.CreateAnd(w, number(0x7f));
  // Exponent and mantissa in the places of a float32; the product sets the bias right, below the
  // least normal value too.
  Value* placed = b_.CreateBitCast(
      b_.CreateShl(magnitude, number(static_cast<uint32_t>(23 - f.mantissa))), type);
  Value* value = b_.CreateFMul(placed, llvm::ConstantFP::get(type, PowerOfTwo(127 - f.bias)));
  Value* bits = b_.CreateBitCast(value, wide);
  Value* nan = number(0x7fc00000);
  if (f.one_zero) {
    bits = b_.CreateSelect(b_.CreateICmpEQ(w, number(f.nan)), nan, bits);
  } else {
    Value* special = b_.CreateICmpUGT(magnitude, number(f.greatest));
    Value* infinite = f.overflow == f.nan
                          ? nan
                          : b_.CreateSelect(b_.CreateICmpEQ(magnitude, number(f.overflow)),
                                            number(0x7f800000), nan);
    bits = b_.CreateSelect(special, infinite, bits);
  }
  Value* sign = b_.CreateShl(b_.CreateAnd(w, number(0x80)), number(24));
  return b_.CreateBitCast(b_.CreateOr(bits, sign), type);
}

Value* ValueOps::FloatToFloat8(Value* v, DLDataType t) {
  llvm::Type* wide = LikeShape(v->getType(), b_.getInt32Ty());
  Value* bits = b_.CreateBitCast(v, wide);
  if (IsExponent(t)) {
    return b_.CreateTrunc(FloatToExponent(b_, bits), LikeShape(wide, b_.getInt8Ty()));
  }
  const Format& f = *FormatOf(t);
  auto number = [&](uint32_t x) { return llvm::ConstantInt::get(wide, x); };
  const auto cut = static_cast<uint32_t>(23 - f.mantissa);
  Value* magnitude = b_.CreateAnd(bits, number(0x7fffffff));
  Value* odd = b_.CreateAnd(b_.CreateLShr(magnitude, number(cut)), number(1));
  const uint32_t rebase = static_cast<uint32_t>(f.bias - 127) << 23;
  Value* rebased = b_.CreateAdd(magnitude, number(rebase + (1U << (cut - 1)) - 1));
  Value* normal = b_.CreateLShr(b_.CreateAdd(rebased, odd), number(cut));
  // Below the least normal value, a large summand lets the float unit round at the right bit.
  const float summand = PowerOfTwo(1 - f.bias - f.mantissa + 23);
  Value* shifted = b_.CreateFAdd(b_.CreateBitCast(magnitude, v->getType()),
                                 llvm::ConstantFP::get(v->getType(), summand));
  uint32_t summand_bits = 0;
  std::memcpy(&summand_bits, &summand, sizeof(summand));
  Value* tiny = b_.CreateSub(b_.CreateBitCast(shifted, wide), number(summand_bits));
  const uint32_t least_normal = static_cast<uint32_t>(128 - f.bias) << 23;
  Value* code = b_.CreateSelect(b_.CreateICmpULT(magnitude, number(least_normal)), tiny, normal);
  // What lies beyond every exponent of the format wraps in `normal`: compare the value as well.
  const uint32_t beyond = static_cast<uint32_t>(127 - f.bias + (0x80 >> f.mantissa)) << 23;
  Value* large = b_.CreateOr(b_.CreateICmpUGT(code, number(f.greatest)),
                             b_.CreateICmpUGE(magnitude, number(beyond)));
  code = b_.CreateSelect(large, number(f.overflow), code);
  Value* is_nan = b_.CreateICmpUGT(magnitude, number(0x7f800000));
  code = b_.CreateSelect(is_nan, number(f.nan), code);
  Value* sign = b_.CreateAnd(b_.CreateLShr(bits, number(24)), number(0x80));
  if (f.one_zero) {
    sign = b_.CreateSelect(b_.CreateICmpEQ(code, number(0)), number(0), sign);
  }
  return b_.CreateTrunc(b_.CreateOr(code, sign), LikeShape(wide, b_.getInt8Ty()));
}

}  // namespace relaxvm::codegen
