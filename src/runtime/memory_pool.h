// SPDX-License-Identifier: Apache-2.0
// Memory of one device for one VM: NAIVE asks the device each time, POOLED keeps freed blocks:
// small ones in size classes, large ones as pieces of regions.  Both count, both have a limit.
// Thread-safe; kept alive by every block that is in use.
#pragma once

#include <dlpack/dlpack.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/device.h"
#include "runtime/regions.h"

namespace relaxvm::runtime {

enum class AllocatorKind : int32_t { kNaive = 1, kPooled = 2 };

struct MemoryStats {
  int64_t used_bytes = 0;  // in blocks that are in use, as asked for
  int64_t peak_used_bytes = 0;
  int64_t reserved_bytes = 0;  // taken from the device, cached blocks included
  int64_t peak_reserved_bytes = 0;
  int64_t num_allocs = 0;
  int64_t num_device_allocs = 0;
};

struct MemoryBlock {
  void* data = nullptr;
  size_t num_bytes = 0;       // as asked for
  size_t reserved_bytes = 0;  // as taken
};

class MemoryPool : public std::enable_shared_from_this<MemoryPool> {
 public:
  // `limit_bytes`: most bytes to take from the device; 0 is no limit.
  static std::shared_ptr<MemoryPool> Create(DLDevice device, AllocatorKind kind,
                                            int64_t limit_bytes = 0);
  ~MemoryPool();

  // Throws RuntimeError when the device or the limit has no more.
  MemoryBlock Alloc(size_t num_bytes, size_t alignment = kDefaultAlignment);
  void Free(const MemoryBlock& block);
  // Gives cached blocks back to the device; returns how many bytes.
  int64_t Trim();

  void SetLimit(int64_t limit_bytes);
  MemoryStats Stats() const;
  void ResetPeak();
  DLDevice device() const { return device_; }
  AllocatorKind kind() const { return kind_; }

  static constexpr size_t kDefaultAlignment = 64;

 private:
  MemoryPool(DLDevice device, AllocatorKind kind, int64_t limit_bytes)
      : device_(device),
        api_(GetDeviceApi(device)),
        kind_(kind),
        limit_bytes_(limit_bytes),
        regions_(device, api_) {}
  // Memory that was freed and is kept; null: there is none that fits.
  void* TakeCached(size_t* size);
  void* AskDevice(size_t size, size_t alignment);
  bool IsPiece(size_t size) const;
  bool IsOverLimit(int64_t more_bytes) const;
  int64_t ReservedBytes() const;
  int64_t CachedBytes() const { return cached_bytes_ + regions_.free_backed_bytes(); }
  int64_t TrimLocked(int64_t keep_bytes);

  const DLDevice device_;
  DeviceApi* const api_;
  const AllocatorKind kind_;
  mutable std::mutex mutex_;  // guards all below
  int64_t limit_bytes_;
  // Small blocks.
  int64_t block_bytes_ = 0, cached_bytes_ = 0;
  std::map<size_t, std::vector<void*>> cache_;  // size of the block -> blocks, latest last
  Regions regions_;
  MemoryStats stats_;  // reserved_bytes is counted by what holds it
};

// Trims every pool of the process.
void TrimAllPools();

}  // namespace relaxvm::runtime
