// SPDX-License-Identifier: Apache-2.0
// Conversions of floats to integers.
#include <llvm/Analysis/VectorUtils.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>

#include <cmath>
#include <optional>
#include <utility>

#include "codegen/llvm/ops.h"

namespace relaxvm::codegen {

using llvm::Constant;
using llvm::Value;
namespace Intrinsics = llvm::Intrinsic;

namespace {

// fptosi_sat, which LLVM would take lane by lane: the nearest end of the range, 0 for NaN.
Value* ToSigned(llvm::IRBuilder<>& b, Value* v, llvm::Type* result) {
  const unsigned bits = result->getScalarSizeInBits();
  const double end = std::ldexp(1.0, static_cast<int>(bits) - 1);
  Value* above = b.CreateFCmpOGE(v, llvm::ConstantFP::get(v->getType(), end));
  Value* below = b.CreateFCmpOLT(v, llvm::ConstantFP::get(v->getType(), -end));
  Value* outside = b.CreateOr(b.CreateOr(above, below), b.CreateFCmpUNO(v, v));
  Value* inside = b.CreateSelect(outside, Constant::getNullValue(v->getType()), v);
  auto limit = [&](const llvm::APInt& value) { return llvm::ConstantInt::get(result, value); };
  Value* whole = b.CreateFPToSI(inside, result);
  whole = b.CreateSelect(above, limit(llvm::APInt::getSignedMaxValue(bits)), whole);
  return b.CreateSelect(below, limit(llvm::APInt::getSignedMinValue(bits)), whole);
}

// x86's conversion of one register to int32, towards zero or to the nearest one, halves to even:
// the least one for a NaN and for what is out of range.  Null: `v` is not one register.
Value* ToInt32OrLeast(llvm::IRBuilder<>& b, Value* v, bool to_nearest = false) {
  switch (llvm::cast<llvm::FixedVectorType>(v->getType())->getNumElements()) {
    case 4:
      return b.CreateIntrinsic(
          to_nearest ? Intrinsics::x86_sse2_cvtps2dq : Intrinsics::x86_sse2_cvttps2dq, {}, {v});
    case 8:
      return b.CreateIntrinsic(
          to_nearest ? Intrinsics::x86_avx_cvt_ps2dq_256 : Intrinsics::x86_avx_cvtt_ps2dq_256, {},
          {v});
    case 16: {
      constexpr int kCurrentRounding = 4, kToEven = 8;
      Value* all = llvm::ConstantInt::get(b.getInt16Ty(), 0xffff);
      Value* none = Constant::getNullValue(llvm::FixedVectorType::get(b.getInt32Ty(), 16));
      return b.CreateIntrinsic(to_nearest ? Intrinsics::x86_avx512_mask_cvtps2dq_512
                                          : Intrinsics::x86_avx512_mask_cvttps2dq_512,
                               {},
                               {v, none, all, b.getInt32(to_nearest ? kToEven : kCurrentRounding)});
    }
    default: return nullptr;
  }
}

// The low bits of that as int32, which are all ones above its range, zeros below it.
Value* ToLowBits(llvm::IRBuilder<>& b, const TargetTraits& traits, Value* v, llvm::Type* result) {
  llvm::Type* whole = LikeShape(result, b.getInt32Ty());
  Constant* end = llvm::ConstantFP::get(v->getType(), 0x1p31);
  const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(v->getType());
  if (traits.converts_to_least && vector != nullptr && vector->getElementType()->isFloatTy() &&
      static_cast<int>(vector->getNumElements()) * 32 <= traits.vector_bits) {
    // The low bits of the least int32 are zeros.
    if (Value* least = ToInt32OrLeast(b, v)) {
      Value* above = b.CreateSExt(b.CreateFCmpOGE(v, end), whole);
      return b.CreateTrunc(b.CreateOr(least, above), result);
    }
  }
  Value* fits = b.CreateFCmpOLT(b.CreateUnaryIntrinsic(Intrinsics::fabs, v), end);
  Value* inside = b.CreateSelect(fits, v, Constant::getNullValue(v->getType()));
  Value* above = b.CreateSExt(b.CreateFCmpOGE(v, end), whole);
  return b.CreateTrunc(b.CreateOr(b.CreateFPToSI(inside, whole), above), result);
}

// One of MinMax with a constant: `limit` where it is passed, else `value`, a NaN too.
struct Limited {
  Value* value = nullptr;
  Constant* limit = nullptr;
  float number = 0;
  bool is_least = false;
};

std::optional<Limited> LimitedOf(Value* v) {
  auto* chosen = llvm::dyn_cast<llvm::SelectInst>(v);
  auto* compare = chosen ? llvm::dyn_cast<llvm::FCmpInst>(chosen->getCondition()) : nullptr;
  if (compare == nullptr || compare->getOperand(0) != chosen->getTrueValue() ||
      compare->getOperand(1) != chosen->getFalseValue())
    return std::nullopt;
  Limited out;
  out.value = chosen->getFalseValue();
  const auto number = ConstantFloat(chosen->getTrueValue());
  if (!number.has_value()) return std::nullopt;
  out.limit = llvm::cast<Constant>(chosen->getTrueValue());
  out.number = *number;
  out.is_least = compare->getPredicate() == llvm::CmpInst::FCMP_OGT;
  if (!out.is_least && compare->getPredicate() != llvm::CmpInst::FCMP_OLT) return std::nullopt;
  return out;
}

// What MinMax with two constants keeps inside of [least, most], which int32 holds.
struct Clamped {
  Limited inner, outer;
  float least = 0, most = 0;

  static std::optional<Clamped> Of(Value* v) {
    const auto outer = LimitedOf(v);
    const auto inner = outer.has_value() ? LimitedOf(outer->value) : std::nullopt;
    if (!inner.has_value() || outer->is_least == inner->is_least) return std::nullopt;
    Clamped out{*inner, *outer, inner->number, outer->number};
    if (outer->is_least) std::swap(out.least, out.most);
    if (!(std::fabs(out.least) < 0x1p31F) || !(std::fabs(out.most) < 0x1p31F)) return std::nullopt;
    return out;
  }

  // The same, but that a NaN gives the least number: x86's maximum does that by itself when the
  // limit is its second operand.
  Value* LeastForNaN(llvm::IRBuilder<>& b) const {
    Value* v = inner.value;
    for (const Limited& step : {inner, outer})
      v = step.is_least ? AtLeast(b, v, step.limit) : AtMost(b, v, step.limit);
    return v;
  }
  static Value* AtLeast(llvm::IRBuilder<>& b, Value* v, Constant* limit) {
    return b.CreateSelect(b.CreateFCmpOGT(v, limit), v, limit);
  }
  static Value* AtMost(llvm::IRBuilder<>& b, Value* v, Constant* limit) {
    return b.CreateSelect(b.CreateFCmpOLT(limit, v), limit, v);
  }
};

// round(x) + offset, halves to even, as quantization has it.
struct Rounded {
  Value* x = nullptr;
  int offset = 0;

  static std::optional<Rounded> Of(Value* v) {
    Rounded out;
    if (auto* sum = llvm::dyn_cast<llvm::BinaryOperator>(v);
        sum != nullptr && sum->getOpcode() == llvm::Instruction::FAdd) {
      const auto number = WholeNumber(sum->getOperand(1));
      if (!number.has_value()) return std::nullopt;
      out.offset = *number;
      v = sum->getOperand(0);
    }
    auto* call = llvm::dyn_cast<llvm::IntrinsicInst>(v);
    if (call == nullptr || call->getIntrinsicID() != Intrinsics::roundeven) return std::nullopt;
    out.x = call->getArgOperand(0);
    return out;
  }
  // What a byte may be.
  static std::optional<int> WholeNumber(Value* v) {
    const auto number = ConstantFloat(v);
    if (!number.has_value() || !(std::fabs(*number) <= 255.0F) || std::trunc(*number) != *number)
      return std::nullopt;
    return static_cast<int>(*number);
  }
};

// A vector of floats in x86's registers, on the way to bytes.
class Registers {
 public:
  // None: the machine has none that hold so many lanes evenly.
  static std::optional<Registers> Of(const TargetTraits& traits, Value* v) {
    const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(v->getType());
    if (!traits.packs || vector == nullptr || !vector->getElementType()->isFloatTy())
      return std::nullopt;
    const auto lanes = static_cast<int>(vector->getNumElements());
    for (int each = traits.vector_bits / 32; each >= 4; each /= 2) {
      const int count = lanes / each;
      if (lanes % each == 0 && (count <= 2 || count % 4 == 0)) return Registers(each, count);
    }
    return std::nullopt;
  }

  // The nearest int32, halves to even; the least one for a NaN and for what is out of range.
  llvm::SmallVector<Value*, 4> Nearest(llvm::IRBuilder<>& b, Value* v) const {
    llvm::SmallVector<Value*, 4> out;
    for (int i = 0; i < count_; ++i) {
      llvm::SmallVector<int, 16> lanes;
      for (int lane = 0; lane < each_; ++lane) lanes.push_back(i * each_ + lane);
      Value* piece = count_ == 1 ? v : b.CreateShuffleVector(v, lanes);
      out.push_back(ToInt32OrLeast(b, piece, /*to_nearest=*/true));
    }
    return out;
  }

  // Those plus `offset` as bytes, each the nearest one that there is.
  Value* Bytes(llvm::IRBuilder<>& b, llvm::ArrayRef<Value*> words, int offset,
               bool is_unsigned) const {
    llvm::SmallVector<Value*, 4> parts;
    for (int i = 0; i < count_; i += 4)
      parts.push_back(Packed(b, words.slice(i, std::min(4, count_ - i)), offset, is_unsigned));
    return llvm::concatenateVectors(b, parts);
  }

 private:
  Registers(int each, int count) : each_(each), count_(count) {}

  // Of one, two or four registers.
  Value* Packed(llvm::IRBuilder<>& b, llvm::ArrayRef<Value*> words, int offset,
                bool is_unsigned) const {
    auto of_size = [&](Intrinsics::ID least, Intrinsics::ID middle, Intrinsics::ID most) {
      return each_ == 4 ? least : each_ == 8 ? middle : most;
    };
    const Intrinsics::ID to_halves =
        of_size(Intrinsics::x86_sse2_packssdw_128, Intrinsics::x86_avx2_packssdw,
                Intrinsics::x86_avx512_packssdw_512);
    const Intrinsics::ID to_bytes =
        is_unsigned ? of_size(Intrinsics::x86_sse2_packuswb_128, Intrinsics::x86_avx2_packuswb,
                              Intrinsics::x86_avx512_packuswb_512)
                    : of_size(Intrinsics::x86_sse2_packsswb_128, Intrinsics::x86_avx2_packsswb,
                              Intrinsics::x86_avx512_packsswb_512);
    const size_t count = words.size();
    auto halves = [&](Value* low, Value* high) -> Value* {
      Value* packed = b.CreateIntrinsic(to_halves, {}, {low, high});
      if (offset == 0) return packed;
      return b.CreateBinaryIntrinsic(
          Intrinsics::sadd_sat, packed,
          llvm::ConstantInt::get(packed->getType(), static_cast<uint64_t>(offset),
                                 /*IsSigned=*/true));
    };
    Value* low = halves(words[0], words[count == 1 ? 0 : 1]);
    Value* high = count == 4 ? halves(words[2], words[3]) : low;
    Value* packed = b.CreateIntrinsic(to_bytes, {}, {low, high});
    // Words of bytes lie 128 bits by 128 bits, of each register in turn.
    const int groups = each_ / 4;
    llvm::SmallVector<int, 16> order;
    for (int i = 0; i < static_cast<int>(count); ++i) {
      for (int group = 0; group < groups; ++group) order.push_back(4 * group + i);
    }
    Value* in_words = b.CreateBitCast(
        packed, llvm::FixedVectorType::get(b.getInt32Ty(), static_cast<unsigned>(each_)));
    return b.CreateBitCast(
        b.CreateShuffleVector(in_words, order),
        llvm::FixedVectorType::get(b.getInt8Ty(),
                                   static_cast<unsigned>(each_) * static_cast<unsigned>(count)));
  }

  int each_, count_;  // lanes of a register, registers
};

}  // namespace

// Numbers that are rounded, moved and cut to the range of a byte: the instruction that makes
// integers of floats rounds, those that make bytes of integers cut.
Value* ValueOps::RoundedToByte(Value* v, DLDataType to) {
  const auto clamped = Clamped::Of(v);
  const auto rounded = clamped.has_value() ? Rounded::Of(clamped->inner.value) : std::nullopt;
  const auto registers = Registers::Of(traits_, v);
  const bool is_unsigned = IsUInt(to);
  if (!rounded.has_value() || !registers.has_value() ||
      clamped->least != (is_unsigned ? 0.0F : -128.0F) ||
      clamped->most != (is_unsigned ? 255.0F : 127.0F))
    return nullptr;
  const int offset = rounded->offset;
  auto number = [&](float value) {
    return llvm::cast<Constant>(llvm::ConstantFP::get(v->getType(), value));
  };
  Value* x = rounded->x;
  // A NaN gives 0, which the least number is of unsigned bytes.
  if (!is_unsigned)
    x = b_.CreateSelect(b_.CreateFCmpORD(x, x), x, number(static_cast<float>(-offset)));
  Value* not_above = Clamped::AtMost(b_, x, number(clamped->most - static_cast<float>(offset)));
  Value* result = registers->Bytes(b_, registers->Nearest(b_, not_above), offset, is_unsigned);
  Value* inside =
      Clamped::AtLeast(b_, not_above, number(clamped->least - static_cast<float>(offset)));
  Value* whole =
      b_.CreateSIToFP(llvm::concatenateVectors(b_, registers->Nearest(b_, inside)), v->getType());
  Value* moved = offset == 0 ? whole : b_.CreateFAdd(whole, number(static_cast<float>(offset)));
  numbers_of_bytes_.Add(result, moved);
  if (offset != 0) moved_from_.Add(moved, whole);
  return result;
}

Value* ValueOps::WithoutOffset(Value* moved, Value* offset) {
  Value* whole = moved_from_.Find(moved);
  const bool is_same =
      whole != nullptr && llvm::cast<llvm::Instruction>(moved)->getOperand(1) == offset;
  return is_same ? whole : nullptr;
}

// Rounds towards zero.  Outside the range: 32- and 64-bit integers saturate; smaller ones and
// uint32 keep the low bits of the wider integer, as C compilers do.  A NaN gives 0.
Value* ValueOps::FloatToInt(Value* v, DLDataType to) {
  llvm::Type* type = RegisterType(to);
  if (to.bits == 8) {
    if (Value* byte = RoundedToByte(v, to)) return byte;
  }
  if (to.bits < 32 || (to.bits == 32 && IsInt(to))) {
    if (const auto clamped = Clamped::Of(v)) {
      llvm::Type* whole = LikeShape(type, b_.getInt32Ty());
      if (clamped->least != 0.0F) {
        Value* inside = b_.CreateFPToSI(v, whole);
        inside = b_.CreateSelect(b_.CreateFCmpORD(v, v), inside, Constant::getNullValue(whole));
        return b_.CreateTrunc(inside, type);
      }
      Value* inside = clamped->LeastForNaN(b_);
      Value* result = b_.CreateTrunc(b_.CreateFPToSI(inside, whole), type);
      if (clamped->most >= 0.0F && clamped->most <= 255.0F && to.bits == 8 && IsUInt(to) &&
          traits_.rounding)
        numbers_of_bytes_.Add(result, b_.CreateUnaryIntrinsic(Intrinsics::trunc, inside));
      return result;
    }
  }
  auto saturate = [&](Intrinsics::ID id, llvm::Type* result) -> Value* {
    if (id == Intrinsics::fptosi_sat && result->isVectorTy()) return ToSigned(b_, v, result);
    return b_.CreateIntrinsic(id, {result, v->getType()}, {v});
  };
  if (to.bits < 32) return ToLowBits(b_, traits_, v, type);
  if (IsInt(to)) return saturate(Intrinsics::fptosi_sat, type);
  if (to.bits == 32) {
    return b_.CreateTrunc(saturate(Intrinsics::fptosi_sat, LikeShape(type, b_.getInt64Ty())), type);
  }
  Value* small = b_.CreateFCmpOLT(v, llvm::ConstantFP::get(v->getType(), 0x1p63));
  return b_.CreateSelect(small, saturate(Intrinsics::fptosi_sat, type),
                         saturate(Intrinsics::fptoui_sat, type));
}

}  // namespace relaxvm::codegen
