// SPDX-License-Identifier: Apache-2.0
// Trigonometric functions on doubles.
#include <limits>

#include <llvm/IR/Module.h>

#include "codegen/llvm/math/code.h"

namespace relaxvm::codegen::math {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kHalfPi = 1.5707963267948966;
constexpr double kHalfPiLow = 6.123233995736766e-17;
constexpr double kPi = 3.141592653589793;
constexpr double kPiLow = 1.2246467991473532e-16;
constexpr double kTwoOverPi = 0.6366197723675814;
// pi/2 in three parts; n times one of the first two is exact for |n| < 2^20.
constexpr double kHalfPi1 = 0x1.921fb54400000p+0;
constexpr double kHalfPi2 = 0x1.0b4611a600000p-34;
constexpr double kHalfPi3 = 0x1.3198a2e037073p-69;
// Arguments above this are reduced with as many digits of pi as they need.
constexpr double kLargeAngle = 1.0e6;

// (-1)^k / (2k+1)! for k = 8 .. 1 and (-1)^k / (2k)! for k = 8 .. 2: errors below 1e-19 for |r| <=
// pi/4.
constexpr double kSinTail[] = {
    1.0 / 355687428096000, -1.0 / 1307674368000, 1.0 / 6227020800, -1.0 / 39916800,
    1.0 / 362880,          -1.0 / 5040,          1.0 / 120,        -1.0 / 6};
constexpr double kCosTail[] = {
    1.0 / 20922789888000, -1.0 / 87178291200, 1.0 / 479001600, -1.0 / 3628800,
    1.0 / 40320,          -1.0 / 720,         1.0 / 24};
// From tools/fit_math.py.
constexpr double kAtanTail64[] = {
    0.016284375050043394, -0.034569315063326090, 0.045515447340221617, -0.052304436406869477,
    0.058789275544738068, -0.066664247602005201, 0.076922963680422971, -0.090909087532591129,
    0.11111111105150588,  -0.14285714285659778,  0.19999999999999804,  -0.33333333333333333};
constexpr double kAsinTail64[] = {
    0.029612011264955120,  -0.019241671746743041, 0.019554513336123379, 0.0030448799094556774,
    0.0093195607947674463, 0.0096218429701002810, 0.011566459612121669, 0.013963780012203570,
    0.017352816540325495,  0.022372157443507222,  0.030381944475532340, 0.044642857142551893,
    0.075000000000001178,  0.16666666666666667};

// Bits of 2/pi after a word of zeros.
constexpr uint64_t kTwoOverPiBits[] = {0,
                                       0xa2f9836e4e441529,
                                       0xfc2757d1f534ddc0,
                                       0xdb6295993c439041,
                                       0xfe5163abdebbc561,
                                       0xb7246e3a424dd2e0,
                                       0x06492eea09d1921c,
                                       0xfe1deb1cb129a73e,
                                       0xe88235f52ebb4484,
                                       0xe99c7026b45f7e41,
                                       0x3991d639835339f4,
                                       0x9c845f8bbdf9283b,
                                       0x1ff897ffde05980f,
                                       0xef2f118b5a0a6d1f,
                                       0x6d367ecf27cb09b7,
                                       0x4f463f669e5fea2d,
                                       0x7527bac7ebe5f17b,
                                       0x3d0739f78a5292ea,
                                       0x6bfb5fb11f8d5d08,
                                       0x56033046fc7b6bab,
                                       0xf0cfbc209af4361d};
constexpr int kNumWords = sizeof(kTwoOverPiBits) / sizeof(kTwoOverPiBits[0]);

// x = n pi/2 + (high + low), |high| <= pi/4
struct Reduced {
  Word n;
  Pair r;
};

Reduced ReduceSmall(Num x) {
  Nearest n = NearestInteger(x * kTwoOverPi);
  Num first = x - n.number * kHalfPi1;  // exact
  Pair second = TwoSum(first, -(n.number * kHalfPi2));
  Num low = second.low - n.number * kHalfPi3;
  return {n.integer, QuickTwoSum(second.high, low)};
}

// { double high, double low, i64 n } of one finite x with |x| > kLargeAngle, for any exponent: x *
// 2/pi is computed as an integer product of the significand with 192 bits of 2/pi, taken where they
// matter modulo 4.
class LargeReduction {
 public:
  LargeReduction(llvm::Module* module, const llvm::Function* like)
      : module_(module), b_(module->getContext()) {
    fn_ = module->getFunction(kName);
    if (fn_ == nullptr) Emit(like);
  }
  llvm::Function* function() const { return fn_; }

 private:
  static constexpr const char* kName = "relaxvm.reduce_angle";
  using Value = llvm::Value;
  Value* I64(uint64_t x) { return b_.getInt64(x); }
  Value* Wide(Value* x) { return b_.CreateZExt(x, b_.getInt128Ty()); }
  Value* HighWord(Value* wide) { return b_.CreateTrunc(b_.CreateLShr(wide, 64), b_.getInt64Ty()); }
  Value* LowWord(Value* wide) { return b_.CreateTrunc(wide, b_.getInt64Ty()); }

  void Emit(const llvm::Function* like) {
    llvm::Type* f64 = b_.getDoubleTy();
    llvm::Type* i64 = b_.getInt64Ty();
    auto* result = llvm::StructType::get(f64, f64, i64);
    fn_ = llvm::Function::Create(llvm::FunctionType::get(result, {f64}, false),
                                 llvm::Function::InternalLinkage, kName, module_);
    fn_->copyAttributesFrom(like);
    fn_->addFnAttr(llvm::Attribute::NoInline);
    b_.SetInsertPoint(llvm::BasicBlock::Create(module_->getContext(), "entry", fn_));
    auto* table_type = llvm::ArrayType::get(i64, kNumWords);
    auto* bits = llvm::ConstantDataArray::get(module_->getContext(), kTwoOverPiBits);
    auto* table = new llvm::GlobalVariable(*module_, table_type, true,
                                           llvm::GlobalValue::PrivateLinkage, bits, "two_over_pi");

    Value* word = b_.CreateBitCast(fn_->getArg(0), i64);
    Value* exponent = b_.CreateAnd(b_.CreateLShr(word, 52), I64(0x7ff));
    Value* m =
        b_.CreateOr(b_.CreateAnd(word, I64((uint64_t{1} << 52) - 1)), I64(uint64_t{1} << 52));
    // x = m 2^e; the bit of 2/pi with weight 2^(1-e) is the first that counts modulo 4.
    Value* skip = b_.CreateAdd(b_.CreateSub(exponent, I64(1075 + 2)), I64(64));
    Value* first = b_.CreateLShr(skip, 6);
    Value* shift = b_.CreateAnd(skip, I64(63));
    Value* words[3];
    for (int i = 0; i < 3; ++i) {
      auto load = [&](int k) {
        Value* address =
            b_.CreateGEP(i64, table, b_.CreateAdd(first, I64(static_cast<uint64_t>(k))));
        return b_.CreateLoad(i64, address);
      };
      words[i] = b_.CreateIntrinsic(llvm::Intrinsic::fshl, {i64}, {load(i), load(i + 1), shift});
    }
    Value* low = b_.CreateMul(Wide(m), Wide(words[2]));
    Value* middle = b_.CreateAdd(b_.CreateMul(Wide(m), Wide(words[1])), Wide(HighWord(low)));
    Value* high = b_.CreateAdd(b_.CreateMul(m, words[0]), HighWord(middle));
    // high:middle:low is x * 2/pi modulo 4 with 190 bits after the point.
    Value* quadrant = b_.CreateLShr(high, 62);
    Value* f1 = b_.CreateIntrinsic(llvm::Intrinsic::fshl, {i64}, {high, LowWord(middle), I64(2)});
    Value* f0 =
        b_.CreateIntrinsic(llvm::Intrinsic::fshl, {i64}, {LowWord(middle), LowWord(low), I64(2)});
    Value* fraction = b_.CreateOr(b_.CreateShl(Wide(f1), 64), Wide(f0));
    Value* above =
        b_.CreateICmpSLT(f1, I64(0));  // at least one half: count from the next quadrant down
    Value* magnitude = b_.CreateSelect(above, b_.CreateNeg(fraction), fraction);
    Value* n = b_.CreateAdd(quadrant, b_.CreateZExt(above, i64));
    Value* zeros =
        b_.CreateIntrinsic(llvm::Intrinsic::ctlz, {b_.getInt128Ty()}, {magnitude, b_.getFalse()});
    Value* top = HighWord(b_.CreateShl(magnitude, zeros));
    // times pi/2, which is 0xc90fdaa22168c235 2^-63
    Value* angle = HighWord(b_.CreateMul(Wide(top), Wide(I64(0xc90fdaa22168c235))));
    Value* unit_exponent = b_.CreateSub(I64(1023 - 63), LowWord(zeros));
    Value* unit = b_.CreateBitCast(b_.CreateShl(unit_exponent, 52), f64);
    Value* sign = b_.CreateXor(b_.CreateAnd(word, I64(uint64_t{1} << 63)),
                               b_.CreateSelect(above, I64(uint64_t{1} << 63), I64(0)));
    auto part = [&](uint64_t mask) {
      Value* v = b_.CreateFMul(b_.CreateUIToFP(b_.CreateAnd(angle, I64(mask)), f64), unit);
      return b_.CreateBitCast(b_.CreateXor(b_.CreateBitCast(v, i64), sign), f64);
    };
    Value* negative = b_.CreateICmpSLT(word, I64(0));
    n = b_.CreateSelect(negative, b_.CreateNeg(n), n);
    Value* out = llvm::PoisonValue::get(result);
    out = b_.CreateInsertValue(out, part(~uint64_t{0x7ff}), 0);
    out = b_.CreateInsertValue(out, part(0x7ff), 1);
    b_.CreateRet(b_.CreateInsertValue(out, n, 2));
  }

  llvm::Module* module_;
  llvm::IRBuilder<> b_;
  llvm::Function* fn_;
};

// Replaces the lanes of `fast` whose x is large, one after another, behind a branch that is rarely
// taken.
Reduced PatchLarge(Num x, const Reduced& fast) {
  Code& c = *x.c;
  llvm::IRBuilder<>& b = c.b;
  Mask large = (Abs(x) > kLargeAngle) & (Abs(x) < kInfinity);
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(c.type);
  llvm::Value* any = vector ? b.CreateOrReduce(large.v) : large.v;
  llvm::BasicBlock* before = b.GetInsertBlock();
  llvm::Function* parent = before->getParent();
  auto* slow = llvm::BasicBlock::Create(b.getContext(), "large_angle", parent);
  auto* join = llvm::BasicBlock::Create(b.getContext(), "join", parent);
  llvm::Function* reduce = LargeReduction(parent->getParent(), parent).function();
  b.CreateCondBr(any, slow, join);
  b.SetInsertPoint(slow);
  llvm::Value* parts[] = {fast.r.high.v, fast.r.low.v, fast.n.v};
  Num safe = Select(large, x, kLargeAngle);
  unsigned lanes = vector ? vector->getNumElements() : 1;
  for (unsigned i = 0; i < lanes; ++i) {
    llvm::Value* lane = vector ? b.CreateExtractElement(safe.v, i) : safe.v;
    llvm::Value* call = b.CreateCall(reduce, {lane});
    llvm::Value* wanted = vector ? b.CreateExtractElement(large.v, i) : large.v;
    for (unsigned k = 0; k < 3; ++k) {
      llvm::Value* fresh = b.CreateExtractValue(call, k);
      llvm::Value* old = vector ? b.CreateExtractElement(parts[k], i) : parts[k];
      llvm::Value* chosen = b.CreateSelect(wanted, fresh, old);
      parts[k] = vector ? b.CreateInsertElement(parts[k], chosen, i) : chosen;
    }
  }
  llvm::BasicBlock* end = b.GetInsertBlock();
  b.CreateBr(join);
  b.SetInsertPoint(join);
  auto merge = [&](llvm::Value* usual, llvm::Value* patched) {
    llvm::PHINode* phi = b.CreatePHI(usual->getType(), 2);
    phi->addIncoming(usual, before);
    phi->addIncoming(patched, end);
    return phi;
  };
  llvm::Value* high = merge(fast.r.high.v, parts[0]);
  llvm::Value* low = merge(fast.r.low.v, parts[1]);
  llvm::Value* n = merge(fast.n.v, parts[2]);
  return {{n, &c}, {{high, &c}, {low, &c}}};
}

Reduced ReduceAngle(Num x) {
  Num tame = Select(Abs(x) < kLargeAngle, x, 0.0);  // also keeps NaN and infinity out
  return PatchLarge(x, ReduceSmall(tame));
}

Num SinOfReduced(const Pair& r) {
  Num z = r.high * r.high;
  Num tail = z * r.high * Horner(z, kSinTail);
  return r.high + (tail + r.low * (1.0 - z * 0.5));
}

Num CosOfReduced(const Pair& r) {
  Num z = r.high * r.high;
  Num half = z * 0.5;
  Num w = 1.0 - half;
  Num tail = z * z * Horner(z, kCosTail) - r.high * r.low;
  return w + (((1.0 - w) - half) + tail);
}

// sin(r + n pi/2)
Num SinAt(const Reduced& reduced, uint64_t quarter_turns) {
  Code& c = *reduced.n.c;
  Word n = reduced.n + WordOf(c, quarter_turns);
  Mask use_sin = IsZero(n & WordOf(c, 1));
  Num value = Select(use_sin, SinOfReduced(reduced.r), CosOfReduced(reduced.r));
  Word sign = (n & WordOf(c, 2)) << 62;
  return FromBits(BitsOf(value) ^ sign);
}

Num NanUnlessFinite(Num x, Num result) { return Select(Abs(x) < kInfinity, result, x - x); }

// atan of t in [0, 1]
Num AtanOfRatio(Num t) {
  Mask upper = t > 0.41421356237309503;  // tan(pi/8): turn by pi/4
  Num r = Select(upper, (t - 1.0) / (t + 1.0), t);
  Num z = r * r;
  Num result = Fma(r * z, Horner(z, kAtanTail64), r);
  return Select(upper, (result + kHalfPiLow * 0.5) + kHalfPi * 0.5, result);
}

// asin of a in [0, 1/2]
Num AsinOfSmall(Num a) {
  Num z = a * a;
  return Fma(a * z, Horner(z, kAsinTail64), a);
}

}  // namespace

Num Sin(Num x) { return Select(x == 0.0, x, NanUnlessFinite(x, SinAt(ReduceAngle(x), 0))); }
Num Cos(Num x) { return NanUnlessFinite(x, SinAt(ReduceAngle(x), 1)); }

Num Tan(Num x) {
  Reduced reduced = ReduceAngle(x);
  Code& c = *x.c;
  Num s = SinOfReduced(reduced.r), k = CosOfReduced(reduced.r);
  Mask turned = !IsZero(reduced.n & WordOf(c, 1));
  Num result = Select(turned, -k, s) / Select(turned, s, k);
  return Select(x == 0.0, x, NanUnlessFinite(x, result));
}

// Above 1/2: asin(a) = pi/2 - 2 asin(sqrt((1 - a) / 2)).
Num Asin(Num x) {
  Num a = Abs(x);
  Mask upper = a > 0.5;
  Num half = (1.0 - a) * 0.5;
  Num root = Sqrt(Select(upper, half, 0.25));
  Num small = AsinOfSmall(Select(upper, root, Select(a < 1.0, a, 0.0)));
  Num turned = kHalfPi - (small * 2.0 - kHalfPiLow);
  Num result = Select(upper, turned, small);
  return Select(IsNan(x) | (a > 1.0), Select(IsNan(x), x, kNan), WithSign(result, x));
}

Num Acos(Num x) {
  Num a = Abs(x);
  Mask upper = a > 0.5;
  Num half = (1.0 - a) * 0.5;
  Num root = Sqrt(Select(upper, half, 0.25));
  Num small = AsinOfSmall(Select(upper, root, Select(a < 1.0, a, 0.0)));
  Num twice = small * 2.0;
  Num outer = Select(x < 0.0, kPi - (twice - kPiLow), twice);
  Num inner = kHalfPi - (WithSign(small, x) - kHalfPiLow);
  Num result = Select(upper, outer, inner);
  return Select(IsNan(x) | (a > 1.0), Select(IsNan(x), x, kNan), result);
}

Num Atan(Num x) {
  Num a = Abs(x);
  Mask inverted = a > 1.0;
  Num t = Select(inverted, 1.0 / a, a);
  Num result = AtanOfRatio(t);
  result = Select(inverted, kHalfPi - (result - kHalfPiLow), result);
  return Select(IsNan(x), x, WithSign(result, x));
}

Num Atan2(Num y, Num x) {
  Code& c = *x.c;
  Num ax = Abs(x), ay = Abs(y);
  Mask steep = ay > ax;
  Num low = Select(steep, ax, ay), high = Select(steep, ay, ax);
  Mask both_infinite = low == kInfinity;
  Num ratio = Select(both_infinite, 1.0, low / high);
  ratio = Select(high == 0.0, 0.0, ratio);
  Num angle = AtanOfRatio(ratio);
  angle = Select(steep, kHalfPi - (angle - kHalfPiLow), angle);
  Mask left = {c.b.CreateICmpSLT(BitsOf(x).v, c.Bits(0)), &c};  // a negative zero counts
  angle = Select(left, kPi - (angle - kPiLow), angle);
  return Select(IsNan(x) | IsNan(y), x + y, WithSign(angle, y));
}

}  // namespace relaxvm::codegen::math
