// SPDX-License-Identifier: Apache-2.0
// The CPU, and the table of devices.
#include "runtime/device.h"

#include <array>
#include <cstring>

#include "runtime/address_map.h"
#include "runtime/null_device.h"
#include "runtime/platform/memory.h"
#include "support/error.h"

namespace relaxvm::runtime {
namespace {

// Runs everything at once.  cpu(0) is the host: all memory is its.  Further indices stand for
// memory of their own, as far as checks go: they know their blocks and refuse others.
class CpuDevice final : public DeviceApi {
 public:
  const char* name() const override { return "cpu"; }
  bool Exists(int device_id) const override { return device_id >= 0 && device_id < kMaxCpus; }
  bool IsHostAccessible() const override { return true; }
  void* Alloc(int device_id, size_t num_bytes, size_t alignment) override {
    void* data = AlignedAlloc(num_bytes, alignment);
    if (device_id > 0 && data != nullptr) blocks_[Index(device_id)].Add(data, num_bytes);
    return data;
  }
  void Free(int device_id, void* data, size_t num_bytes, Stream) override {
    if (device_id > 0) blocks_[Index(device_id)].Remove(data);
    AlignedFree(data, num_bytes);
  }
  bool Discard(int, void* data, size_t num_bytes) override {
    DiscardPages(data, num_bytes);
    return true;
  }
  bool Owns(int device_id, const void* data, size_t num_bytes) const override {
    return device_id == 0 || blocks_[Index(device_id)].Contains(data, num_bytes);
  }
  void Copy(int, const void* from, void* to, size_t num_bytes, Stream) override {
    if (num_bytes > 0) std::memmove(to, from, num_bytes);
  }
  Stream CreateStream(int) override { return nullptr; }
  void DestroyStream(int, Stream) override {}
  Event RecordEvent(int, Stream) override { return nullptr; }
  void WaitEvent(int, Stream, Event) override {}
  void Synchronize(int, Stream) override {}
  void Launch(int, Stream, std::function<int()> work) override {
    if (work() != 0) Fail(ErrorKind::kRuntimeError, "a kernel failed");
  }

 private:
  static constexpr int kMaxCpus = 64;
  static size_t Index(int device_id) { return static_cast<size_t>(device_id); }
  std::array<AddressMap, kMaxCpus> blocks_;
};

}  // namespace

DeviceApi* FindDeviceApi(DLDeviceType type) {
  static auto* cpu = new CpuDevice;  // outlives memory of static objects
  if (type == kDLCPU) return cpu;
  if (type == kDLNull) return GetNullDevice();
  return nullptr;
}

DeviceApi* GetDeviceApi(DLDevice device) {
  DeviceApi* api = FindDeviceApi(device.device_type);
  if (api == nullptr || !api->Exists(device.device_id)) {
    Fail(ErrorKind::kRuntimeError, "this build of relaxvm has no device ", DeviceName(device),
         "; use cpu()");
  }
  return api;
}

std::string DeviceName(DLDevice device) {
  DeviceApi* api = FindDeviceApi(device.device_type);
  std::string name =
      api != nullptr ? api->name() : "type" + std::to_string(static_cast<int>(device.device_type));
  return name + "(" + std::to_string(device.device_id) + ")";
}

}  // namespace relaxvm::runtime
