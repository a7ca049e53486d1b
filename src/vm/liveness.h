// SPDX-License-Identifier: Apache-2.0
// Liveness of registers and their slots in the frame.  The invariant that everything rests on:
//   a register holds an owned value exactly when it is live-in.
// After each operation whatever is not live-out has been dropped or moved, so a store never has an
// old value to free.
#pragma once

#include <cstdint>
#include <vector>

#include "vm/lower.h"

namespace relaxvm::vm {

struct Liveness {
  std::vector<uint8_t> is_reachable;    // by LowInsn
  std::vector<uint8_t> is_result_dead;  // by LowInsn with a dst: nothing reads the result
  std::vector<uint32_t> slot;           // by register: place in the frame
  uint32_t num_slots = 0;
  std::vector<uint32_t> entry_drops;  // parameters that nothing reads
  std::vector<uint32_t>
      entry_nulls;  // registers that may be read before they are written: None, as in TVM
  // By LowInsn that is a branch, in order of `branches`: registers that die on one edge.
  struct EdgeDrops {
    uint32_t insn;
    std::vector<uint32_t> on_true, on_false;
  };
  std::vector<EdgeDrops> edge_drops;   // sorted by insn; branches without drops are left out
  std::vector<LiveRange> live_ranges;  // `slot` is a slot
};

// Also sets is_last_use of the operands.  Throws ValueError when the tables would exceed a fixed
// multiple of the code.
Liveness ComputeLiveness(LowFunction* function, LoadScratch* scratch);

}  // namespace relaxvm::vm
