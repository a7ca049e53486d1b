// SPDX-License-Identifier: Apache-2.0
// Work of all streams waits in one list per stream and runs only in Synchronize or WaitEvent. Freed
// memory is filled with 0xDB once the free's turn comes.
#include "runtime/null_device.h"

#include <cstring>
#include <deque>
#include <map>
#include <mutex>

#include "runtime/platform/memory.h"
#include "support/error.h"

namespace relaxvm::runtime {
namespace {

constexpr int kMaxDevices = 4;

class NullDevice final : public DeviceApi {
 public:
  const char* name() const override { return "null"; }
  bool Exists(int device_id) const override { return device_id >= 0 && device_id < kMaxDevices; }
  // The memory is the host's in truth; claiming otherwise makes forgotten copies fail.
  bool IsHostAccessible() const override { return false; }

  void* Alloc(int, size_t num_bytes, size_t alignment) override {
    return AlignedAlloc(num_bytes, alignment);
  }

  void Free(int, void* data, size_t num_bytes, Stream stream) override {
    Enqueue(stream, [data, num_bytes] {
      std::memset(data, 0xDB, num_bytes);
      AlignedFree(data, num_bytes);
      return 0;
    });
  }

  void Copy(int, const void* from, void* to, size_t num_bytes, Stream stream) override {
    Enqueue(stream, [=] {
      if (num_bytes > 0) std::memmove(to, from, num_bytes);
      return 0;
    });
    std::lock_guard<std::mutex> lock(mutex_);
    stats_.num_copies += 1;
  }

  Stream CreateStream(int) override {
    std::lock_guard<std::mutex> lock(mutex_);
    return reinterpret_cast<Stream>(++last_stream_);
  }
  void DestroyStream(int device_id, Stream stream) override {
    Synchronize(device_id, stream);
    std::lock_guard<std::mutex> lock(mutex_);
    queues_.erase(stream);
  }
  // An event is the stream itself: waiting runs all that the stream holds, at least what was there
  // at the record.
  Event RecordEvent(int, Stream stream) override { return stream; }
  void WaitEvent(int device_id, Stream, Event event) override { Synchronize(device_id, event); }

  void Synchronize(int, Stream stream) override {
    std::lock_guard<std::recursive_mutex> running(running_);
    int result = 0;
    while (true) {
      std::function<int()> work;
      {
        std::lock_guard<std::mutex> lock(mutex_);
        std::deque<std::function<int()>>& queue = queues_[stream];
        if (queue.empty()) {
          stats_.num_syncs += 1;
          break;
        }
        work = std::move(queue.front());
        queue.pop_front();
        stats_.num_queued -= 1;
      }
      if (int code = work(); result == 0) result = code;
    }
    if (result != 0)
      Fail(ErrorKind::kRuntimeError, "a kernel that was queued on the null device failed");
  }

  void Launch(int, Stream stream, std::function<int()> work) override {
    Enqueue(stream, std::move(work));
    std::lock_guard<std::mutex> lock(mutex_);
    stats_.num_launches += 1;
  }

  NullDeviceStats stats() {
    std::lock_guard<std::mutex> lock(mutex_);
    return stats_;
  }

 private:
  void Enqueue(Stream stream, std::function<int()> work) {
    std::lock_guard<std::mutex> lock(mutex_);
    queues_[stream].push_back(std::move(work));
    stats_.num_queued += 1;
  }

  std::recursive_mutex running_;  // keeps the order of one stream when two threads synchronise
  std::mutex mutex_;              // guards all below
  std::map<Stream, std::deque<std::function<int()>>> queues_;
  NullDeviceStats stats_;
  uintptr_t last_stream_ = 0;
};

NullDevice* Instance() {
  static NullDevice device;
  return &device;
}

}  // namespace

DeviceApi* GetNullDevice() { return Instance(); }
NullDeviceStats GetNullDeviceStats() { return Instance()->stats(); }

}  // namespace relaxvm::runtime
