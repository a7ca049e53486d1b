// SPDX-License-Identifier: Apache-2.0
// Mistakes that all KV states report alike.
#include "vm/kv/state.h"

#include <unordered_set>

namespace relaxvm::vm::kv {

void FailUnknown(int64_t id) {
  Fail(ErrorKind::kKeyError, "the KV state has no sequence ", id,
       "; add it with vm.builtin.kv_state_add_sequence");
}

void FailTaken(int64_t id) {
  Fail(ErrorKind::kValueError, "the KV state has a sequence ", id, " already; remove it first");
}

void CheckBatch(tvm::ffi::ShapeView ids, tvm::ffi::ShapeView lengths) {
  if (ids.size() == 0 || ids.size() != lengths.size()) {
    Fail(ErrorKind::kValueError,
         "a forward takes as many lengths as sequences, at least one; given ", lengths.size(),
         " for ", ids.size());
  }
  std::unordered_set<int64_t> seen;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!seen.insert(ids[i]).second) {
      Fail(ErrorKind::kValueError, "sequence ", ids[i], " stands twice in one forward");
    }
    if (lengths[i] < 1) {
      Fail(ErrorKind::kValueError, "sequence ", ids[i], " cannot append ", lengths[i], " tokens");
    }
  }
}

}  // namespace relaxvm::vm::kv
