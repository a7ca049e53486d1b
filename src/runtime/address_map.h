// SPDX-License-Identifier: Apache-2.0
// Which blocks of a device are allocated: for devices that refuse memory which is not theirs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace relaxvm::runtime {

// Thread-safe.
class AddressMap {
 public:
  void Add(const void* data, size_t num_bytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    blocks_[Address(data)] = num_bytes;
  }
  void Remove(const void* data) {
    std::lock_guard<std::mutex> lock(mutex_);
    blocks_.erase(Address(data));
  }
  // Whether the bytes lie in one block.  No bytes lie anywhere.
  bool Contains(const void* data, size_t num_bytes) const {
    if (num_bytes == 0) return true;
    std::lock_guard<std::mutex> lock(mutex_);
    auto it = blocks_.upper_bound(Address(data));
    if (it == blocks_.begin()) return false;
    --it;
    size_t offset = Address(data) - it->first;
    return offset <= it->second && num_bytes <= it->second - offset;
  }

 private:
  static uintptr_t Address(const void* data) { return reinterpret_cast<uintptr_t>(data); }
  mutable std::mutex mutex_;
  std::map<uintptr_t, size_t> blocks_;  // first byte -> size
};

}  // namespace relaxvm::runtime
