// SPDX-License-Identifier: Apache-2.0
// Work waits in one queue per device and stream.  It runs in Synchronize, or when a stream that
// waits for its event runs.  Fresh and freed memory is filled with 0xDB; a free takes effect when
// its turn comes.
#include "runtime/null_device.h"

#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "runtime/address_map.h"
#include "runtime/platform/memory.h"
#include "support/error.h"

namespace relaxvm::runtime {
namespace {

constexpr int kMaxDevices = 4;
constexpr int kPoison = 0xDB;

struct NullEvent {
  int device_id;
  Stream stream;
  uint64_t place;  // number of works on the stream before it
};

class NullDevice final : public DeviceApi {
 public:
  const char* name() const override { return "null"; }
  bool Exists(int device_id) const override { return device_id >= 0 && device_id < kMaxDevices; }
  // The memory is the host's in truth; claiming otherwise makes forgotten copies fail.
  bool IsHostAccessible() const override { return false; }

  void* Alloc(int device_id, size_t num_bytes, size_t alignment) override {
    void* data = AlignedAlloc(num_bytes, alignment);
    if (data == nullptr) return nullptr;
    std::memset(data, kPoison, num_bytes);
    blocks_[device_id].Add(data, num_bytes);
    Count(&NullDeviceStats::num_allocs);
    return data;
  }

  void Free(int device_id, void* data, size_t num_bytes, Stream stream) override {
    Count(&NullDeviceStats::num_frees);
    Enqueue(device_id, stream, [this, device_id, data, num_bytes] {
      blocks_[device_id].Remove(data);
      std::memset(data, kPoison, num_bytes);
      AlignedFree(data, num_bytes);
      return 0;
    });
  }

  bool Owns(int device_id, const void* data, size_t num_bytes) const override {
    return blocks_[device_id].Contains(data, num_bytes);
  }

  void Copy(int device_id, const void* from, void* to, size_t num_bytes, Stream stream) override {
    Count(&NullDeviceStats::num_copies);
    bool from_device = Owns(device_id, from, num_bytes), to_device = Owns(device_id, to, num_bytes);
    if (!from_device && !to_device) {
      Fail(ErrorKind::kRuntimeError, "a copy on null(", device_id,
           ") between two places that are not its memory");
    }
    std::shared_ptr<char[]> staged;  // what the host may overwrite as soon as this returns
    if (!from_device) {
      staged.reset(new char[num_bytes]);
      std::memcpy(staged.get(), from, num_bytes);
    }
    Enqueue(device_id, stream, [=, this] {
      const void* source = staged != nullptr ? staged.get() : from;
      CheckAlive(device_id, from, num_bytes, from_device);
      CheckAlive(device_id, to, num_bytes, to_device);
      if (num_bytes > 0) std::memmove(to, source, num_bytes);
      return 0;
    });
  }

  Stream CreateStream(int) override {
    std::lock_guard<std::mutex> lock(mutex_);
    return reinterpret_cast<Stream>(++last_stream_);
  }
  void DestroyStream(int device_id, Stream stream) override {
    Synchronize(device_id, stream);
    std::lock_guard<std::mutex> lock(mutex_);
    queues_.erase({device_id, stream});
  }
  Event RecordEvent(int device_id, Stream stream) override {
    std::lock_guard<std::mutex> lock(mutex_);
    const Queue& queue = queues_[{device_id, stream}];
    return new NullEvent{device_id, stream, queue.num_done + queue.works.size()};
  }
  void WaitEvent(int device_id, Stream stream, Event event) override {
    std::unique_ptr<NullEvent> place(static_cast<NullEvent*>(event));
    Enqueue(device_id, stream, [this, at = *place] {
      Drain(at.device_id, at.stream, at.place);
      return 0;
    });
  }

  void Synchronize(int device_id, Stream stream) override {
    Drain(device_id, stream, UINT64_MAX);
    Count(&NullDeviceStats::num_syncs);
    std::exception_ptr failure;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      failure = std::exchange(queues_[{device_id, stream}].failure, nullptr);
    }
    if (failure) std::rethrow_exception(failure);
  }

  void Launch(int device_id, Stream stream, std::function<int()> work) override {
    Count(&NullDeviceStats::num_launches);
    Enqueue(device_id, stream, std::move(work));
  }

  NullDeviceStats stats() {
    std::lock_guard<std::mutex> lock(mutex_);
    return stats_;
  }

 private:
  struct Queue {
    std::deque<std::function<int()>> works;
    uint64_t num_done = 0;       // taken from the front so far
    std::exception_ptr failure;  // of the first work that failed since the last Synchronize
  };

  void CheckAlive(int device_id, const void* data, size_t num_bytes, bool was_alive) const {
    if (was_alive && !Owns(device_id, data, num_bytes)) {
      Fail(ErrorKind::kRuntimeError, "a copy that was queued on null(", device_id,
           ") uses memory that was freed before its turn");
    }
  }

  void Count(int64_t NullDeviceStats::* counter) {
    std::lock_guard<std::mutex> lock(mutex_);
    stats_.*counter += 1;
  }

  void Enqueue(int device_id, Stream stream, std::function<int()> work) {
    std::lock_guard<std::mutex> lock(mutex_);
    queues_[{device_id, stream}].works.push_back(std::move(work));
    stats_.num_queued += 1;
  }

  // Runs the works of a stream in order until `place` of them are done, or none is left.
  void Drain(int device_id, Stream stream, uint64_t place) {
    std::lock_guard<std::recursive_mutex> running(running_);
    while (true) {
      std::function<int()> work;
      {
        std::lock_guard<std::mutex> lock(mutex_);
        Queue& queue = queues_[{device_id, stream}];
        if (queue.works.empty() || queue.num_done >= place) return;
        work = std::move(queue.works.front());
        queue.works.pop_front();
        queue.num_done += 1;
        stats_.num_queued -= 1;
      }
      std::exception_ptr failure;
      try {
        if (work() != 0)
          Fail(ErrorKind::kRuntimeError, "a kernel that was queued on null(", device_id,
               ") failed");
      } catch (...) {
        failure = std::current_exception();
      }
      work = nullptr;  // what it keeps alive may queue a free
      if (!failure) continue;
      std::lock_guard<std::mutex> lock(mutex_);
      stats_.num_failures += 1;
      Queue& queue = queues_[{device_id, stream}];
      if (!queue.failure) queue.failure = failure;
    }
  }

  AddressMap blocks_[kMaxDevices];
  std::recursive_mutex running_;  // keeps the order of one stream when two threads synchronise
  std::mutex mutex_;              // guards all below
  std::map<std::pair<int, Stream>, Queue> queues_;
  NullDeviceStats stats_;
  uintptr_t last_stream_ = 0;
};

NullDevice* Instance() {
  static auto* device = new NullDevice;  // outlives tensors of static objects
  return device;
}

}  // namespace

DeviceApi* GetNullDevice() { return Instance(); }
NullDeviceStats GetNullDeviceStats() { return Instance()->stats(); }

}  // namespace relaxvm::runtime
