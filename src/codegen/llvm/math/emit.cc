// SPDX-License-Identifier: Apache-2.0
// The table of elementary functions, and what all of them use: fused multiply-add and rounding to
// integers.
#include "codegen/llvm/math/emit.h"

#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/IR/MDBuilder.h>
#include <llvm/IR/Module.h>

#include <bit>
#include <string>

#include "codegen/llvm/math/code.h"
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

namespace math {

// AVX-512: one instruction, with the same rounding as two multiplications by powers of two.
Value* ScaleByInstruction(Code& c, Value* x, Value* n) {
  auto* type = llvm::dyn_cast<llvm::FixedVectorType>(c.type);
  if (c.traits.vector_bits != 512 || type == nullptr) return nullptr;
  if (type->getNumElements() != (c.IsDouble() ? 8 : 16)) return nullptr;
  const llvm::Intrinsic::ID id = c.IsDouble() ? llvm::Intrinsic::x86_avx512_mask_scalef_pd_512
                                              : llvm::Intrinsic::x86_avx512_mask_scalef_ps_512;
  llvm::Type* mask = c.IsDouble() ? c.b.getInt8Ty() : c.b.getInt16Ty();
  constexpr uint32_t kRoundAsSet = 4;
  return c.b.CreateIntrinsic(id, {},
                             {x, n, llvm::Constant::getNullValue(c.type),
                              llvm::Constant::getAllOnesValue(mask), c.b.getInt32(kRoundAsSet)});
}

// Volatile, so that no pass takes the load out of the loop; instructions take it as an operand.
Num InMemory(Code& c, double x) {
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(c.type);
  if (!c.traits.few_registers || c.IsDouble() || vector == nullptr) return Of(c, x);
  auto* value = llvm::cast<llvm::Constant>(c.Number(x));
  const std::string name = "relaxvm.constant." +
                           std::to_string(std::bit_cast<uint32_t>(static_cast<float>(x))) + "." +
                           std::to_string(vector->getNumElements());
  llvm::Module* module = c.b.GetInsertBlock()->getModule();
  llvm::GlobalVariable* global = module->getNamedGlobal(name);
  const llvm::Align align(llvm::PowerOf2Ceil(uint64_t{4} * vector->getNumElements()));
  if (global == nullptr) {
    global = new llvm::GlobalVariable(*module, c.type, /*isConstant=*/true,
                                      llvm::GlobalValue::InternalLinkage, value, name);
    global->setAlignment(align);
  }
  return {c.b.CreateAlignedLoad(c.type, global, align, /*isVolatile=*/true), &c};
}

Num Seldom(Mask rare, llvm::ArrayRef<Num> args, Num usual, const char* name,
           Num (*exact)(llvm::ArrayRef<Num>)) {
  Code& c = *usual.c;
  llvm::IRBuilder<>& b = c.b;
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(c.type);
  llvm::BasicBlock* before = b.GetInsertBlock();
  llvm::Function* parent = before->getParent();
  llvm::Module* module = parent->getParent();
  const unsigned lanes = vector ? vector->getNumElements() : 1;
  const std::string full_name = "relaxvm." + std::string(name) + "." + std::to_string(lanes);
  llvm::Function* function = module->getFunction(full_name);
  if (function == nullptr) {
    const llvm::SmallVector<llvm::Type*, 2> types(args.size(), c.type);
    function = llvm::Function::Create(llvm::FunctionType::get(c.type, types, false),
                                      llvm::Function::InternalLinkage, full_name, module);
    function->copyAttributesFrom(parent);
    function->addFnAttr(llvm::Attribute::NoInline);
    llvm::IRBuilder<> inside(llvm::BasicBlock::Create(b.getContext(), "entry", function));
    Code code(inside, c.traits, c.type);
    llvm::SmallVector<Num, 2> params;
    for (llvm::Argument& arg : function->args()) params.push_back({&arg, &code});
    inside.CreateRet(exact(params).v);
  }
  auto* slow = llvm::BasicBlock::Create(b.getContext(), "seldom", parent);
  auto* join = llvm::BasicBlock::Create(b.getContext(), "join", parent);
  b.CreateCondBr(vector ? b.CreateOrReduce(rare.v) : rare.v, slow, join,
                 llvm::MDBuilder(b.getContext()).createUnlikelyBranchWeights());
  b.SetInsertPoint(slow);
  llvm::SmallVector<Value*, 2> values;
  for (const Num& arg : args) values.push_back(arg.v);
  Num other = Select(rare, Num{b.CreateCall(function, values), &c}, usual);
  b.CreateBr(join);
  b.SetInsertPoint(join);
  llvm::PHINode* result = b.CreatePHI(c.type, 2);
  result->addIncoming(usual.v, before);
  result->addIncoming(other.v, slow);
  return {result, &c};
}

}  // namespace math

namespace {

using ir::Intrin;
using math::Num;

Num OfDoubles(Intrin intrin, Num x, Num y) {
  switch (intrin) {
    case Intrin::kExp:
    case Intrin::kExpOfNegative: return math::Exp(x);
    case Intrin::kExp2: return math::Exp2(x);
    case Intrin::kExpm1: return math::Expm1(x);
    case Intrin::kLog: return math::Log(x);
    case Intrin::kLog2: return math::Log2(x);
    case Intrin::kLog10: return math::Log10(x);
    case Intrin::kLog1p: return math::Log1p(x);
    case Intrin::kSin: return math::Sin(x);
    case Intrin::kCos: return math::Cos(x);
    case Intrin::kTan: return math::Tan(x);
    case Intrin::kAsin: return math::Asin(x);
    case Intrin::kAcos: return math::Acos(x);
    case Intrin::kAtan: return math::Atan(x);
    case Intrin::kSinh: return math::Sinh(x);
    case Intrin::kCosh: return math::Cosh(x);
    case Intrin::kTanh: return math::Tanh(x);
    case Intrin::kAsinh: return math::Asinh(x);
    case Intrin::kAcosh: return math::Acosh(x);
    case Intrin::kAtanh: return math::Atanh(x);
    case Intrin::kSigmoid: return math::Sigmoid(x);
    case Intrin::kErf: return math::Erf(x);
    case Intrin::kErfc: return math::Erfc(x);
    case Intrin::kErfInverse: return math::ErfInverse(x);
    case Intrin::kLogGamma: return math::LogGamma(x);
    case Intrin::kDigamma: return math::Digamma(x);
    case Intrin::kGelu: return math::Gelu(x);
    case Intrin::kPow: return math::Pow(x, y);
    case Intrin::kAtan2: return math::Atan2(x, y);
    default: break;  // no elementary function
  }
  Fail(ErrorKind::kTypeError, ir::IntrinName(intrin), " of a float has no native code");
}

}  // namespace

Value* EmitMath(ir::Intrin intrin, llvm::ArrayRef<Value*> args, llvm::IRBuilder<>& b,
                const TargetTraits& traits) {
  llvm::Type* type = args[0]->getType();
  if (intrin == Intrin::kPow) {
    math::Code code(b, traits, type);
    if (Value* found = math::PowOfConstant({args[0], &code}, args[1])) return found;
  }
  if (type->getScalarType()->isFloatTy()) {
    math::Code floats(b, traits, type);
    Num x{args[0], &floats};
    if (Value* found = math::ByTable(intrin, x)) return found;
    switch (intrin) {
      case Intrin::kExp: return math::ExpF(x).v;
      case Intrin::kExpOfNegative: return math::ExpOfNegativeF(x).v;
      case Intrin::kExp2: return math::Exp2F(x).v;
      case Intrin::kExpm1: return math::Expm1F(x).v;
      case Intrin::kLog: return math::LogF(x).v;
      case Intrin::kLog2: return math::Log2F(x).v;
      case Intrin::kLog10: return math::Log10F(x).v;
      case Intrin::kLog1p: return math::Log1pF(x).v;
      case Intrin::kTanh: return math::TanhF(x).v;
      case Intrin::kSigmoid: return math::SigmoidF(x).v;
      case Intrin::kErf: return math::ErfF(x).v;
      case Intrin::kErfc: return math::ErfcF(x).v;
      case Intrin::kErfInverse: return math::ErfInverseF(x).v;
      case Intrin::kGelu: return math::GeluF(x).v;
      case Intrin::kSinh: return math::SinhF(x).v;
      case Intrin::kCosh: return math::CoshF(x).v;
      case Intrin::kAtanh: return math::AtanhF(x).v;
      case Intrin::kAsin: return math::AsinF(x).v;
      case Intrin::kAcos: return math::AcosF(x).v;
      case Intrin::kAtan: return math::AtanF(x).v;
      case Intrin::kPow: return math::PowF(x, {args[1], &floats}).v;
      case Intrin::kSin:
        if (traits.fma) return math::SinF(x).v;
        break;
      case Intrin::kCos:
        if (traits.fma) return math::CosF(x).v;
        break;
      case Intrin::kTan:
        if (traits.fma) return math::TanF(x).v;
        break;
      default: break;  // through double: exact enough to be rounded once
    }
  }
  llvm::Type* wide = LikeShape(type, b.getDoubleTy());
  math::Code doubles(b, traits, wide);
  Num x{b.CreateFPCast(args[0], wide), &doubles};
  Num y = args.size() > 1 ? Num{b.CreateFPCast(args[1], wide), &doubles} : x;
  return b.CreateFPCast(OfDoubles(intrin, x, y).v, type);
}

}  // namespace relaxvm::codegen
