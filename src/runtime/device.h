// SPDX-License-Identifier: Apache-2.0
// The device interface: memory, copies, streams, events.  Everything may run later, in the order of
// its stream.
#pragma once

#include <dlpack/dlpack.h>

#include <cstddef>
#include <functional>
#include <string>

namespace relaxvm::runtime {

using Stream = void*;  // null is a device's default stream
using Event = void*;

class DeviceApi {
 public:
  virtual ~DeviceApi() = default;
  virtual const char* name() const = 0;
  virtual bool Exists(int device_id) const = 0;
  // Whether the host may read and write the memory at its address.
  virtual bool IsHostAccessible() const = 0;

  // Null when there is no more memory.
  virtual void* Alloc(int device_id, size_t num_bytes, size_t alignment) = 0;
  // Takes effect when the work that was queued on `stream` before is done.
  virtual void Free(int device_id, void* data, size_t num_bytes, Stream stream) = 0;
  // Gives the memory of a part of a block back that holds nothing; the addresses stay the block's
  // and may be used again.  False: the device cannot.
  virtual bool Discard(int, void*, size_t) { return false; }
  // One side is this device; the other is this device or the host.  Memory of the host is read
  // before Copy returns; it is written by the time Synchronize returns.
  virtual void Copy(int device_id, const void* from, void* to, size_t num_bytes, Stream stream) = 0;

  // Whether the bytes lie in one block that Alloc gave and whose Free has not taken effect.  A
  // device that cannot tell answers true.
  virtual bool Owns(int, const void*, size_t) const { return true; }

  virtual Stream CreateStream(int device_id) = 0;
  virtual void DestroyStream(int device_id, Stream stream) = 0;
  // A place in a stream: after all that is queued now.
  virtual Event RecordEvent(int device_id, Stream stream) = 0;
  // What is queued on `stream` from now on runs after the event's place.  Releases the event.
  virtual void WaitEvent(int device_id, Stream stream, Event event) = 0;
  // Returns when all work on the stream is done; throws what the first work that failed threw.
  virtual void Synchronize(int device_id, Stream stream) = 0;
  // Queues a kernel; 0 is success.  `work` may throw instead, with a better message.
  virtual void Launch(int device_id, Stream stream, std::function<int()> work) = 0;
};

// Throws RuntimeError when this build has no such device.
DeviceApi* GetDeviceApi(DLDevice device);
// Null instead.
DeviceApi* FindDeviceApi(DLDeviceType type);
// "cpu(0)", "null(1)"
std::string DeviceName(DLDevice device);

// The device type of the null device: DLPack's "extension" type.
inline constexpr DLDeviceType kDLNull = kDLExtDev;

inline bool SameDevice(DLDevice a, DLDevice b) {
  return a.device_type == b.device_type && a.device_id == b.device_id;
}

}  // namespace relaxvm::runtime
