// SPDX-License-Identifier: Apache-2.0
// Expressions.  Shared parts of a statement's expressions are computed once.
#include <llvm/Analysis/VectorUtils.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "codegen/llvm/emitter.h"
#include "support/error.h"
#include "tir/address.h"
#include "tir/byte_table.h"

namespace relaxvm::codegen {

using ir::BinaryOp;
using ir::Expr;
using llvm::Value;

namespace {

bool ContainsLoad(const Expr& e) {
  bool found = false;
  tir::PostOrderVisit(tir::Evaluate(e), [&](const ffi::ObjectRef& node) {
    found |= node.as<tir::BufferLoadObj>() != nullptr;
  });
  return found;
}

bool ContainsUniformLoad(const Expr& e) {
  bool found = false;
  tir::PostOrderVisit(tir::Evaluate(e), [&](const ffi::ObjectRef& node) {
    const auto* load = node.as<tir::BufferLoadObj>();
    found |= load != nullptr && tir::IndexLanes(load->indices) == 1;
  });
  return found;
}

// Lower bounds are sums and products of a few sizes: those that could overflow are not kept.
std::optional<int64_t> Bounded(int64_t least) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (least < -kMost) return std::nullopt;
  return std::min(least, kMost);
}

}  // namespace

Value* ProgramEmitter::Eval(const Expr& e) {
  auto known = f_->memo.find(e.get());
  if (known != f_->memo.end()) return known->second;
  Visit(e);
  Value* value = std::exchange(result_, nullptr);
  RELAXVM_CHECK(value != nullptr) << "no value for " << e->GetTypeKey();
  f_->memo.emplace(e.get(), value);
  return value;
}

Value* ProgramEmitter::EvalIndex(const Expr& e) {
  DLDataType t = e.dtype();
  return ops_.Cast(Eval(e), t, Int(64, t.lanes));
}

void ProgramEmitter::VisitVar(const ir::VarObj* e) {
  auto it = f_->vars.find(e);
  if (it == f_->vars.end()) {
    ::relaxvm::Fail(ErrorKind::kValueError, e->span.Place(), "tensor program ", name_,
                    ": variable ", e->name, " is used where it is not defined");
  }
  result_ = it->second;
}

void ProgramEmitter::VisitIntImm(const ir::IntImmObj* e) {
  DLDataType t = ffi::GetRef<Expr>(e).dtype();
  result_ = ops_.IntConstant(t, e->value);
}

void ProgramEmitter::VisitFloatImm(const ir::FloatImmObj* e) {
  result_ = ops_.FloatConstant(ffi::GetRef<Expr>(e).dtype(), e->value);
}

void ProgramEmitter::VisitBinary(const ir::BinaryObj* e) {
  if (Value* below = RampBelow(e)) {
    result_ = below;
    return;
  }
  if (std::optional<tir::Dot> dot = tir::AsDotOfBytes(ffi::GetRef<Expr>(e))) {
    if (Value* sum = EmitDot(*dot, &ValueOps::DotOfBytes)) {
      result_ = sum;
      return;
    }
  }
  if (std::optional<tir::Dot> dot = tir::AsDotOfSignedBytes(ffi::GetRef<Expr>(e))) {
    if (Value* sum = EmitDot(*dot, &ValueOps::DotOfSignedBytes)) {
      result_ = sum;
      return;
    }
  }
  if (std::optional<tir::Dot> dot = tir::AsDotOfBytePairs(ffi::GetRef<Expr>(e))) {
    if (Value* sum = EmitDot(*dot, &ValueOps::DotOfBytePairs)) {
      result_ = sum;
      return;
    }
  }
  if (std::optional<tir::Dot> dot = tir::AsDotOfHalves(ffi::GetRef<Expr>(e))) {
    if (Value* sum = EmitDot(*dot, &ValueOps::DotOfHalves)) {
      result_ = sum;
      return;
    }
  }
  Value* a = Eval(e->a);
  Value* b = Eval(e->b);
  bool divides = e->op >= BinaryOp::kDiv && e->op <= BinaryOp::kFloorMod;
  const Least least = divides ? Least{LeastOf(e->a), LeastOf(e->b)} : Least();
  result_ = ops_.Binary(e->op, a, b, e->a.dtype(), least);
}

// base + iota < n  is  iota < n - base, with the right side clamped to the lanes: a compare of
// 32-bit lanes.
Value* ProgramEmitter::RampBelow(const ir::BinaryObj* e) {
  if (e->op != BinaryOp::kLT) return nullptr;
  const auto* ramp = e->a.as<ir::RampObj>();
  const auto* limit = e->b.as<ir::BroadcastObj>();
  if (ramp == nullptr || limit == nullptr || !ir::IsIntValue(ramp->stride, 1)) return nullptr;
  if (ramp->lanes == 1) return nullptr;  // a scalar, as everything of one lane is
  DLDataType t = ElementOf(e->a.dtype());
  if (!IsInt(t) || t.bits < 32) return nullptr;
  int lanes = static_cast<int>(ramp->lanes);
  Value* left = b_.CreateSub(EvalIndex(limit->value), EvalIndex(ramp->base));
  left = ops_.Binary(BinaryOp::kMax, left, b_.getInt64(0), Int(64));
  left = ops_.Binary(BinaryOp::kMin, left, b_.getInt64(lanes), Int(64));
  llvm::SmallVector<llvm::Constant*, 64> iota;
  for (int i = 0; i < lanes; ++i) iota.push_back(b_.getInt32(i));
  Value* count = ops_.Splat(b_.CreateTrunc(left, b_.getInt32Ty()), lanes);
  return b_.CreateICmpULT(llvm::ConstantVector::get(iota), count);
}

void ProgramEmitter::VisitCast(const ir::CastObj* e) {
  result_ = ops_.Cast(Eval(e->value), e->value.dtype(), ffi::GetRef<Expr>(e).dtype());
}

void ProgramEmitter::VisitSelect(const ir::SelectObj* e) {
  Value* condition = Eval(e->condition);
  Value* t = Eval(e->true_value);
  result_ = b_.CreateSelect(condition, t, Eval(e->false_value));
}

void ProgramEmitter::VisitLet(const ir::LetObj* e) {
  f_->vars[e->var.get()] = Eval(e->value);
  result_ = Eval(e->body);
}

void ProgramEmitter::VisitRamp(const ir::RampObj* e) {
  DLDataType t = ffi::GetRef<Expr>(e).dtype();
  int lanes = t.lanes;
  if (lanes == 1) {
    result_ = Eval(e->base);
    return;
  }
  Value* base = ops_.Splat(Eval(e->base), lanes);
  Value* stride = ops_.Splat(Eval(e->stride), lanes);
  llvm::SmallVector<llvm::Constant*, 64> iota;
  for (int i = 0; i < lanes; ++i) {
    iota.push_back(llvm::cast<llvm::Constant>(IsFloat(t) ? ops_.FloatConstant(ElementOf(t), i)
                                                         : ops_.IntConstant(ElementOf(t), i)));
  }
  Value* steps = ops_.Binary(BinaryOp::kMul, llvm::ConstantVector::get(iota), stride, t);
  result_ = ops_.Binary(BinaryOp::kAdd, base, steps, t);
}

void ProgramEmitter::VisitBroadcast(const ir::BroadcastObj* e) {
  result_ = ops_.Splat(Eval(e->value), static_cast<int>(e->lanes));
}

// `v`, hidden from what would merge shuffles: networks of cheap ones (a square of registers turned
// round) end as many dear ones, whose tables fill the registers.
Value* ProgramEmitter::Kept(Value* v) {
  llvm::Type* type = v->getType();
  const auto bits = static_cast<unsigned>(type->getPrimitiveSizeInBits().getFixedValue());
  if (bits % 32 != 0) return v;
  llvm::Type* floats = llvm::FixedVectorType::get(b_.getFloatTy(), bits / 32);
  return b_.CreateBitCast(b_.CreateArithmeticFence(b_.CreateBitCast(v, floats), floats), type);
}

// Words of one register that cross its quarters, in no order that one instruction knows: by an
// index in each lane, which stays in a register of its own.  LLVM would take two dearer shuffles,
// and share one of them with others.
Value* ProgramEmitter::PickWords(const ir::ShuffleObj* e) {
  constexpr int64_t kQuarter = 4;
  const auto lanes = static_cast<int64_t>(e->indices.size());
  if (e->vectors.size() != 1 || !ops_.traits().picks || (lanes != 8 && lanes != 16)) return nullptr;
  const DLDataType type = e->vectors[0].dtype();
  if (type.lanes != lanes || type.bits != 32) return nullptr;
  bool stays = true, is_run = true;  // in its quarter; with its neighbour
  llvm::SmallVector<llvm::Constant*, 16> index;
  for (int64_t i = 0; i < lanes; ++i) {
    const int64_t at = e->indices[i];
    stays = stays && at / kQuarter == i / kQuarter;
    is_run = is_run && at - e->indices[i / kQuarter * kQuarter] == i % kQuarter;
    index.push_back(b_.getInt32(static_cast<uint32_t>(at)));
  }
  if (stays || is_run) return nullptr;
  Value* v = Eval(e->vectors[0]);
  llvm::Type* floats = llvm::FixedVectorType::get(b_.getFloatTy(), static_cast<unsigned>(lanes));
  return b_.CreateBitCast(
      ops_.PickWords(b_.CreateBitCast(v, floats), Kept(llvm::ConstantVector::get(index))),
      v->getType());
}

void ProgramEmitter::VisitShuffle(const ir::ShuffleObj* e) {
  result_ = PickWords(e);
  if (result_ != nullptr) return;
  if (e->vectors.size() == 2 && e->indices.size() > 1 &&
      e->vectors[0].dtype() == e->vectors[1].dtype() &&
      static_cast<int64_t>(e->indices.size()) == e->vectors[0].dtype().lanes) {
    llvm::SmallVector<int, 64> picks(e->indices.begin(), e->indices.end());
    Value* a = Eval(e->vectors[0]);
    result_ = Kept(b_.CreateShuffleVector(a, Eval(e->vectors[1]), picks));
    return;
  }
  std::vector<Value*> lanes;
  for (const Expr& vector : e->vectors) {
    Value* v = Eval(vector);
    for (int i = 0; i < vector.dtype().lanes; ++i) {
      lanes.push_back(
          vector.dtype().lanes == 1 ? v : b_.CreateExtractElement(v, static_cast<uint64_t>(i)));
    }
  }
  DLDataType t = ffi::GetRef<Expr>(e).dtype();
  auto pick = [&](size_t i) {
    int64_t index = e->indices[i];
    RELAXVM_CHECK(index >= 0 && index < static_cast<int64_t>(lanes.size()))
        << "shuffle picks lane " << index;
    return lanes[static_cast<size_t>(index)];
  };
  if (t.lanes == 1) {
    result_ = pick(0);
    return;
  }
  // Extracts and inserts of one vector fold into a shuffle.
  Value* vector = llvm::PoisonValue::get(ops_.RegisterType(t));
  for (size_t i = 0; i < e->indices.size(); ++i)
    vector = b_.CreateInsertElement(vector, pick(i), i);
  result_ = vector;
}

void ProgramEmitter::VisitIntrin(const ir::IntrinObj* e) {
  if (e->intrin == ir::Intrin::kIfThenElse) {
    Value* condition = Eval(e->args[0]);
    bool varies = condition->getType()->isVectorTy();
    result_ = varies ? EmitMaskedChoice(e, condition) : EmitBranch(e, condition);
    return;
  }
  if (fast_pairs_ && e->intrin == ir::Intrin::kFma) {
    if (std::optional<tir::Dot> dot = tir::AsDotOfPairs(ffi::GetRef<Expr>(e))) {
      if (Value* sum = EmitDot(*dot, &ValueOps::DotOfPairs)) {
        result_ = sum;
        return;
      }
    }
  }
  const auto* load = e->args[0].as<tir::BufferLoadObj>();
  if (e->intrin == ir::Intrin::kReinterpret && load != nullptr) {
    result_ = LoadBits(load, ffi::GetRef<Expr>(e).dtype());
    return;
  }
  if (e->intrin == ir::Intrin::kNumThreads) {
    Value* count = LoadField(f_->context, 4, b_.getInt32Ty());
    result_ = b_.CreateSExt(count, b_.getInt64Ty());
    return;
  }
  llvm::SmallVector<Value*, 3> args;
  for (const Expr& arg : e->args) args.push_back(Eval(arg));
  result_ = ops_.Intrin(e->intrin, args, e->args[0].dtype(), ffi::GetRef<Expr>(e).dtype());
}

Value* ProgramEmitter::EmitBranch(const ir::IntrinObj* e, Value* condition) {
  if (!ContainsLoad(e->args[1]) && !ContainsLoad(e->args[2])) {
    Value* t = Eval(e->args[1]);
    return b_.CreateSelect(condition, t, Eval(e->args[2]));
  }
  llvm::LLVMContext& context = module_->getContext();
  auto* then_block = llvm::BasicBlock::Create(context, "then", f_->function);
  auto* else_block = llvm::BasicBlock::Create(context, "else", f_->function);
  auto* join = llvm::BasicBlock::Create(context, "join", f_->function);
  b_.CreateCondBr(condition, then_block, else_block);
  auto memo = f_->memo;  // what a branch computes is not there after it
  auto branch = [&](llvm::BasicBlock* block, const Expr& value) {
    b_.SetInsertPoint(block);
    Value* v = Eval(value);
    b_.CreateBr(join);
    f_->memo = memo;
    return std::pair<Value*, llvm::BasicBlock*>{v, b_.GetInsertBlock()};
  };
  auto [t, then_end] = branch(then_block, e->args[1]);
  auto [f, else_end] = branch(else_block, e->args[2]);
  b_.SetInsertPoint(join);
  llvm::PHINode* phi = b_.CreatePHI(t->getType(), 2);
  phi->addIncoming(t, then_end);
  phi->addIncoming(f, else_end);
  return phi;
}

// Lanes differ: both sides are computed, and their loads read only the lanes that need them.
Value* ProgramEmitter::EmitMaskedChoice(const ir::IntrinObj* e, Value* condition) {
  Value* outer = f_->mask;
  auto side = [&](const Expr& value, Value* lanes) -> Value* {
    if (!ContainsLoad(value)) return Eval(value);
    Value* mask = outer ? b_.CreateAnd(outer, lanes) : lanes;
    f_->mask = mask;
    auto memo = f_->memo;
    Value* result = nullptr;
    if (!ContainsUniformLoad(value)) {
      result = Eval(value);
    } else {  // an element that all lanes share is read only when some lane wants it
      auto* start = b_.GetInsertBlock();
      auto* body = llvm::BasicBlock::Create(module_->getContext(), "some", f_->function);
      auto* join = llvm::BasicBlock::Create(module_->getContext(), "join", f_->function);
      b_.CreateCondBr(b_.CreateOrReduce(mask), body, join);
      b_.SetInsertPoint(body);
      Value* v = Eval(value);
      auto* end = b_.GetInsertBlock();
      b_.CreateBr(join);
      b_.SetInsertPoint(join);
      llvm::PHINode* phi = b_.CreatePHI(v->getType(), 2);
      phi->addIncoming(llvm::Constant::getNullValue(v->getType()), start);
      phi->addIncoming(v, end);
      result = phi;
    }
    f_->memo = std::move(memo);
    f_->mask = outer;
    return result;
  };
  Value* t = side(e->args[1], condition);
  Value* f = side(e->args[2], b_.CreateNot(condition));
  return b_.CreateSelect(condition, t, f);
}

Value* ProgramEmitter::EmitDot(const tir::Dot& dot,
                               Value* (ValueOps::*emit)(Value*, Value*, Value*)) {
  Value* sum = Eval(dot.sum);
  Value* a = Eval(dot.a);
  Value* b = Eval(dot.b);
  const int most = ops_.traits().vector_bits / 32;
  const int lanes = dot.sum.dtype().lanes;
  if (lanes <= most || lanes % most != 0) return (ops_.*emit)(sum, a, b);
  // What is wider than a register goes register by register.
  llvm::SmallVector<Value*, 4> parts;
  for (int from = 0; from < lanes; from += most) {
    llvm::SmallVector<int, 16> picked;
    for (int lane = from; lane < from + most; ++lane) picked.push_back(lane);
    auto part = [&](Value* v) { return b_.CreateShuffleVector(v, picked); };
    Value* done = (ops_.*emit)(part(sum), part(a), part(b));
    if (done == nullptr) return nullptr;
    parts.push_back(done);
  }
  return llvm::concatenateVectors(b_, parts);
}

// The bits of elements as they lie in memory: a narrow float is not converted on the way.
Value* ProgramEmitter::LoadBits(const tir::BufferLoadObj* e, DLDataType result) {
  BufferSlot slot = SlotOf(e);
  const DLDataType from = ffi::GetRef<Expr>(e).dtype();
  RELAXVM_CHECK(from.bits * from.lanes == result.bits * result.lanes)
      << "reinterpret of " << DTypeName(from) << " as " << DTypeName(result);
  Address address = AddressOf(slot, e->indices);
  slot.dtype = UInt(from.bits);
  Value* bits = EmitLoad(slot, address, MaskOf(e->predicate, address.lanes));
  return ops_.FromStorage(b_.CreateBitCast(bits, ops_.StorageType(result)), result);
}

void ProgramEmitter::VisitBufferLoad(const tir::BufferLoadObj* e) {
  const BufferSlot& slot = SlotOf(e);
  if (tir::IsByteTable(ffi::GetRef<tir::BufferLoad>(e))) {
    result_ = EmitByteTable(slot, e);
    return;
  }
  Address address = AddressOf(slot, e->indices);
  result_ = EmitLoad(slot, address, MaskOf(e->predicate, address.lanes));
}

// All lanes may read: every byte has an element.
Value* ProgramEmitter::EmitByteTable(const BufferSlot& slot, const tir::BufferLoadObj* e) {
  const DLDataType index = e->indices[0].dtype();
  const int quarter = 64;
  if (!ops_.traits().byte_tables || index.lanes == 1 || index.lanes > quarter)
    return EmitLoad(slot, AddressOf(slot, e->indices), nullptr);
  Value* at = Eval(e->indices[0].as<ir::CastObj>()->value);
  Value* parts[4];
  for (int i = 0; i < 4; ++i) {
    Address address{b_.getInt64(i * quarter), b_.getInt64(1), nullptr, quarter};
    parts[i] = EmitLoad(slot, address, nullptr);
  }
  return ops_.PickBytes(parts, at);
}

const BufferSlot& ProgramEmitter::SlotOf(const tir::BufferLoadObj* e) {
  auto it = f_->buffers.find(e->buffer.get());
  if (it == f_->buffers.end()) {
    ::relaxvm::Fail(ErrorKind::kValueError, e->span.Place(), "tensor program ", name_, ": buffer ",
                    e->buffer->name, " is read where it is not allocated");
  }
  return it->second;
}

void ProgramEmitter::VisitCall(const ir::CallObj* e) {
  if (EmitMatrixOp(e)) return;
  const tir::BufferLoadObj* load = tir::LoadOfAddress(e);
  if (load == nullptr) {
    ::relaxvm::Fail(ErrorKind::kTypeError, e->span.Place(), "tensor program ", name_,
                    ": a call of another function has no native code");
  }
  const BufferSlot& slot = SlotOf(load);
  Value* pointer = ElementPointer(slot, AddressOf(slot, load->indices).offset);
  result_ = b_.CreatePtrToInt(pointer, b_.getInt64Ty());
}

void ProgramEmitter::VisitOther(const ir::ExprObj* e) {
  if (e->IsInstance<tir::BufferLoadObj>())
    return VisitBufferLoad(static_cast<const tir::BufferLoadObj*>(e));
  ::relaxvm::Fail(ErrorKind::kTypeError, e->span.Place(), "tensor program ", name_, ": ",
                  e->GetTypeKey(), " has no native code");
}

std::optional<int64_t> ProgramEmitter::LeastOf(const Expr& e) const {
  if (const auto* imm = e.as<ir::IntImmObj>()) return Bounded(imm->value);
  if (e.as<ir::VarObj>()) {
    auto found = least_.find(e.get());
    return found == least_.end() ? std::nullopt : std::optional(found->second);
  }
  if (const auto* ramp = e.as<ir::RampObj>())
    return LeastOf(ramp->stride).value_or(-1) >= 0 ? LeastOf(ramp->base) : std::nullopt;
  if (const auto* wide = e.as<ir::BroadcastObj>()) return LeastOf(wide->value);
  if (const auto* select = e.as<ir::SelectObj>()) {
    const auto a = LeastOf(select->true_value), b = LeastOf(select->false_value);
    return a && b ? std::optional(std::min(*a, *b)) : std::nullopt;
  }
  const auto* binary = e.as<ir::BinaryObj>();
  if (binary == nullptr) return std::nullopt;
  const auto a = LeastOf(binary->a), b = LeastOf(binary->b);
  if (binary->op == BinaryOp::kMax && a.has_value() != b.has_value()) return a ? a : b;
  if (binary->op == BinaryOp::kFloorMod && b.value_or(-1) >= 0) return 0;
  if (const auto* taken = binary->b.as<ir::IntImmObj>(); taken && binary->op == BinaryOp::kSub)
    return a && b && *b == taken->value ? Bounded(*a - *b) : std::nullopt;
  if (!a || !b) return std::nullopt;
  const bool both = *a >= 0 && *b >= 0;
  if (binary->op == BinaryOp::kFloorDiv && *b >= 1) return std::min<int64_t>(*a, 0);
  switch (binary->op) {
    case BinaryOp::kAdd: return Bounded(*a + *b);
    case BinaryOp::kMul: return both ? Bounded(*a * *b) : std::nullopt;
    case BinaryOp::kMin: return std::min(*a, *b);
    case BinaryOp::kMax: return std::max(*a, *b);
    case BinaryOp::kDiv:
    case BinaryOp::kFloorDiv:
    case BinaryOp::kMod: return both ? std::optional<int64_t>(0) : std::nullopt;
    default: return std::nullopt;
  }
}

void ProgramEmitter::NoteLeast(const ir::Var& var, const Expr& value) {
  if (const auto least = LeastOf(value)) least_[var.get()] = *least;
}

}  // namespace relaxvm::codegen
