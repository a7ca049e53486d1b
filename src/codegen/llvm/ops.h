// SPDX-License-Identifier: Apache-2.0
// Arithmetic on LLVM values as the loop language defines it: per element type, on scalars and
// vectors alike. In registers bool is i1, and floats of 16 and 8 bits are float (rounded after each
// operation); in memory they are i8 and i16.
#pragma once

#include <llvm/ADT/DenseMap.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/ValueHandle.h>

#include <optional>

#include "ir/prim.h"

namespace relaxvm::codegen {

// The instruction that adds up products of narrow numbers in groups.
enum class DotOf : uint8_t {
  kNone,
  kX86,         // registers of 128 to 512 bits
  kX86Halves,   // of halves of words, which bytes are widened to: exact as well
  kArm,         // registers of 64 and 128 bits
  kArmOneSign,  // of bytes that are all signed or all unsigned
};

// What code may use; from the features of the target.
struct TargetTraits {
  bool fma = false;
  bool f16c = false;               // conversions of float16 in hardware
  bool rounding = false;           // floor, ceil, trunc, round in hardware
  bool converts_to_least = false;  // float to int32: the least one for what int32 cannot hold
  bool picks = false;              // lanes of a register by an index in each lane
  bool packs = false;              // integers to narrower ones, cut to their range (x86)
  bool byte_tables = false;        // bytes of two registers by an index in each lane
  bool few_registers = false;      // of vectors: 16, and operands may lie in memory
  int vector_bits = 128;
  bool byte_pairs = false;     // sums of two products of bytes in 16 bits
  DotOf pairs = DotOf::kNone;  // of bfloat16, into float32
  DotOf bytes = DotOf::kNone;  // four unsigned and signed ones, into int32
};

// Lower bounds of two operands.
struct Least {
  std::optional<int64_t> a, b;
};

class ValueOps {
 public:
  ValueOps(llvm::IRBuilder<>& builder, const TargetTraits& traits) : b_(builder), traits_(traits) {}

  llvm::Type* RegisterType(DLDataType t) const;
  llvm::Type* StorageType(DLDataType t) const;
  llvm::Value* ToStorage(llvm::Value* v, DLDataType t);
  llvm::Value* FromStorage(llvm::Value* v, DLDataType t);

  llvm::Constant* IntConstant(DLDataType t, int64_t value) const;
  llvm::Value* FloatConstant(DLDataType t, double value);
  llvm::Value* Splat(llvm::Value* scalar, int lanes);

  // `t` is the dtype of the operands, `least` what they are known to be at least: divisions of
  // signed numbers become shorter.
  llvm::Value* Binary(ir::BinaryOp op, llvm::Value* a, llvm::Value* b, DLDataType t,
                      const Least& least = {});
  llvm::Value* Cast(llvm::Value* v, DLDataType from, DLDataType to);
  // Every intrinsic but kIfThenElse; `t` is the dtype of the first argument.
  llvm::Value* Intrin(ir::Intrin intrin, llvm::ArrayRef<llvm::Value*> args, DLDataType t,
                      DLDataType result);

  // sum + products of the bytes (or bfloat16 pairs) of the words `a` and `b`, by one instruction.
  // Null when the machine has none for so many lanes.
  llvm::Value* DotOfBytes(llvm::Value* sum, llvm::Value* a, llvm::Value* b);
  llvm::Value* DotOfSignedBytes(llvm::Value* sum, llvm::Value* a, llvm::Value* b);
  llvm::Value* DotOfBytePairs(llvm::Value* sum, llvm::Value* a, llvm::Value* b);
  llvm::Value* DotOfHalves(llvm::Value* sum, llvm::Value* a, llvm::Value* b);
  llvm::Value* DotOfPairs(llvm::Value* sum, llvm::Value* a, llvm::Value* b);

  // The bytes of four registers of 64 that `at` names, at most 64; traits().byte_tables.
  llvm::Value* PickBytes(llvm::ArrayRef<llvm::Value*> registers, llvm::Value* at);

  // The words of a register of 8 or 16 that `at` names; traits().picks.
  llvm::Value* PickWords(llvm::Value* words, llvm::Value* at);

  const TargetTraits& traits() const { return traits_; }
  llvm::IRBuilder<>& builder() { return b_; }

 private:
  llvm::Value* IntDivide(ir::BinaryOp op, llvm::Value* a, llvm::Value* b, DLDataType t,
                         const Least& least);
  llvm::Value* Quotient(llvm::Value* a, llvm::Value* b, DLDataType t, bool is_signed);
  llvm::Value* IntDivideByConstant(ir::BinaryOp op, llvm::Value* a, llvm::Constant* divisor,
                                   bool is_signed, bool nonnegative);
  llvm::Value* Shift(ir::BinaryOp op, llvm::Value* a, llvm::Value* b, DLDataType t);
  llvm::Value* MinMax(bool is_max, llvm::Value* a, llvm::Value* b, DLDataType t);
  llvm::Value* Compare(ir::BinaryOp op, llvm::Value* a, llvm::Value* b, DLDataType t);
  llvm::Value* FloatBinary(ir::BinaryOp op, llvm::Value* a, llvm::Value* b, DLDataType t);
  llvm::Value* FloatToInt(llvm::Value* v, DLDataType to);
  // Null: `v` is not such a number.
  llvm::Value* RoundedToByte(llvm::Value* v, DLDataType to);
  // moved - offset, where that was added a moment ago to a whole number; null: it was not.
  llvm::Value* WithoutOffset(llvm::Value* moved, llvm::Value* offset);
  llvm::Value* FloatIntrin(ir::Intrin intrin, llvm::ArrayRef<llvm::Value*> args);
  llvm::Value* IntIntrin(ir::Intrin intrin, llvm::ArrayRef<llvm::Value*> args, DLDataType t);
  llvm::Value* DotOfWidened(llvm::Value* sum, llvm::Value* a, llvm::Value* b, bool a_is_signed);
  llvm::Value* DotOfLoweredBytes(llvm::Value* sum, llvm::Value* a, llvm::Value* b);
  llvm::Value* ReduceLanes(ir::Intrin intrin, llvm::Value* v, DLDataType t);
  llvm::Value* RoundTo(llvm::Value* v, DLDataType t);  // to the nearest value of a narrow float
  llvm::Value* NarrowToFloat(llvm::Value* v, DLDataType to);  // double -> float on the way to `to`
  llvm::Value* HalfToFloat(llvm::Value* bits);
  llvm::Value* FloatToHalf(llvm::Value* v);
  llvm::Value* BFloatToFloat(llvm::Value* bits);
  llvm::Value* FloatToBFloat(llvm::Value* v);
  llvm::Value* Float8ToFloat(llvm::Value* code, DLDataType t);
  llvm::Value* FloatToFloat8(llvm::Value* v, DLDataType t);

  llvm::IRBuilder<>& b_;
  const TargetTraits& traits_;
  // What is known of values, as long as they are there.
  class Known {
   public:
    void Add(llvm::Value* of, llvm::Value* known) { table_[of] = {of, known}; }
    llvm::Value* Find(llvm::Value* of) const {
      const auto row = table_.find(of);
      return row != table_.end() && row->second.of == of ? row->second.known : nullptr;
    }

   private:
    struct Row {
      llvm::WeakVH of, known;
    };
    llvm::DenseMap<llvm::Value*, Row> table_;
  };
  Known numbers_of_bytes_;  // as float32, which need not leave the float registers
  Known moved_from_;        // whole numbers plus an offset: these without it
};

// The formats of 8 bits with a sign.
bool IsFloat8(DLDataType t);

// A constant float32, the same in all lanes; absent: it is none.
std::optional<float> ConstantFloat(llvm::Value* v);

// A type of `t`'s shape (lanes) with `element`.
llvm::Type* LikeShape(llvm::Type* t, llvm::Type* element);

}  // namespace relaxvm::codegen
