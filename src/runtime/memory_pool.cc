// SPDX-License-Identifier: Apache-2.0
// Size classes: eight steps per doubling, so a block wastes at most an eighth.  A small request
// takes the smallest cached block of at most twice its class.  A large one takes a piece of a
// region: what a call uses one after the other shares memory, so calls with the same sizes ask the
// device for nothing.  When a request finds nothing, what is kept shrinks to what the pool's users
// have used at once.
#include "runtime/memory_pool.h"

#include <algorithm>
#include <bit>

#include "support/error.h"

namespace relaxvm::runtime {
namespace {

constexpr size_t kMinClass = 64;
constexpr size_t kMinPieceBytes = size_t{1} << 18;  // classes from here on are whole pages
constexpr int64_t kMinCacheBytes = int64_t{1} << 20;

size_t ClassSize(size_t num_bytes) {
  if (num_bytes <= kMinClass) return kMinClass;
  size_t step = std::max<size_t>(kMinClass, std::bit_floor(num_bytes - 1) / 8);
  return (num_bytes + step - 1) / step * step;
}

// Pools of the process, for TrimAllPools.
struct PoolList {
  std::mutex mutex;
  std::vector<MemoryPool*> pools;
};
PoolList& Pools() {
  static PoolList* list = new PoolList;  // outlives pools of static objects
  return *list;
}

}  // namespace

std::shared_ptr<MemoryPool> MemoryPool::Create(DLDevice device, AllocatorKind kind,
                                               int64_t limit_bytes) {
  std::shared_ptr<MemoryPool> pool(new MemoryPool(device, kind, limit_bytes));
  std::lock_guard<std::mutex> lock(Pools().mutex);
  Pools().pools.push_back(pool.get());
  return pool;
}

MemoryPool::~MemoryPool() {
  {
    std::lock_guard<std::mutex> lock(Pools().mutex);
    std::erase(Pools().pools, this);
  }
  TrimLocked(0);
}

MemoryBlock MemoryPool::Alloc(size_t num_bytes, size_t alignment) {
  alignment = std::max(alignment, kDefaultAlignment);
  const size_t size = ClassSize(std::max(num_bytes, alignment > kDefaultAlignment ? alignment : 0));
  if (num_bytes > (size_t{1} << 62)) {
    Fail(ErrorKind::kRuntimeError, "out of memory on ", DeviceName(device_), ": ", num_bytes,
         " bytes were asked for");
  }
  std::lock_guard<std::mutex> lock(mutex_);
  MemoryBlock block{nullptr, num_bytes, size};
  if (alignment == kDefaultAlignment) block.data = TakeCached(&block.reserved_bytes);
  if (block.data == nullptr) {
    const auto wanted = static_cast<int64_t>(size);
    if (IsOverLimit(wanted)) TrimLocked(0);
    if (IsOverLimit(wanted)) {
      Fail(ErrorKind::kRuntimeError, "out of memory on ", DeviceName(device_), ": ", num_bytes,
           " bytes were asked for, ", stats_.used_bytes, " are in use, the limit is ",
           limit_bytes_);
    }
    // What does not fit the work any more makes room before memory grows.
    TrimLocked(std::max(kMinCacheBytes, stats_.peak_used_bytes - stats_.used_bytes - wanted));
    block.data = AskDevice(size, alignment);
    if (block.data == nullptr) {
      TrimLocked(0);
      block.data = AskDevice(size, alignment);
    }
    if (block.data == nullptr) {
      Fail(ErrorKind::kRuntimeError, "out of memory on ", DeviceName(device_), ": ", num_bytes,
           " bytes were asked for, ", stats_.used_bytes, " are in use");
    }
    stats_.num_device_allocs += 1;
  }
  stats_.peak_reserved_bytes = std::max(stats_.peak_reserved_bytes, ReservedBytes());
  stats_.num_allocs += 1;
  stats_.used_bytes += static_cast<int64_t>(num_bytes);
  stats_.peak_used_bytes = std::max(stats_.peak_used_bytes, stats_.used_bytes);
  return block;
}

void* MemoryPool::TakeCached(size_t* size) {
  if (IsPiece(*size)) return IsOverLimit(regions_.Missing(*size)) ? nullptr : regions_.Take(*size);
  auto it = cache_.lower_bound(*size);
  if (it == cache_.end() || it->first > 2 * *size) return nullptr;
  void* data = it->second.back();
  *size = it->first;
  it->second.pop_back();
  cached_bytes_ -= static_cast<int64_t>(it->first);
  if (it->second.empty()) cache_.erase(it);
  return data;
}

void* MemoryPool::AskDevice(size_t size, size_t alignment) {
  if (IsPiece(size)) return regions_.Grow(size, alignment);
  void* data = api_->Alloc(device_.device_id, size, alignment);
  if (data != nullptr) block_bytes_ += static_cast<int64_t>(size);
  return data;
}

void MemoryPool::Free(const MemoryBlock& block) {
  std::lock_guard<std::mutex> lock(mutex_);
  stats_.used_bytes -= static_cast<int64_t>(block.num_bytes);
  if (IsPiece(block.reserved_bytes)) {
    regions_.Free(block.data);
    return;
  }
  if (kind_ == AllocatorKind::kPooled) {
    cache_[block.reserved_bytes].push_back(block.data);
    cached_bytes_ += static_cast<int64_t>(block.reserved_bytes);
    return;
  }
  block_bytes_ -= static_cast<int64_t>(block.reserved_bytes);
  api_->Free(device_.device_id, block.data, block.reserved_bytes, nullptr);
}

bool MemoryPool::IsPiece(size_t size) const {
  return kind_ == AllocatorKind::kPooled && size >= kMinPieceBytes;
}

bool MemoryPool::IsOverLimit(int64_t more_bytes) const {
  return limit_bytes_ > 0 && ReservedBytes() + more_bytes > limit_bytes_;
}

int64_t MemoryPool::ReservedBytes() const { return block_bytes_ + regions_.backed_bytes(); }

int64_t MemoryPool::TrimLocked(int64_t keep_bytes) {
  const int64_t before = ReservedBytes();
  regions_.Trim(std::max<int64_t>(keep_bytes - cached_bytes_, 0));
  while (!cache_.empty() && CachedBytes() > keep_bytes) {
    auto it = std::prev(cache_.end());  // largest first
    size_t size = it->first;
    api_->Free(device_.device_id, it->second.back(), size, nullptr);
    it->second.pop_back();
    if (it->second.empty()) cache_.erase(it);
    cached_bytes_ -= static_cast<int64_t>(size);
    block_bytes_ -= static_cast<int64_t>(size);
  }
  return before - ReservedBytes();
}

int64_t MemoryPool::Trim() {
  std::lock_guard<std::mutex> lock(mutex_);
  return TrimLocked(0);
}

void MemoryPool::SetLimit(int64_t limit_bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  limit_bytes_ = limit_bytes;
}

MemoryStats MemoryPool::Stats() const {
  std::lock_guard<std::mutex> lock(mutex_);
  MemoryStats stats = stats_;
  stats.reserved_bytes = ReservedBytes();
  return stats;
}

void MemoryPool::ResetPeak() {
  std::lock_guard<std::mutex> lock(mutex_);
  stats_.peak_used_bytes = stats_.used_bytes;
  stats_.peak_reserved_bytes = ReservedBytes();
}

void TrimAllPools() {
  std::lock_guard<std::mutex> lock(Pools().mutex);
  for (MemoryPool* pool : Pools().pools) pool->Trim();
}

}  // namespace relaxvm::runtime
