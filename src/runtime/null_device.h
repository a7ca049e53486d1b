// SPDX-License-Identifier: Apache-2.0
// A device for tests: it queues all work and runs it as late as it may, and checks that memory it
// uses is its own and alive, so that a missing synchronisation, or a storage that is freed or
// reused too early, is an error or a wrong result on any machine.
#pragma once

#include <cstdint>

#include "runtime/device.h"

namespace relaxvm::runtime {

struct NullDeviceStats {
  int64_t num_launches = 0;
  int64_t num_copies = 0;
  int64_t num_syncs = 0;
  int64_t num_queued = 0;  // waiting now
  int64_t num_allocs = 0;
  int64_t num_frees = 0;
  int64_t num_failures = 0;
};

DeviceApi* GetNullDevice();
NullDeviceStats GetNullDeviceStats();

}  // namespace relaxvm::runtime
