// SPDX-License-Identifier: Apache-2.0
// Size classes: eight steps per doubling, so a block wastes at most an eighth.  A request takes the
// smallest cached block of at most twice its class; what the cache holds never exceeds what the
// pool's users have used at once.
#include "runtime/memory_pool.h"

#include <algorithm>
#include <bit>

#include "support/error.h"

namespace relaxvm::runtime {
namespace {

constexpr size_t kMinClass = 64;
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
  size_t size = ClassSize(std::max(num_bytes, alignment > kDefaultAlignment ? alignment : 0));
  if (num_bytes > (size_t{1} << 62)) {
    Fail(ErrorKind::kRuntimeError, "out of memory on ", DeviceName(device_), ": ", num_bytes,
         " bytes were asked for");
  }
  std::lock_guard<std::mutex> lock(mutex_);
  MemoryBlock block{nullptr, num_bytes, size};
  if (alignment <= kDefaultAlignment) {
    auto it = cache_.lower_bound(size);
    if (it != cache_.end() && it->first <= 2 * size) {
      block.data = it->second.back();
      block.reserved_bytes = it->first;
      it->second.pop_back();
      cached_bytes_ -= static_cast<int64_t>(it->first);
      if (it->second.empty()) cache_.erase(it);
    }
  }
  if (block.data == nullptr) {
    int64_t wanted = static_cast<int64_t>(size);
    if (limit_bytes_ > 0 && stats_.reserved_bytes + wanted > limit_bytes_) TrimLocked(0);
    if (limit_bytes_ > 0 && stats_.reserved_bytes + wanted > limit_bytes_) {
      Fail(ErrorKind::kRuntimeError, "out of memory on ", DeviceName(device_), ": ", num_bytes,
           " bytes were asked for, ", stats_.used_bytes, " are in use, the limit is ",
           limit_bytes_);
    }
    // What does not fit the work any more makes room before memory grows.
    if (cached_bytes_ > 0)
      TrimLocked(std::max(kMinCacheBytes, stats_.peak_used_bytes - stats_.used_bytes - wanted));
    block.data = api_->Alloc(device_.device_id, size, std::max(alignment, kDefaultAlignment));
    if (block.data == nullptr) {
      TrimLocked(0);
      block.data = api_->Alloc(device_.device_id, size, std::max(alignment, kDefaultAlignment));
    }
    if (block.data == nullptr) {
      Fail(ErrorKind::kRuntimeError, "out of memory on ", DeviceName(device_), ": ", num_bytes,
           " bytes were asked for, ", stats_.used_bytes, " are in use");
    }
    stats_.num_device_allocs += 1;
    stats_.reserved_bytes += wanted;
    stats_.peak_reserved_bytes = std::max(stats_.peak_reserved_bytes, stats_.reserved_bytes);
  }
  stats_.num_allocs += 1;
  stats_.used_bytes += static_cast<int64_t>(num_bytes);
  stats_.peak_used_bytes = std::max(stats_.peak_used_bytes, stats_.used_bytes);
  return block;
}

void MemoryPool::Free(const MemoryBlock& block) {
  std::lock_guard<std::mutex> lock(mutex_);
  stats_.used_bytes -= static_cast<int64_t>(block.num_bytes);
  if (kind_ == AllocatorKind::kPooled) {
    cache_[block.reserved_bytes].push_back(block.data);
    cached_bytes_ += static_cast<int64_t>(block.reserved_bytes);
    return;
  }
  stats_.reserved_bytes -= static_cast<int64_t>(block.reserved_bytes);
  api_->Free(device_.device_id, block.data, block.reserved_bytes, nullptr);
}

int64_t MemoryPool::TrimLocked(int64_t keep_bytes) {
  int64_t freed = 0;
  while (cached_bytes_ > std::max<int64_t>(keep_bytes, 0)) {
    auto it = std::prev(cache_.end());  // largest first
    size_t size = it->first;
    api_->Free(device_.device_id, it->second.back(), size, nullptr);
    it->second.pop_back();
    if (it->second.empty()) cache_.erase(it);
    cached_bytes_ -= static_cast<int64_t>(size);
    stats_.reserved_bytes -= static_cast<int64_t>(size);
    freed += static_cast<int64_t>(size);
  }
  return freed;
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
  return stats_;
}

void MemoryPool::ResetPeak() {
  std::lock_guard<std::mutex> lock(mutex_);
  stats_.peak_used_bytes = stats_.used_bytes;
  stats_.peak_reserved_bytes = stats_.reserved_bytes;
}

void TrimAllPools() {
  std::lock_guard<std::mutex> lock(Pools().mutex);
  for (MemoryPool* pool : Pools().pools) pool->Trim();
}

}  // namespace relaxvm::runtime
