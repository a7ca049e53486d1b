// SPDX-License-Identifier: Apache-2.0
// The form in which a contraction reads its right side fastest: panels of `width` neighbouring
// columns, each panel with its rows one after the other.  Passes bring weights into it, schedules
// read it and make it at run time where they must.
#pragma once

#include "target/machine.h"

namespace relaxvm::target {

// Registers across a panel of a right side with `columns` columns (at most 0: not known), whose
// sums have elements of `elem_bytes`; `of_groups`: one instruction takes several products of a
// column.
inline int64_t PanelVectors(const Machine& machine, int64_t columns, int64_t elem_bytes,
                            bool of_groups) {
  const int64_t lanes = machine.Lanes(elem_bytes);
  const int64_t most = machine.num_vectors >= 32 ? 4 : 2;
  if (columns <= 0) return most;
  const int64_t needed = (columns + lanes - 1) / lanes;
  if (needed <= most) return needed;
  // Tiles of 8 or 9 rows and 3 vectors read less of the right side than those of 6 and 4.
  if (most == 4 && needed % 3 == 0 && (!of_groups || (needed % 4 != 0 && needed < 8))) return 3;
  return most;
}

}  // namespace relaxvm::target
