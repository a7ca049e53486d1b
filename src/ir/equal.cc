// SPDX-License-Identifier: Apache-2.0
// Structural equality and hash, by tvm-ffi's reflection.
#include <tvm/ffi/extra/structural_equal.h>
#include <tvm/ffi/extra/structural_hash.h>

#include "ir/visitor.h"

namespace relaxvm::ir {

bool StructuralEqual(const ffi::Any& a, const ffi::Any& b, bool map_free_vars) {
  return ffi::StructuralEqual::Equal(a, b, map_free_vars);
}
uint64_t StructuralHash(const ffi::Any& a, bool map_free_vars) {
  return ffi::StructuralHash::Hash(a, map_free_vars);
}

}  // namespace relaxvm::ir
