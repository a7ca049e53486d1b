// SPDX-License-Identifier: Apache-2.0
// What all elementary functions use: fused multiply-add and rounding to integers.
#include "codegen/llvm/math.h"

#include <llvm/IR/Intrinsics.h>

#include "support/error.h"

namespace relaxvm::codegen {

using llvm::Value;
namespace Intrinsics = llvm::Intrinsic;

Value* MulAdd(Value* a, Value* b, Value* c, llvm::IRBuilder<>& builder,
              const TargetTraits& traits) {
  if (traits.fma) return builder.CreateIntrinsic(Intrinsics::fma, {a->getType()}, {a, b, c});
  return builder.CreateFAdd(builder.CreateFMul(a, b), c);
}

Value* RoundToInteger(Rounding rounding, Value* v, llvm::IRBuilder<>& b,
                      const TargetTraits& traits) {
  if (traits.rounding) {
    Intrinsics::ID id = Intrinsics::roundeven;
    if (rounding == Rounding::kFloor) id = Intrinsics::floor;
    if (rounding == Rounding::kCeil) id = Intrinsics::ceil;
    if (rounding == Rounding::kTrunc) id = Intrinsics::trunc;
    return b.CreateUnaryIntrinsic(id, v);
  }
  // Adding 2^(digits - 1) leaves no room for a fraction; larger values have none.
  llvm::Type* type = v->getType();
  bool is_double = type->getScalarType()->isDoubleTy();
  auto number = [&](double x) { return llvm::ConstantFP::get(type, x); };
  Value* magic = number(is_double ? 0x1p52 : 0x1p23);
  Value* magnitude = b.CreateUnaryIntrinsic(Intrinsics::fabs, v);
  Value* nearest = b.CreateFSub(b.CreateFAdd(magnitude, magic), magic);
  auto with_sign = [&](Value* x) { return b.CreateBinaryIntrinsic(Intrinsics::copysign, x, v); };
  Value* result = nullptr;
  if (rounding == Rounding::kEven) {
    result = with_sign(nearest);
  } else if (rounding == Rounding::kTrunc) {
    Value* over = b.CreateFCmpOGT(nearest, magnitude);
    result = with_sign(b.CreateSelect(over, b.CreateFSub(nearest, number(1)), nearest));
  } else {
    bool down = rounding == Rounding::kFloor;
    Value* even = with_sign(nearest);
    Value* wrong = down ? b.CreateFCmpOGT(even, v) : b.CreateFCmpOLT(even, v);
    result = with_sign(b.CreateSelect(wrong, b.CreateFAdd(even, number(down ? -1 : 1)), even));
  }
  return b.CreateSelect(b.CreateFCmpOLT(magnitude, magic), result, v);
}

}  // namespace relaxvm::codegen
