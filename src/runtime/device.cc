// SPDX-License-Identifier: Apache-2.0
// The CPU, and the table of devices.
#include "runtime/device.h"

#include <cstring>

#include "runtime/null_device.h"
#include "runtime/platform/memory.h"
#include "support/error.h"

namespace relaxvm::runtime {
namespace {

// Runs everything at once.  All indices share the host's memory.
class CpuDevice final : public DeviceApi {
 public:
  const char* name() const override { return "cpu"; }
  bool Exists(int device_id) const override { return device_id >= 0; }
  bool IsHostAccessible() const override { return true; }
  void* Alloc(int, size_t num_bytes, size_t alignment) override {
    return AlignedAlloc(num_bytes, alignment);
  }
  void Free(int, void* data, size_t num_bytes, Stream) override { AlignedFree(data, num_bytes); }
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
};

}  // namespace

DeviceApi* FindDeviceApi(DLDeviceType type) {
  static CpuDevice cpu;
  if (type == kDLCPU) return &cpu;
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
