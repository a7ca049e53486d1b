// SPDX-License-Identifier: Apache-2.0
// Large blocks of one device, cut to what is asked for.  What was freed side by side becomes one
// piece again, so that memory which one size has left serves another size.
#pragma once

#include <dlpack/dlpack.h>

#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "runtime/device.h"

namespace relaxvm::runtime {

// Not thread-safe.
class Regions {
 public:
  // Sizes are multiples of it.
  static constexpr size_t kUnit = 4096;

  Regions(DLDevice device, DeviceApi* api) : device_id_(device.device_id), api_(api) {}
  Regions(const Regions&) = delete;
  Regions& operator=(const Regions&) = delete;

  // Memory that Take would make the device back anew; absent pieces count as `num_bytes`.
  int64_t Missing(size_t num_bytes) const;
  // The smallest free piece that holds it, or the front of that piece; null when there is none.
  void* Take(size_t num_bytes);
  // A region of its own; null when the device has no more.
  void* Grow(size_t num_bytes, size_t alignment);
  void Free(void* data);

  // Gives free memory back until at most `keep_bytes` of it are left: whole regions, and of regions
  // in use what the device can take back from the middle.
  void Trim(int64_t keep_bytes);

  int64_t backed_bytes() const { return backed_bytes_; }            // by the device
  int64_t free_backed_bytes() const { return free_backed_bytes_; }  // of these, in free pieces

 private:
  struct Piece {
    size_t size;
    size_t backed;  // bytes of it for which the device has memory: all of them in use
    bool is_free;
    bool begins_region;
  };
  using Pieces = std::map<char*, Piece>;

  void AddFree(Pieces::iterator at);
  void RemoveFree(Pieces::iterator at);
  bool IsWholeRegion(Pieces::const_iterator at) const;

  const int device_id_;
  DeviceApi* const api_;
  Pieces pieces_;
  std::set<std::pair<size_t, char*>> free_;  // by size
  int64_t backed_bytes_ = 0, free_backed_bytes_ = 0;
};

}  // namespace relaxvm::runtime
