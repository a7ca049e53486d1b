// SPDX-License-Identifier: Apache-2.0
// Parameters of a function as the items of one tuple: what BundleModelParams and
// LiftTransformParams share.
#pragma once

#include "ir/module.h"

namespace relaxvm::passes {

struct BundleOptions {
  tvm::ffi::String name = "params";  // of the tuple
  // Items are taken out of the tuple when they are read, so that their memory can be freed.
  bool consume = false;
};

// The parameters from number `first` on become one tuple; each item is read where it is first
// needed.  Sizes that were parameters are read at the start.
ir::Function BundleParams(const ir::Function& f, size_t first, const BundleOptions& options = {});

}  // namespace relaxvm::passes
