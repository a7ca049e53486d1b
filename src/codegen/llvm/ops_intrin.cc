// SPDX-License-Identifier: Apache-2.0
// Named functions of the loop language that are not transcendental, and reductions over lanes.
#include <llvm/Analysis/ValueTracking.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsAArch64.h>
#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/IR/Module.h>
#include <llvm/Support/KnownBits.h>

#include "codegen/llvm/math/emit.h"
#include "codegen/llvm/ops.h"
#include "support/error.h"

namespace relaxvm::codegen {

using ir::Intrin;
using llvm::Constant;
using llvm::Value;
namespace Intrinsics = llvm::Intrinsic;

// Sixteen registers of 128 bits.
constexpr int kLeastRegisterBytes = 256;

Value* ValueOps::Intrin(ir::Intrin intrin, llvm::ArrayRef<Value*> args, DLDataType t,
                        DLDataType result) {
  Value* a = args[0];
  switch (intrin) {
    case Intrin::kNot: return b_.CreateNot(a);
    case Intrin::kLikely: return a;
    case Intrin::kRet:
      Fail(ErrorKind::kValueError, "T.ret in a program that returns nothing; write to buffers");
    case Intrin::kVectorRoom:  // a schedule puts in the machine's; without one: what all have
      return b_.getInt64(static_cast<uint64_t>(kLeastRegisterBytes * 8 / t.bits));
    case Intrin::kReinterpret:
      RELAXVM_CHECK(t.bits * t.lanes == result.bits * result.lanes)
          << "reinterpret of " << DTypeName(t) << " as " << DTypeName(result);
      return FromStorage(b_.CreateBitCast(ToStorage(a, t), StorageType(result)), result);
    case Intrin::kReduceAdd:
    case Intrin::kReduceMul:
    case Intrin::kReduceMin:
    case Intrin::kReduceMax: return ReduceLanes(intrin, a, t);
    default: break;  // by class of dtype
  }
  if (!IsFloat(t)) return IntIntrin(intrin, args, t);
  return IsBool(result) ? FloatIntrin(intrin, args) : RoundTo(FloatIntrin(intrin, args), t);
}

Value* ValueOps::IntIntrin(ir::Intrin intrin, llvm::ArrayRef<Value*> args, DLDataType t) {
  Value* a = args[0];
  llvm::Type* type = a->getType();
  Value* zero = Constant::getNullValue(type);
  bool is_signed = IsInt(t);
  switch (intrin) {
    case Intrin::kNeg: return b_.CreateNeg(a);
    case Intrin::kBitNot: return b_.CreateNot(a);
    case Intrin::kAbs:
      return is_signed ? b_.CreateIntrinsic(Intrinsics::abs, {type}, {a, b_.getFalse()}) : a;
    case Intrin::kSign: {
      Value* positive = b_.CreateZExt(b_.CreateICmpNE(a, zero), type);
      if (!is_signed) return positive;
      return b_.CreateSelect(b_.CreateICmpSLT(a, zero), Constant::getAllOnesValue(type), positive);
    }
    case Intrin::kCeil:
    case Intrin::kFloor:
    case Intrin::kTrunc:
    case Intrin::kRound: return a;
    case Intrin::kIsNan:
    case Intrin::kIsInf: return Constant::getNullValue(LikeShape(type, b_.getInt1Ty()));
    case Intrin::kIsFinite: return Constant::getAllOnesValue(LikeShape(type, b_.getInt1Ty()));
    case Intrin::kPopcount: return b_.CreateUnaryIntrinsic(Intrinsics::ctpop, a);
    case Intrin::kClz: return b_.CreateIntrinsic(Intrinsics::ctlz, {type}, {a, b_.getFalse()});
    case Intrin::kFma: return b_.CreateAdd(b_.CreateMul(a, args[1]), args[2]);
    default: break;
  }
  Fail(ErrorKind::kTypeError, ir::IntrinName(intrin), " of ", DTypeName(t),
       "; cast it to a float first");
}

Value* ValueOps::FloatIntrin(ir::Intrin intrin, llvm::ArrayRef<Value*> args) {
  Value* a = args[0];
  llvm::Type* type = a->getType();
  Value* zero = Constant::getNullValue(type);
  Value* one = llvm::ConstantFP::get(type, 1.0);
  Value* infinity = llvm::ConstantFP::getInfinity(type);
  auto magnitude = [&] { return b_.CreateUnaryIntrinsic(Intrinsics::fabs, a); };
  switch (intrin) {
    case Intrin::kNeg: return b_.CreateFNeg(a);
    case Intrin::kAbs: return magnitude();
    case Intrin::kSign: {
      Value* ordered = b_.CreateFCmpONE(a, zero);  // keeps zeros and NaNs
      Value* unit = b_.CreateBinaryIntrinsic(Intrinsics::copysign, one, a);
      return b_.CreateSelect(ordered, unit, a);
    }
    case Intrin::kCeil: return RoundToInteger(Rounding::kCeil, a, b_, traits_);
    case Intrin::kFloor: return RoundToInteger(Rounding::kFloor, a, b_, traits_);
    case Intrin::kTrunc: return RoundToInteger(Rounding::kTrunc, a, b_, traits_);
    case Intrin::kRound: return RoundToInteger(Rounding::kEven, a, b_, traits_);
    case Intrin::kSqrt: return b_.CreateUnaryIntrinsic(Intrinsics::sqrt, a);
    case Intrin::kRsqrt: return b_.CreateFDiv(one, b_.CreateUnaryIntrinsic(Intrinsics::sqrt, a));
    case Intrin::kCopySign: return b_.CreateBinaryIntrinsic(Intrinsics::copysign, a, args[1]);
    case Intrin::kFma: return MulAdd(a, args[1], args[2], b_, traits_);
    case Intrin::kIsNan: return b_.CreateFCmpUNO(a, a);
    case Intrin::kIsInf: return b_.CreateFCmpOEQ(magnitude(), infinity);
    case Intrin::kIsFinite: return b_.CreateFCmpOLT(magnitude(), infinity);
    default: return EmitMath(intrin, args, b_, traits_);
  }
}

namespace {

// Calls an instruction, overloaded by `types`, whose operands have the bits of `args`, but perhaps
// other types.
Value* CallWithBits(llvm::IRBuilder<>& b, llvm::Intrinsic::ID id, llvm::ArrayRef<Value*> args,
                    llvm::ArrayRef<llvm::Type*> types = {}) {
  llvm::Module* module = b.GetInsertBlock()->getModule();
  llvm::Function* function = llvm::Intrinsic::getOrInsertDeclaration(module, id, types);
  llvm::SmallVector<Value*, 3> cast;
  for (size_t i = 0; i < args.size(); ++i)
    cast.push_back(b.CreateBitCast(
        args[i], function->getFunctionType()->getParamType(static_cast<unsigned>(i))));
  return b.CreateCall(function, cast);
}

unsigned LanesOf(const Value* v) {
  const auto* type = llvm::dyn_cast<llvm::FixedVectorType>(v->getType());
  return type == nullptr ? 1 : type->getNumElements();
}

// NEON's: registers of 64 and 128 bits.
Value* CallOfArm(llvm::IRBuilder<>& b, llvm::Intrinsic::ID id, llvm::ArrayRef<Value*> args,
                 llvm::Type* narrow) {
  const unsigned lanes = LanesOf(args[0]);
  if (lanes != 2 && lanes != 4) return nullptr;
  const unsigned group = 32 / narrow->getPrimitiveSizeInBits().getFixedValue();
  return CallWithBits(b, id, args,
                      {args[0]->getType(), llvm::FixedVectorType::get(narrow, lanes * group)});
}

// Are the unsigned bytes of these words 127 at most?  Twice 127 times any signed byte is held by 16
// bits.
bool HasShortBytes(Value* words, const llvm::Module* module) {
  const llvm::APInt highest(32, 0x80808080);
  return highest.isSubsetOf(llvm::computeKnownBits(words, module->getDataLayout()).Zero);
}

}  // namespace

Value* ValueOps::DotOfBytes(Value* sum, Value* a, Value* b) {
  switch (traits_.bytes) {
    case DotOf::kNone: return nullptr;
    case DotOf::kArm:
      return CallOfArm(b_, Intrinsics::aarch64_neon_usdot, {sum, a, b}, b_.getInt8Ty());
    case DotOf::kArmOneSign: return DotOfLoweredBytes(sum, a, b);
    case DotOf::kX86Halves:
      if (traits_.byte_pairs && HasShortBytes(a, b_.GetInsertBlock()->getModule()))
        return DotOfBytePairs(sum, a, b);
      return DotOfWidened(sum, a, b, false);
    case DotOf::kX86: break;
  }
  switch (LanesOf(sum)) {
    case 4: return CallWithBits(b_, Intrinsics::x86_avx512_vpdpbusd_128, {sum, a, b});
    case 8: return CallWithBits(b_, Intrinsics::x86_avx512_vpdpbusd_256, {sum, a, b});
    case 16: return CallWithBits(b_, Intrinsics::x86_avx512_vpdpbusd_512, {sum, a, b});
    default: return nullptr;
  }
}

Value* ValueOps::DotOfHalves(Value* sum, Value* a, Value* b) {
  const unsigned lanes = LanesOf(sum);
  Intrinsics::ID id = Intrinsics::not_intrinsic;
  if (lanes == 4) id = Intrinsics::x86_sse2_pmadd_wd;
  if (lanes == 8) id = Intrinsics::x86_avx2_pmadd_wd;
  if (lanes == 16) id = Intrinsics::x86_avx512_pmaddw_d_512;
  if (id == Intrinsics::not_intrinsic || lanes * 32 > static_cast<unsigned>(traits_.vector_bits))
    return nullptr;
  return b_.CreateAdd(sum, CallWithBits(b_, id, {a, b}));
}

Value* ValueOps::DotOfBytePairs(Value* sum, Value* a, Value* b) {
  const unsigned lanes = LanesOf(sum);
  Intrinsics::ID id = Intrinsics::not_intrinsic;
  if (lanes == 4) id = Intrinsics::x86_ssse3_pmadd_ub_sw_128;
  if (lanes == 8) id = Intrinsics::x86_avx2_pmadd_ub_sw;
  if (lanes == 16) id = Intrinsics::x86_avx512_pmaddubs_w_512;
  if (id == Intrinsics::not_intrinsic || !traits_.byte_pairs ||
      lanes * 32 > static_cast<unsigned>(traits_.vector_bits))
    return nullptr;
  auto* halves = llvm::FixedVectorType::get(b_.getInt16Ty(), lanes * 2);
  Constant* ones = llvm::ConstantInt::get(halves, 1);
  Value* pairs = CallWithBits(b_, id, {a, b});
  return DotOfHalves(sum, pairs, ones);
}

// Bytes 0 and 2 of each word, and bytes 1 and 3, as pairs of 16 bits.  What is made of `a` serves
// all columns of a tile, what of `b` all rows.
Value* ValueOps::DotOfWidened(Value* sum, Value* a, Value* b, bool a_is_signed) {
  const unsigned lanes = LanesOf(sum);
  llvm::Type* words = sum->getType();
  auto* halves = llvm::FixedVectorType::get(b_.getInt16Ty(), lanes * 2);
  Constant* eight = llvm::ConstantInt::get(halves, 8);
  Constant* low = llvm::ConstantInt::get(words, 0x00ff00ff);
  auto even_of = [&](Value* v) {  // of signed bytes
    return b_.CreateAShr(b_.CreateShl(b_.CreateBitCast(v, halves), eight), eight);
  };
  auto odd_of = [&](Value* v) { return b_.CreateAShr(b_.CreateBitCast(v, halves), eight); };
  Value* even_of_a = a_is_signed ? even_of(a) : b_.CreateAnd(a, low);
  Value* odd_of_a = a_is_signed ? odd_of(a) : b_.CreateAnd(b_.CreateLShr(a, 8), low);
  Value* even = DotOfHalves(sum, even_of_a, even_of(b));
  return even == nullptr ? nullptr : DotOfHalves(even, odd_of_a, odd_of(b));
}

Value* ValueOps::DotOfSignedBytes(Value* sum, Value* a, Value* b) {
  switch (traits_.bytes) {
    case DotOf::kNone:
    case DotOf::kX86: return nullptr;
    case DotOf::kX86Halves: return DotOfWidened(sum, a, b, true);
    case DotOf::kArm:
    case DotOf::kArmOneSign: break;
  }
  return CallOfArm(b_, Intrinsics::aarch64_neon_sdot, {sum, a, b}, b_.getInt8Ty());
}

// a b = (a - 128) b + 64 b + 64 b.  The last two are the same for all rows of a tile.
Value* ValueOps::DotOfLoweredBytes(Value* sum, Value* a, Value* b) {
  llvm::Type* type = sum->getType();
  Value* k64 = llvm::ConstantInt::get(type, 0x40404040);
  Value* once = DotOfSignedBytes(Constant::getNullValue(type), b, k64);
  if (once == nullptr) return nullptr;
  Value* lowered = b_.CreateXor(a, llvm::ConstantInt::get(type, 0x80808080));
  return b_.CreateAdd(DotOfSignedBytes(sum, lowered, b), DotOfSignedBytes(once, b, k64));
}

Value* ValueOps::DotOfPairs(Value* sum, Value* a, Value* b) {
  if (traits_.pairs == DotOf::kArm)
    return CallOfArm(b_, Intrinsics::aarch64_neon_bfdot, {sum, a, b}, b_.getBFloatTy());
  if (traits_.pairs != DotOf::kX86) return nullptr;
  switch (LanesOf(sum)) {
    case 4: return CallWithBits(b_, Intrinsics::x86_avx512bf16_dpbf16ps_128, {sum, a, b});
    case 8: return CallWithBits(b_, Intrinsics::x86_avx512bf16_dpbf16ps_256, {sum, a, b});
    case 16: return CallWithBits(b_, Intrinsics::x86_avx512bf16_dpbf16ps_512, {sum, a, b});
    default: return nullptr;
  }
}

// One instruction picks by 7 bits out of two registers; the eighth chooses between two of them.
Value* ValueOps::PickBytes(llvm::ArrayRef<Value*> registers, Value* at) {
  const unsigned lanes = LanesOf(at), all = LanesOf(registers[0]);
  llvm::SmallVector<int, 64> widen(all, -1), narrow;
  for (unsigned i = 0; i < lanes; ++i) narrow.push_back(widen[i] = static_cast<int>(i));
  Value* wide = lanes == all ? at : b_.CreateShuffleVector(at, widen);
  auto pick = [&](Value* low, Value* high) {
    return CallWithBits(b_, Intrinsics::x86_avx512_vpermi2var_qi_512, {low, wide, high});
  };
  Value* is_high = b_.CreateICmpSLT(wide, Constant::getNullValue(wide->getType()));
  Value* found =
      b_.CreateSelect(is_high, pick(registers[2], registers[3]), pick(registers[0], registers[1]));
  return lanes == all ? found : b_.CreateShuffleVector(found, narrow);
}

Value* ValueOps::PickWords(Value* words, Value* at) {
  const auto id =
      LanesOf(words) == 8 ? Intrinsics::x86_avx2_permps : Intrinsics::x86_avx512_permvar_sf_512;
  return b_.CreateIntrinsic(id, {}, {words, at});
}

// Halves are combined until one lane is left; an odd lane waits for the next round.
Value* ValueOps::ReduceLanes(ir::Intrin intrin, Value* v, DLDataType t) {
  ir::BinaryOp op = ir::BinaryOp::kAdd;
  if (intrin == Intrin::kReduceMul) op = ir::BinaryOp::kMul;
  if (intrin == Intrin::kReduceMin) op = ir::BinaryOp::kMin;
  if (intrin == Intrin::kReduceMax) op = ir::BinaryOp::kMax;
  int lanes = t.lanes;
  while (lanes > 1) {
    int half = lanes / 2;
    auto slice = [&](int first, int count) -> Value* {
      llvm::SmallVector<int, 64> picks;
      for (int i = 0; i < count; ++i) picks.push_back(first + i);
      return b_.CreateShuffleVector(v, picks);
    };
    Value* sum = Binary(op, slice(0, half), slice(half, half), WithLanes(t, half));
    if (half == 1) sum = b_.CreateExtractElement(sum, uint64_t{0});
    if (lanes % 2) {
      Value* last = b_.CreateExtractElement(v, static_cast<uint64_t>(lanes - 1));
      Value* first = half == 1 ? sum : b_.CreateExtractElement(sum, uint64_t{0});
      Value* both = Binary(op, first, last, ElementOf(t));
      sum = half == 1 ? both : b_.CreateInsertElement(sum, both, uint64_t{0});
    }
    v = sum;
    lanes = half;
  }
  if (v->getType()->isVectorTy()) v = b_.CreateExtractElement(v, uint64_t{0});
  return v;
}

}  // namespace relaxvm::codegen
