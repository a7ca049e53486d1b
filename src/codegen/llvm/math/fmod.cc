// SPDX-License-Identifier: Apache-2.0
// The remainder of a division, exact for every pair: by the rounded quotient where that is off by
// one at most, by long division where it is greater.
#include <llvm/IR/Module.h>

#include "codegen/llvm/math/code.h"

namespace relaxvm::codegen {

using llvm::Value;

namespace {

using math::Code;
using math::Mask;
using math::Num;

// By long division on the significands: at most 2,098 steps.
llvm::Function* FmodFunction(llvm::IRBuilder<>& caller) {
  llvm::Module* module = caller.GetInsertBlock()->getModule();
  constexpr const char* kName = "relaxvm.fmod.long";
  if (llvm::Function* known = module->getFunction(kName)) return known;
  llvm::LLVMContext& context = module->getContext();
  llvm::Type* f64 = llvm::Type::getDoubleTy(context);
  llvm::Type* i64 = llvm::Type::getInt64Ty(context);
  auto* fn = llvm::Function::Create(llvm::FunctionType::get(f64, {f64, f64}, false),
                                    llvm::Function::InternalLinkage, kName, module);
  fn->copyAttributesFrom(caller.GetInsertBlock()->getParent());
  auto block = [&](const char* name) { return llvm::BasicBlock::Create(context, name, fn); };
  auto *entry = block("entry"), *special = block("special"), *regular = block("regular"),
       *small = block("small"), *divide = block("divide"), *loop = block("loop"),
       *finish = block("finish");
  llvm::IRBuilder<> b(entry);
  auto number = [&](uint64_t x) { return llvm::ConstantInt::get(i64, x); };
  Value *x = fn->getArg(0), *y = fn->getArg(1);
  Value* sign = b.CreateAnd(b.CreateBitCast(x, i64), number(uint64_t{1} << 63));
  Value* ax = b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x);
  Value* ay = b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, y);
  Value* infinity = llvm::ConstantFP::getInfinity(f64);
  Value* bad = b.CreateOr(b.CreateFCmpUEQ(ax, infinity),
                          b.CreateFCmpUEQ(ay, llvm::Constant::getNullValue(f64)));
  bad = b.CreateOr(bad, b.CreateOr(b.CreateFCmpUNO(x, x), b.CreateFCmpUNO(y, y)));
  b.CreateCondBr(bad, special, regular);
  b.SetInsertPoint(special);
  Value* sum = b.CreateFAdd(x, y);  // a NaN if either is
  b.CreateRet(b.CreateSelect(b.CreateFCmpUNO(sum, sum), sum, llvm::ConstantFP::getNaN(f64)));
  b.SetInsertPoint(regular);
  b.CreateCondBr(b.CreateFCmpOLT(ax, ay), small, divide);
  b.SetInsertPoint(small);
  b.CreateRet(x);

  // significand in [2^52, 2^53) and exponent of each; denormals are shifted up
  b.SetInsertPoint(divide);
  auto split = [&](Value* v, Value** exponent) {
    Value* bits = b.CreateBitCast(v, i64);
    Value* raw = b.CreateLShr(bits, number(52));
    Value* normal = b.CreateICmpNE(raw, number(0));
    Value* digits = b.CreateAnd(bits, number((uint64_t{1} << 52) - 1));
    digits = b.CreateOr(digits, b.CreateSelect(normal, number(uint64_t{1} << 52), number(0)));
    Value* zeros = b.CreateIntrinsic(llvm::Intrinsic::ctlz, {i64}, {digits, b.getTrue()});
    Value* up = b.CreateSub(zeros, number(11));
    *exponent = b.CreateSub(b.CreateSelect(normal, raw, number(1)), up);
    return b.CreateShl(digits, up);
  };
  Value *ex = nullptr, *ey = nullptr;
  Value* mx = split(ax, &ex);
  Value* my = split(ay, &ey);
  b.CreateBr(loop);
  b.SetInsertPoint(loop);
  llvm::PHINode* rest = b.CreatePHI(i64, 2);
  llvm::PHINode* exponent = b.CreatePHI(i64, 2);
  Value* reduced = b.CreateSelect(b.CreateICmpUGE(rest, my), b.CreateSub(rest, my), rest);
  Value* done = b.CreateICmpEQ(exponent, ey);
  Value* shifted = b.CreateShl(reduced, number(1));
  Value* next = b.CreateSub(exponent, number(1));
  rest->addIncoming(mx, divide);
  rest->addIncoming(shifted, loop);
  exponent->addIncoming(ex, divide);
  exponent->addIncoming(next, loop);
  b.CreateCondBr(done, finish, loop);

  // `reduced` * 2^(ey - 1075), exactly representable: built from the integer and two powers of two.
  b.SetInsertPoint(finish);
  Value* significand = b.CreateUIToFP(reduced, f64);
  Value* half = b.CreateAShr(ey, number(1));
  Value* other = b.CreateSub(ey, half);
  auto power = [&](Value* e, uint64_t bias) {  // 2^(e + bias - 1023)
    return b.CreateBitCast(b.CreateShl(b.CreateAdd(e, number(bias)), number(52)), f64);
  };
  // 2^(half - 537) * 2^(other - 538), each normal.
  Value* result =
      b.CreateFMul(b.CreateFMul(significand, power(other, 1023 - 538)), power(half, 1023 - 537));
  Value* bits = b.CreateOr(b.CreateBitCast(result, i64), sign);
  b.CreateRet(b.CreateBitCast(bits, f64));
  return fn;
}

// x - q |y| towards zero, q below `limit`.
Num ByQuotient(Num x, Num y, Num ratio) {
  Num a = Abs(x), b = Abs(y);
  Num q{RoundToInteger(Rounding::kTrunc, ratio.v, x.c->b, x.c->traits), x.c};
  Num rest = Fma(-q, b, a);
  rest = Select(rest < 0.0, rest + b, rest);  // the ratio was rounded up to an integer
  return WithSign(Select(a < b, a, rest), x);
}

// Up to here the rounded ratio is off by less than 1, and ratio times y, a float or double, is
// exact; 0 where it never is.
double LimitOf(const Code& c, bool of_floats) {
  if (c.traits.fma) return c.IsDouble() ? 0x1p51 : 0x1p22;
  return of_floats && c.IsDouble() ? 0x1p28 : 0;
}

Value* OneByOne(Num x, Num y) {
  llvm::IRBuilder<>& b = x.c->b;
  llvm::Function* function = FmodFunction(b);
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(x.c->type);
  if (vector == nullptr) return b.CreateCall(function, {x.v, y.v});
  Value* all = llvm::PoisonValue::get(vector);
  for (unsigned i = 0; i < vector->getNumElements(); ++i) {
    Value* lane =
        b.CreateCall(function, {b.CreateExtractElement(x.v, i), b.CreateExtractElement(y.v, i)});
    all = b.CreateInsertElement(all, lane, i);
  }
  return all;
}

template <bool kOfFloats>
Num OfDoubles(llvm::ArrayRef<Num> args) {
  Num x = args[0], y = args[1];
  const double limit = LimitOf(*x.c, kOfFloats);
  if (limit == 0) return {OneByOne(x, y), x.c};
  Num ratio = Abs(x) / Abs(y);
  return Seldom(!(ratio < limit), args, ByQuotient(x, y, ratio), "fmod.of.large",
                [](llvm::ArrayRef<Num> a) { return Num{OneByOne(a[0], a[1]), a[0].c}; });
}

Num ThroughDoubles(llvm::ArrayRef<Num> args) {
  Code& c = *args[0].c;
  Code wide(c.b, c.traits, LikeShape(c.type, c.b.getDoubleTy()));
  const Num both[] = {{c.b.CreateFPCast(args[0].v, wide.type), &wide},
                      {c.b.CreateFPCast(args[1].v, wide.type), &wide}};
  return {c.b.CreateFPCast(OfDoubles<true>(both).v, c.type), &c};
}

}  // namespace

Value* EmitFmod(Value* x, Value* y, llvm::IRBuilder<>& b, const TargetTraits& traits) {
  Code code(b, traits, x->getType());
  const Num args[] = {{x, &code}, {y, &code}};
  if (code.IsDouble()) return OfDoubles<false>(args).v;
  const double limit = LimitOf(code, /*of_floats=*/true);
  if (limit == 0) return ThroughDoubles(args).v;
  Num ratio = Abs(args[0]) / Abs(args[1]);
  return Seldom(!(ratio < limit), args, ByQuotient(args[0], args[1], ratio), "fmod", ThroughDoubles)
      .v;
}

}  // namespace relaxvm::codegen
