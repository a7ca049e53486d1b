// SPDX-License-Identifier: Apache-2.0
// A device for tests: it queues all work and runs it as late as it may, so that a missing
// synchronisation, or a storage that is reused too early, gives a wrong result on any machine.
#pragma once

#include <cstdint>

#include "runtime/device.h"

namespace relaxvm::runtime {

struct NullDeviceStats {
  int64_t num_launches = 0;
  int64_t num_copies = 0;
  int64_t num_syncs = 0;
  int64_t num_queued = 0;  // waiting now
};

DeviceApi* GetNullDevice();
NullDeviceStats GetNullDeviceStats();

}  // namespace relaxvm::runtime
