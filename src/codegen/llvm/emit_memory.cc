// SPDX-License-Identifier: Apache-2.0
// Loads, stores, addresses.  An element is all that an address is aligned to.
#include "codegen/llvm/emitter.h"

#include <llvm/IR/MDBuilder.h>

#include <algorithm>

#include "support/error.h"

namespace relaxvm::codegen {

using ir::Expr;
using llvm::Value;

void ProgramEmitter::DefineBuffer(const tir::Buffer& buffer, Value* data, BufferSlot::Role role,
                                  bool offset_done) {
  const tir::BufferTypeObj* type = buffer.type();
  BufferSlot slot;
  slot.dtype = type->dtype;
  slot.role = role;
  slot.data = data;
  size_t ndim = type->shape.size();
  slot.strides.resize(ndim);
  if (!type->strides.empty()) {
    for (size_t i = 0; i < ndim; ++i) slot.strides[i] = EvalIndex(type->strides[i]);
  } else {
    Value* stride = b_.getInt64(1);
    for (size_t i = ndim; i-- > 0;) {
      slot.strides[i] = stride;
      if (i > 0)
        stride =
            b_.CreateMul(stride, EvalIndex(type->shape[i]), "", /*HasNUW=*/false, /*HasNSW=*/true);
    }
  }
  if (type->elem_offset.defined() && !offset_done) {
    slot.data = b_.CreateGEP(ops_.StorageType(slot.dtype), data, EvalIndex(type->elem_offset));
  }
  llvm::MDBuilder metadata(module_->getContext());
  if (f_->alias_domain == nullptr)
    f_->alias_domain = metadata.createAnonymousAliasScopeDomain(name_);
  slot.scope = metadata.createAnonymousAliasScope(f_->alias_domain, std::string(buffer->name));
  f_->buffers[buffer.get()] = std::move(slot);
}

// Says which other buffers an access cannot touch.
template <typename Inst>
Inst* ProgramEmitter::WithAlias(const BufferSlot& slot, Inst* inst) {
  using Role = BufferSlot::Role;
  llvm::SmallVector<llvm::Metadata*, 8> apart;
  for (const auto& [key, other] : f_->buffers) {
    if (other.scope == slot.scope) continue;
    bool temporary = slot.role == Role::kTemporary || other.role == Role::kTemporary;
    bool output = slot.role == Role::kOutput || other.role == Role::kOutput;
    if (temporary || (no_alias_ && output)) apart.push_back(other.scope);
  }
  llvm::LLVMContext& context = module_->getContext();
  inst->setMetadata(llvm::LLVMContext::MD_alias_scope, llvm::MDNode::get(context, {slot.scope}));
  if (!apart.empty())
    inst->setMetadata(llvm::LLVMContext::MD_noalias, llvm::MDNode::get(context, apart));
  return inst;
}

void ProgramEmitter::AddIndex(const Expr& index, Value* stride, Address* address) {
  auto add = [&](Value* sum, Value* part) {
    return sum == nullptr ? part : b_.CreateAdd(sum, part, "", false, /*HasNSW=*/true);
  };
  auto scaled = [&](Value* v) { return b_.CreateMul(v, stride, "", false, /*HasNSW=*/true); };
  if (index.dtype().lanes == 1) {
    address->offset = add(address->offset, scaled(EvalIndex(index)));
    return;
  }
  if (const auto* ramp = index.as<ir::RampObj>()) {
    address->offset = add(address->offset, scaled(EvalIndex(ramp->base)));
    address->lane_stride = add(address->lane_stride, scaled(EvalIndex(ramp->stride)));
    return;
  }
  if (const auto* wide = index.as<ir::BroadcastObj>())
    return AddIndex(wide->value, stride, address);
  const auto* binary = index.as<ir::BinaryObj>();
  if (binary != nullptr && binary->op == ir::BinaryOp::kAdd) {
    AddIndex(binary->a, stride, address);
    return AddIndex(binary->b, stride, address);
  }
  if (binary != nullptr && binary->op == ir::BinaryOp::kSub) {
    AddIndex(binary->a, stride, address);
    return AddIndex(binary->b, b_.CreateNeg(stride), address);
  }
  if (binary != nullptr && binary->op == ir::BinaryOp::kMul) {
    for (const auto& [one, other] : {std::pair(binary->a, binary->b), {binary->b, binary->a}}) {
      const auto* shared = one.as<ir::BroadcastObj>();
      if (shared != nullptr) return AddIndex(other, scaled(EvalIndex(shared->value)), address);
    }
  }
  Value* lanes = b_.CreateMul(EvalIndex(index), ops_.Splat(stride, index.dtype().lanes));
  address->lane_offsets =
      address->lane_offsets ? b_.CreateAdd(address->lane_offsets, lanes) : lanes;
}

ProgramEmitter::Address ProgramEmitter::AddressOf(const BufferSlot& slot,
                                                  const ffi::Array<Expr>& indices) {
  Address address{nullptr, nullptr, nullptr, tir::IndexLanes(indices)};
  // One index on several dimensions counts elements in memory order.
  const bool flat = indices.size() == 1 && slot.strides.size() != 1;
  for (size_t i = 0; i < indices.size(); ++i) {
    AddIndex(indices[i], flat ? b_.getInt64(1) : slot.strides[i], &address);
  }
  if (address.offset == nullptr) address.offset = b_.getInt64(0);
  return address;
}

Value* ProgramEmitter::ElementPointer(const BufferSlot& slot, Value* offset) {
  return b_.CreateGEP(ops_.StorageType(slot.dtype), slot.data, offset);
}

Value* ProgramEmitter::LanePointers(const BufferSlot& slot, const Address& address) {
  int lanes = address.lanes;
  Value* offsets = address.lane_offsets;
  if (address.lane_stride != nullptr) {
    llvm::SmallVector<llvm::Constant*, 64> iota;
    for (int i = 0; i < lanes; ++i) iota.push_back(b_.getInt64(i));
    Value* steps =
        b_.CreateMul(llvm::ConstantVector::get(iota), ops_.Splat(address.lane_stride, lanes));
    offsets = offsets ? b_.CreateAdd(offsets, steps) : steps;
  }
  if (offsets == nullptr)
    offsets = llvm::Constant::getNullValue(llvm::FixedVectorType::get(b_.getInt64Ty(), lanes));
  return b_.CreateGEP(ops_.StorageType(slot.dtype), ElementPointer(slot, address.offset), offsets);
}

namespace {

bool IsConstant(Value* v, int64_t value) {
  auto* constant = llvm::dyn_cast_or_null<llvm::ConstantInt>(v);
  return constant != nullptr && constant->getSExtValue() == value;
}

llvm::Align AlignOf(DLDataType t) {
  return llvm::Align(static_cast<uint64_t>(SizeInBytes(ElementOf(t))));
}

llvm::SmallVector<int, 64> Backwards(int lanes) {
  llvm::SmallVector<int, 64> picks;
  for (int i = lanes; i-- > 0;) picks.push_back(i);
  return picks;
}

// Whether so many elements from `offset` on are of memory of this function, whatever is in them.
bool IsOfStack(const BufferSlot& slot, Value* offset, int lanes) {
  const auto* memory = llvm::dyn_cast<llvm::AllocaInst>(slot.data);
  const auto* at = llvm::dyn_cast<llvm::ConstantInt>(offset);
  if (memory == nullptr || at == nullptr || at->isNegative()) return false;
  const auto* array = llvm::cast<llvm::ArrayType>(memory->getAllocatedType());
  return at->getZExtValue() + static_cast<uint64_t>(lanes) <= array->getNumElements();
}

// The step of lanes that lie a few elements apart; 0: they lie otherwise.
int64_t FewApart(Value* lane_stride) {
  constexpr int64_t kMaxStep = 4;  // shuffles for each vector that is read
  const auto* constant = llvm::dyn_cast_or_null<llvm::ConstantInt>(lane_stride);
  const int64_t step = constant == nullptr ? 0 : constant->getSExtValue();
  return step >= 2 && step <= kMaxStep ? step : 0;
}

}  // namespace

// Every `step`-th element from `address` on: as many whole vectors as they span, each shuffled into
// place.  The last one ends at the last element, so that none is read that does not exist.
Value* ProgramEmitter::LoadSpaced(const BufferSlot& slot, const Address& address, int64_t step,
                                  Value* mask) {
  const int64_t lanes = address.lanes;
  llvm::Type* type = ops_.StorageType(WithLanes(slot.dtype, address.lanes));
  const llvm::Align align = AlignOf(slot.dtype);
  Value* nothing = llvm::Constant::getNullValue(type);
  Value* result = nullptr;
  for (int64_t part = 0; part < step; ++part) {
    const int64_t from = part < step - 1 ? part * lanes : (lanes - 1) * step + 1 - lanes;
    // Where lane i of the result lies in this vector, and the lane of the mask for each element.
    llvm::SmallVector<int, 64> picks, wanted(static_cast<size_t>(lanes), static_cast<int>(lanes));
    for (int64_t i = 0; i < lanes; ++i) {
      const int64_t at = i * step - from;
      const bool here = i * step >= part * lanes && at >= 0 && at < lanes;
      picks.push_back(static_cast<int>(here ? lanes + at : i));
      if (here) wanted[static_cast<size_t>(at)] = static_cast<int>(i);
    }
    Value* pointer = ElementPointer(slot, b_.CreateAdd(address.offset, b_.getInt64(from)));
    Value* vector = nullptr;
    if (mask == nullptr) {
      vector = WithAlias(slot, b_.CreateAlignedLoad(type, pointer, align));
    } else {
      Value* no = llvm::Constant::getNullValue(mask->getType());
      Value* kept = b_.CreateShuffleVector(mask, no, wanted);
      vector = WithAlias(slot, b_.CreateMaskedLoad(type, pointer, align, kept, nothing));
    }
    result = b_.CreateShuffleVector(result == nullptr ? vector : result, vector, picks);
  }
  return result;
}

// Lanes that differ from what they share by constants of a vector's width: all from the first
// element to the last one, shuffled into place.  Null: they lie otherwise.
Value* ProgramEmitter::LoadPicked(const BufferSlot& slot, const Address& address, Value* mask) {
  auto* offsets = llvm::dyn_cast_or_null<llvm::Constant>(address.lane_offsets);
  auto* step = llvm::dyn_cast_or_null<llvm::ConstantInt>(address.lane_stride);
  if (offsets == nullptr || (step == nullptr && address.lane_stride != nullptr)) return nullptr;
  std::vector<int64_t> at;
  for (int i = 0; i < address.lanes; ++i) {
    const auto* lane = llvm::dyn_cast_or_null<llvm::ConstantInt>(
        offsets->getAggregateElement(static_cast<unsigned>(i)));
    if (lane == nullptr) return nullptr;
    at.push_back(lane->getSExtValue() + (step != nullptr ? i * step->getSExtValue() : 0));
  }
  const auto [low, high] = std::minmax_element(at.begin(), at.end());
  const int64_t first = *low, reach = *high - *low;
  if (reach >= address.lanes) return nullptr;
  const int count = static_cast<int>(reach) + 1;
  llvm::SmallVector<int, 64> picks;
  std::vector<llvm::SmallVector<int, 4>> users(static_cast<size_t>(count));  // lanes of an element
  for (int i = 0; i < address.lanes; ++i) {
    picks.push_back(static_cast<int>(at[static_cast<size_t>(i)] - first));
    users[static_cast<size_t>(picks.back())].push_back(i);
  }
  llvm::Type* type = ops_.StorageType(WithLanes(slot.dtype, count));
  const llvm::Align align = AlignOf(slot.dtype);
  Value* pointer = ElementPointer(slot, b_.CreateAdd(address.offset, b_.getInt64(first)));
  auto picked = [&](Value* v) {
    return count == 1 ? ops_.Splat(v, address.lanes) : b_.CreateShuffleVector(v, picks);
  };
  if (mask == nullptr) return picked(WithAlias(slot, b_.CreateAlignedLoad(type, pointer, align)));
  // An element is read where one of its lanes is wanted.
  constexpr size_t kMaxUsers = 7;
  size_t most = 0;
  for (const auto& lanes : users) most = std::max(most, lanes.size());
  if (count == 1 || most > kMaxUsers) return nullptr;
  Value* no = llvm::Constant::getNullValue(mask->getType());
  Value* kept = nullptr;
  for (size_t k = 0; k < most; ++k) {
    llvm::SmallVector<int, 64> wanted;
    for (const auto& lanes : users) wanted.push_back(k < lanes.size() ? lanes[k] : address.lanes);
    Value* part = b_.CreateShuffleVector(mask, no, wanted);
    kept = kept == nullptr ? part : b_.CreateOr(kept, part);
  }
  Value* nothing = llvm::Constant::getNullValue(type);
  return picked(WithAlias(slot, b_.CreateMaskedLoad(type, pointer, align, kept, nothing)));
}

Value* ProgramEmitter::EmitLoad(const BufferSlot& slot, const Address& address, Value* mask) {
  int lanes = address.lanes;
  DLDataType t = WithLanes(slot.dtype, lanes);
  llvm::Type* type = ops_.StorageType(t);
  llvm::Align align = AlignOf(t);
  if (lanes == 1) {
    auto load = [&]() -> Value* {
      Value* pointer = ElementPointer(slot, address.offset);
      return ops_.FromStorage(WithAlias(slot, b_.CreateAlignedLoad(type, pointer, align)), t);
    };
    if (mask == nullptr) return load();
    llvm::BasicBlock* before = b_.GetInsertBlock();
    Value* value = nullptr;
    llvm::BasicBlock* end = nullptr;
    When(mask, [&] {
      value = load();
      end = b_.GetInsertBlock();
    });
    llvm::PHINode* phi = b_.CreatePHI(value->getType(), 2);
    phi->addIncoming(llvm::Constant::getNullValue(value->getType()), before);
    phi->addIncoming(value, end);
    return phi;
  }
  bool plain = address.lane_offsets == nullptr;
  Value* nothing = llvm::Constant::getNullValue(type);
  Value* value = nullptr;
  if (plain && IsConstant(address.lane_stride, 1)) {
    Value* pointer = ElementPointer(slot, address.offset);
    // LLVM keeps in registers what is read without a mask.
    const bool is_whole = mask == nullptr || IsOfStack(slot, address.offset, lanes);
    if (is_whole) {
      value = WithAlias(slot, b_.CreateAlignedLoad(type, pointer, align));
      if (mask != nullptr) value = b_.CreateSelect(mask, value, nothing);
    } else {
      value = WithAlias(slot, b_.CreateMaskedLoad(type, pointer, align, mask, nothing));
    }
  } else if (plain && IsConstant(address.lane_stride, -1)) {
    Value* last = b_.CreateSub(address.offset, b_.getInt64(lanes - 1));
    Value* pointer = ElementPointer(slot, last);
    Value* turned = mask ? b_.CreateShuffleVector(mask, Backwards(lanes)) : nullptr;
    value = turned ? static_cast<Value*>(WithAlias(
                         slot, b_.CreateMaskedLoad(type, pointer, align, turned, nothing)))
                   : WithAlias(slot, b_.CreateAlignedLoad(type, pointer, align));
    value = b_.CreateShuffleVector(value, Backwards(lanes));
  } else if (plain && !mask &&
             (address.lane_stride == nullptr || IsConstant(address.lane_stride, 0))) {
    llvm::Type* element = ops_.StorageType(slot.dtype);
    Value* scalar =
        WithAlias(slot, b_.CreateAlignedLoad(element, ElementPointer(slot, address.offset), align));
    value = ops_.Splat(scalar, lanes);
  } else if (const int64_t step = plain ? FewApart(address.lane_stride) : 0; step > 0) {
    value = LoadSpaced(slot, address, step, mask);
  } else if (Value* picked = LoadPicked(slot, address, mask)) {
    value = picked;
  } else {
    value = WithAlias(
        slot, b_.CreateMaskedGather(type, LanePointers(slot, address), align, mask, nothing));
  }
  return ops_.FromStorage(value, t);
}

void ProgramEmitter::EmitStore(const BufferSlot& slot, const Address& address, Value* value,
                               Value* mask) {
  int lanes = address.lanes;
  DLDataType t = WithLanes(slot.dtype, lanes);
  llvm::Align align = AlignOf(t);
  Value* stored = ops_.ToStorage(value, t);
  if (lanes == 1) {
    auto store = [&] {
      WithAlias(slot, b_.CreateAlignedStore(stored, ElementPointer(slot, address.offset), align));
    };
    return mask ? When(mask, store) : store();
  }
  bool plain = address.lane_offsets == nullptr;
  bool backwards = plain && IsConstant(address.lane_stride, -1);
  if ((plain && IsConstant(address.lane_stride, 1)) || backwards) {
    Value* offset =
        backwards ? b_.CreateSub(address.offset, b_.getInt64(lanes - 1)) : address.offset;
    Value* pointer = ElementPointer(slot, offset);
    if (backwards) stored = b_.CreateShuffleVector(stored, Backwards(lanes));
    if (backwards && mask) mask = b_.CreateShuffleVector(mask, Backwards(lanes));
    if (mask) {
      WithAlias(slot, b_.CreateMaskedStore(stored, pointer, align, mask));
    } else {
      const bool streamed = streaming_ && slot.role == BufferSlot::Role::kOutput && !backwards;
      const auto bytes = module_->getDataLayout().getTypeStoreSize(stored->getType());
      if (streamed) align = llvm::Align(bytes & -bytes);  // three registers: that of each
      llvm::StoreInst* store = WithAlias(slot, b_.CreateAlignedStore(stored, pointer, align));
      if (streamed) {
        auto* one = llvm::ConstantAsMetadata::get(b_.getInt32(1));
        store->setMetadata(llvm::LLVMContext::MD_nontemporal,
                           llvm::MDNode::get(module_->getContext(), {one}));
      }
    }
    return;
  }
  WithAlias(slot, b_.CreateMaskedScatter(stored, LanePointers(slot, address), align, mask));
}

// The lanes that an access touches: its own predicate, and the conditional expression around it.
// Null: all.
Value* ProgramEmitter::MaskOf(const Expr& predicate, int lanes) {
  Value* mask = nullptr;
  if (predicate.defined()) {
    mask = Eval(predicate);
    if (lanes > 1 && !mask->getType()->isVectorTy()) mask = ops_.Splat(mask, lanes);
  }
  if (lanes == 1) return mask;
  Value* outer = f_->mask;
  if (outer == nullptr) return mask;
  return mask ? b_.CreateAnd(mask, outer) : outer;
}

void ProgramEmitter::When(Value* condition, llvm::function_ref<void()> body) {
  auto* then_block = llvm::BasicBlock::Create(module_->getContext(), "then", f_->function);
  auto* join = llvm::BasicBlock::Create(module_->getContext(), "join", f_->function);
  b_.CreateCondBr(condition, then_block, join);
  b_.SetInsertPoint(then_block);
  body();
  b_.CreateBr(join);
  b_.SetInsertPoint(join);
}

llvm::AllocaInst* ProgramEmitter::Alloca(llvm::Type* type, uint64_t count, uint64_t alignment) {
  llvm::IRBuilder<> at(f_->allocas, f_->allocas->begin());
  llvm::AllocaInst* memory = at.CreateAlloca(llvm::ArrayType::get(type, count));
  memory->setAlignment(llvm::Align(alignment));
  return memory;
}

}  // namespace relaxvm::codegen
